/* refuse.h - memory that runs out: link with refuse.c and --wrap for malloc, calloc and realloc. */
#ifndef TESTS_AUDITOR_REFUSE_H
#define TESTS_AUDITOR_REFUSE_H

#include <stdbool.h>

void refuse_after(long n); /* n allocations succeed, the next ones do not; -1 = all succeed */
bool refuse_met(void);     /* has one been refused, or the last been given? */

#endif
