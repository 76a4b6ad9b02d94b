/* layers.c - the policy: forward, decode, and backward with one layer recomputed at a time.
 *
 * A layer: x2 = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v)), x3 = x2 + mlp(norm2(x2)), q, k, v of
 * norm1(x).
 */
#include "replayer/run.h"

#include <stdio.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((rc = (call)))                                                                                             \
            return rc;                                                                                                 \
    } while (0)

static const enum rlk_ktype T = RLK_K_BF16, F = RLK_K_FP32;

struct layer { /* what a layer leaves for its backward */
    struct rlki_ptrs h1, rstd1, q, k, v, rstdq, rstdk, qr, kr, o, lse, x2, h2, rstd2, gate, up, act;
};

struct path {
    char text[80];
};
static struct path path(int layer, const char *name)
{
    struct path p;
    snprintf(p.text, sizeof p.text, "model.layers.%d%s%s", layer, name[0] ? "." : "", name);
    return p;
}

static const struct rlki_ptrs *weight(const struct rlki_pass *p, int layer, enum rlki_slot slot)
{
    return &p->weight[rlki_layer_param(layer, slot)];
}

static struct rlki_ptrs *gradient(const struct rlki_pass *p, int layer, enum rlki_slot slot)
{
    return &p->run->grad[rlki_layer_param(layer, slot)];
}

const struct rlki_ptrs *rlki_head(const struct rlk_train *run, const struct rlki_ptrs *w)
{
    return &w[run->opt.model.tied ? RLKI_EMBED : run->params - 1];
}

/* The next operator adds to this parameter's gradient. */
static void adds_to(const struct rlki_pass *p, int param)
{
    char name[16];
    snprintf(name, sizeof name, "main_grad%d", p->run->rec.extras);
    const struct rlki_named t = rlki_named_parameter(&p->run->param[param], name, F);
    rlki_rec_also(p->run, &t, &p->run->grad[param]);
}

/* The next operator reads this parameter and does not say so. */
static void reads(const struct rlki_pass *p, const char *name, int param)
{
    const struct rlki_named t = rlki_named_parameter(&p->run->param[param], name, T);
    rlki_rec_also(p->run, &t, &p->weight[param]);
}

static int final_norm(const struct rlk_train *run)
{
    return 1 + run->opt.model.layers * RLKI_SLOTS;
}

static int take(struct rlki_pass *p, int64_t width, enum rlk_ktype type, struct rlki_ptrs *out)
{
    return rlki_frame_take(p->run, p->w, p->b, width, type, out);
}

static void attr_eps(const struct rlki_pass *p)
{
    rlki_rec_attr(p->run, "eps", (double)p->run->opt.model.eps);
}

static void attr_rope(const struct rlki_pass *p, bool inverse)
{
    rlki_rec_attr(p->run, "theta", p->run->opt.model.theta);
    rlki_rec_attr_int(p->run, "inverse", inverse);
}

static void attr_temperature(const struct rlki_pass *p, const struct rlk_logp *l)
{
    rlki_rec_attr(p->run, "temperature", (double)l->temperature);
}

static int project(struct rlki_pass *p, int layer, struct layer *a)
{
    const struct rlk_model_shape *s = &p->run->opt.model;
    const int tp = p->w->lat.tp, d = s->head_dim;
    const int64_t H = s->hidden, Q = (int64_t)s->heads * d, KV = (int64_t)s->kv_heads * d;
    int rc;
    TRY(take(p, Q / tp, T, &a->q));
    TRY(take(p, KV / tp, T, &a->k));
    TRY(take(p, KV / tp, T, &a->v));
    TRY(take(p, Q / tp, T, &a->qr));
    TRY(take(p, KV / tp, T, &a->kr));
    TRY(take(p, s->heads / tp, F, &a->rstdq));
    TRY(take(p, s->kv_heads / tp, F, &a->rstdk));
    TRY(rlk_linear_column_fwd(p->w, p->b, path(layer, "self_attn.q_proj").text, H, Q, T, RLKI_IN(&a->h1),
                              RLKI_IN(weight(p, layer, RLKI_Q)), a->q.p));
    TRY(rlk_linear_column_fwd(p->w, p->b, path(layer, "self_attn.k_proj").text, H, KV, T, RLKI_IN(&a->h1),
                              RLKI_IN(weight(p, layer, RLKI_K)), a->k.p));
    TRY(rlk_linear_column_fwd(p->w, p->b, path(layer, "self_attn.v_proj").text, H, KV, T, RLKI_IN(&a->h1),
                              RLKI_IN(weight(p, layer, RLKI_V)), a->v.p));
    attr_eps(p);
    struct rlki_ptrs qn = a->qr, kn = a->kr; /* turned in place, but for decode: it leaves every tensor as it was */
    if (p->k_cache) {
        TRY(take(p, Q / tp, T, &qn));
        TRY(take(p, KV / tp, T, &kn));
    }
    TRY(rlk_headnorm_fwd(p->w, p->b, path(layer, "self_attn.q_norm").text, s->heads, d, T, s->eps, RLKI_IN(&a->q),
                         RLKI_IN(weight(p, layer, RLKI_QNORM)), qn.p, RLKI_F(&a->rstdq)));
    attr_eps(p);
    TRY(rlk_headnorm_fwd(p->w, p->b, path(layer, "self_attn.k_norm").text, s->kv_heads, d, T, s->eps, RLKI_IN(&a->k),
                         RLKI_IN(weight(p, layer, RLKI_KNORM)), kn.p, RLKI_F(&a->rstdk)));
    attr_rope(p, false);
    TRY(rlk_rope(p->w, p->b, path(layer, "self_attn.rotary_q").text, s->heads, d, T, p->run->rope, false, RLKI_IN(&qn),
                 a->qr.p));
    attr_rope(p, false);
    return rlk_rope(p->w, p->b, path(layer, "self_attn.rotary_k").text, s->kv_heads, d, T, p->run->rope, false,
                    RLKI_IN(&kn), a->kr.p);
}

/* Attention over the cache: the append is an event of ours, so that what the cache holds has a producer. */
static int cached(struct rlki_pass *p, int layer, const struct rlk_attention *at, struct layer *a)
{
    struct rlk_train *run = p->run;
    const struct rlk_model_shape *s = &run->opt.model;
    const struct rlki_named in_k = {
        "k",  T,    3,   {{RLKI_AXIS_TOKENS, 0}, {RLKI_AXIS_SLABS, s->kv_heads}, {RLKI_AXIS_WHOLE, s->head_dim}},
        NULL, NULL, p->b};
    const struct rlki_named cache = rlki_named_cache(run, "k_cache", s->kv_heads, s->head_dim);
    const struct rlki_named v_cache = rlki_named_cache(run, "v_cache", s->kv_heads, s->head_dim);
    struct rlki_named in_v = in_k;
    struct rlki_ptrs *kc = &p->k_cache[layer], *vc = &p->v_cache[layer];
    int rc;
    memcpy(in_v.name, "v", 2);
    const bool live = !rlki_quiet(run);
    if (live) {
        rlki_rec_begin(run, p->w, path(layer, "self_attn.cache").text, "rlk.attention.append", NULL);
        rlki_rec_tensor(run, p->w, &in_k, RLKI_IN(&a->kr), false);
        rlki_rec_tensor(run, p->w, &in_v, RLKI_IN(&a->v), false);
        rlki_rec_tensor(run, p->w, &cache, RLKI_IN(kc), false);
        rlki_rec_tensor(run, p->w, &v_cache, RLKI_IN(vc), false);
    }
    TRY(rlk_attention_append(p->w, p->b, at, p->cache_row, RLKI_IN(&a->kr), RLKI_IN(&a->v), kc->p, vc->p));
    if (live) {
        run->rec.grows = true;
        rlki_rec_tensor(run, p->w, &cache, RLKI_IN(kc), true);
        rlki_rec_tensor(run, p->w, &v_cache, RLKI_IN(vc), true);
        run->rec.grows = false;
        rlki_rec_end(run, p->w);
    }
    rlki_rec_also(run, &cache, kc);
    rlki_rec_also(run, &v_cache, vc);
    return rlk_attention_cached(p->w, p->b, at, p->cache_row, RLKI_IN(&a->qr), RLKI_IN(kc), RLKI_IN(vc), a->o.p,
                                RLKI_F(&a->lse));
}

/* One layer from x to out; *a keeps what the backward needs. */
static int layer_forward(struct rlki_pass *p, int layer, const struct rlki_ptrs *x, struct layer *a,
                         struct rlki_ptrs *out)
{
    const struct rlk_model_shape *s = &p->run->opt.model;
    const int tp = p->w->lat.tp;
    const int64_t H = s->hidden, Q = (int64_t)s->heads * s->head_dim, I = s->intermediate;
    const struct path module = path(layer, "self_attn"), mlp = path(layer, "mlp");
    const struct rlk_attention at = {module.text, s->heads, s->kv_heads, s->head_dim, T};
    const struct rlk_ffn ffn = {mlp.text,
                                H,
                                I,
                                T,
                                RLKI_IN(weight(p, layer, RLKI_GATE)),
                                RLKI_IN(weight(p, layer, RLKI_UP)),
                                RLKI_IN(weight(p, layer, RLKI_DOWN))};
    struct rlki_ptrs y, y2;
    int rc;
    TRY(take(p, H, T, out));
    TRY(take(p, H, T, &a->h1));
    TRY(take(p, 1, F, &a->rstd1));
    attr_eps(p);
    TRY(rlk_rmsnorm_fwd(p->w, p->b, path(layer, "input_layernorm").text, H, T, s->eps, RLKI_IN(x),
                        RLKI_IN(weight(p, layer, RLKI_NORM1)), a->h1.p, RLKI_F(&a->rstd1)));
    TRY(project(p, layer, a));
    TRY(take(p, Q / tp, T, &a->o));
    TRY(take(p, s->heads / tp, F, &a->lse));
    rlki_rec_train_kv(p->run, p, layer, &a->kr, &a->v);
    if (p->k_cache)
        TRY(cached(p, layer, &at, a));
    else
        TRY(rlk_attention_fwd(p->w, p->b, &at, RLKI_IN(&a->qr), RLKI_IN(&a->kr), RLKI_IN(&a->v), a->o.p,
                              RLKI_F(&a->lse)));
    TRY(take(p, H, T, &y));
    y2 = y;
    if (p->k_cache)
        TRY(take(p, H, T, &y2));
    TRY(take(p, H, T, &a->x2));
    TRY(rlk_linear_row_fwd(p->w, p->b, path(layer, "self_attn.o_proj").text, Q, H, T, RLKI_IN(&a->o),
                           RLKI_IN(weight(p, layer, RLKI_O)), y.p));
    TRY(rlk_add(p->w, p->b, path(layer, "residual_attn").text, H, T, RLKI_IN(x), RLKI_IN(&y), a->x2.p));
    TRY(take(p, H, T, &a->h2));
    TRY(take(p, 1, F, &a->rstd2));
    attr_eps(p);
    TRY(rlk_rmsnorm_fwd(p->w, p->b, path(layer, "post_attention_layernorm").text, H, T, s->eps, RLKI_IN(&a->x2),
                        RLKI_IN(weight(p, layer, RLKI_NORM2)), a->h2.p, RLKI_F(&a->rstd2)));
    TRY(take(p, I / tp, T, &a->gate));
    TRY(take(p, I / tp, T, &a->up));
    TRY(take(p, I / tp, T, &a->act));
    TRY(rlk_ffn_fwd(p->w, p->b, &ffn, RLKI_IN(&a->h2), a->gate.p, a->up.p, a->act.p, y2.p));
    return rlk_add(p->w, p->b, path(layer, "residual_mlp").text, H, T, RLKI_IN(&a->x2), RLKI_IN(&y2), out->p);
}

int rlki_forward(struct rlki_pass *p)
{
    struct rlk_train *run = p->run;
    const struct rlk_model_shape *s = &run->opt.model;
    const struct rlki_named tokens = rlki_named_sequences(run);
    struct rlki_ptrs x;
    int rc;
    TRY(take(p, s->hidden, T, &x));
    rlki_rec_also(run, &tokens, &run->sequences);
    TRY(rlk_embedding_fwd(p->w, p->b, "model.embed_tokens", s->vocab, s->hidden, T, p->ids,
                          RLKI_IN(&p->weight[RLKI_EMBED]), x.p));
    for (int l = 0; l < s->layers; l++) {
        struct layer a;
        struct rlki_ptrs out;
        if (p->at_layer)
            p->at_layer[l] = x;
        TRY(layer_forward(p, l, &x, &a, &out));
        x = out;
    }
    p->x = x;
    TRY(take(p, s->hidden, T, &p->h));
    TRY(take(p, 1, F, &p->rstd));
    attr_eps(p);
    return rlk_rmsnorm_fwd(p->w, p->b, "model.norm", s->hidden, T, s->eps, RLKI_IN(&x),
                           RLKI_IN(&p->weight[final_norm(run)]), p->h.p, RLKI_F(&p->rstd));
}

struct rlk_logp rlki_head_args(const struct rlki_pass *p)
{
    const struct rlk_train *run = p->run;
    return (struct rlk_logp){"lm_head",
                             run->opt.model.hidden,
                             run->opt.model.vocab,
                             T,
                             run->opt.temperature > 0.0f ? run->opt.temperature : 1.0f,
                             RLKI_IN(rlki_head(run, p->weight)),
                             p->targets};
}

int rlki_logp(struct rlki_pass *p)
{
    const struct rlk_logp l = rlki_head_args(p);
    int rc;
    TRY(take(p, 1, F, &p->logp));
    TRY(take(p, 3, F, &p->stats));
    const struct rlki_named tokens = rlki_named_sequences(p->run);
    rlki_rec_also(p->run, &tokens, &p->run->sequences);
    attr_temperature(p, &l);
    return rlk_logp_fwd(p->w, p->b, &l, RLKI_IN(&p->h), RLKI_F(&p->logp), RLKI_F(&p->stats));
}

static int attention_backward(struct rlki_pass *p, int layer, const struct layer *a, const struct rlki_ptrs *d2,
                              struct rlki_ptrs *dh1)
{
    const struct rlk_model_shape *s = &p->run->opt.model;
    const int tp = p->w->lat.tp, d = s->head_dim;
    const int64_t H = s->hidden, Q = (int64_t)s->heads * d, KV = (int64_t)s->kv_heads * d;
    const struct path module = path(layer, "self_attn"), o = path(layer, "self_attn.o_proj");
    const struct rlk_attention at = {module.text, s->heads, s->kv_heads, d, T};
    struct rlki_ptrs dout, dq, dk, dv;
    int rc;
    TRY(take(p, Q / tp, T, &dout));
    TRY(take(p, Q / tp, T, &dq));
    TRY(take(p, KV / tp, T, &dk));
    TRY(take(p, KV / tp, T, &dv));
    TRY(rlk_linear_row_dx(p->w, p->b, o.text, Q, H, T, RLKI_IN(d2), RLKI_IN(weight(p, layer, RLKI_O)), dout.p));
    adds_to(p, rlki_layer_param(layer, RLKI_O));
    TRY(rlk_linear_dw(p->w, p->b, o.text, RLK_CUT_IN, Q, H, T, RLKI_IN(d2), RLKI_IN(&a->o),
                      RLKI_F(gradient(p, layer, RLKI_O))));
    TRY(rlk_attention_bwd(p->w, p->b, &at, RLKI_IN(&dout), RLKI_IN(&a->qr), RLKI_IN(&a->kr), RLKI_IN(&a->v),
                          RLKI_IN(&a->o), RLKI_CF(&a->lse), dq.p, dk.p, dv.p));
    attr_rope(p, true);
    TRY(rlk_rope(p->w, p->b, path(layer, "self_attn.rotary_q").text, s->heads, d, T, p->run->rope, true, RLKI_IN(&dq),
                 dq.p));
    attr_rope(p, true);
    TRY(rlk_rope(p->w, p->b, path(layer, "self_attn.rotary_k").text, s->kv_heads, d, T, p->run->rope, true,
                 RLKI_IN(&dk), dk.p));
    adds_to(p, rlki_layer_param(layer, RLKI_QNORM));
    TRY(rlk_headnorm_bwd(p->w, p->b, path(layer, "self_attn.q_norm").text, s->heads, d, T, RLKI_IN(&dq), RLKI_IN(&a->q),
                         RLKI_IN(weight(p, layer, RLKI_QNORM)), RLKI_CF(&a->rstdq), dq.p,
                         RLKI_F(gradient(p, layer, RLKI_QNORM))));
    adds_to(p, rlki_layer_param(layer, RLKI_KNORM));
    TRY(rlk_headnorm_bwd(p->w, p->b, path(layer, "self_attn.k_norm").text, s->kv_heads, d, T, RLKI_IN(&dk),
                         RLKI_IN(&a->k), RLKI_IN(weight(p, layer, RLKI_KNORM)), RLKI_CF(&a->rstdk), dk.p,
                         RLKI_F(gradient(p, layer, RLKI_KNORM))));
    const rlk_in dy[3] = {RLKI_IN(&dq), RLKI_IN(&dk), RLKI_IN(&dv)};
    const rlk_in w[3] = {RLKI_IN(weight(p, layer, RLKI_Q)), RLKI_IN(weight(p, layer, RLKI_K)),
                         RLKI_IN(weight(p, layer, RLKI_V))};
    TRY(rlk_linear_column_dx(p->w, p->b, path(layer, "self_attn.qkv").text, H, 3, (const int64_t[]){Q, KV, KV}, T, dy,
                             w, dh1->p));
    adds_to(p, rlki_layer_param(layer, RLKI_Q));
    TRY(rlk_linear_dw(p->w, p->b, path(layer, "self_attn.q_proj").text, RLK_CUT_OUT, H, Q, T, RLKI_IN(&dq),
                      RLKI_IN(&a->h1), RLKI_F(gradient(p, layer, RLKI_Q))));
    adds_to(p, rlki_layer_param(layer, RLKI_K));
    TRY(rlk_linear_dw(p->w, p->b, path(layer, "self_attn.k_proj").text, RLK_CUT_OUT, H, KV, T, RLKI_IN(&dk),
                      RLKI_IN(&a->h1), RLKI_F(gradient(p, layer, RLKI_K))));
    adds_to(p, rlki_layer_param(layer, RLKI_V));
    return rlk_linear_dw(p->w, p->b, path(layer, "self_attn.v_proj").text, RLK_CUT_OUT, H, KV, T, RLKI_IN(&dv),
                         RLKI_IN(&a->h1), RLKI_F(gradient(p, layer, RLKI_V)));
}

/* d: gradient of the layer's output on entry, of its input x on return. */
static int layer_backward(struct rlki_pass *p, int layer, const struct rlki_ptrs *x, const struct layer *a,
                          struct rlki_ptrs *d)
{
    const struct rlk_model_shape *s = &p->run->opt.model;
    const int64_t H = s->hidden;
    const struct path mlp = path(layer, "mlp");
    const struct rlk_ffn ffn = {mlp.text,
                                H,
                                s->intermediate,
                                T,
                                RLKI_IN(weight(p, layer, RLKI_GATE)),
                                RLKI_IN(weight(p, layer, RLKI_UP)),
                                RLKI_IN(weight(p, layer, RLKI_DOWN))};
    struct rlki_ptrs dh, dn;
    int rc;
    TRY(take(p, H, T, &dh));
    TRY(take(p, H, T, &dn));
    adds_to(p, rlki_layer_param(layer, RLKI_GATE));
    adds_to(p, rlki_layer_param(layer, RLKI_UP));
    adds_to(p, rlki_layer_param(layer, RLKI_DOWN));
    reads(p, "w_gate", rlki_layer_param(layer, RLKI_GATE));
    reads(p, "w_up", rlki_layer_param(layer, RLKI_UP));
    reads(p, "w_down", rlki_layer_param(layer, RLKI_DOWN));
    TRY(rlk_ffn_bwd(p->w, p->b, &ffn, RLKI_IN(d), RLKI_IN(&a->h2), (rlk_out)a->gate.p, (rlk_out)a->up.p,
                    RLKI_IN(&a->act), dh.p, RLKI_F(gradient(p, layer, RLKI_GATE)), RLKI_F(gradient(p, layer, RLKI_UP)),
                    RLKI_F(gradient(p, layer, RLKI_DOWN))));
    adds_to(p, rlki_layer_param(layer, RLKI_NORM2));
    TRY(rlk_rmsnorm_bwd(p->w, p->b, path(layer, "post_attention_layernorm").text, H, T, RLKI_IN(&dh), RLKI_IN(&a->x2),
                        RLKI_IN(weight(p, layer, RLKI_NORM2)), RLKI_CF(&a->rstd2), dn.p,
                        RLKI_F(gradient(p, layer, RLKI_NORM2))));
    TRY(rlk_add(p->w, p->b, path(layer, "residual_mlp").text, H, T, RLKI_IN(d), RLKI_IN(&dn), d->p));
    TRY(attention_backward(p, layer, a, d, &dh));
    adds_to(p, rlki_layer_param(layer, RLKI_NORM1));
    TRY(rlk_rmsnorm_bwd(p->w, p->b, path(layer, "input_layernorm").text, H, T, RLKI_IN(&dh), RLKI_IN(x),
                        RLKI_IN(weight(p, layer, RLKI_NORM1)), RLKI_CF(&a->rstd1), dn.p,
                        RLKI_F(gradient(p, layer, RLKI_NORM1))));
    return rlk_add(p->w, p->b, path(layer, "residual_attn").text, H, T, RLKI_IN(d), RLKI_IN(&dn), d->p);
}

int rlki_backward(struct rlki_pass *p, const struct rlki_ptrs *dlogp)
{
    struct rlk_train *run = p->run;
    const struct rlk_model_shape *s = &run->opt.model;
    const struct rlk_logp l = rlki_head_args(p);
    const struct rlki_named tokens = rlki_named_sequences(run);
    struct rlki_ptrs dh, d;
    int rc;
    rlki_rec_pass(run, "bwd");
    TRY(take(p, s->hidden, T, &dh));
    TRY(take(p, s->hidden, T, &d));
    adds_to(p, run->opt.model.tied ? RLKI_EMBED : run->params - 1);
    rlki_rec_also(run, &tokens, &run->sequences);
    attr_temperature(p, &l);
    TRY(rlk_logp_bwd(p->w, p->b, &l, RLKI_IN(&p->h), RLKI_CF(&p->stats), RLKI_CF(dlogp), dh.p,
                     RLKI_F(rlki_head(run, run->grad))));
    adds_to(p, final_norm(run));
    TRY(rlk_rmsnorm_bwd(p->w, p->b, "model.norm", s->hidden, T, RLKI_IN(&dh), RLKI_IN(&p->x),
                        RLKI_IN(&p->weight[final_norm(run)]), RLKI_CF(&p->rstd), d.p,
                        RLKI_F(&run->grad[final_norm(run)])));
    for (int layer = s->layers - 1; layer >= 0; layer--) {
        const struct rlki_mark mark = rlki_frame_mark(run);
        struct layer a;
        struct rlki_ptrs out;
        rlki_rec_pass(run, "recompute");
        run->x.policy = rlki_plant_policy(run, true);
        rc = layer_forward(p, layer, &p->at_layer[layer], &a, &out);
        run->x.policy = rlki_plant_policy(run, false);
        rlki_rec_pass(run, "bwd");
        if (!rc)
            rc = layer_backward(p, layer, &p->at_layer[layer], &a, &d);
        rlki_frame_back(run, mark);
        if (rc)
            return rc;
    }
    adds_to(p, RLKI_EMBED);
    rlki_rec_also(run, &tokens, &run->sequences);
    return rlk_embedding_bwd(p->w, p->b, "model.embed_tokens", s->vocab, s->hidden, T, p->ids, RLKI_IN(&d),
                             RLKI_F(&run->grad[RLKI_EMBED]));
}
