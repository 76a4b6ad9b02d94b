/* cuda_entropy.cu - -sum of exp(y) y over a row of log-probabilities: FP64, words ascending, one after the other.
 *
 * The products are exact in FP64 and independent; only the sum is a chain. One thread of a block walks it through shared
 * memory while the other warps make the next products. */
#include "kernels/cuda_common.cuh"

#define CHUNK 1024
#define MAKERS 224

__global__ void __launch_bounds__(256) entropy_kernel(int64_t vocab, const float *y, double *out)
{
    __shared__ double part[2][CHUNK];
    const int t = (int)threadIdx.x;
    const float *row = y + (int64_t)blockIdx.x * vocab;
    const int64_t chunks = (vocab + CHUNK - 1) / CHUNK;
    double sum = 0.0;
    for (int64_t c = 0; c <= chunks; c++) {
        if (t >= 32 && c < chunks)
            for (int i = t - 32; i < CHUNK; i += MAKERS) {
                const int64_t v = c * CHUNK + i;
                if (v < vocab)
                    part[c % 2][i] = __dmul_rn((double)rlkn_exp(row[v]), (double)row[v]);
            }
        if (t == 0 && c > 0) {
            const int64_t left = vocab - (c - 1) * CHUNK;
            const double *p = part[(c - 1) % 2];
            if (left >= CHUNK) {
#pragma unroll 16
                for (int i = 0; i < CHUNK; i++)
                    sum = __dadd_rn(sum, -p[i]);
            } else {
                for (int i = 0; i < (int)left; i++)
                    sum = __dadd_rn(sum, -p[i]);
            }
        }
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = sum;
}

extern "C" int rlki_cuda_entropy(struct rlk_exec *x, int64_t rows, int64_t vocab, const float *y, double *out)
{
    if (rows <= 0)
        return 0;
    entropy_kernel<<<(unsigned)rows, 256, 0, stream_of(x)>>>(vocab, y, out);
    return checked(x, "entropy");
}

/* Sets *flag where a word of a is not that of b; nobody clears it here. */
__global__ void differ_kernel(int64_t n, const uint16_t *a, const uint16_t *b, uint32_t *flag)
{
    const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    bool other = false;
    for (int k = 0; k < 8; k++)
        other |= i + k < n && a[i + k] != b[i + k];
    if (other)
        *flag = 1u;
}

extern "C" int rlki_cuda_differ(struct rlk_exec *x, const void *a, const void *b, size_t bytes, uint32_t *flag)
{
    const int64_t n = (int64_t)(bytes / 2);
    if (n)
        differ_kernel<<<blocks_of(n, 2048), 256, 0, stream_of(x)>>>(n, (const uint16_t *)a, (const uint16_t *)b, flag);
    return checked(x, "comparison");
}
