/* pattern.c - counts changed elements and names the shape of the change (docs/identity.md, "Element differences"). */
#include "auditor/elements.h"

#include "store/rlk_dtype_value.h"
#include "store/rlk_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    enum rlk_dtype dtype, part;
    unsigned parts;
    size_t size;
    const unsigned char *a, *b;
    uint64_t n, cols, rows;
};

static bool changed(const struct scan *s, uint64_t i)
{
    return memcmp(s->a + i * s->size, s->b + i * s->size, s->size) != 0;
}

static double real_difference(const struct scan *s, uint64_t i)
{
    return rlk_element_to_double(s->dtype, s->b + i * s->size) - rlk_element_to_double(s->dtype, s->a + i * s->size);
}

/* One element's part in the maxima. */
static void measure(struct rlki_elements *out, const struct scan *s, uint64_t i)
{
    bool nan = false;
    for (unsigned c = 0; c < s->parts; c++) {
        size_t at = i * s->size + c * (s->size / s->parts);
        uint64_t x = rlk_scalar_load(s->part, s->a + at), y = rlk_scalar_load(s->part, s->b + at);
        if (rlk_scalar_class(s->part, x) == RLK_VALUE_NAN || rlk_scalar_class(s->part, y) == RLK_VALUE_NAN) {
            nan = true;
            continue;
        }
        out->measured |= isfinite(rlk_scalar_to_double(s->part, x)) && isfinite(rlk_scalar_to_double(s->part, y));
        double d = fabs(rlk_scalar_to_double(s->part, x) - rlk_scalar_to_double(s->part, y));
        if (d > out->max_abs)
            out->max_abs = d;
        if (out->has_ulp) {
            uint64_t ulp = rlk_scalar_ulp(s->part, x, y);
            if (ulp > out->max_ulp)
                out->max_ulp = ulp;
        }
    }
    out->nan += nan;
}

/* The byte that fills all changed elements of one side, or -1. */
static int fill_byte(const struct scan *s, const unsigned char *side)
{
    int byte = -1;
    for (uint64_t i = 0; i < s->n; i++) {
        if (!changed(s, i))
            continue;
        for (size_t k = 0; k < s->size; k++) {
            if (byte >= 0 && side[i * s->size + k] != byte)
                return -1;
            byte = side[i * s->size + k];
        }
    }
    return byte;
}

static int compare_elements(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* The same elements in another order, by sorting; RLK_ENOMEM. */
static int same_multiset(const struct scan *s, bool *out)
{
    *out = false;
    if (s->size > 8 || !s->n)
        return RLK_OK;
    uint64_t *x = calloc((size_t)s->n, sizeof *x), *y = calloc((size_t)s->n, sizeof *y);
    int rc = x && y ? RLK_OK : RLK_ENOMEM;
    if (rc == RLK_OK) {
        for (uint64_t i = 0; i < s->n; i++) {
            memcpy(&x[i], s->a + i * s->size, s->size);
            memcpy(&y[i], s->b + i * s->size, s->size);
        }
        qsort(x, (size_t)s->n, sizeof *x, compare_elements);
        qsort(y, (size_t)s->n, sizeof *y, compare_elements);
        *out = memcmp(x, y, (size_t)s->n * sizeof *x) == 0;
    }
    free(x);
    free(y);
    return rc;
}

/* What one row looks like: changed elements, first and last of them, one difference throughout. */
struct row {
    uint64_t changed, first, last;
    bool constant;
};

static struct row look_at_row(const struct scan *s, uint64_t r)
{
    struct row row = {.constant = true};
    double d = 0;
    for (uint64_t c = 0; c < s->cols; c++) {
        uint64_t i = r * s->cols + c;
        if (!changed(s, i))
            continue;
        double here = real_difference(s, i);
        if (!row.changed) {
            row.first = c;
            d = here;
        }
        /* a constant added to each element is rounded with each: half the last place of the smaller one decides */
        row.constant &= isfinite(here) && fabs(here - d) <= 1e-2 * fabs(d);
        row.last = c;
        row.changed++;
    }
    return row;
}

static const char *shape_of_change(const struct scan *s, const struct rlki_elements *e, uint64_t last)
{
    uint64_t rows_hit = 0, full = 0, to_end = 0, constant = 0, lo = s->cols, hi = 0, span_lo = s->rows, span_hi = 0,
             same_span = 0;
    if (e->changed == last - e->first + 1 && last + 1 == s->n && e->first > 0 &&
        (s->rows == 1 || e->first % s->cols == 0 || e->first / s->cols + 1 < s->rows))
        return "tail";
    for (uint64_t r = 0; r < s->rows; r++) {
        struct row row = look_at_row(s, r);
        if (!row.changed)
            continue;
        rows_hit++;
        full += row.changed == s->cols;
        to_end += row.changed == s->cols - row.first && row.first > 0;
        constant += row.changed == s->cols && row.constant && s->cols > 1;
        if (rows_hit > 1 && row.first == lo && row.last == hi && row.changed == row.last - row.first + 1)
            same_span++;
        lo = row.first < lo ? row.first : lo;
        hi = row.last > hi ? row.last : hi;
        span_lo = r < span_lo ? r : span_lo;
        span_hi = r;
    }
    bool scalar_rows = s->cols == 1;
    if (constant == rows_hit && rows_hit && !scalar_rows)
        return "row-constant";
    if (e->changed == s->n)
        return "whole";
    if (full == rows_hit && !scalar_rows)
        return "rows";
    if (to_end == rows_hit && rows_hit)
        return "suffix";
    uint64_t block = (hi - lo + 1) * (span_hi - span_lo + 1);
    if (!scalar_rows && rows_hit > 1 && same_span + 1 == rows_hit && block == e->changed)
        return "tile";
    if (e->changed == 1)
        return "unknown"; /* one element has no shape */
    if (s->rows >= 8 && !scalar_rows && rows_hit * 4 <= s->rows)
        return "rows";
    if (e->changed * 64 >= s->n || rows_hit * 2 >= s->rows)
        return "uniform";
    return "unknown";
}

int rlki_elements(struct rlki_elements *out, enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape, const void *a,
                  const void *b, uint64_t n, bool multiset_equal, bool value_equal)
{
    struct scan s = {.dtype = dtype,
                     .part = rlk_dtype_component(dtype),
                     .parts = rlk_dtype_components(dtype),
                     .size = rlk_dtype_bytes(dtype),
                     .a = a,
                     .b = b,
                     .n = n};
    bool permuted = false, negzero = false;
    uint64_t last = 0;
    memset(out, 0, sizeof *out);
    out->elements = n;
    out->has_ulp = !rlk_dtype_is_integer(dtype);
    out->fill_a = out->fill_b = -1;
    out->pattern = "unknown";
    out->grade = "different";
    s.cols = ndim && shape[ndim - 1] ? shape[ndim - 1] : 1;
    s.rows = s.cols ? n / s.cols : 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!changed(&s, i))
            continue;
        if (!out->changed)
            out->first = i;
        last = i;
        out->changed++;
        measure(out, &s, i);
        uint64_t x = rlk_scalar_load(s.part, s.a + i * s.size), y = rlk_scalar_load(s.part, s.b + i * s.size);
        negzero |= rlk_scalar_class(s.part, x) == RLK_VALUE_NEGZERO || rlk_scalar_class(s.part, y) == RLK_VALUE_NEGZERO;
    }
    if (!out->changed)
        return RLK_OK;
    out->fill_a = fill_byte(&s, a);
    out->fill_b = fill_byte(&s, b);
    int rc = same_multiset(&s, &permuted);
    if (rc)
        return rc;
    (void)multiset_equal; /* the bytes decide */
    out->pattern = permuted ? "permutation" : shape_of_change(&s, out, last);
    if (value_equal)
        out->grade = out->nan ? (negzero && out->nan < out->changed ? "sign-of-zero" : "nan-payload") : "sign-of-zero";
    else if (permuted)
        out->grade = "permutation";
    return RLK_OK;
}
