/* walk.c - steps in order, ranks in order inside a step; only what the roll-ups say differs is read. */
#include "auditor/audit.h"
#include "auditor/mapfile.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct rlki_audit *audit;
    struct rlki_unit unit;
    bool told_a, told_b; /* steps that only one side has: the first of them is looked at */
};

static bool same_totals(const struct rlki_total *a, size_t na, const struct rlki_total *b, size_t nb)
{
    rlk_u128 sum[2][2] = {0};
    uint64_t events[2] = {0}, tensors[2] = {0};
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < (s ? nb : na); i++) {
            const struct rlki_total *t = s ? &b[i] : &a[i];
            sum[s][0] = rlk_u128_add(sum[s][0], t->out);
            sum[s][1] = rlk_u128_add(sum[s][1], t->in);
            events[s] += t->events;
            tensors[s] += t->tensors;
        }
    return rlk_u128_equal(sum[0][0], sum[1][0]) && rlk_u128_equal(sum[0][1], sum[1][1]) && events[0] == events[1] &&
           tensors[0] == tensors[1];
}

static bool same_node(const struct rlki_node *a, const struct rlki_node *b)
{
    return rlk_u128_equal(a->out, b->out) && rlk_u128_equal(a->in, b->in) && a->events == b->events &&
           a->tensors == b->tensors;
}

/* Reads the nodes of both sides that differ; counts those that agree. */
static int read_differing(struct rlki_audit *audit, struct rlki_unit *unit, struct rlki_nodes nodes[2])
{
    struct rlki_hash index = {0};
    int rc = RLK_OK;
    bool *agreed = calloc(nodes[1].n + 1, sizeof *agreed);
    if (!agreed)
        return RLK_ENOMEM;
    for (size_t j = 0; j < nodes[1].n; j++)
        rlki_hash_put(&index, rlki_mix(rlki_mix(31, nodes[1].node[j].phase), nodes[1].node[j].module), j);
    for (size_t i = 0; i < nodes[0].n && rc == RLK_OK; i++) {
        struct rlki_node *a = &nodes[0].node[i];
        uint64_t j;
        bool both = rlki_hash_get(&index, rlki_mix(rlki_mix(31, a->phase), a->module), &j);
        if (both && same_node(a, &nodes[1].node[j])) {
            agreed[j] = true;
            audit->compared += a->tensors;
            audit->common_nodes += audit->in_first_step;
            continue;
        }
        rc = rlki_unit_read(audit, unit, 0, a);
    }
    for (size_t j = 0; j < nodes[1].n && rc == RLK_OK; j++)
        if (!agreed[j])
            rc = rlki_unit_read(audit, unit, 1, &nodes[1].node[j]);
    if (index.failed)
        rc = RLK_ENOMEM;
    rlki_hash_release(&index);
    free(agreed);
    return rc;
}

/* Did this incomplete side end, on that rank, before the step? */
static bool absent(const struct rlki_side *side, int64_t step, uint32_t rank)
{
    return !side->complete && rlki_side_last_step(side, rank) < step;
}

static int walk_rank(struct walk *walk, int64_t step, uint32_t rank)
{
    struct rlki_audit *audit = walk->audit;
    size_t n[2];
    const struct rlki_total *a = rlki_side_totals(&audit->side[0], step, rank, &n[0]);
    const struct rlki_total *b = rlki_side_totals(&audit->side[1], step, rank, &n[1]);
    if (n[0] && n[1] && same_totals(a, n[0], b, n[1])) {
        for (size_t i = 0; i < n[0]; i++)
            audit->compared += a[i].tensors;
        audit->common_nodes += audit->in_first_step;
        return RLK_OK;
    }
    if ((!n[0] && absent(&audit->side[0], step, rank)) || (!n[1] && absent(&audit->side[1], step, rank))) {
        for (size_t i = 0; i < n[0] || i < n[1];
             i++) /* a missing rank, or its end: nothing to conclude, nothing to read */
            rlki_skip(audit, "truncated-end", i < n[0] ? a[i].tensors : b[i].tensors);
        return RLK_OK;
    }
    struct rlki_nodes nodes[2] = {{0}};
    rlki_unit_reset(&walk->unit);
    walk->unit.step = step;
    walk->unit.rank = rank;
    int rc = rlki_side_nodes(&audit->side[0], step, rank, &nodes[0], audit->detail);
    if (rc == RLK_OK)
        rc = rlki_side_nodes(&audit->side[1], step, rank, &nodes[1], audit->detail);
    if (rc == RLK_OK)
        rc = read_differing(audit, &walk->unit, nodes);
    if (rc == RLK_OK) {
        rlki_unit_finish(&walk->unit);
        if (audit->in_first_step)
            rlki_count_ops(audit, &walk->unit);
        rc = rlki_align(audit, &walk->unit);
    }
    if (rc == RLK_OK)
        rc = rlki_check_lone_parameters(audit, &walk->unit);
    if (rc == RLK_OK && !rlki_stop(audit))
        rc = rlki_judge_unit(audit, &walk->unit);
    rlki_nodes_release(&nodes[0]);
    rlki_nodes_release(&nodes[1]);
    return rc;
}

/* Numbers (losses) are explained by any other difference at or before their step. */
void rlki_settle_metrics(struct rlki_audit *audit, size_t first)
{
    bool other = false;
    for (size_t i = 0; i < audit->nfound && !other; i++)
        other = !audit->found[i].metric && !audit->found[i].dropped;
    for (size_t i = first; i < audit->nfound && other; i++) {
        struct rlki_found *found = &audit->found[i];
        if (!found->metric || found->dropped || found->extra)
            continue;
        found->dropped = true;
        if (rlki_hash_put(&audit->down, found->event_key, 1))
            audit->downstream++;
    }
}

static uint64_t tensors_of(const struct rlki_side *side, int64_t step)
{
    uint64_t n = 0;
    for (size_t i = 0; i < side->ntotals; i++)
        if (side->totals[i].step == step)
            n += side->totals[i].tensors;
    return n;
}

/* A step that one side has alone. */
static int lone_step(struct walk *walk, int64_t step, int has)
{
    struct rlki_audit *audit = walk->audit;
    const struct rlki_side *side = &audit->side[has], *other = &audit->side[1 - has];
    bool *told = has == 0 ? &walk->told_a : &walk->told_b;
    bool both_complete = side->complete && other->complete;
    if (*told || !both_complete || rlki_partial(audit)) {
        rlki_skip(audit,
                  !other->complete ? "truncated-end"
                  : has == 0       ? "step-only-in-a"
                                   : "step-only-in-b",
                  tensors_of(side, step));
        return RLK_OK;
    }
    *told = true;
    int rc = RLK_OK;
    for (uint32_t i = 0; i < side->nranks && rc == RLK_OK && !rlki_stop(audit); i++)
        rc = walk_rank(walk, step, side->ranks[i]);
    return rc;
}

static int common_step(struct walk *walk, int64_t step)
{
    struct rlki_audit *audit = walk->audit;
    size_t before = audit->nfound;
    const struct rlki_side *a = &audit->side[0], *b = &audit->side[1];
    int rc = RLK_OK;
    audit->in_first_step = !audit->has_first_step;
    if (audit->in_first_step) {
        audit->has_first_step = true;
        audit->first_step = step;
    }
    uint32_t i = 0, j = 0;
    while ((i < a->nranks || j < b->nranks) && rc == RLK_OK && !rlki_stop(audit)) {
        uint32_t rank = j == b->nranks || (i < a->nranks && a->ranks[i] < b->ranks[j]) ? a->ranks[i] : b->ranks[j];
        size_t na, nb;
        i += i < a->nranks && a->ranks[i] == rank;
        j += j < b->nranks && b->ranks[j] == rank;
        rlki_side_totals(a, step, rank, &na);
        rlki_side_totals(b, step, rank, &nb);
        if (na || nb)
            rc = walk_rank(walk, step, rank);
        if (rlki_failed(audit))
            rc = RLK_ENOMEM;
    }
    if (rc == RLK_OK)
        rc = rlki_collectives_finish(audit, step);
    rlki_settle_metrics(audit, before);
    if (rc == RLK_OK && audit->in_first_step && !rlki_stop(audit))
        rc = rlki_check_overlap(audit);
    audit->in_first_step = false;
    rlki_hash_clear(&audit->down);
    return rc;
}

int rlki_walk(struct rlki_audit *audit)
{
    struct walk walk = {.audit = audit};
    const struct rlki_side *a = &audit->side[0], *b = &audit->side[1];
    size_t i = 0, j = 0;
    int rc = RLK_OK;
    while ((i < a->ntotals || j < b->ntotals) && rc == RLK_OK && !rlki_stop(audit) && !audit->repacked) {
        int64_t step = j == b->ntotals || (i < a->ntotals && a->totals[i].step < b->totals[j].step) ? a->totals[i].step
                                                                                                    : b->totals[j].step;
        bool in_a = i < a->ntotals && a->totals[i].step == step, in_b = j < b->ntotals && b->totals[j].step == step;
        if (in_a && in_b)
            rc = common_step(&walk, step);
        else
            rc = lone_step(&walk, step, in_a ? 0 : 1);
        while (i < a->ntotals && a->totals[i].step == step)
            i++;
        while (j < b->ntotals && b->totals[j].step == step)
            j++;
        if (audit->opt.progress)
            audit->opt.progress(audit->opt.progress_context, i + j, a->ntotals + b->ntotals);
    }
    rlki_unit_release(&walk.unit);
    return rc;
}
