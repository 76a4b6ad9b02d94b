#include "recorder/synth/synth_eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_at(const struct sy_eval *eval, const struct sy_where *w, int code, const char *rest, const char *text)
{
    return rlk_fail(eval->detail, code, "events[%zu].%s[%zu]%s: %s (rank %u)", w->event, w->list, w->index, rest, text,
                    eval->rank);
}

static int fail_held(const struct sy_eval *eval, const struct sy_where *w, int code)
{
    char text[128];
    if (code != RLK_ELIMIT)
        return code;
    snprintf(text, sizeof text, "the tensors that must be held here exceed %llu bytes",
             (unsigned long long)eval->heap.max);
    return fail_at(eval, w, code, "", text);
}

static void result_clear(struct sy_result *r)
{
    for (uint32_t i = 0; i < r->ndeps; i++)
        sy_value_drop(r->deps[i]);
    free(r->deps);
    free(r->samples);
    sy_value_drop(r->value);
    *r = (struct sy_result){0};
}

static void made_clear(struct sy_made *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        sy_value_drop(m->outputs[i].value);
    m->n = 0;
}

int sy_eval_init(struct sy_eval *eval, const struct sy_spec *spec, struct rlk_detail *detail)
{
    *eval = (struct sy_eval){.spec = spec, .detail = detail, .heap = {0, spec->max_bytes}};
    eval->results = calloc((size_t)spec->ntensors + 1, sizeof *eval->results);
    eval->latest = calloc((size_t)spec->nnames + 1, sizeof *eval->latest);
    eval->by_name = calloc((size_t)spec->nnames + 1, sizeof *eval->by_name);
    eval->by_alloc = calloc((size_t)spec->nallocs + 1, sizeof *eval->by_alloc);
    eval->occurrences = calloc((size_t)spec->noccurrences + 1, sizeof *eval->occurrences);
    if (!eval->results || !eval->latest || !eval->by_name || !eval->by_alloc || !eval->occurrences ||
        sy_value_new(&eval->heap, RLK_UINT8, 0, &eval->marker)) {
        sy_eval_release(eval);
        return RLK_ENOMEM;
    }
    return RLK_OK;
}

void sy_eval_begin_rank(struct sy_eval *eval, uint32_t rank)
{
    const struct sy_spec *spec = eval->spec;

    eval->rank = rank;
    for (uint32_t i = 0; i < spec->nnames; i++) {
        sy_value_drop(eval->latest[i]);
        eval->latest[i] = NULL;
        made_clear(&eval->by_name[i]);
    }
    for (uint32_t i = 0; i < spec->nallocs; i++)
        made_clear(&eval->by_alloc[i]);
    memset(eval->occurrences, 0, spec->noccurrences * sizeof *eval->occurrences);
}

void sy_eval_release(struct sy_eval *eval)
{
    const struct sy_spec *spec = eval->spec;

    if (!spec)
        return;
    for (uint32_t i = 0; eval->results && i < spec->ntensors; i++)
        result_clear(&eval->results[i]);
    if (eval->latest && eval->by_name && eval->by_alloc && eval->occurrences)
        sy_eval_begin_rank(eval, 0);
    for (uint32_t i = 0; eval->by_name && i < spec->nnames; i++)
        free(eval->by_name[i].outputs);
    for (uint32_t i = 0; eval->by_alloc && i < spec->nallocs; i++)
        free(eval->by_alloc[i].outputs);
    sy_value_drop(eval->marker);
    free(eval->results);
    free(eval->latest);
    free(eval->by_name);
    free(eval->by_alloc);
    free(eval->occurrences);
    free(eval->bits);
    *eval = (struct sy_eval){0};
}

/* The values t is made from on this rank, in the order fill, then edits; a NULL entry where there is none. */
static int find_deps(const struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where,
                     struct sy_value **deps)
{
    char place[48];

    deps[0] = NULL;
    if (t->fill.kind == SY_FILL_LIKE || t->fill.kind == SY_FILL_CAST_OF) {
        deps[0] = eval->latest[t->fill.name];
        if (!deps[0])
            return fail_at(eval, where, RLK_EPARSE, ".fill", "no earlier tensor of that name on this rank");
        if (t->fill.kind == SY_FILL_LIKE && deps[0]->dtype != t->dtype)
            return fail_at(eval, where, RLK_EPARSE, ".fill.like", "that tensor has another dtype: see cast_of");
        if (deps[0]->numel != t->numel)
            return fail_at(eval, where, RLK_EPARSE, ".fill", "that tensor has another number of elements");
    }
    for (uint32_t i = 0; i < t->nedits; i++) {
        const struct sy_edit *e = &t->edits[i];
        struct sy_value *from = NULL;
        snprintf(place, sizeof place, ".edit[%u].change.from", i);
        if (e->change.kind == SY_CHANGE_FROM) {
            from = eval->latest[e->change.name];
            if (!from)
                return fail_at(eval, where, RLK_EPARSE, place, "no earlier tensor of that name on this rank");
            if (from->dtype != t->dtype || from->numel != t->numel)
                return fail_at(eval, where, RLK_EPARSE, place, "that tensor has another dtype or number of elements");
        }
        deps[1 + 2 * i] = from;
        deps[2 + 2 * i] = e->mask.kind == SY_MASK_SHARD && e->mask.rank == eval->rank ? eval->marker : NULL;
    }
    return RLK_OK;
}

static int room_for_bits(struct sy_eval *eval, uint64_t numel)
{
    uint64_t words = (numel + 63) / 64;
    if (words > eval->bits_words) {
        uint64_t *bits = realloc(eval->bits, (size_t)words * sizeof *bits);
        if (!bits)
            return RLK_ENOMEM;
        eval->bits = bits;
        eval->bits_words = words;
    }
    return RLK_OK;
}

static int apply_edits(struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where,
                       struct sy_value *const *deps, struct sy_value *v)
{
    int rc = t->nedits ? room_for_bits(eval, t->numel) : RLK_OK;

    for (uint32_t i = 0; i < t->nedits && !rc && t->numel; i++) {
        const struct sy_edit *e = &t->edits[i];
        uint64_t element = 0;
        sy_mask_build(&e->mask, t, eval->rank, eval->bits);
        rc = sy_change_apply(&e->change, t, v, eval->bits, deps[1 + 2 * i], &element);
        if (rc == RLK_EINVAL) {
            char place[48], text[96];
            snprintf(place, sizeof place, ".edit[%u].change.ulp", i);
            snprintf(text, sizeof text, "element %llu goes past %s", (unsigned long long)element,
                     t->dtype == RLK_FP8_E4M3 ? "the largest value" : "Inf");
            return fail_at(eval, where, RLK_EPARSE, place, text);
        }
    }
    return fail_held(eval, where, rc);
}

/* The value from its dependencies. An unedited `like` shares the bytes. */
static int make_value(struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where,
                      struct sy_value *const *deps, struct sy_value **out)
{
    struct sy_value *v = NULL;
    int rc;

    if (t->fill.kind == SY_FILL_LIKE && !t->nedits) {
        *out = sy_value_keep(deps[0]);
        return RLK_OK;
    }
    rc = t->fill.kind == SY_FILL_LIKE ? sy_value_copy(deps[0], &v) : sy_value_new(&eval->heap, t->dtype, t->numel, &v);
    if (rc)
        return fail_held(eval, where, rc);
    if (t->fill.kind == SY_FILL_CAST_OF)
        sy_fill_cast(deps[0], v);
    else if (t->fill.kind != SY_FILL_LIKE)
        sy_fill_generate(&t->fill, v);
    rc = apply_edits(eval, t, where, deps, v);
    if (rc)
        sy_value_drop(v);
    else
        *out = v;
    return rc;
}

/* results[t->memo] holds t's value on this rank: the one from the last rank if it is made from the same values. */
static int evaluate(struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where,
                    struct sy_result **out)
{
    struct sy_result *r = &eval->results[t->memo], fresh = {0};
    uint32_t ndeps = 1 + 2 * t->nedits;
    struct sy_value **deps = calloc(ndeps, sizeof *deps);
    int rc = deps ? find_deps(eval, t, where, deps) : RLK_ENOMEM;

    if (rc)
        goto out;
    *out = r;
    if (r->valid && memcmp(r->deps, deps, ndeps * sizeof(*deps)) == 0)
        goto out;
    rc = make_value(eval, t, where, deps, &fresh.value);
    if (rc)
        goto out;
    for (uint32_t i = 0; i < ndeps; i++)
        sy_value_keep(deps[i]);
    fresh.valid = true;
    fresh.deps = deps;
    fresh.ndeps = ndeps;
    deps = NULL;
    result_clear(r);
    *r = fresh;
out:
    free(deps);
    return rc;
}

/* The lowest output of the input's producer that is equal to it; NULL if none. */
static const struct sy_output *find_producer(const struct sy_eval *eval, const struct sy_tensor *t,
                                             const struct sy_value *v, uint64_t *seq)
{
    const struct sy_made *m = t->has_alloc ? &eval->by_alloc[t->alloc_id] : &eval->by_name[t->name_id];
    *seq = m->seq;
    for (uint32_t i = 0; i < m->n; i++)
        if (sy_value_equal(m->outputs[i].value, v))
            return &m->outputs[i];
    return NULL;
}

static int describe(struct sy_eval *eval, const struct sy_tensor *t, struct sy_result *r, bool is_input,
                    struct rlk_tensor *out)
{
    const struct sy_output *producer = NULL;
    uint64_t seq = 0;
    int rc = RLK_OK;

    *out = (struct rlk_tensor){.name = t->name,
                               .role = is_input ? RLK_ROLE_IN : RLK_ROLE_OUT,
                               .state = t->state,
                               .dtype = (uint8_t)t->dtype,
                               .composable = true,
                               .ndim = t->ndim,
                               .shape = t->shape,
                               .reason = t->reason,
                               .place = t->place,
                               .alloc = t->alloc,
                               .version = t->version};
    if (t->state != RLK_T_DIGESTED)
        return RLK_OK;
    if (is_input)
        producer = find_producer(eval, t, r->value, &seq);
    out->composable = rlk_place_composable(t->place, t->dtype);
    if (producer && !t->nsamples)
        goto reference;
    if (!r->digested)
        rc = sy_digest(t, r, eval->detail);
    if (rc)
        return rc;
    out->composable = r->composable;
    out->nsamples = t->nsamples;
    out->samples = r->samples;
    if (!producer) {
        out->sums = r->sums;
        return RLK_OK;
    }
reference:
    out->state = RLK_T_REFERENCE;
    out->ref_event = seq;
    out->ref_output = producer->index;
    return sy_view(t, producer->tensor, &out->ref_view);
}

int sy_eval_tensor(struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where, bool is_input,
                   struct rlk_tensor *out)
{
    struct sy_result *r = NULL;
    int rc = evaluate(eval, t, where, &r);

    if (!rc)
        rc = describe(eval, t, r, is_input, out);
    if (rc)
        return rc;
    sy_value_drop(eval->latest[t->name_id]);
    eval->latest[t->name_id] = sy_value_keep(r->value);
    return RLK_OK;
}

void sy_eval_done(struct sy_eval *eval, const struct sy_tensor *t)
{
    struct sy_result *r = &eval->results[t->memo];

    /* Kept for the next rank only while all values together leave room for what must be held. */
    if (r->valid && (eval->spec->ranks == 1 || eval->heap.held > eval->heap.max / 4))
        result_clear(r);
}

static int made_add(struct sy_made *m, const struct sy_tensor *t, uint64_t seq, uint32_t index, struct sy_value *v)
{
    if (m->n && m->seq != seq)
        made_clear(m);
    if (m->n == m->room) {
        uint32_t room = m->room ? m->room * 2 : 4;
        struct sy_output *outputs = realloc(m->outputs, room * sizeof *outputs);
        if (!outputs)
            return RLK_ENOMEM;
        m->outputs = outputs;
        m->room = room;
    }
    m->seq = seq;
    m->outputs[m->n++] = (struct sy_output){index, t, sy_value_keep(v)};
    return RLK_OK;
}

int sy_eval_produced(struct sy_eval *eval, const struct sy_tensor *t, uint64_t seq, uint32_t index)
{
    struct sy_value *v = eval->results[t->memo].value;
    int rc = made_add(&eval->by_name[t->name_id], t, seq, index, v);
    return rc || !t->has_alloc ? rc : made_add(&eval->by_alloc[t->alloc_id], t, seq, index, v);
}
