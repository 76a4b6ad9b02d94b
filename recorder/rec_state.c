/* rec_state.c - the environment of this process: opened at the first event, written to, closed at the end; faults. */
#include "recorder/rec.h"
#include "recorder/rec_gpu.h"
#include "recorder/rlk_env.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_WAIT_MS 2000 /* for threads that are inside the writer when the process ends */
#define MAX_CODES 32
#define PID_BITS 22 /* Linux: pid_max is at most 2^22 */

static struct {
    pthread_mutex_t lock;
    unsigned n;
    char codes[MAX_CODES][48];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

void rlki_rec_forked(void)
{
    pthread_mutex_init(&said.lock, NULL);
    said.n = 0;
}

/* True the first time that a code is named. */
static bool first_time(const char *code)
{
    bool first = true;
    pthread_mutex_lock(&said.lock);
    for (unsigned i = 0; i < said.n; i++)
        first = first && strncmp(said.codes[i], code, sizeof said.codes[i] - 1) != 0;
    if (first && said.n == MAX_CODES)
        first = false;
    else if (first)
        snprintf(said.codes[said.n++], sizeof said.codes[0], "%s", code);
    pthread_mutex_unlock(&said.lock);
    return first;
}

static void write_line(const char *code, const char *text)
{
    char line[1024];
    int n = snprintf(line, sizeof line - 1, "rlkrec: %s: %s", code, text);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = ' ';
    line[len] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len + 1); /* one write: lines of several ranks do not mix */
    (void)written;
}

void rlki_say(const char *code, const char *text)
{
    if (first_time(code))
        write_line(code, text);
}

void rlki_fault(const char *code, const char *text)
{
    struct rlki_rec *state = rlki_rec_now();
    char key[96];
    if (!first_time(code))
        return;
    write_line(code, text);
    if (!state)
        return;
    snprintf(key, sizeof key, RLK_META_FAULT "%.60s", code);
    rlki_rec_meta(state, key, text);
    struct rlk_event event = {.kind = RLK_EV_NOTE, .rank = rlki_options.own_rank};
    event.u.note.code = code;
    event.u.note.text = text;
    rlki_rec_put(state, &event, NULL);
}

static void default_meta(struct rlki_rec *state)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    const char *slash = strrchr(path, '/');
    rlk_writer_meta(state->writer, RLK_META_PROGRAM, slash ? slash + 1 : path);
}

static int open_writer(struct rlki_rec *state, struct rlk_detail *detail)
{
    char dir[PATH_MAX + 64];
    int rc = RLK_EEXIST;
    struct rlk_writer_options options = {.dir = dir,
                                         .max_bytes = rlki_options.max_bytes,
                                         .keep_last_steps = rlki_options.keep_last,
                                         .resolve = rlki_gpu_resolve,
                                         .resolve_context = state};
    /* The name is taken when this process has recorded before an exec, or had a namesake whose number was used again:
     * then the number goes on above what the kernel gives out. */
    for (long long pid = getpid(); rc == RLK_EEXIST && pid < 1000ll << PID_BITS; pid += 1ll << PID_BITS) {
        int len =
            snprintf(dir, sizeof dir, "%s/rank-%05u.pid-%lld", rlki_options.recording, rlki_options.own_rank, pid);
        if (len < 0 || (size_t)len >= sizeof dir)
            return rlk_fail(detail, RLK_ELIMIT, "the path is too long");
        rc = rlk_writer_open(&state->writer, &options, detail);
    }
    return rc;
}

static bool open_environment(struct rlki_rec *state)
{
    struct rlk_detail detail = {""};
    char text[700];
    int rc = RLK_OK, cancel;
    sigset_t all, before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_mutex_lock(&state->lock);
    if (__atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) == RLKI_FRESH) {
        sigfillset(&all); /* the writer's thread inherits it: the program's signals never land there */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = open_writer(state, &detail);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (rc == RLK_OK) {
            rlk_writer_planes(state->writer, RLK_PLANE_TENSOR);
            default_meta(state);
            for (struct rlki_meta *m = state->meta; m; m = m->next)
                rlk_writer_meta(state->writer, m->key, m->value);
        }
        __atomic_store_n(&state->phase, rc ? RLKI_FAILED : RLKI_OPEN, __ATOMIC_RELEASE);
    }
    bool open = __atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) == RLKI_OPEN;
    pthread_mutex_unlock(&state->lock);
    pthread_setcancelstate(cancel, NULL);
    if (open && !__atomic_load_n(&state->main_seen, __ATOMIC_RELAXED))
        rlki_watch(state);
    if (rc) {
        snprintf(text, sizeof text, "no environment in %.300s: %.300s; going on without recording",
                 rlki_options.recording, detail.text[0] ? detail.text : rlk_error_sentence(rc));
        rlki_say("open", text);
    }
    return open;
}

/* Says what stopped an event, once for each kind of fault. */
static void report(int rc, const struct rlk_detail *fault, const struct rlk_event *event)
{
    char text[700];
    switch (rc) {
    case RLK_EFULL:
        rlki_fault("queue-full", "events come faster than they can be written: some are dropped and counted");
        break;
    case RLK_ELIMIT:
    case RLK_EINVAL:
        snprintf(text, sizeof text, "an event (%s %.100s in %.200s) was refused: %s", rlk_event_kind_name(event->kind),
                 event->who.op ? event->who.op : "", event->who.module ? event->who.module : "",
                 rlk_error_sentence(rc));
        rlki_fault("refused", text);
        break;
    case RLK_ENOMEM:
        rlki_fault("memory", "out of memory: events are lost");
        break;
    default:
        snprintf(text, sizeof text, "%s; the program goes on, the recording stops here",
                 fault->text[0] ? fault->text : rlk_error_sentence(rc));
        rlki_say("write", text);
    }
}

/* The calling thread inside the writer with a producer of its own, or NULL. */
static struct rlki_thread *enter(struct rlki_rec *state)
{
    struct rlki_thread *thread = rlki_thread_self();
    if (!thread || thread->state != state)
        return NULL;
    if (__atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) == RLKI_FRESH && !open_environment(state))
        return NULL;
    if (!rlki_thread_enter(thread))
        return NULL;
    if (!thread->producer && rlk_writer_producer(state->writer, &thread->producer)) {
        thread->producer = NULL;
        rlki_thread_leave(thread);
        rlki_say("memory", "out of memory: events of a thread are lost");
        return NULL;
    }
    return thread;
}

typedef int producer_put(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq);

static int put_by(producer_put *put, struct rlki_rec *state, struct rlk_event *event, uint64_t *seq)
{
    struct rlk_detail fault = {""};
    struct rlki_thread *thread = enter(state);
    if (!thread)
        return RLK_ESTATE;
    event->thread = thread->ordinal;
    int rc = put(thread->producer, event, seq);
    if (rc == RLK_ESTATE) {
        rlk_writer_fault(state->writer, &fault);
        __atomic_store_n(&state->stopped, 1, __ATOMIC_RELAXED);
    }
    rlki_thread_leave(thread);
    if (rc == RLK_EFULL)
        rlki_gpu_stalled(state);
    if (rc)
        report(rc, &fault, event);
    return rc;
}

int rlki_rec_put(struct rlki_rec *state, struct rlk_event *event, uint64_t *seq)
{
    return put_by(rlk_producer_put, state, event, seq);
}

int rlki_rec_put_launch(struct rlki_rec *state, struct rlk_event *event, uint64_t *seq)
{
    return put_by(rlk_producer_launch, state, event, seq);
}

void rlki_rec_dropped(struct rlki_rec *state)
{
    struct rlki_thread *thread = enter(state);
    if (thread) {
        rlk_writer_count_dropped(state->writer, 1);
        rlki_thread_leave(thread);
    }
}

void rlki_rec_lost(struct rlki_rec *state, const char *why)
{
    rlki_fault("lost", why);
    rlki_rec_dropped(state);
}

int rlki_rec_payload(struct rlki_rec *state, const void *bytes, size_t n, rlk_u128 *id)
{
    struct rlki_thread *thread = enter(state);
    if (!thread)
        return RLK_ESTATE;
    int rc = rlk_producer_payload(thread->producer, bytes, n, id);
    rlki_thread_leave(thread);
    return rc;
}

void rlki_rec_meta(struct rlki_rec *state, const char *key, const char *value)
{
    struct rlki_thread *thread = rlki_thread_self();
    if (!thread || thread->state != state)
        return;
    pthread_mutex_lock(&state->lock); /* not opened meanwhile */
    if (__atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) == RLKI_FRESH) {
        struct rlki_meta *m = calloc(1, sizeof *m);
        if (m && (m->key = strdup(key)) && (m->value = strdup(value))) {
            struct rlki_meta **end = &state->meta;
            while (*end)
                end = &(*end)->next;
            *end = m;
        } else if (m) {
            free(m->key);
            free(m);
        }
        pthread_mutex_unlock(&state->lock);
        return;
    }
    pthread_mutex_unlock(&state->lock);
    if (rlki_thread_enter(thread)) {
        rlk_writer_meta(state->writer, key, value);
        rlki_thread_leave(thread);
    }
}

void rlki_rec_flush(struct rlki_rec *state)
{
    struct rlki_thread *thread = rlki_thread_self();
    if (!thread || thread->state != state || !rlki_thread_enter(thread))
        return;
    rlk_writer_flush(state->writer, NULL);
    rlki_thread_leave(thread);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sleep_ms(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Waits until no thread is inside the writer. */
static bool wait_quiet(struct rlki_rec *state)
{
    int64_t deadline = now_ms() + CLOSE_WAIT_MS;
    for (;; sleep_ms()) {
        bool busy = true;
        if (pthread_mutex_trylock(&state->lock) == 0) {
            busy = false;
            for (const struct rlki_thread *t = state->threads; t; t = t->next)
                busy = busy || __atomic_load_n(&t->busy, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&state->lock);
        }
        if (!busy)
            return true;
        if (now_ms() >= deadline)
            return false;
    }
}

void rlki_rec_leave(void)
{
    struct rlki_rec *state = rlki_rec_now();
    /* Not said by way of rlki_say(): its lock may be ours as well. */
    if (state && __atomic_exchange_n(&state->phase, RLKI_CLOSED, __ATOMIC_SEQ_CST) == RLKI_OPEN)
        write_line("close", "exit() in a signal handler, in the middle of a tap: the recording is left incomplete");
}

const struct rlki_launch_hooks *rlki_launch_hooks;

void rlki_rec_close(void)
{
    struct rlki_rec *state = rlki_rec_now();
    struct rlk_detail detail = {""};
    if (!state)
        return;
    rlki_gpu_close(state);
    if (rlki_launch_plane())
        rlki_launch_plane()->close();
    rlki_injection_check(false);
    int was = __atomic_exchange_n(&state->phase, RLKI_CLOSED, __ATOMIC_SEQ_CST);
    if (was != RLKI_OPEN) {
        if (was == RLKI_FAILED)
            __atomic_store_n(&state->phase, RLKI_FAILED, __ATOMIC_SEQ_CST);
        return;
    }
    if (!wait_quiet(state)) {
        /* What is committed stays; without END it reads as incomplete, which it is. */
        rlki_say("close", "a thread is still recording while the process ends: the recording is left incomplete");
        return;
    }
    int rc = rlk_writer_close(state->writer, false, &detail);
    if (rc && first_time("write")) /* a fault in mid-run was said then */
        rlki_say("close", detail.text[0] ? detail.text : rlk_error_sentence(rc));
}
