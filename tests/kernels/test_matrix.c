/* test_matrix.c - every operator, forward and backward: the same bytes over all 16 TP x CP, packings, mates, repeats,
 * threads and instruction sets. `test_matrix [cuda] [long|small|tiny]`; with cuda the reference is the CPU at tp1cp1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static enum rlk_device device;
static bool whole;    /* the long matrix */
static bool tiny;     /* one case of a few tokens, for a race checker */
static bool emulated; /* GPU code run on the CPU, or under a sanitizer: small cases only */
/* Under a sanitizer 4097 tokens are left to the long matrix. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
#define RLK_SLOW 1
#else
#define RLK_SLOW 0
#endif

#define GOLDEN_BF16 0x448cbd84dbb2e543ull
#define GOLDEN_FP32 0x2a6887c7e3f7e27bull
static const int DEGREE[] = {1, 2, 4, 8};
static const char *const FILL[] = {"random", "cancelling", "denormal", "outlier", "nan"};

static void run_or_fail(const struct t_case *c, struct t_result *r)
{
    char why[256];
    if (t_run(c, r, why))
        fail_msg("tp%dcp%d %s: %s", c->tp, c->cp, FILL[c->fill], why);
}

static void expect_same(const struct t_case *c, const struct t_result *a, const struct t_result *b, const char *what)
{
    size_t at = 0;
    const int i = t_compare(a, b, &at);
    if (i >= 0)
        fail_msg("%s: tp%dcp%d %s type %d: \"%s\" differs from the reference at byte %zu of %zu", what, c->tp, c->cp,
                 FILL[c->fill], (int)c->type, a->out[i].name, at, a->out[i].bytes);
}

/* All layouts of one input against tp1cp1 on the CPU without threads. */
static void layouts(int32_t sequences, const int32_t *length, enum rlk_ktype type, enum t_fill fill, int head_dim)
{
    struct t_case c = {.device = RLK_DEVICE_CPU,
                       .tp = 1,
                       .cp = 1,
                       .threads = 1,
                       .sequences = sequences,
                       .length = length,
                       .type = type,
                       .fill = fill,
                       .seed = 5,
                       .head_dim = head_dim};
    struct t_result ref, got;
    run_or_fail(&c, &ref);
    c.device = device;
    c.threads = 2;
    for (int t = 0; t < 4; t++)
        for (int k = 0; k < 4; k++) {
            c.tp = DEGREE[t];
            c.cp = DEGREE[k];
            run_or_fail(&c, &got);
            expect_same(&c, &ref, &got, "layout");
            t_result_free(&got);
        }
    t_result_free(&ref);
}

static void packed_mixture(void **state)
{
    static const int32_t L[] = {17, 255, 257};
    (void)state;
    layouts(3, L, RLK_K_BF16, FILL_RANDOM, 64);
    layouts(3, L, RLK_K_FP32, FILL_CANCELLING, 128);
}

static void single_lengths(void **state)
{
    static const int32_t L[] = {1, 15, 16, 17, 255, 256, 257};
    (void)state;
    for (int i = 0; i < 7; i++) {
        layouts(1, &L[i], RLK_K_BF16, FILL_RANDOM, 64);
        if (whole)
            for (int f = 1; f < FILL_COUNT; f++)
                layouts(1, &L[i], f & 1 ? RLK_K_FP32 : RLK_K_BF16, (enum t_fill)f, i & 1 ? 128 : 64);
    }
}

static void hard_inputs(void **state)
{
    static const int32_t L[] = {16, 0, 1, 40, 15};
    (void)state;
    for (int f = 0; f < FILL_COUNT; f++) {
        layouts(5, L, RLK_K_BF16, (enum t_fill)f, 64);
        layouts(5, L, RLK_K_FP32, (enum t_fill)f, 128);
    }
}

static void empty_batch(void **state)
{
    static const int32_t L[] = {0, 0};
    (void)state;
    layouts(2, L, RLK_K_BF16, FILL_RANDOM, 64);
}

/* Rows of `alone` against the same sample's rows among others. */
static void expect_rows(const struct t_result *alone, const struct t_result *among, int64_t row0, const char *what)
{
    for (int i = 0; i < alone->n; i++) {
        const struct t_output *a = &alone->out[i], *b = &among->out[i];
        if (a->by_token && memcmp(a->data, (const char *)b->data + (size_t)row0 * b->row_bytes, a->bytes) != 0)
            fail_msg("%s: \"%s\" of a sample depends on its mates", what, a->name);
    }
}

static void mates(void **state)
{
    (void)state;
    const int COUNT[] = {1, 7, 63};
    const int32_t mine = 33;
    const uint64_t my_id = 4242;
    struct t_case c = {.device = device,
                       .tp = 1,
                       .cp = 1,
                       .threads = 2,
                       .sequences = 1,
                       .length = &mine,
                       .type = RLK_K_BF16,
                       .fill = FILL_RANDOM,
                       .seed = 11,
                       .head_dim = 64,
                       .node = RLK_NODE_FP32,
                       .id = &my_id};
    struct t_result alone, among;
    run_or_fail(&c, &alone);
    for (int m = 0; m < 3; m++)
        for (int place = 0; place < 3; place++) {
            int32_t length[64];
            uint64_t id[64];
            const int n = COUNT[m] + 1, me = place == 0 ? 0 : place == 1 ? n / 2 : n - 1;
            int64_t row0 = 0;
            for (int i = 0; i < n; i++) {
                length[i] = i == me ? mine : 1 + (i * 7) % 19;
                id[i] = i == me ? my_id : (uint64_t)i;
                row0 += i < me ? length[i] : 0;
            }
            c.sequences = n;
            c.length = length;
            c.id = id;
            c.tp = DEGREE[(m + place) % 4];
            c.cp = DEGREE[(2 * m + place) % 4];
            run_or_fail(&c, &among);
            expect_rows(&alone, &among, row0, "mates");
            t_result_free(&among);
        }
    t_result_free(&alone);
}

static void repeats(void **state)
{
    static const int32_t L[] = {257, 33};
    (void)state;
    struct t_case c = {.device = device,
                       .tp = 2,
                       .cp = 2,
                       .threads = 2,
                       .sequences = 2,
                       .length = L,
                       .type = RLK_K_BF16,
                       .fill = FILL_CANCELLING,
                       .seed = 3,
                       .head_dim = 64,
                       .node = RLK_NODE_FP32,
                       .id = NULL};
    struct t_result a, b;
    run_or_fail(&c, &a);
    for (int i = 0; i < (whole || device == RLK_DEVICE_CUDA ? 10 : 2); i++) {
        c.threads = 1 + (unsigned)i % 3;
        run_or_fail(&c, &b);
        expect_same(&c, &a, &b, "repeat");
        t_result_free(&b);
    }
    t_result_free(&a);
}

static void instruction_sets(void **state)
{
    static const int32_t L[] = {17, 130};
    static const char *const ISA[] = {"generic", "avx2", "avx512"};
    (void)state;
    if (device != RLK_DEVICE_CPU)
        return;
    for (int f = 0; f < FILL_COUNT; f++) {
        struct t_case c = {.device = device,
                           .tp = 2,
                           .cp = 2,
                           .threads = 1,
                           .sequences = 2,
                           .length = L,
                           .type = f & 1 ? RLK_K_FP32 : RLK_K_BF16,
                           .fill = (enum t_fill)f,
                           .seed = 3,
                           .head_dim = f & 1 ? 128 : 64};
        struct t_result ref = {0}, got;
        for (int i = 0; i < 3; i++) {
            setenv("RLK_CPU_ISA", ISA[i], 1);
            run_or_fail(&c, &got);
            if (i == 0) {
                ref = got;
                continue;
            }
            expect_same(&c, &ref, &got, ISA[i]);
            t_result_free(&got);
        }
        unsetenv("RLK_CPU_ISA");
        t_result_free(&ref);
    }
}

/* A caller's flush-to-zero does not reach the operators, on any thread. */
static void flush_to_zero(void **state)
{
    static const int32_t L[] = {20};
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct t_case c = {.device = device,
                           .tp = 1,
                           .cp = 1,
                           .threads = threads,
                           .sequences = 1,
                           .length = L,
                           .type = RLK_K_FP32,
                           .fill = FILL_DENORMAL,
                           .seed = 3,
                           .head_dim = 64};
        struct t_result a, b;
        run_or_fail(&c, &a);
        c.flush = true;
        run_or_fail(&c, &b);
        expect_same(&c, &a, &b, "flush to zero");
        t_result_free(&a);
        t_result_free(&b);
    }
}

/* Repeats while another stream keeps the GPU busy and moves the clock, the order of blocks and the free memory. */
#ifdef RLK_HAVE_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/rlki_prims.h"

static atomic_bool stop_noise;

static void *noise(void *stream)
{
    enum { M = 1024 };
    struct rlk_exec x;
    if (rlk_exec_init(&x, RLK_DEVICE_CUDA, stream, NULL))
        return NULL;
    float *p = rlk_exec_alloc(&x, 3u * M * M * sizeof *p);
    const struct rlki_gemm g = {.m = M,
                                .n = M,
                                .k = M,
                                .a = {p, RLK_K_FP32, M, 1, NULL},
                                .b = {p + M * M, RLK_K_FP32, 1, M, NULL},
                                .c = p + 2 * M * M,
                                .c_type = RLK_K_FP32,
                                .ldc = M};
    for (int i = 0; !atomic_load(&stop_noise); i++) {
        x.prims->gemm(&x, &g);
        if (i % 16 == 0)
            rlk_exec_sync(&x);
    }
    rlk_exec_sync(&x);
    rlk_exec_free(&x, p);
    return NULL;
}

static void noisy_stream(void **state)
{
    static const int32_t L[] = {257, 33};
    cudaStream_t mine = NULL, other = NULL;
    pthread_t thread;
    (void)state;
    if (device != RLK_DEVICE_CUDA)
        return;
    assert_int_equal(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), 0);
    struct t_case c = {.device = device,
                       .tp = 2,
                       .cp = 2,
                       .threads = 2,
                       .sequences = 2,
                       .length = L,
                       .type = RLK_K_BF16,
                       .fill = FILL_CANCELLING,
                       .seed = 3,
                       .head_dim = 128,
                       .stream = mine};
    struct t_result a, b;
    run_or_fail(&c, &a);
    assert_int_equal(pthread_create(&thread, NULL, noise, other), 0);
    for (int i = 0; i < 10; i++) {
        c.tp = DEGREE[i % 4];
        run_or_fail(&c, &b);
        expect_same(&c, &a, &b, "noisy stream");
        t_result_free(&b);
    }
    atomic_store(&stop_noise, true);
    pthread_join(thread, NULL);
    t_result_free(&a);
    cudaStreamDestroy(mine);
    cudaStreamDestroy(other);
}
#else
static void noisy_stream(void **state)
{
    (void)state;
}
#endif

static void bf16_nodes(void **state)
{
    static const int32_t L[] = {17, 257};
    (void)state;
    struct t_case c = {.device = device,
                       .tp = 1,
                       .cp = 1,
                       .threads = 2,
                       .sequences = 2,
                       .length = L,
                       .type = RLK_K_BF16,
                       .fill = FILL_RANDOM,
                       .seed = 3,
                       .head_dim = 64,
                       .node = RLK_NODE_BF16,
                       .id = NULL};
    struct t_result a, b;
    size_t at;
    run_or_fail(&c, &a);
    c.tp = 4;
    c.cp = 8;
    run_or_fail(&c, &b);
    expect_same(&c, &a, &b, "bf16 nodes");
    t_result_free(&b);
    c.node = RLK_NODE_FP32;
    run_or_fail(&c, &b);
    assert_true(t_compare(&a, &b, &at) >= 0); /* it is another contract */
    t_result_free(&b);
    t_result_free(&a);
}

/* The bits of the contracts themselves: these numbers change only with a new contract version. */
static void golden(void **state)
{
    static const int32_t L[] = {17, 0, 130};
    static const uint64_t WANT[] = {GOLDEN_BF16, GOLDEN_FP32};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct t_case c = {.device = device,
                           .tp = 1 + i,
                           .cp = 2,
                           .threads = 2,
                           .sequences = 3,
                           .length = L,
                           .type = i ? RLK_K_FP32 : RLK_K_BF16,
                           .fill = FILL_RANDOM,
                           .seed = 2024,
                           .head_dim = i ? 128 : 64};
        struct t_result r;
        uint64_t h = 14695981039346656037ull;
        run_or_fail(&c, &r);
        for (int k = 0; k < r.n; k++)
            for (size_t n = 0; n < r.out[k].bytes; n++)
                h = (h ^ ((unsigned char *)r.out[k].data)[n]) * 1099511628211ull;
        t_result_free(&r);
        if (h != WANT[i])
            fail_msg("the bits of %s are 0x%016llx, the contract's are 0x%016llx", i ? "fp32" : "bf16",
                     (unsigned long long)h, (unsigned long long)WANT[i]);
    }
}

static void long_sequence(void **state)
{
    static const int32_t L[] = {4097};
    (void)state;
    if (RLK_SLOW && !whole)
        return;
    struct t_case c = {.device = RLK_DEVICE_CPU,
                       .tp = 1,
                       .cp = 1,
                       .threads = 2,
                       .sequences = 1,
                       .length = L,
                       .type = RLK_K_BF16,
                       .fill = FILL_RANDOM,
                       .seed = 3,
                       .head_dim = 64,
                       .node = RLK_NODE_FP32,
                       .id = NULL};
    struct t_result a, b;
    run_or_fail(&c, &a);
    c.device = device;
    c.tp = c.cp = 8;
    run_or_fail(&c, &b);
    expect_same(&c, &a, &b, "4097 tokens");
    t_result_free(&a);
    t_result_free(&b);
}

/* A few cases that touch every kernel and every tile edge. */
static void emulation(void **state)
{
    static const int32_t L[] = {17, 70, 1, 130};
    (void)state;
    if (!emulated)
        return;
    for (int f = 0; f < (tiny ? 1 : FILL_COUNT); f++) {
        struct t_case c = {.device = RLK_DEVICE_CPU,
                           .tp = 1,
                           .cp = 1,
                           .threads = 1,
                           .sequences = tiny ? 1
                                        : f  ? 3
                                             : 4,
                           .length = L,
                           .type = f & 1 ? RLK_K_FP32 : RLK_K_BF16,
                           .fill = (enum t_fill)f,
                           .seed = 3,
                           .head_dim = f & 1 ? 128 : 64};
        struct t_result ref, got;
        run_or_fail(&c, &ref);
        c.device = RLK_DEVICE_CUDA;
        for (int i = 0; i < (tiny ? 1 : 2); i++) {
            c.tp = i ? 4 : 1;
            c.cp = i ? 2 : 1;
            run_or_fail(&c, &got);
            expect_same(&c, &ref, &got, "GPU code against CPU code");
            t_result_free(&got);
        }
        t_result_free(&ref);
    }
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    for (int i = 1; i < argc; i++)
        whole |= strcmp(argv[i], "long") == 0;
    for (int i = 1; i < argc; i++)
        tiny |= strcmp(argv[i], "tiny") == 0;
    for (int i = 1; i < argc; i++)
        emulated |= tiny || strcmp(argv[i], "emulated") == 0 || strcmp(argv[i], "small") == 0;
    const struct CMUnitTest gold[] = {cmocka_unit_test(golden)};
    if (argc > 1 && strcmp(argv[argc - 1], "golden") == 0)
        return cmocka_run_group_tests(gold, NULL, NULL);
    const struct CMUnitTest small[] = {cmocka_unit_test(emulation)};
    if (emulated)
        return cmocka_run_group_tests(small, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_mixture),   cmocka_unit_test(single_lengths), cmocka_unit_test(hard_inputs),
        cmocka_unit_test(empty_batch),      cmocka_unit_test(mates),          cmocka_unit_test(repeats),
        cmocka_unit_test(instruction_sets), cmocka_unit_test(flush_to_zero),  cmocka_unit_test(noisy_stream),
        cmocka_unit_test(bf16_nodes),       cmocka_unit_test(golden),         cmocka_unit_test(long_sequence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
