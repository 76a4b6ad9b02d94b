/* joined.h - the bytes of a tensor that is spread over ranks, put together by the placements of its parts, and where in
 * it parts meet. */
#ifndef AUDITOR_JOINED_H
#define AUDITOR_JOINED_H

#include "auditor/audit.h"

/* Where a tensor is cut: places inside a dimension at which a run of some part begins or ends. Ascending by dimension
 * and place, each once. */
struct rlki_cut {
    uint32_t dim;
    uint64_t at; /* elements [.., at) and [at, ..) of that dimension lie in different runs */
};
struct rlki_cuts {
    struct rlki_cut *cut;
    size_t n, cap;
};
#define RLKI_CUTS_MAX 1024u /* further ones are left out */

/* Adds what the runs of one part cut. `window`: of dimension 0 only rows [from, from + rows) are meant. RLK_ENOMEM. */
int rlki_cuts_add(struct rlki_cuts *cuts, const struct rlk_place *place, uint64_t from, uint64_t rows, bool window);
/* The cuts inside what one part holds, in its local extents (two zigzag chunks meet in one); RLK_ENOMEM. */
int rlki_cuts_local(struct rlki_cuts *cuts, const struct rlk_place *place);
void rlki_cuts_release(struct rlki_cuts *cuts);

/* Do changed elements lie at cuts of one dimension alone: at half of its cuts or more, and nowhere else? */
bool rlki_at_cuts(const struct rlki_cuts *cuts, size_t element, uint32_t ndim, const uint64_t *shape, const void *a,
                  const void *b, uint64_t n);

struct rlki_joined {
    enum rlk_dtype dtype;
    uint32_t ndim;
    uint64_t shape[RLK_MAX_DIMS];
    uint64_t n; /* elements */
    void *bytes;
    size_t parts, taken; /* of the side, and those whose bytes it was made from: no replicas, no summands */
    struct rlki_cuts cuts;
    char why[160]; /* RLK_ENOENT: why it could not be put together */
};
/* RLK_OK; RLK_ENOENT with `why`; RLK_ECORRUPT where bytes do not have their digest. Release in any case. */
int rlki_join(struct rlki_audit *audit, int side, const struct rlki_spread *spread, struct rlki_joined *out);
void rlki_joined_release(struct rlki_joined *joined);

#endif
