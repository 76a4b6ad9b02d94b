/* compare.c - comparability: parameters, sources, what both recordings hold (docs/identity.md, "Comparability"). */
#include "auditor/audit.h"
#include "auditor/mapfile.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

bool rlki_is_parameter_name(const char *name)
{
    return ends_with(name, ".weight") || ends_with(name, ".bias");
}

bool rlki_is_gradient_name(const char *name)
{
    return ends_with(name, ".grad") || strcmp(name, "grad") == 0;
}

/* Token ids: integers from outside, by their own name or because an embedding looks them up. */
bool rlki_is_token_ids(const struct rlki_ev *ev, const struct rlk_tensor *tensor)
{
    const char *name = last_part(tensor->name);
    if (!rlk_dtype_is_integer(tensor->dtype) || tensor->dtype == RLK_BOOL)
        return false;
    if (strncmp(name, "position", 8) == 0 || strstr(name, "type_ids") || strstr(name, "seq"))
        return false;
    if (strcmp(name, "ids") == 0 || ends_with(name, "_ids") || strncmp(name, "token", 5) == 0 ||
        ends_with(name, "tokens"))
        return true;
    return strstr(ev->e.who.op, "embedding") != NULL;
}

static const char *source_name(const struct rlki_ev *ev, const struct rlk_tensor *tensor)
{
    return ev->e.kind == RLK_EV_LEAF ? ev->e.u.leaf.name : tensor->name;
}

static bool same_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    uint32_t na = a->place ? a->place->ndim : a->ndim, nb = b->place ? b->place->ndim : b->ndim;
    const uint64_t *sa = a->place ? a->place->shape : a->shape, *sb = b->place ? b->place->shape : b->shape;
    return na == nb && (!na || memcmp(sa, sb, na * sizeof *sa) == 0);
}

void rlki_check_parameter(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                          const struct rlk_tensor *ta, const struct rlk_tensor *tb)
{
    if (a->e.kind != RLK_EV_WEIGHTS && !rlki_is_parameter_name(source_name(a, ta)))
        return;
    if (ta->dtype != tb->dtype)
        rlki_incomparable(audit, "parameter-dtype", a, b, source_name(a, ta));
    else if (!same_shape(ta, tb))
        rlki_incomparable(audit, "parameter-shape", a, b, source_name(a, ta));
}

struct lone_parameter {
    const struct rlki_ev *ev;
    const struct rlk_tensor *tensor;
};

/* A digested input named like a parameter, of an event without counterpart. */
static const struct rlk_tensor *parameter_input(const struct rlki_ev *ev, uint32_t i)
{
    const struct rlk_tensor *t = &ev->e.tensors[i];
    return t->role == RLK_ROLE_IN && t->state == RLK_T_DIGESTED && rlki_is_parameter_name(t->name) ? t : NULL;
}

int rlki_check_lone_parameters(struct rlki_audit *audit, const struct rlki_unit *unit)
{
    struct rlki_hash index = {0};
    struct lone_parameter *list = NULL;
    size_t n = 0, cap = 0;
    int rc = RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        for (size_t k = 0; k < unit->n[s] && rc == RLK_OK; k++) {
            const struct rlki_ev *ev = &unit->ev[s][k];
            for (uint32_t i = 0; ev->e.kind == RLK_EV_OP && !ev->mate && i < ev->e.ntensors && rc == RLK_OK; i++) {
                const struct rlk_tensor *t = parameter_input(ev, i);
                uint64_t at;
                if (!t)
                    continue;
                uint64_t key =
                    rlki_mix(rlki_mix(rlki_mix(89, ev->module), ev->op), rlki_names_id(&audit->names, t->name));
                if (s == 1) {
                    if (rlki_hash_get(&index, key, &at))
                        rlki_check_parameter(audit, list[at].ev, ev, list[at].tensor, t);
                } else if (!rlki_grow(&list, &cap, n, sizeof *list)) {
                    rc = RLK_ENOMEM;
                } else {
                    rlki_hash_put(&index, key, n);
                    list[n++] = (struct lone_parameter){ev, t};
                }
            }
        }
    if (index.failed)
        rc = RLK_ENOMEM;
    free(list);
    rlki_hash_release(&index);
    return rc;
}

bool rlki_source_differs(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                         const struct rlk_tensor *ta, const struct rlk_tensor *tb)
{
    (void)tb;
    if (!audit->in_first_step)
        return false;
    const char *name = source_name(a, ta);
    bool trainer =
        a->e.kind == RLK_EV_WEIGHTS ? strcmp(a->e.u.weights.side, "rollout") != 0 : !rlki_is_rollout(a->e.who.phase);
    bool parameter = a->e.kind == RLK_EV_WEIGHTS || rlki_is_parameter_name(name);
    if (!(parameter && trainer) && !rlki_is_token_ids(a, ta))
        return false;
    rlki_incomparable(audit, "source", a, b, *name ? name : a->e.who.op);
    return true;
}

bool rlki_counts_op(const struct rlki_audit *audit, const struct rlk_event *event)
{
    const int a = rlki_level_of(&audit->side[0]), b = rlki_level_of(&audit->side[1]);
    if (event->kind == RLK_EV_OP && a != b)
        return false; /* each level has operators of its own: "module", "step.grads" */
    return event->kind == RLK_EV_OP || event->kind == RLK_EV_COLLECTIVE || event->kind == RLK_EV_COPY;
}

void rlki_count_ops(struct rlki_audit *audit, const struct rlki_unit *unit)
{
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < unit->n[s]; i++) {
            const struct rlki_ev *ev = &unit->ev[s][i];
            if (rlki_counts_op(audit, &ev->e))
                rlki_hash_put(&audit->ops[s], rlki_mix(rlki_mix(19, ev->module), ev->op), 1);
        }
}

int rlki_level_of(const struct rlki_side *side)
{
    static const char *const levels[] = {"launch", "step", "module", "op", "buffer"};
    const char *level = json_string_value(json_object_get(side->manifest, "level"));
    for (int i = 0; level && i < 5; i++)
        if (strcmp(level, levels[i]) == 0)
            return i == 4 ? RLKI_LEVEL_OP : i;
    return RLKI_LEVEL_OP;
}

bool rlki_unlinked(const struct rlki_audit *audit, const struct rlki_ev *a)
{
    const uint64_t first = audit->side[0].env[a->env].first_diff;
    return first && first - 1 < a->e.seq && rlki_below_operators(audit);
}

bool rlki_below_operators(const struct rlki_audit *audit)
{
    return rlki_level_of(&audit->side[0]) < RLKI_LEVEL_OP || rlki_level_of(&audit->side[1]) < RLKI_LEVEL_OP;
}

static int count_event(void *context, const struct rlk_event *event)
{
    struct count {
        struct rlki_audit *audit;
        int side;
    } *count = context;
    if (event->autotune || !rlki_counts_op(count->audit, event))
        return 0;
    uint32_t module =
        rlki_map_module(count->audit, count->side, rlki_names_id(&count->audit->names, event->who.module));
    uint32_t op = rlki_names_id(&count->audit->names, event->who.op);
    if (event->who.step == count->audit->first_step)
        rlki_hash_put(&count->audit->ops[count->side], rlki_mix(rlki_mix(19, module), op), 1);
    return 0;
}

/* Nodes that agree were not read; where their number alone does not settle it, they are now. */
static int count_everything(struct rlki_audit *audit)
{
    int rc = RLK_OK;
    for (int s = 0; s < 2; s++) {
        struct rlki_side *side = &audit->side[s];
        struct {
            struct rlki_audit *audit;
            int side;
        } count = {audit, s};
        for (uint32_t r = 0; r < side->nranks && rc == RLK_OK; r++) {
            struct rlki_nodes nodes = {0};
            rc = rlki_side_nodes(side, audit->first_step, side->ranks[r], &nodes, audit->detail);
            for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
                for (size_t k = 0; k < nodes.node[i].nspans && rc == RLK_OK; k++) {
                    const struct rlki_span *span = &nodes.node[i].spans[k];
                    rc = rlk_env_scan(side->env[span->env].env, span->first, span->first + span->count, count_event,
                                      &count, audit->detail);
                }
            rlki_nodes_release(&nodes);
        }
    }
    audit->common_nodes = 0;
    return rc;
}

static bool overlap_enough(const struct rlki_audit *audit)
{
    uint64_t both = audit->common_nodes, n[2];
    for (int s = 0; s < 2; s++)
        n[s] = audit->ops[s].n + audit->common_nodes;
    for (size_t i = 0; i < audit->ops[0].cap; i++)
        if (audit->ops[0].key[i] && rlki_hash_get(&audit->ops[1], audit->ops[0].key[i], NULL))
            both++;
    uint64_t larger = n[0] > n[1] ? n[0] : n[1];
    int la = rlki_level_of(&audit->side[0]), lb = rlki_level_of(&audit->side[1]);
    if (la != lb) /* the coarser one's set is what both levels record */
        larger = la < lb ? n[0] : n[1];
    for (int s = 0; s < 2; s++) /* what a side that ends in this step did not come to is nobody's difference */
        if (n[s] < larger && rlki_side_cut_anywhere(&audit->side[s], audit->first_step))
            larger = n[s];
    return both * 2 >= larger;
}

int rlki_check_overlap(struct rlki_audit *audit)
{
    int rc = RLK_OK;
    if (overlap_enough(audit))
        return RLK_OK;
    if (audit->common_nodes)
        rc = count_everything(audit);
    if (rc == RLK_OK && !overlap_enough(audit))
        rlki_incomparable(audit, "operators", NULL, NULL, NULL);
    return rc;
}

static bool loss_or_gradient_metric(const char *name)
{
    return strstr(name, "loss") || strstr(name, "grad");
}

/* A loss, a gradient, a parameter or a weights event: its absence is a difference. */
static bool counts_when_missing(const struct rlki_ev *ev, const struct rlk_tensor **tensor)
{
    *tensor = NULL;
    if (ev->elsewhere)
        return false;
    if (ev->e.kind == RLK_EV_WEIGHTS)
        return true;
    if (ev->e.kind == RLK_EV_METRIC)
        return loss_or_gradient_metric(ev->e.who.op);
    if (ev->e.kind != RLK_EV_OP || strcmp(ev->e.who.pass, "recompute") == 0)
        return false;
    for (uint32_t i = 0; i < ev->e.ntensors; i++) {
        const struct rlk_tensor *t = &ev->e.tensors[i];
        const char *last = last_part(t->name);
        if (t->role != RLK_ROLE_OUT)
            continue;
        if (strcmp(last, "loss") == 0 || ends_with(last, "_loss") || strcmp(last, "grad") == 0 ||
            ends_with(last, ".grad") || rlki_is_parameter_name(t->name)) {
            *tensor = t;
            return true;
        }
    }
    return false;
}

static int list_event(struct rlki_event_ref **list, size_t *n, size_t *cap, int side, const struct rlki_ev *ev)
{
    if (*n >= RLKI_LISTED)
        return RLK_OK;
    if (!rlki_grow(list, cap, *n, sizeof **list))
        return RLK_ENOMEM;
    (*list)[(*n)++] = (struct rlki_event_ref){.side = (uint8_t)side, .env = ev->env, .seq = ev->e.seq};
    return RLK_OK;
}

int rlki_lone(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlki_at *anchor)
{
    const struct rlki_side *other = &audit->side[1 - side];
    bool complete = audit->side[0].complete && audit->side[1].complete;
    const struct rlk_tensor *tensor;
    if (!other->complete && !audit->cross && ev->e.who.step >= rlki_side_last_step(other, ev->e.rank)) {
        rlki_skip(audit, "truncated-end", ev->e.ntensors);
        return RLK_OK;
    }
    int la = rlki_level_of(&audit->side[0]), lb = rlki_level_of(&audit->side[1]);
    bool both_record = la == lb || ev->e.kind == RLK_EV_WEIGHTS || ev->e.kind == RLK_EV_METRIC;
    if (complete && both_record && !audit->opt.phases && counts_when_missing(ev, &tensor)) {
        struct rlki_found *found = side == 0 ? rlki_found_add(audit, ev, NULL, tensor, NULL, RLKI_ROOT_TRUE)
                                             : rlki_found_add(audit, NULL, ev, NULL, tensor, RLKI_ROOT_TRUE);
        if (!found)
            return RLK_ENOMEM;
        found->extra = true;
        if (found->nat && side == 1) {
            struct rlki_at *at = &found->at[found->nat - 1];
            at->after = anchor->after;
            at->mate_env = at->env; /* where it stands in B */
            at->mate_seq = at->seq;
            if (anchor->after) {
                at->env = anchor->env;
                at->seq = anchor->seq;
                at->thread = anchor->thread;
            }
        }
        return RLK_OK;
    }
    rlki_skip(audit, side == 0 ? "only-in-a" : "only-in-b", ev->e.ntensors);
    audit->recomputed[side] += strcmp(ev->e.who.pass, "recompute") == 0;
    if (side == 0) {
        audit->total_deleted++;
        return list_event(&audit->deleted, &audit->ndeleted, &audit->cap_deleted, 0, ev);
    }
    audit->total_inserted++;
    return list_event(&audit->inserted, &audit->ninserted, &audit->cap_inserted, 1, ev);
}
