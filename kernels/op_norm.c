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

/* gamma: leaf (slab, pair); pairs inside, slabs outside. Without heads there is one slab. */
static int gamma_grad(struct rlki_call *c, const struct norm *n, rlk_in dy, rlk_in x, const float *const *rstd,
                      float *const *g_gamma)
{
    struct rlk_exec *e = c->w->x;
    const int slabs = n->heads ? rlki_leaves(c, c->w->lat.tp) : 1, pairs = rlki_leaves(c, c->w->lat.cp);
    const int heads = n->heads ? n->heads / c->w->lat.tp : 1;
    float *part[RANKS], *slab_root[RANKS];
    int64_t size[RANKS];
    int rc = 0;
    for (int i = 0; !rc && i < c->w->held; i++) {
        const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
        size[i] = n->size * slabs;
        part[i] = rlki_take(e, (size_t)size[i] * sizeof(float));
        slab_root[i] = rlki_take(e, (size_t)size[i] * sizeof(float));
        if (!part[i] || !slab_root[i])
            return RLK_K_ENOMEM;
        const size_t mark = e->used;
        struct rlki_gamma a = {.n = n->size,
                               .token = e->measuring ? NULL : p->d_leaf,
                               .leaves = pairs,
                               .heads = heads,
                               .slabs = slabs,
                               .type = n->type,
                               .x = x[i],
                               .dy = dy[i],
                               .rstd = rstd[i],
                               .out = rlki_take(e, (size_t)size[i] * (size_t)pairs * sizeof(float))};
        float *leaf[RLK_SLABS];
        if (!a.out)
            return RLK_K_ENOMEM;
        for (int l = 0; l < pairs; l++) {
            leaf[l] = a.out + l * size[i];
            a.start[l] = c->provider ? 0 : p->leaf_start[l];
            a.start[l + 1] = c->provider ? p->n : p->leaf_start[l + 1];
        }
        rc = c->prims->gamma(e, &a);
        if (!rc)
            rc = rlki_tree(c, size[i], pairs, leaf, 1.0f, part[i], RLK_K_FP32, false);
        e->used = mark;
    }
    if (rc)
        return rc;
    if (!n->heads)
        return rlki_all_reduce(c, RLK_GROUP_CP, size, part, 1.0f, (rlk_out)g_gamma, RLK_K_FP32, true);
    rc = rlki_all_reduce(c, RLK_GROUP_CP, size, part, 1.0f, (rlk_out)slab_root, RLK_K_FP32, false);
    for (int i = 0; !rc && i < c->w->held; i++) {
        float *leaf[RLK_SLABS];
        for (int s = 0; s < slabs; s++)
            leaf[s] = slab_root[i] + s * n->size;
        size[i] = n->size;
        rc = rlki_tree(c, n->size, slabs, leaf, 1.0f, part[i], RLK_K_FP32, false);
    }
    return rc ? rc : rlki_all_reduce(c, RLK_GROUP_TP, size, part, 1.0f, (rlk_out)g_gamma, RLK_K_FP32, true);
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
    int rc = check(w->x, n);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_NORM, OP, NORM, "bwd", n->module, t, 6)))
        return rc;
    /* gamma first: dx may take the place of dy. */
    rc = gamma_grad(&c, n, dy, x, rstd, g_gamma);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_norm a = {.rows = rlki_local(&c, i) * (n->heads ? n->heads / w->lat.tp : 1),
                                    .n = n->size,
                                    .type = n->type,
                                    .x = x[i],
                                    .gamma = gamma[i],
                                    .dy = dy[i],
                                    .y = dx[i],
                                    .rstd = (float *)(uintptr_t)rstd[i]};
        rc = a.rows ? c.prims->norm_bwd(w->x, &a) : 0;
    }
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
