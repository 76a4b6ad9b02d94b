/* test_controls.c - negative controls: the shortcuts that the contracts forbid do change bits, on the inputs of the
 * matrix. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "kernels/rlk_num.h"

enum { K = 768, N = 512, D = 64, LEN = 257 };

static float rnd(uint32_t what, uint64_t a, uint64_t b)
{
    return rlkn_round_bf16((float)(int32_t)(t_hash(5, what, a, b) >> 32) * 0x1p-31f);
}

static float chain(uint64_t n, uint64_t from, uint64_t to)
{
    float s = 0.0f;
    for (uint64_t k = from; k < to; k++)
        s = rlkn_fma(rnd(1, n, k), rnd(2, n, k), s);
    return s;
}

static float tree(const float *v, int n)
{
    return n == 1 ? v[0] : rlkn_add(tree(v, n / 2), tree(v + n / 2, n / 2));
}

/* Rows of N outputs, by a rule; counts how many differ between layouts a and b. */
static int differing(float (*rule)(uint64_t n, int degree), int a, int b)
{
    int d = 0;
    for (uint64_t n = 0; n < N; n++) {
        const float x = rule(n, a), y = rule(n, b);
        d += memcmp(&x, &y, 4) != 0;
    }
    return d;
}

static float by_tree(uint64_t n, int ranks)
{
    float leaf[8], rank[8];
    for (uint64_t s = 0; s < 8; s++)
        leaf[s] = chain(n, s * K / 8, (s + 1) * K / 8);
    for (int r = 0; r < ranks; r++)
        rank[r] = tree(leaf + r * (8 / ranks), 8 / ranks);
    return tree(rank, ranks);
}

static float by_rank_order(uint64_t n, int ranks)
{
    float leaf[8], s = 0.0f;
    for (uint64_t k = 0; k < 8; k++)
        leaf[k] = chain(n, k * K / 8, (k + 1) * K / 8);
    for (int r = 0; r < ranks; r++) {
        const float t = tree(leaf + r * (8 / ranks), 8 / ranks);
        s = r ? rlkn_add(s, t) : t;
    }
    return s;
}

static float by_split_k(uint64_t n, int parts)
{
    float s = 0.0f;
    for (uint64_t p = 0; p < (uint64_t)parts; p++)
        s = rlkn_add(s, chain(n, p * K / (uint64_t)parts, (p + 1) * K / (uint64_t)parts));
    return s;
}

static float by_physical_rounding(uint64_t n, int ranks)
{
    float leaf[8], rank[8];
    for (uint64_t s = 0; s < 8; s++)
        leaf[s] = chain(n, s * K / 8, (s + 1) * K / 8);
    for (int r = 0; r < ranks; r++)
        rank[r] = rlkn_round_bf16(tree(leaf + r * (8 / ranks), 8 / ranks)); /* each rank stores bf16 */
    return rlkn_round_bf16(tree(rank, ranks));
}

/* Token leaves with chunks of ceil(len / 2CP), as trainers pad: the borders move with CP. */
static float by_cp_padding(uint64_t n, int cp)
{
    const uint64_t w = (LEN + 2u * (unsigned)cp - 1) / (2u * (unsigned)cp);
    float rank[8];
    for (uint64_t r = 0; r < (uint64_t)cp; r++) {
        rank[r] = 0.0f;
        for (uint64_t half = 0; half < 2; half++) {
            const uint64_t c = half ? 2 * (uint64_t)cp - 1 - r : r;
            for (uint64_t t = c * w; t < (c + 1) * w && t < LEN; t++)
                rank[r] = rlkn_fma(rnd(1, n, t), rnd(2, n, t), rank[r]);
        }
    }
    return tree(rank, cp);
}

/* One query over LEN keys in `ranks` parts, each with its own softmax, merged by log-sum-exp as a ring does. */
static float by_ring_merge(uint64_t n, int ranks)
{
    float M = -RLKN_INF, L = 0.0f, O = 0.0f;
    for (int r = 0; r < ranks; r++) {
        const uint64_t from = (uint64_t)r * LEN / (uint64_t)ranks, to = (uint64_t)(r + 1) * LEN / (uint64_t)ranks;
        float m = -RLKN_INF, l = 0.0f, o = 0.0f;
        for (uint64_t j = from; j < to; j++)
            m = rlkn_max(m, rnd(3, n, j) * 4.0f);
        for (uint64_t j = from; j < to; j++) {
            const float p = rlkn_exp(rlkn_add(rnd(3, n, j) * 4.0f, -m));
            l = rlkn_add(l, p);
            o = rlkn_fma(p, rnd(4, n, j), o);
        }
        const float top = rlkn_max(M, m), a = rlkn_exp(rlkn_add(M, -top)), b = rlkn_exp(rlkn_add(m, -top));
        L = rlkn_add(rlkn_mul(L, a), rlkn_mul(l, b));
        O = rlkn_add(rlkn_mul(O, a), rlkn_mul(o, b));
        M = top;
    }
    return rlkn_div(O, L);
}

static void the_tree_holds(void **state)
{
    (void)state;
    for (int t = 2; t <= 8; t *= 2)
        assert_int_equal(differing(by_tree, 1, t), 0);
}

static void shortcuts_fail(void **state)
{
    (void)state;
    const struct {
        const char *name;
        float (*rule)(uint64_t, int);
        int a, b;
    } C[] = {{"fold in rank order", by_rank_order, 1, 8},
             {"split k", by_split_k, 1, 4},
             {"ring merge", by_ring_merge, 1, 4},
             {"rounding at the physical shard", by_physical_rounding, 1, 4},
             {"chunks that depend on CP", by_cp_padding, 2, 4}};
    for (size_t i = 0; i < sizeof C / sizeof *C; i++) {
        const int d = differing(C[i].rule, C[i].a, C[i].b);
        printf("%s: %d of %d outputs differ between degree %d and %d\n", C[i].name, d, N, C[i].a, C[i].b);
        assert_true(d > 0);
    }
}

/* The matrix's own comparison sees it: under the provider the same harness reports a difference between layouts. */
static void the_matrix_can_fail(void **state)
{
    static const int32_t L[] = {17, 257};
    static const char *const MODULE[] = {"linear", "ffn", "attention", "logp", "norm", "gradnorm"};
    (void)state;
    for (size_t i = 0; i < sizeof MODULE / sizeof *MODULE; i++) {
        struct rlk_policy *p = rlk_policy_new();
        char text[64], why[256];
        struct t_case c = {.device = RLK_DEVICE_CPU,
                           .tp = 1,
                           .cp = 1,
                           .threads = 2,
                           .sequences = 2,
                           .length = L,
                           .type = RLK_K_FP32,
                           .fill = FILL_RANDOM,
                           .seed = 5,
                           .head_dim = 64,
                           .policy = p};
        struct t_result a, b;
        size_t at;
        snprintf(text, sizeof text, "%s=off", MODULE[i]);
        assert_int_equal(rlk_policy_mode(p, text, NULL), 0);
        assert_int_equal(t_run(&c, &a, why), 0);
        c.tp = 4;
        c.cp = 4;
        const int rc = t_run(&c, &b, why); /* the ranks may even disagree with one another */
        bool seen = rc != 0;
        for (int k = 0; !rc && k < a.n; k++)
            seen |=
                strcmp(a.out[k].module, MODULE[i]) == 0 && memcmp(a.out[k].data, b.out[k].data, a.out[k].bytes) != 0;
        if (!seen)
            fail_msg("the provider's %s is the same under tp1cp1 and tp4cp4: the matrix could not fail", MODULE[i]);
        (void)at;
        t_result_free(&a);
        t_result_free(&b);
        rlk_policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_tree_holds), cmocka_unit_test(shortcuts_fail),
                                       cmocka_unit_test(the_matrix_can_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
