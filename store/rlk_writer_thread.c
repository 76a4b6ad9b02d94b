#include "store/rlk_writer_impl.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A digest that has not come by then is left out, reason "late": while running, while closing. */
uint64_t rlki_late_ns[2] = {UINT64_C(30000000000), UINT64_C(10000000000)};
#define LATER_NS UINT64_C(1000000)   /* for those behind a late one, until one comes: the device may be gone */
#define HOLE_NS UINT64_C(2000000000) /* a taken number that is not delivered by then, while closing */
#define IDLE_NS 5000000

struct loop {
    struct rlk_writer *w;
    struct rlk_producer **list; /* snapshot */
    size_t n;
    uint64_t generation;
    uint64_t blocked_since; /* 0 = the oldest event is not waiting for a digest */
    uint64_t last_commit, last_progress;
    uint64_t blind_since;          /* 0 = it knows all producers */
    uint64_t flush_to, flush_mark; /* as of refresh(): what was put before then is taken by the drain that follows */
    bool closing, late;
};

static void set_fault(struct rlk_writer *w, int code, const struct rlk_detail *detail, int run)
{
    atomic_store_explicit(&w->run, run, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    if (!w->fault) {
        w->fault = code;
        rlk_fail(&w->fault_detail, code, "%s: %.300s", w->name, detail->text);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Refreshes the list of producers; frees those that are closed and empty. */
static bool refresh(struct loop *l)
{
    struct rlk_writer *w = l->w;
    bool ok = true;
    pthread_mutex_lock(&w->lock);
    for (struct rlk_producer **at = &w->producers; *at;) {
        struct rlk_producer *p = *at;
        if (atomic_load_explicit(&p->closed, memory_order_acquire) && !rlki_queue_peek(&p->queue)) {
            *at = p->next;
            rlki_queue_release(&p->queue);
            free(p);
            w->producers_generation++;
        } else {
            at = &p->next;
        }
    }
    if (l->generation != w->producers_generation) {
        size_t n = 0;
        for (struct rlk_producer *p = w->producers; p; p = p->next)
            n++;
        struct rlk_producer **list = realloc(l->list, (n + 1) * sizeof *list);
        if (list) {
            l->list = list;
            l->n = 0;
            for (struct rlk_producer *p = w->producers; p; p = p->next)
                list[l->n++] = p;
            l->generation = w->producers_generation;
        } else {
            l->n = 0; /* freed ones must not be looked at; tried again on the next turn */
            ok = false;
        }
    }
    l->closing = w->closing;
    l->flush_to = w->flush_to;
    l->flush_mark = w->flush_requests;
    pthread_mutex_unlock(&w->lock);
    return ok;
}

static void not_digested(struct rlk_tensor *t, const char *reason)
{
    t->state = RLK_T_NOT_DIGESTED;
    t->reason = reason;
}

/* Digests that are still on a device. False = the event must wait. */
static bool resolve(struct loop *l, struct rlk_event *e)
{
    const struct rlk_writer_options *o = &l->w->options;
    bool give_up = false, ready = true;
    if (l->blocked_since)
        give_up = rlki_now_ns() - l->blocked_since > (l->late ? LATER_NS : rlki_late_ns[l->closing]);
    for (uint32_t i = 0; i < e->ntensors; i++) {
        struct rlk_tensor *t = (struct rlk_tensor *)(uintptr_t)&e->tensors[i]; /* our own copy */
        if (t->state != RLK_T_PENDING)
            continue;
        int rc = o->resolve ? o->resolve(o->resolve_context, t->ticket, &t->sums) : RLK_EUNSUPPORTED;
        if (rc == RLK_OK) {
            t->state = RLK_T_DIGESTED;
            l->late = false;
        } else if (rc != RLK_EAGAIN) {
            not_digested(t, rc == RLK_EFULL ? "ring-full" : "unresolved");
        } else if (give_up) {
            not_digested(t, "late");
            l->late = true;
        } else {
            ready = false;
        }
    }
    if (!ready && !l->blocked_since)
        l->blocked_since = rlki_now_ns();
    if (ready)
        l->blocked_since = 0;
    return ready;
}

static void take_event(struct rlk_writer *w, const struct rlk_event *e)
{
    int run = atomic_load_explicit(&w->run, memory_order_relaxed);
    if (run == RLKI_FAULT || (run == RLKI_STOPPED && e->seq >= w->stop_at)) {
        atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
        return;
    }
    if (rlki_batch_event(&w->batch, e))
        atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
}

static void take_blob(struct rlk_writer *w, const struct rlki_slot *slot)
{
    struct rlki_blob_slot b;
    memcpy(&b, slot + 1, sizeof b);
    bool outside = slot->type == RLKI_SLOT_BLOB_FAR;
    const void *bytes = outside ? b.far.block : (const uint8_t *)(slot + 1) + sizeof b;
    if (atomic_load_explicit(&w->run, memory_order_relaxed) == RLKI_RUN &&
        rlki_batch_blob(&w->batch, b.id, bytes, (size_t)b.n))
        atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
    if (outside) {
        free(b.far.block);
        atomic_fetch_sub_explicit(&w->far_bytes, b.n, memory_order_relaxed);
    }
}

static void take_launch(struct rlk_writer *w, struct rlki_slot *slot)
{
    struct rlki_launch_slot *body = (void *)(slot + 1);
    struct rlk_event e = {
        .kind = RLK_EV_LAUNCH, .seq = slot->seq, .rank = body->rank, .thread = body->thread, .id = ""};
    e.who.phase = e.who.pass = e.who.module = e.who.op = e.who.sample = "";
    body->launch.attrs = (const struct rlk_attr *)(const void *)(body + 1);
    e.stream = body->launch.stream;
    e.who.step = body->step;
    e.nlaunches = 1;
    e.launches = &body->launch;
    e.u.launch.entry = body->entry;
    e.u.launch.count = body->count;
    take_event(w, &e);
}

/* An event of the queue or outside it. False: it waits for a digest. */
static bool take_put(struct loop *l, struct rlki_slot *slot)
{
    struct rlki_far far = {NULL, 0};
    if (slot->type == RLKI_SLOT_EVENT_FAR)
        memcpy(&far, slot + 1, sizeof far);
    struct rlk_event *e = far.block ? far.block : (void *)(slot + 1);
    if (!resolve(l, e))
        return false;
    take_event(l->w, e);
    if (far.block) {
        free(far.block);
        atomic_fetch_sub_explicit(&l->w->far_bytes, far.bytes, memory_order_relaxed);
    }
    return true;
}

/* Takes what producer `p` has next in the common order. Returns the number of slots taken. */
static size_t drain_one(struct loop *l, struct rlk_producer *p)
{
    struct rlk_writer *w = l->w;
    size_t taken = 0;
    for (struct rlki_slot *slot; (slot = rlki_queue_peek(&p->queue)); taken++) {
        if (rlki_batch_bytes(&w->batch) >= RLKI_BATCH_BYTES)
            break;
        if (slot->type == RLKI_SLOT_BLOB || slot->type == RLKI_SLOT_BLOB_FAR) {
            take_blob(w, slot);
        } else {
            if (slot->seq != w->merged)
                break;
            if (slot->type == RLKI_SLOT_LAUNCH)
                take_launch(w, slot);
            else if (!take_put(l, slot))
                break;
            w->merged++;
        }
        rlki_queue_pop(&p->queue, slot);
    }
    return taken;
}

static size_t drain(struct loop *l)
{
    size_t all = 0, taken;
    do {
        taken = 0;
        for (size_t i = 0; i < l->n; i++)
            taken += drain_one(l, l->list[i]);
        all += taken;
    } while (taken && rlki_batch_bytes(&l->w->batch) < RLKI_BATCH_BYTES);
    return all;
}

/* What other threads left under the lock: meta and ranks. */
static void take_shared(struct rlk_writer *w)
{
    struct rlki_buf meta;
    uint32_t *ranks;
    size_t nranks;
    pthread_mutex_lock(&w->lock);
    meta = w->meta;
    ranks = w->new_ranks;
    nranks = w->nnew_ranks;
    w->meta = (struct rlki_buf){0};
    w->new_ranks = NULL;
    w->nnew_ranks = 0;
    pthread_mutex_unlock(&w->lock);
    struct rlki_cur c = {meta.p, meta.n ? meta.p + meta.n : meta.p, false};
    while (c.p != c.end && !c.bad) {
        uint32_t nkey = rlki_get_u32(&c), n = rlki_get_u32(&c);
        const uint8_t *key = rlki_get_bytes(&c, nkey), *value = rlki_get_bytes(&c, n);
        if (key && value)
            rlki_batch_meta(&w->batch, key, nkey, value, n);
    }
    for (size_t i = 0; i < nranks; i++)
        rlki_batch_rank(&w->batch, ranks[i], INT64_MIN);
    rlki_buf_release(&meta);
    free(ranks);
}

static void counters(struct rlk_writer *w)
{
    struct rlk_coverage *c = &w->batch.state.cov, *old = &w->batch.committed.cov;
    c->dropped = atomic_load_explicit(&w->dropped, memory_order_relaxed);
    c->stall_ns = atomic_load_explicit(&w->stall_ns, memory_order_relaxed);
    c->launches_seen = atomic_load_explicit(&w->launches_seen, memory_order_relaxed);
    c->planes = atomic_load_explicit(&w->planes, memory_order_relaxed);
    if (c->dropped != old->dropped || c->stall_ns != old->stall_ns || c->launches_seen != old->launches_seen ||
        c->planes != old->planes)
        w->batch.dirty = true;               /* a checkpoint tells it even when there is no event */
    if (w->fault && !w->batch.state.fault) { /* written by this thread only */
        w->batch.state.fault = w->fault;
        snprintf(w->batch.state.fault_text, sizeof w->batch.state.fault_text, "%.250s", w->fault_detail.text);
    }
}

/* Bounded recordings: a note marks the place, later events are dropped. */
static void check_size(struct rlk_writer *w)
{
    if (!w->options.max_bytes || atomic_load_explicit(&w->run, memory_order_relaxed) != RLKI_RUN ||
        rlki_db_bytes(&w->batch.db) <= w->options.max_bytes)
        return;
    struct rlk_detail detail;
    int code = rlk_fail(&detail, RLK_ELIMIT, "max-size: the environment grew past %llu bytes; recording stopped",
                        (unsigned long long)w->options.max_bytes);
    set_fault(w, code, &detail, RLKI_STOPPED);
    w->stop_at = atomic_fetch_add_explicit(&w->next_seq, 1, memory_order_relaxed);
}

static void put_stop_note(struct rlk_writer *w)
{
    if (w->merged != w->stop_at)
        return;
    struct rlk_event note = {.kind = RLK_EV_NOTE, .seq = w->stop_at};
    note.who.step = w->batch.newest == INT64_MIN ? 0 : w->batch.newest;
    note.u.note.code = "max-size";
    note.u.note.text = w->fault_detail.text;
    if (atomic_load_explicit(&w->run, memory_order_relaxed) == RLKI_STOPPED)
        rlki_batch_event(&w->batch, &note);
    w->merged++;
}

static void commit(struct loop *l, bool end)
{
    struct rlk_writer *w = l->w;
    struct rlk_detail detail = {""};
    take_shared(w);
    if (atomic_load_explicit(&w->run, memory_order_relaxed) != RLKI_FAULT) {
        uint64_t before = w->batch.committed.cov.events, now = w->batch.state.cov.events;
        counters(w);
        int rc = rlki_batch_commit(&w->batch, end, &detail);
        if (rc) {
            atomic_fetch_add_explicit(&w->dropped, now - before, memory_order_relaxed);
            set_fault(w, rc, &detail, RLKI_FAULT);
        }
    }
    l->last_commit = rlki_now_ns();
    pthread_mutex_lock(&w->lock);
    w->coverage = w->batch.committed.cov;
    if (w->merged >= l->flush_to)
        w->flushed = l->flush_mark;
    pthread_cond_broadcast(&w->committed_cond);
    pthread_mutex_unlock(&w->lock);
    check_size(w);
}

static void nap(struct rlk_writer *w, long ns)
{
    struct timespec t = {0, ns};
    atomic_store_explicit(&w->sleeping, 1, memory_order_release);
    syscall(SYS_futex, &w->sleeping, FUTEX_WAIT_PRIVATE, 1, &t, NULL, 0);
    atomic_store_explicit(&w->sleeping, 0, memory_order_relaxed);
}

/* While closing: a number was taken by a thread that died before it delivered. Its place becomes a hole. */
static void fill_hole(struct loop *l)
{
    struct rlk_writer *w = l->w;
    if (l->blocked_since || rlki_now_ns() - l->last_progress < HOLE_NS)
        return;
    rlki_batch_hole(&w->batch, w->merged);
    atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
    w->merged++;
}

/* Without memory for the list of producers nothing is taken. While closing that cannot go on for ever: what they still
 * hold is lost, and said. */
static bool give_up(struct loop *l, bool ok, uint64_t now)
{
    const struct rlk_detail why = {"out of memory: events that were not yet taken are lost"};
    l->blind_since = ok ? 0 : l->blind_since ? l->blind_since : now;
    if (ok || !l->closing || now - l->blind_since < HOLE_NS)
        return false;
    set_fault(l->w, RLK_ENOMEM, &why, RLKI_FAULT);
    return true;
}

static void finish(struct rlk_writer *w, struct loop *l)
{
    struct rlk_detail detail = {""};
    commit(l, !w->incomplete);
    int rc = RLK_OK;
    pthread_mutex_lock(&w->lock);
    if (atomic_load_explicit(&w->run, memory_order_relaxed) == RLKI_FAULT) {
        rc = w->fault;
        detail = w->fault_detail;
    }
    pthread_mutex_unlock(&w->lock);
    if (rc) {
        counters(w);
        w->batch.committed.cov.dropped = w->batch.state.cov.dropped;
        w->batch.committed.cov.stall_ns = w->batch.state.cov.stall_ns;
        w->batch.committed.cov.launches_seen = w->batch.state.cov.launches_seen;
        w->batch.committed.fault = rc;
        memcpy(w->batch.committed.fault_text, w->batch.state.fault_text, sizeof w->batch.committed.fault_text);
        rlki_batch_last_words(&w->batch);
    } else {
        rc = rlki_db_sync(&w->batch.db, &detail);
    }
    rlki_batch_close(&w->batch);
    pthread_mutex_lock(&w->lock);
    w->close_error = rc;
    w->close_detail = detail;
    w->done = true;
    pthread_cond_broadcast(&w->committed_cond);
    pthread_mutex_unlock(&w->lock);
}

void *rlki_writer_main(void *writer)
{
    struct rlk_writer *w = writer;
    struct loop l = {.w = w, .generation = UINT64_MAX};
    const uint64_t every = (uint64_t)w->options.commit_ms * 1000000u;
    l.last_commit = l.last_progress = rlki_now_ns();
    for (;;) {
        bool ok = refresh(&l);
        size_t taken = drain(&l);
        put_stop_note(w);
        uint64_t now = rlki_now_ns();
        if (taken)
            l.last_progress = now;
        bool full = rlki_batch_bytes(&w->batch) >= RLKI_BATCH_BYTES;
        bool empty = taken == 0 && w->merged == atomic_load_explicit(&w->next_seq, memory_order_relaxed);
        bool flush =
            l.flush_mark > w->flushed && w->merged >= l.flush_to; /* `flushed` is written by this thread only */
        if (full || flush || now - l.last_commit >= every)
            commit(&l, false);
        if ((l.closing && ok && empty) || give_up(&l, ok, now))
            break;
        if (l.closing && ok && taken == 0)
            fill_hole(&l);
        if (taken == 0 && !full)
            nap(w, l.blocked_since || l.closing ? 500000 : IDLE_NS);
    }
    finish(w, &l);
    free(l.list);
    return NULL;
}
