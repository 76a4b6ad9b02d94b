/* rlki_linear.h - GEMM building blocks that operators share. Internal. */
#ifndef KERNELS_RLKI_LINEAR_H
#define KERNELS_RLKI_LINEAR_H

#include "kernels/rlki_op.h"

/* y [rows][width] = a [rows][k] * W; W is [width][k], or [k][width] when transposed. One chain an element. */
int rlki_plain_gemm(struct rlki_call *c, int64_t rows, int64_t width, int64_t k, enum rlk_ktype type, const void *a,
                    const void *weight, bool transposed, void *y);

/* A reduction over features that TP cuts: leaf s = one chain over slab s of segment 0, then 1, ...; slab tree; y on
 * every TP rank. k[g] = logical size; weight[g] is [width][k/TP], or [k/TP][width] when transposed. */
struct rlki_features {
    int segments;
    int64_t k[3];
    int64_t width;
    enum rlk_ktype type;
    bool transposed;
    rlk_in a[3], weight[3];
};
int rlki_feature_reduce(struct rlki_call *c, const struct rlki_features *f, rlk_out y);

/* grad[i] [out[i]][in] (local sizes; equal within a CP group, 0 allowed) += pair tree over tokens of dy^T x. */
int rlki_token_reduce(struct rlki_call *c, const int64_t *out, int64_t in, enum rlk_ktype type, rlk_in dy, rlk_in x,
                      float *const *grad);

/* The same local size for every held rank. */
static inline const int64_t *rlki_same(const struct rlki_call *c, int64_t n, int64_t store[RLK_SLABS * RLK_SLABS])
{
    for (int i = 0; i < c->w->held; i++)
        store[i] = n;
    return store;
}

#endif
