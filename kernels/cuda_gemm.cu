/* cuda_gemm.cu - one chain of fused multiply-adds an element, k ascending (docs/contracts.md, section 4).
 *
 * Shapes: any m, n, k; operands contiguous along k or along their own dimension, tokens optionally through an index.
 * Order: a thread owns whole chains; tiles and threads only choose who. Steps beyond k are not taken (0*0 would turn -0).
 * Tile: 128 x 128 x 8 of 256 threads, 8 x 8 chains a thread: 64 FMA for 4 shared loads of 16 bytes; two buffers, loads of
 * the next step in flight during this one. Speed: docs/kernels.md. Breaks it: contraction (-fmad), split k, zero padding of k. */
#include "kernels/cuda_common.cuh"

#define BM 128
#define BN 128
#define BK 8
#define LD (BM + 4)

struct side {
    const void *p;
    int64_t out, red;
    const int32_t *index;
    int vec; /* loads of four are aligned */
};

/* One thread's four elements of each tile: along k (KMAJOR: row t/2, k 4*(t%2)) or along the own dimension (k t/32, rows
 * 4*(t%32)). left = own rows from its first on; q = the address at k0 = 0. */
template <typename T, bool KMAJOR> struct cursor {
    const T *q;
    int64_t red;
    const int32_t *index;
    int left, k, vec;

    __device__ __forceinline__ cursor(const side &s, int64_t o0, int64_t n)
    {
        const int t = threadIdx.x;
        const int64_t o = o0 + (KMAJOR ? t / 2 : 4 * (t % 32));
        k = KMAJOR ? 4 * (t % 2) : t / 32;
        left = (int)(n - o < 4 ? n - o : 4);
        red = s.red;
        index = s.index;
        vec = s.vec;
        q = static_cast<const T *>(s.p) + o * s.out;
    }

    __device__ __forceinline__ void fetch(int k0, int K, float v[4]) const
    {
        const int at = k0 + k;
        if (KMAJOR) {
            if (left > 0 && at + 4 <= K && vec) {
                get4(q + at, v);
                return;
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = left > 0 && at + i < K ? get(q, (index ? index[at + i] : at + i) * red) : 0.0f;
        } else {
            if (at >= K || left <= 0) {
                v[0] = v[1] = v[2] = v[3] = 0.0f;
                return;
            }
            const T *r = q + (index ? index[at] : at) * red;
            get_part(r, left, vec, v);
        }
    }
};

template <bool KMAJOR> __device__ __forceinline__ void stash(float (*to)[LD], const float v[4])
{
    const int t = threadIdx.x;
    if (KMAJOR) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[4 * (t % 2) + i][t / 2] = v[i];
    } else {
        *reinterpret_cast<float4 *>(&to[t / 32][4 * (t % 32)]) = make_float4(v[0], v[1], v[2], v[3]);
    }
}

__device__ __forceinline__ void step(const float *a, const float *b, float acc[8][8])
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float av[8], bv[8];
    *reinterpret_cast<float4 *>(av) = *reinterpret_cast<const float4 *>(a + 4 * ty);
    *reinterpret_cast<float4 *>(av + 4) = *reinterpret_cast<const float4 *>(a + 64 + 4 * ty);
    *reinterpret_cast<float4 *>(bv) = *reinterpret_cast<const float4 *>(b + 4 * tx);
    *reinterpret_cast<float4 *>(bv + 4) = *reinterpret_cast<const float4 *>(b + 64 + 4 * tx);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            acc[i][j] = rlkn_fma(av[i], bv[j], acc[i][j]);
}

template <typename T, bool AK, bool BKM, typename C>
__global__ void __launch_bounds__(256, 2) gemm_kernel(int m, int n, int K, side a, side b, C *c, int64_t ldc, int resume, int cvec)
{
    __shared__ __align__(16) float sa[2][BK][LD], sb[2][BK][LD];
    const int i0 = blockIdx.x * BM, j0 = blockIdx.y * BN;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const cursor<T, AK> ca(a, i0, m);
    const cursor<T, BKM> cb(b, j0, n);
    float acc[8][8], va[4], vb[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int r = i0 + (i / 4) * 64 + 4 * ty + i % 4, q = j0 + (j / 4) * 64 + 4 * tx + j % 4;
            acc[i][j] = resume && r < m && q < n ? get(c, r * ldc + q) : 0.0f;
        }
    if (K > 0) {
        ca.fetch(0, K, va);
        cb.fetch(0, K, vb);
        stash<AK>(sa[0], va);
        stash<BKM>(sb[0], vb);
        __syncthreads();
    }
    int buffer = 0;
    for (int k0 = 0; k0 < K; k0 += BK, buffer ^= 1) {
        const bool more = k0 + BK < K;
        if (more) {
            ca.fetch(k0 + BK, K, va);
            cb.fetch(k0 + BK, K, vb);
        }
        if (K - k0 >= BK) {
#pragma unroll
            for (int k = 0; k < BK; k++)
                step(sa[buffer][k], sb[buffer][k], acc);
        } else {
            for (int k = 0; k < K - k0; k++)
                step(sa[buffer][k], sb[buffer][k], acc);
        }
        if (more) {
            stash<AK>(sa[buffer ^ 1], va);
            stash<BKM>(sb[buffer ^ 1], vb);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = i0 + (i / 4) * 64 + 4 * ty + i % 4;
        if (r >= m)
            continue;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int q = j0 + h * 64 + 4 * tx;
            put_part(c + r * ldc + q, n - q, cvec, &acc[i][4 * h]);
        }
    }
}

static side side_of(const struct rlki_side *s, bool kmajor)
{
    const size_t e = rlk_ktype_bytes(s->type);
    const int64_t stride = kmajor ? s->out : s->red;
    const bool vec = (uintptr_t)s->p % (4 * e) == 0 && stride % 4 == 0 && (kmajor ? s->red == 1 && !s->index : s->out == 1);
    return side{s->p, s->out, s->red, s->index, vec};
}

template <typename T, typename C> static void launch(struct rlk_exec *x, const struct rlki_gemm *g)
{
    const bool ak = g->a.out != 1 || g->a.red == 1, bk = g->b.out != 1 || g->b.red == 1;
    const side a = side_of(&g->a, ak), b = side_of(&g->b, bk);
    const dim3 grid(blocks_of(g->m, BM), blocks_of(g->n, BN));
    const int cvec = (uintptr_t)g->c % (4 * sizeof(C)) == 0 && g->ldc % 4 == 0;
    C *c = static_cast<C *>(g->c);
    cudaStream_t s = stream_of(x);
    if (ak && bk)
        gemm_kernel<T, true, true><<<grid, 256, 0, s>>>((int)g->m, (int)g->n, (int)g->k, a, b, c, g->ldc, g->resume, cvec);
    else if (ak)
        gemm_kernel<T, true, false><<<grid, 256, 0, s>>>((int)g->m, (int)g->n, (int)g->k, a, b, c, g->ldc, g->resume, cvec);
    else if (bk)
        gemm_kernel<T, false, true><<<grid, 256, 0, s>>>((int)g->m, (int)g->n, (int)g->k, a, b, c, g->ldc, g->resume, cvec);
    else
        gemm_kernel<T, false, false><<<grid, 256, 0, s>>>((int)g->m, (int)g->n, (int)g->k, a, b, c, g->ldc, g->resume, cvec);
}

extern "C" int rlki_cuda_gemm(struct rlk_exec *x, const struct rlki_gemm *g)
{
    if (g->m <= 0 || g->n <= 0)
        return 0;
    const int thin = rlki_cuda_gemm_thin(x, g);
    if (thin <= 0)
        return thin;
    if (g->a.type == RLK_K_BF16 && g->c_type == RLK_K_BF16)
        launch<bf16, bf16>(x, g);
    else if (g->a.type == RLK_K_BF16)
        launch<bf16, float>(x, g);
    else
        launch<float, float>(x, g);
    return checked(x, "gemm");
}

/* ---- trees: ((0+1)+(2+3))+((4+5)+(6+7)) ---- */

struct leaves {
    const float *in[RLK_SLABS];
};

template <int COUNT, bool BF16_NODES, typename C>
__global__ void reduce_kernel(int64_t n, leaves l, float scale, C *out, int accumulate)
{
    const int64_t base = (int64_t)blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const int64_t i = base + q * 256;
        if (i >= n)
            continue;
        float v[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            v[k] = BF16_NODES ? rlkn_round_bf16(l.in[k][i]) : l.in[k][i];
#pragma unroll
        for (int s = 1; s < COUNT; s *= 2)
#pragma unroll
            for (int k = 0; k < COUNT; k += 2 * s) {
                v[k] = rlkn_add(v[k], v[k + s]);
                if (BF16_NODES)
                    v[k] = rlkn_round_bf16(v[k]);
            }
        float r = scale != 1.0f ? rlkn_mul(v[0], scale) : v[0];
        if (accumulate)
            r = rlkn_add(get(out, i), r);
        put(out, i, r);
    }
}

template <int COUNT, typename C> static void reduce_launch(struct rlk_exec *x, const struct rlki_reduce *r)
{
    leaves l;
    for (int k = 0; k < RLK_SLABS; k++)
        l.in[k] = r->in[k < r->count ? k : 0];
    C *out = static_cast<C *>(r->out);
    if (r->node == RLK_NODE_BF16)
        reduce_kernel<COUNT, true><<<blocks_of(r->n, 1024), 256, 0, stream_of(x)>>>(r->n, l, r->scale, out, r->accumulate);
    else
        reduce_kernel<COUNT, false><<<blocks_of(r->n, 1024), 256, 0, stream_of(x)>>>(r->n, l, r->scale, out, r->accumulate);
}

template <int COUNT> static void reduce_typed(struct rlk_exec *x, const struct rlki_reduce *r)
{
    BY_TYPE(r->out_type, (reduce_launch<COUNT, bf16>(x, r)), (reduce_launch<COUNT, float>(x, r)));
}

extern "C" int rlki_cuda_reduce(struct rlk_exec *x, const struct rlki_reduce *r)
{
    if (r->n <= 0)
        return 0;
    switch (r->count) {
    case 1: reduce_typed<1>(x, r); break;
    case 2: reduce_typed<2>(x, r); break;
    case 4: reduce_typed<4>(x, r); break;
    default: reduce_typed<8>(x, r); break;
    }
    return checked(x, "tree");
}

template <typename C> __global__ void fold_kernel(int64_t n, leaves l, int count, float scale, C *out, int accumulate)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    float v = l.in[0][i];
    for (int k = 1; k < count; k++)
        v += l.in[k][i];
    put(out, i, accumulate ? get(out, i) + v * scale : v * scale);
}

extern "C" int rlki_cuda_fold(struct rlk_exec *x, const struct rlki_reduce *r)
{
    leaves l;
    if (r->n <= 0)
        return 0;
    for (int k = 0; k < RLK_SLABS; k++)
        l.in[k] = r->in[k < r->count ? k : 0];
    BY_TYPE(r->out_type,
            (fold_kernel<<<blocks_of(r->n, 256), 256, 0, stream_of(x)>>>(r->n, l, r->count, r->scale, (bf16 *)r->out, r->accumulate)),
            (fold_kernel<<<blocks_of(r->n, 256), 256, 0, stream_of(x)>>>(r->n, l, r->count, r->scale, (float *)r->out, r->accumulate)));
    return checked(x, "fold");
}
