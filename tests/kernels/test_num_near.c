/* test_num_near.c - the quotients that SwiGLU takes from a reciprocal that is off by up to 2 ulp, against the division.
 * On its own so that it can be compiled for AVX2: all 2.2e9 gates within +-80 then take seconds. */
#include "test_num_near.h"

#include "kernels/rlk_num.h"

/* A power of two over a significand of ones: only the nearest reciprocal does (rlk_num.h). */
static inline int excepted(float a, float b)
{
    const int ones = (rlkn_bits(b) & 0x7fffffu) == 0x7fffffu, power = (rlkn_bits(a) & 0x7fffffu) == 0u;
    return ones & power;
}

int64_t near_quotient_errors(uint32_t first, int64_t n, uint32_t stride, int off)
{
    int32_t bad = 0;
    for (int32_t i = 0; i < (int32_t)n; i++) {
        const float g = rlkn_float(first + (uint32_t)i * stride);
        const float b = rlkn_one_plus_exp_near(-g);
        const float r = rlkn_float(rlkn_bits(rlkn_div(1.0f, b)) + (uint32_t)off);
        const int g_wrong = rlkn_bits(rlkn_quotient_near(g, b, r)) != rlkn_bits(rlkn_div(g, b));
        const int one_wrong = rlkn_bits(rlkn_quotient_near(1.0f, b, r)) != rlkn_bits(rlkn_div(1.0f, b));
        bad += rlkn_bits(b) != rlkn_bits(rlkn_add(1.0f, rlkn_exp(-g)));
        const int g_excepted = off != 0 ? excepted(g, b) : 0, one_excepted = off != 0 ? excepted(1.0f, b) : 0;
        bad += g_wrong & (1 - g_excepted);
        bad += one_wrong & (1 - one_excepted);
    }
    return bad;
}
