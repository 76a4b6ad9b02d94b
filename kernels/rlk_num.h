/* rlk_num.h - the arithmetic of the class portable/1: one text for the CPU and for CUDA (docs/contracts.md, section 2).
 *
 * Everything here is IEEE binary32 (or binary64), round to nearest even, subnormals kept, each operation rounded once.
 * A fused multiply-add happens only where rlkn_fma is written: the C side is compiled with -ffp-contract=off, the CUDA
 * side with -fmad=false. The functions are pure; every value of every bit pattern gives the same bits on both sides,
 * apart from the payload of a NaN, which rlkn_canon and rlkn_to_bf16 make equal where a tensor is written.
 *
 * Accuracy, measured over all finite inputs against binary64 (tests/kernels/test_num.c):
 *   exp 0.51 + 0.5 ulp class: at most 1 ulp; log at most 1 ulp; rsqrt and sigmoid at most 2 ulp.
 */
#ifndef KERNELS_RLK_NUM_H
#define KERNELS_RLK_NUM_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define RLKN_FN static __host__ __device__ __forceinline__
#else
#define RLKN_FN static inline __attribute__((always_inline))
#endif

#if defined(__CUDA_ARCH__)
RLKN_FN float rlkn_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
RLKN_FN float rlkn_add(float a, float b)
{
    return __fadd_rn(a, b);
}
RLKN_FN float rlkn_mul(float a, float b)
{
    return __fmul_rn(a, b);
}
RLKN_FN float rlkn_div(float a, float b)
{
    return __fdiv_rn(a, b);
}
RLKN_FN float rlkn_sqrt(float a)
{
    return __fsqrt_rn(a);
}
RLKN_FN uint32_t rlkn_bits(float a)
{
    return __float_as_uint(a);
}
RLKN_FN float rlkn_float(uint32_t u)
{
    return __uint_as_float(u);
}
#else
RLKN_FN float rlkn_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
RLKN_FN float rlkn_add(float a, float b)
{
    return a + b;
}
RLKN_FN float rlkn_mul(float a, float b)
{
    return a * b;
}
RLKN_FN float rlkn_div(float a, float b)
{
    return a / b;
}
RLKN_FN float rlkn_sqrt(float a)
{
    return __builtin_sqrtf(a);
}
RLKN_FN uint32_t rlkn_bits(float a)
{
    uint32_t u;
    memcpy(&u, &a, 4);
    return u;
}
RLKN_FN float rlkn_float(uint32_t u)
{
    float a;
    memcpy(&a, &u, 4);
    return a;
}
#endif

#define RLKN_INF (rlkn_float(0x7f800000u))
#define RLKN_NAN (rlkn_float(0x7fc00000u))

/* The canonical NaN for any NaN, every other value unchanged. */
RLKN_FN float rlkn_canon(float a)
{
    return a == a ? a : RLKN_NAN;
}

/* bf16: exact upwards; downwards to nearest even, overflow to infinity, any NaN to 0x7fc0. */
RLKN_FN float rlkn_from_bf16(uint16_t h)
{
    return rlkn_float((uint32_t)h << 16);
}
RLKN_FN uint16_t rlkn_to_bf16(float a)
{
    const uint32_t u = rlkn_bits(a);
    const uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(a == a ? r : 0x7fc0u);
}
RLKN_FN float rlkn_round_bf16(float a)
{
    return rlkn_from_bf16(rlkn_to_bf16(a));
}

/* The larger value; NaN if either is one. Which zero comes back is left open: callers add +0 or do not look. */
RLKN_FN float rlkn_max(float a, float b)
{
    return ((a > b) | (a != a)) ? a : b;
}

/* e^r, r = x - n*ln2 in two fused steps, degree 7. n, the integer nearest to x*log2(e), stands in the low bits of *t.
 */
RLKN_FN float rlkn_exp_part(float x, float *t)
{
    *t = rlkn_fma(x, 0x1.715476p+0f, 12582912.0f);
    const float n = rlkn_add(*t, -12582912.0f);
    float r = rlkn_fma(n, -0x1.62e430p-1f, x);
    r = rlkn_fma(n, 0x1.05c610p-29f, r);
    float q = 0x1.a124e6p-13f;
    q = rlkn_fma(q, r, 0x1.6d4318p-10f);
    q = rlkn_fma(q, r, 0x1.1110e0p-7f);
    q = rlkn_fma(q, r, 0x1.5554eap-5f);
    q = rlkn_fma(q, r, 0x1.555556p-3f);
    q = rlkn_fma(q, r, 0.5f);
    q = rlkn_fma(rlkn_mul(q, r), r, r);
    return rlkn_add(q, 1.0f);
}

/* e^x: rlkn_exp_part, then 2^n in two exact-or-last multiplications, so that subnormal results are rounded once.
 * Overflow gives +inf, underflow +0. */
RLKN_FN float rlkn_exp(float x)
{
    float c = x > 90.0f ? 90.0f : x;
    c = c < -105.0f ? -105.0f : c;
    float t;
    const float q = rlkn_exp_part(c, &t);
    const int32_t k = (int32_t)(rlkn_bits(t) - 0x4b400000u);
    const int32_t k1 = k >> 1;
    const int32_t k2 = k - k1;
    const float s1 = rlkn_float((uint32_t)(k1 + 127) << 23);
    const float s2 = rlkn_float((uint32_t)(k2 + 127) << 23);
    const float y = rlkn_mul(rlkn_mul(q, s1), s2);
    return x == x ? y : x;
}

/* Natural logarithm: x = 2^e * (1+f), sqrt(1/2) <= 1+f < sqrt(2), degree 11 in f. log(0) = -inf, log(<0) = NaN. */
RLKN_FN float rlkn_log(float x)
{
    const int tiny = x < 0x1p-126f;
    const float a = tiny ? rlkn_mul(x, 0x1p+23f) : x;
    const uint32_t u = rlkn_bits(a);
    const int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    const float m = rlkn_float(u - ((uint32_t)e << 23));
    const float ef = rlkn_add((float)e, tiny ? -23.0f : 0.0f);
    const float f = rlkn_add(m, -1.0f);
    float q = 0x1.1d8ea6p-4f;
    q = rlkn_fma(q, f, -0x1.d635bcp-4f);
    q = rlkn_fma(q, f, 0x1.dea282p-4f);
    q = rlkn_fma(q, f, -0x1.fcf4c6p-4f);
    q = rlkn_fma(q, f, 0x1.23d21ap-3f);
    q = rlkn_fma(q, f, -0x1.555b4ap-3f);
    q = rlkn_fma(q, f, 0x1.999d5ap-3f);
    q = rlkn_fma(q, f, -0x1.fffffcp-3f);
    q = rlkn_fma(q, f, 0x1.555554p-2f);
    const float s = rlkn_mul(f, f);
    float h = rlkn_fma(rlkn_mul(q, f), s, rlkn_mul(s, -0.5f));
    h = rlkn_fma(ef, -0x1.05c610p-29f, h);
    h = rlkn_add(f, h);
    float y = rlkn_fma(ef, 0x1.62e430p-1f, h);
    y = x == 0.0f ? -RLKN_INF : y;
    y = x < 0.0f ? RLKN_NAN : y;
    y = x == RLKN_INF ? x : y;
    return x == x ? y : x;
}

/* 1/sqrt(x) and 1/(1+e^-x): two and three IEEE operations around them. */
RLKN_FN float rlkn_rsqrt(float x)
{
    return rlkn_div(1.0f, rlkn_sqrt(x));
}
RLKN_FN float rlkn_sigmoid(float x)
{
    return rlkn_div(1.0f, rlkn_add(1.0f, rlkn_exp(-x)));
}

/* 1 + e^x for |x| <= 80, the bits of rlkn_add(1, rlkn_exp(x)) with half the work: 2^n is then one normal number and the
 * last product exact. */
RLKN_FN float rlkn_one_plus_exp_near(float x)
{
    float t;
    const float q = rlkn_exp_part(x, &t);
    return rlkn_fma(q, rlkn_float((rlkn_bits(t) << 23) + 0x3f800000u), 1.0f);
}

/* a / b, the bits of rlkn_div(a, b), from any r within 2 ulp of 1/b: one Newton step, then the quotient is corrected by
 * its exact remainder, taken as b*q - a so that a zero keeps its sign. For b = 1 + e^-g with a = g or a = 1, |g| <= 80:
 * there no step leaves the normal numbers (below 2^-25 b is 2, and g/2 is right by itself). tests/kernels/test_num.c
 * tries all g. The exception: a power of two over 0x1.fffffep+k lies next to the middle of two floats and needs the
 * nearest r. A GPU's reciprocal unit has it, for the GPU's own division takes these very steps. */
RLKN_FN float rlkn_quotient_near(float a, float b, float r)
{
    r = rlkn_fma(rlkn_fma(-b, r, 1.0f), r, r);
    const float q = rlkn_mul(a, r);
    return rlkn_fma(rlkn_fma(b, q, -a), -r, q);
}

/* Philox4x32-10: counter c[4], key k[2] -> c[4]. */
RLKN_FN void rlkn_philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < 10; i++) {
        const uint64_t p = (uint64_t)0xD2511F53u * c[0];
        const uint64_t q = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t d0 = (uint32_t)(q >> 32) ^ c[1] ^ k0;
        const uint32_t d2 = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)q;
        c[3] = (uint32_t)p;
        c[0] = d0;
        c[2] = d2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

#endif
