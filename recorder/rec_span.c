/* rec_span.c - contexts: where in the run is this thread, for this rank? */
#include "recorder/rec.h"

#include <stdlib.h>
#include <string.h>

/* At most RLK_MAX_STRING bytes, cut at a character. */
static size_t bounded_length(const char *s)
{
    size_t n = strnlen(s, RLK_MAX_STRING + 1);
    if (n <= RLK_MAX_STRING)
        return n;
    n = RLK_MAX_STRING;
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return n;
}

bool rlki_text_set(struct rlki_text *text, const char *from)
{
    size_t n = from ? bounded_length(from) : 0;
    if (n + 1 > text->capacity) {
        size_t capacity = n + 1 < 32 ? 32 : n + 1;
        char *s = realloc(text->s, capacity);
        if (!s) {
            if (text->s)
                text->s[0] = 0;
            return false;
        }
        text->s = s;
        text->capacity = capacity;
    }
    if (n)
        memcpy(text->s, from, n);
    text->s[n] = 0;
    return true;
}

static void shared_set(char **to, const char *from)
{
    struct rlki_text text = {*to, *to ? strlen(*to) + 1 : 0};
    rlki_text_set(&text, from);
    *to = text.s;
}

struct rlk_tap_ctx *rlki_ctx(uint32_t rank)
{
    struct rlki_thread *thread = rlki_thread_self();
    if (!thread)
        return NULL;
    if (rank == RLK_TAP_OWN_RANK)
        rank = rlki_options.own_rank;
    if (thread->recent && thread->recent->rank->rank == rank)
        return thread->recent;
    struct rlk_tap_ctx *ctx = thread->contexts;
    while (ctx && ctx->rank->rank != rank)
        ctx = ctx->next;
    if (!ctx) {
        ctx = calloc(1, sizeof *ctx);
        struct rlki_rank *r = ctx ? rlki_rec_rank(thread->state, rank) : NULL;
        if (!r) {
            free(ctx);
            return NULL;
        }
        ctx->state = thread->state;
        ctx->thread = thread;
        ctx->rank = r;
        ctx->phase_key = ctx->pass_key = rlki_text_key("");
        ctx->next = thread->contexts;
        thread->contexts = ctx;
    }
    thread->recent = ctx;
    return ctx;
}

void rlki_ctx_free(struct rlk_tap_ctx *ctx)
{
    rlki_ops_free(ctx);
    free(ctx->phase.s);
    free(ctx->pass.s);
    free(ctx->sample.s);
    for (uint32_t i = 0; i < ctx->capacity; i++)
        free(ctx->frames[i].path.s);
    free(ctx->frames);
    free(ctx->at_frame.path.s);
    free(ctx->at_pass.s);
    free(ctx);
}

/* The rank's lock is held. */
static void follow_locked(struct rlk_tap_ctx *ctx)
{
    const struct rlki_rank *r = ctx->rank;
    if (!(ctx->own & RLKI_OWN_STEP))
        ctx->step = r->step;
    if (!(ctx->own & RLKI_OWN_WORK)) {
        ctx->work = r->work;
        ctx->iteration = r->iteration;
    }
    if (!(ctx->own & RLKI_OWN_PHASE)) {
        rlki_text_set(&ctx->phase, r->phase);
        ctx->phase_key = rlki_text_key(ctx->phase.s);
    }
    if (!(ctx->own & RLKI_OWN_PASS)) {
        rlki_text_set(&ctx->pass, r->pass);
        ctx->pass_key = rlki_text_key(ctx->pass.s);
    }
    if (!(ctx->own & RLKI_OWN_SAMPLE))
        rlki_text_set(&ctx->sample, r->sample);
    ctx->place_serial = 0;
    ctx->seen = r->version;
}

void rlki_ctx_follow(struct rlk_tap_ctx *ctx)
{
    if (__atomic_load_n(&ctx->rank->version, __ATOMIC_ACQUIRE) == ctx->seen)
        return;
    pthread_mutex_lock(&ctx->rank->lock);
    follow_locked(ctx);
    pthread_mutex_unlock(&ctx->rank->lock);
}

/* Tells the rank's other contexts what was set here. */
static void publish(struct rlk_tap_ctx *ctx, unsigned what)
{
    struct rlki_rank *r = ctx->rank;
    ctx->own |= what;
    pthread_mutex_lock(&r->lock);
    if (what & RLKI_OWN_STEP)
        r->step = ctx->step;
    if (what & RLKI_OWN_WORK) {
        r->work = ctx->work;
        r->iteration = ctx->iteration;
    }
    if (what & RLKI_OWN_PHASE)
        shared_set(&r->phase, ctx->phase.s);
    if (what & RLKI_OWN_PASS)
        shared_set(&r->pass, ctx->pass.s);
    if (what & RLKI_OWN_SAMPLE)
        shared_set(&r->sample, ctx->sample.s);
    bool current = r->version == ctx->seen;
    __atomic_store_n(&r->version, r->version + 1, __ATOMIC_RELEASE);
    if (current)
        ctx->seen = r->version;
    ctx->place_serial = 0;
    pthread_mutex_unlock(&r->lock);
}

void rlki_span_step(struct rlk_tap_ctx *ctx, int64_t step)
{
    ctx->step = step;
    publish(ctx, RLKI_OWN_STEP);
}

void rlki_span_work(struct rlk_tap_ctx *ctx, int64_t work, int64_t iteration)
{
    ctx->work = work;
    ctx->iteration = iteration;
    publish(ctx, RLKI_OWN_WORK);
}

void rlki_span_phase(struct rlk_tap_ctx *ctx, const char *phase)
{
    rlki_text_set(&ctx->phase, phase);
    ctx->phase_key = rlki_text_key(ctx->phase.s);
    publish(ctx, RLKI_OWN_PHASE);
}

void rlki_span_pass(struct rlk_tap_ctx *ctx, const char *pass)
{
    rlki_text_set(&ctx->pass, pass);
    ctx->pass_key = rlki_text_key(ctx->pass.s);
    publish(ctx, RLKI_OWN_PASS);
}

void rlki_span_sample(struct rlk_tap_ctx *ctx, const char *sample)
{
    rlki_text_set(&ctx->sample, sample);
    publish(ctx, RLKI_OWN_SAMPLE);
}

void rlki_span_autotune(struct rlk_tap_ctx *ctx, bool inside)
{
    if (inside)
        ctx->autotune++;
    else if (ctx->autotune)
        ctx->autotune--;
}

/* The rank's lock is held. */
static struct rlki_place *place_locked(struct rlk_tap_ctx *ctx)
{
    if (!ctx->place_serial || ctx->place->serial != ctx->place_serial) {
        ctx->place = rlki_counters_place(&ctx->rank->counters, ctx->step, ctx->phase_key, ctx->work, ctx->iteration);
        ctx->place_serial = ctx->place->serial;
    }
    return ctx->place;
}

static uint32_t count(struct rlk_tap_ctx *ctx, rlk_u128 key)
{
    bool lost = false;
    pthread_mutex_lock(&ctx->rank->lock);
    uint32_t n = rlki_count_next(place_locked(ctx), key, &lost);
    pthread_mutex_unlock(&ctx->rank->lock);
    if (lost)
        rlki_fault("counters", "out of memory: calls and occurrences are no longer counted");
    return n;
}

void rlki_span_module_begin(struct rlk_tap_ctx *ctx, const char *path)
{
    rlki_ctx_follow(ctx);
    ctx->at = false;
    if (ctx->nframes == ctx->capacity) {
        uint32_t capacity = ctx->capacity ? ctx->capacity * 2 : 16;
        struct rlki_frame *frames = capacity > ctx->capacity ? realloc(ctx->frames, capacity * sizeof *frames) : NULL;
        if (!frames) {
            ctx->lost_frames++;
            return;
        }
        memset(frames + ctx->capacity, 0, (capacity - ctx->capacity) * sizeof *frames);
        ctx->frames = frames;
        ctx->capacity = capacity;
    }
    struct rlki_frame *frame = &ctx->frames[ctx->nframes++];
    rlki_text_set(&frame->path, path);
    frame->key = rlki_text_key(frame->path.s);
    /* An autotuner's calls of a module are not calls of the model. */
    rlk_u128 key = rlki_module_key(ctx->pass_key, frame->key);
    key.hi ^= ctx->autotune ? UINT64_C(0x9e3779b97f4a7c15) : 0;
    frame->call = count(ctx, key);
}

void rlki_span_module_end(struct rlk_tap_ctx *ctx)
{
    ctx->at = false;
    if (ctx->lost_frames)
        ctx->lost_frames--;
    else if (ctx->nframes)
        ctx->nframes--;
}

void rlki_span_module_at(struct rlk_tap_ctx *ctx, const char *path, const char *pass, uint32_t call)
{
    ctx->at = path != NULL;
    if (!path)
        return;
    struct rlki_frame *frame = &ctx->at_frame;
    if (!frame->path.s || strcmp(frame->path.s, path) != 0) { /* backward names one module many times */
        rlki_text_set(&frame->path, path);
        frame->key = rlki_text_key(frame->path.s);
    }
    frame->call = call;
    ctx->at_pass_set = pass != NULL;
    if (pass && (!ctx->at_pass.s || strcmp(ctx->at_pass.s, pass) != 0)) {
        rlki_text_set(&ctx->at_pass, pass);
        ctx->at_pass_key = rlki_text_key(ctx->at_pass.s);
    }
}

/* Module, pass and their key, as in force. */
static rlk_u128 in_force(const struct rlk_tap_ctx *ctx, struct rlk_identity *who)
{
    const struct rlki_frame *frame = ctx->at ? &ctx->at_frame : ctx->nframes ? &ctx->frames[ctx->nframes - 1] : NULL;
    bool own_pass = ctx->at && ctx->at_pass_set;
    who->module = frame && frame->path.s ? frame->path.s : "";
    who->call = frame ? frame->call : 0;
    who->pass = own_pass ? ctx->at_pass.s : ctx->pass.s;
    return rlki_module_key(own_pass ? ctx->at_pass_key : ctx->pass_key, frame ? frame->key : rlki_text_key(""));
}

void rlki_ctx_where(struct rlk_tap_ctx *ctx, struct rlk_identity *who)
{
    rlki_ctx_follow(ctx);
    in_force(ctx, who);
    who->step = ctx->step;
    who->work = ctx->work;
    who->iteration = ctx->iteration;
    who->phase = ctx->phase.s;
    who->sample = ctx->sample.s;
}

void rlki_ctx_identify(struct rlk_tap_ctx *ctx, struct rlk_identity *who)
{
    rlki_ctx_where(ctx, who);
    rlk_u128 module = in_force(ctx, who);
    who->occurrence = count(ctx, rlki_op_key(module, who->call, ctx->autotune != 0, who->op));
}

void rlki_ctx_forget_last(struct rlk_tap_ctx *ctx, const struct rlk_identity *who, bool autotune)
{
    rlk_u128 module = rlki_module_key(rlki_text_key(who->pass), rlki_text_key(who->module));
    rlk_u128 key = rlki_op_key(module, who->call, autotune, who->op);
    pthread_mutex_lock(&ctx->rank->lock);
    struct rlki_place *place =
        rlki_counters_place(&ctx->rank->counters, who->step, rlki_text_key(who->phase), who->work, who->iteration);
    rlki_count_undo(place, key, who->occurrence);
    ctx->place_serial = 0;
    pthread_mutex_unlock(&ctx->rank->lock);
}
