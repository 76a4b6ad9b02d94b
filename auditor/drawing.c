/* drawing.c - an element difference as a histogram of distances, a coarse map of the tensor, and a few examples. */
#include "auditor/drawing.h"
#include "auditor/audit.h"

#include "store/rlk_dtype_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BINS 65u /* 0, then [2^(k-1), 2^k) */
#define EXAMPLES 6u
#define BORDERS 64u

struct cell {
    uint64_t changed;
    uint8_t bin; /* the farthest, + 1; 0 = nothing changed */
    bool nan;
};

struct draw {
    enum rlk_dtype dtype, part;
    unsigned parts;
    size_t size;
    const unsigned char *a, *b;
    uint64_t n, rows, cols;  /* of the tensor: leading dimensions joined, last dimension */
    uint32_t mrows, mcols;   /* of the map */
    struct cell *cell;       /* mrows * mcols */
    uint64_t bin[BINS], nan; /* changed elements by distance; NaN on a side */
    unsigned top;            /* highest bin in use */
    uint64_t first[EXAMPLES];
    unsigned nfirst;
    bool has_far;
    uint64_t far, far_distance;
};

static unsigned bin_of(uint64_t distance)
{
    unsigned k = 0;
    for (; distance; distance >>= 1)
        k++;
    return k;
}

static uint64_t integer_distance(enum rlk_dtype dtype, uint64_t x, uint64_t y)
{
    double d = fabs(rlk_scalar_to_double(dtype, x) - rlk_scalar_to_double(dtype, y));
    return d >= 0x1p63 ? UINT64_C(1) << 63 : (uint64_t)d;
}

/* The distance of one element: ULP, of integers the absolute difference; of complex the larger component's. *nan: NaN
 * on a side. */
static uint64_t distance(const struct draw *d, uint64_t i, bool *nan)
{
    uint64_t most = 0;
    *nan = false;
    for (unsigned c = 0; c < d->parts; c++) {
        size_t at = i * d->size + c * (d->size / d->parts);
        uint64_t x = rlk_scalar_load(d->part, d->a + at), y = rlk_scalar_load(d->part, d->b + at);
        if (rlk_scalar_class(d->part, x) == RLK_VALUE_NAN || rlk_scalar_class(d->part, y) == RLK_VALUE_NAN) {
            *nan = true;
            continue;
        }
        uint64_t one = rlk_dtype_is_integer(d->dtype) ? integer_distance(d->part, x, y) : rlk_scalar_ulp(d->part, x, y);
        most = one > most ? one : most;
    }
    return most;
}

static void look_at(struct draw *d, uint64_t i)
{
    bool nan;
    uint64_t far = distance(d, i, &nan);
    unsigned k = bin_of(far);
    if (nan) {
        d->nan++;
    } else {
        d->bin[k]++;
        d->top = k > d->top ? k : d->top;
        if (!d->has_far || far > d->far_distance) {
            d->has_far = true;
            d->far = i;
            d->far_distance = far;
        }
    }
    if (d->nfirst < EXAMPLES)
        d->first[d->nfirst++] = i;
    if (!d->cell)
        return;
    uint64_t r = i / d->cols, c = i % d->cols;
    struct cell *cell = &d->cell[r * d->mrows / d->rows * d->mcols + c * d->mcols / d->cols];
    cell->changed++;
    cell->nan |= nan;
    if (!nan && k + 1 > cell->bin)
        cell->bin = (uint8_t)(k + 1);
}

/* How many of `whole` fall into bin k of n: i -> i * n / whole. */
static uint64_t extent(uint64_t whole, uint32_t n, uint32_t k)
{
    return ((k + 1) * whole + n - 1) / n - (k * whole + n - 1) / n;
}

/* 9: all; 8: more than half; each level below half as many; 1: at least one. */
static char level(uint64_t changed, uint64_t all)
{
    if (!changed)
        return '.';
    if (changed >= all)
        return '9';
    char out = '8';
    for (uint64_t part = changed; out > '1' && part * 2 <= all; part *= 2)
        out--;
    return out;
}

static char far_level(const struct cell *cell)
{
    if (!cell->changed)
        return '.';
    if (cell->nan)
        return '!';
    unsigned k = cell->bin ? cell->bin - 1u : 0;
    return (char)(k < 10 ? '0' + k : k < 36 ? 'a' + (k - 10) : 'z');
}

static json_t *map_json(const struct draw *d)
{
    json_t *changed = json_array(), *far = json_array();
    char line[2][RLKI_MAP_COLS + 1];
    for (uint32_t r = 0; changed && far && r < d->mrows; r++) {
        for (uint32_t c = 0; c < d->mcols; c++) {
            const struct cell *cell = &d->cell[r * d->mcols + c];
            line[0][c] = level(cell->changed, extent(d->rows, d->mrows, r) * extent(d->cols, d->mcols, c));
            line[1][c] = far_level(cell);
        }
        line[0][d->mcols] = line[1][d->mcols] = '\0';
        rlki_add(changed, json_string(line[0]));
        rlki_add(far, json_string(line[1]));
    }
    return json_pack("{s:[I,I],s:o,s:o}", "shape", (json_int_t)d->rows, (json_int_t)d->cols, "changed", changed, "far",
                     far);
}

static json_t *histogram_json(const struct draw *d)
{
    json_t *counts = json_array();
    for (unsigned k = 0; counts && d->has_far && k <= d->top; k++)
        rlki_add(counts, json_integer((json_int_t)d->bin[k]));
    return json_pack("{s:s,s:o,s:I}", "unit", rlk_dtype_is_integer(d->dtype) ? "integer" : "ulp", "counts", counts,
                     "nan", (json_int_t)d->nan);
}

static json_t *value_json(const struct draw *d, const unsigned char *side, uint64_t i)
{
    char text[80];
    const unsigned char *p = side + i * d->size;
    double re = rlk_scalar_to_double(d->part, rlk_scalar_load(d->part, p));
    if (d->parts == 2)
        snprintf(text, sizeof text, "%.9g%+.9gi", re,
                 rlk_scalar_to_double(d->part, rlk_scalar_load(d->part, p + d->size / 2)));
    else
        snprintf(text, sizeof text, "%.*g", d->part == RLK_FP64 || rlk_dtype_is_integer(d->dtype) ? 17 : 9, re);
    return json_string(text);
}

static json_t *bits_json(const struct draw *d, const unsigned char *side, uint64_t i)
{
    char text[40];
    size_t n = d->size < 16 ? d->size : 16;
    for (size_t k = 0; k < n; k++) /* little-endian: the highest byte first */
        snprintf(text + 2 * k, 3, "%02x", side[i * d->size + n - 1 - k]);
    return json_string(text);
}

static json_t *example_json(const struct draw *d, uint64_t i, uint32_t ndim, const uint64_t *shape,
                            const struct rlk_place *place)
{
    bool nan;
    uint64_t far = distance(d, i, &nan);
    json_t *out =
        json_pack("{s:o,s:o,s:o,s:o,s:o}", "index", rlki_index_json(i, ndim, shape, place), "a", value_json(d, d->a, i),
                  "b", value_json(d, d->b, i), "bits_a", bits_json(d, d->a, i), "bits_b", bits_json(d, d->b, i));
    if (out)
        rlki_set(out, "distance", nan || far > INT64_MAX ? json_null() : json_integer((json_int_t)far));
    return out;
}

/* Rows of the map's tensor (leading dimensions joined) at which dimension `cut->dim` is cut: once for each index of the
 * dimensions before it. */
static void add_rows(json_t *rows, const struct rlki_cut *cut, uint32_t ndim, const uint64_t *shape)
{
    uint64_t before = 1, stride = 1;
    for (uint32_t d = 0; d < cut->dim; d++)
        before *= shape[d];
    for (uint32_t d = cut->dim + 1; d + 1 < ndim; d++)
        stride *= shape[d];
    if (before > BORDERS) /* at every few rows: nothing to be seen */
        return;
    for (uint64_t o = 0; o < before && json_array_size(rows) <= BORDERS; o++)
        rlki_add(rows, json_integer((json_int_t)((o * shape[cut->dim] + cut->at) * stride)));
}

static json_t *borders(const struct rlki_cuts *cuts, uint32_t ndim, const uint64_t *shape)
{
    json_t *rows = json_array(), *cols = json_array();
    for (size_t i = 0; cuts && rows && cols && i < cuts->n; i++) {
        if (cuts->cut[i].dim + 1 == ndim && json_array_size(cols) <= BORDERS)
            rlki_add(cols, json_integer((json_int_t)cuts->cut[i].at));
        else if (cuts->cut[i].dim + 1 < ndim)
            add_rows(rows, &cuts->cut[i], ndim, shape);
    }
    if (json_array_size(rows) > BORDERS) /* more than lines of the map: nothing to be seen */
        json_array_clear(rows);
    if (json_array_size(cols) > BORDERS)
        json_array_clear(cols);
    return json_pack("{s:o,s:o}", "rows", rows, "cols", cols);
}

static void add_borders(json_t *map, const struct rlki_cuts *const cuts[2], uint32_t ndim, const uint64_t *shape)
{
    if (!(cuts[0] && cuts[0]->n) && !(cuts[1] && cuts[1]->n))
        return;
    rlki_set(map, "borders",
             json_pack("{s:o,s:o}", "a", borders(cuts[0], ndim, shape), "b", borders(cuts[1], ndim, shape)));
}

int rlki_draw(json_t *difference, enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape,
              const struct rlk_place *place, const struct rlki_cuts *const cuts[2], const void *a, const void *b,
              uint64_t n)
{
    struct draw d = {.dtype = dtype,
                     .part = rlk_dtype_component(dtype),
                     .parts = rlk_dtype_components(dtype),
                     .size = rlk_dtype_bytes(dtype),
                     .a = a,
                     .b = b,
                     .n = n};
    d.cols = ndim && shape[ndim - 1] ? shape[ndim - 1] : 1;
    d.rows = n / d.cols;
    d.mrows = d.rows < RLKI_MAP_ROWS ? (uint32_t)d.rows : RLKI_MAP_ROWS;
    d.mcols = d.cols < RLKI_MAP_COLS ? (uint32_t)d.cols : RLKI_MAP_COLS;
    if (!d.size || !n || d.rows * d.cols != n)
        return RLK_OK;
    if (n > 1) {
        d.cell = calloc((size_t)d.mrows * d.mcols, sizeof *d.cell);
        if (!d.cell)
            return RLK_ENOMEM;
    }
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(d.a + i * d.size, d.b + i * d.size, d.size) != 0)
            look_at(&d, i);
    if (d.nfirst) {
        json_t *examples = json_array();
        bool seen = !d.has_far;
        for (unsigned k = 0; examples && k < d.nfirst; k++) {
            rlki_add(examples, example_json(&d, d.first[k], ndim, shape, place));
            seen |= d.first[k] == d.far;
        }
        if (examples && !seen) /* the farthest stands last */
            rlki_add(examples, example_json(&d, d.far, ndim, shape, place));
        rlki_set(difference, "histogram", histogram_json(&d));
        if (d.cell) {
            json_t *map = map_json(&d);
            if (map && (cuts[0] || cuts[1]))
                add_borders(map, cuts, ndim, shape);
            rlki_set(difference, "map", map);
        }
        rlki_set(difference, "examples", examples);
    }
    free(d.cell);
    return RLK_OK;
}
