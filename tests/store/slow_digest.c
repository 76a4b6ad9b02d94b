#include "tests/store/slow_digest.h"

#include "store/rlk_dtype_value.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef unsigned __int128 u128;

/* Logical coordinates in dimension `dim` of the local index. */
static uint64_t logical_of(const struct rlk_place *place, uint32_t dim, uint64_t local)
{
    const struct rlk_run *run = place->runs;
    if (!place->nruns || place->nruns[dim] == RLK_WHOLE)
        return local;
    for (uint32_t i = 0; i < dim; i++)
        run += place->nruns[i] == RLK_WHOLE ? 0 : place->nruns[i];
    for (uint32_t i = 0; i < place->nruns[dim]; i++) {
        if (local < run[i].extent)
            return run[i].start + local;
        local -= run[i].extent;
    }
    abort();
}

/* The element at a local row-major index, as the program would read it. */
static void read_element(unsigned char *out, const struct rlk_view *v, uint64_t index)
{
    size_t size = rlk_dtype_bytes(v->dtype);
    uint64_t dense = 1;
    int64_t at = (int64_t)v->offset;
    for (uint32_t i = v->ndim; i-- > 0;) {
        at += (int64_t)(index % v->shape[i]) * (v->strides ? v->strides[i] : (int64_t)dense);
        index /= v->shape[i];
        dense *= v->shape[i];
    }
    memcpy(out, (const unsigned char *)v->storage + at * (int64_t)size, size);
    size_t part = rlk_dtype_bytes(rlk_dtype_component(v->dtype));
    bool complex = rlk_dtype_is_complex(v->dtype);
    if (v->neg && (complex || rlk_dtype_is_float(v->dtype))) {
        out[part - 1] ^= 0x80;
        if (complex)
            out[size - 1] ^= 0x80;
    }
    if (v->conj && complex)
        out[size - 1] ^= 0x80;
}

static void canonical(enum rlk_dtype dtype, unsigned char *p, size_t bytes, struct rlk_sums *counts)
{
    enum rlk_dtype component = rlk_dtype_component(dtype);
    size_t size = rlk_dtype_bytes(component);
    for (size_t i = 0; i < bytes; i += size) {
        uint64_t bits = rlk_scalar_load(component, p + i);
        double v = rlk_scalar_to_double(component, bits);
        if (!rlk_dtype_is_float(component))
            continue;
        if (v != v) {
            counts->nan++;
            rlk_scalar_store(component, p + i, rlk_dtype_nan(component));
        } else if (v - v != 0) {
            counts->inf++;
        } else if (v == 0 && bits != 0) {
            counts->negzero++;
            rlk_scalar_store(component, p + i, 0);
        }
    }
}

static void add(rlk_u128 *sum, XXH128_hash_t v)
{
    u128 s = ((u128)sum->hi << 64 | sum->lo) + ((u128)v.high64 << 64 | v.low64);
    *sum = (rlk_u128){(uint64_t)s, (uint64_t)(s >> 64)};
}

static XXH128_hash_t numbered(XXH128_hash_t h, uint64_t number)
{
    unsigned char b[16];
    for (unsigned i = 0; i < 8; i++) {
        b[i] = (unsigned char)(h.low64 >> (8 * i));
        b[8 + i] = (unsigned char)(h.high64 >> (8 * i));
    }
    return XXH3_128bits_withSeed(b, sizeof b, number);
}

static void add_unit(struct rlk_sums *out, enum rlk_dtype dtype, unsigned char *p, size_t bytes, uint64_t number)
{
    XXH128_hash_t h = XXH3_128bits(p, bytes);
    add(&out->positional, numbered(h, number));
    out->multiset += h.low64;
    canonical(dtype, p, bytes, out);
    add(&out->value, numbered(XXH3_128bits(p, bytes), number));
    out->elements += bytes / rlk_dtype_bytes(dtype);
}

static uint64_t unit_of(enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    size_t bytes = rlk_dtype_bytes(dtype);
    if (ndim <= 1 || (rlk_dtype_is_integer(dtype) && (bytes == 4 || bytes == 8)))
        return 1;
    uint64_t size = shape[ndim - 1];
    if (size % 8 == 0)
        for (uint64_t u = 16;; u /= 2)
            if (size / 8 % u == 0)
                return u;
    return size < 128 ? 1 : 16;
}

void slow_digest(struct rlk_sums *out, bool *composable, const struct rlk_view *view, const struct rlk_place *place)
{
    struct rlk_place whole = {.ndim = view->ndim, .shape = view->shape};
    if (!place)
        place = &whole;
    memset(out, 0, sizeof *out);
    *composable = true;
    const uint32_t n = view->ndim;
    const size_t size = rlk_dtype_bytes(view->dtype);
    uint64_t total = 1, width = n ? view->shape[n - 1] : 1, D = n ? place->shape[n - 1] : 1;
    for (uint32_t i = 0; i < n; i++)
        total *= view->shape[i];
    if (total == 0)
        return;
    uint64_t u = unit_of(view->dtype, n, place->shape), U = (D + u - 1) / u;
    unsigned char *row = malloc(width * size), *all = malloc(total * size);
    uint64_t *column = malloc(width * sizeof *column);
    if (!row || !all || !column)
        abort();
    for (uint64_t c = 0; c < width; c++)
        column[c] = n ? logical_of(place, n - 1, c) : 0;
    for (uint64_t c = 0; c < width; c++) { /* a border is where neighbours in the part are none in the whole */
        if ((c == 0 || column[c - 1] + 1 != column[c]) && column[c] % u != 0)
            *composable = false;
        if ((c + 1 == width || column[c + 1] != column[c] + 1) && (column[c] + 1) % u != 0 && column[c] + 1 != D)
            *composable = false;
    }
    for (uint64_t r = 0; r < total / width; r++) {
        uint64_t logical_row = 0, rest = r, weight = 1;
        for (uint32_t i = n > 0 ? n - 1 : 0; i-- > 0;) {
            logical_row += logical_of(place, i, rest % view->shape[i]) * weight;
            rest /= view->shape[i];
            weight *= place->shape[i];
        }
        for (uint64_t c = 0; c < width; c++)
            read_element(row + c * size, view, r * width + c);
        memcpy(all + r * width * size, row, width * size);
        for (uint64_t c = 0; c < width && *composable;) {
            uint64_t len = 1;
            while (c + len < width && column[c + len] / u == column[c] / u)
                len++;
            add_unit(out, view->dtype, row + c * size, (size_t)len * size, logical_row * U + column[c] / u);
            c += len;
        }
    }
    if (!*composable) {
        XXH128_hash_t h = XXH3_128bits(all, total * size);
        canonical(view->dtype, all, total * size, out);
        add(&out->positional, h);
        add(&out->value, h);
        out->multiset = h.low64;
        out->elements = total;
    }
    free(row);
    free(all);
    free(column);
}
