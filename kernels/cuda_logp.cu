/* cuda_logp.cu - statistics of logits, log-probabilities, sampling (docs/contracts.md, section 8).
 *
 * A warp owns a row of one vocabulary slab, 128 words a step; sampling: a block owns a row, all its sums are integers, so
 * scans and reductions have no order. Breaks it: float partial sums across warps. */
#include "kernels/cuda_common.cuh"

__device__ __forceinline__ float tempered(float z, float temperature)
{
    return temperature == 1.0f ? z : rlkn_div(z, temperature);
}

template <bool FAST> __global__ void logp_stats_kernel(struct rlki_logp a, int vec)
{
    const int64_t r = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    const int t = threadIdx.x % 32;
    if (r >= a.rows)
        return;
    const float *z = a.z + r * a.ld;
    float m = -RLKN_INF, s = 0.0f, v[4];
    for (int64_t at = 4 * t; at < a.cols; at += LANES) {
        get_part(z + at, a.cols - at, vec, v);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i < a.cols)
                m = rlkn_max(m, tempered(v[i], a.temperature));
    }
    m = warp_max(m);
    const float base = m == -RLKN_INF ? 0.0f : m;
    for (int64_t tile = 0; tile < a.cols; tile += LANES) {
        const int64_t at = tile + 4 * t;
        float mt = -RLKN_INF;
        get_part(z + (at < a.cols ? at : 0), a.cols - at, vec, v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = tempered(v[i], a.temperature);
            if (at + i < a.cols)
                mt = rlkn_max(mt, v[i]);
        }
        mt = warp_max(mt);
        const float bt = mt == -RLKN_INF ? 0.0f : mt;
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = at + i < a.cols ? exp_of<FAST>(rlkn_add(v[i], -bt)) : 0.0f;
        s = rlkn_fma(warp_lanes(v), exp_of<FAST>(rlkn_add(mt, -base)), s);
    }
    if (t)
        return;
    a.m[r] = rlkn_canon(m);
    a.s[r] = rlkn_canon(s);
    if (a.target && a.target[r] >= a.v0 && a.target[r] < a.v0 + a.cols)
        a.zy[r] = rlkn_canon(tempered(z[a.target[r] - a.v0], a.temperature));
}

extern "C" int rlki_cuda_logp_stats(struct rlk_exec *x, const struct rlki_logp *a)
{
    if (a->rows <= 0)
        return 0;
    logp_stats_kernel<false><<<blocks_of(a->rows, 8), 256, 0, stream_of(x)>>>(*a, aligned4(a->z, a->ld, 4));
    return checked(x, "logp statistics");
}

extern "C" int rlki_cuda_fast_logp_stats(struct rlk_exec *x, const struct rlki_logp *a)
{
    if (a->rows <= 0)
        return 0;
    logp_stats_kernel<true><<<blocks_of(a->rows, 8), 256, 0, stream_of(x)>>>(*a, aligned4(a->z, a->ld, 4));
    return checked(x, "provider logp statistics");
}

__global__ void logp_merge_kernel(struct rlki_logp_merge a)
{
    const int64_t r = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (r >= a.rows)
        return;
    const bool nodes = a.node == RLK_NODE_BF16;
    float m = -RLKN_INF, v[RLK_SLABS];
    for (int s = 0; s < a.slabs; s++)
        m = rlkn_max(m, a.in[3 * s * a.rows + r]);
    m = rlkn_add(m, 0.0f);
    const float base = m == -RLKN_INF ? 0.0f : m;
    for (int s = 0; s < a.slabs; s++) {
        const float *in = a.in + 3 * s * a.rows + r;
        v[s] = rlkn_mul(in[a.rows], rlkn_exp(rlkn_add(in[0], -base)));
        v[s] = nodes ? rlkn_round_bf16(v[s]) : v[s];
    }
    for (int h = 1; h < a.slabs; h *= 2)
        for (int s = 0; s < a.slabs; s += 2 * h) {
            v[s] = rlkn_add(v[s], v[s + h]);
            v[s] = nodes ? rlkn_round_bf16(v[s]) : v[s];
        }
    const float sum = rlkn_canon(v[0]), lz = rlkn_log(sum);
    a.stats[3 * r] = rlkn_canon(m);
    a.stats[3 * r + 1] = sum;
    a.stats[3 * r + 2] = rlkn_canon(lz);
    if (a.logp) {
        const int y = a.target[r];
        const float zy = y < 0 ? 0.0f : a.in[(3 * (y / a.width) + 2) * a.rows + r];
        a.logp[r] = y < 0 ? 0.0f : rlkn_canon(rlkn_add(rlkn_add(zy, -m), -lz));
    }
}

extern "C" int rlki_cuda_logp_merge(struct rlk_exec *x, const struct rlki_logp_merge *a)
{
    logp_merge_kernel<<<blocks_of(a->rows, 128), 128, 0, stream_of(x)>>>(*a);
    return checked(x, "logp merge");
}

template <typename T> __global__ void logp_dz_kernel(struct rlki_logp a)
{
    const int64_t r = blockIdx.x;
    const float m = a.stats[3 * r], sum = a.stats[3 * r + 1], g = a.g[r];
    const int y = a.target[r];
    T *out = (T *)a.out + r * a.ld;
    for (int64_t v = (int64_t)blockIdx.y * 1024 + threadIdx.x; v < a.cols && v < ((int64_t)blockIdx.y + 1) * 1024; v += 256) {
        float t = -rlkn_div(rlkn_exp(rlkn_add(tempered(a.z[r * a.ld + v], a.temperature), -m)), sum);
        if (a.v0 + v == y)
            t = rlkn_add(1.0f, t);
        put(out, v, y < 0 ? 0.0f : tempered(rlkn_mul(g, t), a.temperature));
    }
}

extern "C" int rlki_cuda_logp_dz(struct rlk_exec *x, const struct rlki_logp *a)
{
    const dim3 grid((unsigned)a->rows, blocks_of(a->cols, 1024));
    BY_TYPE(a->type, (logp_dz_kernel<bf16><<<grid, 256, 0, stream_of(x)>>>(*a)), (logp_dz_kernel<float><<<grid, 256, 0, stream_of(x)>>>(*a)));
    return checked(x, "logp gradient");
}

__global__ void log_softmax_kernel(struct rlki_logp a)
{
    const int64_t r = blockIdx.x, v = (int64_t)blockIdx.y * 256 + threadIdx.x;
    if (v < a.cols)
        ((float *)a.out)[r * a.ld + v] =
            rlkn_canon(rlkn_add(rlkn_add(tempered(a.z[r * a.ld + v], a.temperature), -a.stats[3 * r]), -a.stats[3 * r + 2]));
}

extern "C" int rlki_cuda_log_softmax(struct rlk_exec *x, const struct rlki_logp *a)
{
    const dim3 grid((unsigned)a->rows, blocks_of(a->cols, 256));
    log_softmax_kernel<<<grid, 256, 0, stream_of(x)>>>(*a);
    return checked(x, "log-softmax");
}

/* ---- sampling ---- */

__device__ __forceinline__ uint64_t weight_of(float e)
{
    return (uint64_t)__dadd_rn(__dmul_rn((double)e, 0x1p40), 0.5);
}

__device__ uint64_t block_sum(uint64_t v, uint64_t *shared)
{
#pragma unroll
    for (int d = 16; d >= 1; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    uint64_t s = 0;
    for (int w = 0; w < 8; w++)
        s += shared[w];
    return s;
}

/* Exclusive prefix within the block; *all gets the total. */
__device__ uint64_t block_scan(uint64_t v, uint64_t *shared, uint64_t *all)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t inc = v;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const uint64_t up = __shfl_up_sync(0xffffffffu, inc, d);
        if (lane >= d)
            inc += up;
    }
    __syncthreads();
    if (lane == 31)
        shared[warp] = inc;
    __syncthreads();
    uint64_t before = 0, total = 0;
    for (int w = 0; w < 8; w++) {
        before += w < warp ? shared[w] : 0;
        total += shared[w];
    }
    *all = total;
    return before + inc - v;
}

__global__ void __launch_bounds__(256) sample_kernel(struct rlki_sample a)
{
    __shared__ uint64_t part[8];
    __shared__ float top_m[8];
    __shared__ int64_t top_v[8];
    __shared__ int found;
    const int64_t r = blockIdx.x;
    const int t = threadIdx.x;
    const float *z = a.z + r * a.ld;
    float *e = (float *)a.scratch + r * a.vocab;
    float m = -RLKN_INF;
    int64_t best = INT64_MAX;
    uint64_t nan = 0;
    for (int64_t v = t; v < a.vocab; v += 256) {
        const float f = a.temperature > 0.0f ? tempered(z[v], a.temperature) : z[v];
        nan += f != f;
        if (best == INT64_MAX || f > m) {
            best = v;
            m = f;
        }
        e[v] = f;
    }
    for (int d = 16; d >= 1; d >>= 1) {
        const float om = __shfl_xor_sync(0xffffffffu, m, d);
        const int64_t ov = __shfl_xor_sync(0xffffffffu, best, d);
        if (om > m || (om == m && ov < best)) {
            m = om;
            best = ov;
        }
    }
    if (t % 32 == 0) {
        top_m[t / 32] = m;
        top_v[t / 32] = best;
    }
    if (t == 0)
        found = 0;
    nan = block_sum(nan, part);
    for (int w = 0; w < 8; w++)
        if (top_m[w] > m || (top_m[w] == m && top_v[w] < best)) {
            m = top_m[w];
            best = top_v[w];
        }
    if (nan || !(m > -RLKN_INF && m < RLKN_INF) || !(a.temperature > 0.0f)) {
        if (t == 0)
            a.token[r] = nan ? -1 : (int32_t)best;
        return;
    }
    uint64_t total = 0;
    for (int64_t v = t; v < a.vocab; v += 256) {
        e[v] = rlkn_exp(rlkn_add(e[v], -m));
        total += weight_of(e[v]);
    }
    total = block_sum(total, part);
    uint32_t cut = 0;
    uint64_t tie_mass = UINT64_MAX;
    if (a.top_p < 1.0f) {
        uint64_t need = (uint64_t)__dmul_rn((double)total, (double)a.top_p);
        need = need ? need : 1;
        uint32_t lo = 0, hi = 0x3f800000u;
        while (lo < hi) {
            const uint32_t mid = lo + (hi - lo + 1) / 2;
            uint64_t mass = 0;
            for (int64_t v = t; v < a.vocab; v += 256)
                mass += rlkn_bits(e[v]) >= mid ? weight_of(e[v]) : 0;
            if (block_sum(mass, part) >= need)
                lo = mid;
            else
                hi = mid - 1;
        }
        cut = lo;
        uint64_t above = 0;
        for (int64_t v = t; v < a.vocab; v += 256)
            above += rlkn_bits(e[v]) > cut ? weight_of(e[v]) : 0;
        above = block_sum(above, part);
        tie_mass = need - above;
        total = above;
        uint64_t tied = 0;
        for (int64_t v0 = 0; v0 < a.vocab; v0 += 256) {
            const int64_t v = v0 + t;
            const uint64_t w = v < a.vocab && rlkn_bits(e[v]) == cut ? weight_of(e[v]) : 0;
            uint64_t all;
            const uint64_t before = block_scan(w, part, &all);
            total += block_sum(tied + before < tie_mass ? w : 0, part);
            tied += all;
        }
    }
    uint32_t c[4] = {(uint32_t)a.sample[r], (uint32_t)(a.sample[r] >> 32), (uint32_t)*a.step, (uint32_t)a.pos[r]};
    rlkn_philox(c, (uint32_t)a.seed, (uint32_t)(a.seed >> 32));
    const uint64_t u = ((uint64_t)c[0] << 32 | c[1]) >> 1;
    /* floor(u * total / 2^63) */
    const uint64_t goal = __umul64hi(u, total) << 1 | (u * total) >> 63;
    uint64_t mass = 0, tied = 0;
    if (t == 0)
        a.token[r] = (int32_t)best;
    for (int64_t v0 = 0; v0 < a.vocab; v0 += 256) {
        const int64_t v = v0 + t;
        const uint32_t bits = v < a.vocab ? rlkn_bits(e[v]) : 0;
        const uint64_t w = v < a.vocab ? weight_of(e[v]) : 0;
        uint64_t all_tied, all;
        const uint64_t before_tied = block_scan(v < a.vocab && bits == cut ? w : 0, part, &all_tied);
        const bool in = v < a.vocab && (bits > cut || (bits == cut && tied + before_tied < tie_mass));
        const uint64_t before = mass + block_scan(in ? w : 0, part, &all);
        if (in && before <= goal && before + w > goal) {
            a.token[r] = (int32_t)v;
            found = 1;
        }
        mass += all;
        tied += all_tied;
        __syncthreads();
        if (found)
            return;
    }
}

extern "C" int rlki_cuda_sample(struct rlk_exec *x, const struct rlki_sample *a)
{
    sample_kernel<<<(unsigned)a->rows, 256, 0, stream_of(x)>>>(*a);
    return checked(x, "sample");
}
