/* cuda_norm_bwd.cu - RMSNorm over the hidden size and over heads, backward: dx and dgamma.
 *
 * Order: docs/contracts.md, section 6. A row's sum runs over 128 lanes, as forward; dgamma is one chain over the tokens of
 * a leaf for each slab and column, so there are few chains and each is long. dx needs a whole row first and a chain needs
 * its rows one after another: nothing can do both from one read. So the two kernels run at the same time (programmatic
 * dependent launch) and walk the rows in the same order: dx takes the k-th row of every leaf together. Who comes second
 * finds the row in the L2. Where dx takes dy's place the two follow one another.
 *
 * Speed: docs/kernels.md. Breaks it: another lane map, another order of a leaf's rows, contraction. */
#include "kernels/cuda_wide.cuh"

#define WARPS 8

/* ---- dx: may be dy, so a thread reads what it overwrites before it writes ---- */

/* Which rows, in which order: tokens of several heads, by leaf (the k-th token of each of 1 << shift leaves, then the next) or,
 * without a list, as they lie. */
struct row_order {
    const int32_t *token;
    int64_t start[RLK_SLABS + 1];
    uint32_t steps, heads;
    int shift;
};

/* Row h of the step-th token; -1: none. */
__device__ __forceinline__ int64_t row_at(const row_order &o, uint32_t step, uint32_t h)
{
    if (step >= o.steps)
        return -1;
    if (!o.token)
        return (int64_t)step * o.heads + h;
    const uint32_t leaf = step & ((1u << o.shift) - 1);
    const int64_t k = o.start[leaf] + (step >> o.shift);
    return k < o.start[leaf + 1] ? (int64_t)o.token[k] * o.heads + h : -1;
}

/* dgamma's kernel may still run beside dx's: the last block of dx ends after it, so that what follows finds both. */
__device__ __forceinline__ void let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void last_block_waits()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blockIdx.x == gridDim.x - 1)
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Rows of at most 128*NV elements in the registers of 128/E threads; row[r] = -1: none. */
template <typename T, int E, int NV, int R>
__device__ __forceinline__ void norm_bwd_rows(const int64_t row[R], int n, const T *x, const T *gamma, const T *dy, T *dx, const float *rstd)
{
    constexpr int G = LANES / E, AHEAD = NV < 4 ? NV : 4;
    const int t = threadIdx.x % G;
    piece<T, E> hx[R][NV], hd[R][NV], w[AHEAD];
    float s[R], c[R], v[E], d[E], g[E];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const bool live = row[r] >= 0;
        s[r] = live ? rstd[row[r]] : 0.0f;
#pragma unroll
        for (int k = 0; k < NV; k++) {
            const int64_t at = row[r] * n + LANES * k + E * t;
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
                if (row[r] >= 0 && LANES * (k0 + k) + E * t < n)
                    piece<T, E>::store(dx + row[r] * n + LANES * (k0 + k) + E * t, v);
            }
        }
    }
}

template <typename T, int E, int NV, int R> __global__ void __launch_bounds__(128) norm_bwd_held(struct rlki_norm b, const __grid_constant__ row_order o)
{
    constexpr int STEP = 128 * E / LANES;
    const uint32_t i = blockIdx.x * (STEP * R) + threadIdx.x / (LANES / E);
    uint32_t step = i / o.heads, h = i % o.heads;
    int64_t row[R];
#pragma unroll
    for (int r = 0; r < R; r++, h += STEP) {
        for (; h >= o.heads; h -= o.heads)
            step++;
        row[r] = row_at(o, step, h);
    }
    norm_bwd_rows<T, E, NV, R>(row, (int)b.n, (const T *)b.x, (const T *)b.gamma, (const T *)b.dy, (T *)b.y, b.rstd);
    last_block_waits();
}

/* Longer rows, of at most 16 KB: a block of 64 threads brings one into shared memory, 16 bytes a copy, and each thread takes two
 * lanes of it from there. Held in registers the row would have to be read in pieces of 4 bytes, or by half the warps. */
template <typename T> __global__ void __launch_bounds__(64) norm_bwd_shared(struct rlki_norm b, const __grid_constant__ row_order o)
{
    constexpr int AHEAD = 8;
    extern __shared__ __align__(16) float smem[];
    __shared__ float upper[64], sum;
    const int n = (int)b.n, t = (int)threadIdx.x;
    const T *gamma = (const T *)b.gamma + 2 * t;
    T *const sx = (T *)smem, *const sd = sx + n;
    const int64_t row = row_at(o, blockIdx.x / o.heads, blockIdx.x % o.heads);
    if (row < 0) {
        last_block_waits();
        return;
    }
    const shared_at to = in_shared(smem);
    const int bytes = n * (int)sizeof(T);
    for (int at = 16 * t; at < bytes; at += 16 * 64) {
        copy_async16(to + at, (const char *)b.x + row * bytes + at, true);
        copy_async16(to + bytes + at, (const char *)b.dy + row * bytes + at, true);
    }
    copy_commit();
    const float s = b.rstd[row];
    float acc[2] = {0.0f, 0.0f}, v[2], d[2], g[2];
    copy_wait<0>();
    __syncthreads();
    for (int from = 0; from < n; from += AHEAD * LANES) {
        piece<T, 2> w[AHEAD], px[AHEAD], pd[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k + 2 * t < n) {
                w[k].load(gamma + from + LANES * k);
                px[k].load(sx + from + LANES * k + 2 * t);
                pd[k].load(sd + from + LANES * k + 2 * t);
            }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k + 2 * t < n) {
                px[k].unpack(v);
                pd[k].unpack(d);
                w[k].unpack(g);
#pragma unroll
                for (int e = 0; e < 2; e++)
                    acc[e] = rlkn_fma(rlkn_mul(g[e], d[e]), rlkn_mul(v[e], s), acc[e]);
            }
    }
    /* The halving tree: lanes 64..127 are the second warp's. */
    if (t >= 32) {
        upper[2 * (t - 32)] = acc[0];
        upper[2 * (t - 32) + 1] = acc[1];
    }
    __syncthreads();
    if (t < 32) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            acc[e] = rlkn_add(acc[e], upper[2 * t + e]);
#pragma unroll
            for (int far = 16; far >= 1; far /= 2)
                acc[e] = rlkn_add(acc[e], __shfl_xor_sync(0xffffffffu, acc[e], far));
        }
        if (t == 0)
            sum = rlkn_add(acc[0], acc[1]);
    }
    __syncthreads();
    const float c = rlkn_div(sum, (float)n);
    T *const dx = (T *)b.y + row * n + 2 * t;
    for (int from = 0; from < n; from += AHEAD * LANES) {
        piece<T, 2> w[AHEAD], px[AHEAD], pd[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k + 2 * t < n) {
                w[k].load(gamma + from + LANES * k);
                px[k].load(sx + from + LANES * k + 2 * t);
                pd[k].load(sd + from + LANES * k + 2 * t);
            }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (from + LANES * k + 2 * t < n) {
                px[k].unpack(v);
                pd[k].unpack(d);
                w[k].unpack(g);
#pragma unroll
                for (int e = 0; e < 2; e++)
                    v[e] = rlkn_mul(s, rlkn_fma(-rlkn_mul(v[e], s), c, rlkn_mul(g[e], d[e])));
                piece<T, 2>::store(dx + from + LANES * k, v);
            }
    }
    last_block_waits();
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

static bool wide_norm(const struct rlki_norm *a, size_t e)
{
    return wide_rows(a->x, a->n, e) && wide_rows(a->gamma, a->n, e) && wide_rows(a->dy, a->n, e) && wide_rows(a->y, a->n, e);
}

/* A block of `threads` takes rows_a_block rows; beside: it may start while dgamma's kernel, the launch before, still runs. */
template <typename K>
static void start(struct rlk_exec *x, K kernel, int64_t rows_a_block, int threads, size_t shared, const struct rlki_norm *b, const row_order &o,
                  bool beside)
{
    const unsigned grid = blocks_of((int64_t)o.steps * o.heads, rows_a_block);
#ifdef __CUDACC__
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(grid);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream_of(x);
    config.attrs = &early;
    config.numAttrs = beside ? 1 : 0;
    if (beside || shared) /* two kernels share an SM only under one division of its memory */
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    cudaLaunchKernelEx(&config, kernel, *b, o);
#else
    (void)beside;
    kernel<<<grid, threads, shared, stream_of(x)>>>(*b, o);
#endif
}

/* dx of rows of at most 16 KB (x and dy together) that can be read in pieces of 16 bytes. */
template <typename T> static void norm_bwd_ordered(struct rlk_exec *x, const struct rlki_norm *b, const row_order &o, bool beside)
{
    constexpr int E = wide<T>::E;
    if (b->n <= 128)
        start(x, norm_bwd_held<T, E, 1, 4>, 4 * E, 128, 0, b, o, beside);
    else if (b->n <= 1024)
        start(x, norm_bwd_held<T, E, 8, 1>, E, 128, 0, b, o, beside);
    else
        start(x, norm_bwd_shared<T>, 1, 64, 2 * (size_t)b->n * sizeof(T), b, o, beside);
}

#define SHARED_ROW 16384 /* of x and dy together */

template <typename T> static void norm_bwd_launch(struct rlk_exec *x, const struct rlki_norm *a)
{
    constexpr int E = wide<T>::E;
    const row_order as_they_lie = {NULL, {0}, (uint32_t)a->rows, 1, 0};
    if (!wide_norm(a, sizeof(T)))
        norm_bwd_any<T><<<blocks_of(a->rows, WARPS), 32 * WARPS, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                                    (const T *)a->dy, (T *)a->y, a->rstd);
    else if (2 * a->n * (int64_t)sizeof(T) <= SHARED_ROW && a->rows < INT32_MAX)
        norm_bwd_ordered<T>(x, a, as_they_lie, false);
    else
        norm_bwd_twice<T, E><<<blocks_of(a->rows, E), 128, 0, stream_of(x)>>>(a->rows, a->n, (const T *)a->x, (const T *)a->gamma,
                                                                              (const T *)a->dy, (T *)a->y, a->rstd);
}

extern "C" int rlki_cuda_norm_bwd(struct rlk_exec *x, const struct rlki_norm *a)
{
    BY_TYPE(a->type, norm_bwd_launch<bf16>(x, a), norm_bwd_launch<float>(x, a));
    return checked(x, "rmsnorm backward");
}

/* ---- dgamma: a block walks 256 bytes of a leaf's rows. Four warps fetch, 32 rows a stage, into shared memory; four add, a column
 * a thread. With one warp a scheduler each instruction waits for the one before, so the two halves must not be one. ---- */

#define STAGE_ROWS 32
#define STAGES 4
#define STRIP 256 /* bytes of a row */

struct gamma_leaf_of { /* what one block walks */
    const int32_t *token;
    uint32_t steps, per, heads, h0;
    int shift; /* per = 1 << shift, where it is one */
    int64_t out;
};

__device__ __forceinline__ gamma_leaf_of gamma_leaf_at(const rlki_gamma &a, int item)
{
    const int leaf = item / a.slabs, slab = item % a.slabs;
    gamma_leaf_of g;
    g.per = (uint32_t)(a.heads / a.slabs);
    g.heads = (uint32_t)a.heads;
    g.h0 = g.per * (uint32_t)slab;
    g.shift = 0;
    for (int b = 0; b < 16; b++)
        g.shift = g.per == 1u << b ? b : g.shift;
    g.token = a.token + a.start[leaf];
    g.steps = (uint32_t)(a.start[leaf + 1] - a.start[leaf]) * g.per; /* below 2^31, see the operator */
    g.out = (int64_t)item * a.n;
    return g;
}

template <bool SHIFT> __device__ __forceinline__ int32_t gamma_token(const gamma_leaf_of &g, uint32_t k)
{
    return k >= g.steps ? 0 : g.token[SHIFT ? k >> g.shift : k / g.per];
}

template <bool SHIFT> __device__ __forceinline__ int64_t gamma_row(const gamma_leaf_of &g, uint32_t k, int32_t token)
{
    return (int64_t)token * g.heads + g.h0 + (SHIFT ? k & (g.per - 1) : k % g.per);
}

#define STAGE_ROOM (STAGES * STAGE_ROWS * STRIP) /* of x; then as much of dy, then a scale a row */

/* Four warps: this thread brings 16 bytes of the rows r, r + TOGETHER, ... of each stage. */
template <typename T, bool SHIFT> __device__ __forceinline__ void gamma_fetch(const rlki_gamma &a, const gamma_leaf_of &g, int64_t c0, shared_at room)
{
    constexpr int PIECES = STRIP / 16, TOGETHER = 128 / PIECES, MINE = STAGE_ROWS / TOGETHER;
    const int t = (int)threadIdx.x % 128, at = t % PIECES * wide<T>::E;
    const uint32_t r = (uint32_t)(t / PIECES), stages = (g.steps + STAGE_ROWS - 1) / STAGE_ROWS;
    const T *const x = (const T *)a.x + c0 + at, *const dy = (const T *)a.dy + c0 + at;
    const bool fetch = c0 + at < a.n;
    const shared_at to = room + r * STRIP + t % PIECES * 16, scale = room + 2 * STAGE_ROOM + 4 * r;
    int32_t now[MINE], next[MINE]; /* tokens are read two stages ahead: a load whose result is used at once stops the warp */
#pragma unroll
    for (uint32_t m = 0; m < MINE; m++) {
        now[m] = gamma_token<SHIFT>(g, r + TOGETHER * m);
        next[m] = gamma_token<SHIFT>(g, r + TOGETHER * m + STAGE_ROWS);
    }
    for (uint32_t s = 0; s < stages + STAGES - 1; s++) {
        if (s >= STAGES - 1) { /* stage s - (STAGES-1) has come; the one before it is added */
            copy_wait<STAGES - 2>();
            __syncthreads();
        }
        const uint32_t slot = s % STAGES * STAGE_ROWS;
#pragma unroll
        for (uint32_t m = 0; m < MINE; m++) {
            const uint32_t q = slot + TOGETHER * m, k = s * STAGE_ROWS + r + TOGETHER * m;
            const int64_t row = gamma_row<SHIFT>(g, k, now[m]);
            const bool on = k < g.steps;
            copy_async16(to + q * STRIP, x + row * a.n, on && fetch);
            copy_async16(to + q * STRIP + STAGE_ROOM, dy + row * a.n, on && fetch);
            copy_async4(scale + 4 * q, a.rstd + row, on && at == 0);
            now[m] = next[m];
            next[m] = gamma_token<SHIFT>(g, k + 2 * STAGE_ROWS);
        }
        copy_commit();
    }
}

/* `rows` rows, at most 16, from p and 4-byte scales from ps on: all loads first. */
template <typename T> __device__ __forceinline__ float gamma_add(shared_at p, shared_at ps, uint32_t rows, float acc)
{
    constexpr int N = 16;
    float x[N], d[N], s[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        x[k] = shared_get(p + k * STRIP, (const T *)NULL);
        d[k] = shared_get(p + k * STRIP + STAGE_ROOM, (const T *)NULL);
    }
#pragma unroll
    for (int k = 0; k < N; k += 4) {
        const float4 f = shared_get4(ps + 4 * k);
        s[k] = f.x, s[k + 1] = f.y, s[k + 2] = f.z, s[k + 3] = f.w;
    }
    if (rows >= N) {
#pragma unroll
        for (int k = 0; k < N; k++)
            acc = rlkn_fma(d[k], rlkn_mul(x[k], s[k]), acc);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            acc = (uint32_t)k < rows ? rlkn_fma(d[k], rlkn_mul(x[k], s[k]), acc) : acc;
    }
    return acc;
}

template <typename T, bool SHIFT> __global__ void __launch_bounds__(256, 2) gamma_wide(rlki_gamma a)
{
    constexpr int WIDTH = STRIP / (int)sizeof(T);
    extern __shared__ __align__(16) float smem[];
    let_next_start();
    const shared_at room = in_shared(smem);
    const gamma_leaf_of g = gamma_leaf_at(a, (int)blockIdx.y);
    const int64_t c0 = (int64_t)blockIdx.x * WIDTH;
    const int t = (int)threadIdx.x;
    if (t >= 128) {
        gamma_fetch<T, SHIFT>(a, g, c0, room);
        return;
    }
    const bool sum = t < WIDTH && c0 + t < a.n;
    float acc = 0.0f;
    for (uint32_t k = 0, slot = 0; k < g.steps; k += STAGE_ROWS, slot = slot + 1 == STAGES ? 0 : slot + 1) {
        const uint32_t left = g.steps - k;
        __syncthreads(); /* the fetchers' of this stage */
        const shared_at p = room + slot * (STAGE_ROWS * STRIP) + t * (int)sizeof(T), ps = room + 2 * STAGE_ROOM + slot * (4 * STAGE_ROWS);
        if (!sum)
            continue;
        acc = gamma_add<T>(p, ps, left, acc);
        if (left > 16)
            acc = gamma_add<T>(p + 16 * STRIP, ps + 64, left - 16, acc);
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
        const int64_t row = gamma_row<false>(g, k, gamma_token<false>(g, k));
        acc = rlkn_fma(get(dy, row * a.n + i), rlkn_mul(get(x, row * a.n + i), a.rstd[row]), acc);
    }
    a.out[g.out + i] = rlkn_canon(acc);
}

template <typename T, bool SHIFT> static int gamma_start(struct rlk_exec *x, const struct rlki_gamma *a)
{
    const int bytes = 2 * STAGE_ROOM + STAGES * STAGE_ROWS * (int)sizeof(float);
    const dim3 grid(blocks_of(a->n, STRIP / (int64_t)sizeof(T)), (unsigned)(a->leaves * a->slabs));
    if (cudaFuncSetAttribute(gamma_wide<T, SHIFT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess)
        return checked(x, "norm gamma: shared memory");
    gamma_wide<T, SHIFT><<<grid, 256, bytes, stream_of(x)>>>(*a);
    return checked(x, "norm gamma");
}

template <typename T> static int gamma_launch(struct rlk_exec *x, const struct rlki_gamma *a)
{
    const int per = a->heads / a->slabs;
    if (wide_rows(a->x, a->n, sizeof(T)) && wide_rows(a->dy, a->n, sizeof(T)))
        return per < 1 << 16 && (per & (per - 1)) == 0 ? gamma_start<T, true>(x, a) : gamma_start<T, false>(x, a);
    gamma_any<T><<<dim3(blocks_of(a->n, 64), (unsigned)(a->leaves * a->slabs)), 64, 0, stream_of(x)>>>(*a);
    return checked(x, "norm gamma");
}

extern "C" int rlki_cuda_gamma(struct rlk_exec *x, const struct rlki_gamma *a)
{
    return a->type == RLK_K_BF16 ? gamma_launch<bf16>(x, a) : gamma_launch<float>(x, a);
}

static bool apart(const void *a, const void *b, size_t bytes)
{
    return (uintptr_t)a + bytes <= (uintptr_t)b || (uintptr_t)b + bytes <= (uintptr_t)a;
}

extern "C" int rlki_cuda_norm_bwd_gamma(struct rlk_exec *x, const struct rlki_norm *b, const struct rlki_gamma *a)
{
    const size_t e = rlk_ktype_bytes(b->type), bytes = (size_t)b->rows * (size_t)b->n * e;
    const bool countable = b->rows < 1 << 27 && (a->leaves & (a->leaves - 1)) == 0; /* in 32 bits; by shifts */
    int rc = rlki_cuda_gamma(x, a);
    if (rc || !b->rows)
        return rc;
    if (!wide_norm(b, e) || !apart(b->y, b->x, bytes) || !apart(b->y, b->dy, bytes) || 2 * b->n * (int64_t)e > SHARED_ROW || !countable)
        return rlki_cuda_norm_bwd(x, b); /* after dgamma: dx may take the place of dy */
    row_order o = {a->token, {0}, 0, (uint32_t)a->heads, 0};
    int64_t widest = 0;
    for (int l = 0; l < a->leaves; l++) {
        o.start[l] = a->start[l];
        o.start[l + 1] = a->start[l + 1];
        widest = a->start[l + 1] - a->start[l] > widest ? a->start[l + 1] - a->start[l] : widest;
    }
    while (1 << o.shift < a->leaves)
        o.shift++;
    o.steps = (uint32_t)widest << o.shift;
    BY_TYPE(b->type, norm_bwd_ordered<bf16>(x, b, o, true), norm_bwd_ordered<float>(x, b, o, true));
    return checked(x, "rmsnorm backward");
}
