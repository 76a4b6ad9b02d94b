#include "store/rlk_decode.h"
#include "store/rlk_format.h"

struct ctx {
    struct rlki_cur c;
    const struct rlki_source *source;
    struct rlk_arena *arena;
    int error; /* other than damage of these bytes */
    uint64_t seq;
};

static void fail(struct ctx *x, int error)
{
    if (!x->error)
        x->error = error;
    x->c.bad = true;
}

static void *take(struct ctx *x, size_t n, size_t size, size_t align)
{
    if (n == 0 || x->c.bad)
        return NULL;
    void *p = n <= SIZE_MAX / size ? rlk_arena_alloc(x->arena, n * size, align) : NULL;
    if (!p)
        fail(x, RLK_ENOMEM);
    return p;
}
#define TAKE(x, type, n) ((type *)take((x), (n), sizeof(type), _Alignof(type)))

static const char *string_of(struct ctx *x, uint64_t id)
{
    const char *s = rlki_empty;
    if (x->c.bad || id == 0)
        return s;
    int rc = x->source->string(x->source->context, id, &s);
    if (rc)
        fail(x, rc);
    return rc ? rlki_empty : s;
}

static const char *get_s(struct ctx *x)
{
    return string_of(x, rlki_get_v(&x->c));
}

static double get_f64(struct ctx *x)
{
    uint64_t bits = rlki_get_u64(&x->c);
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static const struct rlk_attr *get_attrs(struct ctx *x, uint32_t *n)
{
    uint32_t count = rlki_get_n(&x->c, RLKI_MAX_ATTRS, 3);
    struct rlk_attr *list = TAKE(x, struct rlk_attr, count);
    for (uint32_t i = 0; list && i < count && !x->c.bad; i++) {
        struct rlk_attr *a = &list[i];
        a->key = get_s(x);
        a->type = rlki_get_u8(&x->c);
        a->s = rlki_empty;
        if (a->type == RLK_ATTR_INT)
            a->i = rlki_get_z(&x->c);
        else if (a->type == RLK_ATTR_DOUBLE)
            a->d = get_f64(x);
        else if (a->type == RLK_ATTR_STRING)
            a->s = get_s(x);
        else
            x->c.bad = true;
    }
    *n = x->c.bad ? 0 : count;
    return list;
}

static const uint64_t *get_shape(struct ctx *x, uint32_t *ndim)
{
    *ndim = rlki_get_n(&x->c, RLK_MAX_DIMS, 1);
    uint64_t *shape = TAKE(x, uint64_t, *ndim);
    for (uint32_t i = 0; shape && i < *ndim; i++)
        shape[i] = rlki_get_v(&x->c);
    return shape;
}

static const char *get_group(struct ctx *x)
{
    const char *s = get_s(x);
    return *s ? s : NULL;
}

static const struct rlk_place *get_place(struct ctx *x)
{
    struct rlk_place *place = TAKE(x, struct rlk_place, 1);
    if (!place)
        return NULL;
    place->shape = get_shape(x, &place->ndim);
    uint32_t *nruns = TAKE(x, uint32_t, place->ndim);
    struct rlk_run *runs = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t i = 0; nruns && i < place->ndim && !x->c.bad; i++) {
        uint64_t count = rlki_get_v(&x->c);
        if (count == 0) {
            nruns[i] = RLK_WHOLE;
            continue;
        }
        count--;
        if (count > RLKI_MAX_LIST - n || count > rlki_left(&x->c) / 2) {
            x->c.bad = true;
            break;
        }
        if (n + count > cap) { /* grown by doubling: what is left behind in the arena is less than what is kept */
            cap = (n + (size_t)count) * 2;
            struct rlk_run *more = TAKE(x, struct rlk_run, cap);
            if (more && n)
                memcpy(more, runs, n * sizeof *runs);
            runs = more;
        }
        nruns[i] = (uint32_t)count;
        for (uint64_t k = 0; runs && k < count; k++, n++) {
            runs[n].start = rlki_get_v(&x->c);
            runs[n].extent = rlki_get_v(&x->c);
        }
    }
    place->nruns = nruns;
    place->runs = runs;
    place->partial = get_group(x);
    place->replica = get_group(x);
    place->zero = get_group(x);
    return place;
}

static void get_specials(struct ctx *x, struct rlk_sums *s)
{
    s->nan = rlki_get_v(&x->c);
    s->inf = rlki_get_v(&x->c);
    s->negzero = rlki_get_v(&x->c);
}

static const struct rlk_sample_part *get_samples(struct ctx *x, uint32_t *n)
{
    *n = rlki_get_n(&x->c, RLKI_MAX_LIST, 4);
    struct rlk_sample_part *list = TAKE(x, struct rlk_sample_part, *n);
    for (uint32_t i = 0; list && i < *n && !x->c.bad; i++) {
        struct rlk_sample_part *p = &list[i];
        p->id = get_s(x);
        p->start = rlki_get_v(&x->c);
        p->extent = rlki_get_v(&x->c);
        uint8_t has = rlki_get_u8(&x->c);
        if (has > 1)
            x->c.bad = true;
        p->has_sums = has == 1;
        if (!p->has_sums)
            continue;
        p->sums.positional = rlki_get_u128(&x->c);
        p->sums.value = rlki_get_u128(&x->c);
        p->sums.multiset = rlki_get_u64(&x->c);
        p->sums.elements = rlki_get_v(&x->c);
        get_specials(x, &p->sums);
    }
    return list;
}

static uint64_t product(uint32_t n, const uint64_t *shape)
{
    uint64_t p = 1;
    for (uint32_t i = 0; i < n; i++)
        p *= shape[i];
    return p;
}

static void get_sums(struct ctx *x, struct rlk_tensor *t, uint64_t mask)
{
    struct rlk_sums *s = &t->sums;
    s->positional = rlki_get_u128(&x->c);
    s->value = mask & RLKI_T_VALUE ? rlki_get_u128(&x->c) : s->positional;
    s->multiset = rlki_get_u64(&x->c);
    s->elements = mask & RLKI_T_ELEMENTS ? rlki_get_v(&x->c) : product(t->ndim, t->shape);
    if (mask & RLKI_T_SPECIAL)
        get_specials(x, s);
}

static void get_tensor(struct ctx *x, struct rlk_tensor *t, uint32_t ordinal[2])
{
    uint64_t mask = rlki_get_v(&x->c), id = rlki_get_v(&x->c);
    const struct rlki_desc *desc = NULL;
    if (x->c.bad)
        return;
    int rc = mask & ~(uint64_t)RLKI_T_ALL ? RLK_ECORRUPT : x->source->desc(x->source->context, id, &desc);
    if (rc || desc->type != RLKI_DESC_TENSOR) {
        fail(x, rc ? rc : RLK_ECORRUPT);
        return;
    }
    *t = desc->u.tensor;
    t->role = (mask & RLKI_T_OUT) ? RLK_ROLE_OUT : RLK_ROLE_IN;
    t->state = (mask >> RLKI_T_STATE_SHIFT) & 3;
    t->reason = t->version = rlki_empty;
    uint32_t nth = ordinal[t->role]++;
    t->index = mask & RLKI_T_INDEX ? rlki_get_v32(&x->c) : nth;
    if (t->state == RLK_T_DIGESTED) {
        get_sums(x, t, mask);
    } else if (t->state == RLK_T_REFERENCE) {
        t->ref_event = x->seq - (uint64_t)rlki_get_z(&x->c);
        t->ref_output = rlki_get_v32(&x->c);
        if (mask & RLKI_T_VIEW)
            t->ref_view = rlki_get_u128(&x->c);
    } else {
        t->reason = get_s(x);
    }
    if (mask & RLKI_T_ALLOC)
        t->alloc = rlki_get_v(&x->c);
    if (mask & RLKI_T_VERSION)
        t->version = get_s(x);
    if (mask & RLKI_T_SAMPLES)
        t->samples = get_samples(x, &t->nsamples);
    t->has_payload = (mask & RLKI_T_PAYLOAD) != 0;
    if (t->has_payload)
        t->payload = rlki_get_u128(&x->c);
}

static void get_tensors(struct ctx *x, struct rlk_event *e)
{
    uint32_t n = rlki_get_n(&x->c, RLK_MAX_TENSORS, 3), ordinal[2] = {0, 0};
    struct rlk_tensor *list = TAKE(x, struct rlk_tensor, n);
    for (uint32_t i = 0; list && i < n && !x->c.bad; i++)
        get_tensor(x, &list[i], ordinal);
    e->tensors = list;
    e->ntensors = n;
}

static void get_launch(struct ctx *x, struct rlk_launch *l)
{
    uint64_t mask = rlki_get_v(&x->c), id = rlki_get_v(&x->c);
    const struct rlki_desc *desc = NULL;
    if (x->c.bad)
        return;
    int rc = mask & ~(uint64_t)RLKI_L_ALL ? RLK_ECORRUPT : x->source->desc(x->source->context, id, &desc);
    if (rc || desc->type != RLKI_DESC_LAUNCH) {
        fail(x, rc ? rc : RLK_ECORRUPT);
        return;
    }
    *l = desc->u.launch;
    l->stream = mask & RLKI_L_STREAM ? rlki_get_v(&x->c) : 0;
    l->graph = mask & RLKI_L_GRAPH ? rlki_get_z(&x->c) : RLK_NO_NODE;
    l->node = mask & RLKI_L_NODE ? rlki_get_z(&x->c) : RLK_NO_NODE;
    l->has_params = (mask & RLKI_L_PARAMS) != 0;
    if (l->has_params)
        l->params = rlki_get_u128(&x->c);
}

static void get_launches(struct ctx *x, struct rlk_event *e)
{
    uint32_t n = rlki_get_n(&x->c, RLKI_MAX_LAUNCHES, 2);
    struct rlk_launch *list = TAKE(x, struct rlk_launch, n);
    for (uint32_t i = 0; list && i < n && !x->c.bad; i++)
        get_launch(x, &list[i]);
    e->launches = list;
    e->nlaunches = n;
}

static void get_ranges(struct ctx *x, struct rlk_event *e)
{
    uint32_t n = rlki_get_n(&x->c, RLKI_MAX_LIST, 2);
    struct rlk_range *list = TAKE(x, struct rlk_range, n);
    for (uint32_t i = 0; list && i < n; i++) {
        list[i].first = rlki_get_v(&x->c);
        list[i].count = rlki_get_v(&x->c);
    }
    e->launch_ranges = list;
    e->nlaunch_ranges = n;
}

static const uint32_t *get_u32s(struct ctx *x, uint32_t *n)
{
    *n = rlki_get_n(&x->c, RLKI_MAX_LIST, 1);
    uint32_t *list = TAKE(x, uint32_t, *n);
    for (uint32_t i = 0; list && i < *n; i++)
        list[i] = rlki_get_v32(&x->c);
    return list;
}

static const char *const *get_texts(struct ctx *x, uint32_t *n)
{
    *n = rlki_get_n(&x->c, RLKI_MAX_LIST, 1);
    const char **list = TAKE(x, const char *, *n);
    for (uint32_t i = 0; list && i < *n; i++)
        list[i] = get_s(x);
    return list;
}

static const int64_t *get_tokens(struct ctx *x, uint32_t *n)
{
    *n = rlki_get_n(&x->c, RLKI_MAX_LIST, 1);
    int64_t *list = TAKE(x, int64_t, *n);
    for (uint32_t i = 0; list && i < *n; i++)
        list[i] = rlki_get_z(&x->c);
    return list;
}

/* RLK_ENOENT: an unknown kind. */
static int get_kind(struct ctx *x, struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_OP:
        e->u.op.contract = get_s(x);
        return RLK_OK;
    case RLK_EV_COLLECTIVE:
        e->u.collective.group = get_s(x);
        e->u.collective.algo = get_s(x);
        e->u.collective.proto = get_s(x);
        e->u.collective.channels = rlki_get_v32(&x->c);
        e->u.collective.order = get_u32s(x, &e->u.collective.norder);
        e->u.collective.members = get_texts(x, &e->u.collective.nmembers);
        e->u.collective.ranks = get_u32s(x, &e->u.collective.nranks);
        return RLK_OK;
    case RLK_EV_COPY:
        e->u.copy.direction = get_s(x);
        return RLK_OK;
    case RLK_EV_SYNC:
        e->u.sync.what = get_s(x);
        e->u.sync.event = rlki_get_v(&x->c);
        return RLK_OK;
    case RLK_EV_RNG:
        e->u.rng.generator = get_s(x);
        e->u.rng.seed = rlki_get_v(&x->c);
        e->u.rng.offset = rlki_get_v(&x->c);
        e->u.rng.grid = rlki_get_v(&x->c);
        return RLK_OK;
    case RLK_EV_WEIGHTS:
        e->u.weights.version = get_s(x);
        e->u.weights.side = get_s(x);
        return RLK_OK;
    case RLK_EV_REQUEST:
        e->u.request.id = get_s(x);
        e->u.request.logprob_kind = get_s(x);
        e->u.request.tokens = get_tokens(x, &e->u.request.ntokens);
        e->u.request.versions = get_texts(x, &e->u.request.nversions);
        return RLK_OK;
    case RLK_EV_RELAUNCH:
        e->u.relaunch.event = get_s(x);
        e->u.relaunch.repeats = rlki_get_v32(&x->c);
        e->u.relaunch.agree = rlki_get_v32(&x->c);
        e->u.relaunch.matches_recorded = rlki_get_u8(&x->c) != 0;
        return RLK_OK;
    case RLK_EV_METRIC:
        e->u.metric.value = get_f64(x);
        return RLK_OK;
    case RLK_EV_READBACK:
        e->u.readback.case_id = get_s(x);
        e->u.readback.implementation = get_s(x);
        e->u.readback.contract = get_s(x);
        e->u.readback.calls = rlki_get_v(&x->c);
        return RLK_OK;
    case RLK_EV_LEAF:
        e->u.leaf.name = get_s(x);
        e->u.leaf.reference = get_s(x);
        e->u.leaf.sha256 = get_s(x);
        e->u.leaf.generator = get_s(x);
        e->u.leaf.seed = rlki_get_v(&x->c);
        return RLK_OK;
    case RLK_EV_LAUNCH:
        if (e->nlaunches == 0)
            x->c.bad = true;
        e->u.launch.entry = get_s(x);
        e->u.launch.count = rlki_get_v32(&x->c);
        return RLK_OK;
    case RLK_EV_NOTE:
        e->u.note.code = get_s(x);
        e->u.note.text = get_s(x);
        return RLK_OK;
    case RLK_EV_NONE:
        break;
    }
    return RLK_ENOENT;
}

static uint32_t field_v32(struct ctx *x, uint64_t mask, uint64_t bit)
{
    return mask & bit ? rlki_get_v32(&x->c) : 0;
}

static int64_t field_z(struct ctx *x, uint64_t mask, uint64_t bit)
{
    return mask & bit ? rlki_get_z(&x->c) : 0;
}

static const char *field_s(struct ctx *x, uint64_t mask, uint64_t bit)
{
    return mask & bit ? get_s(x) : rlki_empty;
}

int rlki_decode_event(const struct rlki_source *source, const uint8_t *p, size_t n, uint64_t seq,
                      struct rlk_arena *arena, struct rlk_event *e, uint32_t *phase, uint32_t *module)
{
    struct ctx x = {{p, p + n, false}, source, arena, 0, seq};
    *e = (struct rlk_event){.seq = seq};
    uint8_t kind = rlki_get_u8(&x.c);
    if (!x.c.bad && (kind == RLK_EV_NONE || kind > RLK_EV_NOTE))
        return RLK_ENOENT;
    e->kind = (enum rlk_event_kind)kind;
    uint64_t mask = rlki_get_v(&x.c);
    e->rank = field_v32(&x, mask, RLKI_M_RANK);
    e->thread = field_v32(&x, mask, RLKI_M_THREAD);
    *phase = field_v32(&x, mask, RLKI_M_PHASE);
    e->who.phase = string_of(&x, *phase);
    e->who.pass = field_s(&x, mask, RLKI_M_PASS);
    *module = field_v32(&x, mask, RLKI_M_MODULE);
    e->who.module = string_of(&x, *module);
    e->who.op = field_s(&x, mask, RLKI_M_OP);
    e->who.call = field_v32(&x, mask, RLKI_M_CALL);
    e->who.occurrence = field_v32(&x, mask, RLKI_M_OCCURRENCE);
    if (mask & RLKI_M_TENSORS)
        get_tensors(&x, e);
    if (mask & RLKI_M_LAUNCHES)
        get_launches(&x, e);
    e->who.step = field_z(&x, mask, RLKI_M_STEP);
    e->who.work = field_z(&x, mask, RLKI_M_WORK);
    e->who.iteration = field_z(&x, mask, RLKI_M_ITERATION);
    e->stream = mask & RLKI_M_STREAM ? rlki_get_v(&x.c) : 0;
    e->who.sample = field_s(&x, mask, RLKI_M_SAMPLE);
    e->id = field_s(&x, mask, RLKI_M_ID);
    if (mask & RLKI_M_ATTRS)
        e->attrs = get_attrs(&x, &e->nattrs);
    if (mask & RLKI_M_RANGES)
        get_ranges(&x, e);
    e->autotune = (mask & RLKI_M_AUTOTUNE) != 0;
    int rc = x.c.bad ? RLK_OK : get_kind(&x, e);
    if (x.error)
        return x.error;
    return x.c.bad ? RLK_ECORRUPT : rc;
}

int rlki_decode_desc(const struct rlki_source *source, const uint8_t *p, size_t n, struct rlk_arena *arena,
                     struct rlki_desc *out)
{
    struct ctx x = {{p, p + n, false}, source, arena, 0, 0};
    struct rlki_desc d = {.type = rlki_get_u8(&x.c)};
    if (d.type == RLKI_DESC_TENSOR) {
        struct rlk_tensor *t = &d.u.tensor;
        *t = (struct rlk_tensor){0};
        t->name = get_s(&x);
        t->dtype = rlki_get_u8(&x.c);
        uint8_t flags = rlki_get_u8(&x.c);
        t->composable = !(flags & RLKI_D_NOT_COMPOSABLE);
        t->shape = get_shape(&x, &t->ndim);
        if (flags & RLKI_D_PLACE)
            t->place = get_place(&x);
        if (rlk_dtype_bytes((enum rlk_dtype)t->dtype) == 0)
            x.c.bad = true;
    } else if (d.type == RLKI_DESC_LAUNCH) {
        struct rlk_launch *l = &d.u.launch;
        *l = (struct rlk_launch){0};
        l->kernel = get_s(&x);
        l->image = get_s(&x);
        l->config = get_s(&x);
        uint32_t *const triples[] = {l->grid, l->block, l->cluster};
        for (int i = 0; i < 9; i++)
            triples[i / 3][i % 3] = rlki_get_v32(&x.c);
        l->smem = rlki_get_v32(&x.c);
        l->attrs = get_attrs(&x, &l->nattrs);
    } else {
        x.c.bad = true;
    }
    if (x.error)
        return x.error;
    if (x.c.bad)
        return RLK_ECORRUPT;
    *out = d;
    return RLK_OK;
}
