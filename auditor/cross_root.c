/* cross_root.c - the root rule across layouts: from a tensor that differs back through the events that made its parts,
 * on every rank of both sides, to tensors that were compared. Partial sums and events without counterpart are gone
 * through.
 */
#include "auditor/cross.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct verdict {
    bool down, unknown, produced; /* produced: some input has a producer */
    uint32_t reason;
};

static int look_back(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, uint32_t output, struct verdict *v)
{
    enum rlki_tri reach;
    int rc = rlki_reach(audit, side, env, seq, output, &reach);
    v->produced = true;
    v->down |= reach == RLKI_YES;
    if (reach == RLKI_MAYBE) {
        v->unknown = true;
        v->reason = rlki_names_id(&audit->names, "an input that cannot be compared");
    }
    return rc;
}

/* An input without reference: by its own comparison, or by who wrote its buffer. */
static int digested_input(struct rlki_cross *cross, int side, const struct rlki_ev *ev, uint32_t i, struct verdict *v)
{
    struct rlki_audit *audit = cross->audit;
    const struct rlk_tensor *t = &ev->e.tensors[i];
    struct rlki_part id = {.env = ev->env, .seq = ev->e.seq, .tensor = i};
    uint64_t mark = RLKI_MARK_EQUAL, seq;
    uint32_t output;
    bool same = !rlki_hash_get(&cross->inputs[side], rlki_part_id(&id), &mark);
    if (same && t->state == RLK_T_DIGESTED)
        return RLK_OK;
    int rc = rlki_side_writer(&audit->side[side], ev->env, ev->e.rank, ev->e.seq, t->alloc, t->name, &seq, &output,
                              audit->detail);
    if (rc == RLK_OK)
        return look_back(audit, side, ev->env, seq, output, v);
    if (rc != RLK_ENOENT && rc != RLK_EAGAIN)
        return rc;
    if (mark == RLKI_MARK_DIFF && rc == RLK_ENOENT) {
        v->down = true; /* the input itself is reported */
    } else {
        v->unknown = true;
        v->reason = rlki_names_id(&audit->names, t->state == RLK_T_DIGESTED ? "an input that cannot be compared"
                                                                            : "an input is not digested");
    }
    return RLK_OK;
}

static int event_inputs(struct rlki_cross *cross, int side, const struct rlki_ev *ev, struct verdict *v)
{
    int rc = RLK_OK;
    for (uint32_t i = 0; i < ev->e.ntensors && rc == RLK_OK; i++) {
        const struct rlk_tensor *t = &ev->e.tensors[i];
        if (t->role != RLK_ROLE_IN)
            break;
        if (t->state == RLK_T_REFERENCE && t->ref_event < ev->e.seq)
            rc = look_back(cross->audit, side, ev->env, t->ref_event, t->ref_output, v);
        else
            rc = digested_input(cross, side, ev, i, v);
    }
    return rc;
}

static uint64_t label_key(const struct rlki_ev *ev, const struct rlk_tensor *t)
{
    return rlki_mix(rlki_mix(83, XXH3_64bits(t->name, strlen(t->name))),
                    XXH3_64bits(ev->e.u.weights.version, strlen(ev->e.u.weights.version)));
}

/* A trainer's tensor comes from its buffer, a rollout's from the trainer's of that name and label. */
static int weights_inputs(struct rlki_cross *cross, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                          struct verdict *v)
{
    struct rlki_audit *audit = cross->audit;
    uint64_t seq;
    uint32_t output;
    if (strcmp(ev->e.u.weights.side, "rollout") == 0) {
        v->down |= rlki_hash_get(&cross->labels, label_key(ev, t), NULL);
        return RLK_OK;
    }
    rlki_hash_put(&cross->labels, label_key(ev, t), 1);
    int rc = rlki_side_writer(&audit->side[side], ev->env, ev->e.rank, ev->e.seq, t->alloc, t->name, &seq, &output,
                              audit->detail);
    if (rc == RLK_OK)
        return look_back(audit, side, ev->env, seq, output, v);
    v->unknown |= rc == RLK_EAGAIN;
    return rc == RLK_ENOENT || rc == RLK_EAGAIN ? RLK_OK : rc;
}

/* The tensor itself is an input: has it a producer that differs? */
static int own_producer(struct rlki_cross *cross, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                        struct verdict *v)
{
    struct rlki_audit *audit = cross->audit;
    uint64_t seq;
    uint32_t output;
    int rc = rlki_side_writer(&audit->side[side], ev->env, ev->e.rank, ev->e.seq, t->alloc, t->name, &seq, &output,
                              audit->detail);
    if (rc == RLK_OK)
        return look_back(audit, side, ev->env, seq, output, v);
    v->unknown |= rc == RLK_EAGAIN;
    return rc == RLK_ENOENT || rc == RLK_EAGAIN ? RLK_OK : rc;
}

/* Who holds the tensor, for the one who wants its bytes. */
static int spread(struct rlki_found *found, const struct rlki_differing *d)
{
    if (!rlki_grow(&found->spread, &found->cap_spread, found->nspread, sizeof *found->spread))
        return RLK_ENOMEM;
    struct rlki_spread *out = &found->spread[found->nspread++];
    *out = (struct rlki_spread){.by_sample = d->first[0]->sample, .comparable = d->comparable};
    for (int s = 0; s < 2; s++) {
        out->sums[s] = d->sums[s];
        out->whole_units[s] = d->whole_units[s];
        out->piece[s] = calloc(d->n[s] + 1, sizeof *out->piece[s]);
        if (!out->piece[s])
            return RLK_ENOMEM;
        out->n[s] = d->n[s];
        for (size_t i = 0; i < d->n[s]; i++) {
            const struct rlki_part *p = &d->part[s][i];
            out->piece[s][i] = (struct rlki_piece){.env = p->env,
                                                   .tensor = p->tensor,
                                                   .part = p->sample_at,
                                                   .seq = p->seq,
                                                   .place_hash = p->place_hash,
                                                   .slice = p->slice};
        }
    }
    return RLK_OK;
}

static int holders(struct rlki_found *found, const struct rlki_differing *d)
{
    found->no_rank = true;
    for (int s = 0; s < 2; s++) {
        found->holders[s] = malloc((d->n[s] + 1) * sizeof *found->holders[s]);
        if (!found->holders[s])
            return RLK_ENOMEM;
        for (size_t i = 0; i < d->n[s]; i++) /* ascending by rank */
            if (!i || d->part[s][i].rank != d->part[s][i - 1].rank)
                found->holders[s][found->nholders[s]++] = d->part[s][i].rank;
    }
    return RLK_OK;
}

static int load(struct rlki_cross *cross, const struct rlki_part *p, struct rlki_ev *ev, const struct rlk_tensor **t)
{
    int rc = rlki_ev_load(cross->audit, p->side, p->env, p->seq, &cross->scratch, ev);
    *t = rc == RLK_OK && p->tensor < ev->e.ntensors ? &ev->e.tensors[p->tensor] : NULL;
    return rc;
}

static int report(struct rlki_cross *cross, const struct rlki_differing *d, const struct verdict *v)
{
    struct rlki_audit *audit = cross->audit;
    struct rlki_ev a, b;
    const struct rlk_tensor *ta, *tb;
    size_t before = audit->nfound;
    rlk_arena_reset(&cross->scratch);
    int rc = load(cross, d->first[0], &a, &ta);
    if (rc == RLK_OK)
        rc = load(cross, d->first[1], &b, &tb);
    if (rc)
        return rc;
    if (v->down) {
        if (d->first[0]->role == RLK_ROLE_OUT)
            rlki_count_down(audit, &a);
        return RLK_OK;
    }
    bool in = d->first[0]->role == RLK_ROLE_IN, source = in && !v->produced;
    if ((source || (a.e.kind == RLK_EV_WEIGHTS && !v->produced)) && ta && tb && rlki_unlinked(audit, &a)) {
        rlki_count_down(audit, &a);
        return RLK_OK;
    }
    if ((source || a.e.kind == RLK_EV_WEIGHTS) && ta && tb) {
        rlki_check_parameter(audit, &a, &b, ta, tb);
        bool first_write = a.e.kind != RLK_EV_WEIGHTS || (!v->produced && strcmp(a.e.u.weights.side, "rollout") != 0);
        if (rlki_stop(audit) || (first_write && rlki_source_differs(audit, &a, &b, ta, tb)))
            return RLK_OK;
    }
    struct rlki_found *found = rlki_found_add(audit, &a, &b, ta, tb, v->unknown ? RLKI_ROOT_UNKNOWN : RLKI_ROOT_TRUE);
    if (!found)
        return RLK_ENOMEM;
    if (audit->nfound > before) {
        rc = holders(found, d);
        if (rc == RLK_OK)
            rc = spread(found, d);
        found->source = source;
        if (d->first[0]->sample)
            found->sample = d->first[0]->sample_name;
        found->reason = v->unknown ? v->reason : 0;
        if (d->first[0]->metric) {
            found->metric = true;
            found->root = RLKI_ROOT_UNKNOWN;
        }
    } else if (found->no_rank) { /* another output of its event, another sample's rows */
        rc = spread(found, d);
    }
    for (size_t i = 0; i < d->n[0] && rc == RLK_OK; i++) { /* where it stands on the other ranks */
        if (d->part[0][i].rank == d->first[0]->rank)
            continue;
        rlk_arena_reset(&cross->scratch);
        rc = load(cross, &d->part[0][i], &a, &ta);
        if (rc == RLK_OK && !rlki_found_add(audit, &a, NULL, ta, NULL, v->unknown ? RLKI_ROOT_UNKNOWN : RLKI_ROOT_TRUE))
            rc = RLK_ENOMEM;
    }
    return rc;
}

static int judge(struct rlki_cross *cross, const struct rlki_differing *d)
{
    struct verdict v = {0};
    int rc = RLK_OK;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < d->n[s] && rc == RLK_OK && !d->first[0]->metric; i++) {
            struct rlki_ev ev;
            const struct rlk_tensor *t;
            rlk_arena_reset(&cross->scratch);
            rc = load(cross, &d->part[s][i], &ev, &t);
            if (rc || !t)
                continue;
            if (t->role == RLK_ROLE_IN)
                rc = own_producer(cross, s, &ev, t, &v);
            else if (ev.e.kind == RLK_EV_WEIGHTS)
                rc = weights_inputs(cross, s, &ev, t, &v);
            else
                rc = event_inputs(cross, s, &ev, &v);
        }
    return rc ? rc : report(cross, d, &v);
}

static int by_place(const void *x, const void *y)
{
    const struct rlki_part *a = ((const struct rlki_differing *)x)->first[0],
                           *b = ((const struct rlki_differing *)y)->first[0];
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

int rlki_cross_judge(struct rlki_cross *cross)
{
    int rc = RLK_OK;
    if (cross->ndiffering)
        qsort(cross->differing, cross->ndiffering, sizeof *cross->differing, by_place);
    for (size_t i = 0; i < cross->ndiffering && rc == RLK_OK && !rlki_stop(cross->audit); i++)
        rc = judge(cross, &cross->differing[i]);
    return rc;
}

int rlki_cross_status(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                      enum rlki_mark *out)
{
    struct rlki_part id = {.env = ev->env, .seq = ev->e.seq, .tensor = (uint32_t)(t - ev->e.tensors)};
    uint64_t mark = RLKI_MARK_EQUAL;
    enum rlki_tri reach;
    *out = RLKI_MARK_EQUAL;
    if (t->role != RLK_ROLE_IN) {
        *out = rlki_side_marked(&audit->side[side], ev->env, ev->e.seq, t->index);
        return RLK_OK;
    }
    if (t->state == RLK_T_REFERENCE && t->ref_event < ev->e.seq) { /* as what it refers to, and its parts, are */
        int rc = rlki_reach(audit, side, ev->env, t->ref_event, t->ref_output, &reach);
        *out = reach == RLKI_YES ? RLKI_MARK_DIFF : reach == RLKI_MAYBE ? RLKI_MARK_DARK : RLKI_MARK_EQUAL;
        return rc;
    }
    if (audit->cross_inputs && rlki_hash_get(&audit->cross_inputs[side], rlki_part_id(&id), &mark))
        *out = (enum rlki_mark)mark;
    else if (t->state != RLK_T_DIGESTED)
        *out = RLKI_MARK_DARK;
    return RLK_OK;
}
