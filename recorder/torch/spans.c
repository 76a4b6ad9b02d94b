#include "recorder/torch/spans.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ORIGINS (1u << 18) /* past it the older half goes: graphs that old are not walked back any more */
#define MAX_DEAD 64u           /* threads that ended whose origins are still known */

struct origin { /* nodes from `sequence` on, up to the next entry */
    int64_t sequence;
    uint32_t path, call;
};

struct count {
    uint32_t path;
    uint8_t pass, used;
    uint32_t next;
};

struct rlkt_thread {
    uint64_t id;
    struct rlkt_thread *next; /* under `registry` */
    bool dead;

    struct rlkt_frame *frames;
    uint32_t depth, capacity, lost; /* lost: frames pushed without memory for them */
    uint32_t modules, backward;     /* frames of these kinds on the stack */

    struct count *counts; /* open addressing, a power of two; counts of (epoch) */
    uint32_t ncounts, count_capacity;
    uint64_t count_epoch;

    pthread_mutex_t lock; /* origins: the owner writes, others read */
    struct origin *origins;
    uint32_t norigins, origin_capacity;

    struct rlk_tap_ctx *ctx;
    uint64_t epoch, fork;
    struct rlkt_frame sent;
    bool any_sent;
};

static struct {
    pthread_mutex_t lock;
    struct rlkt_thread *threads;
    char **paths;
    uint32_t npaths, path_capacity;
    int64_t step, work;
    const char *phase, *sample; /* interned: never freed */
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint_fast64_t span_epoch = 1;  /* any span changed */
static atomic_uint_fast64_t count_epoch = 1; /* step, phase or work changed: calls count anew */
static atomic_uint_fast64_t fork_count = 1;
static atomic_bool detached, backward_ran;

static const char *const pass_names[RLKT_PASSES] = {"fwd", "recompute", "bwd", "opt", ""};

static bool grow(void **array, uint32_t *capacity, size_t size)
{
    uint32_t more = *capacity ? *capacity * 2 : 16;
    void *p = more > *capacity ? realloc(*array, more * size) : NULL;
    if (!p)
        return false;
    *array = p;
    *capacity = more;
    return true;
}

/* Threads */

static void thread_free(struct rlkt_thread *t)
{
    free(t->frames);
    free(t->counts);
    free(t->origins);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

struct rlkt_thread *rlkt_thread_begin(uint64_t id)
{
    struct rlkt_thread *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->id = id;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_lock(&registry.lock);
    t->next = registry.threads;
    registry.threads = t;
    pthread_mutex_unlock(&registry.lock);
    return t;
}

void rlkt_thread_end(struct rlkt_thread *thread)
{
    uint32_t dead = 0;
    pthread_mutex_lock(&registry.lock);
    thread->dead = true;
    for (struct rlkt_thread **at = &registry.threads; *at;) {
        struct rlkt_thread *t = *at;
        if (t->dead && (t->norigins == 0 || ++dead > MAX_DEAD)) {
            *at = t->next;
            thread_free(t);
        } else {
            at = &t->next;
        }
    }
    pthread_mutex_unlock(&registry.lock);
}

/* Paths */

uint32_t rlkt_intern(const char *path)
{
    uint32_t id = 0;
    if (!path || !*path)
        return 0;
    pthread_mutex_lock(&registry.lock);
    for (uint32_t i = 1; i < registry.npaths && !id; i++)
        if (!strcmp(registry.paths[i], path))
            id = i;
    if (!id && (registry.npaths + 1 < registry.path_capacity ||
                grow((void **)&registry.paths, &registry.path_capacity, sizeof *registry.paths))) {
        char *copy = strdup(path);
        if (registry.npaths == 0)
            registry.paths[registry.npaths++] = "";
        if (copy) {
            id = registry.npaths++;
            registry.paths[id] = copy;
        }
    }
    pthread_mutex_unlock(&registry.lock);
    return id;
}

const char *rlkt_path(uint32_t id)
{
    const char *path = "";
    pthread_mutex_lock(&registry.lock);
    if (id > 0 && id < registry.npaths)
        path = registry.paths[id];
    pthread_mutex_unlock(&registry.lock);
    return path;
}

/* Spans */

static void changed(bool counts_too)
{
    if (counts_too)
        atomic_fetch_add(&count_epoch, 1);
    atomic_fetch_add(&span_epoch, 1);
}

void rlkt_set_step(int64_t step)
{
    pthread_mutex_lock(&registry.lock);
    registry.step = step;
    registry.work = 0;
    pthread_mutex_unlock(&registry.lock);
    atomic_store(&backward_ran, false);
    changed(true);
}

void rlkt_set_work(int64_t work)
{
    pthread_mutex_lock(&registry.lock);
    registry.work = work;
    pthread_mutex_unlock(&registry.lock);
    changed(true);
}

void rlkt_set_phase(const char *phase)
{
    const char *text = rlkt_path(rlkt_intern(phase));
    pthread_mutex_lock(&registry.lock);
    registry.phase = text;
    pthread_mutex_unlock(&registry.lock);
    changed(true);
}

void rlkt_set_sample(const char *sample)
{
    const char *text = rlkt_path(rlkt_intern(sample));
    pthread_mutex_lock(&registry.lock);
    registry.sample = text;
    pthread_mutex_unlock(&registry.lock);
    changed(false);
}

int64_t rlkt_step(void)
{
    pthread_mutex_lock(&registry.lock);
    int64_t step = registry.step;
    pthread_mutex_unlock(&registry.lock);
    return step;
}

int64_t rlkt_work(void)
{
    pthread_mutex_lock(&registry.lock);
    int64_t work = registry.work;
    pthread_mutex_unlock(&registry.lock);
    return work;
}

bool rlkt_backward_ran(void)
{
    return atomic_exchange(&backward_ran, false);
}

/* Call counts: n-th call of a module in this (step, phase, work) and pass */

static struct count *count_find(struct rlkt_thread *t, uint32_t path, uint8_t pass)
{
    uint32_t mask = t->count_capacity - 1, i = (path * 2654435761u + pass * 40503u) & mask;
    while (t->counts[i].used && (t->counts[i].path != path || t->counts[i].pass != pass))
        i = (i + 1) & mask;
    return &t->counts[i];
}

static uint32_t count_call(struct rlkt_thread *t, uint32_t path, uint8_t pass)
{
    uint64_t epoch = atomic_load(&count_epoch);
    if (t->count_epoch != epoch) {
        if (t->counts)
            memset(t->counts, 0, t->count_capacity * sizeof *t->counts);
        t->ncounts = 0;
        t->count_epoch = epoch;
    }
    if ((t->ncounts + 1) * 3 > t->count_capacity * 2) {
        struct count *old = t->counts;
        uint32_t n = t->count_capacity, more = n ? n * 2 : 64;
        struct count *fresh = calloc(more, sizeof *fresh);
        if (!fresh)
            return 0;
        t->counts = fresh;
        t->count_capacity = more;
        for (uint32_t i = 0; i < n; i++)
            if (old[i].used)
                *count_find(t, old[i].path, old[i].pass) = old[i];
        free(old);
    }
    struct count *c = count_find(t, path, pass);
    if (!c->used) {
        *c = (struct count){.path = path, .pass = pass, .used = 1};
        t->ncounts++;
    }
    return c->next++;
}

/* Frames */

static void push(struct rlkt_thread *t, struct rlkt_frame frame)
{
    if (t->depth == t->capacity && !grow((void **)&t->frames, &t->capacity, sizeof *t->frames)) {
        t->lost++;
        return;
    }
    t->frames[t->depth++] = frame;
    t->modules += frame.kind == RLKT_MODULE;
    t->backward += frame.kind == RLKT_NODE || frame.kind == RLKT_ENGINE;
}

static void pop(struct rlkt_thread *t, uint8_t kind)
{
    if (t->lost) {
        t->lost--;
        return;
    }
    uint32_t i = t->depth;
    while (i > 0 && t->frames[i - 1].kind != kind)
        i--;
    while (i > 0 && t->depth >= i) {
        uint8_t k = t->frames[--t->depth].kind;
        t->modules -= k == RLKT_MODULE;
        t->backward -= k == RLKT_NODE || k == RLKT_ENGINE;
    }
}

struct rlkt_frame rlkt_top(const struct rlkt_thread *thread)
{
    return thread->depth ? thread->frames[thread->depth - 1] : (struct rlkt_frame){.pass = RLKT_FWD};
}

void rlkt_module_begin(struct rlkt_thread *thread, uint32_t path)
{
    uint8_t pass = thread->backward ? RLKT_RECOMPUTE : RLKT_FWD;
    uint32_t call = count_call(thread, path, pass);
    push(thread, (struct rlkt_frame){.path = path, .call = call, .kind = RLKT_MODULE, .pass = pass});
}

void rlkt_module_end(struct rlkt_thread *thread)
{
    pop(thread, RLKT_MODULE);
}

uint32_t rlkt_modules_open(const struct rlkt_thread *thread)
{
    return thread->modules;
}

void rlkt_optimizer_begin(struct rlkt_thread *thread)
{
    push(thread, (struct rlkt_frame){.kind = RLKT_OPTIMIZER, .pass = RLKT_OPT});
}

void rlkt_optimizer_end(struct rlkt_thread *thread)
{
    pop(thread, RLKT_OPTIMIZER);
}

void rlkt_engine_begin(struct rlkt_thread *thread)
{
    push(thread, (struct rlkt_frame){.kind = RLKT_ENGINE, .pass = RLKT_BWD});
}

void rlkt_engine_end(struct rlkt_thread *thread)
{
    pop(thread, RLKT_ENGINE);
    if (!thread->backward)
        atomic_store(&backward_ran, true);
}

/* Origins */

void rlkt_origin_set(struct rlkt_thread *thread, int64_t sequence)
{
    struct rlkt_frame top = rlkt_top(thread);
    struct origin *last = thread->norigins ? &thread->origins[thread->norigins - 1] : NULL;
    if (last && last->path == top.path && last->call == top.call && last->sequence <= sequence)
        return;
    pthread_mutex_lock(&thread->lock);
    /* An operator that made no node leaves the number to the next one. */
    while (thread->norigins && thread->origins[thread->norigins - 1].sequence >= sequence)
        thread->norigins--;
    if (thread->norigins == MAX_ORIGINS) {
        thread->norigins = MAX_ORIGINS / 2;
        memmove(thread->origins, thread->origins + MAX_ORIGINS / 2, thread->norigins * sizeof *thread->origins);
    }
    if (thread->norigins < thread->origin_capacity ||
        grow((void **)&thread->origins, &thread->origin_capacity, sizeof *thread->origins))
        thread->origins[thread->norigins++] = (struct origin){sequence, top.path, top.call};
    pthread_mutex_unlock(&thread->lock);
}

static struct origin origin_in(struct rlkt_thread *t, int64_t sequence)
{
    struct origin found = {.sequence = -1};
    pthread_mutex_lock(&t->lock);
    uint32_t low = 0, high = t->norigins;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->origins[middle].sequence <= sequence)
            low = middle + 1;
        else
            high = middle;
    }
    if (low)
        found = t->origins[low - 1];
    pthread_mutex_unlock(&t->lock);
    return found;
}

void rlkt_node_begin(struct rlkt_thread *thread, uint64_t forward_thread, int64_t sequence, bool grad)
{
    struct rlkt_frame frame = {.kind = RLKT_NODE, .pass = RLKT_BWD, .grad = grad};
    struct origin o = {.sequence = -1};
    if (sequence >= 0 && thread->id == forward_thread) {
        o = origin_in(thread, sequence);
    } else if (sequence >= 0) {
        pthread_mutex_lock(&registry.lock);
        for (struct rlkt_thread *t = registry.threads; t; t = t->next)
            if (t->id == forward_thread)
                o = origin_in(t, sequence);
        pthread_mutex_unlock(&registry.lock);
    }
    if (o.sequence >= 0) {
        frame.path = o.path;
        frame.call = o.call;
    }
    /* What the engine adds up after the node belongs to the node's module. */
    if (thread->depth && thread->frames[thread->depth - 1].kind == RLKT_ENGINE) {
        thread->frames[thread->depth - 1].path = frame.path;
        thread->frames[thread->depth - 1].call = frame.call;
    }
    push(thread, frame);
}

void rlkt_node_end(struct rlkt_thread *thread)
{
    pop(thread, RLKT_NODE);
}

/* Tap */

struct rlk_tap_ctx *rlkt_enter(struct rlkt_thread *thread, struct rlkt_frame frame)
{
    const struct rlk_tap_api *tap = rlk_tap();
    if (!tap || atomic_load(&detached))
        return NULL;
    uint64_t forks = atomic_load(&fork_count), epoch = atomic_load(&span_epoch);
    if (!thread->ctx || thread->fork != forks) {
        thread->ctx = tap->ctx(RLK_TAP_OWN_RANK);
        thread->fork = forks;
        thread->epoch = 0;
        if (!thread->ctx)
            return NULL;
    }
    if (thread->epoch != epoch) {
        pthread_mutex_lock(&registry.lock);
        int64_t step = registry.step, work = registry.work;
        const char *phase = registry.phase, *sample = registry.sample;
        pthread_mutex_unlock(&registry.lock);
        tap->step(thread->ctx, step);
        tap->phase(thread->ctx, phase);
        tap->work(thread->ctx, work, 0);
        tap->sample(thread->ctx, sample);
        thread->epoch = epoch;
        thread->any_sent = false;
    }
    if (!thread->any_sent || thread->sent.path != frame.path || thread->sent.call != frame.call ||
        thread->sent.pass != frame.pass) {
        tap->module_at(thread->ctx, rlkt_path(frame.path), pass_names[frame.pass], frame.call);
        thread->sent = frame;
        thread->any_sent = true;
    }
    return thread->ctx;
}

static void lock_all(void)
{
    pthread_mutex_lock(&registry.lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&registry.lock);
}

static void unlock_child(void)
{
    pthread_mutex_unlock(&registry.lock);
    atomic_fetch_add(&fork_count, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_child);
}

void rlkt_forked(bool detach)
{
    atomic_fetch_add(&fork_count, 1);
    if (detach)
        atomic_store(&detached, true);
}
