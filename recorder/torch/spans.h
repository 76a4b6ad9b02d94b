/* spans.h - who is running: modules, passes and their call counts, and which module an autograd node came from.
 *
 * One struct rlkt_thread for each thread of the watched program, owned by it; only rlkt_origin() looks into another's.
 * The observer pushes a frame for each module call, backward node, engine task and optimizer step; an operator belongs
 * to the innermost one. Nothing here calls torch; only rlkt_enter() calls the tap.
 */
#ifndef RECORDER_TORCH_SPANS_H
#define RECORDER_TORCH_SPANS_H

#include "recorder/rlk_tap.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rlkt_pass { /* identity.md: pass */
                 RLKT_FWD = 0,
                 RLKT_RECOMPUTE,
                 RLKT_BWD,
                 RLKT_OPT,
                 RLKT_NONE, /* weights */
                 RLKT_PASSES,
};

enum rlkt_frame_kind {
    RLKT_MODULE = 1,
    RLKT_NODE,   /* a backward function */
    RLKT_ENGINE, /* the engine's work around one: accumulation of its results */
    RLKT_OPTIMIZER,
};

struct rlkt_frame {
    uint32_t path, call; /* module path (rlkt_intern) and its n-th call */
    uint8_t kind, pass;
    bool grad; /* a node: gradients of gradients are wanted */
};

struct rlkt_thread;

/* The calling thread's state under torch's logical thread id; NULL: out of memory. Released by rlkt_thread_end(), after
 * which its origins stay known for a while: backward may run when the forward thread is gone. */
struct rlkt_thread *rlkt_thread_begin(uint64_t id);
void rlkt_thread_end(struct rlkt_thread *thread);

uint32_t rlkt_intern(const char *path); /* 0 = "" and out of memory */
const char *rlkt_path(uint32_t id);     /* lives as long as the process */

/* Spans of the whole process; every thread takes them over before its next event. NULL = "". */
void rlkt_set_step(int64_t step);
void rlkt_set_phase(const char *phase);
void rlkt_set_work(int64_t work);
void rlkt_set_sample(const char *sample);
int64_t rlkt_step(void);
int64_t rlkt_work(void);

/* Frames. Each *_end pops the innermost frame of its kind and what an exception left above it. */
void rlkt_module_begin(struct rlkt_thread *thread, uint32_t path);
void rlkt_module_end(struct rlkt_thread *thread);
void rlkt_node_begin(struct rlkt_thread *thread, uint64_t forward_thread, int64_t sequence, bool grad);
void rlkt_node_end(struct rlkt_thread *thread);
void rlkt_engine_begin(struct rlkt_thread *thread);
void rlkt_engine_end(struct rlkt_thread *thread);
void rlkt_optimizer_begin(struct rlkt_thread *thread);
void rlkt_optimizer_end(struct rlkt_thread *thread);
uint32_t rlkt_modules_open(const struct rlkt_thread *thread); /* module frames on the stack */

/* The innermost frame; a frame of the forward pass outside any module when there is none. */
struct rlkt_frame rlkt_top(const struct rlkt_thread *thread);

/* From autograd's sequence number on, nodes made by this thread come from the innermost frame. */
void rlkt_origin_set(struct rlkt_thread *thread, int64_t sequence);

/* Whether a backward pass has run since the last call: the next forward is then another micro-batch. */
bool rlkt_backward_ran(void);

/* The tap context, its spans brought up to date for an event of `frame` in `pass`. NULL: this process does not record.
 */
struct rlk_tap_ctx *rlkt_enter(struct rlkt_thread *thread, struct rlkt_frame frame);

/* A forked child: forget contexts of the parent. `detach`: never ask for one again. */
void rlkt_forked(bool detach);

#ifdef __cplusplus
}
#endif

#endif
