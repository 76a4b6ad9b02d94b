/* cuda_runtime.h - enough of CUDA to run our kernels on the CPU, thread by thread: tests only, x86-64 only.
 *
 * A block's threads are fibers on one OS thread; __syncthreads and shuffles are where they change. Blocks run one after
 * another. What this shows: the index arithmetic and the order of operations of the .cu files, to the bit. What it cannot
 * show: races inside a warp's step, speed, and the GPU's own arithmetic. */
#ifndef EMUL_CUDA_RUNTIME_H
#define EMUL_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
static inline float4 make_float4(float a, float b, float c, float d) { return float4{a, b, c, d}; }

extern dim3 blockIdx, blockDim, gridDim, threadIdx;

float *emul_shared();
void __syncthreads();
void __syncwarp();
void emul_exchange(const void *mine, size_t bytes, int source, void *theirs);
void emul_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &body);

template <typename T> T emul_shuffle(T v, int source)
{
    T r;
    emul_exchange(&v, sizeof v, source, &r);
    return r;
}
static inline int emul_lane() { return (int)(threadIdx.x % 32); }
template <typename T> T __shfl_sync(unsigned, T v, int s) { return emul_shuffle(v, s); }
template <typename T> T __shfl_xor_sync(unsigned, T v, int d) { return emul_shuffle(v, emul_lane() ^ d); }
template <typename T> T __shfl_down_sync(unsigned, T v, int d) { return emul_shuffle(v, emul_lane() + d < 32 ? emul_lane() + d : emul_lane()); }
template <typename T> T __shfl_up_sync(unsigned, T v, int d) { return emul_shuffle(v, emul_lane() - d >= 0 ? emul_lane() - d : emul_lane()); }

template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float atomicAdd(float *p, float v) { const float old = *p; *p += v; return old; }
#define __expf expf
#define __fdividef(a, b) ((a) / (b))
#define rsqrtf(x) (1.0f / sqrtf(x))
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

typedef void *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaFuncAttributeMaxDynamicSharedMemorySize };
static inline cudaError_t cudaGetLastError() { return 0; }
static inline const char *cudaGetErrorString(cudaError_t) { return "emulated"; }
static inline cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return 0; }
/* Device memory is an arena that only kernels and copies can touch: the host's own access ends the program, and a copy
 * whose direction does not fit its pointers fails, as on a GPU. EMUL_GUARD=0 leaves the arena open. */
cudaError_t cudaMalloc(void **p, size_t n);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, cudaStream_t);
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t);
/* Capture notes kernels (with their arguments), copies and memsets, and runs none; on any stream, since there is one. As on
 * a GPU, memory cannot be had nor anything waited for meanwhile. */
typedef struct emul_graph *cudaGraph_t, *cudaGraphExec_t;
enum { cudaStreamNonBlocking = 1, cudaStreamCaptureModeThreadLocal = 1 };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamBeginCapture(cudaStream_t, int);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
static inline cudaError_t cudaMallocHost(void **p, size_t n) { *p = malloc(n); return *p ? 0 : 2; }
static inline cudaError_t cudaFreeHost(void *p) { free(p); return 0; }
static inline cudaError_t cudaGetDevice(int *) { return 1; } /* no driver knows this memory */

struct emul_config {
    dim3 grid, block;
    size_t shared;
    emul_config(dim3 g, dim3 b, size_t s = 0, cudaStream_t = nullptr) : grid(g), block(b), shared(s) {}
};
template <typename F, typename... A> void emul_start(F f, emul_config c, A... a)
{
    emul_run(c.grid, c.block, c.shared, [=] { f(a...); });
}

template <typename F> cudaError_t cudaFuncSetAttribute(F, int, int) { return 0; }

#endif
