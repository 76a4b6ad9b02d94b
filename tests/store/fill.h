/* fill.h - the fills of docs/synth.md that the tests of the digest need. */
#ifndef TESTS_STORE_FILL_H
#define TESTS_STORE_FILL_H

#include "store/rlk_dtype_value.h"
#include "store/rlk_philox.h"

enum fill_kind { FILL_NORMAL, FILL_UNIFORM, FILL_INT };

static inline void fill_element(enum rlk_dtype dtype, void *p, enum fill_kind kind, uint32_t seed, uint64_t k,
                                int64_t lo, int64_t hi)
{
    uint32_t w[4];
    rlk_fill_words(w, seed, 0, k);
    if (kind == FILL_INT)
        rlk_scalar_store(dtype, p, rlk_scalar_from_i64(dtype, rlk_fill_int(w, lo, hi)));
    else
        rlk_element_from_double(dtype, p, kind == FILL_NORMAL ? rlk_fill_normal(w) : rlk_fill_uniform(w));
}

static inline void fill(enum rlk_dtype dtype, void *p, uint64_t n, enum fill_kind kind, uint32_t seed, int64_t lo,
                        int64_t hi)
{
    for (uint64_t k = 0; k < n; k++)
        fill_element(dtype, (unsigned char *)p + k * rlk_dtype_bytes(dtype), kind, seed, k, lo, hi);
}

#endif
