/* op_logp.c - LM head, selected log-probability, logits, log-softmax. Order: docs/contracts.md, section 8. */
#include <stdlib.h>
#include <string.h>

#include "kernels/rlki_linear.h"

#define LOGP "rlk.linear_logp.bitwise/portable/1"
#define LOGITS "rlk.logits/portable/1"
#define LOG_SOFTMAX "rlk.log_softmax/portable/1"
#define OP "rlk.linear_logp.bitwise"
#define RANKS (RLK_SLABS * RLK_SLABS)

static int check(struct rlk_exec *x, const struct rlk_logp *l)
{
    const struct rlk_dims d = {l->hidden, 8, l->vocab, 8, 8, 64};
    int rc = rlki_check_type(x, OP, l->type);
    if (!rc)
        rc = rlk_lattice_check(&d, &x->detail);
    if (!rc && !(l->temperature > 0.0f && l->temperature < 1e30f))
        rc = rlk_kfail(&x->detail, RLK_K_EINVAL, OP ": temperature %g, use a positive number", (double)l->temperature);
    return rc;
}

static int check_targets(struct rlk_exec *x, const struct rlk_batch *b, const struct rlk_logp *l)
{
    for (int64_t i = 0; i < b->tokens; i++)
        if (l->targets[i] < -1 || l->targets[i] >= l->vocab)
            return rlk_kfail(&x->detail, RLK_K_EINVAL, OP ": target %d of token %lld, use -1 to %lld", l->targets[i],
                             (long long)i, (long long)l->vocab - 1);
    return 0;
}

/* The vocabulary slabs that rank i computes: 8/TP by contract, its whole share for a provider. */
static int slabs_of(const struct rlki_call *c)
{
    return rlki_leaves(c, c->w->lat.tp);
}
static int64_t slab_width(const struct rlki_call *c, int64_t vocab)
{
    return rlk_vocab_padded(vocab) / (slabs_of(c) * c->w->lat.tp);
}
static struct rlk_span slab_span(const struct rlki_call *c, int64_t vocab, int i, int s)
{
    const int64_t width = slab_width(c, vocab), at = ((int64_t)rlki_tp(c, i) * slabs_of(c) + s) * width;
    const int64_t from = at < vocab ? at : vocab, to = at + width < vocab ? at + width : vocab;
    return (struct rlk_span){(uint64_t)from, (uint64_t)(to - from)};
}
static int64_t first_word(const struct rlki_call *c, int64_t vocab, int i)
{
    return (int64_t)rlk_vocab_span(&c->w->lat, rlki_tp(c, i), vocab).start;
}

/* The targets of each rank's tokens, on the device, in the workspace. */
static int local_targets(struct rlki_call *c, const int32_t *all, int32_t **out)
{
    struct rlk_exec *x = c->w->x;
    int32_t *host = malloc(((size_t)c->batch->tokens + 1) * sizeof *host);
    int rc = host ? 0 : rlk_kfail(&x->detail, RLK_K_ENOMEM, OP ": out of memory for targets");
    for (int i = 0; !rc && i < c->w->held; i++) {
        const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
        for (int64_t r = 0; r < p->n; r++)
            host[r] = all[p->map[r]];
        out[i] = rlki_take(x, (size_t)p->n * sizeof *host);
        rc = out[i] ? c->prims->upload(x, out[i], host, (size_t)p->n * sizeof *host) : RLK_K_ENOMEM;
    }
    free(host);
    return rc;
}

static int64_t z_floats(const struct rlk_exec *x)
{
    return x->device == RLK_DEVICE_CUDA ? (int64_t)1 << 26 : (int64_t)1 << 20;
}

/* z = h W^T for `rows` rows from r0 and the words [v0, v0+cols) of rank i. */
static int logits_block(struct rlki_call *c, const struct rlk_logp *l, int i, const void *h, int64_t r0, int64_t rows,
                        int64_t v0, int64_t cols, float *z, int64_t ld)
{
    const struct rlki_gemm g = {.m = rows,
                                .n = cols,
                                .k = l->hidden,
                                .a = {rlki_at(h, r0 * l->hidden, l->type), l->type, l->hidden, 1, NULL},
                                .b = {rlki_at(l->weight[i], (v0 - first_word(c, l->vocab, i)) * l->hidden, l->type),
                                      l->type, l->hidden, 1, NULL},
                                .c = z,
                                .c_type = RLK_K_FP32,
                                .ldc = ld};
    return rows && cols ? c->prims->gemm(c->w->x, &g) : 0;
}

/* Rank i's [slab][3][n] statistics. */
static int local_stats(struct rlki_call *c, const struct rlk_logp *l, int i, const void *h, const int32_t *target,
                       float *out)
{
    struct rlk_exec *x = c->w->x;
    const int64_t n = rlki_local(c, i), width = slab_width(c, l->vocab);
    int64_t step = z_floats(x) / width;
    step = step < 32 ? 32 : step;
    step = step < n ? step : n;
    const size_t mark = x->used;
    float *z = rlki_take(x, (size_t)step * (size_t)width * sizeof(float));
    int rc = z ? 0 : RLK_K_ENOMEM;
    for (int64_t r0 = 0; !rc && r0 < n; r0 += step) {
        const int64_t rows = n - r0 < step ? n - r0 : step;
        for (int s = 0; !rc && s < slabs_of(c); s++) {
            const struct rlk_span v = slab_span(c, l->vocab, i, s);
            const struct rlki_logp a = {.rows = rows,
                                        .cols = (int64_t)v.extent,
                                        .ld = width,
                                        .z = z,
                                        .temperature = l->temperature,
                                        .v0 = (int32_t)v.start,
                                        .target = target ? target + r0 : NULL,
                                        .m = out + (3 * s) * n + r0,
                                        .s = out + (3 * s + 1) * n + r0,
                                        .zy = out + (3 * s + 2) * n + r0};
            rc = logits_block(c, l, i, h, r0, rows, (int64_t)v.start, (int64_t)v.extent, z, width);
            if (!rc)
                rc = c->prims->logp_stats(x, &a);
        }
    }
    x->used = mark;
    return rc;
}

int rlk_logp_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h, float *const *logp,
                 float *const *stats)
{
    const struct rlki_tensor t[] = {
        {"h", false, l->type, h, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, l->hidden}}, NULL, "tp"},
        {"w", false, l->type, l->weight, 2, {{RLKI_VOCAB, l->vocab}, {RLKI_WHOLE, l->hidden}}, NULL, "cp"},
        {"logp", true, RLK_K_FP32, (rlk_in)logp, 1, {{RLKI_TOKENS, 0}}, NULL, "tp"},
        {"stats", true, RLK_K_FP32, (rlk_in)stats, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, 3}}, NULL, "tp"}};
    struct rlki_call c;
    int32_t *target[RANKS];
    float *mine[RANKS];
    void *all[RANKS];
    size_t bytes[RANKS][RLK_SLABS];
    int rc = check(w->x, l);
    if (rc || (!w->x->measuring && (rc = check_targets(w->x, b, l))) ||
        (rc = rlki_begin(&c, w, b, RLK_MODULE_LOGP, OP, LOGP, "fwd", l->module, t, 4)))
        return rc;
    rc = local_targets(&c, l->targets, target);
    for (int i = 0; !rc && i < w->held; i++) {
        for (int j = 0; j < RLK_SLABS; j++)
            bytes[i][j] = (size_t)slabs_of(&c) * 3 * (size_t)rlki_local(&c, i) * sizeof(float);
        mine[i] = rlki_take(w->x, bytes[i][0]);
        all[i] = rlki_take(w->x, bytes[i][0] * (size_t)w->lat.tp);
        rc = mine[i] && all[i] ? local_stats(&c, l, i, h[i], target[i], mine[i]) : RLK_K_ENOMEM;
    }
    if (!rc)
        rc = rlki_all_gather(&c, RLK_GROUP_TP, (const size_t(*)[RLK_SLABS])bytes, (rlk_in)mine, all);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_logp_merge m = {rlki_local(&c, i),
                                          slabs_of(&c) * w->lat.tp,
                                          all[i],
                                          slab_width(&c, l->vocab),
                                          target[i],
                                          w->x->node,
                                          logp[i],
                                          stats[i]};
        rc = m.rows ? c.prims->logp_merge(w->x, &m) : 0;
    }
    return rlki_end(&c, rc, t, 4);
}

/* Columns that one block of the backward takes: its z and dz stay small. */
static int64_t bwd_columns(const struct rlk_exec *x, int64_t n, int64_t width)
{
    int64_t cols = z_floats(x) / (n ? n : 1);
    cols = cols < RLK_VOCAB_TILE ? RLK_VOCAB_TILE : cols;
    return cols < width ? cols : width;
}

struct backward {
    struct rlki_call *c;
    const struct rlk_logp *l;
    rlk_in h;
    const float *const *stats, *const *g;
    int32_t *const *target;
    float *const *g_weight;
    int64_t step; /* columns of a block */
};

/* One block of columns of slab s on every rank: dz, its part of the dH leaf (chains go on), and dW of its words. */
static int backward_block(const struct backward *k, int s, int64_t from, float *const *leaf)
{
    struct rlki_call *c = k->c;
    struct rlk_exec *x = c->w->x;
    const struct rlk_logp *l = k->l;
    const size_t mark = x->used;
    void *dz[RANKS];
    float *grad[RANKS];
    int64_t cols[RANKS];
    int rc = 0;
    for (int i = 0; !rc && i < c->w->held; i++) {
        const struct rlk_span v = slab_span(c, l->vocab, i, s);
        const int64_t n = rlki_local(c, i), left = (int64_t)v.extent - from, v0 = (int64_t)v.start + from;
        cols[i] = left < 0 ? 0 : left < k->step ? left : k->step;
        dz[i] = rlki_take(x, (size_t)n * (size_t)k->step * rlk_ktype_bytes(l->type));
        grad[i] = k->g_weight[i] ? k->g_weight[i] + (v0 - first_word(c, l->vocab, i)) * l->hidden : NULL;
        const size_t inner = x->used;
        float *z = rlki_take(x, (size_t)n * (size_t)k->step * sizeof(float));
        if (!z || !dz[i])
            return RLK_K_ENOMEM;
        const struct rlki_logp a = {.rows = n,
                                    .cols = cols[i],
                                    .ld = cols[i],
                                    .z = z,
                                    .temperature = l->temperature,
                                    .v0 = (int32_t)v0,
                                    .target = k->target[i],
                                    .stats = k->stats[i],
                                    .g = k->g[i],
                                    .type = l->type,
                                    .out = dz[i]};
        const struct rlki_gemm dh = {
            .m = n,
            .n = l->hidden,
            .k = cols[i],
            .a = {dz[i], l->type, cols[i], 1, NULL},
            .b = {rlki_at(l->weight[i], (v0 - first_word(c, l->vocab, i)) * l->hidden, l->type), l->type, 1, l->hidden,
                  NULL},
            .c = leaf[i],
            .c_type = RLK_K_FP32,
            .ldc = l->hidden,
            .resume = from > 0};
        if (n && cols[i]) {
            rc = logits_block(c, l, i, k->h[i], 0, n, v0, cols[i], z, cols[i]);
            if (!rc)
                rc = c->prims->logp_dz(x, &a);
        }
        if (!rc && n && (cols[i] || from == 0))
            rc = c->prims->gemm(x, &dh);
        x->used = inner;
    }
    if (!rc)
        rc = rlki_token_reduce(c, cols, l->hidden, l->type, (rlk_in)dz, k->h, grad);
    x->used = mark;
    return rc;
}

int rlk_logp_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h,
                 const float *const *stats, const float *const *g, rlk_out dh, float *const *g_weight)
{
    const struct rlki_tensor t[] = {
        {"h", false, l->type, h, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, l->hidden}}, NULL, "tp"},
        {"w", false, l->type, l->weight, 2, {{RLKI_VOCAB, l->vocab}, {RLKI_WHOLE, l->hidden}}, NULL, "cp"},
        {"stats", false, RLK_K_FP32, (rlk_in)stats, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, 3}}, NULL, "tp"},
        {"dlogp", false, RLK_K_FP32, (rlk_in)g, 1, {{RLKI_TOKENS, 0}}, NULL, "tp"},
        {"dh", true, l->type, (rlk_in)dh, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, l->hidden}}, NULL, "tp"},
        {"dw", true, RLK_K_FP32, (rlk_in)g_weight, 2, {{RLKI_VOCAB, l->vocab}, {RLKI_WHOLE, l->hidden}}, NULL, "cp"}};
    struct rlki_call c;
    int32_t *target[RANKS];
    float *leaf[RLK_SLABS][RANKS], *part[RANKS];
    int64_t size[RANKS], most = 0;
    int rc = check(w->x, l);
    if (rc || (!w->x->measuring && (rc = check_targets(w->x, b, l))) ||
        (rc = rlki_begin(&c, w, b, RLK_MODULE_LOGP, OP, LOGP, "bwd", l->module, t, 6)))
        return rc;
    rc = local_targets(&c, l->targets, target);
    for (int i = 0; !rc && i < w->held; i++) {
        size[i] = rlki_local(&c, i) * l->hidden;
        most = rlki_local(&c, i) > most ? rlki_local(&c, i) : most;
        part[i] = rlki_take(w->x, (size_t)size[i] * sizeof(float));
        for (int s = 0; s < slabs_of(&c); s++)
            leaf[s][i] = rlki_take(w->x, (size_t)size[i] * sizeof(float));
        rc = part[i] && leaf[slabs_of(&c) - 1][i] ? 0 : RLK_K_ENOMEM;
    }
    const int64_t width = slab_width(&c, l->vocab);
    const struct backward k = {&c, l, h, stats, g, target, g_weight, bwd_columns(w->x, most, width)};
    for (int s = 0; !rc && s < slabs_of(&c); s++)
        for (int64_t from = 0; !rc && from < width; from += k.step)
            rc = backward_block(&k, s, from, leaf[s]);
    for (int i = 0; !rc && i < w->held; i++) {
        float *mine[RLK_SLABS];
        for (int s = 0; s < slabs_of(&c); s++)
            mine[s] = leaf[s][i];
        rc = rlki_tree(&c, size[i], slabs_of(&c), mine, 1.0f, part[i], RLK_K_FP32, false);
    }
    if (!rc)
        rc = rlki_all_reduce(&c, RLK_GROUP_TP, size, part, 1.0f, dh, l->type, false);
    return rlki_end(&c, rc, t, 6);
}

int rlk_logits(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_logp *l, rlk_in h, float *const *z)
{
    const struct rlki_tensor t[] = {
        {"h", false, l->type, h, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, l->hidden}}, NULL, "tp"},
        {"w", false, l->type, l->weight, 2, {{RLKI_VOCAB, l->vocab}, {RLKI_WHOLE, l->hidden}}, NULL, "cp"},
        {"z", true, RLK_K_FP32, (rlk_in)z, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, l->vocab}}, NULL, "tp"}};
    struct rlki_call c;
    void *mine[RANKS], *all[RANKS];
    size_t bytes[RANKS][RLK_SLABS];
    int rc = check(w->x, l);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LOGP, "rlk.logits", LOGITS, "fwd", l->module, t, 3)))
        return rc;
    const bool direct = w->lat.tp == 1;
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlk_span v = rlk_vocab_span(&w->lat, rlki_tp(&c, i), l->vocab);
        const int64_t n = rlki_local(&c, i);
        for (int j = 0; j < w->lat.tp; j++)
            bytes[i][j] = (size_t)n * (size_t)rlk_vocab_span(&w->lat, j, l->vocab).extent * sizeof(float);
        mine[i] = direct ? z[i] : rlki_take(w->x, bytes[i][rlki_tp(&c, i)]);
        all[i] = direct ? z[i] : rlki_take(w->x, (size_t)n * (size_t)l->vocab * sizeof(float));
        if (!direct && (!mine[i] || !all[i]))
            rc = RLK_K_ENOMEM;
        else
            rc = logits_block(&c, l, i, h[i], 0, n, (int64_t)v.start, (int64_t)v.extent, mine[i], (int64_t)v.extent);
    }
    if (!rc && !direct)
        rc = rlki_all_gather(&c, RLK_GROUP_TP, (const size_t(*)[RLK_SLABS])bytes, (rlk_in)mine, all);
    for (int i = 0; !rc && !direct && i < w->held; i++) {
        const int64_t n = rlki_local(&c, i);
        const char *from = all[i];
        for (int j = 0; !rc && j < w->lat.tp; j++) {
            const struct rlk_span v = rlk_vocab_span(&w->lat, j, l->vocab);
            const size_t row = (size_t)v.extent * sizeof(float);
            const struct rlki_rows r = {n,    row, NULL, from, z[i] + v.start, row, (size_t)l->vocab * sizeof(float),
                                        false};
            rc = n && row ? c.prims->rows(w->x, &r) : 0;
            from += (size_t)n * row;
        }
    }
    return rlki_end(&c, rc, t, 3);
}

int rlk_log_softmax(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab,
                    float temperature, const float *const *z, float *const *y)
{
    const struct rlki_tensor t[] = {
        {"z", false, RLK_K_FP32, (rlk_in)z, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, vocab}}, NULL, "tp"},
        {"y", true, RLK_K_FP32, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, vocab}}, NULL, "tp"}};
    const struct rlk_logp l = {module, 8, vocab, RLK_K_FP32, temperature, NULL, NULL};
    struct rlki_call c;
    int rc = check(w->x, &l);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_LOGP, "rlk.log_softmax", LOG_SOFTMAX, "fwd", module, t, 2)))
        return rc;
    const int slabs = c.provider ? 1 : RLK_SLABS;
    const int64_t width = rlk_vocab_padded(vocab) / slabs;
    for (int i = 0; !rc && i < w->held; i++) {
        const int64_t n = rlki_local(&c, i);
        const size_t mark = w->x->used;
        float *part = rlki_take(w->x, (size_t)slabs * 3 * (size_t)n * sizeof(float));
        float *stats = rlki_take(w->x, 3 * (size_t)n * sizeof(float));
        if (!part || !stats) {
            rc = RLK_K_ENOMEM;
            break;
        }
        for (int s = 0; !rc && n && s < slabs; s++) {
            const int64_t from = s * width < vocab ? s * width : vocab,
                          to = from + width < vocab ? from + width : vocab;
            const struct rlki_logp a = {.rows = n,
                                        .cols = to - from,
                                        .ld = vocab,
                                        .z = z[i] + from,
                                        .temperature = temperature,
                                        .v0 = (int32_t)from,
                                        .m = part + (3 * s) * n,
                                        .s = part + (3 * s + 1) * n,
                                        .zy = part + (3 * s + 2) * n};
            rc = c.prims->logp_stats(w->x, &a);
        }
        const struct rlki_logp_merge m = {n, slabs, part, width, NULL, w->x->node, NULL, stats};
        const struct rlki_logp o = {.rows = n,
                                    .cols = vocab,
                                    .ld = vocab,
                                    .z = z[i],
                                    .temperature = temperature,
                                    .stats = stats,
                                    .type = RLK_K_FP32,
                                    .out = y[i]};
        if (!rc && n)
            rc = c.prims->logp_merge(w->x, &m);
        if (!rc && n)
            rc = c.prims->log_softmax(w->x, &o);
        w->x->used = mark;
    }
    return rlki_end(&c, rc, t, 2);
}
