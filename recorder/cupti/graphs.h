/* graphs.h - CUDA graphs as the launch plane sees them: which kernel nodes does an executable graph run?
 *
 * A kernel node gets its description from the launch that made it during capture, or from the API call that added it or
 * set its parameters; a clone has its original's. An executable graph copies the descriptions of its graph when it is
 * made and keeps its own from then on. All calls may come from any thread, also from CUPTI's resource callbacks:
 * nothing here calls the driver.
 */
#ifndef RECORDER_CUPTI_GRAPHS_H
#define RECORDER_CUPTI_GRAPHS_H

#include "store/rlk_event.h"

struct rlki_exec {       /* what a replay runs */
    uint64_t ordinal;    /* n-th executable graph of the process */
    uint64_t version;    /* rises with each update */
    uint64_t written;    /* version whose definition was recorded; kept by the caller */
    uint64_t definition; /* sequence number of that record */
    uint32_t nnodes;
    struct rlk_launch *nodes; /* names live for ever */
};

void rlki_graph_node_created(const void *graph, const void *node);
void rlki_graph_node_destroyed(const void *node);
void rlki_graph_node_cloned(const void *graph, const void *node, const void *original);
void rlki_graph_destroyed(const void *graph);
/* The node is a kernel node and runs this. */
void rlki_graph_node_describe(const void *node, const struct rlk_launch *launch);

void rlki_exec_created(const void *exec, const void *graph);
void rlki_exec_destroyed(const void *exec);
void rlki_exec_updated(const void *exec, const void *graph);
void rlki_exec_node_describe(const void *exec, const void *node, const struct rlk_launch *launch);

/* Calls `use` with the exec's record, under the lock: it may change written and definition. False: an unknown exec. */
bool rlki_exec_with(const void *exec, void (*use)(void *context, struct rlki_exec *exec), void *context);

#endif
