/* order.c - which difference comes first: thread order, producer before consumer, the ranks of a collective as one
 * point; never clocks. Ties: step, phase and module by first appearance in A, pass as listed, rank.
 *
 * Steps never run backwards along any of these, so only the differences of the lowest step can be first; among those
 * the events of that step are gone through once, carrying "a difference lies before".
 */
#include "auditor/audit.h"
#include "auditor/mapfile.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_EVENTS (UINT64_C(16) << 20)

struct point {
    uint64_t seq;
    uint32_t env, thread;
    uint64_t instance;              /* 0: none */
    uint32_t producers, nproducers; /* place in lane.seqs */
};

struct lane { /* one rank */
    uint32_t rank;
    struct point *point;
    size_t n, cap, next;
    uint64_t *producer; /* (env, seq) of producers inside the step, packed */
    size_t nproducer, cap_producer;
    struct rlki_hash counts; /* for n-th */
};

struct anchor {         /* a difference at an event; several are chained */
    size_t found, next; /* next: place + 1 */
    bool after;
};

enum standing {
    UNSEEN = 0,
    BEHIND, /* another lies before it wherever it stands */
    FREE,
};

struct order {
    struct rlki_audit *audit;
    int64_t step;
    struct lane *lane;
    size_t nlane;
    bool across; /* collectives join ranks */
    struct anchor *anchor;
    size_t nanchor, cap_anchor;
    struct rlki_hash marks;           /* (env, seq) -> first anchor + 1 */
    struct rlki_hash tainted;         /* events and threads that lie after a difference */
    struct rlki_hash expected;        /* instance -> lanes that have it */
    struct rlki_hash arrived;         /* instance -> lanes that wait at it */
    struct rlki_hash joined;          /* instance -> a lane came tainted */
    struct rlki_hash phases, modules; /* first appearances, kept */
    uint8_t *standing;                /* enum standing, by place in audit->found */
    uint64_t total;
};

static uint64_t event_key(uint32_t env, uint64_t seq)
{
    return rlki_mix(rlki_mix(37, env), seq);
}

static uint64_t thread_key(const struct lane *lane, const struct point *p)
{
    return rlki_mix(rlki_mix(rlki_mix(41, p->env), p->thread), lane->rank);
}

static uint64_t instance_of(struct order *order, struct lane *lane, const struct rlk_event *e)
{
    uint64_t h = XXH3_64bits(e->u.collective.group, strlen(e->u.collective.group));
    struct rlki_side *side = &order->audit->side[0];
    if (e->u.collective.nranks) {
        for (uint32_t i = 0; i < e->u.collective.nranks; i++)
            h = rlki_mix(h, e->u.collective.ranks[i]);
    } else if (side->has_layout) {
        uint32_t *ranks = malloc(((size_t)side->world + 1) * sizeof *ranks), n = 0;
        if (ranks)
            rlki_side_communicator(side, e, ranks, &n);
        h = rlki_mix(h, n ? ranks[0] : 0);
        free(ranks);
    }
    if (!strstr(e->who.op, "send") && !strstr(e->who.op, "recv"))
        h = rlki_mix(h, XXH3_64bits(e->who.op, strlen(e->who.op)) ^ XXH3_64bits(e->who.module, strlen(e->who.module)));
    uint64_t nth = rlki_hash_count(&lane->counts, h, 1);
    h = rlki_mix(h, nth);
    return h ? h : 1;
}

struct load {
    struct order *order;
    struct lane *lane;
    uint32_t env;
};

static int load_event(void *context, const struct rlk_event *e)
{
    struct load *load = context;
    struct lane *lane = load->lane;
    if (e->rank != lane->rank || e->who.step != load->order->step || e->kind == RLK_EV_LAUNCH || e->kind == RLK_EV_NOTE)
        return 0;
    if (++load->order->total > MAX_EVENTS)
        return RLK_ELIMIT;
    if (!rlki_grow(&lane->point, &lane->cap, lane->n, sizeof *lane->point))
        return RLK_ENOMEM;
    struct point *point = &lane->point[lane->n++];
    *point =
        (struct point){.seq = e->seq, .env = load->env, .thread = e->thread, .producers = (uint32_t)lane->nproducer};
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        if (t->role != RLK_ROLE_IN || t->state != RLK_T_REFERENCE || t->ref_event >= e->seq)
            continue;
        if (!rlki_grow(&lane->producer, &lane->cap_producer, lane->nproducer, sizeof *lane->producer))
            return RLK_ENOMEM;
        lane->producer[lane->nproducer++] = event_key(load->env, t->ref_event);
        point->nproducers++;
    }
    if (e->kind == RLK_EV_COLLECTIVE) {
        point->instance = instance_of(load->order, lane, e);
        rlki_hash_count(&load->order->expected, point->instance, 1);
    }
    return 0;
}

static int compare_points(const void *x, const void *y)
{
    const struct point *a = x, *b = y;
    if (a->env != b->env)
        return a->env < b->env ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static int load_lane(struct order *order, struct lane *lane)
{
    struct rlki_nodes nodes = {0};
    struct load load = {order, lane, 0};
    int rc = rlki_side_nodes(&order->audit->side[0], order->step, lane->rank, &nodes, order->audit->detail);
    for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
        for (size_t k = 0; k < nodes.node[i].nspans && rc == RLK_OK; k++) {
            const struct rlki_span *span = &nodes.node[i].spans[k];
            load.env = span->env;
            rc = rlk_env_scan(order->audit->side[0].env[span->env].env, span->first, span->first + span->count,
                              load_event, &load, order->audit->detail);
        }
    rlki_nodes_release(&nodes);
    if (rc == RLK_OK && lane->n)
        qsort(lane->point, lane->n, sizeof *lane->point, compare_points);
    size_t kept = 0; /* ranges may overlap in a hostile recording */
    for (size_t i = 0; i < lane->n; i++)
        if (!kept || compare_points(&lane->point[kept - 1], &lane->point[i]) != 0)
            lane->point[kept++] = lane->point[i];
    lane->n = kept;
    return rc;
}

/* Does a difference lie before this event, on its thread or among what it consumes? */
static bool taint_before(const struct order *order, const struct lane *lane, const struct point *p)
{
    if (rlki_hash_get(&order->tainted, thread_key(lane, p), NULL))
        return true;
    for (uint32_t i = 0; i < p->nproducers; i++)
        if (rlki_hash_get(&order->tainted, lane->producer[p->producers + i], NULL))
            return true;
    return false;
}

/* Goes past one event. */
static void pass(struct order *order, struct lane *lane, bool joined)
{
    struct point *p = &lane->point[lane->next++];
    bool tainted = joined || taint_before(order, lane, p);
    uint64_t first = 0;
    rlki_hash_get(&order->marks, event_key(p->env, p->seq), &first);
    bool at = false;
    for (uint64_t i = first; i; i = order->anchor[i - 1].next)
        at |= !order->anchor[i - 1].after;
    for (uint64_t i = first; i; i = order->anchor[i - 1].next) {
        const struct anchor *anchor = &order->anchor[i - 1];
        uint8_t *standing = &order->standing[anchor->found];
        if (!(tainted || (anchor->after && at)))
            *standing = FREE;
        else if (*standing == UNSEEN)
            *standing = BEHIND;
    }
    if (!tainted && !first)
        return;
    rlki_hash_put(&order->tainted, thread_key(lane, p), 1);
    rlki_hash_put(&order->tainted, event_key(p->env, p->seq), 1);
}

/* Runs one lane up to a collective that others have not reached. true: it moved. */
static bool advance(struct order *order, struct lane *lane)
{
    bool moved = false;
    while (lane->next < lane->n) {
        struct point *p = &lane->point[lane->next];
        if (!p->instance || !order->across) {
            pass(order, lane, false);
            moved = true;
            continue;
        }
        uint64_t expected = 0, arrived = 0, taint = 0;
        uint64_t mine = rlki_mix(p->instance, lane->rank);
        rlki_hash_get(&order->expected, p->instance, &expected);
        if (rlki_hash_put(&order->arrived, mine, 1)) { /* arrives once */
            rlki_hash_count(&order->arrived, p->instance, 1);
            if (taint_before(order, lane, p))
                rlki_hash_count(&order->joined, p->instance, 1);
            moved = true;
        }
        rlki_hash_get(&order->arrived, p->instance, &arrived);
        if (arrived < expected)
            return moved;
        rlki_hash_get(&order->joined, p->instance, &taint);
        pass(order, lane, taint != 0);
        moved = true;
    }
    return moved;
}

static void simulate(struct order *order)
{
    for (;;) {
        bool moved = false, left = false;
        for (size_t i = 0; i < order->nlane; i++) {
            moved |= advance(order, &order->lane[i]);
            left |= order->lane[i].next < order->lane[i].n;
        }
        if (!left)
            return;
        for (size_t i = 0; !moved && i < order->nlane; i++) {
            struct lane *lane = &order->lane[i]; /* collectives that never meet: let the first go */
            if (lane->next >= lane->n)
                continue;
            pass(order, lane, false);
            moved = true;
        }
    }
}

/* ---- ties ---- */

static uint64_t look_up_appearance(struct rlki_audit *audit, uint32_t name, bool by_module)
{
    const struct rlki_side *side = &audit->side[0];
    uint64_t n = 0;
    for (size_t i = 0; i < side->ntotals && n < 4096; i++, n++) {
        const struct rlki_total *t = &side->totals[i];
        struct rlki_nodes nodes = {0};
        uint64_t best = UINT64_MAX;
        if (i && side->totals[i - 1].step == t->step && side->totals[i - 1].rank == t->rank)
            continue;
        int rc = rlki_side_nodes(&audit->side[0], t->step, t->rank, &nodes, NULL);
        audit->failed |= rc == RLK_ENOMEM;
        if (rc == RLK_OK)
            for (size_t k = 0; k < nodes.n; k++) {
                const struct rlki_node *node = &nodes.node[k];
                uint32_t has = by_module ? rlki_map_module(audit, 0, node->module) : node->phase;
                if (has == name && node->first_seq < best)
                    best = node->first_seq;
            }
        rlki_nodes_release(&nodes);
        if (best != UINT64_MAX)
            return (n << 40) + (best & ((UINT64_C(1) << 40) - 1));
    }
    return UINT64_MAX;
}

/* Where a phase or a module first appears in A: by (step, rank), then in that rank's order. */
static uint64_t appearance(struct order *order, uint32_t name, bool by_module)
{
    struct rlki_hash *kept = by_module ? &order->modules : &order->phases;
    uint64_t at;
    if (!rlki_hash_get(kept, (uint64_t)name + 1, &at)) {
        at = look_up_appearance(order->audit, name, by_module);
        rlki_hash_put(kept, (uint64_t)name + 1, at);
    }
    return at;
}

static int pass_rank(const char *pass)
{
    static const char *const listed[] = {"fwd", "recompute", "bwd", "opt"};
    for (int i = 0; i < 4; i++)
        if (strcmp(pass, listed[i]) == 0)
            return i;
    return 4;
}

static uint32_t rank_in(const struct rlki_found *found, int64_t rank)
{
    return rank >= 0 ? (uint32_t)rank : rlki_found_rank(found);
}

static uint64_t seq_in(const struct rlki_found *found, int64_t rank)
{
    for (size_t i = 0; i < found->nat; i++)
        if (rank < 0 || found->at[i].rank == (uint32_t)rank)
            return found->at[i].seq * 2 + found->at[i].after;
    return UINT64_MAX;
}

static bool tie_before(struct order *order, const struct rlki_found *a, const struct rlki_found *b, int64_t rank)
{
    if (a->step != b->step)
        return a->step < b->step;
    if (a->phase != b->phase) {
        uint64_t x = appearance(order, a->phase, false), y = appearance(order, b->phase, false);
        if (x != y)
            return x < y;
    }
    if (a->module != b->module) {
        uint64_t x = appearance(order, a->module, true), y = appearance(order, b->module, true);
        if (x != y)
            return x < y;
    }
    const struct rlki_names *names = &order->audit->names;
    int pa = pass_rank(rlki_names_text(names, a->pass)), pb = pass_rank(rlki_names_text(names, b->pass));
    if (pa != pb)
        return pa < pb;
    if (rank_in(a, rank) != rank_in(b, rank))
        return rank_in(a, rank) < rank_in(b, rank);
    return seq_in(a, rank) < seq_in(b, rank);
}

static bool candidate(const struct rlki_found *found, int64_t rank, int64_t step)
{
    return !found->dropped && found->step == step && (rank < 0 || rlki_found_on(found, (uint32_t)rank));
}

/* One thread of one environment: its own order is all there is. */
static bool one_thread(const struct rlki_audit *audit, int64_t rank, int64_t step)
{
    const struct rlki_at *first = NULL;
    for (size_t k = 0; k < audit->nfound; k++) {
        if (!candidate(&audit->found[k], rank, step))
            continue;
        for (size_t i = 0; i < audit->found[k].nat; i++) {
            const struct rlki_at *at = &audit->found[k].at[i];
            if (rank >= 0 && at->rank != (uint32_t)rank)
                continue;
            if (!first)
                first = at;
            if (at->env != first->env || at->rank != first->rank || at->thread != first->thread ||
                (at->in_b && !at->after))
                return false;
        }
    }
    return true;
}

static int run_order(struct order *order, int64_t rank)
{
    struct rlki_audit *audit = order->audit;
    int rc = RLK_OK;
    order->standing = calloc(audit->nfound + 1, sizeof *order->standing);
    order->lane = calloc((size_t)audit->side[0].nranks + 1, sizeof *order->lane);
    if (!order->standing || !order->lane)
        return RLK_ENOMEM;
    for (size_t k = 0; k < audit->nfound; k++) {
        const struct rlki_found *found = &audit->found[k];
        for (size_t i = 0; candidate(found, rank, order->step) && i < found->nat; i++) {
            const struct rlki_at *at = &found->at[i];
            if (at->in_b && !at->after)
                continue;
            uint64_t key = event_key(at->env, at->seq), first = 0;
            rlki_hash_get(&order->marks, key, &first);
            if (!rlki_grow(&order->anchor, &order->cap_anchor, order->nanchor, sizeof *order->anchor))
                return RLK_ENOMEM;
            order->anchor[order->nanchor++] = (struct anchor){.found = k, .next = first, .after = at->after};
            rlki_hash_put(&order->marks, key, order->nanchor);
        }
    }
    for (uint32_t i = 0; i < audit->side[0].nranks && rc == RLK_OK; i++) {
        if (rank >= 0 && audit->side[0].ranks[i] != (uint32_t)rank)
            continue;
        order->lane[order->nlane].rank = audit->side[0].ranks[i];
        rc = load_lane(order, &order->lane[order->nlane++]);
    }
    if (rc == RLK_ELIMIT) {
        rlki_note(audit, "step %lld is too large to order its differences across ranks: ties decide",
                  (long long)order->step);
        return RLK_OK;
    }
    if (rc == RLK_OK)
        simulate(order);
    return rc;
}

static void order_release(struct order *order)
{
    for (size_t i = 0; order->lane && i < order->nlane; i++) {
        free(order->lane[i].point);
        free(order->lane[i].producer);
        rlki_hash_release(&order->lane[i].counts);
    }
    free(order->lane);
    free(order->standing);
    free(order->anchor);
    rlki_hash_release(&order->marks);
    rlki_hash_release(&order->tainted);
    rlki_hash_release(&order->phases);
    rlki_hash_release(&order->modules);
    rlki_hash_release(&order->expected);
    rlki_hash_release(&order->arrived);
    rlki_hash_release(&order->joined);
}

int rlki_first(struct rlki_audit *audit, int64_t rank, const struct rlki_found **out)
{
    int64_t step = INT64_MAX;
    size_t n = 0;
    *out = NULL;
    for (size_t k = 0; k < audit->nfound; k++) {
        const struct rlki_found *found = &audit->found[k];
        if (found->dropped || (rank >= 0 && !rlki_found_on(found, (uint32_t)rank)))
            continue;
        if (!*out || found->step < step) {
            step = found->step;
            *out = found;
            n = 0;
        }
        n += found->step == step;
    }
    if (n < 2)
        return RLK_OK;
    struct order order = {.audit = audit, .step = step, .across = rank < 0};
    bool single = one_thread(audit, rank, step);
    int rc = single ? RLK_OK : run_order(&order, rank);
    const struct rlki_found *best = NULL;
    for (int round = 0; round < 2 && !best && rc == RLK_OK; round++) /* a cycle leaves none: then ties alone decide */
        for (size_t k = 0; k < audit->nfound; k++) {
            const struct rlki_found *found = &audit->found[k];
            if (!candidate(found, rank, step) || (!single && !round && order.standing[k] == BEHIND))
                continue;
            bool before =
                !best || (single ? seq_in(found, rank) < seq_in(best, rank) : tie_before(&order, found, best, rank));
            if (before)
                best = found;
        }
    if (best)
        *out = best;
    if (order.tainted.failed || order.marks.failed || order.expected.failed || order.arrived.failed ||
        order.joined.failed)
        rc = RLK_ENOMEM;
    order_release(&order);
    return rc;
}
