/* bytes.c - the changed elements, where both sides kept the bytes. */
#include "auditor/mechanism/mechanism.h"

#include "store/rlk_dtype_value.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

double rlki_element(const struct rlki_facts *f, int side, uint64_t i)
{
    enum rlk_dtype dtype = rlk_dtype_component((enum rlk_dtype)f->t[0]->dtype);
    const unsigned char *at = f->change.data[side] + i * rlk_dtype_bytes(f->t[0]->dtype);
    return rlk_scalar_to_double(dtype, rlk_scalar_load(dtype, at));
}

bool rlki_element_changed(const struct rlki_facts *f, uint64_t i)
{
    size_t size = rlk_dtype_bytes(f->t[0]->dtype);
    return memcmp(f->change.data[0] + i * size, f->change.data[1] + i * size, size) != 0;
}

/* A tensor seen as [outer][extent][inner]. */
struct slices {
    uint64_t outer, extent, inner; /* inner in bytes */
};

static struct slices slices_along(const struct rlki_facts *f, uint32_t dim)
{
    const struct rlki_change *c = &f->change;
    struct slices s = {1, c->shape[dim], rlk_dtype_bytes(f->t[0]->dtype)};
    for (uint32_t d = 0; d < dim; d++)
        s.outer *= c->shape[d];
    for (uint32_t d = dim + 1; d < c->ndim; d++)
        s.inner *= c->shape[d];
    return s;
}

static uint64_t slice_hash(const struct slices *s, const unsigned char *data, uint64_t i)
{
    uint64_t h = 101;
    for (uint64_t o = 0; o < s->outer; o++)
        h = rlki_mix(h, XXH3_64bits(data + (o * s->extent + i) * s->inner, (size_t)s->inner));
    return h;
}

int rlki_slice_map(const struct rlki_facts *f, uint32_t dim, uint64_t **map)
{
    const struct slices s = slices_along(f, dim);
    struct rlki_hash where = {0}, used = {0};
    int rc = RLK_OK;
    *map = NULL;
    if (s.extent < 2 || s.extent > (UINT64_C(1) << 20))
        return RLK_OK;
    uint64_t *out = malloc((size_t)s.extent * sizeof *out), n = 0;
    if (!out)
        return RLK_ENOMEM;
    for (uint64_t i = 0; i < s.extent; i++) { /* the k-th slice of equal content */
        uint64_t h = slice_hash(&s, f->change.data[0], i);
        rlki_hash_put(&where, rlki_mix(h, rlki_hash_count(&used, h, 1)), i);
    }
    rlki_hash_clear(&used);
    while (n < s.extent) {
        uint64_t h = slice_hash(&s, f->change.data[1], n);
        if (!rlki_hash_get(&where, rlki_mix(h, rlki_hash_count(&used, h, 1)), &out[n]))
            break;
        n++;
    }
    if (where.failed || used.failed)
        rc = RLK_ENOMEM;
    if (rc || n < s.extent) {
        free(out);
        out = NULL;
    }
    *map = out;
    rlki_hash_release(&where);
    rlki_hash_release(&used);
    return rc;
}
