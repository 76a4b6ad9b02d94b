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

/* A warp takes a block; thread t holds lanes 4t..4t+3 and 128+4t..128+4t+3. For width, cols multiples of 4, width >= 128. A
 * square of an fp32 is exact in FP64, so the fused form rounds as the sum of the product does. */
__global__ void __launch_bounds__(256, 3) sumsq_wide(struct rlki_sumsq a, int64_t items)
{
    constexpr int AHEAD = 8;
    const int64_t item = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= items)
        return;
    const int64_t cb = a.cols / a.width, b = item / cb, c = item % cb, blocks = (a.slab_rows + 63) / 64;
    const int64_t end = (b / blocks + 1) * a.slab_rows, r0 = b / blocks * a.slab_rows + b % blocks * 64;
    int64_t r1 = r0 + 64 < end ? r0 + 64 : end;
    r1 = r1 < a.rows ? r1 : a.rows;
    if (r0 >= r1)
        return;
    const float *g = a.g + r0 * a.cols + c * a.width;
    const uint32_t n = (uint32_t)((r1 - r0) * a.width), width = (uint32_t)a.width, skip = (uint32_t)(a.cols - a.width);
    const uint32_t t = threadIdx.x % 32;
    uint32_t col = 4 * t, at = 4 * t;
    double lo[4] = {0, 0, 0, 0}, hi[4] = {0, 0, 0, 0};
    for (uint32_t e = 4 * t; e < n; e += LANES * AHEAD) {
        float4 v[AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++) {
            v[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f); /* adds +0, which changes no lane: none is -0 */
            if (e + LANES * u < n)
                v[u] = *reinterpret_cast<const float4 *>(g + at);
            col += LANES;
            at += LANES;
            if (col >= width) {
                col -= width;
                at += skip;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            double *acc = u % 2 ? hi : lo;
            acc[0] = __fma_rn((double)v[u].x, (double)v[u].x, acc[0]);
            acc[1] = __fma_rn((double)v[u].y, (double)v[u].y, acc[1]);
            acc[2] = __fma_rn((double)v[u].z, (double)v[u].z, acc[2]);
            acc[3] = __fma_rn((double)v[u].w, (double)v[u].w, acc[3]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        double s = __dadd_rn(lo[i], hi[i]);
#pragma unroll
        for (int d = 16; d >= 1; d >>= 1)
            s = __dadd_rn(s, __shfl_down_sync(0xffffffffu, s, d));
        lo[i] = s;
    }
    if (t == 0)
        a.out[b * cb + c] = __dadd_rn(__dadd_rn(lo[0], lo[2]), __dadd_rn(lo[1], lo[3]));
}

extern "C" int rlki_cuda_sumsq(struct rlk_exec *x, const struct rlki_sumsq *a)
{
    const int64_t blocks = (a->slab_rows + 63) / 64, rows = (a->rows + a->slab_rows - 1) / a->slab_rows * blocks, cols = a->cols / a->width;
    if (a->cols % 4 == 0 && a->width % 4 == 0 && a->width >= LANES && a->cols < 1 << 24 && (uintptr_t)a->g % 16 == 0)
        sumsq_wide<<<blocks_of(rows * cols, 8), 256, 0, stream_of(x)>>>(*a, rows * cols);
    else
        sumsq_kernel<<<dim3((unsigned)rows, (unsigned)cols), 256, 0, stream_of(x)>>>(*a);
    return checked(x, "gradient norm");
}

__device__ __forceinline__ double tree_of(const double *v, int count)
{
    if (count != RLK_SLABS)
        return v[0];
    return __dadd_rn(__dadd_rn(__dadd_rn(v[0], v[1]), __dadd_rn(v[2], v[3])), __dadd_rn(__dadd_rn(v[4], v[5]), __dadd_rn(v[6], v[7])));
}

/* A warp adds up a row slab: 32 blocks' trees at a time, then in order. */
__global__ void __launch_bounds__(256) cells_kernel(struct rlki_cells a)
{
    __shared__ double rows[RLK_SLABS];
    const int r = (int)threadIdx.x / 32, t = (int)threadIdx.x % 32;
    if (r < a.row_slabs) {
        double sum = 0.0;
        for (int64_t k = 0; k < a.blocks; k += 32) {
            double cols[RLK_SLABS], mine = 0.0;
            if (k + t < a.blocks) {
                for (int c = 0; c < RLK_SLABS; c++)
                    cols[c] = c < a.col_slabs ? a.all[rlki_cell(&a, r, k + t, c)] : 0.0;
                mine = tree_of(cols, a.col_slabs);
            }
            for (int j = 0; j < 32 && k + j < a.blocks; j++)
                sum = __dadd_rn(sum, __shfl_sync(0xffffffffu, mine, j));
        }
        if (t == 0)
            rows[r] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        *a.out = tree_of(rows, a.row_slabs);
}

extern "C" int rlki_cuda_cells(struct rlk_exec *x, const struct rlki_cells *a)
{
    cells_kernel<<<1, 256, 0, stream_of(x)>>>(*a);
    return checked(x, "gradient norm");
}

/* A warp fetches 32 terms at a time; every thread of it adds them in order. */
__global__ void sum_kernel(struct rlki_sum a)
{
    double s = 0.0, n = 0.0;
    for (int64_t k = 0; k < a.count; k += 32) {
        const int64_t at = k + threadIdx.x, t = at >= a.count ? 0 : a.token ? a.token[at] : at;
        const int keep = at < a.count && (!a.mask || a.mask[t]);
        const double v = keep ? (double)a.x[t] : 0.0;
        for (int j = 0; j < 32; j++) {
            const double term = __shfl_sync(0xffffffffu, v, j);
            if (__shfl_sync(0xffffffffu, keep, j)) {
                s = __dadd_rn(s, term);
                n = __dadd_rn(n, 1.0);
            }
        }
    }
    if (threadIdx.x == 0) {
        a.out[0] = s;
        a.out[1] = n;
    }
}

extern "C" int rlki_cuda_sum(struct rlk_exec *x, const struct rlki_sum *a)
{
    sum_kernel<<<1, 32, 0, stream_of(x)>>>(*a);
    return checked(x, "loss sum");
}
