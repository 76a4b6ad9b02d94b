#include "auditor/lead.h"
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>

struct rlki_lead_order {
    uint64_t hash;          /* of the keys in order */
    struct rlki_hash place; /* node, or phase -> place of it, of its first node */
};

struct phase { /* from where to where a rank is in it */
    uint64_t key;
    struct rlki_pos first, last;
};

struct rlki_lead_rank {
    uint32_t rank;
    size_t order, named; /* places in order, candidate */
    size_t *candidate, ncandidates;
    struct phase *phase;
    size_t nphases, cap_phases;
};

static uint64_t phase_key(const struct rlki_names *names, uint32_t phase)
{
    return rlki_mix(43, rlki_names_hash(names, phase));
}

static int order_of(struct rlki_lead *lead, const struct rlki_names *names, const struct rlki_rolls *nodes,
                    const struct rlki_suspect *suspects, size_t n, size_t *out)
{
    uint64_t hash = 47;
    for (size_t i = 0; i < nodes->n; i++)
        hash = rlki_mix(hash, nodes->roll[i].key);
    for (size_t i = 0; i < n; i++)
        if (!suspects[i].good)
            hash = rlki_mix(rlki_mix(hash, suspects[i].bad->key), suspects[i].ordinal);
    for (*out = 0; *out < lead->norders; ++*out)
        if (lead->order[*out].hash == hash)
            return RLK_OK;
    if (!rlki_grow(&lead->order, &lead->cap_orders, lead->norders, sizeof *lead->order))
        return RLK_ENOMEM;
    struct rlki_lead_order *order = &lead->order[lead->norders++];
    *order = (struct rlki_lead_order){.hash = hash};
    for (size_t i = 0; i < nodes->n; i++) {
        uint64_t phase = phase_key(names, nodes->roll[i].phase);
        rlki_hash_put(&order->place, nodes->roll[i].key, 2 * i);
        if (!rlki_hash_get(&order->place, phase, NULL))
            rlki_hash_put(&order->place, phase, 2 * i);
    }
    for (size_t i = 0; i < n; i++)
        if (!suspects[i].good)
            rlki_hash_put(&order->place, suspects[i].bad->key, suspects[i].ordinal);
    return order->place.failed ? RLK_ENOMEM : RLK_OK;
}

static int phases_of(struct rlki_lead_rank *rank, const struct rlki_names *names, const struct rlki_rolls *nodes)
{
    for (size_t i = 0; i < nodes->n; i++) {
        const struct rlki_roll *roll = &nodes->roll[i];
        uint64_t key = phase_key(names, roll->phase);
        size_t k = 0;
        while (k < rank->nphases && rank->phase[k].key != key)
            k++;
        if (k == rank->nphases) {
            if (!rlki_grow(&rank->phase, &rank->cap_phases, rank->nphases, sizeof *rank->phase))
                return RLK_ENOMEM;
            rank->phase[rank->nphases++] = (struct phase){key, roll->first, roll->last};
        }
        if (rlki_pos_compare(roll->last, rank->phase[k].last) > 0)
            rank->phase[k].last = roll->last;
    }
    return RLK_OK;
}

/* The candidate of a suspect: of the lowest rank that names it, else of the lowest rank. */
static int enter(struct rlki_lead *lead, const struct rlki_suspect *s, uint32_t rank, size_t *out)
{
    uint64_t key = s->good ? s->good->key : s->bad->key, at;
    bool known = rlki_hash_get(&lead->index, key, &at);
    if (!known) {
        if (!rlki_grow(&lead->candidate, &lead->cap_candidates, lead->ncandidates, sizeof *lead->candidate))
            return RLK_ENOMEM;
        at = lead->ncandidates++;
        lead->candidate[at] = (struct rlki_candidate){.key = key};
        rlki_hash_put(&lead->index, key, at);
    }
    struct rlki_candidate *c = &lead->candidate[at];
    if (!known || (s->named && !c->named)) {
        c->rank = rank;
        c->has[0] = s->good != NULL;
        c->has[1] = s->bad != NULL;
        if (s->good)
            c->roll[0] = *s->good;
        if (s->bad)
            c->roll[1] = *s->bad;
    }
    if (s->named) {
        c->named = true;
        if (c->nranks < RLKI_LEAD_RANKS)
            c->ranks[c->nranks] = rank;
        c->nranks++;
    }
    *out = (size_t)at;
    return lead->index.failed ? RLK_ENOMEM : RLK_OK;
}

int rlki_lead_add(struct rlki_lead *lead, const struct rlki_names *names, uint32_t rank, const struct rlki_rolls *nodes,
                  const struct rlki_suspect *suspects, size_t n)
{
    size_t room = 0;
    for (size_t i = 0; i < n; i++)
        room += suspects[i].named || suspects[i].may;
    if (!room)
        return RLK_OK;
    if (!rlki_grow(&lead->rank, &lead->cap_ranks, lead->nranks, sizeof *lead->rank))
        return RLK_ENOMEM;
    struct rlki_lead_rank *r = &lead->rank[lead->nranks++];
    *r = (struct rlki_lead_rank){.rank = rank, .candidate = calloc(room, sizeof *r->candidate)};
    int rc = r->candidate ? order_of(lead, names, nodes, suspects, n, &r->order) : RLK_ENOMEM;
    if (rc == RLK_OK)
        rc = phases_of(r, names, nodes);
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        size_t at;
        if (!suspects[i].named && !suspects[i].may)
            continue;
        rc = enter(lead, &suspects[i], rank, &at);
        if (rc == RLK_OK)
            r->candidate[r->ncandidates++] = at;
        if (rc == RLK_OK && suspects[i].named)
            r->named = at;
    }
    return rc;
}

static const struct rlki_roll *roll_of(const struct rlki_candidate *c)
{
    return c->has[0] ? &c->roll[0] : &c->roll[1];
}

/* Of two keys on the ranks of both: < 0 the first comes first, 0 unknown or the ranks do not agree. A rank that never
 * comes to one of them says nothing. */
static int compare_places(const struct rlki_lead_order *x, const struct rlki_lead_order *y, uint64_t a, uint64_t b)
{
    int votes = 0;
    for (int k = 0; k < 2; k++) {
        const struct rlki_lead_order *order = k ? y : x;
        uint64_t pa, pb;
        if (rlki_hash_get(&order->place, a, &pa) && rlki_hash_get(&order->place, b, &pb))
            votes += (pa > pb) - (pa < pb);
    }
    return votes;
}

/* Does what rank y names come before what rank x names? In doubt no. */
static bool comes_before(const struct rlki_lead *lead, const struct rlki_names *names, const struct rlki_lead_rank *y,
                         const struct rlki_lead_rank *x)
{
    const struct rlki_candidate *a = &lead->candidate[y->named], *b = &lead->candidate[x->named];
    const struct rlki_lead_order *oy = &lead->order[y->order], *ox = &lead->order[x->order];
    if (a == b)
        return false;
    int phases = compare_places(oy, ox, phase_key(names, roll_of(a)->phase), phase_key(names, roll_of(b)->phase));
    return phases ? phases < 0 : compare_places(oy, ox, a->key, b->key) < 0;
}

static const struct phase *phase_of(const struct rlki_lead_rank *rank, uint64_t key)
{
    for (size_t i = 0; i < rank->nphases; i++)
        if (rank->phase[i].key == key)
            return &rank->phase[i];
    return NULL;
}

/* Is this rank in `late` only after it was done with `early`? */
static bool runs_behind(const struct rlki_lead_rank *rank, uint64_t late, uint64_t early)
{
    const struct phase *l = phase_of(rank, late), *e = phase_of(rank, early);
    return l && e && l != e && rlki_pos_compare(l->first, e->last) > 0;
}

static int add_also(struct rlki_lead *lead, const struct rlki_names *names, const struct rlki_lead_rank *from,
                    const struct rlki_lead_rank *best, struct rlki_hash *taken)
{
    const uint64_t early = phase_key(names, roll_of(lead->first)->phase);
    for (size_t i = 0; i < from->ncandidates; i++) {
        size_t at = from->candidate[i];
        uint64_t late = phase_key(names, roll_of(&lead->candidate[at])->phase);
        if (runs_behind(from, late, early) && runs_behind(best, late, early))
            continue;
        if (!rlki_hash_put(taken, lead->candidate[at].key, 1))
            continue;
        if (!rlki_grow(&lead->also, &lead->cap_also, lead->nalso, sizeof *lead->also))
            return RLK_ENOMEM;
        lead->also[lead->nalso++] = at;
    }
    return taken->failed ? RLK_ENOMEM : RLK_OK;
}

int rlki_lead_settle(struct rlki_lead *lead, const struct rlki_names *names)
{
    struct rlki_hash taken = {0};
    const struct rlki_lead_rank *best = lead->rank;
    if (!lead->nranks)
        return RLK_OK;
    for (size_t i = 1; i < lead->nranks; i++)
        if (comes_before(lead, names, &lead->rank[i], best))
            best = &lead->rank[i];
    lead->first = &lead->candidate[best->named];
    rlki_hash_put(&taken, lead->first->key, 1);
    int rc = add_also(lead, names, best, best, &taken);
    for (size_t i = 0; i < lead->nranks && rc == RLK_OK; i++)
        rc = add_also(lead, names, &lead->rank[i], best, &taken);
    rlki_hash_release(&taken);
    return rc;
}

void rlki_lead_ranks(json_t *node, const struct rlki_candidate *candidate)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; ranks && i < candidate->nranks && i < RLKI_LEAD_RANKS; i++)
        rlki_add(ranks, json_integer(candidate->ranks[i]));
    rlki_set(node, "ranks", ranks);
    rlki_set(node, "nranks", json_integer(candidate->nranks));
}

void rlki_lead_release(struct rlki_lead *lead)
{
    for (size_t i = 0; i < lead->nranks; i++) {
        free(lead->rank[i].candidate);
        free(lead->rank[i].phase);
    }
    for (size_t i = 0; i < lead->norders; i++)
        rlki_hash_release(&lead->order[i].place);
    free(lead->candidate);
    free(lead->rank);
    free(lead->order);
    free(lead->also);
    rlki_hash_release(&lead->index);
    memset(lead, 0, sizeof *lead);
}
