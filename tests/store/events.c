#include "tests/store/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->s += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    return n ? rng_next(r) % n : 0;
}

static bool maybe(struct rng *r)
{
    return rng_next(r) & 1;
}

#define NEW(arena, type, n) ((type *)rlk_arena_alloc((arena), (size_t)(n) * sizeof(type) + 1, _Alignof(type)))

static const char *text(struct rng *r, struct rlk_arena *arena, const char *stem)
{
    uint64_t pick = rng_below(r, 20);
    if (pick == 0)
        return NULL;
    if (pick == 1)
        return "";
    size_t n = pick == 2 ? RLK_MAX_STRING : strlen(stem) + 16;
    char *s = rlk_arena_alloc(arena, n + 1, 1);
    memset(s, 'x', n);
    if (pick == 2) {
        s[0] = (char)('a' + rng_below(r, 26));
        return s;
    }
    snprintf(s, n, pick == 3 ? "%s.\xc3\xa9%u" : "%s.%u", stem, (unsigned)rng_below(r, 7));
    return s;
}

static uint64_t number(struct rng *r)
{
    return rng_next(r) >> rng_below(r, 64);
}

static int64_t integer(struct rng *r)
{
    return (int64_t)number(r) * (maybe(r) ? 1 : -1);
}

static rlk_u128 wide(struct rng *r)
{
    return (rlk_u128){rng_next(r), rng_next(r)};
}

static double real(struct rng *r)
{
    return rng_below(r, 8) == 0 ? -0.0 : (double)integer(r) * 0.1;
}

static struct rlk_attr *attrs(struct rng *r, struct rlk_arena *arena, uint32_t *n)
{
    *n = (uint32_t)rng_below(r, 4);
    struct rlk_attr *a = NEW(arena, struct rlk_attr, *n);
    for (uint32_t i = 0; i < *n; i++) {
        a[i].key = text(r, arena, "key");
        a[i].type = (uint8_t)(1 + rng_below(r, 3));
        if (a[i].type == RLK_ATTR_INT)
            a[i].i = integer(r);
        else if (a[i].type == RLK_ATTR_DOUBLE)
            a[i].d = real(r);
        else
            a[i].s = text(r, arena, "value");
    }
    return a;
}

static struct rlk_place *place(struct rng *r, struct rlk_arena *arena)
{
    struct rlk_place *p = NEW(arena, struct rlk_place, 1);
    p->ndim = (uint32_t)rng_below(r, 5);
    uint64_t *shape = NEW(arena, uint64_t, p->ndim);
    uint32_t *nruns = NEW(arena, uint32_t, p->ndim);
    struct rlk_run *runs = NEW(arena, struct rlk_run, p->ndim * 3);
    size_t at = 0;
    for (uint32_t i = 0; i < p->ndim; i++) {
        shape[i] = number(r);
        nruns[i] = maybe(r) ? RLK_WHOLE : (uint32_t)rng_below(r, 4);
        for (uint32_t k = 0; nruns[i] != RLK_WHOLE && k < nruns[i]; k++)
            runs[at++] = (struct rlk_run){number(r), number(r)};
    }
    p->shape = shape;
    p->nruns = nruns;
    p->runs = runs;
    p->partial = maybe(r) ? "tp" : NULL;
    p->replica = maybe(r) ? "dp" : NULL;
    p->zero = maybe(r) ? "cp" : NULL;
    return p;
}

static struct rlk_sums sums(struct rng *r)
{
    struct rlk_sums s = {.positional = wide(r), .multiset = rng_next(r), .elements = number(r)};
    s.value = maybe(r) ? s.positional : wide(r);
    if (maybe(r)) {
        s.nan = number(r);
        s.inf = number(r);
        s.negzero = number(r);
    }
    return s;
}

static const struct rlk_sample_part *samples(struct rng *r, struct rlk_arena *arena, uint32_t n)
{
    struct rlk_sample_part *s = NEW(arena, struct rlk_sample_part, n);
    for (uint32_t i = 0; i < n; i++) {
        s[i].id = text(r, arena, "sample");
        s[i].start = number(r);
        s[i].extent = number(r);
        s[i].has_sums = maybe(r);
        if (s[i].has_sums)
            s[i].sums = sums(r);
    }
    return s;
}

static void tensor(struct rng *r, struct rlk_arena *arena, struct rlk_tensor *t)
{
    t->name = text(r, arena, "tensor");
    t->dtype = (uint8_t)(1 + rng_below(r, RLK_FP8_E8M0));
    t->composable = maybe(r);
    t->ndim = rng_below(r, 30) == 0 ? RLK_MAX_DIMS : (uint32_t)rng_below(r, 5);
    uint64_t *shape = NEW(arena, uint64_t, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        shape[i] = rng_below(r, 10000);
    t->shape = shape;
    t->state = (uint8_t)rng_below(r, 4);
    if (t->state == RLK_T_DIGESTED) {
        t->sums = sums(r);
        if (maybe(r)) {
            t->sums.elements = 1;
            for (uint32_t i = 0; i < t->ndim; i++)
                t->sums.elements *= shape[i];
        }
    } else if (t->state == RLK_T_REFERENCE) {
        t->ref_event = number(r);
        t->ref_output = (uint32_t)rng_below(r, 1000);
        t->ref_view = maybe(r) ? wide(r) : (rlk_u128){0, 0};
    } else {
        t->reason = text(r, arena, "reason");
    }
    t->place = maybe(r) ? place(r, arena) : NULL;
    t->alloc = maybe(r) ? number(r) : 0;
    t->version = maybe(r) ? text(r, arena, "w") : NULL;
    t->nsamples = maybe(r) ? (uint32_t)rng_below(r, 4) : 0;
    t->samples = samples(r, arena, t->nsamples);
    t->has_payload = maybe(r);
    if (t->has_payload)
        t->payload = wide(r);
}

static const struct rlk_tensor *tensors(struct rng *r, struct rlk_arena *arena, uint32_t *n)
{
    uint32_t in = (uint32_t)rng_below(r, 4), out = (uint32_t)rng_below(r, 3);
    struct rlk_tensor *t = NEW(arena, struct rlk_tensor, in + out);
    for (uint32_t i = 0; i < in + out; i++) {
        tensor(r, arena, &t[i]);
        t[i].role = i < in ? RLK_ROLE_IN : RLK_ROLE_OUT;
        t[i].index = rng_below(r, 10) == 0 ? (uint32_t)number(r) : i < in ? i : i - in;
    }
    *n = in + out;
    return t;
}

static const struct rlk_launch *launches(struct rng *r, struct rlk_arena *arena, uint32_t n)
{
    struct rlk_launch *l = NEW(arena, struct rlk_launch, n);
    for (uint32_t i = 0; i < n; i++) {
        l[i].kernel = text(r, arena, "kernel");
        l[i].image = text(r, arena, "image");
        l[i].config = text(r, arena, "config");
        for (int k = 0; k < 3; k++) {
            l[i].grid[k] = (uint32_t)number(r);
            l[i].block[k] = (uint32_t)rng_below(r, 1025);
            l[i].cluster[k] = (uint32_t)rng_below(r, 9);
        }
        l[i].smem = (uint32_t)rng_below(r, 228 * 1024);
        l[i].stream = maybe(r) ? number(r) : 0;
        l[i].graph = maybe(r) ? RLK_NO_NODE : integer(r);
        l[i].node = maybe(r) ? RLK_NO_NODE : integer(r);
        l[i].attrs = attrs(r, arena, &l[i].nattrs);
        l[i].has_params = maybe(r);
        if (l[i].has_params)
            l[i].params = wide(r);
    }
    return l;
}

static const uint32_t *u32s(struct rng *r, struct rlk_arena *arena, uint32_t *n)
{
    *n = (uint32_t)rng_below(r, 5);
    uint32_t *list = NEW(arena, uint32_t, *n);
    for (uint32_t i = 0; i < *n; i++)
        list[i] = (uint32_t)number(r);
    return list;
}

static const char *const *texts(struct rng *r, struct rlk_arena *arena, uint32_t *n)
{
    *n = (uint32_t)rng_below(r, 5);
    const char **list = NEW(arena, const char *, *n);
    for (uint32_t i = 0; i < *n; i++)
        list[i] = text(r, arena, "list");
    return list;
}

static void of_kind(struct rng *r, struct rlk_event *e, struct rlk_arena *arena)
{
    switch (e->kind) {
    case RLK_EV_OP:
        e->u.op.contract = text(r, arena, "contract");
        break;
    case RLK_EV_COLLECTIVE:
        e->u.collective.group = text(r, arena, "tp");
        e->u.collective.algo = text(r, arena, "RING");
        e->u.collective.proto = text(r, arena, "LL");
        e->u.collective.channels = (uint32_t)number(r);
        e->u.collective.order = u32s(r, arena, &e->u.collective.norder);
        e->u.collective.members = texts(r, arena, &e->u.collective.nmembers);
        e->u.collective.ranks = u32s(r, arena, &e->u.collective.nranks);
        break;
    case RLK_EV_COPY:
        e->u.copy.direction = text(r, arena, "h2d");
        break;
    case RLK_EV_SYNC:
        e->u.sync.what = text(r, arena, "wait");
        e->u.sync.event = number(r);
        break;
    case RLK_EV_RNG:
        e->u.rng.generator = text(r, arena, "philox");
        e->u.rng.seed = rng_next(r);
        e->u.rng.offset = number(r);
        e->u.rng.grid = number(r);
        break;
    case RLK_EV_WEIGHTS:
        e->u.weights.version = text(r, arena, "v");
        e->u.weights.side = text(r, arena, "trainer");
        break;
    case RLK_EV_REQUEST: {
        uint32_t n = (uint32_t)rng_below(r, 9);
        int64_t *tokens = NEW(arena, int64_t, n);
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = integer(r);
        e->u.request.id = text(r, arena, "r");
        e->u.request.logprob_kind = text(r, arena, "raw");
        e->u.request.ntokens = n;
        e->u.request.tokens = tokens;
        e->u.request.versions = texts(r, arena, &e->u.request.nversions);
        break;
    }
    case RLK_EV_RELAUNCH:
        e->u.relaunch.event = text(r, arena, "e");
        e->u.relaunch.repeats = (uint32_t)number(r);
        e->u.relaunch.agree = (uint32_t)number(r);
        e->u.relaunch.matches_recorded = maybe(r);
        break;
    case RLK_EV_METRIC:
        e->u.metric.value = real(r);
        break;
    case RLK_EV_READBACK:
        e->u.readback.case_id = text(r, arena, "case");
        e->u.readback.implementation = text(r, arena, "impl");
        e->u.readback.contract = text(r, arena, "contract");
        e->u.readback.calls = number(r);
        break;
    case RLK_EV_LEAF:
        e->u.leaf.name = text(r, arena, "leaf");
        e->u.leaf.reference = text(r, arena, "file#t");
        e->u.leaf.sha256 = text(r, arena, "abc");
        e->u.leaf.generator = text(r, arena, "normal");
        e->u.leaf.seed = rng_next(r);
        break;
    case RLK_EV_LAUNCH:
        e->u.launch.count = (uint32_t)rng_below(r, 50);
        e->u.launch.entry = text(r, arena, "cuLaunchKernel");
        e->u.launch.count = (uint32_t)rng_below(r, 3);
        break;
    case RLK_EV_NOTE:
        e->u.note.code = text(r, arena, "note");
        e->u.note.text = text(r, arena, "something to say");
        break;
    case RLK_EV_NONE:
        break;
    }
}

struct rlk_event random_event(struct rng *r, enum rlk_event_kind kind, struct rlk_arena *arena)
{
    struct rlk_event e = {.kind = kind};
    e.autotune = rng_below(r, 8) == 0;
    e.rank = (uint32_t)rng_below(r, 3);
    e.thread = (uint32_t)rng_below(r, 3);
    e.stream = maybe(r) ? number(r) : 0;
    e.id = maybe(r) ? text(r, arena, "id") : NULL;
    e.who.step = (int64_t)rng_below(r, 6) - 1;
    e.who.work = maybe(r) ? integer(r) : 0;
    e.who.iteration = maybe(r) ? integer(r) : 0;
    e.who.phase = text(r, arena, "actor_train");
    e.who.pass = text(r, arena, "fwd");
    e.who.module = text(r, arena, "layers");
    e.who.op = text(r, arena, "aten::mm");
    e.who.sample = maybe(r) ? text(r, arena, "s") : NULL;
    e.who.call = maybe(r) ? (uint32_t)number(r) : 0;
    e.who.occurrence = maybe(r) ? (uint32_t)number(r) : 0;
    e.attrs = attrs(r, arena, &e.nattrs);
    e.tensors = tensors(r, arena, &e.ntensors);
    e.nlaunches = (uint32_t)rng_below(r, 3) + (kind == RLK_EV_LAUNCH);
    e.launches = launches(r, arena, e.nlaunches);
    e.nlaunch_ranges = maybe(r) ? (uint32_t)rng_below(r, 3) : 0;
    struct rlk_range *ranges = NEW(arena, struct rlk_range, e.nlaunch_ranges);
    for (uint32_t i = 0; i < e.nlaunch_ranges; i++)
        ranges[i] = (struct rlk_range){number(r), number(r)};
    e.launch_ranges = ranges;
    of_kind(r, &e, arena);
    return e;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

#define FIELD(x)                                                                                                       \
    if (a->x != b->x)                                                                                                  \
    return #x
#define TEXT(x)                                                                                                        \
    if (!same(a->x, b->x))                                                                                             \
    return #x
#define WIDE(x)                                                                                                        \
    if (!rlk_u128_equal(a->x, b->x))                                                                                   \
    return #x
#define LIST(x, n)                                                                                                     \
    if ((n) && memcmp(a->x, b->x, (n) * sizeof *a->x) != 0)                                                            \
    return #x

static const char *attrs_difference(const struct rlk_attr *a, const struct rlk_attr *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, a++, b++) {
        FIELD(type);
        TEXT(key);
        if (a->type == RLK_ATTR_INT)
            FIELD(i);
        if (a->type == RLK_ATTR_STRING)
            TEXT(s);
        if (a->type == RLK_ATTR_DOUBLE && memcmp(&a->d, &b->d, sizeof a->d) != 0)
            return "d";
    }
    return NULL;
}

static const char *sums_difference(const struct rlk_sums *a, const struct rlk_sums *b)
{
    WIDE(positional);
    WIDE(value);
    FIELD(multiset);
    FIELD(elements);
    FIELD(nan);
    FIELD(inf);
    FIELD(negzero);
    return NULL;
}

static const char *place_difference(const struct rlk_place *a, const struct rlk_place *b)
{
    if (!a || !b)
        return a == b ? NULL : "place";
    FIELD(ndim);
    LIST(shape, a->ndim);
    LIST(nruns, a->ndim);
    size_t runs = 0;
    for (uint32_t i = 0; i < a->ndim; i++)
        runs += a->nruns[i] == RLK_WHOLE ? 0 : a->nruns[i];
    LIST(runs, runs);
    TEXT(partial);
    TEXT(replica);
    TEXT(zero);
    if (!a->partial != !b->partial || !a->replica != !b->replica || !a->zero != !b->zero)
        return "NULL group";
    return NULL;
}

static const char *tensor_difference(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    const char *d;
    TEXT(name);
    FIELD(role);
    FIELD(state);
    FIELD(dtype);
    FIELD(composable);
    FIELD(index);
    FIELD(ndim);
    LIST(shape, a->ndim);
    TEXT(version);
    FIELD(alloc);
    FIELD(nsamples);
    FIELD(has_payload);
    if (a->has_payload)
        WIDE(payload);
    if (a->state == RLK_T_DIGESTED && (d = sums_difference(&a->sums, &b->sums)))
        return d;
    if (a->state == RLK_T_REFERENCE) {
        FIELD(ref_event);
        FIELD(ref_output);
        WIDE(ref_view);
    }
    if (a->state == RLK_T_UNDEFINED || a->state == RLK_T_NOT_DIGESTED)
        TEXT(reason);
    if ((d = place_difference(a->place, b->place)))
        return d;
    for (uint32_t i = 0; i < a->nsamples; i++) {
        const struct rlk_sample_part *x = &a->samples[i], *y = &b->samples[i];
        if (!same(x->id, y->id) || x->start != y->start || x->extent != y->extent || x->has_sums != y->has_sums)
            return "sample";
        if (x->has_sums && (d = sums_difference(&x->sums, &y->sums)))
            return d;
    }
    return NULL;
}

static const char *launch_difference(const struct rlk_launch *a, const struct rlk_launch *b)
{
    TEXT(kernel);
    TEXT(image);
    TEXT(config);
    LIST(grid, 3);
    LIST(block, 3);
    LIST(cluster, 3);
    FIELD(smem);
    FIELD(stream);
    FIELD(graph);
    FIELD(node);
    FIELD(has_params);
    if (a->has_params)
        WIDE(params);
    FIELD(nattrs);
    return attrs_difference(a->attrs, b->attrs, a->nattrs);
}

static const char *texts_difference(const char *const *a, const char *const *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!same(a[i], b[i]))
            return "list of strings";
    return NULL;
}

static const char *kind_difference(const struct rlk_event *a, const struct rlk_event *b)
{
    switch (a->kind) {
    case RLK_EV_OP:
        TEXT(u.op.contract);
        return NULL;
    case RLK_EV_COLLECTIVE:
        TEXT(u.collective.group);
        TEXT(u.collective.algo);
        TEXT(u.collective.proto);
        FIELD(u.collective.channels);
        FIELD(u.collective.norder);
        FIELD(u.collective.nmembers);
        FIELD(u.collective.nranks);
        LIST(u.collective.order, a->u.collective.norder);
        LIST(u.collective.ranks, a->u.collective.nranks);
        return texts_difference(a->u.collective.members, b->u.collective.members, a->u.collective.nmembers);
    case RLK_EV_COPY:
        TEXT(u.copy.direction);
        return NULL;
    case RLK_EV_SYNC:
        TEXT(u.sync.what);
        FIELD(u.sync.event);
        return NULL;
    case RLK_EV_RNG:
        TEXT(u.rng.generator);
        FIELD(u.rng.seed);
        FIELD(u.rng.offset);
        FIELD(u.rng.grid);
        return NULL;
    case RLK_EV_WEIGHTS:
        TEXT(u.weights.version);
        TEXT(u.weights.side);
        return NULL;
    case RLK_EV_REQUEST:
        TEXT(u.request.id);
        TEXT(u.request.logprob_kind);
        FIELD(u.request.ntokens);
        FIELD(u.request.nversions);
        LIST(u.request.tokens, a->u.request.ntokens);
        return texts_difference(a->u.request.versions, b->u.request.versions, a->u.request.nversions);
    case RLK_EV_RELAUNCH:
        TEXT(u.relaunch.event);
        FIELD(u.relaunch.repeats);
        FIELD(u.relaunch.agree);
        FIELD(u.relaunch.matches_recorded);
        return NULL;
    case RLK_EV_METRIC:
        return memcmp(&a->u.metric.value, &b->u.metric.value, sizeof(double)) ? "value" : NULL;
    case RLK_EV_READBACK:
        TEXT(u.readback.case_id);
        TEXT(u.readback.implementation);
        TEXT(u.readback.contract);
        FIELD(u.readback.calls);
        return NULL;
    case RLK_EV_LEAF:
        TEXT(u.leaf.name);
        TEXT(u.leaf.reference);
        TEXT(u.leaf.sha256);
        TEXT(u.leaf.generator);
        FIELD(u.leaf.seed);
        return NULL;
    case RLK_EV_LAUNCH:
        FIELD(u.launch.count);
        TEXT(u.launch.entry);
        FIELD(u.launch.count);
        return NULL;
    case RLK_EV_NOTE:
        TEXT(u.note.code);
        TEXT(u.note.text);
        return NULL;
    case RLK_EV_NONE:
        break;
    }
    return "kind";
}

const char *event_difference(const struct rlk_event *a, const struct rlk_event *b)
{
    const char *d;
    FIELD(kind);
    FIELD(autotune);
    FIELD(rank);
    FIELD(thread);
    FIELD(stream);
    TEXT(id);
    FIELD(who.step);
    FIELD(who.work);
    FIELD(who.iteration);
    TEXT(who.phase);
    TEXT(who.pass);
    TEXT(who.module);
    TEXT(who.op);
    TEXT(who.sample);
    FIELD(who.call);
    FIELD(who.occurrence);
    FIELD(nattrs);
    FIELD(ntensors);
    FIELD(nlaunches);
    FIELD(nlaunch_ranges);
    LIST(launch_ranges, a->nlaunch_ranges);
    if ((d = attrs_difference(a->attrs, b->attrs, a->nattrs)))
        return d;
    for (uint32_t i = 0; i < a->ntensors; i++)
        if ((d = tensor_difference(&a->tensors[i], &b->tensors[i])))
            return d;
    for (uint32_t i = 0; i < a->nlaunches; i++)
        if ((d = launch_difference(&a->launches[i], &b->launches[i])))
            return d;
    return kind_difference(a, b);
}

void fresh_dir(char out[256], const char *name)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, 256, "%s/rlk-%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name);
    if (!mkdtemp(out))
        abort();
}

void drop_dir(const char *dir)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", dir);
}
