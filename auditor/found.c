/* found.c - the differences: one for each identity without rank (docs/cli.md, "roots"). */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>

struct rlki_at rlki_at_of(const struct rlki_ev *a, const struct rlki_ev *b)
{
    struct rlki_at at = {0};
    const struct rlki_ev *ev = a ? a : b;
    if (!ev)
        return at;
    at.rank = ev->e.rank;
    at.env = ev->env;
    at.thread = ev->e.thread;
    at.seq = ev->e.seq;
    at.in_b = !a;
    if (a && b) {
        at.has_mate = true;
        at.mate_env = b->env;
        at.mate_seq = b->e.seq;
    }
    return at;
}

static uint32_t place_of(const struct rlki_ev *ev, const struct rlk_tensor *tensor)
{
    return ev && tensor ? (uint32_t)(tensor - ev->e.tensors) : UINT32_MAX;
}

static bool add_at(struct rlki_found *found, const struct rlki_at *at)
{
    size_t i = found->nat;
    while (i > 0 && found->at[i - 1].rank > at->rank)
        i--;
    if (i > 0 && found->at[i - 1].rank == at->rank)
        return true;
    if (!rlki_grow(&found->at, &found->cap_at, found->nat, sizeof *found->at))
        return false;
    memmove(&found->at[i + 1], &found->at[i], (found->nat - i) * sizeof *found->at);
    found->at[i] = *at;
    found->nat++;
    return true;
}

static void describe(struct rlki_audit *audit, struct rlki_found *found, const struct rlki_ev *ev,
                     const struct rlk_tensor *tensor)
{
    found->step = ev->e.who.step;
    found->work = ev->e.who.work;
    found->iteration = ev->e.who.iteration;
    found->call = ev->e.who.call;
    found->occurrence = ev->e.who.occurrence;
    found->phase = ev->phase;
    found->pass = ev->pass;
    found->module = ev->module;
    found->op = ev->op;
    found->sample = ev->sample;
    found->kind = ev->e.kind;
    found->role = tensor ? tensor->role : RLK_ROLE_OUT;
    found->index = tensor ? tensor->index : 0;
    found->name = tensor ? rlki_names_id(&audit->names, tensor->name) : ev->e.kind == RLK_EV_METRIC ? ev->op : 0;
}

static bool same_members(const struct rlki_ev *a, const struct rlki_ev *b)
{
    uint32_t n = a->e.u.collective.nmembers;
    bool same = n == b->e.u.collective.nmembers;
    for (uint32_t i = 0; i < n && same; i++)
        same = strcmp(a->e.u.collective.members[i], b->e.u.collective.members[i]) == 0;
    return same;
}

/* Regrouped members are one difference: whichever side has how many of the buckets, it is the same. */
static uint64_t identity(const struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b)
{
    struct rlki_ev all = a ? *a : *b;
    if (!a || !b || !rlki_has_members(a) || !rlki_has_members(b) || same_members(a, b))
        return rlki_ev_identity(audit, &all);
    all.e.who.occurrence = 0;
    all.e.who.call = 0;
    return rlki_mix(rlki_ev_identity(audit, &all), 131);
}

struct rlki_found *rlki_found_add(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                                  const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_root root)
{
    const struct rlki_ev *ev = a ? a : b;
    const struct rlk_tensor *tensor = ta ? ta : tb;
    uint64_t event_key = rlki_ev_identity(audit, ev), key = identity(audit, a, b);
    if (tensor && tensor->role == RLK_ROLE_IN)
        key = rlki_mix(rlki_mix(key, 17), tensor->index);
    struct rlki_at at = rlki_at_of(a, b);
    uint64_t place;
    struct rlki_found *found;
    if (rlki_hash_get(&audit->found_index, key, &place)) {
        found = &audit->found[place];
        if (root == RLKI_ROOT_TRUE && found->root == RLKI_ROOT_UNKNOWN && !found->extra)
            found->root = RLKI_ROOT_TRUE; /* proved on another rank */
        if (found->nat && at.rank < found->at[0].rank) {
            describe(audit, found, ev, tensor);
            found->tensor_a = place_of(a, ta);
            found->tensor_b = place_of(b, tb);
        }
    } else {
        if (!rlki_grow(&audit->found, &audit->cap_found, audit->nfound, sizeof *audit->found)) {
            audit->failed = true;
            return NULL;
        }
        found = &audit->found[audit->nfound];
        *found = (struct rlki_found){.key = key, .event_key = event_key, .root = root};
        describe(audit, found, ev, tensor);
        found->tensor_a = place_of(a, ta);
        found->tensor_b = place_of(b, tb);
        found->self_a = rlki_hash_get(&audit->repeats[0].root, event_key, NULL);
        found->self_b = rlki_hash_get(&audit->repeats[1].root, event_key, NULL);
        rlki_hash_put(&audit->found_index, key, audit->nfound);
        audit->nfound++;
    }
    if (!add_at(found, &at)) {
        audit->failed = true;
        return NULL;
    }
    return found;
}

void rlki_count_down(struct rlki_audit *audit, const struct rlki_ev *ev)
{
    uint64_t key = rlki_ev_identity(audit, ev);
    if (audit->all_down)
        rlki_hash_put(audit->all_down, key, 1);
    if (!rlki_hash_put(&audit->down, key, 1))
        return;
    audit->downstream++;
    rlki_where_down(audit, ev);
    if (rlki_hash_get(&audit->repeats[0].root, key, NULL) || rlki_hash_get(&audit->repeats[1].root, key, NULL))
        audit->masked++;
}

void rlki_found_release(struct rlki_audit *audit)
{
    for (size_t i = 0; i < audit->nfound; i++) {
        free(audit->found[i].at);
        free(audit->found[i].holders[0]);
        free(audit->found[i].holders[1]);
        for (size_t k = 0; k < audit->found[i].nspread; k++) {
            free(audit->found[i].spread[k].piece[0]);
            free(audit->found[i].spread[k].piece[1]);
        }
        free(audit->found[i].spread);
    }
    free(audit->found);
    audit->found = NULL;
    audit->nfound = 0;
    rlki_hash_release(&audit->found_index);
}

uint32_t rlki_found_rank(const struct rlki_found *found)
{
    return found->nat ? found->at[0].rank : 0;
}

bool rlki_found_on(const struct rlki_found *found, uint32_t rank)
{
    size_t lo = 0, hi = found->nat;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (found->at[mid].rank < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < found->nat && found->at[lo].rank == rank;
}
