/* op_norm.c - RMSNorm over the hidden size and over heads. Order: docs/contracts.md, section 6. */
#include "kernels/rlki_op.h"

#define NORM "rlk.rmsnorm/portable/1"
#define OP "rlk.rmsnorm"
#define RANKS (RLK_SLABS * RLK_SLABS)

/* heads = 0: rows are tokens; else rows are the heads of tokens, cut by TP. */
struct norm {
    const char *module;
    int heads;
    int64_t size;
    enum rlk_ktype type;
    float eps;
};

static int check(struct rlk_exec *x, const struct norm *n)
{
    const int rc = rlki_check_type(x, OP, n->type);
    if (rc)
        return rc;
    if (n->size <= 0 || n->size > 1 << 24)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, OP ": rows of %lld, use 1 to 2^24", (long long)n->size);
    if (n->heads > 1 << 12)
        return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, OP ": %d heads, use at most 4096", n->heads);
    return n->heads ? rlki_check_slabs(x, OP, "heads", n->heads) : 0;
}

static struct rlki_tensor rows(const struct norm *n, const char *name, bool output, rlk_in data)
{
    if (n->heads)
        return (struct rlki_tensor){name, output, n->type,
                                    data, 3,      {{RLKI_TOKENS, 0}, {RLKI_SLABS, n->heads}, {RLKI_WHOLE, n->size}},
                                    NULL, NULL};
    return (struct rlki_tensor){name, output, n->type, data, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, n->size}}, NULL, "tp"};
}

static struct rlki_tensor stats(const struct norm *n, bool output, const float *const *data)
{
    return (struct rlki_tensor){"rstd",
                                output,
                                RLK_K_FP32,
                                (rlk_in)data,
                                n->heads ? 2 : 1,
                                {{RLKI_TOKENS, 0}, {RLKI_SLABS, n->heads}},
                                NULL,
                                n->heads ? NULL : "tp"};
}

static int forward(struct rlk_world *w, const struct rlk_batch *b, const struct norm *n, rlk_in x, rlk_in gamma,
                   rlk_out y, float *const *rstd)
{
    const struct rlki_tensor t[] = {rows(n, "x", false, x),
                                    {"gamma", false, n->type, gamma, 1, {{RLKI_WHOLE, n->size}}, NULL, "tp"},
                                    rows(n, "y", true, (rlk_in)y),
                                    stats(n, true, (const float *const *)rstd)};
    struct rlki_call c;
    int rc = check(w->x, n);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_NORM, OP, NORM, "fwd", n->module, t, 4)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_norm a = {.rows = rlki_local(&c, i) * (n->heads ? n->heads / w->lat.tp : 1),
                                    .n = n->size,
                                    .type = n->type,
                                    .x = x[i],
                                    .gamma = gamma[i],
                                    .y = y[i],
                                    .rstd = rstd[i],
                                    .eps = n->eps};
        rc = a.rows ? c.prims->norm_fwd(w->x, &a) : 0;
    }
    return rlki_end(&c, rc, t, 4);
}

/* The pair tree of a rank's leaves, `size` floats each, into out[i]; over CP where it is cut, and added to out with
 * `last`. */
static int pairs_root(struct rlki_call *c, const int64_t *size, int pairs, float *const *leaves, float *const *out,
                      bool last)
{
    float *part[RANKS];
    int rc = 0;
    for (int i = 0; !rc && i < c->w->held; i++) {
        float *leaf[RLK_SLABS];
        for (int l = 0; l < pairs; l++)
            leaf[l] = leaves[i] + l * size[i];
        part[i] = leaves[i]; /* the tree may take the place of its first leaf */
        if (c->w->lat.cp == 1)
            rc = rlki_tree(c, size[i], pairs, leaf, 1.0f, out[i], RLK_K_FP32, last);
        else
            rc = rlki_tree(c, size[i], pairs, leaf, 1.0f, part[i], RLK_K_FP32, false);
    }
    if (rc || c->w->lat.cp == 1)
        return rc;
    return rlki_all_reduce(c, RLK_GROUP_CP, size, part, 1.0f, (rlk_out)out, RLK_K_FP32, last);
}

/* gamma: leaf (slab, pair); pairs inside, slabs outside. Without heads there is one slab. */
static int gamma_sum(struct rlki_call *c, const struct norm *n, int slabs, int pairs, float *const *leaves,
                     float *const *g_gamma)
{
    float *root[RANKS], *part[RANKS];
    int64_t size[RANKS];
    int rc = 0;
    for (int i = 0; i < c->w->held; i++)
        size[i] = n->size * slabs;
    if (!n->heads)
        return pairs_root(c, size, pairs, leaves, g_gamma, true);
    for (int i = 0; i < c->w->held; i++) {
        root[i] = rlki_take(c->w->x, (size_t)size[i] * sizeof(float));
        if (!root[i])
            return RLK_K_ENOMEM;
    }
    rc = pairs_root(c, size, pairs, leaves, root, false);
    for (int i = 0; !rc && i < c->w->held; i++) {
        float *leaf[RLK_SLABS];
        for (int s = 0; s < slabs; s++)
            leaf[s] = root[i] + s * n->size;
        size[i] = n->size;
        part[i] = root[i];
        if (c->w->lat.tp == 1)
            rc = rlki_tree(c, n->size, slabs, leaf, 1.0f, g_gamma[i], RLK_K_FP32, true);
        else
            rc = rlki_tree(c, n->size, slabs, leaf, 1.0f, part[i], RLK_K_FP32, false);
    }
    if (rc || c->w->lat.tp == 1)
        return rc;
    return rlki_all_reduce(c, RLK_GROUP_TP, size, part, 1.0f, (rlk_out)g_gamma, RLK_K_FP32, true);
}

/* One rank: the leaves of gamma into `leaves`, and dx. */
static int backward_rank(struct rlki_call *c, int i, const struct norm *n, int slabs, int pairs,
                         const struct rlki_norm *b, float *leaves)
{
    struct rlk_exec *e = c->w->x;
    const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
    struct rlki_gamma a = {.n = n->size,
                           .token = e->measuring ? NULL : p->d_leaf,
                           .leaves = pairs,
                           .heads = n->heads ? n->heads / c->w->lat.tp : 1,
                           .slabs = slabs,
                           .type = n->type,
                           .x = b->x,
                           .dy = b->dy,
                           .rstd = b->rstd,
                           .out = leaves};
    for (int l = 0; l < pairs; l++) {
        a.start[l] = c->provider ? 0 : p->leaf_start[l];
        a.start[l + 1] = c->provider ? p->n : p->leaf_start[l + 1];
    }
    if (c->prims->norm_bwd_gamma)
        return c->prims->norm_bwd_gamma(e, b, &a);
    const int rc = c->prims->gamma(e, &a); /* first: dx may take the place of dy */
    return rc || !b->rows ? rc : c->prims->norm_bwd(e, b);
}

static int backward(struct rlk_world *w, const struct rlk_batch *b, const struct norm *n, rlk_in dy, rlk_in x,
                    rlk_in gamma, const float *const *rstd, rlk_out dx, float *const *g_gamma)
{
    const struct rlki_tensor t[] = {
        rows(n, "dy", false, dy),
        rows(n, "x", false, x),
        {"gamma", false, n->type, gamma, 1, {{RLKI_WHOLE, n->size}}, NULL, "tp"},
        stats(n, false, rstd),
        rows(n, "dx", true, (rlk_in)dx),
        {"dgamma", true, RLK_K_FP32, (rlk_in)g_gamma, 1, {{RLKI_WHOLE, n->size}}, NULL, "tp"}};
    struct rlki_call c;
    float *leaves[RANKS];
    int rc = check(w->x, n);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_NORM, OP, NORM, "bwd", n->module, t, 6)))
        return rc;
    const int slabs = n->heads ? rlki_leaves(&c, w->lat.tp) : 1, pairs = rlki_leaves(&c, w->lat.cp);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_norm a = {.rows = rlki_local(&c, i) * (n->heads ? n->heads / w->lat.tp : 1),
                                    .n = n->size,
                                    .type = n->type,
                                    .x = x[i],
                                    .gamma = gamma[i],
                                    .dy = dy[i],
                                    .y = dx[i],
                                    .rstd = (float *)(uintptr_t)rstd[i]};
        leaves[i] = rlki_take(w->x, (size_t)n->size * (size_t)slabs * (size_t)pairs * sizeof(float));
        rc = leaves[i] ? backward_rank(&c, i, n, slabs, pairs, &a, leaves[i]) : RLK_K_ENOMEM;
    }
    if (!rc)
        rc = gamma_sum(&c, n, slabs, pairs, leaves, g_gamma);
    return rlki_end(&c, rc, t, 6);
}

int rlk_rmsnorm_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size,
                    enum rlk_ktype type, float eps, rlk_in x, rlk_in gamma, rlk_out y, float *const *rstd)
{
    return forward(w, b, &(struct norm){module, 0, size, type, eps}, x, gamma, y, rstd);
}

int rlk_rmsnorm_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size,
                    enum rlk_ktype type, rlk_in dy, rlk_in x, rlk_in gamma, const float *const *rstd, rlk_out dx,
                    float *const *g_gamma)
{
    return backward(w, b, &(struct norm){module, 0, size, type, 0.0f}, dy, x, gamma, rstd, dx, g_gamma);
}

int rlk_headnorm_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
                     enum rlk_ktype type, float eps, rlk_in x, rlk_in gamma, rlk_out y, float *const *rstd)
{
    return forward(w, b, &(struct norm){module, heads, head_dim, type, eps}, x, gamma, y, rstd);
}

int rlk_headnorm_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
                     enum rlk_ktype type, rlk_in dy, rlk_in x, rlk_in gamma, const float *const *rstd, rlk_out dx,
                     float *const *g_gamma)
{
    return backward(w, b, &(struct norm){module, heads, head_dim, type, 0.0f}, dy, x, gamma, rstd, dx, g_gamma);
}
