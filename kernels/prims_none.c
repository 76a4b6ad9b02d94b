/* prims_none.c - every leaf as nothing: what runs while workspace is measured. */
#include "kernels/rlki_prims.h"

static void *none_alloc(struct rlk_exec *x, size_t n)
{
    (void)x, (void)n;
    return NULL;
}
static void none_free(struct rlk_exec *x, void *p)
{
    (void)x, (void)p;
}
static int none_in(struct rlk_exec *x, void *d, const void *s, size_t n)
{
    (void)x, (void)d, (void)s, (void)n;
    return 0;
}
static int none_zero(struct rlk_exec *x, void *d, size_t n)
{
    (void)x, (void)d, (void)n;
    return 0;
}
static int none_sync(struct rlk_exec *x)
{
    (void)x;
    return 0;
}
#define NONE(name, type)                                                                                               \
    static int none_##name(struct rlk_exec *x, const struct type *a)                                                   \
    {                                                                                                                  \
        (void)x, (void)a;                                                                                              \
        return 0;                                                                                                      \
    }
NONE(rows, rlki_rows)
NONE(gemm, rlki_gemm)
NONE(reduce, rlki_reduce)
NONE(norm, rlki_norm)
NONE(gamma, rlki_gamma)
NONE(rope, rlki_rope)
NONE(glu, rlki_glu)
NONE(add, rlki_add)
NONE(attn, rlki_attention)
NONE(dkv, rlki_attention_dkv)
NONE(logp, rlki_logp)
NONE(merge, rlki_logp_merge)
NONE(embed, rlki_embed)
NONE(embed_bwd, rlki_embed_bwd)
NONE(adamw, rlki_adamw)
NONE(sumsq, rlki_sumsq)
NONE(cells, rlki_cells)
NONE(sum, rlki_sum)
NONE(sample, rlki_sample)

const struct rlki_prims rlki_prims_none = {.isa = "none",
                                           .alloc = none_alloc,
                                           .free = none_free,
                                           .upload = none_in,
                                           .download = none_in,
                                           .copy = none_in,
                                           .zero = none_zero,
                                           .sync = none_sync,
                                           .rows = none_rows,
                                           .gemm = none_gemm,
                                           .reduce = none_reduce,
                                           .norm_fwd = none_norm,
                                           .norm_bwd = none_norm,
                                           .gamma = none_gamma,
                                           .rope = none_rope,
                                           .glu_fwd = none_glu,
                                           .glu_bwd = none_glu,
                                           .add = none_add,
                                           .attn_fwd = none_attn,
                                           .attn_dq = none_attn,
                                           .attn_dkv = none_dkv,
                                           .logp_stats = none_logp,
                                           .logp_merge = none_merge,
                                           .logp_dz = none_logp,
                                           .log_softmax = none_logp,
                                           .embed = none_embed,
                                           .embed_bwd = none_embed_bwd,
                                           .adamw = none_adamw,
                                           .sumsq = none_sumsq,
                                           .cells = none_cells,
                                           .sum = none_sum,
                                           .sample = none_sample};
