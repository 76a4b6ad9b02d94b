/* cuda_step.cu - what closes a step: squares of gradients, loss sums. FP64. Order: docs/contracts.md, section 6. */
#include "kernels/cuda_common.cuh"

__global__ void __launch_bounds__(256) sumsq_kernel(struct rlki_sumsq a)
{
    const int64_t blocks = (a.slab_rows + 63) / 64, b = blockIdx.x, cb = a.cols / a.width;
    const int64_t end = (b / blocks + 1) * a.slab_rows, r0 = b / blocks * a.slab_rows + b % blocks * 64;
    int64_t r1 = r0 + 64 < end ? r0 + 64 : end;
    r1 = r1 < a.rows ? r1 : a.rows;
    if (r0 >= r1)
        return;
    __shared__ double lane[256];
    double acc = 0.0;
    const float *g = a.g + r0 * a.cols + blockIdx.y * a.width;
    const int64_t n = (r1 - r0) * a.width;
    int64_t row = threadIdx.x / a.width, col = threadIdx.x % a.width;
    for (int64_t e = threadIdx.x; e < n;) {
        float v[8];
        int k = 0;
#pragma unroll
        for (int u = 0; u < 8; u++) {
            v[u] = 0.0f;
            if (e < n) {
                v[u] = g[row * a.cols + col];
                k = u + 1;
                e += 256;
                col += 256;
                while (col >= a.width) {
                    col -= a.width;
                    row++;
                }
            }
        }
#pragma unroll
        for (int u = 0; u < 8; u++)
            if (u < k)
                acc = __dadd_rn(acc, __dmul_rn((double)v[u], (double)v[u]));
    }
    lane[threadIdx.x] = acc;
    __syncthreads();
    for (int h = 128; h >= 1; h /= 2) {
        if ((int)threadIdx.x < h)
            lane[threadIdx.x] = __dadd_rn(lane[threadIdx.x], lane[threadIdx.x + h]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        a.out[b * cb + blockIdx.y] = lane[0];
}

extern "C" int rlki_cuda_sumsq(struct rlk_exec *x, const struct rlki_sumsq *a)
{
    const int64_t blocks = (a->slab_rows + 63) / 64;
    const dim3 grid((unsigned)((a->rows + a->slab_rows - 1) / a->slab_rows * blocks), (unsigned)(a->cols / a->width));
    sumsq_kernel<<<grid, 256, 0, stream_of(x)>>>(*a);
    return checked(x, "gradient norm");
}

__global__ void sum_kernel(struct rlki_sum a)
{
    double s = 0.0, n = 0.0;
    for (int64_t k = 0; k < a.count; k++) {
        const int64_t t = a.token ? a.token[k] : k;
        if (a.mask && !a.mask[t])
            continue;
        s = __dadd_rn(s, (double)a.x[t]);
        n = __dadd_rn(n, 1.0);
    }
    a.out[0] = s;
    a.out[1] = n;
}

extern "C" int rlki_cuda_sum(struct rlk_exec *x, const struct rlki_sum *a)
{
    sum_kernel<<<1, 1, 0, stream_of(x)>>>(*a);
    return checked(x, "loss sum");
}
