/* operators.c - the operators of kernels/: from recorded operands to a call, the same event again. */
#include "replayer/machine.h"

#include <stdlib.h>
#include <string.h>

static const enum rlk_ktype F = RLK_K_FP32, ANY = RLK_K_NONE;

#define RUN(call) RLKI_RUN(x, call)
#define IN(v) RLKI_IN(&(v)->buffer->at)
#define CF(v) RLKI_CF(&(v)->buffer->at)

static const char *module(const struct rlki_exec *x)
{
    return x->in->e.who.module;
}

static bool backward(const struct rlki_exec *x)
{
    return strcmp(x->in->e.who.pass, "bwd") == 0;
}

/* The next operator reads this too, as it did when it was recorded. */
static void also_host(struct rlki_exec *x, const char *name, const struct rlki_value *v)
{
    struct rlki_named t = {"",   v->form.type, 2,   {{RLKI_AXIS_WHOLE, v->form.rows}, {RLKI_AXIS_WHOLE, v->form.cols}},
                           NULL, "world",      NULL};
    memcpy(t.name, name, strlen(name) + 1);
    rlki_rec_also(x->run, &t, &v->buffer->at);
}

static void also_parameter(struct rlki_exec *x, const char *name, const struct rlki_form *f, const struct rlki_ptrs *at)
{
    const struct rlki_weight w = {"", f->rows, f->cols, f->ndim, f->cut, f->vocab, false, 0.0f};
    const struct rlki_named t = rlki_named_parameter(&w, name, f->type);
    rlki_rec_also(x->run, &t, at);
}

/* The gradient `out` that the operator adds to. */
static struct rlki_ptrs *gradient(struct rlki_exec *x, const char *in, const char *out, int64_t rows, int64_t cols,
                                  enum rlk_cut cut, bool vocab)
{
    const struct rlki_value *g = rlki_parameter_in(x, in, F, rows, cols, cut, vocab);
    struct rlki_ptrs *to = g ? rlki_inout(x, in, out, g) : NULL;
    if (to)
        also_parameter(x, in, &g->form, to);
    return to;
}

static const struct rlki_value *sequences(struct rlki_exec *x)
{
    const struct rlki_value *v = rlki_value_in(x, "sequences", RLKI_HOST, RLK_K_INT32);
    if (v && !rlki_micro_of(x, v))
        also_host(x, "sequences", v);
    return v;
}

/* ---- linear ---- */

static void column_fwd(struct rlki_exec *x)
{
    const struct rlki_value *in = rlki_tokens_in(x, "x", ANY, -1, 0);
    const struct rlki_value *w =
        in ? rlki_parameter_in(x, "w", in->form.type, -1, in->form.width, RLK_CUT_OUT, false) : NULL;
    struct rlki_ptrs *y = w ? rlki_tokens_out(x, "y", in->form.type, w->form.rows, true) : NULL;
    if (y)
        RUN(rlk_linear_column_fwd(x->w, x->b, module(x), in->form.width, w->form.rows, in->form.type, IN(in), IN(w),
                                  y->p));
}

static void column_dx(struct rlki_exec *x)
{
    static const char *const DY[3] = {"dy", "dy1", "dy2"}, *const W[3] = {"w", "w1", "w2"};
    rlk_in dy[3], weight[3];
    int64_t out[3], in = -1;
    enum rlk_ktype type = ANY;
    int n = 0;
    for (; n < 3 && rlki_has_input(x, DY[n]); n++) {
        const struct rlki_value *d = rlki_tokens_in(x, DY[n], type, -1, 1);
        const struct rlki_value *w =
            d ? rlki_parameter_in(x, W[n], d->form.type, d->form.width, in, RLK_CUT_OUT, false) : NULL;
        if (!w)
            return;
        type = d->form.type;
        in = w->form.cols;
        out[n] = d->form.width;
        dy[n] = IN(d);
        weight[n] = IN(w);
    }
    struct rlki_ptrs *dx = n ? rlki_tokens_out(x, "dx", type, in, false) : NULL;
    if (dx)
        RUN(rlk_linear_column_dx(x->w, x->b, module(x), in, n, out, type, dy, weight, dx->p));
}

static void column(struct rlki_exec *x)
{
    if (backward(x))
        column_dx(x);
    else
        column_fwd(x);
}

static void row(struct rlki_exec *x)
{
    const bool bwd = backward(x);
    const struct rlki_value *in = rlki_tokens_in(x, bwd ? "dy" : "x", ANY, -1, !bwd);
    const struct rlki_value *w = in ? rlki_parameter_in(x, "w", in->form.type, bwd ? in->form.width : -1,
                                                        bwd ? -1 : in->form.width, RLK_CUT_IN, false)
                                    : NULL;
    struct rlki_ptrs *y =
        w ? rlki_tokens_out(x, bwd ? "dx" : "y", in->form.type, bwd ? w->form.cols : w->form.rows, bwd) : NULL;
    if (!y)
        return;
    if (bwd)
        RUN(rlk_linear_row_dx(x->w, x->b, module(x), w->form.cols, w->form.rows, in->form.type, IN(in), IN(w), y->p));
    else
        RUN(rlk_linear_row_fwd(x->w, x->b, module(x), w->form.cols, w->form.rows, in->form.type, IN(in), IN(w), y->p));
}

static void dw(struct rlki_exec *x)
{
    const struct rlki_value *dy = rlki_tokens_in(x, "dy", ANY, -1, -1);
    const struct rlki_value *in = dy ? rlki_tokens_in(x, "x", dy->form.type, -1, !dy->form.slab) : NULL;
    const enum rlk_cut cut = dy && dy->form.slab ? RLK_CUT_OUT : RLK_CUT_IN;
    struct rlki_ptrs *g = in ? gradient(x, "main_grad0", "dw", dy->form.width, in->form.width, cut, false) : NULL;
    if (g)
        RUN(rlk_linear_dw(x->w, x->b, module(x), cut, in->form.width, dy->form.width, dy->form.type, IN(dy), IN(in),
                          RLKI_F(g)));
}

/* ---- mlp ---- */

static void ffn(struct rlki_exec *x)
{
    const bool bwd = backward(x);
    const struct rlki_value *in = rlki_tokens_in(x, "x", ANY, -1, 0);
    if (!in)
        return;
    const enum rlk_ktype type = in->form.type;
    const int64_t H = in->form.width;
    const struct rlki_value *wg = rlki_parameter_in(x, "w_gate", type, -1, H, RLK_CUT_OUT, false);
    const int64_t I = wg ? wg->form.rows : 0;
    const struct rlki_value *wu = rlki_parameter_in(x, "w_up", type, I, H, RLK_CUT_OUT, false);
    const struct rlki_value *wd = rlki_parameter_in(x, "w_down", type, H, I, RLK_CUT_IN, false);
    if (!wg || !wu || !wd)
        return;
    const struct rlk_ffn f = {module(x), H, I, type, IN(wg), IN(wu), IN(wd)};
    if (!bwd) {
        struct rlki_ptrs *gate = rlki_tokens_out(x, "gate", type, I, true);
        struct rlki_ptrs *up = rlki_tokens_out(x, "up", type, I, true);
        struct rlki_ptrs *act = rlki_tokens_out(x, "act", type, I, true);
        struct rlki_ptrs *y = rlki_tokens_out(x, "y", type, H, false);
        if (gate && up && act && y)
            RUN(rlk_ffn_fwd(x->w, x->b, &f, IN(in), gate->p, up->p, act->p, y->p));
        return;
    }
    struct rlki_ptrs *gg = gradient(x, "main_grad0", "dw_gate", I, H, RLK_CUT_OUT, false);
    struct rlki_ptrs *gu = gradient(x, "main_grad1", "dw_up", I, H, RLK_CUT_OUT, false);
    struct rlki_ptrs *gd = gradient(x, "main_grad2", "dw_down", H, I, RLK_CUT_IN, false);
    also_parameter(x, "w_gate", &wg->form, &wg->buffer->at);
    also_parameter(x, "w_up", &wu->form, &wu->buffer->at);
    also_parameter(x, "w_down", &wd->form, &wd->buffer->at);
    const struct rlki_value *dy = rlki_tokens_in(x, "dy", type, H, 0);
    const struct rlki_value *act = rlki_tokens_in(x, "act", type, I, 1);
    struct rlki_ptrs *gate = rlki_inout(x, "gate", "dgate", rlki_tokens_in(x, "gate", type, I, 1));
    struct rlki_ptrs *up = rlki_inout(x, "up", "dup", rlki_tokens_in(x, "up", type, I, 1));
    struct rlki_ptrs *dx = rlki_tokens_out(x, "dx", type, H, false);
    if (gg && gu && gd && dy && act && gate && up && dx)
        RUN(rlk_ffn_bwd(x->w, x->b, &f, IN(dy), IN(in), gate->p, up->p, IN(act), dx->p, RLKI_F(gg), RLKI_F(gu),
                        RLKI_F(gd)));
}

/* ---- attention ---- */

/* heads and head_dim of a recorded [tokens][heads][head_dim] whose value has this width. */
static bool heads_of(struct rlki_exec *x, const char *name, int64_t width, int *heads, int *dim)
{
    const struct rlk_tensor *t = rlki_recorded(x, name, false);
    const struct rlk_place *p = t ? t->place : NULL;
    if (!p || p->ndim != 3 || p->shape[1] == 0 || p->shape[1] > 65536 || p->shape[2] == 0 || p->shape[2] > 65536 ||
        (int64_t)(p->shape[1] * p->shape[2]) != width) {
        rlki_not_replayable(x, "heads are not told");
        return false;
    }
    *heads = (int)p->shape[1];
    *dim = (int)p->shape[2];
    return true;
}

static bool attention_of(struct rlki_exec *x, const struct rlki_value *q, const struct rlki_value *k,
                         const char *k_name, struct rlk_attention *a)
{
    int d = 0;
    if (!q || !k)
        return false;
    *a = (struct rlk_attention){.module = module(x), .type = q->form.type};
    x->run->opt.model.head_dim = 0;
    if (!heads_of(x, "q", q->form.width, &a->heads, &a->head_dim) ||
        !heads_of(x, k_name, k->form.width, &a->kv_heads, &d))
        return false;
    if (d != a->head_dim)
        rlki_not_replayable(x, "q and k have other head sizes");
    x->run->opt.model.head_dim = d;
    return !x->rc;
}

static void also_cache(struct rlki_exec *x, const char *name, const struct rlki_value *v, const struct rlk_attention *a)
{
    x->run->rec.cache_rows = v->form.rows;
    const struct rlki_named t = rlki_named_cache(x->run, name, a->kv_heads, a->head_dim);
    rlki_rec_also(x->run, &t, &v->buffer->at);
}

/* Where each sequence of the batch lies in the cache: rows are shared out evenly. */
static bool cache_rows(struct rlki_exec *x, const struct rlki_value *cache, int32_t *row)
{
    const struct rlki_runs_now *b = &x->m->now;
    const int64_t each = b->samples > 0 ? cache->form.rows / b->samples : 0;
    for (int s = 0; s < b->n; s++) {
        if (b->row[s][0] >= b->samples || (int64_t)b->row[s][1] + b->row[s][2] > each) {
            rlki_not_replayable(x, "a batch names cache rows that are not there");
            return false;
        }
        row[s] = (int32_t)(b->row[s][0] * each);
    }
    return true;
}

static void attention_cached(struct rlki_exec *x)
{
    const struct rlki_value *k = rlki_value_in(x, "k_cache", RLKI_CACHED, ANY);
    const struct rlki_value *v = rlki_value_in(x, "v_cache", RLKI_CACHED, k ? k->form.type : ANY);
    const struct rlki_value *q = rlki_tokens_in(x, "q", k ? k->form.type : ANY, -1, 1);
    struct rlk_attention a;
    int32_t row[4096];
    if (!attention_of(x, q, k, "k_cache", &a) || !v)
        return;
    if (v->form.rows != k->form.rows || v->form.width != k->form.width || x->m->now.n > 4096) {
        rlki_not_replayable(x, "the caches have other shapes");
        return;
    }
    struct rlki_ptrs *o = rlki_tokens_out(x, "o", a.type, q->form.width, true);
    struct rlki_ptrs *lse = rlki_tokens_out(x, "lse", F, a.heads, true);
    if (!o || !lse || !cache_rows(x, k, row))
        return;
    also_cache(x, "k_cache", k, &a);
    also_cache(x, "v_cache", v, &a);
    RUN(rlk_attention_cached(x->w, x->b, &a, row, IN(q), IN(k), IN(v), o->p, RLKI_F(lse)));
}

static void attention_bwd(struct rlki_exec *x)
{
    const struct rlki_value *d = rlki_tokens_in(x, "do", ANY, -1, 1);
    if (!d)
        return;
    const enum rlk_ktype type = d->form.type;
    const struct rlki_value *q = rlki_tokens_in(x, "q", type, d->form.width, 1);
    const struct rlki_value *o = rlki_tokens_in(x, "o", type, d->form.width, 1);
    const struct rlki_value *k = rlki_tokens_in(x, "k", type, -1, 1);
    const struct rlki_value *v = rlki_tokens_in(x, "v", type, k ? k->form.width : -1, 1);
    struct rlk_attention a;
    if (!attention_of(x, q, k, "k", &a) || !v || !o)
        return;
    const struct rlki_value *lse = rlki_tokens_in(x, "lse", F, a.heads, 1);
    struct rlki_ptrs *dq = rlki_tokens_out(x, "dq", type, q->form.width, true);
    struct rlki_ptrs *dk = rlki_tokens_out(x, "dk", type, k->form.width, true);
    struct rlki_ptrs *dv = rlki_tokens_out(x, "dv", type, k->form.width, true);
    if (lse && dq && dk && dv)
        RUN(rlk_attention_bwd(x->w, x->b, &a, IN(d), IN(q), IN(k), IN(v), IN(o), CF(lse), dq->p, dk->p, dv->p));
}

static void attention(struct rlki_exec *x)
{
    if (backward(x)) {
        attention_bwd(x);
        return;
    }
    if (rlki_has_input(x, "k_cache")) {
        attention_cached(x);
        return;
    }
    const struct rlki_value *q = rlki_tokens_in(x, "q", ANY, -1, 1);
    const struct rlki_value *k = rlki_tokens_in(x, "k", q ? q->form.type : ANY, -1, 1);
    const struct rlki_value *v = rlki_tokens_in(x, "v", q ? q->form.type : ANY, k ? k->form.width : -1, 1);
    struct rlk_attention a;
    if (!attention_of(x, q, k, "k", &a) || !v)
        return;
    struct rlki_ptrs *o = rlki_tokens_out(x, "o", a.type, q->form.width, true);
    struct rlki_ptrs *lse = rlki_tokens_out(x, "lse", F, a.heads, true);
    if (o && lse)
        RUN(rlk_attention_fwd(x->w, x->b, &a, IN(q), IN(k), IN(v), o->p, RLKI_F(lse)));
}

/* An event of the run's own, around the operator that announces nothing. */
static void append(struct rlki_exec *x)
{
    const struct rlki_value *k = rlki_tokens_in(x, "k", ANY, -1, 1);
    const struct rlki_value *v = rlki_tokens_in(x, "v", k ? k->form.type : ANY, k ? k->form.width : -1, 1);
    const struct rlki_value *kc = rlki_value_in(x, "k_cache", RLKI_CACHED, k ? k->form.type : ANY);
    const struct rlki_value *vc = rlki_value_in(x, "v_cache", RLKI_CACHED, k ? k->form.type : ANY);
    struct rlk_attention a = {.module = module(x)};
    int32_t at[4096];
    if (!k || !v || !kc || !vc || !heads_of(x, "k", k->form.width, &a.kv_heads, &a.head_dim))
        return;
    if (kc->form.width != k->form.width || vc->form.width != k->form.width || vc->form.rows != kc->form.rows ||
        x->m->now.n > 4096) {
        rlki_not_replayable(x, "the caches have other shapes");
        return;
    }
    a.heads = a.kv_heads;
    a.type = k->form.type;
    if (!cache_rows(x, kc, at))
        return;
    rlki_own_begin(x);
    struct rlki_ptrs *to_k = rlki_inout(x, "k_cache", "k_cache", kc), *to_v = rlki_inout(x, "v_cache", "v_cache", vc);
    if (to_k && to_v)
        RUN(rlk_attention_append(x->w, x->b, &a, at, IN(k), IN(v), to_k->p, to_v->p));
    rlki_own_end(x);
}

/* ---- rows ---- */

static void rmsnorm(struct rlki_exec *x)
{
    const struct rlk_tensor *t = rlki_recorded(x, "x", false);
    const bool head = t && t->place && t->place->ndim == 3, bwd = backward(x);
    const struct rlki_value *in = rlki_tokens_in(x, "x", ANY, -1, head);
    int heads = 0, dim = 0;
    if (!in || (head && !heads_of(x, "x", in->form.width, &heads, &dim)))
        return;
    const enum rlk_ktype type = in->form.type;
    const int64_t size = head ? dim : in->form.width, stats = head ? heads : 1;
    const struct rlki_value *g = rlki_parameter_in(x, "gamma", type, 1, size, RLK_CUT_NONE, false);
    const float eps = (float)rlki_attr(&x->in->e, "eps", 1e-6);
    if (!bwd) {
        struct rlki_ptrs *y = rlki_tokens_out(x, "y", type, in->form.width, head);
        struct rlki_ptrs *rstd = rlki_tokens_out(x, "rstd", F, stats, head);
        if (!g || !y || !rstd)
            return;
        if (head)
            RUN(rlk_headnorm_fwd(x->w, x->b, module(x), heads, dim, type, eps, IN(in), IN(g), y->p, RLKI_F(rstd)));
        else
            RUN(rlk_rmsnorm_fwd(x->w, x->b, module(x), size, type, eps, IN(in), IN(g), y->p, RLKI_F(rstd)));
        return;
    }
    const struct rlki_value *dy = rlki_tokens_in(x, "dy", type, in->form.width, head);
    const struct rlki_value *rstd = rlki_tokens_in(x, "rstd", F, stats, head);
    struct rlki_ptrs *gg = gradient(x, "main_grad0", "dgamma", 1, size, RLK_CUT_NONE, false);
    struct rlki_ptrs *dx = rlki_tokens_out(x, "dx", type, in->form.width, head);
    if (!g || !dy || !rstd || !gg || !dx)
        return;
    if (head)
        RUN(rlk_headnorm_bwd(x->w, x->b, module(x), heads, dim, type, IN(dy), IN(in), IN(g), CF(rstd), dx->p,
                             RLKI_F(gg)));
    else
        RUN(rlk_rmsnorm_bwd(x->w, x->b, module(x), size, type, IN(dy), IN(in), IN(g), CF(rstd), dx->p, RLKI_F(gg)));
}

static int need_rope(struct rlki_exec *x, double theta, int dim)
{
    struct rlki_machine *m = x->m;
    int64_t most = 1;
    for (int s = 0; s < m->now.n; s++) {
        const int64_t end = (int64_t)m->now.row[s][1] + m->now.row[s][2];
        most = end > most ? end : most;
    }
    if (x->rc || (x->run->rope && m->rope_positions >= most && m->rope_dim == dim && m->rope_theta == theta))
        return x->rc;
    most = most < 1024 ? 1024 : 2 * most;
    const size_t bytes = (size_t)most * (size_t)dim * sizeof(float);
    float *host = bytes < m->most ? malloc(bytes) : NULL;
    x->rc = host ? rlk_rope_table(theta, dim, most, host, &x->run->x.detail) : rlki_fail_memory(x->run, "rope");
    rlk_exec_free(&x->run->x, x->run->rope);
    x->run->rope = x->rc ? NULL : rlk_exec_alloc(&x->run->x, bytes);
    if (!x->rc && !x->run->rope)
        x->rc = rlki_fail_memory(x->run, "rope");
    if (!x->rc)
        x->rc = rlk_exec_upload(&x->run->x, x->run->rope, host, bytes);
    if (!x->rc)
        x->rc = rlk_exec_sync(&x->run->x);
    m->rope_positions = most;
    m->rope_theta = theta;
    m->rope_dim = dim;
    free(host);
    return x->rc;
}

static void rope(struct rlki_exec *x)
{
    const struct rlki_value *in = rlki_tokens_in(x, "x", ANY, -1, 1);
    int heads = 0, dim = 0;
    if (!in || !heads_of(x, "x", in->form.width, &heads, &dim))
        return;
    const bool inverse = rlki_attr_int(&x->in->e, "inverse", 0) != 0;
    struct rlki_ptrs *y = rlki_tokens_out(x, "y", in->form.type, in->form.width, true);
    if (y && !need_rope(x, rlki_attr(&x->in->e, "theta", 1e6), dim))
        RUN(rlk_rope(x->w, x->b, module(x), heads, dim, in->form.type, x->run->rope, inverse, IN(in), y->p));
}

static void add(struct rlki_exec *x)
{
    const struct rlki_value *a = rlki_tokens_in(x, "a", ANY, -1, 0);
    const struct rlki_value *b = a ? rlki_tokens_in(x, "b", a->form.type, a->form.width, 0) : NULL;
    struct rlki_ptrs *y = b ? rlki_tokens_out(x, "y", a->form.type, a->form.width, false) : NULL;
    if (y)
        RUN(rlk_add(x->w, x->b, module(x), a->form.width, a->form.type, IN(a), IN(b), y->p));
}

/* ---- vocabulary ---- */

static void embedding(struct rlki_exec *x)
{
    if (!backward(x)) {
        (void)sequences(x);
        const struct rlki_value *t = rlki_parameter_in(x, "table", ANY, -1, -1, RLK_CUT_OUT, true);
        struct rlki_ptrs *y = t ? rlki_tokens_out(x, "y", t->form.type, t->form.cols, false) : NULL;
        if (y)
            RUN(rlk_embedding_fwd(x->w, x->b, module(x), t->form.rows, t->form.cols, t->form.type, x->m->micro.ids,
                                  IN(t), y->p));
        return;
    }
    const struct rlki_value *dy = rlki_tokens_in(x, "dy", ANY, -1, 0);
    const struct rlki_value *g =
        dy ? rlki_parameter_in(x, "main_grad0", F, -1, dy->form.width, RLK_CUT_OUT, true) : NULL;
    struct rlki_ptrs *to =
        g ? gradient(x, "main_grad0", "dtable", g->form.rows, dy->form.width, RLK_CUT_OUT, true) : NULL;
    (void)sequences(x);
    if (to)
        RUN(rlk_embedding_bwd(x->w, x->b, module(x), g->form.rows, dy->form.width, dy->form.type, x->m->micro.ids,
                              IN(dy), RLKI_F(to)));
}

/* The head: h and w of the recorded event. */
static bool head_of(struct rlki_exec *x, const struct rlki_value **h, struct rlk_logp *l)
{
    *h = rlki_tokens_in(x, "h", ANY, -1, 0);
    const struct rlki_value *w =
        *h ? rlki_parameter_in(x, "w", (*h)->form.type, -1, (*h)->form.width, RLK_CUT_OUT, true) : NULL;
    if (!w)
        return false;
    *l = (struct rlk_logp){module(x),
                           (*h)->form.width,
                           w->form.rows,
                           (*h)->form.type,
                           (float)rlki_attr(&x->in->e, "temperature", 1.0),
                           IN(w),
                           NULL};
    x->run->opt.temperature = l->temperature;
    return true;
}

static void logp(struct rlki_exec *x)
{
    const struct rlki_value *h;
    struct rlk_logp l;
    if (!head_of(x, &h, &l))
        return;
    if (!backward(x)) {
        (void)sequences(x);
        l.targets = x->m->micro.targets;
        struct rlki_ptrs *out = rlki_tokens_out(x, "logp", F, 1, false);
        struct rlki_ptrs *stats = rlki_tokens_out(x, "stats", F, 3, false);
        if (out && stats)
            RUN(rlk_logp_fwd(x->w, x->b, &l, IN(h), RLKI_F(out), RLKI_F(stats)));
        return;
    }
    const struct rlki_value *stats = rlki_tokens_in(x, "stats", F, 3, 0), *d = rlki_tokens_in(x, "dlogp", F, 1, 0);
    struct rlki_ptrs *g = gradient(x, "main_grad0", "dw", l.vocab, l.hidden, RLK_CUT_OUT, true);
    (void)sequences(x);
    l.targets = x->m->micro.targets;
    struct rlki_ptrs *dh = rlki_tokens_out(x, "dh", l.type, l.hidden, false);
    if (stats && d && g && dh)
        RUN(rlk_logp_bwd(x->w, x->b, &l, IN(h), CF(stats), CF(d), dh->p, RLKI_F(g)));
}

static void logits(struct rlki_exec *x)
{
    const struct rlki_value *h;
    struct rlk_logp l;
    struct rlki_ptrs *z = head_of(x, &h, &l) ? rlki_tokens_out(x, "z", F, l.vocab, false) : NULL;
    if (z)
        RUN(rlk_logits(x->w, x->b, &l, IN(h), RLKI_F(z)));
}

static void log_softmax(struct rlki_exec *x)
{
    const struct rlki_value *z = rlki_tokens_in(x, "z", F, -1, 0);
    struct rlki_ptrs *y = z ? rlki_tokens_out(x, "y", F, z->form.width, false) : NULL;
    const float temperature = (float)rlki_attr(&x->in->e, "temperature", 1.0);
    if (y)
        RUN(rlk_log_softmax(x->w, x->b, module(x), z->form.width, temperature, CF(z), RLKI_F(y)));
}

rlki_operator rlki_find_operator(const struct rlk_event *e)
{
    static const struct {
        const char *op;
        rlki_operator run;
    } all[] = {{"rlk.gemm.column", column},
               {"rlk.gemm.row", row},
               {"rlk.gemm.dw", dw},
               {"rlk.ffn.qwen3.deterministic", ffn},
               {"rlk.attention.deterministic", attention},
               {"rlk.attention.append", append},
               {"rlk.rmsnorm", rmsnorm},
               {"rlk.rope", rope},
               {"rlk.add", add},
               {"rlk.embedding", embedding},
               {"rlk.linear_logp.bitwise", logp},
               {"rlk.logits", logits},
               {"rlk.log_softmax", log_softmax}};
    for (size_t i = 0; e->kind == RLK_EV_OP && i < sizeof all / sizeof all[0]; i++)
        if (strcmp(e->who.op, all[i].op) == 0)
            return all[i].run;
    return rlki_find_own_operator(e);
}

const char *rlki_unknown_operator(const struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_METRIC:
    case RLK_EV_READBACK:
    case RLK_EV_REQUEST:
    case RLK_EV_NOTE:
        return NULL;
    case RLK_EV_COLLECTIVE:
    case RLK_EV_COPY:
        return "moves bytes between ranks or devices, which a virtual rank does not";
    default:
        return rlki_find_operator(e) ? NULL : "no operator here has this name";
    }
}
