/* The arena, and that running out of memory is a return code wherever the digest's neighbours allocate.
 * Linked with --wrap=malloc,--wrap=calloc: the n-th call from now on fails. */
#include "store/rlk_place.h"
#include "tests/store/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static long fail_in = -1; /* calls until one fails; -1 = never */
static unsigned long calls;

static bool fails_now(void)
{
    calls++;
    return fail_in >= 0 && fail_in-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

static void gives_zeroed_aligned_disjoint_memory(void **state)
{
    (void)state;
    struct rlk_arena arena = {NULL};
    struct rng r = rng_new(21);
    static struct {
        unsigned char *p;
        size_t n;
    } got[4000];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 4000; i++) {
            size_t align = (size_t)1 << rng_below(&r, 8);
            got[i].n = rng_one_in(&r, 50) ? rng_below(&r, 200000) : rng_below(&r, 300);
            got[i].p = rlk_arena_alloc(&arena, got[i].n, align);
            assert_non_null(got[i].p);
            assert_int_equal((uintptr_t)got[i].p % align, 0);
            for (size_t k = 0; k < got[i].n; k++)
                assert_int_equal(got[i].p[k], 0);
            memset(got[i].p, (int)(i & 0xff), got[i].n);
        }
        for (size_t i = 0; i < 4000; i++)
            for (size_t k = 0; k < got[i].n; k++)
                assert_int_equal(got[i].p[k], i & 0xff);
        rlk_arena_reset(&arena);
    }
    rlk_arena_release(&arena);
    assert_null(arena.head);
    rlk_arena_release(&arena);
    rlk_arena_reset(&arena);
}

static void reset_keeps_memory_for_reuse(void **state)
{
    (void)state;
    struct rlk_arena arena = {NULL};
    for (int round = 0; round < 50; round++) {
        unsigned long before = calls;
        for (int i = 0; i < 300; i++)
            assert_non_null(rlk_arena_alloc(&arena, 100, 8));
        if (round > 8)
            assert_int_equal(calls, before);
        rlk_arena_reset(&arena);
    }
    rlk_arena_release(&arena);
}

static void refuses_what_no_memory_can_hold(void **state)
{
    (void)state;
    struct rlk_arena arena = {NULL};
    assert_null(rlk_arena_alloc(&arena, SIZE_MAX, 8));
    assert_null(rlk_arena_alloc(&arena, SIZE_MAX - 64, 64));
    assert_null(rlk_arena_alloc(&arena, 8, 0));
    assert_null(rlk_arena_alloc(&arena, 8, 3));
    assert_non_null(rlk_arena_alloc(&arena, 0, 8));
    rlk_arena_release(&arena);
}

static void out_of_memory_is_a_return_code(void **state)
{
    (void)state;
    const uint64_t shape[2] = {6, 256};
    const uint32_t nruns[2] = {2, 1};
    const struct rlk_run runs[3] = {{0, 2}, {4, 2}, {0, 256}}, rest[2] = {{2, 2}, {0, 256}};
    const uint32_t nrest[2] = {1, 1};
    const struct rlk_place a = {.ndim = 2, .shape = shape, .nruns = nruns, .runs = runs, .partial = "tp"};
    const struct rlk_place b = {.ndim = 2, .shape = shape, .nruns = nrest, .runs = rest};
    const struct rlk_place *parts[2] = {&a, &b};
    struct rlk_detail detail;
    unsigned failures = 0;
    for (long n = 0;; n++) {
        struct rlk_arena arena = {NULL};
        fail_in = n;
        struct rlk_place *copy = NULL;
        for (int i = 0; i < 100; i++) { /* more than one block */
            copy = rlk_place_copy(&arena, &a);
            if (!copy)
                break;
        }
        bool failed = copy == NULL;
        int rc = RLK_OK;
        if (!failed)
            rc = rlk_place_cover(parts, 2, &detail);
        bool reached = fail_in == -1;
        fail_in = -1;
        rlk_arena_release(&arena);
        if (!reached) {
            assert_false(failed);
            assert_int_equal(rc, RLK_OK);
            break;
        }
        assert_true(failed || rc == RLK_ENOMEM);
        failures++;
    }
    assert_true(failures > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_aligned_disjoint_memory),
        cmocka_unit_test(reset_keeps_memory_for_reuse),
        cmocka_unit_test(refuses_what_no_memory_can_hold),
        cmocka_unit_test(out_of_memory_is_a_return_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
