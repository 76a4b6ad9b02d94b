/* parts.c - from an event to the parts of logical tensors that it holds. */
#include "auditor/parts.h"
#include "auditor/mapfile.h"

#include "store/rlk_digest.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t text_hash(const char *text)
{
    return XXH3_64bits(text, strlen(text));
}

static uint64_t place_hash(const struct rlk_place *place)
{
    uint64_t h = 47;
    size_t n = 0;
    if (!place)
        return 0;
    for (uint32_t d = 0; d < place->ndim; d++) {
        h = rlki_mix(h, place->shape[d]);
        h = rlki_mix(h, place->nruns[d]);
        for (uint32_t r = 0; place->nruns[d] != RLK_WHOLE && r < place->nruns[d]; r++, n++)
            h = rlki_mix(rlki_mix(h, place->runs[n].start), place->runs[n].extent);
    }
    return h ? h : 1;
}

/* (step, phase, sample or work, pass, module, call, name, role); n-th is added by the caller. */
static uint64_t base_key(const struct rlki_audit *audit, const struct rlki_ev *ev, const struct rlk_tensor *t,
                         uint32_t module, uint32_t name, const char *sample, bool with_work)
{
    const struct rlk_identity *who = &ev->e.who;
    uint64_t h = rlki_mix(53, (uint64_t)who->step);
    if (!audit->opt.phases)
        h = rlki_mix(h, rlki_names_hash(&audit->names, ev->phase));
    h = rlki_mix(h, text_hash(sample));
    if (with_work)
        h = rlki_mix(rlki_mix(h, (uint64_t)who->work), (uint64_t)who->iteration);
    h = rlki_mix(h, rlki_names_hash(&audit->names, ev->pass));
    h = rlki_mix(h, rlki_names_hash(&audit->names, module));
    h = rlki_mix(h, who->call);
    if (name)
        h = rlki_mix(h, rlki_names_hash(&audit->names, name));
    else
        h = rlki_mix(rlki_mix(h, rlki_names_hash(&audit->names, ev->op)), t->index);
    return rlki_mix(h, t->role);
}

static uint64_t weights_key(const struct rlki_ev *ev, uint32_t name, uint64_t nth)
{
    uint64_t h = rlki_mix(59, (uint64_t)ev->e.who.step);
    h = rlki_mix(rlki_mix(h, text_hash(ev->e.u.weights.side)), nth);
    return rlki_mix(h, name);
}

static bool no_elements(const struct rlk_tensor *t)
{
    for (uint32_t d = 0; d < t->ndim; d++)
        if (t->shape[d] == 0)
            return true;
    return false;
}

static struct rlki_part *new_part(struct rlki_parts *parts, int side, const struct rlki_ev *ev)
{
    if (!rlki_grow(&parts->part, &parts->cap, parts->n, sizeof *parts->part))
        return NULL;
    struct rlki_part *p = &parts->part[parts->n++];
    *p = (struct rlki_part){.side = (uint8_t)side,
                            .rank = ev->e.rank,
                            .env = ev->env,
                            .seq = ev->e.seq,
                            .tensor = UINT32_MAX,
                            .composable = true};
    return p;
}

static int copy_shape(struct rlki_parts *parts, struct rlki_part *p, uint32_t ndim, const uint64_t *shape)
{
    uint64_t *copy = rlk_arena_alloc(&parts->arena, (ndim + 1) * sizeof *copy, sizeof *copy);
    if (!copy)
        return RLK_ENOMEM;
    if (ndim)
        memcpy(copy, shape, ndim * sizeof *copy);
    p->shape = copy;
    p->ndim = ndim;
    return RLK_OK;
}

/* The digest that the bytes have at another placement than they were digested with. */
static int digest_again(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                        struct rlki_part *p)
{
    void *bytes = NULL;
    size_t n = 0;
    if (rlk_place_is_whole(p->place))
        return RLK_OK;
    p->reason = rlki_names_id(&audit->names, "placed-without-bytes");
    if (!t->has_payload)
        return RLK_OK;
    int rc =
        rlk_env_payload(audit->side[side].env[ev->env].env, t->payload, UINT64_C(1) << 30, &bytes, &n, audit->detail);
    if (rc == RLK_ENOENT || rc == RLK_ELIMIT)
        return RLK_OK;
    if (rc)
        return rc;
    struct rlk_view view = {
        .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .storage = bytes, .storage_bytes = n};
    rc = rlk_digest_view(&p->sums, &p->composable, &view, p->place, NULL);
    free(bytes);
    if (rc == RLK_OK)
        p->reason = 0;
    return rc == RLK_ENOMEM ? rc : RLK_OK;
}

static int describe(struct rlki_audit *audit, struct rlki_parts *parts, struct rlki_part *p, int side,
                    const struct rlki_ev *ev, const struct rlk_tensor *t, struct rlk_place *mapped)
{
    p->role = t->role;
    p->dtype = t->dtype;
    p->tensor = (uint32_t)(t - ev->e.tensors);
    p->index = t->index;
    p->noutputs = rlki_ev_count(ev, RLK_ROLE_OUT);
    p->composable = t->composable;
    if (t->state == RLK_T_DIGESTED)
        p->sums = t->sums;
    else
        p->reason = rlki_names_id(
            &audit->names, t->state == RLK_T_NOT_DIGESTED && t->reason && t->reason[0] ? t->reason : "undefined");
    p->place = t->place ? rlk_place_copy(&parts->arena, t->place) : mapped;
    if (t->place && !p->place)
        return RLK_ENOMEM;
    p->place_hash = place_hash(p->place);
    int rc = copy_shape(parts, p, p->place ? p->place->ndim : t->ndim, p->place ? p->place->shape : t->shape);
    if (rc == RLK_OK && mapped && !t->place && !p->reason)
        rc = digest_again(audit, side, ev, t, p);
    return rc;
}

/* One part for each sample of a tensor with per-sample sums. */
static int sample_parts(struct rlki_audit *audit, struct rlki_parts *parts, int side, const struct rlki_ev *ev,
                        const struct rlk_tensor *t, uint32_t module, uint32_t name, struct rlki_hash *counts)
{
    for (uint32_t i = 0; i < t->nsamples; i++) {
        const struct rlk_sample_part *s = &t->samples[i];
        uint64_t once = base_key(audit, ev, t, module, name, s->id, true);
        uint64_t nth = rlki_hash_count(counts, once, 1);
        struct rlki_part *p = new_part(parts, side, ev);
        if (!p)
            return RLK_ENOMEM;
        int rc = describe(audit, parts, p, side, ev, t, NULL);
        if (rc)
            return rc;
        uint64_t *shape = rlk_arena_alloc(&parts->arena, (p->ndim + 1) * sizeof *shape, sizeof *shape);
        if (!shape)
            return RLK_ENOMEM;
        if (p->ndim)
            memcpy(shape, p->shape, p->ndim * sizeof *shape);
        if (p->ndim)
            shape[0] = s->extent;
        p->shape = shape;
        p->sample = true;
        p->sample_at = i;
        p->sample_name = rlki_names_id(&audit->names, s->id);
        p->sums = s->sums;
        p->slice = rlki_mix(rlki_mix(rlki_mix(61, (uint64_t)ev->e.who.work), (uint64_t)ev->e.who.iteration), s->start);
        p->key = rlki_mix(base_key(audit, ev, t, module, name, s->id, false), nth);
    }
    return RLK_OK;
}

static bool per_sample(const struct rlk_tensor *t)
{
    bool all = t->nsamples > 0 && t->state == RLK_T_DIGESTED && !(t->place && t->place->partial);
    for (uint32_t i = 0; i < t->nsamples && all; i++)
        all = t->samples[i].has_sums;
    return all;
}

int rlki_part_place(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                    struct rlk_arena *arena, uint32_t *module, uint32_t *name, struct rlk_place **place)
{
    uint32_t own = ev->module, called = rlki_names_id(&audit->names, t->name);
    *module = own;
    *name = called;
    *place = NULL;
    int rc = rlki_map_tensor(audit, side, own, called, module, name, t, arena, place);
    if (rc == RLK_OK && !*place && !t->place)
        rc = rlki_dims_place(audit, side, *module, t, ev->e.rank, arena, place);
    return rc;
}

int rlki_parts_of(struct rlki_audit *audit, struct rlki_parts *parts, int side, const struct rlki_ev *ev,
                  struct rlki_hash *counts)
{
    uint64_t event_nth = 0;
    if (ev->e.kind == RLK_EV_METRIC) {
        struct rlki_part *p = new_part(parts, side, ev);
        uint64_t key = rlki_mix(rlki_mix(67, (uint64_t)ev->e.who.step), rlki_names_hash(&audit->names, ev->op));
        if (!p)
            return RLK_ENOMEM;
        p->metric = true;
        p->dtype = RLK_FP64;
        p->role = RLK_ROLE_OUT;
        memcpy(&p->sums.positional.lo, &ev->e.u.metric.value, sizeof(double));
        p->sums.elements = 1;
        p->key = rlki_mix(key, rlki_hash_count(counts, key, 1));
        return RLK_OK;
    }
    if (ev->e.kind == RLK_EV_WEIGHTS)
        event_nth = rlki_hash_count(counts, rlki_mix(71, text_hash(ev->e.u.weights.side)), 1);
    for (uint32_t i = 0; i < ev->e.ntensors; i++) {
        const struct rlk_tensor *t = &ev->e.tensors[i];
        uint32_t module, name;
        struct rlk_place *mapped;
        /* An empty part of an input says nothing, and where its siblings are references it would stand alone. */
        if (t->role == RLK_ROLE_IN && (t->state == RLK_T_REFERENCE || no_elements(t)))
            continue;
        int rc = rlki_part_place(audit, side, ev, t, &parts->arena, &module, &name, &mapped);
        if (rc)
            return rc;
        if (per_sample(t) && ev->e.kind != RLK_EV_WEIGHTS) {
            rc = sample_parts(audit, parts, side, ev, t, module, name, counts);
            if (rc)
                return rc;
            continue;
        }
        struct rlki_part *p = new_part(parts, side, ev);
        if (!p)
            return RLK_ENOMEM;
        rc = describe(audit, parts, p, side, ev, t, mapped);
        if (rc)
            return rc;
        if (ev->e.kind == RLK_EV_WEIGHTS) {
            p->key = weights_key(ev, name, event_nth);
            if (!p->place && audit->same_layout)
                p->key = rlki_mix(p->key, ev->e.rank);
            continue;
        }
        p->gradient = t->role == RLK_ROLE_OUT && rlki_is_gradient_name(t->name);
        if (p->gradient) { /* once a step */
            p->key = rlki_mix(rlki_mix(rlki_mix(73, (uint64_t)ev->e.who.step), rlki_names_hash(&audit->names, module)),
                              rlki_names_hash(&audit->names, name));
            if (!p->place && audit->same_layout)
                p->key = rlki_mix(p->key, ev->e.rank);
            continue;
        }
        const char *sample = ev->e.who.sample ? ev->e.who.sample : "";
        uint64_t base = base_key(audit, ev, t, module, name, sample, !*sample);
        bool partial = p->place && p->place->partial && *p->place->partial;
        uint64_t nth = partial ? UINT64_MAX : rlki_hash_count(counts, base, 1);
        p->key = rlki_mix(base, nth);
        if (!p->place && audit->same_layout) /* the same layout on both sides: local tensors rank by rank */
            p->key = rlki_mix(p->key, ev->e.rank);
    }
    return RLK_OK;
}
