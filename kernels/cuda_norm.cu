/* cuda_norm.cu - RMSNorm over the hidden size and over heads, forward and backward.
 *
 * Order: docs/contracts.md, section 6; a row's sum runs over 128 lanes, thread t of a group of 128/E holds lanes E*t..E*t+E-1,
 * so it never depends on the grid. Speed: docs/kernels.md. Breaks it: another lane map, contraction. */
#include "kernels/cuda_wide.cuh"

#define WARPS 8

/* ---- forward ---- */

/* A row of at most 128*NV elements stays in the registers of 128/E threads; such a group takes R rows. */
template <typename T, int E, int NV, int R, bool FAST>
__global__ void __launch_bounds__(128) norm_fwd_held(int64_t rows, int n, const T *x, const T *gamma, T *y, float *rstd, float eps)
{
    constexpr int G = LANES / E, STEP = 128 / G;
    const int t = threadIdx.x % G;
    const int64_t row0 = (int64_t)blockIdx.x * (STEP * R) + threadIdx.x / G;
    piece<T, E> held[R][NV];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < NV; k++) {
            held[r][k].clear();
            if (row0 + r * STEP < rows && LANES * k + E * t < n)
                held[r][k].load(x + (row0 + r * STEP) * n + LANES * k + E * t);
        }
    float s[R], v[E], g[E];
#pragma unroll
    for (int r = 0; r < R; r++) {
        float acc[E];
#pragma unroll
        for (int i = 0; i < E; i++)
            acc[i] = 0.0f;
#pragma unroll
        for (int k = 0; k < NV; k++) { /* what a lane does not have is 0: 0*0 + acc = acc, for acc is never -0 */
            held[r][k].unpack(v);
#pragma unroll
            for (int i = 0; i < E; i++)
                acc[i] = rlkn_fma(v[i], v[i], acc[i]);
        }
        const float mean = rlkn_add(rlkn_div(group_lanes<E>(acc), (float)n), eps);
        s[r] = FAST ? rsqrtf(mean) : rlkn_rsqrt(mean);
        if (t == 0 && row0 + r * STEP < rows)
            rstd[row0 + r * STEP] = rlkn_canon(s[r]);
    }
    constexpr int AHEAD = NV < 8 ? NV : 8;
#pragma unroll
    for (int k0 = 0; k0 < NV; k0 += AHEAD) {
        piece<T, E> w[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            w[k].clear();
            if (LANES * (k0 + k) + E * t < n)
                w[k].load(gamma + LANES * (k0 + k) + E * t);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            w[k].unpack(g);
#pragma unroll
            for (int r = 0; r < R; r++) {
                held[r][k0 + k].unpack(v);
#pragma unroll
                for (int i = 0; i < E; i++)
                    v[i] = rlkn_mul(rlkn_mul(v[i], s[r]), g[i]);
                if (row0 + r * STEP < rows && LANES * (k0 + k) + E * t < n)
                    piece<T, E>::store(y + (row0 + r * STEP) * n + LANES * (k0 + k) + E * t, v);
            }
        }
    }
}

/* Any row that can be read in pieces: twice, eight pieces at a time. */
template <typename T, int E, bool FAST>
__global__ void __launch_bounds__(128) norm_fwd_twice(int64_t rows, int64_t n, const T *x, const T *gamma, T *y, float *rstd, float eps)
{
    constexpr int G = LANES / E, AHEAD = 8;
    const int t = threadIdx.x % G;
    const int64_t row = (int64_t)blockIdx.x * (128 / G) + threadIdx.x / G;
    const bool live = row < rows;
    float acc[E], v[E], g[E];
    piece<T, E> a[AHEAD];
#pragma unroll
    for (int i = 0; i < E; i++)
        acc[i] = 0.0f;
    for (int64_t from = E * t; from < n; from += AHEAD * LANES) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            a[k].clear();
            if (live && from + LANES * k < n)
                a[k].load(x + row * n + from + LANES * k);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            a[k].unpack(v);
#pragma unroll
            for (int i = 0; i < E; i++)
                acc[i] = rlkn_fma(v[i], v[i], acc[i]);
        }
    }
    const float mean = rlkn_add(rlkn_div(group_lanes<E>(acc), (float)n), eps);
    const float s = FAST ? rsqrtf(mean) : rlkn_rsqrt(mean);
    if (!live)
        return;
    if (t == 0)
        rstd[row] = rlkn_canon(s);
    for (int64_t from = E * t; from < n; from += AHEAD * LANES) {
        piece<T, E> w[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k < n) {
                a[k].load(x + row * n + from + LANES * k);
                w[k].load(gamma + from + LANES * k);
            }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k < n) {
                a[k].unpack(v);
                w[k].unpack(g);
#pragma unroll
                for (int i = 0; i < E; i++)
                    v[i] = rlkn_mul(rlkn_mul(v[i], s), g[i]);
                piece<T, E>::store(y + row * n + from + LANES * k, v);
            }
    }
}

/* Any row. */
template <typename T, bool FAST>
__global__ void __launch_bounds__(32 * WARPS) norm_fwd_any(int64_t rows, int64_t n, const T *x, const T *gamma, T *y, float *rstd, float eps)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (row >= rows)
        return;
    float acc[4] = {0, 0, 0, 0};
    for (int64_t at = 4 * t; at < n; at += LANES)
        for (int i = 0; i < 4; i++)
            if (at + i < n)
                acc[i] = rlkn_fma(get(x, row * n + at + i), get(x, row * n + at + i), acc[i]);
    const float mean = rlkn_add(rlkn_div(warp_lanes(acc), (float)n), eps);
    const float s = FAST ? rsqrtf(mean) : rlkn_rsqrt(mean);
    if (t == 0)
        rstd[row] = rlkn_canon(s);
    for (int64_t at = t; at < n; at += 32)
        put(y, row * n + at, rlkn_mul(rlkn_mul(get(x, row * n + at), s), get(gamma, at)));
}

template <typename T, int E, int NV, int R, bool FAST> static void norm_fwd_start(struct rlk_exec *x, const struct rlki_norm *a)
{
    norm_fwd_held<T, E, NV, R, FAST><<<blocks_of(a->rows, E * R), 128, 0, stream_of(x)>>>(a->rows, (int)a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                          (T *)a->y, a->rstd, a->eps);
}

template <typename T, bool FAST> static void norm_fwd_launch(struct rlk_exec *x, const struct rlki_norm *a)
{
    constexpr int E = wide<T>::E;
    const size_t e = sizeof(T);
    if (!wide_rows(a->x, a->n, e) || !wide_rows(a->gamma, a->n, e) || !wide_rows(a->y, a->n, e))
        norm_fwd_any<T, FAST><<<blocks_of(a->rows, WARPS), 32 * WARPS, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                          (T *)a->y, a->rstd, a->eps);
    else if (a->n <= 128)
        norm_fwd_start<T, E, 1, 4, FAST>(x, a);
    else if (a->n <= 1024)
        norm_fwd_start<T, E, 8, 1, FAST>(x, a);
    else if (a->n <= 2048)
        norm_fwd_start<T, E, 16, 1, FAST>(x, a);
    else if (a->n <= 4096)
        norm_fwd_start<T, 4, 32, 1, FAST>(x, a); /* 64 (bf16) or 128 registers a thread */
    else
        norm_fwd_twice<T, E, FAST><<<blocks_of(a->rows, E), 128, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma, (T *)a->y,
                                                                                    a->rstd, a->eps);
}

extern "C" int rlki_cuda_norm_fwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type, (norm_fwd_launch<bf16, false>(x, a)), (norm_fwd_launch<float, false>(x, a)));
    return checked(x, "rmsnorm");
}

extern "C" int rlki_cuda_fast_norm_fwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type, (norm_fwd_launch<bf16, true>(x, a)), (norm_fwd_launch<float, true>(x, a)));
    return checked(x, "provider rmsnorm");
}

/* ---- backward: dx may be dy, so a thread reads what it overwrites before it writes ---- */

template <typename T, int E, int NV, int R>
__global__ void __launch_bounds__(128) norm_bwd_held(int64_t rows, int n, const T *x, const T *gamma, const T *dy, T *dx, const float *rstd)
{
    constexpr int G = LANES / E, STEP = 128 / G, AHEAD = NV < 4 ? NV : 4;
    const int t = threadIdx.x % G;
    const int64_t row0 = (int64_t)blockIdx.x * (STEP * R) + threadIdx.x / G;
    piece<T, E> hx[R][NV], hd[R][NV], w[AHEAD];
    float s[R], c[R], v[E], d[E], g[E];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const bool live = row0 + r * STEP < rows;
        s[r] = live ? rstd[row0 + r * STEP] : 0.0f;
#pragma unroll
        for (int k = 0; k < NV; k++) {
            const int64_t at = (row0 + r * STEP) * n + LANES * k + E * t;
            hx[r][k].clear();
            hd[r][k].clear();
            if (live && LANES * k + E * t < n) {
                hx[r][k].load(x + at);
                hd[r][k].load(dy + at);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float acc[E];
#pragma unroll
        for (int i = 0; i < E; i++)
            acc[i] = 0.0f;
#pragma unroll
        for (int k0 = 0; k0 < NV; k0 += AHEAD) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                w[k].clear();
                if (LANES * (k0 + k) + E * t < n)
                    w[k].load(gamma + LANES * (k0 + k) + E * t);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const bool mine = LANES * (k0 + k) + E * t < n; /* 0 * inf would be NaN, and acc may be -0 */
                hx[r][k0 + k].unpack(v);
                hd[r][k0 + k].unpack(d);
                w[k].unpack(g);
#pragma unroll
                for (int i = 0; i < E; i++) {
                    const float sum = rlkn_fma(rlkn_mul(g[i], d[i]), rlkn_mul(v[i], s[r]), acc[i]);
                    acc[i] = mine ? sum : acc[i];
                }
            }
        }
        c[r] = rlkn_div(group_lanes<E>(acc), (float)n);
    }
#pragma unroll
    for (int k0 = 0; k0 < NV; k0 += AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            w[k].clear();
            if (LANES * (k0 + k) + E * t < n)
                w[k].load(gamma + LANES * (k0 + k) + E * t);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            w[k].unpack(g);
#pragma unroll
            for (int r = 0; r < R; r++) {
                hx[r][k0 + k].unpack(v);
                hd[r][k0 + k].unpack(d);
#pragma unroll
                for (int i = 0; i < E; i++)
                    v[i] = rlkn_mul(s[r], rlkn_fma(-rlkn_mul(v[i], s[r]), c[r], rlkn_mul(g[i], d[i])));
                if (row0 + r * STEP < rows && LANES * (k0 + k) + E * t < n)
                    piece<T, E>::store(dx + (row0 + r * STEP) * n + LANES * (k0 + k) + E * t, v);
            }
        }
    }
}

template <typename T, int E>
__global__ void __launch_bounds__(128, 3) norm_bwd_twice(int64_t rows, int64_t n, const T *x, const T *gamma, const T *dy, T *dx, const float *rstd)
{
    constexpr int G = LANES / E, AHEAD = 4;
    const int t = threadIdx.x % G;
    const int64_t row = (int64_t)blockIdx.x * (128 / G) + threadIdx.x / G;
    const bool live = row < rows;
    const float s = live ? rstd[row] : 0.0f;
    float acc[E], c = 0.0f, v[E], d[E], g[E];
#pragma unroll
    for (int i = 0; i < E; i++)
        acc[i] = 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t from = E * t; live && from < n; from += AHEAD * LANES) {
            piece<T, E> px[AHEAD], pd[AHEAD], pw[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (from + LANES * k < n) {
                    px[k].load(x + row * n + from + LANES * k);
                    pd[k].load(dy + row * n + from + LANES * k);
                    pw[k].load(gamma + from + LANES * k);
                }
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (from + LANES * k < n) {
                    px[k].unpack(v);
                    pd[k].unpack(d);
                    pw[k].unpack(g);
#pragma unroll
                    for (int i = 0; i < E; i++) {
                        d[i] = rlkn_mul(g[i], d[i]);
                        v[i] = rlkn_mul(v[i], s);
                        if (pass == 0)
                            acc[i] = rlkn_fma(d[i], v[i], acc[i]);
                        v[i] = rlkn_mul(s, rlkn_fma(-v[i], c, d[i]));
                    }
                    if (pass == 1)
                        piece<T, E>::store(dx + row * n + from + LANES * k, v);
                }
        }
        if (pass == 0)
            c = rlkn_div(group_lanes<E>(acc), (float)n);
    }
}

template <typename T>
__global__ void __launch_bounds__(32 * WARPS) norm_bwd_any(int64_t rows, int64_t n, const T *x, const T *gamma, const T *dy, T *dx,
                                                           const float *rstd)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float s = rstd[row];
    float acc[4] = {0, 0, 0, 0};
    for (int64_t at = 4 * t; at < n; at += LANES)
        for (int i = 0; i < 4; i++)
            if (at + i < n)
                acc[i] = rlkn_fma(rlkn_mul(get(gamma, at + i), get(dy, row * n + at + i)), rlkn_mul(get(x, row * n + at + i), s), acc[i]);
    const float c = rlkn_div(warp_lanes(acc), (float)n);
    for (int64_t at = t; at < n; at += 32) {
        const float d = rlkn_mul(get(gamma, at), get(dy, row * n + at));
        put(dx, row * n + at, rlkn_mul(s, rlkn_fma(-rlkn_mul(get(x, row * n + at), s), c, d)));
    }
}

template <typename T, int E, int NV, int R> static void norm_bwd_start(struct rlk_exec *x, const struct rlki_norm *a)
{
    norm_bwd_held<T, E, NV, R><<<blocks_of(a->rows, E * R), 128, 0, stream_of(x)>>>(a->rows, (int)a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                    (const T *)a->dy, (T *)a->y, a->rstd);
}

template <typename T> static void norm_bwd_launch(struct rlk_exec *x, const struct rlki_norm *a)
{
    constexpr int E = wide<T>::E;
    const size_t e = sizeof(T);
    if (!wide_rows(a->x, a->n, e) || !wide_rows(a->gamma, a->n, e) || !wide_rows(a->dy, a->n, e) || !wide_rows(a->y, a->n, e))
        norm_bwd_any<T><<<blocks_of(a->rows, WARPS), 32 * WARPS, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                    (const T *)a->dy, (T *)a->y, a->rstd);
    else if (a->n <= 128)
        norm_bwd_start<T, E, 1, 4>(x, a);
    else if (a->n <= 1024)
        norm_bwd_start<T, E, 8, 1>(x, a);
    else if (a->n <= 2048)
        norm_bwd_start<T, 4, 16, 1>(x, a);
    else if (a->n <= 4096 && sizeof(T) == 2)
        norm_bwd_start<bf16, 4, 32, 1>(x, a);
    else
        norm_bwd_twice<T, E><<<blocks_of(a->rows, E), 128, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                              (const T *)a->dy, (T *)a->y, a->rstd);
}

extern "C" int rlki_cuda_norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type, norm_bwd_launch<bf16>(x, a), norm_bwd_launch<float>(x, a));
    return checked(x, "rmsnorm backward");
}

/* ---- dgamma: one chain over tokens a leaf, slab and column. Few chains, so each block keeps the next rows of its columns on
 * their way into shared memory: 256 bytes of x and of dy a row, 16 rows a stage. ---- */

struct gamma_leaf_of { /* what one block walks */
    const int32_t *token;
    uint32_t steps, per, heads, h0;
    int64_t out;
};

__device__ __forceinline__ gamma_leaf_of gamma_leaf_at(const rlki_gamma &a, int item)
{
    const int leaf = item / a.slabs, slab = item % a.slabs;
    gamma_leaf_of g;
    g.per = (uint32_t)(a.heads / a.slabs);
    g.heads = (uint32_t)a.heads;
    g.h0 = g.per * (uint32_t)slab;
    g.token = a.token + a.start[leaf];
    g.steps = (uint32_t)(a.start[leaf + 1] - a.start[leaf]) * g.per; /* below 2^31, see the operator */
    g.out = (int64_t)item * a.n;
    return g;
}

__device__ __forceinline__ int64_t gamma_row(const gamma_leaf_of &g, uint32_t k)
{
    return g.per == 1 ? (int64_t)g.token[k] * g.heads + g.h0 : (int64_t)g.token[k / g.per] * g.heads + g.h0 + k % g.per;
}

template <typename T> __global__ void __launch_bounds__(128) gamma_wide(rlki_gamma a)
{
    constexpr int STAGES = 5, ROWS = 16, WIDTH = 256 / (int)sizeof(T), PIECES = 16;
    __shared__ __align__(16) T sx[STAGES][ROWS][WIDTH];
    __shared__ __align__(16) T sd[STAGES][ROWS][WIDTH];
    __shared__ float ss[STAGES][ROWS];
    const gamma_leaf_of g = gamma_leaf_at(a, (int)blockIdx.y);
    const T *x = (const T *)a.x, *dy = (const T *)a.dy;
    const int t = (int)threadIdx.x, r = t / PIECES, at = t % PIECES * wide<T>::E; /* this thread fetches rows r and r + 8 */
    const int64_t c0 = (int64_t)blockIdx.x * WIDTH;
    const bool fetch = c0 + at < a.n, sum = t < WIDTH && c0 + t < a.n;
    const uint32_t stages = (g.steps + ROWS - 1) / ROWS;
    int64_t row[2];
    float acc = 0.0f;
    for (uint32_t i = 0; i < 2; i++)
        row[i] = r + 8 * i < g.steps ? gamma_row(g, r + 8 * i) : -1;
    for (uint32_t s = 0; s < stages + STAGES - 1; s++) {
        if (s >= STAGES - 1) { /* stage s - (STAGES-1) has come; all threads are done with the one before it */
            copy_wait<STAGES - 2>();
            __syncthreads();
        }
        const int to = (int)(s % STAGES);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            if (s < stages && row[i] >= 0) {
                if (fetch) {
                    copy_async16(&sx[to][r + 8 * i][at], x + row[i] * a.n + c0 + at);
                    copy_async16(&sd[to][r + 8 * i][at], dy + row[i] * a.n + c0 + at);
                }
                if (at == 0)
                    copy_async4(&ss[to][r + 8 * i], a.rstd + row[i]);
            }
            const uint32_t k = (s + 1) * ROWS + r + 8 * i;
            row[i] = k < g.steps ? gamma_row(g, k) : -1;
        }
        copy_commit();
        if (s < STAGES - 1 || !sum)
            continue;
        const uint32_t now = s - (STAGES - 1), left = g.steps - now * ROWS;
        const int from = (int)(now % STAGES);
        if (left >= ROWS) {
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                acc = rlkn_fma(get(sd[from][k], t), rlkn_mul(get(sx[from][k], t), ss[from][k]), acc);
        } else {
            for (uint32_t k = 0; k < left; k++)
                acc = rlkn_fma(get(sd[from][k], t), rlkn_mul(get(sx[from][k], t), ss[from][k]), acc);
        }
    }
    if (sum)
        a.out[g.out + c0 + t] = rlkn_canon(acc);
}

template <typename T> __global__ void gamma_any(rlki_gamma a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const gamma_leaf_of g = gamma_leaf_at(a, (int)blockIdx.y);
    const T *x = (const T *)a.x, *dy = (const T *)a.dy;
    if (i >= a.n)
        return;
    float acc = 0.0f;
    for (uint32_t k = 0; k < g.steps; k++) {
        const int64_t row = gamma_row(g, k);
        acc = rlkn_fma(get(dy, row * a.n + i), rlkn_mul(get(x, row * a.n + i), a.rstd[row]), acc);
    }
    a.out[g.out + i] = rlkn_canon(acc);
}

template <typename T> static void gamma_launch(struct rlk_exec *x, const struct rlki_gamma *a)
{
    const unsigned items = (unsigned)(a->leaves * a->slabs);
    if (wide_rows(a->x, a->n, sizeof(T)) && wide_rows(a->dy, a->n, sizeof(T)))
        gamma_wide<T><<<dim3(blocks_of(a->n, 256 / (int64_t)sizeof(T)), items), 128, 0, stream_of(x)>>>(*a);
    else
        gamma_any<T><<<dim3(blocks_of(a->n, 64), items), 64, 0, stream_of(x)>>>(*a);
}

extern "C" int rlki_cuda_gamma(struct rlk_exec *x, const struct rlki_gamma *a)
{
    BY_TYPE(a->type, gamma_launch<bf16>(x, a), gamma_launch<float>(x, a));
    return checked(x, "norm gamma");
}
