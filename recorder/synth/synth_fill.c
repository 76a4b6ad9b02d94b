/* FILL: element k depends on (fill, seed, dtype, k) only. docs/synth.md, "Generator". */
#include "recorder/synth/synth_value.h"

#include <string.h>

#include "store/rlk_dtype_value.h"
#include "store/rlk_philox.h"

/* v + 0i for complex; one rounding. */
static void put_bits(enum rlk_dtype dtype, unsigned char *p, uint64_t bits)
{
    enum rlk_dtype part = rlk_dtype_component(dtype);
    size_t n = rlk_dtype_bytes(part);

    rlk_scalar_store(part, p, bits);
    if (rlk_dtype_is_complex(dtype))
        memset(p + n, 0, n);
}

static void put_double(enum rlk_dtype dtype, unsigned char *p, double v)
{
    put_bits(dtype, p, rlk_scalar_from_double(rlk_dtype_component(dtype), v));
}

static void put_i64(enum rlk_dtype dtype, unsigned char *p, int64_t v)
{
    put_bits(dtype, p, rlk_scalar_from_i64(rlk_dtype_component(dtype), v));
}

static void put_number(enum rlk_dtype dtype, unsigned char *p, const struct sy_number *v)
{
    if (v->is_int)
        put_i64(dtype, p, v->i);
    else
        put_double(dtype, p, v->d);
}

/* The whole element, little-endian: for complex the low half is the real component. */
static void put_raw(enum rlk_dtype dtype, unsigned char *p, uint64_t bits)
{
    size_t n = rlk_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i < 8 ? bits >> (8 * i) : 0);
}

/* An integer start stays exact: a + k as 64-bit integers (wrapping); a real one is fl64(a + k). */
static void put_arange(enum rlk_dtype dtype, unsigned char *p, const struct sy_number *a, uint64_t k)
{
    if (a->is_int)
        put_i64(dtype, p, (int64_t)((uint64_t)a->i + k));
    else
        put_double(dtype, p, a->d + (double)k);
}

static void generate(const struct sy_fill *fill, enum rlk_dtype dtype, unsigned char *p, uint64_t k)
{
    uint32_t w[4];

    switch (fill->kind) {
    case SY_FILL_CONST:
        put_number(dtype, p, &fill->value);
        break;
    case SY_FILL_BITS:
        put_raw(dtype, p, fill->bits);
        break;
    case SY_FILL_ARANGE:
        put_arange(dtype, p, &fill->value, k);
        break;
    case SY_FILL_UNIFORM:
        rlk_fill_words(w, fill->seed, 0, k);
        put_double(dtype, p, rlk_fill_uniform(w));
        break;
    case SY_FILL_NORMAL:
        rlk_fill_words(w, fill->seed, 0, k);
        put_double(dtype, p, rlk_fill_normal(w));
        break;
    case SY_FILL_INT:
        rlk_fill_words(w, fill->seed, 0, k);
        put_i64(dtype, p, rlk_fill_int(w, fill->lo, fill->hi));
        break;
    default:
        break;
    }
}

void sy_fill_generate(const struct sy_fill *fill, struct sy_value *v)
{
    size_t step = rlk_dtype_bytes(v->dtype);
    bool constant = fill->kind == SY_FILL_CONST || fill->kind == SY_FILL_BITS;

    for (uint64_t k = 0; k < v->numel; k++) {
        if (constant && k)
            memcpy(v->data + k * step, v->data, step);
        else
            generate(fill, v->dtype, v->data + k * step, k);
    }
}

/* Real to complex gives v + 0i, complex to real drops the imaginary component. */
void sy_fill_cast(const struct sy_value *from, struct sy_value *v)
{
    enum rlk_dtype a = rlk_dtype_component(from->dtype), b = rlk_dtype_component(v->dtype);
    size_t astep = rlk_dtype_bytes(from->dtype), bstep = rlk_dtype_bytes(v->dtype);
    size_t apart = rlk_dtype_bytes(a), bpart = rlk_dtype_bytes(b);
    bool both = rlk_dtype_is_complex(from->dtype) && rlk_dtype_is_complex(v->dtype);

    for (uint64_t k = 0; k < v->numel; k++) {
        const unsigned char *p = from->data + k * astep;
        unsigned char *q = v->data + k * bstep;
        put_bits(v->dtype, q, rlk_scalar_cast(b, a, rlk_scalar_load(a, p)));
        if (both)
            rlk_scalar_store(b, q + bpart, rlk_scalar_cast(b, a, rlk_scalar_load(a, p + apart)));
    }
}
