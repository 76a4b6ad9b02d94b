/* Element differences: by hand, and random edits whose effect is known. */
#include "store/rlk_dtype_value.h"
#include "store/rlk_value_diff.h"
#include "tests/store/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static void nothing_differs(void **state)
{
    (void)state;
    struct rlk_value_diff d;
    const uint16_t x[4] = {0x7fc1, 0x8000, 0x7f80, 1};
    assert_int_equal(rlk_value_diff(&d, RLK_BF16, x, x, 4), RLK_OK);
    assert_true(d.changed == 0 && d.first == 4 && d.max_ulp == 0 && d.max_abs == 0 && d.has_ulp);
    assert_true(rlk_value_diff_is_value_equal(&d) && rlk_value_diff_is_within(&d, 0));
    assert_int_equal(rlk_value_diff(&d, RLK_BF16, NULL, NULL, 0), RLK_OK);
    assert_int_equal(rlk_value_diff(&d, RLK_DTYPE_NONE, x, x, 4), RLK_EINVAL);
    assert_int_equal(rlk_value_diff(&d, (enum rlk_dtype)99, x, x, 4), RLK_EINVAL);
}

static void kinds_of_change(void **state)
{
    (void)state;
    static const struct {
        enum rlk_dtype dtype;
        uint64_t a, b;
        uint64_t zero_signs, nan_payloads, nan, max_ulp;
        double max_abs;
    } rows[] = {
        {RLK_BF16, 0x0000, 0x8000, 1, 0, 0, 0, 0},
        {RLK_BF16, 0x7fc0, 0xffff, 0, 1, 0, 0, 0},
        {RLK_BF16, 0x7fc0, 0x3f80, 0, 0, 1, 0, 0},
        {RLK_BF16, 0x3f80, 0x3f81, 0, 0, 0, 1, 0x1p-7},
        {RLK_BF16, 0x8001, 0x0001, 0, 0, 0, 2, 0x1p-132},
        {RLK_BF16, 0x7f80, 0x7f7f, 0, 0, 0, 1, (double)INFINITY},
        {RLK_BF16, 0x7f80, 0xff80, 0, 0, 0, 0xff00, (double)INFINITY},
        {RLK_FP8_E4M3, 0x7f, 0xff, 0, 1, 0, 0, 0},
        {RLK_FP8_E4M3, 0x7e, 0x7f, 0, 0, 1, 0, 0},
        {RLK_FP8_E4M3FNUZ, 0x00, 0x80, 0, 0, 1, 0, 0},
        {RLK_FP8_E8M0, 127, 129, 0, 0, 0, 2, 3},
        {RLK_FP64, 1, 2, 0, 0, 0, 1, 5e-324},
        {RLK_INT64, (uint64_t)INT64_MIN, INT64_MAX, 0, 0, 0, 0, 0x1p64},
        {RLK_INT64, (UINT64_C(1) << 53) + 1, UINT64_C(1) << 53, 0, 0, 0, 0, 1},
        {RLK_UINT64, UINT64_MAX, UINT64_MAX - 3, 0, 0, 0, 0, 3},
        {RLK_UINT8, 200, 100, 0, 0, 0, 0, 100},
        {RLK_INT8, 0x80, 0x7f, 0, 0, 0, 0, 255},
        {RLK_BOOL, 0, 1, 0, 0, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int swap = 0; swap < 2; swap++) {
            unsigned char x[8], y[8];
            struct rlk_value_diff d;
            rlk_scalar_store(rows[i].dtype, x, rows[i].a);
            rlk_scalar_store(rows[i].dtype, y, rows[i].b);
            assert_int_equal(rlk_value_diff(&d, rows[i].dtype, swap ? y : x, swap ? x : y, 1), RLK_OK);
            assert_true(d.changed == 1 && d.first == 0);
            assert_int_equal(d.zero_signs, rows[i].zero_signs);
            assert_int_equal(d.nan_payloads, rows[i].nan_payloads);
            assert_int_equal(d.nan, rows[i].nan);
            assert_int_equal(d.max_ulp, rows[i].max_ulp);
            assert_true(d.max_abs == rows[i].max_abs);
            assert_int_equal(d.has_ulp, !rlk_dtype_is_integer(rows[i].dtype));
            assert_int_equal(rlk_value_diff_is_value_equal(&d), rows[i].zero_signs + rows[i].nan_payloads == 1);
        }
}

static void complex_elements_count_once(void **state)
{
    (void)state;
    float a[6] = {1, 0.0f, 2, 3, 0.0f, 5}, b[6] = {1, -0.0f, nextafterf(2, 3), -3, -0.0f, 5};
    struct rlk_value_diff d;
    assert_int_equal(rlk_value_diff(&d, RLK_COMPLEX64, a, b, 3), RLK_OK);
    assert_true(d.changed == 3 && d.first == 0 && d.zero_signs == 2 && d.nan_payloads == 0);
    assert_true(d.max_abs == 6.0 && d.max_ulp == 2 * 0x40400000u);
    b[1] = -1; /* a real change beside the sign of a zero is a real change */
    b[0] = -0.0f;
    a[0] = 0;
    assert_int_equal(rlk_value_diff(&d, RLK_COMPLEX64, a, b, 3), RLK_OK);
    assert_true(d.changed == 3 && d.zero_signs == 1);
    assert_false(rlk_value_diff_is_value_equal(&d));
}

/* Random places, each moved by a known number of steps. */
static void planted_changes(void **state)
{
    (void)state;
    static const enum rlk_dtype types[] = {RLK_BF16, RLK_FP32, RLK_FP64, RLK_FP16, RLK_FP8_E5M2};
    struct rng r = rng_new(41);
    for (int round = 0; round < 300; round++) {
        enum rlk_dtype dtype = types[round % 5];
        const size_t size = rlk_dtype_bytes(dtype);
        const uint64_t n = 1 + rng_below(&r, 9000);
        unsigned char *a = malloc(n * size + 1), *b = malloc(n * size);
        assert_true(a && b);
        unsigned char *x = a + 1; /* no alignment is asked for */
        for (uint64_t i = 0; i < n; i++)
            rlk_scalar_store(dtype, x + i * size,
                             rlk_scalar_from_double(dtype, (double)(rng_below(&r, 1000) + 1) / 64));
        memcpy(b, x, n * size);
        uint64_t changed = 0, first = n, most = 0;
        double far = 0;
        for (uint64_t left = rng_below(&r, 20); left; left--) {
            uint64_t i = rng_below(&r, n), bits = rlk_scalar_load(dtype, x + i * size), out;
            int64_t steps = 1 + (int64_t)rng_below(&r, 3);
            if (rlk_scalar_load(dtype, b + i * size) != bits)
                continue;
            assert_int_equal(rlk_scalar_add_ulp(dtype, bits, steps, &out), RLK_OK);
            rlk_scalar_store(dtype, b + i * size, out);
            double by = rlk_scalar_to_double(dtype, out) - rlk_scalar_to_double(dtype, bits);
            changed++;
            first = i < first ? i : first;
            most = (uint64_t)steps > most ? (uint64_t)steps : most;
            far = by > far ? by : far;
        }
        struct rlk_value_diff d;
        assert_int_equal(rlk_value_diff(&d, dtype, x, b, n), RLK_OK);
        assert_int_equal(d.changed, changed);
        assert_int_equal(d.first, first);
        assert_int_equal(d.max_ulp, most);
        assert_true(d.max_abs == far);
        assert_true(d.elements == n && d.nan == 0 && d.zero_signs == 0 && d.nan_payloads == 0);
        assert_true(rlk_value_diff_is_within(&d, most));
        assert_int_equal(rlk_value_diff_is_within(&d, most - (most > 0)), most == 0);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_differs),
        cmocka_unit_test(kinds_of_change),
        cmocka_unit_test(complex_elements_count_once),
        cmocka_unit_test(planted_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
