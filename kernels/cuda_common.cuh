/* cuda_common.cuh - storage types, the 128-lane tree of a warp, launches. Grids depend on the problem only. */
#ifndef KERNELS_CUDA_COMMON_CUH
#define KERNELS_CUDA_COMMON_CUH

#include <cuda_runtime.h>

#include "kernels/rlk_num.h"
#include "kernels/rlki_cuda.h"

#define LANES 128

static inline cudaStream_t stream_of(const struct rlk_exec *x)
{
    return (cudaStream_t)x->stream;
}

static inline int checked(struct rlk_exec *x, const char *what)
{
    const cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess)
        return 0;
    return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "%s: %s", what, cudaGetErrorString(e));
}

static inline unsigned blocks_of(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

struct bf16 {
    uint16_t h;
};

__device__ __forceinline__ float get(const float *p, int64_t i) { return p[i]; }
__device__ __forceinline__ float get(const bf16 *p, int64_t i) { return rlkn_from_bf16(p[i].h); }
__device__ __forceinline__ void put(float *p, int64_t i, float v) { p[i] = rlkn_canon(v); }
__device__ __forceinline__ void put(bf16 *p, int64_t i, float v) { p[i].h = rlkn_to_bf16(v); }

/* Four neighbours; the address is a multiple of four elements. */
__device__ __forceinline__ void get4(const float *p, float v[4])
{
    const float4 f = *reinterpret_cast<const float4 *>(p);
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
}
__device__ __forceinline__ void get4(const bf16 *p, float v[4])
{
    const uint2 u = *reinterpret_cast<const uint2 *>(p);
    v[0] = rlkn_float(u.x << 16), v[1] = rlkn_float(u.x & 0xffff0000u);
    v[2] = rlkn_float(u.y << 16), v[3] = rlkn_float(u.y & 0xffff0000u);
}
__device__ __forceinline__ void put4(float *p, const float v[4])
{
    *reinterpret_cast<float4 *>(p) = make_float4(rlkn_canon(v[0]), rlkn_canon(v[1]), rlkn_canon(v[2]), rlkn_canon(v[3]));
}
__device__ __forceinline__ void put4(bf16 *p, const float v[4])
{
    uint2 u;
    u.x = rlkn_to_bf16(v[0]) | (uint32_t)rlkn_to_bf16(v[1]) << 16;
    u.y = rlkn_to_bf16(v[2]) | (uint32_t)rlkn_to_bf16(v[3]) << 16;
    *reinterpret_cast<uint2 *>(p) = u;
}

/* n elements from p, zeros after; vec: p is aligned for four and n >= 4 means four. */
template <typename T> __device__ __forceinline__ void get_part(const T *p, int64_t n, bool vec, float v[4])
{
    if (vec && n >= 4) {
        get4(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = i < n ? get(p, i) : 0.0f;
}
template <typename T> __device__ __forceinline__ void put_part(T *p, int64_t n, bool vec, const float v[4])
{
    if (vec && n >= 4) {
        put4(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < n)
            put(p, i, v[i]);
}

/* The halving tree over 128 lanes, thread t of a warp holding lanes 4t..4t+3; the sum comes back to every thread. */
__device__ __forceinline__ float warp_lanes(float v[4])
{
#pragma unroll
    for (int d = 16; d >= 1; d >>= 1)
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = rlkn_add(v[i], __shfl_down_sync(0xffffffffu, v[i], d));
    const float a = rlkn_add(v[0], v[2]), b = rlkn_add(v[1], v[3]);
    return __shfl_sync(0xffffffffu, rlkn_add(a, b), 0);
}

__device__ __forceinline__ float warp_max(float m)
{
#pragma unroll
    for (int d = 16; d >= 1; d >>= 1)
        m = rlkn_max(m, __shfl_xor_sync(0xffffffffu, m, d));
    return rlkn_add(m, 0.0f);
}

template <bool FAST> __device__ __forceinline__ float exp_of(float x) { return FAST ? __expf(x) : rlkn_exp(x); }

static inline bool aligned4(const void *p, int64_t n, size_t esize)
{
    return n % 4 == 0 && (uintptr_t)p % (4 * esize) == 0;
}

#define BY_TYPE(type, call_bf16, call_f32)                                                                             \
    do {                                                                                                               \
        if ((type) == RLK_K_BF16)                                                                                      \
            call_bf16;                                                                                                 \
        else                                                                                                           \
            call_f32;                                                                                                  \
    } while (0)

#endif
