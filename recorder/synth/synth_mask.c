/* MASK: which elements a change touches. docs/synth.md, "Masks". */
#include "recorder/synth/synth_value.h"

#include <string.h>

#include "store/rlk_philox.h"

#define MASK_STREAM 1u /* key (seed, 1); fills use (seed, 0) */

static void set_bit(uint64_t *bits, uint64_t k)
{
    bits[k >> 6] |= UINT64_C(1) << (k & 63);
}

static void set_range(uint64_t *bits, uint64_t lo, uint64_t hi)
{
    while (lo < hi && (lo & 63))
        set_bit(bits, lo++);
    for (; hi - lo >= 64 && lo < hi; lo += 64)
        bits[lo >> 6] = ~UINT64_C(0);
    while (lo < hi)
        set_bit(bits, lo++);
}

static void set_uniform(uint64_t *bits, uint64_t numel, double p, uint32_t seed)
{
    uint32_t w[4];
    for (uint64_t k = 0; k < numel; k++) {
        rlk_fill_words(w, seed, MASK_STREAM, k);
        if (rlk_fill_uniform(w) < p)
            set_bit(bits, k);
    }
}

/* The first n distinct of w0 mod numel over counters 0, 1, 2, ...; ends, as w0 takes every residue below 2^32. */
static void set_sparse(uint64_t *bits, uint64_t numel, uint64_t n, uint32_t seed)
{
    uint32_t w[4];
    for (uint64_t counter = 0, found = 0; found < n; counter++) {
        rlk_fill_words(w, seed, MASK_STREAM, counter);
        uint64_t k = w[0] % numel;
        if (!sy_bit(bits, k)) {
            set_bit(bits, k);
            found++;
        }
    }
}

void sy_mask_build(const struct sy_mask *mask, const struct sy_tensor *tensor, uint32_t rank, uint64_t *bits)
{
    uint64_t numel = tensor->numel, rows = tensor->ndim ? tensor->shape[0] : 1;
    uint64_t row = rows ? numel / rows : 0;

    memset(bits, 0, (size_t)((numel + 63) / 64 * 8));
    switch (mask->kind) {
    case SY_MASK_ALL:
        set_range(bits, 0, numel);
        break;
    case SY_MASK_UNIFORM:
        set_uniform(bits, numel, mask->p, mask->seed);
        break;
    case SY_MASK_ROWS:
        for (uint64_t i = 0; i < mask->nrows; i++)
            set_range(bits, mask->rows[i] * row, (mask->rows[i] + 1) * row);
        break;
    case SY_MASK_SPARSE:
        set_sparse(bits, numel, mask->lo, mask->seed);
        break;
    case SY_MASK_RANGE:
        set_range(bits, mask->lo, mask->hi);
        break;
    case SY_MASK_SHARD:
        if (mask->rank == rank)
            set_range(bits, 0, numel);
        break;
    }
}
