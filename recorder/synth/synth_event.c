/* Events: the identity keys that every kind shares, ranks, attributes, launches, and the list of events. */
#include "recorder/synth/synth_spec.h"

#include <stdlib.h>
#include <string.h>

#include "recorder/synth/rlk_synth.h"

#define MAX_ATTRS 4096u
#define MAX_LAUNCHES (1u << 20)

static int by_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int sy_read_ranks(struct sy_spec *spec, const struct sy_at *at, bool ascending, uint32_t *n, const uint32_t **ranks)
{
    size_t count = 0;
    int rc = sy_list(at, 0, spec->ranks, &count);
    uint32_t *list = rc ? NULL : SY_NEW(spec, count, uint32_t);

    if (!rc && !spec->seen)
        spec->seen = SY_NEW(spec, spec->ranks, uint32_t);
    if (!rc && (!list || !spec->seen))
        rc = RLK_ENOMEM;
    spec->stamp++;
    for (size_t i = 0; i < count && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = sy_u32(&item, 0, spec->ranks - 1, &list[i]);
        if (!rc && spec->seen[list[i]] == spec->stamp)
            rc = sy_fail(&item, "rank %u is there twice", list[i]);
        if (!rc)
            spec->seen[list[i]] = spec->stamp;
    }
    if (!rc && ascending && count)
        qsort(list, count, sizeof *list, by_rank);
    *n = (uint32_t)count;
    *ranks = list;
    return rc;
}

int sy_read_attrs(struct sy_spec *spec, const struct sy_at *at, uint32_t *n, const struct rlk_attr **attrs)
{
    const char *key;
    json_t *value;
    uint32_t used = 0;
    int rc = RLK_OK;

    if (!json_is_object(at->v))
        return sy_fail(at, "expected an object");
    if (json_object_size(at->v) > MAX_ATTRS)
        return sy_fail(at, "more than %u attributes", MAX_ATTRS);
    struct rlk_attr *list = SY_NEW(spec, json_object_size(at->v), struct rlk_attr);
    if (!list)
        return RLK_ENOMEM;
    json_object_foreach((json_t *)(uintptr_t)at->v, key, value)
    {
        struct sy_at v = {value, at, key, 0, at->detail};
        struct rlk_attr *a = &list[used++];
        if (strlen(key) > RLK_MAX_STRING)
            return sy_fail(at, "a key is longer than %u bytes", RLK_MAX_STRING);
        a->key = key;
        a->type = RLK_ATTR_INT;
        if (json_is_boolean(value)) {
            a->i = json_is_true(value);
        } else if (json_is_integer(value)) {
            a->i = json_integer_value(value);
        } else if (json_is_string(value)) {
            a->type = RLK_ATTR_STRING;
            rc = sy_string(&v, true, &a->s);
        } else if (json_is_real(value)) {
            a->type = RLK_ATTR_DOUBLE;
            rc = sy_real(&v, &a->d);
        } else {
            rc = sy_fail(&v, "an attribute is a number, a string or a boolean");
        }
        if (rc)
            return rc;
    }
    *n = used;
    *attrs = list;
    return RLK_OK;
}

static int read_extent(const struct sy_at *launch, const char *key, uint32_t out[3])
{
    struct sy_at at = sy_get(launch, key);
    size_t n = 0;
    int rc = RLK_OK;

    out[0] = out[1] = out[2] = 1;
    if (at.v)
        rc = sy_list(&at, 1, 3, &n);
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(&at, i);
        rc = sy_u32(&item, 0, UINT32_MAX, &out[i]);
    }
    return rc;
}

static int read_launch(struct sy_spec *spec, const struct sy_at *at, struct rlk_launch *l)
{
    static const char *const keys[] = {"kernel", "grid",   "block", "cluster", "smem",  "image",
                                       "config", "stream", "graph", "node",    "attrs", NULL};
    struct sy_at kernel, attrs;
    int64_t stream = (int64_t)l->stream;
    int rc = sy_object(at, keys);

    l->image = l->config = "";
    l->graph = l->node = RLK_NO_NODE;
    if (!rc)
        rc = sy_need(at, "kernel", &kernel);
    if (!rc)
        rc = sy_string(&kernel, false, &l->kernel);
    if (!rc)
        rc = read_extent(at, "grid", l->grid);
    if (!rc)
        rc = read_extent(at, "block", l->block);
    if (!rc)
        rc = read_extent(at, "cluster", l->cluster);
    if (!rc)
        rc = sy_opt_u32(at, "smem", 0, UINT32_MAX, &l->smem);
    if (!rc)
        rc = sy_opt_string(at, "image", &l->image);
    if (!rc)
        rc = sy_opt_string(at, "config", &l->config);
    if (!rc)
        rc = sy_opt_int(at, "stream", 0, INT64_MAX, &stream);
    if (!rc)
        rc = sy_opt_int(at, "graph", 0, INT64_MAX, &l->graph);
    if (!rc)
        rc = sy_opt_int(at, "node", 0, INT64_MAX, &l->node);
    l->stream = (uint64_t)stream;
    if (!rc && (attrs = sy_get(at, "attrs")).v)
        rc = sy_read_attrs(spec, &attrs, &l->nattrs, &l->attrs);
    return rc;
}

int sy_read_launches(struct sy_spec *spec, const struct sy_at *at, struct rlk_event *event)
{
    size_t n = 0;
    int rc = sy_list(at, 0, MAX_LAUNCHES, &n);
    struct rlk_launch *list = rc ? NULL : SY_NEW(spec, n, struct rlk_launch);

    if (!rc && !list)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        list[i].stream = event->stream; /* unless it says another */
        rc = read_launch(spec, &item, &list[i]);
        spec->any_launch = true;
    }
    event->nlaunches = (uint32_t)n;
    event->launches = list;
    return rc;
}

static int read_identity(const struct sy_at *at, struct rlk_event *e)
{
    struct rlk_identity *who = &e->who;
    int64_t stream = 0;
    int rc = sy_opt_int(at, "step", INT64_MIN, INT64_MAX, &who->step);

    who->phase = who->module = who->sample = e->id = "";
    who->pass = json_object_get(at->v, "op") ? "fwd" : "";
    if (!rc)
        rc = sy_opt_string(at, "phase", &who->phase);
    if (!rc)
        rc = sy_opt_string(at, "pass", &who->pass);
    if (!rc)
        rc = sy_opt_int(at, "work", INT64_MIN, INT64_MAX, &who->work);
    if (!rc)
        rc = sy_opt_int(at, "iteration", INT64_MIN, INT64_MAX, &who->iteration);
    if (!rc)
        rc = sy_opt_u32(at, "call", 0, UINT32_MAX, &who->call);
    if (!rc)
        rc = sy_opt_string(at, "module", &who->module);
    if (!rc)
        rc = sy_opt_string(at, "sample", &who->sample);
    if (!rc)
        rc = sy_opt_int(at, "stream", 0, INT64_MAX, &stream);
    e->stream = (uint64_t)stream;
    if (!rc)
        rc = sy_opt_string(at, "id", &e->id);
    return rc;
}

/* Classes in which occurrence is counted, rank by rank (docs/synth.md, "Occurrence"). */
static int classify(struct sy_spec *spec, struct sy_event *event)
{
    const struct rlk_identity *w = &event->base.who;
    bool weights = event->base.kind == RLK_EV_WEIGHTS;
    json_t *key = weights ? json_pack("[sIs]", "weights", (json_int_t)w->step, event->base.u.weights.side)
                          : json_pack("[iiIIIssssi]", (int)event->base.kind, (int)event->base.autotune,
                                      (json_int_t)w->step, (json_int_t)w->work, (json_int_t)w->iteration, w->phase,
                                      w->pass, w->module, w->op, (int)w->call);
    char *text = key ? json_dumps(key, JSON_COMPACT) : NULL;

    event->occurrence_id = text ? sy_number_of(spec->occurrences, text, &spec->noccurrences) : SY_NONE;
    free(text);
    json_decref(key);
    return event->occurrence_id == SY_NONE ? RLK_ENOMEM : RLK_OK;
}

static int register_id(struct sy_spec *spec, const struct sy_at *at, const struct sy_event *event)
{
    struct sy_at id = sy_get(at, "id");
    if (!event->base.id[0])
        return RLK_OK;
    if (json_object_get(spec->ids, event->base.id))
        return sy_fail(&id, "an earlier event has this id");
    return json_object_set_new(spec->ids, event->base.id, json_true()) ? RLK_ENOMEM : RLK_OK;
}

int sy_read_event(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    struct sy_at ranks;
    int rc;

    if (!json_is_object(at->v))
        return sy_fail(at, "expected an object");
    rc = read_identity(at, &event->base);
    if (!rc && (ranks = sy_get(at, "ranks")).v) {
        rc = sy_read_ranks(spec, &ranks, true, &event->nranks, &event->ranks);
        if (!rc && !event->nranks)
            rc = sy_fail(&ranks, "the list is empty: leave \"ranks\" out for every rank");
    }
    if (!rc)
        rc = sy_read_kind(spec, at, event);
    if (!rc)
        rc = register_id(spec, at, event);
    return rc ? rc : classify(spec, event);
}
