/* tensor.h - a small dense fp32 tensor that knows its storage's generation and version, as a framework's does, and how
 * to show itself to the tap. For the workloads in this folder. */
#ifndef TESTS_WORKLOADS_TENSOR_H
#define TESTS_WORKLOADS_TENSOR_H

#include "recorder/rlk_tap.h"

#include <stdlib.h>

struct tensor {
    const char *name;
    uint64_t shape[2];
    float *data;
    uint64_t generation, version; /* version starts at 1: 0 means unknown to the tap */
};

static inline size_t tensor_count(const struct tensor *t)
{
    return (size_t)(t->shape[0] * t->shape[1]);
}

static inline struct tensor tensor_new(const char *name, uint64_t rows, uint64_t columns)
{
    const struct rlk_tap_api *tap = rlk_tap();
    struct tensor t = {name, {rows, columns}, calloc((size_t)(rows * columns), sizeof(float)), 0, 1};
    if (!t.data)
        abort();
    t.generation = tap ? tap->generation() : 0;
    return t;
}

static inline void tensor_free(struct tensor *t)
{
    const struct rlk_tap_api *tap = rlk_tap();
    if (tap)
        tap->storage_free(t->generation);
    free(t->data);
    t->data = NULL;
}

static inline struct rlk_tap_tensor tensor_shown(const struct tensor *t)
{
    return (struct rlk_tap_tensor){.name = t->name,
                                   .view = {.dtype = RLK_FP32,
                                            .ndim = 2,
                                            .shape = t->shape,
                                            .storage = t->data,
                                            .storage_bytes = tensor_count(t) * sizeof(float)},
                                   .generation = t->generation,
                                   .version = t->version};
}

/* Before an operator reads t. */
static inline void tensor_in(struct rlk_tap_op *op, const struct tensor *t)
{
    if (op) {
        struct rlk_tap_tensor shown = tensor_shown(t);
        rlk_tap()->op_in(op, &shown);
    }
}

/* After an operator wrote t. */
static inline void tensor_out(struct rlk_tap_op *op, struct tensor *t)
{
    t->version++;
    if (op) {
        struct rlk_tap_tensor shown = tensor_shown(t);
        rlk_tap()->op_out(op, &shown);
    }
}

static inline struct rlk_tap_op *tensor_op(struct rlk_tap_ctx *ctx, const char *name)
{
    return ctx ? rlk_tap()->op_begin(ctx, name, NULL) : NULL;
}

static inline void tensor_op_end(struct rlk_tap_op *op)
{
    if (op)
        rlk_tap()->op_end(op);
}

#endif
