/* rec_payload.c - the bytes of a tensor in logical order, as the program would read them. */
#include "recorder/rec_op.h"
#include "store/rlk_dtype_value.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    const unsigned char *storage;
    unsigned char *out;
    const struct rlki_geometry *g;
    size_t size;
};

static void copy(struct walk *w, uint32_t dim, int64_t at)
{
    const struct rlki_dim *d = &w->g->dims[dim];
    if (dim == w->g->ndim) {
        memcpy(w->out, w->storage + (size_t)at * w->size, w->size);
        w->out += w->size;
        return;
    }
    if (dim + 1 == w->g->ndim && d->stride == 1) {
        memcpy(w->out, w->storage + (size_t)at * w->size, d->n * w->size);
        w->out += d->n * w->size;
        return;
    }
    for (uint64_t i = 0; i < d->n; i++)
        copy(w, dim + 1, at + (int64_t)i * d->stride);
}

/* Does every element lie inside the storage? *elements gets their number. */
static bool inside(const struct rlki_geometry *g, const struct rlk_view *view, size_t size, uint64_t *elements)
{
    __int128 low = (__int128)g->offset, high = low;
    *elements = 1;
    for (uint32_t i = 0; i < g->ndim; i++)
        if (g->dims[i].n == 0)
            *elements = 0;
    for (uint32_t i = 0; i < g->ndim && *elements; i++) {
        __int128 reach = (__int128)g->dims[i].stride * (__int128)(g->dims[i].n - 1);
        *(reach < 0 ? &low : &high) += reach;
        if (low < 0 || high > INT64_MAX || __builtin_mul_overflow(*elements, g->dims[i].n, elements))
            return false;
    }
    return *elements == 0 || (view->storage && high < (__int128)(view->storage_bytes / size));
}

static void negate(enum rlk_dtype component, unsigned char *p)
{
    uint64_t bits = rlk_scalar_load(component, p);
    uint64_t sign = UINT64_C(1) << (8 * rlk_dtype_bytes(component) - 1);
    bool fnuz = component == RLK_FP8_E4M3FNUZ || component == RLK_FP8_E5M2FNUZ; /* no -0: those bits are the NaN */
    if (component == RLK_BOOL || component == RLK_FP8_E8M0 || (fnuz && (bits == 0 || bits == sign)))
        return;
    rlk_scalar_store(component, p, rlk_dtype_is_float(component) ? bits ^ sign : 0 - bits);
}

/* conj negates the imaginary part, neg both. */
static void apply_flags(const struct rlk_view *view, unsigned char *bytes, size_t size, uint64_t elements)
{
    enum rlk_dtype component = rlk_dtype_component(view->dtype);
    size_t part = rlk_dtype_bytes(component);
    bool imaginary = rlk_dtype_is_complex(view->dtype) && view->conj != view->neg;
    for (uint64_t i = 0; i < elements && (view->neg || imaginary); i++) {
        if (view->neg)
            negate(component, bytes + i * size);
        if (imaginary)
            negate(component, bytes + i * size + part);
    }
}

int rlki_payload_bytes(const struct rlk_view *view, void **bytes, size_t *n)
{
    size_t size = rlk_dtype_bytes(view->dtype);
    uint64_t elements = 0;
    if (!size || view->ndim > RLK_MAX_DIMS)
        return RLK_EINVAL;
    int rc = RLK_ENOMEM;
    unsigned char *out = NULL;
    struct rlki_geometry *g = malloc(rlki_geometry_bytes(view->ndim + 1)); /* the walk looks one past the end */
    if (!g)
        goto out;
    rc = RLK_EINVAL;
    if (!rlki_geometry_fill(g, view) || !inside(g, view, size, &elements) || elements > SIZE_MAX / size)
        goto out;
    rc = RLK_ENOMEM;
    out = malloc(elements ? (size_t)elements * size : 1);
    if (!out)
        goto out;
    if (elements)
        copy(&(struct walk){view->storage, out, g, size}, 0, (int64_t)g->offset);
    apply_flags(view, out, size, elements);
    *bytes = out;
    *n = (size_t)elements * size;
    out = NULL;
    rc = RLK_OK;
out:
    free(out);
    free(g);
    return rc;
}
