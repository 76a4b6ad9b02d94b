#include "store/rlk_encode.h"
#include "store/rlk_error.h"
#include "store/rlk_format.h"

struct ctx {
    struct rlki_encoder *enc;
    struct rlki_buf *b;
    bool oom;
};

/* Bytes that are not UTF-8 become '?', one each. */
static uint32_t intern_sanitised(struct rlki_table *strings, const uint8_t *p, size_t n)
{
    uint8_t clean[RLK_MAX_STRING];
    size_t at = 0;
    while (at < n && at < sizeof clean) {
        size_t take = 1;
        while (take <= 4 && take <= n - at && !rlki_utf8(p + at, take))
            take++;
        if (take > 4 || take > n - at) {
            clean[at++] = '?';
            continue;
        }
        memcpy(clean + at, p + at, take);
        at += take;
    }
    return rlki_table_id(strings, clean, at);
}

uint32_t rlki_encode_string(struct rlki_encoder *enc, const char *s, bool *oom)
{
    if (!s || !*s)
        return 0;
    size_t n = strlen(s);
    uint32_t mix = (uint32_t)n * 31u + (uint8_t)s[n - 1] * 7u + (uint8_t)s[n / 2];
    struct rlki_recent *r = &enc->recent[mix % RLKI_RECENT];
    if (r->n == n && r->p && memcmp(r->p, s, n) == 0)
        return r->id;
    uint32_t id = rlki_utf8((const uint8_t *)s, n) ? rlki_table_id(&enc->strings, s, n)
                                                   : intern_sanitised(&enc->strings, (const uint8_t *)s, n);
    if (id == 0) {
        *oom = true;
        return 0;
    }
    const struct rlki_entry *e = rlki_table_entry(&enc->strings, id);
    *r = (struct rlki_recent){e->p, e->n, id};
    return id;
}

static uint32_t string(struct ctx *c, const char *s)
{
    return rlki_encode_string(c->enc, s, &c->oom);
}

static void put_s(struct ctx *c, const char *s)
{
    rlki_put_v(c->b, string(c, s));
}

static void put_f64(struct rlki_buf *b, double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    rlki_put_u64(b, bits);
}

static void put_attrs(struct ctx *c, const struct rlk_attr *attrs, uint32_t n)
{
    rlki_put_v(c->b, n);
    for (uint32_t i = 0; i < n; i++) {
        put_s(c, attrs[i].key);
        rlki_put_u8(c->b, attrs[i].type);
        if (attrs[i].type == RLK_ATTR_INT)
            rlki_put_z(c->b, attrs[i].i);
        else if (attrs[i].type == RLK_ATTR_DOUBLE)
            put_f64(c->b, attrs[i].d);
        else
            put_s(c, attrs[i].s);
    }
}

static void put_place(struct ctx *c, const struct rlk_place *p)
{
    const struct rlk_run *run = p->runs;
    rlki_put_v(c->b, p->ndim);
    for (uint32_t i = 0; i < p->ndim; i++)
        rlki_put_v(c->b, p->shape[i]);
    for (uint32_t i = 0; i < p->ndim; i++) {
        uint32_t n = p->nruns[i];
        rlki_put_v(c->b, n == RLK_WHOLE ? 0 : 1 + (uint64_t)n);
        for (uint32_t k = 0; n != RLK_WHOLE && k < n; k++, run++) {
            rlki_put_v(c->b, run->start);
            rlki_put_v(c->b, run->extent);
        }
    }
    put_s(c, p->partial);
    put_s(c, p->replica);
    put_s(c, p->zero);
}

/* Builds a descriptor in the scratch buffer with `fill` and puts its id into the record. */
static void put_desc(struct ctx *c, void (*fill)(struct ctx *c, const void *what), const void *what)
{
    struct ctx d = {c->enc, &c->enc->desc, false};
    d.b->n = 0;
    fill(&d, what);
    uint32_t id = d.oom || d.b->oom ? 0 : rlki_table_id(&c->enc->descs, d.b->p, d.b->n);
    if (id == 0)
        c->oom = true;
    rlki_put_v(c->b, id);
}

static void fill_tensor(struct ctx *c, const void *what)
{
    const struct rlk_tensor *t = what;
    rlki_put_u8(c->b, RLKI_DESC_TENSOR);
    put_s(c, t->name);
    rlki_put_u8(c->b, t->dtype);
    rlki_put_u8(c->b, (uint8_t)((t->composable ? 0 : RLKI_D_NOT_COMPOSABLE) | (t->place ? RLKI_D_PLACE : 0)));
    rlki_put_v(c->b, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        rlki_put_v(c->b, t->shape[i]);
    if (t->place)
        put_place(c, t->place);
}

static void fill_launch(struct ctx *c, const void *what)
{
    const struct rlk_launch *l = what;
    rlki_put_u8(c->b, RLKI_DESC_LAUNCH);
    put_s(c, l->kernel);
    put_s(c, l->image);
    put_s(c, l->config);
    for (int i = 0; i < 3; i++)
        rlki_put_v(c->b, l->grid[i]);
    for (int i = 0; i < 3; i++)
        rlki_put_v(c->b, l->block[i]);
    for (int i = 0; i < 3; i++)
        rlki_put_v(c->b, l->cluster[i]);
    rlki_put_v(c->b, l->smem);
    put_attrs(c, l->attrs, l->nattrs);
}

static void put_specials(struct rlki_buf *b, const struct rlk_sums *s)
{
    rlki_put_v(b, s->nan);
    rlki_put_v(b, s->inf);
    rlki_put_v(b, s->negzero);
}

static void put_samples(struct ctx *c, const struct rlk_tensor *t)
{
    rlki_put_v(c->b, t->nsamples);
    for (uint32_t i = 0; i < t->nsamples; i++) {
        const struct rlk_sample_part *p = &t->samples[i];
        put_s(c, p->id);
        rlki_put_v(c->b, p->start);
        rlki_put_v(c->b, p->extent);
        rlki_put_u8(c->b, p->has_sums);
        if (!p->has_sums)
            continue;
        rlki_put_u128(c->b, p->sums.positional);
        rlki_put_u128(c->b, p->sums.value);
        rlki_put_u64(c->b, p->sums.multiset);
        rlki_put_v(c->b, p->sums.elements);
        put_specials(c->b, &p->sums);
    }
}

static uint64_t product(uint32_t n, const uint64_t *shape)
{
    uint64_t p = 1;
    for (uint32_t i = 0; i < n; i++)
        p *= shape[i]; /* mod 2^64, as the reader does */
    return p;
}

static uint32_t tensor_mask(const struct rlk_tensor *t, uint32_t ordinal)
{
    const struct rlk_sums *s = &t->sums;
    uint32_t mask = (uint32_t)t->role | (uint32_t)t->state << RLKI_T_STATE_SHIFT;
    if (t->index != ordinal)
        mask |= RLKI_T_INDEX;
    if (t->state == RLK_T_DIGESTED) {
        mask |= rlk_u128_equal(s->positional, s->value) ? 0 : RLKI_T_VALUE;
        mask |= s->elements == product(t->ndim, t->shape) ? 0 : RLKI_T_ELEMENTS;
        mask |= s->nan || s->inf || s->negzero ? RLKI_T_SPECIAL : 0;
    }
    if (t->state == RLK_T_REFERENCE && (t->ref_view.lo || t->ref_view.hi))
        mask |= RLKI_T_VIEW;
    mask |= t->alloc ? RLKI_T_ALLOC : 0;
    mask |= t->version && *t->version ? RLKI_T_VERSION : 0;
    mask |= t->nsamples ? RLKI_T_SAMPLES : 0;
    mask |= t->has_payload ? RLKI_T_PAYLOAD : 0;
    return mask;
}

static void put_tensor(struct ctx *c, const struct rlk_tensor *t, uint32_t ordinal, uint64_t seq)
{
    const struct rlk_sums *s = &t->sums;
    uint32_t mask = tensor_mask(t, ordinal);
    rlki_put_v(c->b, mask);
    put_desc(c, fill_tensor, t);
    if (mask & RLKI_T_INDEX)
        rlki_put_v(c->b, t->index);
    if (t->state == RLK_T_DIGESTED) {
        rlki_put_u128(c->b, s->positional);
        if (mask & RLKI_T_VALUE)
            rlki_put_u128(c->b, s->value);
        rlki_put_u64(c->b, s->multiset);
        if (mask & RLKI_T_ELEMENTS)
            rlki_put_v(c->b, s->elements);
        if (mask & RLKI_T_SPECIAL)
            put_specials(c->b, s);
    } else if (t->state == RLK_T_REFERENCE) {
        rlki_put_z(c->b, (int64_t)(seq - t->ref_event));
        rlki_put_v(c->b, t->ref_output);
        if (mask & RLKI_T_VIEW)
            rlki_put_u128(c->b, t->ref_view);
    } else {
        put_s(c, t->reason);
    }
    if (mask & RLKI_T_ALLOC)
        rlki_put_v(c->b, t->alloc);
    if (mask & RLKI_T_VERSION)
        put_s(c, t->version);
    if (mask & RLKI_T_SAMPLES)
        put_samples(c, t);
    if (mask & RLKI_T_PAYLOAD)
        rlki_put_u128(c->b, t->payload);
}

static void put_launch(struct ctx *c, const struct rlk_launch *l)
{
    uint32_t mask = (l->stream ? RLKI_L_STREAM : 0) | (l->graph != RLK_NO_NODE ? RLKI_L_GRAPH : 0) |
                    (l->node != RLK_NO_NODE ? RLKI_L_NODE : 0) | (l->has_params ? RLKI_L_PARAMS : 0);
    rlki_put_v(c->b, mask);
    put_desc(c, fill_launch, l);
    if (mask & RLKI_L_STREAM)
        rlki_put_v(c->b, l->stream);
    if (mask & RLKI_L_GRAPH)
        rlki_put_z(c->b, l->graph);
    if (mask & RLKI_L_NODE)
        rlki_put_z(c->b, l->node);
    if (mask & RLKI_L_PARAMS)
        rlki_put_u128(c->b, l->params);
}

static void put_u32s(struct rlki_buf *b, const uint32_t *list, uint32_t n)
{
    rlki_put_v(b, n);
    for (uint32_t i = 0; i < n; i++)
        rlki_put_v(b, list[i]);
}

static void put_texts(struct ctx *c, const char *const *list, uint32_t n)
{
    rlki_put_v(c->b, n);
    for (uint32_t i = 0; i < n; i++)
        put_s(c, list[i]);
}

static void put_kind(struct ctx *c, const struct rlk_event *e)
{
    struct rlki_buf *b = c->b;
    switch (e->kind) {
    case RLK_EV_OP:
        put_s(c, e->u.op.contract);
        break;
    case RLK_EV_COLLECTIVE:
        put_s(c, e->u.collective.group);
        put_s(c, e->u.collective.algo);
        put_s(c, e->u.collective.proto);
        rlki_put_v(b, e->u.collective.channels);
        put_u32s(b, e->u.collective.order, e->u.collective.norder);
        put_texts(c, e->u.collective.members, e->u.collective.nmembers);
        put_u32s(b, e->u.collective.ranks, e->u.collective.nranks);
        break;
    case RLK_EV_COPY:
        put_s(c, e->u.copy.direction);
        break;
    case RLK_EV_SYNC:
        put_s(c, e->u.sync.what);
        rlki_put_v(b, e->u.sync.event);
        break;
    case RLK_EV_RNG:
        put_s(c, e->u.rng.generator);
        rlki_put_v(b, e->u.rng.seed);
        rlki_put_v(b, e->u.rng.offset);
        rlki_put_v(b, e->u.rng.grid);
        break;
    case RLK_EV_WEIGHTS:
        put_s(c, e->u.weights.version);
        put_s(c, e->u.weights.side);
        break;
    case RLK_EV_REQUEST:
        put_s(c, e->u.request.id);
        put_s(c, e->u.request.logprob_kind);
        rlki_put_v(b, e->u.request.ntokens);
        for (uint32_t i = 0; i < e->u.request.ntokens; i++)
            rlki_put_z(b, e->u.request.tokens[i]);
        put_texts(c, e->u.request.versions, e->u.request.nversions);
        break;
    case RLK_EV_RELAUNCH:
        put_s(c, e->u.relaunch.event);
        rlki_put_v(b, e->u.relaunch.repeats);
        rlki_put_v(b, e->u.relaunch.agree);
        rlki_put_u8(b, e->u.relaunch.matches_recorded);
        break;
    case RLK_EV_METRIC:
        put_f64(b, e->u.metric.value);
        break;
    case RLK_EV_READBACK:
        put_s(c, e->u.readback.case_id);
        put_s(c, e->u.readback.implementation);
        put_s(c, e->u.readback.contract);
        rlki_put_v(b, e->u.readback.calls);
        break;
    case RLK_EV_LEAF:
        put_s(c, e->u.leaf.name);
        put_s(c, e->u.leaf.reference);
        put_s(c, e->u.leaf.sha256);
        put_s(c, e->u.leaf.generator);
        rlki_put_v(b, e->u.leaf.seed);
        break;
    case RLK_EV_LAUNCH:
        put_s(c, e->u.launch.entry);
        rlki_put_v(b, e->u.launch.count);
        break;
    case RLK_EV_NOTE:
        put_s(c, e->u.note.code);
        put_s(c, e->u.note.text);
        break;
    case RLK_EV_NONE:
        break;
    }
}

static void put_field_v(struct rlki_buf *b, uint32_t mask, uint32_t bit, uint64_t v)
{
    if (mask & bit)
        rlki_put_v(b, v);
}

static void put_field_z(struct rlki_buf *b, uint32_t mask, uint32_t bit, int64_t v)
{
    if (mask & bit)
        rlki_put_z(b, v);
}

static void put_record(struct ctx *c, const struct rlk_event *e, uint32_t phase, uint32_t module)
{
    const struct rlk_identity *w = &e->who;
    struct rlki_buf *b = c->b;
    uint32_t pass = string(c, w->pass), op = string(c, w->op), sample = string(c, w->sample), id = string(c, e->id);
    uint32_t mask = (e->rank ? RLKI_M_RANK : 0) | (e->thread ? RLKI_M_THREAD : 0) | (phase ? RLKI_M_PHASE : 0) |
                    (pass ? RLKI_M_PASS : 0) | (module ? RLKI_M_MODULE : 0) | (op ? RLKI_M_OP : 0) |
                    (w->call ? RLKI_M_CALL : 0) | (w->occurrence ? RLKI_M_OCCURRENCE : 0) |
                    (e->ntensors ? RLKI_M_TENSORS : 0) | (e->nlaunches ? RLKI_M_LAUNCHES : 0) |
                    (w->step ? RLKI_M_STEP : 0) | (w->work ? RLKI_M_WORK : 0) | (w->iteration ? RLKI_M_ITERATION : 0) |
                    (e->stream ? RLKI_M_STREAM : 0) | (sample ? RLKI_M_SAMPLE : 0) | (id ? RLKI_M_ID : 0) |
                    (e->nattrs ? RLKI_M_ATTRS : 0) | (e->nlaunch_ranges ? RLKI_M_RANGES : 0) |
                    (e->autotune ? RLKI_M_AUTOTUNE : 0);
    rlki_put_u8(b, (uint8_t)e->kind);
    rlki_put_v(b, mask);
    put_field_v(b, mask, RLKI_M_RANK, e->rank);
    put_field_v(b, mask, RLKI_M_THREAD, e->thread);
    put_field_v(b, mask, RLKI_M_PHASE, phase);
    put_field_v(b, mask, RLKI_M_PASS, pass);
    put_field_v(b, mask, RLKI_M_MODULE, module);
    put_field_v(b, mask, RLKI_M_OP, op);
    put_field_v(b, mask, RLKI_M_CALL, w->call);
    put_field_v(b, mask, RLKI_M_OCCURRENCE, w->occurrence);
    if (mask & RLKI_M_TENSORS) {
        uint32_t ordinal[2] = {0, 0};
        rlki_put_v(b, e->ntensors);
        for (uint32_t i = 0; i < e->ntensors; i++)
            put_tensor(c, &e->tensors[i], ordinal[e->tensors[i].role]++, e->seq);
    }
    if (mask & RLKI_M_LAUNCHES) {
        rlki_put_v(b, e->nlaunches);
        for (uint32_t i = 0; i < e->nlaunches; i++)
            put_launch(c, &e->launches[i]);
    }
    put_field_z(b, mask, RLKI_M_STEP, w->step);
    put_field_z(b, mask, RLKI_M_WORK, w->work);
    put_field_z(b, mask, RLKI_M_ITERATION, w->iteration);
    put_field_v(b, mask, RLKI_M_STREAM, e->stream);
    put_field_v(b, mask, RLKI_M_SAMPLE, sample);
    put_field_v(b, mask, RLKI_M_ID, id);
    if (mask & RLKI_M_ATTRS)
        put_attrs(c, e->attrs, e->nattrs);
    if (mask & RLKI_M_RANGES) {
        rlki_put_v(b, e->nlaunch_ranges);
        for (uint32_t i = 0; i < e->nlaunch_ranges; i++) {
            rlki_put_v(b, e->launch_ranges[i].first);
            rlki_put_v(b, e->launch_ranges[i].count);
        }
    }
    put_kind(c, e);
}

int rlki_encode_event(struct rlki_encoder *enc, struct rlki_buf *out, const struct rlk_event *event, uint32_t *phase,
                      uint32_t *module)
{
    struct ctx c = {enc, &enc->record, false};
    enc->record.n = 0;
    *phase = string(&c, event->who.phase);
    *module = string(&c, event->who.module);
    put_record(&c, event, *phase, *module);
    bool oom = c.oom || enc->record.oom || !rlki_buf_room(out, 10 + enc->record.n);
    enc->record.oom = enc->desc.oom = out->oom = false; /* the next event may fit */
    if (oom)
        return RLK_ENOMEM;
    if (enc->record.n > RLKI_MAX_RECORD)
        return RLK_ELIMIT;
    rlki_put_v(out, enc->record.n);
    rlki_put_bytes(out, enc->record.p, enc->record.n);
    return RLK_OK;
}

void rlki_encoder_release(struct rlki_encoder *enc)
{
    rlki_table_release(&enc->strings);
    rlki_table_release(&enc->descs);
    rlki_buf_release(&enc->desc);
    rlki_buf_release(&enc->record);
    *enc = (struct rlki_encoder){0};
}
