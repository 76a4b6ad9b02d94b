/* bench_kernels.c - what each operator costs, by contract and by the provider. usage: bench_kernels [cpu|cuda]
 * [memory] [--check]
 *
 * CPU: a policy of hidden 256 on the threads of the machine, and GEMM against OpenBLAS single precision when
 * RLK_OPENBLAS names its library. CUDA: shapes of an 8B policy, 8192 tokens in 4 sequences, bf16. Formulas: GB/s =
 * bytes that must move once / time; TFLOP/s = 2*m*n*k / time; attention forward 2*2*h*d*sum over rows of keys seen,
 *   backward 2.5 times that (the 7 products taken count as 5); logp forward 2*n*H*V, backward 6*n*H*V.
 * A GPU's time is taken by events around many calls, the median of several rounds; memory-bound operators take turns
 * between two sets of tensors, so that the L2 (60 MB) cannot serve what the formula counts. With `memory` only those
 * operators run; with --check the goals decide the exit status. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef RLK_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "kernels/rlk_ops.h"
#include "kernels/rlki_prims.h"

struct shape {
    int64_t tokens, hidden, inter, vocab, params;
    int heads, kv, d, sequences, logp_tokens;
};

static struct rlk_exec x;
static struct rlk_world w;
static struct rlk_policy *policy;
static const struct shape *S;
static struct rlk_batch *b, *few;
static bool cuda, check, failed, memory_only;
static double bandwidth; /* of a copy, GB/s */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    printf("%s: %s\n", what, x.detail.text);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *p = rlk_exec_alloc(&x, bytes + 256);
    if (!p)
        die("allocation");
    return p;
}

/* bf16 or fp32 values of about 1, some of each sign. */
static void *filled(enum rlk_ktype type, int64_t n)
{
    const size_t size = rlk_ktype_bytes(type);
    const int64_t part = n < 1 << 22 ? n : 1 << 22;
    char *host = malloc((size_t)part * size);
    uint32_t s = 1;
    for (int64_t i = 0; i < part; i++) {
        s = s * 1664525u + 1013904223u;
        const uint32_t bits = 0x3f000000u | (s >> 9 & 0x7fffffu) | (s & 0x80000000u);
        if (type == RLK_K_BF16)
            ((uint16_t *)(void *)host)[i] = (uint16_t)(bits >> 16);
        else
            memcpy(host + 4 * i, &bits, 4);
    }
    char *p = memory((size_t)n * size);
    rlk_exec_upload(&x, p, host, (size_t)part * size);
    for (int64_t at = part; at < n; at += part)
        x.prims->copy(&x, p + (size_t)at * size, p, (size_t)(n - at < part ? n - at : part) * size);
    rlk_exec_sync(&x);
    free(host);
    return p;
}

struct args {
    void *p[16]; /* the second set, where there is one, from 8 on */
    int64_t n[4];
    float *f[8]; /* from 4 on */
    bool two;
    int turn;
};
#define IN(i) (const void *const *)&a->p[(i) + 8 * a->turn]
#define OUT(i) (void *const *)&a->p[(i) + 8 * a->turn]
#define FL(i) (float *const *)&a->f[(i) + 4 * a->turn]
#define CFL(i) (const float *const *)(const void *)&a->f[(i) + 4 * a->turn]

static void call(int (*fn)(void *), struct args *a)
{
    if (a && a->two)
        a->turn ^= 1;
    if (fn(a))
        die("bench");
}

static int by_size(const void *one, const void *other)
{
    const double p = *(const double *)one, q = *(const double *)other;
    return p < q ? -1 : p > q;
}

static double timed(int (*fn)(void *), struct args *a)
{
    double round[15], spent = 0.0;
    int rounds = 0;
    call(fn, a);
    rlk_exec_sync(&x);
    double t = now();
    call(fn, a);
    rlk_exec_sync(&x);
    t = now() - t;
    const int inner = !cuda ? 1 : t > 4e-3 ? 1 : t < 8e-5 ? 50 : (int)(4e-3 / t);
#ifdef RLK_HAVE_CUDA
    cudaEvent_t from = NULL, to = NULL;
    if (cuda && (cudaEventCreate(&from) || cudaEventCreate(&to)))
        die("event");
#endif
    while (rounds < 15 && (rounds < 3 || spent < (cuda ? 0.06 : 0.4))) {
        float ms = 0.0f;
        t = now();
#ifdef RLK_HAVE_CUDA
        if (cuda)
            cudaEventRecord(from, x.stream);
#endif
        for (int i = 0; i < inner; i++)
            call(fn, a);
#ifdef RLK_HAVE_CUDA
        if (cuda)
            cudaEventRecord(to, x.stream);
#endif
        rlk_exec_sync(&x);
        t = now() - t;
#ifdef RLK_HAVE_CUDA
        if (cuda && cudaEventElapsedTime(&ms, from, to))
            die("event");
#endif
        spent += t;
        round[rounds++] = (cuda ? 1e-3 * (double)ms : t) / inner;
    }
#ifdef RLK_HAVE_CUDA
    if (cuda) {
        cudaEventDestroy(from);
        cudaEventDestroy(to);
    }
#endif
    qsort(round, (size_t)rounds, sizeof *round, by_size);
    return cuda ? round[rounds / 2] : round[0];
}

/* One line: contract against provider. bytes or flops may be 0. goal: share of bandwidth. */
static void report(const char *name, int (*fn)(void *), struct args *arg, double bytes, double flops, double goal)
{
    rlk_policy_mode(policy, "strict", NULL);
    const double t = timed(fn, arg);
    rlk_policy_mode(policy, "off", NULL);
    const double p = fn(arg) ? 0.0 : timed(fn, arg);
    rlk_policy_mode(policy, "strict", NULL);
    printf("%-22s %10.3f ms", name, 1e3 * t);
    if (bytes > 0)
        printf("  %7.0f GB/s (%3.0f %% of copy)", bytes / t * 1e-9, 100 * bytes / t * 1e-9 / bandwidth);
    if (flops > 0)
        printf("  %7.2f TFLOP/s              ", flops / t * 1e-12);
    if (p > 0)
        printf("  provider %10.3f ms  %5.2fx", 1e3 * p, t / p);
    else
        printf("  provider: %.60s", x.detail.text);
    const bool miss = cuda && goal > 0 && bytes / t * 1e-9 < goal * bandwidth;
    printf("%s\n", miss ? "  BELOW GOAL" : "");
    failed |= miss;
}

static int do_copy(void *v)
{
    struct args *a = v;
    return x.prims->copy(&x, a->p[1 + 8 * a->turn], a->p[8 * a->turn], (size_t)a->n[0]);
}
static int do_norm(void *v)
{
    struct args *a = v;
    return rlk_rmsnorm_fwd(&w, b, "norm", S->hidden, RLK_K_BF16, 1e-6f, IN(0), IN(2), OUT(1), FL(0));
}
static int do_norm_bwd(void *v)
{
    struct args *a = v;
    return rlk_rmsnorm_bwd(&w, b, "norm", S->hidden, RLK_K_BF16, IN(1), IN(0), IN(2), CFL(0), OUT(3), FL(1));
}
static int do_headnorm(void *v)
{
    struct args *a = v;
    return rlk_headnorm_fwd(&w, b, "q_norm", S->heads, S->d, RLK_K_BF16, 1e-6f, IN(0), IN(2), OUT(1), FL(0));
}
static int do_headnorm_bwd(void *v)
{
    struct args *a = v;
    return rlk_headnorm_bwd(&w, b, "q_norm", S->heads, S->d, RLK_K_BF16, IN(1), IN(0), IN(2), CFL(0), OUT(3), FL(1));
}
static int do_glu(void *v)
{
    struct args *a = v;
    void **p = a->p + 8 * a->turn;
    const struct rlki_glu g = {.n = a->n[0], .type = RLK_K_BF16, .gate = p[0], .up = p[1], .y = p[2]};
    return (rlk_policy_mode_of(policy, RLK_MODULE_FFN) == RLK_MODE_OFF ? x.provider : x.prims)->glu_fwd(&x, &g);
}
static int do_glu_bwd(void *v)
{
    struct args *a = v;
    void **p = a->p + 8 * a->turn;
    const struct rlki_glu g = {
        .n = a->n[0], .type = RLK_K_BF16, .gate = p[0], .up = p[1], .dy = p[2], .dgate = p[3], .dup = p[4]};
    return (rlk_policy_mode_of(policy, RLK_MODULE_FFN) == RLK_MODE_OFF ? x.provider : x.prims)->glu_bwd(&x, &g);
}
static int do_rope(void *v)
{
    struct args *a = v;
    return rlk_rope(&w, b, "rope", S->heads, S->d, RLK_K_BF16, a->f[4 * a->turn], false, IN(0), OUT(1));
}
static int do_add(void *v)
{
    struct args *a = v;
    return rlk_add(&w, b, "residual", S->hidden, RLK_K_BF16, IN(0), IN(1), OUT(2));
}
static int do_embed(void *v)
{
    struct args *a = v;
    void **p = a->p + 8 * a->turn;
    const struct rlki_embed e = {S->tokens, S->hidden, RLK_K_BF16, p[2], 0, (int32_t)S->vocab, p[0], p[1]};
    return (rlk_policy_mode_of(policy, RLK_MODULE_EMBEDDING) == RLK_MODE_OFF ? x.provider : x.prims)->embed(&x, &e);
}
static int32_t *words;
static int do_embed_bwd(void *v)
{
    struct args *a = v;
    return rlk_embedding_bwd(&w, b, "embed", S->vocab, S->hidden, RLK_K_BF16, words, IN(1), FL(0));
}
static int do_loss_sum(void *v)
{
    struct args *a = v;
    double sum[2] = {0.0, 0.0};
    return rlk_loss_sum(&w, b, "loss", CFL(0), NULL, sum);
}
static int do_adamw(void *v)
{
    struct args *a = v;
    const struct rlk_adamw o = {"optimizer", 1e-6f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 3, RLK_K_BF16};
    const struct rlk_param p = {"w", S->params / S->hidden, S->hidden, RLK_CUT_OUT, false, FL(3)};
    return rlk_adamw_param(&w, &o, &p, FL(0), FL(1), FL(2), OUT(0));
}
static int do_gradnorm(void *v)
{
    struct args *a = v;
    const struct rlk_param p = {"w", S->params / S->hidden, S->hidden, RLK_CUT_OUT, false, FL(3)};
    double norm;
    return rlk_gradnorm(&w, "optimizer", 1, &p, &norm);
}
static int do_column(void *v)
{
    struct args *a = v;
    return rlk_linear_column_fwd(&w, b, "up", S->hidden, S->inter, RLK_K_BF16, IN(0), IN(1), OUT(2));
}
static int do_row(void *v)
{
    struct args *a = v;
    return rlk_linear_row_fwd(&w, b, "down", S->inter, S->hidden, RLK_K_BF16, IN(2), IN(1), OUT(0));
}
static int do_column_dx(void *v)
{
    struct args *a = v;
    const void *const *dy = IN(2), *const *wt = IN(1);
    return rlk_linear_column_dx(&w, b, "up", S->hidden, 1, &S->inter, RLK_K_BF16, &dy, &wt, OUT(3));
}
static int do_dw(void *v)
{
    struct args *a = v;
    return rlk_linear_dw(&w, b, "up", RLK_CUT_OUT, S->hidden, S->inter, RLK_K_BF16, IN(2), IN(0), FL(0));
}
static int do_attention(void *v)
{
    struct args *a = v;
    const struct rlk_attention t = {"attn", S->heads, S->kv, S->d, RLK_K_BF16};
    return rlk_attention_fwd(&w, b, &t, IN(0), IN(1), IN(2), OUT(3), FL(0));
}
static int do_attention_bwd(void *v)
{
    struct args *a = v;
    const struct rlk_attention t = {"attn", S->heads, S->kv, S->d, RLK_K_BF16};
    return rlk_attention_bwd(&w, b, &t, IN(0), IN(0), IN(1), IN(2), IN(3), CFL(0), OUT(4), OUT(5), OUT(6));
}

static int32_t *targets;
static int do_logp(void *v)
{
    struct args *a = v;
    const struct rlk_logp l = {"lm_head", S->hidden, S->vocab, RLK_K_BF16, 1.0f, IN(1), targets};
    return rlk_logp_fwd(&w, few, &l, IN(0), FL(0), FL(1));
}
static int do_logp_bwd(void *v)
{
    struct args *a = v;
    const struct rlk_logp l = {"lm_head", S->hidden, S->vocab, RLK_K_BF16, 1.0f, IN(1), targets};
    return rlk_logp_bwd(&w, few, &l, IN(0), CFL(1), CFL(0), OUT(2), FL(2));
}

static void drop(struct args *a)
{
    for (int i = 0; i < 16; i++)
        rlk_exec_free(&x, a->p[i]);
    for (int i = 0; i < 8; i++)
        rlk_exec_free(&x, a->f[i]);
    *a = (struct args){0};
}

/* ---- square GEMM, FP32 ---- */

static struct rlki_gemm square;
static int do_square(void *v)
{
    (void)v;
    return x.prims->gemm(&x, &square);
}
static void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
static int do_sgemm(void *v)
{
    (void)v;
    const int n = (int)square.n;
    sgemm(101, 111, 112, n, n, n, 1.0f, square.a.p, n, square.b.p, n, 0.0f, square.c, n);
    return 0;
}

static void square_gemm(int64_t n, enum rlk_ktype type)
{
    void *a = filled(type, n * n), *q = filled(type, n * n), *y = memory((size_t)(n * n) * 4);
    square = (struct rlki_gemm){.m = n,
                                .n = n,
                                .k = n,
                                .a = {a, type, n, 1, NULL},
                                .b = {q, type, n, 1, NULL},
                                .c = y,
                                .c_type = RLK_K_FP32,
                                .ldc = n};
    const double flop = 2.0 * (double)n * (double)n * (double)n, t = timed(do_square, NULL);
    printf("gemm %lld^3 %s         %10.3f ms  %7.3f TFLOP/s", (long long)n, type == RLK_K_BF16 ? "bf16" : "fp32",
           1e3 * t, flop / t * 1e-12);
    if (cuda) {
        /* FP32 FMA peak of an H200: 132 SMs x 128 lanes x 2 x 1.98 GHz. */
        const double share = flop / t / 66.9e12;
        printf("  %.0f %% of the FP32 FMA peak (66.9)%s", 100 * share, share < 0.5 ? "  BELOW GOAL" : "");
        failed |= share < 0.5;
    } else if (sgemm && type == RLK_K_FP32) {
        const double o = timed(do_sgemm, NULL);
        printf("  OpenBLAS %.3f ms: %.2fx%s", 1e3 * o, t / o, t > 3 * o ? "  BELOW GOAL" : "");
        failed |= t > 3 * o;
    }
    printf("\n");
    rlk_exec_free(&x, a);
    rlk_exec_free(&x, q);
    rlk_exec_free(&x, y);
}

static void memory_bound(void)
{
    const double n = (double)S->tokens, H = (double)S->hidden, I = (double)S->inter, P = (double)S->params;
    const double hd = (double)(S->heads * S->d);
    const int64_t wide = S->inter > S->heads * S->d ? S->inter : S->heads * S->d;
    struct args a = {0};
    for (int i = 0; i < 16; i++)
        if (i % 8 < 5)
            a.p[i] = filled(RLK_K_BF16, S->tokens * wide);
    for (int k = 0; k < 8; k += 4) {
        a.f[k] = filled(RLK_K_FP32, S->tokens * S->heads);
        a.f[k + 1] = filled(RLK_K_FP32, S->hidden);
    }
    a.two = true;
    a.n[0] = S->tokens * S->inter * 2;
    bandwidth = 1e9;
    const double t = timed(do_copy, &a);
    bandwidth = 2.0 * (double)a.n[0] / t * 1e-9;
    printf("copy                   %10.3f ms  %7.0f GB/s\n", 1e3 * t, bandwidth);
    report("rmsnorm fwd", do_norm, &a, n * (4 * H + 4) + 2 * H, 0, 0.8);
    report("rmsnorm bwd", do_norm_bwd, &a, n * (6 * H + 4), 0, 0);
    report("q_norm fwd", do_headnorm, &a, n * (4 * hd + 4 * (double)S->heads), 0, 0.8);
    report("q_norm bwd", do_headnorm_bwd, &a, n * (6 * hd + 4 * (double)S->heads), 0, 0);
    a.n[0] = S->tokens * S->inter;
    report("swiglu fwd", do_glu, &a, 6 * n * I, 0, 0.8);
    report("swiglu bwd", do_glu_bwd, &a, 10 * n * I, 0, 0);
    report("residual add", do_add, &a, 6 * n * H, 0, 0.8);
    float *table = malloc((size_t)8192 * (size_t)S->d * 4);
    rlk_rope_table(1e6, S->d, 8192, table, NULL);
    for (int k = 0; k < 8; k += 4) {
        rlk_exec_free(&x, a.f[k]);
        a.f[k] = memory((size_t)8192 * (size_t)S->d * 4);
        rlk_exec_upload(&x, a.f[k], table, (size_t)8192 * (size_t)S->d * 4);
    }
    rlk_exec_sync(&x);
    free(table);
    report("rope", do_rope, &a, 4 * n * hd, 0, 0.8);
    drop(&a);
    int32_t *id = malloc((size_t)S->tokens * 4);
    for (int k = 0; k < 2; k++) {
        a.p[8 * k] = filled(RLK_K_BF16, S->vocab * S->hidden);
        a.p[8 * k + 1] = memory((size_t)(S->tokens * S->hidden) * 2);
        a.p[8 * k + 2] = memory((size_t)S->tokens * 4);
        for (int64_t i = 0; i < S->tokens; i++)
            id[i] = (int32_t)(((i + k) * 7919) % S->vocab);
        rlk_exec_upload(&x, a.p[8 * k + 2], id, (size_t)S->tokens * 4);
        rlk_exec_sync(&x);
    }
    a.two = true;
    report("embedding fwd", do_embed, &a, 4 * n * H, 0, 0.8);
    for (int k = 0; k < 8; k += 4) /* each word once: the gradient's rows are read and written */
        a.f[k] = filled(RLK_K_FP32, S->vocab * S->hidden);
    words = id;
    report("embedding bwd", do_embed_bwd, &a, 10 * n * H, 0, 0);
    free(id);
    report("loss sum", do_loss_sum, &a, 0, 0, 0);
    drop(&a);
    for (int i = 0; i < 4; i++)
        a.f[i] = filled(RLK_K_FP32, S->params);
    a.p[0] = memory((size_t)S->params * 2);
    report("adamw", do_adamw, &a, 30 * P, 0, 0.8);
    report("grad norm", do_gradnorm, &a, 4 * P, 0, 0.8);
    drop(&a);
}

static void compute_bound(void)
{
    const double n = (double)S->tokens, H = (double)S->hidden, I = (double)S->inter;
    struct args a = {0};
    a.p[0] = filled(RLK_K_BF16, S->tokens * S->hidden);
    a.p[1] = filled(RLK_K_BF16, S->inter * S->hidden);
    a.p[2] = filled(RLK_K_BF16, S->tokens * S->inter);
    a.p[3] = memory((size_t)(S->tokens * S->hidden) * 2);
    a.f[0] = filled(RLK_K_FP32, S->inter * S->hidden);
    report("linear column fwd", do_column, &a, 0, 2 * n * H * I, 0);
    report("linear column dx", do_column_dx, &a, 0, 2 * n * H * I, 0);
    report("linear row fwd", do_row, &a, 0, 2 * n * H * I, 0);
    report("linear dw", do_dw, &a, 0, 2 * n * H * I, 0);
    drop(&a);
    const int64_t qn = S->tokens * S->heads * S->d, kn = S->tokens * S->kv * S->d;
    const double len = n / S->sequences, keys = n * (len + 1) / 2;
    a.p[0] = filled(RLK_K_BF16, qn);
    a.p[1] = filled(RLK_K_BF16, kn);
    a.p[2] = filled(RLK_K_BF16, kn);
    a.p[3] = memory((size_t)qn * 2);
    a.p[4] = memory((size_t)qn * 2);
    a.p[5] = memory((size_t)kn * 2);
    a.p[6] = memory((size_t)kn * 2);
    a.f[0] = memory((size_t)(S->tokens * S->heads) * 4);
    const double flop = 4.0 * (double)(S->heads * S->d) * keys;
    report("attention fwd", do_attention, &a, 0, flop, 0);
    report("attention bwd", do_attention_bwd, &a, 0, 2.5 * flop, 0);
    drop(&a);
    a.p[0] = filled(RLK_K_BF16, S->logp_tokens * S->hidden);
    a.p[1] = filled(RLK_K_BF16, S->vocab * S->hidden);
    a.p[2] = memory((size_t)(S->logp_tokens * S->hidden) * 2);
    a.f[0] = memory((size_t)S->logp_tokens * 4);
    a.f[1] = memory((size_t)S->logp_tokens * 12);
    a.f[2] = filled(RLK_K_FP32, S->vocab * S->hidden);
    targets = malloc((size_t)S->logp_tokens * 4);
    for (int i = 0; i < S->logp_tokens; i++)
        targets[i] = (int32_t)((i * 104729ll) % S->vocab);
    const double lf = 2.0 * (double)S->logp_tokens * H * (double)S->vocab;
    report("logp fwd", do_logp, &a, 0, lf, 0);
    report("logp bwd", do_logp_bwd, &a, 0, 3 * lf, 0);
    free(targets);
    drop(&a);
}

int main(int argc, char **argv)
{
    static const struct shape SMALL = {1024, 256, 768, 4096, 4 << 20, 16, 8, 64, 4, 512};
    static const struct shape LARGE = {8192, 4096, 12288, 151936, 256 << 20, 32, 8, 128, 4, 2048};
    for (int i = 1; i < argc; i++) {
        cuda |= strcmp(argv[i], "cuda") == 0;
        check |= strcmp(argv[i], "--check") == 0;
        memory_only |= strcmp(argv[i], "memory") == 0;
    }
    struct rlk_pool *pool = rlk_pool_new(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (rlk_exec_init(&x, cuda ? RLK_DEVICE_CUDA : RLK_DEVICE_CPU, NULL, pool)) {
        printf("skipped: %s\n", x.detail.text);
        return 77;
    }
    S = cuda ? &LARGE : &SMALL;
    x.policy = policy = rlk_policy_new();
    printf("%s, %u threads\n", rlk_exec_isa(&x), rlk_pool_threads(pool));
    if (rlk_world_virtual(&w, &x, 1, 1))
        die("world");
    int32_t length[4], shorter[4];
    for (int i = 0; i < S->sequences; i++) {
        length[i] = (int32_t)(S->tokens / S->sequences);
        shorter[i] = S->logp_tokens / S->sequences;
    }
    if (rlk_batch_new(&x, &w.lat, S->sequences, length, NULL, &b) ||
        rlk_batch_new(&x, &w.lat, S->sequences, shorter, NULL, &few))
        die("batch");
    x.workspace_bytes = cuda ? (size_t)16 << 30 : (size_t)512 << 20;
    x.workspace = memory(x.workspace_bytes);
    const char *path = getenv("RLK_OPENBLAS");
    void *lib = path && !cuda ? dlopen(path, RTLD_NOW) : NULL;
    void *symbol = lib ? dlsym(lib, "cblas_sgemm") : NULL;
    memcpy(&sgemm, &symbol, sizeof sgemm);
    if (!memory_only) {
        square_gemm(cuda ? 8192 : 1024, RLK_K_FP32);
        square_gemm(cuda ? 8192 : 1024, RLK_K_BF16);
    }
    memory_bound();
    if (!memory_only)
        compute_bound();
    rlk_batch_free(&x, b);
    rlk_batch_free(&x, few);
    rlk_exec_free(&x, x.workspace);
    rlk_policy_free(policy);
    rlk_pool_free(pool);
    return check && failed ? 1 : 0;
}
