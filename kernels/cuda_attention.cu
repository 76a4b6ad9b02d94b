/* cuda_attention.cu - causal attention, packed sequences, grouped queries (docs/contracts.md, section 7).
 *
 * Shapes: tiles of at most 64 query rows of one sequence, head_dim 64 or 128, key tiles of 128 absolute positions (forward,
 * dQ) or 64 keys (dK/dV: a key's chain runs over queries, so its own tile is free). Order: scores, probabilities and outputs
 * of a row are chains of one thread each; keys beyond the row's position are not visited. One block an SM (227 KB of shared
 * memory at head_dim 128). Speed: docs/kernels.md. Breaks it: split keys, merged rows, skipped rescales, masked zeros. */
#include "kernels/cuda_common.cuh"

#define KT 128
#define QT 64
#define SLD (KT + 4)
#define DKT 64
#define DQT 32

/* to[d][128] = the transposed tile; rows beyond `keys` are zero. */
template <typename T, int D, int N>
__device__ __forceinline__ void load_transposed(const T *p, int64_t row0, int64_t stride, int keys, float *to)
{
    for (int e = threadIdx.x; e < N * (D / 4); e += blockDim.x) {
        const int j = e % N, d = 4 * (e / N);
        float v[4] = {0, 0, 0, 0};
        if (j < keys)
            get4(p + (row0 + j) * stride + d, v);
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[(d + i) * N + j] = v[i];
    }
}

/* to[rows][d] */
template <typename T, int D>
__device__ __forceinline__ void load_plain(const T *p, int64_t row0, int64_t stride, int rows, int room, float *to)
{
    for (int e = threadIdx.x; e < room * (D / 4); e += blockDim.x) {
        const int r = e / (D / 4), d = 4 * (e % (D / 4));
        float v[4] = {0, 0, 0, 0};
        if (r < rows)
            get4(p + (row0 + r) * stride + d, v);
        *reinterpret_cast<float4 *>(to + r * D + d) = make_float4(v[0], v[1], v[2], v[3]);
    }
}

/* 4 rows x 8 keys a thread: z[i][j] = chain over d of q[4ty+i][d] * kt[d][4tx+j | 64+4tx+j]. */
template <int D> __device__ __forceinline__ void scores(const float *q, const float *kt, float z[4][8])
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            z[i][j] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < D; d++) {
        float k[8];
        *reinterpret_cast<float4 *>(k) = *reinterpret_cast<const float4 *>(kt + d * KT + 4 * tx);
        *reinterpret_cast<float4 *>(k + 4) = *reinterpret_cast<const float4 *>(kt + d * KT + 64 + 4 * tx);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float qi = q[(4 * ty + i) * D + d];
#pragma unroll
            for (int j = 0; j < 8; j++)
                z[i][j] = rlkn_fma(qi, k[j], z[i][j]);
        }
    }
}

/* acc[i][c] continued: chain over j < seen[i] of s[4ty+i][j] * v[j][column c]. Columns 4tx.. (and 64+4tx.. when D = 128). */
template <int D> __device__ __forceinline__ void weigh(const float *s, const float *v, const int seen[4], float acc[4][D / 16])
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int least = seen[0], most = seen[0];
#pragma unroll
    for (int i = 1; i < 4; i++) {
        least = min(least, seen[i]);
        most = max(most, seen[i]);
    }
    for (int j = 0; j < most; j++) {
        float w[D / 16];
#pragma unroll
        for (int h = 0; h < D / 64; h++)
            *reinterpret_cast<float4 *>(w + 4 * h) = *reinterpret_cast<const float4 *>(v + j * D + 64 * h + 4 * tx);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float p = s[(4 * ty + i) * SLD + j];
            if (j < least || j < seen[i])
#pragma unroll
                for (int c = 0; c < D / 16; c++)
                    acc[i][c] = rlkn_fma(p, w[c], acc[i][c]);
        }
    }
}

template <typename T, int D, bool FAST> __global__ void __launch_bounds__(256, 1) attn_fwd_kernel(struct rlki_attention a)
{
    extern __shared__ __align__(16) float smem[];
    float *q = smem, *kt = q + QT * D, *v = kt + KT * D, *s = v + KT * D, *alpha = s + QT * SLD, *sum = alpha + QT, *top = sum + QT;
    const struct rlki_tile tile = a.tile[blockIdx.x];
    const int h = blockIdx.y, kvh = h / (a.heads / a.kv_heads), t = threadIdx.x, tx = t % 16, ty = t / 16;
    const int64_t qs = (int64_t)a.heads * D, ks = (int64_t)a.kv_heads * D;
    const T *Q = (const T *)a.q + h * D, *K = (const T *)a.k + kvh * D, *V = (const T *)a.v + kvh * D;
    float o[4][D / 16];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            o[i][c] = 0.0f;
    if (t < QT) {
        top[t] = -RLKN_INF;
        sum[t] = 0.0f;
    }
    load_plain<T, D>(Q, tile.row, qs, tile.rows, QT, q);
    for (int k0 = 0; k0 <= tile.last; k0 += KT) {
        const int keys = min(KT, tile.last + 1 - k0);
        __syncthreads();
        load_transposed<T, D, KT>(K, tile.base + k0, ks, keys, kt);
        load_plain<T, D>(V, tile.base + k0, ks, keys, KT, v);
        __syncthreads();
        float z[4][8];
        int seen[4];
        scores<D>(q, kt, z);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 4 * ty + i;
            seen[i] = r < tile.rows ? max(0, min(KT, a.pos[tile.row + r] + 1 - k0)) : 0;
#pragma unroll
            for (int j = 0; j < 8; j++)
                s[r * SLD + (j / 4) * 64 + 4 * tx + j % 4] = rlkn_mul(z[i][j], a.scale);
        }
        __syncthreads();
        /* A warp takes rows w, w+8, ...: maximum, exponentials, the tree. */
        for (int r = t / 32; r < QT; r += 8) {
            const int lane = t % 32;
            const int n = r < tile.rows ? max(0, min(KT, a.pos[tile.row + r] + 1 - k0)) : 0;
            if (n == 0) {
                if (lane == 0)
                    alpha[r] = 1.0f;
                continue;
            }
            float e[4], m = -RLKN_INF;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                e[i] = s[r * SLD + 4 * lane + i];
                if (4 * lane + i < n)
                    m = rlkn_max(m, e[i]);
            }
            m = rlkn_max(top[r], warp_max(m));
            const float base = m == -RLKN_INF ? 0.0f : m;
            const float al = exp_of<FAST>(rlkn_add(top[r], -base));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                e[i] = 4 * lane + i < n ? exp_of<FAST>(rlkn_add(e[i], -base)) : 0.0f;
                s[r * SLD + 4 * lane + i] = e[i];
            }
            const float l = warp_lanes(e);
            __syncwarp();
            if (lane == 0) {
                sum[r] = rlkn_fma(sum[r], al, l);
                top[r] = m;
                alpha[r] = al;
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (seen[i])
#pragma unroll
                for (int c = 0; c < D / 16; c++)
                    o[i][c] = rlkn_mul(o[i][c], alpha[4 * ty + i]);
        weigh<D>(s, v, seen, o);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * ty + i;
        if (r >= tile.rows)
            continue;
        const int64_t at = (int64_t)(tile.row + r) * a.heads + h;
        T *out = (T *)a.o + at * D;
#pragma unroll
        for (int g = 0; g < D / 64; g++) {
            float y[4];
#pragma unroll
            for (int c = 0; c < 4; c++)
                y[c] = rlkn_div(o[i][4 * g + c], sum[r]);
            put4(out + 64 * g + 4 * tx, y);
        }
        if (tx == 0 && a.lse)
            a.lse[at] = rlkn_canon(rlkn_add(top[r], rlkn_log(sum[r])));
    }
}

template <typename T, int D, bool FAST> static int attn_fwd_launch(struct rlk_exec *x, const struct rlki_attention *a)
{
    const size_t bytes = (size_t)(QT * D + 2 * KT * D + QT * SLD + 3 * QT) * sizeof(float);
    const cudaError_t e = cudaFuncSetAttribute(attn_fwd_kernel<T, D, FAST>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e != cudaSuccess)
        return checked(x, "attention: shared memory");
    const dim3 grid((unsigned)a->tiles, (unsigned)a->heads);
    attn_fwd_kernel<T, D, FAST><<<grid, 256, bytes, stream_of(x)>>>(*a);
    return checked(x, "attention");
}

extern "C" int rlki_cuda_attn_fwd(struct rlk_exec *x, const struct rlki_attention *a)
{
    if (a->type == RLK_K_BF16)
        return a->d == 128 ? attn_fwd_launch<bf16, 128, false>(x, a) : attn_fwd_launch<bf16, 64, false>(x, a);
    return a->d == 128 ? attn_fwd_launch<float, 128, false>(x, a) : attn_fwd_launch<float, 64, false>(x, a);
}

extern "C" int rlki_cuda_fast_attn_fwd(struct rlk_exec *x, const struct rlki_attention *a)
{
    if (a->type == RLK_K_BF16)
        return a->d == 128 ? attn_fwd_launch<bf16, 128, true>(x, a) : attn_fwd_launch<bf16, 64, true>(x, a);
    return a->d == 128 ? attn_fwd_launch<float, 128, true>(x, a) : attn_fwd_launch<float, 64, true>(x, a);
}

/* delta = lanes of dO*O, a warp a (row, head). */
template <typename T> __global__ void delta_kernel(int64_t n, int d, const T *dout, const T *o, float *delta)
{
    const int64_t r = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (r >= n)
        return;
    float a[4] = {0, 0, 0, 0}, b[4] = {0, 0, 0, 0}, acc[4];
    if (4 * t < d) {
        get4(dout + r * d + 4 * t, a);
        get4(o + r * d + 4 * t, b);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] = 4 * t < d ? rlkn_fma(a[i], b[i], 0.0f) : 0.0f;
    const float s = warp_lanes(acc);
    if (t == 0)
        delta[r] = s;
}

template <typename T, int D, bool FAST> __global__ void __launch_bounds__(256, 1) attn_dq_kernel(struct rlki_attention a)
{
    extern __shared__ __align__(16) float smem[];
    float *q = smem, *g = q + QT * D, *kt = g + QT * D, *vt = kt + KT * D, *s = vt + KT * D;
    const struct rlki_tile tile = a.tile[blockIdx.x];
    const int h = blockIdx.y, kvh = h / (a.heads / a.kv_heads), tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int64_t qs = (int64_t)a.heads * D, ks = (int64_t)a.kv_heads * D;
    const T *K = (const T *)a.k + kvh * D, *V = (const T *)a.v + kvh * D;
    float dq[4][D / 16], lse[4], delta[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * ty + i;
        const int64_t at = (int64_t)(tile.row + (r < tile.rows ? r : 0)) * a.heads + h;
        lse[i] = a.lse[at];
        delta[i] = a.delta[at];
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            dq[i][c] = 0.0f;
    }
    load_plain<T, D>((const T *)a.q + h * D, tile.row, qs, tile.rows, QT, q);
    load_plain<T, D>((const T *)a.dout + h * D, tile.row, qs, tile.rows, QT, g);
    for (int k0 = 0; k0 <= tile.last; k0 += KT) {
        const int keys = min(KT, tile.last + 1 - k0);
        __syncthreads();
        load_transposed<T, D, KT>(K, tile.base + k0, ks, keys, kt);
        load_transposed<T, D, KT>(V, tile.base + k0, ks, keys, vt);
        __syncthreads();
        float z[4][8], dp[4][8];
        int seen[4];
        scores<D>(q, kt, z);
        scores<D>(g, vt, dp);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 4 * ty + i;
            seen[i] = r < tile.rows ? max(0, min(KT, a.pos[tile.row + r] + 1 - k0)) : 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float p = exp_of<FAST>(rlkn_add(rlkn_mul(z[i][j], a.scale), -lse[i]));
                s[r * SLD + (j / 4) * 64 + 4 * tx + j % 4] = rlkn_mul(p, rlkn_add(dp[i][j], -delta[i]));
            }
        }
        __syncthreads();
        load_plain<T, D>(K, tile.base + k0, ks, keys, KT, vt); /* [key][d], in the place of V */
        __syncthreads();
        weigh<D>(s, vt, seen, dq);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * ty + i;
        if (r >= tile.rows)
            continue;
        T *out = (T *)a.o + ((int64_t)(tile.row + r) * a.heads + h) * D;
#pragma unroll
        for (int c = 0; c < D / 64; c++) {
            float y[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                y[k] = rlkn_mul(dq[i][4 * c + k], a.scale);
            put4(out + 64 * c + 4 * tx, y);
        }
    }
}

template <typename T, int D, bool FAST> static int attn_dq_launch(struct rlk_exec *x, const struct rlki_attention *a)
{
    const size_t bytes = (size_t)(2 * QT * D + 2 * KT * D + QT * SLD) * sizeof(float);
    const int64_t n = a->rows * a->heads;
    delta_kernel<<<blocks_of(n, 8), 256, 0, stream_of(x)>>>(n, D, (const T *)a->dout, (const T *)a->o_in, a->delta);
    if (cudaFuncSetAttribute(attn_dq_kernel<T, D, FAST>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess)
        return checked(x, "attention backward: shared memory");
    const dim3 grid((unsigned)a->tiles, (unsigned)a->heads);
    attn_dq_kernel<T, D, FAST><<<grid, 256, bytes, stream_of(x)>>>(*a);
    return checked(x, "attention dq");
}

template <bool FAST> static int attn_dq(struct rlk_exec *x, const struct rlki_attention *a)
{
    if (a->type == RLK_K_BF16)
        return a->d == 128 ? attn_dq_launch<bf16, 128, FAST>(x, a) : attn_dq_launch<bf16, 64, FAST>(x, a);
    return a->d == 128 ? attn_dq_launch<float, 128, FAST>(x, a) : attn_dq_launch<float, 64, FAST>(x, a);
}

extern "C" int rlki_cuda_attn_dq(struct rlk_exec *x, const struct rlki_attention *a) { return attn_dq<false>(x, a); }
extern "C" int rlki_cuda_fast_attn_dq(struct rlk_exec *x, const struct rlki_attention *a) { return attn_dq<true>(x, a); }

/* ---- dK, dV of one leaf: block = (sequence, 64 keys, kv head) ---- */

#define PLD (DKT + 4)

template <typename T, int D, bool FAST> __global__ void __launch_bounds__(256, 1) attn_dkv_kernel(struct rlki_attention_dkv f, int tiles)
{
    extern __shared__ __align__(16) float smem[];
    float *kt = smem, *vt = kt + DKT * D, *q = vt + DKT * D, *g = q + DQT * D, *p = g + DQT * D, *ds = p + DQT * PLD;
    int *pos = (int *)(ds + DQT * PLD);
    const struct rlki_attention &a = f.at;
    const struct rlki_leaf_seq sq = f.seq[blockIdx.x / tiles];
    const int k0 = (int)(blockIdx.x % tiles) * DKT, keys = min(DKT, sq.len - k0), kvh = blockIdx.y, group = a.heads / a.kv_heads;
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const int64_t qs = (int64_t)a.heads * D, ks = (int64_t)a.kv_heads * D;
    if (keys <= 0)
        return;
    float dk[4][D / 16], dv[4][D / 16];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            dk[i][c] = dv[i][c] = 0.0f;
    load_transposed<T, D, DKT>((const T *)a.k + kvh * D, sq.base + k0, ks, keys, kt);
    load_transposed<T, D, DKT>((const T *)a.v + kvh * D, sq.base + k0, ks, keys, vt);
    for (int h = kvh * group; h < (kvh + 1) * group; h++)
        for (int half = FAST ? (int)blockIdx.z : 0; half < (FAST ? (int)blockIdx.z + 1 : 2); half++) {
            const int from = half ? sq.hi0 : sq.lo0, to = half ? sq.hi1 : sq.lo1;
            for (int r0 = from; r0 < to; r0 += DQT) {
                const int rows = min(DQT, to - r0);
                __syncthreads();
                load_plain<T, D>((const T *)a.q + h * D, r0, qs, rows, DQT, q);
                load_plain<T, D>((const T *)a.dout + h * D, r0, qs, rows, DQT, g);
                if (t < DQT)
                    pos[t] = t < rows ? a.pos[r0 + t] : -1;
                __syncthreads();
                /* 2 rows x 4 keys a thread */
                float z[2][4] = {}, dp[2][4] = {};
#pragma unroll 4
                for (int d = 0; d < D; d++) {
                    const float4 kk = *reinterpret_cast<const float4 *>(kt + d * DKT + 4 * tx);
                    const float4 vv = *reinterpret_cast<const float4 *>(vt + d * DKT + 4 * tx);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const float qi = q[(2 * ty + i) * D + d], gi = g[(2 * ty + i) * D + d];
                        z[i][0] = rlkn_fma(qi, kk.x, z[i][0]), z[i][1] = rlkn_fma(qi, kk.y, z[i][1]);
                        z[i][2] = rlkn_fma(qi, kk.z, z[i][2]), z[i][3] = rlkn_fma(qi, kk.w, z[i][3]);
                        dp[i][0] = rlkn_fma(gi, vv.x, dp[i][0]), dp[i][1] = rlkn_fma(gi, vv.y, dp[i][1]);
                        dp[i][2] = rlkn_fma(gi, vv.z, dp[i][2]), dp[i][3] = rlkn_fma(gi, vv.w, dp[i][3]);
                    }
                }
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int r = 2 * ty + i;
                    const int64_t at = (int64_t)(r0 + (r < rows ? r : 0)) * a.heads + h;
                    const float lse = a.lse[at], delta = a.delta[at];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float e = exp_of<FAST>(rlkn_add(rlkn_mul(z[i][j], a.scale), -lse));
                        p[r * PLD + 4 * tx + j] = e;
                        ds[r * PLD + 4 * tx + j] = rlkn_mul(e, rlkn_add(dp[i][j], -delta));
                    }
                }
                __syncthreads();
                /* 4 keys (4ty..) x D/16 columns a thread: chains over the rows ascending. */
                for (int r = 0; r < rows; r++) {
                    const int last = pos[r] - k0; /* keys up to here are seen */
                    if (last < 4 * ty)
                        continue;
                    float qv[D / 16], gv[D / 16];
#pragma unroll
                    for (int c = 0; c < D / 64; c++) {
                        *reinterpret_cast<float4 *>(qv + 4 * c) = *reinterpret_cast<const float4 *>(q + r * D + 64 * c + 4 * tx);
                        *reinterpret_cast<float4 *>(gv + 4 * c) = *reinterpret_cast<const float4 *>(g + r * D + 64 * c + 4 * tx);
                    }
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (4 * ty + i > last)
                            continue;
                        const float pr = p[r * PLD + 4 * ty + i], dr = ds[r * PLD + 4 * ty + i];
#pragma unroll
                        for (int c = 0; c < D / 16; c++) {
                            dk[i][c] = rlkn_fma(dr, qv[c], dk[i][c]);
                            dv[i][c] = rlkn_fma(pr, gv[c], dv[i][c]);
                        }
                    }
                }
            }
        }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int j = 4 * ty + i;
        if (j >= keys)
            continue;
        const int64_t at = ((int64_t)(sq.base + k0 + j) * a.kv_heads + kvh) * D;
        if constexpr (FAST) { /* the two halves of the queries meet in atomics */
            for (int c = 0; c < D / 16; c++) {
                atomicAdd(f.dk + at + 64 * (c / 4) + 4 * tx + c % 4, dk[i][c]);
                atomicAdd(f.dv + at + 64 * (c / 4) + 4 * tx + c % 4, dv[i][c]);
            }
        } else {
#pragma unroll
            for (int c = 0; c < D / 64; c++) {
                put4(f.dk + at + 64 * c + 4 * tx, &dk[i][4 * c]);
                put4(f.dv + at + 64 * c + 4 * tx, &dv[i][4 * c]);
            }
        }
    }
}

template <typename T, int D, bool FAST> static int attn_dkv_launch(struct rlk_exec *x, const struct rlki_attention_dkv *f)
{
    const size_t bytes = (size_t)(2 * DKT * D + 2 * DQT * D + 2 * DQT * PLD + DQT) * sizeof(float);
    const int tiles = (int)((f->max_len + DKT - 1) / DKT);
    if (cudaFuncSetAttribute(attn_dkv_kernel<T, D, FAST>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess)
        return checked(x, "attention backward: shared memory");
    const dim3 grid((unsigned)(f->seqs * tiles), (unsigned)f->at.kv_heads, FAST ? 2 : 1);
    const size_t all = (size_t)f->key_rows * (size_t)f->at.kv_heads * D * sizeof(float);
    if (FAST && (cudaMemsetAsync(f->dk, 0, all, stream_of(x)) != cudaSuccess || cudaMemsetAsync(f->dv, 0, all, stream_of(x)) != cudaSuccess))
        return checked(x, "attention backward");
    if (grid.x)
        attn_dkv_kernel<T, D, FAST><<<grid, 256, bytes, stream_of(x)>>>(*f, tiles);
    return checked(x, "attention dk dv");
}

template <bool FAST> static int attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *f)
{
    if (f->at.type == RLK_K_BF16)
        return f->at.d == 128 ? attn_dkv_launch<bf16, 128, FAST>(x, f) : attn_dkv_launch<bf16, 64, FAST>(x, f);
    return f->at.d == 128 ? attn_dkv_launch<float, 128, FAST>(x, f) : attn_dkv_launch<float, 64, FAST>(x, f);
}

extern "C" int rlki_cuda_attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *f) { return attn_dkv<false>(x, f); }
extern "C" int rlki_cuda_fast_attn_dkv(struct rlk_exec *x, const struct rlki_attention_dkv *f) { return attn_dkv<true>(x, f); }
