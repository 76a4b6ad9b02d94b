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

static bool same_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* The bytes of both sides, where the difference was made from them. */
static int load_bytes(struct rlki_facts *f)
{
    struct rlki_change *c = &f->change;
    int rc = RLK_OK;
    if (!f->t[0] || !f->t[1] || f->t[0]->dtype != f->t[1]->dtype)
        return RLK_OK;
    if (rlki_kept_bytes(f->audit, f->found, c->data, &c->ndim, &c->shape)) {
        c->bytes = true;
        return RLK_OK;
    }
    if (f->found->no_rank || !same_shape(f->t[0], f->t[1]))
        return RLK_OK;
    c->ndim = f->t[0]->ndim;
    c->shape = f->t[0]->shape;
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

/* Magnitudes of floating point numbers order as their bits do without the sign: no element is converted. */
struct scan {
    size_t size;
    uint64_t magnitude, limit; /* mask; magnitudes from `limit` on are no finite number */
    uint64_t calm, top;        /* largest finite magnitude of the elements that did not change, and of all */
    bool real;
};

static inline uint64_t load(const unsigned char *data, size_t size, uint64_t i)
{
    uint64_t bits = 0;
    switch (size) { /* the library's processors are little-endian */
    case 1:
        return data[i];
    case 2:
        memcpy(&bits, data + 2 * i, 2);
        return bits;
    case 4:
        memcpy(&bits, data + 4 * i, 4);
        return bits;
    default:
        memcpy(&bits, data + 8 * i, 8);
        return bits;
    }
}

/* What the changed elements have in common; one that changed. */
static void changed_element(struct rlki_change *c, uint64_t i, const uint64_t bits[2], uint64_t first[2],
                            uint64_t kinds[4])
{
    bool known = false;
    if (!c->seen++) {
        c->first_flat = i;
        first[0] = bits[0];
        first[1] = bits[1];
    }
    c->last_flat = i;
    for (int s = 0; s < 2; s++)
        c->constant[s] &= first[s] == bits[s];
    for (uint32_t k = 0; k < c->distinct && !known; k++)
        known = kinds[k] == bits[0];
    if (!known && c->distinct < 4)
        kinds[c->distinct++] = bits[0];
}

static void scan_elements(struct rlki_facts *f, struct scan *s)
{
    struct rlki_change *c = &f->change;
    uint64_t first[2] = {0, 0}, kinds[4], any[2] = {0, 0};
    c->constant[0] = c->constant[1] = c->changed > 1;
    for (uint64_t i = 0; i < c->elements; i++) {
        const uint64_t bits[2] = {load(c->data[0], s->size, i), load(c->data[1], s->size, i)};
        const uint64_t x = bits[0] & s->magnitude, y = bits[1] & s->magnitude;
        any[0] |= x;
        any[1] |= y;
        s->top = x < s->limit && x > s->top ? x : s->top;
        s->top = y < s->limit && y > s->top ? y : s->top;
        if (bits[0] != bits[1])
            changed_element(c, i, bits, first, kinds);
        else if (x < s->limit && x > s->calm)
            s->calm = x;
    }
    c->all_zero[0] = c->elements && !any[0];
    c->all_zero[1] = c->elements && !any[1];
}

/* Changed elements that are no number, or far beyond those that did not change. */
static void count_wild(struct rlki_facts *f, const struct scan *s)
{
    struct rlki_change *c = &f->change;
    const enum rlk_dtype dtype = (enum rlk_dtype)f->t[0]->dtype;
    double calm = rlk_scalar_to_double(dtype, s->calm);
    uint64_t far = calm > 0 ? rlk_scalar_from_double(dtype, 256 * calm) & s->magnitude : s->limit;
    far = far < s->limit ? far : s->limit;
    for (uint64_t i = c->first_flat; i <= c->last_flat && i < c->elements; i++) {
        uint64_t x = load(c->data[0], s->size, i), y = load(c->data[1], s->size, i);
        if (x == y)
            continue;
        c->wild[0] += (x & s->magnitude) > far || (x & s->magnitude) >= s->limit;
        c->wild[1] += (y & s->magnitude) > far || (y & s->magnitude) >= s->limit;
    }
}

/* Sums of the same numbers in another order differ by a few units in the last place, or - where they cancel - by a few
 * of the tensor's largest element. */
static enum rlki_size size_of(const struct rlki_facts *f, const struct scan *s, const json_t *difference)
{
    const struct rlki_change *c = &f->change;
    const enum rlk_dtype dtype = (enum rlk_dtype)f->t[0]->dtype;
    if (c->nan)
        return RLKI_SIZE_LARGE;
    if (!json_is_integer(json_object_get(difference, "max_ulp")) ||
        !json_is_real(json_object_get(difference, "max_abs")))
        return RLKI_SIZE_UNKNOWN;
    uint64_t one = rlk_scalar_from_double(dtype, 1.0), next = one;
    if (rlk_scalar_add_ulp(dtype, one, 1, &next) != 0)
        return RLKI_SIZE_UNKNOWN;
    double unit = (rlk_scalar_to_double(dtype, next) - 1.0) * rlk_scalar_to_double(dtype, s->top);
    if (c->max_ulp <= 16 || c->max_abs <= 4 * unit)
        return RLKI_SIZE_ROUNDING;
    return c->max_ulp > 256 || c->max_abs > 32 * unit ? RLKI_SIZE_LARGE : RLKI_SIZE_BETWEEN;
}

static void measure(struct rlki_facts *f, const json_t *difference)
{
    const enum rlk_dtype dtype = (enum rlk_dtype)f->t[0]->dtype;
    struct scan s = {.size = rlk_dtype_bytes(dtype), .magnitude = UINT64_MAX, .limit = UINT64_MAX};
    s.real = !rlk_dtype_is_integer(dtype) && rlk_dtype_components(dtype) == 1;
    if (s.real) {
        s.magnitude = ((UINT64_C(1) << (8 * s.size - 1)) - 1);
        s.limit = rlk_scalar_from_double(dtype, INFINITY) & s.magnitude; /* fp8_e4m3 has none: its NaN */
    }
    scan_elements(f, &s);
    if (!s.real)
        return;
    count_wild(f, &s);
    f->change.size = size_of(f, &s, difference);
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
    measure(f, difference);
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

#define LOOKED_MAX (UINT64_C(16) << 20) /* events */

int rlki_look_around(struct rlki_facts *f, int side, uint32_t env, uint64_t first, uint64_t last,
                     int (*visit)(void *context, const struct rlk_event *event), void *context)
{
    struct rlk_env *e = f->audit->side[side].env[env].env;
    uint64_t n = rlk_env_count(e);
    last = last < n ? last : n;
    if (first >= last || f->audit->looked > LOOKED_MAX)
        return RLK_OK;
    f->audit->looked += last - first;
    return rlk_env_scan(e, first, last, visit, context, f->audit->detail);
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
    if (found->nspread) /* what the ranks hold differs between layouts anyway */
        f->shapes_differ = !found->spread[0].comparable;
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
