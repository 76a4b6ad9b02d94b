/* cpu_attention.h - causal attention by query row: key tiles of 128 absolute positions ascending, online softmax, keys
 * beyond the row's position not visited (docs/contracts.md, section 7). Body text, see cpu_vec.h. */

#define KT 128
#define DMAX 128

struct kv_tile {
    float kt[DMAX * KT]; /* [d][key] */
    float v[KT * DMAX];  /* [key][d] */
};

static void load_kt(const struct rlki_attention *a, const void *p, int64_t key0, int keys, int head, float *to)
{
    float row[DMAX];
    for (int j = 0; j < KT; j++) {
        if (j < keys)
            load_n(a->type, p, ((key0 + j) * a->kv_heads + head) * a->d, a->d, row);
        else
            memset(row, 0, sizeof row);
        for (int i = 0; i < a->d; i++)
            to[i * KT + j] = row[i];
    }
}

static void load_rows(const struct rlki_attention *a, const void *p, int64_t key0, int keys, int head, float *to)
{
    for (int j = 0; j < keys; j++)
        load_n(a->type, p, ((key0 + j) * a->kv_heads + head) * a->d, a->d, to + j * a->d);
}

/* s[j] = chain over d of q[d]*k[j][d], for 128 keys. */
static void dots(const float *q, const float *kt, int d, float s[KT])
{
    V acc[KT / VW];
#pragma GCC unroll 8
    for (int i = 0; i < KT / VW; i++)
        acc[i] = v_all(0.0f);
    for (int k = 0; k < d; k++) {
        const V qk = v_all(q[k]);
#pragma GCC unroll 8
        for (int i = 0; i < KT / VW; i++)
            acc[i] = v_fma(qk, v_load(kt + k * KT + i * VW), acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < KT / VW; i++)
        v_store(s + i * VW, acc[i]);
}

/* o[d] continued by the chain over j of p[j]*v[j][d]. */
static inline __attribute__((always_inline)) void weigh_d(int d, const float *p, const float *v, int keys, float *o)
{
    V acc[DMAX / VW];
#pragma GCC unroll 8
    for (int i = 0; i < d / VW; i++)
        acc[i] = v_load(o + i * VW);
    for (int j = 0; j < keys; j++) {
        const V pj = v_all(p[j]);
#pragma GCC unroll 8
        for (int i = 0; i < d / VW; i++)
            acc[i] = v_fma(pj, v_load(v + j * d + i * VW), acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < d / VW; i++)
        v_store(o + i * VW, acc[i]);
}

static void weigh(int d, const float *p, const float *v, int keys, float *o)
{
    if (d == 128)
        weigh_d(128, p, v, keys, o);
    else
        weigh_d(64, p, v, keys, o);
}

struct attn_row {
    float q[DMAX], o[DMAX], m, l;
};

/* One tile of keys for one row: `seen` of them are at or before its position. */
static void online(struct attn_row *r, const struct kv_tile *t, const struct rlki_attention *a, int seen)
{
    float s[KT], lane[LANES] = {0};
    dots(r->q, t->kt, a->d, s);
    for (int j = 0; j < seen; j++)
        s[j] = rlkn_mul(s[j], a->scale);
    const float m = rlkn_max(r->m, lanes_max(s, seen));
    const float base = m == -RLKN_INF ? 0.0f : m;
    const float alpha = rlkn_exp(rlkn_add(r->m, -base));
    for (int j = 0; j < seen; j++)
        s[j] = rlkn_exp(rlkn_add(s[j], -base));
    memcpy(lane, s, (size_t)seen * sizeof *s);
    r->l = rlkn_fma(r->l, alpha, lanes_sum(lane));
    for (int i = 0; i < a->d; i++)
        r->o[i] = rlkn_mul(r->o[i], alpha);
    weigh(a->d, s, t->v, seen, r->o);
    r->m = m;
}

static void attn_fwd_task(void *arg, int64_t task, unsigned thread)
{
    const struct rlki_attention *a = arg;
    const struct rlki_tile tile = a->tile[task / a->kv_heads];
    const int kvh = (int)(task % a->kv_heads), group = a->heads / a->kv_heads;
    struct kv_tile t;
    struct attn_row row[64];
    (void)thread;
    for (int g = 0; g < group; g++) {
        const int h = kvh * group + g;
        for (int r = 0; r < tile.rows; r++) {
            load_n(a->type, a->q, ((int64_t)(tile.row + r) * a->heads + h) * a->d, a->d, row[r].q);
            memset(row[r].o, 0, sizeof row[r].o);
            row[r].m = -RLKN_INF;
            row[r].l = 0.0f;
        }
        for (int k0 = 0; k0 <= tile.last; k0 += KT) {
            const int keys = tile.last + 1 - k0 < KT ? tile.last + 1 - k0 : KT;
            load_kt(a, a->k, tile.base + k0, keys, kvh, t.kt);
            load_rows(a, a->v, tile.base + k0, keys, kvh, t.v);
            for (int r = 0; r < tile.rows; r++) {
                const int seen = a->pos[tile.row + r] + 1 - k0;
                if (seen > 0)
                    online(&row[r], &t, a, seen < KT ? seen : KT);
            }
        }
        for (int r = 0; r < tile.rows; r++) {
            const int64_t at = (int64_t)(tile.row + r) * a->heads + h;
            for (int i = 0; i < a->d; i++)
                row[r].o[i] = rlkn_div(row[r].o[i], row[r].l);
            store_n(a->type, a->o, at * a->d, a->d, row[r].o);
            if (a->lse)
                a->lse[at] = rlkn_canon(rlkn_add(row[r].m, rlkn_log(row[r].l)));
        }
    }
}

static int attn_fwd(struct rlk_exec *x, const struct rlki_attention *a)
{
    rlk_pool_run(x->pool, a->tiles * a->kv_heads, attn_fwd_task, (void *)(uintptr_t)a);
    return 0;
}

/* p and ds of one row against one tile: p = e^(s-lse), ds = p*(dp-delta). */
static void backward_row(const struct rlki_attention *a, const float *q, const float *dout, float lse, float delta,
                         const float *kt, const float *vt, int seen, float p[KT], float ds[KT])
{
    float dp[KT];
    dots(q, kt, a->d, p);
    dots(dout, vt, a->d, dp);
    for (int j = 0; j < seen; j++)
        p[j] = rlkn_exp(rlkn_add(rlkn_mul(p[j], a->scale), -lse));
    for (int j = 0; j < seen; j++)
        ds[j] = rlkn_mul(p[j], rlkn_add(dp[j], -delta));
}

struct bwd_tile {
    float kt[DMAX * KT], vt[DMAX * KT], k[KT * DMAX];
};

static void attn_dq_task(void *arg, int64_t task, unsigned thread)
{
    const struct rlki_attention *a = arg;
    const struct rlki_tile tile = a->tile[task / a->kv_heads];
    const int kvh = (int)(task % a->kv_heads), group = a->heads / a->kv_heads;
    struct bwd_tile t;
    float q[64][DMAX], d[64][DMAX], dq[64][DMAX], p[KT], ds[KT];
    (void)thread;
    for (int g = 0; g < group; g++) {
        const int h = kvh * group + g;
        for (int r = 0; r < tile.rows; r++) {
            const int64_t at = (int64_t)(tile.row + r) * a->heads + h;
            float o[DMAX], acc[LANES] = {0};
            load_n(a->type, a->q, at * a->d, a->d, q[r]);
            load_n(a->type, a->dout, at * a->d, a->d, d[r]);
            load_n(a->type, a->o_in, at * a->d, a->d, o);
            lanes_fma(acc, d[r], o, a->d);
            a->delta[at] = lanes_sum(acc);
            memset(dq[r], 0, sizeof dq[r]);
        }
        for (int k0 = 0; k0 <= tile.last; k0 += KT) {
            const int keys = tile.last + 1 - k0 < KT ? tile.last + 1 - k0 : KT;
            load_kt(a, a->k, tile.base + k0, keys, kvh, t.kt);
            load_kt(a, a->v, tile.base + k0, keys, kvh, t.vt);
            load_rows(a, a->k, tile.base + k0, keys, kvh, t.k);
            for (int r = 0; r < tile.rows; r++) {
                const int64_t at = (int64_t)(tile.row + r) * a->heads + h;
                int seen = a->pos[tile.row + r] + 1 - k0;
                seen = seen < KT ? seen : KT;
                if (seen <= 0)
                    continue;
                backward_row(a, q[r], d[r], a->lse[at], a->delta[at], t.kt, t.vt, seen, p, ds);
                weigh(a->d, ds, t.k, seen, dq[r]);
            }
        }
        for (int r = 0; r < tile.rows; r++) {
            for (int i = 0; i < a->d; i++)
                dq[r][i] = rlkn_mul(dq[r][i], a->scale);
            store_n(a->type, a->o, ((int64_t)(tile.row + r) * a->heads + h) * a->d, a->d, dq[r]);
        }
    }
}

static int attn_dq(struct rlk_exec *x, const struct rlki_attention *a)
{
    rlk_pool_run(x->pool, a->tiles * a->kv_heads, attn_dq_task, (void *)(uintptr_t)a);
    return 0;
}

/* acc[j][d] continued by one row: w[j] * y[d]. */
static inline __attribute__((always_inline)) void outer_d(int d, const float *w, int seen, const float *y, float *acc)
{
    V yv[DMAX / VW];
#pragma GCC unroll 8
    for (int i = 0; i < d / VW; i++)
        yv[i] = v_load(y + i * VW);
    for (int j = 0; j < seen; j++) {
        const V wj = v_all(w[j]);
#pragma GCC unroll 8
        for (int i = 0; i < d / VW; i++)
            v_store(acc + j * d + i * VW, v_fma(wj, yv[i], v_load(acc + j * d + i * VW)));
    }
}

static void outer(int d, const float *w, int seen, const float *y, float *acc)
{
    if (d == 128)
        outer_d(128, w, seen, y, acc);
    else
        outer_d(64, w, seen, y, acc);
}

/* Task: (sequence, key tile, kv head). Query heads of the group ascending, then rows of chunk p, then of chunk 15-p. */
static void attn_dkv_task(void *arg, int64_t task, unsigned thread)
{
    const struct rlki_attention_dkv *f = arg;
    const struct rlki_attention *a = &f->at;
    const int64_t tiles = (f->max_len + KT - 1) / KT;
    const int kvh = (int)(task % a->kv_heads), group = a->heads / a->kv_heads;
    const int64_t tile = task / a->kv_heads % tiles;
    const struct rlki_leaf_seq s = f->seq[task / a->kv_heads / tiles];
    const int k0 = (int)tile * KT, keys = s.len - k0 < KT ? s.len - k0 : KT;
    float kt[DMAX * KT], vt[DMAX * KT], dk[KT * DMAX], dv[KT * DMAX];
    (void)thread;
    if (keys <= 0)
        return;
    memset(dk, 0, sizeof dk);
    memset(dv, 0, sizeof dv);
    load_kt(a, a->k, s.base + k0, keys, kvh, kt);
    load_kt(a, a->v, s.base + k0, keys, kvh, vt);
    for (int h = kvh * group; h < (kvh + 1) * group; h++)
        for (int half = 0; half < 2; half++)
            for (int r = half ? s.hi0 : s.lo0; r < (half ? s.hi1 : s.lo1); r++) {
                const int64_t at = (int64_t)r * a->heads + h;
                float q[DMAX], d[DMAX], p[KT], ds[KT];
                int seen = a->pos[r] + 1 - k0;
                seen = seen < keys ? seen : keys;
                if (seen <= 0)
                    continue;
                load_n(a->type, a->q, at * a->d, a->d, q);
                load_n(a->type, a->dout, at * a->d, a->d, d);
                backward_row(a, q, d, a->lse[at], a->delta[at], kt, vt, seen, p, ds);
                outer(a->d, ds, seen, q, dk);
                outer(a->d, p, seen, d, dv);
            }
    for (int j = 0; j < keys; j++) {
        const int64_t at = ((int64_t)(s.base + k0 + j) * a->kv_heads + kvh) * a->d;
        store_n(RLK_K_FP32, f->dk, at, a->d, dk + j * a->d);
        store_n(RLK_K_FP32, f->dv, at, a->d, dv + j * a->d);
    }
}

static int attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *f)
{
    const int64_t tiles = (f->max_len + KT - 1) / KT;
    rlk_pool_run(x->pool, f->seqs * tiles * f->at.kv_heads, attn_dkv_task, (void *)(uintptr_t)f);
    return 0;
}
