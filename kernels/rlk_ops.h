/* rlk_ops.h - the operators of a Qwen3 policy, forward and backward, over the ranks of a world.
 *
 * What holds for all of them
 * - Tensor arguments are arrays with one pointer a held rank, in the order of world->rank: `x[i]` belongs to rank[i].
 *   Pointers are device memory, aligned to 16 bytes, dense and row-major; a pointer may be NULL where the rank's extent
 * is 0.
 * - n = tokens of the rank: rlk_batch_local(batch, cp). "/TP" = the rank's slabs of that dimension.
 * - type = storage of activations and weights, RLK_K_BF16 or RLK_K_FP32. Gradients of parameters are FP32 and are added
 * to
 *   (`main_grad += root`), once a micro-batch, micro-batches in order. Outputs are written, never added to.
 * - Bitwise: a row of an output depends on that row's inputs and on weights only; neither TP, CP, the other rows,
 * threads, instruction set, nor CPU or GPU change it. Gradients depend on the micro-batch's tokens, not on TP, CP or
 * device. This holds for class portable/1 (docs/contracts.md); nothing holds for the provider.
 * - module = the caller's path of the module ("layers.0.mlp"); it is announced, and it is the boundary of policies. It
 * may be NULL. Returned strings and pointers are not kept.
 * - Errors: RLK_K_EUNSUPPORTED (a shape off the lattice, or strict without a row), RLK_K_EINVAL, RLK_K_ENOMEM
 * (workspace; see rlk_exec_measure), RLK_K_EINTERNAL (device). world->x->detail.text says what to change. After an
 * error outputs are unspecified.
 */
#ifndef KERNELS_RLK_OPS_H
#define KERNELS_RLK_OPS_H

#include "kernels/rlk_batch.h"
#include "kernels/rlk_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef const void *const *rlk_in; /* by held rank */
typedef void *const *rlk_out;

/* ---- linear: y = x W^T, W [out][in] ------------------------------------------------------------------------------ */

/* rlk.gemm.column/portable/1: W cut by out. x [n][in] on every TP rank, weight [out/TP][in], y [n][out/TP]. */
int rlk_linear_column_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                          enum rlk_ktype type, rlk_in x, rlk_in weight, rlk_out y);

/* Its dX, for up to 3 weights that share x (q,k,v or gate,up): of slab s one accumulator over the segments in order,
 * then the slab tree. dy[g] [n][out[g]/TP], weight[g] [out[g]/TP][in], dx [n][in] on every TP rank. */
int rlk_linear_column_dx(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int segments,
                         const int64_t *out, enum rlk_ktype type, const rlk_in *dy, const rlk_in *weight, rlk_out dx);

/* rlk.gemm.row/portable/1: W cut by in; slab tree. x [n][in/TP], weight [out][in/TP], y [n][out] on every TP rank. */
int rlk_linear_row_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                       enum rlk_ktype type, rlk_in x, rlk_in weight, rlk_out y);
/* Its dX: no reduction over ranks. dy [n][out], weight [out][in/TP], dx [n][in/TP]. */
int rlk_linear_row_dx(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                      enum rlk_ktype type, rlk_in dy, rlk_in weight, rlk_out dx);

/* rlk.gemm.dw/portable/1: grad [out'][in'] += pair tree over tokens of dy^T x. Which dimension TP cuts: */
enum rlk_cut { RLK_CUT_NONE = 0, RLK_CUT_OUT = 1, RLK_CUT_IN = 2 };
int rlk_linear_dw(struct rlk_world *w, const struct rlk_batch *b, const char *module, enum rlk_cut cut, int64_t in,
                  int64_t out, enum rlk_ktype type, rlk_in dy, rlk_in x, float *const *grad);

/* ---- rlk.ffn.qwen3.deterministic/portable/1: y = down(silu(gate(x)) * up(x)) ------------------------------------ */

struct rlk_ffn {
    const char *module;
    int64_t hidden, intermediate;
    enum rlk_ktype type;
    rlk_in w_gate, w_up; /* [intermediate/TP][hidden] */
    rlk_in w_down;       /* [hidden][intermediate/TP] */
};
/* x, y [n][hidden]; gate, up, act [n][intermediate/TP] are written and belong to the backward. */
int rlk_ffn_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_ffn *f, rlk_in x, rlk_out gate,
                rlk_out up, rlk_out act, rlk_out y);
/* dx [n][hidden] is written; g_* are added to; gate and up are overwritten by their gradients. */
int rlk_ffn_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_ffn *f, rlk_in dy, rlk_in x,
                rlk_out gate, rlk_out up, rlk_in act, rlk_out dx, float *const *g_gate, float *const *g_up,
                float *const *g_down);

/* ---- rlk.attention.deterministic/portable/1: causal, grouped queries, packed sequences --------------------------- */

struct rlk_attention {
    const char *module;
    int heads, kv_heads, head_dim; /* of the whole model; head_dim 64 or 128 */
    enum rlk_ktype type;
};
/* q [n][heads/TP][d], k, v [n][kv_heads/TP][d] (rotated), o as q, lse [n][heads/TP] FP32. Keys of a sequence begin at
 * its token 0; batches with `first` != 0 are for the cached form. K and V are gathered over CP. */
int rlk_attention_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a, rlk_in q, rlk_in k,
                      rlk_in v, rlk_out o, float *const *lse);
/* Decode and chunked prefill: keys of sequence s, positions 0.., are rows cache_row[s].. of k_cache and v_cache
 * [rows][kv_heads/TP][d], which already hold the batch's own keys. A row's bits are those of rlk_attention_fwd.
 * cp must be 1 (RLK_K_EUNSUPPORTED). cache_row is host memory; lse may be NULL. */
int rlk_attention_cached(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a,
                         const int32_t *cache_row, rlk_in q, rlk_in k_cache, rlk_in v_cache, rlk_out o,
                         float *const *lse);
/* Puts the batch's keys and values into the cache at cache_row[s] + position. cp must be 1. */
int rlk_attention_append(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a,
                         const int32_t *cache_row, rlk_in k, rlk_in v, rlk_out k_cache, rlk_out v_cache);
int rlk_attention_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a, rlk_in dout,
                      rlk_in q, rlk_in k, rlk_in v, rlk_in o, const float *const *lse, rlk_out dq, rlk_out dk,
                      rlk_out dv);

/* ---- rlk.rmsnorm/portable/1 ------------------------------------------------------------------------------------- */

/* x, y [n][size], gamma [size], rstd [n] FP32 for the backward. */
int rlk_rmsnorm_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size,
                    enum rlk_ktype type, float eps, rlk_in x, rlk_in gamma, rlk_out y, float *const *rstd);
int rlk_rmsnorm_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size,
                    enum rlk_ktype type, rlk_in dy, rlk_in x, rlk_in gamma, const float *const *rstd, rlk_out dx,
                    float *const *g_gamma);
/* q/k norm: rows = [n][heads/TP], size = head_dim; g_gamma [head_dim], the same on every rank. rstd [n][heads/TP]. */
int rlk_headnorm_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
                     enum rlk_ktype type, float eps, rlk_in x, rlk_in gamma, rlk_out y, float *const *rstd);
int rlk_headnorm_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
                     enum rlk_ktype type, rlk_in dy, rlk_in x, rlk_in gamma, const float *const *rstd, rlk_out dx,
                     float *const *g_gamma);

/* ---- rlk.rope/portable/1: half-split rotation, x [n][heads/TP][head_dim], y may be x ----------------------------- */

/* Fills [positions][head_dim] FP32 in host memory: d/2 cosines, then d/2 sines, of fl32(position *
 * fl32(theta^(-2i/d))). The same bits everywhere (no libm). head_dim 64 or 128; positions at most 2^22. */
int rlk_rope_table(double theta, int head_dim, int64_t positions, float *table, struct rlk_kdetail *detail);
/* table: device memory, one for all held ranks, at least as many positions as the batch has. inverse = the backward. */
int rlk_rope(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
             enum rlk_ktype type, const float *table, bool inverse, rlk_in x, rlk_out y);

/* ---- rlk.add/portable/1: y = round(a + b), [n][size]; y may be a or b ------------------------------------------- */
int rlk_add(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size, enum rlk_ktype type,
            rlk_in a, rlk_in c, rlk_out y);

/* ---- rlk.select/portable/1: y[k] = x[row[k]], bytes only; [size] a row. cp must be 1 --------------------------------
 */

/* row: host memory, one local row of `from` for each token of `to`: the last tokens of a prefill, say. */
int rlk_select(struct rlk_world *w, const struct rlk_batch *from, const struct rlk_batch *to, const char *module,
               const int32_t *row, int64_t size, enum rlk_ktype type, rlk_in x, rlk_out y);

/* ---- rlk.embedding/portable/1: table [vocab/TP][hidden] (rlk_vocab_span), y [n][hidden] on every TP rank --------- */

/* ids: host memory, all tokens of the batch. RLK_K_EINVAL names the first id outside [0,vocab). */
int rlk_embedding_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab, int64_t hidden,
                      enum rlk_ktype type, const int32_t *ids, rlk_in table, rlk_out y);
int rlk_embedding_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab, int64_t hidden,
                      enum rlk_ktype type, const int32_t *ids, rlk_in dy, float *const *grad);

/* ---- rlk.linear_logp.bitwise/portable/1: LM head + log-probability of one target, no [n][vocab] is kept ---------- */

struct rlk_logp {
    const char *module;
    int64_t hidden, vocab;
    enum rlk_ktype type;
    float temperature;      /* > 0 */
    rlk_in weight;          /* [vocab/TP][hidden] (rlk_vocab_span) */
    const int32_t *targets; /* host memory, all tokens of the batch; -1 = none: logp 0, no gradient */
};
/* h [n][hidden]; logp [n] FP32 on every TP rank; stats [n][3] FP32 = max, sum, log(sum), for the backward. */
int rlk_logp_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h, float *const *logp,
                 float *const *stats);
/* g [n] FP32 = d loss / d logp. dh [n][hidden] is written, g_weight [vocab/TP][hidden] is added to. */
int rlk_logp_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h,
                 const float *const *stats, const float *const *g, rlk_out dh, float *const *g_weight);
/* rlk.logits/portable/1: z [n][vocab] FP32 on every TP rank (before temperature), the same bits logp is made of. */
int rlk_logits(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h, float *const *z);
/* rlk.log_softmax/portable/1: of whole rows z [n][vocab]; y [n][vocab] FP32, may be z. y[target] has rlk_logp_fwd's
 * bits. */
int rlk_log_softmax(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab,
                    float temperature, const float *const *z, float *const *y);

/* ---- rlk.sample/portable/1 -------------------------------------------------------------------------------------- */

/* Of one rank's own rows y of log-probabilities, on the device: out[r] (there, too) = -sum over v of exp(y) y in FP64,
 * v ascending, each step rounded. Not announced. */
int rlk_entropy_rows(struct rlk_exec *x, int64_t rows, int64_t vocab, const float *y, double *out);


struct rlk_sampling {
    const char *module;
    int64_t vocab;
    float temperature; /* 0 = the largest logit, ties to the lowest id */
    float top_p;       /* (0,1]; 1 = no cut */
    uint64_t seed;
    uint32_t step;           /* optimizer step or weight version */
    const uint64_t *samples; /* host, all tokens of the batch: the sample each row belongs to */
};
/* z [n][vocab] whole rows, on every TP rank; the row's position is the batch's. token [n] int32 device memory. The
 * token depends on (z row, temperature, top_p, seed, sample, step, position) and on nothing else. */
int rlk_sample(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_sampling *s, const float *const *z,
               int32_t *const *token);

/* ---- losses, gradient norm, optimizer --------------------------------------------------------------------------- */

/* rlk.loss_sum/portable/1: sum[0] += FP64 pair tree over tokens of x where mask, sum[1] += their number; sum: host
 * memory, one for all; mask (device, [n]) may be NULL. Synchronises. Divide once, at the end. */
int rlk_loss_sum(struct rlk_world *w, const struct rlk_batch *b, const char *module, const float *const *x,
                 const uint8_t *const *mask, double sum[2]);

/* One parameter: logical shape [rows][cols] (a vector: rows = 1), how TP cuts it, and its local FP32 gradient. */
struct rlk_param {
    const char *name;
    int64_t rows, cols;
    enum rlk_cut cut; /* RLK_CUT_OUT: rows by slab, RLK_CUT_IN: columns by slab */
    bool vocab;       /* rows are a vocabulary: slabs as rlk_vocab_slab */
    float *const *grad;
};
/* rlk.gradnorm/portable/1: L2 norm in FP64 of all parameters, in the order given. Synchronises. */
int rlk_gradnorm(struct rlk_world *w, const char *module, int params, const struct rlk_param *param, double *norm);
/* min(1, max_norm / (norm + 1e-6)) rounded once to FP32; 1 when max_norm <= 0. */
float rlk_clip_coefficient(double norm, double max_norm);

/* rlk.adamw/portable/1: elementwise; master, m, v, grad are FP32; weight (type) may be NULL. */
struct rlk_adamw {
    const char *module;
    float lr, beta1, beta2, eps, weight_decay, coefficient;
    int64_t step; /* 1 for the first */
    enum rlk_ktype type;
};
/* Over n[i] elements of rank i, of any shape: nothing is announced but the call. */
int rlk_adamw(struct rlk_world *w, const struct rlk_adamw *o, const int64_t *n, float *const *master, float *const *m,
              float *const *v, const float *const *grad, rlk_out weight);
/* The same over one parameter, whose tensors are announced with their placement; p->grad is the gradient. */
int rlk_adamw_param(struct rlk_world *w, const struct rlk_adamw *o, const struct rlk_param *p, float *const *master,
                    float *const *m, float *const *v, rlk_out weight);

/* Elements of rank i's part of a parameter. */
int64_t rlk_param_local(const struct rlk_world *w, const struct rlk_param *p, int i);

#ifdef __cplusplus
}
#endif
#endif
