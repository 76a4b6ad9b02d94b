/* cuda_provider.cu - what a user's library does today on a GPU: fused multiply-adds where the compiler likes them, fast
 * intrinsics, sums split over blocks and added by float atomics, so that their order is the schedule's.
 *
 * Nothing here is promised: it exists to be run and audited. Shapes: any; a block a row or a grid-stride loop. Compiled
 * without -fmad=false. Everything is in namespace provider, by which the disassembly lint (tests/kernels/lint_gpu.py) knows it;
 * no table but the provider's may point here. GEMM: cuda_cublas.cu; forward norm, SwiGLU, attention and the statistics of
 * logits are the contract's kernels with FAST. */
#include "kernels/cuda_common.cuh"

namespace provider {

/* The sum over a block of a multiple of 32 threads, to thread 0. */
__device__ __forceinline__ float block_sum(float v)
{
    __shared__ float part[32];
#pragma unroll
    for (int d = 16; d >= 1; d >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < (int)(blockDim.x / 32); w++)
            v += part[w];
    return v;
}

__device__ __forceinline__ float block_sum_all(float v)
{
    __shared__ float all;
    v = block_sum(v);
    if (threadIdx.x == 0)
        all = v;
    __syncthreads();
    return all;
}

/* ---- RMSNorm backward ---- */

template <typename T> __global__ void __launch_bounds__(256) norm_bwd(int64_t n, const T *x, const T *gamma, const T *dy, T *dx, const float *rstd)
{
    const int64_t at = blockIdx.x * n;
    const float s = rstd[blockIdx.x];
    float c = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += 256)
        c += get(gamma, i) * get(dy, at + i) * get(x, at + i);
    c = block_sum_all(c) * s * s * s / (float)n;
    for (int64_t i = threadIdx.x; i < n; i += 256)
        put(dx, at + i, get(gamma, i) * get(dy, at + i) * s - get(x, at + i) * c);
}

/* 32 columns x a part of the rows a block; parts meet in atomics. */
template <typename T> __global__ void __launch_bounds__(256) gamma_sum(int64_t rows, int64_t n, const T *x, const T *dy, const float *rstd, float *out)
{
    __shared__ float part[8][32];
    const int t = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32;
    const int64_t i = (int64_t)blockIdx.x * 32 + t;
    float s = 0.0f;
    for (int64_t r = (int64_t)blockIdx.y * 8 + w; r < rows && i < n; r += (int64_t)gridDim.y * 8)
        s += get(dy, r * n + i) * get(x, r * n + i) * rstd[r];
    part[w][t] = s;
    __syncthreads();
    if (w || i >= n)
        return;
    for (int k = 1; k < 8; k++)
        s += part[k][t];
    atomicAdd(out + i, s);
}

/* ---- elements ---- */

/* As separate kernels for the products and the sum round. */
template <typename T>
__global__ void rotate(int64_t items, int heads, int d, const T *x, T *y, const int32_t *pos, const float *table, bool inverse)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= items)
        return;
    const int64_t head = i / (d / 2), at = i % (d / 2);
    const float *c = table + (int64_t)pos[head / heads] * d + at;
    const float u = get(x, head * d + at), v = get(x, head * d + d / 2 + at), s = inverse ? -c[d / 2] : c[d / 2];
    put(y, head * d + at, __fadd_rn(__fmul_rn(u, c[0]), -__fmul_rn(v, s)));
    put(y, head * d + d / 2 + at, __fadd_rn(__fmul_rn(v, c[0]), __fmul_rn(u, s)));
}

template <typename T> __global__ void glu_bwd(int64_t n, const T *gate, const T *up, const T *dy, T *dgate, T *dup)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const float g = get(gate, i), u = get(up, i), d = get(dy, i), s = __fdividef(1.0f, 1.0f + __expf(-g));
    put(dgate, i, d * u * s * (1.0f + g * (1.0f - s)));
    put(dup, i, d * g * s);
}

template <typename T> __global__ void add(int64_t n, const T *a, const T *b, T *y)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        put(y, i, get(a, i) + get(b, i));
}

template <typename T> __global__ void adamw(struct rlki_adamw a)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    const float g = a.g[i] * a.coef, m = a.beta1 * a.m[i] + a.one_beta1 * g, v = a.beta2 * a.v[i] + a.one_beta2 * g * g;
    const float p = a.p[i] * (1.0f - a.decay) - a.lr * __fdividef(m * a.c1, sqrtf(v * a.c2) + a.eps);
    a.m[i] = m;
    a.v[i] = v;
    a.p[i] = p;
    if (a.w)
        put((T *)a.w, i, p);
}

/* ---- embedding: the gradient by one atomic a token and column ---- */

template <typename T> __global__ void embed(struct rlki_embed a)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, r = i / a.h;
    if (r < a.rows && a.id[r] >= a.v0 && a.id[r] < a.v1)
        ((T *)a.y)[i] = ((const T *)a.table)[(int64_t)(a.id[r] - a.v0) * a.h + i % a.h];
}

template <typename T> __global__ void embed_bwd(struct rlki_embed_bwd a)
{
    const int64_t u = blockIdx.x, i = (int64_t)blockIdx.y * 128 + threadIdx.x;
    const int id = a.id[u];
    if (id < a.v0 || id >= a.v1 || i >= a.h)
        return;
    for (int k = a.start[9 * u] + (int)blockIdx.z; k < a.start[9 * u + 8]; k += (int)gridDim.z)
        atomicAdd(a.grad + (int64_t)(id - a.v0) * a.h + i, get((const T *)a.dy, (int64_t)a.token[k] * a.h + i));
}

/* ---- sums: FP32 by block, atomics between ---- */

__global__ void __launch_bounds__(256) squares(int64_t n, const float *g, float *out)
{
    float s = 0.0f;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        s += g[i] * g[i];
    s = block_sum(s);
    if (threadIdx.x == 0)
        atomicAdd(out, s);
}

__global__ void __launch_bounds__(256) masked(struct rlki_sum a)
{
    float s = 0.0f, n = 0.0f, *out = (float *)a.out;
    for (int64_t k = (int64_t)blockIdx.x * 256 + threadIdx.x; k < a.count; k += (int64_t)gridDim.x * 256)
        if (!a.mask || a.mask[k]) {
            s += a.x[k];
            n += 1.0f;
        }
    s = block_sum(s);
    n = block_sum(n);
    if (threadIdx.x == 0) {
        atomicAdd(out, s);
        atomicAdd(out + 2, n);
    }
}

__global__ void widen(double *p)
{
    const float f = *(const float *)(p + threadIdx.x);
    p[threadIdx.x] = (double)f;
}

/* ---- log-probabilities ---- */

__global__ void logp_merge(struct rlki_logp_merge a)
{
    const int64_t r = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (r >= a.rows)
        return;
    float m = -RLKN_INF, z = 0.0f;
    for (int s = 0; s < a.slabs; s++)
        m = fmaxf(m, a.in[3 * s * a.rows + r]);
    for (int s = 0; s < a.slabs; s++)
        z += a.in[(3 * s + 1) * a.rows + r] * __expf(a.in[3 * s * a.rows + r] - m);
    a.stats[3 * r] = m;
    a.stats[3 * r + 1] = z;
    a.stats[3 * r + 2] = logf(z);
    if (a.logp) {
        const int y = a.target[r];
        a.logp[r] = y < 0 ? 0.0f : a.in[(3 * (y / a.width) + 2) * a.rows + r] - (m + logf(z));
    }
}

template <typename T> __global__ void logp_dz(struct rlki_logp a)
{
    const int64_t r = blockIdx.x, v = (int64_t)blockIdx.y * 256 + threadIdx.x;
    const int y = a.target[r];
    if (v >= a.cols)
        return;
    const float p = __fdividef(__expf(a.z[r * a.ld + v] / a.temperature - a.stats[3 * r]), a.stats[3 * r + 1]);
    put((T *)a.out, r * a.ld + v, y < 0 ? 0.0f : a.g[r] * ((y == a.v0 + v ? 1.0f : 0.0f) - p) / a.temperature);
}

__global__ void log_softmax(struct rlki_logp a)
{
    const int64_t r = blockIdx.x, v = (int64_t)blockIdx.y * 256 + threadIdx.x;
    if (v < a.cols)
        ((float *)a.out)[r * a.ld + v] = a.z[r * a.ld + v] / a.temperature - (a.stats[3 * r] + a.stats[3 * r + 2]);
}

/* Key = the row of the batch, not the sample, and no cut at top_p: a thread's stretch of words, then a scan. */
__global__ void __launch_bounds__(256) sample(struct rlki_sample a)
{
    __shared__ float mass[256], top[256];
    __shared__ int at[256];
    const int t = (int)threadIdx.x;
    const float *z = a.z + blockIdx.x * a.ld;
    const int64_t each = (a.vocab + 255) / 256, from = t * each, to = min(from + each, a.vocab);
    float m = -RLKN_INF;
    int best = 0;
    for (int64_t v = from; v < to; v++)
        if (z[v] > m) {
            m = z[v];
            best = (int)v;
        }
    top[t] = m;
    at[t] = best;
    __syncthreads();
    m = -RLKN_INF;
    for (int k = 0; k < 256; k++)
        if (top[k] > m) {
            m = top[k];
            best = at[k];
        }
    float sum = 0.0f, total = 0.0f, before = 0.0f;
    for (int64_t v = from; v < to && a.temperature > 0.0f; v++)
        sum += __expf((z[v] - m) / a.temperature);
    mass[t] = sum;
    __syncthreads();
    for (int k = 0; k < 256; k++) {
        before += k < t ? mass[k] : 0.0f;
        total += mass[k];
    }
    if (t == 0)
        a.token[blockIdx.x] = best;
    __syncthreads();
    if (!(a.temperature > 0.0f))
        return;
    uint32_t c[4] = {blockIdx.x, 0, (uint32_t)*a.step, (uint32_t)a.pos[blockIdx.x]};
    rlkn_philox(c, (uint32_t)a.seed, (uint32_t)(a.seed >> 32));
    const float goal = (float)(c[0] >> 8) * 0x1p-24f * total;
    if (before > goal || before + sum <= goal)
        return;
    for (int64_t v = from; v < to; v++) {
        before += __expf((z[v] - m) / a.temperature);
        if (before > goal) {
            a.token[blockIdx.x] = (int32_t)v;
            return;
        }
    }
}

} /* namespace provider */

static unsigned few_blocks(int64_t n, int64_t each, unsigned most)
{
    const unsigned b = blocks_of(n, each);
    return b < most ? b : most;
}

extern "C" int rlki_provider_norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type,
            (provider::norm_bwd<bf16><<<(unsigned)a->rows, 256, 0, stream_of(x)>>>(a->n, (const bf16 *)a->x, (const bf16 *)a->gamma,
                                                                                   (const bf16 *)a->dy, (bf16 *)a->y, a->rstd)),
            (provider::norm_bwd<float><<<(unsigned)a->rows, 256, 0, stream_of(x)>>>(a->n, (const float *)a->x, (const float *)a->gamma,
                                                                                    (const float *)a->dy, (float *)a->y, a->rstd)));
    return checked(x, "provider rmsnorm backward");
}

extern "C" int rlki_provider_gamma(struct rlk_exec *x, const struct rlki_gamma *a)
{
    const int64_t rows = (a->start[a->leaves] - a->start[0]) * a->heads;
    const dim3 grid(blocks_of(a->n, 32), few_blocks(rows + 1, 64, 128));
    cudaMemsetAsync(a->out, 0, (size_t)a->n * sizeof(float), stream_of(x));
    BY_TYPE(a->type, (provider::gamma_sum<bf16><<<grid, 256, 0, stream_of(x)>>>(rows, a->n, (const bf16 *)a->x, (const bf16 *)a->dy, a->rstd, a->out)),
            (provider::gamma_sum<float><<<grid, 256, 0, stream_of(x)>>>(rows, a->n, (const float *)a->x, (const float *)a->dy, a->rstd, a->out)));
    return checked(x, "provider norm gamma");
}

extern "C" int rlki_provider_rope(struct rlk_exec *x, const struct rlki_rope *a)
{
    const int64_t n = a->tokens * a->heads * (a->d / 2);
    BY_TYPE(a->type,
            (provider::rotate<bf16><<<blocks_of(n, 256), 256, 0, stream_of(x)>>>(n, a->heads, a->d, (const bf16 *)a->x, (bf16 *)a->y, a->pos, a->table,
                                                                                 a->inverse)),
            (provider::rotate<float><<<blocks_of(n, 256), 256, 0, stream_of(x)>>>(n, a->heads, a->d, (const float *)a->x, (float *)a->y, a->pos,
                                                                                  a->table, a->inverse)));
    return checked(x, "provider rope");
}

extern "C" int rlki_provider_glu_bwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    BY_TYPE(a->type,
            (provider::glu_bwd<bf16><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(a->n, (const bf16 *)a->gate, (const bf16 *)a->up,
                                                                                     (const bf16 *)a->dy, (bf16 *)a->dgate, (bf16 *)a->dup)),
            (provider::glu_bwd<float><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(a->n, (const float *)a->gate, (const float *)a->up,
                                                                                      (const float *)a->dy, (float *)a->dgate, (float *)a->dup)));
    return checked(x, "provider swiglu backward");
}

extern "C" int rlki_provider_add(struct rlk_exec *x, const struct rlki_add *a)
{
    BY_TYPE(a->type, (provider::add<bf16><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(a->n, (const bf16 *)a->a, (const bf16 *)a->b, (bf16 *)a->y)),
            (provider::add<float><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(a->n, (const float *)a->a, (const float *)a->b, (float *)a->y)));
    return checked(x, "provider add");
}

extern "C" int rlki_provider_adamw(struct rlk_exec *x, const struct rlki_adamw *a)
{
    BY_TYPE(a->w_type, (provider::adamw<bf16><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(*a)),
            (provider::adamw<float><<<blocks_of(a->n, 256), 256, 0, stream_of(x)>>>(*a)));
    return checked(x, "provider adamw");
}

extern "C" int rlki_provider_embed(struct rlk_exec *x, const struct rlki_embed *a)
{
    BY_TYPE(a->type, (provider::embed<uint16_t><<<blocks_of(a->rows * a->h, 256), 256, 0, stream_of(x)>>>(*a)),
            (provider::embed<float><<<blocks_of(a->rows * a->h, 256), 256, 0, stream_of(x)>>>(*a)));
    return checked(x, "provider embedding");
}

extern "C" int rlki_provider_embed_bwd(struct rlk_exec *x, const struct rlki_embed_bwd *a)
{
    const dim3 grid((unsigned)a->uniques, blocks_of(a->h, 128), 8);
    BY_TYPE(a->type, (provider::embed_bwd<bf16><<<grid, 128, 0, stream_of(x)>>>(*a)), (provider::embed_bwd<float><<<grid, 128, 0, stream_of(x)>>>(*a)));
    return checked(x, "provider embedding backward");
}

/* out comes zeroed, all cells of it; the sum goes to the first. */
extern "C" int rlki_provider_sumsq(struct rlk_exec *x, const struct rlki_sumsq *a)
{
    const int64_t n = a->rows * a->cols;
    provider::squares<<<few_blocks(n, 1024, 1056), 256, 0, stream_of(x)>>>(n, a->g, (float *)a->out);
    provider::widen<<<1, 1, 0, stream_of(x)>>>(a->out);
    return checked(x, "provider gradient norm");
}

extern "C" int rlki_provider_sum(struct rlk_exec *x, const struct rlki_sum *a)
{
    cudaMemsetAsync(a->out, 0, 2 * sizeof(double), stream_of(x));
    provider::masked<<<few_blocks(a->count + 1, 256, 64), 256, 0, stream_of(x)>>>(*a);
    provider::widen<<<1, 2, 0, stream_of(x)>>>(a->out);
    return checked(x, "provider loss sum");
}

extern "C" int rlki_provider_logp_merge(struct rlk_exec *x, const struct rlki_logp_merge *a)
{
    provider::logp_merge<<<blocks_of(a->rows, 128), 128, 0, stream_of(x)>>>(*a);
    return checked(x, "provider logp merge");
}

extern "C" int rlki_provider_logp_dz(struct rlk_exec *x, const struct rlki_logp *a)
{
    const dim3 grid((unsigned)a->rows, blocks_of(a->cols, 256));
    BY_TYPE(a->type, (provider::logp_dz<bf16><<<grid, 256, 0, stream_of(x)>>>(*a)), (provider::logp_dz<float><<<grid, 256, 0, stream_of(x)>>>(*a)));
    return checked(x, "provider logp gradient");
}

extern "C" int rlki_provider_log_softmax(struct rlk_exec *x, const struct rlki_logp *a)
{
    provider::log_softmax<<<dim3((unsigned)a->rows, blocks_of(a->cols, 256)), 256, 0, stream_of(x)>>>(*a);
    return checked(x, "provider log-softmax");
}

extern "C" int rlki_provider_sample(struct rlk_exec *x, const struct rlki_sample *a)
{
    provider::sample<<<(unsigned)a->rows, 256, 0, stream_of(x)>>>(*a);
    return checked(x, "provider sample");
}
