/* failing_alloc.h - an allocator that fails when it is told to: once per test program, with rlk_failing_alloc(TARGET)
 * in its CMakeLists.txt (ld --wrap: every call from what is linked statically, ours and LMDB's, zstd's, jansson's,
 * comes here).
 *
 *     alloc_fail(n, 1);      the n-th call from now (1, 2, ...) fails, the others succeed; alloc_fail(n, ALLOC_ALL):
 * all from it on rc = call(); hit = alloc_hit();     did any fail? alloc_restore();       all succeed again
 *     alloc_calls()          calls since the last alloc_fail or alloc_restore
 * alloc_exempt is of a thread: the test's own allocations, which neither fail nor count. */
#ifndef TESTS_FAILING_ALLOC_H
#define TESTS_FAILING_ALLOC_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define ALLOC_ALL LONG_MAX

static _Atomic long alloc_first, alloc_count; /* first of the failing calls, 0 = none; how many */
static _Atomic long alloc_seen, alloc_failures;
static _Thread_local bool alloc_exempt;

static inline void alloc_fail(long n, long count)
{
    atomic_store(&alloc_first, 0);
    atomic_store(&alloc_seen, 0);
    atomic_store(&alloc_failures, 0);
    atomic_store(&alloc_count, count);
    atomic_store(&alloc_first, n);
}
static inline void alloc_restore(void)
{
    atomic_store(&alloc_first, 0);
    atomic_store(&alloc_seen, 0);
}
static inline long alloc_calls(void)
{
    return atomic_load(&alloc_seen);
}
static inline bool alloc_hit(void)
{
    return atomic_load(&alloc_failures) > 0;
}

static inline bool alloc_refused(void)
{
    if (alloc_exempt)
        return false;
    const long n = atomic_fetch_add(&alloc_seen, 1) + 1, first = atomic_load(&alloc_first);
    if (first == 0 || n < first || n - first >= atomic_load(&alloc_count))
        return false;
    atomic_fetch_add(&alloc_failures, 1);
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t n)
{
    return alloc_refused() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_refused() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return alloc_refused() ? NULL : __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return alloc_refused() ? NULL : __real_aligned_alloc(align, n);
}
int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    return alloc_refused() ? ENOMEM : __real_posix_memalign(p, align, n);
}
char *__wrap_strdup(const char *s)
{
    return alloc_refused() ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n)
{
    return alloc_refused() ? NULL : __real_strndup(s, n);
}

#endif
