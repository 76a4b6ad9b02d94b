/* cpu_rows.h - operators over rows and elements (docs/contracts.md, section 6). Body text, see cpu_vec.h. */

/* lane j: chain over elements j, j+128, ... of a*b; then the halving tree. */
static inline void lanes_fma(float acc[LANES], const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        acc[j] = rlkn_fma(a[j], b[j], acc[j]);
}

static void norm_fwd_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_norm *a = arg;
    float x[LANES], g[LANES];
    for (int64_t r = from; r < to; r++) {
        float acc[LANES] = {0};
        for (int64_t i = 0; i < a->n; i += LANES) {
            const int64_t n = a->n - i < LANES ? a->n - i : LANES;
            load_n(a->type, a->x, r * a->n + i, n, x);
            lanes_fma(acc, x, x, n);
        }
        const float s = rlkn_rsqrt(rlkn_add(rlkn_div(lanes_sum(acc), (float)a->n), a->eps));
        a->rstd[r] = rlkn_canon(s);
        for (int64_t i = 0; i < a->n; i += LANES) {
            const int64_t n = a->n - i < LANES ? a->n - i : LANES;
            load_n(a->type, a->x, r * a->n + i, n, x);
            load_n(a->type, a->gamma, i, n, g);
            for (int64_t j = 0; j < n; j++)
                x[j] = rlkn_mul(rlkn_mul(x[j], s), g[j]);
            store_n(a->type, a->y, r * a->n + i, n, x);
        }
    }
}

static int64_t row_grain(int64_t n)
{
    return n > 8192 ? 1 : 8192 / (n ? n : 1) + 1;
}

static int norm_fwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    return over(x, a->rows, row_grain(a->n), norm_fwd_range, a);
}

/* dx = s * (g*dy - xh * mean(g*dy*xh)), xh = x*s */
static void norm_bwd_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_norm *a = arg;
    float x[LANES], g[LANES], d[LANES];
    for (int64_t r = from; r < to; r++) {
        const float s = a->rstd[r];
        float acc[LANES] = {0}, c = 0.0f;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < a->n; i += LANES) {
                const int64_t n = a->n - i < LANES ? a->n - i : LANES;
                load_n(a->type, a->x, r * a->n + i, n, x);
                load_n(a->type, a->gamma, i, n, g);
                load_n(a->type, a->dy, r * a->n + i, n, d);
                for (int64_t j = 0; j < n; j++) {
                    d[j] = rlkn_mul(g[j], d[j]);
                    x[j] = rlkn_mul(x[j], s);
                }
                if (pass == 0) {
                    lanes_fma(acc, d, x, n);
                    continue;
                }
                for (int64_t j = 0; j < n; j++)
                    x[j] = rlkn_mul(s, rlkn_fma(-x[j], c, d[j]));
                store_n(a->type, a->y, r * a->n + i, n, x);
            }
            if (pass == 0)
                c = rlkn_div(lanes_sum(acc), (float)a->n);
        }
    }
}

static int norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    return over(x, a->rows, row_grain(a->n), norm_bwd_range, a);
}

/* Items: leaf, slab, 128 columns. */
static void gamma_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_gamma *a = arg;
    const int64_t pieces = (a->n + LANES - 1) / LANES;
    const int per = a->heads / a->slabs;
    float acc[LANES], x[LANES], d[LANES];
    for (int64_t item = from; item < to; item++) {
        const int64_t leaf = item / pieces / a->slabs, i = item % pieces * LANES;
        const int h0 = (int)(item / pieces % a->slabs) * per;
        const int64_t n = a->n - i < LANES ? a->n - i : LANES;
        memset(acc, 0, sizeof acc);
        for (int64_t k = a->start[leaf]; k < a->start[leaf + 1]; k++)
            for (int h = h0; h < h0 + per; h++) {
                const int64_t row = (int64_t)a->token[k] * a->heads + h;
                const float s = a->rstd[row];
                load_n(a->type, a->x, row * a->n + i, n, x);
                load_n(a->type, a->dy, row * a->n + i, n, d);
                for (int64_t j = 0; j < n; j++)
                    acc[j] = rlkn_fma(d[j], rlkn_mul(x[j], s), acc[j]);
            }
        store_n(RLK_K_FP32, a->out, item / pieces * a->n + i, n, acc);
    }
}

static int gamma_leaf(struct rlk_exec *x, const struct rlki_gamma *a)
{
    return over(x, (int64_t)a->leaves * a->slabs * ((a->n + LANES - 1) / LANES), 1, gamma_range, a);
}

static void rope_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_rope *a = arg;
    const int half = a->d / 2;
    float u[64], v[64], p[64], q[64];
    for (int64_t r = from; r < to; r++) {
        const float *c = a->table + (int64_t)a->pos[r] * a->d, *s = c + half;
        for (int h = 0; h < a->heads; h++) {
            const int64_t at = (r * a->heads + h) * a->d;
            load_n(a->type, a->x, at, half, u);
            load_n(a->type, a->x, at + half, half, v);
            for (int i = 0; i < half; i++) {
                const float sn = a->inverse ? -s[i] : s[i];
                p[i] = rlkn_fma(u[i], c[i], -rlkn_mul(v[i], sn));
                q[i] = rlkn_fma(v[i], c[i], rlkn_mul(u[i], sn));
            }
            store_n(a->type, a->y, at, half, p);
            store_n(a->type, a->y, at + half, half, q);
        }
    }
}

static int rope(struct rlk_exec *x, const struct rlki_rope *a)
{
    return over(x, a->tokens, row_grain((int64_t)a->heads * a->d), rope_range, a);
}

static void glu_fwd_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_glu *a = arg;
    float g[LANES], u[LANES];
    for (int64_t i = from; i < to; i += LANES) {
        const int64_t n = to - i < LANES ? to - i : LANES;
        load_n(a->type, a->gate, i, n, g);
        load_n(a->type, a->up, i, n, u);
        for (int64_t j = 0; j < n; j++)
            g[j] = rlkn_mul(rlkn_div(g[j], rlkn_add(1.0f, rlkn_exp(-g[j]))), u[j]);
        store_n(a->type, a->y, i, n, g);
    }
}

static int glu_fwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    return over(x, a->n, 64 * LANES, glu_fwd_range, a);
}

static void glu_bwd_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_glu *a = arg;
    float g[LANES], u[LANES], d[LANES];
    for (int64_t i = from; i < to; i += LANES) {
        const int64_t n = to - i < LANES ? to - i : LANES;
        load_n(a->type, a->gate, i, n, g);
        load_n(a->type, a->up, i, n, u);
        load_n(a->type, a->dy, i, n, d);
        for (int64_t j = 0; j < n; j++) {
            const float e = rlkn_add(1.0f, rlkn_exp(-g[j]));
            const float s = rlkn_div(1.0f, e);
            const float t = rlkn_fma(g[j], rlkn_add(1.0f, -s), 1.0f);
            const float dg = rlkn_mul(rlkn_mul(d[j], u[j]), rlkn_mul(s, t));
            u[j] = rlkn_mul(d[j], rlkn_div(g[j], e));
            g[j] = dg;
        }
        store_n(a->type, a->dgate, i, n, g);
        store_n(a->type, a->dup, i, n, u);
    }
}

static int glu_bwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    return over(x, a->n, 64 * LANES, glu_bwd_range, a);
}

static void add_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_add *a = arg;
    float u[LANES], v[LANES];
    for (int64_t i = from; i < to; i += LANES) {
        const int64_t n = to - i < LANES ? to - i : LANES;
        load_n(a->type, a->a, i, n, u);
        load_n(a->type, a->b, i, n, v);
        for (int64_t j = 0; j < n; j++)
            u[j] = rlkn_add(u[j], v[j]);
        store_n(a->type, a->y, i, n, u);
    }
}

static int add(struct rlk_exec *x, const struct rlki_add *a)
{
    return over(x, a->n, 64 * LANES, add_range, a);
}

static void adamw_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_adamw *a = arg;
    float w[LANES];
    for (int64_t i = from; i < to; i += LANES) {
        const int64_t n = to - i < LANES ? to - i : LANES;
        float *restrict p = a->p + i, *restrict m = a->m + i, *restrict v = a->v + i;
        const float *restrict g0 = a->g + i;
        for (int64_t j = 0; j < n; j++) {
            const float g = rlkn_mul(g0[j], a->coef);
            const float mj = rlkn_fma(a->beta1, m[j], rlkn_mul(a->one_beta1, g));
            const float vj = rlkn_fma(a->beta2, v[j], rlkn_mul(rlkn_mul(a->one_beta2, g), g));
            const float den = rlkn_add(rlkn_sqrt(rlkn_mul(vj, a->c2)), a->eps);
            const float up = rlkn_div(rlkn_mul(mj, a->c1), den);
            const float pj = rlkn_fma(-a->lr, up, rlkn_fma(-a->decay, p[j], p[j]));
            m[j] = rlkn_canon(mj);
            v[j] = rlkn_canon(vj);
            p[j] = w[j] = rlkn_canon(pj);
        }
        if (a->w)
            store_n(a->w_type, a->w, i, n, w);
    }
}

static int adamw(struct rlk_exec *x, const struct rlki_adamw *a)
{
    return over(x, a->n, 64 * LANES, adamw_range, a);
}

static void embed_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_embed *a = arg;
    const size_t row = (size_t)a->h * rlk_ktype_bytes(a->type);
    for (int64_t r = from; r < to; r++)
        if (a->id[r] >= a->v0 && a->id[r] < a->v1)
            memcpy((char *)a->y + (size_t)r * row, (const char *)a->table + (size_t)(a->id[r] - a->v0) * row, row);
}

static int embed(struct rlk_exec *x, const struct rlki_embed *a)
{
    return over(x, a->rows, row_grain(a->h), embed_range, a);
}

static void embed_bwd_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_embed_bwd *a = arg;
    float leaf[RLK_SLABS][LANES], d[LANES];
    for (int64_t u = from; u < to; u++) {
        if (a->id[u] < a->v0 || a->id[u] >= a->v1)
            continue;
        const int32_t *start = a->start + 9 * u;
        float *g = a->grad + (int64_t)(a->id[u] - a->v0) * a->h;
        for (int64_t i = 0; i < a->h; i += LANES) {
            const int64_t n = a->h - i < LANES ? a->h - i : LANES;
            memset(leaf, 0, sizeof leaf);
            for (int p = 0; p < RLK_SLABS; p++)
                for (int32_t k = start[p]; k < start[p + 1]; k++) {
                    load_n(a->type, a->dy, (int64_t)a->token[k] * a->h + i, n, d);
                    for (int64_t j = 0; j < n; j++)
                        leaf[p][j] = rlkn_add(leaf[p][j], d[j]);
                }
            const struct rlki_reduce r = {
                n,          RLK_SLABS, {leaf[0], leaf[1], leaf[2], leaf[3], leaf[4], leaf[5], leaf[6], leaf[7]},
                a->node,    1.0f,      g + i,
                RLK_K_FP32, true};
            reduce_range(&r, 0, n);
        }
    }
}

static int embed_bwd(struct rlk_exec *x, const struct rlki_embed_bwd *a)
{
    return over(x, a->uniques, 1, embed_bwd_range, a);
}

/* One block of at most 64 rows x width columns: 256 lanes by element index, then the halving tree, FP64. */
static double block_squares(const float *g, int64_t ld, int64_t rows, int64_t width)
{
    double acc[256] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width;) {
            const int64_t lane = (r * width + c) % 256;
            const int64_t n = width - c < 256 - lane ? width - c : 256 - lane;
            const float *p = g + r * ld + c;
            for (int64_t j = 0; j < n; j++)
                acc[lane + j] += (double)p[j] * (double)p[j];
            c += n;
        }
    for (int h = 128; h >= 1; h /= 2)
        for (int j = 0; j < h; j++)
            acc[j] += acc[j + h];
    return acc[0];
}

static void sumsq_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_sumsq *a = arg;
    const int64_t blocks = (a->slab_rows + 63) / 64, cb = a->cols / a->width;
    for (int64_t b = from; b < to; b++) { /* row block of row slab b / blocks */
        const int64_t end = (b / blocks + 1) * a->slab_rows, r0 = b / blocks * a->slab_rows + b % blocks * 64;
        int64_t r1 = r0 + 64 < end ? r0 + 64 : end;
        r1 = r1 < a->rows ? r1 : a->rows;
        for (int64_t c = 0; c < cb && r0 < r1; c++)
            a->out[b * cb + c] = block_squares(a->g + r0 * a->cols + c * a->width, a->cols, r1 - r0, a->width);
    }
}

static int sumsq(struct rlk_exec *x, const struct rlki_sumsq *a)
{
    const int64_t blocks = (a->slab_rows + 63) / 64;
    return over(x, (a->rows + a->slab_rows - 1) / a->slab_rows * blocks, 1, sumsq_range, a);
}

static int sum_leaf(struct rlk_exec *x, const struct rlki_sum *a)
{
    double s = 0.0, n = 0.0;
    (void)x;
    for (int64_t k = 0; k < a->count; k++) {
        const int64_t t = a->token ? a->token[k] : k;
        if (a->mask && !a->mask[t])
            continue;
        s += (double)a->x[t];
        n += 1.0;
    }
    a->out[0] = s;
    a->out[1] = n;
    return 0;
}

struct math_arg {
    int which;
    uint32_t first;
    float *out;
};

static void math_range(const void *arg, int64_t from, int64_t to)
{
    const struct math_arg *a = arg;
    float *restrict out = a->out + from;
    const uint32_t first = a->first + (uint32_t)from;
    const int64_t n = to - from;
    if (a->which == 0)
        for (int64_t i = 0; i < n; i++)
            out[i] = rlkn_canon(rlkn_exp(rlkn_float(first + (uint32_t)i)));
    else if (a->which == 1)
        for (int64_t i = 0; i < n; i++)
            out[i] = rlkn_canon(rlkn_log(rlkn_float(first + (uint32_t)i)));
    else if (a->which == 2)
        for (int64_t i = 0; i < n; i++)
            out[i] = rlkn_canon(rlkn_rsqrt(rlkn_float(first + (uint32_t)i)));
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = rlkn_canon(rlkn_sigmoid(rlkn_float(first + (uint32_t)i)));
}

static int math_values(struct rlk_exec *x, int which, uint32_t first, int64_t n, float *out)
{
    const struct math_arg a = {which, first, out};
    return over(x, n, 16384, math_range, &a);
}
