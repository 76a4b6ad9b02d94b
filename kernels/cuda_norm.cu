/* cuda_norm.cu - RMSNorm over the hidden size and over heads, forward and backward.
 *
 * Order: docs/contracts.md, section 6; a row's sum runs over 128 lanes, thread t of a warp holds lanes 4t..4t+3, so it never
 * depends on the grid. Speed: docs/kernels.md. Breaks it: another lane map, contraction. */
#include "kernels/cuda_common.cuh"

#define WARPS 8

/* ---- RMSNorm; NV > 0: a row of at most 128*NV elements stays in registers ---- */

template <typename T, int NV, bool FAST>
__global__ void __launch_bounds__(32 * WARPS) norm_fwd_kernel(int64_t rows, int64_t n, const T *x, const T *gamma, T *y, float *rstd,
                                                              float eps, int vec)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (row >= rows)
        return;
    const T *p = x + row * n;
    float kept[NV > 0 ? NV : 1][4], acc[4] = {0, 0, 0, 0}, v[4], g[4];
    if constexpr (NV > 0) {
#pragma unroll
        for (int k = 0; k < NV; k++)
            get_part(p + 128 * k + 4 * t, n - 128 * k - 4 * t, vec, kept[k]);
#pragma unroll
        for (int k = 0; k < NV; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (128 * k + 4 * t + i < n)
                    acc[i] = rlkn_fma(kept[k][i], kept[k][i], acc[i]);
    } else {
        for (int64_t at = 4 * t; at < n; at += LANES) {
            get_part(p + at, n - at, vec, v);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (at + i < n)
                    acc[i] = rlkn_fma(v[i], v[i], acc[i]);
        }
    }
    const float mean = rlkn_add(rlkn_div(warp_lanes(acc), (float)n), eps);
    const float s = FAST ? rsqrtf(mean) : rlkn_rsqrt(mean);
    if (t == 0)
        rstd[row] = rlkn_canon(s);
    if constexpr (NV > 0) {
#pragma unroll
        for (int k = 0; k < NV; k++) {
            const int64_t at = 128 * k + 4 * t;
            if (at >= n)
                break;
            get_part(gamma + at, n - at, vec, g);
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = rlkn_mul(rlkn_mul(kept[k][i], s), g[i]);
            put_part(y + row * n + at, n - at, vec, v);
        }
    } else {
        for (int64_t at = 4 * t; at < n; at += LANES) {
            get_part(p + at, n - at, vec, v);
            get_part(gamma + at, n - at, vec, g);
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = rlkn_mul(rlkn_mul(v[i], s), g[i]);
            put_part(y + row * n + at, n - at, vec, v);
        }
    }
}

template <typename T, bool FAST> static void norm_fwd_launch(struct rlk_exec *x, const struct rlki_norm *a)
{
    const T *p = (const T *)a->x, *g = (const T *)a->gamma;
    T *y = (T *)a->y;
    const int vec = aligned4(p, a->n, sizeof(T)) && aligned4(g, a->n, sizeof(T)) && aligned4(y, a->n, sizeof(T));
    const unsigned grid = blocks_of(a->rows, WARPS);
    cudaStream_t s = stream_of(x);
    if (a->n <= 128)
        norm_fwd_kernel<T, 1, FAST><<<grid, 32 * WARPS, 0, s>>>(a->rows, a->n, p, g, y, a->rstd, a->eps, vec);
    else if (a->n <= 1024)
        norm_fwd_kernel<T, 8, FAST><<<grid, 32 * WARPS, 0, s>>>(a->rows, a->n, p, g, y, a->rstd, a->eps, vec);
    else if (a->n <= 2048)
        norm_fwd_kernel<T, 16, FAST><<<grid, 32 * WARPS, 0, s>>>(a->rows, a->n, p, g, y, a->rstd, a->eps, vec);
    else if (a->n <= 4096)
        norm_fwd_kernel<T, 32, FAST><<<grid, 32 * WARPS, 0, s>>>(a->rows, a->n, p, g, y, a->rstd, a->eps, vec);
    else
        norm_fwd_kernel<T, 0, FAST><<<grid, 32 * WARPS, 0, s>>>(a->rows, a->n, p, g, y, a->rstd, a->eps, vec);
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

template <typename T>
__global__ void __launch_bounds__(32 * WARPS) norm_bwd_kernel(int64_t rows, int64_t n, const T *x, const T *gamma, const T *dy, T *dx,
                                                              const float *rstd, int vec)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float s = rstd[row];
    float acc[4] = {0, 0, 0, 0}, c = 0.0f, v[4], g[4], d[4];
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t at = 4 * t; at < n; at += LANES) {
            get_part(x + row * n + at, n - at, vec, v);
            get_part(gamma + at, n - at, vec, g);
            get_part(dy + row * n + at, n - at, vec, d);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                d[i] = rlkn_mul(g[i], d[i]);
                v[i] = rlkn_mul(v[i], s);
                if (pass == 0 && at + i < n)
                    acc[i] = rlkn_fma(d[i], v[i], acc[i]);
                if (pass == 1)
                    v[i] = rlkn_mul(s, rlkn_fma(-v[i], c, d[i]));
            }
            if (pass == 1)
                put_part(dx + row * n + at, n - at, vec, v);
        }
        if (pass == 0)
            c = rlkn_div(warp_lanes(acc), (float)n);
    }
}

template <typename T> static void norm_bwd_launch(struct rlk_exec *x, const struct rlki_norm *a)
{
    const int vec = aligned4(a->x, a->n, sizeof(T)) && aligned4(a->gamma, a->n, sizeof(T)) && aligned4(a->dy, a->n, sizeof(T)) &&
                    aligned4(a->y, a->n, sizeof(T));
    norm_bwd_kernel<<<blocks_of(a->rows, WARPS), 32 * WARPS, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                (const T *)a->dy, (T *)a->y, a->rstd, vec);
}

extern "C" int rlki_cuda_norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type, norm_bwd_launch<bf16>(x, a), norm_bwd_launch<float>(x, a));
    return checked(x, "rmsnorm backward");
}

template <typename T>
__global__ void gamma_kernel(int64_t count, int64_t n, const int32_t *token, int heads, int h0, int h1, const T *x, const T *dy,
                             const float *rstd, float *out)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float acc = 0.0f;
    const uint32_t per = (uint32_t)(h1 - h0), steps = (uint32_t)count * per; /* below 2^31 rows, see the operator */
    constexpr uint32_t AHEAD = 8;
    for (uint32_t k = 0; k < steps; k += AHEAD) {
        float xv[AHEAD], dv[AHEAD], sv[AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++) {
            const uint32_t at = k + u < steps ? k + u : steps - 1;
            const int64_t row = (int64_t)token[at / per] * heads + h0 + at % per;
            xv[u] = get(x, row * n + i);
            dv[u] = get(dy, row * n + i);
            sv[u] = rstd[row];
        }
#pragma unroll
        for (uint32_t u = 0; u < AHEAD; u++)
            if (k + u < steps)
                acc = rlkn_fma(dv[u], rlkn_mul(xv[u], sv[u]), acc);
    }
    out[i] = rlkn_canon(acc);
}

extern "C" int rlki_cuda_gamma(struct rlk_exec *x, const struct rlki_gamma *a)
{
    BY_TYPE(a->type,
            (gamma_kernel<<<blocks_of(a->n, 64), 64, 0, stream_of(x)>>>(a->count, a->n, a->token, a->heads, a->h0, a->h1, (const bf16 *)a->x,
                                                                        (const bf16 *)a->dy, a->rstd, a->out)),
            (gamma_kernel<<<blocks_of(a->n, 64), 64, 0, stream_of(x)>>>(a->count, a->n, a->token, a->heads, a->h0, a->h1, (const float *)a->x,
                                                                        (const float *)a->dy, a->rstd, a->out)));
    return checked(x, "norm gamma");
}
