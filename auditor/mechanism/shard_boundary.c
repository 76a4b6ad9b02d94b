/* shard_boundary.c - what differs lies where shards or chunks meet, or is one rank's share.
 *
 * Rule      rows: with equal inputs, the rows that differ are rows at the borders of chunks into which the layout cuts
 *           that dimension - it points. Rank: an operator that runs on every rank of a group differs on one of them,
 *           in a mask, index or boolean, which no rounding touches - it points.
 * Excludes  atomic-order where a mask differs: integers do not round.
 * Next      how the two sides cut and pad.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Are the changed indices along `dim`, all of them at borders of n equal chunks? *hit = how many. */
static bool at_borders(const struct rlki_facts *f, uint32_t dim, uint64_t n, uint64_t *hit, bool *marked)
{
    uint64_t extent = f->change.shape[dim], inner = 1;
    if (n < 2 || extent % n || extent / n < 3)
        return false;
    for (uint32_t d = dim + 1; d < f->change.ndim; d++)
        inner *= f->change.shape[d];
    uint64_t chunk = extent / n;
    memset(marked, 0, (size_t)extent * sizeof *marked);
    *hit = 0;
    for (uint64_t i = f->change.first_flat; i <= f->change.last_flat; i++) {
        if (!rlki_element_changed(f, i))
            continue;
        uint64_t at = i / inner % extent;
        bool border = (at % chunk == 0 && at > 0) || (at % chunk == chunk - 1 && at + 1 < extent);
        if (!border)
            return false;
        *hit += !marked[at];
        marked[at] = true;
    }
    return *hit > 0;
}

static int borders(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_change *c = &f->change;
    const struct rlk_layout *l = &f->audit->side[0].layout;
    if (!c->bytes || !f->audit->side[0].has_layout)
        return RLK_OK;
    const uint64_t cuts[] = {2u * l->cp, l->cp, l->tp};
    for (uint32_t d = 0; d < c->ndim; d++) {
        if (c->shape[d] >= UINT64_C(1) << 24)
            continue;
        bool *marked = malloc((size_t)c->shape[d] + 1);
        uint64_t hit = 0;
        if (!marked)
            return RLK_ENOMEM;
        for (int i = 0; i < 3; i++)
            if (cuts[i] > 1 && (i > 0 || l->cp > 1) && at_borders(f, d, cuts[i], &hit, marked)) {
                rlki_holds(o, RLKI_M_SHARD_BOUNDARY, RLKI_POINTS,
                           "all %llu rows that differ (dimension %u) lie at borders of the %llu chunks of %s%u",
                           (unsigned long long)hit, d, (unsigned long long)cuts[i], i < 2 ? "cp" : "tp",
                           i < 2 ? l->cp : l->tp);
                i = 3;
            }
        free(marked);
    }
    return RLK_OK;
}

/* On how many ranks does the other side run the event? All of the layout's, as far as can be said without reading. */
static void one_rank(struct rlki_facts *f, struct rlki_opinion *o)
{
    static const char *const words[] = {"mask", "position", "cu_seqlens", "labels", "index", "indices"};
    const struct rlki_found *found = f->found;
    const struct rlk_layout *l = &f->audit->side[0].layout;
    bool exact = rlk_dtype_is_integer(f->t[0]->dtype) || rlki_has_any(f->t[0]->name, words, 6);
    if (!f->audit->side[0].has_layout || found->no_rank || f->audit->side[0].nranks < 2 || !exact ||
        found->nat * 2 > f->audit->side[0].nranks || (l->cp < 2 && l->tp < 2) || rlki_varies(f))
        return;
    char list[100] = "";
    size_t n = 0;
    for (size_t i = 0; i < found->nat && i < 8 && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%u", i ? ", " : "", found->at[i].rank);
    rlki_holds(o, RLKI_M_SHARD_BOUNDARY, RLKI_POINTS,
               "\"%.60s\" differs on rank %s of %u only, with equal inputs: the share of a shard is computed otherwise",
               f->t[0]->name, list, f->audit->side[0].nranks);
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "masks and indices do not round");
}

/* Place of a rank in its context-parallel group. */
static uint32_t cp_place(const struct rlki_side *side, uint32_t rank)
{
    return rank / (side->layout.tp ? side->layout.tp : 1) % side->layout.cp;
}

/* A local shard whose first row differs wherever it has a neighbour before it, or whose last row does wherever it has
 * one behind it: what comes from the neighbour. */
static void halo(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_side *side = &f->audit->side[0];
    const struct rlki_found *found = f->found;
    const struct rlk_tensor *t = f->t[0];
    uint32_t edge[2] = {0, 0};
    if (!f->change.bytes || !side->has_layout || side->layout.cp < 2 || found->no_rank || !t->ndim || t->shape[0] < 2)
        return;
    uint64_t row = f->change.elements / t->shape[0];
    bool first = f->change.last_flat < row, last = f->change.first_flat >= f->change.elements - row;
    if (!first && !last)
        return;
    for (size_t i = 0; i < found->nat; i++) {
        uint32_t at = cp_place(side, found->at[i].rank);
        edge[0] += at == 0;
        edge[1] += at == side->layout.cp - 1;
    }
    if ((first && edge[0]) || (last && edge[1]))
        return; /* it is there too where no neighbour is */
    rlki_holds(o, RLKI_M_SHARD_BOUNDARY, RLKI_POINTS,
               "only the %s row of the shard differs, on %zu rank%s of cp%u and not where the shard has no neighbour "
               "%s it: the "
               "border between shards",
               first ? "first" : "last", found->nat, found->nat == 1 ? "" : "s", side->layout.cp,
               first ? "before" : "behind");
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || !f->same_event || !f->t[0] || !f->t[1] || f->ev[0].e.kind != RLK_EV_OP)
        return RLK_OK;
    one_rank(f, o);
    halo(f, o);
    return borders(f, o);
}

const struct rlki_mechanism rlki_rule_shard_boundary = {RLKI_M_SHARD_BOUNDARY,
                                                        "compare how both sides cut, pad and overlap that dimension "
                                                        "(context-parallel chunks, halo rows, a rank that holds only "
                                                        "prompt); rlkaudit explain A B --elements shows the rows",
                                                        look};
