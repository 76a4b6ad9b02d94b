/* rlk_philox.h - Philox4x32-10, the generator behind every fill of docs/synth.md. No state: a function of key, counter.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); its known answers are
 * checked in tests/store/test_dtype_value.c.
 */
#ifndef STORE_RLK_PHILOX_H
#define STORE_RLK_PHILOX_H

#include <stdint.h>

static inline void rlk_philox4x32_10(uint32_t w[4], uint32_t key0, uint32_t key1, const uint32_t counter[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)UINT32_C(0xD2511F53) * c0;
        uint64_t b = (uint64_t)UINT32_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)a;
        key0 += UINT32_C(0x9E3779B9);
        key1 += UINT32_C(0xBB67AE85);
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

/* Words of element k of a fill: key (seed, stream), counter (k, 0, 0, 0). Elements past 2^32 go to the next word. */
static inline void rlk_fill_words(uint32_t w[4], uint32_t seed, uint32_t stream, uint64_t k)
{
    const uint32_t counter[4] = {(uint32_t)k, (uint32_t)(k >> 32), 0, 0};
    rlk_philox4x32_10(w, seed, stream, counter);
}

static inline double rlk_fill_uniform(const uint32_t w[4]) /* [0, 1) */
{
    return (double)(w[0] >> 8) * 0x1p-24;
}

/* Sum of eight 16-bit halves, centred and scaled to unit variance, in FP64 without a library call. */
static inline double rlk_fill_normal(const uint32_t w[4])
{
    int32_t sum = -262140;
    for (int i = 0; i < 4; i++)
        sum += (int32_t)(w[i] & 0xffffu) + (int32_t)(w[i] >> 16);
    return (double)sum * 0x1p-16 * 1.2247449;
}

/* lo + w0 mod (hi-lo), hi exclusive; hi > lo. */
static inline int64_t rlk_fill_int(const uint32_t w[4], int64_t lo, int64_t hi)
{
    return (int64_t)((uint64_t)lo + (uint64_t)w[0] % ((uint64_t)hi - (uint64_t)lo));
}

#endif
