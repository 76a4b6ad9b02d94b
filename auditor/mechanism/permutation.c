/* permutation.c - the same elements in another order.
 *
 * Rule      the bytes hold the same elements - it shows (fewer than four different ones: it points); without
 *           bytes the multiset sums are equal - it points. Or a sum over samples whose samples are all equal
 *           and came in another order - it points.
 * Evidence  the map, where whole slices of a dimension moved: its first entries, and its name where it has
 *           one (reversed, rotated, contiguous against zigzag chunks of a context-parallel group).
 * Excludes  every arithmetic cause: they change elements.
 * Next      how both sides order.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_rotation(const uint64_t *map, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++)
        if (map[i] != (map[0] + i) % n)
            return false;
    return true;
}

static bool is_reversal(const uint64_t *map, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (map[i] != n - 1 - i)
            return false;
    return true;
}

/* Chunk that stands at place k when the zigzag shards of cp ranks are laid one behind the other: rank r has chunks r
 * and 2 cp - 1 - r. */
static uint64_t zigzag(uint64_t k, uint64_t cp)
{
    return k % 2 ? 2 * cp - 1 - k / 2 : k / 2;
}

/* Is the map that of zigzag shards (direction 1: A's contiguous chunks stand in zigzag order in B), or its inverse? */
static bool is_zigzag(const uint64_t *map, uint64_t n, uint64_t cp, bool inverse)
{
    uint64_t chunk = n / (2 * cp);
    for (uint64_t k = 0; k < 2 * cp; k++) {
        uint64_t to = inverse ? zigzag(k, cp) : k, from = inverse ? k : zigzag(k, cp);
        for (uint64_t i = 0; i < chunk; i++)
            if (map[to * chunk + i] != from * chunk + i)
                return false;
    }
    return true;
}

static void name_map(struct rlki_opinion *o, const uint64_t *map, uint64_t n, uint32_t dim)
{
    char list[240] = "";
    size_t at = 0;
    for (uint64_t i = 0; i < n && i < 24 && at + 24 < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%llu", i ? "," : "", (unsigned long long)map[i]);
    rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "map of dimension %u, B from A: [%s%s]", dim, list,
               n > 24 || at + 24 >= sizeof list ? ",..." : "");
    for (uint64_t cp = 2; cp <= 1024 && 2 * cp <= n; cp *= 2) {
        bool whole = n % (2 * cp) == 0, forth = whole && is_zigzag(map, n, cp, false);
        if (!forth && !(whole && is_zigzag(map, n, cp, true)))
            continue;
        rlki_holds(
            o, RLKI_M_PERMUTATION, RLKI_SHOWS, "that is zigzag against contiguous: the %llu chunks of cp%llu, %s",
            (unsigned long long)(2 * cp), (unsigned long long)cp,
            forth ? "contiguous in A, in zigzag order in B" : "put back as zigzag in B though they were contiguous");
        rlki_advise(o, RLKI_M_PERMUTATION,
                    "gather and scatter with one cut on both sides: contiguous or zigzag (load-balanced) "
                    "context-parallel chunks");
        return;
    }
    if (is_reversal(map, n))
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "that is the reverse order");
    else if (is_rotation(map, n))
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "that is a rotation by %llu", (unsigned long long)map[0]);
}

/* The map of the first dimension along which whole slices moved. */
static int by_map(struct rlki_facts *f, struct rlki_opinion *o)
{
    for (uint32_t d = 0; d < f->change.ndim; d++) {
        uint64_t *map;
        int rc = rlki_slice_map(f, d, &map);
        if (rc)
            return rc;
        if (!map)
            continue;
        name_map(o, map, f->change.shape[d], d);
        free(map);
        return RLK_OK;
    }
    rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "no whole slice of a dimension moved: elements changed places");
    return RLK_OK;
}

static void exclude_arithmetic(struct rlki_opinion *o)
{
    static const enum rlki_class others[] = {RLKI_M_ATOMIC_ORDER, RLKI_M_RACE,          RLKI_M_UNINITIALIZED,
                                             RLKI_M_DTYPE,        RLKI_M_STATE_RESTORE, RLKI_M_POSSIBLE_CORRUPTION};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        rlki_excludes(o, others[i], "no element changed, only their order");
}

/* A sum over samples that came in another order. */
static int batch_order(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->output || !f->t[0])
        return RLK_OK;
    for (uint32_t i = 0; i < f->ev[0].e.ntensors && i < 64; i++) {
        const struct rlk_tensor *a = &f->ev[0].e.tensors[i], *b = rlki_ev_tensor(&f->ev[1], RLK_ROLE_IN, a->index);
        struct rlki_value x, y;
        if (a->role != RLK_ROLE_IN || !b)
            continue;
        int rc = rlki_value_of(f->audit, 0, &f->ev[0].e, f->ev[0].env, a, &x);
        if (rc == RLK_OK)
            rc = rlki_value_of(f->audit, 1, &f->ev[1].e, f->ev[1].env, b, &y);
        if (rc)
            return rc;
        if (!x.known || !y.known || x.nsamples < 2 || rlki_value_equal(&x, &y) != RLKI_YES ||
            rlk_sums_same_bits(&x.sums, &y.sums))
            continue;
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_POINTS,
                   "input \"%.60s\" holds the same %u samples in another order: sums over the batch are taken in "
                   "another order",
                   a->name, x.nsamples);
        rlki_advise(o, RLKI_M_PERMUTATION,
                    "give both sides one batch order: sort by sample id before the micro-batches are cut");
        return RLK_OK;
    }
    if (f->audit->opt.by_name && rlki_is_gradient_name(f->t[0]->name)) {
        rlki_holds(
            o, RLKI_M_PERMUTATION, RLKI_POINTS,
            "the two deal samples out to other micro-batches: the batch order in which this is summed up differs");
        rlki_advise(o, RLKI_M_PERMUTATION,
                    "give both sides one batch order: sort by sample id before the micro-batches are cut");
    }
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both)
        return RLK_OK;
    if (strcmp(f->change.grade, "permutation") != 0)
        return f->change.size == RLKI_SIZE_LARGE ? RLK_OK : batch_order(f, o);
    exclude_arithmetic(o);
    if (rlki_varies(f))
        rlki_remark(o, "the order changes from run to run in %s", rlki_who_varies(f));
    if (!f->change.bytes) {
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_POINTS,
                   "the multiset digests are equal: the same units in another order");
        return RLK_OK;
    }
    if (f->change.distinct < 4) {
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_POINTS,
                   "the same elements in another order; there are only %u different ones, so that may be by chance",
                   f->change.distinct);
        return RLK_OK;
    }
    rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "the same elements in another order");
    return by_map(f, o);
}

const struct rlki_mechanism rlki_rule_permutation = {
    RLKI_M_PERMUTATION,
    "compare how both sides order what is put together here (ranks, chunks, samples, slots); make the order a function "
    "of the data, not of arrival",
    look};
