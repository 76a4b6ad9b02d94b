/* plant_math.c - what faulty operators compute: the contract's arithmetic (kernels/rlk_num.h) in another order.
 *
 * Each of them equals the contract in some layout, and differs from it in others: that is what makes such a fault hard
 * to find, and what a comparison across layouts is for.
 */
#include "replayer/run.h"

#include "kernels/rlk_num.h"

#include <stdlib.h>

static float bf(const void *p, int64_t i)
{
    return rlkn_from_bf16(((const uint16_t *)p)[i]);
}

static int rank_of(const struct rlk_op_event *e, const struct rlk_train *run, int t, int c)
{
    (void)e;
    return t + run->train.lat.tp * c;
}

/* A balanced tree over n = 1, 2, 4 or 8. */
static float tree(const float *v, int n)
{
    return n == 1 ? v[0] : tree(v, n / 2) + tree(v + n / 2, n / 2);
}

void rlki_spoil_rank_order(struct rlk_train *run, const struct rlk_op_event *e, void *out)
{
    const int tp = run->train.lat.tp, slabs = RLK_SLABS / tp;
    const struct rlki_local *x0 = rlki_plant_input(run, "x", e->rank), *w0 = rlki_plant_input(run, "w", e->rank);
    if (!x0 || !w0)
        return;
    const int64_t n = x0->n[0], in = x0->n[1], width = w0->n[0];
    for (int64_t r = 0; r < n; r++)
        for (int64_t o = 0; o < width; o++) {
            float sum = 0.0f;
            for (int t = 0; t < tp; t++) {
                const int rank = rank_of(e, run, t, e->cp);
                const void *x = rlki_plant_input(run, "x", rank)->data, *w = rlki_plant_input(run, "w", rank)->data;
                float leaf[RLK_SLABS];
                for (int s = 0; s < slabs; s++) {
                    leaf[s] = 0.0f;
                    for (int64_t k = s * (in / slabs); k < (s + 1) * (in / slabs); k++)
                        leaf[s] = rlkn_fma(bf(x, r * in + k), bf(w, o * in + k), leaf[s]);
                }
                sum = t ? sum + tree(leaf, slabs) : tree(leaf, slabs);
            }
            ((uint16_t *)out)[r * width + o] = rlkn_to_bf16(sum);
        }
}

void rlki_spoil_dx(struct rlk_train *run, const struct rlk_op_event *e, void *out)
{
    static const char *const DY[3] = {"dy", "dy1", "dy2"}, *const W[3] = {"w", "w1", "w2"};
    const int tp = run->train.lat.tp, slabs = RLK_SLABS / tp;
    const struct rlki_local *first = rlki_plant_input(run, "dy", e->rank), *w0 = rlki_plant_input(run, "w", e->rank);
    if (!first || !w0)
        return;
    const int64_t n = first->n[0], width = w0->n[1];
    for (int64_t r = 0; r < n; r++)
        for (int64_t o = 0; o < width; o++) {
            float part[RLK_SLABS];
            for (int t = 0; t < tp; t++) {
                float leaf[RLK_SLABS] = {0};
                for (int s = 0; s < slabs; s++)
                    for (int g = 0; g < 3; g++) {
                        const struct rlki_local *dy = rlki_plant_input(run, DY[g], rank_of(e, run, t, e->cp)),
                                                *w = rlki_plant_input(run, W[g], rank_of(e, run, t, e->cp));
                        const int64_t k = dy ? dy->n[1] : 0;
                        for (int64_t j = s * (k / slabs); w && j < (s + 1) * (k / slabs); j++)
                            leaf[s] = rlkn_fma(bf(dy->data, r * k + j), bf(w->data, j * width + o), leaf[s]);
                    }
                part[t] = rlkn_round_bf16(tree(leaf, slabs)); /* the fault: a rounding for each shard */
            }
            ((uint16_t *)out)[r * width + o] = rlkn_to_bf16(tree(part, tp));
        }
}

void rlki_spoil_dw(struct rlk_train *run, const struct rlk_op_event *e, void *out)
{
    const struct rlki_local *dy0 = rlki_plant_input(run, "dy", e->rank), *x0 = rlki_plant_input(run, "x", e->rank);
    if (!dy0 || !x0)
        return;
    const int64_t rows = dy0->n[1], cols = x0->n[1];
    for (int64_t o = 0; o < rows; o++)
        for (int64_t k = 0; k < cols; k++) {
            float sum = 0.0f;
            for (int c = 0; c < run->train.lat.cp; c++) {
                const int rank = rank_of(e, run, e->tp, c);
                const struct rlki_local *dy = rlki_plant_input(run, "dy", rank), *x = rlki_plant_input(run, "x", rank);
                float part = 0.0f;
                for (int64_t t = 0; t < dy->n[0]; t++)
                    part = rlkn_fma(bf(dy->data, t * rows + o), bf(x->data, t * cols + k), part);
                sum = sum + part;
            }
            ((float *)out)[o * cols + k] = sum;
        }
}

/* Position of global token t in its sequence. */
static int64_t position(const struct rlki_micro *m, int64_t t)
{
    int64_t start = t;
    while (start > 0 && m->owner[start - 1] == m->owner[t])
        start--;
    return t - start;
}

static float lanes(float v[128])
{
    for (int h = 64; h > 0; h /= 2)
        for (int j = 0; j < h; j++)
            v[j] += v[j + h];
    return v[0];
}

struct softmax {
    float m, l, o[128];
};

/* The keys of rank c that row (global token t, local head h) sees, merged into a: tiles of 128 in the rank's order. */
static void merge_keys(struct rlk_train *run, const struct rlk_op_event *e, int c, int64_t t, int64_t row, int h,
                       struct softmax *a)
{
    const struct rlki_micro *m = run->micro;
    const int rank = rank_of(e, run, e->tp, c), d = run->opt.model.head_dim;
    const struct rlki_local *q = rlki_plant_input(run, "q", e->rank), *k = rlki_plant_input(run, "k", rank),
                            *v = rlki_plant_input(run, "v", rank);
    const int64_t heads = q->n[1], kv = k->n[1], hk = h * kv / heads, n = rlk_batch_local(m->batch, c);
    const int32_t *map = rlk_batch_map(m->batch, c);
    const float scale = rlkn_div(1.0f, rlkn_sqrt((float)d));
    int64_t j = 0;
    while (j < n) {
        float s[128], p[128] = {0}, top = -RLKN_INF;
        int64_t at[128];
        int count = 0;
        for (; j < n && count < 128; j++) {
            if (m->owner[map[j]] != m->owner[t] || map[j] > t)
                continue;
            float dot = 0.0f;
            for (int i = 0; i < d; i++)
                dot = rlkn_fma(bf(q->data, (row * heads + h) * d + i), bf(k->data, (j * kv + hk) * d + i), dot);
            s[count] = dot * scale;
            top = rlkn_max(top, s[count]);
            at[count++] = j;
        }
        if (!count)
            break;
        const float next = rlkn_max(a->m, top), shrink = rlkn_exp(a->m - next);
        for (int i = 0; i < count; i++)
            p[i] = rlkn_exp(s[i] - next);
        for (int x = 0; x < d; x++) {
            float o = a->o[x] * shrink;
            for (int i = 0; i < count; i++)
                o = rlkn_fma(p[i], bf(v->data, (at[i] * kv + hk) * d + x), o);
            a->o[x] = o;
        }
        a->l = rlkn_fma(a->l, shrink, lanes(p));
        a->m = next;
    }
}

void rlki_spoil_ring(struct rlk_train *run, const struct rlk_op_event *e, void *out, bool lse)
{
    const struct rlki_local *q = rlki_plant_input(run, "q", e->rank);
    const int C = run->train.lat.cp, d = run->opt.model.head_dim;
    const int32_t *map = rlk_batch_map(run->micro->batch, e->cp);
    if (!q)
        return;
    for (int64_t row = 0; row < q->n[0]; row++)
        for (int64_t h = 0; h < q->n[1]; h++) {
            struct softmax a = {.m = -RLKN_INF};
            for (int step = 0; step < C; step++) /* own keys first, then as they come round */
                merge_keys(run, e, (e->cp - step + C) % C, map[row], row, (int)h, &a);
            if (lse) {
                ((float *)out)[row * q->n[1] + h] = a.m + rlkn_log(a.l);
                continue;
            }
            for (int i = 0; i < d; i++)
                ((uint16_t *)out)[(row * q->n[1] + h) * d + i] = rlkn_to_bf16(rlkn_div(a.o[i], a.l));
        }
}

/* Row r of rank e: max, sum over physical slabs, and z of the target. */
static void vocab_row(struct rlk_train *run, const struct rlk_op_event *e, const struct rlki_local *h, int64_t r,
                      int32_t target, float stats[3], float *picked)
{
    const int tp = run->train.lat.tp;
    const int64_t H = h->n[1];
    const float temperature = run->opt.temperature;
    float m[RLK_SLABS] = {0}, s[RLK_SLABS] = {0};
    for (int t = 0; t < tp; t++) {
        const struct rlki_local *w = rlki_plant_input(run, "w", rank_of(e, run, t, e->cp));
        const int64_t start = (int64_t)rlk_vocab_span(&run->train.lat, t, run->opt.model.vocab).start;
        float tile_m[1024], tile_s[1024];
        int tiles = 0;
        m[t] = -RLKN_INF;
        for (int64_t v0 = 0; v0 < w->n[0] && tiles < 1024; v0 += RLK_VOCAB_TILE, tiles++) {
            float z[RLK_VOCAB_TILE], p[RLK_VOCAB_TILE] = {0}, top = -RLKN_INF;
            const int64_t n = w->n[0] - v0 < RLK_VOCAB_TILE ? w->n[0] - v0 : RLK_VOCAB_TILE;
            for (int64_t v = 0; v < n; v++) {
                z[v] = 0.0f;
                for (int64_t k = 0; k < H; k++)
                    z[v] = rlkn_fma(bf(h->data, r * H + k), bf(w->data, (v0 + v) * H + k), z[v]);
                z[v] = rlkn_div(z[v], temperature);
                top = rlkn_max(top, z[v]);
                if (start + v0 + v == target)
                    *picked = z[v];
            }
            for (int64_t v = 0; v < n; v++)
                p[v] = rlkn_exp(z[v] - top);
            tile_m[tiles] = top;
            tile_s[tiles] = lanes(p);
            m[t] = rlkn_max(m[t], top);
        }
        s[t] = 0.0f;
        for (int i = 0; i < tiles; i++)
            s[t] = rlkn_fma(tile_s[i], rlkn_exp(tile_m[i] - m[t]), s[t]);
    }
    stats[0] = m[0];
    for (int t = 1; t < tp; t++)
        stats[0] = rlkn_max(stats[0], m[t]);
    for (int t = 0; t < tp; t++)
        s[t] = s[t] == 0.0f ? 0.0f : s[t] * rlkn_exp(m[t] - stats[0]);
    stats[1] = tree(s, tp);
    stats[2] = rlkn_log(stats[1]);
}

void rlki_spoil_vocab(struct rlk_train *run, const struct rlk_op_event *e, void *out, bool stats)
{
    const struct rlki_local *h = rlki_plant_input(run, "h", e->rank);
    const int32_t *map = rlk_batch_map(run->micro->batch, e->cp);
    for (int64_t r = 0; h && r < h->n[0]; r++) {
        const int32_t target = run->micro->targets[map[r]];
        float row[3], picked = 0.0f;
        if (target < 0 && !stats)
            continue; /* no target, no log-probability: zero stays */
        vocab_row(run, e, h, r, target, row, &picked);
        for (int k = 0; stats && k < 3; k++)
            ((float *)out)[3 * r + k] = row[k];
        if (!stats)
            ((float *)out)[r] = (picked - row[0]) - row[2];
    }
}

void rlki_spoil_zigzag(struct rlk_train *run, const struct rlk_op_event *e, void *out)
{
    const struct rlki_local *x = rlki_plant_input(run, "x", e->rank);
    const struct rlki_micro *m = run->micro;
    const int d = run->opt.model.head_dim, other = run->train.lat.cp < 8 ? run->train.lat.cp * 2 : 4;
    const struct rlk_lattice lat = {run->train.lat.tp, other};
    const int32_t *map = rlk_batch_map(m->batch, e->cp);
    const float *rope = rlki_plant_rope(run);
    if (!x || !x->copy || !rope)
        return;
    for (int64_t r = 0, k = 0; r < x->n[0]; r++) {
        const int owner = m->owner[map[r]];
        struct rlk_span span[2];
        const int spans = rlk_cp_spans(&lat, e->cp % other, run->sample[owner].length, span);
        int64_t count = 0, pos = position(m, map[r]);
        k = r > 0 && m->owner[map[r - 1]] == owner ? k + 1 : 0; /* k-th token of the sequence on this rank */
        for (int s = 0; s < spans; s++)
            count += (int64_t)span[s].extent;
        for (int64_t s = 0, at = count ? k % count : 0; count && s < spans; at -= (int64_t)span[s].extent, s++)
            if (at >= 0 && at < (int64_t)span[s].extent)
                pos = (int64_t)span[s].start + at;
        for (int64_t h = 0; h < x->n[1]; h++)
            for (int i = 0; i < d / 2; i++) {
                const int64_t base = (r * x->n[1] + h) * d;
                const float u = bf(x->copy, base + i), v = bf(x->copy, base + d / 2 + i);
                const float c = rope[pos * d + i], s = rope[pos * d + d / 2 + i];
                ((uint16_t *)out)[base + i] = rlkn_to_bf16(rlkn_fma(u, c, -(v * s)));
                ((uint16_t *)out)[base + d / 2 + i] = rlkn_to_bf16(rlkn_fma(v, c, u * s));
            }
    }
}
