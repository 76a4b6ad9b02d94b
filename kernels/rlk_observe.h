/* rlk_observe.h - one table of function pointers through which operators announce what they read and write.
 *
 * NULL by default: then an operator pays one comparison a call. A listener fills the table; it is called on the thread
 * that called the operator, between the operator's own launches, and must not change what it is shown. Pointers are
 * device pointers on a GPU, valid in stream order on the exec's stream: an input may be read by work that the listener
 * enqueues in tensor(); outputs are announced after the work that writes them is enqueued.
 *
 * A cache of keys or values is announced as the rows that are read or written, one tensor a sequence, all of one name
 * ("k_cache", "v_cache"). rlk.attention.append copies bytes: it is announced, but no policy binds it and no readback
 * counts it.
 *
 * Order of calls for one rank of one operator call: begin, tensor for each input, tensor for each output, end. With
 * virtual ranks the ranks follow one another, a rank's inputs in begin's turn and outputs in a second turn.
 */
#ifndef KERNELS_RLK_OBSERVE_H
#define KERNELS_RLK_OBSERVE_H

#include "kernels/rlk_kbase.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rlk_impl { RLK_IMPL_CONTRACT = 0, RLK_IMPL_PROVIDER = 1 };

struct rlk_op_event {
    const char *op;       /* "rlk.gemm.row", ...; one of docs/contracts.md */
    const char *pass;     /* "fwd", "bwd", "opt" */
    const char *module;   /* the caller's module path */
    const char *contract; /* "rlk.gemm.row/portable/1", or "provider" */
    enum rlk_impl impl;
    int rank, tp, cp; /* rank = tp + TP*cp */
    uint64_t call;    /* counts operator calls of this exec; the ranks of one call share it */
    unsigned groups;  /* at end: bit g = ranks of enum rlk_group g had their data combined, 1 << RLK_GROUP_TP, ... */
};

struct rlk_observed {
    const char *name; /* the operator's name of the tensor: "x", "w", "y", ... */
    bool output;
    uint32_t index; /* n-th input or output */
    enum rlk_ktype type;
    const void *data;  /* local tensor, row-major and dense; NULL when the extent is 0 */
    uint64_t elements; /* local */
    struct rlk_placement at;
    bool on_device; /* false for sums in FP64: they are in host memory, and are what this call computed */
    bool by_token;  /* dimension 0 is the tokens of the batch */
};

struct rlk_observe {
    void *self;
    void (*begin)(void *self, const struct rlk_op_event *event);
    void (*tensor)(void *self, const struct rlk_op_event *event, const struct rlk_observed *tensor);
    void (*end)(void *self, const struct rlk_op_event *event);
};

#ifdef __cplusplus
}
#endif
#endif
