/* cpu_vec.h - the vector of one instruction set, and loads and stores of the storage types. Body text: included once by
 * each of cpu_generic.c, cpu_avx2.c and cpu_avx512.c, all of whose functions are static. */
#include <stdint.h>
#include <string.h>

#include "kernels/rlk_num.h"
#include "kernels/rlki_prims.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define VW 16
typedef __m512 V;
static inline V v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, V v)
{
    _mm512_storeu_ps(p, v);
}
static inline V v_all(float f)
{
    return _mm512_set1_ps(f);
}
static inline V v_fma(V a, V b, V c)
{
    return _mm512_fmadd_ps(a, b, c);
}
#define MR 8
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define VW 8
typedef __m256 V;
static inline V v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, V v)
{
    _mm256_storeu_ps(p, v);
}
static inline V v_all(float f)
{
    return _mm256_set1_ps(f);
}
static inline V v_fma(V a, V b, V c)
{
    return _mm256_fmadd_ps(a, b, c);
}
#define MR 6
#else
#define VW 4
typedef struct {
    float f[VW];
} V;
static inline V v_load(const float *p)
{
    V v;
    memcpy(v.f, p, sizeof v.f);
    return v;
}
static inline void v_store(float *p, V v)
{
    memcpy(p, v.f, sizeof v.f);
}
static inline V v_all(float f)
{
    V v;
    for (int i = 0; i < VW; i++)
        v.f[i] = f;
    return v;
}
static inline V v_fma(V a, V b, V c)
{
    for (int i = 0; i < VW; i++)
        c.f[i] = rlkn_fma(a.f[i], b.f[i], c.f[i]);
    return c;
}
#define MR 4
#endif
#define NR (2 * VW)

#define LANES 128

static inline float load1(enum rlk_ktype type, const void *p, int64_t i)
{
    return type == RLK_K_BF16 ? rlkn_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static inline void store1(enum rlk_ktype type, void *p, int64_t i, float v)
{
    if (type == RLK_K_BF16)
        ((uint16_t *)p)[i] = rlkn_to_bf16(v);
    else
        ((float *)p)[i] = rlkn_canon(v);
}

/* n elements from element `at`, to and from FP32. */
static inline void load_n(enum rlk_ktype type, const void *p, int64_t at, int64_t n, float *restrict to)
{
    if (type == RLK_K_BF16) {
        const uint16_t *h = (const uint16_t *)p + at;
        for (int64_t i = 0; i < n; i++)
            to[i] = rlkn_from_bf16(h[i]);
    } else {
        memcpy(to, (const float *)p + at, (size_t)n * sizeof(float));
    }
}

static inline void store_n(enum rlk_ktype type, void *p, int64_t at, int64_t n, const float *restrict from)
{
    if (type == RLK_K_BF16) {
        uint16_t *h = (uint16_t *)p + at;
        for (int64_t i = 0; i < n; i++)
            h[i] = rlkn_to_bf16(from[i]);
    } else {
        float *f = (float *)p + at;
        for (int64_t i = 0; i < n; i++)
            f[i] = rlkn_canon(from[i]);
    }
}

/* The halving tree over 128 lanes; t is spoiled. */
static inline float lanes_sum(float t[LANES])
{
    for (int h = LANES / 2; h >= 1; h /= 2)
        for (int j = 0; j < h; j++)
            t[j] = rlkn_add(t[j], t[j + h]);
    return t[0];
}

static inline float lanes_max(const float *t, int n)
{
    float m[16];
    int i = 0;
    for (int j = 0; j < 16; j++)
        m[j] = -RLKN_INF;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            m[j] = rlkn_max(m[j], t[i + j]);
    for (int j = 0; i + j < n; j++)
        m[j] = rlkn_max(m[j], t[i + j]);
    for (int h = 8; h >= 1; h /= 2)
        for (int j = 0; j < h; j++)
            m[j] = rlkn_max(m[j], m[j + h]);
    return rlkn_add(m[0], 0.0f);
}

/* Tasks of at most `grain` items. */
struct range_task {
    struct rlk_exec *x;
    const void *arg;
    int64_t n, grain;
    void (*fn)(const void *arg, int64_t from, int64_t to);
};

static void range_run(void *p, int64_t task, unsigned thread)
{
    const struct range_task *r = p;
    const int64_t from = task * r->grain, to = from + r->grain < r->n ? from + r->grain : r->n;
    (void)thread;
    r->fn(r->arg, from, to);
}

static int over(struct rlk_exec *x, int64_t n, int64_t grain, void (*fn)(const void *arg, int64_t from, int64_t to),
                const void *arg)
{
    struct range_task r = {x, arg, n, grain < 1 ? 1 : grain, fn};
    rlk_pool_run(x->pool, (n + r.grain - 1) / r.grain, range_run, &r);
    return 0;
}
