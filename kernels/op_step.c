/* op_step.c - what closes a step: loss sums, gradient norm, AdamW; and sampling. docs/contracts.md, sections 6 and 8.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rlk_num.h"
#include "kernels/rlki_op.h"

#define RANKS (RLK_SLABS * RLK_SLABS)

/* ((0+1)+(2+3))+((4+5)+(6+7)) of v[0], v[step], ... */
static double tree8(const double *v, int64_t step)
{
    return ((v[0] + v[step]) + (v[2 * step] + v[3 * step])) +
           ((v[4 * step] + v[5 * step]) + (v[6 * step] + v[7 * step]));
}

static double fold(const double *v, int64_t step, int count)
{
    if (count == RLK_SLABS)
        return tree8(v, step);
    double s = v[0];
    for (int i = 1; i < count; i++)
        s += v[i * step];
    return s;
}

int rlk_loss_sum(struct rlk_world *w, const struct rlk_batch *b, const char *module, const float *const *x,
                 const uint8_t *const *mask, double sum[2])
{
    const void *added[RANKS];
    const struct rlki_tensor t[] = {{"x", false, RLK_K_FP32, (rlk_in)x, 1, {{RLKI_TOKENS, 0}}, NULL, "tp"},
                                    {"sum", true, RLK_K_FP64, added, 1, {{RLKI_WHOLE, 2}}, NULL, "world"},
                                    {"mask", false, RLK_K_UINT8, (rlk_in)mask, 1, {{RLKI_TOKENS, 0}}, NULL, "tp"}};
    const int nt = mask ? 3 : 2;
    struct rlki_call c;
    void *mine[RANKS], *all[RANKS];
    size_t bytes[RANKS][RLK_SLABS];
    double host[RLK_SLABS * 2] = {0}, own[2] = {0.0, 0.0};
    int rc = rlki_begin(&c, w, b, RLK_MODULE_LOSS, "rlk.loss_sum", "rlk.loss_sum/portable/1", "fwd", module, t, nt);
    if (rc)
        return rc;
    for (int i = 0; i < w->held; i++)
        added[i] = own;
    const int leaves = rlki_leaves(&c, w->lat.cp);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_part *p = &b->part[rlki_cp(&c, i)];
        for (int j = 0; j < RLK_SLABS; j++)
            bytes[i][j] = (size_t)leaves * 2 * sizeof(double);
        mine[i] = rlki_take(w->x, bytes[i][0]);
        all[i] = rlki_take(w->x, bytes[i][0] * (size_t)w->lat.cp);
        rc = mine[i] && all[i] ? 0 : RLK_K_ENOMEM;
        for (int l = 0; !rc && l < leaves; l++) {
            const int64_t from = c.provider ? 0 : p->leaf_start[l], end = c.provider ? p->n : p->leaf_start[l + 1];
            const struct rlki_sum s = {end - from, w->x->measuring ? NULL : p->d_leaf + from, x[i],
                                       mask ? mask[i] : NULL, (double *)mine[i] + 2 * l};
            rc = c.prims->sum(w->x, &s);
        }
    }
    if (!rc)
        rc = rlki_all_gather(&c, RLK_GROUP_CP, (const size_t(*)[RLK_SLABS])bytes, (rlk_in)mine, all);
    if (!rc)
        rc = c.prims->download(w->x, host, all[0], bytes[0][0] * (size_t)w->lat.cp);
    if (!rc && !w->x->measuring) {
        own[0] = fold(host, 2, leaves * w->lat.cp);
        own[1] = fold(host + 1, 2, leaves * w->lat.cp);
        sum[0] += own[0];
        sum[1] += own[1];
    }
    return rlki_end(&c, rc, t, nt);
}

/* ---- gradient norm: blocks of 64 rows x one slab of columns ---- */

struct grid {
    int64_t slab_rows, blocks; /* of a row slab */
    int row_slabs, col_slabs;  /* of the whole parameter */
};

static struct grid grid_of(const struct rlk_param *p)
{
    struct grid g = {p->rows, 0, 1, p->cols % RLK_SLABS == 0 ? RLK_SLABS : 1};
    if (p->vocab)
        g.slab_rows = rlk_vocab_padded(p->rows) / RLK_SLABS;
    else if (p->rows % RLK_SLABS == 0)
        g.slab_rows = p->rows / RLK_SLABS;
    if (p->vocab || p->rows % RLK_SLABS == 0)
        g.row_slabs = RLK_SLABS;
    g.blocks = (g.slab_rows + 63) / 64;
    return g;
}

static int check_param(struct rlk_exec *x, const struct rlk_param *p)
{
    const struct grid g = grid_of(p);
    if (p->rows <= 0 || p->cols <= 0)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "%s: a parameter that is empty", p->name ? p->name : "?");
    if ((p->cut == RLK_CUT_OUT && g.row_slabs == 1) || (p->cut == RLK_CUT_IN && g.col_slabs == 1))
        return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED,
                         "%s: the parameter [%lld][%lld] is cut along a size 8 does not divide",
                         p->name ? p->name : "?", (long long)p->rows, (long long)p->cols);
    return 0;
}

static int64_t cells(const struct rlk_param *p, int parts)
{
    const struct grid g = grid_of(p);
    const int64_t n = g.blocks * g.row_slabs * g.col_slabs;
    return p->cut == RLK_CUT_NONE ? n : n / parts;
}

static void local_shape(const struct rlk_world *w, const struct rlk_param *p, int i, int64_t *rows, int64_t *cols)
{
    *rows = p->rows;
    *cols = p->cut == RLK_CUT_IN ? p->cols / w->lat.tp : p->cols;
    if (p->vocab && p->cut == RLK_CUT_OUT)
        *rows = (int64_t)rlk_vocab_span(&w->lat, rlk_world_tp(w, i), p->rows).extent;
    else if (p->cut == RLK_CUT_OUT)
        *rows = p->rows / w->lat.tp;
}

int64_t rlk_param_local(const struct rlk_world *w, const struct rlk_param *p, int i)
{
    int64_t rows, cols;
    local_shape(w, p, i, &rows, &cols);
    return rows * cols;
}

/* How a parameter-shaped tensor is announced. */
static struct rlki_tensor announced(const struct rlk_param *p, const char *name, bool output, enum rlk_ktype type,
                                    rlk_in data)
{
    const enum rlki_dim_kind rows = p->cut != RLK_CUT_OUT ? RLKI_WHOLE : p->vocab ? RLKI_VOCAB : RLKI_SLABS;
    return (struct rlki_tensor){
        name, output, type, data, 2, {{rows, p->rows}, {p->cut == RLK_CUT_IN ? RLKI_SLABS : RLKI_WHOLE, p->cols}},
        NULL, "cp"};
}

static int local_squares(struct rlki_call *c, const struct rlk_param *p, int i, double *out)
{
    const struct grid g = grid_of(p);
    int64_t rows, cols;
    local_shape(c->w, p, i, &rows, &cols);
    const struct rlki_sumsq s = {rows, cols, p->cols / g.col_slabs, g.slab_rows, p->grad[i], out};
    int rc = c->prims->zero(c->w->x, out, (size_t)cells(p, c->w->lat.tp) * sizeof(double));
    if (!rc && rows)
        rc = c->prims->sumsq(c->w->x, &s);
    return rc;
}

int rlk_gradnorm(struct rlk_world *w, const char *module, int params, const struct rlk_param *param, double *norm)
{
    struct rlki_call c;
    void *mine[RANKS], *all[RANKS];
    const void *result[RANKS];
    size_t bytes[RANKS][RLK_SLABS];
    int64_t total = 0;
    double *host = NULL, *sums, sum = 0.0;
    int rc = 0;
    for (int p = 0; p < params; p++) {
        if ((rc = check_param(w->x, &param[p])))
            return rc;
        total += cells(&param[p], w->lat.tp);
    }
    struct rlki_tensor *t = malloc(((size_t)params + 1) * sizeof *t);
    if (!t)
        return rlk_kfail(&w->x->detail, RLK_K_ENOMEM, "rlk.gradnorm: out of memory for %d parameters", params);
    for (int p = 0; p < params; p++)
        t[p] = announced(&param[p], param[p].name ? param[p].name : "grad", false, RLK_K_FP32, (rlk_in)param[p].grad);
    t[params] = (struct rlki_tensor){"grad_norm", true, RLK_K_FP64, result, 0, {{RLKI_WHOLE, 0}}, NULL, "world"};
    for (int i = 0; i < w->held; i++)
        result[i] = norm;
    if ((rc = rlki_begin(&c, w, NULL, RLK_MODULE_GRADNORM, "rlk.gradnorm", "rlk.gradnorm/portable/1", "opt", module, t,
                         params + 1))) {
        free(t);
        return rc;
    }
    for (int i = 0; !rc && i < w->held; i++) {
        for (int j = 0; j < RLK_SLABS; j++)
            bytes[i][j] = (size_t)total * sizeof(double);
        mine[i] = rlki_take(w->x, bytes[i][0]);
        all[i] = rlki_take(w->x, bytes[i][0] * (size_t)w->lat.tp);
        rc = mine[i] && all[i] ? 0 : RLK_K_ENOMEM;
        double *at = mine[i];
        for (int p = 0; !rc && p < params; p++) {
            rc = local_squares(&c, &param[p], i, at);
            at += cells(&param[p], w->lat.tp);
        }
    }
    if (!rc)
        rc = rlki_all_gather(&c, RLK_GROUP_TP, (const size_t(*)[RLK_SLABS])bytes, (rlk_in)mine, all);
    sums = rlki_take(w->x, (size_t)params * sizeof *sums);
    rc = rc ? rc : sums ? 0 : RLK_K_ENOMEM;
    const double *at = all[0];
    for (int p = 0; !rc && p < params; p++) {
        const struct grid g = grid_of(&param[p]);
        const struct rlki_cells s = {.all = at,
                                     .stride = total,
                                     .blocks = g.blocks,
                                     .row_slabs = g.row_slabs,
                                     .col_slabs = g.col_slabs,
                                     .row_ranks = param[p].cut == RLK_CUT_OUT ? w->lat.tp : 1,
                                     .col_ranks = param[p].cut == RLK_CUT_IN ? w->lat.tp : 1,
                                     .out = sums + p};
        rc = c.prims->cells(w->x, &s);
        at += cells(&param[p], w->lat.tp);
    }
    if (!rc && !w->x->measuring) {
        host = malloc((size_t)params * sizeof *host + 1);
        rc = host ? c.prims->download(w->x, host, sums, (size_t)params * sizeof *host)
                  : rlk_kfail(&w->x->detail, RLK_K_ENOMEM, "rlk.gradnorm: out of memory for %d sums", params);
        for (int p = 0; !rc && p < params; p++)
            sum += host[p];
        if (!rc)
            *norm = sqrt(sum);
    }
    free(host);
    rc = rlki_end(&c, rc, t, params + 1);
    free(t);
    return rc;
}

float rlk_clip_coefficient(double norm, double max_norm)
{
    if (!(max_norm > 0.0))
        return 1.0f;
    const double c = max_norm / (norm + 1e-6);
    return c < 1.0 ? (float)c : c >= 1.0 ? 1.0f : (float)c;
}

static double power(double base, int64_t n)
{
    double r = 1.0;
    for (; n > 0; n >>= 1, base *= base)
        if (n & 1)
            r *= base;
    return r;
}

static int adamw(struct rlk_world *w, const struct rlk_adamw *o, const char *module, const struct rlki_tensor *t,
                 int nt, const int64_t *n, float *const *master, float *const *m, float *const *v,
                 const float *const *grad, rlk_out weight)
{
    struct rlki_call c;
    int rc = rlki_check_type(w->x, "rlk.adamw", o->type);
    if (!rc && (o->step < 1 || !(o->beta1 >= 0.0f && o->beta1 < 1.0f) || !(o->beta2 >= 0.0f && o->beta2 < 1.0f)))
        rc = rlk_kfail(&w->x->detail, RLK_K_EINVAL, "rlk.adamw: step %lld, beta %g %g; use step >= 1 and 0 <= beta < 1",
                       (long long)o->step, (double)o->beta1, (double)o->beta2);
    if (rc ||
        (rc = rlki_begin(&c, w, NULL, RLK_MODULE_OPTIMIZER, "rlk.adamw", "rlk.adamw/portable/1", "opt", module, t, nt)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_adamw a = {.n = n[i],
                                     .p = master[i],
                                     .m = m[i],
                                     .v = v[i],
                                     .g = grad[i],
                                     .w = weight ? weight[i] : NULL,
                                     .w_type = o->type,
                                     .coef = o->coefficient,
                                     .beta1 = o->beta1,
                                     .beta2 = o->beta2,
                                     .one_beta1 = 1.0f - o->beta1,
                                     .one_beta2 = 1.0f - o->beta2,
                                     .c1 = (float)(1.0 / (1.0 - power((double)o->beta1, o->step))),
                                     .c2 = (float)(1.0 / (1.0 - power((double)o->beta2, o->step))),
                                     .eps = o->eps,
                                     .lr = o->lr,
                                     .decay = (float)((double)o->lr * (double)o->weight_decay)};
        rc = a.n ? c.prims->adamw(w->x, &a) : 0;
    }
    return rlki_end(&c, rc, t, nt);
}

int rlk_adamw(struct rlk_world *w, const struct rlk_adamw *o, const int64_t *n, float *const *master, float *const *m,
              float *const *v, const float *const *grad, rlk_out weight)
{
    return adamw(w, o, o->module, NULL, 0, n, master, m, v, grad, weight);
}

int rlk_adamw_param(struct rlk_world *w, const struct rlk_adamw *o, const struct rlk_param *p, float *const *master,
                    float *const *m, float *const *v, rlk_out weight)
{
    const struct rlki_tensor t[] = {announced(p, "grad", false, RLK_K_FP32, (rlk_in)p->grad),
                                    announced(p, "master", false, RLK_K_FP32, (rlk_in)master),
                                    announced(p, "m", false, RLK_K_FP32, (rlk_in)m),
                                    announced(p, "v", false, RLK_K_FP32, (rlk_in)v),
                                    announced(p, "master", true, RLK_K_FP32, (rlk_in)master),
                                    announced(p, "m", true, RLK_K_FP32, (rlk_in)m),
                                    announced(p, "v", true, RLK_K_FP32, (rlk_in)v),
                                    announced(p, "weight", true, o->type, (rlk_in)weight)};
    int64_t n[RANKS];
    const int rc = check_param(w->x, p);
    for (int i = 0; i < w->held; i++)
        n[i] = rlk_param_local(w, p, i);
    return rc ? rc
              : adamw(w, o, o->module ? o->module : p->name, t, weight ? 8 : 7, n, master, m, v,
                      (const float *const *)p->grad, weight);
}

int rlk_entropy_rows(struct rlk_exec *x, int64_t rows, int64_t vocab, const float *y, double *out)
{
    if (x->prims->entropy)
        return x->prims->entropy(x, rows, vocab, y, out);
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0.0;
        for (int64_t v = r * vocab; v < (r + 1) * vocab; v++)
            out[r] -= (double)rlkn_exp(y[v]) * (double)y[v];
    }
    return 0;
}

int rlk_sample(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_sampling *s, const float *const *z,
               int32_t *const *token)
{
    const struct rlki_tensor t[] = {
        {"z", false, RLK_K_FP32, (rlk_in)z, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, s->vocab}}, NULL, "tp"},
        {"token", true, RLK_K_INT32, (rlk_in)token, 1, {{RLKI_TOKENS, 0}}, NULL, "tp"}};
    struct rlk_exec *x = w->x;
    struct rlki_call c;
    int rc = 0;
    if (s->vocab <= 0 || s->vocab > 1 << 23)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "rlk.sample: vocab %lld, use 1 to 2^23", (long long)s->vocab);
    if (!(s->temperature >= 0.0f && s->temperature < 1e30f) || !(s->top_p > 0.0f && s->top_p <= 1.0f))
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "rlk.sample: temperature %g, top_p %g; use >= 0 and (0,1]",
                         (double)s->temperature, (double)s->top_p);
    if ((rc = rlki_begin(&c, w, b, RLK_MODULE_SAMPLING, "rlk.sample", "rlk.sample/portable/1", "fwd", s->module, t, 2)))
        return rc;
    uint64_t *host = malloc(((size_t)b->tokens + 1) * sizeof *host); /* samples of the rows, then the step */
    if (!host)
        rc = rlk_kfail(&x->detail, RLK_K_ENOMEM, "rlk.sample: out of memory");
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_part *p = &b->part[rlki_cp(&c, i)];
        const size_t mark = x->used, bytes = ((size_t)p->n + 1) * sizeof *host;
        uint64_t *id = rlki_take(x, bytes);
        void *scratch = rlki_take(x, rlki_sample_scratch(p->n, s->vocab));
        for (int64_t r = 0; !x->measuring && r < p->n; r++)
            host[r] = s->samples[p->map[r]];
        host[p->n] = s->step;
        const struct rlki_sample a = {
            p->n, s->vocab, s->vocab, z[i],   s->temperature, s->top_p, s->seed, id ? id + p->n : NULL,
            id,   p->d_pos, token[i], scratch};
        rc = id && scratch ? c.prims->upload(x, id, host, bytes) : RLK_K_ENOMEM;
        if (!rc && p->n)
            rc = c.prims->sample(x, &a);
        x->used = mark;
    }
    free(host);
    return rlki_end(&c, rc, t, 2);
}
