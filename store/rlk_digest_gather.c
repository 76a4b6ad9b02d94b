/* Order of the walk: the outer dimensions by recursion, run by run; then either blocks that lie contiguously in memory
 * and are hashed where they are, or tiles gathered into a buffer. A transposed tensor is gathered in tiles that read
 * whole cache lines: 64 bytes along the dimension with the smallest stride, TILE_COLUMNS along the innermost one. */
#include "store/rlk_digest_gather.h"

#include "store/rlk_digest_units.h"
#include "store/rlk_dtype_value.h"
#include "store/rlk_place_runs.h"

#include <string.h>
#include <xxhash.h>

#define LINE 64u
#define TILE_COLUMNS 256u /* a multiple of every unit length */
#define TILE_BYTES (LINE * TILE_COLUMNS)
#define NO_DIM UINT32_MAX

struct walk {
    enum rlk_dtype dtype;
    size_t size; /* of an element */
    uint32_t ndim;
    bool flip_real, flip_imaginary; /* lazily negated or conjugated */
    uint64_t shape[RLK_MAX_DIMS];   /* local */
    int64_t stride[RLK_MAX_DIMS];   /* in bytes */
    struct rlki_runs runs[RLK_MAX_DIMS];
    uint64_t row_step[RLK_MAX_DIMS]; /* logical rows that one step in this dimension passes */
    uint64_t columns, unit, units;   /* D, u, U */

    uint32_t block; /* contiguous from here on in every step of the dimensions before; NO_DIM: gathered */
    uint32_t tile;  /* gathered: second dimension of the tiles, NO_DIM = none */

    struct rlki_digest digest;
    XXH3_state_t *stream; /* not NULL: the bytes are one unit, in order */
};

/* Elements in logical order that lie contiguously, from (row, column) on; they may go on into the next rows. */
static void emit(struct walk *w, const unsigned char *p, uint64_t row, uint64_t column, uint64_t count)
{
    if (w->stream) {
        XXH3_128bits_update(w->stream, p, count * w->size);
        rlki_digest_count(&w->digest, p, count * w->size);
        return;
    }
    const size_t unit_bytes = w->digest.unit_bytes;
    if (w->columns % w->unit == 0) {
        rlki_digest_units(&w->digest, p, count / w->unit, row * w->units + column / w->unit);
        return;
    }
    while (count) {
        uint64_t here = w->columns - column < count ? w->columns - column : count;
        uint64_t full = here / w->unit, number = row * w->units + column / w->unit;
        size_t rest = (size_t)(here % w->unit) * w->size;
        rlki_digest_units(&w->digest, p, full, number);
        if (rest)
            rlki_digest_tail(&w->digest, p + full * unit_bytes, rest, number + full);
        p += here * w->size;
        count -= here;
        column = 0;
        row++;
    }
}

static uint64_t flipped(enum rlk_dtype component, uint64_t bits)
{
    if (!rlk_dtype_is_float(component))
        return component == RLK_BOOL ? bits : 0 - bits; /* the store keeps the low bytes */
    if (component == RLK_FP8_E8M0)
        return bits;
    uint64_t sign = UINT64_C(1) << (8 * rlk_dtype_bytes(component) - 1);
    bool fnuz = component == RLK_FP8_E4M3FNUZ || component == RLK_FP8_E5M2FNUZ;
    return fnuz && (bits == 0 || bits == sign) ? bits : bits ^ sign;
}

static void flip(const struct walk *w, unsigned char *p, size_t elements)
{
    enum rlk_dtype component = rlk_dtype_component(w->dtype);
    size_t size = rlk_dtype_bytes(component);
    bool two = size != w->size;
    for (size_t i = 0; i < elements; i++, p += w->size) {
        if (w->flip_real)
            rlk_scalar_store(component, p, flipped(component, rlk_scalar_load(component, p)));
        if (two && w->flip_imaginary)
            rlk_scalar_store(component, p + size, flipped(component, rlk_scalar_load(component, p + size)));
    }
}

/* `rows` local rows from p on, logical rows row, row + step, ...: every run of the innermost dimension, tile by tile.
 */
static void gather_rows(struct walk *w, const unsigned char *p, size_t rows, int64_t row_stride, uint64_t row,
                        uint64_t step)
{
    _Alignas(64) unsigned char buffer[TILE_BYTES];
    const uint32_t last = w->ndim - 1;
    const size_t room = TILE_BYTES / w->size / rows & ~(size_t)15; /* whole units */
    struct rlki_runs_at at = {0};
    while (rlki_runs_step(&w->runs[last], &at)) {
        for (uint64_t done = 0; done < at.extent;) {
            size_t columns = at.extent - done < room ? (size_t)(at.extent - done) : room;
            const unsigned char *from = p + (int64_t)(at.local + done) * w->stride[last];
            rlki_gather(buffer, from, w->size, rows, columns, row_stride, w->stride[last]);
            if (w->flip_real || w->flip_imaginary)
                flip(w, buffer, rows * columns);
            for (size_t r = 0; r < rows; r++)
                emit(w, buffer + r * columns * w->size, row + r * step, at.start + done, columns);
            done += columns;
        }
    }
}

static void gather_tiles(struct walk *w, const unsigned char *p, uint64_t row)
{
    if (w->tile == NO_DIM) {
        gather_rows(w, p, 1, 0, row, 0);
        return;
    }
    const size_t room = LINE / w->size;
    const int64_t stride = w->stride[w->tile];
    const uint64_t step = w->row_step[w->tile];
    struct rlki_runs_at at = {0};
    while (rlki_runs_step(&w->runs[w->tile], &at)) {
        for (uint64_t done = 0; done < at.extent;) {
            size_t rows = at.extent - done < room ? (size_t)(at.extent - done) : room;
            gather_rows(w, p + (int64_t)(at.local + done) * stride, rows, stride, row + (at.start + done) * step, step);
            done += rows;
        }
    }
}

static void walk(struct walk *w, uint32_t dim, const unsigned char *p, uint64_t row)
{
    const bool gathered = w->block == NO_DIM;
    while (gathered && dim == w->tile)
        dim++;
    if (gathered && dim == w->ndim - 1) {
        gather_tiles(w, p, row);
        return;
    }
    struct rlki_runs_at at = {0};
    while (rlki_runs_step(&w->runs[dim], &at)) {
        const unsigned char *from = p + (int64_t)at.local * w->stride[dim];
        if (dim == w->block) {
            uint64_t inner = 1;
            for (uint32_t i = dim + 1; i < w->ndim; i++)
                inner *= w->shape[i];
            bool innermost = dim == w->ndim - 1;
            emit(w, from, innermost ? row : row + at.start * w->row_step[dim], innermost ? at.start : 0,
                 at.extent * inner);
            continue;
        }
        for (uint64_t i = 0; i < at.extent; i++, from += w->stride[dim])
            walk(w, dim + 1, from, row + (at.start + i) * w->row_step[dim]);
    }
}

static uint64_t magnitude(int64_t v)
{
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

/* Where the contiguous block begins, or which dimension joins the innermost one in the tiles. */
static void choose_order(struct walk *w, bool in_order)
{
    const uint32_t last = w->ndim - 1;
    w->block = w->tile = NO_DIM;
    if (w->stride[last] == (int64_t)w->size && !w->flip_real && !w->flip_imaginary) {
        uint32_t j = last;
        while (j > 0 && w->runs[j].run == NULL && w->stride[j - 1] == w->stride[j] * (int64_t)w->shape[j])
            j--;
        w->block = j;
        return;
    }
    uint64_t smallest = magnitude(w->stride[last]);
    for (uint32_t i = 0; i < last && !in_order; i++) {
        uint64_t stride = magnitude(w->stride[i]);
        if (w->shape[i] > 1 && stride != 0 && stride < smallest) {
            smallest = stride;
            w->tile = i;
        }
    }
}

/* Runs `w` over the view; place gives the runs and the logical shape. in_order: row-major order must be kept. */
static void run(struct walk *w, const struct rlk_view *view, const int64_t *strides, const struct rlk_place *place,
                bool in_order)
{
    w->dtype = w->digest.dtype = view->dtype;
    w->size = rlk_dtype_bytes(view->dtype);
    w->flip_real = view->neg;
    w->flip_imaginary = rlk_dtype_is_complex(view->dtype) && view->neg != view->conj;
    const unsigned char *p = (const unsigned char *)view->storage + view->offset * w->size;
    w->unit = rlk_unit_length(view->dtype, place->ndim, place->shape);
    w->digest.unit_bytes = (size_t)w->unit * w->size;

    /* A 0-d tensor is a row of one element. */
    static const struct rlki_runs one = {NULL, 1, {0, 1}};
    w->ndim = place->ndim ? place->ndim : 1;
    w->columns = place->ndim ? place->shape[place->ndim - 1] : 1;
    w->units = w->columns / w->unit + (w->columns % w->unit != 0);
    w->shape[0] = 1;
    w->runs[0] = one;
    if (place->ndim)
        rlki_place_runs(place, w->runs);
    for (uint32_t i = 0; i < place->ndim; i++) {
        struct rlki_runs_at at = {0};
        if (rlki_runs_step(&w->runs[i], &at) && at.extent == place->shape[i])
            w->runs[i] = (struct rlki_runs){NULL, 1, {0, place->shape[i]}};
    }
    uint64_t rows = 1;
    int64_t dense = (int64_t)w->size; /* a stride is meaningless where there is one element: take the dense one */
    for (uint32_t i = w->ndim; i-- > 0;) {
        if (place->ndim)
            w->shape[i] = view->shape[i];
        w->stride[i] = w->shape[i] == 1 ? dense : strides[i] * (int64_t)w->size;
        dense = w->stride[i] * (int64_t)w->shape[i];
        w->row_step[i] = i + 1 == w->ndim ? 0 : rows;
        if (i + 1 < w->ndim)
            rows *= place->shape[i];
    }
    choose_order(w, in_order);
    walk(w, 0, p, 0);
}

void rlki_digest_part(struct rlk_sums *out, const struct rlk_view *view, const int64_t *strides,
                      const struct rlk_place *place)
{
    struct walk w;
    w.stream = NULL;
    memset(&w.digest, 0, sizeof w.digest);
    run(&w, view, strides, place, false);
    *out = w.digest.sums;
}

void rlki_digest_lump(struct rlk_sums *out, const struct rlk_view *view, const int64_t *strides, uint64_t elements)
{
    const struct rlk_place local = {.ndim = view->ndim, .shape = view->shape};
    struct walk w;
    XXH3_state_t stream;
    XXH3_128bits_reset(&stream);
    w.stream = &stream;
    memset(&w.digest, 0, sizeof w.digest);
    run(&w, view, strides, &local, true);
    XXH128_hash_t h = XXH3_128bits_digest(&stream);
    *out = w.digest.sums; /* the counts */
    out->positional = out->value = (rlk_u128){h.low64, h.high64};
    out->multiset = h.low64;
    out->elements = elements;
}
