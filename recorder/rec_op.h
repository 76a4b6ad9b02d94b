/* rec_op.h - an event in the making: from *_begin to op_end. Everything in it lies in its arena, copied. */
#ifndef RECORDER_REC_OP_H
#define RECORDER_REC_OP_H

#include "recorder/rec.h"

struct rlki_write { /* beside each output: what to note once the event has its number */
    uint64_t generation, version;
    const struct rlki_geometry *geometry; /* NULL: nobody can refer to it */
};

struct rlk_tap_op {
    struct rlk_tap_ctx *ctx;
    struct rlk_tap_op *next; /* idle list */
    struct rlk_arena arena;
    struct rlk_event event;
    struct rlk_tensor *in, *out;
    struct rlki_write *writes; /* noutput entries */
    uint32_t nin, nout, in_capacity, out_capacity;
    struct rlk_attr *attrs;
    uint32_t attr_capacity;
    struct rlki_gpu_item *gpu; /* device tensors to be digested by the next rlki_gpu_launch() */
    uint32_t ngpu, gpu_capacity;
    const struct rlki_launch_hooks *launches; /* begin was called on these; NULL = on none */
    uint64_t launch_mark;
    bool broken; /* out of memory or past a bound: not recorded, counted as lost */
};

/* Arena copies; NULL and broken = true when there is no memory. */
void *rlki_op_alloc(struct rlk_tap_op *op, size_t count, size_t size);
void *rlki_op_copy(struct rlk_tap_op *op, const void *from, size_t count, size_t size);
const char *rlki_op_string(struct rlk_tap_op *op, const char *from); /* NULL -> "" */

/* Makes *out from what the caller shows: digest, reference or reason, payload, sample sums (rec_tensor.c). *write gets
 * what an output leaves behind. */
void rlki_tensor_make(struct rlk_tap_op *op, enum rlk_role role, uint32_t index, const struct rlk_tap_tensor *from,
                      struct rlk_tensor *out, struct rlki_write *write);

/* The bytes of a view in logical order (rec_payload.c): malloc'ed. RLK_EINVAL, RLK_ENOMEM. */
int rlki_payload_bytes(const struct rlk_view *view, void **bytes, size_t *n);

/* Copies the kind's own fields and the launches of `from` into op (rec_detail.c). */
void rlki_op_take_detail(struct rlk_tap_op *op, const struct rlk_event *from);

/* The functions of the table (rec_op.c). */
struct rlk_tap_op *rlki_op_begin(struct rlk_tap_ctx *ctx, const char *op, const char *contract);
struct rlk_tap_op *rlki_collective_begin(struct rlk_tap_ctx *ctx, const char *function, const char *group);
struct rlk_tap_op *rlki_copy_begin(struct rlk_tap_ctx *ctx, const char *direction);
struct rlk_tap_op *rlki_weights_begin(struct rlk_tap_ctx *ctx, const char *version, const char *side);
struct rlk_tap_op *rlki_leaf_begin(struct rlk_tap_ctx *ctx);
void rlki_op_attr(struct rlk_tap_op *op, const struct rlk_attr *attr);
void rlki_op_in(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor);
void rlki_op_out(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor);
void rlki_op_end(struct rlk_tap_op *op);
void rlki_op_cancel(struct rlk_tap_op *op);
void rlki_event(struct rlk_tap_ctx *ctx, const struct rlk_event *event);

#endif
