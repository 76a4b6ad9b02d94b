/* cuda_table.c - the tables of the GPU: by contract, and the provider's. */
#include "kernels/rlki_cuda.h"

#define MEMORY                                                                                                         \
    .alloc = rlki_cuda_alloc, .free = rlki_cuda_free, .upload = rlki_cuda_upload, .download = rlki_cuda_download,      \
    .copy = rlki_cuda_copy, .zero = rlki_cuda_zero, .sync = rlki_cuda_sync, .rows = rlki_cuda_rows
#define X(op, type) .op = rlki_cuda_##op,

const struct rlki_prims rlki_prims_cuda = {.isa = "cuda",
                                           MEMORY,
                                           RLKI_CUDA_OPS(X).gemm_leaves = rlki_cuda_gemm_leaves,
                                           .norm_bwd_gamma = rlki_cuda_norm_bwd_gamma,
                                           .entropy = rlki_cuda_entropy,
                                           .math = rlki_cuda_math};

#undef X
#define X(op, type) .op = rlki_provider_##op,
/* cells adds up what sumsq made: one number a parameter here. */
const struct rlki_prims rlki_prims_cuda_provider = {.isa = "cuda-provider",
                                                    MEMORY,
                                                    RLKI_PROVIDER_OPS(X).gemm = rlki_cublas_gemm,
                                                    .reduce = rlki_cuda_fold,
                                                    .norm_fwd = rlki_cuda_fast_norm_fwd,
                                                    .glu_fwd = rlki_cuda_fast_glu_fwd,
                                                    .attn_fwd = rlki_cuda_fast_attn_fwd,
                                                    .attn_dq = rlki_cuda_fast_attn_dq,
                                                    .attn_dkv = rlki_cuda_fast_attn_dkv,
                                                    .logp_stats = rlki_cuda_fast_logp_stats,
                                                    .cells = rlki_cuda_cells,
                                                    .entropy = rlki_cuda_entropy,
                                                    .math = rlki_cuda_math};
