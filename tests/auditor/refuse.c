#include "tests/auditor/refuse.h"

#include "tests/failing_alloc.h"

void refuse_after(long n)
{
    if (n < 0)
        alloc_restore();
    else
        alloc_fail(n + 1, 1);
}

bool refuse_met(void)
{
    return alloc_hit();
}
