/* The event kinds: which keys each has, and what they mean. */
#include "recorder/synth/synth_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TOKENS (1u << 20)
#define MAX_VERSIONS (1u << 16)

#define COMMON "id", "step", "phase", "pass", "work", "iteration", "call", "module", "sample", "ranks", "stream"

/* The two lists of tensors of an event; either may be absent. */
static int read_lists(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event, const char *in_key,
                      const char *out_key)
{
    struct sy_at in = in_key ? sy_get(at, in_key) : (struct sy_at){0}, out = sy_get(at, out_key);
    size_t nin = 0, nout = 0;
    int rc = in.v ? sy_list(&in, 0, RLK_MAX_TENSORS, &nin) : RLK_OK;

    if (!rc && out.v)
        rc = sy_list(&out, 0, RLK_MAX_TENSORS, &nout);
    if (!rc && nin + nout > RLK_MAX_TENSORS)
        rc = sy_fail(at, "more than %u tensors", RLK_MAX_TENSORS);
    if (rc)
        return rc;
    struct sy_tensor *tensors = SY_NEW(spec, nin + nout, struct sy_tensor);
    if (!tensors)
        return RLK_ENOMEM;
    event->nin = (uint32_t)nin;
    event->nout = (uint32_t)nout;
    event->tensors = tensors;
    event->list_out = out_key;
    event->producer = true;
    rc = sy_read_tensors(spec, &in, tensors, nin);
    return rc ? rc : sy_read_tensors(spec, &out, tensors + nin, nout);
}

/* launches, attrs, autotune: of op, collective and copy. */
static int read_common(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    struct sy_at v;
    int rc = sy_opt_bool(at, "autotune", &event->base.autotune);

    if (!rc && (v = sy_get(at, "attrs")).v)
        rc = sy_read_attrs(spec, &v, &event->base.nattrs, &event->base.attrs);
    if (!rc && (v = sy_get(at, "launches")).v)
        rc = sy_read_launches(spec, &v, &event->base);
    return rc ? rc : read_lists(spec, at, event, "in", "out");
}

static int read_op(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "op", "attrs", "autotune", "contract", "launches", "in", "out", NULL};
    struct sy_at op = sy_get(at, "op");
    int rc = sy_object(at, keys);

    event->base.u.op.contract = "";
    if (!rc)
        rc = sy_string(&op, false, &event->base.who.op);
    if (!rc)
        rc = sy_opt_string(at, "contract", &event->base.u.op.contract);
    return rc ? rc : read_common(spec, at, event);
}

static int read_names(struct sy_spec *spec, const struct sy_at *at, size_t max, uint32_t *n, const char *const **names)
{
    size_t count = 0;
    int rc = sy_list(at, 0, max, &count);
    const char **list = rc ? NULL : SY_NEW(spec, count, const char *);

    if (!rc && !list)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = sy_string(&item, false, &list[i]);
    }
    *n = (uint32_t)count;
    *names = list;
    return rc;
}

/* Labels as texts; an integer is its decimal digits. */
static int read_labels(struct sy_spec *spec, const struct sy_at *at, uint32_t *n, const char *const **labels)
{
    size_t count = 0;
    int rc = sy_list(at, 0, MAX_VERSIONS, &count);
    const char **list = rc ? NULL : SY_NEW(spec, count, const char *);

    if (!rc && !list)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        if (!json_is_integer(item.v)) {
            rc = sy_string(&item, true, &list[i]);
            continue;
        }
        char *text = SY_NEW(spec, 24, char);
        if (!text)
            return RLK_ENOMEM;
        snprintf(text, 24, "%lld", (long long)json_integer_value(item.v));
        list[i] = text;
    }
    *n = (uint32_t)count;
    *labels = list;
    return rc;
}

/* With members: one tensor a member, or a single flat one, or none, on each side. */
static int check_members(const struct sy_at *at, const struct sy_event *event)
{
    uint32_t n = event->base.u.collective.nmembers;
    struct sy_at in = sy_get(at, "in"), out = sy_get(at, "out");

    if (!n)
        return RLK_OK;
    if (event->nin > 1 && event->nin != n)
        return sy_fail(&in, "%u tensors for %u members: one each, or one flat", event->nin, n);
    if (event->nout > 1 && event->nout != n)
        return sy_fail(&out, "%u tensors for %u members: one each, or one flat", event->nout, n);
    return RLK_OK;
}

/* The communicator: under the layout if the group is one of the layout's, else the ranks given, else all. */
static void choose_communicator(const struct sy_spec *spec, struct sy_event *event)
{
    static const char *const dims[] = {"tp", "cp", "ep", "dp", "pp", NULL};
    const char *group = event->base.u.collective.group;

    for (size_t i = 0; dims[i]; i++)
        if (strcmp(dims[i], group) == 0)
            event->by_layout = spec->has_layout || i == 3; /* without a layout every rank is dp */
}

static int read_collective(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON,  "collective", "attrs", "autotune", "launches", "in",      "out",
                                       "group", "algo",       "proto", "channels", "order",    "members", NULL};
    struct sy_at function = sy_get(at, "collective"), v;
    struct rlk_event *e = &event->base;
    int rc = sy_object(at, keys);

    e->u.collective.algo = e->u.collective.proto = "";
    if (!rc)
        rc = sy_string(&function, false, &e->who.op);
    if (!rc)
        rc = sy_need(at, "group", &v);
    if (!rc)
        rc = sy_string(&v, false, &e->u.collective.group);
    if (!rc)
        rc = sy_opt_string(at, "algo", &e->u.collective.algo);
    if (!rc)
        rc = sy_opt_string(at, "proto", &e->u.collective.proto);
    if (!rc)
        rc = sy_opt_u32(at, "channels", 0, UINT32_MAX, &e->u.collective.channels);
    if (!rc && (v = sy_get(at, "order")).v)
        rc = sy_read_ranks(spec, &v, false, &e->u.collective.norder, &e->u.collective.order);
    if (!rc && (v = sy_get(at, "members")).v)
        rc = read_names(spec, &v, RLK_MAX_TENSORS, &e->u.collective.nmembers, &e->u.collective.members);
    if (!rc)
        rc = read_common(spec, at, event);
    if (!rc)
        rc = check_members(at, event);
    if (!rc)
        choose_communicator(spec, event);
    return rc;
}

static int read_copy(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "copy", "attrs", "autotune", "launches", "in", "out", NULL};
    static const char *const directions[] = {"h2d", "d2h", "d2d", "p2p", "h2h", NULL};
    static const char *const ops[] = {"copy.h2d", "copy.d2h", "copy.d2d", "copy.p2p", "copy.h2h"};
    struct sy_at direction = sy_get(at, "copy");
    int rc = sy_object(at, keys);

    if (!rc)
        rc = sy_choice(&direction, directions, &event->base.u.copy.direction);
    if (rc)
        return rc;
    for (size_t i = 0; directions[i]; i++)
        if (strcmp(directions[i], event->base.u.copy.direction) == 0)
            event->base.who.op = ops[i];
    return read_common(spec, at, event);
}

static int read_sync(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "sync", "event", NULL};
    static const char *const whats[] = {"record", "wait", "stream", "device", NULL};
    struct sy_at what = sy_get(at, "sync"), v;
    int64_t number = 0;
    int rc = sy_object(at, keys);

    (void)spec;
    event->base.who.op = "sync";
    if (!rc)
        rc = sy_choice(&what, whats, &event->base.u.sync.what);
    if (!rc && (v = sy_get(at, "event")).v)
        rc = sy_int(&v, 0, INT64_MAX, &number);
    event->base.u.sync.event = (uint64_t)number;
    return rc;
}

static int read_rng(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "rng", "seed", "offset", "grid", NULL};
    struct sy_at generator = sy_get(at, "rng");
    int64_t seed = 0, offset = 0, grid = 0;
    int rc = sy_object(at, keys);

    (void)spec;
    event->base.who.op = "rng";
    if (!rc)
        rc = sy_string(&generator, false, &event->base.u.rng.generator);
    if (!rc)
        rc = sy_opt_int(at, "seed", INT64_MIN, INT64_MAX, &seed);
    if (!rc)
        rc = sy_opt_int(at, "offset", 0, INT64_MAX, &offset);
    if (!rc)
        rc = sy_opt_int(at, "grid", 0, INT64_MAX, &grid);
    event->base.u.rng.seed = (uint64_t)seed;
    event->base.u.rng.offset = (uint64_t)offset;
    event->base.u.rng.grid = (uint64_t)grid;
    return rc;
}

static int read_weights(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "weights", "side", "tensors", NULL};
    static const char *const sides[] = {"trainer", "rollout", NULL};
    struct sy_at version = sy_get(at, "weights"), side;
    int rc = sy_object(at, keys);

    event->base.who.op = "weights";
    if (!rc)
        rc = sy_string(&version, true, &event->base.u.weights.version);
    if (!rc)
        rc = sy_need(at, "side", &side);
    if (!rc)
        rc = sy_choice(&side, sides, &event->base.u.weights.side);
    return rc ? rc : read_lists(spec, at, event, NULL, "tensors");
}

static int read_request(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "request", "tokens", "policy_versions", "logprob_kind", NULL};
    static const char *const kinds[] = {"raw", "processed", NULL};
    struct sy_at id = sy_get(at, "request"), v;
    struct rlk_event *e = &event->base;
    size_t n = 0;
    int rc = sy_object(at, keys);

    e->who.op = "request";
    e->u.request.logprob_kind = "";
    if (!rc)
        rc = sy_string(&id, false, &e->u.request.id);
    if (!rc && (v = sy_get(at, "logprob_kind")).v)
        rc = sy_choice(&v, kinds, &e->u.request.logprob_kind);
    if (!rc && (v = sy_get(at, "policy_versions")).v)
        rc = read_labels(spec, &v, &e->u.request.nversions, &e->u.request.versions);
    if (rc || !(v = sy_get(at, "tokens")).v)
        return rc;
    rc = sy_list(&v, 0, MAX_TOKENS, &n);
    int64_t *tokens = rc ? NULL : SY_NEW(spec, n, int64_t);
    if (!rc && !tokens)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(&v, i);
        rc = sy_int(&item, INT64_MIN, INT64_MAX, &tokens[i]);
    }
    e->u.request.ntokens = (uint32_t)n;
    e->u.request.tokens = tokens;
    return rc;
}

static int read_relaunch(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "relaunch", "repeats", "agree", "matches_recorded", NULL};
    struct sy_at id = sy_get(at, "relaunch"), agree;
    struct rlk_event *e = &event->base;
    char shown[96];
    int rc = sy_object(at, keys);

    e->who.op = "relaunch";
    if (!rc)
        rc = sy_string(&id, false, &e->u.relaunch.event);
    if (!rc && !json_object_get(spec->ids, e->u.relaunch.event))
        rc = sy_fail(&id, "no earlier event has the id \"%s\"", sy_shown(shown, e->u.relaunch.event));
    if (!rc)
        rc = sy_opt_u32(at, "repeats", 0, UINT32_MAX, &e->u.relaunch.repeats);
    if (!rc)
        rc = sy_opt_u32(at, "agree", 0, UINT32_MAX, &e->u.relaunch.agree);
    if (!rc)
        rc = sy_opt_bool(at, "matches_recorded", &e->u.relaunch.matches_recorded);
    agree = sy_get(at, "agree");
    if (!rc && e->u.relaunch.agree > e->u.relaunch.repeats)
        rc = sy_fail(&agree, "%u of %u repeats", e->u.relaunch.agree, e->u.relaunch.repeats);
    return rc;
}

static int read_metric(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "metric", "value", NULL};
    static const char *const special[] = {"nan", "inf", "-inf", NULL};
    struct sy_at name = sy_get(at, "metric"), value;
    double *out = &event->base.u.metric.value;
    const char *text = NULL;
    int rc = sy_object(at, keys);

    (void)spec;
    if (!rc)
        rc = sy_string(&name, false, &event->base.who.op);
    if (!rc)
        rc = sy_need(at, "value", &value);
    if (rc || !json_is_string(value.v))
        return rc ? rc : sy_real(&value, out);
    rc = sy_choice(&value, special, &text);
    if (!rc)
        *out = text[0] == 'n' ? (double)NAN : text[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    return rc;
}

static int read_readback(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "readback", "implementation", "contract", "calls", NULL};
    struct sy_at id = sy_get(at, "readback");
    struct rlk_event *e = &event->base;
    int64_t calls = 0;
    int rc = sy_object(at, keys);

    (void)spec;
    e->who.op = "readback";
    e->u.readback.implementation = e->u.readback.contract = "";
    if (!rc)
        rc = sy_string(&id, true, &e->u.readback.case_id);
    if (!rc)
        rc = sy_opt_string(at, "implementation", &e->u.readback.implementation);
    if (!rc)
        rc = sy_opt_string(at, "contract", &e->u.readback.contract);
    if (!rc)
        rc = sy_opt_int(at, "calls", 0, INT64_MAX, &calls);
    e->u.readback.calls = (uint64_t)calls;
    return rc;
}

static int read_leaf(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const char *const keys[] = {COMMON, "leaf", "tensors", "reference", "sha256", "generator", "seed", NULL};
    struct sy_at name = sy_get(at, "leaf"), tensors;
    struct rlk_event *e = &event->base;
    int64_t seed = 0;
    size_t n = 0;
    int rc = sy_object(at, keys);

    e->who.op = "leaf";
    e->u.leaf.reference = e->u.leaf.sha256 = e->u.leaf.generator = "";
    if (!rc)
        rc = sy_string(&name, false, &e->u.leaf.name);
    if (!rc)
        rc = sy_opt_string(at, "reference", &e->u.leaf.reference);
    if (!rc)
        rc = sy_opt_string(at, "sha256", &e->u.leaf.sha256);
    if (!rc)
        rc = sy_opt_string(at, "generator", &e->u.leaf.generator);
    if (!rc)
        rc = sy_opt_int(at, "seed", 0, INT64_MAX, &seed);
    e->u.leaf.seed = (uint64_t)seed;
    if (!rc)
        rc = sy_need(at, "tensors", &tensors);
    if (!rc)
        rc = sy_list(&tensors, 1, 1, &n);
    if (!rc)
        rc = read_lists(spec, at, event, NULL, "tensors");
    event->producer = false; /* it says where a tensor came from, it did not compute it */
    return rc;
}

int sy_read_kind(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event)
{
    static const struct {
        const char *key;
        enum rlk_event_kind kind;
        int (*read)(struct sy_spec *, const struct sy_at *, struct sy_event *);
    } kinds[] = {
        {"op", RLK_EV_OP, read_op},
        {"collective", RLK_EV_COLLECTIVE, read_collective},
        {"copy", RLK_EV_COPY, read_copy},
        {"sync", RLK_EV_SYNC, read_sync},
        {"rng", RLK_EV_RNG, read_rng},
        {"weights", RLK_EV_WEIGHTS, read_weights},
        {"request", RLK_EV_REQUEST, read_request},
        {"relaunch", RLK_EV_RELAUNCH, read_relaunch},
        {"metric", RLK_EV_METRIC, read_metric},
        {"readback", RLK_EV_READBACK, read_readback},
        {"leaf", RLK_EV_LEAF, read_leaf},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (json_object_get(at->v, kinds[i].key)) {
            event->base.kind = kinds[i].kind;
            return kinds[i].read(spec, at, event);
        }
    return sy_fail(at, "no kind: one of op, collective, copy, sync, rng, weights, request, relaunch, metric, readback, "
                       "leaf is needed");
}
