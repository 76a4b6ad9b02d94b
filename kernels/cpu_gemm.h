/* cpu_gemm.h - one chain of fused multiply-adds an element, k ascending from +0 (docs/contracts.md, section 4). The
 * tiles, the blocking of k and the threads only choose when a step is taken, never its operands: partial chains rest in
 * FP32. */

#define MC 240 /* a multiple of every MR */
#define NC 256
#define KC 256

struct gemm_tile {
    const struct rlki_gemm *g;
    int64_t mc, nc, tiles_n;
};

static inline int64_t red_row(const struct rlki_side *s, int64_t k)
{
    return (s->index ? s->index[k] : k) * s->red;
}

/* Panels of `width` rows: to[(panel*kc + k)*width + r]; rows beyond n are +0 and never stored. */
static void pack(const struct rlki_side *s, int64_t o0, int64_t n, int64_t k0, int64_t kc, int width, float *to)
{
    for (int64_t p = 0; p < n; p += width, to += kc * width) {
        const int64_t w = n - p < width ? n - p : width;
        if (s->out == 1) {
            for (int64_t k = 0; k < kc; k++) {
                load_n(s->type, s->p, (o0 + p) + red_row(s, k0 + k), w, to + k * width);
                for (int64_t r = w; r < width; r++)
                    to[k * width + r] = 0.0f;
            }
            continue;
        }
        for (int64_t r = 0; r < width; r++) {
            float *q = to + r;
            if (r >= w) {
                for (int64_t k = 0; k < kc; k++)
                    q[k * width] = 0.0f;
            } else if (!s->index && s->red == 1 && s->type == RLK_K_BF16) {
                const uint16_t *h = (const uint16_t *)s->p + (o0 + p + r) * s->out + k0;
                for (int64_t k = 0; k < kc; k++)
                    q[k * width] = rlkn_from_bf16(h[k]);
            } else if (!s->index && s->red == 1) {
                const float *f = (const float *)s->p + (o0 + p + r) * s->out + k0;
                for (int64_t k = 0; k < kc; k++)
                    q[k * width] = f[k];
            } else {
                for (int64_t k = 0; k < kc; k++)
                    q[k * width] = load1(s->type, s->p, (o0 + p + r) * s->out + red_row(s, k0 + k));
            }
        }
    }
}

/* rows x NR of c, continued over kc steps. a is packed in panels of MR. */
static inline __attribute__((always_inline)) void micro_rows(int rows, const float *a, const float *b, int64_t kc,
                                                             float *c, int64_t ldc)
{
    V acc[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        acc[i][0] = v_load(c + i * ldc);
        acc[i][1] = v_load(c + i * ldc + VW);
    }
    for (int64_t k = 0; k < kc; k++) {
        const V b0 = v_load(b + k * NR), b1 = v_load(b + k * NR + VW);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const V ai = v_all(a[k * MR + i]);
            acc[i][0] = v_fma(ai, b0, acc[i][0]);
            acc[i][1] = v_fma(ai, b1, acc[i][1]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        v_store(c + i * ldc, acc[i][0]);
        v_store(c + i * ldc + VW, acc[i][1]);
    }
}

static void micro(int64_t rows, const float *a, const float *b, int64_t kc, float *c, int64_t ldc)
{
    if (rows == 1)
        micro_rows(1, a, b, kc, c, ldc);
    else if (rows == 2)
        micro_rows(2, a, b, kc, c, ldc);
    else if (rows <= 4)
        micro_rows(4, a, b, kc, c, ldc);
    else
        micro_rows(MR, a, b, kc, c, ldc);
}

static void gemm_task(void *arg, int64_t task, unsigned thread)
{
    const struct gemm_tile *t = arg;
    const struct rlki_gemm *g = t->g;
    const int64_t i0 = task / t->tiles_n * t->mc, j0 = task % t->tiles_n * t->nc;
    const int64_t m = g->m - i0 < t->mc ? g->m - i0 : t->mc, n = g->n - j0 < t->nc ? g->n - j0 : t->nc;
    _Alignas(64) float pa[MC * KC], pb[NC * KC], c[(MC + MR) * NC];
    (void)thread;
    for (int64_t i = 0; i < m + MR - 1; i++)
        memset(c + i * NC, 0, NC * sizeof *c);
    for (int64_t i = 0; g->resume && i < m; i++)
        memcpy(c + i * NC, (const float *)g->c + (i0 + i) * g->ldc + j0, (size_t)n * sizeof *c);
    for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
        const int64_t kc = g->k - k0 < KC ? g->k - k0 : KC;
        pack(&g->a, i0, m, k0, kc, MR, pa);
        pack(&g->b, j0, n, k0, kc, NR, pb);
        for (int64_t j = 0; j < n; j += NR)
            for (int64_t i = 0; i < m; i += MR)
                micro(m - i, pa + i * kc, pb + j * kc, kc, c + i * NC + j, NC);
    }
    for (int64_t i = 0; i < m; i++)
        store_n(g->c_type, g->c, (i0 + i) * g->ldc + j0, n, c + i * NC);
}

static int gemm(struct rlk_exec *x, const struct rlki_gemm *g)
{
    struct gemm_tile t = {g, MC, NC, 0};
    const int64_t want = 2 * (int64_t)rlk_pool_threads(x->pool);
    if (g->m <= 0 || g->n <= 0)
        return 0;
    while (t.nc > 2 * NR && (g->m + t.mc - 1) / t.mc * ((g->n + t.nc - 1) / t.nc) < want)
        t.nc /= 2;
    while (t.mc > 60 && (g->m + t.mc - 1) / t.mc * ((g->n + t.nc - 1) / t.nc) < want)
        t.mc /= 2;
    t.tiles_n = (g->n + t.nc - 1) / t.nc;
    rlk_pool_run(x->pool, (g->m + t.mc - 1) / t.mc * t.tiles_n, gemm_task, &t);
    return 0;
}

static inline float node(const struct rlki_reduce *r, float v)
{
    return r->node == RLK_NODE_BF16 ? rlkn_round_bf16(v) : v;
}

/* ((0+1)+(2+3))+((4+5)+(6+7)), or the first half of it; a leaf is a node too. */
static void reduce_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_reduce *r = arg;
    float v[RLK_SLABS][256];
    for (int64_t at = from; at < to; at += 256) {
        const int64_t n = to - at < 256 ? to - at : 256;
        for (int k = 0; k < r->count; k++)
            for (int64_t i = 0; i < n; i++)
                v[k][i] = node(r, r->in[k][at + i]);
        for (int step = 1; step < r->count; step *= 2)
            for (int k = 0; k < r->count; k += 2 * step)
                for (int64_t i = 0; i < n; i++)
                    v[k][i] = node(r, rlkn_add(v[k][i], v[k + step][i]));
        if (r->scale != 1.0f)
            for (int64_t i = 0; i < n; i++)
                v[0][i] = rlkn_mul(v[0][i], r->scale);
        if (r->accumulate)
            for (int64_t i = 0; i < n; i++)
                v[0][i] = rlkn_add(((const float *)r->out)[at + i], v[0][i]);
        store_n(r->out_type, r->out, at, n, v[0]);
    }
}

static int reduce(struct rlk_exec *x, const struct rlki_reduce *r)
{
    return over(x, r->n, 16384, reduce_range, r);
}
