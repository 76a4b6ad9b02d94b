/* cuda_norm.cu - RMSNorm over the hidden size and over heads, forward. Backward: cuda_norm_bwd.cu.
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
