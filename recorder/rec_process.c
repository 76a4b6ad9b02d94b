/* rec_process.c - which process and which thread is this: states, threads, fork, thread exit. */
#include "recorder/rec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PRODUCERS ((size_t)1 << 20) /* storages whose last writer is remembered */

struct rlki_options rlki_options;

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the making of a state */
static struct rlki_rec *current;                                 /* atomic */
static struct rlki_rec *inherited;
static int detached; /* atomic: this child does not record */
static pthread_key_t thread_key;
static _Thread_local struct rlki_thread *self;

bool rlki_rec_is_current(const struct rlki_rec *state)
{
    return state && state == __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}

static struct rlki_rec *state_new(void)
{
    struct rlki_rec *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->track = rlki_track_new(MAX_PRODUCERS);
    if (!state->track) {
        free(state);
        return NULL;
    }
    pthread_mutex_init(&state->lock, NULL);
    return state;
}

struct rlki_rec *rlki_rec_now(void)
{
    struct rlki_rec *state = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    if (!state) {
        if (__atomic_load_n(&detached, __ATOMIC_RELAXED))
            return NULL;
        pthread_mutex_lock(&process_lock);
        state = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
        if (!state && (state = state_new())) {
            state->inherited = inherited;
            __atomic_store_n(&current, state, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&process_lock);
    }
    if (!state || __atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) >= RLKI_FAILED)
        return NULL;
    return state;
}

static bool is_main_thread(void)
{
    return getpid() == gettid();
}

struct rlki_thread *rlki_thread_self(void)
{
    struct rlki_rec *state = rlki_rec_now();
    if (!state)
        return NULL;
    if (self && self->state == state)
        return self;
    struct rlki_thread *thread = calloc(1, sizeof *thread);
    if (!thread)
        return NULL;
    thread->state = state;
    if (pthread_setspecific(thread_key, thread)) {
        free(thread);
        return NULL;
    }
    pthread_mutex_lock(&state->lock);
    thread->ordinal = state->nthreads++;
    thread->next = state->threads;
    if (thread->next)
        thread->next->previous = thread;
    state->threads = thread;
    pthread_mutex_unlock(&state->lock);
    self = thread;
    if (is_main_thread())
        __atomic_store_n(&state->main_seen, 1, __ATOMIC_RELAXED);
    return thread;
}

bool rlki_thread_enter(struct rlki_thread *thread)
{
    /* A thread that waits for room may not be cancelled there: the writer would wait for it. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &thread->cancel);
    /* Sequentially consistent on both sides: either the closer sees us busy, or we see it closed. */
    __atomic_store_n(&thread->busy, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&thread->state->phase, __ATOMIC_SEQ_CST) == RLKI_OPEN)
        return true;
    rlki_thread_leave(thread);
    return false;
}

void rlki_thread_leave(struct rlki_thread *thread)
{
    __atomic_store_n(&thread->busy, 0, __ATOMIC_RELEASE);
    pthread_setcancelstate(thread->cancel, NULL);
}

static void thread_gone(void *value)
{
    struct rlki_thread *thread = value;
    struct rlki_rec *state = thread->state;
    self = NULL;
    if (!rlki_rec_is_current(state))
        return; /* the parent's, in a forked child: kept reachable by `inherited` */
    if (rlki_thread_enter(thread)) {
        if (thread->producer)
            rlk_producer_free(thread->producer);
        rlki_thread_leave(thread);
    }
    if (is_main_thread()) { /* pthread_exit() in the main thread: exit() runs no thread's hooks */
        __atomic_store_n(&state->main_seen, 0, __ATOMIC_SEQ_CST);
        rlki_watch(state);
    }
    while (thread->contexts) {
        struct rlk_tap_ctx *next = thread->contexts->next;
        rlki_ctx_free(thread->contexts);
        thread->contexts = next;
    }
    pthread_mutex_lock(&state->lock);
    *(thread->previous ? &thread->previous->next : &state->threads) = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    pthread_mutex_unlock(&state->lock);
    free(thread);
}

/* In the child only the forking thread is left, and any lock may be held by one that is not: everything is begun anew,
 * nothing of the parent's is waited for or written. */
static void forked_child(void)
{
    struct rlki_rec *state = __atomic_load_n(&current, __ATOMIC_RELAXED);
    pthread_mutex_init(&process_lock, NULL);
    rlki_rec_forked();
    if (rlki_options.fork_detach)
        __atomic_store_n(&detached, 1, __ATOMIC_RELAXED);
    self = NULL;
    pthread_setspecific(thread_key, NULL);
    if (!state)
        return;
    if (__atomic_load_n(&state->phase, __ATOMIC_RELAXED) == RLKI_OPEN)
        rlk_writer_abandon(state->writer);
    inherited = state;
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
}

bool rlki_process_start(void)
{
    return pthread_key_create(&thread_key, thread_gone) == 0 && pthread_atfork(NULL, NULL, forked_child) == 0;
}

struct rlki_rank *rlki_rec_rank(struct rlki_rec *state, uint32_t rank)
{
    struct rlki_rank *r = NULL;
    pthread_mutex_lock(&state->lock);
    for (r = state->ranks; r && r->rank != rank;)
        r = r->next;
    if (!r && (r = calloc(1, sizeof *r))) {
        r->rank = rank;
        pthread_mutex_init(&r->lock, NULL);
        r->next = state->ranks;
        state->ranks = r;
    }
    pthread_mutex_unlock(&state->lock);
    return r;
}
