/* provider_cpu.c - what a user's library does today: plain loops, libm, sums whose order follows the threads and the
 * ranks. Nothing here is promised; it exists to be run and audited. Sums over ranks fold in rank order. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rlk_num.h"
#include "kernels/rlki_cpu.h"

static float get(enum rlk_ktype type, const void *p, int64_t i)
{
    return type == RLK_K_BF16 ? rlkn_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void put(enum rlk_ktype type, void *p, int64_t i, float v)
{
    if (type == RLK_K_BF16)
        ((uint16_t *)p)[i] = rlkn_to_bf16(v);
    else
        ((float *)p)[i] = v;
}

/* ---- GEMM: k is divided among the threads, their partial sums are added in thread order ---- */

struct split {
    const struct rlki_gemm *g;
    int parts;
    float *a, *b, *partial; /* [m][k], [k][n], [parts][m][n] */
};

static void split_task(void *arg, int64_t part, unsigned thread)
{
    const struct split *s = arg;
    const struct rlki_gemm *g = s->g;
    const int64_t from = g->k * part / s->parts, to = g->k * (part + 1) / s->parts;
    float *c = s->partial + part * g->m * g->n;
    (void)thread;
    memset(c, 0, (size_t)(g->m * g->n) * sizeof *c);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t k = from; k < to; k++) {
            const float a = s->a[i * g->k + k];
            for (int64_t j = 0; j < g->n; j++)
                c[i * g->n + j] += a * s->b[k * g->n + j];
        }
}

static int gemm(struct rlk_exec *x, const struct rlki_gemm *g)
{
    struct split s = {.g = g, .parts = (int)rlk_pool_threads(x->pool)};
    if (s.parts < 2)
        s.parts = 2;
    s.a = malloc((size_t)(g->m * g->k + 1) * sizeof(float));
    s.b = malloc((size_t)(g->n * g->k + 1) * sizeof(float));
    s.partial = malloc((size_t)s.parts * (size_t)(g->m * g->n + 1) * sizeof(float));
    int rc = 0;
    if (!s.a || !s.b || !s.partial) {
        rc = rlk_kfail(&x->detail, RLK_K_ENOMEM, "provider gemm: out of memory");
        goto out;
    }
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t k = 0; k < g->k; k++)
            s.a[i * g->k + k] = get(g->a.type, g->a.p, i * g->a.out + (g->a.index ? g->a.index[k] : k) * g->a.red);
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t k = 0; k < g->k; k++)
            s.b[k * g->n + j] = get(g->b.type, g->b.p, j * g->b.out + (g->b.index ? g->b.index[k] : k) * g->b.red);
    rlk_pool_run(x->pool, s.parts, split_task, &s);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            float v = g->resume ? ((const float *)g->c)[i * g->ldc + j] : 0.0f;
            for (int p = 0; p < s.parts; p++)
                v += s.partial[(p * g->m + i) * g->n + j];
            put(g->c_type, g->c, i * g->ldc + j, v);
        }
out:
    free(s.a);
    free(s.b);
    free(s.partial);
    return rc;
}

static int reduce(struct rlk_exec *x, const struct rlki_reduce *r)
{
    (void)x;
    for (int64_t i = 0; i < r->n; i++) {
        float v = r->in[0][i];
        for (int k = 1; k < r->count; k++)
            v += r->in[k][i];
        v *= r->scale;
        put(r->out_type, r->out, i, r->accumulate ? ((const float *)r->out)[i] + v : v);
    }
    return 0;
}

static int norm_fwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++) {
        float s = 0.0f;
        for (int64_t i = 0; i < a->n; i++)
            s += get(a->type, a->x, r * a->n + i) * get(a->type, a->x, r * a->n + i);
        s = 1.0f / sqrtf(s / (float)a->n + a->eps);
        a->rstd[r] = s;
        for (int64_t i = 0; i < a->n; i++)
            put(a->type, a->y, r * a->n + i, get(a->type, a->gamma, i) * (get(a->type, a->x, r * a->n + i) * s));
    }
    return 0;
}

static int norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++) {
        const float s = a->rstd[r];
        float c = 0.0f;
        for (int64_t i = 0; i < a->n; i++)
            c += get(a->type, a->gamma, i) * get(a->type, a->dy, r * a->n + i) * get(a->type, a->x, r * a->n + i);
        c *= s * s * s / (float)a->n;
        for (int64_t i = 0; i < a->n; i++)
            put(a->type, a->y, r * a->n + i,
                get(a->type, a->gamma, i) * get(a->type, a->dy, r * a->n + i) * s -
                    get(a->type, a->x, r * a->n + i) * c);
    }
    return 0;
}

static int gamma_leaf(struct rlk_exec *x, const struct rlki_gamma *a) /* one leaf, one slab: rlki_leaves */
{
    const int64_t rows = (a->start[a->leaves] - a->start[0]) * a->heads;
    (void)x;
    for (int64_t i = 0; i < a->n; i++) {
        float s = 0.0f;
        for (int64_t row = 0; row < rows; row++)
            s += get(a->type, a->dy, row * a->n + i) * get(a->type, a->x, row * a->n + i) * a->rstd[row];
        a->out[i] = s;
    }
    return 0;
}

static int rope(struct rlk_exec *x, const struct rlki_rope *a)
{
    const int half = a->d / 2;
    (void)x;
    for (int64_t r = 0; r < a->tokens; r++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < half; i++) {
                const int64_t at = (r * a->heads + h) * a->d + i;
                const float c = a->table[(int64_t)a->pos[r] * a->d + i],
                            s0 = a->table[(int64_t)a->pos[r] * a->d + half + i];
                const float s = a->inverse ? -s0 : s0, u = get(a->type, a->x, at), v = get(a->type, a->x, at + half);
                put(a->type, a->y, at, u * c - v * s);
                put(a->type, a->y, at + half, v * c + u * s);
            }
    return 0;
}

static int glu_fwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    (void)x;
    for (int64_t i = 0; i < a->n; i++) {
        const float g = get(a->type, a->gate, i);
        put(a->type, a->y, i, g / (1.0f + expf(-g)) * get(a->type, a->up, i));
    }
    return 0;
}

static int glu_bwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    (void)x;
    for (int64_t i = 0; i < a->n; i++) {
        const float g = get(a->type, a->gate, i), u = get(a->type, a->up, i), d = get(a->type, a->dy, i);
        const float s = 1.0f / (1.0f + expf(-g));
        put(a->type, a->dgate, i, d * u * s * (1.0f + g * (1.0f - s)));
        put(a->type, a->dup, i, d * g * s);
    }
    return 0;
}

static int add(struct rlk_exec *x, const struct rlki_add *a)
{
    (void)x;
    for (int64_t i = 0; i < a->n; i++)
        put(a->type, a->y, i, get(a->type, a->a, i) + get(a->type, a->b, i));
    return 0;
}

/* ---- attention: whole rows of scores ---- */

static float score(const struct rlki_attention *a, const void *q, const void *k, int64_t row, int64_t key, int h)
{
    float s = 0.0f;
    const int64_t qa = (row * a->heads + h) * a->d, ka = (key * a->kv_heads + h * a->kv_heads / a->heads) * a->d;
    for (int i = 0; i < a->d; i++)
        s += get(a->type, q, qa + i) * get(a->type, k, ka + i);
    return s;
}

struct attn_rows {
    const struct rlki_attention *a;
    atomic_bool short_of_memory;
};

static void attn_fwd_row(void *arg, int64_t task, unsigned thread)
{
    struct attn_rows *rows = arg;
    const struct rlki_attention *a = rows->a;
    const int64_t row = task / a->heads;
    const int h = (int)(task % a->heads), keys = a->pos[row] + 1;
    float *p = malloc((size_t)keys * sizeof *p), m = -INFINITY, l = 0.0f;
    (void)thread;
    if (!p) {
        atomic_store(&rows->short_of_memory, true);
        return;
    }
    for (int j = 0; j < keys; j++) {
        p[j] = score(a, a->q, a->k, row, a->base[row] + j, h) * a->scale;
        m = p[j] > m ? p[j] : m;
    }
    for (int j = 0; j < keys; j++)
        l += p[j] = expf(p[j] - m);
    for (int i = 0; i < a->d; i++) {
        float o = 0.0f;
        for (int j = 0; j < keys; j++)
            o +=
                p[j] / l *
                get(a->type, a->v, ((int64_t)(a->base[row] + j) * a->kv_heads + h * a->kv_heads / a->heads) * a->d + i);
        put(a->type, a->o, (row * a->heads + h) * a->d + i, o);
    }
    if (a->lse)
        a->lse[row * a->heads + h] = m + logf(l);
    free(p);
}

static int attn_fwd(struct rlk_exec *x, const struct rlki_attention *a)
{
    struct attn_rows rows = {a, false};
    rlk_pool_run(x->pool, a->rows * a->heads, attn_fwd_row, &rows);
    if (atomic_load(&rows.short_of_memory))
        return rlk_kfail(&x->detail, RLK_K_ENOMEM, "provider attention: out of memory for a row's scores");
    return 0;
}

static void attn_dq_row(void *arg, int64_t task, unsigned thread)
{
    const struct rlki_attention *a = arg;
    const int64_t row = task / a->heads, at = row * a->heads + task % a->heads;
    const int h = (int)(task % a->heads);
    float dq[128] = {0}, delta = 0.0f;
    (void)thread;
    for (int i = 0; i < a->d; i++)
        delta += get(a->type, a->dout, at * a->d + i) * get(a->type, a->o_in, at * a->d + i);
    a->delta[at] = delta;
    for (int j = 0; j <= a->pos[row]; j++) {
        const int64_t key = a->base[row] + j, ka = (key * a->kv_heads + h * a->kv_heads / a->heads) * a->d;
        const float p = expf(score(a, a->q, a->k, row, key, h) * a->scale - a->lse[at]);
        const float ds = p * (score(a, a->dout, a->v, row, key, h) - delta) * a->scale;
        for (int i = 0; i < a->d; i++)
            dq[i] += ds * get(a->type, a->k, ka + i);
    }
    for (int i = 0; i < a->d; i++)
        put(a->type, a->o, at * a->d + i, dq[i]);
}

static int attn_dq(struct rlk_exec *x, const struct rlki_attention *a)
{
    rlk_pool_run(x->pool, a->rows * a->heads, attn_dq_row, (void *)(uintptr_t)a);
    return 0;
}

static int attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *f)
{
    const struct rlki_attention *a = &f->at;
    const size_t bytes = (size_t)f->key_rows * (size_t)a->kv_heads * (size_t)a->d * sizeof(float);
    (void)x;
    memset(f->dk, 0, bytes);
    memset(f->dv, 0, bytes);
    for (int64_t n = 0; n < f->seqs; n++) {
        const struct rlki_leaf_seq s = f->seq[n];
        for (int half = 0; half < 2; half++)
            for (int r = half ? s.hi0 : s.lo0; r < (half ? s.hi1 : s.lo1); r++)
                for (int h = 0; h < a->heads; h++) {
                    const int64_t at = (int64_t)r * a->heads + h;
                    for (int j = 0; j <= a->pos[r] && j < s.len; j++) {
                        const int64_t key = s.base + j, ka = (key * a->kv_heads + h * a->kv_heads / a->heads) * a->d;
                        const float p = expf(score(a, a->q, a->k, r, key, h) * a->scale - a->lse[at]);
                        const float ds = p * (score(a, a->dout, a->v, r, key, h) - a->delta[at]);
                        for (int i = 0; i < a->d; i++) {
                            f->dk[ka + i] += ds * get(a->type, a->q, at * a->d + i);
                            f->dv[ka + i] += p * get(a->type, a->dout, at * a->d + i);
                        }
                    }
                }
    }
    return 0;
}

/* ---- log-probabilities over the rank's whole share, merged in rank order ---- */

static int logp_stats(struct rlk_exec *x, const struct rlki_logp *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *z = a->z + r * a->ld;
        float m = -INFINITY, s = 0.0f;
        for (int64_t v = 0; v < a->cols; v++)
            m = z[v] / a->temperature > m ? z[v] / a->temperature : m;
        for (int64_t v = 0; v < a->cols; v++)
            s += expf(z[v] / a->temperature - m);
        a->m[r] = m;
        a->s[r] = s;
        if (a->target && a->target[r] >= a->v0 && a->target[r] < a->v0 + a->cols)
            a->zy[r] = z[a->target[r] - a->v0] / a->temperature;
    }
    return 0;
}

static int logp_merge(struct rlk_exec *x, const struct rlki_logp_merge *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++) {
        float m = -INFINITY, z = 0.0f;
        for (int s = 0; s < a->slabs; s++)
            m = a->in[3 * s * a->rows + r] > m ? a->in[3 * s * a->rows + r] : m;
        for (int s = 0; s < a->slabs; s++)
            z += a->in[(3 * s + 1) * a->rows + r] * expf(a->in[3 * s * a->rows + r] - m);
        a->stats[3 * r] = m;
        a->stats[3 * r + 1] = z;
        a->stats[3 * r + 2] = logf(z);
        if (a->logp)
            a->logp[r] =
                a->target[r] < 0 ? 0.0f : a->in[(3 * (a->target[r] / a->width) + 2) * a->rows + r] - (m + logf(z));
    }
    return 0;
}

static int logp_dz(struct rlk_exec *x, const struct rlki_logp *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t v = 0; v < a->cols; v++) {
            const float p = expf(a->z[r * a->ld + v] / a->temperature - a->stats[3 * r]) / a->stats[3 * r + 1];
            const float hit = a->target[r] == a->v0 + v ? 1.0f : 0.0f;
            put(a->type, a->out, r * a->ld + v, a->target[r] < 0 ? 0.0f : a->g[r] * (hit - p) / a->temperature);
        }
    return 0;
}

static int log_softmax(struct rlk_exec *x, const struct rlki_logp *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t v = 0; v < a->cols; v++)
            ((float *)a->out)[r * a->ld + v] =
                a->z[r * a->ld + v] / a->temperature - (a->stats[3 * r] + a->stats[3 * r + 2]);
    return 0;
}

/* ---- the rest ---- */

static int embed(struct rlk_exec *x, const struct rlki_embed *a)
{
    const size_t row = (size_t)a->h * rlk_ktype_bytes(a->type);
    (void)x;
    for (int64_t r = 0; r < a->rows; r++)
        if (a->id[r] >= a->v0 && a->id[r] < a->v1)
            memcpy((char *)a->y + (size_t)r * row, (const char *)a->table + (size_t)(a->id[r] - a->v0) * row, row);
    return 0;
}

static int embed_bwd(struct rlk_exec *x, const struct rlki_embed_bwd *a)
{
    (void)x;
    for (int64_t u = 0; u < a->uniques; u++)
        for (int32_t k = a->start[9 * u]; k < a->start[9 * u + 8] && a->id[u] >= a->v0 && a->id[u] < a->v1; k++)
            for (int64_t i = 0; i < a->h; i++)
                a->grad[(int64_t)(a->id[u] - a->v0) * a->h + i] += get(a->type, a->dy, (int64_t)a->token[k] * a->h + i);
    return 0;
}

static int adamw(struct rlk_exec *x, const struct rlki_adamw *a)
{
    (void)x;
    for (int64_t i = 0; i < a->n; i++) {
        const float g = a->g[i] * a->coef;
        a->m[i] = a->beta1 * a->m[i] + a->one_beta1 * g;
        a->v[i] = a->beta2 * a->v[i] + a->one_beta2 * g * g;
        a->p[i] = a->p[i] * (1.0f - a->decay) - a->lr * (a->m[i] * a->c1 / (sqrtf(a->v[i] * a->c2) + a->eps));
        if (a->w)
            put(a->w_type, a->w, i, a->p[i]);
    }
    return 0;
}

static int sumsq(struct rlk_exec *x, const struct rlki_sumsq *a)
{
    float s = 0.0f;
    (void)x;
    for (int64_t i = 0; i < a->rows * a->cols; i++)
        s += a->g[i] * a->g[i];
    a->out[0] = (double)s;
    return 0;
}

static int sum_leaf(struct rlk_exec *x, const struct rlki_sum *a)
{
    float s = 0.0f, n = 0.0f;
    (void)x;
    for (int64_t k = 0; k < a->count; k++)
        if (!a->mask || a->mask[k]) {
            s += a->x[k];
            n += 1.0f;
        }
    a->out[0] = (double)s;
    a->out[1] = (double)n;
    return 0;
}

/* Key = the row of the batch, not the sample: what a library without per-sample keys does. Linear scan, FP32 sums. */
static int sample(struct rlk_exec *x, const struct rlki_sample *a)
{
    (void)x;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *z = a->z + r * a->ld;
        uint32_t c[4] = {(uint32_t)r, 0, (uint32_t)*a->step, (uint32_t)a->pos[r]};
        float m = -INFINITY, total = 0.0f, mass = 0.0f;
        int32_t best = 0;
        for (int32_t v = 0; v < a->vocab; v++)
            if (z[v] > m) {
                m = z[v];
                best = v;
            }
        rlkn_philox(c, (uint32_t)a->seed, (uint32_t)(a->seed >> 32));
        const float u = (float)(c[0] >> 8) * 0x1p-24f;
        a->token[r] = best;
        if (!(a->temperature > 0.0f))
            continue;
        for (int64_t v = 0; v < a->vocab; v++)
            total += expf((z[v] - m) / a->temperature);
        for (int32_t v = 0; v < a->vocab; v++) {
            mass += expf((z[v] - m) / a->temperature);
            if (mass > u * total) {
                a->token[r] = v;
                break;
            }
        }
    }
    return 0;
}

const struct rlki_prims rlki_prims_provider = {.isa = "provider",
                                               .alloc = rlki_cpu_alloc,
                                               .free = rlki_cpu_free,
                                               .upload = rlki_cpu_copy,
                                               .download = rlki_cpu_copy,
                                               .copy = rlki_cpu_copy,
                                               .zero = rlki_cpu_zero,
                                               .sync = rlki_cpu_sync,
                                               .rows = rlki_cpu_rows,
                                               .gemm = gemm,
                                               .reduce = reduce,
                                               .norm_fwd = norm_fwd,
                                               .norm_bwd = norm_bwd,
                                               .gamma = gamma_leaf,
                                               .rope = rope,
                                               .glu_fwd = glu_fwd,
                                               .glu_bwd = glu_bwd,
                                               .add = add,
                                               .attn_fwd = attn_fwd,
                                               .attn_dq = attn_dq,
                                               .attn_dkv = attn_dkv,
                                               .logp_stats = logp_stats,
                                               .logp_merge = logp_merge,
                                               .logp_dz = logp_dz,
                                               .log_softmax = log_softmax,
                                               .embed = embed,
                                               .embed_bwd = embed_bwd,
                                               .adamw = adamw,
                                               .sumsq = sumsq,
                                               .cells = rlki_cpu_cells,
                                               .sum = sum_leaf,
                                               .sample = sample};
