/* cpu_table.h - closes one of cpu_generic.c, cpu_avx2.c, cpu_avx512.c: RLKI_TABLE, RLKI_ISA are defined there. */
#define RLKI_CPU_TABLE(name, isa_name)                                                                                 \
    const struct rlki_prims name = {.isa = isa_name,                                                                   \
                                    .alloc = rlki_cpu_alloc,                                                           \
                                    .free = rlki_cpu_free,                                                             \
                                    .upload = rlki_cpu_copy,                                                           \
                                    .download = rlki_cpu_copy,                                                         \
                                    .copy = rlki_cpu_copy,                                                             \
                                    .zero = rlki_cpu_zero,                                                             \
                                    .sync = rlki_cpu_sync,                                                             \
                                    .rows = rlki_cpu_rows,                                                             \
                                    .gemm = gemm,                                                                      \
                                    .reduce = reduce,                                                                  \
                                    .norm_fwd = norm_fwd,                                                              \
                                    .norm_bwd = norm_bwd,                                                              \
                                    .gamma = gamma_leaf,                                                               \
                                    .rope = rope,                                                                      \
                                    .glu_fwd = glu_fwd,                                                                \
                                    .glu_bwd = glu_bwd,                                                                \
                                    .add = add,                                                                        \
                                    .attn_fwd = attn_fwd,                                                              \
                                    .attn_dq = attn_dq,                                                                \
                                    .attn_dkv = attn_dkv,                                                              \
                                    .logp_stats = logp_stats,                                                          \
                                    .logp_merge = logp_merge,                                                          \
                                    .logp_dz = logp_dz,                                                                \
                                    .log_softmax = log_softmax,                                                        \
                                    .embed = embed,                                                                    \
                                    .embed_bwd = embed_bwd,                                                            \
                                    .adamw = adamw,                                                                    \
                                    .sumsq = sumsq,                                                                    \
                                    .cells = rlki_cpu_cells,                                                           \
                                    .sum = sum_leaf,                                                                   \
                                    .sample = sample,                                                                  \
                                    .math = math_values}
