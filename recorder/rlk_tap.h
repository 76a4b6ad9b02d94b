/* clang-format off */
/* rlk_tap.h - the tap: how a program, a framework adapter or the replayer tells the recorder what it computes.
 *
 * Link librlktap.a. It holds no recorder: on first use it opens, once, the shared library named in RLKREC_LIBRARY (set by
 * `rlkrec run`) and takes its function table; without one every call returns at once (one load and a branch), so taps may
 * stay in a release build. Nothing here ever fails the caller: on an internal fault the recorder steps aside, says so on
 * stderr once, and marks the recording.
 *
 * A context = one thread speaking for one rank (real or virtual): its spans (step, phase, work, pass, module, sample) and
 * its place in the order. Contexts belong to the thread that asked for them; a program may hold one for each virtual rank.
 * Spans set the identity of the events inside them (docs/identity.md); `call` and `occurrence` are counted here.
 */

#ifndef RECORDER_RLK_TAP_H
#define RECORDER_RLK_TAP_H

#include "store/rlk_digest.h"
#include "store/rlk_event.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rlk_tap_ctx;
struct rlk_tap_op;

enum rlk_tap_level { /* what `rlkrec run --level` asks for; RLK_TAP_OFF = no recorder */
    RLK_TAP_OFF = 0,
    RLK_TAP_LAUNCH = 1,
    RLK_TAP_STEP = 2,
    RLK_TAP_MODULE = 3,
    RLK_TAP_OP = 4,
    RLK_TAP_BUFFER = 5,
};

#define RLK_TAP_OWN_RANK UINT32_MAX /* the rank of this process: RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, else 0 */

/* A tensor as the caller sees it. Zero-initialise; everything but `view` is optional.
 * The recorder reads the bytes during the call only, and never after it returns. */
struct rlk_tap_tensor {
    const char *name;
    struct rlk_view view;
    const struct rlk_place *place; /* NULL = local */
    /* The storage, known by a generation (never an address; rlk_tap_generation() makes one) and a version that every write
     * to it raises. 0 = unknown: then an input is always digested and an output is nobody's producer. */
    uint64_t generation, version;
    const char *label; /* weight version */
    uint32_t nsamples;
    const struct rlk_sample_part *samples; /* id, start, extent; the sums are made here */
    uint8_t state;                         /* RLK_T_DIGESTED (0) = digest or refer; RLK_T_UNDEFINED, RLK_T_NOT_DIGESTED + reason */
    bool always_digest;                    /* an input: never by reference */
    bool payload;                          /* keep the bytes, whatever --payload says */
    const char *reason;
    /* Since ABI 2. Where the storage is. On a device `view.storage` is an address of the device `ordinal` (as the process
     * counts them), and the bytes are those that `stream` (a CUstream; NULL = the legacy default stream) would read next:
     * they are digested there, in stream order, without a wait. Whatever makes the operator's own use of the memory safe
     * (the same stream, an event, record_stream) makes the digest's safe too: it is enqueued before op_run or op_end
     * returns. */
    uint8_t device; /* enum rlk_tap_device */
    int32_t ordinal;
    void *stream;
    /* Since ABI 3. What rlk_digest_view makes of `view` and `place`, where the caller has it already (a replica of the same
     * bytes, sums kept up as parts are written): taken as it is. NULL = the recorder makes it. */
    const struct rlk_sums *sums;
};

enum rlk_tap_device {
    RLK_TAP_HOST = 0,
    RLK_TAP_CUDA = 1,
};

#define RLK_TAP_ABI 4u     /* 1 to 3: the same without what is marked; a recorder serves all of them */
struct rlk_tap_api { /* what the recorder's library exports as rlk_tap_table(RLK_TAP_ABI) */
    uint32_t abi;
    enum rlk_tap_level level;
    struct rlk_tap_ctx *(*ctx)(uint32_t rank);
    uint64_t (*generation)(void);
    void (*storage_written)(uint64_t generation); /* written by something that is not recorded: its producer is unknown */
    void (*storage_free)(uint64_t generation);

    void (*step)(struct rlk_tap_ctx *, int64_t step);
    void (*phase)(struct rlk_tap_ctx *, const char *phase);
    void (*work)(struct rlk_tap_ctx *, int64_t work, int64_t iteration);
    void (*pass)(struct rlk_tap_ctx *, const char *pass);
    void (*sample)(struct rlk_tap_ctx *, const char *sample);
    void (*module_begin)(struct rlk_tap_ctx *, const char *path);
    void (*module_end)(struct rlk_tap_ctx *);
    void (*module_at)(struct rlk_tap_ctx *, const char *path, const char *pass, uint32_t call);
    void (*autotune)(struct rlk_tap_ctx *, bool inside);

    struct rlk_tap_op *(*op_begin)(struct rlk_tap_ctx *, const char *op, const char *contract);
    struct rlk_tap_op *(*collective_begin)(struct rlk_tap_ctx *, const char *function, const char *group);
    struct rlk_tap_op *(*copy_begin)(struct rlk_tap_ctx *, const char *direction);
    struct rlk_tap_op *(*weights_begin)(struct rlk_tap_ctx *, const char *version, const char *side);
    void (*op_detail)(struct rlk_tap_op *, const struct rlk_event *);
    void (*op_attr)(struct rlk_tap_op *, const struct rlk_attr *);
    void (*op_stream)(struct rlk_tap_op *, uint64_t stream);
    void (*op_in)(struct rlk_tap_op *, const struct rlk_tap_tensor *);
    void (*op_out)(struct rlk_tap_op *, const struct rlk_tap_tensor *);
    void (*op_end)(struct rlk_tap_op *);
    void (*op_cancel)(struct rlk_tap_op *);

    void (*event)(struct rlk_tap_ctx *, const struct rlk_event *);
    void (*metric)(struct rlk_tap_ctx *, const char *name, double value);
    void (*readback)(struct rlk_tap_ctx *, const char *module, const char *case_id, const char *implementation,
                     const char *contract, uint64_t calls);
    void (*leaf)(struct rlk_tap_ctx *, const struct rlk_tap_tensor *, const char *reference, const char *sha256,
                 const char *generator, uint64_t seed);
    void (*meta)(const char *key, const char *value);
    void (*fault)(const char *code, const char *text); /* an adapter steps aside: said once, marks the recording */
    void (*flush)(void);
    /* Closes this process's environment with its END record now, for a runtime that leaves through _exit (a worker process
     * of a fork server); contexts are NULL afterwards. A return from main and exit() do it by themselves. */
    void (*finish)(void);
    /* Since ABI 2. All inputs were shown, the operator runs now: the digests of those on a device are enqueued in one go.
     * Without it they are enqueued by op_end, which is too late for an input that the operator overwrites. */
    void (*op_run)(struct rlk_tap_op *);
    /* Since ABI 3. How many kernels, graphs and copies the process has launched outside of any operator so far: while it
     * stands still, nothing but recorded operators wrote to a device. UINT64_MAX: nobody counts. */
    uint64_t (*unseen_launches)(void);
    /* Since ABI 4. From hold(true) to hold(false), the digests of device tensors that this thread shows are enqueued
     * together, 128 a launch, at the latest by hold(false), rather than operator by operator. The caller promises that
     * until then nothing is enqueued that writes to them. */
    void (*hold)(bool on);
};

/* The recorder's table, or NULL when nobody records. Cheap; opens the recorder on the first call in the process. */
const struct rlk_tap_api *rlk_tap(void);

/* Short forms: each is nothing when nobody records. */
static inline struct rlk_tap_ctx *rlk_tap_context(uint32_t rank)
{
    const struct rlk_tap_api *t = rlk_tap();
    return t ? t->ctx(rank) : 0;
}
#define RLK_TAP(call, ctx, ...)                                                                                        \
    do {                                                                                                               \
        if (ctx)                                                                                                       \
            rlk_tap()->call(ctx, ##__VA_ARGS__);                                                                       \
    } while (0)

/* What each level keeps (docs/tap.md). *_begin returns NULL for what the level or --steps leaves out.
 *   launch   launch, sync, rng, request, relaunch, metric, readback, note
 *   step     and weights, leaf, op events whose op is "step" or begins with "step." (step.loss, step.grads, step.params,
 *            step.optimizer): the boundary of a step
 *   module   and collectives, op events whose op is "module" or begins with "module.": the boundary of a module call
 *   op       everything; buffer too
 */
#define RLK_TAP_OP_STEP "step"
#define RLK_TAP_OP_MODULE "module"

/* Semantics of the table.
 *  ctx               the calling thread's context for `rank`; NULL when this process has detached (a forked child that
 *                    does not record, a fault). All other functions accept NULL contexts and NULL ops and do nothing.
 *  step, phase, ...  set the span of this context from here on. A new step, phase, work or pass restarts the call counts.
 *                    A context that never set one of step, phase, work, pass, sample uses the value that a context of its
 *                    rank set last (autograd's threads follow the thread that trains). Counts belong to the rank.
 *                    phase and pass NULL = "". module_begin counts `call` itself; module_at sets module, pass and call for a
 *                    caller that knows them (autograd's backward) until the next module_* call, and module_at(ctx, NULL, ...)
 *                    returns to the span it left.
 *  *_begin..op_end   one event. op_in must come before the operator runs, op_out after it; all on one thread. An op may
 *                    begin inside another. op_cancel drops it (the operator threw).
 *  op_detail         copies the kind's own fields (`u`) and launches of a partly filled event.
 *  event             an event made by the caller (sync, rng, request, relaunch, ...): identity fields left empty
 *                    (NULL, 0) are taken from the context's spans.
 *  storage_written / storage_free / generation: see struct rlk_tap_tensor. An input is stored by reference iff its
 *                    generation's last recorded write is known, its version is unchanged since, and that output covers
 *                    every element read; else digested.
 *  fork              a child without exec gets NULL contexts until it asks for one: then it opens an environment of its own
 *                    (rank-R.pid-P) or stays detached (RLKREC_FORK=detach); it never blocks and never touches the parent's.
 */

#ifdef __cplusplus
}
#endif

#endif
