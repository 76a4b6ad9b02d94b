/* cuda_table.c - the tables of the GPU: by contract, and the provider's. */
#include "kernels/rlki_cuda.h"

#define MEMORY                                                                                                         \
    .alloc = rlki_cuda_alloc, .free = rlki_cuda_free, .upload = rlki_cuda_upload, .download = rlki_cuda_download,      \
    .copy = rlki_cuda_copy, .zero = rlki_cuda_zero, .sync = rlki_cuda_sync, .rows = rlki_cuda_rows
#define X(op, type) .op = rlki_cuda_##op,

const struct rlki_prims rlki_prims_cuda = {.isa = "cuda",
                                           MEMORY,
                                           RLKI_CUDA_OPS(X).gemm_leaves = rlki_cuda_gemm_leaves,
                                           .entropy = rlki_cuda_entropy,
                                           .math = rlki_cuda_math};

const struct rlki_prims rlki_prims_cuda_provider = {.isa = "cuda-provider",
                                                    MEMORY,
                                                    .gemm = rlki_cublas_gemm,
                                                    .reduce = rlki_cuda_fold,
                                                    .norm_fwd = rlki_cuda_fast_norm_fwd,
                                                    .norm_bwd = rlki_cuda_norm_bwd,
                                                    .gamma = rlki_cuda_gamma,
                                                    .rope = rlki_cuda_rope,
                                                    .glu_fwd = rlki_cuda_fast_glu_fwd,
                                                    .glu_bwd = rlki_cuda_glu_bwd,
                                                    .add = rlki_cuda_add,
                                                    .attn_fwd = rlki_cuda_fast_attn_fwd,
                                                    .attn_dq = rlki_cuda_attn_dq,
                                                    .attn_dkv = rlki_cuda_attn_dkv,
                                                    .logp_stats = rlki_cuda_fast_logp_stats,
                                                    .logp_merge = rlki_cuda_logp_merge,
                                                    .logp_dz = rlki_cuda_logp_dz,
                                                    .log_softmax = rlki_cuda_log_softmax,
                                                    .embed = rlki_cuda_embed,
                                                    .embed_bwd = rlki_cuda_embed_bwd,
                                                    .adamw = rlki_cuda_adamw,
                                                    .sumsq = rlki_cuda_sumsq,
                                                    .cells = rlki_cuda_cells,
                                                    .sum = rlki_cuda_sum,
                                                    .sample = rlki_cuda_sample,
                                                    .entropy = rlki_cuda_entropy,
                                                    .math = rlki_cuda_math};
