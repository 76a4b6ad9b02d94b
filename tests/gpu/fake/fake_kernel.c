/* fake_kernel.c - store/cuda/rlk_digest_kernel.cu on the host: one unit after another, no blocks. */
#include "store/cuda/rlk_digest_kernel.h"
#include "tests/gpu/fake/fake_cuda.h"

#include <string.h>
#include <xxhash.h>

typedef unsigned __int128 u128;

struct parameters {
    struct rlkg_params_head head;
    struct rlkg_segment segment[];
};

static const struct {
    uint64_t sign, inf, nan;
} formats[] = {[RLKG_E5M2] = {0x80, 0x7c, 0x7f},
               [RLKG_F16] = {0x8000, 0x7c00, 0x7e00},
               [RLKG_BF16] = {0x8000, 0x7f80, 0x7fc0},
               [RLKG_F32] = {0x80000000u, 0x7f800000u, 0x7fc00000u},
               [RLKG_F64] = {UINT64_C(0x8000000000000000), UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000)}};

/* The canonical bits of one component; counts what is special. */
static uint64_t canonical(uint64_t x, unsigned cls, uint64_t *w)
{
    if (cls == RLKG_PLAIN)
        return x;
    if (cls == RLKG_FNUZ || cls == RLKG_E8M0) {
        w[RLKG_NAN] += x == (cls == RLKG_FNUZ ? 0x80u : 0xffu);
        return x;
    }
    if (cls == RLKG_E4M3FN) {
        w[RLKG_NAN] += (x & 0x7f) == 0x7f;
        w[RLKG_NEGZERO] += x == 0x80;
        return (x & 0x7f) == 0x7f ? 0x7f : x == 0x80 ? 0 : x;
    }
    const uint64_t magnitude = x & ~formats[cls].sign;
    w[RLKG_NAN] += magnitude > formats[cls].inf;
    w[RLKG_INF] += magnitude == formats[cls].inf;
    w[RLKG_NEGZERO] += x == formats[cls].sign;
    return magnitude > formats[cls].inf ? formats[cls].nan : x == formats[cls].sign ? 0 : x;
}

static u128 place(XXH128_hash_t h, uint64_t seed)
{
    const uint64_t both[2] = {h.low64, h.high64};
    XXH128_hash_t g = XXH3_128bits_withSeed(both, sizeof both, seed);
    return (u128)g.high64 << 64 | g.low64;
}

static void add(uint64_t *lo, uint64_t *hi, u128 x)
{
    u128 sum = ((u128)*hi << 64 | *lo) + x;
    *lo = (uint64_t)sum;
    *hi = (uint64_t)(sum >> 64);
}

static void unit(const struct rlkg_segment *g, const uint8_t *at, uint64_t seed, unsigned elements, uint64_t *w)
{
    uint8_t bytes[RLKG_MAX_UNIT], plain[RLKG_MAX_UNIT];
    const size_t n = (size_t)elements * g->es;
    for (unsigned e = 0; e < elements; e++)
        memcpy(bytes + e * g->es, at + (int64_t)e * g->inner, g->es);
    memcpy(plain, bytes, n);
    for (size_t i = 0; i < n; i += g->lane) {
        uint64_t x = 0;
        if (g->cls == RLKG_PLAIN)
            break;
        memcpy(&x, bytes + i, g->lane);
        x = canonical(x, g->cls, w);
        memcpy(plain + i, &x, g->lane);
    }
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    const u128 p = place(h, seed);
    add(&w[RLKG_POS_LO], &w[RLKG_POS_HI], p);
    w[RLKG_MULTISET] += h.low64;
    if (memcmp(bytes, plain, n))
        add(&w[RLKG_DIFF_LO], &w[RLKG_DIFF_HI], place(XXH3_128bits(plain, n), seed) - p);
}

static void segment(const struct rlkg_segment *g, uint64_t *w)
{
    for (uint64_t i = 0; i < g->units; i++) {
        uint64_t address = g->base, seed = g->seed0, rest = i;
        bool last = false;
        for (unsigned d = 0; d < g->ndim; d++) {
            const uint64_t c = d + 1u == g->ndim ? rest : rest % g->ext[d];
            rest /= g->ext[d];
            address += c * (uint64_t)g->step[d];
            seed += c * g->seed[d];
            last |= d == g->column && c == g->ext[d] - 1;
        }
        unit(g, (const uint8_t *)(uintptr_t)address, seed, last ? g->tail : g->u, w);
    }
}

static void publish(const struct rlkg_params_head *head, uint32_t tensor, const uint64_t *w)
{
    uint64_t at = head->id + tensor;
    if (head->captured) {
        struct rlkg_captured *ring = (struct rlkg_captured *)(uintptr_t)head->ring;
        const uint64_t *consumed = (const uint64_t *)(uintptr_t)head->consumed;
        if (ring->head - __atomic_load_n(consumed, __ATOMIC_ACQUIRE) >= head->slots) {
            ring->lost++;
            return;
        }
        at = ring->head++;
    }
    struct rlkg_record *r = (struct rlkg_record *)(uintptr_t)head->records + (at & (head->slots - 1));
    for (int i = 0; i < RLKG_WORDS; i++) { /* in no particular order, as on the device */
        const int word = (i * 5 + 3) % RLKG_WORDS;
        __atomic_store_n(&r->word[word].value, word == RLKG_ID ? head->id + tensor : w[word], __ATOMIC_RELAXED);
        __atomic_store_n(&r->word[word].seq, at + 1, __ATOMIC_RELEASE);
    }
}

size_t fake_digest_parameters(const void *parameters)
{
    const struct parameters *p = parameters;
    return sizeof *p + p->head.nsegments * sizeof p->segment[0];
}

void fake_digest_kernel(const void *parameters)
{
    const struct parameters *p = parameters;
    for (uint32_t t = 0; t < p->head.ntensors; t++) {
        uint64_t w[RLKG_WORDS] = {0};
        for (uint32_t s = 0; s < p->head.nsegments; s++)
            if (p->segment[s].slot == t)
                segment(&p->segment[s], w);
        publish(&p->head, t, w);
    }
}
