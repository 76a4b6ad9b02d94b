#include "tests/auditor/refuse.h"

#include <stdatomic.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);

static atomic_long left = -1; /* allocations that still succeed; -1 = all */

static bool refused(void)
{
    long n = atomic_load(&left);
    return n >= 0 && atomic_fetch_sub(&left, 1) <= 0;
}

void refuse_after(long n)
{
    atomic_store(&left, n);
}

bool refuse_met(void)
{
    return atomic_load(&left) <= 0;
}

void *__wrap_malloc(size_t n)
{
    return refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
    return refused() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refused() ? NULL : __real_realloc(p, n);
}
