/* cuts.c - where the parts of a tensor meet, and whether a change lies just there. */
#include "auditor/joined.h"

#include <stdlib.h>
#include <string.h>

void rlki_cuts_release(struct rlki_cuts *cuts)
{
    free(cuts->cut);
    *cuts = (struct rlki_cuts){0};
}

/* Keeps the order. Parts are few and come sorted, mostly. */
static int add(struct rlki_cuts *cuts, uint32_t dim, uint64_t at)
{
    size_t i = cuts->n;
    while (i > 0 && (cuts->cut[i - 1].dim > dim || (cuts->cut[i - 1].dim == dim && cuts->cut[i - 1].at > at)))
        i--;
    if (i > 0 && cuts->cut[i - 1].dim == dim && cuts->cut[i - 1].at == at)
        return RLK_OK;
    if (cuts->n == RLKI_CUTS_MAX)
        return RLK_OK;
    if (!rlki_grow(&cuts->cut, &cuts->cap, cuts->n, sizeof *cuts->cut))
        return RLK_ENOMEM;
    memmove(&cuts->cut[i + 1], &cuts->cut[i], (cuts->n - i) * sizeof *cuts->cut);
    cuts->cut[i] = (struct rlki_cut){dim, at};
    cuts->n++;
    return RLK_OK;
}

/* Adds the ends of [start, end) that lie inside the dimension (inside the window, in dimension 0 of a sample). */
static int add_run(struct rlki_cuts *cuts, uint32_t dim, uint64_t start, uint64_t end, uint64_t from, uint64_t extent)
{
    int rc = RLK_OK;
    if (start > from && start - from < extent)
        rc = add(cuts, dim, start - from);
    if (rc == RLK_OK && end > from && end - from < extent)
        rc = add(cuts, dim, end - from);
    return rc;
}

int rlki_cuts_add(struct rlki_cuts *cuts, const struct rlk_place *place, uint64_t from, uint64_t rows, bool window)
{
    const struct rlk_run *run = place->runs;
    int rc = RLK_OK;
    for (uint32_t d = 0; place->nruns && d < place->ndim && rc == RLK_OK; d++) {
        uint32_t n = place->nruns[d];
        bool sample = window && d == 0;
        if (n == RLK_WHOLE)
            continue;
        for (uint32_t r = 0; r < n && rc == RLK_OK;) { /* runs that touch are one */
            uint64_t start = run[r].start, end = start + run[r].extent;
            for (r++; r < n && (run[r].start == end || !run[r].extent); r++)
                end = run[r].extent ? end + run[r].extent : end;
            if (end > start)
                rc = add_run(cuts, d, start, end, sample ? from : 0, sample ? rows : place->shape[d]);
        }
        run += n;
    }
    return rc;
}

int rlki_cuts_local(struct rlki_cuts *cuts, const struct rlk_place *place)
{
    const struct rlk_run *run = place ? place->runs : NULL;
    int rc = RLK_OK;
    for (uint32_t d = 0; place && place->nruns && d < place->ndim && rc == RLK_OK; d++) {
        uint64_t at = 0, end = UINT64_MAX;
        for (uint32_t r = 0; place->nruns[d] != RLK_WHOLE && r < place->nruns[d] && rc == RLK_OK; r++, run++) {
            if (!run->extent)
                continue;
            if (at && run->start != end)
                rc = add(cuts, d, at);
            at += run->extent;
            end = run->start + run->extent;
        }
    }
    return rc;
}

/* Along one dimension: is index `at` on a side of a cut? *which = its place among the cuts. */
static bool at_cut(const struct rlki_cut *cut, size_t n, uint64_t at, size_t *which)
{
    size_t lo = 0, hi = n;
    while (lo < hi) { /* the first cut behind `at` */
        size_t mid = lo + (hi - lo) / 2;
        if (cut[mid].at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < n && cut[lo].at == at + 1) {
        *which = lo;
        return true;
    }
    *which = lo ? lo - 1 : 0;
    return lo && cut[lo - 1].at == at;
}

bool rlki_at_cuts(const struct rlki_cuts *cuts, size_t element, uint32_t ndim, const uint64_t *shape, const void *a,
                  const void *b, uint64_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t k = 0, end; k < cuts->n; k = end) {
        uint32_t dim = cuts->cut[k].dim;
        uint64_t inner = 1;
        bool hit[RLKI_CUTS_MAX] = {false}, all = true;
        size_t nhit = 0, which;
        for (end = k; end < cuts->n && cuts->cut[end].dim == dim;)
            end++;
        if (dim >= ndim || shape[dim] < 4 * (end - k)) /* each element would be at one */
            continue;
        for (uint32_t d = dim + 1; d < ndim; d++)
            inner *= shape[d];
        for (uint64_t i = 0; i < n && all; i++) {
            if (memcmp(x + i * element, y + i * element, element) == 0)
                continue;
            all = at_cut(cuts->cut + k, end - k, i / inner % shape[dim], &which);
            nhit += all && !hit[which];
            hit[which] |= all;
        }
        if (all && nhit && nhit * 2 >= end - k)
            return true;
    }
    return false;
}
