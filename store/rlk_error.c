#include "store/rlk_error.h"

#include <errno.h>
#include <stdio.h>

const char *rlk_error_name(int code)
{
    switch (code) {
    case RLK_OK:
        return "RLK_OK";
#define X(name, value, sentence)                                                                                       \
    case name:                                                                                                         \
        return #name;
        RLK_ERRORS(X)
#undef X
    default:
        return "RLK_?";
    }
}

const char *rlk_error_sentence(int code)
{
    switch (code) {
    case RLK_OK:
        return "ok";
#define X(name, value, sentence)                                                                                       \
    case name:                                                                                                         \
        return sentence;
        RLK_ERRORS(X)
#undef X
    default:
        return "an unknown error code";
    }
}

int rlk_fail(struct rlk_detail *detail, int code, const char *format, ...)
{
    if (detail) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(detail->text, sizeof detail->text, format, ap);
        va_end(ap);
    }
    return code;
}

int rlk_error_from_errno(int err)
{
    switch (err) {
    case 0:
        return RLK_OK;
    case ENOMEM:
        return RLK_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return RLK_ENOSPC;
    case EEXIST:
        return RLK_EEXIST;
    case ENOENT:
    case ENOTDIR:
        return RLK_ENOENT;
    case EACCES:
    case EPERM:
    case EROFS:
        return RLK_EPERM;
    case EINVAL:
        return RLK_EINVAL;
    default:
        return RLK_EIO;
    }
}
