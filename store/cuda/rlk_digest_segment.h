/* rlk_digest_segment.h - turns a tensor and its placement into boxes of units for the digest kernel. Host only. */
#ifndef STORE_CUDA_RLK_DIGEST_SEGMENT_H
#define STORE_CUDA_RLK_DIGEST_SEGMENT_H

#include "store/cuda/rlk_digest_kernel.h"
#include "store/rlk_digest.h"

/* Appends the boxes of one tensor to out[*n..RLKG_SEGMENTS). Errors as rlk_gpu_digest_plan(). */
int rlki_segments(struct rlkg_segment *out, uint32_t *n, uint16_t slot, const struct rlk_view *view,
                  const struct rlk_place *place, struct rlk_detail *detail);

/* Spreads the boxes over blocks: about as many as `target_blocks`, none smaller than it pays. Returns the grid size. */
uint32_t rlki_segments_blocks(struct rlkg_segment *segments, uint32_t n, uint32_t target_blocks);

#endif
