/* Is there a NaN, an Inf or a -0 among these elements? Almost always not, so this is the only pass that every element
 * takes besides the hash: it runs on vectors (GCC vector types: SSE2 or NEON as the baseline, AVX2 where the processor
 * has it) over a piece that stays in the first-level cache for the hash. */
#include "store/rlk_digest_units.h"
#include "store/rlk_dtype_value.h"

#include <string.h>

#define VECTOR 32

typedef int8_t v8 __attribute__((vector_size(VECTOR)));
typedef int16_t v16 __attribute__((vector_size(VECTOR)));
typedef int32_t v32 __attribute__((vector_size(VECTOR)));
typedef int64_t v64 __attribute__((vector_size(VECTOR)));

/* An element is special if (bits & MAGNITUDE) > BELOW, as signed numbers, or bits == EQUAL. */
#define SCAN(name, isa, T, V, MAGNITUDE, BELOW, EQUAL)                                                                 \
    isa static bool name(const unsigned char *p, size_t bytes)                                                         \
    {                                                                                                                  \
        V hits = {0};                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; i + VECTOR <= bytes; i += VECTOR) {                                                                     \
            V x;                                                                                                       \
            memcpy(&x, p + i, sizeof x);                                                                               \
            hits |= (V)((x & (T)(MAGNITUDE)) > (T)(BELOW)) | (V)(x == (T)(EQUAL));                                     \
        }                                                                                                              \
        uint64_t any = 0, word[VECTOR / 8];                                                                            \
        memcpy(word, &hits, sizeof word);                                                                              \
        for (unsigned k = 0; k < VECTOR / 8; k++)                                                                      \
            any |= word[k];                                                                                            \
        for (; i < bytes; i += sizeof(T)) {                                                                            \
            T x;                                                                                                       \
            memcpy(&x, p + i, sizeof x);                                                                               \
            any |= (T)(x & (T)(MAGNITUDE)) > (T)(BELOW) || x == (T)(EQUAL);                                            \
        }                                                                                                              \
        return any != 0;                                                                                               \
    }

/* fnuz and e8m0 types have one special code; BELOW is the largest signed number there, so only EQUAL can hit. */
#define SCANS(suffix, isa)                                                                                             \
    SCAN(scan_e4m3##suffix, isa, int8_t, v8, 0x7f, 0x7e, 0x80)                                                         \
    SCAN(scan_e5m2##suffix, isa, int8_t, v8, 0x7f, 0x7b, 0x80)                                                         \
    SCAN(scan_fnuz##suffix, isa, int8_t, v8, 0x7f, 0x7f, 0x80)                                                         \
    SCAN(scan_e8m0##suffix, isa, int8_t, v8, 0x7f, 0x7f, 0xff)                                                         \
    SCAN(scan_fp16##suffix, isa, int16_t, v16, 0x7fff, 0x7bff, 0x8000)                                                 \
    SCAN(scan_bf16##suffix, isa, int16_t, v16, 0x7fff, 0x7f7f, 0x8000)                                                 \
    SCAN(scan_fp32##suffix, isa, int32_t, v32, 0x7fffffff, 0x7f7fffff, 0x80000000u)                                    \
    SCAN(scan_fp64##suffix, isa, int64_t, v64, INT64_MAX, 0x7fefffffffffffff, UINT64_C(1) << 63)                       \
    static bool scan##suffix(enum rlk_dtype component, const unsigned char *p, size_t bytes)                           \
    {                                                                                                                  \
        switch (component) {                                                                                           \
        case RLK_FP8_E4M3:                                                                                             \
            return scan_e4m3##suffix(p, bytes);                                                                        \
        case RLK_FP8_E5M2:                                                                                             \
            return scan_e5m2##suffix(p, bytes);                                                                        \
        case RLK_FP8_E4M3FNUZ:                                                                                         \
        case RLK_FP8_E5M2FNUZ:                                                                                         \
            return scan_fnuz##suffix(p, bytes);                                                                        \
        case RLK_FP8_E8M0:                                                                                             \
            return scan_e8m0##suffix(p, bytes);                                                                        \
        case RLK_FP16:                                                                                                 \
            return scan_fp16##suffix(p, bytes);                                                                        \
        case RLK_BF16:                                                                                                 \
            return scan_bf16##suffix(p, bytes);                                                                        \
        case RLK_FP32:                                                                                                 \
            return scan_fp32##suffix(p, bytes);                                                                        \
        case RLK_FP64:                                                                                                 \
            return scan_fp64##suffix(p, bytes);                                                                        \
        default:                                                                                                       \
            return false;                                                                                              \
        }                                                                                                              \
    }

SCANS(_base, )
#if defined(__x86_64__)
SCANS(_avx2, __attribute__((target("avx2"))))
#endif

bool rlki_scan_special(enum rlk_dtype dtype, const unsigned char *p, size_t bytes)
{
    enum rlk_dtype component = rlk_dtype_component(dtype);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return scan_avx2(component, p, bytes);
#endif
    return scan_base(component, p, bytes);
}
