/* harness_run.c - every operator of the library once forward and once backward, on inputs of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned flush_on(bool on)
{
    const unsigned saved = _mm_getcsr();
    if (on)
        _mm_setcsr(saved | 0x8040); /* FTZ, DAZ */
    return saved;
}
static void flush_off(unsigned saved)
{
    _mm_setcsr(saved);
}
#else
static unsigned flush_on(bool on)
{
    return on;
}
static void flush_off(unsigned saved)
{
    (void)saved;
}
#endif

struct run {
    const struct t_case *c;
    struct t_env e;
    struct t_result *out;
    uint32_t what;
    int rc;
    bool replicas;
    const char *failed;
};

static struct t_spec tokens(const struct run *r, enum t_cols k, int64_t cols)
{
    return (struct t_spec){r->c->type, ROWS_TOKENS, 0, k, cols};
}
static struct t_spec token_f32(enum t_cols k, int64_t cols)
{
    return (struct t_spec){RLK_K_FP32, ROWS_TOKENS, 0, k, cols};
}
static struct t_spec weight(const struct run *r, enum t_rows kr, int64_t rows, enum t_cols k, int64_t cols)
{
    return (struct t_spec){r->c->type, kr, rows, k, cols};
}
static struct t_spec gradient(struct t_spec s)
{
    s.type = RLK_K_FP32;
    return s;
}

static void **in(struct run *r, struct t_spec s, float scale)
{
    void *host = t_fill(&r->e, r->c, &s, ++r->what, scale);
    void **p = t_shard(&r->e, &s, host);
    free(host);
    return p;
}

static void save(struct run *r, const char *module, const char *name, struct t_spec s, void *const *local)
{
    struct t_output *o = &r->out->out[r->out->n++];
    const int64_t rows = t_rows(&r->e, &s);
    o->name = name;
    o->module = module;
    o->by_token = s.rows_kind == ROWS_TOKENS;
    o->row_bytes = (size_t)s.cols * rlk_ktype_bytes(s.type);
    o->bytes = (size_t)rows * o->row_bytes;
    o->data = calloc(1, o->bytes + 1);
    if (!t_collect(&r->e, &s, local, o->data)) {
        r->replicas = false;
        r->failed = name;
    }
}

#define IN(p) ((rlk_in)(p))
#define F(p) ((float *const *)(void *const *)(p))
#define CF(p) ((const float *const *)(void *const *)(p))
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const unsigned control = flush_on(r->c->flush);                                                                \
        if (t_bracket)                                                                                                 \
            t_bracket(true);                                                                                           \
        if (!r->rc && (r->rc = (call)))                                                                                \
            r->failed = #call;                                                                                         \
        if (t_bracket)                                                                                                 \
            t_bracket(false);                                                                                          \
        flush_off(control);                                                                                            \
    } while (0)

static void linear(struct run *r, void **keep[])
{
    struct rlk_world *w = &r->e.w;
    const struct rlk_batch *b = r->e.b;
    const struct t_spec sx = tokens(r, COLS_WHOLE, T_H), sy = tokens(r, COLS_SLABS, T_I);
    const struct t_spec wc = weight(r, ROWS_SLABS, T_I, COLS_WHOLE, T_H),
                        wr = weight(r, ROWS_WHOLE, T_H, COLS_SLABS, T_I);
    void **x = in(r, sx, 1), **w1 = in(r, wc, 0.2f), **w2 = in(r, wc, 0.2f), **wd = in(r, wr, 0.2f),
         **dy = in(r, sy, 1), **dy2 = in(r, sy, 1), **g = in(r, sx, 1), **a = in(r, sy, 1);
    void **y = t_blank(&r->e, &sy), **dx = t_blank(&r->e, &sx), **z = t_blank(&r->e, &sx), **da = t_blank(&r->e, &sy);
    const struct t_spec gc = gradient(wc), gr = gradient(wr);
    void **dw1 = t_blank(&r->e, &gc), **dw2 = t_blank(&r->e, &gr);
    const rlk_in seg_dy[2] = {IN(dy), IN(dy2)}, seg_w[2] = {IN(w1), IN(w2)};
    TRY(rlk_linear_column_fwd(w, b, "lin.column", T_H, T_I, r->c->type, IN(x), IN(w1), y));
    TRY(rlk_linear_column_dx(w, b, "lin.column", T_H, 2, (int64_t[]){T_I, T_I}, r->c->type, seg_dy, seg_w, dx));
    TRY(rlk_linear_row_fwd(w, b, "lin.row", T_I, T_H, r->c->type, IN(a), IN(wd), z));
    TRY(rlk_linear_row_dx(w, b, "lin.row", T_I, T_H, r->c->type, IN(g), IN(wd), da));
    for (int mb = 0; mb < 2; mb++) {
        TRY(rlk_linear_dw(w, b, "lin.column", RLK_CUT_OUT, T_H, T_I, r->c->type, IN(mb ? dy2 : dy), IN(x), F(dw1)));
        TRY(rlk_linear_dw(w, b, "lin.row", RLK_CUT_IN, T_I, T_H, r->c->type, IN(g), IN(mb ? dy : a), F(dw2)));
    }
    save(r, "linear", "column y", sy, y);
    save(r, "linear", "column dx", sx, dx);
    save(r, "linear", "row y", sx, z);
    save(r, "linear", "row dx", sy, da);
    save(r, "linear", "column dw", gc, dw1);
    save(r, "linear", "row dw", gr, dw2);
    keep[0] = dw1;
    keep[1] = dw2;
}

static void ffn(struct run *r)
{
    struct rlk_world *w = &r->e.w;
    const struct t_spec sx = tokens(r, COLS_WHOLE, T_H), sa = tokens(r, COLS_SLABS, T_I);
    const struct t_spec wc = weight(r, ROWS_SLABS, T_I, COLS_WHOLE, T_H),
                        wr = weight(r, ROWS_WHOLE, T_H, COLS_SLABS, T_I);
    const struct t_spec gc = gradient(wc), gr = gradient(wr);
    struct rlk_ffn f = {"ffn", T_H, T_I, r->c->type, NULL, NULL, NULL};
    void **wg = in(r, wc, 0.3f), **wu = in(r, wc, 0.3f), **wd = in(r, wr, 0.2f), **x = in(r, sx, 1),
         **dy = in(r, sx, 1);
    void **gate = t_blank(&r->e, &sa), **up = t_blank(&r->e, &sa), **act = t_blank(&r->e, &sa),
         **y = t_blank(&r->e, &sx), **dx = t_blank(&r->e, &sx), **g1 = t_blank(&r->e, &gc), **g2 = t_blank(&r->e, &gc),
         **g3 = t_blank(&r->e, &gr);
    f.w_gate = IN(wg);
    f.w_up = IN(wu);
    f.w_down = IN(wd);
    TRY(rlk_ffn_fwd(w, r->e.b, &f, IN(x), gate, up, act, y));
    save(r, "ffn", "ffn act", sa, act);
    save(r, "ffn", "ffn y", sx, y);
    TRY(rlk_ffn_bwd(w, r->e.b, &f, IN(dy), IN(x), gate, up, IN(act), dx, F(g1), F(g2), F(g3)));
    save(r, "ffn", "ffn dgate", sa, gate);
    save(r, "ffn", "ffn dx", sx, dx);
    save(r, "ffn", "ffn dw_gate", gc, g1);
    save(r, "ffn", "ffn dw_up", gc, g2);
    save(r, "ffn", "ffn dw_down", gr, g3);
}

static void attention(struct run *r)
{
    struct rlk_world *w = &r->e.w;
    const int d = r->c->head_dim;
    const struct rlk_attention a = {"attn", T_HEADS, T_KV, d, r->c->type};
    const struct t_spec sq = tokens(r, COLS_SLABS, T_HEADS * d), sk = tokens(r, COLS_SLABS, T_KV * d),
                        sl = token_f32(COLS_SLABS, T_HEADS);
    void **q = in(r, sq, 1), **k = in(r, sk, 1), **v = in(r, sk, 1), **dout = in(r, sq, 1);
    void **o = t_blank(&r->e, &sq), **lse = t_blank(&r->e, &sl), **dq = t_blank(&r->e, &sq), **dk = t_blank(&r->e, &sk),
         **dv = t_blank(&r->e, &sk);
    TRY(rlk_attention_fwd(w, r->e.b, &a, IN(q), IN(k), IN(v), o, F(lse)));
    TRY(rlk_attention_bwd(w, r->e.b, &a, IN(dout), IN(q), IN(k), IN(v), IN(o), CF(lse), dq, dk, dv));
    save(r, "attention", "attention o", sq, o);
    save(r, "attention", "attention lse", sl, lse);
    save(r, "attention", "attention dq", sq, dq);
    struct t_output *dkv = &r->out->out[r->out->n];
    save(r, "attention", "attention dk", sk, dk);
    save(r, "attention", "attention dv", sk, dv);
    (void)dkv;
}

static void norms(struct run *r)
{
    struct rlk_world *w = &r->e.w;
    const int d = r->c->head_dim;
    const struct t_spec sx = tokens(r, COLS_WHOLE, T_H), sh = tokens(r, COLS_SLABS, T_HEADS * d),
                        s1 = token_f32(COLS_WHOLE, 1), s2 = token_f32(COLS_SLABS, T_HEADS),
                        sg = weight(r, ROWS_WHOLE, 1, COLS_WHOLE, T_H), sgh = weight(r, ROWS_WHOLE, 1, COLS_WHOLE, d);
    const struct t_spec gg = gradient(sg), ggh = gradient(sgh);
    void **x = in(r, sx, 1), **dy = in(r, sx, 1), **g = in(r, sg, 1), **xh = in(r, sh, 1), **dyh = in(r, sh, 1),
         **gh = in(r, sgh, 1);
    void **y = t_blank(&r->e, &sx), **dx = t_blank(&r->e, &sx), **rs = t_blank(&r->e, &s1), **yh = t_blank(&r->e, &sh),
         **dxh = t_blank(&r->e, &sh), **rsh = t_blank(&r->e, &s2), **dg = t_blank(&r->e, &gg),
         **dgh = t_blank(&r->e, &ggh);
    TRY(rlk_rmsnorm_fwd(w, r->e.b, "norm", T_H, r->c->type, 1e-6f, IN(x), IN(g), y, F(rs)));
    TRY(rlk_rmsnorm_bwd(w, r->e.b, "norm", T_H, r->c->type, IN(dy), IN(x), IN(g), CF(rs), dx, F(dg)));
    TRY(rlk_headnorm_fwd(w, r->e.b, "q_norm", T_HEADS, d, r->c->type, 1e-6f, IN(xh), IN(gh), yh, F(rsh)));
    TRY(rlk_headnorm_bwd(w, r->e.b, "q_norm", T_HEADS, d, r->c->type, IN(dyh), IN(xh), IN(gh), CF(rsh), dxh, F(dgh)));
    save(r, "norm", "rmsnorm y", sx, y);
    save(r, "norm", "rmsnorm dx", sx, dx);
    save(r, "norm", "rmsnorm dgamma", gg, dg);
    save(r, "norm", "q_norm y", sh, yh);
    save(r, "norm", "q_norm dx", sh, dxh);
    save(r, "norm", "q_norm dgamma", ggh, dgh);
}

static void rope_add(struct run *r)
{
    struct rlk_world *w = &r->e.w;
    const int d = r->c->head_dim;
    const struct t_spec sh = tokens(r, COLS_SLABS, T_HEADS * d), sx = tokens(r, COLS_WHOLE, T_H);
    const struct t_spec st = {RLK_K_FP32, ROWS_WHOLE, 8192, COLS_WHOLE, d};
    void **x = in(r, sh, 1), **y = t_blank(&r->e, &sh), **z = t_blank(&r->e, &sh), **a = in(r, sx, 1),
         **b = in(r, sx, 1), **c = t_blank(&r->e, &sx);
    float *host = malloc((size_t)8192 * (size_t)d * sizeof *host);
    TRY(rlk_rope_table(1e6, d, 8192, host, &r->e.x.detail));
    float *table = rlk_exec_alloc(&r->e.x, (size_t)8192 * (size_t)d * sizeof *host);
    TRY(rlk_exec_upload(&r->e.x, table, host, (size_t)8192 * (size_t)d * sizeof *host));
    rlk_exec_sync(&r->e.x);
    free(host);
    (void)st;
    TRY(rlk_rope(w, r->e.b, "rope", T_HEADS, d, r->c->type, table, false, IN(x), y));
    TRY(rlk_rope(w, r->e.b, "rope", T_HEADS, d, r->c->type, table, true, IN(x), z));
    TRY(rlk_add(w, r->e.b, "residual", T_H, r->c->type, IN(a), IN(b), c));
    save(r, "rope", "rope y", sh, y);
    save(r, "rope", "rope dx", sh, z);
    save(r, "elementwise", "add y", sx, c);
    rlk_exec_sync(&r->e.x);
    rlk_exec_free(&r->e.x, table);
}

static int32_t *ids(struct run *r, uint32_t what, int32_t below)
{
    const int64_t n = rlk_batch_tokens(r->e.b);
    int32_t *out = malloc(((size_t)n + 1) * sizeof *out), seq = 0, pos = 0;
    for (int64_t i = 0; i < n; i++, pos++) {
        while (pos == r->c->length[seq]) {
            seq++;
            pos = 0;
        }
        out[i] = (int32_t)(t_hash(r->c->seed, what, r->c->id ? r->c->id[seq] : (uint64_t)seq, (uint64_t)pos) %
                           (uint64_t)below);
    }
    return out;
}

static void embedding(struct run *r, void **keep[])
{
    struct rlk_world *w = &r->e.w;
    const struct t_spec st = weight(r, ROWS_VOCAB, T_V, COLS_WHOLE, T_H), sx = tokens(r, COLS_WHOLE, T_H),
                        sg = gradient(st);
    void **table = in(r, st, 1), **dy = in(r, sx, 1), **y = t_blank(&r->e, &sx), **g = t_blank(&r->e, &sg);
    int32_t *id = ids(r, 901, 23); /* few words: each has many tokens */
    TRY(rlk_embedding_fwd(w, r->e.b, "embed", T_V, T_H, r->c->type, id, IN(table), y));
    TRY(rlk_embedding_bwd(w, r->e.b, "embed", T_V, T_H, r->c->type, id, IN(dy), F(g)));
    save(r, "embedding", "embedding y", sx, y);
    save(r, "embedding", "embedding dtable", sg, g);
    keep[2] = g;
    free(id);
}

static void logp(struct run *r, void **keep[])
{
    struct rlk_world *w = &r->e.w;
    const struct t_spec sw = weight(r, ROWS_VOCAB, T_V, COLS_WHOLE, T_H), sx = tokens(r, COLS_WHOLE, T_H),
                        sg = gradient(sw), s1 = token_f32(COLS_WHOLE, 1), s3 = token_f32(COLS_WHOLE, 3),
                        sz = token_f32(COLS_WHOLE, T_V);
    const struct t_spec sk = {RLK_K_INT32, ROWS_TOKENS, 0, COLS_WHOLE, 1};
    int32_t *target = ids(r, 902, T_V);
    void **wt = in(r, sw, 0.5f), **h = in(r, sx, 1), **gl = in(r, s1, 1), **lp = t_blank(&r->e, &s1),
         **st = t_blank(&r->e, &s3), **dh = t_blank(&r->e, &sx), **g = t_blank(&r->e, &sg), **z = t_blank(&r->e, &sz),
         **ls = t_blank(&r->e, &sz), **tok = t_blank(&r->e, &sk), **top = t_blank(&r->e, &sk);
    const struct rlk_logp l = {"lm_head", T_H, T_V, r->c->type, 0.7f, IN(wt), target};
    const int64_t n = rlk_batch_tokens(r->e.b);
    uint64_t *sample = malloc(((size_t)n + 1) * sizeof *sample);
    for (int64_t i = 0, s = 0, p = 0; i < n; i++, p++) {
        while (p == r->c->length[s]) {
            s++;
            p = 0;
        }
        sample[i] = r->c->id ? r->c->id[s] : (uint64_t)s;
    }
    struct rlk_sampling sm = {"sampler", T_V, 0.7f, 1.0f, 77, 3, sample};
    TRY(rlk_logp_fwd(w, r->e.b, &l, IN(h), F(lp), F(st)));
    TRY(rlk_logp_bwd(w, r->e.b, &l, IN(h), CF(st), CF(gl), dh, F(g)));
    TRY(rlk_logits(w, r->e.b, &l, IN(h), F(z)));
    TRY(rlk_log_softmax(w, r->e.b, "lm_head", T_V, 0.7f, CF(z), F(ls)));
    TRY(rlk_sample(w, r->e.b, &sm, CF(z), (int32_t *const *)(void *const *)tok));
    sm.top_p = 0.9f;
    TRY(rlk_sample(w, r->e.b, &sm, CF(z), (int32_t *const *)(void *const *)top));
    save(r, "logp", "logp", s1, lp);
    save(r, "logp", "logp stats", s3, st);
    save(r, "logp", "logp dh", sx, dh);
    save(r, "logp", "logp dw", sg, g);
    save(r, "logp", "logits", sz, z);
    save(r, "logp", "log_softmax", sz, ls);
    save(r, "sampling", "sample", sk, tok);
    save(r, "sampling", "sample top_p", sk, top);
    /* One set of bits for both ways to a log-probability. */
    const struct t_output *o = r->out->out + r->out->n;
    const float *a = o[-8].data, *full = o[-3].data;
    for (int64_t i = 0; !r->rc && !r->c->policy && i < n; i++)
        if (memcmp(&a[i], &full[i * T_V + target[i]], 4) != 0) {
            r->rc = 1;
            r->failed = "logp differs from log_softmax(logits)";
        }
    double sum[2] = {0, 0};
    TRY(rlk_loss_sum(w, r->e.b, "loss", CF(lp), NULL, sum));
    struct t_output *so = &r->out->out[r->out->n++];
    *so = (struct t_output){"loss sum", "loss", false, sizeof sum, sizeof sum, malloc(sizeof sum)};
    memcpy(so->data, sum, sizeof sum);
    keep[3] = g;
    free(sample);
    free(target);
}

static void closing(struct run *r, void **keep[])
{
    struct rlk_world *w = &r->e.w;
    const struct rlk_param p[] = {{"column", T_I, T_H, RLK_CUT_OUT, false, F(keep[0])},
                                  {"row", T_H, T_I, RLK_CUT_IN, false, F(keep[1])},
                                  {"embed", T_V, T_H, RLK_CUT_OUT, true, F(keep[2])},
                                  {"lm_head", T_V, T_H, RLK_CUT_OUT, true, F(keep[3])}};
    const struct t_spec sw = {RLK_K_FP32, ROWS_SLABS, T_I, COLS_WHOLE, T_H};
    const struct t_spec st = {r->c->type, ROWS_SLABS, T_I, COLS_WHOLE, T_H};
    double norm[1] = {0};
    TRY(rlk_gradnorm(w, "optimizer", 4, p, norm));
    void **master = in(r, sw, 1), **m = t_blank(&r->e, &sw), **v = t_blank(&r->e, &sw), **wt = t_blank(&r->e, &st);
    struct rlk_adamw o = {"optimizer", 1e-2f,     0.9f, 0.95f, 1e-8f, 0.1f, rlk_clip_coefficient(norm[0], 1.0),
                          1,           r->c->type};
    for (o.step = 1; o.step <= 3; o.step++)
        TRY(rlk_adamw_param(w, &o, &p[0], F(master), F(m), F(v), wt));
    struct t_output *so = &r->out->out[r->out->n++];
    *so = (struct t_output){"grad norm", "gradnorm", false, sizeof norm, sizeof norm, malloc(sizeof norm)};
    memcpy(so->data, norm, sizeof norm);
    save(r, "optimizer", "adamw master", sw, master);
    save(r, "optimizer", "adamw v", sw, v);
    save(r, "optimizer", "adamw weight", st, wt);
}

static void everything(struct run *r)
{
    void **keep[4];
    r->what = 0;
    linear(r, keep);
    ffn(r);
    attention(r);
    norms(r);
    rope_add(r);
    embedding(r, keep);
    logp(r, keep);
    closing(r, keep);
}

int t_run(const struct t_case *c, struct t_result *out, char why[256])
{
    struct run r = {.c = c, .out = out, .replicas = true};
    struct t_result waste = {0};
    *out = (struct t_result){0};
    why[0] = 0;
    r.rc = t_env_init(&r.e, c);
    if (!r.rc) {
        const struct rlk_observe *listener = r.e.x.observe;
        out->tokens = rlk_batch_tokens(r.e.b);
        rlk_exec_measure(&r.e.x, true);
        r.out = &waste;
        everything(&r);
        t_result_free(&waste);
        r.rc = r.rc == 1 ? 0 : r.rc; /* values mean nothing while measuring */
        r.replicas = true;
        r.e.x.workspace_bytes = rlk_exec_peak(&r.e.x);
        rlk_exec_measure(&r.e.x, false);
        r.e.workspace = rlk_exec_alloc(&r.e.x, r.e.x.workspace_bytes + 1);
        r.e.x.workspace = r.e.workspace;
        r.e.x.observe = listener;
        r.out = out;
        if (!r.rc)
            everything(&r);
    }
    if (!r.rc && !r.replicas && !c->loose) {
        snprintf(why, 256, "ranks disagree about %s", r.failed);
        r.rc = 1;
    } else if (r.rc) {
        snprintf(why, 256, "%.80s: %.160s", r.failed ? r.failed : "init", r.e.x.detail.text);
    }
    t_env_release(&r.e);
    return r.rc;
}
