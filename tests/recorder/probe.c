/* probe.c - what test_tap.c records: probe SCENARIO. Each scenario is a handful of taps whose events are written out by
 * hand in the test. */
#include "recorder/rlk_tap.h"

#include <complex.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const struct rlk_tap_api *tap;
static struct rlk_tap_ctx *ctx;

static void op(struct rlk_tap_ctx *c, const char *name)
{
    tap->op_end(tap->op_begin(c, name, NULL));
}

static void module_op(const char *module, const char *name)
{
    tap->module_begin(ctx, module);
    op(ctx, name);
    tap->module_end(ctx);
}

/* A vector of n floats at `data`, one storage. */
static struct rlk_tap_tensor vector(const char *name, const float *data, const uint64_t *n, uint64_t offset,
                                    uint64_t generation, uint64_t version)
{
    return (struct rlk_tap_tensor){
        .name = name,
        .view = {.dtype = RLK_FP32, .ndim = 1, .shape = n, .storage = data, .storage_bytes = 64 * 4, .offset = offset},
        .generation = generation,
        .version = version};
}

/* ---- identity */
static void identity(void)
{
    tap->step(ctx, 3);
    tap->phase(ctx, "train");
    tap->pass(ctx, "fwd");
    op(ctx, "embed");
    tap->module_begin(ctx, "block"); /* call 0 */
    op(ctx, "mm");
    op(ctx, "mm");
    module_op("block.norm", "mul"); /* a child counts for itself */
    op(ctx, "mm");
    tap->module_end(ctx);
    tap->module_begin(ctx, "block"); /* the shared module again: call 1, occurrences restart */
    op(ctx, "mm");
    module_op("block.norm", "mul");
    tap->module_end(ctx);
    tap->pass(ctx, "recompute"); /* never shifts fwd */
    module_op("block", "mm");
    tap->pass(ctx, "fwd");
    module_op("block", "mm"); /* goes on: call 2 */
    tap->work(ctx, 1, 0);     /* a new micro-batch: restart */
    module_op("block", "mm");
    tap->work(ctx, 0, 0); /* back in the first: goes on */
    module_op("block", "mm");
    tap->phase(ctx, "eval");
    module_op("block", "mm");
    tap->step(ctx, 4);
    tap->phase(ctx, "train");
    module_op("block", "mm");
    tap->work(ctx, 7, 5); /* request 7, decode iteration 5 */
    tap->sample(ctx, "r7");
    module_op("block", "mm");
    tap->sample(ctx, NULL);
}

static void module_at(void)
{
    tap->pass(ctx, "bwd");
    tap->module_begin(ctx, "loss");
    op(ctx, "div");
    tap->module_at(ctx, "block.1", "bwd", 2);
    op(ctx, "mm");
    op(ctx, "mm");
    tap->module_at(ctx, "block.0", NULL, 0); /* the context's own pass */
    op(ctx, "mm");
    tap->module_at(ctx, NULL, NULL, 0); /* back to the span that was left */
    op(ctx, "div");
    tap->module_at(ctx, "block.0", "bwd", 0);
    module_op("block.0", "mm"); /* module_begin takes over, counting for itself */
    op(ctx, "div");
    tap->module_end(ctx);
    tap->module_end(ctx); /* one too many: nothing happens */
    op(ctx, "root");
}

static void virtual_ranks(void)
{
    struct rlk_tap_ctx *c[3];
    for (uint32_t r = 0; r < 3; r++) {
        c[r] = tap->ctx(r);
        tap->step(c[r], 1);
        tap->module_begin(c[r], "m");
    }
    for (int i = 0; i < 2; i++)
        for (uint32_t r = 0; r < 3; r++)
            op(c[r], "mm");
    op(tap->ctx(1), "mm"); /* the same context */
}

static void *on_thread(void *arg)
{
    struct rlk_tap_ctx *mine = tap->ctx(RLK_TAP_OWN_RANK);
    op(mine, "mm"); /* follows the rank: step, phase, work, pass; no module */
    tap->module_at(mine, "m", "bwd", 0);
    op(mine, "mm"); /* the rank's counter: after the main thread's */
    if (arg) {
        tap->phase(mine, "own"); /* from here on its own phase, still the rank's step */
        op(mine, "mm");
    }
    return NULL;
}

static void run_thread(void *arg)
{
    pthread_t t;
    if (pthread_create(&t, NULL, on_thread, arg))
        exit(3);
    pthread_join(t, NULL);
}

static void threads(void)
{
    tap->step(ctx, 2);
    tap->phase(ctx, "train");
    tap->work(ctx, 1, 0);
    tap->pass(ctx, "bwd");
    tap->module_at(ctx, "m", "bwd", 0);
    op(ctx, "mm");
    run_thread(NULL);
    op(ctx, "mm");
    tap->step(ctx, 3);
    run_thread(ctx);
    op(ctx, "mm"); /* the other thread's phase is not this one's */
}

static void cancel_and_nesting(void)
{
    struct rlk_tap_op *outer = tap->op_begin(ctx, "outer", "rlk.outer/1");
    op(ctx, "inner");
    tap->op_cancel(tap->op_begin(ctx, "inner", NULL)); /* threw: leaves no trace, not even in the count */
    op(ctx, "inner");
    tap->op_end(outer);
    tap->autotune(ctx, true);
    op(ctx, "inner"); /* counted apart */
    module_op("m", "inner");
    tap->autotune(ctx, false);
    op(ctx, "inner");
    module_op("m", "inner");
}

/* ---- references */
static float data[64];
static const uint64_t n8 = 8, n4 = 4, n3 = 3;

static void write_op(const char *name, struct rlk_tap_tensor t)
{
    struct rlk_tap_op *o = tap->op_begin(ctx, name, NULL);
    tap->op_out(o, &t);
    tap->op_end(o);
}

static void read_op(const char *name, struct rlk_tap_tensor t)
{
    struct rlk_tap_op *o = tap->op_begin(ctx, name, NULL);
    tap->op_in(o, &t);
    tap->op_end(o);
}

static void references(void)
{
    uint64_t g = tap->generation(), h = tap->generation();
    struct rlk_tap_tensor t;
    read_op("unknown", vector("x", data, &n8, 0, g, 1));
    write_op("fill", vector("x", data, &n8, 0, g, 1));         /* 1 */
    read_op("same", vector("x", data, &n8, 0, g, 1));          /* 1 itself */
    read_op("slice", vector("x", data, &n3, 5, g, 1));         /* a view of 1 */
    read_op("beyond", vector("x", data, &n8, 4, g, 1));        /* reads past the output: digested */
    read_op("bumped", vector("x", data, &n8, 0, g, 2));        /* written by something unrecorded */
    read_op("other", vector("x", data, &n8, 0, h, 1));         /* another storage at the same address */
    read_op("nogen", vector("x", data, &n8, 0, 0, 0));         /* from_numpy */
    write_op("copy_", vector("x[0:4]", data, &n4, 0, g, 2));   /* 8: a slice is written */
    read_op("whole", vector("x", data, &n8, 0, g, 2));         /* digested */
    read_op("untouched", vector("x", data, &n4, 4, g, 2));     /* digested */
    read_op("written", vector("x", data, &n4, 0, g, 2));       /* 8 itself */
    read_op("inside", vector("x", data, &n3, 1, g, 2));        /* a view of 8 */
    write_op("append", vector("kv[4:7]", data, &n3, 4, g, 3)); /* 13: a KV append */
    read_op("attend", vector("kv", data, &n8, 0, g, 3));       /* digested */
    write_op("fill", vector("x", data, &n8, 0, g, 4));         /* 15 */
    tap->storage_written(g);
    read_op("foreign", vector("x", data, &n8, 0, g, 4)); /* digested */
    write_op("fill", vector("x", data, &n8, 0, g, 5));   /* 17 */
    tap->storage_free(g);
    read_op("freed", vector("x", data, &n8, 0, g, 5)); /* digested */
    write_op("fill", vector("x", data, &n8, 0, g, 6)); /* 19 */
    t = vector("x", data, &n8, 0, g, 6);
    t.always_digest = true;
    read_op("always", t); /* digested */
    t = vector("x", data, &n8, 0, g, 7);
    t.state = RLK_T_NOT_DIGESTED;
    t.reason = "alloc";
    write_op("empty", t);                                    /* 21: nobody can refer to it */
    read_op("empty.read", vector("x", data, &n8, 0, g, 7));  /* digested */
    struct rlk_tap_op *o = tap->op_begin(ctx, "mul_", NULL); /* 23: in place, its input is 24's? no: 22 read only */
    t = vector("self", data, &n8, 0, g, 7);
    tap->op_in(o, &t);
    t.version = 8;
    tap->op_out(o, &t);
    tap->op_end(o);
    read_op("after", vector("x", data, &n8, 0, g, 8)); /* 23 itself */
    o = tap->op_begin(ctx, "fails", NULL);
    t.version = 8;
    tap->op_in(o, &t);
    tap->op_cancel(o);                                   /* may have written before it threw */
    read_op("careful", vector("x", data, &n8, 0, g, 8)); /* digested */
    o = tap->op_begin(ctx, "split", NULL);               /* 26: two outputs in one storage */
    t = vector("a", data, &n4, 0, h, 1);
    tap->op_out(o, &t);
    t = vector("b", data, &n4, 4, h, 1);
    tap->op_out(o, &t);
    tap->op_end(o);
    read_op("b", vector("b", data, &n4, 4, h, 1)); /* 26.1 */
    read_op("a", vector("a", data, &n3, 1, h, 1)); /* a view of 26.0 */
    t = vector("w", data, &n8, 0, h, 2);
    t.label = "v1";
    tap->leaf(ctx, &t, "model.safetensors#w", "ab12", NULL, 0); /* 29: a leaf is a producer */
    read_op("use", vector("w", data, &n8, 0, h, 2));
}

/* Written once, read in every step; and written in every step. */
static void kept(void)
{
    uint64_t g = tap->generation(), h = tap->generation();
    write_op("frozen", vector("w", data, &n8, 0, g, 1));
    for (int64_t step = 0; step < 4; step++) {
        tap->step(ctx, step);
        write_op("fill", vector("x", data, &n8, 0, h, (uint64_t)step + 1));
        read_op("frozen", vector("w", data, &n8, 0, g, 1));
        read_op("fresh", vector("x", data, &n8, 0, h, (uint64_t)step + 1));
    }
}

/* ---- the remaining kinds, and details */
static void kinds(void)
{
    struct rlk_event e = {.kind = RLK_EV_COLLECTIVE};
    uint32_t order[] = {1, 0};
    struct rlk_launch launch = {.kernel = "ncclKernel", .graph = RLK_NO_NODE, .node = RLK_NO_NODE};
    struct rlk_attr attrs[] = {{.key = "deterministic", .type = RLK_ATTR_INT, .i = 1},
                               {.key = "why", .type = RLK_ATTR_STRING, .s = "because"}};
    struct rlk_tap_tensor t = vector("g", data, &n8, 0, 0, 0);
    tap->step(ctx, 1);
    tap->module_begin(ctx, "m");
    struct rlk_tap_op *o = tap->collective_begin(ctx, "all_reduce", "tp");
    tap->op_in(o, &t);
    e.u.collective.algo = "RING";
    e.u.collective.order = order;
    e.u.collective.norder = 2;
    e.launches = &launch;
    e.nlaunches = 1;
    tap->op_detail(o, &e);
    tap->op_out(o, &t);
    tap->op_attr(o, &attrs[0]);
    tap->op_attr(o, &attrs[1]);
    tap->op_end(o);
    o = tap->copy_begin(ctx, "h2d");
    tap->op_end(o);
    o = tap->weights_begin(ctx, "v3", "trainer");
    t.label = "v3";
    tap->op_out(o, &t);
    tap->op_end(o);
    e = (struct rlk_event){.kind = RLK_EV_RNG};
    e.u.rng.generator = "philox";
    e.u.rng.seed = 5;
    e.u.rng.offset = 64;
    tap->event(ctx, &e);
    tap->event(ctx, &e);
    tap->metric(ctx, "loss", 0.5);
    tap->metric(ctx, "loss", 0.25);
    tap->module_end(ctx);
    tap->readback(ctx, "attention", "R/R", "rlk", "rlk.attention/1", 12);
    tap->meta("lib.probe", "1.0");
    o = tap->op_begin(ctx, "state", NULL);
    t.label = NULL;
    t.state = RLK_T_UNDEFINED;
    t.reason = "debug-output";
    tap->op_out(o, &t);
    tap->op_end(o);
}

static void samples(void)
{
    static const uint64_t shape[2] = {6, 4};
    struct rlk_sample_part parts[] = {{.id = "p", .start = 0, .extent = 4}, {.id = "q", .start = 4, .extent = 2}};
    struct rlk_tap_tensor t = {.name = "h", .nsamples = 2, .samples = parts, .payload = true};
    t.view =
        (struct rlk_view){.dtype = RLK_FP32, .ndim = 2, .shape = shape, .storage = data, .storage_bytes = sizeof data};
    write_op("packed", t);
    /* The same rows as a rank of two holds them: rows 1, 2 and 5 of 6. */
    static const uint64_t local[2] = {3, 4};
    static const uint32_t nruns[2] = {2, RLK_WHOLE};
    static const struct rlk_run runs[2] = {{1, 2}, {5, 1}};
    struct rlk_place place = {.ndim = 2, .shape = shape, .nruns = nruns, .runs = runs};
    t.view.shape = local;
    t.place = &place;
    t.payload = false;
    write_op("sharded", t);
}

static void filtered(void)
{
    struct rlk_tap_tensor t = vector("w", data, &n8, 0, 0, 0);
    for (int64_t step = 0; step < 6; step++) {
        tap->step(ctx, step);
        module_op("m", "mm");
        op(ctx, "module");
        op(ctx, "module.attn");
        op(ctx, "modulex");
        op(ctx, "step.loss");
        tap->op_end(tap->collective_begin(ctx, "all_reduce", "tp"));
        tap->op_end(tap->weights_begin(ctx, "v", "trainer"));
        tap->metric(ctx, "loss", 1);
        if (step == 0)
            tap->leaf(ctx, &t, NULL, NULL, "philox", 1);
    }
}

/* ---- the caller's state is as it was: prints what is not */
/* Sums that the caller has already; then callers of older versions, behind whose tensor anything may lie. */
static void given_sums(void)
{
    const struct rlk_sums sums = {.positional = {7, 8}, .value = {9, 10}, .multiset = 11, .elements = 8};
    typedef const struct rlk_tap_api *(*table_function)(uint32_t abi);
    const char *library = getenv("RLKREC_LIBRARY");
    void *handle = dlopen(library ? library : "", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, "rlk_tap_table") : NULL;
    table_function table;
    memcpy(&table, &symbol, sizeof table);
    struct rlk_tap_tensor t = vector("x", data, &n8, 0, 0, 0);
    t.sums = &sums;
    write_op("given", t);
    t.sums = (const struct rlk_sums *)(uintptr_t)1; /* not to be looked at */
    for (uint32_t abi = 1; symbol && abi < 3; abi++) {
        tap = table(abi);
        if (!tap || tap->abi != abi)
            printf("ABI %u is not served\n", abi);
        else
            write_op("older", t);
    }
    tap = rlk_tap();
    if (!symbol || table(3)->abi != 3 || table(3)->hold || !tap->hold)
        printf("ABI 3 is served as another\n");
    if (!symbol || table(0) || table(RLK_TAP_ABI + 1))
        printf("no table, or one of no ABI\n");
    if (handle)
        dlclose(handle);
}

static void leaves_no_trace(void)
{
    sigset_t before, after;
    float denormal[8];
    for (int i = 0; i < 8; i++)
        denormal[i] = i % 2 ? 1e-42f : -1e-43f;
    struct rlk_tap_tensor t = vector("x", denormal, &n8, 0, 0, 0);
    t.view.storage_bytes = sizeof denormal;
    write_op("plain", t);
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#if defined(__x86_64__)
    unsigned csr = _mm_getcsr() | 0x8040 | 0x2000; /* FTZ, DAZ, round down */
    _mm_setcsr(csr);
#endif
    errno = 1234;
    tap->step(ctx, 1);
    write_op("ftz", t); /* the test compares the two digests */
    tap->metric(ctx, "loss", 1);
    tap->flush();
    if (errno != 1234)
        printf("errno is %d\n", errno);
#if defined(__x86_64__)
    if (_mm_getcsr() != csr)
        printf("mxcsr is %x, was %x\n", _mm_getcsr(), csr);
#endif
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++)
        if (sigismember(&before, i) != sigismember(&after, i))
            printf("signal %d is masked differently\n", i);
}

static void nothing(void)
{
}

static void nulls(void)
{
    struct rlk_tap_tensor t = {0};
    struct rlk_event e = {.kind = RLK_EV_SYNC};
    tap->step(NULL, 1);
    tap->phase(NULL, "x");
    tap->work(NULL, 1, 1);
    tap->pass(NULL, "x");
    tap->sample(NULL, "x");
    tap->module_begin(NULL, "x");
    tap->module_end(NULL);
    tap->module_at(NULL, "x", "y", 0);
    tap->autotune(NULL, true);
    if (tap->op_begin(NULL, "x", NULL) || tap->collective_begin(NULL, "x", NULL) || tap->copy_begin(NULL, "x") ||
        tap->weights_begin(NULL, "x", "y"))
        printf("an op without a context\n");
    tap->op_detail(NULL, &e);
    tap->op_attr(NULL, NULL);
    tap->op_stream(NULL, 1);
    tap->op_in(NULL, &t);
    tap->op_out(NULL, &t);
    tap->op_end(NULL);
    tap->op_cancel(NULL);
    tap->event(NULL, &e);
    tap->metric(NULL, "x", 1);
    tap->readback(NULL, "x", NULL, NULL, NULL, 0);
    tap->leaf(NULL, &t, NULL, NULL, NULL, 0);
    tap->leaf(ctx, NULL, NULL, NULL, NULL, 0);
    tap->meta(NULL, NULL);
    tap->fault(NULL, NULL);
    tap->storage_free(0);
    tap->op_end(tap->op_begin(ctx, NULL, NULL)); /* nameless, and still one event */
}

static void finished(void)
{
    op(ctx, "before");
    tap->finish();
    op(ctx, "after");
    if (tap->ctx(0))
        printf("a context after finish\n");
    tap->finish();
    _exit(0);
}

static void at_exit(void)
{
    op(ctx, "atexit");
}

static void exits(void)
{
    atexit(at_exit); /* before the first event: runs after everything registered later */
    op(ctx, "main");
    exit(0);
}

static void *emit_and_leave(void *arg)
{
    (void)arg;
    usleep(20000);
    op(tap->ctx(0), "late");
    return NULL;
}

static void pthread_exits(void)
{
    pthread_t t;
    op(ctx, "main");
    if (pthread_create(&t, NULL, emit_and_leave, NULL) == 0)
        pthread_exit(NULL); /* the process ends with its last thread */
}

static void *leave_main_alone(void *arg)
{
    usleep(20000); /* main is gone by now */
    return emit_and_leave(arg);
}

/* The main thread leaves without ever having asked for a context. */
static void untapped(void)
{
    pthread_t t;
    if (pthread_create(&t, NULL, leave_main_alone, NULL) == 0)
        pthread_exit(NULL);
}

static void faults(void)
{
    tap->fault("observer-failed", "the observer could not be built\nbecause");
    tap->fault("observer-failed", "again");
    op(ctx, "mm");
}

static void refuses(void)
{
    struct rlk_tap_tensor t = vector("x", data, &n8, 60, 0, 0); /* reaches past the end of its storage */
    write_op("mm", t);
    t = vector("x", NULL, &n8, 0, 0, 0);
    write_op("mm", t);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
        {"identity", identity},
        {"module_at", module_at},
        {"virtual_ranks", virtual_ranks},
        {"threads", threads},
        {"cancel", cancel_and_nesting},
        {"references", references},
        {"kept", kept},
        {"kinds", kinds},
        {"samples", samples},
        {"filtered", filtered},
        {"no_trace", leaves_no_trace},
        {"given_sums", given_sums},
        {"nothing", nothing},
        {"nulls", nulls},
        {"finish", finished},
        {"exit", exits},
        {"pthread_exit", pthread_exits},
        {"faults", faults},
        {"refuses", refuses},
    };
    for (int i = 0; i < 64; i++)
        data[i] = (float)i;
    tap = rlk_tap();
    if (!tap) {
        printf("no recorder\n");
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "untapped"))
        untapped();
    ctx = tap->ctx(RLK_TAP_OWN_RANK);
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
