#include "store/cuda/rlk_digest_segment.h"

#include <string.h>

struct dim { /* one enumeration dimension while a box is being made */
    uint64_t ext, seed;
    int64_t step;
    bool column;
};

static enum rlkg_class class_of(enum rlk_dtype dtype)
{
    switch (dtype) {
    case RLK_FP8_E4M3:
        return RLKG_E4M3FN;
    case RLK_FP8_E5M2:
        return RLKG_E5M2;
    case RLK_FP8_E4M3FNUZ:
    case RLK_FP8_E5M2FNUZ:
        return RLKG_FNUZ;
    case RLK_FP8_E8M0:
        return RLKG_E8M0;
    case RLK_FP16:
    case RLK_COMPLEX32:
        return RLKG_F16;
    case RLK_BF16:
        return RLKG_BF16;
    case RLK_FP32:
    case RLK_COMPLEX64:
        return RLKG_F32;
    case RLK_FP64:
    case RLK_COMPLEX128:
        return RLKG_F64;
    default:
        return RLKG_PLAIN;
    }
}

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Largest power of two up to 16 that divides the address of every unit. */
static uint8_t vector_bytes(uint64_t base, const struct dim *dims, uint32_t n)
{
    uint64_t all = base | 16;
    for (uint32_t d = 0; d < n; d++)
        all |= (uint64_t)dims[d].step;
    return (uint8_t)(all & (~all + 1));
}

/* Smallest stride first, so that neighbouring threads read neighbouring units; then merges what one stride describes.
 */
static int arrange(struct dim *dims, uint32_t *n, struct rlk_detail *detail)
{
    uint32_t kept = 0;
    for (uint32_t d = 0; d < *n; d++)
        if (dims[d].ext != 1 || dims[d].column)
            dims[kept++] = dims[d];
    for (uint32_t i = 1; i < kept; i++)
        for (uint32_t j = i; j > 0 && magnitude(dims[j].step) < magnitude(dims[j - 1].step); j--) {
            const struct dim t = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = t;
        }
    uint32_t m = 0;
    for (uint32_t d = 0; d < kept; d++) {
        struct dim *last = m ? &dims[m - 1] : NULL;
        if (last && !last->column && !dims[d].column && dims[d].step == last->step * (int64_t)last->ext &&
            dims[d].seed == last->seed * last->ext && last->ext * dims[d].ext <= UINT32_MAX)
            last->ext *= dims[d].ext;
        else
            dims[m++] = dims[d];
    }
    *n = m;
    if (m > RLKG_DIMS)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "%u dimensions that do not merge, at most %d", m, RLKG_DIMS);
    for (uint32_t d = 0; d < m; d++)
        if (dims[d].ext > UINT32_MAX)
            return rlk_fail(detail, RLK_EUNSUPPORTED, "an extent over 2^32");
    return RLK_OK;
}

struct tensor { /* what all boxes of a tensor share */
    const struct rlk_view *view;
    uint32_t ndim;
    const uint64_t *logical; /* logical shape */
    uint64_t u, columns;     /* unit length; units a row */
    size_t es;
    int64_t stride[RLK_MAX_DIMS];  /* bytes */
    uint64_t rowmul[RLK_MAX_DIMS]; /* rows that one step along the dimension skips */
};

static int emit(struct rlkg_segment *out, uint32_t *n, uint16_t slot, const struct tensor *t, const uint64_t *start,
                const uint64_t *extent, const uint64_t *local, struct rlk_detail *detail)
{
    struct dim dims[RLK_MAX_DIMS];
    uint32_t m = 0;
    struct rlkg_segment s;
    memset(&s, 0, sizeof s);
    s.base = (uint64_t)(uintptr_t)t->view->storage + t->view->offset * t->es;
    s.inner = t->ndim ? t->stride[t->ndim - 1] : (int64_t)t->es;
    s.u = s.tail = (uint8_t)t->u;
    s.units = 1;
    s.column = 255;
    for (uint32_t d = 0; d < t->ndim; d++) {
        s.base += (uint64_t)((int64_t)local[d] * t->stride[d]);
        if (d + 1 < t->ndim) {
            s.seed0 += start[d] * t->rowmul[d] * t->columns;
            dims[m++] = (struct dim){extent[d], t->rowmul[d] * t->columns, t->stride[d], false};
            s.units *= extent[d];
        } else {
            const uint64_t units = (extent[d] + t->u - 1) / t->u;
            s.seed0 += start[d] / t->u;
            if (extent[d] % t->u)
                s.tail = (uint8_t)(extent[d] % t->u);
            dims[m++] = (struct dim){units, 1, t->stride[d] * (int64_t)t->u, s.tail != s.u};
            s.units *= units;
        }
    }
    if (*n == RLKG_SEGMENTS)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "more than %d boxes in one launch", RLKG_SEGMENTS);
    int err = arrange(dims, &m, detail);
    if (err)
        return err;
    if (m == 0)
        dims[m++] = (struct dim){1, 0, 0, false}; /* one unit */
    s.ndim = (uint8_t)m;
    for (uint32_t d = 0; d < m; d++) {
        s.ext[d] = (uint32_t)dims[d].ext;
        s.step[d] = dims[d].step;
        s.seed[d] = dims[d].seed;
        if (dims[d].column)
            s.column = (uint8_t)d;
    }
    s.slot = slot;
    s.es = (uint8_t)t->es;
    s.lane = (uint8_t)(rlk_dtype_is_complex(t->view->dtype) ? t->es / 2 : t->es);
    s.cls = (uint8_t)class_of(t->view->dtype);
    s.vec = s.inner == (int64_t)t->es ? vector_bytes(s.base, dims, m) : 1;
    if (s.base % t->es) /* a storage of bytes seen as wider elements: only the byte road may read it */
        s.vec = 0;
    out[(*n)++] = s;
    return RLK_OK;
}

static int inside_storage(const struct tensor *t, struct rlk_detail *detail)
{
    int64_t low = 0, high = 0;
    for (uint32_t d = 0; d < t->ndim; d++) {
        if (t->view->shape[d] == 0)
            return RLK_OK;
        int64_t reach;
        if (t->view->shape[d] > INT64_MAX ||
            __builtin_mul_overflow((int64_t)t->view->shape[d] - 1, t->stride[d], &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return rlk_fail(detail, RLK_EINVAL, "shape times stride overflows");
    }
    uint64_t first;
    if (__builtin_mul_overflow(t->view->offset, (uint64_t)t->es, &first) || first > INT64_MAX ||
        (int64_t)first + low < 0 || first + (uint64_t)high + t->es > t->view->storage_bytes)
        return rlk_fail(detail, RLK_EINVAL, "an element lies outside the storage");
    return RLK_OK;
}

static int describe(struct tensor *t, const struct rlk_view *view, const struct rlk_place *place,
                    struct rlk_detail *detail)
{
    memset(t, 0, sizeof *t);
    t->view = view;
    t->ndim = view->ndim;
    t->es = rlk_dtype_bytes(view->dtype);
    if (!t->es || t->ndim > RLK_MAX_DIMS || (place && place->ndim != t->ndim))
        return rlk_fail(detail, RLK_EINVAL, "dtype, dimensions or placement do not fit");
    if (view->conj || view->neg)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "lazily conjugated or negated");
    t->logical = place ? place->shape : view->shape;
    t->u = rlk_unit_length(view->dtype, t->ndim, t->logical);
    if (t->u * t->es > RLKG_MAX_UNIT)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "a unit over %d bytes", RLKG_MAX_UNIT);
    t->columns = t->ndim ? (t->logical[t->ndim - 1] + t->u - 1) / t->u : 1;
    int64_t dense = (int64_t)t->es;
    uint64_t rows = 1;
    for (uint32_t d = t->ndim; d-- > 0;) {
        t->stride[d] = view->strides ? view->strides[d] * (int64_t)t->es : dense;
        if (__builtin_mul_overflow(dense, (int64_t)(view->shape[d] ? view->shape[d] : 1), &dense))
            return rlk_fail(detail, RLK_EINVAL, "the shape overflows");
        t->rowmul[d] = rows;
        if (d + 1 < t->ndim && __builtin_mul_overflow(rows, t->logical[d] ? t->logical[d] : 1, &rows))
            return rlk_fail(detail, RLK_EINVAL, "the logical shape overflows");
    }
    return inside_storage(t, detail);
}

#define MAX_RUNS 512 /* of one tensor, after touching runs are made one */

struct runs { /* what is held along each dimension */
    struct rlk_run run[MAX_RUNS];
    uint32_t first[RLK_MAX_DIMS], count[RLK_MAX_DIMS];
    bool empty;
};

/* Touching runs are one run: the border between them is none. */
static int gather_runs(struct runs *r, const struct tensor *t, const struct rlk_place *place, struct rlk_detail *detail)
{
    const struct rlk_run *next = place ? place->runs : NULL;
    uint32_t used = 0;
    r->empty = false;
    for (uint32_t d = 0; d < t->ndim; d++) {
        const struct rlk_run whole = {0, t->logical[d]};
        const bool all = !place || !place->nruns || place->nruns[d] == RLK_WHOLE;
        const uint32_t given = all ? 1 : place->nruns[d];
        uint64_t sum = 0;
        r->first[d] = used;
        for (uint32_t i = 0; i < given; i++) {
            const struct rlk_run x = all ? whole : *next++;
            if (x.start > t->logical[d] || x.extent > t->logical[d] - x.start)
                return rlk_fail(detail, RLK_EINVAL, "a run reaches past dimension %u", d);
            sum += x.extent;
            if (x.extent == 0)
                continue;
            if (used > r->first[d] && r->run[used - 1].start + r->run[used - 1].extent == x.start) {
                r->run[used - 1].extent += x.extent;
                continue;
            }
            if (used == MAX_RUNS)
                return rlk_fail(detail, RLK_EUNSUPPORTED, "more than %d runs", MAX_RUNS);
            r->run[used++] = x;
        }
        r->count[d] = used - r->first[d];
        if (sum != t->view->shape[d])
            return rlk_fail(detail, RLK_EINVAL, "the runs of dimension %u add up to another extent", d);
        r->empty |= sum == 0;
    }
    return RLK_OK;
}

static int check_borders(const struct runs *r, const struct tensor *t, struct rlk_detail *detail)
{
    const uint32_t d = t->ndim - 1;
    for (uint32_t i = 0; t->ndim && i < r->count[d]; i++) {
        const struct rlk_run *x = &r->run[r->first[d] + i];
        const uint64_t end = x->start + x->extent;
        if (x->start % t->u || (end % t->u && end != t->logical[d]))
            return rlk_fail(detail, RLK_EUNSUPPORTED, "a border inside a unit");
    }
    return RLK_OK;
}

int rlki_segments(struct rlkg_segment *out, uint32_t *n, uint16_t slot, const struct rlk_view *view,
                  const struct rlk_place *place, struct rlk_detail *detail)
{
    struct tensor t;
    struct runs r;
    uint32_t at[RLK_MAX_DIMS] = {0};
    uint64_t start[RLK_MAX_DIMS], extent[RLK_MAX_DIMS], local[RLK_MAX_DIMS] = {0};
    int err = describe(&t, view, place, detail);
    if (!err)
        err = gather_runs(&r, &t, place, detail);
    if (!err && !r.empty) /* a part of extent 0 has no border */
        err = check_borders(&r, &t, detail);
    if (err)
        return err;
    if (r.empty) {
        if (*n == RLKG_SEGMENTS)
            return rlk_fail(detail, RLK_EUNSUPPORTED, "more than %d boxes in one launch", RLKG_SEGMENTS);
        /* no units, but a block that publishes the empty sum */
        out[(*n)++] = (struct rlkg_segment){
            .slot = slot, .ndim = 1, .es = 1, .lane = 1, .u = 1, .tail = 1, .column = 255, .vec = 1};
        return RLK_OK;
    }
    for (;;) {
        for (uint32_t d = 0; d < t.ndim; d++) {
            const struct rlk_run *x = &r.run[r.first[d] + at[d]];
            start[d] = x->start;
            extent[d] = x->extent;
        }
        err = emit(out, n, slot, &t, start, extent, local, detail);
        if (err)
            return err;
        uint32_t d = 0; /* the next combination of runs, as an odometer */
        for (; d < t.ndim; d++) {
            local[d] += r.run[r.first[d] + at[d]].extent;
            if (++at[d] < r.count[d])
                break;
            at[d] = 0;
            local[d] = 0;
        }
        if (d == t.ndim)
            return RLK_OK;
    }
}

uint32_t rlki_segments_blocks(struct rlkg_segment *segments, uint32_t n, uint32_t target_blocks)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += segments[i].units * segments[i].u * segments[i].es;
    /* A block that reads less than 32 KiB spends its time on its own reduction. */
    const uint64_t floor_bytes = 32768, share = bytes / (target_blocks ? target_blocks : 1) + 1;
    const uint64_t per_block = share < floor_bytes ? floor_bytes : share;
    uint32_t blocks = 0, first = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct rlkg_segment *s = &segments[i];
        uint64_t units = per_block / ((uint64_t)s->u * s->es) + RLKG_THREADS - 1;
        units -= units % RLKG_THREADS;
        if (units > (1u << 30))
            units = 1u << 30;
        if (i && s->slot != segments[i - 1].slot)
            first = blocks;
        s->units_per_block = (uint32_t)units;
        s->first_block = blocks;
        blocks += s->units ? (uint32_t)((s->units + units - 1) / units) : 1;
        for (uint32_t j = i + 1; j-- > 0 && segments[j].slot == s->slot;) /* a tensor's boxes are neighbours */
            segments[j].tensor_blocks = blocks - first;
    }
    return blocks;
}
