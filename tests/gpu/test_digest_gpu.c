/* The digest on the device equals the digest on the CPU: every dtype, shape, stride, placement, many tensors a launch,
 * several streams, captured launches. The CPU twin is checked against the vectors elsewhere. */
#include "gpu_test.h"
#include "store/rlk_digest_gpu.h"

#include <string.h>
#include <time.h>

#define STORAGE (1u << 20)

static uint64_t rng_state = 88172645463325252ull;
static uint64_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
static uint64_t below(uint64_t n)
{
    return rnd() % n;
}

struct got {
    struct rlk_sums sums;
    int times;
};
struct sink {
    struct got *got;
    uint64_t first;
    size_t n;
    size_t foreign;
};

static void take(void *context, uint64_t ticket, const struct rlk_sums *sums)
{
    struct sink *s = context;
    if (ticket < s->first || ticket >= s->first + s->n) {
        s->foreign++;
        return;
    }
    s->got[ticket - s->first].sums = *sums;
    s->got[ticket - s->first].times++;
}

static int same(const struct rlk_sums *cpu, const struct rlk_sums *gpu)
{
    return rlk_u128_equal(cpu->positional, gpu->positional) && rlk_u128_equal(cpu->value, gpu->value) &&
           cpu->multiset == gpu->multiset && cpu->nan == gpu->nan && cpu->inf == gpu->inf &&
           cpu->negzero == gpu->negzero;
}

struct example {
    struct rlk_view view;
    struct rlk_place place;
    bool placed;
    uint64_t shape[8], logical[8];
    int64_t strides[8];
    uint32_t nruns[8];
    struct rlk_run runs[32];
};

static const enum rlk_dtype dtypes[] = {
#define X(name, value, text, bytes, code, bits) name,
    RLK_DTYPES(X)
#undef X
};
#define NDTYPES (sizeof dtypes / sizeof dtypes[0])

static const uint64_t inner_sizes[] = {1, 2, 3, 8, 16, 24, 48, 64, 72, 100, 127, 128, 131, 200, 256, 257, 384, 1024};

/* A random tensor that lies inside the storage: dense, transposed, expanded, strided or overlapping. */
static void random_view(struct example *x, enum rlk_dtype dtype)
{
    const size_t es = rlk_dtype_bytes(dtype);
    memset(x, 0, sizeof *x);
    x->view.dtype = dtype;
    x->view.ndim = (uint32_t)below(5);
    uint64_t n = 1;
    for (uint32_t d = 0; d < x->view.ndim; d++) {
        x->shape[d] = d + 1 == x->view.ndim ? inner_sizes[below(sizeof inner_sizes / sizeof inner_sizes[0])]
                      : below(40) == 0      ? 0
                                            : 1 + below(9);
        n *= x->shape[d];
    }
    uint32_t order[8];
    for (uint32_t d = 0; d < x->view.ndim; d++)
        order[d] = x->view.ndim - 1 - d; /* row-major: innermost first */
    const uint64_t kind = below(5);
    if (kind == 1) /* any permutation of the dimensions */
        for (uint32_t d = x->view.ndim; d > 1; d--) {
            const uint32_t j = (uint32_t)below(d), t = order[d - 1];
            order[d - 1] = order[j];
            order[j] = t;
        }
    int64_t stride = kind == 2 ? 1 + (int64_t)below(3) : 1;
    for (uint32_t i = 0; i < x->view.ndim; i++) {
        const uint32_t d = order[i];
        x->strides[d] = stride;
        stride *= (int64_t)(x->shape[d] ? x->shape[d] : 1);
        if (kind == 3 && below(3) == 0)
            x->strides[d] = 0; /* expanded */
        if (kind == 4 && below(3) == 0)
            x->strides[d] = 1; /* overlapping */
    }
    x->view.shape = x->shape;
    x->view.strides = kind == 0 ? NULL : x->strides;
    x->view.offset = below(64);
    x->view.storage_bytes = STORAGE;
    uint64_t reach = x->view.offset + 1;
    for (uint32_t d = 0; d < x->view.ndim; d++)
        reach += kind == 0 ? 0 : x->shape[d] ? (x->shape[d] - 1) * (uint64_t)x->strides[d] : 0;
    if ((kind == 0 ? n + x->view.offset : reach) * es > STORAGE)
        random_view(x, dtype);
}

/* Makes the view a part of a larger logical tensor. Some parts have borders inside a unit: those the device refuses. */
static void random_place(struct example *x)
{
    struct rlk_run *r = x->runs;
    for (uint32_t d = 0; d < x->view.ndim; d++) {
        const uint64_t e = x->shape[d],
                       gap = d + 1 == x->view.ndim ? (below(4) ? 16 * (1 + below(4)) : below(20)) : below(5);
        if (below(3) == 0) {
            x->logical[d] = e;
            x->nruns[d] = RLK_WHOLE;
            continue;
        }
        const uint64_t cut = d + 1 == x->view.ndim ? e / 2 / 16 * 16 : e / 2;
        x->logical[d] = e + 2 * gap;
        *r++ = (struct rlk_run){gap, cut};
        *r++ = (struct rlk_run){gap + cut + gap, e - cut};
        x->nruns[d] = 2;
    }
    x->place = (struct rlk_place){.ndim = x->view.ndim, .shape = x->logical, .nruns = x->nruns, .runs = x->runs};
    x->placed = true;
}

static void fill(uint8_t *b, enum rlk_dtype dtype)
{
    uint64_t *w = (uint64_t *)(void *)b;
    for (size_t i = 0; i < STORAGE / 8; i++)
        w[i] = rnd();
    /* special values in plenty: NaNs of every payload come by themselves in random bits, zeros and Inf do not */
    static const uint64_t specials[] = {0,
                                        0x8000,
                                        0x80,
                                        0x7c00,
                                        0xfc00,
                                        0x7f80,
                                        0xff80,
                                        0x7fc0,
                                        0x80000000,
                                        0x7f800000,
                                        0x8000000000000000,
                                        0x7ff0000000000000,
                                        0xfff8000000000001,
                                        0x7f,
                                        0xff,
                                        0x7fc00001};
    const size_t es = rlk_dtype_bytes(dtype);
    for (size_t i = 0; i < STORAGE / es / 7; i++) {
        const uint64_t v = specials[below(sizeof specials / sizeof specials[0])];
        memcpy(b + below(STORAGE / es) * es, &v, es < 8 ? es : 8);
    }
}

static void wait_for(struct rlk_gpu_digester *d, struct sink *s, size_t want)
{
    size_t got = 0;
    GPU_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 1000 && got < want; i++)
        got += rlk_gpu_digest_drain(d, take, s);
    if (got != want || s->foreign) {
        fprintf(stderr, "%zu results of %zu, %zu foreign\n", got, want, s->foreign);
        exit(1);
    }
}

static size_t random_batches(struct rlk_gpu_digester *d, uint8_t *host, uint8_t *dev, int rounds)
{
    static struct example x[RLK_GPU_MAX_TENSORS];
    static struct rlk_view views[RLK_GPU_MAX_TENSORS];
    static const struct rlk_place *places[RLK_GPU_MAX_TENSORS];
    static struct got got[RLK_GPU_MAX_TENSORS];
    size_t checked = 0, refused = 0;
    for (int round = 0; round < rounds; round++) {
        struct rlk_detail detail = {""};
        size_t n = 0;
        fill(host, dtypes[(size_t)round % NDTYPES]);
        GPU_OK(cudaMemcpy(dev, host, STORAGE, cudaMemcpyHostToDevice));
        const size_t want = 1 + below(40);
        while (n < want) {
            struct example *e = &x[n];
            random_view(e, round % 3 ? dtypes[(size_t)round % NDTYPES] : dtypes[below(NDTYPES)]);
            if (below(2))
                random_place(e);
            e->view.storage = dev;
            bool composable = true;
            struct rlk_sums sums;
            e->view.storage = host;
            if (rlk_digest_view(&sums, &composable, &e->view, e->placed ? &e->place : NULL, &detail)) {
                fprintf(stderr, "CPU: %s\n", detail.text);
                exit(1);
            }
            e->view.storage = dev;
            const int err = rlk_gpu_digest_plan(&e->view, e->placed ? &e->place : NULL, &detail);
            if (err == RLK_EUNSUPPORTED && !composable) {
                refused++;
                continue;
            }
            if (err || !composable) {
                fprintf(stderr, "plan: %d %s (composable %d)\n", err, detail.text, composable);
                exit(1);
            }
            views[n] = e->view;
            places[n] = e->placed ? &e->place : NULL;
            n++;
        }
        struct sink s = {.got = got, .n = n};
        memset(got, 0, sizeof got);
        int err = rlk_gpu_digest_enqueue(d, views, places, n, NULL, false, &s.first, &detail);
        if (err) {
            if (strstr(detail.text, "boxes"))
                continue; /* more boxes than one launch takes: said, not wrong */
            fprintf(stderr, "enqueue: %s\n", detail.text);
            exit(1);
        }
        wait_for(d, &s, n);
        for (size_t i = 0; i < n; i++) {
            struct rlk_sums cpu;
            bool composable;
            struct rlk_view v = views[i];
            v.storage = host;
            rlk_digest_view(&cpu, &composable, &v, places[i], &detail);
            if (got[i].times != 1 || !same(&cpu, &got[i].sums)) {
                fprintf(stderr, "round %d tensor %zu differs: %s ndim %u", round, i, rlk_dtype_name(v.dtype), v.ndim);
                for (uint32_t k = 0; k < v.ndim; k++)
                    fprintf(stderr, " %llu", (unsigned long long)v.shape[k]);
                fprintf(stderr, " placed %d nan %llu/%llu\n", places[i] != NULL, (unsigned long long)cpu.nan,
                        (unsigned long long)got[i].sums.nan);
                exit(1);
            }
            checked++;
        }
    }
    printf("random tensors: %zu equal, %zu not composable\n", checked, refused);
    return checked;
}

/* A fault planted: one bit flipped on the device only must show. */
static void negative_control(struct rlk_gpu_digester *d, uint8_t *host, uint8_t *dev)
{
    uint64_t shape[2] = {128, 1024};
    struct rlk_view v = {.dtype = RLK_BF16, .ndim = 2, .shape = shape, .storage = host, .storage_bytes = STORAGE};
    struct rlk_sums cpu;
    struct got got = {0};
    struct rlk_detail detail;
    bool composable;
    fill(host, RLK_BF16);
    rlk_digest_view(&cpu, &composable, &v, NULL, &detail);
    host[77777] ^= 1;
    GPU_OK(cudaMemcpy(dev, host, STORAGE, cudaMemcpyHostToDevice));
    struct sink s = {.got = &got, .n = 1};
    v.storage = dev;
    if (rlk_gpu_digest_enqueue(d, &v, NULL, 1, NULL, false, &s.first, &detail))
        exit(1);
    wait_for(d, &s, 1);
    if (same(&cpu, &got.sums)) {
        fprintf(stderr, "a flipped bit did not show\n");
        exit(1);
    }
    printf("negative control: a flipped bit shows\n");
}

/* Captured once, replayed: every replay publishes, in order, what the buffer held then. */
static void captured(struct rlk_gpu_digester *d, uint8_t *host, uint8_t *dev)
{
    uint64_t shape[2] = {64, 512};
    struct rlk_view v = {.dtype = RLK_FP32, .ndim = 2, .shape = shape, .storage = dev, .storage_bytes = STORAGE};
    struct rlk_detail detail;
    struct got got = {0};
    struct sink s = {.got = &got, .n = 1};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GPU_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GPU_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (rlk_gpu_digest_enqueue(d, &v, NULL, 1, stream, true, &s.first, &detail)) {
        fprintf(stderr, "captured: %s\n", detail.text);
        exit(1);
    }
    GPU_OK(cudaStreamEndCapture(stream, &graph));
    GPU_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; i++) {
        struct rlk_sums cpu;
        bool composable;
        fill(host, RLK_FP32);
        GPU_OK(cudaMemcpy(dev, host, STORAGE, cudaMemcpyHostToDevice));
        GPU_OK(cudaGraphLaunch(exec, stream));
        wait_for(d, &s, 1);
        struct rlk_view h = v;
        h.storage = host;
        rlk_digest_view(&cpu, &composable, &h, NULL, &detail);
        if (got.times != i + 1 || !same(&cpu, &got.sums)) {
            fprintf(stderr, "replay %d differs\n", i);
            exit(1);
        }
    }
    GPU_OK(cudaGraphExecDestroy(exec));
    GPU_OK(cudaGraphDestroy(graph));
    printf("captured: 20 replays equal\n");
}

/* Several streams, more results than the ring has slots, drained as they come. */
static void streams(struct rlk_gpu_digester *d, uint8_t *host, uint8_t *dev)
{
    enum { STREAMS = 4, LAUNCHES = 20000 };
    static struct got got[LAUNCHES * 3];
    uint64_t shape[3][2] = {{16, 16}, {100, 131}, {256, 512}};
    struct rlk_view v[3];
    struct rlk_sums cpu[3];
    struct rlk_detail detail;
    cudaStream_t st[STREAMS];
    struct sink s = {.got = got, .n = LAUNCHES * 3};
    bool composable;
    size_t arrived = 0, full = 0;
    fill(host, RLK_BF16);
    GPU_OK(cudaMemcpy(dev, host, STORAGE, cudaMemcpyHostToDevice));
    for (int i = 0; i < 3; i++) {
        v[i] = (struct rlk_view){
            .dtype = RLK_BF16, .ndim = 2, .shape = shape[i], .storage = host, .storage_bytes = STORAGE};
        rlk_digest_view(&cpu[i], &composable, &v[i], NULL, &detail);
        v[i].storage = dev;
    }
    for (int i = 0; i < STREAMS; i++)
        GPU_OK(cudaStreamCreateWithFlags(&st[i], cudaStreamNonBlocking));
    static uint64_t tickets[LAUNCHES];
    s.first = 0;
    s.n = 0;
    for (int i = 0; i < LAUNCHES; i++) {
        int err;
        while ((err = rlk_gpu_digest_enqueue(d, v, NULL, 3, st[i % STREAMS], false, &tickets[i], &detail)) ==
               RLK_EFULL) {
            full++;
            if (i == 0) /* left by earlier tests: none may be */
                exit(1);
            arrived += rlk_gpu_digest_drain(d, take, &s);
        }
        if (err) {
            fprintf(stderr, "streams: %s\n", detail.text);
            exit(1);
        }
        if (i == 0) {
            s.first = tickets[0];
            s.n = sizeof got / sizeof got[0];
        }
        arrived += rlk_gpu_digest_drain(d, take, &s);
    }
    GPU_OK(cudaDeviceSynchronize());
    arrived += rlk_gpu_digest_drain(d, take, &s);
    size_t checked = 0;
    for (int i = 0; i < LAUNCHES; i++)
        for (int t = 0; t < 3; t++) {
            const uint64_t at = tickets[i] + (uint64_t)t - s.first;
            if (at >= s.n)
                continue; /* tickets skipped at the ring's end push the last ones out of our table */
            if (got[at].times != 1 || !same(&cpu[t], &got[at].sums)) {
                fprintf(stderr, "launch %d tensor %d: %d results\n", i, t, got[at].times);
                exit(1);
            }
            checked++;
        }
    printf("streams: %zu results arrived, %zu equal, %zu waits for the ring\n", arrived, checked, full);
    if (arrived != (size_t)LAUNCHES * 3)
        exit(1);
}

int main(void)
{
    struct rlk_gpu_digester *d;
    struct rlk_detail detail = {""};
    uint8_t *host = malloc(STORAGE), *dev;
    gpu_or_skip();
    if (!host)
        return 1;
    GPU_OK(cudaMalloc((void **)&dev, STORAGE));
    if (rlk_gpu_digester_new(&d, 4096, &detail)) {
        fprintf(stderr, "digester: %s\n", detail.text);
        return 1;
    }
    random_batches(d, host, dev, 400);
    negative_control(d, host, dev);
    captured(d, host, dev);
    streams(d, host, dev);
    struct rlk_gpu_digest_stats stats;
    rlk_gpu_digest_stats(d, &stats);
    printf("%llu launches, %llu tensors, %llu results; %llu bytes on the device, %llu pinned\n",
           (unsigned long long)stats.launches, (unsigned long long)stats.tensors, (unsigned long long)stats.results,
           (unsigned long long)stats.device_bytes, (unsigned long long)stats.host_bytes);
    rlk_gpu_digester_free(d, false);
    free(host);
    return 0;
}
