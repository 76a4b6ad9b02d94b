/* rlk_event.h - one event of a recording, in memory: what a writer is given and what a reader gives back.
 *
 * Ownership: everything a struct rlk_event points at belongs to whoever made it. rlk_producer_put() copies what it
 * needs before it returns; a reader's events live in the caller's struct rlk_arena. Strings are UTF-8 without NUL, at
 * most RLK_MAX_STRING bytes; NULL and "" mean the same on writing, a reader gives "".
 */
#ifndef STORE_RLK_EVENT_H
#define STORE_RLK_EVENT_H

#include "store/rlk_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds. Stored values never change; readers skip kinds they do not know. X(enumerator, value, name) */
#define RLK_EVENT_KINDS(X)                                                                                             \
    X(RLK_EV_OP, 1, "op")                                                                                              \
    X(RLK_EV_COLLECTIVE, 2, "collective")                                                                              \
    X(RLK_EV_COPY, 3, "copy")                                                                                          \
    X(RLK_EV_SYNC, 4, "sync")                                                                                          \
    X(RLK_EV_RNG, 5, "rng")                                                                                            \
    X(RLK_EV_WEIGHTS, 6, "weights")                                                                                    \
    X(RLK_EV_REQUEST, 7, "request")                                                                                    \
    X(RLK_EV_RELAUNCH, 8, "relaunch")                                                                                  \
    X(RLK_EV_METRIC, 9, "metric")                                                                                      \
    X(RLK_EV_READBACK, 10, "readback")                                                                                 \
    X(RLK_EV_LEAF, 11, "leaf")                                                                                         \
    X(RLK_EV_LAUNCH, 12, "launch")                                                                                     \
    X(RLK_EV_NOTE, 13, "note")

enum rlk_event_kind {
    RLK_EV_NONE = 0,
#define X(name, value, text) name = value,
    RLK_EVENT_KINDS(X)
#undef X
};
const char *rlk_event_kind_name(enum rlk_event_kind kind); /* "?" for an unknown one */

/* Who, when and where, never rank-local, never time (docs/identity.md). The rank stands beside it. */
struct rlk_identity {
    int64_t step;        /* optimizer steps completed, or rlk_step() */
    int64_t work;        /* micro-batch ordinal; request or batch ordinal for decode */
    int64_t iteration;   /* decode iteration inside the work; 0 elsewhere */
    const char *phase;   /* "actor_train", "rollout-decode", ... */
    const char *pass;    /* "fwd", "recompute", "bwd", "opt", "" */
    const char *module;  /* path from the root module */
    const char *op;      /* "aten::mm"; a collective's function; "copy.h2d"; "weights"; a metric's name */
    const char *sample;  /* "" if none */
    uint32_t call;       /* n-th call of the module in this pass */
    uint32_t occurrence; /* n-th call of op directly in that module call */
};

enum rlk_role {
    RLK_ROLE_IN = 0,
    RLK_ROLE_OUT = 1,
};

enum rlk_tensor_state {
    RLK_T_DIGESTED = 0,  /* sums hold */
    RLK_T_REFERENCE = 1, /* an input: the bytes of output `ref_output` of event `ref_event`, seen through `ref_view` */
    RLK_T_UNDEFINED = 2, /* the operator leaves it undefined; `reason` says why */
    RLK_T_NOT_DIGESTED = 3, /* `reason`: "alloc", "async-copy", "ring-full", "autotune", "level", ... */
    RLK_T_PENDING = 4,      /* writers only: `ticket` is resolved by rlk_writer_options.resolve; never stored */
};

struct rlk_sample_part { /* rows [start, start+extent) of dimension 0 belong to sample `id` */
    const char *id;
    uint64_t start, extent;
    bool has_sums;
    struct rlk_sums sums; /* with the token index restarting at 0 */
};

struct rlk_tensor {
    const char *name; /* "" if the operator has no name for it */
    uint8_t role;     /* enum rlk_role */
    uint8_t state;    /* enum rlk_tensor_state */
    uint8_t dtype;    /* enum rlk_dtype */
    bool composable;  /* false: a part with a border inside a unit (docs/digest.md) */
    uint32_t index;   /* n-th of its role in the event */
    uint32_t ndim;
    const uint64_t *shape; /* what this rank holds */

    const char *reason;   /* UNDEFINED, NOT_DIGESTED */
    struct rlk_sums sums; /* DIGESTED */
    uint64_t ref_event;   /* REFERENCE: sequence number in the same environment */
    uint32_t ref_output;  /* REFERENCE: index among its outputs (a weights event's tensors count as outputs) */
    rlk_u128 ref_view;    /* REFERENCE: hash of the view's geometry; 0 = the output itself */
    uint64_t ticket;      /* PENDING */

    const struct rlk_place *place; /* NULL = local: compared only under the same layout */
    uint64_t alloc;                /* generation of the buffer, never an address; 0 = unknown */
    const char *version;           /* label, "" if none */
    uint32_t nsamples;
    const struct rlk_sample_part *samples;
    bool has_payload;
    rlk_u128 payload; /* content id of the bytes (rlk_writer_payload) */
};

enum rlk_attr_type {
    RLK_ATTR_INT = 1,
    RLK_ATTR_DOUBLE = 2,
    RLK_ATTR_STRING = 3,
};

struct rlk_attr {
    const char *key;
    uint8_t type; /* enum rlk_attr_type */
    int64_t i;
    double d;
    const char *s;
};

#define RLK_NO_NODE INT64_C(-1)

struct rlk_launch {
    const char *kernel, *image, *config; /* name; module image hash; config hash: "" if unknown */
    uint32_t grid[3], block[3], cluster[3];
    uint32_t smem; /* dynamic shared memory, bytes */
    uint64_t stream;
    int64_t graph, node; /* RLK_NO_NODE outside a graph */
    uint32_t nattrs;
    const struct rlk_attr *attrs;
    bool has_params;
    rlk_u128 params; /* content id of the parameter block, pointers made allocation-relative */
};

struct rlk_range { /* sequence numbers [first, first+count) */
    uint64_t first, count;
};

struct rlk_event {
    /* filled by the writer, given by the reader */
    uint64_t seq; /* place in the environment's order, from 0 */

    enum rlk_event_kind kind;
    bool autotune; /* inside an autotune span: never aligned, never a difference */
    uint32_t rank; /* global rank, virtual or real */
    uint32_t thread;
    uint64_t stream;
    const char *id; /* the author's own id (synth), "" if none */
    struct rlk_identity who;

    uint32_t nattrs;
    const struct rlk_attr *attrs;
    uint32_t ntensors; /* inputs first, then outputs; each role's in index order */
    const struct rlk_tensor *tensors;
    uint32_t nlaunches; /* launches of this event, in order */
    const struct rlk_launch *launches;
    uint32_t nlaunch_ranges; /* or: LAUNCH events of the same environment that belong to it */
    const struct rlk_range *launch_ranges;

    union {
        struct { /* op: the operator's contract, "" if none */
            const char *contract;
        } op;
        struct {
            const char *group, *algo, *proto;
            uint32_t channels;
            uint32_t norder;
            const uint32_t *order; /* global ranks, reduction order as reported */
            uint32_t nmembers;
            const char *const *members; /* bucketed tensors; one input and one output each, or one flat pair */
            uint32_t nranks;
            const uint32_t *ranks; /* the communicator's global ranks, ascending; may be empty (then from the layout) */
        } collective;
        struct {
            const char *direction; /* "h2d", "d2h", "d2d", "p2p", "h2h" */
        } copy;
        struct {
            const char *what; /* "record", "wait", "stream", "device" */
            uint64_t event;
        } sync;
        struct {
            const char *generator; /* "philox" */
            uint64_t seed, offset, grid;
        } rng;
        struct {
            const char *version, *side; /* label; "trainer" or "rollout" */
        } weights;
        struct {
            const char *id, *logprob_kind; /* "raw", "processed", "" */
            uint32_t ntokens;
            const int64_t *tokens;
            uint32_t nversions;
            const char *const *versions;
        } request;
        struct {
            const char *event; /* id of an event */
            uint32_t repeats, agree;
            bool matches_recorded;
        } relaunch;
        struct {
            double value; /* name in who.op */
        } metric;
        struct {
            const char *case_id, *implementation, *contract; /* module in who.module */
            uint64_t calls;
        } readback;
        struct {
            const char *name;      /* the leaf tensor: tensors[0] carries dtype, shape, digest */
            const char *reference; /* "file#tensor" or "" */
            const char *sha256;    /* of the referenced bytes, hex, or "" */
            const char *generator; /* or a generator and its seed */
            uint64_t seed;
        } leaf;
        struct {               /* launch: one kernel, copy or graph replay in launches[0], or a graph's definition: its nodes */
            uint32_t count;    /* kernel launches that this event stands for: 1; 0 for a copy or definition; a replay's nodes */
            const char *entry; /* API entry point, "" if unknown */
        } launch;
        struct {
            const char *code, *text; /* what the recorder has to say, e.g. "observer-failed" */
        } note;
    } u;
};

/* Coverage: what was seen and what was not. Kept by the writer, stored in END, shown as COV in cli.md. */
#define RLK_MAX_REASONS 32u
struct rlk_coverage {
    uint64_t events, launches_seen, launches_recorded;
    uint64_t tensors, by_reference, local_placement;
    uint64_t dropped, stall_ns;
    uint32_t nreasons;
    struct {
        char reason[48];
        uint64_t count;
    } not_digested[RLK_MAX_REASONS];
    uint32_t planes; /* RLK_PLANE_* */
};
#define RLK_PLANE_LAUNCH 1u
#define RLK_PLANE_TENSOR 2u
#define RLK_PLANE_BUFFER 4u

/* Bump allocator for what a reader gives back. Zero-initialised = empty. */
struct rlk_arena {
    struct rlk_arena_block *head;
};
void *rlk_arena_alloc(struct rlk_arena *arena, size_t bytes, size_t align); /* NULL = out of memory; zeroed */
void rlk_arena_reset(struct rlk_arena *arena);                              /* keeps memory for reuse */
void rlk_arena_release(struct rlk_arena *arena);

#ifdef __cplusplus
}
#endif

#endif
