/* lattice.h - the token shards of docs/identity.md, for tests: packed samples dealt to context-parallel ranks. */
#ifndef TESTS_STORE_LATTICE_H
#define TESTS_STORE_LATTICE_H

#include "store/rlk_types.h"

enum zigzag {
    ZIGZAG_LATTICE, /* 16 chunks of 16*ceil(len/256) tokens; rank r of C owns the pairs {p, 15-p}, p in [8r/C, 8(r+1)/C)
                     */
    ZIGZAG_MEGATRON, /* 2C chunks of ceil(len/2C) tokens; rank r owns chunks r and 2C-1-r */
};

static inline bool zigzag_owns(enum zigzag kind, uint32_t ranks, uint32_t rank, uint32_t chunk)
{
    uint32_t chunks = kind == ZIGZAG_LATTICE ? 16 : 2 * ranks;
    uint32_t pair = chunk < chunks / 2 ? chunk : chunks - 1 - chunk;
    return kind == ZIGZAG_LATTICE ? pair * ranks / 8 == rank : pair == rank;
}

/* Runs of one rank over samples of the given lengths, packed without padding. Returns their number; *held = tokens.
 * Room for 16 runs (2 * ranks if that is more) a sample. Touching runs are not joined: the reader of a placement does
 * that. */
static inline uint32_t zigzag_runs(struct rlk_run *out, enum zigzag kind, uint32_t ranks, uint32_t rank,
                                   const uint64_t *lengths, uint32_t samples, uint64_t *held)
{
    uint32_t n = 0;
    uint64_t base = 0;
    *held = 0;
    for (uint32_t s = 0; s < samples; s++) {
        uint64_t len = lengths[s], chunks = kind == ZIGZAG_LATTICE ? 16 : 2 * (uint64_t)ranks;
        uint64_t width = kind == ZIGZAG_LATTICE ? 16 * ((len + 255) / 256) : (len + chunks - 1) / chunks;
        for (uint32_t c = 0; c < chunks; c++) {
            uint64_t from = c * width < len ? c * width : len, to = from + width < len ? from + width : len;
            if (!zigzag_owns(kind, ranks, rank, c))
                continue;
            out[n++] = (struct rlk_run){base + from, to - from};
            *held += to - from;
        }
        base += len;
    }
    return n;
}

#endif
