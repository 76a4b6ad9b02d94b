/* Processes: fork, exec, kill -9, odd exits, full disks. The program goes on as it would have; the recording holds what
 * was committed and says when it is not whole. */
#include "tests/recorder/harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define W RLK_TEST_WORKLOADS "/"

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

/* The dumps of all environments, in order of their names. */
static char *dump_of(const struct run *run, size_t i, bool want_complete)
{
    bool complete = false;
    char *dump = run_dump(run, i, &complete);
    assert_non_null(dump);
    assert_int_equal(complete, want_complete);
    return dump;
}

static const char parent_lines[] = "0 op r0 s1 - w0.0 - -#0 parent.before@0 out t=D\n"
                                   "1 op r0 s1 - w0.0 - -#0 parent.open@0 out t=D\n"
                                   "2 op r0 s1 - w0.0 - -#0 parent.after@0 in t=R1.0\n";
static const char child_lines[] = "0 op r0 s0 - w0.0 - -#0 child.read@0 in t=D\n"
                                  "1 op r0 s0 - w0.0 - -#0 child.write@0 out t=D\n"
                                  "2 op r0 s0 - w0.0 - -#0 child.again@0 in t=R1.0\n";

static void expect_family(const char *mode, const char *arg, const char *const *env, unsigned children)
{
    struct run run;
    unsigned parents = 0, kids = 0;
    run_program(&run, (const char *const[]){W "fork", mode, arg, NULL}, env);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, 0);
    assert_int_equal(run.nenvs, children + 1);
    for (size_t i = 0; i < run.nenvs; i++) {
        char *dump = dump_of(&run, i, true);
        parents += !strcmp(dump, parent_lines);
        kids += !strcmp(dump, child_lines);
        free(dump);
    }
    assert_int_equal(parents, 1);
    assert_int_equal(kids, children);
    run_release(&run);
}

/* The allocator of this sanitizer is left locked in the child of a process with several threads; glibc's is not. */
#if defined(__SANITIZE_ADDRESS__)
#define SKIP_FORKS() skip()
#else
#define SKIP_FORKS() (void)0
#endif

static void fork_without_exec(void **state)
{
    (void)state;
    SKIP_FORKS();
    expect_family("plain", "3", NULL, 3);
    expect_family("_exit", NULL, NULL, 1);
    expect_family("silent", NULL, NULL, 0);
    expect_family("plain", "2", (const char *const[]){"RLKREC_FORK=detach", NULL}, 0);
}

static void fork_while_threads_record(void **state)
{
    (void)state;
    struct run run;
    unsigned kids = 0;
    SKIP_FORKS();
    run_program(&run, (const char *const[]){W "fork", "busy", NULL}, NULL);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, 0);
    assert_int_equal(run.nenvs, 21);
    for (size_t i = 0; i < run.nenvs; i++) {
        char *dump = dump_of(&run, i, true);
        kids += !strcmp(dump, "0 op r0 s0 - w0.0 - -#0 child@0 in t=D\n");
        free(dump);
    }
    assert_int_equal(kids, 20);
    run_release(&run);
}

static void exec_chain(void **state)
{
    (void)state;
    struct run run;
    run_program(&run, (const char *const[]){W "fork", "exec", NULL}, NULL);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, 0);
    assert_int_equal(run.nenvs, 2); /* one pid, two programs */
    for (size_t i = 0; i < 2; i++) {
        bool complete = false;
        char *dump = run_dump(&run, i, &complete);
        assert_non_null(dump);
        if (strstr(dump, "second@0"))
            assert_true(complete);
        else /* exec ended it as a signal would: nothing past the last commit, no END */
            assert_false(complete);
        free(dump);
    }
    run_release(&run);
    run_program(&run, (const char *const[]){W "fork", "spawn", NULL}, NULL);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, 0);
    assert_true(run.nenvs >= 2);
    run_release(&run);
}

/* What was flushed is there, in order and whole; what came after may be. */
static void expect_committed(const char *how, int want_status, const char *const *env)
{
    struct run run;
    run_program(&run, (const char *const[]){W "killme", how, "500", NULL}, env);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, want_status);
    assert_int_equal(run.nenvs, 1);
    char *dump = dump_of(&run, 0, false), line[128];
    unsigned n = count(dump, "\n");
    assert_true(n >= 500 && n <= 1000);
    snprintf(line, sizeof line, "\n499 op r0 s499 - w0.0 - -#0 mm@0 out =D\n");
    assert_int_equal(count(dump, "mm@0 out t=D"), n);
    free(dump);
    run_release(&run);
}

static void ends_by_signal(void **state)
{
    (void)state;
    expect_committed("kill", SIGKILL, NULL);
    expect_committed("_exit", 7 << 8, NULL);
    expect_committed("quick_exit", 7 << 8, NULL);
}

static void ends_by_fatal_signal(void **state)
{
    (void)state;
    struct run run;
    static const char *const how[] = {"segv", "abort"};
    for (int i = 0; i < 2; i++) { /* a core dump sets another bit; a sanitizer takes the signal and exits */
        run_program(&run, (const char *const[]){W "killme", how[i], NULL}, NULL);
        assert_true(run.status != 0);
        assert_int_equal(run.nenvs, 1);
        bool complete = false;
        char *dump = run_dump(&run, 0, &complete);
        assert_true(count(dump, "mm@0") >= 500);
        free(dump);
        run_release(&run);
    }
}

/* exit() out of a signal handler, and exit() while a thread records without pause: neither hangs nor crashes. */
static void ends_in_the_middle(void **state)
{
    (void)state;
    struct run run;
    static const char *const how[] = {"handler", "stuck"};
    for (int i = 0; i < 10; i++) {
        run_program(&run, (const char *const[]){W "killme", how[i % 2], "50", NULL}, NULL);
        if (run.status != 7 << 8)
            fail_msg("%s: status %x: %s", how[i % 2], run.status, run.err);
        assert_int_equal(run.nenvs, 1);
        bool complete = false;
        char *dump = run_dump(&run, 0, &complete);
        assert_non_null(dump);
        assert_true(count(dump, "mm@0") >= 50);
        if (!complete) /* then it says so */
            assert_non_null(strstr(run.err, "rlkrec: close: "));
        free(dump);
        run_release(&run);
    }
}

/* ---- a full disk: file sizes are bounded, as on a small quota; and a small file system where one can be mounted */
static void expect_full(struct run *run, const char *const *argv, const char *const *env)
{
    struct rlimit old, small = {4 << 20, 4 << 20};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    run_program(run, argv, env);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(run->status, 0);
    assert_string_equal(run->out, "done\n");
    if (!strstr(run->err, "rlkrec: "))
        fail_msg("nothing is said: '%s'", run->err);
    assert_int_equal(count(run->err, "\n"), 1);
}

static void disk_full(void **state)
{
    (void)state;
    struct run run;
    expect_full(&run, (const char *const[]){W "killme", "full", "100", NULL}, NULL);
    print_message("%s", run.err);
    bool complete = true;
    char *dump = run_dump(&run, 0, &complete);
    assert_non_null(dump);
    assert_false(complete);
    assert_true(count(dump, "mm@0") >= 100);
    free(dump);
    run_release(&run);
}

/* A real one, where a file system may be mounted: in a mount namespace of the child's own. */
static void file_system_full(void **state)
{
    (void)state;
    struct run run;
    run_program(&run,
                (const char *const[]){"/bin/sh", "-c",
                                      "unshare -m /bin/sh -c 'mount -t tmpfs -o size=4m none \"$RLKREC_RECORDING\" &&"
                                      " " W "killme full 100; echo $?' || echo no mount",
                                      NULL},
                NULL);
    if (strstr(run.out, "no mount") || !strstr(run.out, "done")) {
        run_release(&run);
        skip();
    }
    assert_string_equal(run.out, "done\n0\n");
    assert_int_equal(count(run.err, "rlkrec: write: "), 1);
    assert_int_equal(count(run.err, "\n"), 1);
    run_release(&run);
}

static void max_size(void **state)
{
    (void)state;
    struct run run;
    bool complete = true;
    run_program(&run, (const char *const[]){W "killme", "full", "100", NULL},
                (const char *const[]){"RLKREC_MAX_SIZE=4M", NULL});
    assert_int_equal(run.status, 0);
    assert_string_equal(run.out, "done\n");
    char *dump = run_dump(&run, 0, &complete);
    assert_non_null(strstr(dump, "max-size"));
    free(dump);
    run_release(&run);
}

static void not_writable(void **state)
{
    (void)state;
    struct run run;
    if (geteuid() == 0)
        skip(); /* root writes everywhere; test_tap.c has a directory that nobody can write */
    run_program(&run, (const char *const[]){W "killme", "done", NULL}, NULL);
    run_release(&run);
}

/* ---- the real workload: its own output is the same recorded and unrecorded */
static void training_is_unchanged(void **state)
{
    (void)state;
    struct run plain, recorded;
    const char *const argv[] = {W "train", "--steps", "3", NULL};
    run_program(&plain, argv, (const char *const[]){"RLKREC_LIBRARY", NULL});
    assert_int_equal(plain.status, 0);
    assert_int_equal(plain.nenvs, 0);
    static const char *const levels[] = {"RLKREC_LEVEL=op", "RLKREC_LEVEL=module", "RLKREC_LEVEL=step",
                                         "RLKREC_LEVEL=launch"};
    for (int i = 0; i < 4; i++) {
        run_program(&recorded, argv, (const char *const[]){levels[i], NULL});
        assert_int_equal(recorded.status, 0);
        assert_string_equal(recorded.err, "");
        assert_string_equal(recorded.out, plain.out);
        free(dump_of(&recorded, 0, true));
        run_release(&recorded);
    }
    run_release(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_without_exec),
        cmocka_unit_test(fork_while_threads_record),
        cmocka_unit_test(exec_chain),
        cmocka_unit_test(ends_by_signal),
        cmocka_unit_test(ends_by_fatal_signal),
        cmocka_unit_test(ends_in_the_middle),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(file_system_full),
        cmocka_unit_test(max_size),
        cmocka_unit_test(not_writable),
        cmocka_unit_test(training_is_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
