/* rlki_cuda.h - the leaves on CUDA, plain C at the border. Internal. Every function enqueues on x->stream. */
#ifndef KERNELS_RLKI_CUDA_H
#define KERNELS_RLKI_CUDA_H

#include "kernels/rlki_prims.h"

#ifdef __cplusplus
extern "C" {
#endif

void *rlki_cuda_alloc(struct rlk_exec *x, size_t bytes);
void rlki_cuda_free(struct rlk_exec *x, void *p);
int rlki_cuda_upload(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
int rlki_cuda_download(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
int rlki_cuda_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
int rlki_cuda_zero(struct rlk_exec *x, void *p, size_t bytes);
int rlki_cuda_sync(struct rlk_exec *x);
int rlki_cuda_rows(struct rlk_exec *x, const struct rlki_rows *a);

#define RLKI_CUDA_OPS(X) RLKI_LEAVES(X) X(cells, rlki_cells)
#define X(op, type) int rlki_cuda_##op(struct rlk_exec *x, const struct type *a);
RLKI_CUDA_OPS(X)
#undef X

/* Few rows (decode). 1: not of this kind. */
int rlki_cuda_gemm_thin(struct rlk_exec *x, const struct rlki_gemm *g);
int rlki_cuda_gemm_leaves(struct rlk_exec *x, const struct rlki_gemm *g, int leaves, float *const *c);

int rlki_cuda_entropy(struct rlk_exec *x, int64_t rows, int64_t vocab, const float *y, double *out);
int rlki_cuda_norm_bwd_gamma(struct rlk_exec *x, const struct rlki_norm *b, const struct rlki_gamma *a);

/* The provider's: cuBLAS by its own choice, the contract's kernels with fast intrinsics, folds; and those of
 * cuda_provider.cu. */
int rlki_cublas_gemm(struct rlk_exec *x, const struct rlki_gemm *a);
int rlki_cuda_fold(struct rlk_exec *x, const struct rlki_reduce *a);
int rlki_cuda_fast_norm_fwd(struct rlk_exec *x, const struct rlki_norm *a);
int rlki_cuda_fast_glu_fwd(struct rlk_exec *x, const struct rlki_glu *a);
int rlki_cuda_fast_attn_fwd(struct rlk_exec *x, const struct rlki_attention *a);
int rlki_cuda_fast_attn_dq(struct rlk_exec *x, const struct rlki_attention *a);
int rlki_cuda_fast_attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *a);
int rlki_cuda_fast_logp_stats(struct rlk_exec *x, const struct rlki_logp *a);

#define RLKI_PROVIDER_OPS(X)                                                                                           \
    X(norm_bwd, rlki_norm)                                                                                             \
    X(gamma, rlki_gamma)                                                                                               \
    X(rope, rlki_rope)                                                                                                 \
    X(glu_bwd, rlki_glu)                                                                                               \
    X(add, rlki_add)                                                                                                   \
    X(logp_merge, rlki_logp_merge)                                                                                     \
    X(logp_dz, rlki_logp)                                                                                              \
    X(log_softmax, rlki_logp)                                                                                          \
    X(embed, rlki_embed)                                                                                               \
    X(embed_bwd, rlki_embed_bwd)                                                                                       \
    X(adamw, rlki_adamw)                                                                                               \
    X(sumsq, rlki_sumsq)                                                                                               \
    X(sum, rlki_sum)                                                                                                   \
    X(sample, rlki_sample)
#define X(op, type) int rlki_provider_##op(struct rlk_exec *x, const struct type *a);
RLKI_PROVIDER_OPS(X)
#undef X

int rlki_cuda_math(struct rlk_exec *x, int which, uint32_t first, int64_t n, float *out);

#ifdef __cplusplus
}
#endif
#endif
