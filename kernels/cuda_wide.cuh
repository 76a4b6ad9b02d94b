/* cuda_wide.cuh - for memory-bound kernels: pieces of a row that are loaded whole and taken apart later, and the sum over
 * the 128 lanes of a row that a group of threads holds.
 *
 * A load that sits in a branch together with its conversion waits for its data before the next load starts. So: all loads of
 * a thread first, raw and without a branch, then the arithmetic. */
#ifndef KERNELS_CUDA_WIDE_CUH
#define KERNELS_CUDA_WIDE_CUH

#include "kernels/cuda_common.cuh"

/* N floats as N bf16 in order, by rlkn_to_bf16. The conversion unit rounds to nearest even and keeps subnormals; only its NaN
 * (0x7fff) is another, so NaN goes the long way. */
template <int N> __device__ __forceinline__ void pack_bf16(const float *v, uint32_t *out)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    bool nan = false;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out[i / 2]) : "f"(v[i + 1]), "f"(v[i]));
        nan |= !(v[i] <= v[i + 1]) & !(v[i] > v[i + 1]);
    }
    if (!nan)
        return;
#endif
#pragma unroll
    for (int i = 0; i < N; i += 2)
        out[i / 2] = rlkn_to_bf16(v[i]) | (uint32_t)rlkn_to_bf16(v[i + 1]) << 16;
}

/* E elements of T that lie together: 4, 8 or 16 bytes, aligned to their size. */
template <typename T, int E> struct piece;

template <> struct piece<bf16, 2> {
    uint32_t r;
    __device__ __forceinline__ void clear() { r = 0u; }
    __device__ __forceinline__ void load(const bf16 *p) { r = *reinterpret_cast<const uint32_t *>(p); }
    __device__ __forceinline__ void unpack(float v[2]) const { v[0] = rlkn_float(r << 16), v[1] = rlkn_float(r & 0xffff0000u); }
    static __device__ __forceinline__ void store(bf16 *p, const float v[2])
    {
        uint32_t w[1];
        pack_bf16<2>(v, w);
        *reinterpret_cast<uint32_t *>(p) = w[0];
    }
};
template <> struct piece<bf16, 4> {
    uint2 r;
    __device__ __forceinline__ void clear() { r.x = r.y = 0u; }
    __device__ __forceinline__ void load(const bf16 *p) { r = *reinterpret_cast<const uint2 *>(p); }
    __device__ __forceinline__ void unpack(float v[4]) const
    {
        v[0] = rlkn_float(r.x << 16), v[1] = rlkn_float(r.x & 0xffff0000u);
        v[2] = rlkn_float(r.y << 16), v[3] = rlkn_float(r.y & 0xffff0000u);
    }
    static __device__ __forceinline__ void store(bf16 *p, const float v[4])
    {
        uint32_t w[2];
        pack_bf16<4>(v, w);
        uint2 u;
        u.x = w[0], u.y = w[1];
        *reinterpret_cast<uint2 *>(p) = u;
    }
};
template <> struct piece<bf16, 8> {
    uint4 r;
    __device__ __forceinline__ void clear() { r.x = r.y = r.z = r.w = 0u; }
    __device__ __forceinline__ void load(const bf16 *p) { r = *reinterpret_cast<const uint4 *>(p); }
    __device__ __forceinline__ void unpack(float v[8]) const
    {
        v[0] = rlkn_float(r.x << 16), v[1] = rlkn_float(r.x & 0xffff0000u);
        v[2] = rlkn_float(r.y << 16), v[3] = rlkn_float(r.y & 0xffff0000u);
        v[4] = rlkn_float(r.z << 16), v[5] = rlkn_float(r.z & 0xffff0000u);
        v[6] = rlkn_float(r.w << 16), v[7] = rlkn_float(r.w & 0xffff0000u);
    }
    static __device__ __forceinline__ void store(bf16 *p, const float v[8])
    {
        uint32_t w[4];
        pack_bf16<8>(v, w);
        uint4 u;
        u.x = w[0], u.y = w[1], u.z = w[2], u.w = w[3];
        *reinterpret_cast<uint4 *>(p) = u;
    }
};
template <> struct piece<float, 4> {
    float4 r;
    __device__ __forceinline__ void clear() { r.x = r.y = r.z = r.w = 0.0f; }
    __device__ __forceinline__ void load(const float *p) { r = *reinterpret_cast<const float4 *>(p); }
    __device__ __forceinline__ void unpack(float v[4]) const { v[0] = r.x, v[1] = r.y, v[2] = r.z, v[3] = r.w; }
    static __device__ __forceinline__ void store(float *p, const float v[4])
    {
        *reinterpret_cast<float4 *>(p) = make_float4(rlkn_canon(v[0]), rlkn_canon(v[1]), rlkn_canon(v[2]), rlkn_canon(v[3]));
    }
};
template <> struct piece<float, 2> {
    uint2 r;
    __device__ __forceinline__ void clear() { r.x = r.y = 0u; }
    __device__ __forceinline__ void load(const float *p) { r = *reinterpret_cast<const uint2 *>(p); }
    __device__ __forceinline__ void unpack(float v[2]) const { v[0] = rlkn_float(r.x), v[1] = rlkn_float(r.y); }
    static __device__ __forceinline__ void store(float *p, const float v[2])
    {
        uint2 u;
        u.x = rlkn_bits(rlkn_canon(v[0])), u.y = rlkn_bits(rlkn_canon(v[1]));
        *reinterpret_cast<uint2 *>(p) = u;
    }
};
/* Elements in 16 bytes. */
template <typename T> struct wide {
    static constexpr int E = 16 / (int)sizeof(T);
};

/* Rows of n elements that start at p can be read in pieces of 16 bytes. */
static inline bool wide_rows(const void *p, int64_t n, size_t esize)
{
    return (uintptr_t)p % 16 == 0 && (size_t)n * esize % 16 == 0;
}

/* Copies into shared memory that run while the thread goes on; a group ends at copy_commit, copy_wait<N> leaves at most the
 * N youngest groups of the thread under way. Addresses in shared memory are made once: each conversion reads a slow special
 * register. A copy that is not `on` touches nothing. */
#if defined(__CUDA_ARCH__)
typedef unsigned shared_at;
__device__ __forceinline__ shared_at in_shared(void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy_async16(shared_at to, const void *from, bool on)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to), "l"(from), "r"((unsigned)on)
                 : "memory");
}
__device__ __forceinline__ void copy_async4(shared_at to, const void *from, bool on)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 4; }" ::"r"(to), "l"(from), "r"((unsigned)on)
                 : "memory");
}
__device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* Loads from shared memory in the order they are written, none put off to its use. */
__device__ __forceinline__ float shared_get(shared_at p, const bf16 *)
{
    unsigned short h;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(h) : "r"(p));
    return rlkn_from_bf16(h);
}
__device__ __forceinline__ float shared_get(shared_at p, const float *)
{
    float f;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(p));
    return f;
}
__device__ __forceinline__ float4 shared_get4(shared_at p)
{
    float4 f;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w) : "r"(p));
    return f;
}
#else
typedef char *shared_at;
__device__ __forceinline__ shared_at in_shared(void *p) { return (char *)p; }
__device__ __forceinline__ void copy_async16(shared_at to, const void *from, bool on)
{
    if (on)
        memcpy(to, from, 16);
}
__device__ __forceinline__ void copy_async4(shared_at to, const void *from, bool on)
{
    if (on)
        memcpy(to, from, 4);
}
__device__ __forceinline__ void copy_commit() {}
template <int N> __device__ __forceinline__ void copy_wait() {}
__device__ __forceinline__ float shared_get(shared_at p, const bf16 *) { return get((const bf16 *)p, 0); }
__device__ __forceinline__ float shared_get(shared_at p, const float *) { return get((const float *)p, 0); }
__device__ __forceinline__ float4 shared_get4(shared_at p) { return *reinterpret_cast<const float4 *>(p); }
#endif

__device__ __forceinline__ void copy_async16(void *shared, const void *from) { copy_async16(in_shared(shared), from, true); }

/* The halving tree over 128 lanes. A group of 128/E neighbouring threads, thread t of it holding lanes E*t..E*t+E-1; the sum
 * comes back to all of them. Which thread adds is free: a + b = b + a. So at each level the two threads of a pair split the
 * values between them, until each holds one: 8 or 11 exchanges instead of 20 or 32. All 32 threads of the warp take part. */
template <int E> __device__ __forceinline__ float group_lanes(float v[E])
{
    constexpr int G = LANES / E;
    const int t = (int)(threadIdx.x % 32u);
    int d = G / 2;
#pragma unroll
    for (int held = E; held > 1; held /= 2, d /= 2) {
        const bool upper = (t & d) != 0;
#pragma unroll
        for (int i = 0; i < held / 2; i++) {
            const float mine = upper ? v[i + held / 2] : v[i], other = upper ? v[i] : v[i + held / 2];
            v[i] = rlkn_add(mine, __shfl_xor_sync(0xffffffffu, other, d));
        }
    }
    float s = v[0];
#pragma unroll
    for (; d >= 1; d /= 2)
        s = rlkn_add(s, __shfl_xor_sync(0xffffffffu, s, d));
#pragma unroll
    for (int h = E / 2, far = G / 2; h >= 1; h /= 2, far /= 2)
        s = rlkn_add(s, __shfl_xor_sync(0xffffffffu, s, far));
    return s;
}

#endif
