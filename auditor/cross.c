/* cross.c - other layouts and phases: each step's tensors are composed on both sides and joined by name; then the root
 * rule looks back from those that differ (cross_root.c). Everything of a step is read: roll-ups of other layouts never
 * agree.
 */
#include "auditor/cross.h"

#include <stdlib.h>
#include <string.h>

static int compare_parts(const void *x, const void *y)
{
    const struct rlki_part *a = x, *b = y;
#define BY(field)                                                                                                      \
    if (a->field != b->field)                                                                                          \
        return a->field < b->field ? -1 : 1;
    BY(key)
    BY(side)
    BY(rank)
    BY(env)
    BY(seq)
    BY(tensor)
#undef BY
    return 0;
}

/* Phases named "X+Y": is this one of them? */
static bool phase_named(const char *phases, size_t n, const char *phase)
{
    size_t len = strlen(phase);
    for (size_t i = 0; i <= n;) {
        size_t end = i;
        while (end < n && phases[end] != '+')
            end++;
        if (end - i == len && memcmp(phases + i, phase, len) == 0)
            return true;
        i = end + 1;
    }
    return false;
}

static bool phase_wanted(const struct rlki_audit *audit, int side, const char *phase)
{
    const char *phases = audit->opt.phases, *colon = phases ? strchr(phases, ':') : NULL;
    if (!colon)
        return true;
    return side == 0 ? phase_named(phases, (size_t)(colon - phases), phase)
                     : phase_named(colon + 1, strlen(colon + 1), phase);
}

static bool compared_kind(const struct rlki_ev *ev)
{
    return !ev->e.autotune &&
           (ev->e.kind == RLK_EV_OP || ev->e.kind == RLK_EV_COLLECTIVE || ev->e.kind == RLK_EV_COPY ||
            ev->e.kind == RLK_EV_WEIGHTS || ev->e.kind == RLK_EV_METRIC);
}

static int read_node(struct rlki_cross *cross, int side, const struct rlki_node *node, uint32_t rank,
                     struct rlki_hash *counts)
{
    struct rlki_audit *audit = cross->audit;
    int rc = RLK_OK;
    for (size_t k = 0; k < node->nspans && rc == RLK_OK; k++) {
        const struct rlki_span *span = &node->spans[k];
        uint64_t end = rlk_env_count(audit->side[side].env[span->env].env);
        if (span->first < end && span->count < end - span->first)
            end = span->first + span->count;
        for (uint64_t seq = span->first; seq < end && rc == RLK_OK; seq++) {
            struct rlki_ev ev;
            rlk_arena_reset(&cross->scratch);
            rc = rlki_ev_load(audit, side, span->env, seq, &cross->scratch, &ev);
            if (rc == RLK_ENOENT) {
                rc = RLK_OK;
                continue;
            }
            if (rc || ev.e.rank != rank || ev.e.who.step != cross->step || !compared_kind(&ev) ||
                strcmp(ev.e.who.phase, rlki_names_text(&audit->names, node->phase)) != 0 ||
                strcmp(ev.e.who.module, rlki_names_text(&audit->names, node->module)) != 0)
                continue;
            if (audit->in_first_step && rlki_counts_op(audit, &ev.e))
                rlki_hash_put(&audit->ops[side], rlki_mix(rlki_mix(19, ev.module), ev.op), 1);
            rc = rlki_parts_of(audit, &cross->parts, side, &ev, counts);
        }
    }
    return rc;
}

static int read_side(struct rlki_cross *cross, int side)
{
    struct rlki_audit *audit = cross->audit;
    int rc = RLK_OK;
    for (uint32_t r = 0; r < audit->side[side].nranks && rc == RLK_OK; r++) {
        struct rlki_nodes nodes = {0};
        struct rlki_hash counts = {0};
        uint32_t rank = audit->side[side].ranks[r];
        rc = rlki_side_nodes(&audit->side[side], cross->step, rank, &nodes, audit->detail);
        for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
            if (phase_wanted(audit, side, rlki_names_text(&audit->names, nodes.node[i].phase)))
                rc = read_node(cross, side, &nodes.node[i], rank, &counts);
        if (counts.failed)
            rc = RLK_ENOMEM;
        rlki_hash_release(&counts);
        rlki_nodes_release(&nodes);
    }
    return rc;
}

/* Of a gradient each rank's last value counts. */
static size_t last_of_each_rank(struct rlki_part *part, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool partial = part[i].place && part[i].place->partial && *part[i].place->partial;
        bool replaces = kept && part[kept - 1].rank == part[i].rank;
        if (replaces && partial && !(part[kept - 1].place && part[kept - 1].place->partial))
            continue;
        if (!replaces)
            kept++;
        part[kept - 1] = part[i];
    }
    return kept;
}

/* How often each rank wrote a gradient, summands left out; 0 if not all ranks equally often. */
static size_t writes(const struct rlki_part *part, size_t n)
{
    size_t each = 0;
    for (size_t i = 0; i < n;) {
        size_t count = 0, end = i;
        for (; end < n && part[end].rank == part[i].rank; end++)
            count += !(part[end].place && part[end].place->partial && *part[end].place->partial);
        if (i && count != each)
            return 0;
        each = count;
        i = end;
    }
    return each;
}

/* In a step that was cut off: may the value that counts, a gradient's last or a metric's of the lowest rank, be
 * missing? */
static bool may_lack(const struct rlki_cross *cross, const struct rlki_part *pa, size_t na, const struct rlki_part *pb,
                     size_t nb)
{
    if ((!cross->cut[0] && !cross->cut[1]) || !na || !nb)
        return false;
    if (pa->gradient)
        return !writes(pa, na) || writes(pa, na) != writes(pb, nb);
    for (int s = 0; s < 2 && pa->metric; s++)
        if (cross->cut[s] && (s ? pb : pa)->rank != cross->audit->side[s].ranks[0])
            return true;
    return false;
}

uint64_t rlki_part_id(const struct rlki_part *part)
{
    return rlki_mix(rlki_mix(rlki_mix(79, part->env), part->seq), part->tensor);
}

/* What is known of a part from here on: outputs by mark, inputs in the step's table. */
static void mark_parts(struct rlki_cross *cross, const struct rlki_part *part, size_t n, enum rlki_mark mark)
{
    for (size_t i = 0; i < n; i++) {
        const struct rlki_part *p = &part[i];
        bool partial = p->place && p->place->partial && *p->place->partial;
        enum rlki_mark own = partial ? RLKI_MARK_LONE : mark;
        if (own == RLKI_MARK_EQUAL || p->metric)
            continue;
        if (p->role == RLK_ROLE_OUT)
            rlki_side_mark(&cross->audit->side[p->side], p->env, p->seq, p->index, p->noutputs, own);
        else
            rlki_hash_put(&cross->inputs[p->side], rlki_part_id(p), (uint64_t)own);
        if (p->role != RLK_ROLE_OUT && cross->audit->cross_inputs)
            rlki_hash_put(&cross->audit->cross_inputs[p->side], rlki_part_id(p), (uint64_t)own);
    }
}

static int lone_parts(struct rlki_cross *cross, const struct rlki_part *part)
{
    struct rlki_audit *audit = cross->audit;
    struct rlki_ev ev;
    rlk_arena_reset(&cross->scratch);
    int rc = rlki_ev_load(audit, part->side, part->env, part->seq, &cross->scratch, &ev);
    if (rc)
        return rc;
    if (!rlki_hash_put(&cross->lone, rlki_mix(rlki_ev_identity(audit, &ev), part->side), 1))
        return RLK_OK;
    struct rlki_at at = {0};
    return rlki_lone(audit, part->side, &ev, &at);
}

static int add_differing(struct rlki_cross *cross, const struct rlki_part *pa, size_t na, const struct rlki_part *pb,
                         size_t nb, const struct rlki_whole *a, const struct rlki_whole *b)
{
    if (!rlki_grow(&cross->differing, &cross->cap_differing, cross->ndiffering, sizeof *cross->differing))
        return RLK_ENOMEM;
    cross->differing[cross->ndiffering++] = (struct rlki_differing){
        .part = {pa, pb},
        .n = {na, nb},
        .sums = {a->sums, b->sums},
        .first = {a->first, b->first},
        .comparable = a->first->dtype == b->first->dtype && rlki_part_same_shape(a->first, b->first),
        .whole_units = {a->state == RLKI_WHOLE_KNOWN, b->state == RLKI_WHOLE_KNOWN}};
    return RLK_OK;
}

static int join(struct rlki_cross *cross, struct rlki_part *pa, size_t na, struct rlki_part *pb, size_t nb)
{
    struct rlki_audit *audit = cross->audit;
    struct rlki_whole a, b;
    enum rlki_tri equal = RLKI_YES;
    const char *reason = NULL;
    bool unsettled = may_lack(cross, pa, na, pb, nb);
    if (na && pa->gradient)
        na = last_of_each_rank(pa, na);
    if (nb && pb->gradient)
        nb = last_of_each_rank(pb, nb);
    int rc = rlki_compose(&a, pa, na, audit->side[0].world == 1 || audit->same_layout);
    if (rc == RLK_OK)
        rc = rlki_compose(&b, pb, nb, audit->side[1].world == 1 || audit->same_layout);
    if (rc)
        return rc;
    if (a.replicas_differ || b.replicas_differ)
        rlki_note(audit, "step %lld: replicas of a tensor differ inside %c: the lowest rank's is taken",
                  (long long)cross->step, a.replicas_differ ? 'A' : 'B');
    if (!na || !nb) {
        const struct rlki_whole *one = na ? &a : &b;
        mark_parts(cross, na ? pa : pb, na ? na : nb, RLKI_MARK_LONE);
        if (one->first->role == RLK_ROLE_IN)
            return RLK_OK;
        if (one->state == RLKI_WHOLE_DARK) {
            rlki_skip(audit, one->reason, 1);
            return RLK_OK;
        }
        return lone_parts(cross, one->first);
    }
    if (unsettled) {
        a.state = RLKI_WHOLE_DARK;
        a.reason = "truncated-end";
    }
    rc = rlki_wholes_equal(&a, pa, na, &b, pb, nb, &equal, &reason);
    if (rc)
        return rc;
    if (equal == RLKI_MAYBE)
        rlki_skip(audit, reason, 1);
    else if (!a.first->metric)
        audit->compared++;
    enum rlki_mark mark = equal == RLKI_YES ? RLKI_MARK_EQUAL : equal == RLKI_NO ? RLKI_MARK_DIFF : RLKI_MARK_DARK;
    mark_parts(cross, pa, na, mark);
    mark_parts(cross, pb, nb, mark);
    return equal == RLKI_NO ? add_differing(cross, pa, na, pb, nb, &a, &b) : RLK_OK;
}

static int join_all(struct rlki_cross *cross)
{
    struct rlki_part *part = cross->parts.part;
    size_t n = cross->parts.n;
    int rc = RLK_OK;
    if (n)
        qsort(part, n, sizeof *part, compare_parts);
    for (size_t i = 0; i < n && rc == RLK_OK;) {
        size_t mid = i, end;
        while (mid < n && part[mid].key == part[i].key && part[mid].side == 0)
            mid++;
        end = mid;
        while (end < n && part[end].key == part[i].key)
            end++;
        rc = join(cross, part + i, mid - i, part + mid, end - mid);
        i = end;
    }
    return rc;
}

static int cross_step(struct rlki_cross *cross, int64_t step)
{
    struct rlki_audit *audit = cross->audit;
    size_t before = audit->nfound;
    cross->step = step;
    for (int s = 0; s < 2; s++)
        cross->cut[s] = rlki_side_cut_anywhere(&audit->side[s], step);
    cross->parts.n = 0;
    cross->ndiffering = 0;
    rlk_arena_reset(&cross->parts.arena);
    rlki_hash_clear(&cross->inputs[0]);
    rlki_hash_clear(&cross->inputs[1]);
    rlki_hash_clear(&cross->lone);
    int rc = read_side(cross, 0);
    if (rc == RLK_OK)
        rc = read_side(cross, 1);
    if (rc == RLK_OK)
        rc = join_all(cross);
    if (rc == RLK_OK)
        rc = rlki_cross_judge(cross);
    rlki_settle_metrics(audit, before);
    if (rc == RLK_OK && audit->in_first_step && !rlki_stop(audit) && !audit->opt.phases)
        rc = rlki_check_overlap(audit);
    rlki_hash_clear(&audit->down);
    if (rc == RLK_OK && (cross->inputs[0].failed || cross->inputs[1].failed || cross->lone.failed))
        rc = RLK_ENOMEM;
    return rc;
}

int rlki_cross_walk(struct rlki_audit *audit)
{
    struct rlki_cross cross = {.audit = audit};
    const struct rlki_side *a = &audit->side[0], *b = &audit->side[1];
    size_t i = 0, j = 0;
    int rc = RLK_OK;
    bool told[2] = {false,
                    false}; /* steps that one side has alone: the first is looked at for what may not be missing */
    while ((i < a->ntotals || j < b->ntotals) && rc == RLK_OK && !rlki_stop(audit)) {
        bool from_a = j == b->ntotals || (i < a->ntotals && a->totals[i].step < b->totals[j].step);
        int64_t step = from_a ? a->totals[i].step : b->totals[j].step;
        bool in_a = i < a->ntotals && a->totals[i].step == step, in_b = j < b->ntotals && b->totals[j].step == step;
        uint64_t tensors = 0;
        for (; i < a->ntotals && a->totals[i].step == step; i++)
            tensors += a->totals[i].tensors;
        for (; j < b->ntotals && b->totals[j].step == step; j++)
            tensors += b->totals[j].tensors;
        if (in_a && in_b) {
            audit->in_first_step = !audit->has_first_step;
            if (audit->in_first_step)
                audit->first_step = step;
            audit->has_first_step = true;
            rc = cross_step(&cross, step);
            audit->in_first_step = false;
        } else if (a->complete && b->complete && !told[in_b] && !rlki_partial(audit)) {
            told[in_b] = true;
            rc = cross_step(&cross, step);
        } else {
            rlki_skip(audit, in_a ? "step-only-in-a" : "step-only-in-b", tensors);
        }
        if (rc == RLK_OK && rlki_failed(audit))
            rc = RLK_ENOMEM;
        if (audit->opt.progress)
            audit->opt.progress(audit->opt.progress_context, i + j, a->ntotals + b->ntotals);
    }
    free(cross.parts.part);
    free(cross.differing);
    rlk_arena_release(&cross.parts.arena);
    rlk_arena_release(&cross.scratch);
    rlki_hash_release(&cross.inputs[0]);
    rlki_hash_release(&cross.inputs[1]);
    rlki_hash_release(&cross.lone);
    rlki_hash_release(&cross.labels);
    return rc;
}
