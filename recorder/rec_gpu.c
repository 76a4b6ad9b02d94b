/* rec_gpu.c - digests of device tensors: which context, which ring, what if not. rec_gpu.h has the rules. */
#include "recorder/rec_gpu.h"
#include "recorder/rec_op.h"
#include "store/rlk_digest_gpu.h"
#include "store/rlk_place.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CONTEXTS 16u
#define RING 32768u          /* results outstanding in a context */
#define SEATS (2 * RING)     /* so that the next launch's tickets can be seated before there is room */
#define TICKETS 131072u      /* and those that the writer has not taken yet */
#define WAIT_NS 100000000    /* for a full ring, once a stall */
#define SETTLE_NS 2000000000 /* at the end, without a result */
#define MAX_REFUSED 3u       /* launches refused in a row, and the context is left alone */

struct context {
    struct rlki_gpu *gpu;
    void *handle;       /* CUcontext; a later one may have the same */
    uint64_t id;        /* no later one has it */
    int gone;           /* atomic: another context has its handle */
    const char *reason; /* atomic: why nothing is digested here; NULL = it is */
    struct rlk_gpu_digester *digester;
    pthread_mutex_t enqueue, drain;
    uint64_t *tickets; /* ours, by the digester's ticket % SEATS; atomic */
    uint32_t refused;  /* under `enqueue` */
    int stalled;       /* atomic */
};

struct rlki_gpu {
    struct rlki_rec *state;
    struct rlki_gpu_driver cu;
    bool driver; /* there is one */
    int closed;  /* atomic */
    struct rlki_slots *slots;
    pthread_mutex_t lock; /* guards the making of contexts */
    uint32_t ncontexts;   /* atomic */
    struct context context[MAX_CONTEXTS];
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* What this thread asks of the driver is not the program's: the launch plane looks away. */
static void own(bool on)
{
    const struct rlki_launch_hooks *plane = rlki_launch_plane();
    if (plane && plane->own)
        plane->own(on);
}

/* ---- results */
static void take_result(void *value, uint64_t ticket, const struct rlk_sums *sums)
{
    struct context *c = value;
    rlki_slots_arrived(c->gpu->slots, __atomic_load_n(&c->tickets[ticket % SEATS], __ATOMIC_RELAXED), sums);
}

/* Takes over what has arrived; false: nothing, or another thread is at it. */
static bool drain(struct context *c)
{
    size_t n = 0;
    if (!c->digester || pthread_mutex_trylock(&c->drain))
        return false;
    n = rlk_gpu_digest_drain(c->digester, take_result, c);
    pthread_mutex_unlock(&c->drain);
    if (n)
        __atomic_store_n(&c->stalled, 0, __ATOMIC_RELAXED);
    return n > 0;
}

static bool drain_all(struct rlki_gpu *gpu)
{
    bool any = false;
    const uint32_t n = __atomic_load_n(&gpu->ncontexts, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++)
        any |= drain(&gpu->context[i]);
    return any;
}

int rlki_gpu_resolve(void *state, uint64_t ticket, struct rlk_sums *sums)
{
    struct rlki_gpu *gpu = __atomic_load_n(&((struct rlki_rec *)state)->gpu, __ATOMIC_ACQUIRE);
    if (!gpu)
        return RLK_EINVAL;
    int rc = rlki_slots_result(gpu->slots, ticket, sums);
    if (rc == RLK_EAGAIN && drain_all(gpu))
        rc = rlki_slots_result(gpu->slots, ticket, sums);
    return rc;
}

void rlki_gpu_stalled(struct rlki_rec *state)
{
    struct rlki_gpu *gpu = __atomic_load_n(&state->gpu, __ATOMIC_ACQUIRE);
    uint64_t arrived;
    if (!gpu)
        return;
    drain_all(gpu);
    if (rlki_slots_waiting(gpu->slots, &arrived)) {
        rlki_slots_give_up(gpu->slots, false);
        rlki_fault("gpu-stall",
                   "digests on a device do not come and events wait for them: some tensors are not digested");
    }
}

void rlki_gpu_forget(struct rlki_rec *state, const struct rlk_tensor *tensors, uint32_t n)
{
    struct rlki_gpu *gpu = __atomic_load_n(&state->gpu, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; gpu && i < n; i++)
        if (tensors[i].state == RLK_T_PENDING && tensors[i].ticket)
            rlki_slots_forget(gpu->slots, tensors[i].ticket);
}

/* ---- the plane and its contexts */
static void at_exit(void)
{
    struct rlki_rec *state = rlki_rec_now();
    if (state) /* before the driver's own end: what is under way still arrives */
        rlki_gpu_close(state);
}

static struct rlki_gpu *plane_new(struct rlki_rec *state)
{
    struct rlk_detail detail = {""};
    struct rlki_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu || !(gpu->slots = rlki_slots_new(TICKETS))) {
        free(gpu);
        rlki_fault("gpu-memory", "out of memory: tensors on a device are not digested");
        return NULL;
    }
    gpu->state = state;
    pthread_mutex_init(&gpu->lock, NULL);
    gpu->driver = rlki_gpu_driver_open(&gpu->cu, &detail) == RLK_OK;
    if (!gpu->driver)
        rlki_fault("gpu-none", detail.text);
    return gpu;
}

static struct rlki_gpu *plane(struct rlki_rec *state)
{
    struct rlki_gpu *gpu = __atomic_load_n(&state->gpu, __ATOMIC_ACQUIRE), *fresh;
    if (gpu)
        return gpu;
    fresh = plane_new(state);
    if (!fresh)
        return NULL;
    if (!__atomic_compare_exchange_n(&state->gpu, &gpu, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        rlki_slots_free(fresh->slots); /* another thread was first */
        pthread_mutex_destroy(&fresh->lock);
        free(fresh);
        return gpu;
    }
    static int asked; /* of the process: a forked child inherits the handler */
    if (!__atomic_exchange_n(&asked, 1, __ATOMIC_RELAXED))
        atexit(at_exit);
    rlki_injection_check(true);
    return fresh;
}

static const char *reason_of(int rc)
{
    return rc == RLK_ENOMEM ? "gpu-memory" : "gpu-none";
}

static void open_context(struct rlki_gpu *gpu, struct context *c, void *handle, uint64_t id)
{
    struct rlk_detail detail = {""};
    char text[640];
    c->gpu = gpu;
    c->handle = handle;
    c->id = id;
    pthread_mutex_init(&c->enqueue, NULL);
    pthread_mutex_init(&c->drain, NULL);
    int rc = RLK_ENOMEM;
    c->tickets = calloc(SEATS, sizeof *c->tickets);
    if (c->tickets)
        rc = rlk_gpu_digester_new(&c->digester, RING, &detail);
    if (rc == RLK_OK)
        return;
    c->reason = reason_of(rc);
    snprintf(text, sizeof text, "%.500s: tensors on this device are not digested",
             detail.text[0] ? detail.text : rlk_error_sentence(rc));
    rlki_fault(c->reason, text);
}

static struct context *find_context(struct rlki_gpu *gpu, const void *handle, uint64_t id)
{
    const uint32_t n = __atomic_load_n(&gpu->ncontexts, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++)
        if (gpu->context[i].handle == handle && gpu->context[i].id == id)
            return &gpu->context[i];
    return NULL;
}

/* The program destroyed the context that had this handle: what is on its way from there never comes, and what we have
 * there is no longer touched (the ring is the host's own memory). Under the lock. */
static void bury(struct rlki_gpu *gpu, const void *handle)
{
    for (uint32_t i = 0; i < gpu->ncontexts; i++) {
        struct context *c = &gpu->context[i];
        if (c->handle != handle || __atomic_exchange_n(&c->gone, 1, __ATOMIC_RELAXED))
            continue;
        drain(c);
        rlki_slots_owner_died(gpu->slots, i);
    }
}

/* The ring of this context, made when it is first met; NULL: too many. The context is current. */
static struct context *context_of(struct rlki_gpu *gpu, void *handle)
{
    const uint64_t id = rlki_gpu_context_id(&gpu->cu, handle);
    struct context *c = find_context(gpu, handle, id);
    if (c)
        return c;
    pthread_mutex_lock(&gpu->lock);
    c = find_context(gpu, handle, id);
    if (!c)
        bury(gpu, handle);
    if (!c && gpu->ncontexts < MAX_CONTEXTS) {
        c = &gpu->context[gpu->ncontexts];
        open_context(gpu, c, handle, id);
        __atomic_store_n(&gpu->ncontexts, gpu->ncontexts + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&gpu->lock);
    return c;
}

/* ---- from an operator to the ring */
static struct rlk_tensor *tensor_of(const struct rlk_tap_op *op, const struct rlki_gpu_item *item)
{
    return item->role == RLK_ROLE_IN ? &op->in[item->index] : &op->out[item->index];
}

static void give_up(const struct rlk_tap_op *op, const struct rlki_gpu_item *items, uint32_t n, const char *reason)
{
    for (uint32_t i = 0; i < n; i++) {
        struct rlk_tensor *t = tensor_of(op, &items[i]);
        t->state = RLK_T_NOT_DIGESTED;
        t->reason = reason;
        t->ticket = 0;
    }
}

static uint64_t elements_of(const struct rlk_view *view)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < view->ndim; d++)
        n *= view->shape[d];
    return n;
}

/* Waits for room in a full ring: a moment, once. False: there is none. */
static bool wait_for_room(struct context *c)
{
    if (__atomic_load_n(&c->stalled, __ATOMIC_RELAXED))
        return drain(c);
    for (const int64_t end = now_ns() + WAIT_NS; now_ns() < end; nap())
        if (drain(c))
            return true;
    __atomic_store_n(&c->stalled, 1, __ATOMIC_RELAXED);
    rlki_slots_give_up(c->gpu->slots, false);
    rlki_fault("gpu-stall",
               "a device does not finish what it is given and the ring of digests is full: some tensors are "
               "not digested");
    return false;
}

/* A launch that the driver refused. A context that is broken stays so: it is the program's error, which its own next
 * call meets as it would have. */
static void refused(struct context *c, const char *why)
{
    char text[640];
    bool last = false;
    pthread_mutex_lock(&c->enqueue);
    last = ++c->refused == MAX_REFUSED;
    pthread_mutex_unlock(&c->enqueue);
    snprintf(text, sizeof text, "%.500s: tensors on this device are not digested", why);
    rlki_fault("gpu-launch", text);
    if (!last)
        return;
    drain(c);
    __atomic_store_n(&c->reason, "gpu-launch", __ATOMIC_RELEASE);
    rlki_slots_owner_died(c->gpu->slots, (uint32_t)(c - c->gpu->context));
}

/* One attempt. The ring's next tickets are known before the launch, so that no result finds ours missing. */
static int try_launch(struct context *c, const struct rlk_view *views, const struct rlk_place *const *places,
                      const uint64_t *tickets, uint32_t n, void *stream, struct rlk_detail *detail)
{
    uint64_t first = 0;
    pthread_mutex_lock(&c->enqueue);
    const uint64_t next = rlk_gpu_digest_next(c->digester);
    for (uint32_t i = 0; i < n; i++)
        __atomic_store_n(&c->tickets[(next + i) % SEATS], tickets[i], __ATOMIC_RELAXED);
    int rc = rlk_gpu_digest_enqueue(c->digester, views, places, n, stream, false, &first, detail);
    if (rc == RLK_OK)
        c->refused = 0;
    pthread_mutex_unlock(&c->enqueue);
    return rc;
}

/* Digests n tensors by one launch, or by several where one does not take them all. */
static void launch(const struct rlk_tap_op *op, struct context *c, const struct rlki_gpu_item *items, uint32_t n)
{
    struct rlk_view views[RLK_GPU_MAX_TENSORS];
    const struct rlk_place *places[RLK_GPU_MAX_TENSORS];
    uint64_t tickets[RLK_GPU_MAX_TENSORS], elements[RLK_GPU_MAX_TENSORS] = {0};
    struct rlk_detail detail = {""};
    const char *reason = __atomic_load_n(&c->reason, __ATOMIC_ACQUIRE);
    if (reason) {
        give_up(op, items, n, reason);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        views[i] = items[i].view;
        places[i] = items[i].place;
        elements[i] = elements_of(&items[i].view);
    }
    if (!rlki_slots_take(c->gpu->slots, tickets, elements, n, (uint32_t)(c - c->gpu->context))) {
        give_up(op, items, n, "ring-full");
        return;
    }
    int rc = try_launch(c, views, places, tickets, n, items->stream, &detail);
    if (rc == RLK_EFULL && wait_for_room(c))
        rc = try_launch(c, views, places, tickets, n, items->stream, &detail);
    for (uint32_t i = 0; i < n && rc == RLK_OK; i++)
        tensor_of(op, &items[i])->ticket = tickets[i];
    if (rc == RLK_OK)
        return;
    for (uint32_t i = 0; i < n; i++)
        rlki_slots_untake(c->gpu->slots, tickets[i]);
    if (rc == RLK_EFULL) {
        give_up(op, items, n, "ring-full");
    } else if (rc == RLK_ESTATE) {
        give_up(op, items, n, "gpu-launch");
        refused(c, detail.text);
    } else if (n > 1) { /* one of them does not fit, or all do not fit together */
        launch(op, c, items, n / 2);
        launch(op, c, items + n / 2, n - n / 2);
    } else if (rc == RLK_EUNSUPPORTED) {
        give_up(op, items, n, "gpu-layout");
    } else {
        give_up(op, items, n, "unreadable");
        rlki_fault("unreadable", detail.text[0] ? detail.text : rlk_error_sentence(rc));
    }
}

/* The tensors of one device and stream. */
static void launch_on(const struct rlk_tap_op *op, struct rlki_gpu *gpu, const struct rlki_gpu_item *items, uint32_t n)
{
    int pushed = -1, capturing = 0;
    void *handle = gpu->driver ? rlki_gpu_enter(&gpu->cu, items->ordinal, &pushed) : NULL;
    if (!handle) {
        give_up(op, items, n, "gpu-none");
        return;
    }
    /* An error here is a capture too: of another stream, which the legacy stream may not disturb. */
    struct context *c = NULL;
    if (gpu->cu.stream_is_capturing(items->stream, &capturing) || capturing) {
        give_up(op, items, n, "capture");
        for (uint32_t i = 0; i < n; i++) /* replays write it again, unseen: nobody may refer to it, ever */
            if (items[i].role == RLK_ROLE_OUT)
                rlki_track_poison(op->ctx->state->track, tensor_of(op, &items[i])->alloc);
    } else if (!(c = context_of(gpu, handle))) {
        give_up(op, items, n, "gpu-contexts");
    } else {
        for (uint32_t i = 0; i < n; i += RLK_GPU_MAX_TENSORS)
            launch(op, c, items + i, n - i < RLK_GPU_MAX_TENSORS ? n - i : RLK_GPU_MAX_TENSORS);
    }
    rlki_gpu_leave(&gpu->cu, pushed);
}

/* ---- held back: tensors of several operators, for one launch */
struct held {
    bool on;
    struct rlki_gpu *gpu;
    struct context *context;
    void *stream;
    int32_t ordinal;
    uint32_t n;
    struct rlk_view view[RLK_GPU_MAX_TENSORS];
    const struct rlk_place *place[RLK_GPU_MAX_TENSORS];
    uint64_t ticket[RLK_GPU_MAX_TENSORS];
    struct rlk_arena arena; /* shapes, strides and placements: the operators' own are gone by then */
};
static _Thread_local struct held *held;

/* Their events are written down already: a ticket that is given back reads as "unresolved". */
static void held_lost(struct held *h, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        rlki_slots_untake(h->gpu->slots, h->ticket[i]);
}

static void held_launch(struct held *h, uint32_t first, uint32_t n)
{
    struct rlk_detail detail = {""};
    struct context *c = h->context;
    int rc = try_launch(c, h->view + first, h->place + first, h->ticket + first, n, h->stream, &detail);
    if (rc == RLK_EFULL && wait_for_room(c))
        rc = try_launch(c, h->view + first, h->place + first, h->ticket + first, n, h->stream, &detail);
    if (rc == RLK_OK)
        return;
    if (n > 1 && rc != RLK_EFULL && rc != RLK_ESTATE) { /* not all of them together */
        held_launch(h, first, n / 2);
        held_launch(h, first + n / 2, n - n / 2);
        return;
    }
    held_lost(h, first, n);
    if (rc == RLK_ESTATE)
        refused(c, detail.text);
    else if (rc != RLK_EFULL)
        rlki_fault("gpu-layout", detail.text[0] ? detail.text : rlk_error_sentence(rc));
}

static void held_flush(struct held *h)
{
    int pushed = -1, capturing = 0;
    if (!h->n)
        return;
    void *handle = rlki_gpu_enter(&h->gpu->cu, h->ordinal, &pushed);
    if (!handle || h->context->reason || h->gpu->cu.stream_is_capturing(h->stream, &capturing) || capturing)
        held_lost(h, 0, h->n);
    else
        held_launch(h, 0, h->n);
    if (handle)
        rlki_gpu_leave(&h->gpu->cu, pushed);
    h->n = 0;
    rlk_arena_reset(&h->arena);
}

/* The context of the batch that item begins; false: not one that can be held, it goes its own way. */
static bool held_begins(struct held *h, struct rlki_gpu *gpu, const struct rlki_gpu_item *item)
{
    int pushed = -1, capturing = 0;
    void *handle = gpu->driver ? rlki_gpu_enter(&gpu->cu, item->ordinal, &pushed) : NULL;
    struct context *c = NULL;
    if (handle && gpu->cu.stream_is_capturing(item->stream, &capturing) == 0 && !capturing)
        c = context_of(gpu, handle);
    if (handle)
        rlki_gpu_leave(&gpu->cu, pushed);
    h->gpu = gpu;
    h->context = c;
    h->stream = item->stream;
    h->ordinal = item->ordinal;
    return c && !__atomic_load_n(&c->reason, __ATOMIC_ACQUIRE);
}

static bool held_copy(struct held *h, const struct rlki_gpu_item *item)
{
    const size_t bytes = item->view.ndim * sizeof(uint64_t);
    uint64_t *shape = rlk_arena_alloc(&h->arena, bytes + 1, _Alignof(uint64_t));
    int64_t *strides = item->view.strides ? rlk_arena_alloc(&h->arena, bytes + 1, _Alignof(int64_t)) : NULL;
    const struct rlk_place *place = item->place ? rlk_place_copy(&h->arena, item->place) : NULL;
    if (!shape || (item->view.strides && !strides) || (item->place && !place))
        return false;
    memcpy(shape, item->view.shape, bytes);
    if (strides)
        memcpy(strides, item->view.strides, bytes);
    h->view[h->n] = item->view;
    h->view[h->n].shape = shape;
    h->view[h->n].strides = strides;
    h->place[h->n] = place;
    return true;
}

/* false: it is to be digested at once. */
static bool hold_item(struct rlk_tap_op *op, struct rlki_gpu *gpu, const struct rlki_gpu_item *item)
{
    struct held *h = held;
    const uint64_t elements = elements_of(&item->view);
    if (h->n == RLK_GPU_MAX_TENSORS || (h->n && (h->stream != item->stream || h->ordinal != item->ordinal)))
        held_flush(h);
    if ((!h->n && !held_begins(h, gpu, item)) || rlk_gpu_digest_plan(&item->view, item->place, NULL) != RLK_OK ||
        !held_copy(h, item))
        return false;
    if (!rlki_slots_take(gpu->slots, &h->ticket[h->n], &elements, 1, (uint32_t)(h->context - gpu->context)))
        return false;
    tensor_of(op, item)->ticket = h->ticket[h->n];
    h->n++;
    return true;
}

void rlki_gpu_hold(bool on)
{
    if (on && !held)
        held = calloc(1, sizeof *held); /* the thread's, for good; without memory: as if nobody had asked */
    if (!held)
        return;
    own(true);
    held_flush(held);
    own(false);
    held->on = on;
}

bool rlki_gpu_add(struct rlk_tap_op *op, enum rlk_role role, uint32_t index, const struct rlk_tap_tensor *from,
                  struct rlk_tensor *out)
{
    if (op->ngpu == op->gpu_capacity) {
        const uint32_t more = op->gpu_capacity ? 2 * op->gpu_capacity : 8;
        struct rlki_gpu_item *p = realloc(op->gpu, more * sizeof *p);
        if (!p)
            return false;
        op->gpu = p;
        op->gpu_capacity = more;
    }
    struct rlki_gpu_item *item = &op->gpu[op->ngpu++];
    *item = (struct rlki_gpu_item){.view = from->view,
                                   .place = out->place,
                                   .stream = from->stream,
                                   .ordinal = from->ordinal,
                                   .index = index,
                                   .role = (uint8_t)role};
    item->view.shape = out->shape;
    if (from->view.strides)
        item->view.strides = rlki_op_copy(op, from->view.strides, from->view.ndim, sizeof *from->view.strides);
    out->state = RLK_T_PENDING;
    return !op->broken;
}

void rlki_gpu_launch(struct rlk_tap_op *op)
{
    const uint32_t n = op->ngpu;
    op->ngpu = 0;
    if (!n || op->broken)
        return;
    struct rlki_gpu *gpu = plane(op->ctx->state);
    if (!gpu || __atomic_load_n(&gpu->closed, __ATOMIC_ACQUIRE)) {
        give_up(op, op->gpu, n, gpu ? "closing" : "gpu-memory");
        return;
    }
    own(true);
    for (uint32_t i = 0, j; i < n; i = j) {
        if (held && held->on && hold_item(op, gpu, &op->gpu[i])) {
            j = i + 1;
            continue;
        }
        for (j = i + 1; !(held && held->on) && j < n && op->gpu[j].stream == op->gpu[i].stream &&
                        op->gpu[j].ordinal == op->gpu[i].ordinal;)
            j++;
        launch_on(op, gpu, &op->gpu[i], j - i);
    }
    own(false);
}

/* ---- bytes, for --payload */
/* First and last byte that the view reads, from the storage's begin. False: none, or outside. */
static bool span_of(const struct rlk_view *v, uint64_t *first, uint64_t *bytes)
{
    const __int128 size = (__int128)rlk_dtype_bytes(v->dtype);
    __int128 low = (__int128)v->offset, high = low, dense = 1;
    for (uint32_t d = v->ndim; d-- > 0;) {
        if (v->shape[d] == 0)
            return false;
        const __int128 stride = v->strides ? (__int128)v->strides[d] : dense;
        const __int128 reach = stride * (__int128)(v->shape[d] - 1);
        *(reach < 0 ? &low : &high) += reach;
        dense *= (__int128)v->shape[d];
        if (dense > INT64_MAX || low < 0 || high > INT64_MAX)
            return false;
    }
    if ((high + 1) * size > (__int128)v->storage_bytes)
        return false;
    *first = (uint64_t)(low * size);
    *bytes = (uint64_t)((high - low + 1) * size);
    return true;
}

int rlki_gpu_fetch(struct rlki_rec *state, const struct rlk_tap_tensor *from, struct rlk_view *view, void **bytes)
{
    struct rlki_gpu *gpu = plane(state);
    uint64_t first = 0, n = 0;
    int pushed = -1, capturing = 0, rc = RLK_EUNSUPPORTED;
    *view = from->view;
    *bytes = NULL;
    if (!span_of(&from->view, &first, &n) || !gpu || !gpu->driver)
        return RLK_EUNSUPPORTED;
    *bytes = malloc(n);
    if (!*bytes)
        return RLK_ENOMEM;
    own(true);
    if (rlki_gpu_enter(&gpu->cu, from->ordinal, &pushed)) {
        if (gpu->cu.stream_is_capturing(from->stream, &capturing) == 0 && !capturing &&
            gpu->cu.memcpy_dtoh(*bytes, (uint64_t)(uintptr_t)from->view.storage + first, n, from->stream) == 0 &&
            gpu->cu.stream_synchronize(from->stream) == 0)
            rc = RLK_OK;
        rlki_gpu_leave(&gpu->cu, pushed);
    }
    own(false);
    view->storage = *bytes;
    view->storage_bytes = n;
    view->offset -= first / rlk_dtype_bytes(view->dtype);
    if (rc)
        free(*bytes);
    if (rc)
        *bytes = NULL;
    return rc;
}

/* ---- the end */
static void say_totals(struct rlki_gpu *gpu)
{
    struct rlk_gpu_digest_stats sum = {0};
    char text[32];
    uint32_t rings = 0;
    for (uint32_t i = 0; i < gpu->ncontexts; i++) {
        struct rlk_gpu_digest_stats s;
        if (!gpu->context[i].digester)
            continue;
        rlk_gpu_digest_stats(gpu->context[i].digester, &s);
        sum.device_bytes += s.device_bytes;
        sum.host_bytes += s.host_bytes;
        sum.launches += s.launches;
        sum.tensors += s.tensors;
        sum.results += s.results;
        rings++;
    }
    const struct {
        const char *key;
        uint64_t value;
    } says[] = {
        {"gpu.contexts", rings},        {"gpu.device_bytes", sum.device_bytes}, {"gpu.host_bytes", sum.host_bytes},
        {"gpu.launches", sum.launches}, {"gpu.tensors", sum.tensors},           {"gpu.results", sum.results}};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)says[i].value);
        rlki_rec_meta(gpu->state, says[i].key, text);
    }
}

void rlki_gpu_close(struct rlki_rec *state)
{
    struct rlki_gpu *gpu = __atomic_load_n(&state->gpu, __ATOMIC_ACQUIRE);
    uint64_t arrived = 0, before = 0;
    if (!gpu || __atomic_exchange_n(&gpu->closed, 1, __ATOMIC_ACQ_REL))
        return;
    int64_t end = now_ns() + SETTLE_NS;
    for (;; nap()) {
        drain_all(gpu);
        if (!rlki_slots_waiting(gpu->slots, &arrived))
            break;
        if (arrived != before)
            end = now_ns() + SETTLE_NS;
        before = arrived;
        if (now_ns() >= end) {
            rlki_fault("gpu-late",
                       "the process ends and digests on a device have not come: those tensors are not digested");
            break;
        }
    }
    rlki_slots_give_up(gpu->slots, true);
    say_totals(gpu);
}
