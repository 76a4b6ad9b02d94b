#include "recorder/geometry.h"

#include <string.h>
#include <xxhash.h>

bool rlki_geometry_fill(struct rlki_geometry *out, const struct rlk_view *view)
{
    if (view->ndim > RLK_MAX_DIMS || rlk_dtype_bytes(view->dtype) == 0)
        return false;
    out->dtype = (uint8_t)view->dtype;
    out->conj = view->conj;
    out->neg = view->neg;
    out->ndim = view->ndim;
    out->offset = view->offset;
    int64_t contiguous = 1;
    bool empty = false;
    for (uint32_t i = view->ndim; i-- > 0;) {
        uint64_t n = view->shape[i];
        if (n > INT64_MAX)
            return false;
        out->dims[i] = (struct rlki_dim){n, view->strides ? view->strides[i] : contiguous};
        empty = empty || n == 0;
        if (!empty && __builtin_mul_overflow(contiguous, (int64_t)n, &contiguous))
            return false;
    }
    return true;
}

/* One dimension of the producer that moves through memory: n > 1 and stride > 0. */
struct axis {
    uint64_t n, stride;
    uint64_t logical; /* row-major stride in the producer's logical shape */
    uint64_t reach;   /* largest index that the reader uses, so far */
};

struct axes {
    uint32_t n;
    bool row_major; /* memory order = logical order, dense */
    bool dense;     /* fills [offset, offset + total) */
    uint64_t total;
    struct axis axis[RLK_MAX_DIMS]; /* by stride, descending */
};

/* The reader in the producer's logical coordinates. */
struct mapped {
    bool raw; /* could not be told: strides of memory, which then hold the producer's memory order as well */
    uint64_t offset;
    uint64_t strides[RLK_MAX_DIMS];
};

static bool axes_make(struct axes *out, const struct rlki_geometry *g)
{
    uint64_t logical = 1;
    memset(out, 0, sizeof *out);
    out->total = 1;
    out->row_major = true;
    for (uint32_t i = g->ndim; i-- > 0;) {
        const struct rlki_dim *d = &g->dims[i];
        if (d->n == 0 || d->stride < 0)
            return false;
        if (d->n > 1 && d->stride > 0) {
            uint32_t at = out->n++;
            for (; at > 0 && out->axis[at - 1].stride < (uint64_t)d->stride; at--)
                out->axis[at] = out->axis[at - 1];
            out->axis[at] = (struct axis){d->n, (uint64_t)d->stride, logical, 0};
        }
        if (__builtin_mul_overflow(logical, d->n, &logical))
            return false;
    }
    out->dense = true;
    for (uint32_t i = out->n; i-- > 0;) {
        out->dense = out->dense && out->axis[i].stride == out->total;
        out->row_major = out->row_major && out->axis[i].stride == out->axis[i].logical;
        out->total *= out->axis[i].n; /* bounded by `logical` */
    }
    out->row_major = out->row_major && out->dense;
    return true;
}

/* Every dimension of the reader walks along one axis of the producer and stays inside it. */
static bool map_by_axes(struct mapped *out, struct axes *axes, uint64_t offset, const struct rlki_geometry *reader)
{
    out->offset = 0;
    for (uint32_t i = 0; i < axes->n; i++) {
        struct axis *a = &axes->axis[i];
        uint64_t digit = offset / a->stride;
        a->reach = digit < a->n ? digit : a->n - 1;
        offset -= a->reach * a->stride;
        out->offset += a->reach * a->logical;
    }
    if (offset)
        return false;
    for (uint32_t d = 0; d < reader->ndim; d++) {
        uint64_t n = reader->dims[d].n, stride = (uint64_t)reader->dims[d].stride;
        out->strides[d] = 0;
        if (n == 1 || stride == 0)
            continue;
        uint32_t i = 0;
        for (; i < axes->n; i++) {
            struct axis *a = &axes->axis[i];
            uint64_t k = stride / a->stride;
            if (stride % a->stride == 0 && k < a->n && n - 1 <= (a->n - 1 - a->reach) / k) {
                a->reach += k * (n - 1);
                out->strides[d] = k * a->logical;
                break;
            }
        }
        if (i == axes->n)
            return false;
    }
    return true;
}

/* The producer fills an interval of memory and the reader stays inside it. */
static bool map_by_interval(struct mapped *out, const struct axes *axes, uint64_t offset,
                            const struct rlki_geometry *reader)
{
    if (!axes->dense)
        return false;
    uint64_t last = offset;
    for (uint32_t d = 0; d < reader->ndim; d++) {
        uint64_t span;
        if (__builtin_mul_overflow(reader->dims[d].n - 1, (uint64_t)reader->dims[d].stride, &span) ||
            __builtin_add_overflow(last, span, &last))
            return false;
        out->strides[d] = reader->dims[d].n == 1 ? 0 : (uint64_t)reader->dims[d].stride;
    }
    out->offset = offset;
    out->raw = !axes->row_major;
    return last < axes->total;
}

static bool same_memory(const struct rlki_geometry *a, const struct rlki_geometry *b)
{
    if (a->ndim != b->ndim || a->offset != b->offset)
        return false;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->dims[i].n != b->dims[i].n || (a->dims[i].n > 1 && a->dims[i].stride != b->dims[i].stride))
            return false;
    return true;
}

/* The reader reads the producer's elements in their logical order and shape. */
static bool is_identity(const struct rlki_geometry *producer, const struct rlki_geometry *reader,
                        const struct mapped *mapped)
{
    if (producer->ndim != reader->ndim || mapped->offset != 0 || mapped->raw)
        return false;
    uint64_t logical = 1;
    for (uint32_t i = producer->ndim; i-- > 0;) {
        uint64_t n = producer->dims[i].n;
        if (reader->dims[i].n != n || (n > 1 && mapped->strides[i] != logical))
            return false;
        logical *= n;
    }
    return true;
}

static rlk_u128 view_hash(const struct rlki_geometry *producer, const struct rlki_geometry *reader,
                          const struct mapped *mapped)
{
    uint64_t words[4 + 4 * RLK_MAX_DIMS];
    size_t n = 0;
    words[n++] = (uint64_t)reader->dtype | (uint64_t)(reader->conj != producer->conj) << 8 |
                 (uint64_t)(reader->neg != producer->neg) << 9 | (uint64_t)mapped->raw << 10;
    words[n++] = reader->ndim;
    words[n++] = mapped->offset;
    for (uint32_t i = 0; i < reader->ndim; i++) {
        words[n++] = reader->dims[i].n;
        words[n++] = mapped->strides[i];
    }
    for (uint32_t i = 0; mapped->raw && i < producer->ndim; i++) {
        words[n++] = producer->dims[i].n;
        words[n++] = (uint64_t)producer->dims[i].stride;
    }
    XXH128_hash_t h = XXH3_128bits(words, n * sizeof *words);
    rlk_u128 view = {h.low64, h.high64};
    view.lo += view.lo == 0 && view.hi == 0; /* 0 is the output itself */
    return view;
}

bool rlki_geometry_covers(const struct rlki_geometry *producer, const struct rlki_geometry *reader, rlk_u128 *view)
{
    bool same_reading =
        producer->dtype == reader->dtype && producer->conj == reader->conj && producer->neg == reader->neg;
    if (rlk_dtype_bytes((enum rlk_dtype)producer->dtype) != rlk_dtype_bytes((enum rlk_dtype)reader->dtype))
        return false;
    for (uint32_t i = 0; i < reader->ndim; i++)
        if (reader->dims[i].n == 0)
            return false;
    if (same_reading && same_memory(producer, reader)) {
        *view = (rlk_u128){0, 0};
        return true;
    }
    struct axes axes;
    struct mapped mapped = {0};
    if (reader->offset < producer->offset || !axes_make(&axes, producer))
        return false;
    for (uint32_t i = 0; i < reader->ndim; i++)
        if (reader->dims[i].stride < 0 && reader->dims[i].n > 1)
            return false;
    uint64_t offset = reader->offset - producer->offset;
    if (!map_by_axes(&mapped, &axes, offset, reader) && !map_by_interval(&mapped, &axes, offset, reader))
        return false;
    *view = same_reading && is_identity(producer, reader, &mapped) ? (rlk_u128){0, 0}
                                                                   : view_hash(producer, reader, &mapped);
    return true;
}
