#include "store/rlk_digest.h"

#include "store/rlk_digest_gather.h"
#include "store/rlk_place.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the digest hashes elements as they lie in memory");

uint64_t rlk_unit_length(enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    size_t bytes = rlk_dtype_bytes(dtype);
    if (ndim <= 1 || (rlk_dtype_is_integer(dtype) && (bytes == 4 || bytes == 8)))
        return 1;
    uint64_t size = shape[ndim - 1];
    if (size % 8 == 0) { /* gcd(16, size/8); gcd(16, 0) = 16 */
        uint64_t eighth = size / 8 | 16;
        return eighth & -eighth;
    }
    return size < 128 ? 1 : 16;
}

rlk_u128 rlk_content_id(const void *bytes, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(n ? bytes : "", n);
    return (rlk_u128){h.low64, h.high64};
}

void rlk_u128_print(char out[33], rlk_u128 v)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < 16; i++) {
        out[i] = digits[v.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digits[v.lo >> (60 - 4 * i) & 15];
    }
    out[32] = '\0';
}

static unsigned char *put(unsigned char *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *p++ = (unsigned char)(v >> (8 * i));
    return p;
}

void rlk_digest_print(char out[33], const struct rlk_sums *sums, enum rlk_dtype dtype, uint32_t ndim,
                      const uint64_t *shape)
{
    unsigned char bytes[24 + 8 * RLK_MAX_DIMS], *p = bytes;
    if (ndim > RLK_MAX_DIMS)
        ndim = RLK_MAX_DIMS; /* no recording holds more */
    p = put(p, sums->positional.lo, 8);
    p = put(p, sums->positional.hi, 8);
    p = put(p, rlk_dtype_code(dtype), 1);
    p = put(p, rlk_dtype_bits(dtype), 1);
    p = put(p, 1, 2); /* lanes */
    p = put(p, ndim, 4);
    for (uint32_t i = 0; i < ndim; i++)
        p = put(p, shape[i], 8);
    rlk_u128_print(out, rlk_content_id(bytes, (size_t)(p - bytes)));
}

/* Fills strides (NULL in the view = row-major) and checks that every element lies inside the storage. */
static int check_view(const struct rlk_view *v, int64_t strides[], uint64_t *elements, struct rlk_detail *detail)
{
    size_t size = rlk_dtype_bytes(v->dtype);
    if (size == 0)
        return rlk_fail(detail, RLK_EINVAL, "digest: unknown element type %d", (int)v->dtype);
    if (v->ndim > RLK_MAX_DIMS)
        return rlk_fail(detail, RLK_EINVAL, "digest: %" PRIu32 " dimensions, at most %u are possible", v->ndim,
                        RLK_MAX_DIMS);
    *elements = 1;
    for (uint32_t i = 0; i < v->ndim; i++)
        if (v->shape[i] == 0)
            *elements = 0;
    if (*elements == 0)
        return RLK_OK;
    for (uint32_t i = v->ndim; i-- > 0;) {
        strides[i] = v->strides ? v->strides[i] : (int64_t)*elements;
        if (__builtin_mul_overflow(*elements, v->shape[i], elements) || *elements > INT64_MAX)
            return rlk_fail(detail, RLK_EINVAL, "digest: the tensor has 2^63 elements or more");
    }
    __int128 low = (__int128)v->offset, high = low; /* 64 terms below 2^126 could overflow: checked one by one */
    const __int128 limit = (__int128)(v->storage_bytes / size);
    bool inside = v->storage != NULL;
    for (uint32_t i = 0; i < v->ndim && inside; i++) {
        __int128 reach = (__int128)strides[i] * (__int128)(v->shape[i] - 1);
        if (reach < 0)
            low += reach;
        else
            high += reach;
        inside = low >= 0 && high < limit;
    }
    if (!inside || low < 0 || high >= limit)
        return rlk_fail(detail, RLK_EINVAL, "digest: an element lies outside the storage of %" PRIu64 " bytes",
                        v->storage_bytes);
    return RLK_OK;
}

int rlk_digest_view(struct rlk_sums *out, bool *composable, const struct rlk_view *view, const struct rlk_place *place,
                    struct rlk_detail *detail)
{
    int64_t strides[RLK_MAX_DIMS];
    uint64_t elements = 0;
    struct rlk_place whole = {.ndim = view->ndim, .shape = view->shape};
    if (!place)
        place = &whole;
    memset(out, 0, sizeof *out);
    *composable = true;
    int rc = check_view(view, strides, &elements, detail);
    if (rc == RLK_OK)
        rc = rlk_place_check(place, view->ndim, view->shape, detail);
    if (rc != RLK_OK)
        return rc;
    *composable = rlk_place_composable(place, view->dtype);
    if (elements == 0)
        return RLK_OK;
    if (*composable)
        rlki_digest_part(out, view, strides, place);
    else
        rlki_digest_lump(out, view, strides, elements);
    return RLK_OK;
}
