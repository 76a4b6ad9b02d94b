/* bench_tap.c - what a tap costs, with and without a recorder, in one run.
 *
 * usage: bench.tap LIBRARY [--check NS]
 * The loop body is a little arithmetic (as a baseline), then the same with taps round it. Without a recorder this
 * process measures itself; with one it starts itself again under LIBRARY, recording into a temporary directory. Best of
 * several rounds. --check: exit 1 if a tap without a recorder costs more than NS nanoseconds.
 */
#include "recorder/rlk_tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, SMALL = 64 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static volatile float sink;
static float buffer[SMALL];
static uint64_t generation, version = 1;

__attribute__((noinline)) static void work(void)
{
    for (int i = 0; i < SMALL; i++)
        buffer[i] = buffer[i] * 0.999f + 1.0f;
    sink = buffer[0];
}

static void plain(struct rlk_tap_ctx *ctx)
{
    (void)ctx;
    work();
}

/* Two taps: a module and nothing in it. */
static void spans(struct rlk_tap_ctx *ctx)
{
    RLK_TAP(module_begin, ctx, "model.layers.0.mlp");
    work();
    RLK_TAP(module_end, ctx);
}

/* One tap by the function: what a caller pays that asks each time. */
static void asks(struct rlk_tap_ctx *ctx)
{
    (void)ctx;
    work();
    if (rlk_tap())
        sink = 1;
}

static void bare_op(struct rlk_tap_ctx *ctx)
{
    struct rlk_tap_op *op = ctx ? rlk_tap()->op_begin(ctx, "aten::mul", NULL) : NULL;
    work();
    if (op)
        rlk_tap()->op_end(op);
}

static void tensors(struct rlk_tap_ctx *ctx)
{
    static const uint64_t shape[1] = {SMALL};
    struct rlk_tap_op *op = ctx ? rlk_tap()->op_begin(ctx, "aten::mul", NULL) : NULL;
    struct rlk_tap_tensor t = {.name = "x", .generation = generation, .version = version};
    t.view = (struct rlk_view){
        .dtype = RLK_FP32, .ndim = 1, .shape = shape, .storage = buffer, .storage_bytes = sizeof buffer};
    if (op)
        rlk_tap()->op_in(op, &t);
    work();
    if (op) {
        t.version = ++version;
        rlk_tap()->op_out(op, &t);
        rlk_tap()->op_end(op);
    }
}

static double best(void (*body)(struct rlk_tap_ctx *), struct rlk_tap_ctx *ctx, int n)
{
    double least = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        double start = now_ns();
        for (int i = 0; i < n; i++)
            body(ctx);
        double each = (now_ns() - start) / n;
        least = each < least ? each : least;
        if (ctx)
            rlk_tap()->flush();
    }
    return least;
}

static double measure(const char *what, int n)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context(RLK_TAP_OWN_RANK);
    if (ctx)
        generation = rlk_tap()->generation();
    RLK_TAP(step, ctx, 1);
    double base = best(plain, ctx, n);
    double s = best(spans, ctx, n), a = best(asks, ctx, n), o = best(bare_op, ctx, n), t = best(tensors, ctx, n);
    printf("%-10s %8.1f %14.2f %12.2f %14.2f %20.2f\n", what, base, (s - base) / 2, a - base, o - base, t - base);
    return (s - base) / 2 > a - base ? (s - base) / 2 : a - base;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--recorded")) {
        measure("burst", 4000); /* the queue takes them all */
        measure("sustained", 100000);
        return rlk_tap() ? 0 : 1;
    }
    if (argc < 2)
        return 2;
    printf("ns           body      a span tap     rlk_tap()    op_begin..end   with one in, one out\n");
    double cost = measure("none", 2000000);
    fflush(stdout);
    char dir[] = "/tmp/rlk-bench-XXXXXX", command[64];
    if (!mkdtemp(dir))
        return 2;
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("RLKREC_LIBRARY", argv[1], 1);
        setenv("RLKREC_RECORDING", dir, 1);
        execl("/proc/self/exe", argv[0], "--recorded", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        fprintf(stderr, "bench.tap: the recorded half failed\n");
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command))
        return 2;
    if (status)
        return 1;
    double bound = argc > 3 && !strcmp(argv[2], "--check") ? strtod(argv[3], NULL) : 1e9;
    return cost > bound;
}
