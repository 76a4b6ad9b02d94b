/* probe.c - a program with tensors on a (stand-in) device: probe SCENARIO. Where a digest can be foretold it shows the
 * same bytes to the tap twice, as "x" on the device and as "x.host" in memory; test_plane.c compares. */
#include "recorder/rlk_tap.h"
#include "tests/gpu/fake/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct rlk_tap_api *tap;
static uint64_t generation;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct spec {
    const char *name;
    enum rlk_dtype dtype;
    uint32_t ndim;
    uint64_t shape[6];
    int64_t strides[6];
    bool dense;
    uint64_t offset;
};

static struct rlk_tap_tensor tensor(const struct spec *s, const void *bytes, size_t size, void *stream)
{
    struct rlk_tap_tensor t = {.name = s->name, .device = RLK_TAP_CUDA, .stream = stream};
    t.view = (struct rlk_view){.dtype = s->dtype,
                               .ndim = s->ndim,
                               .shape = s->shape,
                               .strides = s->dense ? NULL : s->strides,
                               .storage = bytes,
                               .storage_bytes = size,
                               .offset = s->offset};
    return t;
}

static void both(struct rlk_tap_op *op, bool in, struct rlk_tap_tensor t, const void *host)
{
    char name[64];
    (in ? tap->op_in : tap->op_out)(op, &t);
    snprintf(name, sizeof name, "%s.host", t.name);
    t.name = name;
    t.view.storage = host ? host : t.view.storage;
    t.device = RLK_TAP_HOST;
    t.generation = 0;
    (in ? tap->op_in : tap->op_out)(op, &t);
}

/* Bytes with every kind of special value in them. */
static uint8_t *fill(size_t n, unsigned seed)
{
    uint8_t *b = aligned_alloc(64, (n + 63) / 64 * 64);
    static const uint16_t special[] = {0x8000, 0x7f80, 0xff80, 0x7fc1, 0x7c00, 0x7e01, 0x0080, 0x807f};
    if (!b)
        abort();
    uint64_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        b[i] = (uint8_t)(x >> 56);
    }
    for (size_t i = 0; i + 64 < n; i += 128)
        memcpy(b + i, &special[i / 128 % 8], 2);
    for (size_t i = 64; i + 8 < n; i += 512)
        memcpy(
            b + i,
            (const uint64_t[]){UINT64_C(0x8000000000000000), UINT64_C(0x7ff8000000000001), 0x7fc00001u, 0x80000000u} +
                i / 512 % 4,
            8);
    return b;
}

static const struct spec shapes[] = {
    {.name = "vector", .ndim = 1, .shape = {1000}, .dense = true},
    {.name = "matrix", .ndim = 2, .shape = {33, 128}, .dense = true},
    {.name = "tail", .ndim = 2, .shape = {5, 257}, .dense = true},
    {.name = "scalar", .ndim = 0, .dense = true, .offset = 7},
    {.name = "one", .ndim = 3, .shape = {1, 1, 1}, .dense = true},
    {.name = "transposed", .ndim = 2, .shape = {64, 48}, .strides = {1, 64}},
    {.name = "expanded", .ndim = 3, .shape = {4, 16, 32}, .strides = {0, 32, 1}},
    {.name = "overlapping", .ndim = 2, .shape = {40, 64}, .strides = {3, 1}, .offset = 5},
    {.name = "strided", .ndim = 4, .shape = {2, 3, 4, 16}, .strides = {900, 250, 40, 2}, .offset = 11},
    {.name = "empty", .ndim = 2, .shape = {0, 64}, .dense = true},
    {.name = "empty.inside", .ndim = 3, .shape = {4, 0, 8}, .strides = {8, 8, 1}},
};

static void values(void)
{
    static const struct {
        enum rlk_dtype dtype;
        const char *name;
    } types[] = {{RLK_BOOL, "bool"},     {RLK_UINT8, "u8"},      {RLK_INT16, "i16"},     {RLK_INT32, "i32"},
                 {RLK_INT64, "i64"},     {RLK_FP16, "f16"},      {RLK_BF16, "bf16"},     {RLK_FP32, "f32"},
                 {RLK_FP64, "f64"},      {RLK_FP8_E4M3, "e4m3"}, {RLK_FP8_E5M2, "e5m2"}, {RLK_FP8_E4M3FNUZ, "fnuz"},
                 {RLK_FP8_E8M0, "e8m0"}, {RLK_COMPLEX32, "c32"}, {RLK_COMPLEX64, "c64"}, {RLK_COMPLEX128, "c128"}};
    const size_t size = 1 << 17;
    void *stream = fake_stream_new();
    uint8_t *bytes = fill(size, 1);
    struct rlk_tap_ctx *ctx = tap->ctx(0);
    for (size_t d = 0; d < sizeof types / sizeof types[0]; d++) {
        struct rlk_tap_op *op = tap->op_begin(ctx, types[d].name, NULL);
        for (int in = 1; in >= 0; in--) {
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                struct spec s = shapes[i];
                s.dtype = types[d].dtype;
                both(op, in, tensor(&s, bytes, size, i % 3 ? stream : NULL), NULL);
            }
            if (in)
                tap->op_run(op);
        }
        tap->op_end(op);
    }
    /* more than one launch takes */
    struct rlk_tap_op *op = tap->op_begin(ctx, "foreach", NULL);
    for (uint64_t i = 0; i < 300; i++) {
        const struct spec s = {
            .name = "x", .dtype = RLK_FP32, .ndim = 1, .shape = {i % 7 + 1}, .dense = true, .offset = i};
        both(op, false, tensor(&s, bytes, size, stream), NULL);
    }
    tap->op_end(op);
}

/* In place: the input's digest is of what was there, the output's of what is there then; a held stream proves that
 * nobody waited. */
static void order(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_BF16, .ndim = 2, .shape = {64, 64}, .dense = true};
    const size_t size = 64 * 64 * 2;
    void *stream = fake_stream_new();
    uint8_t *x = fill(size, 1), *before = fill(size, 1), *after = fill(size, 2);
    fake_stream_hold(stream, true);
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "copy_", NULL);
    struct rlk_tap_tensor t = tensor(&s, x, size, stream);
    t.generation = generation;
    t.version = 1;
    both(op, true, t, before);
    tap->op_run(op);
    fake_copy(stream, x, after, size);
    t.version = 2;
    both(op, false, t, after);
    tap->op_end(op);
    op = tap->op_begin(tap->ctx(0), "read", NULL);
    tap->op_in(op, &t);
    tap->op_end(op);
    fake_stream_hold(stream, false);
}

static void many(void *stream, const char *name, int n, const uint8_t *bytes, size_t size)
{
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 1, .shape = {4}, .dense = true};
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), name, NULL);
    for (int i = 0; i < n; i++) {
        struct rlk_tap_tensor t = tensor(&s, bytes, size, stream);
        tap->op_out(op, &t);
    }
    tap->op_end(op);
}

/* Tensors of many operators, in few launches; a reference to one that is held; another stream in between. */
static void held(void)
{
    const size_t size = 1 << 16;
    void *stream[2] = {fake_stream_new(), fake_stream_new()};
    uint8_t *bytes = fill(size, 5);
    tap->hold(true);
    for (uint64_t i = 0; i < 500; i++) {
        const struct spec s = {
            .name = "x", .dtype = RLK_BF16, .ndim = 2, .shape = {i % 9 + 1, 16}, .dense = true, .offset = i};
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "held", NULL);
        struct rlk_tap_tensor t = tensor(&s, bytes, size, stream[i / 200 % 2]);
        t.generation = generation + i;
        t.version = 1;
        both(op, false, t, NULL);
        tap->op_end(op);
        op = tap->op_begin(tap->ctx(0), "reads", NULL);
        tap->op_in(op, &t);
        tap->op_end(op);
    }
    tap->hold(false);
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "after", NULL);
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 1, .shape = {9}, .dense = true};
    both(op, false, tensor(&s, bytes, size, stream[0]), NULL);
    tap->op_end(op);
    tap->hold(false); /* without a begin: nothing */
}

/* A device that stalls: 34,000 results outstanding, then it goes on. */
static void stall(void)
{
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    fake_stream_hold(stream, true);
    const double start = now();
    for (int i = 0; i < 340; i++)
        many(stream, "held", 100, bytes, 4096);
    printf("waited %s\n", now() - start < 5 ? "little" : "long");
    fake_stream_hold(stream, false);
    fake_stream_sync(stream);
    many(stream, "after", 100, bytes, 4096);
    fake_stream_sync(stream);
}

/* One that never goes on: the process ends all the same. */
static void hang(void)
{
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    many(stream, "done", 10, bytes, 4096);
    fake_stream_sync(stream);
    fake_stream_hold(stream, true);
    many(stream, "never", 10, bytes, 4096);
}

/* It ends with work under way. */
static void *let_go(void *stream)
{
    usleep(300000);
    fake_stream_hold(stream, false);
    return NULL;
}

static void late(void)
{
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    pthread_t thread;
    fake_stream_hold(stream, true);
    many(stream, "late", 10, bytes, 4096);
    pthread_create(&thread, NULL, let_go, stream);
    pthread_detach(thread);
}

static void memory(void)
{
    uint8_t *bytes = fill(4096, 3);
    many(NULL, "op", 3, bytes, 4096);
}

static void capture(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 1, .shape = {64}, .dense = true};
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    struct rlk_tap_tensor t = tensor(&s, bytes, 4096, stream);
    t.generation = generation;
    t.version = 1;
    fake_capture_begin(stream);
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "captured", NULL);
    tap->op_in(op, &t);
    tap->op_run(op);
    t.version = 2;
    tap->op_out(op, &t);
    tap->op_end(op);
    printf("captured %zu\n", fake_capture_end(stream));
    op = tap->op_begin(tap->ctx(0), "write", NULL); /* then a replay may write it again, unseen */
    t.version = 3;
    both(op, false, t, NULL);
    tap->op_end(op);
    op = tap->op_begin(tap->ctx(0), "read", NULL);
    both(op, true, t, NULL);
    tap->op_end(op);
    fake_capture_query_fails(906);
    many(NULL, "beside", 1, bytes, 4096);
    fake_capture_query_fails(0);
    many(NULL, "after", 1, bytes, 4096);
}

/* The program breaks its context: digests stop, what was under way never comes. */
static void broken(void)
{
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    many(stream, "good", 5, bytes, 4096);
    fake_stream_sync(stream);
    fake_stream_hold(stream, true);
    many(stream, "lost", 5, bytes, 4096);
    fake_break(NULL, 700);
    fake_stream_hold(stream, false);
    for (int i = 0; i < 5; i++)
        many(stream, "refused", 5, bytes, 4096);
}

static void contexts(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 2, .shape = {8, 64}, .dense = true};
    uint8_t *bytes = fill(4096, 5);
    struct rlk_tap_tensor t = tensor(&s, bytes, 4096, NULL);
    fake_use_device(1);
    fake_use_device(0);
    for (int32_t device = 0; device < 3; device++) { /* 1: not current; 2: has no context */
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), device == 2 ? "none" : "device", NULL);
        t.ordinal = device;
        both(op, false, t, NULL);
        tap->op_end(op);
    }
    t.ordinal = 0;
    for (int i = 0; i < 20; i++) {
        fake_context_new(0);
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), i < 14 ? "context" : "too many", NULL);
        both(op, false, t, NULL);
        tap->op_end(op);
    }
    fake_set_current(NULL); /* no context at all on this thread: the device's own */
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "thread", NULL);
    both(op, false, t, NULL);
    tap->op_end(op);
}

/* The program destroys a context while a digest of it is under way, and makes another, which gets its handle. */
static void destroyed(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 2, .shape = {8, 64}, .dense = true};
    uint8_t *bytes = fill(4096, 5);
    for (int i = 0; i < 3; i++) {
        void *context = fake_context_new(0), *stream = fake_stream_new();
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "done", NULL);
        both(op, false, tensor(&s, bytes, 4096, stream), NULL);
        tap->op_end(op);
        fake_stream_sync(stream);
        fake_stream_hold(stream, true);
        many(stream, "lost", 5, bytes, 4096);
        fake_context_destroy(context);
    }
    fake_context_new(0);
    many(NULL, "after", 5, bytes, 4096);
}

static void *thread_main(void *value)
{
    const unsigned n = (unsigned)(uintptr_t)value;
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 2, .shape = {4, 64}, .dense = true};
    void *stream = n % 2 ? fake_stream_new() : NULL;
    uint8_t *bytes = fill(2048, n + 1);
    fake_use_device((int)(n / 4));
    for (int i = 0; i < 300; i++) {
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "op", NULL);
        struct rlk_tap_tensor t = tensor(&s, bytes, 2048, stream);
        t.ordinal = (int32_t)(n / 4);
        both(op, true, t, NULL);
        tap->op_run(op);
        if (i % 10 == 9) {
            tap->op_cancel(op);
            continue;
        }
        both(op, false, t, NULL);
        tap->op_end(op);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, thread_main, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
}

static void autotune(void)
{
    uint8_t *bytes = fill(4096, 3);
    tap->autotune(tap->ctx(0), true);
    many(NULL, "tried", 4, bytes, 4096);
    tap->autotune(tap->ctx(0), false);
    printf("launches %llu\n", (unsigned long long)fake_counts_now().launches);
    many(NULL, "used", 4, bytes, 4096);
}

static void payload(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_FP32, .ndim = 2, .shape = {8, 16}, .strides = {1, 8}, .offset = 3};
    uint8_t *bytes = fill(4096, 5);
    void *stream = fake_stream_new();
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "op", NULL);
    struct rlk_tap_tensor t = tensor(&s, bytes, 4096, stream);
    t.payload = true;
    both(op, false, t, NULL);
    tap->op_end(op);
}

/* In place, on a stream that comes to it late: the bytes kept of the input are those from before, of the output those
 * that the program will read. What asks for them is RLKREC_PAYLOAD. */
static void payload_order(void)
{
    const struct spec s = {.name = "x", .dtype = RLK_BF16, .ndim = 2, .shape = {64, 32}, .strides = {1, 64}};
    const size_t size = 64 * 64 * 2;
    void *stream = fake_stream_new();
    uint8_t *x = fill(size, 1), *before = fill(size, 2), *after = fill(size, 3);
    pthread_t thread[2];
    struct rlk_tap_tensor t = tensor(&s, x, size, stream);
    for (int i = 0; i < 2; i++) {
        struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), i ? "other" : "copy_", NULL);
        fake_stream_hold(stream, true);
        fake_copy(stream, x, before, size); /* the operator that made it is still to run */
        pthread_create(&thread[i], NULL, let_go, stream);
        both(op, true, t, before);
        tap->op_run(op);
        fake_copy(stream, x, after, size);
        both(op, false, t, after);
        tap->op_end(op);
        pthread_join(thread[i], NULL);
    }
}

/* Six steps of ten tensors; the device has finished each before the next begins. */
static void steps(void)
{
    uint8_t *bytes = fill(4096, 3);
    void *stream = fake_stream_new();
    for (int64_t step = 0; step < 6; step++) {
        tap->step(tap->ctx(0), step);
        bytes[0] = (uint8_t)step;
        many(stream, "op", 10, bytes, 4096);
        fake_stream_sync(stream);
    }
    printf("launches %llu\n", (unsigned long long)fake_counts_now().launches);
}

/* Until long after the recording has met its bound; the launches then, and in a thousand operators more. */
static void bound(void)
{
    uint8_t *bytes = fill(1 << 20, 3);
    void *stream = fake_stream_new();
    for (unsigned i = 0; i < 6000; i++) {
        many(stream, "op", 10, bytes + 64 * i, 4096);
        if (i % 20 == 0)
            fake_stream_sync(stream); /* a device that keeps up */
    }
    fake_stream_sync(stream);
    usleep(1200000); /* the writer commits twice a second */
    many(stream, "op", 10, bytes, 4096);
    const uint64_t launches = fake_counts_now().launches;
    for (unsigned i = 0; i < 1000; i++)
        many(stream, "op", 10, bytes, 4096);
    fake_stream_sync(stream);
    printf("launches %s\n", fake_counts_now().launches == launches ? "stopped" : "go on");
}

static void odd(void)
{
    uint8_t *bytes = fill(4096, 5);
    struct spec s = {.name = "outside", .dtype = RLK_FP32, .ndim = 1, .shape = {2000}, .dense = true};
    struct rlk_tap_op *op = tap->op_begin(tap->ctx(0), "op", NULL);
    struct rlk_tap_tensor t = tensor(&s, bytes, 4096, NULL);
    tap->op_out(op, &t);
    s.name = "conjugated";
    s.dtype = RLK_COMPLEX64;
    s.shape[0] = 10;
    t = tensor(&s, bytes, 4096, NULL);
    t.view.conj = true;
    tap->op_out(op, &t);
    s.name = "nowhere";
    t = tensor(&s, NULL, 0, NULL);
    tap->op_out(op, &t);
    s.name = "elsewhere";
    t = tensor(&s, bytes, 4096, NULL);
    t.device = 7;
    tap->op_out(op, &t);
    s.name = "good";
    both(op, false, tensor(&s, bytes, 4096, NULL), NULL);
    tap->op_end(op);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"values", values},      {"order", order},       {"held", held},
                     {"stall", stall},        {"hang", hang},         {"late", late},
                     {"memory", memory},      {"pinned", memory},     {"capture", capture},
                     {"broken", broken},      {"contexts", contexts}, {"threads", threads},
                     {"autotune", autotune},  {"payload", payload},   {"odd", odd},
                     {"steps", steps},        {"bound", bound},       {"payload.order", payload_order},
                     {"destroyed", destroyed}};
    tap = rlk_tap();
    if (!tap || argc < 2)
        return 2;
    generation = tap->generation();
    fake_use_device(0);
    if (!strcmp(argv[1], "memory"))
        fake_fail("cuMemAlloc_v2", 1, 2);
    if (!strcmp(argv[1], "pinned"))
        fake_fail("cuMemHostRegister_v2", 1, 801);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
