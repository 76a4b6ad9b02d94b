#include "store/rlk_digest_units.h"

#include "store/rlk_dtype_value.h"

#include <string.h>
#include <xxhash.h>

#define MAX_UNIT ((size_t)256)
#define PIECE ((size_t)4096) /* scanned, then hashed while it is in the first-level cache; holds whole units */

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

/* One loop for each unit length: with a constant length XXH3 of a short input is a handful of multiplications. */
#define UNITS(LEN)                                                                                                     \
    __attribute__((flatten)) static struct unit_sums units_##LEN(const unsigned char *p, uint64_t n,                   \
                                                                 uint64_t number) {                                    \
        struct unit_sums s = {0, 0};                                                                                   \
        for (uint64_t i = 0; i < n; i++, p += LEN) {                                                                   \
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

/* Counts the special elements and writes the canonical form to `out` (NULL: counts only). True if it differs from the
 * bytes or could: there is a -0 or a NaN. */
static bool canonicalise(struct rlki_digest *d, unsigned char *out, const unsigned char *p, size_t bytes)
{
    enum rlk_dtype component = rlk_dtype_component(d->dtype);
    size_t size = rlk_dtype_bytes(component);
    uint64_t nan = 0, inf = 0, negzero = 0;
    for (size_t i = 0; i < bytes; i += size) {
        uint64_t bits = rlk_scalar_load(component, p + i);
        switch (rlk_scalar_class(component, bits)) {
        case RLK_VALUE_NAN:
            nan++;
            bits = rlk_dtype_nan(component);
            break;
        case RLK_VALUE_INF:
            inf++;
            break;
        case RLK_VALUE_NEGZERO:
            negzero++;
            bits = 0;
            break;
        case RLK_VALUE_OTHER:
            break;
        }
        if (out)
            rlk_scalar_store(component, out + i, bits);
    }
    d->sums.nan += nan;
    d->sums.inf += inf;
    d->sums.negzero += negzero;
    return nan + negzero != 0;
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
    if (rlki_scan_special(d->dtype, p, bytes) && canonicalise(d, canonical, p, bytes))
        g_value = numbered(XXH3_128bits(canonical, bytes), number);
    add(d, g, g_value, h.low64);
    d->sums.elements += bytes / rlk_dtype_bytes(d->dtype);
}

void rlki_digest_units(struct rlki_digest *d, const unsigned char *p, uint64_t n, uint64_t number)
{
    const size_t unit = d->unit_bytes;
    const uint64_t piece = PIECE / unit;
    if (rlk_dtype_is_integer(d->dtype)) {
        struct unit_sums s = hash_units(p, unit, n, number);
        add(d, s.positional, s.positional, s.multiset);
        d->sums.elements += n * unit / rlk_dtype_bytes(d->dtype);
        return;
    }
    while (n) {
        uint64_t now = n < piece ? n : piece;
        if (rlki_scan_special(d->dtype, p, now * unit)) {
            for (uint64_t i = 0; i < now; i++)
                rlki_digest_tail(d, p + i * unit, unit, number + i);
        } else {
            struct unit_sums s = hash_units(p, unit, now, number);
            add(d, s.positional, s.positional, s.multiset);
            d->sums.elements += now * unit / rlk_dtype_bytes(d->dtype);
        }
        p += now * unit;
        number += now;
        n -= now;
    }
}

void rlki_digest_count(struct rlki_digest *d, const unsigned char *p, uint64_t bytes)
{
    while (bytes) {
        size_t now = bytes < PIECE ? (size_t)bytes : PIECE;
        if (rlki_scan_special(d->dtype, p, now))
            canonicalise(d, NULL, p, now);
        p += now;
        bytes -= now;
    }
}
