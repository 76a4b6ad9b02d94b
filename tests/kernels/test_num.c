/* test_num.c - exp, log, rsqrt, sigmoid: accuracy against FP64, vector against scalar, GPU against CPU.
 * Without an argument samples of the 2^32 inputs; all of them with `long`, and GPU against CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "kernels/rlk_num.h"
#include "kernels/rlki_prims.h"
#include "test_num_near.h"

static enum rlk_device device;
static bool whole;
static const char *const NAME[] = {"exp", "log", "rsqrt", "sigmoid"};
static const double LIMIT[] = {1.0, 1.0, 1.5, 2.5}; /* ulp */

static float apply(int which, float v)
{
    return rlkn_canon(which == 0   ? rlkn_exp(v)
                      : which == 1 ? rlkn_log(v)
                      : which == 2 ? rlkn_rsqrt(v)
                                   : rlkn_sigmoid(v));
}

static double exact(int which, double v)
{
    return which == 0 ? exp(v) : which == 1 ? log(v) : which == 2 ? 1.0 / sqrt(v) : 1.0 / (1.0 + exp(-v));
}

static double ulps(float got, double want)
{
    if (isnan(want) || isinf(got) || fabs(want) > 0x1.fffffep127)
        return isnan(want) == (got != got) && (isnan(want) || (float)want == got || fabs(want) > 0x1.fffffep127) ? 0.0
                                                                                                                 : 1e9;
    int e;
    frexp(want, &e);
    const double unit = ldexp(1.0, e - 24 > -149 ? e - 24 : -149);
    return fabs((double)got - want) / unit;
}

static void accuracy(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        double worst = 0.0;
        float at = 0.0f;
        for (uint64_t u = 0; u < 1ull << 32; u += whole ? 499 : 40961) {
            const float v = rlkn_float((uint32_t)u);
            const double want = exact(which, (double)v);
            if (which == 3 && want < 0x1p-126)
                continue; /* below x = -87.3 the quotient's divisor overflows before the result leaves the subnormals */
            const double d = ulps(apply(which, v), want);
            if (d > worst) {
                worst = d;
                at = v;
            }
        }
        printf("%s: at most %.3f ulp (at %a)\n", NAME[which], worst, (double)at);
        assert_true(worst <= LIMIT[which]);
    }
}

static void special_values(void **state)
{
    (void)state;
    assert_true(rlkn_exp(0.0f) == 1.0f && rlkn_exp(-0.0f) == 1.0f);
    assert_true(rlkn_exp(RLKN_INF) == RLKN_INF && rlkn_exp(-RLKN_INF) == 0.0f && rlkn_exp(89.0f) == RLKN_INF);
    assert_true(rlkn_exp(-103.0f) > 0.0f); /* subnormal */
    assert_true(rlkn_exp(RLKN_NAN) != rlkn_exp(RLKN_NAN));
    assert_true(rlkn_log(1.0f) == 0.0f && rlkn_log(0.0f) == -RLKN_INF && rlkn_log(-0.0f) == -RLKN_INF);
    assert_true(rlkn_log(RLKN_INF) == RLKN_INF && rlkn_log(-1.0f) != rlkn_log(-1.0f));
    assert_int_equal(rlkn_to_bf16(RLKN_NAN), 0x7fc0);
    assert_int_equal(rlkn_to_bf16(rlkn_float(0xffc12345u)), 0x7fc0);
    assert_int_equal(rlkn_to_bf16(rlkn_float(0x7f7fffffu)), 0x7f80);
    assert_int_equal(rlkn_bits(rlkn_canon(rlkn_float(0xff800001u))), 0x7fc00000);
    assert_int_equal(rlkn_to_bf16(rlkn_float(0x3f808000u)), 0x3f80); /* ties to even */
    assert_int_equal(rlkn_to_bf16(rlkn_float(0x3f818000u)), 0x3f82);
}

/* All gates of bf16, and of fp32 a sample or, with `long`, all: whatever reciprocal within 2 ulp the GPU has. */
static void near_quotients(void **state)
{
    const uint32_t end = 0x42a00000u; /* 80 */
    const uint32_t stride = whole ? 1 : 9973;
    (void)state;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        skip();
#endif
    for (int off = -2; off <= 2; off++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            assert_int_equal(near_quotient_errors(sign << 31, (end >> 16) + 1, 1u << 16, off), 0);
            for (uint64_t u = 0; u <= end; u += (uint64_t)stride << 20) {
                const uint64_t left = (end - u) / stride + 1;
                assert_int_equal(near_quotient_errors((uint32_t)u | sign << 31,
                                                      left < 1 << 20 ? (int64_t)left : 1 << 20, stride, off),
                                 0);
            }
        }
    assert_true(near_quotient_errors(0x3f800000u, 1 << 16, 1, 1 << 20) >
                0); /* it can fail: a reciprocal good to 3 bits */
}

/* Compares two executors over stretches of n inputs, `stride` apart. NULL = the scalar text compiled here. */
static void compare(struct rlk_exec *a, struct rlk_exec *b, uint64_t stride, int64_t n)
{
    float *ref = malloc((size_t)n * sizeof *ref), *got = malloc((size_t)n * sizeof *got);
    float *out = rlk_exec_alloc(b, (size_t)n * sizeof *out);
    for (int which = 0; which < 4; which++)
        for (uint64_t u = 0; u < 1ull << 32; u += stride) {
            if (a)
                a->prims->math(a, which, (uint32_t)u, n, ref);
            for (int64_t k = 0; !a && k < n; k++)
                ref[k] = apply(which, rlkn_float((uint32_t)u + (uint32_t)k));
            assert_int_equal(b->prims->math(b, which, (uint32_t)u, n, out), 0);
            assert_int_equal(rlk_exec_download(b, got, out, (size_t)n * sizeof *got), 0);
            if (memcmp(ref, got, (size_t)n * sizeof *got) == 0)
                continue;
            for (int64_t k = 0; k < n; k++)
                if (memcmp(&ref[k], &got[k], 4) != 0)
                    fail_msg("%s(%a) on %s: %a, not %a", NAME[which], (double)rlkn_float((uint32_t)u + (uint32_t)k),
                             rlk_exec_isa(b), (double)got[k], (double)ref[k]);
        }
    rlk_exec_free(b, out);
    free(ref);
    free(got);
}

/* Scalar text = each instruction set on a sample; on all inputs: AVX2 = AVX-512 with `long`, GPU = CPU on a GPU. */
static void one_set_of_bits(void **state)
{
    static const char *const ISA[] = {"generic", "avx2", "avx512"};
    struct rlk_pool *pool = rlk_pool_new(0);
    struct rlk_exec x[3], gpu;
    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv("RLK_CPU_ISA", ISA[i], 1);
        assert_int_equal(rlk_exec_init(&x[i], RLK_DEVICE_CPU, NULL, pool), 0);
        if (device == RLK_DEVICE_CPU)
            compare(NULL, &x[i], 64ull << 20, 1 << 15);
    }
    unsetenv("RLK_CPU_ISA");
    if (device == RLK_DEVICE_CUDA) {
        assert_int_equal(rlk_exec_init(&gpu, device, NULL, pool), 0);
        compare(&x[2], &gpu, 1ull << 24, 1 << 24);
    } else if (whole) {
        compare(&x[1], &x[2], 1ull << 24, 1 << 24);
    }
    rlk_pool_free(pool);
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    for (int i = 1; i < argc; i++)
        whole |= strcmp(argv[i], "long") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(accuracy), cmocka_unit_test(special_values),
                                       cmocka_unit_test(near_quotients), cmocka_unit_test(one_set_of_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
