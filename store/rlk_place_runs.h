/* rlk_place_runs.h - the runs of one dimension in the form the borders are defined on: touching runs are one run, runs
 * of extent 0 have no border and are left out. Internal to store/. */
#ifndef STORE_RLK_PLACE_RUNS_H
#define STORE_RLK_PLACE_RUNS_H

#include "store/rlk_types.h"

struct rlki_runs {
    const struct rlk_run *run; /* NULL with n = 1: `whole` */
    uint32_t n;
    struct rlk_run whole;
};

struct rlki_runs_at { /* zero-initialised = before the first */
    uint32_t next;
    uint64_t start, extent; /* of the current merged run */
    uint64_t local;         /* where it begins in the local extent */
};

/* Fills runs[0..ndim) from a checked placement. */
void rlki_place_runs(const struct rlk_place *place, struct rlki_runs runs[]);

/* Steps to the next merged run; false at the end. */
static inline bool rlki_runs_step(const struct rlki_runs *runs, struct rlki_runs_at *at)
{
    const struct rlk_run *run = runs->run ? runs->run : &runs->whole;
    at->local += at->extent;
    at->extent = 0;
    while (at->next < runs->n && run[at->next].extent == 0)
        at->next++;
    if (at->next >= runs->n)
        return false;
    at->start = run[at->next].start;
    at->extent = run[at->next++].extent;
    while (at->next < runs->n && (run[at->next].extent == 0 || run[at->next].start == at->start + at->extent))
        at->extent += run[at->next++].extent;
    return true;
}

#endif
