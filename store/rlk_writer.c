#include "store/rlk_copy.h"
#include "store/rlk_writer_impl.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t rlki_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int start_thread(struct rlk_writer *w)
{
    sigset_t all, old;
    sigfillset(&all); /* the watched program's signal handlers must never run on our thread; nor SIGXFSZ kill it */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&w->thread, NULL, rlki_writer_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!err)
        pthread_setname_np(w->thread, "rlk-writer");
    return err;
}

/* The environment's first pages are written by the caller's thread, which a file size limit would kill (SIGXFSZ): held
 * back meanwhile, and what our own writes raised is taken away again, so that it does not strike afterwards. */
struct held {
    sigset_t limit, before;
    bool pending;
};

static void hold_size_limit(struct held *h)
{
    sigset_t now;
    sigemptyset(&h->limit);
    sigaddset(&h->limit, SIGXFSZ);
    h->pending = sigpending(&now) == 0 && sigismember(&now, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &h->limit, &h->before);
}

static void release_size_limit(const struct held *h)
{
    const struct timespec none = {0, 0};
    while (!h->pending && sigtimedwait(&h->limit, NULL, &none) == SIGXFSZ)
        ;
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
}

/* Blocks outside the queue that nobody took: the writer ended for want of memory. */
static void free_blocks(struct rlki_queue *queue)
{
    for (struct rlki_slot *slot; (slot = rlki_queue_peek(queue)); rlki_queue_pop(queue, slot)) {
        struct rlki_blob_slot blob = {0};
        struct rlki_far far = {NULL, 0};
        if (slot->type == RLKI_SLOT_EVENT_FAR)
            memcpy(&far, slot + 1, sizeof far);
        if (slot->type == RLKI_SLOT_BLOB_FAR)
            memcpy(&blob, slot + 1, sizeof blob);
        free(far.block);
        free(blob.far.block);
    }
}

static void free_writer(struct rlk_writer *w)
{
    for (struct rlk_producer *p = w->producers, *next; p; p = next) {
        next = p->next;
        free_blocks(&p->queue);
        rlki_queue_release(&p->queue);
        free(p);
    }
    rlki_buf_release(&w->meta);
    free(w->new_ranks);
    free(w);
}

/* What could not be begun leaves nothing behind: half an environment would read as damage. */
static void withdraw(const char *dir)
{
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    char path[4200];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, files[i]) < sizeof path)
            unlink(path);
    rmdir(dir);
}

int rlk_writer_open(struct rlk_writer **out, const struct rlk_writer_options *options, struct rlk_detail *detail)
{
    *out = NULL;
    if (!options || !options->dir)
        return rlk_fail(detail, RLK_EINVAL, "no directory given");
    struct rlk_writer *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    if (!w)
        return rlk_fail(detail, RLK_ENOMEM, "%s: out of memory", options->dir);
    memset(w, 0, sizeof *w);
    w->options = *options;
    w->options.queue_bytes = options->queue_bytes ? options->queue_bytes : UINT64_C(4) << 20;
    w->options.commit_ms = options->commit_ms ? options->commit_ms : 500;
    w->options.wait_ms = options->wait_ms ? options->wait_ms : 100;
    if (w->options.commit_ms > 1000)
        w->options.commit_ms = 1000; /* the format promises one a second */
    w->stop_at = UINT64_MAX;
    const char *slash = strrchr(options->dir, '/');
    snprintf(w->name, sizeof w->name, "%s", slash && slash[1] ? slash + 1 : options->dir);
    int rc;
    bool made = mkdir(options->dir, 0700) == 0;
    if (!made) {
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", options->dir, strerror(errno));
        free(w);
        return rc;
    }
    struct held limit;
    hold_size_limit(&limit);
    rc = rlki_batch_open(&w->batch, &w->options, detail);
    release_size_limit(&limit);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->committed_cond, &attr);
    pthread_condattr_destroy(&attr);
    int err = rc ? 0 : start_thread(w);
    if (err)
        rc = rlk_fail(detail, rlk_error_from_errno(err), "starting the writer thread: %s", strerror(err));
    w->options.dir = NULL; /* the caller's; not kept */
    if (rc) {
        rlki_batch_close(&w->batch);
        free_writer(w);
        withdraw(options->dir);
        return rc;
    }
    *out = w;
    return RLK_OK;
}

int rlk_writer_meta(struct rlk_writer *w, const char *key, const char *value)
{
    size_t nkey = key ? strnlen(key, RLKI_MAX_META_KEY + 1) : 0,
           n = value ? strnlen(value, RLKI_MAX_META_VALUE + 1) : 0;
    if (nkey == 0 || nkey > RLKI_MAX_META_KEY || n > RLKI_MAX_META_VALUE)
        return nkey == 0 ? RLK_EINVAL : RLK_ELIMIT;
    if (!rlki_utf8((const uint8_t *)key, nkey) || (n && !rlki_utf8((const uint8_t *)value, n)) ||
        strcmp(key, RLKI_META_FORMAT) == 0 || strcmp(key, RLKI_META_FAULT) == 0)
        return RLK_EINVAL;
    pthread_mutex_lock(&w->lock);
    size_t before = w->meta.n;
    rlki_put_u32(&w->meta, (uint32_t)nkey);
    rlki_put_u32(&w->meta, (uint32_t)n);
    rlki_put_bytes(&w->meta, key, nkey);
    rlki_put_bytes(&w->meta, value, n);
    int rc = w->meta.oom ? RLK_ENOMEM : RLK_OK;
    if (rc) {
        w->meta.n = before;
        w->meta.oom = false;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int rlk_writer_rank(struct rlk_writer *w, uint32_t rank)
{
    int rc = RLK_OK;
    pthread_mutex_lock(&w->lock);
    uint32_t *list = realloc(w->new_ranks, (w->nnew_ranks + 1) * sizeof *list);
    if (list) {
        list[w->nnew_ranks++] = rank;
        w->new_ranks = list;
    } else {
        rc = RLK_ENOMEM;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void rlk_writer_planes(struct rlk_writer *w, uint32_t planes)
{
    atomic_fetch_or_explicit(&w->planes, planes, memory_order_relaxed);
}

void rlk_writer_count_launches_seen(struct rlk_writer *w, uint64_t n)
{
    atomic_fetch_add_explicit(&w->launches_seen, n, memory_order_relaxed);
}

void rlk_writer_count_dropped(struct rlk_writer *w, uint64_t n)
{
    atomic_fetch_add_explicit(&w->dropped, n, memory_order_relaxed);
}

int rlk_writer_producer(struct rlk_writer *w, struct rlk_producer **out)
{
    *out = NULL;
    struct rlk_producer *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p)
        return RLK_ENOMEM;
    memset(p, 0, sizeof *p);
    if (!rlki_queue_init(&p->queue, w->options.queue_bytes)) {
        free(p);
        return RLK_ENOMEM;
    }
    p->writer = w;
    pthread_mutex_lock(&w->lock);
    p->next = w->producers;
    w->producers = p;
    w->producers_generation++;
    pthread_mutex_unlock(&w->lock);
    *out = p;
    return RLK_OK;
}

void rlk_producer_free(struct rlk_producer *p)
{
    if (p) /* the writer thread frees it when its queue is empty */
        atomic_store_explicit(&p->closed, true, memory_order_release);
}

void rlki_writer_wake(struct rlk_writer *w)
{
    if (atomic_load_explicit(&w->sleeping, memory_order_relaxed) &&
        atomic_exchange_explicit(&w->sleeping, 0, memory_order_acq_rel))
        syscall(SYS_futex, &w->sleeping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Room for `body` bytes in the queue, waiting as long as the options allow. NULL = none. */
static struct rlki_slot *reserve(struct rlk_producer *p, size_t body)
{
    struct rlk_writer *w = p->writer;
    struct rlki_slot *slot = rlki_queue_reserve(&p->queue, body);
    if (slot)
        return slot;
    uint64_t start = rlki_now_ns(), now = start, most = (uint64_t)w->options.wait_ms * 1000000u;
    while (!slot && now - start < most) {
        struct timespec pause = {0, 20000};
        rlki_writer_wake(w);
        nanosleep(&pause, NULL);
        slot = rlki_queue_reserve(&p->queue, body);
        now = rlki_now_ns();
    }
    atomic_fetch_add_explicit(&w->stall_ns, now - start, memory_order_relaxed);
    return slot;
}

/* A block outside the queue, counted against the common bound. */
static void *far_block(struct rlk_writer *w, size_t bytes)
{
    uint64_t before = atomic_fetch_add_explicit(&w->far_bytes, bytes, memory_order_relaxed);
    void *block = before == 0 || before + bytes <= RLKI_FAR_BYTES ? aligned_alloc(16, (bytes + 15) / 16 * 16) : NULL;
    if (!block)
        atomic_fetch_sub_explicit(&w->far_bytes, bytes, memory_order_relaxed);
    return block;
}

static void far_give_back(struct rlk_writer *w, void *block, size_t bytes)
{
    free(block);
    atomic_fetch_sub_explicit(&w->far_bytes, bytes, memory_order_relaxed);
}

static int drop(struct rlk_writer *w, int code)
{
    atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
    return code;
}

int rlk_producer_put(struct rlk_producer *p, const struct rlk_event *event, uint64_t *seq)
{
    struct rlk_writer *w = p->writer;
    size_t bytes;
    int rc = rlki_event_size(event, &bytes);
    if (rc)
        return rc;
    if (atomic_load_explicit(&w->run, memory_order_relaxed) != RLKI_RUN)
        return drop(w, RLK_ESTATE);
    if (atomic_load_explicit(&w->next_seq, memory_order_relaxed) >= RLK_MAX_EVENTS - 65536)
        return drop(w, RLK_ELIMIT); /* the margin is for threads that pass this check together */
    struct rlki_far far = {NULL, bytes};
    bool outside = bytes > rlki_queue_most(&p->queue);
    if (outside && !(far.block = far_block(w, bytes)))
        return drop(w, RLK_EFULL);
    /* Room first, the number second: so a number that is taken is always delivered, and the order has no holes. */
    struct rlki_slot *slot = reserve(p, outside ? sizeof far : bytes);
    if (!slot) {
        if (outside)
            far_give_back(w, far.block, bytes);
        return drop(w, RLK_EFULL);
    }
    void *body = slot + 1;
    struct rlk_event *copy = rlki_event_copy(outside ? far.block : body, event);
    if (outside)
        memcpy(body, &far, sizeof far);
    slot->type = outside ? RLKI_SLOT_EVENT_FAR : RLKI_SLOT_EVENT;
    slot->seq = copy->seq = atomic_fetch_add_explicit(&w->next_seq, 1, memory_order_relaxed);
    if (seq)
        *seq = slot->seq;
    rlki_queue_publish(&p->queue);
    if (rlki_queue_used(&p->queue) > p->queue.size / 4)
        rlki_writer_wake(w);
    return RLK_OK;
}

int rlk_producer_launch(struct rlk_producer *p, const struct rlk_event *event, uint64_t *seq)
{
    struct rlk_writer *w = p->writer;
    const struct rlk_launch *l = event->launches;
    struct rlki_launch_slot *body;
    if (l->nattrs > RLKI_MAX_LAUNCH_ATTRS)
        return rlk_producer_put(p, event, seq);
    if (atomic_load_explicit(&w->run, memory_order_relaxed) != RLKI_RUN)
        return drop(w, RLK_ESTATE);
    if (atomic_load_explicit(&w->next_seq, memory_order_relaxed) >= RLK_MAX_EVENTS - 65536)
        return drop(w, RLK_ELIMIT);
    const size_t attrs = l->nattrs * sizeof *l->attrs;
    struct rlki_slot *slot = reserve(p, sizeof *body + attrs);
    if (!slot)
        return drop(w, RLK_EFULL);
    body = (void *)(slot + 1);
    body->launch = *l;
    body->entry = event->u.launch.entry;
    body->step = event->who.step;
    body->rank = event->rank;
    body->thread = event->thread;
    body->count = event->u.launch.count;
    if (attrs)
        memcpy(body + 1, l->attrs, attrs);
    slot->type = RLKI_SLOT_LAUNCH;
    slot->seq = atomic_fetch_add_explicit(&w->next_seq, 1, memory_order_relaxed);
    if (seq)
        *seq = slot->seq;
    rlki_queue_publish(&p->queue);
    if (rlki_queue_used(&p->queue) > p->queue.size / 4)
        rlki_writer_wake(w);
    return RLK_OK;
}

int rlk_producer_payload(struct rlk_producer *p, const void *bytes, size_t n, rlk_u128 *id)
{
    struct rlk_writer *w = p->writer;
    if (n > RLKI_MAX_BLOB)
        return RLK_ELIMIT;
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    *id = (rlk_u128){h.low64, h.high64};
    rlk_u128 *seen = &p->seen[h.low64 % RLKI_SEEN_BLOBS];
    if (rlk_u128_equal(*seen, *id))
        return RLK_OK;
    if (atomic_load_explicit(&w->run, memory_order_relaxed) != RLKI_RUN)
        return RLK_ESTATE;
    struct rlki_blob_slot b = {*id, n, {NULL, n}};
    bool outside = n + sizeof b > rlki_queue_most(&p->queue);
    if (outside && !(b.far.block = far_block(w, n)))
        return RLK_EFULL;
    struct rlki_slot *slot = reserve(p, sizeof b + (outside ? 0 : n));
    if (!slot) {
        if (outside)
            far_give_back(w, b.far.block, n);
        return RLK_EFULL;
    }
    memcpy(slot + 1, &b, sizeof b);
    if (n)
        memcpy(outside ? b.far.block : (uint8_t *)(slot + 1) + sizeof b, bytes, n);
    slot->type = outside ? RLKI_SLOT_BLOB_FAR : RLKI_SLOT_BLOB;
    rlki_queue_publish(&p->queue);
    *seen = *id;
    if (rlki_queue_used(&p->queue) > p->queue.size / 4)
        rlki_writer_wake(w);
    return RLK_OK;
}

int rlk_writer_flush(struct rlk_writer *w, struct rlk_detail *detail)
{
    pthread_mutex_lock(&w->lock);
    uint64_t to = atomic_load_explicit(&w->next_seq, memory_order_acquire);
    if (to > w->flush_to)
        w->flush_to = to;
    uint64_t mine = ++w->flush_requests;
    while (w->flushed < mine && !w->fault && !w->done) {
        pthread_mutex_unlock(&w->lock);
        rlki_writer_wake(w);
        pthread_mutex_lock(&w->lock);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 10000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (w->flushed < mine && !w->fault && !w->done)
            pthread_cond_timedwait(&w->committed_cond, &w->lock, &until);
    }
    int rc = w->flushed >= mine ? RLK_OK : w->fault;
    if (rc && detail)
        *detail = w->fault_detail;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int rlk_writer_fault(struct rlk_writer *w, struct rlk_detail *detail)
{
    pthread_mutex_lock(&w->lock);
    int rc = w->fault;
    if (rc && detail)
        *detail = w->fault_detail;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void rlk_writer_coverage(struct rlk_writer *w, struct rlk_coverage *out)
{
    pthread_mutex_lock(&w->lock);
    *out = w->coverage;
    pthread_mutex_unlock(&w->lock);
    out->dropped = atomic_load_explicit(&w->dropped, memory_order_relaxed);
    out->stall_ns = atomic_load_explicit(&w->stall_ns, memory_order_relaxed);
    out->launches_seen = atomic_load_explicit(&w->launches_seen, memory_order_relaxed);
    out->planes = atomic_load_explicit(&w->planes, memory_order_relaxed);
}

int rlk_writer_close(struct rlk_writer *w, bool incomplete, struct rlk_detail *detail)
{
    if (!w)
        return RLK_OK;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    w->incomplete = incomplete;
    pthread_mutex_unlock(&w->lock);
    rlki_writer_wake(w);
    pthread_join(w->thread, NULL);
    int rc = w->close_error;
    if (rc && detail)
        *detail = w->close_detail;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->committed_cond);
    free_writer(w);
    return rc;
}

void rlk_writer_abandon(struct rlk_writer *w)
{
    if (!w)
        return;
    /* The writer thread does not exist here, and the lock may be held by a thread that does not either. */
    rlki_batch_forget(&w->batch);
    struct rlk_producer *p = w->producers;
    while (p) {
        struct rlk_producer *next = p->next;
        rlki_queue_release(&p->queue);
        free(p);
        p = next;
    }
    free(w);
}
