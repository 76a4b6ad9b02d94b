/* rlk_batch.h - a packed micro-batch on the lattice: which tokens each CP rank holds, and the order of token leaves.
 *
 * Tokens are counted unpadded in (sequence, position) order; a rank holds its own in the same order. A decode step is a
 * batch of sequences of length 1 with `first` = the position of their token. Immutable once made, but for
 * rlk_batch_move.
 */
#ifndef KERNELS_RLK_BATCH_H
#define KERNELS_RLK_BATCH_H

#include "kernels/rlk_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rlk_batch;

/* sequences of length[i] >= 0 tokens; first = position of each one's token 0, NULL = 0. Copies what it needs, and puts
 * small index arrays on x's device (rlk_exec_alloc). RLK_K_EINVAL: negative or too many tokens (2^31-1). */
int rlk_batch_new(struct rlk_exec *x, const struct rlk_lattice *lat, int32_t sequences, const int32_t *length,
                  const int32_t *first, struct rlk_batch **out);
/* Other positions for the same sequences: first[i] is the new one of token 0. In stream order on x's stream; the batch
 * must have been made on x, and the work that read the old positions must be enqueued before. */
int rlk_batch_move(struct rlk_exec *x, struct rlk_batch *b, const int32_t *first);
void rlk_batch_free(struct rlk_exec *x, struct rlk_batch *b);

int64_t rlk_batch_tokens(const struct rlk_batch *b);
int64_t rlk_batch_local(const struct rlk_batch *b, int cp); /* tokens of CP rank cp; may be 0 */
/* Global token of each local one, ascending (host memory, lives as long as b). */
const int32_t *rlk_batch_map(const struct rlk_batch *b, int cp);
/* The spans of the token dimension [tokens] that CP rank cp holds; *spans lives as long as b. */
uint32_t rlk_batch_spans(const struct rlk_batch *b, int cp, const struct rlk_span **spans);

#ifdef __cplusplus
}
#endif
#endif
