/* root.c - the root rule for an aligned pair: every input equal and an output unequal (docs/identity.md, "Root"). */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const struct rlk_tensor *rlki_ev_tensor(const struct rlki_ev *ev, uint8_t role, uint32_t index)
{
    return rlki_event_tensor(&ev->e, role, index);
}

uint32_t rlki_ev_count(const struct rlki_ev *ev, uint8_t role)
{
    uint32_t inputs = rlki_event_ninputs(&ev->e);
    return role == RLK_ROLE_IN ? inputs : ev->e.ntensors - inputs;
}

/* Does the walk back from either producer meet an output that differs? */
static int reach_both(struct rlki_audit *audit, const struct rlki_value *a, const struct rlki_value *b,
                      enum rlki_tri *out)
{
    enum rlki_tri one = RLKI_NO, two = RLKI_NO;
    int rc = RLK_OK;
    if (a->has_producer)
        rc = rlki_reach(audit, 0, a->env, a->producer, a->output, &one);
    if (rc == RLK_OK && one != RLKI_YES && b->has_producer)
        rc = rlki_reach(audit, 1, b->env, b->producer, b->output, &two);
    *out = one == RLKI_YES || two == RLKI_YES       ? RLKI_YES
           : one == RLKI_MAYBE || two == RLKI_MAYBE ? RLKI_MAYBE
                                                    : RLKI_NO;
    return rc;
}

#define OLDER_WRITERS 1024

/* A buffer written piece by piece (a KV cache, a slice copy_) has many producers: all its writers, not the last one
 * alone. Does an earlier write to the buffer of this digested input differ? */
static int reach_older(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                       const struct rlki_value *value, enum rlki_tri *out)
{
    uint64_t before = value->has_producer ? value->producer : ev->e.seq, seq;
    uint32_t output;
    *out = RLKI_NO;
    if (t->state != RLK_T_DIGESTED || !t->alloc || !value->has_producer)
        return RLK_OK;
    for (int i = 0; i < OLDER_WRITERS && *out != RLKI_YES; i++) {
        enum rlki_tri one = RLKI_NO;
        int rc = rlki_side_writer(&audit->side[side], value->env, ev->e.rank, before, t->alloc, t->name, &seq, &output,
                                  audit->detail);
        if (rc == RLK_ENOENT)
            return RLK_OK;
        if (rc == RLK_EAGAIN) { /* effort spent: it may */
            *out = RLKI_MAYBE;
            return RLK_OK;
        }
        if (rc == RLK_OK)
            rc = rlki_reach(audit, side, value->env, seq, output, &one);
        if (rc)
            return rc;
        if (one != RLKI_NO)
            *out = one;
        before = seq;
    }
    return RLK_OK;
}

static int reach_older_both(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                            const struct rlk_tensor *ta, const struct rlk_tensor *tb, const struct rlki_value *va,
                            const struct rlki_value *vb, enum rlki_tri *out)
{
    enum rlki_tri two = RLKI_NO;
    int rc = reach_older(audit, 0, a, ta, va, out);
    if (rc == RLK_OK && *out != RLKI_YES)
        rc = reach_older(audit, 1, b, tb, vb, &two);
    if (two == RLKI_YES || *out == RLKI_NO)
        *out = two != RLKI_NO ? two : *out;
    return rc;
}

static uint64_t pair_key(const struct rlki_ev *a, const struct rlki_value *va, const struct rlki_value *vb)
{
    uint64_t h = rlki_mix(rlki_mix(5, a->e.rank), va->sums.positional.lo);
    return rlki_mix(rlki_mix(h, vb->sums.positional.lo), (uint64_t)va->dtype << 8 | vb->dtype);
}

/* Parts of logical tensors of other shapes are not the same input, even where both parts are empty. */
static bool other_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    const struct rlk_place *x = a->place, *y = b->place;
    return x && y && (x->ndim != y->ndim || (x->ndim && memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) != 0));
}

int rlki_judge_input(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                     const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_input *out, uint32_t *reason)
{
    struct rlki_value va, vb;
    enum rlki_tri reach;
    bool unsure = false;
    int rc = rlki_value_of(audit, 0, &a->e, a->env, ta, &va);
    if (rc == RLK_OK)
        rc = rlki_value_of(audit, 1, &b->e, b->env, tb, &vb);
    if (rc)
        return rc;
    enum rlki_tri equal = rlki_value_equal(&va, &vb);
    if (equal == RLKI_YES && other_shape(ta, tb))
        equal = RLKI_NO;
    *out = equal == RLKI_YES ? RLKI_INPUT_EQUAL : RLKI_INPUT_UNKNOWN;
    if (equal == RLKI_MAYBE)
        *reason = rlki_names_id(&audit->names, !va.known ? va.why : !vb.known ? vb.why : "view");
    if (equal != RLKI_NO)
        return RLK_OK;
    rc = rlki_value_producer(audit, 0, &a->e, a->env, ta, &va, &unsure);
    if (rc == RLK_OK)
        rc = rlki_value_producer(audit, 1, &b->e, b->env, tb, &vb, &unsure);
    if (rc == RLK_OK)
        rc = reach_both(audit, &va, &vb, &reach);
    if (rc == RLK_OK && reach == RLKI_NO)
        rc = reach_older_both(audit, a, b, ta, tb, &va, &vb, &reach);
    if (rc)
        return rc;
    *out = RLKI_INPUT_DOWN;
    if (reach == RLKI_YES || rlki_hash_get(&audit->in_pairs, pair_key(a, &va, &vb), NULL))
        return RLK_OK;
    *out = RLKI_INPUT_UNKNOWN;
    *reason = rlki_names_id(&audit->names, "producer");
    if (reach == RLKI_MAYBE)
        return RLK_OK;
    *out = RLKI_INPUT_ROOT;
    rlki_hash_put(&audit->in_pairs, pair_key(a, &va, &vb), 1);
    bool source = !va.has_producer && !vb.has_producer && !unsure;
    if (source)
        rlki_check_parameter(audit, a, b, ta, tb);
    if (source && rlki_source_differs(audit, a, b, ta, tb)) {
        *out = RLKI_INPUT_DOWN; /* not comparable; or allowed, and what follows from it is downstream */
        return RLK_OK;
    }
    if (source && rlki_unlinked(audit, a)) {
        *out = RLKI_INPUT_DOWN;
        return RLK_OK;
    }
    struct rlki_found *found = rlki_found_add(audit, a, b, ta, tb, unsure ? RLKI_ROOT_UNKNOWN : RLKI_ROOT_TRUE);
    if (found) {
        found->source = source;
        if (unsure)
            found->reason = *reason;
    }
    return RLK_OK;
}

/* Other samples in what should be the same tensor: batches were packed or dealt out in another way. */
static void look_at_packing(struct rlki_audit *audit, const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    uint64_t x, y, ids_a, ids_b;
    uint32_t na = rlki_sample_sum(a, &x, &ids_a), nb = rlki_sample_sum(b, &y, &ids_b);
    if (na && nb && (na != nb || ids_a != ids_b))
        audit->repacked = true;
}

/* Compares the outputs of a pair and marks them on both sides. */
static void mark_pair(struct rlki_audit *audit, struct rlki_ev *a, struct rlki_ev *b)
{
    uint32_t na = rlki_ev_count(a, RLK_ROLE_OUT), nb = rlki_ev_count(b, RLK_ROLE_OUT);
    for (uint32_t i = 0; i < na || i < nb; i++) {
        const struct rlk_tensor *ta = rlki_ev_tensor(a, RLK_ROLE_OUT, i), *tb = rlki_ev_tensor(b, RLK_ROLE_OUT, i);
        const char *reason = NULL;
        if (ta && tb && (ta->nsamples || tb->nsamples))
            look_at_packing(audit, ta, tb);
        enum rlki_tri equal = ta && tb ? rlki_output_equal(ta, tb, &reason) : RLKI_NO;
        enum rlki_mark mark = equal == RLKI_YES ? RLKI_MARK_EQUAL : equal == RLKI_NO ? RLKI_MARK_DIFF : RLKI_MARK_DARK;
        if (equal == RLKI_MAYBE)
            rlki_skip(audit, reason, 1);
        else
            audit->compared++;
        rlki_side_mark(&audit->side[0], a->env, a->e.seq, i, na, mark);
        rlki_side_mark(&audit->side[1], b->env, b->e.seq, i, nb, mark);
        if (equal == RLKI_NO)
            a->differs = b->differs = true;
    }
    if (a->e.kind == RLK_EV_METRIC) {
        a->differs = memcmp(&a->e.u.metric.value, &b->e.u.metric.value, sizeof(double)) != 0;
        b->differs = a->differs;
    }
}

/* An input pair that may differ although nothing was said about its producers. */
static bool suspicious(const struct rlk_tensor *ta, const struct rlk_tensor *tb)
{
    if (!ta || !tb)
        return false;
    bool da = ta->state == RLK_T_DIGESTED, db = tb->state == RLK_T_DIGESTED;
    return (da || db) && !(da && db && ta->dtype == tb->dtype && rlk_sums_same_bits(&ta->sums, &tb->sums));
}

static bool any_suspicious(const struct rlki_ev *a, const struct rlki_ev *b)
{
    for (uint32_t i = 0; i < a->e.ntensors; i++)
        if (a->e.tensors[i].role == RLK_ROLE_IN &&
            suspicious(&a->e.tensors[i], rlki_ev_tensor(b, RLK_ROLE_IN, a->e.tensors[i].index)))
            return true;
    return false;
}

int rlki_rng_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, struct rlki_rng *out)
{
    memset(out, 0, sizeof *out);
    for (uint64_t back = 1; back <= 64 && back <= ev->e.seq; back++) {
        const struct rlk_event *e;
        int rc = rlki_side_fetch(&audit->side[side], ev->env, ev->e.seq - back, &e, audit->detail);
        if (rc == RLK_ENOENT)
            continue;
        if (rc)
            return rc;
        if (e->rank != ev->e.rank || e->thread != ev->e.thread || e->kind == RLK_EV_SYNC || e->kind == RLK_EV_LAUNCH)
            continue;
        if (e->kind == RLK_EV_RNG) {
            *out = (struct rlki_rng){.has = true,
                                     .seed = e->u.rng.seed,
                                     .offset = e->u.rng.offset,
                                     .grid = e->u.rng.grid,
                                     .generator = XXH3_64bits(e->u.rng.generator, strlen(e->u.rng.generator))};
        }
        return RLK_OK;
    }
    return RLK_OK;
}

static bool is_rng_attr(const struct rlk_attr *attr)
{
    return attr->type == RLK_ATTR_INT &&
           (strstr(attr->key, "seed") || strstr(attr->key, "philox") || strstr(attr->key, "rng"));
}

static bool rng_attrs_differ(const struct rlki_ev *a, const struct rlki_ev *b)
{
    for (uint32_t i = 0; i < a->e.nattrs; i++) {
        const struct rlk_attr *x = &a->e.attrs[i];
        if (!is_rng_attr(x))
            continue;
        for (uint32_t k = 0; k < b->e.nattrs; k++)
            if (strcmp(b->e.attrs[k].key, x->key) == 0 && b->e.attrs[k].type == x->type && b->e.attrs[k].i != x->i)
                return true;
    }
    return false;
}

/* differs: the generator's state differs here. again: it already did at an earlier consumer. */
static int judge_rng(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b, bool *differs,
                     bool *again)
{
    struct rlki_rng x, y;
    int rc = rlki_rng_of(audit, 0, a, &x);
    if (rc == RLK_OK)
        rc = rlki_rng_of(audit, 1, b, &y);
    *differs = *again = false;
    if (rc)
        return rc;
    bool state = x.has && y.has && (x.seed != y.seed || x.offset != y.offset);
    bool attrs = rng_attrs_differ(a, b);
    *differs = state || attrs || (x.has && y.has && x.grid != y.grid) || x.has != y.has;
    if (!state && !attrs)
        return RLK_OK;
    uint64_t key = rlki_mix(rlki_mix(13, a->e.rank), state ? x.generator : 0);
    *again = !rlki_hash_put(&audit->rng_differs, key, 1);
    if (!*again && x.has && y.has && x.seed != y.seed && audit->in_first_step && !rlki_is_rollout(a->e.who.phase))
        rlki_incomparable(audit, "source", a, b, "RNG seed");
    return RLK_OK;
}

static int judge_pair(struct rlki_audit *audit, struct rlki_ev *a, struct rlki_ev *b)
{
    bool down = false, rng = false, again = false;
    uint32_t reason = 0;
    int rc = RLK_OK;
    if (!a->differs && !any_suspicious(a, b))
        return RLK_OK;
    uint32_t na = rlki_ev_count(a, RLK_ROLE_IN), nb = rlki_ev_count(b, RLK_ROLE_IN);
    for (uint32_t i = 0; (i < na || i < nb) && rc == RLK_OK; i++) {
        const struct rlk_tensor *ta = rlki_ev_tensor(a, RLK_ROLE_IN, i), *tb = rlki_ev_tensor(b, RLK_ROLE_IN, i);
        enum rlki_input input = RLKI_INPUT_UNKNOWN;
        if (!ta || !tb)
            reason = rlki_names_id(&audit->names, "another number of inputs");
        else if (!a->differs && !suspicious(ta, tb))
            continue;
        else
            rc = rlki_judge_input(audit, a, b, ta, tb, &input, &reason);
        down |= input == RLKI_INPUT_DOWN || input == RLKI_INPUT_ROOT;
    }
    if (rc || !a->differs || rlki_stop(audit))
        return rc;
    rc = judge_rng(audit, a, b, &rng, &again);
    if (rc || rlki_stop(audit))
        return rc;
    if (down || again || (a->e.kind != RLK_EV_METRIC && rlki_unlinked(audit, a))) {
        rlki_count_down(audit, a);
        return RLK_OK;
    }
    const struct rlk_tensor *ta = NULL, *tb = NULL;
    for (uint32_t i = 0; !ta && i < rlki_ev_count(a, RLK_ROLE_OUT); i++)
        if (rlki_side_marked(&audit->side[0], a->env, a->e.seq, i) == RLKI_MARK_DIFF) {
            ta = rlki_ev_tensor(a, RLK_ROLE_OUT, i);
            tb = rlki_ev_tensor(b, RLK_ROLE_OUT, i);
        }
    struct rlki_found *found = rlki_found_add(audit, a, b, ta, tb, reason ? RLKI_ROOT_UNKNOWN : RLKI_ROOT_TRUE);
    if (found) {
        found->rng |= rng;
        found->reason = found->reason ? found->reason : reason;
        if (a->e.kind == RLK_EV_METRIC) {
            found->metric = true;
            found->root = RLKI_ROOT_UNKNOWN;
        }
    }
    return RLK_OK;
}

/* An operator that combines ranks: its inputs are theirs, too. */
static int judge_combined(struct rlki_audit *audit, struct rlki_ev *a, struct rlki_ev *b)
{
    bool rng = false, again = false;
    int rc = RLK_OK;
    if (!a->differs && !any_suspicious(a, b))
        return RLK_OK;
    if (a->differs)
        rc = judge_rng(audit, a, b, &rng, &again);
    if (rc || rlki_stop(audit))
        return rc;
    if (!again)
        return rlki_collective_add(audit, a, b, rng);
    rlki_count_down(audit, a);
    return RLK_OK;
}

/* A source recorded as a leaf. */
static void judge_leaf(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b)
{
    if (!a->e.ntensors || !b->e.ntensors)
        return;
    const struct rlk_tensor *ta = &a->e.tensors[0], *tb = &b->e.tensors[0];
    rlki_check_parameter(audit, a, b, ta, tb);
    const char *reason;
    if (rlki_stop(audit) || rlki_output_equal(ta, tb, &reason) != RLKI_NO)
        return;
    if (rlki_source_differs(audit, a, b, ta, tb))
        return;
    struct rlki_found *found = rlki_found_add(audit, a, b, ta, tb, RLKI_ROOT_TRUE);
    if (found)
        found->source = true;
}

struct by_seq {
    uint32_t env;
    uint64_t seq;
    struct rlki_ev *ev;
};

static int compare_by_seq(const void *x, const void *y)
{
    const struct by_seq *a = x, *b = y;
    if (a->env != b->env)
        return a->env < b->env ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static struct by_seq *in_order(struct rlki_unit *unit, int side)
{
    struct by_seq *list = malloc((unit->n[side] + 1) * sizeof *list);
    if (!list)
        return NULL;
    for (size_t i = 0; i < unit->n[side]; i++)
        list[i] = (struct by_seq){unit->ev[side][i].env, unit->ev[side][i].e.seq, &unit->ev[side][i]};
    qsort(list, unit->n[side], sizeof *list, compare_by_seq);
    return list;
}

/* Moved, and its outputs differ: a pair only if nothing but the operator can have made the difference. */
static int settle_moved(struct rlki_audit *audit, struct rlki_ev *a)
{
    struct rlki_ev *b = a->mate;
    const char *reason;
    bool equal = true;
    for (uint32_t i = 0; i < a->e.ntensors && equal; i++) {
        const struct rlk_tensor *ta = &a->e.tensors[i], *tb = rlki_ev_tensor(b, ta->role, ta->index);
        if (ta->role == RLK_ROLE_OUT) {
            equal = tb && rlki_output_equal(ta, tb, &reason) != RLKI_NO;
            continue;
        }
    }
    if (equal)
        return RLK_OK;
    for (uint32_t i = 0; i < a->e.ntensors; i++) {
        const struct rlk_tensor *ta = &a->e.tensors[i], *tb = rlki_ev_tensor(b, ta->role, ta->index);
        struct rlki_value va, vb;
        if (ta->role != RLK_ROLE_IN)
            continue;
        int rc = rlki_value_of(audit, 0, &a->e, a->env, ta, &va);
        if (rc == RLK_OK && tb)
            rc = rlki_value_of(audit, 1, &b->e, b->env, tb, &vb);
        if (rc)
            return rc;
        if (!tb || rlki_value_equal(&va, &vb) != RLKI_YES) {
            a->mate = b->mate = NULL;
            a->moved = b->moved = false;
            return RLK_OK;
        }
    }
    return RLK_OK;
}

static int judge_lone(struct rlki_audit *audit, struct by_seq *list, size_t n, int side)
{
    const struct rlki_ev *last = NULL;
    int rc = RLK_OK;
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        struct rlki_ev *ev = list[i].ev;
        if (ev->mate) {
            last = ev;
            continue;
        }
        struct rlki_at at = side == 0 ? rlki_at_of(ev, NULL) : rlki_at_of(last ? last->mate : NULL, ev);
        if (side == 1) {
            at.after = last != NULL;
            at.in_b = true;
        }
        rc = rlki_lone(audit, side, ev, &at);
    }
    return rc;
}

static int list_moved(struct rlki_audit *audit, const struct rlki_ev *a)
{
    audit->total_moved++;
    if (audit->nmoved >= RLKI_LISTED * 2u)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        const struct rlki_ev *ev = s ? a->mate : a;
        if (!rlki_grow(&audit->moved, &audit->cap_moved, audit->nmoved, sizeof *audit->moved))
            return RLK_ENOMEM;
        audit->moved[audit->nmoved++] = (struct rlki_event_ref){.side = (uint8_t)s, .env = ev->env, .seq = ev->e.seq};
    }
    return RLK_OK;
}

/* Weights events and bucketed collectives are paired by their ledgers. */
static bool has_ledger(const struct rlki_ev *ev)
{
    return ev->e.kind == RLK_EV_WEIGHTS || rlki_has_members(ev);
}

static void mark_lone(struct rlki_audit *audit, const struct rlki_unit *unit, bool ledger)
{
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < unit->n[s]; i++) {
            const struct rlki_ev *ev = &unit->ev[s][i];
            if (!ev->mate && has_ledger(ev) == ledger)
                rlki_side_mark(&audit->side[s], ev->env, ev->e.seq, 0, 1, RLKI_MARK_LONE);
        }
}

int rlki_judge_unit(struct rlki_audit *audit, struct rlki_unit *unit)
{
    struct by_seq *a = in_order(unit, 0), *b = in_order(unit, 1);
    int rc = a && b ? RLK_OK : RLK_ENOMEM;
    for (size_t i = 0; i < unit->n[0] && rc == RLK_OK; i++)
        if (a[i].ev->mate && a[i].ev->moved)
            rc = settle_moved(audit, a[i].ev);
    /* Marks first: what follows looks back at them. */
    for (size_t i = 0; i < unit->n[0] && rc == RLK_OK; i++) {
        struct rlki_ev *ev = a[i].ev;
        if (has_ledger(ev))
            continue;
        if (ev->mate)
            mark_pair(audit, ev, ev->mate);
        if (ev->mate && ev->moved)
            rc = list_moved(audit, ev);
    }
    mark_lone(audit, unit, false);
    if (rc == RLK_OK)
        rc = rlki_collective_members(audit, unit);
    if (rc == RLK_OK && !rlki_stop(audit))
        rc = rlki_weights(audit, unit);
    mark_lone(audit, unit, true);
    for (size_t i = 0; i < unit->n[0] && rc == RLK_OK && !rlki_stop(audit); i++) {
        struct rlki_ev *ev = a[i].ev;
        if (!ev->mate || has_ledger(ev))
            continue;
        if (ev->e.kind == RLK_EV_COLLECTIVE)
            rc = rlki_collective_add(audit, ev, ev->mate, false);
        else if (rlki_combines(ev))
            rc = judge_combined(audit, ev, ev->mate);
        else if (ev->e.kind == RLK_EV_LEAF)
            judge_leaf(audit, ev, ev->mate);
        else
            rc = judge_pair(audit, ev, ev->mate);
    }
    if (rc == RLK_OK && !rlki_stop(audit))
        rc = judge_lone(audit, a, unit->n[0], 0);
    if (rc == RLK_OK && !rlki_stop(audit))
        rc = judge_lone(audit, b, unit->n[1], 1);
    free(a);
    free(b);
    return rc;
}
