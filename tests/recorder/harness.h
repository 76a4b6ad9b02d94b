/* harness.h - runs a program under the recorder and shows what it recorded as lines of text. */
#ifndef TESTS_RECORDER_HARNESS_H
#define TESTS_RECORDER_HARNESS_H

#include <stdbool.h>
#include <stddef.h>

struct run {
    char dir[64]; /* temporary; removed by run_release */
    char rec[96]; /* dir/rec.rlk */
    int status;   /* of waitpid */
    char *err;    /* its stderr */
    char *out;    /* its stdout */
    size_t nenvs;
    char envs[64][96]; /* names of the environments, sorted */
};

/* Runs argv with RLKREC_LIBRARY, RLKREC_RECORDING and `env` (NAME=VALUE..., NULL-ended, may be NULL; a bare NAME
 * unsets). Fails the test when it cannot be run, or hangs for half a minute. */
void run_program(struct run *run, const char *const *argv, const char *const *env);
/* The same in a recording directory that exists already. */
void run_again(struct run *run, const char *const *argv, const char *const *env);
void run_release(struct run *run);

/* Lines of environment i: one an event, malloc'ed; see harness.c. NULL: not readable. *complete: it has END. */
char *run_dump(const struct run *run, size_t i, bool *complete);
/* Asserts: one environment, complete, exit 0, nothing on stderr, and these lines. */
void run_expect(const char *const *argv, const char *const *env, const char *lines);

extern const char harness_library[];

#endif
