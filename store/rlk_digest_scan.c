/* NaN, Inf and -0 among elements. Almost always there is none, so the scan is the only pass that every element takes
 * besides the hash: it runs on vectors (GCC vector types: SSE2 or NEON as the baseline, AVX2 where the processor has
 * it) over a piece that stays in the first-level cache for the hash. */
#include "store/rlk_digest_units.h"
#include "store/rlk_dtype_value.h"

#include <string.h>

#define VECTOR 32
#if defined(__x86_64__) && !defined(RLK_NO_AVX2) /* a test builds the baseline alone */
#define HAVE_AVX2 1
#include <immintrin.h>
#else
#define HAVE_AVX2 0
#endif

typedef int8_t v8 __attribute__((vector_size(VECTOR)));
typedef int16_t v16 __attribute__((vector_size(VECTOR)));
typedef int32_t v32 __attribute__((vector_size(VECTOR)));
typedef int64_t v64 __attribute__((vector_size(VECTOR)));

/* The lanes of -1 that a comparison gives are added up: 128 of them still fit an 8-bit lane. */
_Static_assert(RLKI_PIECE / VECTOR <= 128, "the count of one lane in one piece fits int8_t");

/* How a format marks its special codes, compared as signed numbers (bit patterns without the sign are positive).
 * X(name, lane, vector, magnitude bits, NaN if the magnitude is above, or if the bits equal; Inf if the magnitude
 * equals, -0 if the bits equal, is there an Inf, is there a -0) - fnuz and e8m0 have one special code, their NaN. */
#define FORMATS(X, suffix, isa)                                                                                        \
    X(e4m3##suffix, isa, int8_t, v8, 0x7f, 0x7e, 0x7f, 0, 0x80, 0, 1)                                                  \
    X(e5m2##suffix, isa, int8_t, v8, 0x7f, 0x7c, 0x7f, 0x7c, 0x80, 1, 1)                                               \
    X(fnuz##suffix, isa, int8_t, v8, 0x7f, 0x7f, 0x80, 0, 0, 0, 0)                                                     \
    X(e8m0##suffix, isa, int8_t, v8, 0x7f, 0x7f, 0xff, 0, 0, 0, 0)                                                     \
    X(fp16##suffix, isa, int16_t, v16, 0x7fff, 0x7c00, 0x7e00, 0x7c00, 0x8000, 1, 1)                                   \
    X(bf16##suffix, isa, int16_t, v16, 0x7fff, 0x7f80, 0x7fc0, 0x7f80, 0x8000, 1, 1)                                   \
    X(fp32##suffix, isa, int32_t, v32, 0x7fffffff, 0x7f800000, 0x7fc00000, 0x7f800000, 0x80000000, 1, 1)               \
    X(fp64##suffix, isa, int64_t, v64, INT64_MAX, 0x7ff0000000000000, 0x7ff8000000000000, 0x7ff0000000000000,          \
      0x8000000000000000, 1, 1)

#define SCAN(name, isa, T, V, MAG, ABOVE, NAN_CODE, INF_CODE, NEGZERO, HAS_INF, HAS_NEGZERO)                           \
    isa static bool scan_##name(const unsigned char *p, size_t bytes)                                                  \
    {                                                                                                                  \
        V hits = {0};                                                                                                  \
        const T from = (T)(ABOVE) - (T)(HAS_INF); /* Inf is the code below the NaN */                                  \
        const T also = (HAS_NEGZERO) ? (T)(NEGZERO) : (T)(NAN_CODE);                                                   \
        uint64_t any = 0, word[VECTOR / 8];                                                                            \
        size_t i = 0;                                                                                                  \
        for (; i + VECTOR <= bytes; i += VECTOR) {                                                                     \
            V x;                                                                                                       \
            memcpy(&x, p + i, sizeof x);                                                                               \
            hits |= (V)((x & (T)(MAG)) > from) | (V)(x == also);                                                       \
        }                                                                                                              \
        memcpy(word, &hits, sizeof word);                                                                              \
        for (unsigned k = 0; k < VECTOR / 8; k++)                                                                      \
            any |= word[k];                                                                                            \
        for (; i < bytes; i += sizeof(T)) {                                                                            \
            T x;                                                                                                       \
            memcpy(&x, p + i, sizeof x);                                                                               \
            any |= (T)(x & (T)(MAG)) > from || x == also;                                                              \
        }                                                                                                              \
        return any != 0;                                                                                               \
    }

/* One vector of elements; lanes beyond the end are zeros, which are not special. */
#define CANONICALISE(name, isa, T, V, MAG, ABOVE, NAN_CODE, INF_CODE, NEGZERO, HAS_INF, HAS_NEGZERO)                   \
    isa static void canonicalise_##name(struct rlk_sums *sums, unsigned char *out, const unsigned char *p,             \
                                        size_t bytes)                                                                  \
    {                                                                                                                  \
        V nans = {0}, infs = {0}, zeros = {0};                                                                         \
        for (size_t i = 0; i < bytes; i += VECTOR) {                                                                   \
            V x = {0};                                                                                                 \
            const size_t here = bytes - i < VECTOR ? bytes - i : VECTOR;                                               \
            if (here == VECTOR)                                                                                        \
                memcpy(&x, p + i, VECTOR);                                                                             \
            else                                                                                                       \
                memcpy(&x, p + i, here);                                                                               \
            const V magnitude = x & (T)(MAG);                                                                          \
            const V nan = (V)(magnitude > (T)(ABOVE)) | (V)(x == (T)(NAN_CODE));                                       \
            const V inf = (V)(magnitude == (T)(INF_CODE)) & (T)(-(HAS_INF));                                           \
            const V zero = (V)(x == (T)(NEGZERO)) & (T)(-(HAS_NEGZERO));                                               \
            nans += nan;                                                                                               \
            infs += inf;                                                                                               \
            zeros += zero;                                                                                             \
            x = ((x & ~nan) | (nan & (T)(NAN_CODE))) & ~zero;                                                          \
            if (here == VECTOR)                                                                                        \
                memcpy(out + i, &x, VECTOR);                                                                           \
            else                                                                                                       \
                memcpy(out + i, &x, here);                                                                             \
        }                                                                                                              \
        for (size_t k = 0; k < VECTOR / sizeof(T); k++) {                                                              \
            sums->nan += (uint64_t)(-(int64_t)nans[k]);                                                                \
            sums->inf += (uint64_t)(-(int64_t)infs[k]);                                                                \
            sums->negzero += (uint64_t)(-(int64_t)zeros[k]);                                                           \
        }                                                                                                              \
    }

/* Calls the function of the component's format, or gives `otherwise`. */
#define CHOOSE(call, suffix, otherwise, ...)                                                                           \
    switch (component) {                                                                                               \
    case RLK_FP8_E4M3:                                                                                                 \
        return call##_e4m3##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP8_E5M2:                                                                                                 \
        return call##_e5m2##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP8_E4M3FNUZ:                                                                                             \
    case RLK_FP8_E5M2FNUZ:                                                                                             \
        return call##_fnuz##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP8_E8M0:                                                                                                 \
        return call##_e8m0##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP16:                                                                                                     \
        return call##_fp16##suffix(__VA_ARGS__);                                                                       \
    case RLK_BF16:                                                                                                     \
        return call##_bf16##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP32:                                                                                                     \
        return call##_fp32##suffix(__VA_ARGS__);                                                                       \
    case RLK_FP64:                                                                                                     \
        return call##_fp64##suffix(__VA_ARGS__);                                                                       \
    default:                                                                                                           \
        return otherwise;                                                                                              \
    }

#define BASE_ISA
FORMATS(SCAN, _base, BASE_ISA)
FORMATS(CANONICALISE, _base, BASE_ISA)

#if HAVE_AVX2
#define AVX2_ISA __attribute__((target("avx2")))
FORMATS(CANONICALISE, _avx2, AVX2_ISA)
SCAN(e8m0_avx2, AVX2_ISA, int8_t, v8, 0x7f, 0x7f, 0xff, 0, 0, 0, 0)
SCAN(fp64_avx2, AVX2_ISA, int64_t, v64, INT64_MAX, 0x7ff0000000000000, 0, 0, 0x8000000000000000, 1, 1)

/* The scan that matters, in three operations a vector: the largest magnitude seen, and the smallest signed number,
 * which is the bits of -0 (of NaN in the fnuz types). Nothing is special while the largest magnitude is at most FINITE.
 */
#define SCAN_AVX2(name, T, LANES, MAG, FINITE)                                                                         \
    AVX2_ISA static bool scan_##name(const unsigned char *p, size_t bytes)                                             \
    {                                                                                                                  \
        const __m256i mask = _mm256_set1_##LANES((T)(MAG));                                                            \
        __m256i high = _mm256_setzero_si256(), low = high, high2 = high, low2 = high;                                  \
        size_t i = 0;                                                                                                  \
        for (; i + 64 <= bytes; i += 64) {                                                                             \
            __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(p + i));                                    \
            __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(p + i + 32));                               \
            low = _mm256_min_##LANES(low, a);                                                                          \
            low2 = _mm256_min_##LANES(low2, b);                                                                        \
            high = _mm256_max_##LANES(high, _mm256_and_si256(a, mask));                                                \
            high2 = _mm256_max_##LANES(high2, _mm256_and_si256(b, mask));                                              \
        }                                                                                                              \
        for (; i < bytes; i += 32) {                                                                                   \
            __m256i a = _mm256_setzero_si256();                                                                        \
            memcpy(&a, p + i, bytes - i < 32 ? bytes - i : 32);                                                        \
            low = _mm256_min_##LANES(low, a);                                                                          \
            high = _mm256_max_##LANES(high, _mm256_and_si256(a, mask));                                                \
        }                                                                                                              \
        const __m256i least = _mm256_set1_##LANES((T)(UINT64_C(1) << (8 * sizeof(T) - 1)));                            \
        low = _mm256_cmpeq_##LANES(_mm256_min_##LANES(low, low2), least);                                              \
        high = _mm256_cmpgt_##LANES(_mm256_max_##LANES(high, high2), _mm256_set1_##LANES((T)(FINITE)));                \
        return _mm256_movemask_epi8(_mm256_or_si256(low, high)) != 0;                                                  \
    }
SCAN_AVX2(e4m3_avx2, int8_t, epi8, 0x7f, 0x7e)
SCAN_AVX2(e5m2_avx2, int8_t, epi8, 0x7f, 0x7b)
SCAN_AVX2(fnuz_avx2, int8_t, epi8, 0x7f, 0x7f)
SCAN_AVX2(fp16_avx2, int16_t, epi16, 0x7fff, 0x7bff)
SCAN_AVX2(bf16_avx2, int16_t, epi16, 0x7fff, 0x7f7f)
SCAN_AVX2(fp32_avx2, int32_t, epi32, 0x7fffffff, 0x7f7fffff)
#endif

static void copy(unsigned char *out, const unsigned char *p, size_t bytes)
{
    memcpy(out, p, bytes);
}

bool rlki_scan_special(enum rlk_dtype dtype, const unsigned char *p, size_t bytes)
{
    enum rlk_dtype component = rlk_dtype_component(dtype);
#if HAVE_AVX2
    if (__builtin_cpu_supports("avx2"))
        CHOOSE(scan, _avx2, false, p, bytes)
#endif
    CHOOSE(scan, _base, false, p, bytes)
}

void rlki_canonicalise(struct rlk_sums *sums, enum rlk_dtype dtype, unsigned char *out, const unsigned char *p,
                       size_t bytes)
{
    enum rlk_dtype component = rlk_dtype_component(dtype);
#if HAVE_AVX2
    if (__builtin_cpu_supports("avx2"))
        CHOOSE(canonicalise, _avx2, copy(out, p, bytes), sums, out, p, bytes)
#endif
    CHOOSE(canonicalise, _base, copy(out, p, bytes), sums, out, p, bytes)
}
