/* OUT(event) and IN(event) of docs/format.md: hashes of what makes two events "the same", and of nothing else. */
#include "store/rlk_rollup.h"

#include <xxhash.h>

/* Canonical bytes are short except for lists: they go through a small buffer into a streaming state when it is full. */
struct sink {
    size_t n;
    bool streaming;
    uint8_t bytes[1024];
    XXH3_state_t state;
};

static void sink_start(struct sink *s)
{
    s->n = 0;
    s->streaming = false;
}

static void put(struct sink *s, const void *p, size_t n)
{
    if (n <= sizeof s->bytes - s->n) {
        if (n)
            memcpy(s->bytes + s->n, p, n);
        s->n += n;
        return;
    }
    if (!s->streaming)
        XXH3_128bits_reset(&s->state);
    s->streaming = true;
    XXH3_128bits_update(&s->state, s->bytes, s->n);
    s->n = 0;
    XXH3_128bits_update(&s->state, p, n);
}

static rlk_u128 sink_end(struct sink *s)
{
    XXH128_hash_t h;
    if (s->streaming) {
        XXH3_128bits_update(&s->state, s->bytes, s->n);
        h = XXH3_128bits_digest(&s->state);
    } else {
        h = XXH3_128bits(s->bytes, s->n);
    }
    return (rlk_u128){h.low64, h.high64};
}

static void put_u8(struct sink *s, uint8_t v)
{
    put(s, &v, sizeof v);
}

static void put_u32(struct sink *s, uint32_t v)
{
    put(s, &v, sizeof v);
}

static void put_u64(struct sink *s, uint64_t v)
{
    put(s, &v, sizeof v);
}

static void put_u128(struct sink *s, rlk_u128 v)
{
    put_u64(s, v.lo);
    put_u64(s, v.hi);
}

static void put_h(struct sink *s, const char *text)
{
    XXH128_hash_t h = XXH3_128bits(text ? text : "", text ? strlen(text) : 0);
    put_u64(s, h.low64);
    put_u64(s, h.high64);
}

static void put_sums(struct sink *s, const struct rlk_sums *v)
{
    put_u128(s, v->positional);
    put_u128(s, v->value);
    put_u64(s, v->multiset);
    put_u64(s, v->elements);
    put_u64(s, v->nan);
    put_u64(s, v->inf);
    put_u64(s, v->negzero);
}

static void put_place(struct sink *s, const struct rlk_place *p)
{
    size_t runs = 0;
    put_u32(s, p->ndim);
    for (uint32_t i = 0; i < p->ndim; i++)
        put_u64(s, p->shape[i]);
    for (uint32_t i = 0; i < p->ndim; i++) {
        put_u32(s, p->nruns[i]);
        runs += p->nruns[i] == RLK_WHOLE ? 0 : p->nruns[i];
    }
    for (size_t i = 0; i < runs; i++) {
        put_u64(s, p->runs[i].start);
        put_u64(s, p->runs[i].extent);
    }
    put_h(s, p->partial);
    put_h(s, p->replica);
    put_h(s, p->zero);
}

static rlk_u128 tensor_hash(struct sink *s, rlk_u128 id, const struct rlk_tensor *t)
{
    sink_start(s);
    put_u128(s, id);
    put_u8(s, t->role);
    put_u8(s, t->state);
    put_u8(s, t->dtype);
    put_u8(s, t->composable);
    put_u32(s, t->index);
    put_h(s, t->name);
    put_h(s, t->state == RLK_T_UNDEFINED || t->state == RLK_T_NOT_DIGESTED ? t->reason : "");
    put_u32(s, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        put_u64(s, t->shape[i]);
    if (t->state == RLK_T_DIGESTED)
        put_sums(s, &t->sums);
    if (t->place)
        put_place(s, t->place);
    put_u32(s, t->nsamples);
    for (uint32_t i = 0; i < t->nsamples; i++) {
        put_h(s, t->samples[i].id);
        put_u64(s, t->samples[i].start);
        put_u64(s, t->samples[i].extent);
        put_u8(s, t->samples[i].has_sums);
        if (t->samples[i].has_sums)
            put_sums(s, &t->samples[i].sums);
    }
    return sink_end(s);
}

#define ID_BYTES 113u
static void identity(uint8_t id[ID_BYTES], const struct rlk_event *e)
{
    const struct rlk_identity *w = &e->who;
    const char *const texts[] = {w->phase, w->pass, w->module, w->op, w->sample};
    id[0] = (uint8_t)e->kind;
    memcpy(id + 1, &w->step, 8);
    memcpy(id + 9, &w->work, 8);
    memcpy(id + 17, &w->iteration, 8);
    memcpy(id + 25, &w->call, 4);
    memcpy(id + 29, &w->occurrence, 4);
    for (size_t i = 0; i < 5; i++) {
        XXH128_hash_t h = XXH3_128bits(texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) : 0);
        memcpy(id + 33 + 16 * i, &h.low64, 8);
        memcpy(id + 41 + 16 * i, &h.high64, 8);
    }
}

static void facts_out(struct sink *s, const struct rlk_event *e)
{
    if (e->kind == RLK_EV_METRIC) {
        put(s, &e->u.metric.value, sizeof e->u.metric.value);
    } else if (e->kind == RLK_EV_COLLECTIVE) {
        put_h(s, e->u.collective.group);
        put_u32(s, e->u.collective.nmembers);
        for (uint32_t i = 0; i < e->u.collective.nmembers; i++)
            put_h(s, e->u.collective.members[i]);
    }
}

static void facts_in(struct sink *s, const struct rlk_event *e)
{
    if (e->kind == RLK_EV_RNG) {
        put_h(s, e->u.rng.generator);
        put_u64(s, e->u.rng.seed);
        put_u64(s, e->u.rng.offset);
        put_u64(s, e->u.rng.grid);
    } else if (e->kind == RLK_EV_REQUEST) {
        put_h(s, e->u.request.id);
        put_u32(s, e->u.request.ntokens);
        if (e->u.request.ntokens)
            put(s, e->u.request.tokens, e->u.request.ntokens * sizeof(int64_t));
    } else if (e->kind == RLK_EV_LEAF) {
        put_h(s, e->u.leaf.name);
        put_h(s, e->u.leaf.reference);
        put_h(s, e->u.leaf.sha256);
        put_h(s, e->u.leaf.generator);
        put_u64(s, e->u.leaf.seed);
    }
}

void rlki_event_sums(const struct rlk_event *e, rlk_u128 *out, rlk_u128 *in)
{
    struct sink s; /* not zeroed: sink_start sets what is read */
    uint8_t id[ID_BYTES];
    identity(id, e);
    XXH128_hash_t h = XXH3_128bits(id, sizeof id);
    rlk_u128 hash = {h.low64, h.high64};
    sink_start(&s);
    put(&s, id, sizeof id);
    put_u8(&s, 'o');
    facts_out(&s, e);
    *out = sink_end(&s);
    sink_start(&s);
    put(&s, id, sizeof id);
    put_u8(&s, 'i');
    facts_in(&s, e);
    *in = sink_end(&s);
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        if (t->role == RLK_ROLE_OUT)
            *out = rlk_u128_add(*out, tensor_hash(&s, hash, t));
        else if (t->state != RLK_T_REFERENCE)
            *in = rlk_u128_add(*in, tensor_hash(&s, hash, t));
    }
}
