/* geometry.h - how one view of a storage lies in another: does a producer's output cover every element that a reader
 * reads, and which view of that output is it? (docs/identity.md section 4, docs/tap.md "References")
 */
#ifndef RECORDER_GEOMETRY_H
#define RECORDER_GEOMETRY_H

#include "store/rlk_digest.h"

struct rlki_dim {
    uint64_t n;
    int64_t stride; /* elements */
};

/* Geometry of a view, without its storage. A value with a flexible tail: rlki_geometry_bytes(ndim). */
struct rlki_geometry {
    uint8_t dtype;
    bool conj, neg;
    uint32_t ndim;
    uint64_t offset;
    struct rlki_dim dims[];
};

static inline size_t rlki_geometry_bytes(uint32_t ndim)
{
    return sizeof(struct rlki_geometry) + ndim * sizeof(struct rlki_dim);
}

/* Fills *out (room for view->ndim dimensions). False: more than RLK_MAX_DIMS, or sizes that overflow. */
bool rlki_geometry_fill(struct rlki_geometry *out, const struct rlk_view *view);

/* True iff every element that `reader` reads is an element of `producer` (both of one storage); then *view says which
 * view of the producer's output it is: 0 = the output itself, else a hash that does not depend on the producer's memory
 * order where that can be told. False when unsure, and for readers of nothing. */
bool rlki_geometry_covers(const struct rlki_geometry *producer, const struct rlki_geometry *reader, rlk_u128 *view);

#endif
