/* rec_op.c - events from *_begin to op_end, and events that the caller made. */
#include "recorder/rec_op.h"
#include "recorder/rec_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *rlki_op_alloc(struct rlk_tap_op *op, size_t count, size_t size)
{
    void *p = count > SIZE_MAX / size ? NULL : rlk_arena_alloc(&op->arena, count * size, _Alignof(max_align_t));
    if (!p)
        op->broken = true;
    return p;
}

void *rlki_op_copy(struct rlk_tap_op *op, const void *from, size_t count, size_t size)
{
    void *p = rlki_op_alloc(op, count, size);
    if (p && count && from)
        memcpy(p, from, count * size);
    return p;
}

const char *rlki_op_string(struct rlk_tap_op *op, const char *from)
{
    if (!from || !*from)
        return "";
    size_t n = strlen(from) + 1;
    char *p = rlk_arena_alloc(&op->arena, n, 1);
    if (!p) {
        op->broken = true;
        return "";
    }
    return memcpy(p, from, n);
}

void rlki_ops_free(struct rlk_tap_ctx *ctx)
{
    while (ctx->idle) {
        struct rlk_tap_op *op = ctx->idle;
        ctx->idle = op->next;
        rlk_arena_release(&op->arena);
        free(op->in);
        free(op->out);
        free(op->writes);
        free(op->attrs);
        free(op->gpu);
        free(op);
    }
}

static void to_idle(struct rlk_tap_op *op)
{
    struct rlk_tap_ctx *ctx = op->ctx;
    rlk_arena_reset(&op->arena);
    op->next = ctx->idle;
    ctx->idle = op;
}

/* An op of this context with its identity; NULL: left out by level or step, or no memory. */
static struct rlk_tap_op *begin(struct rlk_tap_ctx *ctx, enum rlk_event_kind kind, const char *name)
{
    if (!rlki_options_want(&rlki_options, kind, name))
        return NULL;
    rlki_ctx_follow(ctx);
    if (!rlki_options_want_step(&rlki_options, ctx->step))
        return NULL;
    if (__atomic_load_n(&ctx->state->stopped, __ATOMIC_RELAXED)) {
        rlki_rec_dropped(ctx->state);
        return NULL;
    }
    struct rlk_tap_op *op = ctx->idle;
    if (op)
        ctx->idle = op->next;
    else if (!(op = calloc(1, sizeof *op))) {
        rlki_fault("memory", "out of memory: events are lost");
        return NULL;
    }
    op->ctx = ctx;
    op->nin = op->nout = op->ngpu = 0;
    op->broken = false;
    op->event = (struct rlk_event){.kind = kind, .rank = ctx->rank->rank, .autotune = ctx->autotune != 0};
    struct rlk_identity *who = &op->event.who;
    who->op = rlki_op_string(op, name);
    rlki_ctx_identify(ctx, who);
    who->phase = rlki_op_string(op, who->phase);
    who->pass = rlki_op_string(op, who->pass);
    who->module = rlki_op_string(op, who->module);
    who->sample = rlki_op_string(op, who->sample);
    op->launches = rlki_launch_plane();
    op->launch_mark = op->launches ? op->launches->begin() : 0;
    return op;
}

/* The launches since the op began; good until the thread's next one. */
static void end_launches(struct rlk_tap_op *op)
{
    if (op->launches)
        op->event.launch_ranges = op->launches->end(op->launch_mark, &op->event.nlaunch_ranges);
    op->launches = NULL;
}

struct rlk_tap_op *rlki_op_begin(struct rlk_tap_ctx *ctx, const char *op, const char *contract)
{
    struct rlk_tap_op *o = begin(ctx, RLK_EV_OP, op);
    if (o)
        o->event.u.op.contract = rlki_op_string(o, contract);
    return o;
}

struct rlk_tap_op *rlki_collective_begin(struct rlk_tap_ctx *ctx, const char *function, const char *group)
{
    struct rlk_tap_op *op = begin(ctx, RLK_EV_COLLECTIVE, function);
    if (op) {
        op->event.u.collective.group = rlki_op_string(op, group);
        op->event.u.collective.algo = op->event.u.collective.proto = "";
    }
    return op;
}

struct rlk_tap_op *rlki_copy_begin(struct rlk_tap_ctx *ctx, const char *direction)
{
    char name[64];
    snprintf(name, sizeof name, "copy.%.50s", direction ? direction : "");
    struct rlk_tap_op *op = begin(ctx, RLK_EV_COPY, name);
    if (op)
        op->event.u.copy.direction = rlki_op_string(op, direction);
    return op;
}

struct rlk_tap_op *rlki_weights_begin(struct rlk_tap_ctx *ctx, const char *version, const char *side)
{
    struct rlk_tap_op *op = begin(ctx, RLK_EV_WEIGHTS, "weights");
    if (op) {
        op->event.u.weights.version = rlki_op_string(op, version);
        op->event.u.weights.side = rlki_op_string(op, side);
    }
    return op;
}

struct rlk_tap_op *rlki_leaf_begin(struct rlk_tap_ctx *ctx)
{
    return begin(ctx, RLK_EV_LEAF, "leaf");
}

/* Makes room for one more in a growable array. */
static bool reserve(void **array, uint32_t *capacity, uint32_t n, uint32_t limit, size_t size)
{
    if (n < *capacity)
        return true;
    uint32_t more = *capacity ? *capacity * 2 : 8;
    void *p = n < limit ? realloc(*array, more * size) : NULL;
    if (!p)
        return false;
    *array = p;
    *capacity = more;
    return true;
}

void rlki_op_attr(struct rlk_tap_op *op, const struct rlk_attr *attr)
{
    void *attrs = op->attrs;
    bool room = reserve(&attrs, &op->attr_capacity, op->event.nattrs, 1u << 16, sizeof *op->attrs);
    op->attrs = attrs;
    if (!room) {
        op->broken = true;
        return;
    }
    struct rlk_attr *to = &op->attrs[op->event.nattrs++];
    *to = *attr;
    to->key = rlki_op_string(op, attr->key);
    to->s = attr->type == RLK_ATTR_STRING ? rlki_op_string(op, attr->s) : "";
}

void rlki_op_in(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)
{
    void *in = op->in;
    bool room = reserve(&in, &op->in_capacity, op->nin, RLK_MAX_TENSORS, sizeof *op->in);
    op->in = in;
    if (!room) {
        op->broken = true;
        return;
    }
    rlki_tensor_make(op, RLK_ROLE_IN, op->nin, tensor, &op->in[op->nin], NULL);
    op->nin++;
}

void rlki_op_out(struct rlk_tap_op *op, const struct rlk_tap_tensor *tensor)
{
    void *out = op->out, *writes = op->writes;
    uint32_t capacity = op->out_capacity;
    bool room = reserve(&out, &capacity, op->nout, RLK_MAX_TENSORS, sizeof *op->out);
    op->out = out;
    room = room && reserve(&writes, &op->out_capacity, op->nout, RLK_MAX_TENSORS, sizeof *op->writes);
    op->writes = writes;
    if (!room) {
        op->broken = true;
        return;
    }
    rlki_tensor_make(op, RLK_ROLE_OUT, op->nout, tensor, &op->out[op->nout], &op->writes[op->nout]);
    op->nout++;
}

/* Inputs first, then outputs. */
static bool join(struct rlk_tap_op *op)
{
    struct rlk_tensor *all = NULL;
    if (op->nin + op->nout > RLK_MAX_TENSORS)
        return false;
    if (op->nin == 0)
        all = op->out;
    else if (op->nout == 0)
        all = op->in;
    else if ((all = rlki_op_alloc(op, op->nin + op->nout, sizeof *all))) {
        memcpy(all, op->in, op->nin * sizeof *all);
        memcpy(all + op->nin, op->out, op->nout * sizeof *all);
    }
    op->event.tensors = all;
    op->event.ntensors = op->nin + op->nout;
    op->event.attrs = op->attrs;
    return all || op->event.ntensors == 0;
}

static void forget_tickets(struct rlk_tap_op *op)
{
    rlki_gpu_forget(op->ctx->state, op->in, op->nin);
    rlki_gpu_forget(op->ctx->state, op->out, op->nout);
}

void rlki_op_end(struct rlk_tap_op *op)
{
    struct rlki_track *track = op->ctx->state->track;
    uint64_t seq = 0;
    int rc = RLK_ENOMEM;
    rlki_gpu_launch(op);
    end_launches(op);
    if (!op->broken && join(op))
        rc = rlki_rec_put(op->ctx->state, &op->event, &seq);
    else
        rlki_rec_lost(op->ctx->state, "an event is too large, or memory is out: it is left out and counted");
    for (uint32_t i = 0; i < op->nout; i++) {
        const struct rlki_write *w = &op->writes[i];
        const bool known = op->out[i].state == RLK_T_DIGESTED || op->out[i].state == RLK_T_PENDING;
        if (rc == RLK_OK && w->geometry && known)
            rlki_track_wrote(track, w->generation, w->version, seq, op->event.who.step, i, w->geometry);
        else
            rlki_track_forget(track, w->generation); /* nobody can refer to what is not recorded */
    }
    if (rc)
        forget_tickets(op);
    to_idle(op);
}

void rlki_op_cancel(struct rlk_tap_op *op)
{
    end_launches(op);
    forget_tickets(op);
    /* It may have written before it threw, and its writes are nobody's. */
    for (uint32_t i = 0; i < op->nin; i++)
        rlki_track_forget(op->ctx->state->track, op->in[i].alloc);
    for (uint32_t i = 0; i < op->nout; i++)
        rlki_track_forget(op->ctx->state->track, op->writes[i].generation);
    rlki_ctx_forget_last(op->ctx, &op->event.who, op->event.autotune);
    to_idle(op);
}

/* What stands for the operator of a kind that has none. */
static const char *default_name(const struct rlk_event *event, char *buffer, size_t size)
{
    switch (event->kind) {
    case RLK_EV_COPY:
        snprintf(buffer, size, "copy.%.50s", event->u.copy.direction ? event->u.copy.direction : "");
        return buffer;
    case RLK_EV_WEIGHTS:
        return "weights";
    case RLK_EV_LEAF:
        return "leaf";
    default:
        return "";
    }
}

void rlki_event(struct rlk_tap_ctx *ctx, const struct rlk_event *event)
{
    struct rlk_event e = *event;
    struct rlk_identity *who = &e.who, span = {0};
    char name[64];
    if (!who->op || !*who->op)
        who->op = default_name(event, name, sizeof name);
    rlki_ctx_follow(ctx);
    if (!rlki_options_want(&rlki_options, e.kind, who->op))
        return;
    /* Counted under the operator, or under the kind where there is none. */
    span.op = *who->op ? who->op : rlk_event_kind_name(e.kind);
    if (!who->occurrence)
        rlki_ctx_identify(ctx, &span);
    else
        rlki_ctx_where(ctx, &span);
    who->step = who->step ? who->step : span.step;
    if (!rlki_options_want_step(&rlki_options, who->step) && e.kind != RLK_EV_NOTE)
        return;
    who->work = who->work ? who->work : span.work;
    who->iteration = who->iteration ? who->iteration : span.iteration;
    who->phase = who->phase && *who->phase ? who->phase : span.phase;
    who->pass = who->pass && *who->pass ? who->pass : span.pass;
    who->sample = who->sample && *who->sample ? who->sample : span.sample;
    if (!who->module || !*who->module) {
        who->module = span.module;
        who->call = who->call ? who->call : span.call;
    }
    who->occurrence = who->occurrence ? who->occurrence : span.occurrence;
    e.rank = ctx->rank->rank;
    e.autotune = e.autotune || ctx->autotune != 0;
    rlki_rec_put(ctx->state, &e, NULL);
}
