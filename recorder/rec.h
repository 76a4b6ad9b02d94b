/* rec.h - the inside of librlkrec.so: options, process state, threads, contexts. docs/tap.md has the whole picture.
 *
 * Ownership. One struct rlki_rec for each process that records; a forked child starts a new one and never touches the
 * one it inherited. A thread owns its struct rlki_thread and the contexts in it; the state owns the writer, the ranks'
 * counters and the table of producers. A state is never freed: a thread that the process leaves running may still hold
 * it. Locks, outermost first: process lock, state lock, rank lock, a shard of the producer table. None is held while
 * tensor bytes are read or an event waits for room.
 */
#ifndef RECORDER_REC_H
#define RECORDER_REC_H

#include "recorder/counters.h"
#include "recorder/rlk_select.h"
#include "recorder/rlk_tap.h"
#include "recorder/track.h"
#include "store/rlk_writer.h"

#include <limits.h>
#include <pthread.h>

/* ---- options (rec_options.c) */
struct rlki_options {
    enum rlk_tap_level level;
    bool digest_inputs, fork_detach;
    struct rlk_steps steps;
    uint64_t every, keep_last, max_bytes;
    struct rlk_select *payload; /* NULL = none */
    uint32_t own_rank;
    char recording[PATH_MAX]; /* absolute */
};
/* Reads the RLKREC_* variables. What is not well-formed gets its default and one line on stderr. False: nowhere to
 * record to (said too). */
bool rlki_options_read(struct rlki_options *out);
bool rlki_options_want_step(const struct rlki_options *options, int64_t step);
/* Does the level keep an event of this kind and operator? */
bool rlki_options_want(const struct rlki_options *options, enum rlk_event_kind kind, const char *op);

/* ---- process state (rec_state.c) */
enum rlki_phase {
    RLKI_FRESH = 0, /* nothing recorded yet: no environment */
    RLKI_OPEN = 1,
    RLKI_FAILED = 2, /* could not be opened */
    RLKI_CLOSED = 3,
};

struct rlki_rank {
    struct rlki_rank *next;
    uint32_t rank;
    pthread_mutex_t lock;
    struct rlki_counters counters;
    /* What contexts that set nothing themselves use; `version` rises with every change. */
    uint64_t version;
    int64_t step, work, iteration;
    char *phase, *pass, *sample;
};

struct rlki_meta {
    struct rlki_meta *next;
    char *key, *value;
};

struct rlki_rec {
    pthread_mutex_t lock;
    int phase;   /* enum rlki_phase, atomic */
    int stopped; /* atomic: the writer takes no more (disk, --max-size): operators are counted and not looked at */
    struct rlk_writer *writer;
    struct rlki_thread *threads;
    uint32_t nthreads;
    struct rlki_rank *ranks;
    struct rlki_track *track;
    struct rlki_meta *meta;     /* said before there was an environment */
    int main_seen;              /* atomic: the main thread has a record, so its exit is noticed */
    int watched;                /* atomic: a watcher runs (rec_watch.c) */
    struct rlki_gpu *gpu;       /* atomic: the device's tensors, from the first on (rec_gpu.h) */
    struct rlki_rec *inherited; /* the parent's, kept reachable, never used */
};

struct rlki_thread {
    struct rlki_rec *state;
    struct rlki_thread *next, *previous;
    uint32_t ordinal;
    int busy;   /* atomic: this thread is inside the writer */
    int cancel; /* its cancellation state outside */
    struct rlk_producer *producer;
    struct rlk_tap_ctx *contexts, *recent;
};

extern struct rlki_options rlki_options; /* constant once the table is out */

/* Once for the process: fork hooks, thread-exit hook. */
bool rlki_process_start(void);
/* This process's state, NULL when it does not record (any more). */
struct rlki_rec *rlki_rec_now(void);
/* The calling thread's record in the present state; NULL: not recording, or no memory. */
struct rlki_thread *rlki_thread_self(void);
/* The rank's record, made on first use; NULL: no memory. */
struct rlki_rank *rlki_rec_rank(struct rlki_rec *state, uint32_t rank);
/* Is this context of the present process? False in a forked child. */
bool rlki_rec_is_current(const struct rlki_rec *state);

/* Between these two the writer is not closed under the thread. False: it is not open. */
bool rlki_thread_enter(struct rlki_thread *thread);
void rlki_thread_leave(struct rlki_thread *thread);
void rlki_rec_forked(void); /* in a child: locks and what was said begin anew */

/* Writes an event in the calling thread's name: opens the environment at the first one. RLK_OK or what stopped it;
 * faults are said. */
int rlki_rec_put(struct rlki_rec *state, struct rlk_event *event, uint64_t *seq);
/* The same by rlk_producer_launch(): its strings live as long as the process. */
int rlki_rec_put_launch(struct rlki_rec *state, struct rlk_event *event, uint64_t *seq);
int rlki_rec_payload(struct rlki_rec *state, const void *bytes, size_t n, rlk_u128 *id);
/* One event more that was not recorded. */
void rlki_rec_dropped(struct rlki_rec *state);
/* An event that could not be made: said once, counted as dropped. */
void rlki_rec_lost(struct rlki_rec *state, const char *why);
void rlki_rec_meta(struct rlki_rec *state, const char *key, const char *value);
void rlki_rec_flush(struct rlki_rec *state);
/* Drains and closes with END; bounded in time; leaves it incomplete when threads stay inside. */
void rlki_rec_close(void);
/* Gives up without END and without a lock: for an exit() out of a signal handler that interrupted a tap. */
void rlki_rec_leave(void);
/* From here on the process may end with its last thread: see to it that this is not the writer's. */
void rlki_watch(struct rlki_rec *state);
/* One line on stderr per code, a mark in the recording. */
void rlki_fault(const char *code, const char *text);
/* The line alone. */
void rlki_say(const char *code, const char *text);

/* The launch plane, where there is one (cupti/launch_plane.h): marks in the calling thread's launches, and the last
 * word before the recording is closed. NULL until CUDA starts. */
struct rlki_launch_hooks {
    uint64_t (*begin)(void);
    const struct rlk_range *(*end)(uint64_t mark, uint32_t *n);
    void (*close)(void);
    /* While on, what the calling thread asks of the driver is the recorder's own, not the program's. */
    void (*own)(bool on);
    /* Launches and copies that no operator was open for. */
    uint64_t (*unseen)(void);
};
extern const struct rlki_launch_hooks *rlki_launch_hooks; /* atomic */
static inline const struct rlki_launch_hooks *rlki_launch_plane(void)
{
    return __atomic_load_n(&rlki_launch_hooks, __ATOMIC_ACQUIRE);
}

/* CUDA is in use and the driver did not load us: says who took the one place there is for an injected library
 * (rec_injection.c). `in_use`: CUDA is known to have started. */
void rlki_injection_check(bool in_use);

/* ---- contexts (rec_span.c) */
#define RLKI_OWN_STEP 1u
#define RLKI_OWN_PHASE 2u
#define RLKI_OWN_WORK 4u
#define RLKI_OWN_PASS 8u
#define RLKI_OWN_SAMPLE 16u

struct rlki_text {
    char *s; /* NULL = "" */
    size_t capacity;
};

struct rlki_frame { /* one module call */
    struct rlki_text path;
    rlk_u128 key; /* of the path */
    uint32_t call;
};

struct rlk_tap_ctx {
    struct rlki_rec *state;
    struct rlki_thread *thread;
    struct rlki_rank *rank;
    struct rlk_tap_ctx *next;
    unsigned own;  /* RLKI_OWN_*: set here; the rest follows the rank */
    uint64_t seen; /* rank->version that was followed last */
    int64_t step, work, iteration;
    struct rlki_text phase, pass, sample;
    rlk_u128 phase_key, pass_key;
    struct rlki_frame *frames;
    uint32_t nframes, capacity, lost_frames;
    bool at, at_pass_set; /* module_at in force; with a pass of its own */
    struct rlki_frame at_frame;
    struct rlki_text at_pass;
    rlk_u128 at_pass_key;
    unsigned autotune;
    struct rlki_place *place;
    uint64_t place_serial; /* 0 = look it up */
    struct rlk_tap_op *idle;
};

struct rlk_tap_ctx *rlki_ctx(uint32_t rank);
void rlki_ctx_free(struct rlk_tap_ctx *ctx);
/* Takes over what the rank's other contexts set, if anything is new. */
void rlki_ctx_follow(struct rlk_tap_ctx *ctx);
/* Fills step .. sample, module, call (who->op stays) and counts the occurrence of who->op. Strings point into ctx. */
void rlki_ctx_identify(struct rlk_tap_ctx *ctx, struct rlk_identity *who);
/* The same, not counting. */
void rlki_ctx_where(struct rlk_tap_ctx *ctx, struct rlk_identity *who);
/* The operator threw: its occurrence was none, if it was the last. */
void rlki_ctx_forget_last(struct rlk_tap_ctx *ctx, const struct rlk_identity *who, bool autotune);
void rlki_ops_free(struct rlk_tap_ctx *ctx); /* the idle ones (rec_op.c) */
bool rlki_text_set(struct rlki_text *text, const char *from);

void rlki_span_step(struct rlk_tap_ctx *ctx, int64_t step);
void rlki_span_phase(struct rlk_tap_ctx *ctx, const char *phase);
void rlki_span_work(struct rlk_tap_ctx *ctx, int64_t work, int64_t iteration);
void rlki_span_pass(struct rlk_tap_ctx *ctx, const char *pass);
void rlki_span_sample(struct rlk_tap_ctx *ctx, const char *sample);
void rlki_span_module_begin(struct rlk_tap_ctx *ctx, const char *path);
void rlki_span_module_end(struct rlk_tap_ctx *ctx);
void rlki_span_module_at(struct rlk_tap_ctx *ctx, const char *path, const char *pass, uint32_t call);
void rlki_span_autotune(struct rlk_tap_ctx *ctx, bool inside);

#endif
