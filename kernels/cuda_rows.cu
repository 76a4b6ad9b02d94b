/* cuda_rows.cu - rotary embedding, SwiGLU, residual sum, AdamW, embedding: memory-bound.
 *
 * Order: docs/contracts.md, section 6. Speed: docs/kernels.md. */
#include "kernels/cuda_wide.cuh"

#define WARPS 8

/* ---- elementwise ---- */

/* A thread takes the same E pairs of HEADS heads of one token, so that it reads its cosines and sines once. */
template <typename T>
__global__ void __launch_bounds__(128) rope_wide(uint32_t items, int heads, int d, const T *x, T *y, const int32_t *pos, const float *table,
                                                 int inverse)
{
    constexpr int E = wide<T>::E, HEADS = 4;
    const uint32_t i = blockIdx.x * 128 + threadIdx.x;
    if (i >= items)
        return;
    const uint32_t columns = (uint32_t)(d / 2 / E), groups = (uint32_t)((heads + HEADS - 1) / HEADS);
    const int at = (int)(i % columns) * E, h0 = (int)(i / columns % groups) * HEADS;
    const int64_t token = i / columns / groups, base = (token * heads + h0) * d + at;
    piece<T, E> pu[HEADS], pv[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        pu[h].clear();
        pv[h].clear();
        if (h0 + h < heads) {
            pu[h].load(x + base + h * d);
            pv[h].load(x + base + h * d + d / 2);
        }
    }
    const float *c = table + (int64_t)pos[token] * d + at;
    float cs[E], sn[E], u[E], v[E], p[E], q[E];
#pragma unroll
    for (int k = 0; k < E; k += 4) {
        get4(c + k, cs + k);
        get4(c + d / 2 + k, sn + k);
    }
#pragma unroll
    for (int k = 0; k < E; k++)
        sn[k] = inverse ? -sn[k] : sn[k];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        pu[h].unpack(u);
        pv[h].unpack(v);
#pragma unroll
        for (int k = 0; k < E; k++) {
            p[k] = rlkn_fma(u[k], cs[k], -rlkn_mul(v[k], sn[k]));
            q[k] = rlkn_fma(v[k], cs[k], rlkn_mul(u[k], sn[k]));
        }
        if (h0 + h < heads) {
            piece<T, E>::store(y + base + h * d, p);
            piece<T, E>::store(y + base + h * d + d / 2, q);
        }
    }
}

template <typename T>
__global__ void rope_any(int64_t items, int heads, int d, const T *x, T *y, const int32_t *pos, const float *table, int inverse)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; /* a pair */
    if (i >= items)
        return;
    const int64_t head = i / (d / 2), at = i % (d / 2), token = head / heads;
    const float *c = table + (int64_t)pos[token] * d + at;
    const float u = get(x, head * d + at), v = get(x, head * d + d / 2 + at), s = inverse ? -c[d / 2] : c[d / 2];
    put(y, head * d + at, rlkn_fma(u, c[0], -rlkn_mul(v, s)));
    put(y, head * d + d / 2 + at, rlkn_fma(v, c[0], rlkn_mul(u, s)));
}

template <typename T> static void rope_launch(struct rlk_exec *x, const struct rlki_rope *a)
{
    const int64_t items = a->tokens * ((a->heads + 3) / 4) * (a->d / 2 / wide<T>::E), pairs = a->tokens * a->heads * (a->d / 2);
    if (items < INT32_MAX && wide_rows(a->x, a->d, sizeof(T)) && wide_rows(a->y, a->d, sizeof(T)) && wide_rows(a->table, a->d, 4))
        rope_wide<T><<<blocks_of(items, 128), 128, 0, stream_of(x)>>>((uint32_t)items, a->heads, a->d, (const T *)a->x, (T *)a->y, a->pos, a->table,
                                                                      a->inverse);
    else
        rope_any<T><<<blocks_of(pairs, 256), 256, 0, stream_of(x)>>>(pairs, a->heads, a->d, (const T *)a->x, (T *)a->y, a->pos, a->table, a->inverse);
}

extern "C" int rlki_cuda_rope(struct rlk_exec *x, const struct rlki_rope *a)
{
    BY_TYPE(a->type, rope_launch<bf16>(x, a), rope_launch<float>(x, a));
    return checked(x, "rope");
}

/* ---- SwiGLU. While all gates of a thread are within +-80 the quotient comes from the reciprocal unit, exact all the same
 * (rlk_num.h); else, and at the ends, element by element. dgate and dup may be gate and up: a thread reads before it writes. ---- */

__device__ __forceinline__ float reciprocal_near(float b)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    return r;
#else
    return 1.0f / b;
#endif
}

#define NEAR 80.0f

template <typename T, bool FAST> __global__ void __launch_bounds__(256, 5) glu_fwd_kernel(int64_t n, const T *gate, const T *up, T *y, int vec)
{
    constexpr int E = wide<T>::E;
    const int64_t at = E * ((int64_t)blockIdx.x * 256 + threadIdx.x);
    if (vec && at + E <= n) {
        piece<T, E> pg, pu;
        pg.load(gate + at);
        pu.load(up + at);
        float g[E], u[E], far = 0.0f;
        pg.unpack(g);
        pu.unpack(u);
#pragma unroll
        for (int i = 0; i < E; i++) {
            far = fmaxf(far, fabsf(g[i])); /* passes over NaN: its quotient is NaN either way */
            if constexpr (FAST) {
                u[i] = rlkn_mul(__fdividef(g[i], rlkn_add(1.0f, exp_of<true>(-g[i]))), u[i]);
            } else {
                const float b = rlkn_one_plus_exp_near(-g[i]);
                u[i] = rlkn_mul(rlkn_quotient_near(g[i], b, reciprocal_near(b)), u[i]);
            }
        }
        if (FAST || far <= NEAR) {
            piece<T, E>::store(y + at, u);
            return;
        }
    }
    for (int64_t i = at; i < at + E && i < n; i++) {
        const float g = get(gate, i);
        put(y, i, rlkn_mul(rlkn_div(g, rlkn_add(1.0f, exp_of<FAST>(-g))), get(up, i)));
    }
}

template <typename T, bool FAST> static void glu_fwd_launch(struct rlk_exec *x, const struct rlki_glu *a)
{
    const int vec = wide_rows(a->gate, 16, 1) && wide_rows(a->up, 16, 1) && wide_rows(a->y, 16, 1);
    glu_fwd_kernel<T, FAST><<<blocks_of(a->n, 256 * wide<T>::E), 256, 0, stream_of(x)>>>(a->n, (const T *)a->gate, (const T *)a->up, (T *)a->y, vec);
}

extern "C" int rlki_cuda_glu_fwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    BY_TYPE(a->type, (glu_fwd_launch<bf16, false>(x, a)), (glu_fwd_launch<float, false>(x, a)));
    return checked(x, "swiglu");
}

extern "C" int rlki_cuda_fast_glu_fwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    BY_TYPE(a->type, (glu_fwd_launch<bf16, true>(x, a)), (glu_fwd_launch<float, true>(x, a)));
    return checked(x, "provider swiglu");
}

template <typename T>
__global__ void __launch_bounds__(256, 4) glu_bwd_kernel(int64_t n, const T *gate, const T *up, const T *dy, T *dgate, T *dup, int vec)
{
    constexpr int E = wide<T>::E;
    const int64_t at = E * ((int64_t)blockIdx.x * 256 + threadIdx.x);
    if (vec && at + E <= n) {
        piece<T, E> pg, pu, pd;
        pg.load(gate + at);
        pu.load(up + at);
        pd.load(dy + at);
        float g[E], u[E], d[E], far = 0.0f;
        pg.unpack(g);
        pu.unpack(u);
        pd.unpack(d);
#pragma unroll
        for (int i = 0; i < E; i++) {
            far = fmaxf(far, fabsf(g[i]));
            const float b = rlkn_one_plus_exp_near(-g[i]), r = reciprocal_near(b);
            const float s = rlkn_quotient_near(1.0f, b, r);
            const float t = rlkn_fma(g[i], rlkn_add(1.0f, -s), 1.0f);
            const float dg = rlkn_mul(rlkn_mul(d[i], u[i]), rlkn_mul(s, t));
            u[i] = rlkn_mul(d[i], rlkn_quotient_near(g[i], b, r));
            g[i] = dg;
        }
        if (far <= NEAR) {
            piece<T, E>::store(dgate + at, g);
            piece<T, E>::store(dup + at, u);
            return;
        }
    }
    for (int64_t i = at; i < at + E && i < n; i++) {
        const float g = get(gate, i), u = get(up, i), d = get(dy, i), e = rlkn_add(1.0f, rlkn_exp(-g));
        const float s = rlkn_div(1.0f, e), t = rlkn_fma(g, rlkn_add(1.0f, -s), 1.0f);
        put(dgate, i, rlkn_mul(rlkn_mul(d, u), rlkn_mul(s, t)));
        put(dup, i, rlkn_mul(d, rlkn_div(g, e)));
    }
}

template <typename T> static void glu_bwd_launch(struct rlk_exec *x, const struct rlki_glu *a)
{
    const int vec = wide_rows(a->gate, 16, 1) && wide_rows(a->up, 16, 1) && wide_rows(a->dy, 16, 1) && wide_rows(a->dgate, 16, 1) &&
                    wide_rows(a->dup, 16, 1);
    glu_bwd_kernel<T><<<blocks_of(a->n, 256 * wide<T>::E), 256, 0, stream_of(x)>>>(a->n, (const T *)a->gate, (const T *)a->up, (const T *)a->dy,
                                                                                   (T *)a->dgate, (T *)a->dup, vec);
}

extern "C" int rlki_cuda_glu_bwd(struct rlk_exec *x, const struct rlki_glu *a)
{
    BY_TYPE(a->type, glu_bwd_launch<bf16>(x, a), glu_bwd_launch<float>(x, a));
    return checked(x, "swiglu backward");
}

/* ---- residual sum ---- */

template <typename T> __global__ void __launch_bounds__(256) add_kernel(int64_t n, const T *a, const T *b, T *y, int vec)
{
    constexpr int E = wide<T>::E, AHEAD = 2;
    const int64_t from = (int64_t)blockIdx.x * (256 * E * AHEAD) + E * threadIdx.x;
    float u[E], v[E];
    if (vec && from + 256 * E * (AHEAD - 1) + E <= n) {
        piece<T, E> pa[AHEAD], pb[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            pa[k].load(a + from + 256 * E * k);
            pb[k].load(b + from + 256 * E * k);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            pa[k].unpack(u);
            pb[k].unpack(v);
#pragma unroll
            for (int i = 0; i < E; i++)
                u[i] = rlkn_add(u[i], v[i]);
            piece<T, E>::store(y + from + 256 * E * k, u);
        }
        return;
    }
    for (int k = 0; k < AHEAD; k++)
        for (int64_t i = from + 256 * E * k; i < from + 256 * E * k + E && i < n; i++)
            put(y, i, rlkn_add(get(a, i), get(b, i)));
}

template <typename T> static void add_launch(struct rlk_exec *x, const struct rlki_add *a)
{
    const int vec = wide_rows(a->a, 16, 1) && wide_rows(a->b, 16, 1) && wide_rows(a->y, 16, 1);
    add_kernel<T><<<blocks_of(a->n, 512 * wide<T>::E), 256, 0, stream_of(x)>>>(a->n, (const T *)a->a, (const T *)a->b, (T *)a->y, vec);
}

extern "C" int rlki_cuda_add(struct rlk_exec *x, const struct rlki_add *a)
{
    BY_TYPE(a->type, add_launch<bf16>(x, a), add_launch<float>(x, a));
    return checked(x, "add");
}

template <typename T> __global__ void adamw_kernel(struct rlki_adamw a, int vec)
{
    const int64_t at = 4 * ((int64_t)blockIdx.x * 256 + threadIdx.x), left = a.n - at;
    float p[4], m[4], v[4], g[4];
    if (left <= 0)
        return;
    get_part(a.p + at, left, vec, p);
    get_part(a.m + at, left, vec, m);
    get_part(a.v + at, left, vec, v);
    get_part(a.g + at, left, vec, g);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float gi = rlkn_mul(g[i], a.coef);
        m[i] = rlkn_fma(a.beta1, m[i], rlkn_mul(a.one_beta1, gi));
        v[i] = rlkn_fma(a.beta2, v[i], rlkn_mul(rlkn_mul(a.one_beta2, gi), gi));
        const float den = rlkn_add(rlkn_sqrt(rlkn_mul(v[i], a.c2)), a.eps);
        const float up = rlkn_div(rlkn_mul(m[i], a.c1), den);
        p[i] = rlkn_canon(rlkn_fma(-a.lr, up, rlkn_fma(-a.decay, p[i], p[i])));
    }
    put_part(a.p + at, left, vec, p);
    put_part(a.m + at, left, vec, m);
    put_part(a.v + at, left, vec, v);
    if (a.w)
        put_part((T *)a.w + at, left, vec, p);
}

extern "C" int rlki_cuda_adamw(struct rlk_exec *x, const struct rlki_adamw *a)
{
    const int vec = aligned4(a->p, 4, 4) && aligned4(a->m, 4, 4) && aligned4(a->v, 4, 4) && aligned4(a->g, 4, 4) &&
                    (!a->w || aligned4(a->w, 4, rlk_ktype_bytes(a->w_type)));
    BY_TYPE(a->w_type, (adamw_kernel<bf16><<<blocks_of(a->n, 1024), 256, 0, stream_of(x)>>>(*a, vec)),
            (adamw_kernel<float><<<blocks_of(a->n, 1024), 256, 0, stream_of(x)>>>(*a, vec)));
    return checked(x, "adamw");
}

/* ---- embedding ---- */

/* A warp copies a row: eight pieces are read before the first is written, for the compiler cannot know that y is not the table. */
__global__ void __launch_bounds__(32 * WARPS) embed_kernel(int64_t rows, int64_t row_bytes, const int32_t *id, int v0, int v1, const char *table,
                                                           char *y, int vec)
{
    constexpr int AHEAD = 8;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (row >= rows)
        return;
    const int word = id[row];
    if (word < v0 || word >= v1)
        return;
    const char *from = table + (int64_t)(word - v0) * row_bytes;
    char *to = y + row * row_bytes;
    if (!vec) {
        for (int64_t i = 2 * t; i < row_bytes; i += 64)
            *reinterpret_cast<uint16_t *>(to + i) = *reinterpret_cast<const uint16_t *>(from + i);
        return;
    }
    for (int64_t at = 16 * t; at < row_bytes; at += 512 * AHEAD) {
        uint4 p[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (at + 512 * k < row_bytes)
                p[k] = *reinterpret_cast<const uint4 *>(from + at + 512 * k);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (at + 512 * k < row_bytes)
                *reinterpret_cast<uint4 *>(to + at + 512 * k) = p[k];
    }
}

extern "C" int rlki_cuda_embed(struct rlk_exec *x, const struct rlki_embed *a)
{
    const int64_t bytes = a->h * (int64_t)rlk_ktype_bytes(a->type);
    const int vec = bytes % 16 == 0 && (uintptr_t)a->table % 16 == 0 && (uintptr_t)a->y % 16 == 0;
    embed_kernel<<<blocks_of(a->rows, WARPS), 32 * WARPS, 0, stream_of(x)>>>(a->rows, bytes, a->id, a->v0, a->v1, (const char *)a->table,
                                                                             (char *)a->y, vec);
    return checked(x, "embedding");
}

template <typename T> __global__ void embed_bwd_kernel(struct rlki_embed_bwd a)
{
    const int64_t u = blockIdx.x, i = (int64_t)blockIdx.y * 128 + threadIdx.x;
    const int id = a.id[u];
    if (id < a.v0 || id >= a.v1 || i >= a.h)
        return;
    const T *dy = (const T *)a.dy;
    const bool nodes = a.node == RLK_NODE_BF16;
    float leaf[RLK_SLABS];
#pragma unroll
    for (int p = 0; p < RLK_SLABS; p++) {
        float s = 0.0f;
        for (int k = a.start[9 * u + p]; k < a.start[9 * u + p + 1]; k++)
            s = rlkn_add(s, get(dy, (int64_t)a.token[k] * a.h + i));
        leaf[p] = nodes ? rlkn_round_bf16(s) : s;
    }
#pragma unroll
    for (int s = 1; s < RLK_SLABS; s *= 2)
#pragma unroll
        for (int p = 0; p < RLK_SLABS; p += 2 * s) {
            leaf[p] = rlkn_add(leaf[p], leaf[p + s]);
            if (nodes)
                leaf[p] = rlkn_round_bf16(leaf[p]);
        }
    float *g = a.grad + (int64_t)(id - a.v0) * a.h + i;
    *g = rlkn_canon(rlkn_add(*g, leaf[0]));
}

extern "C" int rlki_cuda_embed_bwd(struct rlk_exec *x, const struct rlki_embed_bwd *a)
{
    const dim3 grid((unsigned)a->uniques, blocks_of(a->h, 128));
    BY_TYPE(a->type, (embed_bwd_kernel<bf16><<<grid, 128, 0, stream_of(x)>>>(*a)), (embed_bwd_kernel<float><<<grid, 128, 0, stream_of(x)>>>(*a)));
    return checked(x, "embedding backward");
}
