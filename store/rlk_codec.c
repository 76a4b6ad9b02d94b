#include "store/rlk_codec.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is little-endian and fixed-width values are copied");

bool rlki_buf_grow(struct rlki_buf *b, size_t more)
{
    if (b->oom || more > SIZE_MAX / 4 || b->n > SIZE_MAX / 4) {
        b->oom = true;
        return false;
    }
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->n < more)
        cap *= 2;
    uint8_t *p = realloc(b->p, cap);
    if (!p) {
        b->oom = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void rlki_buf_release(struct rlki_buf *b)
{
    free(b->p);
    *b = (struct rlki_buf){0};
}
