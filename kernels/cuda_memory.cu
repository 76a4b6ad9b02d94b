/* cuda_memory.cu - memory, copies of rows, the device check, and the math functions for tests. */
#include "kernels/cuda_common.cuh"

extern "C" int rlki_cuda_usable(struct rlk_kdetail *detail)
{
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0)
        return 0;
    cudaGetLastError();
    return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "no usable CUDA device: %s", e == cudaSuccess ? "none found" : cudaGetErrorString(e));
}

static int mapped(struct rlk_exec *x, cudaError_t e, const char *what, size_t bytes)
{
    if (e == cudaSuccess)
        return 0;
    cudaGetLastError();
    return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "%s of %zu bytes: %s", what, bytes, cudaGetErrorString(e));
}

extern "C" void *rlki_cuda_alloc(struct rlk_exec *x, size_t bytes)
{
    void *p = NULL;
    return mapped(x, cudaMalloc(&p, bytes ? bytes : 1), "allocation", bytes) ? NULL : p;
}

extern "C" void rlki_cuda_free(struct rlk_exec *x, void *p)
{
    (void)x;
    cudaFree(p);
}

extern "C" int rlki_cuda_upload(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    return bytes ? mapped(x, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream_of(x)), "upload", bytes) : 0;
}

extern "C" int rlki_cuda_download(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    const int rc = bytes ? mapped(x, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream_of(x)), "download", bytes) : 0;
    return rc ? rc : mapped(x, cudaStreamSynchronize(stream_of(x)), "download", bytes);
}

extern "C" int rlki_cuda_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    return bytes ? mapped(x, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream_of(x)), "copy", bytes) : 0;
}

extern "C" int rlki_cuda_zero(struct rlk_exec *x, void *p, size_t bytes)
{
    return bytes ? mapped(x, cudaMemsetAsync(p, 0, bytes, stream_of(x)), "zero", bytes) : 0;
}

extern "C" int rlki_cuda_sync(struct rlk_exec *x)
{
    return mapped(x, cudaStreamSynchronize(stream_of(x)), "synchronise", 0);
}

template <typename W> __global__ void rows_kernel(struct rlki_rows a, int64_t words)
{
    const int64_t i = blockIdx.x;
    const int64_t at = a.index ? a.index[i] : i;
    const W *from = (const W *)((const char *)a.src + (size_t)(a.scatter ? i : at) * a.src_stride);
    W *to = (W *)((char *)a.dst + (size_t)(a.scatter ? at : i) * a.dst_stride);
    for (int64_t k = threadIdx.x; k < words; k += blockDim.x)
        to[k] = from[k];
}

extern "C" int rlki_cuda_rows(struct rlk_exec *x, const struct rlki_rows *a)
{
    const uintptr_t all = (uintptr_t)a->src | (uintptr_t)a->dst | a->src_stride | a->dst_stride | a->bytes;
    const unsigned threads = a->bytes >= 2048 ? 128 : 32;
    if (a->rows <= 0 || a->bytes == 0)
        return 0;
    if (all % 16 == 0)
        rows_kernel<uint4><<<(unsigned)a->rows, threads, 0, stream_of(x)>>>(*a, (int64_t)(a->bytes / 16));
    else if (all % 4 == 0)
        rows_kernel<uint32_t><<<(unsigned)a->rows, threads, 0, stream_of(x)>>>(*a, (int64_t)(a->bytes / 4));
    else
        rows_kernel<uint16_t><<<(unsigned)a->rows, threads, 0, stream_of(x)>>>(*a, (int64_t)(a->bytes / 2));
    return checked(x, "rows");
}

__global__ void math_kernel(int which, uint32_t first, int64_t n, float *out)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const float v = rlkn_float(first + (uint32_t)i);
    out[i] = rlkn_canon(which == 0 ? rlkn_exp(v) : which == 1 ? rlkn_log(v) : which == 2 ? rlkn_rsqrt(v) : rlkn_sigmoid(v));
}

extern "C" int rlki_cuda_math(struct rlk_exec *x, int which, uint32_t first, int64_t n, float *out)
{
    math_kernel<<<blocks_of(n, 256), 256, 0, stream_of(x)>>>(which, first, n, out);
    return checked(x, "math");
}
