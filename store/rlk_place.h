/* rlk_place.h - placements: checking, borders, covering, copying. docs/identity.md "Placement". */
#ifndef STORE_RLK_PLACE_H
#define STORE_RLK_PLACE_H

#include "store/rlk_error.h"
#include "store/rlk_event.h"

/* Runs in range, ascending and disjoint inside a dimension (extent 0 anywhere in range); local shape = product of runs.
 * Also: fewer than 2^63 elements, at most RLK_MAX_DIMS dimensions. nruns = NULL: every dimension is whole. */
int rlk_place_check(const struct rlk_place *place, uint32_t local_ndim, const uint64_t *local_shape,
                    struct rlk_detail *detail);
bool rlk_place_equal(const struct rlk_place *a, const struct rlk_place *b); /* same shape and runs; groups apart */
bool rlk_place_is_whole(const struct rlk_place *place);

/* Is every border of the part a unit border? (docs/digest.md) */
bool rlk_place_composable(const struct rlk_place *place, enum rlk_dtype dtype);

/* Do the n > 0 parts cover each element of the logical shape exactly once? RLK_OK, RLK_ECOVER (detail: where),
 * RLK_EINVAL (bad runs, or shapes that differ), RLK_ENOMEM, RLK_ELIMIT (more than about 30 million run borders to look
 * at). Replicas are the caller's to leave out: rlk_place_equal(). */
int rlk_place_cover(const struct rlk_place *const *parts, size_t n, struct rlk_detail *detail);

struct rlk_place *rlk_place_copy(struct rlk_arena *arena, const struct rlk_place *place); /* NULL = out of memory */

/* LAYOUT of docs/cli.md: (tp|cp|dp|pp|ep)N..., each at most once, others 1. */
struct rlk_layout {
    uint32_t tp, cp, ep, dp, pp; /* dp = 0: left out, = ranks / product of the others */
};
int rlk_layout_parse(struct rlk_layout *out, const char *text, struct rlk_detail *detail);
int rlk_layout_fit(struct rlk_layout *layout, uint32_t ranks, struct rlk_detail *detail); /* fills dp; must divide */
/* Members of `rank`'s communicator for group "tp", "cp", "ep", "dp", "pp"; tp fastest, then cp, ep, dp, pp.
 * *n members are written to `out` (room for `ranks`), ascending. RLK_ENOENT: no such group. */
int rlk_layout_group(const struct rlk_layout *layout, uint32_t ranks, const char *group, uint32_t rank, uint32_t *out,
                     uint32_t *n);

#endif
