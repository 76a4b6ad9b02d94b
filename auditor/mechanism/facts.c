/* facts.c - gathers once what the rules look at. */
#include "auditor/elements.h"
#include "auditor/mechanism/mechanism.h"

#include "store/rlk_dtype_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int fill_of(const json_t *object, const char *key)
{
    const json_t *j = json_object_get(object, key);
    return json_is_integer(j) ? (int)json_integer_value(j) : -1;
}

/* Sums of the same numbers in another order differ by a few units in the last place, or - where they cancel - by a few
 * of the tensor's largest element. */
static enum rlki_size size_of(const struct rlki_facts *f, const json_t *difference)
{
    const struct rlki_change *c = &f->change;
    const json_t *ulp = json_object_get(difference, "max_ulp"), *abs = json_object_get(difference, "max_abs");
    enum rlk_dtype dtype = f->t[0]->dtype;
    if (!c->bytes || rlk_dtype_is_integer(dtype) || rlk_dtype_components(dtype) != 1)
        return RLKI_SIZE_UNKNOWN;
    if (c->nan)
        return RLKI_SIZE_LARGE;
    if (!json_is_integer(ulp) || !json_is_real(abs))
        return RLKI_SIZE_UNKNOWN;
    size_t size = rlk_dtype_bytes(dtype);
    double top = 0, eps;
    for (uint64_t i = 0; i < c->elements; i++)
        for (int s = 0; s < 2; s++) {
            double v = fabs(rlk_scalar_to_double(dtype, rlk_scalar_load(dtype, c->data[s] + i * size)));
            if (isfinite(v) && v > top)
                top = v;
        }
    uint64_t one = rlk_scalar_from_double(dtype, 1.0), next = one;
    if (rlk_scalar_add_ulp(dtype, one, 1, &next) != 0)
        return RLKI_SIZE_UNKNOWN;
    eps = rlk_scalar_to_double(dtype, next) - 1.0;
    if (json_integer_value(ulp) <= 16 || json_real_value(abs) <= 4 * eps * top)
        return RLKI_SIZE_ROUNDING;
    return json_integer_value(ulp) > 256 || json_real_value(abs) > 32 * eps * top ? RLKI_SIZE_LARGE : RLKI_SIZE_BETWEEN;
}

static bool same_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* The bytes of both sides, where the difference was made from them. */
static int load_bytes(struct rlki_facts *f)
{
    struct rlki_change *c = &f->change;
    int rc = RLK_OK;
    if (!f->t[0] || !f->t[1] || f->t[0]->dtype != f->t[1]->dtype || !same_shape(f->t[0], f->t[1]))
        return RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        uint64_t n;
        rc = rlki_bytes_of(f->audit, s, &f->ev[s], f->t[s], &f->owned[s], &n);
        if (rc == RLK_OK && n != c->elements)
            rc = RLK_ENOENT;
        c->data[s] = f->owned[s];
    }
    c->bytes = rc == RLK_OK;
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

static void count_distinct(struct rlki_change *c, const unsigned char *data, size_t size, uint64_t i, uint64_t kinds[4])
{
    bool seen = false;
    for (uint32_t k = 0; k < c->distinct && !seen; k++)
        seen = memcmp(data + kinds[k] * size, data + i * size, size) == 0;
    if (!seen && c->distinct < 4)
        kinds[c->distinct++] = i;
}

/* One pass over the elements: what the changed ones have in common. */
static void scan_elements(struct rlki_facts *f)
{
    struct rlki_change *c = &f->change;
    const enum rlk_dtype dtype = (enum rlk_dtype)f->t[0]->dtype;
    const size_t size = rlk_dtype_bytes(dtype);
    const bool real = !rlk_dtype_is_integer(dtype) && rlk_dtype_components(dtype) == 1;
    const unsigned char *first[2] = {NULL, NULL};
    uint64_t kinds[4]; /* where the different ones stand */
    double calm = 0;   /* the largest element that did not change */
    c->constant[0] = c->constant[1] = c->changed > 1;
    c->all_zero[0] = c->all_zero[1] = c->elements > 0;
    for (uint64_t i = 0; i < c->elements; i++) {
        bool changed = rlki_element_changed(f, i);
        for (int s = 0; s < 2; s++) {
            double v = fabs(rlki_element(f, s, i));
            c->all_zero[s] &= v == 0;
            if (!changed && isfinite(v) && v > calm)
                calm = v;
            if (!changed)
                continue;
            if (!first[s])
                first[s] = c->data[s] + i * size;
            if (s == 0)
                count_distinct(c, c->data[0], size, i, kinds);
            c->constant[s] &= memcmp(first[s], c->data[s] + i * size, size) == 0;
        }
        if (changed && first[0] == c->data[0] + i * size)
            c->first_flat = i;
        if (changed)
            c->last_flat = i;
    }
    for (uint64_t i = 0; real && i < c->elements; i++)
        for (int s = 0; s < 2 && rlki_element_changed(f, i); s++) {
            double v = fabs(rlki_element(f, s, i));
            c->wild[s] += !isfinite(v) || (calm > 0 && v > 256 * calm);
        }
}

static int look_at_change(struct rlki_facts *f, const json_t *difference)
{
    struct rlki_change *c = &f->change;
    c->pattern = text_of(difference, "pattern");
    c->grade = text_of(difference, "grade");
    c->elements = (uint64_t)json_integer_value(json_object_get(difference, "elements"));
    c->changed = (uint64_t)json_integer_value(json_object_get(difference, "changed"));
    c->nan = (uint64_t)json_integer_value(json_object_get(difference, "nan"));
    c->max_ulp = (uint64_t)json_integer_value(json_object_get(difference, "max_ulp"));
    c->max_abs = json_number_value(json_object_get(difference, "max_abs"));
    c->fill[0] = fill_of(difference, "fill_a");
    c->fill[1] = fill_of(difference, "fill_b");
    if (!json_is_integer(json_object_get(difference, "changed")))
        return RLK_OK;
    int rc = load_bytes(f);
    if (rc || !c->bytes)
        return rc;
    scan_elements(f);
    c->size = size_of(f, difference);
    return RLK_OK;
}

/* What repeats and relaunches of each side say of this event. */
static int look_at_repeats(struct rlki_facts *f)
{
    const uint64_t key = f->found->event_key;
    for (int s = 0; s < 2; s++) {
        const struct rlki_repeats *r = &f->audit->repeats[s];
        struct rlki_relaunch again;
        if (rlki_hash_get(&r->root, key, NULL))
            f->repeat[s] = rlki_hash_get(&r->retuned, key, NULL) ? RLKI_REPEAT_RETUNED : RLKI_REPEAT_VARIES;
        else if (r->n && !rlki_hash_get(&r->down, key, NULL))
            f->repeat[s] = RLKI_REPEAT_STEADY;
        int rc = f->output ? rlki_relaunch_of(f, s, &again) : RLK_OK;
        if (rc)
            return rc;
        if (f->output && again.repeats > 1 && again.agree + 1 < again.repeats)
            f->repeat[s] = RLKI_REPEAT_VARIES;
        else if (f->output && again.repeats > 1 && again.matches && again.agree == again.repeats)
            f->relaunched = true;
    }
    return RLK_OK;
}

int rlki_facts_gather(struct rlki_facts *f, struct rlki_audit *audit, const struct rlki_found *found,
                      const json_t *difference)
{
    int rc = RLK_OK;
    memset(f, 0, sizeof *f);
    f->audit = audit;
    f->found = found;
    f->change.pattern = f->change.grade = "";
    f->change.fill[0] = f->change.fill[1] = -1;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        rc = rlki_located(audit, found, s, &f->arena, &f->ev[s], &f->t[s]);
        f->has[s] = rc == RLK_OK;
        if (rc == RLK_ENOENT)
            rc = RLK_OK;
    }
    f->both = f->has[0] && f->has[1] && !found->extra;
    f->output = found->role == RLK_ROLE_OUT;
    if (rc || !f->both)
        return rc;
    rc = look_at_repeats(f);
    if (rc)
        return rc;
    f->same_event = f->ev[0].op == f->ev[1].op && f->ev[0].e.kind == f->ev[1].e.kind;
    f->shapes_differ = f->t[0] && f->t[1] && !same_shape(f->t[0], f->t[1]);
    rc = look_at_change(f, difference);
    if (rc == RLK_OK && f->same_event)
        rc = rlki_facts_launches(f);
    if (rc == RLK_OK && !f->output)
        rc = rlki_facts_producers(f);
    return rc;
}

void rlki_facts_release(struct rlki_facts *f)
{
    free(f->owned[0]);
    free(f->owned[1]);
    rlk_arena_release(&f->arena);
}
