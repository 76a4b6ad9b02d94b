/* rlk_codec.h - bytes in and out (internal): a growing buffer, and a bounded cursor over hostile input.
 *
 * Both are sticky: after the first failure every call does nothing, so that callers check once at the end.
 */
#ifndef STORE_RLK_CODEC_H
#define STORE_RLK_CODEC_H

#include "store/rlk_types.h"

#include <stdlib.h>
#include <string.h>

struct rlki_buf { /* zero-initialised = empty; free p with rlki_buf_release */
    uint8_t *p;
    size_t n, cap;
    bool oom;
};

bool rlki_buf_grow(struct rlki_buf *b, size_t more); /* room for `more` bytes; false and oom = true if there is none */
void rlki_buf_release(struct rlki_buf *b);

static inline bool rlki_buf_room(struct rlki_buf *b, size_t more)
{
    return b->cap - b->n >= more || rlki_buf_grow(b, more);
}

static inline void rlki_put_bytes(struct rlki_buf *b, const void *p, size_t n)
{
    if (n && rlki_buf_room(b, n)) {
        memcpy(b->p + b->n, p, n);
        b->n += n;
    }
}

static inline void rlki_put_u8(struct rlki_buf *b, uint8_t v)
{
    if (rlki_buf_room(b, 1))
        b->p[b->n++] = v;
}

static inline void rlki_put_v(struct rlki_buf *b, uint64_t v)
{
    if (!rlki_buf_room(b, 10))
        return;
    uint8_t *p = b->p + b->n;
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    b->n = (size_t)(p - b->p);
}

static inline void rlki_put_z(struct rlki_buf *b, int64_t v)
{
    rlki_put_v(b, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

/* The machines this runs on are little-endian (checked when the library is built), so fixed-width values are copied. */
static inline void rlki_put_u32(struct rlki_buf *b, uint32_t v)
{
    rlki_put_bytes(b, &v, sizeof v);
}

static inline void rlki_put_u64(struct rlki_buf *b, uint64_t v)
{
    rlki_put_bytes(b, &v, sizeof v);
}

static inline void rlki_put_u128(struct rlki_buf *b, rlk_u128 v)
{
    rlki_put_u64(b, v.lo);
    rlki_put_u64(b, v.hi);
}

struct rlki_cur {
    const uint8_t *p, *end;
    bool bad;
};

static inline size_t rlki_left(const struct rlki_cur *c)
{
    return (size_t)(c->end - c->p);
}

static inline const uint8_t *rlki_get_bytes(struct rlki_cur *c, uint64_t n)
{
    const uint8_t *p = c->p;
    if (c->bad || n > rlki_left(c)) {
        c->bad = true;
        return NULL;
    }
    c->p += n;
    return p;
}

static inline uint8_t rlki_get_u8(struct rlki_cur *c)
{
    const uint8_t *p = rlki_get_bytes(c, 1);
    return p ? *p : 0;
}

static inline uint64_t rlki_get_v(struct rlki_cur *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (c->bad || c->p == c->end)
            break;
        uint8_t b = *c->p++;
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    c->bad = true;
    return 0;
}

static inline int64_t rlki_get_z(struct rlki_cur *c)
{
    uint64_t v = rlki_get_v(c);
    return (int64_t)((v >> 1) ^ (0 - (v & 1)));
}

static inline uint32_t rlki_get_v32(struct rlki_cur *c)
{
    uint64_t v = rlki_get_v(c);
    if (v > UINT32_MAX)
        c->bad = true;
    return c->bad ? 0 : (uint32_t)v;
}

/* A count of things that take at least `least` bytes each and of which there may be at most `most`. */
static inline uint32_t rlki_get_n(struct rlki_cur *c, uint32_t most, size_t least)
{
    uint64_t v = rlki_get_v(c);
    if (v > most || v > rlki_left(c) / least)
        c->bad = true;
    return c->bad ? 0 : (uint32_t)v;
}

static inline uint32_t rlki_get_u32(struct rlki_cur *c)
{
    uint32_t v = 0;
    const uint8_t *p = rlki_get_bytes(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t rlki_get_u64(struct rlki_cur *c)
{
    uint64_t v = 0;
    const uint8_t *p = rlki_get_bytes(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static inline rlk_u128 rlki_get_u128(struct rlki_cur *c)
{
    rlk_u128 v;
    v.lo = rlki_get_u64(c);
    v.hi = rlki_get_u64(c);
    return v;
}

#endif
