/* op_linear.c - GEMMs on the lattice: column- and row-parallel, their dX, and dW. Order: docs/contracts.md, section 4.
 */
#include "kernels/rlki_linear.h"

#define COLUMN "rlk.gemm.column/portable/1"
#define ROW "rlk.gemm.row/portable/1"
#define DW "rlk.gemm.dw/portable/1"

/* Leaves of one block stay below this, so that the workspace does not grow with the batch. */
#define LEAF_FLOATS ((int64_t)1 << 23)

static int64_t block_rows(int64_t width)
{
    const int64_t rows = LEAF_FLOATS / (width ? width : 1);
    return rows < 64 ? 64 : rows;
}

int rlki_plain_gemm(struct rlki_call *c, int64_t rows, int64_t width, int64_t k, enum rlk_ktype type, const void *a,
                    const void *weight, bool transposed, void *y)
{
    const struct rlki_gemm g = {.m = rows,
                                .n = width,
                                .k = k,
                                .a = {a, type, k, 1, NULL},
                                .b = {weight, type, transposed ? 1 : k, transposed ? width : 1, NULL},
                                .c = y,
                                .c_type = type,
                                .ldc = width};
    return rows && width ? c->prims->gemm(c->w->x, &g) : 0;
}

/* The leaves of rank i for rows [r0, r0+rows): leaf l covers slab l's share of every segment, in the order of segments.
 */
static int leaves(struct rlki_call *c, const struct rlki_features *f, int i, int64_t r0, int64_t rows, float **leaf)
{
    const int n = rlki_leaves(c, c->w->lat.tp);
    for (int l = 0; l < n; l++)
        if (!(leaf[l] = rlki_take(c->w->x, (size_t)rows * (size_t)f->width * sizeof(float))))
            return RLK_K_ENOMEM;
    if (c->prims->gemm_leaves && f->segments == 1 && !f->transposed && n > 1) {
        const int64_t local = f->k[0] / c->w->lat.tp;
        const struct rlki_gemm all = {.m = rows,
                                      .n = f->width,
                                      .k = local / n,
                                      .a = {rlki_at(f->a[0][i], r0 * local, f->type), f->type, local, 1, NULL},
                                      .b = {f->weight[0][i], f->type, local, 1, NULL},
                                      .c_type = RLK_K_FP32,
                                      .ldc = f->width};
        const int rc = c->prims->gemm_leaves(c->w->x, &all, n, leaf);
        if (rc <= 0)
            return rc;
    }
    for (int l = 0; l < n; l++) {
        for (int s = 0; s < f->segments; s++) {
            const int64_t local = f->k[s] / c->w->lat.tp, each = local / n;
            const int64_t w_out = f->transposed ? 1 : local, w_red = f->transposed ? f->width : 1;
            const struct rlki_gemm g = {
                .m = rows,
                .n = f->width,
                .k = each,
                .a = {rlki_at(f->a[s][i], r0 * local + l * each, f->type), f->type, local, 1, NULL},
                .b = {rlki_at(f->weight[s][i], l * each * w_red, f->type), f->type, w_out, w_red, NULL},
                .c = leaf[l],
                .c_type = RLK_K_FP32,
                .ldc = f->width,
                .resume = s > 0};
            const int rc = c->prims->gemm(c->w->x, &g);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int rlki_feature_reduce(struct rlki_call *c, const struct rlki_features *f, rlk_out y)
{
    struct rlk_exec *x = c->w->x;
    const int n = rlki_leaves(c, c->w->lat.tp);
    const int64_t step = block_rows(f->width);
    int64_t most = 0;
    int rc = 0;
    for (int i = 0; i < c->w->held; i++)
        most = rlki_local(c, i) > most ? rlki_local(c, i) : most;
    for (int64_t r0 = 0; !rc && r0 < most; r0 += step) {
        const size_t mark = x->used;
        float *part[RLK_SLABS * RLK_SLABS], *leaf[RLK_SLABS];
        void *out[RLK_SLABS * RLK_SLABS];
        int64_t size[RLK_SLABS * RLK_SLABS];
        for (int i = 0; !rc && i < c->w->held; i++) {
            const int64_t left = rlki_local(c, i) - r0, rows = left < 0 ? 0 : left < step ? left : step;
            size[i] = rows * f->width;
            out[i] = rows ? (void *)(uintptr_t)rlki_at(y[i], r0 * f->width, f->type) : NULL;
            part[i] = NULL;
            if (c->w->lat.tp > 1 && !(part[i] = rlki_take(x, (size_t)size[i] * sizeof(float))))
                return RLK_K_ENOMEM;
            const size_t inner = x->used;
            if (rows && !(rc = leaves(c, f, i, r0, rows, leaf)))
                rc = c->w->lat.tp > 1 ? rlki_tree(c, size[i], n, leaf, 1.0f, part[i], RLK_K_FP32, false)
                                      : rlki_tree(c, size[i], n, leaf, 1.0f, out[i], f->type, false);
            x->used = inner;
        }
        if (!rc && c->w->lat.tp > 1)
            rc = rlki_all_reduce(c, RLK_GROUP_TP, size, part, 1.0f, out, f->type, false);
        x->used = mark;
    }
    return rc;
}

int rlki_token_reduce(struct rlki_call *c, const int64_t *out, int64_t in, enum rlk_ktype type, rlk_in dy, rlk_in x_in,
                      float *const *grad)
{
    struct rlk_exec *x = c->w->x;
    const int n = rlki_leaves(c, c->w->lat.cp);
    const int64_t step = block_rows(in);
    int64_t most = 0;
    int rc = 0;
    for (int i = 0; i < c->w->held; i++)
        most = out[i] > most ? out[i] : most;
    for (int64_t r0 = 0; !rc && r0 < most; r0 += step) {
        const size_t mark = x->used;
        float *part[RLK_SLABS * RLK_SLABS], *leaf[RLK_SLABS];
        void *to[RLK_SLABS * RLK_SLABS];
        int64_t size[RLK_SLABS * RLK_SLABS];
        for (int i = 0; !rc && i < c->w->held; i++) {
            const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
            const int64_t left = out[i] - r0, rows = left < 0 ? 0 : left < step ? left : step;
            size[i] = rows * in;
            to[i] = rows ? grad[i] + r0 * in : NULL;
            part[i] = NULL;
            if (c->w->lat.cp > 1 && !(part[i] = rlki_take(x, (size_t)size[i] * sizeof(float))))
                return RLK_K_ENOMEM;
            const size_t inner = x->used;
            for (int l = 0; !rc && l < n; l++) {
                const int64_t from = c->provider ? 0 : p->leaf_start[l],
                              end = c->provider ? p->n : p->leaf_start[l + 1];
                const int32_t *index = c->provider || x->measuring ? NULL : p->d_leaf + from;
                if (!(leaf[l] = rlki_take(x, (size_t)size[i] * sizeof(float))))
                    return RLK_K_ENOMEM;
                const struct rlki_gemm g = {.m = rows,
                                            .n = in,
                                            .k = end - from,
                                            .a = {rlki_at(dy[i], r0, type), type, 1, out[i], index},
                                            .b = {x_in[i], type, 1, in, index},
                                            .c = leaf[l],
                                            .c_type = RLK_K_FP32,
                                            .ldc = in};
                rc = rows ? c->prims->gemm(x, &g) : 0;
            }
            if (!rc && rows)
                rc = c->w->lat.cp > 1 ? rlki_tree(c, size[i], n, leaf, 1.0f, part[i], RLK_K_FP32, false)
                                      : rlki_tree(c, size[i], n, leaf, 1.0f, to[i], RLK_K_FP32, true);
            x->used = inner;
        }
        if (!rc && c->w->lat.cp > 1)
            rc = rlki_all_reduce(c, RLK_GROUP_CP, size, part, 1.0f, to, RLK_K_FP32, true);
        x->used = mark;
    }
    return rc;
}

static int check(struct rlk_exec *x, const char *op, enum rlk_ktype type, const char *what, int64_t cut, int64_t whole)
{
    int rc = rlki_check_type(x, op, type);
    if (!rc)
        rc = rlki_check_slabs(x, op, what, cut);
    if (!rc && (whole <= 0 || whole > INT32_MAX))
        rc = rlk_kfail(&x->detail, RLK_K_EINVAL, "%s: %lld features, use 1 to 2^31-1", op, (long long)whole);
    return rc;
}

int rlk_linear_column_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                          enum rlk_ktype type, rlk_in x, rlk_in weight, rlk_out y)
{
    const struct rlki_tensor t[] = {{"x", false, type, x, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, in}}, NULL, "tp"},
                                    {"w", false, type, weight, 2, {{RLKI_SLABS, out}, {RLKI_WHOLE, in}}, NULL, "cp"},
                                    {"y", true, type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, out}}, NULL, NULL}};
    struct rlki_call c;
    int rc = check(w->x, "rlk.gemm.column", type, "out", out, in);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LINEAR, "rlk.gemm.column", COLUMN, "fwd", module, t, 3)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++)
        rc = rlki_plain_gemm(&c, rlki_local(&c, i), out / w->lat.tp, in, type, x[i], weight[i], false, y[i]);
    return rlki_end(&c, rc, t, 3);
}

int rlk_linear_column_dx(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int segments,
                         const int64_t *out, enum rlk_ktype type, const rlk_in *dy, const rlk_in *weight, rlk_out dx)
{
    static const char *const DY[] = {"dy", "dy1", "dy2"}, *const W[] = {"w", "w1", "w2"};
    struct rlki_tensor t[7];
    struct rlki_features f = {segments, {0}, in, type, true, {0}, {0}};
    struct rlki_call c;
    int rc = 0;
    if (segments < 1 || segments > 3)
        return rlk_kfail(&w->x->detail, RLK_K_EINVAL, "rlk.gemm.column: %d segments, use 1 to 3", segments);
    for (int s = 0; s < segments; s++) {
        if ((rc = check(w->x, "rlk.gemm.column", type, "out", out[s], in)))
            return rc;
        f.k[s] = out[s];
        f.a[s] = dy[s];
        f.weight[s] = weight[s];
        t[2 * s] =
            (struct rlki_tensor){DY[s], false, type, dy[s], 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, out[s]}}, NULL, NULL};
        t[2 * s + 1] =
            (struct rlki_tensor){W[s], false, type, weight[s], 2, {{RLKI_SLABS, out[s]}, {RLKI_WHOLE, in}}, NULL, "cp"};
    }
    const int nt = 2 * segments + 1;
    t[nt - 1] = (struct rlki_tensor){"dx", true, type, (rlk_in)dx, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, in}}, NULL, "tp"};
    if ((rc = rlki_begin(&c, w, b, RLK_MODULE_LINEAR, "rlk.gemm.column", COLUMN, "bwd", module, t, nt)))
        return rc;
    rc = rlki_feature_reduce(&c, &f, dx);
    return rlki_end(&c, rc, t, nt);
}

int rlk_linear_row_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                       enum rlk_ktype type, rlk_in x, rlk_in weight, rlk_out y)
{
    const struct rlki_tensor t[] = {{"x", false, type, x, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, in}}, NULL, NULL},
                                    {"w", false, type, weight, 2, {{RLKI_WHOLE, out}, {RLKI_SLABS, in}}, NULL, "cp"},
                                    {"y", true, type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, out}}, NULL, "tp"}};
    const struct rlki_features f = {1, {in}, out, type, false, {x}, {weight}};
    struct rlki_call c;
    int rc = check(w->x, "rlk.gemm.row", type, "in", in, out);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LINEAR, "rlk.gemm.row", ROW, "fwd", module, t, 3)))
        return rc;
    rc = rlki_feature_reduce(&c, &f, y);
    return rlki_end(&c, rc, t, 3);
}

int rlk_linear_row_dx(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t in, int64_t out,
                      enum rlk_ktype type, rlk_in dy, rlk_in weight, rlk_out dx)
{
    const struct rlki_tensor t[] = {
        {"dy", false, type, dy, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, out}}, NULL, "tp"},
        {"w", false, type, weight, 2, {{RLKI_WHOLE, out}, {RLKI_SLABS, in}}, NULL, "cp"},
        {"dx", true, type, (rlk_in)dx, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, in}}, NULL, NULL}};
    struct rlki_call c;
    int rc = check(w->x, "rlk.gemm.row", type, "in", in, out);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LINEAR, "rlk.gemm.row", ROW, "bwd", module, t, 3)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++)
        rc = rlki_plain_gemm(&c, rlki_local(&c, i), in / w->lat.tp, out, type, dy[i], weight[i], true, dx[i]);
    return rlki_end(&c, rc, t, 3);
}

int rlk_linear_dw(struct rlk_world *w, const struct rlk_batch *b, const char *module, enum rlk_cut cut, int64_t in,
                  int64_t out, enum rlk_ktype type, rlk_in dy, rlk_in x, float *const *grad)
{
    const enum rlki_dim_kind ko = cut == RLK_CUT_OUT ? RLKI_SLABS : RLKI_WHOLE;
    const enum rlki_dim_kind ki = cut == RLK_CUT_IN ? RLKI_SLABS : RLKI_WHOLE;
    const struct rlki_tensor t[] = {
        {"dy", false, type, dy, 2, {{RLKI_TOKENS, 0}, {ko, out}}, NULL, ko == RLKI_WHOLE ? "tp" : NULL},
        {"x", false, type, x, 2, {{RLKI_TOKENS, 0}, {ki, in}}, NULL, ki == RLKI_WHOLE ? "tp" : NULL},
        {"dw", true, RLK_K_FP32, (rlk_in)grad, 2, {{ko, out}, {ki, in}}, NULL, "cp"}};
    struct rlki_call c;
    int rc = check(w->x, "rlk.gemm.dw", type, cut == RLK_CUT_IN ? "in" : "out",
                   cut == RLK_CUT_IN ? in
                   : cut             ? out
                                     : RLK_SLABS,
                   cut == RLK_CUT_IN ? out : in);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LINEAR, "rlk.gemm.dw", DW, "bwd", module, t, 3)))
        return rc;
    int64_t rows[RLK_SLABS * RLK_SLABS];
    rc = rlki_token_reduce(&c, rlki_same(&c, cut == RLK_CUT_OUT ? out / w->lat.tp : out, rows),
                           cut == RLK_CUT_IN ? in / w->lat.tp : in, type, dy, x, grad);
    return rlki_end(&c, rc, t, 3);
}
