/* Patterns and maxima: one planted change each, and nothing found where nothing changed. */
#include "auditor/elements.h"
#include "store/rlk_error.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { ROWS = 16, COLS = 8, N = ROWS * COLS };
static float a[N], b[N];
static const uint64_t shape[] = {ROWS, COLS};

static void reset(void)
{
    for (int i = 0; i < N; i++)
        a[i] = b[i] = (float)(i * i % 97) + 1.5f;
}

static struct rlki_elements look(void)
{
    struct rlki_elements e;
    assert_int_equal(rlki_elements(&e, RLK_FP32, 2, shape, a, b, N, false, false), RLK_OK);
    return e;
}

static void test_none(void **unused)
{
    (void)unused;
    reset();
    struct rlki_elements e = look();
    assert_int_equal(e.changed, 0);
    assert_int_equal(e.fill_b, -1);
}

static void test_one_ulp(void **unused)
{
    (void)unused;
    reset();
    b[19] = nextafterf(b[19], INFINITY);
    struct rlki_elements e = look();
    assert_int_equal(e.changed, 1);
    assert_int_equal(e.first, 19);
    assert_int_equal(e.max_ulp, 1);
    assert_string_equal(e.pattern, "unknown");
    assert_string_equal(e.grade, "different");
}

static void change(int from, int to)
{
    for (int i = from; i < to; i++)
        b[i] = a[i] + 0.25f * (float)(1 + i % 3);
}

static void test_shapes(void **unused)
{
    (void)unused;
    reset();
    change(0, N);
    assert_string_equal(look().pattern, "whole");
    reset();
    change(3 * COLS, 4 * COLS);
    change(9 * COLS, 10 * COLS);
    assert_string_equal(look().pattern, "rows");
    reset();
    change(5 * COLS, N);
    assert_string_equal(look().pattern, "tail");
    reset();
    for (int r = 2; r < 12; r++)
        change(r * COLS + 5 - r % 2, (r + 1) * COLS);
    assert_string_equal(look().pattern, "suffix");
    reset();
    for (int r = 2; r < 9; r++)
        change(r * COLS + 2, r * COLS + 5);
    assert_string_equal(look().pattern, "tile");
    reset();
    for (int i = 0; i < N; i++)
        b[i] = a[i] + (float)(i / COLS + 1);
    assert_string_equal(look().pattern, "row-constant");
    reset();
    for (int i = 1; i < N; i += 5)
        change(i, i + 1);
    assert_string_equal(look().pattern, "uniform");
}

static void test_permutation(void **unused)
{
    (void)unused;
    reset();
    memcpy(b, a + COLS, COLS * sizeof *b);
    memcpy(b + COLS, a, COLS * sizeof *b);
    struct rlki_elements e = look();
    assert_string_equal(e.pattern, "permutation");
    assert_string_equal(e.grade, "permutation");
}

static void test_nan_and_fill(void **unused)
{
    (void)unused;
    reset();
    memset(b + 40, 0xff, 4 * sizeof *b);
    struct rlki_elements e = look();
    assert_int_equal(e.nan, 4);
    assert_int_equal(e.changed, 4);
    assert_int_equal(e.fill_b, 255);
    assert_int_equal(e.fill_a, -1);
    assert_false(e.measured);
    b[3] = nextafterf(b[3], INFINITY); /* one that can be measured beside them */
    e = look();
    assert_true(e.measured);
    assert_int_equal(e.nan, 4);
    assert_int_equal(e.max_ulp, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),        cmocka_unit_test(test_one_ulp),      cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_permutation), cmocka_unit_test(test_nan_and_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
