/* Element values: against tables of all codes, the processor's own conversions, and Philox's known answers. */
#include "store/rlk_dtype_value.h"
#include "tests/store/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const enum rlk_dtype small_floats[] = {RLK_FP8_E4M3,     RLK_FP8_E5M2, RLK_FP8_E4M3FNUZ,
                                              RLK_FP8_E5M2FNUZ, RLK_FP16,     RLK_BF16};
#define NSMALL (sizeof small_floats / sizeof small_floats[0])

static uint64_t codes(enum rlk_dtype dtype)
{
    return UINT64_C(1) << (8 * rlk_dtype_bytes(dtype));
}

static void philox_known_answers(void **state)
{
    (void)state;
    uint32_t w[4];
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u},
                   pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    rlk_philox4x32_10(w, 0, 0, zero);
    assert_memory_equal(w, want[0], sizeof w);
    rlk_philox4x32_10(w, ~0u, ~0u, ones);
    assert_memory_equal(w, want[1], sizeof w);
    rlk_philox4x32_10(w, 0xa4093822, 0x299f31d0, pi);
    assert_memory_equal(w, want[2], sizeof w);
}

static void named_values(void **state)
{
    (void)state;
    static const struct {
        enum rlk_dtype dtype;
        uint64_t bits;
        double value;
    } rows[] = {
        {RLK_FP8_E4M3, 0x7e, 448},
        {RLK_FP8_E4M3, 0x01, 0x1p-9},
        {RLK_FP8_E4M3, 0x38, 1},
        {RLK_FP8_E4M3, 0xb8, -1},
        {RLK_FP8_E4M3, 0x08, 0x1p-6},
        {RLK_FP8_E5M2, 0x7b, 57344},
        {RLK_FP8_E5M2, 0x01, 0x1p-16},
        {RLK_FP8_E5M2, 0x3c, 1},
        {RLK_FP8_E4M3FNUZ, 0x7f, 240},
        {RLK_FP8_E4M3FNUZ, 0x01, 0x1p-10},
        {RLK_FP8_E4M3FNUZ, 0x40, 1},
        {RLK_FP8_E5M2FNUZ, 0x7f, 57344},
        {RLK_FP8_E5M2FNUZ, 0x01, 0x1p-17},
        {RLK_FP8_E5M2FNUZ, 0x40, 1},
        {RLK_FP8_E8M0, 0, 0x1p-127},
        {RLK_FP8_E8M0, 127, 1},
        {RLK_FP8_E8M0, 254, 0x1p127},
        {RLK_FP16, 0x3c00, 1},
        {RLK_FP16, 0x7bff, 65504},
        {RLK_FP16, 0x0001, 0x1p-24},
        {RLK_BF16, 0x3f80, 1},
        {RLK_BF16, 0x7f7f, 0x1.fep127},
        {RLK_BF16, 0x0001, 0x1p-133},
        {RLK_FP32, 0x3f800000, 1},
        {RLK_FP32, 0x00000001, 0x1p-149},
        {RLK_FP32, 0xc0490fdb, -0x1.921fb6p1},
        {RLK_INT8, 0x80, -128},
        {RLK_UINT8, 0x80, 128},
        {RLK_INT64, ~UINT64_C(0), -1},
        {RLK_UINT16, 0xffff, 65535},
        {RLK_BOOL, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(rlk_scalar_to_double(rows[i].dtype, rows[i].bits) == rows[i].value);
        assert_int_equal(rlk_scalar_from_double(rows[i].dtype, rows[i].value), rows[i].bits);
    }
}

static void classes(void **state)
{
    (void)state;
    static const struct {
        enum rlk_dtype dtype;
        unsigned nan, inf, negzero; /* codes of each class */
    } rows[] = {{RLK_FP8_E4M3, 2, 0, 1},     {RLK_FP8_E5M2, 6, 2, 1}, {RLK_FP8_E4M3FNUZ, 1, 0, 0},
                {RLK_FP8_E5M2FNUZ, 1, 0, 0}, {RLK_FP8_E8M0, 1, 0, 0}, {RLK_FP16, 2046, 2, 1},
                {RLK_BF16, 254, 2, 1},       {RLK_INT8, 0, 0, 0},     {RLK_UINT8, 0, 0, 0},
                {RLK_BOOL, 0, 0, 0},         {RLK_INT16, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned count[4] = {0};
        for (uint64_t bits = 0; bits < codes(rows[i].dtype); bits++) {
            enum rlk_value_class class = rlk_scalar_class(rows[i].dtype, bits);
            double v = rlk_scalar_to_double(rows[i].dtype, bits);
            count[class]++;
            assert_int_equal(class == RLK_VALUE_NAN, isnan(v) != 0);
            assert_int_equal(class == RLK_VALUE_INF, isinf(v) != 0);
            assert_int_equal(class == RLK_VALUE_NEGZERO, v == 0 && signbit(v) != 0);
        }
        assert_int_equal(count[RLK_VALUE_NAN], rows[i].nan);
        assert_int_equal(count[RLK_VALUE_INF], rows[i].inf);
        assert_int_equal(count[RLK_VALUE_NEGZERO], rows[i].negzero);
        if (rows[i].nan)
            assert_int_equal(rlk_scalar_class(rows[i].dtype, rlk_dtype_nan(rows[i].dtype)), RLK_VALUE_NAN);
    }
    assert_int_equal(rlk_scalar_class(RLK_FP64, UINT64_C(1) << 63), RLK_VALUE_NEGZERO);
    assert_int_equal(rlk_scalar_class(RLK_FP64, 0x7ff0000000000001), RLK_VALUE_NAN);
    assert_int_equal(rlk_scalar_class(RLK_FP32, 0xff800000), RLK_VALUE_INF);
    assert_int_equal(rlk_scalar_class(RLK_COMPLEX64, 0xff800000), RLK_VALUE_OTHER);
}

/* Every finite code: decodes, encodes back, and lies one ordered step above the code before it. */
static void codes_round_trip_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < NSMALL; i++) {
        enum rlk_dtype dtype = small_floats[i];
        double before = -(double)INFINITY;
        int64_t limit = (int64_t)codes(dtype) / 2, ordered_before = -limit;
        for (int64_t o = -limit + 1; o < limit; o++) {
            uint64_t bits = o < 0 ? (uint64_t)-o | codes(dtype) / 2 : (uint64_t)o;
            enum rlk_value_class class = rlk_scalar_class(dtype, bits);
            if (class == RLK_VALUE_NAN || class == RLK_VALUE_INF)
                continue;
            double v = rlk_scalar_to_double(dtype, bits);
            assert_true(v > before);
            assert_int_equal(rlk_scalar_from_double(dtype, v), bits);
            assert_int_equal(rlk_scalar_ordered(dtype, bits), o);
            if (ordered_before != -limit)
                assert_int_equal(rlk_scalar_ulp(dtype, bits, rlk_scalar_from_double(dtype, before)), 1);
            before = v;
            ordered_before = o;
        }
    }
}

/* Nearest code by looking at all of them, ties to the even one. The next step past the largest counts as overflow. */
static uint64_t nearest(enum rlk_dtype dtype, double v)
{
    bool fnuz = dtype == RLK_FP8_E4M3FNUZ || dtype == RLK_FP8_E5M2FNUZ;
    uint64_t half = codes(dtype) / 2, best = 0, inf, top = 0;
    double a = fabs(v), best_distance = (double)INFINITY;
    for (uint64_t bits = 0; bits < half; bits++)
        if (isfinite(rlk_scalar_to_double(dtype, bits)))
            top = bits;
    for (uint64_t bits = 0; bits <= top + 1; bits++) {
        double at = bits <= top ? rlk_scalar_to_double(dtype, bits)
                                : 2 * rlk_scalar_to_double(dtype, top) - rlk_scalar_to_double(dtype, top - 1);
        double distance = fabs(a - at);
        if (distance < best_distance || (distance == best_distance && (bits & 1) == 0)) {
            best = bits;
            best_distance = distance;
        }
    }
    uint64_t sign = signbit(v) ? half : 0;
    if (best > top)
        return fnuz ? half : (rlk_dtype_inf(dtype, &inf) ? inf : rlk_dtype_nan(dtype)) | sign;
    return fnuz && best == 0 ? 0 : best | sign;
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    struct rng r = rng_new(11);
    for (size_t i = 0; i < NSMALL; i++) {
        enum rlk_dtype dtype = small_floats[i];
        uint64_t half = codes(dtype) / 2;
        for (int round = 0; round < (half > 128 ? 60 : 3000); round++) {
            double a = rlk_scalar_to_double(dtype, rng_below(&r, half)), b, v;
            uint64_t step = rng_below(&r, 4);
            if (!isfinite(a))
                continue;
            b = rlk_scalar_to_double(dtype, rlk_scalar_from_double(dtype, a * 1.0625));
            v = step == 0   ? (a + b) / 2 /* a tie */
                : step == 1 ? nextafter((a + b) / 2, (double)INFINITY)
                : step == 2 ? nextafter((a + b) / 2, 0)
                            : a * (1 + (double)rng_below(&r, 1000) / 4000);
            if (!isfinite(v))
                continue;
            v = rng_one_in(&r, 2) ? -v : v;
            if (rlk_scalar_from_double(dtype, v) != nearest(dtype, v))
                fail_msg("%s: %a gives %llx, nearest is %llx", rlk_dtype_name(dtype), v,
                         (unsigned long long)rlk_scalar_from_double(dtype, v), (unsigned long long)nearest(dtype, v));
        }
    }
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E4M3, 464), 0x7e); /* halfway to where Inf would be: to even */
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E4M3, nextafter(464, 1e9)), 0x7f);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E4M3, -1e9), 0xff);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E5M2, 61440), 0x7c);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E4M3FNUZ, -1e9), 0x80);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E4M3FNUZ, -0.0), 0);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E8M0, 1.5), 128); /* ties up */
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E8M0, 1.49), 127);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E8M0, 0), 0);
    assert_int_equal(rlk_scalar_from_double(RLK_FP8_E8M0, 1e300), 0xff);
    assert_int_equal(rlk_scalar_from_double(RLK_FP16, (double)NAN), 0x7e00);
}

static void fp32_as_the_processor_rounds(void **state)
{
    (void)state;
    struct rng r = rng_new(12);
    for (int round = 0; round < 200000; round++) {
        uint64_t word = rng_word(&r);
        if (round % 2) /* exponents where fp32 lives, subnormals and overflow included */
            word = (word & ~(UINT64_C(0x7ff) << 52)) | (870 + rng_below(&r, 285)) << 52;
        if (round % 8 == 3)
            word &= ~UINT64_C(0x0fffffff); /* ties */
        double v;
        float f;
        uint32_t bits;
        memcpy(&v, &word, sizeof v);
        if (isnan(v))
            continue;
        f = (float)v;
        memcpy(&bits, &f, sizeof bits);
        assert_int_equal(rlk_scalar_from_double(RLK_FP32, v), bits);
        assert_true(rlk_scalar_to_double(RLK_FP32, bits) == (double)f);
        int64_t n = (int64_t)(rng_word(&r) >> rng_below(&r, 64));
        f = (float)n;
        memcpy(&bits, &f, sizeof bits);
        assert_int_equal(rlk_scalar_from_i64(RLK_FP32, n), bits);
        f = (float)(uint64_t)n;
        memcpy(&bits, &f, sizeof bits);
        assert_int_equal(rlk_scalar_from_u64(RLK_FP32, (uint64_t)n), bits);
        v = (double)n;
        memcpy(&word, &v, sizeof word);
        assert_int_equal(rlk_scalar_from_i64(RLK_FP64, n), word);
        assert_true(rlk_scalar_to_double(RLK_INT64, (uint64_t)n) == v);
    }
    /* once to bf16, not by way of FP64: 2^55 * (1 + 2^-8) + 1 lies just above a tie */
    assert_int_equal(rlk_scalar_from_i64(RLK_BF16, (INT64_C(1) << 55) + (INT64_C(1) << 47) + 1), 0x5b01);
    assert_int_equal(rlk_scalar_from_i64(RLK_BF16, (INT64_C(1) << 55) + (INT64_C(1) << 47)), 0x5b00);
}

static void integers_round_half_to_even_and_wrap(void **state)
{
    (void)state;
    static const struct {
        enum rlk_dtype dtype;
        double v;
        uint64_t bits;
    } rows[] = {
        {RLK_INT8, 0.5, 0},
        {RLK_INT8, 1.5, 2},
        {RLK_INT8, 2.5, 2},
        {RLK_INT8, -0.5, 0},
        {RLK_INT8, -1.5, 0xfe},
        {RLK_INT8, 128, 0x80},
        {RLK_INT8, -129, 0x7f},
        {RLK_UINT8, 256, 0},
        {RLK_UINT8, -1, 0xff},
        {RLK_INT32, 1e10, 0x540be400},
        {RLK_INT64, 0x1p63, UINT64_C(1) << 63},
        {RLK_INT64, 0x1p64, 0},
        {RLK_INT64, -0x1p63, UINT64_C(1) << 63},
        {RLK_UINT64, 0x1p63, UINT64_C(1) << 63},
        {RLK_INT64, 0x1p-60, 0},
        {RLK_INT64, 5e-324, 0},
        {RLK_INT16, 0x1.fffffffffffffp-2, 0},
        {RLK_BOOL, 0.3, 0},
        {RLK_BOOL, 0.7, 1},
        {RLK_BOOL, 2, 1},
        {RLK_BOOL, -0.0, 0},
        {RLK_BOOL, 0x1p64, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(rlk_scalar_from_double(rows[i].dtype, rows[i].v), rows[i].bits);
    assert_int_equal(rlk_scalar_from_double(RLK_INT32, (double)NAN), 0);
    assert_int_equal(rlk_scalar_from_double(RLK_INT32, (double)INFINITY), 0);
    assert_int_equal(rlk_scalar_from_double(RLK_BOOL, (double)NAN), 1);
    assert_int_equal(rlk_scalar_cast(RLK_UINT8, RLK_INT64, (uint64_t)-2), 254);
    assert_int_equal(rlk_scalar_cast(RLK_BOOL, RLK_INT64, 256), 1);
    assert_int_equal(rlk_scalar_cast(RLK_INT64, RLK_UINT64, UINT64_MAX), UINT64_MAX);
    assert_int_equal(rlk_scalar_cast(RLK_FP16, RLK_FP16, 0x7dff), 0x7dff); /* a NaN's payload stays */
    assert_int_equal(rlk_scalar_cast(RLK_BF16, RLK_FP32, 0xffc12345), 0x7fc0);
}

static void ordered_steps(void **state)
{
    (void)state;
    uint64_t out;
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0x8001, 1, &out), RLK_OK);
    assert_int_equal(out, 0); /* the zero reached is +0 */
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0x8000, 1, &out), RLK_OK);
    assert_int_equal(out, 1);
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0x0001, -2, &out), RLK_OK);
    assert_int_equal(out, 0x8001);
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0x7f7f, 1, &out), RLK_OK);
    assert_int_equal(out, 0x7f80);
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0x7f7f, 2, &out), RLK_EINVAL);
    assert_int_equal(rlk_scalar_add_ulp(RLK_BF16, 0xff7f, -2, &out), RLK_EINVAL);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP8_E4M3, 0x7e, 1, &out), RLK_EINVAL);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP8_E4M3FNUZ, 0x01, -1, &out), RLK_OK);
    assert_int_equal(out, 0);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP8_E8M0, 0, -1, &out), RLK_EINVAL);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP16, 0x7e01, 5, &out), RLK_OK);
    assert_int_equal(out, 0x7e01);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP64, 0x7ff0000000000000, INT64_MAX, &out), RLK_EINVAL);
    assert_int_equal(rlk_scalar_add_ulp(RLK_FP64, 1, -2, &out), RLK_OK);
    assert_int_equal(out, (UINT64_C(1) << 63) + 1);
    assert_int_equal(rlk_scalar_add_ulp(RLK_INT8, 0x7f, 1, &out), RLK_OK);
    assert_int_equal(out, 0x80);
    assert_int_equal(rlk_scalar_add_ulp(RLK_BOOL, 1, 1, &out), RLK_OK);
    assert_int_equal(out, 0);
    assert_int_equal(rlk_scalar_ulp(RLK_FP32, 0x80000000, 0), 0);
    assert_int_equal(rlk_scalar_ulp(RLK_FP32, 0x80000001, 1), 2);
    assert_true(rlk_scalar_ulp(RLK_FP64, 0xffefffffffffffff, 0x7fefffffffffffff) == 2 * UINT64_C(0x7fefffffffffffff));
    assert_true(rlk_scalar_ulp(RLK_FP32, 0x7fc00000, 1) == UINT64_MAX);
    assert_int_equal(rlk_scalar_ulp(RLK_FP32, 0x7fc00000, 0xffc00001), 0);
    assert_true(rlk_scalar_ulp(RLK_UINT64, 0, UINT64_MAX) == UINT64_MAX);
    assert_true(rlk_scalar_ulp(RLK_INT64, UINT64_C(1) << 63, INT64_MAX) == UINT64_MAX);
}

static void unknown_types_touch_nothing(void **state)
{
    (void)state;
    unsigned char guard[16];
    memset(guard, 0x5a, sizeof guard);
    const enum rlk_dtype wrong[] = {RLK_DTYPE_NONE, (enum rlk_dtype)22, (enum rlk_dtype)255};
    for (size_t i = 0; i < 3; i++) {
        rlk_element_from_double(wrong[i], guard, 1.0);
        rlk_scalar_store(wrong[i], guard, ~UINT64_C(0));
        assert_int_equal(rlk_scalar_load(wrong[i], guard), 0);
        for (size_t k = 0; k < sizeof guard; k++)
            assert_int_equal(guard[k], 0x5a);
    }
    rlk_element_from_double(RLK_COMPLEX64, guard, 1.5);
    const float want[2] = {1.5f, 0};
    assert_memory_equal(guard, want, sizeof want);
    assert_true(rlk_element_to_double(RLK_COMPLEX64, guard) == 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(named_values),
        cmocka_unit_test(classes),
        cmocka_unit_test(codes_round_trip_in_order),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(fp32_as_the_processor_rounds),
        cmocka_unit_test(integers_round_half_to_even_and_wrap),
        cmocka_unit_test(ordered_steps),
        cmocka_unit_test(unknown_types_touch_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
