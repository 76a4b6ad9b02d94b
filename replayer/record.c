/* record.c - what a run tells the recorder: the operators through their listener, the rest by events of our own.
 *
 * Every held rank has a context. A buffer is known to the recorder by a generation that we give it when it is taken,
 * and a version that every write raises, so that inputs become references. Nothing here can fail the run: without
 * memory for the table of buffers, buffers are unknown, and inputs are digested.
 */
#include "replayer/rlk_folder.h"
#include "replayer/run.h"

#include "store/rlk_digest_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffers ---- */

static size_t slot_of(const struct rlki_rec *r, const void *data)
{
    size_t i = (size_t)(((uintptr_t)data >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (r->room - 1);
    while (r->known[i].data && r->known[i].data != data)
        i = (i + 1) & (r->room - 1);
    return i;
}

static bool grow(struct rlki_rec *r)
{
    const size_t old = r->room;
    struct rlki_known *from = r->known;
    r->known = calloc(old ? old * 2 : 4096, sizeof *r->known);
    if (!r->known) {
        r->known = from;
        return false;
    }
    r->room = old ? old * 2 : 4096;
    for (size_t i = 0; i < old; i++)
        if (from[i].data)
            r->known[slot_of(r, from[i].data)] = from[i];
    free(from);
    return true;
}

static struct rlki_known *known(struct rlki_rec *r, const void *data)
{
    if (!r->room)
        return NULL;
    struct rlki_known *k = &r->known[slot_of(r, data)];
    return k->data ? k : NULL;
}

struct rlki_known *rlki_rec_known(struct rlk_train *run, const void *data)
{
    return known(&run->rec, data);
}

void rlki_rec_fresh(struct rlk_train *run, const void *data)
{
    struct rlki_rec *r = &run->rec;
    if (!r->tap || !data || rlki_quiet(run))
        return;
    struct rlki_known *k = known(r, data);
    if (!k) {
        if (r->nknown * 2 >= r->room && !grow(r))
            return;
        k = &r->known[slot_of(r, data)];
        k->data = data;
        r->nknown++;
    } else {
        r->tap->storage_free(k->generation);
        rlki_shadow_free(run, k);
    }
    k->generation = r->tap->generation();
    k->version = 0;
    k->device = false;
}

void rlki_rec_fresh_device(struct rlk_train *run, const void *data)
{
    rlki_rec_fresh(run, data);
    struct rlki_known *k = run->rec.tap && data && !rlki_quiet(run) ? known(&run->rec, data) : NULL;
    if (k)
        k->device = run->x.device != RLK_DEVICE_CPU;
}

/* Can the recorder digest the tensor on the device, in stream order? Sums by sample are made on the host. */
static bool digested_there(const struct rlk_train *run, const struct rlki_known *k, const struct rlk_view *view,
                           const struct rlk_place *place)
{
    return k && k->device && run->rec.ordinal >= 0 && !run->rec.nsamples &&
           rlk_gpu_digest_plan(view, place, NULL) == RLK_OK;
}

/* Where the recorder can read `bytes` bytes of `data`: there, or a copy of what the stream has made of it. NULL: it
 * cannot. The copy waits for the stream. */
static const void *readable(struct rlk_train *run, const struct rlki_known *k, const void *data, size_t bytes)
{
    struct rlki_rec *r = &run->rec;
    if (run->x.device == RLK_DEVICE_CPU || (k && !k->device) || !data || !bytes)
        return data;
    if (!k)
        return NULL;
    if (bytes > r->staged) {
        void *more = realloc(r->staging, bytes);
        if (!more)
            return NULL;
        r->staging = more;
        r->staged = bytes;
    }
    return rlk_exec_download(&run->x, r->staging, data, bytes) ? NULL : r->staging;
}

void rlki_rec_written(struct rlk_train *run, const void *data)
{
    struct rlki_rec *r = &run->rec;
    struct rlki_known *k = r->tap && data ? known(r, data) : NULL;
    if (k && !rlki_quiet(run))
        k->version++;
}

/* ---- one tensor ---- */

/* A tensor as the tap takes it, with what its pointers lead to. */
struct shown {
    uint64_t shape[4];
    struct rlk_place place;
    struct rlk_tap_tensor t;
};

/* `written`: its version goes up. */
static void show(struct rlk_train *run, struct shown *out, const char *name, enum rlk_ktype type, const void *data,
                 const struct rlk_placement *at, bool written)
{
    uint64_t n = 1;
    const struct rlk_span *span = at->spans;
    out->place = (struct rlk_place){at->ndim,    at->shape,   at->nspans, (const void *)at->spans,
                                    at->partial, at->replica, at->zero};
    for (uint32_t d = 0; d < at->ndim; d++) {
        out->shape[d] = at->nspans[d] == RLK_K_WHOLE ? at->shape[d] : 0;
        for (uint32_t k = 0; at->nspans[d] != RLK_K_WHOLE && k < at->nspans[d]; k++)
            out->shape[d] += (span++)->extent;
        n *= out->shape[d];
    }
    struct rlki_known *k = data ? known(&run->rec, data) : NULL;
    if (k && written)
        k->version++;
    const size_t bytes = (size_t)n * rlk_ktype_bytes(type);
    /* The values of enum rlk_ktype are those of enum rlk_dtype (kernels/rlk_kbase.h). */
    const struct rlk_view there = {
        .dtype = (enum rlk_dtype)type, .ndim = at->ndim, .shape = out->shape, .storage = data, .storage_bytes = bytes};
    const bool device = bytes && digested_there(run, k, &there, &out->place);
    const void *from = device ? data : readable(run, k, data, bytes);
    out->t = (struct rlk_tap_tensor){.name = name,
                                     .view = {.dtype = (enum rlk_dtype)type,
                                              .ndim = at->ndim,
                                              .shape = out->shape,
                                              .storage = from,
                                              .storage_bytes = bytes},
                                     .state = from || !bytes ? RLK_T_DIGESTED : RLK_T_NOT_DIGESTED,
                                     .reason = "device",
                                     .place = &out->place,
                                     .generation = k ? k->generation : 0,
                                     .version = k ? k->version : 0,
                                     .device = device ? RLK_TAP_CUDA : RLK_TAP_HOST,
                                     .ordinal = run->rec.ordinal,
                                     .stream = run->x.stream};
}

static void tell(struct rlk_train *run, struct rlk_tap_op *op, const char *name, enum rlk_ktype type, const void *data,
                 const struct rlk_placement *at, bool output, bool bump)
{
    struct rlki_rec *r = &run->rec;
    struct shown s;
    show(run, &s, name, type, data, at, output && bump);
    s.t.nsamples = r->nsamples;
    s.t.samples = r->samples;
    s.t.payload = r->payload;
    struct rlk_sums sums;
    if (output && rlki_sums(run, known(r, data), &s.t, r->grows, &sums))
        s.t.sums = &sums;
    if (output)
        r->tap->op_out(op, &s.t);
    else
        r->tap->op_in(op, &s.t);
    if (!output && s.t.device)
        r->tap->op_run(op); /* digested now: the operator may write over it */
}

/* Placement of rank i's part; spans has room for what it needs. false: too many spans. */
struct placed {
    struct rlk_placement at;
    uint64_t shape[3];
    uint32_t nspans[3];
    struct rlk_span span[256];
};

static bool place_of(const struct rlk_world *w, const struct rlki_named *t, int i, struct placed *p)
{
    uint32_t used = 0;
    p->at = (struct rlk_placement){(uint32_t)t->ndim, p->shape, p->nspans, p->span, t->partial, t->replica, NULL};
    for (int d = 0; d < t->ndim; d++) {
        const struct rlk_span *s = NULL;
        struct rlk_span one = {0, 0};
        uint32_t n = 1;
        p->shape[d] = (uint64_t)t->dim[d].n;
        p->nspans[d] = RLK_K_WHOLE;
        switch (t->dim[d].kind) {
        case RLKI_AXIS_WHOLE:
            continue;
        case RLKI_AXIS_TOKENS:
            p->shape[d] = (uint64_t)rlk_batch_tokens(t->batch);
            n = rlk_batch_spans(t->batch, rlk_world_cp(w, i), &s);
            break;
        case RLKI_AXIS_SLABS:
            one = rlk_slab_span(&w->lat, rlk_world_tp(w, i), t->dim[d].n);
            break;
        case RLKI_AXIS_VOCAB:
            one = rlk_vocab_span(&w->lat, rlk_world_tp(w, i), t->dim[d].n);
            break;
        }
        if (!s) {
            s = &one;
            n = one.extent ? 1 : 0;
        }
        if (used + n > 256)
            return false;
        for (uint32_t k = 0; k < n; k++)
            p->span[used++] = s[k];
        p->nspans[d] = n;
    }
    return true;
}

/* ---- the operators' listener ---- */

/* These the run records itself, */
static bool ours(const char *op)
{
    return strcmp(op, "rlk.adamw") == 0 || strcmp(op, "rlk.gradnorm") == 0 || strcmp(op, "rlk.attention.append") == 0;
}

/* and these tensors: a cache whole (rlki_rec_also), a loss as what the micro-batches add up to. */
static bool left_out(const struct rlk_observed *t)
{
    return t->type == RLK_K_FP64 || strcmp(t->name, "k_cache") == 0 || strcmp(t->name, "v_cache") == 0;
}

static void heard_begin(void *self, const struct rlk_op_event *event)
{
    struct rlk_train *run = self;
    struct rlki_rec *r = &run->rec;
    rlki_plant_begin(run, event);
    if (!r->tap || r->muted || ours(event->op))
        return;
    struct rlk_tap_ctx *ctx = r->ctx[event->rank];
    if (r->call != event->call)
        rlki_twins_forget(run);
    r->call = event->call;
    r->tap->module_begin(ctx, event->module);
    r->op[event->rank] = r->tap->op_begin(ctx, event->op, event->contract);
    for (int k = 0; k < r->attrs; k++)
        r->tap->op_attr(r->op[event->rank], &r->attr[k]);
    const struct rlk_world *w = run->in_rollout ? &run->roll : &run->train;
    for (int k = 0; r->op[event->rank] && k < r->extras; k++) {
        struct placed p;
        const struct rlki_extra *e = &r->extra[k];
        if (place_of(w, &e->t, event->rank, &p))
            tell(run, r->op[event->rank], e->t.name, e->t.type, e->data->p[event->rank], &p.at, false, false);
    }
}

/* Per-sample sums for the next tensor, where it has the tokens of the micro-batch and none yet. */
static bool samples_begin(struct rlki_rec *r, bool by_token)
{
    if (!by_token || !r->rows || r->samples)
        return false;
    r->nsamples = (uint32_t)r->rows->n;
    r->samples = r->rows->part;
    return true;
}

static void samples_end(struct rlki_rec *r, bool begun)
{
    if (!begun)
        return;
    r->nsamples = 0;
    r->samples = NULL;
}

void rlki_rec_micro(struct rlk_train *run, const struct rlki_micro *m)
{
    free(run->rec.rows);
    run->rec.rows = NULL;
    if (m && run->rec.tap && run->opt.by_sample)
        run->rec.rows = rlki_rows_of(run, m->who, m->count, 0, 0);
}

static void heard_tensor(void *self, const struct rlk_op_event *event, const struct rlk_observed *t)
{
    struct rlk_train *run = self;
    rlki_plant_tensor(run, event, t);
    if (!run->rec.tap || ours(event->op) || left_out(t))
        return;
    struct rlki_known *k = t->data && t->output ? known(&run->rec, t->data) : NULL;
    const bool sums = samples_begin(&run->rec, t->by_token && !run->in_rollout);
    if (t->output && !run->rec.holding && !run->rec.muted)
        rlki_rec_hold(run, true);
    if (run->rec.op[event->rank])
        tell(run, run->rec.op[event->rank], t->name, t->type, t->data, &t->at, t->output, true);
    else if (k)
        k->version++; /* left out by the level, written all the same */
    samples_end(&run->rec, sums);
}

/* "N" or ",N", without the NUL: printf would be a tenth of the recording. */
static size_t digits(char *to, bool comma, int n)
{
    size_t at = 0;
    if (comma)
        to[at++] = ',';
    if (n >= 10)
        to[at++] = (char)('0' + n / 10);
    to[at++] = (char)('0' + n % 10);
    return at;
}
_Static_assert(RLKI_RANKS <= 100, "a rank has two digits");

/* Whose inputs the operator of this rank has read: the ranks that share its other coordinates. */
static void combines(struct rlk_train *run, const struct rlk_world *w, int rank, unsigned groups)
{
    const int T = w->lat.tp, C = w->lat.cp;
    char text[RLKI_RANKS * 3 + 1];
    size_t n = 0;
    for (int r = 0; groups && r < T * C; r++) {
        const bool same_tp = r % T == rank % T, same_cp = r / T == rank / T;
        if ((same_tp || (groups & 1u << RLK_GROUP_TP)) && (same_cp || (groups & 1u << RLK_GROUP_CP)))
            n += digits(text + n, n > 0, r);
    }
    text[n] = '\0';
    const struct rlk_attr a = {"combines", RLK_ATTR_STRING, 0, 0.0, text};
    if (n && run->rec.op[rank])
        run->rec.tap->op_attr(run->rec.op[rank], &a);
}

static void heard_end(void *self, const struct rlk_op_event *event)
{
    struct rlk_train *run = self;
    struct rlki_rec *r = &run->rec;
    if (!r->tap || ours(event->op))
        return;
    r->extras = r->attrs = 0; /* every rank has begun by now */
    const struct rlk_world *w = run->in_rollout ? &run->roll : &run->train;
    if (r->muted)
        return;
    combines(run, w, event->rank, event->groups);
    r->tap->op_end(r->op[event->rank]);
    r->op[event->rank] = NULL;
    r->tap->module_end(r->ctx[event->rank]);
    if (event->rank == w->rank[w->held - 1] && !run->x.told)
        rlki_rec_hold(run, false); /* the next operator may write to what this one has written */
}

void rlki_rec_hold(struct rlk_train *run, bool on)
{
    struct rlki_rec *r = &run->rec;
    if (r->tap && r->ordinal >= 0 && r->tap->hold)
        r->tap->hold(on);
    r->holding = on;
}

void rlki_rec_also(struct rlk_train *run, const struct rlki_named *t, const struct rlki_ptrs *data)
{
    struct rlki_rec *r = &run->rec;
    if (r->tap && !rlki_quiet(run) && r->extras < 8)
        r->extra[r->extras++] = (struct rlki_extra){*t, data};
}

static void tell_program(struct rlk_train *run)
{
    const struct rlk_train_options *o = &run->opt;
    char text[640];
    snprintf(text, sizeof text, "tp%dcp%d", o->tp, o->cp);
    run->rec.tap->meta("layout", text);
    snprintf(text, sizeof text, "tp%dcp%d", o->rollout_tp, o->rollout_cp);
    run->rec.tap->meta("rlktrain.rollout_layout", text);
    run->rec.tap->meta("rlk.program", "1");
    if (run->rec.program) {
        run->rec.tap->meta("rlktrain.program", run->rec.program);
        return;
    }
    char packing[64] = "";
    if (o->score_batches || o->reverse)
        snprintf(packing, sizeof packing, " score_batches=%d reverse=%d", o->score_batches, (int)o->reverse);
    snprintf(
        text, sizeof text,
        "model=%s seed=%llu samples=%d group=%d prompt=%d new=%d stop_ids=%d micro_batches=%d temperature=%.9g "
        "top_p=%.9g lr=%.9g beta1=%.9g beta2=%.9g adam_eps=%.9g weight_decay=%.9g clip=%.9g kl=%.9g max_norm=%.17g%s "
        "contract=%s plant=%s",
        o->model.name, (unsigned long long)o->seed, o->samples, o->group, o->prompt, o->fresh, o->stop_ids,
        o->micro_batches, (double)o->temperature, (double)o->top_p, (double)o->lr, (double)o->beta1, (double)o->beta2,
        (double)o->adam_eps, (double)o->weight_decay, (double)o->clip_ratio, (double)o->kl_coef, o->max_norm, packing,
        o->contract, o->plant ? o->plant : "none");
    run->rec.tap->meta("rlktrain.program", text);
    if (o->folder)
        run->rec.tap->meta("rlktrain.folder", rlk_folder_path(o->folder)); /* model=folder */
}

int rlki_rec_init(struct rlk_train *run)
{
    struct rlki_rec *r = &run->rec;
    const int ranks = run->train.held > run->roll.held ? run->train.held : run->roll.held;
    r->observe = (struct rlk_observe){run, heard_begin, heard_tensor, heard_end};
    r->tap = rlk_tap();
    for (int i = 0; r->tap && i < ranks; i++)
        if (!(r->ctx[i] = r->tap->ctx((uint32_t)i)))
            r->tap = NULL; /* detached */
    r->twins = r->tap && ranks > 1 ? rlki_twins_new() : NULL;
    r->ordinal = r->tap && r->tap->abi >= 2 ? rlk_exec_ordinal(&run->x) : -1;
    if (r->tap)
        tell_program(run);
    if (r->tap || run->plant.which >= 0)
        run->x.observe = &r->observe;
    return 0;
}

void rlki_rec_release(struct rlk_train *run)
{
    for (size_t i = 0; i < run->rec.room; i++)
        rlki_shadow_free(run, &run->rec.known[i]);
    free(run->rec.known);
    free(run->rec.twins);
    free(run->rec.staging);
    free(run->rec.rows);
    run->rec = (struct rlki_rec){0};
}

/* ---- spans ---- */

static int ranks_of(const struct rlk_train *run)
{
    return run->train.held > run->roll.held ? run->train.held : run->roll.held;
}

#define EACH(call, ...)                                                                                                \
    do {                                                                                                               \
        for (int i = 0; run->rec.tap && i < ranks_of(run); i++)                                                        \
            run->rec.tap->call(run->rec.ctx[i], __VA_ARGS__);                                                          \
    } while (0)

void rlki_rec_step(struct rlk_train *run, int64_t step)
{
    EACH(step, step);
}

void rlki_rec_phase(struct rlk_train *run, const char *phase)
{
    EACH(phase, phase);
}

void rlki_rec_work(struct rlk_train *run, int64_t work, int64_t iteration)
{
    EACH(work, work, iteration);
}

void rlki_rec_pass(struct rlk_train *run, const char *pass)
{
    run->pass = pass;
    if (!run->x.measuring)
        EACH(pass, pass);
}

/* ---- events of our own ---- */

void rlki_rec_begin(struct rlk_train *run, const struct rlk_world *w, const char *module, const char *op,
                    const char *contract)
{
    struct rlki_rec *r = &run->rec;
    for (int i = 0; r->tap && !r->muted && i < w->held; i++) {
        r->tap->module_begin(r->ctx[w->rank[i]], module);
        r->op[w->rank[i]] = r->tap->op_begin(r->ctx[w->rank[i]], op, contract);
        for (int k = 0; k < r->attrs; k++)
            r->tap->op_attr(r->op[w->rank[i]], &r->attr[k]);
    }
    rlki_twins_forget(run);
    r->attrs = 0;
}

void rlki_rec_end(struct rlk_train *run, const struct rlk_world *w)
{
    struct rlki_rec *r = &run->rec;
    for (int i = 0; r->tap && !r->muted && i < w->held; i++) {
        r->tap->op_end(r->op[w->rank[i]]);
        r->op[w->rank[i]] = NULL;
        r->tap->module_end(r->ctx[w->rank[i]]);
    }
}

void rlki_rec_attr_put(struct rlk_train *run, const struct rlk_attr *attr)
{
    struct rlki_rec *r = &run->rec;
    if (r->tap && !rlki_quiet(run) && r->attrs < (int)(sizeof r->attr / sizeof r->attr[0]))
        r->attr[r->attrs++] = *attr;
}

void rlki_rec_attr(struct rlk_train *run, const char *key, double value)
{
    const struct rlk_attr a = {key, RLK_ATTR_DOUBLE, 0, value, NULL};
    rlki_rec_attr_put(run, &a);
}

void rlki_rec_attr_int(struct rlk_train *run, const char *key, int64_t value)
{
    const struct rlk_attr a = {key, RLK_ATTR_INT, value, 0.0, NULL};
    rlki_rec_attr_put(run, &a);
}

void rlki_rec_batch(struct rlk_train *run, const struct rlk_world *w, int n, const int32_t *runs)
{
    struct rlki_rec *r = &run->rec;
    struct rlk_attr *attr = r->tap && !r->muted ? calloc((size_t)n + 1, sizeof *attr) : NULL;
    char(*text)[48] = attr ? calloc((size_t)n + 1, sizeof *text) : NULL;
    struct rlk_event e = {.kind = RLK_EV_NOTE, .nattrs = (uint32_t)n + 1, .attrs = attr};
    for (int i = 0; text && i < n; i++) {
        const int32_t *p = runs + 4 * i;
        snprintf(text[i], sizeof text[i], "%d %d %d %d", p[0], p[1], p[2], p[3]);
        attr[i + 1] = (struct rlk_attr){.key = "run", .type = RLK_ATTR_STRING, .s = text[i]};
    }
    e.u.note.code = RLKI_BATCH;
    e.u.note.text = w == &run->roll ? "rollout" : "trainer";
    if (text) {
        attr[0] = (struct rlk_attr){.key = "samples", .type = RLK_ATTR_INT, .i = run->opt.samples};
        r->tap->event(r->ctx[0], &e);
    }
    free(text);
    free(attr);
}

void rlki_rec_combines(struct rlk_train *run, const struct rlk_world *w, bool cp)
{
    unsigned groups = w->lat.tp > 1 ? 1u << RLK_GROUP_TP : 0;
    groups |= cp && w->lat.cp > 1 ? 1u << RLK_GROUP_CP : 0;
    for (int i = 0; run->rec.tap && !run->rec.muted && i < w->held; i++)
        combines(run, w, w->rank[i], groups);
}

void rlki_rec_tensor(struct rlk_train *run, const struct rlk_world *w, const struct rlki_named *t,
                     const void *const *data, bool output)
{
    const bool sums = samples_begin(&run->rec, t->ndim && t->dim[0].kind == RLKI_AXIS_TOKENS && run->micro &&
                                                   t->batch == run->micro->batch);
    for (int i = 0; run->rec.tap && i < w->held; i++) {
        struct placed p;
        struct rlk_tap_op *op = run->rec.op[w->rank[i]];
        if (op && place_of(w, t, i, &p))
            tell(run, op, t->name, t->type, data[i], &p.at, output, true);
        else if (output)
            rlki_rec_written(run, data[i]);
    }
    samples_end(&run->rec, sums);
}

struct rlki_named rlki_named_parameter(const struct rlki_weight *w, const char *name, enum rlk_ktype type)
{
    const enum rlki_axis rows = w->cut != RLK_CUT_OUT ? RLKI_AXIS_WHOLE : w->vocab ? RLKI_AXIS_VOCAB : RLKI_AXIS_SLABS;
    const enum rlki_axis cols = w->cut == RLK_CUT_IN ? RLKI_AXIS_SLABS : RLKI_AXIS_WHOLE;
    struct rlki_named t = {"", type, 2, {{rows, w->rows}, {cols, w->cols}}, NULL, "cp", NULL};
    if (w->ndim == 1)
        t = (struct rlki_named){"", type, 1, {{RLKI_AXIS_WHOLE, w->cols}}, NULL, "tp", NULL};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

void rlki_rec_weights(struct rlk_train *run, const struct rlk_world *w, const char *version, const char *side,
                      const struct rlki_ptrs *weight)
{
    struct rlki_rec *r = &run->rec;
    if (w == &run->train) /* the rollout's may be the trainer's */
        rlki_twins_forget(run);
    for (int i = 0; r->tap && !r->muted && i < w->held; i++) {
        struct rlk_tap_op *op = r->tap->weights_begin(r->ctx[w->rank[i]], version, side);
        for (int p = 0; op && p < run->params; p++) {
            const struct rlki_named t = rlki_named_parameter(&run->param[p], run->param[p].name, RLK_K_BF16);
            struct placed at;
            if (place_of(w, &t, i, &at))
                tell(run, op, t.name, t.type, weight[p].p[i], &at.at, true, false);
        }
        r->tap->op_end(op);
    }
}

static void one_leaf(struct rlk_train *run, int i, const struct rlki_named *t, const void *data,
                     const struct rlki_source *source)
{
    struct rlki_rec *r = &run->rec;
    const struct rlk_world *w = &run->train;
    struct placed at;
    struct shown s;
    if (!place_of(w, t, i, &at))
        return;
    show(run, &s, t->name, t->type, data, &at.at, false);
    struct rlk_sums sums;
    if (rlki_sums(run, known(r, data), &s.t, false, &sums))
        s.t.sums = &sums;
    r->tap->leaf(r->ctx[w->rank[i]], &s.t, source->reference, source->sha256, source->generator, source->seed);
}

static void leaf(struct rlk_train *run, const struct rlki_weight *p, const char *prefix, enum rlk_ktype type,
                 const struct rlki_ptrs *at, const struct rlki_source *source)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    const struct rlki_named t = rlki_named_parameter(p, name, type);
    for (int i = 0; run->rec.tap && !run->rec.muted && i < run->train.held; i++)
        one_leaf(run, i, &t, at->p[i], source);
}

void rlki_rec_leaf(struct rlk_train *run, const struct rlki_weight *p, const char *prefix, enum rlk_ktype type,
                   const struct rlki_ptrs *at, const struct rlki_source *source)
{
    rlki_twins_forget(run);
    leaf(run, p, prefix, type, at, source);
}

void rlki_rec_leaves(struct rlk_train *run)
{
    static const char *const prefix[] = {"", RLKI_REF, RLKI_MASTER, RLKI_EXP_AVG, RLKI_EXP_AVG_SQ};
    struct rlki_ptrs *const set[] = {run->weight, run->ref, run->master, run->m, run->v};
    static const struct rlki_source zeros = {NULL, NULL, RLKI_ZEROS, 0};
    rlki_twins_forget(run);
    for (int k = 0; run->rec.tap && k < 5; k++)
        for (int p = 0; p < run->params; p++) {
            char where[600] = "", sha256[65] = "";
            struct rlki_source from = {NULL, NULL, RLKI_GENERATOR, run->opt.seed};
            if (run->opt.folder && k < 3)
                from = rlk_folder_source(run->opt.folder, run->param[p].name, where, sha256, NULL)
                           ? (struct rlki_source){0}
                           : (struct rlki_source){where, sha256, NULL, 0};
            leaf(run, &run->param[p], prefix[k], k < 2 ? RLK_K_BF16 : RLK_K_FP32, &set[k][p], k < 3 ? &from : &zeros);
        }
}

/* A time is a note, not a metric: it says how long this run took, and is never a difference between two. It is known
 * when the ranks are in the next step already: the attribute says which one it belongs to. */
static void record_time(struct rlk_train *run, const char *name, double value)
{
    char text[40];
    const struct rlk_attr step = {"step", RLK_ATTR_INT, run->step, 0.0, NULL};
    struct rlk_event e = {.kind = RLK_EV_NOTE, .nattrs = 1, .attrs = &step};
    snprintf(text, sizeof text, "%.17g", value);
    e.u.note.code = name;
    e.u.note.text = text;
    run->rec.tap->event(run->rec.ctx[0], &e);
}

void rlki_rec_metric(struct rlk_train *run, const char *name, double value)
{
    if (!run->rec.tap || run->rec.muted)
        return;
    if (strncmp(name, "perf/", 5) == 0)
        record_time(run, name, value);
    else
        run->rec.tap->metric(run->rec.ctx[0], name, value);
}

void rlki_rec_readbacks(struct rlk_train *run)
{
    struct rlk_readback all[64];
    if (!run->rec.tap || run->rec.muted)
        return;
    size_t n = rlk_policy_readbacks(run->policy, all, 64);
    for (size_t i = 0; i < n && i < 64; i++) {
        const struct rlk_readback *b = &all[i];
        char module[64];
        snprintf(module, sizeof module, "%s.%s", b->side == RLK_SIDE_TRAINING ? "training" : "rollout",
                 rlk_module_name(b->module));
        run->rec.tap->readback(run->rec.ctx[0], module, b->case_id,
                               b->actual == RLK_IMPL_CONTRACT ? "contract" : "provider", b->contract,
                               b->contract_calls + b->provider_calls);
    }
}

void rlki_rec_request(struct rlk_train *run, int sample)
{
    const struct rlki_sample *p = &run->sample[sample];
    char id[32], version[32];
    const char *versions[1] = {version};
    if (!run->rec.tap || run->rec.muted)
        return;
    int64_t *token = malloc((size_t)p->length * sizeof *token);
    if (!token)
        return;
    for (int32_t i = 0; i < p->length; i++)
        token[i] = p->token[i];
    snprintf(id, sizeof id, "s%d", sample);
    snprintf(version, sizeof version, "weight_v%06lld", (long long)run->step + 1);
    struct rlk_event e = {.kind = RLK_EV_REQUEST, .id = ""};
    e.u.request.id = id;
    e.u.request.logprob_kind = "processed";
    e.u.request.ntokens = (uint32_t)p->length;
    e.u.request.tokens = token;
    e.u.request.nversions = 1;
    e.u.request.versions = versions;
    run->rec.tap->event(run->rec.ctx[0], &e);
    free(token);
}
