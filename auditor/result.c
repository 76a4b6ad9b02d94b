/* result.c - the JSON of docs/cli.md, "first-diff --json". */
#include "auditor/accept.h"
#include "store/rlk_digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put(json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? RLK_OK : RLK_ENOMEM;
}

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *shape_json(uint32_t ndim, const uint64_t *shape)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < ndim; i++)
        if (json_array_append_new(array, number(shape[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *digest_json(const struct rlk_sums *sums, uint8_t dtype, uint32_t ndim, const uint64_t *shape)
{
    char text[33];
    rlk_digest_print(text, sums, dtype, ndim, shape);
    return json_string(text);
}

json_t *rlki_json_event(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq)
{
    struct rlk_arena arena = {0};
    struct rlki_ev ev;
    json_t *out = NULL;
    int rc = rlki_ev_load(audit, side, env, seq, &arena, &ev);
    if (rc == RLK_ENOENT)
        out = json_null();
    if (rc == RLK_OK) {
        const struct rlk_identity *who = &ev.e.who;
        out = json_pack("{s:I,s:I,s:I,s:o,s:I,s:o,s:o,s:I,s:o,s:I}", "event", (json_int_t)seq, "rank",
                        (json_int_t)ev.e.rank, "step", (json_int_t)who->step, "phase", rlki_json_text(who->phase),
                        "work", (json_int_t)who->work, "pass", rlki_json_text(who->pass), "module",
                        rlki_json_text(who->module), "call", (json_int_t)who->call, "op", rlki_json_text(who->op),
                        "occurrence", (json_int_t)who->occurrence);
        if (out && ev.e.id && ev.e.id[0])
            rlki_set(out, "id", rlki_json_text(ev.e.id));
        if (out && ev.e.kind == RLK_EV_WEIGHTS)
            rlki_set(out, "side", rlki_json_text(ev.e.u.weights.side));
    }
    rlk_arena_release(&arena);
    return out;
}

static json_t *dim3(const uint32_t v[3])
{
    return json_pack("[I,I,I]", (json_int_t)v[0], (json_int_t)v[1], (json_int_t)v[2]);
}

static json_t *node_number(int64_t n)
{
    return n == RLK_NO_NODE ? json_null() : json_integer(n);
}

/* `entry`: the API's, which stands for the kernel of a copy, a memset or a graph's replay. */
static json_t *launch_json(const struct rlk_launch *l, const char *entry)
{
    const char *name = l->kernel && l->kernel[0] ? l->kernel : entry;
    json_t *out = json_pack("{s:o,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o}", "kernel", rlki_json_text(name), "image",
                            rlki_json_text(l->image), "grid", dim3(l->grid), "block", dim3(l->block), "smem",
                            (json_int_t)l->smem, "stream", number(l->stream), "graph", node_number(l->graph), "node",
                            node_number(l->node), "config", rlki_json_text(l->config));
    if (out && (l->cluster[0] > 1 || l->cluster[1] > 1 || l->cluster[2] > 1))
        rlki_set(out, "cluster", dim3(l->cluster));
    return out;
}

#define MAX_LAUNCHES 64u

static json_t *launches_json(struct rlki_audit *audit, int side, const struct rlki_ev *ev)
{
    json_t *array = json_array();
    struct rlk_arena arena = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; array && i < ev->e.nlaunches && n < MAX_LAUNCHES; i++, n++)
        rlki_add(array, launch_json(&ev->e.launches[i], ""));
    for (uint32_t r = 0; array && r < ev->e.nlaunch_ranges; r++) {
        const struct rlk_range *range = &ev->e.launch_ranges[r];
        for (uint64_t k = 0; k < range->count && n < MAX_LAUNCHES; k++, n++) {
            struct rlk_event e;
            rlk_arena_reset(&arena);
            if (rlk_env_event(audit->side[side].env[ev->env].env, range->first + k, &arena, &e, NULL) == RLK_OK &&
                e.kind == RLK_EV_LAUNCH && e.nlaunches)
                rlki_add(array, launch_json(&e.launches[0], e.u.launch.entry));
        }
    }
    rlk_arena_release(&arena);
    return array;
}

json_t *rlki_json_side(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, uint32_t tensor)
{
    struct rlk_arena arena = {0};
    struct rlki_ev ev;
    json_t *out = NULL;
    if (rlki_ev_load(audit, side, env, seq, &arena, &ev) != RLK_OK)
        goto out;
    out = json_pack("{s:I,s:n,s:n,s:n}", "event", (json_int_t)seq, "dtype", "logical_shape", "digest");
    if (!out)
        goto out;
    if (ev.e.id && ev.e.id[0])
        rlki_set(out, "id", rlki_json_text(ev.e.id));
    if (tensor < ev.e.ntensors) {
        const struct rlk_tensor *t = &ev.e.tensors[tensor];
        struct rlki_value value;
        uint32_t ndim = t->place ? t->place->ndim : t->ndim;
        const uint64_t *shape = t->place ? t->place->shape : t->shape;
        rlki_set(out, "dtype", json_string(rlk_dtype_name(t->dtype)));
        rlki_set(out, "logical_shape", shape_json(ndim, shape));
        if (rlki_value_of(audit, side, &ev.e, env, t, &value) != RLK_OK)
            rlki_set(out, "digest", NULL); /* remembered as a failure */
        else if (value.known)
            rlki_set(out, "digest", digest_json(&value.sums, t->dtype, ndim, shape));
        else
            rlki_set(out, "not_digested", rlki_json_text(value.why));
        if (t->version && t->version[0])
            rlki_set(out, "version", rlki_json_text(t->version));
    }
    if (ev.e.kind == RLK_EV_METRIC) {
        char text[40];
        snprintf(text, sizeof text, "%.17g", ev.e.u.metric.value);
        rlki_set(out, "dtype", json_string("fp64"));
        rlki_set(out, "logical_shape", json_array());
        rlki_set(out, "value", json_string(text));
    }
    if (ev.e.kind == RLK_EV_WEIGHTS)
        rlki_set(out, "version", rlki_json_text(ev.e.u.weights.version));
    rlki_set(out, "launches", launches_json(audit, side, &ev));
out:
    rlk_arena_release(&arena);
    return out;
}

/* Where the lowest rank's event stands on one side; false: that side has none. */
static bool event_on(const struct rlki_found *found, int side, uint32_t *env, uint64_t *seq)
{
    const struct rlki_at *at = &found->at[0];
    if (!found->nat)
        return false;
    if (side == 0) {
        if (at->in_b)
            return false;
        *env = at->env;
        *seq = at->seq;
        return true;
    }
    if (!at->in_b && !at->has_mate)
        return false;
    bool own = at->in_b && !at->after;
    *env = own ? at->env : at->mate_env;
    *seq = own ? at->seq : at->mate_seq;
    return true;
}

static json_t *found_side(struct rlki_audit *audit, const struct rlki_found *found, int side)
{
    uint32_t env = 0, tensor = side ? found->tensor_b : found->tensor_a;
    uint64_t seq = 0;
    if (!event_on(found, side, &env, &seq))
        return json_null();
    if (found->extra && found->nat && found->at[0].has_mate && tensor == UINT32_MAX)
        return json_null(); /* the event is on both sides, this tensor is not */
    json_t *out = rlki_json_side(audit, side, env, seq, tensor);
    if (!out || !found->no_rank)
        return out;
    json_t *holders = json_array();
    for (size_t i = 0; holders && i < found->nholders[side]; i++)
        rlki_add(holders, json_integer(found->holders[side][i]));
    rlki_set(out, "holders", holders);
    const json_t *shape = json_object_get(out, "logical_shape");
    enum rlk_dtype dtype = rlk_dtype_from_name(
        json_string_value(json_object_get(out, "dtype")) ? json_string_value(json_object_get(out, "dtype")) : "");
    uint64_t dims[RLK_MAX_DIMS];
    uint32_t ndim = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < ndim && i < RLK_MAX_DIMS; i++)
        dims[i] = (uint64_t)json_integer_value(json_array_get(shape, i));
    if (found->nspread && ndim <= RLK_MAX_DIMS && dtype != RLK_DTYPE_NONE && found->kind != RLK_EV_METRIC)
        rlki_set(out, "digest", digest_json(&found->spread[0].sums[side], (uint8_t)dtype, ndim, dims));
    return out;
}

int rlki_json_diff(struct rlki_audit *audit, const struct rlki_found *found, json_t **out)
{
    const struct rlki_names *names = &audit->names;
    json_t *difference = NULL, *mechanism = NULL, *ranks = json_array();
    int rc = RLK_ENOMEM;
    json_t *diff =
        json_pack("{s:o,s:I,s:o,s:I,s:o,s:o,s:o,s:I,s:o,s:I,s:s,s:I,s:o}", "rank",
                  found->no_rank ? json_null() : json_integer(rlki_found_rank(found)), "step", (json_int_t)found->step,
                  "phase", rlki_json_text(rlki_names_text(names, found->phase)), "work", (json_int_t)found->work,
                  "sample", rlki_json_text(rlki_names_text(names, found->sample)), "pass",
                  rlki_json_text(rlki_names_text(names, found->pass)), "module",
                  rlki_json_text(rlki_names_text(names, found->module)), "call", (json_int_t)found->call, "op",
                  rlki_json_text(rlki_names_text(names, found->op)), "occurrence", (json_int_t)found->occurrence,
                  "role", found->role == RLK_ROLE_IN ? "in" : "out", "index", (json_int_t)found->index, "name",
                  rlki_json_text(rlki_names_text(names, found->name)));
    *out = NULL;
    if (!diff || !ranks)
        goto out;
    for (size_t i = 0; i < found->nat && !found->no_rank; i++)
        rlki_add(ranks, json_integer(found->at[i].rank));
    rlki_set(diff, "ranks", json_incref(ranks));
    rlki_set(diff, "kind", json_string(rlk_event_kind_name(found->kind)));
    if (found->iteration)
        rlki_set(diff, "iteration", json_integer(found->iteration));
    if (put(diff, "a", found_side(audit, found, 0)) || put(diff, "b", found_side(audit, found, 1)))
        goto out;
    rlki_set(diff, "root", found->root == RLKI_ROOT_TRUE ? json_true() : json_string("unknown"));
    if (found->root == RLKI_ROOT_UNKNOWN && found->reason)
        rlki_set(diff, "root_reason", rlki_json_text(rlki_names_text(names, found->reason)));
    rc = rlki_difference(audit, found, &difference);
    if (rc == RLK_OK)
        rc = rlki_mechanism(audit, found, difference, &mechanism);
    if (rc)
        goto out;
    rlki_set(diff, "difference", json_incref(difference));
    rlki_set(diff, "mechanism", json_incref(mechanism));
    *out = json_incref(diff);
out:
    json_decref(ranks);
    json_decref(difference);
    json_decref(mechanism);
    json_decref(diff);
    return rc;
}

static json_t *coverage_json(const struct rlki_side *side)
{
    const struct rlk_coverage *c = &side->coverage;
    json_t *reasons = json_object(), *planes = json_array();
    for (uint32_t i = 0; i < c->nreasons && i < RLK_MAX_REASONS; i++) {
        char reason[49];
        snprintf(reason, sizeof reason, "%.48s", c->not_digested[i].reason);
        for (char *p = reason; *p; p++)
            if ((unsigned char)*p > 0x7e)
                *p = '?';
        rlki_set(reasons, reason, number(c->not_digested[i].count));
    }
    if (c->planes & RLK_PLANE_LAUNCH)
        rlki_add(planes, json_string("launch"));
    if (c->planes & RLK_PLANE_TENSOR)
        rlki_add(planes, json_string("tensor"));
    if (c->planes & RLK_PLANE_BUFFER)
        rlki_add(planes, json_string("buffer"));
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "launches_seen", number(c->launches_seen),
                     "launches_recorded", number(c->launches_recorded), "tensors", number(c->tensors), "by_reference",
                     number(c->by_reference), "not_digested", reasons, "local_placement", number(c->local_placement),
                     "dropped", number(c->dropped), "stall_ns", number(c->stall_ns), "planes", planes, "events",
                     number(c->events));
}

static void environment_one(json_t *list, const char *key, const json_t *a, const json_t *b)
{
    if (a == b || (a && b && json_equal(a, b)))
        return;
    rlki_add(list, json_pack("{s:o,s:o,s:o}", "key", rlki_json_text(key), "a", a ? json_deep_copy(a) : json_null(), "b",
                             b ? json_deep_copy(b) : json_null()));
}

static json_t *environment_json(struct rlki_audit *audit)
{
    static const char *const whole[] = {"argv",  "layout", "driver", "gpus", "topology",
                                        "hosts", "level",  "inputs", "ranks"};
    static const char *const maps[] = {"env", "libraries"};
    json_t *list = json_array();
    const json_t *a = audit->side[0].manifest, *b = audit->side[1].manifest;
    for (size_t i = 0; list && i < sizeof whole / sizeof *whole; i++)
        environment_one(list, whole[i], json_object_get(a, whole[i]), json_object_get(b, whole[i]));
    for (size_t i = 0; list && i < sizeof maps / sizeof *maps; i++) {
        json_t *ma = json_object_get(a, maps[i]), *mb = json_object_get(b, maps[i]), *value;
        const char *key;
        char name[300];
        json_object_foreach(ma, key, value)
        {
            snprintf(name, sizeof name, "%s.%.280s", maps[i], key);
            environment_one(list, name, value, json_object_get(mb, key));
        }
        json_object_foreach(mb, key, value)
        {
            snprintf(name, sizeof name, "%s.%.280s", maps[i], key);
            if (!json_object_get(ma, key))
                environment_one(list, name, NULL, value);
        }
    }
    return list;
}

static json_t *events_json(struct rlki_audit *audit, const struct rlki_event_ref *list, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        json_t *event = rlki_json_event(audit, list[i].side, list[i].env, list[i].seq);
        rlki_add(array, event);
    }
    return array;
}

static json_t *alignment_json(struct rlki_audit *audit)
{
    json_t *moved = json_array();
    for (size_t i = 0; moved && i + 1 < audit->nmoved; i += 2) {
        json_t *a = rlki_json_event(audit, 0, audit->moved[i].env, audit->moved[i].seq);
        json_t *b = rlki_json_event(audit, 1, audit->moved[i + 1].env, audit->moved[i + 1].seq);
        rlki_add(moved, json_pack("{s:o,s:o}", "a", a, "b", b));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "inserted", events_json(audit, audit->inserted, audit->ninserted),
                     "deleted", events_json(audit, audit->deleted, audit->ndeleted), "moved", moved, "inserted_total",
                     number(audit->total_inserted), "deleted_total", number(audit->total_deleted), "moved_total",
                     number(audit->total_moved));
}

/* The DIFF of a difference, made once: many ranks may have the same one first. */
static int diff_once(struct rlki_audit *audit, json_t **made, const struct rlki_found *found, json_t **out)
{
    json_t **slot = &made[found - audit->found];
    int rc = *slot ? RLK_OK : rlki_json_diff(audit, found, slot);
    *out = json_incref(*slot);
    return rc;
}

/* Where a difference's tensor stands in an event of another rank, which may have more inputs. */
static int tensor_on(struct rlki_audit *audit, const struct rlki_found *found, int side, uint32_t *place)
{
    uint32_t env;
    uint64_t seq;
    const struct rlk_event *event;
    if (*place == UINT32_MAX || !event_on(found, side, &env, &seq))
        return RLK_OK;
    int rc = rlki_side_fetch(&audit->side[side], env, seq, &event, audit->detail);
    if (rc)
        return rc;
    const struct rlk_tensor *t = rlki_event_tensor(event, found->role, found->index);
    *place = t ? (uint32_t)(t - event->tensors) : UINT32_MAX;
    return RLK_OK;
}

/* A DIFF as it stands on one of its ranks: that rank's events, digests and distance; the mechanism is one for all. */
static int diff_of_rank(struct rlki_audit *audit, const struct rlki_found *found, uint32_t rank, json_t *whole,
                        json_t **out)
{
    struct rlki_found one = *found;
    struct rlki_at at;
    json_t *difference = NULL;
    size_t i = 0;
    while (i < found->nat && found->at[i].rank != rank)
        i++;
    *out = json_incref(whole);
    if (!i || i == found->nat || found->no_rank)
        return RLK_OK;
    at = found->at[i];
    one.at = &at;
    one.nat = 1;
    uint32_t drawn = audit->drawn;
    audit->drawn = RLKI_DRAWN; /* one drawing a root */
    int rc = tensor_on(audit, &one, 0, &one.tensor_a);
    if (rc == RLK_OK)
        rc = tensor_on(audit, &one, 1, &one.tensor_b);
    if (rc == RLK_OK)
        rc = rlki_difference(audit, &one, &difference);
    audit->drawn = drawn;
    json_t *copy = rc == RLK_OK ? json_object() : NULL; /* json_copy() may leave keys out, and not say so */
    json_decref(*out);
    *out = copy;
    if (!copy) {
        json_decref(difference);
        return rc ? rc : RLK_ENOMEM;
    }
    const char *key;
    json_t *value;
    json_object_foreach(whole, key, value) rlki_set(copy, key, json_incref(value));
    rlki_set(copy, "rank", json_integer(rank));
    /* What stands in `roots` or `first` for all: lists of every rank on every rank were most of a result. */
    rlki_set(copy, "ranks", json_pack("[I]", (json_int_t)rank));
    json_object_del(copy, "tensors");
    rlki_set(copy, "a", found_side(audit, &one, 0));
    rlki_set(copy, "b", found_side(audit, &one, 1));
    rlki_set(copy, "difference", difference);
    return RLK_OK;
}

static int roots_json(struct rlki_audit *audit, const struct rlki_found *first, json_t *out)
{
    json_t *roots = json_array(), *per_rank = json_array(), *diff = NULL;
    json_t **made = calloc(audit->nfound + 1, sizeof *made);
    int rc = made ? RLK_OK : RLK_ENOMEM;
    size_t listed = 0, total = 0;
    if (first && rc == RLK_OK) { /* the first one stands first */
        json_t *tensors = NULL;
        rc = diff_once(audit, made, first, &diff);
        if (rc == RLK_OK)
            rc = rlki_around(audit, first, &tensors);
        if (tensors)
            rlki_set(diff, "tensors", tensors);
        if (rc == RLK_OK && json_array_append(roots, diff) != 0)
            rc = RLK_ENOMEM;
        rlki_set(out, "first", json_incref(diff));
        listed = total = 1;
    } else {
        rlki_set(out, "first", json_null());
    }
    for (size_t i = 0; i < audit->nfound && rc == RLK_OK; i++) {
        json_t *one = NULL;
        if (audit->found[i].dropped || &audit->found[i] == first)
            continue;
        total++;
        if (listed >= 1000)
            continue;
        listed++;
        rc = diff_once(audit, made, &audit->found[i], &one);
        if (rc == RLK_OK && json_array_append_new(roots, one) != 0)
            rc = RLK_ENOMEM;
    }
    if (total > listed)
        rlki_note(audit, "%zu roots, of which %zu are listed", total, listed);
    for (uint32_t i = 0; i < audit->side[0].nranks && !audit->cross && rc == RLK_OK; i++) {
        const struct rlki_found *one = NULL;
        uint32_t rank = audit->side[0].ranks[i];
        if (!rlki_side_has_rank(&audit->side[1], rank))
            continue;
        json_t *of_rank = json_null(), *whole = NULL;
        rc = rlki_first(audit, rank, &one);
        if (rc == RLK_OK && one)
            rc = diff_once(audit, made, one, &whole);
        if (rc == RLK_OK && one)
            rc = diff_of_rank(audit, one, rank, whole, &of_rank);
        json_decref(whole);
        if (rc == RLK_OK)
            rlki_add(per_rank, json_pack("{s:I,s:o}", "rank", (json_int_t)rank, "first", of_rank));
    }
    for (size_t i = 0; made && i < audit->nfound; i++)
        json_decref(made[i]);
    free(made);
    json_decref(diff);
    rlki_set(out, "roots", roots);
    rlki_set(out, "per_rank", per_rank);
    return rc;
}

static void completeness_notes(struct rlki_audit *audit)
{
    const char *level[2];
    for (int s = 0; s < 2; s++)
        level[s] = json_string_value(json_object_get(audit->side[s].manifest, "level"));
    if (level[0] && level[1] && strcmp(level[0], level[1]) != 0)
        rlki_note(audit, "recorded at other levels (%.20s, %.20s): only what both record was compared", level[0],
                  level[1]);
    for (int s = 0; s < 2; s++) {
        char seal[4200];
        snprintf(seal, sizeof seal, "%.4000s/SEAL", rlk_recording_path(audit->side[s].recording));
        if (access(seal, F_OK) != 0)
            rlki_note(audit, "%c has no seal", s ? 'B' : 'A');
        if (rlki_side_unchecked(&audit->side[s]))
            rlki_note(audit, "%c %s", s ? 'B' : 'A', rlki_side_unchecked(&audit->side[s]));
        if (!audit->side[s].complete)
            rlki_note(audit, "%c is incomplete: %s", s ? 'B' : 'A', audit->side[s].why);
    }
    if (audit->downstream && rlki_below_operators(audit))
        rlki_note(audit, "recorded below the level of operators: what differs behind a process's first difference is "
                         "taken to follow from it");
    if (audit->total_inserted || audit->total_deleted)
        rlki_note(audit, "%llu events only in B, %llu only in A: not differences by themselves",
                  (unsigned long long)audit->total_inserted, (unsigned long long)audit->total_deleted);
    if (audit->recomputed[0] || audit->recomputed[1])
        rlki_note(audit, "of them recompute: %llu in B, %llu in A", (unsigned long long)audit->recomputed[1],
                  (unsigned long long)audit->recomputed[0]);
    if (audit->total_moved)
        rlki_note(audit, "%llu events stand elsewhere in their module call", (unsigned long long)audit->total_moved);
}

/* Stretches that agree by their roll-ups were counted whole; what has no digest in them was not compared. */
static void leave_out_undigested(struct rlki_audit *audit)
{
    const struct rlk_coverage *c = &audit->side[0].coverage;
    uint64_t dark = 0;
    for (uint32_t i = 0; i < c->nreasons && i < RLK_MAX_REASONS; i++)
        dark += c->not_digested[i].count;
    const uint64_t seen = dark < c->tensors ? c->tensors - dark : 0;
    if (dark && audit->compared > seen) {
        rlki_skip(audit, "not-digested", audit->compared - seen);
        audit->compared = seen;
    }
}

int rlki_result(struct rlki_audit *audit, json_t **out)
{
    const struct rlki_side *a = &audit->side[0], *b = &audit->side[1];
    const struct rlki_found *first = NULL;
    bool complete = a->complete && b->complete;
    json_t *where = NULL;
    bool accepted = false;
    int rc = RLK_OK;
    leave_out_undigested(audit);
    if (!rlki_stop(audit) && !audit->compared && a->tensors && b->tensors)
        rlki_incomparable(audit, "no tensor can be compared", NULL, NULL, NULL);
    bool stop = rlki_stop(audit);
    if (!stop)
        rc = rlki_first(audit, -1, &first);
    bool diverged = !stop && (first || audit->downstream);
    int code = stop ? 3 : diverged ? 1 : !complete ? 4 : 0;
    const char *verdict = stop ? "not_comparable" : diverged ? "diverged" : !complete ? "incomplete" : "identical";
    json_t *result = json_pack("{s:s,s:s,s:i,s:b,s:o}", "schema", "rlk.first_diff/1", "verdict", verdict, "exit", code,
                               "complete", complete, "scope",
                               json_pack("{s:o,s:o,s:O}", "compared", number(audit->compared), "skipped",
                                         number(audit->skipped), "reasons", audit->reasons));
    if (!result)
        return RLK_ENOMEM;
    if (stop)
        for (size_t i = 0; i < audit->nfound; i++)
            audit->found[i].dropped = true;
    if (rc == RLK_OK)
        rc = roots_json(audit, first, result);
    if (rc == RLK_OK)
        rc = rlki_where_json(audit, first, &where);
    if (rc == RLK_OK && audit->opt.accept)
        rc = rlki_accept_apply(audit, first, result, &accepted);
    if (accepted && diverged) {
        rlki_set(result, "verdict", json_string(complete ? "accepted_drift" : "incomplete"));
        rlki_set(result, "exit", json_integer(complete ? 5 : 4));
    }
    completeness_notes(audit);
    if (rc == RLK_OK && !stop)
        rc = rlki_label_notes(audit);
    rlki_set(result, "downstream", number(stop ? 0 : audit->downstream));
    rlki_set(result, "masked", number(stop ? 0 : audit->masked));
    rlki_set(result, "alignment", alignment_json(audit));
    rlki_set(result, "environment", environment_json(audit));
    rlki_set(result, "notes", json_incref(audit->notes));
    rlki_set(result, "coverage", json_pack("{s:o,s:o}", "a", coverage_json(a), "b", coverage_json(b)));
    if (audit->not_comparable)
        rlki_set(result, "not_comparable", json_incref(audit->not_comparable));
    rlki_set(result, "recordings",
             json_pack("{s:o,s:o}", "a", rlki_json_text(rlk_recording_path(a->recording)), "b",
                       rlki_json_text(rlk_recording_path(b->recording))));
    rlki_set(result, "intact",
             json_pack("{s:s,s:s}", "a", rlk_intact_name(a->intact), "b", rlk_intact_name(b->intact)));
    rlki_set(result, "mode", json_string(audit->opt.phases ? "phases" : audit->cross ? "layouts" : "same"));
    rlki_set(result, "runs", rlki_runs_json(audit));
    rlki_set(result, "where", where ? where : json_null());
    if (rc == RLK_OK && (rlki_json_failed() || rlki_failed(audit)))
        rc = rlk_fail(audit->detail, RLK_ENOMEM, "writing the result");
    if (rc) {
        json_decref(result);
        return rc;
    }
    *out = result;
    return RLK_OK;
}
