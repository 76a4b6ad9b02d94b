/* rlki_prims.h - the leaves of every operator on one rank, as a table: one per device and arithmetic. Internal.
 *
 * The operators (op_*.c) hold the order above the leaves; the order inside a leaf is docs/contracts.md, sections 4
 * to 8. All tensors are dense and row-major unless a stride says otherwise. Every function returns 0 or a code with
 * x->detail filled. type = storage of activations and weights: RLK_K_BF16 or RLK_K_FP32.
 */
#ifndef KERNELS_RLKI_PRIMS_H
#define KERNELS_RLKI_PRIMS_H

#include "kernels/rlk_exec.h"

#if defined(__CUDACC__)
#define RLKI_BOTH static inline __host__ __device__
#else
#define RLKI_BOTH static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One operand of c[i][j] = sum over k of a(i,k)*b(j,k): element (o,k) is p[o*out + (index ? index[k] : k)*red]. */
struct rlki_side {
    const void *p;
    enum rlk_ktype type;
    int64_t out, red;
    const int32_t *index; /* device */
};
struct rlki_gemm {
    int64_t m, n, k;
    struct rlki_side a, b;
    void *c;
    enum rlk_ktype c_type;
    int64_t ldc;
    bool resume; /* the chains start from c (FP32), not from +0 */
};

/* out = round(scale * tree(in)), or out += that (FP32) with accumulate. */
struct rlki_reduce {
    int64_t n;
    int count; /* 1, 2, 4, 8 */
    const float *in[RLK_SLABS];
    enum rlk_node node;
    float scale;
    void *out;
    enum rlk_ktype out_type;
    bool accumulate;
};

struct rlki_norm { /* fwd: x, gamma -> y, rstd; bwd: x, gamma, rstd, dy -> y (= dx) */
    int64_t rows, n;
    enum rlk_ktype type;
    const void *x, *gamma, *dy;
    void *y;
    float *rstd;
    float eps;
};
struct rlki_gamma { /* out[leaf][slab][n] = chain over (token of the leaf, head of the slab) of dy * (x*rstd); row =
                       token*heads + head */
    int64_t n;
    const int32_t *token; /* device; leaf l = token[start[l]] to token[start[l+1]-1] */
    int leaves;           /* 1 to 8 */
    int64_t start[RLK_SLABS + 1];
    int heads, slabs; /* slab s = heads s*heads/slabs to (s+1)*heads/slabs - 1 */
    enum rlk_ktype type;
    const void *x, *dy;
    const float *rstd;
    float *out;
};
struct rlki_rope {
    int64_t tokens;
    int heads, d;
    enum rlk_ktype type;
    const void *x;
    void *y; /* may be x */
    const int32_t *pos;
    const float *table; /* [positions][d]: d/2 cosines, d/2 sines */
    bool inverse;
};
struct rlki_glu { /* fwd: gate, up -> y; bwd: gate, up, dy -> dgate, dup */
    int64_t n;
    enum rlk_ktype type;
    const void *gate, *up, *dy;
    void *y, *dgate, *dup;
};
struct rlki_add {
    int64_t n;
    enum rlk_ktype type;
    const void *a, *b;
    void *y;
};

/* Query row r: position pos[r] of the sequence whose keys start at row base[r] of k and v. */
struct rlki_tile {
    int32_t row, rows, base, last; /* rows of one sequence, at most 64, and the largest position among them */
};
struct rlki_attention {
    int64_t rows;
    int heads, kv_heads, d;
    enum rlk_ktype type;
    float scale;
    const int32_t *base, *pos;
    const struct rlki_tile *tile; /* device */
    int64_t tiles;
    const void *q, *k, *v, *o_in, *dout;
    void *o;      /* fwd: output; dq: dq */
    float *lse;   /* [rows][heads] */
    float *delta; /* [rows][heads]; written by dq, read by dkv */
};
/* One leaf: of each sequence the keys [base, base+len) and two ranges of query rows. */
struct rlki_leaf_seq {
    int32_t base, len, lo0, lo1, hi0, hi1;
};
struct rlki_attention_dkv {
    struct rlki_attention at;
    const struct rlki_leaf_seq *seq; /* device */
    int64_t seqs, max_len, key_rows;
    float *dk, *dv; /* [key_rows][kv_heads][d], written whole */
};

struct rlki_logp { /* rows x columns of one slab of the vocabulary */
    int64_t rows, cols, ld;
    const float *z; /* [rows][ld] */
    float temperature;
    int32_t v0;            /* id of column 0 */
    const int32_t *target; /* [rows], device; -1 = none */
    float *m, *s, *zy;     /* stats: [rows] each; zy written where the target is in the slab */
    const float *stats;    /* dz, log_softmax: [rows][3] = max, sum, log sum */
    const float *g;        /* dz: [rows] */
    enum rlk_ktype type;   /* of dz */
    void *out;             /* dz [rows][ld], or log-probabilities FP32 [rows][ld] */
};
struct rlki_logp_merge {
    int64_t rows;
    int slabs;       /* 8 by contract */
    const float *in; /* [slabs][3][rows] = m, s, zy */
    int64_t width;   /* of a slab: slab of target = target / width */
    const int32_t *target;
    enum rlk_node node;
    float *logp;  /* [rows], NULL = not wanted */
    float *stats; /* [rows][3] */
};

struct rlki_embed { /* y[r] = table[id - v0] */
    int64_t rows, h;
    enum rlk_ktype type;
    const int32_t *id; /* [rows], device */
    int32_t v0, v1;
    const void *table;
    void *y; /* rows with an id outside [v0,v1) are left alone */
};
struct rlki_embed_bwd { /* grad[id - v0] += tree over 8 leaves of chain over the leaf's tokens */
    int64_t uniques, h;
    enum rlk_ktype type;
    const int32_t *id;    /* [uniques] */
    const int32_t *start; /* [uniques*9]: of each of 8 leaves, then the end, into token */
    const int32_t *token; /* rows of dy */
    const void *dy;
    int32_t v0, v1;
    enum rlk_node node;
    float *grad;
};

struct rlki_adamw {
    int64_t n;
    float *p, *m, *v;
    const float *g;
    void *w; /* NULL = none */
    enum rlk_ktype w_type;
    float coef, beta1, beta2, one_beta1, one_beta2, c1, c2, eps, lr, decay;
};
struct rlki_sumsq { /* blocks of 64 rows x width columns of a [rows][cols] part; out[row block * col_blocks + col block]
                     */
    int64_t rows, cols, width;
    int64_t slab_rows; /* row blocks restart at multiples of this */
    const float *g;
    double *out;
};
struct rlki_cells {    /* the cells that sumsq made of one parameter on each rank of TP -> their sum */
    const double *all; /* rank t's cells at all + t*stride: [row_slabs][blocks][col_slabs], its own slabs */
    int64_t stride, blocks;
    int row_slabs, col_slabs; /* of the whole parameter: 1 or 8 */
    int row_ranks,
        col_ranks; /* ranks that the row slabs, the column slabs are cut among; 1 = not cut, rank 0's serve */
    double *out;   /* tree over row slabs of (sum in order over blocks of tree over column slabs) */
};
RLKI_BOTH int64_t rlki_cell(const struct rlki_cells *a, int row_slab, int64_t block, int col_slab)
{
    const int rows = a->row_slabs / a->row_ranks, cols = a->col_slabs / a->col_ranks;
    return a->stride * (row_slab / rows + col_slab / cols) + ((row_slab % rows) * a->blocks + block) * cols +
           col_slab % cols;
}
struct rlki_sum { /* FP64 chain over the list of x where mask != 0 */
    int64_t count;
    const int32_t *token;
    const float *x;
    const uint8_t *mask; /* NULL = all */
    double *out;         /* sum, number */
};
struct rlki_sample {
    int64_t rows, vocab, ld;
    const float *z;
    float temperature, top_p;
    uint64_t seed;
    const uint64_t *step; /* one, in memory of the device: a captured graph is replayed with others */
    const uint64_t *sample;
    const int32_t *pos;
    int32_t *token;
    void *scratch; /* rlki_sample_scratch(rows, vocab) bytes */
};
static inline size_t rlki_sample_scratch(int64_t rows, int64_t vocab)
{
    return (size_t)rows * (size_t)vocab * sizeof(float);
}

struct rlki_rows { /* dst[scatter ? index[i] : i] = src[scatter ? i : index[i]], rows of `bytes` bytes (a multiple of 2)
                    */
    int64_t rows;
    size_t bytes;
    const int32_t *index; /* device; NULL = identity */
    const void *src;
    void *dst;
    size_t src_stride, dst_stride; /* bytes */
    bool scatter;
};

struct rlki_prims {
    const char *isa;
    void *(*alloc)(struct rlk_exec *, size_t);
    void (*free)(struct rlk_exec *, void *);
    int (*upload)(struct rlk_exec *, void *, const void *, size_t);
    int (*download)(struct rlk_exec *, void *, const void *, size_t);
    int (*copy)(struct rlk_exec *, void *, const void *, size_t);
    int (*zero)(struct rlk_exec *, void *, size_t);
    int (*sync)(struct rlk_exec *);
    int (*rows)(struct rlk_exec *, const struct rlki_rows *);
    int (*gemm)(struct rlk_exec *, const struct rlki_gemm *);
    /* NULL, or: leaf l = the product over k [l*g->k, (l+1)*g->k) of the operands, which are contiguous along k, into
     * c[l]. 1: not for this shape; then gemm is called for each. */
    int (*gemm_leaves)(struct rlk_exec *, const struct rlki_gemm *g, int leaves, float *const *c);
    int (*reduce)(struct rlk_exec *, const struct rlki_reduce *);
    int (*norm_fwd)(struct rlk_exec *, const struct rlki_norm *);
    int (*norm_bwd)(struct rlk_exec *, const struct rlki_norm *);
    int (*gamma)(struct rlk_exec *, const struct rlki_gamma *);
    /* gamma, then norm_bwd, of the same rows: all of them, each once in token. NULL = nothing is won by it. */
    int (*norm_bwd_gamma)(struct rlk_exec *, const struct rlki_norm *, const struct rlki_gamma *);
    int (*rope)(struct rlk_exec *, const struct rlki_rope *);
    int (*glu_fwd)(struct rlk_exec *, const struct rlki_glu *);
    int (*glu_bwd)(struct rlk_exec *, const struct rlki_glu *);
    int (*add)(struct rlk_exec *, const struct rlki_add *);
    int (*attn_fwd)(struct rlk_exec *, const struct rlki_attention *);
    int (*attn_dq)(struct rlk_exec *, const struct rlki_attention *);
    int (*attn_dkv)(struct rlk_exec *, const struct rlki_attention_dkv *);
    int (*logp_stats)(struct rlk_exec *, const struct rlki_logp *);
    int (*logp_merge)(struct rlk_exec *, const struct rlki_logp_merge *);
    int (*logp_dz)(struct rlk_exec *, const struct rlki_logp *);
    int (*log_softmax)(struct rlk_exec *, const struct rlki_logp *);
    int (*embed)(struct rlk_exec *, const struct rlki_embed *);
    int (*embed_bwd)(struct rlk_exec *, const struct rlki_embed_bwd *);
    int (*adamw)(struct rlk_exec *, const struct rlki_adamw *);
    int (*sumsq)(struct rlk_exec *, const struct rlki_sumsq *);
    int (*cells)(struct rlk_exec *, const struct rlki_cells *);
    int (*sum)(struct rlk_exec *, const struct rlki_sum *);
    int (*sample)(struct rlk_exec *, const struct rlki_sample *);
    /* rlk_entropy_rows; NULL = where the host reads the memory. */
    int (*entropy)(struct rlk_exec *, int64_t rows, int64_t vocab, const float *y, double *out);
    /* exp, log, rsqrt, sigmoid (which = 0..3) of n bit patterns from `first` on, NaNs canonical; for tests. */
    int (*math)(struct rlk_exec *, int which, uint32_t first, int64_t n, float *out);
};

/* X(leaf, its argument): what computes. Memory, copies of rows and `cells` (it adds up what sumsq made) are apart. */
#define RLKI_LEAVES(X)                                                                                                 \
    X(gemm, rlki_gemm)                                                                                                 \
    X(reduce, rlki_reduce)                                                                                             \
    X(norm_fwd, rlki_norm)                                                                                             \
    X(norm_bwd, rlki_norm)                                                                                             \
    X(gamma, rlki_gamma)                                                                                               \
    X(rope, rlki_rope)                                                                                                 \
    X(glu_fwd, rlki_glu)                                                                                               \
    X(glu_bwd, rlki_glu)                                                                                               \
    X(add, rlki_add)                                                                                                   \
    X(attn_fwd, rlki_attention)                                                                                        \
    X(attn_dq, rlki_attention)                                                                                         \
    X(attn_dkv, rlki_attention_dkv)                                                                                    \
    X(logp_stats, rlki_logp)                                                                                           \
    X(logp_merge, rlki_logp_merge)                                                                                     \
    X(logp_dz, rlki_logp)                                                                                              \
    X(log_softmax, rlki_logp)                                                                                          \
    X(embed, rlki_embed)                                                                                               \
    X(embed_bwd, rlki_embed_bwd)                                                                                       \
    X(adamw, rlki_adamw)                                                                                               \
    X(sumsq, rlki_sumsq)                                                                                               \
    X(sum, rlki_sum)                                                                                                   \
    X(sample, rlki_sample)

extern const struct rlki_prims rlki_prims_none;     /* does nothing: measuring */
extern const struct rlki_prims rlki_prims_provider; /* the CPU's ordinary implementations */
const struct rlki_prims *rlki_prims_cpu(void);      /* by instruction set */
#ifdef RLK_HAVE_CUDA
extern const struct rlki_prims rlki_prims_cuda, rlki_prims_cuda_provider;
int rlki_cuda_usable(struct rlk_kdetail *detail);
int rlki_cuda_ordinal(void);
int rlki_cuda_differ(struct rlk_exec *x, const void *a, const void *b, size_t bytes, uint32_t *flag);
int rlki_cuda_stream_new(struct rlk_exec *x, void **stream);
void rlki_cuda_stream_free(struct rlk_exec *x, void *stream);
/* Between begin and end, what is enqueued on x->stream is noted, not run. end fails when something could not be. */
int rlki_cuda_capture_begin(struct rlk_exec *x);
int rlki_cuda_capture_end(struct rlk_exec *x, void **graph);
int rlki_cuda_graph_launch(struct rlk_exec *x, void *graph);
void rlki_cuda_graph_free(void *graph);
void *rlki_cuda_pinned(struct rlk_exec *x, size_t bytes);
void rlki_cuda_pinned_free(void *p);
#endif

/* Workspace as a stack: take from the top, release by restoring x->used. NULL and x->detail when it is too small. */
void *rlki_take(struct rlk_exec *x, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
