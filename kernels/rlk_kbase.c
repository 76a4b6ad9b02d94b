#include "kernels/rlk_kbase.h"

#include <stdarg.h>
#include <stdio.h>

int rlk_kfail(struct rlk_kdetail *detail, int code, const char *format, ...)
{
    if (detail) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(detail->text, sizeof detail->text, format, ap);
        va_end(ap);
    }
    return code;
}

size_t rlk_ktype_bytes(enum rlk_ktype type)
{
    switch (type) {
    case RLK_K_UINT8:
        return 1;
    case RLK_K_INT32:
    case RLK_K_FP32:
        return 4;
    case RLK_K_INT64:
    case RLK_K_FP64:
        return 8;
    case RLK_K_BF16:
        return 2;
    case RLK_K_NONE:
        break;
    }
    return 0;
}
