/* explain.c - one event on both sides: the comparison is run, then its findings about this event are told. */
#include "auditor/audit.h"
#include "auditor/locate.h"
#include "auditor/mapfile.h"

#include "store/rlk_digest.h"

#include <stdio.h>
#include <string.h>

struct explain {
    struct rlki_audit *audit;
    struct rlki_unit unit;
    const struct rlki_ev *ev[2]; /* in the unit; NULL: that side has none */
    bool elements, differs, down;
    char why[512];
};

static const char *const tri_text[] = {"unequal", "equal", "unknown"};

static json_t *shape_json(const struct rlk_tensor *t)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < t->ndim; i++)
        rlki_add(array, json_integer((json_int_t)t->shape[i]));
    return array;
}

/* One side of a tensor, with its producer. */
static int side_json(struct explain *x, int side, const struct rlk_tensor *t, struct rlki_value *value, json_t **out)
{
    struct rlki_audit *audit = x->audit;
    const struct rlki_ev *ev = x->ev[side];
    bool unsure = false;
    int rc = rlki_value_of(audit, side, &ev->e, ev->env, t, value);
    if (rc)
        return rc;
    *out = json_pack("{s:s,s:o}", "dtype", rlk_dtype_name(t->dtype), "shape", shape_json(t));
    if (!*out)
        return RLK_ENOMEM;
    bool reference = value->has_producer;
    if (value->known) {
        char text[33];
        rlk_digest_print(text, &value->sums, t->dtype, t->place ? t->place->ndim : t->ndim,
                         t->place ? t->place->shape : t->shape);
        rlki_set(*out, "digest", json_string(text));
    } else {
        rlki_set(*out, "not_digested", rlki_json_text(value->why));
    }
    rlki_set(*out, "by_reference", json_boolean(reference));
    if (t->role != RLK_ROLE_IN)
        return RLK_OK;
    rc = rlki_value_producer(audit, side, &ev->e, ev->env, t, value, &unsure);
    if (rc == RLK_OK && value->has_producer) {
        json_t *producer = rlki_json_event(audit, side, value->env, value->producer);
        rlki_set(*out, "producer", producer);
        rlki_set(*out, "view", json_boolean(value->view.lo || value->view.hi));
    }
    return rc;
}

/* What an unequal input comes from, in words. */
static int trace(struct explain *x, const struct rlk_tensor *t, const struct rlki_value value[2])
{
    for (int s = 0; s < 2; s++) {
        enum rlki_tri reach;
        if (!value[s].has_producer)
            continue;
        int rc = rlki_reach(x->audit, s, value[s].env, value[s].producer, value[s].output, &reach);
        if (rc)
            return rc;
        if (reach != RLKI_YES)
            continue;
        x->down = true;
        if (!x->why[0])
            snprintf(x->why, sizeof x->why,
                     "downstream: input %u differs because what made it differs (event %llu of %c)", t->index,
                     (unsigned long long)value[s].producer, s ? 'B' : 'A');
    }
    return RLK_OK;
}

/* Across layouts the two events hold other parts of it: what was composed of all ranks' parts is what was compared. */
static int across(struct explain *x, const struct rlk_tensor *const t[2], const char **status)
{
    const int side = t[0] ? 0 : 1;
    enum rlki_mark mark;
    int rc = rlki_cross_status(x->audit, side, x->ev[side], t[side], &mark);
    *status = mark == RLKI_MARK_EQUAL  ? "equal"
              : mark == RLKI_MARK_DIFF ? "unequal"
              : mark == RLKI_MARK_DARK ? "unknown"
              : side                   ? "only-in-b"
                                       : "only-in-a";
    x->differs |= mark == RLKI_MARK_DIFF;
    return rc;
}

static int tensor_json(struct explain *x, uint8_t role, uint32_t index, json_t *list)
{
    const struct rlk_tensor *t[2];
    struct rlki_value value[2] = {{0}};
    json_t *side[2] = {NULL, NULL};
    const char *status = "equal", *reason;
    int rc = RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        t[s] = x->ev[s] ? rlki_ev_tensor(x->ev[s], role, index) : NULL;
        if (t[s])
            rc = side_json(x, s, t[s], &value[s], &side[s]);
    }
    if (rc)
        goto out;
    if (x->audit->cross) {
        rc = across(x, t, &status);
    } else if (!t[0] || !t[1]) {
        status = t[0] ? "only-in-a" : "only-in-b";
    } else {
        enum rlki_tri equal =
            role == RLK_ROLE_OUT ? rlki_output_equal(t[0], t[1], &reason) : rlki_value_equal(&value[0], &value[1]);
        status = tri_text[equal];
        x->differs |= equal == RLKI_NO;
        if (equal == RLKI_NO && role == RLK_ROLE_IN)
            rc = trace(x, t[0], value);
    }
    const struct rlk_tensor *any = t[0] ? t[0] : t[1];
    json_t *one = json_pack("{s:s,s:I,s:o,s:s,s:o,s:o}", "role", role == RLK_ROLE_IN ? "in" : "out", "index",
                            (json_int_t)index, "name", rlki_json_text(any->name), "status", status, "a",
                            side[0] ? side[0] : json_null(), "b", side[1] ? side[1] : json_null());
    side[0] = side[1] = NULL;
    if (!one) {
        rc = RLK_ENOMEM;
        goto out;
    }
    if (rc == RLK_OK && x->elements && strcmp(status, "unequal") == 0 && t[0] && t[1] && !x->audit->cross) {
        json_t *difference = NULL;
        struct rlki_found found = {.kind = x->ev[0]->e.kind, .role = role};
        struct rlki_at at = rlki_at_of(x->ev[0], x->ev[1]);
        found.at = &at;
        found.nat = 1;
        found.tensor_a = (uint32_t)(t[0] - x->ev[0]->e.tensors);
        found.tensor_b = (uint32_t)(t[1] - x->ev[1]->e.tensors);
        rc = rlki_difference(x->audit, &found, &difference);
        if (rc == RLK_OK)
            rlki_set(one, "difference", difference);
    }
    rlki_add(list, one);
out:
    json_decref(side[0]);
    json_decref(side[1]);
    return rc;
}

static int tensors_json(struct explain *x, json_t *list)
{
    int rc = RLK_OK;
    for (uint8_t role = RLK_ROLE_IN; role <= RLK_ROLE_OUT && rc == RLK_OK; role++) {
        uint32_t n = 0;
        for (int s = 0; s < 2; s++)
            if (x->ev[s] && rlki_ev_count(x->ev[s], role) > n)
                n = rlki_ev_count(x->ev[s], role);
        for (uint32_t i = 0; i < n && i < 4096 && rc == RLK_OK; i++)
            rc = tensor_json(x, role, i, list);
    }
    return rc;
}

/* Nothing is said of a rank that neither recording has. */
static int known_rank(const struct rlki_audit *audit, int64_t rank)
{
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < audit->side[s].nranks; i++)
            if (audit->side[s].ranks[i] == rank)
                return RLK_OK;
    return rlk_fail(audit->detail, RLK_ENOENT, "neither recording has a rank %lld", (long long)rank);
}

/* Which environment of A holds event `seq` (of `rank`)? */
static int find_event(struct rlki_audit *audit, int64_t seq, int64_t rank, uint32_t *env)
{
    for (uint32_t i = 0; i < audit->side[0].nenv; i++) {
        const struct rlk_event *e;
        int rc = rlki_side_fetch(&audit->side[0], i, (uint64_t)seq, &e, audit->detail);
        if (rc == RLK_ENOENT || (rc == RLK_OK && rank >= 0 && e->rank != (uint32_t)rank))
            continue;
        *env = i;
        return rc;
    }
    return rlk_fail(audit->detail, RLK_ENOENT, "A has no event %lld%s", (long long)seq,
                    rank >= 0 ? " on that rank" : "");
}

/* Reads the event's module on both sides, of rank `other` on the other one, and aligns it. */
static int load_pair(struct explain *x, int side, uint32_t env, uint64_t seq, uint32_t other)
{
    struct rlki_audit *audit = x->audit;
    struct rlk_arena arena = {0};
    struct rlki_ev ev;
    int rc = rlki_ev_load(audit, side, env, seq, &arena, &ev);
    x->ev[0] = x->ev[1] = NULL;
    x->unit.step = ev.e.who.step;
    x->unit.rank = ev.e.rank;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        struct rlki_nodes nodes = {0};
        x->unit.rank = s == side ? ev.e.rank : other;
        rc = rlki_side_nodes(&audit->side[s], x->unit.step, x->unit.rank, &nodes, audit->detail);
        for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
            if (strcmp(rlki_names_text(&audit->names, nodes.node[i].phase), ev.e.who.phase) == 0 &&
                rlki_map_module(audit, s, nodes.node[i].module) == ev.module)
                rc = rlki_unit_read(audit, &x->unit, s, &nodes.node[i]);
        rlki_nodes_release(&nodes);
    }
    x->unit.rank = ev.e.rank;
    if (rc == RLK_OK) {
        rlki_unit_finish(&x->unit);
        rc = rlki_align(audit, &x->unit);
    }
    if (rc == RLK_OK) /* pairs weights events; what it reports was reported before */
        rc = rlki_weights(audit, &x->unit);
    for (size_t i = 0; i < x->unit.n[side] && rc == RLK_OK; i++) {
        struct rlki_ev *one = &x->unit.ev[side][i];
        if (one->env != env || one->e.seq != seq)
            continue;
        x->ev[side] = one;
        x->ev[1 - side] = one->mate;
    }
    rlk_arena_release(&arena);
    if (rc == RLK_OK && !x->ev[side])
        rc = rlk_fail(audit->detail, RLK_EINVAL, "event %llu is of a kind that is not compared",
                      (unsigned long long)seq);
    return rc;
}

/* The event and its counterpart: of its own rank; across layouts, where that rank has none, of the lowest that has. */
static int load_event(struct explain *x, int side, uint32_t env, uint64_t seq)
{
    const struct rlki_side *other = &x->audit->side[1 - side];
    const struct rlk_event *event;
    int rc = rlki_side_fetch(&x->audit->side[side], env, seq, &event, x->audit->detail);
    const uint32_t own = rc == RLK_OK ? event->rank : 0;
    if (rc == RLK_OK)
        rc = load_pair(x, side, env, seq, own);
    for (uint32_t i = 0; i < other->nranks && rc == RLK_OK && x->audit->cross && !x->ev[1 - side]; i++) {
        if (other->ranks[i] == own)
            continue;
        rlki_unit_reset(&x->unit);
        rc = load_pair(x, side, env, seq, other->ranks[i]);
    }
    return rc;
}

static const struct rlki_found *found_here(const struct explain *x, const struct rlki_found *first)
{
    const struct rlki_ev *ev = x->ev[0] ? x->ev[0] : x->ev[1];
    uint64_t key = rlki_ev_identity(x->audit, ev);
    if (first && first->event_key == key)
        return first;
    for (size_t i = 0; i < x->audit->nfound; i++) {
        const struct rlki_found *found = &x->audit->found[i];
        if (!found->dropped && found->event_key == key && (found->no_rank || rlki_found_on(found, ev->e.rank)))
            return found;
    }
    return NULL;
}

static const char *standing(struct explain *x, const struct rlki_found *found)
{
    const bool alone = !x->ev[0] || !x->ev[1];
    if (alone && !x->audit->cross) {
        snprintf(x->why, sizeof x->why, "only %c has this event", x->ev[0] ? 'A' : 'B');
        return "alone";
    }
    if (found && found->role == RLK_ROLE_IN) {
        snprintf(x->why, sizeof x->why, "input %u differs and nothing recorded before explains it: a root, role in",
                 found->index);
        return "root";
    }
    if (found && found->root == RLKI_ROOT_TRUE) {
        snprintf(x->why, sizeof x->why, "every input is equal on both sides and an output is not: a root");
        return "root";
    }
    if (found) {
        snprintf(x->why, sizeof x->why, "an output differs, but whether every input is equal is unknown: %.200s",
                 rlki_names_text(&x->audit->names, found->reason));
        return "unknown";
    }
    if (alone && !x->differs && !x->audit->side[x->ev[0] ? 1 : 0].complete) {
        snprintf(x->why, sizeof x->why, "only %c has this event, and %c is incomplete", x->ev[0] ? 'A' : 'B',
                 x->ev[0] ? 'B' : 'A');
        return "alone";
    }
    if (alone && !x->differs) {
        snprintf(x->why, sizeof x->why, "nothing of it differs, and no event of %c is called as it is",
                 x->ev[0] ? 'B' : 'A');
        return "equal";
    }
    if (!x->differs && (x->audit->cross || !x->ev[0]->differs)) {
        snprintf(x->why, sizeof x->why, "nothing that was recorded of it differs");
        return "equal";
    }
    if (!x->why[0])
        snprintf(x->why, sizeof x->why, "downstream of an earlier difference");
    return "downstream";
}

static int build(struct explain *x, const struct rlki_found *first, json_t **out)
{
    struct rlki_audit *audit = x->audit;
    json_t *tensors = json_array(), *result = NULL, *mechanism = NULL, *difference = NULL, *of[2], *side[2];
    int rc = tensors ? tensors_json(x, tensors) : RLK_ENOMEM;
    const struct rlki_found *found = rc == RLK_OK ? found_here(x, first) : NULL;
    if (rc)
        goto out;
    if (found) {
        rc = rlki_difference(audit, found, &difference);
        if (rc == RLK_OK)
            rc = rlki_mechanism(audit, found, difference, &mechanism);
        if (rc)
            goto out;
    }
    if (audit->cross)
        rlki_note(audit,
                  "tensors were compared as put together from the parts of all ranks; the digests are of the parts");
    const char *stands = standing(x, found);
    for (int s = 0; s < 2; s++)
        if (rlki_side_unchecked(&audit->side[s]))
            rlki_note(audit, "%c %s", s ? 'B' : 'A', rlki_side_unchecked(&audit->side[s]));
    for (int s = 0; s < 2; s++) {
        const struct rlki_ev *ev = x->ev[s];
        of[s] = ev ? rlki_json_event(audit, s, ev->env, ev->e.seq) : json_null();
        side[s] = ev ? rlki_json_side(audit, s, ev->env, ev->e.seq, UINT32_MAX) : json_null();
    }
    bool differs = strcmp(stands, "equal") != 0;
    result = json_pack("{s:s,s:i,s:s,s:s,s:o,s:o,s:o,s:o,s:O,s:O}", "schema", "rlk.explain/1", "exit", differs ? 1 : 0,
                       "standing", stands, "why", x->why, "a", of[0], "b", of[1], "side_a", side[0], "side_b", side[1],
                       "tensors", tensors, "notes", audit->notes);
    if (!result) {
        rc = RLK_ENOMEM;
        goto out;
    }
    rlki_set(result, "mechanism", json_incref(mechanism ? mechanism : json_null()));
    *out = json_incref(result);
out:
    json_decref(tensors);
    json_decref(mechanism);
    json_decref(difference);
    json_decref(result);
    return rc;
}

/* Nothing to explain: said in the same form. */
static json_t *nothing(const struct rlki_audit *audit)
{
    bool stop = rlki_stop(audit), complete = audit->side[0].complete && audit->side[1].complete;
    json_t *result = json_pack("{s:s,s:i,s:s,s:s,s:n,s:n,s:[],s:O}", "schema", "rlk.explain/1", "exit",
                               stop       ? 3
                               : complete ? 0
                                          : 4,
                               "standing", stop ? "not comparable" : "equal", "why",
                               stop ? "the recordings are not comparable: see rlkaudit first-diff"
                                    : "nothing that was recorded differs",
                               "a", "b", "tensors", "notes", audit->notes);
    return result;
}

int rlk_audit_explain(json_t **out, const struct rlk_audit_options *options, int64_t event, int64_t rank, bool elements,
                      struct rlk_detail *detail)
{
    struct rlki_audit audit;
    struct explain x = {.audit = &audit, .elements = elements};
    const struct rlki_found *first = NULL;
    uint32_t env = 0;
    uint64_t seq = 0;
    int side = 0;
    *out = NULL;
    rlki_json_begin();
    struct rlki_hash inputs[2] = {{0}, {0}};
    int rc = rlki_audit_open(&audit, options, detail);
    audit.cross_inputs = inputs;
    if (rc == RLK_OK)
        rc = rlki_audit_intact(&audit);
    if (rc == RLK_OK)
        rc = rlki_audit_compare(&audit);
    if (rc == RLK_OK && !rlki_stop(&audit))
        rc = rlki_first(&audit, rank, &first);
    if (rc == RLK_OK && rank >= 0)
        rc = known_rank(&audit, rank);
    if (rc)
        goto out;
    if (event >= 0) {
        rc = find_event(&audit, event, rank, &env);
        seq = (uint64_t)event;
    } else if (first) {
        const struct rlki_at *at = &first->at[0];
        for (size_t i = 0; i < first->nat; i++)
            if (rank >= 0 && first->at[i].rank == (uint32_t)rank)
                at = &first->at[i];
        side = at->in_b;
        env = at->in_b && at->after ? at->mate_env : at->env;
        seq = at->in_b && at->after ? at->mate_seq : at->seq;
    } else {
        *out = nothing(&audit);
        rc = *out ? RLK_OK : RLK_ENOMEM;
        goto out;
    }
    if (rc == RLK_OK)
        rc = load_event(&x, side, env, seq);
    if (rc == RLK_OK && audit.cross && first && first->at[0].has_mate && x.ev[0] && !x.ev[1])
        rlki_note(&audit, "across layouts the other side's event is %llu", (unsigned long long)first->at[0].mate_seq);
    if (rc == RLK_OK)
        rc = build(&x, first, out);
    if (rc == RLK_OK && (rlki_json_failed() || rlki_failed(&audit) || inputs[0].failed || inputs[1].failed)) {
        json_decref(*out);
        *out = NULL;
        rc = rlk_fail(detail, RLK_ENOMEM, "writing the result");
    }
out:
    rlki_unit_release(&x.unit);
    rlki_audit_close(&audit);
    rlki_hash_release(&inputs[0]);
    rlki_hash_release(&inputs[1]);
    return rc;
}
