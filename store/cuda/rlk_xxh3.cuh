/* rlk_xxh3.cuh - XXH3_128bits of short inputs (0 to 256 bytes) on the device, from the published algorithm (xxHash
 * 0.8).
 *
 * The input is given by a reader R with u32(offset) and u64(offset) (little-endian, any offset) and u8(offset): with a
 * compile-time length the reader's offsets are constants, so that a unit held in registers never touches memory.
 * Only the default secret; a seed only where an input of 16 bytes is hashed (docs/digest.md needs no more).
 */
#ifndef STORE_CUDA_RLK_XXH3_CUH
#define STORE_CUDA_RLK_XXH3_CUH

#include <stdint.h>

namespace rlk
{

struct h128 {
    uint64_t lo, hi;
};

constexpr uint64_t P64_1 = 0x9E3779B185EBCA87ull, P64_2 = 0xC2B2AE3D27D4EB4Full, P64_3 = 0x165667B19E3779F9ull;
constexpr uint64_t P64_4 = 0x85EBCA77C2B2AE63ull, P64_5 = 0x27D4EB2F165667C5ull;
constexpr uint64_t P32_1 = 0x9E3779B1u, P32_2 = 0x85EBCA77u, P32_3 = 0xC2B2AE3Du;

/* The default secret of XXH3 (192 bytes) as little-endian words. */
struct secret {
    static constexpr __host__ __device__ uint64_t word(int i)
    {
        constexpr uint64_t w[24] = {
            0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
            0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
            0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
            0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
            0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
            0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull};
        return w[i];
    }
    /* eight bytes at any offset */
    static constexpr __host__ __device__ uint64_t at(int offset)
    {
        return (offset & 7) == 0
                   ? word(offset >> 3)
                   : (word(offset >> 3) >> (8 * (offset & 7))) | (word((offset >> 3) + 1) << (64 - 8 * (offset & 7)));
    }
    static constexpr __host__ __device__ uint32_t at32(int offset)
    {
        return (uint32_t)at(offset);
    }
};

__device__ __forceinline__ uint32_t swap32(uint32_t x)
{
    return __byte_perm(x, 0, 0x0123);
}

__device__ __forceinline__ uint64_t swap64(uint64_t x)
{
    return ((uint64_t)swap32((uint32_t)x) << 32) | swap32((uint32_t)(x >> 32));
}

__device__ __forceinline__ h128 mul128(uint64_t a, uint64_t b)
{
    return {a * b, __umul64hi(a, b)};
}

__device__ __forceinline__ uint64_t fold(uint64_t a, uint64_t b)
{
    h128 p = mul128(a, b);
    return p.lo ^ p.hi;
}

__device__ __forceinline__ uint64_t avalanche3(uint64_t x)
{
    x ^= x >> 37;
    x *= 0x165667919E3779F9ull;
    return x ^ (x >> 32);
}

__device__ __forceinline__ uint64_t avalanche64(uint64_t x)
{
    x ^= x >> 33;
    x *= P64_2;
    x ^= x >> 29;
    x *= P64_3;
    return x ^ (x >> 32);
}

/* 9 to 16 bytes given as their first and last eight. */
__device__ __forceinline__ h128 hash_9to16(uint64_t first, uint64_t last, uint32_t len, uint64_t seed)
{
    const uint64_t flip_lo = (secret::at(32) ^ secret::at(40)) - seed,
                   flip_hi = (secret::at(48) ^ secret::at(56)) + seed;
    h128 m = mul128(first ^ last ^ flip_lo, P64_1);
    m.lo += (uint64_t)(len - 1) << 54;
    last ^= flip_hi;
    m.hi += last + (uint64_t)(uint32_t)last * (P32_2 - 1);
    m.lo ^= swap64(m.hi);
    h128 h = mul128(m.lo, P64_2);
    h.hi += m.hi * P64_2;
    return {avalanche3(h.lo), avalanche3(h.hi)};
}

__device__ __forceinline__ h128 hash_4to8(uint32_t first, uint32_t last, uint32_t len)
{
    const uint64_t keyed = (first + ((uint64_t)last << 32)) ^ (secret::at(16) ^ secret::at(24));
    h128 m = mul128(keyed, P64_1 + (len << 2));
    m.hi += m.lo << 1;
    m.lo ^= m.hi >> 3;
    m.lo ^= m.lo >> 35;
    m.lo *= 0x9FB21C651E98DF25ull;
    m.lo ^= m.lo >> 28;
    m.hi = avalanche3(m.hi);
    return m;
}

__device__ __forceinline__ h128 hash_1to3(uint32_t c1, uint32_t c2, uint32_t c3, uint32_t len)
{
    const uint32_t lo = (c1 << 16) | (c2 << 24) | c3 | (len << 8), sw = swap32(lo), hi = (sw << 13) | (sw >> 19);
    return {avalanche64((uint64_t)lo ^ (uint64_t)(secret::at32(0) ^ secret::at32(4))),
            avalanche64((uint64_t)hi ^ (uint64_t)(secret::at32(8) ^ secret::at32(12)))};
}

template <class R>
__device__ __forceinline__ void mix32(h128 &acc, const R &r, int a, int b, uint64_t s0, uint64_t s1, uint64_t s2,
                                      uint64_t s3)
{
    const uint64_t a0 = r.u64(a), a1 = r.u64(a + 8), b0 = r.u64(b), b1 = r.u64(b + 8);
    acc.lo += fold(a0 ^ s0, a1 ^ s1);
    acc.lo ^= b0 + b1;
    acc.hi += fold(b0 ^ s2, b1 ^ s3);
    acc.hi ^= a0 + a1;
}

#define RLK_MIX32(acc, r, a, b, s)                                                                                     \
    mix32(acc, r, a, b, secret::at(s), secret::at((s) + 8), secret::at((s) + 16), secret::at((s) + 24))

__device__ __forceinline__ h128 finish(h128 acc, uint32_t len)
{
    h128 h = {acc.lo + acc.hi, acc.lo * P64_1 + acc.hi * P64_4 + (uint64_t)len * P64_2};
    return {avalanche3(h.lo), 0 - avalanche3(h.hi)};
}

template <class R> __device__ __forceinline__ h128 hash_17to128(const R &r, uint32_t n)
{
    const int len = (int)n;
    h128 acc = {(uint64_t)n * P64_1, 0};
    if (len > 32) {
        if (len > 64) {
            if (len > 96)
                RLK_MIX32(acc, r, 48, len - 64, 96);
            RLK_MIX32(acc, r, 32, len - 48, 64);
        }
        RLK_MIX32(acc, r, 16, len - 32, 32);
    }
    RLK_MIX32(acc, r, 0, len - 16, 0);
    return finish(acc, n);
}

template <class R> __device__ h128 hash_129to240(const R &r, uint32_t n)
{
    const int len = (int)n;
    h128 acc = {(uint64_t)n * P64_1, 0};
    RLK_MIX32(acc, r, 0, 16, 0);
    RLK_MIX32(acc, r, 32, 48, 32);
    RLK_MIX32(acc, r, 64, 80, 64);
    RLK_MIX32(acc, r, 96, 112, 96);
    acc.lo = avalanche3(acc.lo);
    acc.hi = avalanche3(acc.hi);
    if (len >= 160)
        RLK_MIX32(acc, r, 128, 144, 3);
    if (len >= 192)
        RLK_MIX32(acc, r, 160, 176, 35);
    if (len >= 224)
        RLK_MIX32(acc, r, 192, 208, 67);
    RLK_MIX32(acc, r, len - 16, len - 32, 136 - 17 - 16);
    return finish(acc, n);
}

/* 241 to 256 bytes: four stripes of 64 bytes, the last one counted from the end, no scramble. */
template <class R> __device__ h128 hash_241to256(const R &r, uint32_t n)
{
    uint64_t acc[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    for (int s = 0; s < 4; s++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint64_t v = r.u64((s < 3 ? 64 * s : (int)n - 64) + 8 * i);
            const uint64_t key = s == 0   ? secret::at(8 * i)
                                 : s == 1 ? secret::at(8 + 8 * i)
                                 : s == 2 ? secret::at(16 + 8 * i)
                                          : secret::at(192 - 64 - 7 + 8 * i);
            const uint64_t k = v ^ key;
            acc[i ^ 1] += v;
            acc[i] += (k & 0xffffffffu) * (k >> 32);
        }
    }
    uint64_t lo = (uint64_t)n * P64_1, hi = ~((uint64_t)n * P64_2);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        lo += fold(acc[2 * i] ^ secret::at(11 + 16 * i), acc[2 * i + 1] ^ secret::at(11 + 16 * i + 8));
        hi += fold(acc[2 * i] ^ secret::at(192 - 64 - 11 + 16 * i),
                   acc[2 * i + 1] ^ secret::at(192 - 64 - 11 + 16 * i + 8));
    }
    return {avalanche3(lo), avalanche3(hi)};
}

template <class R> __device__ __forceinline__ h128 hash_any(const R &r, uint32_t len)
{
    if (len > 240)
        return hash_241to256(r, len);
    if (len > 128)
        return hash_129to240(r, len);
    if (len > 16)
        return hash_17to128(r, len);
    if (len > 8)
        return hash_9to16(r.u64(0), r.u64((int)len - 8), len, 0);
    if (len >= 4)
        return hash_4to8(r.u32(0), r.u32((int)len - 4), len);
    return hash_1to3(r.u8(0), r.u8((int)len >> 1), r.u8((int)len - 1), len);
}

/* g of docs/digest.md: the 16 bytes of h, hashed with the unit's logical number as seed. */
__device__ __forceinline__ h128 place_hash(h128 h, uint64_t seed)
{
    return hash_9to16(h.lo, h.hi, 16, seed);
}

} // namespace rlk

#endif
