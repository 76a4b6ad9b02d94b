/* cpu_logp.h - statistics of logits by tiles of 128 words, log-probabilities, sampling (docs/contracts.md, section 8).
 */

static inline float tempered(float z, float temperature)
{
    return temperature == 1.0f ? z : rlkn_div(z, temperature);
}

/* Element (i, j) of a stats array is in[(slab*3 + what)*rows + r]. */
static void logp_stats_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_logp *a = arg;
    for (int64_t r = from; r < to; r++) {
        const float *z = a->z + r * a->ld;
        float m = -RLKN_INF, s = 0.0f;
        for (int pass = 0; pass < 2; pass++) {
            const float base = m == -RLKN_INF ? 0.0f : m;
            for (int64_t v = 0; v < a->cols; v += RLK_VOCAB_TILE) {
                const int n = a->cols - v < RLK_VOCAB_TILE ? (int)(a->cols - v) : RLK_VOCAB_TILE;
                float t[LANES] = {0};
                for (int j = 0; j < n; j++)
                    t[j] = tempered(z[v + j], a->temperature);
                const float mt = lanes_max(t, n);
                if (pass == 0) {
                    m = rlkn_max(m, mt);
                    continue;
                }
                const float bt = mt == -RLKN_INF ? 0.0f : mt;
                for (int j = 0; j < n; j++)
                    t[j] = rlkn_exp(rlkn_add(t[j], -bt));
                s = rlkn_fma(lanes_sum(t), rlkn_exp(rlkn_add(mt, -base)), s);
            }
        }
        a->m[r] = rlkn_canon(m);
        a->s[r] = rlkn_canon(s);
        if (a->target && a->target[r] >= a->v0 && a->target[r] < a->v0 + a->cols)
            a->zy[r] = rlkn_canon(tempered(z[a->target[r] - a->v0], a->temperature));
    }
}

static int logp_stats(struct rlk_exec *x, const struct rlki_logp *a)
{
    return over(x, a->rows, row_grain(a->cols), logp_stats_range, a);
}

static int logp_merge(struct rlk_exec *x, const struct rlki_logp_merge *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        float m = -RLKN_INF, t[RLK_SLABS], z = 0.0f;
        for (int s = 0; s < a->slabs; s++)
            m = rlkn_max(m, a->in[3 * s * a->rows + r]);
        m = rlkn_add(m, 0.0f);
        const float base = m == -RLKN_INF ? 0.0f : m;
        const float *leaf[RLK_SLABS];
        for (int s = 0; s < a->slabs; s++) {
            const float *in = a->in + 3 * s * a->rows + r;
            t[s] = rlkn_mul(in[a->rows], rlkn_exp(rlkn_add(in[0], -base)));
            leaf[s] = &t[s];
        }
        struct rlki_reduce sum = {1, a->slabs, {0}, a->node, 1.0f, &z, RLK_K_FP32, false};
        memcpy(sum.in, leaf, sizeof leaf[0] * (size_t)a->slabs);
        reduce_range(&sum, 0, 1);
        const float lz = rlkn_log(z);
        a->stats[3 * r] = rlkn_canon(m);
        a->stats[3 * r + 1] = z;
        a->stats[3 * r + 2] = rlkn_canon(lz);
        if (a->logp) {
            const int32_t y = a->target[r];
            const float zy = y < 0 ? 0.0f : a->in[(3 * (y / a->width) + 2) * a->rows + r];
            a->logp[r] = y < 0 ? 0.0f : rlkn_canon(rlkn_add(rlkn_add(zy, -m), -lz));
        }
    }
    (void)x;
    return 0;
}

static void logp_dz_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_logp *a = arg;
    for (int64_t r = from; r < to; r++) {
        const float m = a->stats[3 * r], sum = a->stats[3 * r + 1], g = a->g[r];
        const int32_t y = a->target[r];
        for (int64_t v = 0; v < a->cols; v += LANES) {
            const int64_t n = a->cols - v < LANES ? a->cols - v : LANES;
            float t[LANES];
            for (int64_t j = 0; j < n; j++)
                t[j] = -rlkn_div(rlkn_exp(rlkn_add(tempered(a->z[r * a->ld + v + j], a->temperature), -m)), sum);
            const int64_t hit = (int64_t)y - a->v0 - v;
            if (y >= 0 && hit >= 0 && hit < n)
                t[hit] = rlkn_add(1.0f, t[hit]);
            for (int64_t j = 0; j < n; j++)
                t[j] = y < 0 ? 0.0f : tempered(rlkn_mul(g, t[j]), a->temperature);
            store_n(a->type, a->out, r * a->ld + v, n, t);
        }
    }
}

static int logp_dz(struct rlk_exec *x, const struct rlki_logp *a)
{
    return over(x, a->rows, row_grain(a->cols), logp_dz_range, a);
}

static void log_softmax_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_logp *a = arg;
    for (int64_t r = from; r < to; r++) {
        const float m = a->stats[3 * r], lz = a->stats[3 * r + 2];
        const float *z = a->z + r * a->ld;
        float *o = (float *)a->out + r * a->ld;
        for (int64_t v = 0; v < a->cols; v++)
            o[v] = rlkn_canon(rlkn_add(rlkn_add(tempered(z[v], a->temperature), -m), -lz));
    }
}

static int log_softmax(struct rlk_exec *x, const struct rlki_logp *a)
{
    return over(x, a->rows, row_grain(a->cols), log_softmax_range, a);
}

/* Weights are integers round(e * 2^40), so that every sum below is exact and has no order. */
static inline uint64_t weight_of(float e)
{
    return (uint64_t)((double)e * 0x1p40 + 0.5);
}

static void sample_range(const void *arg, int64_t from, int64_t to)
{
    const struct rlki_sample *a = arg;
    for (int64_t r = from; r < to; r++) {
        const float *z = a->z + r * a->ld;
        float *e = (float *)a->scratch + r * a->vocab;
        float m = -RLKN_INF;
        int64_t best = -1;
        bool nan = false;
        for (int64_t v = 0; v < a->vocab; v++) {
            e[v] = a->temperature > 0.0f ? tempered(z[v], a->temperature) : z[v];
            nan |= e[v] != e[v];
            if (best < 0 || e[v] > m) {
                best = v;
                m = e[v];
            }
        }
        if (nan || !(m > -RLKN_INF && m < RLKN_INF) || !(a->temperature > 0.0f)) {
            a->token[r] = nan ? -1 : (int32_t)best;
            continue;
        }
        uint64_t total = 0;
        for (int64_t v = 0; v < a->vocab; v++) {
            e[v] = rlkn_exp(rlkn_add(e[v], -m));
            total += weight_of(e[v]);
        }
        /* The smallest nucleus: all words with e > cut, then words with e == cut by id until the mass is reached. */
        uint32_t cut = 0;
        uint64_t above = total, tie_mass = UINT64_MAX, need = total;
        if (a->top_p < 1.0f) {
            need = (uint64_t)((double)total * (double)a->top_p);
            need = need ? need : 1;
            uint32_t lo = 0, hi = rlkn_bits(1.0f); /* largest bits b with mass(e >= b) >= need */
            while (lo < hi) {
                const uint32_t mid = lo + (hi - lo + 1) / 2;
                uint64_t mass = 0;
                for (int64_t v = 0; v < a->vocab; v++)
                    mass += rlkn_bits(e[v]) >= mid ? weight_of(e[v]) : 0;
                if (mass >= need)
                    lo = mid;
                else
                    hi = mid - 1;
            }
            cut = lo;
            above = 0;
            for (int64_t v = 0; v < a->vocab; v++)
                above += rlkn_bits(e[v]) > cut ? weight_of(e[v]) : 0;
            tie_mass = need - above; /* mass(e > cut) < need by the choice of cut */
            total = above;
            uint64_t tied = 0;
            for (int64_t v = 0; v < a->vocab; v++)
                if (rlkn_bits(e[v]) == cut && tied < tie_mass) {
                    tied += weight_of(e[v]);
                    total += weight_of(e[v]);
                }
        }
        uint32_t c[4] = {(uint32_t)a->sample[r], (uint32_t)(a->sample[r] >> 32), (uint32_t)*a->step, (uint32_t)a->pos[r]};
        rlkn_philox(c, (uint32_t)a->seed, (uint32_t)(a->seed >> 32));
        const uint64_t u = ((uint64_t)c[0] << 32 | c[1]) >> 1; /* 63 bits */
        const uint64_t goal = (uint64_t)(((unsigned __int128)u * total) >> 63);
        uint64_t mass = 0, tied = 0;
        int32_t token = (int32_t)best;
        for (int64_t v = 0; v < a->vocab; v++) {
            const uint64_t w = weight_of(e[v]);
            const bool in = rlkn_bits(e[v]) > cut || (rlkn_bits(e[v]) == cut && tied < tie_mass);
            if (rlkn_bits(e[v]) == cut && in)
                tied += w;
            if (in)
                mass += w;
            if (in && mass > goal) {
                token = (int32_t)v;
                break;
            }
        }
        a->token[r] = token;
    }
}

static int sample(struct rlk_exec *x, const struct rlki_sample *a)
{
    return over(x, a->rows, 1, sample_range, a);
}
