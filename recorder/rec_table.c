/* rec_table.c - the table of rlk_tap.h: the border between the program and the recorder. Each entry refuses NULL and
 * what a forked child inherited, and leaves errno as it was. */
#include "recorder/rec_gpu.h"
#include "recorder/rec_op.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool usable(const struct rlk_tap_ctx *ctx)
{
    return ctx && rlki_rec_is_current(ctx->state);
}

static bool usable_op(const struct rlk_tap_op *op)
{
    return op && usable(op->ctx);
}

/* A signal handler that interrupted a tap may tap, or exit(): it must not wait for locks that its own thread holds.
 * What it taps is left out. */
static _Thread_local volatile int in_tap;

/* Runs `body` if `condition`, errno kept. */
#define BORDER(condition, body)                                                                                        \
    do {                                                                                                               \
        if (!in_tap && (condition)) {                                                                                  \
            int saved_errno = errno;                                                                                   \
            in_tap = 1;                                                                                                \
            body;                                                                                                      \
            in_tap = 0;                                                                                                \
            errno = saved_errno;                                                                                       \
        }                                                                                                              \
    } while (0)

static struct rlk_tap_ctx *tap_ctx(uint32_t rank)
{
    struct rlk_tap_ctx *ctx = NULL;
    BORDER(true, ctx = rlki_ctx(rank));
    return ctx;
}

static uint64_t tap_generation(void)
{
    static uint64_t last; /* goes on in a forked child: numbers are never used again for another storage */
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static void forget(uint64_t generation)
{
    struct rlki_rec *state = rlki_rec_now();
    if (state)
        rlki_track_forget(state->track, generation);
}

static void say_meta(const char *key, const char *value)
{
    struct rlki_rec *state = rlki_rec_now();
    if (state)
        rlki_rec_meta(state, key, value);
}

static void flush(void)
{
    struct rlki_rec *state = rlki_rec_now();
    if (state)
        rlki_rec_flush(state);
}

static void tap_storage(uint64_t generation)
{
    BORDER(generation, forget(generation));
}

static void tap_step(struct rlk_tap_ctx *ctx, int64_t step)
{
    BORDER(usable(ctx), rlki_span_step(ctx, step));
}

static void tap_phase(struct rlk_tap_ctx *ctx, const char *phase)
{
    BORDER(usable(ctx), rlki_span_phase(ctx, phase));
}

static void tap_work(struct rlk_tap_ctx *ctx, int64_t work, int64_t iteration)
{
    BORDER(usable(ctx), rlki_span_work(ctx, work, iteration));
}

static void tap_pass(struct rlk_tap_ctx *ctx, const char *pass)
{
    BORDER(usable(ctx), rlki_span_pass(ctx, pass));
}

static void tap_sample(struct rlk_tap_ctx *ctx, const char *sample)
{
    BORDER(usable(ctx), rlki_span_sample(ctx, sample));
}

static void tap_module_begin(struct rlk_tap_ctx *ctx, const char *path)
{
    BORDER(usable(ctx), rlki_span_module_begin(ctx, path));
}

static void tap_module_end(struct rlk_tap_ctx *ctx)
{
    BORDER(usable(ctx), rlki_span_module_end(ctx));
}

static void tap_module_at(struct rlk_tap_ctx *ctx, const char *path, const char *pass, uint32_t call)
{
    BORDER(usable(ctx), rlki_span_module_at(ctx, path, pass, call));
}

static void tap_autotune(struct rlk_tap_ctx *ctx, bool inside)
{
    BORDER(usable(ctx), rlki_span_autotune(ctx, inside));
}

static struct rlk_tap_op *tap_op_begin(struct rlk_tap_ctx *ctx, const char *name, const char *contract)
{
    struct rlk_tap_op *op = NULL;
    BORDER(usable(ctx), op = rlki_op_begin(ctx, name, contract));
    return op;
}

static struct rlk_tap_op *tap_collective_begin(struct rlk_tap_ctx *ctx, const char *function, const char *group)
{
    struct rlk_tap_op *op = NULL;
    BORDER(usable(ctx), op = rlki_collective_begin(ctx, function, group));
    return op;
}

static struct rlk_tap_op *tap_copy_begin(struct rlk_tap_ctx *ctx, const char *direction)
{
    struct rlk_tap_op *op = NULL;
    BORDER(usable(ctx), op = rlki_copy_begin(ctx, direction));
    return op;
}

static struct rlk_tap_op *tap_weights_begin(struct rlk_tap_ctx *ctx, const char *version, const char *side)
{
    struct rlk_tap_op *op = NULL;
    BORDER(usable(ctx), op = rlki_weights_begin(ctx, version, side));
    return op;
}

static void tap_op_detail(struct rlk_tap_op *op, const struct rlk_event *event)
{
    BORDER(usable_op(op) && event, rlki_op_take_detail(op, event));
}

static void tap_op_attr(struct rlk_tap_op *op, const struct rlk_attr *attr)
{
    BORDER(usable_op(op) && attr, rlki_op_attr(op, attr));
}

static void tap_op_stream(struct rlk_tap_op *op, uint64_t stream)
{
    BORDER(usable_op(op), op->event.stream = stream);
}

static void tap_op_in(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)
{
    BORDER(usable_op(op) && tensor, rlki_op_in(op, tensor));
}

static void tap_op_out(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)
{
    BORDER(usable_op(op) && tensor, rlki_op_out(op, tensor));
}

static void tap_op_end(struct rlk_tap_op *op)
{
    BORDER(usable_op(op), rlki_op_end(op));
}

static void tap_op_cancel(struct rlk_tap_op *op)
{
    BORDER(usable_op(op), rlki_op_cancel(op));
}

static void tap_event(struct rlk_tap_ctx *ctx, const struct rlk_event *event)
{
    BORDER(usable(ctx) && event, rlki_event(ctx, event));
}

static void tap_metric(struct rlk_tap_ctx *ctx, const char *name, double value)
{
    struct rlk_event event = {.kind = RLK_EV_METRIC, .who.op = name};
    event.u.metric.value = value;
    tap_event(ctx, &event);
}

static void tap_readback(struct rlk_tap_ctx *ctx, const char *module, const char *case_id, const char *implementation,
                         const char *contract, uint64_t calls)
{
    struct rlk_event event = {.kind = RLK_EV_READBACK, .who.op = "readback", .who.module = module};
    event.u.readback.case_id = case_id;
    event.u.readback.implementation = implementation;
    event.u.readback.contract = contract;
    event.u.readback.calls = calls;
    tap_event(ctx, &event);
}

static void leaf(struct rlk_tap_ctx *ctx, const struct rlk_tap_tensor *tensor, const struct rlk_event *detail)
{
    struct rlk_tap_op *op = rlki_leaf_begin(ctx);
    if (!op)
        return;
    rlki_op_take_detail(op, detail);
    rlki_op_out(op, tensor);
    rlki_op_end(op);
}

static void tap_leaf(struct rlk_tap_ctx *ctx, const struct rlk_tap_tensor *tensor, const char *reference,
                     const char *sha256, const char *generator, uint64_t seed)
{
    struct rlk_event detail = {.kind = RLK_EV_LEAF};
    detail.u.leaf.name = tensor ? tensor->name : NULL;
    detail.u.leaf.reference = reference;
    detail.u.leaf.sha256 = sha256;
    detail.u.leaf.generator = generator;
    detail.u.leaf.seed = seed;
    BORDER(usable(ctx) && tensor, leaf(ctx, tensor, &detail));
}

static void tap_meta(const char *key, const char *value)
{
    BORDER(key && value, say_meta(key, value));
}

static void tap_fault(const char *code, const char *text)
{
    BORDER(code && *code, rlki_fault(code, text ? text : ""));
}

static void tap_flush(void)
{
    BORDER(true, flush());
}

static void tap_finish(void)
{
    BORDER(true, rlki_rec_close());
}

static uint64_t tap_unseen_launches(void)
{
    const struct rlki_launch_hooks *plane = rlki_launch_plane();
    return plane && plane->unseen ? plane->unseen() : UINT64_MAX;
}

static void tap_op_run(struct rlk_tap_op *op)
{
    BORDER(usable_op(op), rlki_gpu_launch(op));
}

static void tap_hold(bool on)
{
    BORDER(true, rlki_gpu_hold(on));
}

static struct rlk_tap_api table = {
    .abi = RLK_TAP_ABI,
    .ctx = tap_ctx,
    .generation = tap_generation,
    .storage_written = tap_storage,
    .storage_free = tap_storage,
    .step = tap_step,
    .phase = tap_phase,
    .work = tap_work,
    .pass = tap_pass,
    .sample = tap_sample,
    .module_begin = tap_module_begin,
    .module_end = tap_module_end,
    .module_at = tap_module_at,
    .autotune = tap_autotune,
    .op_begin = tap_op_begin,
    .collective_begin = tap_collective_begin,
    .copy_begin = tap_copy_begin,
    .weights_begin = tap_weights_begin,
    .op_detail = tap_op_detail,
    .op_attr = tap_op_attr,
    .op_stream = tap_op_stream,
    .op_in = tap_op_in,
    .op_out = tap_op_out,
    .op_end = tap_op_end,
    .op_cancel = tap_op_cancel,
    .event = tap_event,
    .metric = tap_metric,
    .readback = tap_readback,
    .leaf = tap_leaf,
    .meta = tap_meta,
    .fault = tap_fault,
    .flush = tap_flush,
    .finish = tap_finish,
    .op_run = tap_op_run,
    .unseen_launches = tap_unseen_launches,
    .hold = tap_hold,
};

/* Callers of an older ABI show a tensor that ends earlier: nothing behind it may be read. */
static struct rlk_tap_api table1, table2, table3;

static struct rlk_tap_tensor longer(const struct rlk_tap_tensor *tensor, size_t bytes)
{
    struct rlk_tap_tensor whole = {0};
    if (tensor)
        memcpy(&whole, tensor, bytes);
    return whole;
}

#define OLDER(N, END)                                                                                                  \
    static void tap_op_in##N(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)                               \
    {                                                                                                                  \
        struct rlk_tap_tensor whole = longer(tensor, offsetof(struct rlk_tap_tensor, END));                            \
        tap_op_in(op, tensor ? &whole : NULL);                                                                         \
    }                                                                                                                  \
    static void tap_op_out##N(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)                              \
    {                                                                                                                  \
        struct rlk_tap_tensor whole = longer(tensor, offsetof(struct rlk_tap_tensor, END));                            \
        tap_op_out(op, tensor ? &whole : NULL);                                                                        \
    }                                                                                                                  \
    static void tap_leaf##N(struct rlk_tap_ctx *ctx, const struct rlk_tap_tensor *tensor, const char *reference,       \
                            const char *sha256, const char *generator, uint64_t seed)                                  \
    {                                                                                                                  \
        struct rlk_tap_tensor whole = longer(tensor, offsetof(struct rlk_tap_tensor, END));                            \
        tap_leaf(ctx, tensor ? &whole : NULL, reference, sha256, generator, seed);                                     \
    }                                                                                                                  \
    static void table_of##N(void)                                                                                      \
    {                                                                                                                  \
        table##N = table;                                                                                              \
        table##N.abi = N;                                                                                              \
        table##N.op_in = tap_op_in##N;                                                                                 \
        table##N.op_out = tap_op_out##N;                                                                               \
        table##N.leaf = tap_leaf##N;                                                                                   \
    }
OLDER(1, device)
OLDER(2, sums)

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void)
{
    int saved = errno;
    /* Options first: the fork hook reads them. */
    table.level = rlki_options_read(&rlki_options) && rlki_process_start() ? rlki_options.level : RLK_TAP_OFF;
    table_of1();
    table1.op_run = NULL;
    table_of2();
    table1.unseen_launches = table2.unseen_launches = NULL;
    table3 = table;
    table3.abi = 3;
    table1.hold = table2.hold = table3.hold = NULL;
    errno = saved;
}

/* NULL: another version of the interface. A table whose level is RLK_TAP_OFF: nobody records. */
__attribute__((visibility("default"))) const struct rlk_tap_api *rlk_tap_table(uint32_t abi);

const struct rlk_tap_api *rlk_tap_table(uint32_t abi)
{
    if (abi < 1 || abi > RLK_TAP_ABI)
        return NULL;
    pthread_once(&once, start);
    return abi == 1 ? &table1 : abi == 2 ? &table2 : abi == 3 ? &table3 : &table;
}

/* After the program's own exit handlers: what they record is still kept. */
__attribute__((destructor)) static void finish(void)
{
    if (in_tap)
        rlki_rec_leave();
    else
        rlki_rec_close();
}
