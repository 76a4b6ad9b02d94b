/* CHANGE: what happens to the masked elements. docs/synth.md, "Changes". */
#include "recorder/synth/synth_value.h"

#include <math.h>
#include <string.h>

#include "store/rlk_dtype_value.h"
#include "store/rlk_philox.h"

/* x as 64-bit integer mod 2^64 plus a fraction in [0, 1): exact. */
static uint64_t split(double x, double *fraction)
{
    double whole = floor(x), rest = fmod(whole, 0x1p64);
    *fraction = x - whole;
    return rest < 0 ? 0 - (uint64_t)-rest : (uint64_t)rest;
}

/* Exact v + x, half to even, wrapped by the store. */
static int64_t add_to_integer(int64_t v, const struct sy_number *x)
{
    double fraction = 0;
    uint64_t sum = (uint64_t)v + (x->is_int ? (uint64_t)x->i : split(x->d, &fraction));
    if (fraction > 0.5 || (fraction == 0.5 && (sum & 1)))
        sum++;
    return (int64_t)sum;
}

/* The integer behind an element of an integer type; a bool counts as its byte, as everywhere in the store. */
static int64_t load_integer(enum rlk_dtype dtype, const unsigned char *p)
{
    uint64_t bits = rlk_scalar_load(dtype, p);
    switch (dtype) {
    case RLK_INT8:
        return (int8_t)bits;
    case RLK_INT16:
        return (int16_t)bits;
    case RLK_INT32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static void add_number(enum rlk_dtype part, unsigned char *p, const struct sy_number *x)
{
    uint64_t bits;
    if (rlk_dtype_is_integer(part))
        bits = rlk_scalar_from_i64(part, add_to_integer(load_integer(part, p), x));
    else
        bits = rlk_scalar_from_double(part, rlk_scalar_to_double(part, rlk_scalar_load(part, p)) + x->d);
    rlk_scalar_store(part, p, bits);
}

static void scale(enum rlk_dtype part, unsigned char *p, double rel)
{
    double v = rlk_scalar_to_double(part, rlk_scalar_load(part, p));
    rlk_scalar_store(part, p, rlk_scalar_from_double(part, v * (1.0 + rel)));
}

static void round_trip(enum rlk_dtype part, unsigned char *p, enum rlk_dtype through)
{
    uint64_t there = rlk_scalar_cast(through, part, rlk_scalar_load(part, p));
    rlk_scalar_store(part, p, rlk_scalar_cast(part, through, there));
}

static void garbage(unsigned char *p, size_t n, uint32_t seed, uint64_t k)
{
    uint32_t w[4];
    rlk_fill_words(w, seed, 0, k);
    uint64_t bits = (uint64_t)w[1] << 32 | w[0];
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(bits >> (8 * (i & 7)));
}

/* One element. ulp, add: the real component of a complex element; rel, cast: both; the others: all its bytes. */
static int change_element(const struct sy_change *c, enum rlk_dtype dtype, unsigned char *p, uint64_t k, uint64_t row)
{
    enum rlk_dtype part = rlk_dtype_component(dtype);
    size_t n = rlk_dtype_bytes(dtype), step = rlk_dtype_bytes(part);
    uint64_t bits = 0;
    int rc = RLK_OK;

    switch (c->kind) {
    case SY_CHANGE_ULP:
        rc = rlk_scalar_add_ulp(part, rlk_scalar_load(part, p), c->ulp, &bits);
        if (!rc)
            rlk_scalar_store(part, p, bits);
        break;
    case SY_CHANGE_REL:
        for (size_t i = 0; i < n; i += step)
            scale(part, p + i, c->rel);
        break;
    case SY_CHANGE_ADD:
        add_number(part, p, &c->add);
        break;
    case SY_CHANGE_ADD_ROWS:
        add_number(part, p, &c->add_rows[row]);
        break;
    case SY_CHANGE_ZERO:
        memset(p, 0, n);
        break;
    case SY_CHANGE_BYTE:
        memset(p, c->byte, n);
        break;
    case SY_CHANGE_GARBAGE:
        garbage(p, n, c->seed, k);
        break;
    case SY_CHANGE_CAST:
        for (size_t i = 0; i < n; i += step)
            round_trip(part, p + i, rlk_dtype_component(c->dtype));
        break;
    default:
        break;
    }
    return rc;
}

/* Masked elements take the value of `from`, element by element. */
static void take(struct sy_value *v, const uint64_t *bits, const struct sy_value *from)
{
    size_t step = rlk_dtype_bytes(v->dtype);
    for (uint64_t k = 0; k < v->numel; k++)
        if (sy_bit(bits, k))
            memcpy(v->data + k * step, from->data + k * step, step);
}

static int permute(const struct sy_change *c, struct sy_value *v, const uint64_t *bits)
{
    size_t step = rlk_dtype_bytes(v->dtype);
    uint64_t row = c->nrows ? v->numel / c->nrows : 0;
    struct sy_value *old = NULL;
    int rc = sy_value_copy(v, &old);

    if (rc)
        return rc;
    for (uint64_t i = 0; i < c->nrows; i++)
        for (uint64_t j = 0; j < row; j++)
            if (sy_bit(bits, i * row + j))
                memcpy(v->data + (i * row + j) * step, old->data + (c->order[i] * row + j) * step, step);
    sy_value_drop(old);
    return RLK_OK;
}

int sy_change_apply(const struct sy_change *change, const struct sy_tensor *tensor, struct sy_value *v,
                    const uint64_t *bits, const struct sy_value *from, uint64_t *element)
{
    size_t step = rlk_dtype_bytes(v->dtype);
    uint64_t rows = tensor->ndim ? tensor->shape[0] : 1, row = rows ? v->numel / rows : 0;
    int rc = RLK_OK;

    if (change->kind == SY_CHANGE_PERMUTE)
        return permute(change, v, bits);
    if (change->kind == SY_CHANGE_FROM) {
        take(v, bits, from);
        return RLK_OK;
    }
    for (uint64_t k = 0; k < v->numel && !rc; k++) {
        if (!sy_bit(bits, k))
            continue;
        rc = change_element(change, v->dtype, v->data + k * step, k, row ? k / row : 0);
        *element = k;
    }
    return rc;
}
