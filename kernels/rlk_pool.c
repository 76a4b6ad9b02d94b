#include "kernels/rlk_pool.h"
#include "kernels/rlki_control.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

struct rlk_pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    pthread_t *thread;
    unsigned threads, running;
    uint64_t generation;
    bool stop;
    int64_t tasks;
    atomic_llong next;
    void (*fn)(void *, int64_t, unsigned);
    void *arg;
};

struct worker {
    struct rlk_pool *pool;
    unsigned index;
};

/* Round to nearest, subnormals kept, exceptions masked: the arithmetic of the contracts. Returns the caller's word. */
uint64_t rlki_control_enter(void)
{
#if defined(__x86_64__)
    const uint64_t saved = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return saved;
#elif defined(__aarch64__)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0));
    return saved;
#else
    return 0;
#endif
}

void rlki_control_leave(uint64_t saved)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(saved));
#else
    (void)saved;
#endif
}

static void drain(struct rlk_pool *pool, unsigned index)
{
    const uint64_t saved = rlki_control_enter();
    for (;;) {
        const int64_t task = atomic_fetch_add(&pool->next, 1);
        if (task >= pool->tasks)
            break;
        pool->fn(pool->arg, task, index);
    }
    rlki_control_leave(saved);
}

static void *work(void *argument)
{
    struct worker *self = argument;
    struct rlk_pool *pool = self->pool;
    const unsigned index = self->index;
    uint64_t seen = 0;
    free(self);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen)
            pthread_cond_wait(&pool->start, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);
        drain(pool, index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->running == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct rlk_pool *rlk_pool_new(unsigned threads)
{
    struct rlk_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    if (threads == 0) {
        cpu_set_t set;
        threads = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1u;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->threads = 1;
    pool->thread = calloc(threads, sizeof *pool->thread);
    for (unsigned i = 1; pool->thread && i < threads; i++) {
        struct worker *w = malloc(sizeof *w);
        if (!w)
            break;
        *w = (struct worker){pool, i};
        if (pthread_create(&pool->thread[i], NULL, work, w) != 0) {
            free(w);
            break;
        }
        pool->threads++;
    }
    if (!pool->thread || pool->threads != threads) {
        rlk_pool_free(pool);
        return NULL;
    }
    return pool;
}

void rlk_pool_free(struct rlk_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 1; i < pool->threads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    free(pool->thread);
    free(pool);
}

unsigned rlk_pool_threads(const struct rlk_pool *pool)
{
    return pool ? pool->threads : 1;
}

void rlk_pool_run(struct rlk_pool *pool, int64_t tasks, void (*fn)(void *arg, int64_t task, unsigned thread), void *arg)
{
    if (tasks <= 0)
        return;
    if (!pool || pool->threads == 1 || tasks == 1) {
        const uint64_t saved = rlki_control_enter();
        for (int64_t i = 0; i < tasks; i++)
            fn(arg, i, 0);
        rlki_control_leave(saved);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->arg = arg;
    pool->tasks = tasks;
    atomic_store(&pool->next, 0);
    pool->running = pool->threads - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    drain(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->running)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
