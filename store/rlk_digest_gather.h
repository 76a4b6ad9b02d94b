/* rlk_digest_gather.h - walking a part in memory, whatever its strides. Internal to store/. */
#ifndef STORE_RLK_DIGEST_GATHER_H
#define STORE_RLK_DIGEST_GATHER_H

#include "store/rlk_digest.h"

/* Sums of a checked, non-empty, composable part. `strides` has an entry for each dimension. */
void rlki_digest_part(struct rlk_sums *out, const struct rlk_view *view, const int64_t *strides,
                      const struct rlk_place *place);
/* The same for a part with a border inside a unit: its row-major bytes are one unit. */
void rlki_digest_lump(struct rlk_sums *out, const struct rlk_view *view, const int64_t *strides, uint64_t elements);

/* out[r][c] = in[r * row_stride + c * column_stride]: elements of `size` bytes, strides in bytes, `out` dense. */
void rlki_gather(unsigned char *restrict out, const unsigned char *restrict in, size_t size, size_t rows,
                 size_t columns, int64_t row_stride, int64_t column_stride);

#endif
