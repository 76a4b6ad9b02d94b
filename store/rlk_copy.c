/* One walk serves both: with base == NULL it measures and checks, with a base it copies. So the two cannot disagree. */
#include "store/rlk_copy.h"
#include "store/rlk_format.h"

struct walk {
    uint8_t *base; /* NULL = only measure */
    size_t at;
    int error;
};

static void fail(struct walk *w, int error)
{
    if (!w->error)
        w->error = error;
}

static void *take(struct walk *w, const void *from, size_t n, size_t size)
{
    if (n == 0 || w->error)
        return NULL;
    if (!from) {
        fail(w, RLK_EINVAL);
        return NULL;
    }
    if (n > RLKI_MAX_RECORD / size || w->at > RLKI_MAX_RECORD) {
        fail(w, RLK_ELIMIT);
        return NULL;
    }
    size_t at = (w->at + 15) & ~(size_t)15;
    w->at = at + n * size;
    if (!w->base)
        return NULL;
    return memcpy(w->base + at, from, n * size);
}

static const char *text(struct walk *w, const char *s)
{
    if (!s || !*s)
        return "";
    size_t n = strnlen(s, RLK_MAX_STRING + 1u);
    if (n > RLK_MAX_STRING) {
        fail(w, RLK_ELIMIT);
        return "";
    }
    size_t at = w->at;
    w->at = at + n + 1;
    if (!w->base)
        return "";
    return memcpy(w->base + at, s, n + 1);
}

static void limit(struct walk *w, uint64_t n, uint64_t most)
{
    if (n > most)
        fail(w, RLK_ELIMIT);
}

static const char *const *texts(struct walk *w, const char *const *list, uint32_t n)
{
    const char **copy = take(w, list, n, sizeof *list);
    for (uint32_t i = 0; i < n && !w->error; i++) {
        const char *s = text(w, list[i]);
        if (copy)
            copy[i] = s;
    }
    return copy;
}

static const struct rlk_attr *attrs(struct walk *w, const struct rlk_attr *list, uint32_t n)
{
    limit(w, n, RLKI_MAX_ATTRS);
    struct rlk_attr *copy = take(w, list, n, sizeof *list);
    for (uint32_t i = 0; i < n && !w->error; i++) {
        if (list[i].type < RLK_ATTR_INT || list[i].type > RLK_ATTR_STRING)
            fail(w, RLK_EINVAL);
        const char *key = text(w, list[i].key), *s = text(w, list[i].type == RLK_ATTR_STRING ? list[i].s : "");
        if (copy) {
            copy[i].key = key;
            copy[i].s = s;
        }
    }
    return copy;
}

static const struct rlk_place *place(struct walk *w, const struct rlk_place *from)
{
    if (!from)
        return NULL;
    limit(w, from->ndim, RLK_MAX_DIMS);
    struct rlk_place *copy = take(w, from, 1, sizeof *from);
    const uint64_t *shape = take(w, from->shape, from->ndim, sizeof *shape);
    uint32_t whole[RLK_MAX_DIMS]; /* what nruns = NULL stands for */
    memset(whole, 0xff, sizeof whole);
    const uint32_t *given = from->nruns ? from->nruns : whole, *nruns = take(w, given, from->ndim, sizeof *nruns);
    uint64_t runs = 0;
    for (uint32_t i = 0; i < from->ndim && !w->error; i++)
        runs += given[i] == RLK_WHOLE ? 0 : given[i];
    limit(w, runs, RLKI_MAX_LIST);
    const struct rlk_run *list = take(w, from->runs, (size_t)runs, sizeof *list);
    const char *partial = from->partial ? text(w, from->partial) : NULL;
    const char *replica = from->replica ? text(w, from->replica) : NULL;
    const char *zero = from->zero ? text(w, from->zero) : NULL;
    if (copy) {
        copy->shape = shape;
        copy->nruns = nruns;
        copy->runs = list;
        copy->partial = partial;
        copy->replica = replica;
        copy->zero = zero;
    }
    return copy;
}

static const struct rlk_sample_part *samples(struct walk *w, const struct rlk_sample_part *list, uint32_t n)
{
    limit(w, n, RLKI_MAX_LIST);
    struct rlk_sample_part *copy = take(w, list, n, sizeof *list);
    for (uint32_t i = 0; i < n && !w->error; i++) {
        const char *id = text(w, list[i].id);
        if (copy)
            copy[i].id = id;
    }
    return copy;
}

static void check_tensor(struct walk *w, const struct rlk_tensor *t)
{
    limit(w, t->ndim, RLK_MAX_DIMS);
    if (t->role > RLK_ROLE_OUT || t->state > RLK_T_PENDING || rlk_dtype_bytes((enum rlk_dtype)t->dtype) == 0)
        fail(w, RLK_EINVAL);
}

static const struct rlk_tensor *tensors(struct walk *w, const struct rlk_tensor *list, uint32_t n)
{
    limit(w, n, RLK_MAX_TENSORS);
    struct rlk_tensor *copy = take(w, list, n, sizeof *list);
    for (uint32_t i = 0; i < n && !w->error; i++) {
        const struct rlk_tensor *t = &list[i];
        check_tensor(w, t);
        const uint64_t *shape = take(w, t->shape, t->ndim, sizeof *shape);
        const char *name = text(w, t->name), *reason = text(w, t->reason), *version = text(w, t->version);
        const struct rlk_place *p = place(w, t->place);
        const struct rlk_sample_part *s = samples(w, t->samples, t->nsamples);
        if (copy) {
            copy[i].shape = shape;
            copy[i].name = name;
            copy[i].reason = reason;
            copy[i].version = version;
            copy[i].place = p;
            copy[i].samples = s;
        }
    }
    return copy;
}

static const struct rlk_launch *launches(struct walk *w, const struct rlk_launch *list, uint32_t n)
{
    limit(w, n, RLKI_MAX_LAUNCHES);
    struct rlk_launch *copy = take(w, list, n, sizeof *list);
    for (uint32_t i = 0; i < n && !w->error; i++) {
        const struct rlk_launch *l = &list[i];
        const char *kernel = text(w, l->kernel), *image = text(w, l->image), *config = text(w, l->config);
        const struct rlk_attr *a = attrs(w, l->attrs, l->nattrs);
        if (copy) {
            copy[i].kernel = kernel;
            copy[i].image = image;
            copy[i].config = config;
            copy[i].attrs = a;
        }
    }
    return copy;
}

/* Every pointer of the union is written to `to`, which is a scratch event when only measuring. */
static void kind(struct walk *w, struct rlk_event *to, const struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_OP:
        to->u.op.contract = text(w, e->u.op.contract);
        break;
    case RLK_EV_COLLECTIVE:
        limit(w, e->u.collective.norder, RLKI_MAX_LIST);
        limit(w, e->u.collective.nmembers, RLKI_MAX_LIST);
        limit(w, e->u.collective.nranks, RLKI_MAX_LIST);
        to->u.collective.group = text(w, e->u.collective.group);
        to->u.collective.algo = text(w, e->u.collective.algo);
        to->u.collective.proto = text(w, e->u.collective.proto);
        to->u.collective.order = take(w, e->u.collective.order, e->u.collective.norder, sizeof(uint32_t));
        to->u.collective.members = texts(w, e->u.collective.members, e->u.collective.nmembers);
        to->u.collective.ranks = take(w, e->u.collective.ranks, e->u.collective.nranks, sizeof(uint32_t));
        break;
    case RLK_EV_COPY:
        to->u.copy.direction = text(w, e->u.copy.direction);
        break;
    case RLK_EV_SYNC:
        to->u.sync.what = text(w, e->u.sync.what);
        break;
    case RLK_EV_RNG:
        to->u.rng.generator = text(w, e->u.rng.generator);
        break;
    case RLK_EV_WEIGHTS:
        to->u.weights.version = text(w, e->u.weights.version);
        to->u.weights.side = text(w, e->u.weights.side);
        break;
    case RLK_EV_REQUEST:
        limit(w, e->u.request.ntokens, RLKI_MAX_LIST);
        limit(w, e->u.request.nversions, RLKI_MAX_LIST);
        to->u.request.id = text(w, e->u.request.id);
        to->u.request.logprob_kind = text(w, e->u.request.logprob_kind);
        to->u.request.tokens = take(w, e->u.request.tokens, e->u.request.ntokens, sizeof(int64_t));
        to->u.request.versions = texts(w, e->u.request.versions, e->u.request.nversions);
        break;
    case RLK_EV_RELAUNCH:
        to->u.relaunch.event = text(w, e->u.relaunch.event);
        break;
    case RLK_EV_METRIC:
        break;
    case RLK_EV_READBACK:
        to->u.readback.case_id = text(w, e->u.readback.case_id);
        to->u.readback.implementation = text(w, e->u.readback.implementation);
        to->u.readback.contract = text(w, e->u.readback.contract);
        break;
    case RLK_EV_LEAF:
        to->u.leaf.name = text(w, e->u.leaf.name);
        to->u.leaf.reference = text(w, e->u.leaf.reference);
        to->u.leaf.sha256 = text(w, e->u.leaf.sha256);
        to->u.leaf.generator = text(w, e->u.leaf.generator);
        break;
    case RLK_EV_LAUNCH:
        to->u.launch.entry = text(w, e->u.launch.entry);
        break;
    case RLK_EV_NOTE:
        to->u.note.code = text(w, e->u.note.code);
        to->u.note.text = text(w, e->u.note.text);
        break;
    case RLK_EV_NONE:
    default:
        fail(w, RLK_EINVAL);
    }
}

static struct rlk_event *walk_event(struct walk *w, const struct rlk_event *e)
{
    struct rlk_event scratch, *copy = take(w, e, 1, sizeof *e), *to = copy ? copy : &scratch;
    to->id = text(w, e->id);
    to->who.phase = text(w, e->who.phase);
    to->who.pass = text(w, e->who.pass);
    to->who.module = text(w, e->who.module);
    to->who.op = text(w, e->who.op);
    to->who.sample = text(w, e->who.sample);
    to->attrs = attrs(w, e->attrs, e->nattrs);
    to->tensors = tensors(w, e->tensors, e->ntensors);
    if (e->kind == RLK_EV_LAUNCH && e->nlaunches == 0)
        fail(w, RLK_EINVAL);
    to->launches = launches(w, e->launches, e->nlaunches);
    limit(w, e->nlaunch_ranges, RLKI_MAX_LIST);
    to->launch_ranges = take(w, e->launch_ranges, e->nlaunch_ranges, sizeof *e->launch_ranges);
    kind(w, to, e);
    return copy;
}

int rlki_event_size(const struct rlk_event *event, size_t *bytes)
{
    struct walk w = {0};
    walk_event(&w, event);
    *bytes = (w.at + 15) & ~(size_t)15;
    if (!w.error && *bytes > RLKI_MAX_RECORD)
        w.error = RLK_ELIMIT;
    return w.error;
}

struct rlk_event *rlki_event_copy(void *block, const struct rlk_event *event)
{
    struct walk w = {.base = block};
    return walk_event(&w, event);
}
