#include "store/rlk_digest_units.h"

#include <string.h>
#include <xxhash.h>

#define MAX_UNIT ((size_t)256)
_Static_assert(RLKI_PIECE % MAX_UNIT == 0, "a piece holds whole units");

typedef unsigned __int128 u128;

struct unit_sums {
    u128 positional;
    uint64_t multiset;
};

/* g of the definition for the unit with hash h. */
static inline u128 numbered(XXH128_hash_t h, uint64_t number)
{
    uint64_t bytes[2] = {h.low64, h.high64}; /* little-endian machines only: checked in rlk_digest.c */
    XXH128_hash_t g = XXH3_128bits_withSeed(bytes, sizeof bytes, number);
    return (u128)g.high64 << 64 | g.low64;
}

static inline u128 join(rlk_u128 v)
{
    return (u128)v.hi << 64 | v.lo;
}

static inline rlk_u128 split(u128 v)
{
    return (rlk_u128){(uint64_t)v, (uint64_t)(v >> 64)};
}

/* One loop for each unit length: with a constant length XXH3 of a short input is a handful of multiplications. The next
 * piece is asked for while this one is hashed, so that its scan does not wait for memory. */
#define UNITS(LEN)                                                                                                     \
    __attribute__((flatten)) static struct unit_sums units_##LEN(const unsigned char *p, uint64_t n,                   \
                                                                 uint64_t number) {                                    \
        struct unit_sums s = {0, 0};                                                                                   \
        for (uint64_t i = 0; i < n; i++, p += LEN) {                                                                   \
            if (LEN >= 16)                                                                                             \
                __builtin_prefetch((const void *)((uintptr_t)p + RLKI_PIECE));                                         \
            XXH128_hash_t h = XXH3_128bits(p, LEN);                                                                    \
            s.positional += numbered(h, number + i);                                                                   \
            s.multiset += h.low64;                                                                                     \
        }                                                                                                              \
        return s;                                                                                                      \
    }
UNITS(1)
UNITS(2)
UNITS(4)
UNITS(8)
UNITS(16)
UNITS(32)
UNITS(64)
UNITS(128)
UNITS(256)

static struct unit_sums hash_units(const unsigned char *p, size_t unit_bytes, uint64_t n, uint64_t number)
{
    switch (unit_bytes) {
    case 1:
        return units_1(p, n, number);
    case 2:
        return units_2(p, n, number);
    case 4:
        return units_4(p, n, number);
    case 8:
        return units_8(p, n, number);
    case 16:
        return units_16(p, n, number);
    case 32:
        return units_32(p, n, number);
    case 64:
        return units_64(p, n, number);
    case 128:
        return units_128(p, n, number);
    default:
        return units_256(p, n, number);
    }
}

/* Units of a piece that holds special values: `q` is its canonical copy. Only units that differ are hashed twice. */
#define BOTH(LEN)                                                                                                      \
    __attribute__((flatten)) static struct unit_sums both_##LEN(const unsigned char *p, const unsigned char *q,        \
                                                                uint64_t n, uint64_t number, u128 *value) {            \
        struct unit_sums s = {0, 0};                                                                                   \
        for (uint64_t i = 0; i < n; i++, p += LEN, q += LEN) {                                                         \
            XXH128_hash_t h = XXH3_128bits(p, LEN);                                                                    \
            u128 g = numbered(h, number + i);                                                                          \
            s.positional += g;                                                                                         \
            s.multiset += h.low64;                                                                                     \
            if (memcmp(p, q, LEN) != 0)                                                                                \
                g = numbered(XXH3_128bits(q, LEN), number + i);                                                        \
            *value += g;                                                                                               \
        }                                                                                                              \
        return s;                                                                                                      \
    }
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
BOTH(32)
BOTH(64)
BOTH(128)
BOTH(256)

static struct unit_sums hash_both(const unsigned char *p, const unsigned char *q, size_t unit_bytes, uint64_t n,
                                  uint64_t number, u128 *value)
{
    switch (unit_bytes) {
    case 1:
        return both_1(p, q, n, number, value);
    case 2:
        return both_2(p, q, n, number, value);
    case 4:
        return both_4(p, q, n, number, value);
    case 8:
        return both_8(p, q, n, number, value);
    case 16:
        return both_16(p, q, n, number, value);
    case 32:
        return both_32(p, q, n, number, value);
    case 64:
        return both_64(p, q, n, number, value);
    case 128:
        return both_128(p, q, n, number, value);
    default:
        return both_256(p, q, n, number, value);
    }
}

static void add(struct rlki_digest *d, u128 positional, u128 value, uint64_t multiset)
{
    d->sums.positional = split(join(d->sums.positional) + positional);
    d->sums.value = split(join(d->sums.value) + value);
    d->sums.multiset += multiset;
}

void rlki_digest_tail(struct rlki_digest *d, const unsigned char *p, size_t bytes, uint64_t number)
{
    unsigned char canonical[MAX_UNIT];
    XXH128_hash_t h = XXH3_128bits(p, bytes);
    u128 g = numbered(h, number), g_value = g;
    if (rlki_scan_special(d->dtype, p, bytes)) {
        rlki_canonicalise(&d->sums, d->dtype, canonical, p, bytes);
        g_value = numbered(XXH3_128bits(canonical, bytes), number);
    }
    add(d, g, g_value, h.low64);
    d->sums.elements += bytes / rlk_dtype_bytes(d->dtype);
}

void rlki_digest_units(struct rlki_digest *d, const unsigned char *p, uint64_t n, uint64_t number)
{
    const size_t unit = d->unit_bytes;
    const bool plain = rlk_dtype_is_integer(d->dtype);
    const uint64_t piece = plain ? n : RLKI_PIECE / unit;
    d->sums.elements += n * (unit / rlk_dtype_bytes(d->dtype));
    while (n) {
        uint64_t now = n < piece ? n : piece;
        if (!plain && rlki_scan_special(d->dtype, p, now * unit)) {
            _Alignas(32) unsigned char canonical[RLKI_PIECE];
            u128 value = 0;
            rlki_canonicalise(&d->sums, d->dtype, canonical, p, now * unit);
            struct unit_sums s = hash_both(p, canonical, unit, now, number, &value);
            add(d, s.positional, value, s.multiset);
        } else {
            struct unit_sums s = hash_units(p, unit, now, number);
            add(d, s.positional, s.positional, s.multiset);
        }
        p += now * unit;
        number += now;
        n -= now;
    }
}

void rlki_digest_count(struct rlki_digest *d, const unsigned char *p, uint64_t bytes)
{
    unsigned char canonical[RLKI_PIECE];
    while (bytes) {
        size_t now = bytes < RLKI_PIECE ? (size_t)bytes : RLKI_PIECE;
        if (rlki_scan_special(d->dtype, p, now))
            rlki_canonicalise(&d->sums, d->dtype, canonical, p, now);
        p += now;
        bytes -= now;
    }
}
