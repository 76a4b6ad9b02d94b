/* rlki_batch.h - the inside of a batch, for the operators. */
#ifndef KERNELS_RLKI_BATCH_H
#define KERNELS_RLKI_BATCH_H

#include "kernels/rlk_batch.h"
#include "kernels/rlki_prims.h"

#define RLKI_QTILE 64

struct rlki_part { /* of one CP rank */
    int64_t n;
    int32_t *map;           /* host: global token of local row */
    struct rlk_span *spans; /* host */
    uint32_t nspans;
    int64_t tiles;
    int64_t leaf_start[RLK_SLABS + 1]; /* into leaf, by local pair */
    /* device */
    int32_t *d_map, *d_pos, *d_base, *d_leaf; /* d_leaf: local rows in leaf order */
    struct rlki_tile *d_tile;
    struct rlki_leaf_seq *d_seq; /* [local pair][sequence] */
};

struct rlk_batch {
    struct rlk_lattice lat;
    int32_t sequences, longest;
    int64_t tokens;
    int32_t *length, *first; /* host */
    struct rlki_part part[RLK_SLABS];
    /* Leaves over all tokens, global rows, host: what operators that gather over CP walk. */
    int32_t *leaf;
    int64_t leaf_start[RLK_SLABS + 1];
    int32_t *d_leaf, *d_pos; /* d_pos: of all tokens */
};

#endif
