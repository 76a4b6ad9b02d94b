#include "store/rlk_types.h"

#include <string.h>

struct dtype_row {
    const char *name;
    uint8_t bytes, code, bits;
};

static const struct dtype_row table[] = {
#define X(name, value, text, bytes, code, bits) [value] = {text, bytes, code, bits},
    RLK_DTYPES(X)
#undef X
};

static const struct dtype_row *row(enum rlk_dtype dtype)
{
    static const struct dtype_row none = {"?", 0, 0, 0};
    size_t i = (size_t)dtype;
    return i < sizeof table / sizeof table[0] && table[i].name ? &table[i] : &none;
}

const char *rlk_dtype_name(enum rlk_dtype dtype)
{
    return row(dtype)->name;
}

enum rlk_dtype rlk_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].name && strcmp(table[i].name, name) == 0)
            return (enum rlk_dtype)i;
    return RLK_DTYPE_NONE;
}

size_t rlk_dtype_bytes(enum rlk_dtype dtype)
{
    return row(dtype)->bytes;
}

unsigned rlk_dtype_code(enum rlk_dtype dtype)
{
    return row(dtype)->code;
}

unsigned rlk_dtype_bits(enum rlk_dtype dtype)
{
    return row(dtype)->bits;
}

bool rlk_dtype_is_integer(enum rlk_dtype dtype)
{
    return dtype >= RLK_BOOL && dtype <= RLK_INT64;
}

bool rlk_dtype_is_complex(enum rlk_dtype dtype)
{
    return dtype >= RLK_COMPLEX32 && dtype <= RLK_COMPLEX128;
}
