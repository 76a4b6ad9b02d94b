/* rlk_digest.h - the digest of docs/digest.md on the CPU: sums that add over parts.
 * Reentrant, allocates nothing; takes up to 40 KiB of stack. */
#ifndef STORE_RLK_DIGEST_H
#define STORE_RLK_DIGEST_H

#include "store/rlk_error.h"
#include "store/rlk_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Unit length of a logical shape (elements a unit), a function of shape and type, never of layout. */
uint64_t rlk_unit_length(enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape);

/* A tensor in memory as a framework describes it. Every read is clamped to [storage, storage + storage_bytes). */
struct rlk_view {
    enum rlk_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;  /* what is held here */
    const int64_t *strides; /* in elements; NULL = contiguous row-major */
    const void *storage;    /* first byte of the storage; may be NULL if the tensor is empty */
    uint64_t storage_bytes;
    uint64_t offset; /* of element 0, in elements from `storage` */
    bool conj, neg;  /* lazily conjugated or negated: digested as what the program would read */
};

/* Sums of `view` as the part of a logical tensor that `place` describes (NULL = the whole of its own shape).
 * *composable is set false when a border of the part lies inside a unit: then its local row-major bytes are one unit.
 * RLK_EINVAL: shape and placement do not fit, or an element lies outside the storage. */
int rlk_digest_view(struct rlk_sums *out, bool *composable, const struct rlk_view *view, const struct rlk_place *place,
                    struct rlk_detail *detail);

/* Printed form: 32 lower-case hex digits and NUL; shape = the logical shape, or the local shape of a local tensor. */
void rlk_digest_print(char out[33], const struct rlk_sums *sums, enum rlk_dtype dtype, uint32_t ndim,
                      const uint64_t *shape);

/* Content id of a byte string: XXH3_128bits, as the store's payloads and parameter blocks are named. */
rlk_u128 rlk_content_id(const void *bytes, size_t n);
void rlk_u128_print(char out[33], rlk_u128 v);

#ifdef __cplusplus
}
#endif

#endif
