/* refuse.h - memory that runs out: link with refuse.c and rlk_failing_alloc. */
#ifndef TESTS_AUDITOR_REFUSE_H
#define TESTS_AUDITOR_REFUSE_H

#include <stdbool.h>

void refuse_after(long n); /* n allocations succeed, the next one does not; -1 = all succeed */
bool refuse_met(void);     /* has one been refused? */

#endif
