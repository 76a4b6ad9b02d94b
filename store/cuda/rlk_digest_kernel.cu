/* rlk_digest_kernel.cu - the digest of docs/digest.md on the device, bit-equal to store/rlk_digest.c.
 *
 * One launch digests up to 128 tensors of any dtype and strides. A thread hashes whole units, a block sums them. A
 * tensor of one block is published by that block at once: most operators' tensors are small, and their digest must cost
 * no more than the launch. Of a larger one the blocks add to an accumulator with integer atomics (order-free mod 2^128,
 * so the schedule cannot show in the result), and its last block publishes and clears. Results go to a ring in host
 * memory. No host sync, no allocation: the launch may be captured into a graph, each replay publishes anew.
 *
 * Bound by the integer units: a 32-byte unit costs about 60 multiplies and 80 other instructions.
 * Why units in memory order: a transposed tensor has its neighbouring units, not its neighbouring elements, in one
 * sector.
 */
#include "store/cuda/rlk_digest_kernel.h"
#include "store/cuda/rlk_xxh3.cuh"

using rlk::h128;

namespace
{

/* What special values add. Apart from the sums, and never passed by reference beside them: the sums stay in registers.
 */
struct special {
    uint64_t diff_lo = 0, diff_hi = 0;
    uint32_t nan = 0, inf = 0, negzero = 0;
};

struct sums {
    uint64_t pos_lo = 0, pos_hi = 0, multiset = 0;
};

__device__ __forceinline__ void add128(uint64_t &lo, uint64_t &hi, uint64_t xlo, uint64_t xhi)
{
    asm("add.cc.u64 %0, %0, %2; addc.u64 %1, %1, %3;" : "+l"(lo), "+l"(hi) : "l"(xlo), "l"(xhi));
}

__device__ __forceinline__ void sub128(uint64_t &lo, uint64_t &hi, uint64_t xlo, uint64_t xhi)
{
    asm("sub.cc.u64 %0, %0, %2; subc.u64 %1, %1, %3;" : "+l"(lo), "+l"(hi) : "l"(xlo), "l"(xhi));
}

/* A unit in registers: NW 32-bit words, every offset a compile-time constant after unrolling. */
template <int NW> struct words {
    uint32_t w[NW];
    __device__ __forceinline__ uint32_t u8(int o) const
    {
        return (w[o >> 2] >> (8 * (o & 3))) & 0xff;
    }
    __device__ __forceinline__ uint32_t u32(int o) const
    {
        return w[o >> 2];
    }
    __device__ __forceinline__ uint64_t u64(int o) const
    {
        return w[o >> 2] | ((uint64_t)w[(o >> 2) + (NW > 1 ? 1 : 0)] << 32);
    }
};

/* A unit in local memory, any length: tails, and element types too wide for registers. */
struct bytes {
    const uint8_t *b;
    __device__ uint32_t u8(int o) const
    {
        return b[o];
    }
    __device__ uint32_t u32(int o) const
    {
        return (uint32_t)b[o] | (uint32_t)b[o + 1] << 8 | (uint32_t)b[o + 2] << 16 | (uint32_t)b[o + 3] << 24;
    }
    __device__ uint64_t u64(int o) const
    {
        return u32(o) | (uint64_t)u32(o + 4) << 32;
    }
};

/* Is some component of the words NaN, Inf or -0? (fp64 looks at the high words only and may say yes too often: the rare
 * road then finds nothing.) Three-way minima do it in a few instructions, where a test of each word would cost as much
 * as the hash: as signed numbers -0 is the smallest; a multiply by 0 finds Inf and NaN on units that the hash leaves
 * idle. */
template <int NW> __device__ __forceinline__ bool suspicious(const uint32_t (&w)[NW], uint32_t cls)
{
    if (cls == RLKG_PLAIN)
        return false;
    if (cls == RLKG_BF16 || cls == RLKG_F16) {
        uint32_t low = w[0], zero = 0; /* zero += x * 0: stays a zero unless some x is NaN or Inf */
#pragma unroll
        for (int i = 0; i < NW; i++)
            if (cls == RLKG_BF16)
                asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(zero) : "r"(w[i]), "r"(0u));
            else
                asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(zero) : "r"(w[i]), "r"(0u));
#pragma unroll
        for (int i = 1; i < NW; i += 2)
            low = __vimin3_s16x2(low, w[i], w[i + 1 < NW ? i + 1 : i]);
        return (zero & 0x7fff7fffu) != 0 || (low & 0xffffu) == 0x8000u || (low >> 16) == 0x8000u;
    }
    if (cls == RLKG_F32) {
        int low = (int)w[0];
        float zero = 0;
#pragma unroll
        for (int i = 0; i < NW; i++)
            zero = __fmaf_rn(__uint_as_float(w[i]), 0.0f, zero);
#pragma unroll
        for (int i = 1; i < NW; i += 2)
            low = __vimin3_s32(low, (int)w[i], (int)w[i + 1 < NW ? i + 1 : i]);
        return zero != 0.0f || low == INT32_MIN;
    }
    if (cls == RLKG_F64) {
        int low = 0, high = 0;
        uint32_t uhigh = 0;
#pragma unroll
        for (int i = 1; i < NW; i += 2) {
            low = min(low, (int)w[i]);
            high = max(high, (int)w[i]);
            uhigh = max(uhigh, w[i]);
        }
        return low == INT32_MIN || high >= 0x7ff00000 || uhigh >= 0xfff00000u;
    }
    uint32_t any = 0; /* bytes: carries cannot cross a lane, a magnitude has its top bit clear */
#pragma unroll
    for (int i = 0; i < NW; i++) {
        const uint32_t x = cls == RLKG_E8M0 ? ~w[i] ^ 0x80808080u : w[i], mag = x & 0x7f7f7f7fu;
        const uint32_t big = cls == RLKG_E4M3FN ? mag + 0x01010101u : cls == RLKG_E5M2 ? mag + 0x04040404u : 0;
        any |= (big | (x & ~(mag + 0x7f7f7f7fu))) & 0x80808080u;
    }
    return any != 0;
}

/* Counts one component and returns its canonical bits. */
__device__ uint64_t canonical(uint64_t x, uint32_t cls, special &s)
{
    uint64_t sign, inf, nan;
    switch (cls) {
    case RLKG_E4M3FN:
        if ((x & 0x7f) == 0x7f) {
            s.nan++;
            return 0x7f;
        }
        if (x == 0x80) {
            s.negzero++;
            return 0;
        }
        return x;
    case RLKG_FNUZ:
        s.nan += x == 0x80;
        return x;
    case RLKG_E8M0:
        s.nan += x == 0xff;
        return x;
    case RLKG_E5M2:
        sign = 0x80, inf = 0x7c, nan = 0x7f;
        break;
    case RLKG_F16:
        sign = 0x8000, inf = 0x7c00, nan = 0x7e00;
        break;
    case RLKG_BF16:
        sign = 0x8000, inf = 0x7f80, nan = 0x7fc0;
        break;
    case RLKG_F32:
        sign = 0x80000000u, inf = 0x7f800000u, nan = 0x7fc00000u;
        break;
    case RLKG_F64:
        sign = 0x8000000000000000ull, inf = 0x7ff0000000000000ull, nan = 0x7ff8000000000000ull;
        break;
    default:
        return x;
    }
    const uint64_t mag = x & ~sign;
    if (mag > inf) {
        s.nan++;
        return nan;
    }
    if (mag == inf)
        s.inf++;
    if (x == sign) {
        s.negzero++;
        return 0;
    }
    return x;
}

__device__ __forceinline__ void count_unit(sums &s, h128 h, h128 g)
{
    add128(s.pos_lo, s.pos_hi, g.lo, g.hi);
    s.multiset += h.lo;
}

/* Loads of the program's bytes, past L1: they are read once. */
__device__ __forceinline__ uint4 load16(uint64_t a)
{
    uint4 v;
    asm("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(a));
    return v;
}
__device__ __forceinline__ uint2 load8(uint64_t a)
{
    uint2 v;
    asm("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(a));
    return v;
}
__device__ __forceinline__ uint32_t load4(uint64_t a)
{
    uint32_t v;
    asm("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(a));
    return v;
}
__device__ __forceinline__ uint32_t load2(uint64_t a)
{
    uint16_t v;
    asm("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(a));
    return v;
}
__device__ __forceinline__ uint32_t load1(uint64_t a)
{
    uint32_t v;
    asm("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(a));
    return v;
}

/* The rare road: some component is special. Bytes in local memory; g is the unit's own place hash. */
__device__ __noinline__ void special_unit(special &s, uint8_t *b, uint32_t len, uint32_t lane, uint32_t cls,
                                          uint64_t seed, h128 g)
{
    bool changed = false;
    for (uint32_t o = 0; o < len; o += lane) {
        uint64_t x = 0;
        for (uint32_t i = 0; i < lane; i++)
            x |= (uint64_t)b[o + i] << (8 * i);
        const uint64_t y = canonical(x, cls, s);
        if (y != x) {
            changed = true;
            for (uint32_t i = 0; i < lane; i++)
                b[o + i] = (uint8_t)(y >> (8 * i));
        }
    }
    if (!changed)
        return;
    bytes r = {b};
    const h128 g2 = rlk::place_hash(rlk::hash_any(r, len), seed);
    add128(s.diff_lo, s.diff_hi, g2.lo, g2.hi);
    sub128(s.diff_lo, s.diff_hi, g.lo, g.hi);
}

struct pair {
    h128 h, place;
};

__device__ __noinline__ pair slow_unit(special &sp, const rlkg_segment &g, uint64_t addr, uint32_t elements,
                                       uint64_t seed)
{
    uint8_t b[RLKG_MAX_UNIT];
    const uint32_t len = elements * g.es;
    for (uint32_t e = 0; e < elements; e++)
        for (uint32_t i = 0; i < g.es; i++)
            b[e * g.es + i] = (uint8_t)load1(addr + (uint64_t)((int64_t)e * g.inner) + i);
    bytes r = {b};
    const h128 h = rlk::hash_any(r, len), p = rlk::place_hash(h, seed);
    if (g.cls != RLKG_PLAIN)
        special_unit(sp, b, len, g.lane, g.cls, seed, p);
    return {h, p};
}

template <int ES, int U> struct shape {
    static constexpr int B = ES * U, NW = B < 4 ? 1 : B / 4;
};

/* Loads a full unit with loads of V bytes; V = ES: element by element, `inner` apart. */
template <int ES, int U, int V>
__device__ __forceinline__ void load(words<shape<ES, U>::NW> &r, uint64_t addr, int64_t inner)
{
    constexpr int B = shape<ES, U>::B, NW = shape<ES, U>::NW;
    if constexpr (V == 16) {
#pragma unroll
        for (int i = 0; i < B / 16; i++) {
            const uint4 v = load16(addr + 16 * i);
            r.w[(4 * i) % NW] = v.x, r.w[(4 * i + 1) % NW] = v.y, r.w[(4 * i + 2) % NW] = v.z,
                          r.w[(4 * i + 3) % NW] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < NW; i++)
            r.w[i] = 0;
#pragma unroll
        for (int e = 0; e < U; e++) {
            const uint64_t a = addr + (uint64_t)(e * inner);
            if (ES == 1)
                r.w[e / 4] |= load1(a) << (8 * (e & 3));
            else if (ES == 2)
                r.w[e / 2] |= load2(a) << (16 * (e & 1));
            else if (ES == 4)
                r.w[e] = load4(a);
            else {
                const uint2 v = load8(a);
                r.w[(2 * e) % NW] = v.x, r.w[(2 * e + 1) % NW] = v.y;
            }
        }
    }
}

template <int ES, int U>
__device__ __noinline__ void special_words(special &s, const words<shape<ES, U>::NW> r, uint64_t seed,
                                           const rlkg_segment &g, h128 p)
{
    constexpr int NW = shape<ES, U>::NW;
    uint8_t b[NW * 4];
#pragma unroll
    for (int i = 0; i < NW; i++)
        for (int k = 0; k < 4; k++)
            b[4 * i + k] = (uint8_t)(r.w[i] >> (8 * k));
    special_unit(s, b, shape<ES, U>::B, g.lane, g.cls, seed, p);
}

template <int ES, int U, int CLS>
__device__ __forceinline__ void hash_unit(sums &s, special &sp, const words<shape<ES, U>::NW> &r, uint64_t seed,
                                          const rlkg_segment &g)
{
    const h128 h = rlk::hash_any(r, shape<ES, U>::B), p = rlk::place_hash(h, seed);
    count_unit(s, h, p);
    if (suspicious(r.w, CLS >= 0 ? (uint32_t)CLS : g.cls))
        special_words<ES, U>(sp, r, seed, g, p);
}

__device__ __forceinline__ void locate(const rlkg_segment &g, uint64_t unit, uint64_t &addr, uint64_t &seed, bool &last)
{
    addr = g.base;
    seed = g.seed0;
    last = false;
    if (g.ndim == 1) {
        addr += unit * (uint64_t)g.step[0];
        seed += unit * g.seed[0];
        last = g.column == 0 && unit == g.ext[0] - 1;
        return;
    }
    for (int d = 0; d < g.ndim; d++) {
        uint64_t c;
        if (d == g.ndim - 1) {
            c = unit;
        } else if (unit >> 32) {
            const uint64_t q = unit / g.ext[d];
            c = unit - q * g.ext[d];
            unit = q;
        } else {
            const uint32_t q = (uint32_t)unit / g.ext[d];
            c = (uint32_t)unit - q * g.ext[d];
            unit = q;
        }
        addr += c * (uint64_t)g.step[d];
        seed += c * g.seed[d];
        last |= d == g.column && c == g.ext[d] - 1;
    }
}

/* One stride and wide loads: contiguous tensors and most others. K units in flight a thread, about 64 bytes. */
template <int ES, int U, int CLS>
__device__ __forceinline__ void run_linear(sums &s, special &sp, const rlkg_segment &g, uint32_t begin, uint32_t end)
{
    constexpr int NW = shape<ES, U>::NW, B = shape<ES, U>::B, K = B >= 64 ? 1 : 64 / B > 4 ? 4 : 64 / B;
    const uint64_t stride = (uint64_t)g.step[0] * RLKG_THREADS, smul = g.seed[0] * RLKG_THREADS;
    uint32_t i = begin + threadIdx.x;
    uint64_t addr = g.base + (uint64_t)i * (uint64_t)g.step[0], seed = g.seed0 + (uint64_t)i * g.seed[0];
    for (; i < end; i += RLKG_THREADS * K) {
        words<NW> r[K];
#pragma unroll
        for (int k = 0; k < K; k++)
            if (i + k * RLKG_THREADS < end)
                load<ES, U, (B >= 16 ? 16 : ES)>(r[k], addr + k * stride, ES);
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (i + k * RLKG_THREADS < end)
                hash_unit<ES, U, CLS>(s, sp, r[k], seed, g);
            seed += smul;
        }
        addr += K * stride;
    }
}

/* Any box: coordinates by division, tails on the slow road. */
template <int ES, int U>
__device__ __noinline__ sums run_boxed(special &sp, const rlkg_segment &g, uint64_t begin, uint64_t end)
{
    constexpr int B = shape<ES, U>::B;
    sums s;
    for (uint64_t i = begin + threadIdx.x; i < end; i += RLKG_THREADS) {
        uint64_t addr, seed;
        bool last;
        locate(g, i, addr, seed, last);
        if (last && g.tail != g.u) {
            const pair p = slow_unit(sp, g, addr, g.tail, seed);
            count_unit(s, p.h, p.place);
            continue;
        }
        words<shape<ES, U>::NW> r;
        if (B >= 16 && g.vec >= 16)
            load<ES, U, (B >= 16 ? 16 : ES)>(r, addr, ES);
        else
            load<ES, U, ES>(r, addr, g.inner);
        hash_unit<ES, U, -1>(s, sp, r, seed, g);
    }
    return s;
}

template <int ES, int U, int CLS>
__device__ __forceinline__ void run(sums &s, special &sp, const rlkg_segment &g, uint64_t begin, uint64_t end)
{
    const bool wide = shape<ES, U>::B >= 16 ? g.vec >= 16 : g.inner == ES || U == 1;
    if (g.ndim == 1 && g.column == 255 && wide)
        run_linear<ES, U, CLS>(s, sp, g, (uint32_t)begin, (uint32_t)end); /* one dimension has at most 2^32 units */
    else
        s = run_boxed<ES, U>(sp, g, begin, end);
}

template <int ES>
__device__ __forceinline__ void run_es(sums &s, special &sp, const rlkg_segment &g, uint64_t begin, uint64_t end)
{
    switch (g.u) {
    case 1:
        return run<ES, 1, -1>(s, sp, g, begin, end);
    case 2:
        return run<ES, 2, -1>(s, sp, g, begin, end);
    case 4:
        return run<ES, 4, -1>(s, sp, g, begin, end);
    case 8:
        return run<ES, 8, -1>(s, sp, g, begin, end);
    default:
        return run<ES, 16, -1>(s, sp, g, begin, end);
    }
}

__device__ __noinline__ sums run_any(special &sp, const rlkg_segment &g, uint64_t begin, uint64_t end)
{
    sums s;
    for (uint64_t i = begin + threadIdx.x; i < end; i += RLKG_THREADS) {
        uint64_t addr, seed;
        bool last;
        locate(g, i, addr, seed, last);
        const pair p = slow_unit(sp, g, addr, last ? g.tail : g.u, seed);
        count_unit(s, p.h, p.place);
    }
    return s;
}

__device__ __forceinline__ void reduce128(uint64_t &lo, uint64_t &hi)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const uint64_t l = __shfl_down_sync(~0u, lo, o), h = __shfl_down_sync(~0u, hi, o);
        add128(lo, hi, l, h);
    }
}

__device__ __forceinline__ void atomic128(unsigned long long *lo, unsigned long long *hi, uint64_t xlo, uint64_t xhi)
{
    const unsigned long long old = atomicAdd(lo, (unsigned long long)xlo);
    atomicAdd(hi, (unsigned long long)(xhi + (old + xlo < old)));
}

} // namespace

namespace
{

/* The slot that a result goes to, and the sequence number that makes it valid; false: no room (captured replays only).
 */
__device__ bool place_record(const rlkg_params_head &p, uint32_t tensor, rlkg_record **record, uint64_t *seq)
{
    uint64_t at = p.id + tensor;
    if (p.captured) {
        /* Take a position only if it is free: an overwritten record would be a wrong digest, a lost one is a counted
         * gap. */
        rlkg_captured *ring = (rlkg_captured *)p.ring;
        const uint64_t consumed = *(const volatile uint64_t *)p.consumed;
        unsigned long long h = atomicAdd(&ring->head, 0ull);
        for (;;) {
            if (h - consumed >= p.slots) {
                atomicAdd(&ring->lost, 1ull);
                return false;
            }
            const unsigned long long seen = atomicCAS(&ring->head, h, h + 1);
            if (seen == h)
                break;
            h = seen;
        }
        at = h;
    }
    *record = (rlkg_record *)p.records + (at & (p.slots - 1));
    *seq = at + 1;
    return true;
}

/* By the first warp: lane i writes word i. */
__device__ void publish(const rlkg_params_head &p, uint32_t tensor, const uint64_t *sum)
{
    const uint32_t lane = threadIdx.x;
    rlkg_record *record = nullptr;
    uint64_t seq = 0, value = 0;
    int room = 0;
    if (lane == 0)
        room = place_record(p, tensor, &record, &seq);
    room = __shfl_sync(~0u, room, 0);
    record = (rlkg_record *)__shfl_sync(~0u, (unsigned long long)record, 0);
    seq = __shfl_sync(~0u, seq, 0);
    if (!room || lane >= RLKG_WORDS)
        return;
    value = lane == RLKG_ID ? p.id + tensor : sum[lane];
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(&record->word[lane]), "l"(value), "l"(seq)
                 : "memory");
}

/* The block's sums, in shared memory, valid for the first warp. */
__device__ void block_sums(const sums &s, const special &sp, uint64_t (&part)[RLKG_THREADS / 32][8],
                           uint64_t (&total)[8])
{
    const bool any = __syncthreads_or((int)(sp.nan | sp.inf | sp.negzero));
    uint64_t v[8] = {s.pos_lo, s.pos_hi, sp.diff_lo, sp.diff_hi, s.multiset, sp.nan, sp.inf, sp.negzero};
    reduce128(v[RLKG_POS_LO], v[RLKG_POS_HI]);
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v[RLKG_MULTISET] += __shfl_down_sync(~0u, v[RLKG_MULTISET], o);
    if (any) {
        reduce128(v[RLKG_DIFF_LO], v[RLKG_DIFF_HI]);
        for (int o = 16; o; o >>= 1)
            for (int i = RLKG_NAN; i <= RLKG_NEGZERO; i++)
                v[i] += __shfl_down_sync(~0u, v[i], o);
    }
    if ((threadIdx.x & 31) == 0)
        for (int i = 0; i < 8; i++)
            part[threadIdx.x / 32][i] = v[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < RLKG_THREADS / 32; w++) {
            add128(v[RLKG_POS_LO], v[RLKG_POS_HI], part[w][RLKG_POS_LO], part[w][RLKG_POS_HI]);
            add128(v[RLKG_DIFF_LO], v[RLKG_DIFF_HI], part[w][RLKG_DIFF_LO], part[w][RLKG_DIFF_HI]);
            for (int i = RLKG_MULTISET; i < 8; i++)
                v[i] += part[w][i];
        }
        for (int i = 0; i < 8; i++)
            total[i] = v[i];
    }
    __syncwarp();
}

} // namespace

template <int N> struct rlkg_params {
    rlkg_params_head head;
    rlkg_segment segment[N];
};

template <int N> __device__ __forceinline__ void digest(const rlkg_params<N> &p)
{
    __shared__ uint64_t part[RLKG_THREADS / 32][8], total[8];
    uint32_t lo = 0, hi = p.head.nsegments;
    while (lo + 1 < hi) {
        const uint32_t mid = (lo + hi) / 2;
        if (p.segment[mid].first_block <= blockIdx.x)
            lo = mid;
        else
            hi = mid;
    }
    const rlkg_segment &g = p.segment[lo];
    const uint64_t begin = (uint64_t)(blockIdx.x - g.first_block) * g.units_per_block;
    uint64_t end = begin + g.units_per_block;
    end = end < g.units ? end : g.units;
    sums s;
    special sp;
    /* The training dtypes have roads of their own: the special-value test folds to a few instructions. */
    if (g.vec == 0)
        s = run_any(sp, g, begin, end);
    else if (g.cls == RLKG_BF16 && g.u == 16)
        run<2, 16, RLKG_BF16>(s, sp, g, begin, end);
    else if (g.cls == RLKG_F32 && g.u == 16 && g.es == 4)
        run<4, 16, RLKG_F32>(s, sp, g, begin, end);
    else if (g.es == 2)
        run_es<2>(s, sp, g, begin, end);
    else if (g.es == 4)
        run_es<4>(s, sp, g, begin, end);
    else if (g.es == 1)
        run_es<1>(s, sp, g, begin, end);
    else if (g.es == 8)
        run_es<8>(s, sp, g, begin, end);
    else
        s = run_any(sp, g, begin, end);
    block_sums(s, sp, part, total);
    if (threadIdx.x >= 32)
        return;
    if (g.tensor_blocks == 1) {
        publish(p.head, g.slot, total);
        return;
    }
    rlkg_acc *acc = (rlkg_acc *)p.head.acc + ((p.head.id + g.slot) & (p.head.slots - 1));
    int last = 0;
    if (threadIdx.x == 0) {
        atomic128(&acc->sum[RLKG_POS_LO], &acc->sum[RLKG_POS_HI], total[RLKG_POS_LO], total[RLKG_POS_HI]);
        if (total[RLKG_DIFF_LO] | total[RLKG_DIFF_HI])
            atomic128(&acc->sum[RLKG_DIFF_LO], &acc->sum[RLKG_DIFF_HI], total[RLKG_DIFF_LO], total[RLKG_DIFF_HI]);
        for (int i = RLKG_MULTISET; i < 8; i++)
            if (total[i])
                atomicAdd(&acc->sum[i], (unsigned long long)total[i]);
        __threadfence();
        last = atomicAdd(&acc->arrived, 1u) == g.tensor_blocks - 1;
    }
    if (!__shfl_sync(~0u, last, 0))
        return;
    __threadfence();
    if (threadIdx.x < 8) {
        total[threadIdx.x] = __ldcg(&acc->sum[threadIdx.x]);
        acc->sum[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0)
        acc->arrived = 0;
    __threadfence(); /* clean before the host may give the accumulator to another launch */
    __syncwarp();
    publish(p.head, g.slot, total);
}

/* Three sizes of the parameter block: most operators have one output, and the block is copied at each launch. */
extern "C" __global__ void __launch_bounds__(RLKG_THREADS, RLKG_BLOCKS)
    __rlkrec_digest_2(const __grid_constant__ rlkg_params<2> p)
{
    digest(p);
}
extern "C" __global__ void __launch_bounds__(RLKG_THREADS, RLKG_BLOCKS)
    __rlkrec_digest_8(const __grid_constant__ rlkg_params<8> p)
{
    digest(p);
}
extern "C" __global__ void __launch_bounds__(RLKG_THREADS, RLKG_BLOCKS)
    __rlkrec_digest_128(const __grid_constant__ rlkg_params<128> p)
{
    digest(p);
}
