#include "auditor/audit.h"
#include "auditor/mapfile.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool rlki_is_rollout(const char *phase)
{
    return strncmp(phase, "rollout", 7) == 0;
}

void rlki_unit_reset(struct rlki_unit *unit)
{
    rlk_arena_reset(&unit->arena);
    unit->n[0] = unit->n[1] = 0;
}

void rlki_unit_release(struct rlki_unit *unit)
{
    rlk_arena_release(&unit->arena);
    free(unit->ev[0]);
    free(unit->ev[1]);
    memset(unit, 0, sizeof *unit);
}

/* Kinds that can be a difference. The others are evidence, or bookkeeping. */
static bool compared_kind(enum rlk_event_kind kind)
{
    return kind == RLK_EV_OP || kind == RLK_EV_COLLECTIVE || kind == RLK_EV_COPY || kind == RLK_EV_WEIGHTS ||
           kind == RLK_EV_METRIC || kind == RLK_EV_LEAF;
}

static uint64_t alignment_key(const struct rlki_audit *audit, const struct rlki_ev *ev)
{
    const struct rlk_event *e = &ev->e;
    uint64_t key = rlki_mix(rlki_names_hash(&audit->names, ev->op), (uint64_t)e->kind);
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        uint32_t ndim = t->place ? t->place->ndim : t->ndim;
        const uint64_t *shape = t->place ? t->place->shape : t->shape;
        key = rlki_mix(key, (uint64_t)t->role << 8 | t->dtype);
        for (uint32_t d = 0; d < ndim; d++)
            key = rlki_mix(key, shape[d]);
    }
    if (e->kind == RLK_EV_LEAF)
        key = rlki_mix(key, XXH3_64bits(e->u.leaf.name, strlen(e->u.leaf.name)));
    return key;
}

uint64_t rlki_ev_identity(const struct rlki_audit *audit, const struct rlki_ev *ev)
{
    const struct rlk_identity *who = &ev->e.who;
    uint64_t h = rlki_mix(7, (uint64_t)who->step);
    h = rlki_mix(h, (uint64_t)who->work);
    h = rlki_mix(h, (uint64_t)who->iteration);
    h = rlki_mix(h, rlki_names_hash(&audit->names, ev->phase));
    h = rlki_mix(h, rlki_names_hash(&audit->names, ev->pass));
    h = rlki_mix(h, rlki_names_hash(&audit->names, ev->module));
    h = rlki_mix(h, rlki_names_hash(&audit->names, ev->op));
    h = rlki_mix(h, (uint64_t)who->call << 32 | who->occurrence);
    if (ev->e.kind == RLK_EV_WEIGHTS)
        h = rlki_mix(h, XXH3_64bits(ev->e.u.weights.side, strlen(ev->e.u.weights.side)));
    if (ev->e.kind == RLK_EV_LEAF)
        h = rlki_mix(h, XXH3_64bits(ev->e.u.leaf.name, strlen(ev->e.u.leaf.name)));
    return h;
}

/* Sends and receives of a pair are one point, whatever the name on each side. */
bool rlki_is_p2p(const struct rlki_ev *ev)
{
    return ev->e.kind == RLK_EV_COLLECTIVE && (strstr(ev->e.who.op, "send") || strstr(ev->e.who.op, "recv"));
}

uint64_t rlki_communicator_key(const struct rlki_ev *ev)
{
    const struct rlk_event *e = &ev->e;
    uint64_t h = XXH3_64bits(e->u.collective.group, strlen(e->u.collective.group));
    for (uint32_t i = 0; i < e->u.collective.nranks; i++)
        h = rlki_mix(h, e->u.collective.ranks[i]);
    return rlki_mix(h, rlki_is_p2p(ev) ? 0 : ev->op);
}

/* A collective's function, by whatever name its library gives it: "c10d::allreduce_" is all_reduce. NULL: as it is. */
static const char *function_of(const char *op)
{
    static const struct {
        const char *squeezed, *function;
    } table[] = {
        {"allreduce", "all_reduce"},
        {"allgather", "all_gather"},
        {"allgatherbase", "all_gather"},
        {"allgatherintotensor", "all_gather"},
        {"reducescatter", "reduce_scatter"},
        {"reducescatterbase", "reduce_scatter"},
        {"reducescattertensor", "reduce_scatter"},
        {"alltoall", "all_to_all"},
        {"alltoallbase", "all_to_all"},
        {"alltoallsingle", "all_to_all"},
        {"broadcast", "broadcast"},
        {"barrier", "barrier"},
    };
    char word[32];
    size_t n = 0;
    const char *colon = strrchr(op, ':');
    for (const char *p = colon ? colon + 1 : op; *p; p++) {
        if (*p == '_')
            continue;
        if (n + 1 == sizeof word)
            return NULL;
        word[n++] = (char)(*p >= 'A' && *p <= 'Z' ? *p + ('a' - 'A') : *p);
    }
    word[n] = '\0';
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(word, table[i].squeezed) == 0)
            return table[i].function;
    return NULL;
}

int rlki_ev_load(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, struct rlk_arena *arena,
                 struct rlki_ev *out)
{
    memset(out, 0, sizeof *out);
    out->env = env;
    int rc = rlk_env_event(audit->side[side].env[env].env, seq, arena, &out->e, audit->detail);
    if (rc)
        return rc;
    for (uint32_t i = 1; i < out->e.ntensors; i++)
        if (out->e.tensors[i].role < out->e.tensors[i - 1].role)
            return rlk_fail(audit->detail, RLK_ECORRUPT, "event %llu: an input stands after an output",
                            (unsigned long long)seq);
    out->phase = rlki_names_id(&audit->names, out->e.who.phase);
    out->module = rlki_map_module(audit, side, rlki_names_id(&audit->names, out->e.who.module));
    out->pass = rlki_names_id(&audit->names, out->e.who.pass);
    const char *function = out->e.kind == RLK_EV_COLLECTIVE ? function_of(out->e.who.op) : NULL;
    out->op = rlki_names_id(&audit->names, function ? function : out->e.who.op);
    out->sample = rlki_names_id(&audit->names, out->e.who.sample);
    out->key = alignment_key(audit, out);
    return RLK_OK;
}

static int add_event(struct rlki_audit *audit, struct rlki_unit *unit, int side, const struct rlki_node *node,
                     uint32_t env, uint64_t seq, struct rlki_hash *counts)
{
    struct rlki_ev ev;
    int rc = rlki_ev_load(audit, side, env, seq, &unit->arena, &ev);
    if (rc == RLK_ENOENT)
        return RLK_OK;
    if (rc)
        return rc;
    if (ev.e.rank != unit->rank || ev.e.who.step != unit->step || ev.e.autotune || !compared_kind(ev.e.kind))
        return RLK_OK;
    if (strcmp(ev.e.who.phase, rlki_names_text(&audit->names, node->phase)) != 0 ||
        strcmp(ev.e.who.module, rlki_names_text(&audit->names, node->module)) != 0)
        return RLK_OK;
    if (ev.e.kind == RLK_EV_COLLECTIVE)
        ev.nth = (uint32_t)rlki_hash_count(counts, rlki_communicator_key(&ev), 1);
    if (!rlki_grow(&unit->ev[side], &unit->cap[side], unit->n[side], sizeof *unit->ev[side]))
        return RLK_ENOMEM;
    unit->ev[side][unit->n[side]++] = ev;
    return RLK_OK;
}

static int compare_spans(const void *x, const void *y)
{
    const struct rlki_span *a = x, *b = y;
    if (a->env != b->env)
        return a->env < b->env ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

int rlki_unit_read(struct rlki_audit *audit, struct rlki_unit *unit, int side, const struct rlki_node *node)
{
    struct rlki_hash counts = {0};
    int rc = RLK_OK;
    uint32_t env = UINT32_MAX;
    uint64_t next = 0;
    if (node->nspans)
        qsort(node->spans, node->nspans, sizeof *node->spans, compare_spans);
    for (size_t i = 0; i < node->nspans && rc == RLK_OK; i++) {
        const struct rlki_span *span = &node->spans[i];
        uint64_t count = rlk_env_count(audit->side[side].env[span->env].env);
        if (span->env != env)
            next = 0;
        env = span->env;
        uint64_t first = span->first > next ? span->first : next; /* overlapping ranges: no event twice */
        uint64_t last = span->count > count || span->first > count - span->count ? count : span->first + span->count;
        for (uint64_t seq = first; seq < last && rc == RLK_OK; seq++)
            rc = add_event(audit, unit, side, node, env, seq, &counts);
        next = last > next ? last : next;
    }
    if (counts.failed && rc == RLK_OK)
        rc = RLK_ENOMEM;
    rlki_hash_release(&counts);
    return rc;
}

static int compare_events(const void *x, const void *y)
{
    const struct rlki_ev *a = x, *b = y;
#define BY(field)                                                                                                      \
    if (a->field != b->field)                                                                                          \
        return a->field < b->field ? -1 : 1;
    BY(phase)
    BY(module)
    BY(e.who.work)
    BY(e.who.iteration)
    BY(pass)
    BY(e.who.call)
    BY(env)
    BY(e.seq)
#undef BY
    return 0;
}

void rlki_unit_finish(struct rlki_unit *unit)
{
    for (int s = 0; s < 2; s++)
        if (unit->n[s])
            qsort(unit->ev[s], unit->n[s], sizeof *unit->ev[s], compare_events);
}
