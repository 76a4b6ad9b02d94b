/* op_attention.c - causal attention over packed sequences: gather K and V, never merge. Order: docs/contracts.md, 7. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rlki_op.h"

#define ATTENTION "rlk.attention.deterministic/portable/1"
#define OP "rlk.attention.deterministic"
#define RANKS (RLK_SLABS * RLK_SLABS)

static int check(struct rlk_exec *x, const struct rlk_attention *a)
{
    const struct rlk_dims d = {8, 8, 1, a->heads, a->kv_heads, a->head_dim};
    const int rc = rlki_check_type(x, OP, a->type);
    return rc ? rc : rlk_lattice_check(&d, &x->detail);
}

static int need_zero_first(struct rlk_exec *x, const struct rlk_batch *b)
{
    for (int32_t s = 0; s < b->sequences; s++)
        if (b->first[s])
            return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED,
                             OP ": sequence %d begins at position %d; use rlk_attention_cached for it", s, b->first[s]);
    return 0;
}

static float scale_of(const struct rlk_attention *a)
{
    return 1.0f / sqrtf((float)a->head_dim);
}

static struct rlki_attention base_of(const struct rlki_call *c, const struct rlk_attention *a, int i)
{
    const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
    return (struct rlki_attention){.rows = p->n,
                                   .heads = a->heads / c->w->lat.tp,
                                   .kv_heads = a->kv_heads / c->w->lat.tp,
                                   .d = a->head_dim,
                                   .type = a->type,
                                   .scale = scale_of(a),
                                   .base = p->d_base,
                                   .pos = p->d_pos,
                                   .tile = p->d_tile,
                                   .tiles = p->tiles};
}

static size_t kv_bytes(const struct rlki_call *c, const struct rlk_attention *a)
{
    return (size_t)(a->kv_heads / c->w->lat.tp) * (size_t)a->head_dim * rlk_ktype_bytes(a->type);
}

/* K and V of all tokens, on every rank of the CP group; the callers' own buffers where CP is 1. */
static int gather(struct rlki_call *c, const struct rlk_attention *a, rlk_in k, rlk_in v, void **all_k, void **all_v)
{
    const size_t row = kv_bytes(c, a), bytes = (size_t)c->batch->tokens * row;
    for (int i = 0; i < c->w->held; i++) {
        all_k[i] = (void *)(uintptr_t)k[i];
        all_v[i] = (void *)(uintptr_t)v[i];
        if (c->w->lat.cp > 1 && (!(all_k[i] = rlki_take(c->w->x, bytes)) || !(all_v[i] = rlki_take(c->w->x, bytes))))
            return RLK_K_ENOMEM;
    }
    if (c->w->lat.cp == 1)
        return 0;
    const int rc = rlki_gather_tokens(c, row, k, all_k);
    return rc ? rc : rlki_gather_tokens(c, row, v, all_v);
}

#define QKVO(name, output, data, nheads)                                                                               \
    {                                                                                                                  \
        name, output, a->type, data, 3, {{RLKI_TOKENS, 0}, {RLKI_SLABS, nheads}, {RLKI_WHOLE, a->head_dim}}, NULL,     \
            NULL                                                                                                       \
    }
#define LSE(output, data)                                                                                              \
    {                                                                                                                  \
        "lse", output, RLK_K_FP32, data, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, a->heads}}, NULL, NULL                     \
    }

int rlk_attention_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a, rlk_in q, rlk_in k,
                      rlk_in v, rlk_out o, float *const *lse)
{
    const struct rlki_tensor t[] = {QKVO("q", false, q, a->heads), QKVO("k", false, k, a->kv_heads),
                                    QKVO("v", false, v, a->kv_heads), QKVO("o", true, (rlk_in)o, a->heads),
                                    LSE(true, (rlk_in)lse)};
    struct rlki_call c;
    void *all_k[RANKS], *all_v[RANKS];
    int rc = check(w->x, a);
    if (rc || (rc = need_zero_first(w->x, b)) ||
        (rc = rlki_begin(&c, w, b, RLK_MODULE_ATTENTION, OP, ATTENTION, "fwd", a->module, t, 5)))
        return rc;
    rc = gather(&c, a, k, v, all_k, all_v);
    for (int i = 0; !rc && i < w->held; i++) {
        struct rlki_attention f = base_of(&c, a, i);
        f.q = q[i];
        f.k = all_k[i];
        f.v = all_v[i];
        f.o = o[i];
        f.lse = lse[i];
        rc = f.rows ? c.prims->attn_fwd(w->x, &f) : 0;
    }
    return rlki_end(&c, rc, t, 5);
}

static int need_cp1(struct rlk_exec *x, const struct rlk_world *w)
{
    if (w->lat.cp == 1)
        return 0;
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, OP ": a cache under cp%d; roll out with cp1 (tp%dcp1)", w->lat.cp,
                     w->lat.tp);
}

/* The batch's tiles and bases moved to where the cache holds each sequence. Device arrays in the workspace. */
static int cached_rows(struct rlki_call *c, const int32_t *cache_row, struct rlki_attention *f)
{
    struct rlk_exec *x = c->w->x;
    const struct rlk_batch *b = c->batch;
    const struct rlki_part *p = &b->part[0];
    int32_t *base = malloc(((size_t)p->n + 1) * sizeof *base);
    struct rlki_tile *tile = malloc(((size_t)p->n + 1) * sizeof *tile);
    int32_t *d_base = rlki_take(x, (size_t)p->n * sizeof *base);
    struct rlki_tile *d_tile = rlki_take(x, (size_t)p->tiles * sizeof *tile);
    int64_t n = 0, tiles = 0;
    int rc = RLK_K_ENOMEM;
    if (!base || !tile || !d_base || !d_tile)
        goto out;
    for (int32_t s = 0; s < b->sequences; s++)
        for (int32_t i = 0; i < b->length[s]; i++, n++) {
            base[n] = cache_row[s];
            if (i % RLKI_QTILE == 0)
                tile[tiles++] = (struct rlki_tile){(int32_t)n, 0, cache_row[s], 0};
            tile[tiles - 1].rows++;
            tile[tiles - 1].last = b->first[s] + i;
        }
    rc = c->prims->upload(x, d_base, base, (size_t)n * sizeof *base);
    if (!rc)
        rc = c->prims->upload(x, d_tile, tile, (size_t)tiles * sizeof *tile);
    f->base = d_base;
    f->tile = d_tile;
    f->tiles = tiles;
out:
    free(base);
    free(tile);
    return rc;
}

/* What a call announces where caches take part: `fixed` tensors, then of each sequence the rows of both caches that are
 * read (from its first on) or written (the batch's own). The lists are made only when somebody listens. */
struct cached {
    struct rlki_tensor *t;
    const void **at;
    int n;
};

static int announced(struct cached *c, const struct rlk_world *w, const struct rlk_batch *b,
                     const struct rlk_attention *a, const int32_t *cache_row, const struct rlki_tensor *fixed, int n,
                     const void *const *const cache[2], bool output)
{
    const int64_t row = (int64_t)(a->kv_heads / w->lat.tp) * a->head_dim;
    const size_t many = w->x->observe && !w->x->measuring ? 2 * (size_t)b->sequences : 0;
    *c = (struct cached){malloc(((size_t)n + many) * sizeof *c->t),
                         malloc((many * (size_t)w->held + 1) * sizeof *c->at), n};
    if (!c->t || !c->at)
        return rlk_kfail(&w->x->detail, RLK_K_ENOMEM, OP ": out of memory to announce %d sequences", b->sequences);
    memcpy(c->t, fixed, (size_t)n * sizeof *fixed);
    for (size_t k = 0; k < many; k++) {
        const int32_t s = (int32_t)(k / 2), skip = output ? b->first[s] : 0;
        const void **at = c->at + k * (size_t)w->held;
        for (int i = 0; i < w->held; i++)
            at[i] = rlki_at(cache[k % 2][i], (cache_row[s] + skip) * row, a->type);
        c->t[c->n++] = (struct rlki_tensor){
            k % 2 ? "v_cache" : "k_cache",
            output,
            a->type,
            at,
            3,
            {{RLKI_WHOLE, b->first[s] + b->length[s] - skip}, {RLKI_SLABS, a->kv_heads}, {RLKI_WHOLE, a->head_dim}},
            NULL,
            NULL};
    }
    return 0;
}

static void announced_free(struct cached *c)
{
    free(c->t);
    free(c->at);
}

int rlk_attention_cached(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a,
                         const int32_t *cache_row, rlk_in q, rlk_in k_cache, rlk_in v_cache, rlk_out o,
                         float *const *lse)
{
    const struct rlki_tensor fixed[] = {QKVO("q", false, q, a->heads), QKVO("o", true, (rlk_in)o, a->heads),
                                        LSE(true, (rlk_in)lse)};
    const void *const *const cache[2] = {k_cache, v_cache};
    struct rlki_attention where = {0};
    struct cached t = {0};
    struct rlki_call c;
    int rc = check(w->x, a);
    if (rc || (rc = need_cp1(w->x, w)) || (rc = announced(&t, w, b, a, cache_row, fixed, lse ? 3 : 2, cache, false)) ||
        (rc = rlki_begin(&c, w, b, RLK_MODULE_ATTENTION, OP, ATTENTION, "fwd", a->module, t.t, t.n)))
        goto out;
    rc = cached_rows(&c, cache_row, &where);
    for (int i = 0; !rc && i < w->held; i++) {
        struct rlki_attention f = base_of(&c, a, i);
        f.base = where.base;
        f.tile = where.tile;
        f.tiles = where.tiles;
        f.q = q[i];
        f.k = k_cache[i];
        f.v = v_cache[i];
        f.o = o[i];
        f.lse = lse ? lse[i] : NULL;
        rc = f.rows ? c.prims->attn_fwd(w->x, &f) : 0;
    }
    rc = rlki_end(&c, rc, t.t, t.n);
out:
    announced_free(&t);
    return rc;
}

int rlk_attention_append(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a,
                         const int32_t *cache_row, rlk_in k, rlk_in v, rlk_out k_cache, rlk_out v_cache)
{
    const struct rlki_tensor fixed[] = {QKVO("k", false, k, a->kv_heads), QKVO("v", false, v, a->kv_heads)};
    const void *const *const cache[2] = {(rlk_in)k_cache, (rlk_in)v_cache};
    struct rlk_exec *x = w->x;
    const size_t row = (size_t)(a->kv_heads / w->lat.tp) * (size_t)a->head_dim * rlk_ktype_bytes(a->type);
    int32_t *index = NULL, *d_index;
    struct cached t = {0};
    struct rlki_call c;
    int64_t n = 0;
    int rc = check(x, a);
    if (rc || (rc = need_cp1(x, w)) || (rc = announced(&t, w, b, a, cache_row, fixed, 2, cache, true)) ||
        (rc =
             rlki_begin_copy(&c, w, b, "rlk.attention.append", "rlk.attention.append/portable/1", a->module, t.t, t.n)))
        goto out;
    index = malloc(((size_t)b->tokens + 1) * sizeof *index);
    d_index = rlki_take(x, (size_t)b->tokens * sizeof *index);
    if (!index || !d_index)
        rc = rlk_kfail(&x->detail, RLK_K_ENOMEM, OP ": out of memory for %lld cache rows", (long long)b->tokens);
    for (int32_t s = 0; !rc && s < b->sequences; s++)
        for (int32_t i = 0; i < b->length[s]; i++)
            index[n++] = cache_row[s] + b->first[s] + i;
    if (!rc)
        rc = c.prims->upload(x, d_index, index, (size_t)n * sizeof *index);
    for (int i = 0; !rc && n && i < w->held; i++) {
        const struct rlki_rows rk = {n, row, d_index, k[i], k_cache[i], row, row, true};
        const struct rlki_rows rv = {n, row, d_index, v[i], v_cache[i], row, row, true};
        rc = c.prims->rows(x, &rk);
        if (!rc)
            rc = c.prims->rows(x, &rv);
    }
    rc = rlki_end(&c, rc, t.t, t.n);
out:
    free(index);
    announced_free(&t);
    return rc;
}

/* dK and dV: leaf = one pair of query chunks against all keys; pair tree; each rank keeps its own tokens. */
static int key_gradients(struct rlki_call *c, const struct rlk_attention *a, rlk_in q, rlk_in dout, void *const *k,
                         void *const *v, const float *const *lse, float *const *delta, rlk_out dk, rlk_out dv)
{
    struct rlk_exec *x = c->w->x;
    const struct rlk_batch *b = c->batch;
    const int own = RLK_SLABS / c->w->lat.cp; /* a provider folds the same leaves in order: its sum is a chain */
    const int64_t width = (int64_t)(a->kv_heads / c->w->lat.tp) * a->head_dim, n = b->tokens * width;
    float *pk[RANKS], *pv[RANKS];
    int rc = 0;
    for (int i = 0; !rc && i < c->w->held; i++) {
        const struct rlki_part *p = &b->part[rlki_cp(c, i)];
        float *lk[RLK_SLABS], *lv[RLK_SLABS];
        pk[i] = rlki_take(x, (size_t)n * sizeof(float));
        pv[i] = rlki_take(x, (size_t)n * sizeof(float));
        if (!pk[i] || !pv[i])
            return RLK_K_ENOMEM;
        const size_t mark = x->used;
        for (int l = 0; !rc && l < own; l++) {
            struct rlki_attention_dkv f = {.at = base_of(c, a, i),
                                           .seq = x->measuring ? NULL : p->d_seq + (size_t)l * (size_t)b->sequences,
                                           .seqs = b->sequences,
                                           .max_len = b->longest,
                                           .key_rows = b->tokens};
            f.at.q = q[i];
            f.at.k = k[i];
            f.at.v = v[i];
            f.at.dout = dout[i];
            f.at.lse = (float *)(uintptr_t)lse[i];
            f.at.delta = delta[i];
            f.dk = lk[l] = rlki_take(x, (size_t)n * sizeof(float));
            f.dv = lv[l] = rlki_take(x, (size_t)n * sizeof(float));
            if (!lk[l] || !lv[l])
                return RLK_K_ENOMEM;
            rc = n ? c->prims->attn_dkv(x, &f) : 0;
        }
        if (!rc)
            rc = rlki_tree(c, n, own, lk, 1.0f, pk[i], RLK_K_FP32, false);
        if (!rc)
            rc = rlki_tree(c, n, own, lv, 1.0f, pv[i], RLK_K_FP32, false);
        x->used = mark;
    }
    if (!rc)
        rc = rlki_reduce_tokens(c, width, pk, scale_of(a), dk, a->type);
    if (!rc)
        rc = rlki_reduce_tokens(c, width, pv, 1.0f, dv, a->type);
    return rc;
}

int rlk_attention_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_attention *a, rlk_in dout,
                      rlk_in q, rlk_in k, rlk_in v, rlk_in o, const float *const *lse, rlk_out dq, rlk_out dk,
                      rlk_out dv)
{
    const struct rlki_tensor t[] = {QKVO("do", false, dout, a->heads),
                                    QKVO("q", false, q, a->heads),
                                    QKVO("k", false, k, a->kv_heads),
                                    QKVO("v", false, v, a->kv_heads),
                                    QKVO("o", false, o, a->heads),
                                    LSE(false, (rlk_in)lse),
                                    QKVO("dq", true, (rlk_in)dq, a->heads),
                                    QKVO("dk", true, (rlk_in)dk, a->kv_heads),
                                    QKVO("dv", true, (rlk_in)dv, a->kv_heads)};
    struct rlki_call c;
    void *all_k[RANKS], *all_v[RANKS];
    float *delta[RANKS];
    int rc = check(w->x, a);
    if (rc || (rc = need_zero_first(w->x, b)) ||
        (rc = rlki_begin(&c, w, b, RLK_MODULE_ATTENTION, OP, ATTENTION, "bwd", a->module, t, 9)))
        return rc;
    rc = gather(&c, a, k, v, all_k, all_v);
    for (int i = 0; !rc && i < w->held; i++) {
        struct rlki_attention f = base_of(&c, a, i);
        delta[i] = rlki_take(w->x, (size_t)f.rows * (size_t)f.heads * sizeof(float));
        if (!delta[i]) {
            rc = RLK_K_ENOMEM;
            break;
        }
        f.q = q[i];
        f.k = all_k[i];
        f.v = all_v[i];
        f.o_in = o[i];
        f.dout = dout[i];
        f.o = dq[i];
        f.lse = (float *)(uintptr_t)lse[i];
        f.delta = delta[i];
        rc = f.rows ? c.prims->attn_dq(w->x, &f) : 0;
    }
    if (!rc)
        rc = key_gradients(&c, a, q, dout, all_k, all_v, lse, delta, dk, dv);
    return rlki_end(&c, rc, t, 9);
}
