/* cuda_gemm_thin.cu - the product of a few rows (decode: one a sequence) with a weight that is read once.
 *
 * Same chains as cuda_gemm.cu: c[i][j] takes k ascending, one fused multiply-add a step. A tile of 128 rows would do the work
 * of 128 for one, on as many multiprocessors as there are 128 columns. Here a block has 32 columns and a warp a row; the
 * weight's next 128 bytes a column are on their way into shared memory, five stages ahead. Blocks in y are the leaves of a
 * sum over features: consecutive parts of k, each into a matrix of its own. */
#include "kernels/cuda_wide.cuh"

#define COLUMNS 32
#define THIN_ROWS 8
#define STAGES 6
#define PIECES 8 /* of 16 bytes: a column's share of a stage */

struct thin {
    int m, n, k; /* k of one leaf */
    const void *a, *b;
    int64_t lda, ldb, ldc;
    void *c[RLK_SLABS];
    int resume;
};

template <typename T, typename C> __global__ void __launch_bounds__(256) thin_kernel(thin g)
{
    constexpr int E = wide<T>::E, KS = PIECES * E, LD_B = KS + E; /* a column's pieces fall into banks of their own */
    __shared__ __align__(16) T sa[STAGES][THIN_ROWS][KS];
    __shared__ __align__(16) T sb[STAGES][COLUMNS][LD_B];
    const int t = (int)threadIdx.x, n0 = (int)blockIdx.x * COLUMNS, leaf = (int)blockIdx.y, all = (int)blockDim.x;
    const int lane = t % 32, row = t / 32;
    const T *a = (const T *)g.a + (int64_t)leaf * g.k, *b = (const T *)g.b + (int64_t)leaf * g.k;
    C *c = (C *)g.c[leaf] + row * g.ldc + n0 + lane;
    const bool mine = n0 + lane < g.n;
    const int stages = (g.k + KS - 1) / KS;
    float acc = g.resume && mine ? get(c, 0) : 0.0f;
    for (int s = 0; s < stages + STAGES - 1; s++) {
        if (s >= STAGES - 1) { /* stage s - (STAGES-1) has come; all threads are done with the one before it */
            copy_wait<STAGES - 2>();
            __syncthreads();
        }
        const int to = s % STAGES, k0 = s * KS;
        if (s < stages) {
            for (int i = t; i < COLUMNS * PIECES; i += all) {
                const int r = i / PIECES, at = i % PIECES * E;
                if (n0 + r < g.n && k0 + at < g.k)
                    copy_async16(&sb[to][r][at], b + (int64_t)(n0 + r) * g.ldb + k0 + at);
            }
            for (int i = t; i < g.m * PIECES; i += all) {
                const int r = i / PIECES, at = i % PIECES * E;
                if (k0 + at < g.k)
                    copy_async16(&sa[to][r][at], a + r * g.lda + k0 + at);
            }
        }
        copy_commit();
        if (s < STAGES - 1 || !mine)
            continue;
        const int now = s - (STAGES - 1), from = now % STAGES, left = g.k - now * KS;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            float av[E], bv[E];
            piece<T, E> pa, pb;
            if (p * E >= left)
                break;
            pa.load(&sa[from][row][p * E]);
            pb.load(&sb[from][lane][p * E]);
            pa.unpack(av);
            pb.unpack(bv);
#pragma unroll
            for (int e = 0; e < E; e++)
                acc = rlkn_fma(av[e], bv[e], acc);
        }
    }
    if (mine)
        put(c, 0, acc);
}

static bool fits(const struct rlki_gemm *g)
{
    const size_t e = rlk_ktype_bytes(g->a.type);
    return g->m >= 1 && g->m <= THIN_ROWS && g->n >= 1 && g->k >= 1 && g->a.red == 1 && g->b.red == 1 && !g->a.index && !g->b.index &&
           (size_t)g->k * e % 16 == 0 && wide_rows(g->a.p, g->a.out, e) && wide_rows(g->b.p, g->b.out, e);
}

template <typename T, typename C> static void launch(struct rlk_exec *x, const thin &t, int leaves)
{
    thin_kernel<T, C><<<dim3(blocks_of(t.n, COLUMNS), (unsigned)leaves), (unsigned)(32 * t.m), 0, stream_of(x)>>>(t);
}

/* 1: not of this kind. */
static int run(struct rlk_exec *x, const struct rlki_gemm *g, int leaves, float *const *c)
{
    thin t = {(int)g->m, (int)g->n, (int)g->k, g->a.p, g->b.p, g->a.out, g->b.out, g->ldc, {g->c}, g->resume};
    if (!fits(g))
        return 1;
    for (int l = 0; c && l < leaves; l++)
        t.c[l] = c[l];
    if (g->a.type == RLK_K_BF16 && g->c_type == RLK_K_BF16)
        launch<bf16, bf16>(x, t, leaves);
    else if (g->a.type == RLK_K_BF16)
        launch<bf16, float>(x, t, leaves);
    else
        launch<float, float>(x, t, leaves);
    return checked(x, "gemm of few rows");
}

extern "C" int rlki_cuda_gemm_thin(struct rlk_exec *x, const struct rlki_gemm *g)
{
    return run(x, g, 1, NULL);
}

extern "C" int rlki_cuda_gemm_leaves(struct rlk_exec *x, const struct rlki_gemm *g, int leaves, float *const *c)
{
    return run(x, g, leaves, c);
}
