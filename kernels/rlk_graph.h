/* rlk_graph.h - a run of operators captured once as a CUDA graph, and replayed with other numbers in it.
 *
 * Captured is what work(arg) enqueues. The small arrays that operators upload on their way (token ids, positions, rows
 * of a cache) go through a buffer of the graph; a replay fills it by calling work(arg) again with everything but
 * uploads left out. So no operator knows about graphs, and one that begins to upload something else is noticed.
 *
 * work(arg) must call the same operators with the same shapes, addresses, workspace and numbers each time: a replay keeps
 * what an operator was called with, but for what it uploads (rlk_sample: the step and the samples; a batch: its
 * positions). It must not allocate, download or wait. It is neither observed nor counted, on capture and on replay; rlk_exec_tell does that.
 */
#ifndef KERNELS_RLK_GRAPH_H
#define KERNELS_RLK_GRAPH_H

#include "kernels/rlk_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rlk_graph;

/* Runs work(arg) once as it is, so that every kernel is loaded, then captures it. Nothing else may be enqueued on the
 * stream meanwhile. RLK_K_EUNSUPPORTED: x is no CUDA exec, or on the default stream (rlk_exec_own_stream). */
int rlk_graph_new(struct rlk_exec *x, int (*work)(void *), void *arg, struct rlk_graph **out);

/* Waits for the replay before, fills in what work(arg) uploads now, and enqueues the graph. RLK_K_ESTATE: work(arg) is
 * not what was captured, or the workspace is another; nothing was enqueued. */
int rlk_graph_launch(struct rlk_exec *x, struct rlk_graph *graph, int (*work)(void *), void *arg);
void rlk_graph_free(struct rlk_graph *graph);

/* Calls work(arg) with nothing enqueued: the listener is shown its tensors as they are, and the policy counts. For work
 * that has been done by replays: its tensors must all still be what their operators wrote. */
int rlk_exec_tell(struct rlk_exec *x, int (*work)(void *), void *arg);

#ifdef __cplusplus
}
#endif
#endif
