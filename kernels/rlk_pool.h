/* rlk_pool.h - a thread pool. Which thread runs which task never shows in a result: a task writes only what is its own.
 */
#ifndef KERNELS_RLK_POOL_H
#define KERNELS_RLK_POOL_H

#include <stdint.h>

struct rlk_pool;

/* threads = 0: one per processor the process may run on. NULL when memory or threads are short. */
struct rlk_pool *rlk_pool_new(unsigned threads);
void rlk_pool_free(struct rlk_pool *pool);              /* NULL is allowed */
unsigned rlk_pool_threads(const struct rlk_pool *pool); /* 1 for NULL */

/* Calls fn(arg, task, thread) once for each task in [0, tasks), thread in [0, rlk_pool_threads), and returns when all
 * are done. pool NULL: in order, on the calling thread. One run at a time; a task must not run the pool itself. Every
 * task sees round-to-nearest with subnormals kept, whatever the caller's control word says. */
void rlk_pool_run(struct rlk_pool *pool, int64_t tasks, void (*fn)(void *arg, int64_t task, unsigned thread),
                  void *arg);

#endif
