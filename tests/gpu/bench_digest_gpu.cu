/* bench_digest_gpu - the digest against what the same device reads, side by side in one run.
 *
 * Prints, for each unit size on 1 GiB: the digest's rate, the rate of a plain read of the same bytes, and their ratio;
 * then many small tensors a launch. Median of 15 event-timed runs after a warm-up; the buffer is random and larger than
 * the L2.
 */
#include "gpu_test.h"
#include "store/rlk_digest_gpu.h"

#include <algorithm>
#include <vector>

__global__ void __launch_bounds__(512) read_all(const uint4 *p, size_t n, unsigned *out)
{
    unsigned x = 0;
    const size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        const uint4 a = p[i], b = p[i + step], c = p[i + 2 * step], d = p[i + 3 * step];
        x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < n; i += step)
        x ^= p[i].x ^ p[i].y ^ p[i].z ^ p[i].w;
    if (x == 0x12345678u)
        *out = x;
}

__global__ void scramble(uint4 *p, size_t n)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned x = (unsigned)i * 2654435761u + 12345u;
        auto next = [&] {
            x ^= x << 13, x ^= x >> 17, x ^= x << 5;
            return (x & 0xbf7fbf7fu) | 0x00010001u;
        };
        p[i] = make_uint4(next(), next(), next(), next()); /* finite, non-zero bf16 and fp32 */
    }
}

static rlk_gpu_digester *digester;
static void ignore(void *, uint64_t, const rlk_sums *)
{
}

template <class F> static double median_ms(F f)
{
    std::vector<float> t;
    cudaEvent_t a, b;
    GPU_OK(cudaEventCreate(&a));
    GPU_OK(cudaEventCreate(&b));
    for (int i = 0; i < 18; i++) {
        float ms;
        GPU_OK(cudaEventRecord(a));
        f();
        GPU_OK(cudaEventRecord(b));
        GPU_OK(cudaEventSynchronize(b));
        GPU_OK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 3)
            t.push_back(ms);
        rlk_gpu_digest_drain(digester, ignore, nullptr);
    }
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

static void enqueue(const std::vector<rlk_view> &v)
{
    uint64_t first;
    rlk_detail detail;
    if (rlk_gpu_digest_enqueue(digester, v.data(), nullptr, v.size(), nullptr, false, &first, &detail)) {
        fprintf(stderr, "%s\n", detail.text);
        exit(1);
    }
}

int main(void)
{
    const size_t bytes = 1ull << 30;
    rlk_detail detail;
    void *p;
    unsigned *out;
    gpu_or_skip();
    GPU_OK(cudaMalloc(&p, bytes));
    GPU_OK(cudaMalloc(&out, 4));
    scramble<<<2048, 256>>>((uint4 *)p, bytes / 16);
    if (rlk_gpu_digester_new(&digester, 0, &detail)) {
        fprintf(stderr, "%s\n", detail.text);
        return 1;
    }
    double read = 1e9;
    for (int blocks : {264, 528, 1056, 2112, 4224})
        read = std::min(read, median_ms([&] { read_all<<<blocks, 512>>>((const uint4 *)p, bytes / 16, out); }));
    printf("plain read of 1 GiB: %.3f ms, %.2f TB/s\n", read, bytes / read * 1e-9);
    struct row {
        const char *what;
        rlk_dtype dtype;
        uint64_t inner;
        bool transposed;
    } rows[] = {{"bf16 u=16, 32 B units", RLK_BF16, 4096, false}, {"bf16 u=8, 16 B units", RLK_BF16, 64, false},
                {"bf16 u=1, 2 B units", RLK_BF16, 7, false},      {"fp32 u=16, 64 B units", RLK_FP32, 4096, false},
                {"fp32 u=8, 32 B units", RLK_FP32, 64, false},    {"fp64 u=16, 128 B units", RLK_FP64, 4096, false},
                {"int64 u=1, 8 B units", RLK_INT64, 4096, false}, {"uint8 u=16, 16 B units", RLK_UINT8, 4096, false},
                {"bf16 u=16 transposed", RLK_BF16, 4096, true},   {"fp32 u=16 transposed", RLK_FP32, 4096, true}};
    for (const row &r : rows) {
        const uint64_t n = bytes / rlk_dtype_bytes(r.dtype);
        uint64_t shape[2] = {n / r.inner, r.inner};
        int64_t strides[2] = {1, (int64_t)(n / r.inner)};
        rlk_view v = {};
        v.dtype = r.dtype, v.ndim = 2, v.shape = shape, v.storage = p, v.storage_bytes = bytes;
        if (r.transposed)
            v.strides = strides;
        std::vector<rlk_view> one(1, v);
        const double ms = median_ms([&] { enqueue(one); });
        printf("%-24s %.3f ms, %.2f TB/s, %.0f %% of the plain read\n", r.what, ms, bytes / ms * 1e-9, 100 * read / ms);
    }
    printf("many tensors in one launch:\n");
    for (uint64_t rows_each : {1ull, 16ull, 256ull, 1024ull})
        for (size_t n : {size_t(1), size_t(8), size_t(128)}) {
            uint64_t shape[2] = {rows_each, 4096};
            std::vector<rlk_view> many;
            for (size_t i = 0; i < n; i++) {
                rlk_view v = {};
                v.dtype = RLK_BF16, v.ndim = 2, v.shape = shape, v.storage = p, v.storage_bytes = bytes;
                v.offset = i * rows_each * 4096 % (bytes / 2 - rows_each * 4096);
                many.push_back(v);
            }
            const double ms = median_ms([&] { enqueue(many); });
            printf("  %4zu tensors of %8.1f KiB: %8.2f us, %.2f TB/s\n", n, (double)rows_each * 8, ms * 1e3,
                   (double)n * (double)rows_each * 8192 / ms * 1e-9);
        }
    rlk_gpu_digester_free(digester, false);
    return 0;
}
