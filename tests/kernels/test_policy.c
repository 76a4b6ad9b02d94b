/* test_policy.c - modes, cases, ablations, readbacks, the listener, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static struct t_result run(struct rlk_policy *p)
{
    struct t_case c = t_small(RLK_DEVICE_CPU, p);
    struct t_result r;
    char why[256];
    if (t_run(&c, &r, why))
        fail_msg("%s", why);
    return r;
}

static bool same(const struct t_result *a, const struct t_result *b)
{
    size_t at;
    return t_compare(a, b, &at) < 0;
}

/* Outputs of modules other than `name` are equal, and at least one of `name` differs. Sums over others' results may
 * move. */
static void only_module_changed(const struct t_result *a, const struct t_result *b, const char *name)
{
    bool moved = false;
    for (int i = 0; i < a->n; i++) {
        const bool equal = memcmp(a->out[i].data, b->out[i].data, a->out[i].bytes) == 0;
        const bool derived = strcmp(a->out[i].module, "gradnorm") == 0 || strcmp(a->out[i].module, "optimizer") == 0 ||
                             strcmp(a->out[i].module, "loss") == 0 || strcmp(a->out[i].module, "sampling") == 0;
        if (strcmp(a->out[i].module, name) == 0)
            moved |= !equal;
        else if (!equal && !derived)
            fail_msg("%s was changed, but \"%s\" of %s moved", name, a->out[i].name, a->out[i].module);
    }
    if (!moved)
        fail_msg("%s was given to the provider and no bit moved", name);
}

static void strict_equals_audit(void **state)
{
    struct rlk_policy *s = rlk_policy_new(), *a = rlk_policy_new(), *off = rlk_policy_new(),
                      *automatic = rlk_policy_new();
    (void)state;
    assert_int_equal(rlk_policy_mode(a, "audit", NULL), 0);
    assert_int_equal(rlk_policy_mode(off, "off", NULL), 0);
    assert_int_equal(rlk_policy_mode(automatic, "auto", NULL), 0);
    struct t_result none = run(NULL), rs = run(s), ra = run(a), ro = run(off), rt = run(automatic);
    assert_true(same(&none, &rs));
    assert_true(same(&rs, &ra));
    assert_true(!same(&rs, &ro)); /* off = the provider's bits */
    assert_true(same(&ro, &rt));
    t_result_free(&none);
    t_result_free(&rs);
    t_result_free(&ra);
    t_result_free(&ro);
    t_result_free(&rt);
    rlk_policy_free(s);
    rlk_policy_free(a);
    rlk_policy_free(off);
    rlk_policy_free(automatic);
}

static void cases_bind_one_side(void **state)
{
    struct t_result r = run(NULL);
    (void)state;
    /* The harness runs on the training side at first. */
    const char *const CASE[] = {"attention=P/R", "attention=R/P"};
    for (int i = 0; i < 2; i++) {
        struct rlk_policy *p = rlk_policy_new();
        assert_int_equal(rlk_policy_case(p, CASE[i], NULL), 0);
        for (int side = 0; side < 2; side++) {
            rlk_policy_side(p, (enum rlk_side)side);
            struct t_result got = run(p);
            if (side == i)
                only_module_changed(&r, &got, "attention");
            else
                assert_true(same(&r, &got));
            t_result_free(&got);
        }
        struct rlk_readback rb[2 * RLK_MODULE_COUNT];
        const size_t n = rlk_policy_readbacks(p, rb, 2 * RLK_MODULE_COUNT);
        for (size_t k = 0; k < n; k++)
            if (rb[k].module == RLK_MODULE_ATTENTION) {
                assert_string_equal(rb[k].case_id, CASE[i] + 10);
                assert_int_equal(rb[k].actual, rb[k].side == (enum rlk_side)i ? RLK_IMPL_PROVIDER : RLK_IMPL_CONTRACT);
            }
        rlk_policy_free(p);
    }
    t_result_free(&r);
}

static void ablations_hand_back_one_node(void **state)
{
    static const char *const MODULE[] = {"linear", "ffn", "attention", "logp", "norm", "rope"};
    struct t_result r = run(NULL);
    (void)state;
    for (size_t i = 0; i < sizeof MODULE / sizeof *MODULE; i++) {
        struct rlk_policy *p = rlk_policy_new();
        char text[64];
        snprintf(text, sizeof text, "node:%s", MODULE[i]);
        assert_int_equal(rlk_policy_ablate(p, text, NULL), 0);
        struct t_result got = run(p);
        only_module_changed(&r, &got, MODULE[i]);
        t_result_free(&got);
        rlk_policy_free(p);
    }
    struct rlk_policy *p = rlk_policy_new();
    assert_int_equal(rlk_policy_ablate(p, "boundary:q_*", NULL), 0);
    struct t_result got = run(p);
    for (int i = 0; i < r.n; i++)
        if (strncmp(r.out[i].name, "rmsnorm", 7) == 0)
            assert_memory_equal(r.out[i].data, got.out[i].data, r.out[i].bytes);
    only_module_changed(&r, &got, "norm");
    t_result_free(&got);
    rlk_policy_free(p);
    t_result_free(&r);
}

static void missing_rows(void **state)
{
    struct rlk_policy *p = rlk_policy_new();
    struct t_case c = t_small(RLK_DEVICE_CPU, p);
    struct t_result r;
    char why[256];
    (void)state;
    rlk_policy_drop_row(p, RLK_MODULE_ATTENTION);
    assert_true(t_run(&c, &r, why) != 0);
    assert_non_null(strstr(why, "attn"));  /* the boundary's name */
    assert_non_null(strstr(why, "audit")); /* and what to do */
    t_result_free(&r);
    assert_int_equal(rlk_policy_mode(p, "audit", NULL), 0);
    rlk_policy_reset_counts(p);
    assert_int_equal(t_run(&c, &r, why), 0);
    t_result_free(&r);
    struct rlk_readback rb[2 * RLK_MODULE_COUNT];
    const size_t n = rlk_policy_readbacks(p, rb, 2 * RLK_MODULE_COUNT);
    bool seen = false;
    for (size_t i = 0; i < n; i++)
        if (rb[i].module == RLK_MODULE_ATTENTION) {
            seen = true;
            assert_int_equal(rb[i].fallbacks, rb[i].provider_calls);
            assert_int_equal(rb[i].contract_calls, 0);
            assert_string_equal(rb[i].missing, "attn");
            assert_string_equal(rb[i].contract, "provider");
        }
    assert_true(seen);
    rlk_policy_free(p);
}

/* ---- the listener counts what the readbacks say ---- */

struct counter {
    uint64_t calls[RLK_MODULE_COUNT], last;
    uint64_t begins, ends, tensors, outputs;
    int depth;
    uint64_t covered; /* elements of "ffn y" over the ranks of tp 0 */
};

static enum rlk_module module_of(const char *op)
{
    static const struct {
        const char *prefix;
        enum rlk_module m;
    } MAP[] = {{"rlk.gemm", RLK_MODULE_LINEAR},         {"rlk.ffn", RLK_MODULE_FFN},
               {"rlk.attention", RLK_MODULE_ATTENTION}, {"rlk.linear_logp", RLK_MODULE_LOGP},
               {"rlk.logits", RLK_MODULE_LOGP},         {"rlk.log_softmax", RLK_MODULE_LOGP},
               {"rlk.rmsnorm", RLK_MODULE_NORM},        {"rlk.rope", RLK_MODULE_ROPE},
               {"rlk.embedding", RLK_MODULE_EMBEDDING}, {"rlk.add", RLK_MODULE_ELEMENTWISE},
               {"rlk.adamw", RLK_MODULE_OPTIMIZER},     {"rlk.gradnorm", RLK_MODULE_GRADNORM},
               {"rlk.loss", RLK_MODULE_LOSS},           {"rlk.sample", RLK_MODULE_SAMPLING}};
    for (size_t i = 0; i < sizeof MAP / sizeof *MAP; i++)
        if (strncmp(op, MAP[i].prefix, strlen(MAP[i].prefix)) == 0)
            return MAP[i].m;
    fail_msg("operator \"%s\" is of no module", op);
    return RLK_MODULE_COUNT;
}

static void on_begin(void *self, const struct rlk_op_event *e)
{
    struct counter *c = self;
    c->begins++;
    if (e->call != c->last)
        c->calls[module_of(e->op)]++;
    c->last = e->call;
    assert_int_equal(e->rank, e->tp + 2 * e->cp);
    assert_true(strncmp(e->contract, e->op, strlen(e->op)) == 0 || strcmp(e->contract, "provider") == 0);
}

static void on_tensor(void *self, const struct rlk_op_event *e, const struct rlk_observed *t)
{
    struct counter *c = self;
    uint64_t elements = 1;
    const struct rlk_span *s = t->at.spans;
    c->tensors++;
    c->outputs += t->output;
    for (uint32_t d = 0; d < t->at.ndim; d++) {
        uint64_t extent = 0;
        if (t->at.nspans[d] == RLK_K_WHOLE)
            extent = t->at.shape[d];
        else
            for (uint32_t k = 0; k < t->at.nspans[d]; k++, s++) {
                assert_true(s->start + s->extent <= t->at.shape[d]);
                extent += s->extent;
            }
        elements *= extent;
    }
    assert_int_equal(elements, t->elements);
    assert_true(elements == 0 || t->data);
    if (strcmp(e->op, "rlk.ffn.qwen3.deterministic") == 0 && strcmp(t->name, "y") == 0 && e->tp == 0)
        c->covered += elements;
}

static void on_end(void *self, const struct rlk_op_event *e)
{
    struct counter *c = self;
    (void)e;
    c->ends++;
}

static void readbacks_equal_the_listener(void **state)
{
    struct rlk_policy *p = rlk_policy_new();
    struct counter n = {0};
    const struct rlk_observe o = {&n, on_begin, on_tensor, on_end};
    struct t_case c = t_small(RLK_DEVICE_CPU, p);
    struct t_result heard, quiet = run(NULL);
    char why[256];
    (void)state;
    c.observe = &o;
    assert_int_equal(t_run(&c, &heard, why), 0);
    assert_true(same(&quiet, &heard));
    assert_int_equal(n.begins, n.ends);
    assert_true(n.tensors > n.outputs && n.outputs > 0);
    assert_int_equal(n.covered, (17 + 33) * T_H);
    struct rlk_readback rb[2 * RLK_MODULE_COUNT];
    const size_t k = rlk_policy_readbacks(p, rb, 2 * RLK_MODULE_COUNT);
    assert_int_equal(k, RLK_MODULE_COUNT);
    for (size_t i = 0; i < k; i++) {
        assert_int_equal(rb[i].contract_calls, n.calls[rb[i].module]);
        assert_int_equal(rb[i].provider_calls, 0);
        assert_string_equal(rb[i].case_id, "R/R");
    }
    t_result_free(&heard);
    t_result_free(&quiet);
    rlk_policy_free(p);
}

/* ---- what is announced is what is read and written, to the row ---- */

struct seen {
    struct {
        const char *op, *name;
        int rank;
        bool output;
        const void *data;
        uint64_t elements;
        enum rlk_ktype type;
        double value[2];
    } t[64];
    int n;
};

static void on_seen(void *self, const struct rlk_op_event *e, const struct rlk_observed *t)
{
    struct seen *s = self;
    assert_true(s->n < 64);
    s->t[s->n].op = e->op;
    s->t[s->n].name = t->name;
    s->t[s->n].rank = e->rank;
    s->t[s->n].output = t->output;
    s->t[s->n].data = t->data;
    s->t[s->n].elements = t->elements;
    s->t[s->n].type = t->type;
    if (t->type == RLK_K_FP64)
        memcpy(s->t[s->n].value, t->data, (size_t)t->elements * sizeof(double));
    s->n++;
}

static void on_nothing(void *self, const struct rlk_op_event *e)
{
    (void)self, (void)e;
}

/* The next of op's tensors on rank, from *at on; fails when it is another. */
static int next_seen(const struct seen *s, int at, int rank, const char *op, const char *name, bool output,
                     const void *data, uint64_t elements)
{
    while (at < s->n && s->t[at].rank != rank)
        at++;
    if (at == s->n)
        fail_msg("%s does not announce \"%s\"", op, name);
    assert_string_equal(s->t[at].op, op);
    assert_string_equal(s->t[at].name, name);
    assert_int_equal(s->t[at].output, output);
    assert_ptr_equal(s->t[at].data, data);
    assert_int_equal(s->t[at].elements, elements);
    return at + 1;
}

static void caches_and_sums_are_announced(void **state)
{
    enum { KV = 8, ROW = KV / 2 * 64, ROOM = 32 * ROW }; /* tp2 */
    static const int32_t length[] = {1, 2}, first[] = {3, 0}, place[] = {5, 20};
    const struct rlk_attention a = {"attn", 16, KV, 64, RLK_K_FP32};
    struct seen s = {0};
    const struct rlk_observe o = {&s, on_nothing, on_seen, on_nothing};
    struct rlk_exec x;
    struct rlk_world w;
    struct rlk_batch *b;
    (void)state;
    assert_int_equal(rlk_exec_init(&x, RLK_DEVICE_CPU, NULL, NULL), 0);
    assert_int_equal(rlk_world_virtual(&w, &x, 2, 1), 0);
    assert_int_equal(rlk_batch_new(&x, &w.lat, 2, length, first, &b), 0);
    float *memory = calloc(12 * ROOM, sizeof *memory);
    void *work = calloc(1, 1 << 20);
    assert_true(memory && work);
    void *p[6][2];
    for (int k = 0; k < 12; k++)
        p[k / 2][k % 2] = memory + k * ROOM;
    x.workspace = work;
    x.workspace_bytes = 1 << 20;
    x.observe = &o;
    /* k, v, k_cache, v_cache, q, o */
    assert_int_equal(rlk_attention_append(&w, b, &a, place, (rlk_in)p[0], (rlk_in)p[1], p[2], p[3]), 0);
    for (int r = 0; r < 2; r++) {
        static const char *const op = "rlk.attention.append";
        int at = next_seen(&s, 0, r, op, "k", false, p[0][r], 3 * ROW);
        at = next_seen(&s, at, r, op, "v", false, p[1][r], 3 * ROW);
        for (int i = 0; i < 2; i++) { /* the rows written, and no other */
            const int row = place[i] + first[i];
            at = next_seen(&s, at, r, op, "k_cache", true, (float *)p[2][r] + row * ROW, (uint64_t)(length[i] * ROW));
            at = next_seen(&s, at, r, op, "v_cache", true, (float *)p[3][r] + row * ROW, (uint64_t)(length[i] * ROW));
        }
    }
    assert_int_equal(s.n, 12);
    s.n = 0;
    assert_int_equal(rlk_attention_cached(&w, b, &a, place, (rlk_in)p[4], (rlk_in)p[2], (rlk_in)p[3], p[5], NULL), 0);
    for (int r = 0; r < 2; r++) {
        static const char *const op = "rlk.attention.deterministic";
        int at = next_seen(&s, 0, r, op, "q", false, p[4][r], 6 * ROW);
        for (int i = 0; i < 2; i++) { /* the rows read */
            const uint64_t n = (uint64_t)((first[i] + length[i]) * ROW);
            at = next_seen(&s, at, r, op, "k_cache", false, (float *)p[2][r] + place[i] * ROW, n);
            at = next_seen(&s, at, r, op, "v_cache", false, (float *)p[3][r] + place[i] * ROW, n);
        }
        next_seen(&s, at, r, op, "o", true, p[5][r], 6 * ROW);
    }
    assert_int_equal(s.n, 12);
    /* Sums: this call's, not what the caller has added up. */
    s.n = 0;
    const float *lp[2] = {memory, memory};
    const uint8_t keep[3] = {1, 0, 1}, *mask[2] = {keep, keep};
    double sum[2] = {100.0, 100.0}, norm = 0.0;
    memory[0] = 3.0f;
    memory[1] = 7.0f;
    memory[2] = 4.0f;
    assert_int_equal(rlk_loss_sum(&w, b, "loss", lp, mask, sum), 0);
    assert_int_equal(s.n, 6);
    next_seen(&s, next_seen(&s, 0, 1, "rlk.loss_sum", "x", false, memory, 3), 1, "rlk.loss_sum", "mask", false, keep,
              3);
    assert_string_equal(s.t[5].name, "sum");
    assert_true(s.t[5].output && s.t[5].value[0] == 7.0 && s.t[5].value[1] == 2.0 && sum[0] == 107.0);
    s.n = 0;
    float *grad[2] = {memory, memory};
    const struct rlk_param param = {"w", 1, 3, RLK_CUT_NONE, false, grad};
    assert_int_equal(rlk_gradnorm(&w, "optimizer", 1, &param, &norm), 0);
    assert_int_equal(s.n, 4);
    assert_string_equal(s.t[3].name, "grad_norm");
    assert_true(s.t[3].output && s.t[3].elements == 1 && s.t[3].value[0] == norm && norm * norm > 73.9);
    rlk_batch_free(&x, b);
    free(memory);
    free(work);
}

static void environment(void **state)
{
    struct rlk_policy *p = rlk_policy_new();
    struct rlk_kdetail d;
    enum rlk_impl impl;
    (void)state;
    setenv("RLK_MODE", "audit", 1);
    setenv("RLK_MODE_ATTENTION", "off", 1);
    setenv("RLK_CASE_LOGP", "R/P", 1);
    assert_int_equal(rlk_policy_from_env(p, &d), 0);
    assert_int_equal(rlk_policy_mode_of(p, RLK_MODULE_FFN), RLK_MODE_AUDIT);
    assert_int_equal(rlk_policy_mode_of(p, RLK_MODULE_ATTENTION), RLK_MODE_OFF);
    assert_int_equal(rlk_policy_bind(p, RLK_MODULE_ATTENTION, "a", "c/1", &impl, &d), 0);
    assert_int_equal(impl, RLK_IMPL_PROVIDER);
    rlk_policy_side(p, RLK_SIDE_ROLLOUT);
    assert_int_equal(rlk_policy_bind(p, RLK_MODULE_LOGP, "a", "c/1", &impl, &d), 0);
    assert_int_equal(impl, RLK_IMPL_PROVIDER);
    setenv("RLK_MODE_NORM", "perhaps", 1);
    assert_int_equal(rlk_policy_from_env(p, &d), RLK_K_EINVAL);
    assert_non_null(strstr(d.text, "strict"));
    unsetenv("RLK_MODE");
    unsetenv("RLK_MODE_ATTENTION");
    unsetenv("RLK_CASE_LOGP");
    unsetenv("RLK_MODE_NORM");
    assert_int_equal(rlk_policy_mode(p, "nose=off", &d), RLK_K_EINVAL);
    assert_int_equal(rlk_policy_ablate(p, "attention", &d), RLK_K_EINVAL);
    rlk_policy_free(p);
}

static void refusals_say_what_to_change(void **state)
{
    struct rlk_lattice lat;
    struct rlk_kdetail d;
    struct rlk_dims m = {1024, 3072, 151936, 16, 8, 128};
    (void)state;
    assert_int_equal(rlk_lattice_init(&lat, 3, 1, &d), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(d.text, "1, 2, 4 or 8"));
    assert_int_equal(rlk_lattice_init(&lat, 1, 16, &d), RLK_K_EUNSUPPORTED);
    assert_int_equal(rlk_lattice_check(&m, &d), 0);
    m.kv_heads = 4;
    assert_int_equal(rlk_lattice_check(&m, &d), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(d.text, "multiple of 8"));
    m.kv_heads = 8;
    m.head_dim = 96;
    assert_int_equal(rlk_lattice_check(&m, &d), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(d.text, "64 or 128"));
    m.head_dim = 128;
    m.intermediate = 3076;
    assert_int_equal(rlk_lattice_check(&m, &d), RLK_K_EUNSUPPORTED);
    /* Operators refuse too, and a workspace that is too small names the bytes. */
    struct rlk_exec x;
    struct rlk_world w;
    struct rlk_batch *b;
    const int32_t one = 5, first = 3;
    assert_int_equal(rlk_exec_init(&x, RLK_DEVICE_CPU, NULL, NULL), 0);
    assert_int_equal(rlk_world_virtual(&w, &x, 2, 2), 0);
    assert_int_equal(rlk_batch_new(&x, &w.lat, 1, &one, &first, &b), 0);
    const struct rlk_attention a = {"attn", 16, 8, 64, RLK_K_BF16};
    assert_int_equal(rlk_attention_fwd(&w, b, &a, NULL, NULL, NULL, NULL, NULL), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(x.detail.text, "rlk_attention_cached"));
    assert_int_equal(rlk_attention_cached(&w, b, &a, &one, NULL, NULL, NULL, NULL, NULL), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(x.detail.text, "cp1"));
    assert_int_equal(rlk_linear_row_fwd(&w, b, "o", 100, 64, RLK_K_BF16, NULL, NULL, NULL), RLK_K_EUNSUPPORTED);
    assert_non_null(strstr(x.detail.text, "multiple of 8"));
    assert_int_equal(rlk_linear_row_fwd(&w, b, "o", 64, 64, RLK_K_FP64, NULL, NULL, NULL), RLK_K_EUNSUPPORTED);
    void *p[4] = {&p, &p, &p, &p};
    assert_int_equal(rlk_linear_row_fwd(&w, b, "o", 64, 64, RLK_K_BF16, (rlk_in)p, (rlk_in)p, p), RLK_K_ENOMEM);
    assert_non_null(strstr(x.detail.text, "rlk_exec_measure"));
    const int32_t id[5] = {0, 1, 300, 0, 0};
    assert_int_equal(rlk_embedding_fwd(&w, b, "e", 300, 64, RLK_K_BF16, id, (rlk_in)p, p), RLK_K_EINVAL);
    assert_non_null(strstr(x.detail.text, "id 300 of token 2"));
    rlk_batch_free(&x, b);
}

/* Placements of the lattice: disjoint, covering, for every length and CP; zigzag is balanced at multiples of 256. */
/* A measured workspace is that of the implementation that the policy picks: it suffices, a byte less does not, and
 * measuring is not counted. */
static void measuring_follows_the_policy(void **state)
{
    static const char *const MODE[] = {"strict", "off"};
    static float memory[1 << 16];
    size_t peak[2];
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct rlk_policy *p = rlk_policy_new();
        struct t_case c = t_small(RLK_DEVICE_CPU, p);
        struct t_env e;
        struct rlk_readback none[1];
        assert_int_equal(rlk_policy_mode(p, MODE[m], NULL), 0);
        c.tp = c.cp = 1;
        assert_int_equal(t_env_init(&e, &c), 0);
        const void *in[1] = {memory};
        void *out[1] = {memory + 8192};
        float *rstd[1] = {memory + 16384}, *grad[1] = {memory + 20000};
        const float *stats[1] = {rstd[0]};
        rlk_exec_measure(&e.x, true);
        assert_int_equal(rlk_rmsnorm_bwd(&e.w, e.b, "n", 64, RLK_K_FP32, in, in, in, stats, out, grad), 0);
        peak[m] = rlk_exec_peak(&e.x);
        rlk_exec_measure(&e.x, false);
        assert_int_equal(rlk_policy_readbacks(p, none, 1), 0);
        e.x.workspace = e.workspace = rlk_exec_alloc(&e.x, peak[m]);
        e.x.workspace_bytes = peak[m];
        assert_int_equal(rlk_rmsnorm_bwd(&e.w, e.b, "n", 64, RLK_K_FP32, in, in, in, stats, out, grad), 0);
        e.x.workspace_bytes = peak[m] - 1;
        assert_int_equal(rlk_rmsnorm_bwd(&e.w, e.b, "n", 64, RLK_K_FP32, in, in, in, stats, out, grad), RLK_K_ENOMEM);
        t_env_release(&e);
        rlk_policy_free(p);
    }
    assert_true(peak[0] > peak[1]); /* eight leaves against one */
}

static void placements_cover(void **state)
{
    (void)state;
    for (int cp = 1; cp <= 8; cp *= 2)
        for (int64_t len = 0; len < 1100; len += len < 300 ? 1 : 37) {
            const struct rlk_lattice lat = {1, cp};
            unsigned char seen[1100] = {0};
            uint64_t total = 0;
            for (int c = 0; c < cp; c++) {
                struct rlk_span s[2];
                const int n = rlk_cp_spans(&lat, c, len, s);
                uint64_t mine = 0;
                for (int i = 0; i < n; i++)
                    for (uint64_t k = s[i].start; k < s[i].start + s[i].extent; k++, mine++)
                        assert_int_equal(seen[k]++, 0);
                if (len % 256 == 0)
                    assert_int_equal(mine, len / cp);
                total += mine;
            }
            assert_int_equal(total, len);
        }
    assert_int_equal(rlk_vocab_padded(151936), 152576);
    assert_int_equal(rlk_vocab_slab(300, 2).extent, 300 - 256);
    assert_int_equal(rlk_vocab_slab(300, 3).extent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strict_equals_audit),
                                       cmocka_unit_test(cases_bind_one_side),
                                       cmocka_unit_test(ablations_hand_back_one_node),
                                       cmocka_unit_test(missing_rows),
                                       cmocka_unit_test(readbacks_equal_the_listener),
                                       cmocka_unit_test(caches_and_sums_are_announced),
                                       cmocka_unit_test(environment),
                                       cmocka_unit_test(measuring_follows_the_policy),
                                       cmocka_unit_test(refusals_say_what_to_change),
                                       cmocka_unit_test(placements_cover)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
