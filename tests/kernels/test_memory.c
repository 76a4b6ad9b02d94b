/* test_memory.c - memory that runs out at the n-th allocation inside the library, for every n, over every operator,
 * forward and backward, by contract and by the provider, watched or not: RLK_K_ENOMEM with words, or the very same
 * bytes. Nothing leaks (asan preset). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "tests/failing_alloc.h"

static void inside_only(bool inside)
{
    alloc_exempt = !inside;
}

static void begin(void *self, const struct rlk_op_event *event)
{
    (void)self, (void)event;
}
static void tensor(void *self, const struct rlk_op_event *event, const struct rlk_observed *t)
{
    (void)event;
    *(uint64_t *)self += t->elements;
}

/* Every n; returns how many allocations there were. */
static long every_allocation(const struct t_case *c)
{
    struct t_result whole, got;
    char why[256];
    size_t at;
    long n = 0, refused = 0;
    alloc_restore();
    if (t_run(c, &whole, why))
        fail_msg("with memory: %s", why);
    const long all = alloc_calls();
    for (n = 1; n <= all; n++) {
        alloc_fail(n, 1);
        const int rc = t_run(c, &got, why);
        const bool hit = alloc_hit();
        alloc_restore();
        if (!hit && n < all - 8)
            fail_msg("allocation %ld of %ld was not reached", n, all);
        if (rc != 0 && (rc != RLK_K_ENOMEM || !strstr(why, "memory")))
            fail_msg("allocation %ld of %ld: code %d, \"%s\"", n, all, rc, why);
        if (rc == 0 && t_compare(&whole, &got, &at) >= 0)
            fail_msg("allocation %ld of %ld: other bytes, and no error", n, all);
        refused += rc != 0;
        t_result_free(&got);
    }
    t_result_free(&whole);
    if (refused < all - 1) /* only the pool of threads may be done without */
        fail_msg("%ld of %ld allocations failed unnoticed", all - refused, all);
    return all;
}

static void by_contract(void **state)
{
    static const int32_t L[] = {5, 0, 3};
    (void)state;
    const struct t_case c = {.device = RLK_DEVICE_CPU,
                             .tp = 2,
                             .cp = 2,
                             .threads = 1,
                             .sequences = 3,
                             .length = L,
                             .type = RLK_K_BF16,
                             .seed = 3,
                             .head_dim = 64};
    assert_true(every_allocation(&c) > 40);
}

static void by_provider(void **state)
{
    static const int32_t L[] = {3, 2};
    (void)state;
    struct rlk_policy *policy = rlk_policy_new();
    assert_non_null(policy);
    assert_int_equal(rlk_policy_mode(policy, "off", NULL), 0);
    const struct t_case c = {.device = RLK_DEVICE_CPU,
                             .tp = 1,
                             .cp = 1,
                             .threads = 1,
                             .sequences = 2,
                             .length = L,
                             .type = RLK_K_FP32,
                             .seed = 3,
                             .head_dim = 64,
                             .policy = policy};
    assert_true(every_allocation(&c) > 40);
    rlk_policy_free(policy);
}

/* Many sequences: the placement of a tensor needs memory of its own. */
static void watched(void **state)
{
    static uint64_t elements;
    static const struct rlk_observe listener = {&elements, begin, tensor, begin};
    int32_t length[70];
    (void)state;
    for (int i = 0; i < 70; i++)
        length[i] = 1;
    struct t_case c = {.device = RLK_DEVICE_CPU,
                       .tp = 1,
                       .cp = 1,
                       .threads = 1,
                       .sequences = 70,
                       .length = length,
                       .type = RLK_K_BF16,
                       .seed = 3,
                       .head_dim = 64};
    struct t_result r;
    char why[256];
    alloc_restore();
    assert_int_equal(t_run(&c, &r, why), 0);
    const long silent = alloc_calls();
    t_result_free(&r);
    c.observe = &listener;
    c.cp = 2;
    for (int i = 0; i < 70; i++)
        length[i] = 17; /* CP cuts each into two spans */
    alloc_restore();
    assert_int_equal(t_run(&c, &r, why), 0);
    const long all = alloc_calls();
    t_result_free(&r);
    assert_true(all > silent);
    long unnoticed = 0;
    for (long n = 1; n <= all; n += 1 + all / 12) { /* a run takes long: a dozen places */
        alloc_fail(n, ALLOC_ALL);
        const int rc = t_run(&c, &r, why);
        alloc_restore();
        unnoticed += rc != RLK_K_ENOMEM;
        t_result_free(&r);
    }
    assert_int_equal(unnoticed, 0);
}

static void small_things(void **state)
{
    (void)state;
    alloc_exempt = false;
    for (long n = 1;; n++) {
        alloc_fail(n, 1);
        struct rlk_pool *pool = rlk_pool_new(2);
        const bool hit = alloc_hit();
        alloc_restore();
        assert_true(hit ? !pool : pool != NULL);
        rlk_pool_free(pool);
        if (!hit)
            break;
    }
    alloc_fail(1, 1);
    assert_null(rlk_policy_new());
    alloc_restore();
    struct rlk_exec x;
    assert_int_equal(rlk_exec_init(&x, RLK_DEVICE_CPU, NULL, NULL), 0);
    alloc_fail(1, 1);
    assert_null(rlk_exec_alloc(&x, 100));
    alloc_restore();
    alloc_exempt = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_contract), cmocka_unit_test(by_provider),
                                       cmocka_unit_test(watched), cmocka_unit_test(small_things)};
    t_bracket = inside_only;
    alloc_exempt = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
