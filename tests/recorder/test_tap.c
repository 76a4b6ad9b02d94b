/* The tap end to end: a probe runs under the recorder and what it recorded is compared with what was written out by
 * hand here. Lines are explained in harness.c. */
#include "tests/recorder/harness.h"

#include "store/rlk_digest.h"
#include "store/rlk_reader.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char *const *probe(const char *scenario)
{
    static const char *argv[3] = {RLK_TEST_PROBE, NULL, NULL};
    argv[1] = scenario;
    return argv;
}

static void identity(void **state)
{
    (void)state;
    run_expect(probe("identity"), NULL,
               "0 op r0 s3 train w0.0 fwd -#0 embed@0\n"
               "1 op r0 s3 train w0.0 fwd block#0 mm@0\n"
               "2 op r0 s3 train w0.0 fwd block#0 mm@1\n"
               "3 op r0 s3 train w0.0 fwd block.norm#0 mul@0\n"
               "4 op r0 s3 train w0.0 fwd block#0 mm@2\n"
               "5 op r0 s3 train w0.0 fwd block#1 mm@0\n"
               "6 op r0 s3 train w0.0 fwd block.norm#1 mul@0\n"
               "7 op r0 s3 train w0.0 recompute block#0 mm@0\n"
               "8 op r0 s3 train w0.0 fwd block#2 mm@0\n"
               "9 op r0 s3 train w1.0 fwd block#0 mm@0\n"
               "10 op r0 s3 train w0.0 fwd block#3 mm@0\n"
               "11 op r0 s3 eval w0.0 fwd block#0 mm@0\n"
               "12 op r0 s4 train w0.0 fwd block#0 mm@0\n"
               "13 op r0 s4 train w7.5 fwd block#0 mm@0 ~r7\n");
}

static void module_at(void **state)
{
    (void)state;
    run_expect(probe("module_at"), NULL,
               "0 op r0 s0 - w0.0 bwd loss#0 div@0\n"
               "1 op r0 s0 - w0.0 bwd block.1#2 mm@0\n"
               "2 op r0 s0 - w0.0 bwd block.1#2 mm@1\n"
               "3 op r0 s0 - w0.0 bwd block.0#0 mm@0\n"
               "4 op r0 s0 - w0.0 bwd loss#0 div@1\n"
               "5 op r0 s0 - w0.0 bwd block.0#0 mm@1\n"
               "6 op r0 s0 - w0.0 bwd loss#0 div@2\n"
               "7 op r0 s0 - w0.0 bwd -#0 root@0\n");
}

static void virtual_ranks(void **state)
{
    (void)state;
    run_expect(probe("virtual_ranks"), NULL,
               "0 op r0 s1 - w0.0 - m#0 mm@0\n"
               "1 op r1 s1 - w0.0 - m#0 mm@0\n"
               "2 op r2 s1 - w0.0 - m#0 mm@0\n"
               "3 op r0 s1 - w0.0 - m#0 mm@1\n"
               "4 op r1 s1 - w0.0 - m#0 mm@1\n"
               "5 op r2 s1 - w0.0 - m#0 mm@1\n"
               "6 op r1 s1 - w0.0 - m#0 mm@2\n");
}

static void threads_share_the_ranks_counters(void **state)
{
    (void)state;
    run_expect(probe("threads"), NULL,
               "0 op r0 s2 train w1.0 bwd m#0 mm@0\n"
               "1 op r0 s2 train w1.0 bwd -#0 mm@0\n"
               "2 op r0 s2 train w1.0 bwd m#0 mm@1\n"
               "3 op r0 s2 train w1.0 bwd m#0 mm@2\n"
               "4 op r0 s3 train w1.0 bwd -#0 mm@0\n"
               "5 op r0 s3 train w1.0 bwd m#0 mm@0\n"
               "6 op r0 s3 own w1.0 bwd m#0 mm@0\n"
               "7 op r0 s3 train w1.0 bwd m#0 mm@1\n");
}

static void cancel_nesting_autotune(void **state)
{
    (void)state;
    run_expect(probe("cancel"), NULL,
               "0 op r0 s0 - w0.0 - -#0 inner@0\n"
               "1 op r0 s0 - w0.0 - -#0 inner@1\n"
               "2 op r0 s0 - w0.0 - -#0 outer@0 contract rlk.outer/1\n"
               "3 op r0 s0 - w0.0 - -#0 inner@0 (autotune)\n"
               "4 op r0 s0 - w0.0 - m#0 inner@0 (autotune)\n"
               "5 op r0 s0 - w0.0 - -#0 inner@2\n"
               "6 op r0 s0 - w0.0 - m#0 inner@0\n");
}

static const char references_lines[] = "0 op r0 s0 - w0.0 - -#0 unknown@0 in x=D\n"
                                       "1 op r0 s0 - w0.0 - -#0 fill@0 out x=D\n"
                                       "2 op r0 s0 - w0.0 - -#0 same@0 in x=R1.0\n"
                                       "3 op r0 s0 - w0.0 - -#0 slice@0 in x=R1.0*\n"
                                       "4 op r0 s0 - w0.0 - -#0 beyond@0 in x=D\n"
                                       "5 op r0 s0 - w0.0 - -#0 bumped@0 in x=D\n"
                                       "6 op r0 s0 - w0.0 - -#0 other@0 in x=D\n"
                                       "7 op r0 s0 - w0.0 - -#0 nogen@0 in x=D\n"
                                       "8 op r0 s0 - w0.0 - -#0 copy_@0 out x[0:4]=D\n"
                                       "9 op r0 s0 - w0.0 - -#0 whole@0 in x=D\n"
                                       "10 op r0 s0 - w0.0 - -#0 untouched@0 in x=D\n"
                                       "11 op r0 s0 - w0.0 - -#0 written@0 in x=R8.0\n"
                                       "12 op r0 s0 - w0.0 - -#0 inside@0 in x=R8.0*\n"
                                       "13 op r0 s0 - w0.0 - -#0 append@0 out kv[4:7]=D\n"
                                       "14 op r0 s0 - w0.0 - -#0 attend@0 in kv=D\n"
                                       "15 op r0 s0 - w0.0 - -#0 fill@1 out x=D\n"
                                       "16 op r0 s0 - w0.0 - -#0 foreign@0 in x=D\n"
                                       "17 op r0 s0 - w0.0 - -#0 fill@2 out x=D\n"
                                       "18 op r0 s0 - w0.0 - -#0 freed@0 in x=D\n"
                                       "19 op r0 s0 - w0.0 - -#0 fill@3 out x=D\n"
                                       "20 op r0 s0 - w0.0 - -#0 always@0 in x=D\n"
                                       "21 op r0 s0 - w0.0 - -#0 empty@0 out x=N(alloc)\n"
                                       "22 op r0 s0 - w0.0 - -#0 empty.read@0 in x=D\n"
                                       "23 op r0 s0 - w0.0 - -#0 mul_@0 in self=D out self=D\n"
                                       "24 op r0 s0 - w0.0 - -#0 after@0 in x=R23.0\n"
                                       "25 op r0 s0 - w0.0 - -#0 careful@0 in x=D\n"
                                       "26 op r0 s0 - w0.0 - -#0 split@0 out a=D out b=D\n"
                                       "27 op r0 s0 - w0.0 - -#0 b@0 in b=R26.1\n"
                                       "28 op r0 s0 - w0.0 - -#0 a@0 in a=R26.0*\n"
                                       "29 leaf r0 s0 - w0.0 - -#0 leaf@0 w model.safetensors#w ab12  0 out w=D/v1\n"
                                       "30 op r0 s0 - w0.0 - -#0 use@0 in w=R29.0\n";

static void references(void **state)
{
    (void)state;
    run_expect(probe("references"), NULL, references_lines);
}

/* --inputs digest: the same events, every input read. */
static void inputs_digest(void **state)
{
    (void)state;
    static const char *const env[] = {"RLKREC_INPUTS=digest", NULL};
    char *lines = strdup(references_lines), *r;
    while ((r = strstr(lines, "=R"))) {
        size_t n = 2 + strcspn(r + 2, "\n ");
        memcpy(r, "=D", 2);
        memmove(r + 2, r + n, strlen(r + n) + 1);
    }
    run_expect(probe("references"), env, lines);
    free(lines);
}

/* With --keep-last a reference never leaves its step: the event it names might be let go. */
static void keep_last(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    static const char *const env[] = {"RLKREC_KEEP_LAST=2", NULL};
    run_program(&run, probe("kept"), env);
    assert_string_equal(run.err, "");
    char *dump = run_dump(&run, 0, &complete);
    assert_string_equal(dump, "7 op r0 s2 - w0.0 - -#0 fill@0 out x=D\n"
                              "8 op r0 s2 - w0.0 - -#0 frozen@0 in w=D\n"
                              "9 op r0 s2 - w0.0 - -#0 fresh@0 in x=R7.0\n"
                              "10 op r0 s3 - w0.0 - -#0 fill@0 out x=D\n"
                              "11 op r0 s3 - w0.0 - -#0 frozen@0 in w=D\n"
                              "12 op r0 s3 - w0.0 - -#0 fresh@0 in x=R10.0\n");
    free(dump);
    run_release(&run);
    run_program(&run, probe("kept"), NULL);
    dump = run_dump(&run, 0, &complete);
    assert_non_null(strstr(dump, "\n11 op r0 s3 - w0.0 - -#0 frozen@0 in w=R0.0\n"));
    free(dump);
    run_release(&run);
}

static void kinds(void **state)
{
    (void)state;
    run_expect(probe("kinds"), NULL,
               "0 collective r0 s1 - w0.0 - m#0 all_reduce@0 group tp algo RING order 1 0 deterministic why='because'"
               " launch ncclKernel in g=D out g=D\n"
               "1 copy r0 s1 - w0.0 - m#0 copy.h2d@0\n"
               "2 weights r0 s1 - w0.0 - m#0 weights@0 v3 trainer out g=D/v3\n"
               "3 rng r0 s1 - w0.0 - m#0 -@0 philox 5 64\n"
               "4 rng r0 s1 - w0.0 - m#0 -@1 philox 5 64\n"
               "5 metric r0 s1 - w0.0 - m#0 loss@0 0.5\n"
               "6 metric r0 s1 - w0.0 - m#0 loss@1 0.25\n"
               "7 readback r0 s1 - w0.0 - attention#0 readback@0 R/R rlk rlk.attention/1 12\n"
               "8 op r0 s1 - w0.0 - -#0 state@0 out g=U(debug-output)\n");
}

/* Sums of the samples: those of each sample's rows on their own, and the parts of two holders add up. */
static int samples_add_up(void *context, const struct rlk_event *e)
{
    struct rlk_sums(*sums)[3] = context;
    for (uint32_t i = 0; i < e->tensors[0].nsamples; i++)
        sums[e->seq][i] = e->tensors[0].samples[i].sums;
    sums[e->seq][2] = e->tensors[0].sums;
    return 0;
}

static void samples(void **state)
{
    (void)state;
    struct run run;
    char path[256];
    struct rlk_env *env = NULL;
    bool complete = false;
    float rows[6][4];
    for (int i = 0; i < 24; i++)
        rows[i / 4][i % 4] = (float)i;
    run_program(&run, probe("samples"), NULL);
    char *dump = run_dump(&run, 0, &complete);
    assert_string_equal(dump, "0 op r0 s0 - w0.0 - -#0 packed@0 out h=D<p:0+4><q:4+2>[bytes]\n"
                              "1 op r0 s0 - w0.0 - -#0 sharded@0 out h=D<p:0+4><q:4+2>\n");
    snprintf(path, sizeof path, "%s/%s", run.rec, run.envs[0]);
    assert_int_equal(rlk_env_open(&env, path, NULL), RLK_OK);
    struct rlk_sums got[2][3] = {0};
    assert_int_equal(rlk_env_scan(env, 0, 2, samples_add_up, got, NULL), 0);
    /* sample p alone: rows 0..4 as a tensor [4,4]; sample q: rows 4..6 as [2,4] */
    struct rlk_sums want;
    bool composable;
    struct rlk_view v = {
        .dtype = RLK_FP32, .ndim = 2, .shape = (const uint64_t[]){4, 4}, .storage = rows, .storage_bytes = sizeof rows};
    assert_int_equal(rlk_digest_view(&want, &composable, &v, NULL, NULL), RLK_OK);
    assert_memory_equal(&want, &got[0][0], sizeof want);
    v.shape = (const uint64_t[]){2, 4};
    v.offset = 16;
    assert_int_equal(rlk_digest_view(&want, &composable, &v, NULL, NULL), RLK_OK);
    assert_memory_equal(&want, &got[0][1], sizeof want);
    /* sharded: the local rows are rows 0, 1, 2 of the buffer, said to be rows 1, 2 and 5 */
    v.shape = (const uint64_t[]){2, 4};
    v.offset = 0;
    struct rlk_place place = {.ndim = 2,
                              .shape = (const uint64_t[]){4, 4},
                              .nruns = (const uint32_t[]){1, RLK_WHOLE},
                              .runs = (const struct rlk_run[]){{1, 2}}};
    assert_int_equal(rlk_digest_view(&want, &composable, &v, &place, NULL), RLK_OK);
    assert_memory_equal(&want, &got[1][0], sizeof want);
    assert_int_equal(got[1][1].elements, 4);
    void *bytes = NULL;
    size_t n = 0;
    rlk_u128 id = rlk_content_id(rows, sizeof rows);
    assert_int_equal(rlk_env_payload(env, id, 1 << 20, &bytes, &n, NULL), RLK_OK);
    assert_int_equal(n, sizeof rows);
    assert_memory_equal(bytes, rows, n);
    free(bytes);
    rlk_env_close(env);
    free(dump);
    run_release(&run);
}

/* ---- what --level, --steps, --every and --payload keep */
static char *filtered(const char *const *env)
{
    struct run run;
    bool complete = false;
    run_program(&run, probe("filtered"), env);
    assert_string_equal(run.err, "");
    assert_int_equal(run.nenvs, 1);
    char *dump = run_dump(&run, 0, &complete), *out = calloc(1, 4096);
    for (char *line = strtok(dump, "\n"); line; line = strtok(NULL, "\n")) {
        /* "3 op r0 s2 - w0.0 - m#0 mm@0": step and operator */
        char step[16] = "", op[64] = "";
        sscanf(line, "%*u %*s %*s %15s %*s %*s %*s %*s %63[^@]", step, op);
        strcat(out, step);
        strcat(out, ":");
        strcat(out, op);
        strcat(out, " ");
    }
    free(dump);
    run_release(&run);
    return out;
}

static void expect_filtered(const char *a, const char *b, const char *want)
{
    const char *const env[] = {a, b, NULL};
    char *got = filtered(env);
    assert_string_equal(got, want);
    free(got);
}

static void levels_and_steps(void **state)
{
    (void)state;
    expect_filtered("RLKREC_LEVEL=op", "RLKREC_STEPS=2:3",
                    "s2:mm s2:module s2:module.attn s2:modulex s2:step.loss s2:all_reduce s2:weights s2:loss ");
    expect_filtered("RLKREC_LEVEL=buffer", "RLKREC_STEPS=5:",
                    "s5:mm s5:module s5:module.attn s5:modulex s5:step.loss s5:all_reduce s5:weights s5:loss ");
    expect_filtered("RLKREC_LEVEL=module", "RLKREC_STEPS=:1",
                    "s0:module s0:module.attn s0:step.loss s0:all_reduce s0:weights s0:loss s0:leaf ");
    expect_filtered("RLKREC_LEVEL=step", "RLKREC_EVERY=4",
                    "s0:step.loss s0:weights s0:loss s0:leaf s4:step.loss s4:weights s4:loss ");
    expect_filtered("RLKREC_LEVEL=launch", "RLKREC_STEPS=1:3", "s1:loss s2:loss ");
}

static void payload_selection(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    static const char *const env[] = {"RLKREC_PAYLOAD=op=slice\nop=fill,name=x,step=0:1", NULL};
    run_program(&run, probe("references"), env);
    char *dump = run_dump(&run, 0, &complete);
    assert_non_null(strstr(dump, "slice@0 in x=R1.0*[bytes]\n"));
    assert_non_null(strstr(dump, "fill@3 out x=D[bytes]\n"));
    assert_non_null(strstr(dump, "same@0 in x=R1.0\n"));
    unsigned n = 0;
    for (char *p = dump; (p = strstr(p, "[bytes]")); p++)
        n++;
    assert_int_equal(n, 5);
    free(dump);
    run_release(&run);
}

/* ---- the caller's own state */
static int sums_of(void *context, const struct rlk_event *e)
{
    struct rlk_sums *sums = context;
    if (e->seq < 2)
        sums[e->seq] = e->tensors[0].sums;
    return 0;
}

/* A scenario that says nothing; the sums of its first two operators. */
static void first_sums(const char *scenario, struct rlk_sums sums[2])
{
    struct run run;
    char path[256];
    struct rlk_env *env = NULL;
    run_program(&run, probe(scenario), NULL);
    assert_string_equal(run.out, "");
    assert_int_equal(run.status, 0);
    snprintf(path, sizeof path, "%s/%s", run.rec, run.envs[0]);
    assert_int_equal(rlk_env_open(&env, path, NULL), RLK_OK);
    assert_int_equal(rlk_env_scan(env, 0, 3, sums_of, sums, NULL), 0);
    rlk_env_close(env);
    run_release(&run);
}

static void leaves_no_trace(void **state)
{
    (void)state;
    struct rlk_sums sums[2] = {0};
    first_sums("no_trace", sums);
    assert_int_equal(sums[0].elements, 8);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]); /* denormals keep their bits under FTZ and DAZ */
}

static void given_sums(void **state)
{
    (void)state;
    struct rlk_sums sums[2] = {0};
    first_sums("given_sums", sums);
    assert_int_equal(sums[0].multiset, 11);
    assert_int_equal(sums[0].value.hi, 10);
    assert_int_equal(sums[1].elements, 8);
    assert_int_not_equal(sums[1].multiset, 11);
}

static void null_contexts(void **state)
{
    (void)state;
    run_expect(probe("nulls"), NULL, "0 op r0 s0 - w0.0 - -#0 -@0\n");
}

/* ---- ends of a process */
static void nothing_recorded(void **state)
{
    (void)state;
    struct run run;
    run_program(&run, probe("nothing"), NULL);
    assert_int_equal(run.status, 0);
    assert_string_equal(run.err, "");
    assert_int_equal(run.nenvs, 0); /* no event, no environment */
    run_release(&run);
}

static void finish_and_exits(void **state)
{
    (void)state;
    run_expect(probe("finish"), NULL, "0 op r0 s0 - w0.0 - -#0 before@0\n");
    run_expect(probe("exit"), NULL,
               "0 op r0 s0 - w0.0 - -#0 main@0\n"
               "1 op r0 s0 - w0.0 - -#0 atexit@0\n");
    run_expect(probe("pthread_exit"), NULL,
               "0 op r0 s0 - w0.0 - -#0 main@0\n"
               "1 op r0 s0 - w0.0 - -#0 late@0\n");
    run_expect(probe("untapped"), NULL, "0 op r0 s0 - w0.0 - -#0 late@0\n");
}

/* ---- faults */
static void said_once_and_marked(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    char path[256];
    struct rlk_env *env = NULL;
    run_program(&run, probe("faults"), NULL);
    assert_string_equal(run.err, "rlkrec: observer-failed: the observer could not be built because\n");
    char *dump = run_dump(&run, 0, &complete);
    assert_string_equal(dump,
                        "0 note r0 s0 - w0.0 - -#0 -@0 observer-failed: the observer could not be built\nbecause\n"
                        "1 op r0 s0 - w0.0 - -#0 mm@0\n");
    snprintf(path, sizeof path, "%s/%s", run.rec, run.envs[0]);
    assert_int_equal(rlk_env_open(&env, path, NULL), RLK_OK);
    assert_string_equal(rlk_env_meta(env, "fault.observer-failed"), "the observer could not be built\nbecause");
    assert_string_equal(rlk_env_meta(env, "program"), "recorder.probe");
    rlk_env_close(env);
    free(dump);
    run_release(&run);
}

static void unreadable_tensors(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    run_program(&run, probe("refuses"), NULL);
    assert_int_equal(run.status, 0);
    char *dump = run_dump(&run, 0, &complete);
    assert_non_null(strstr(dump, "mm@0 out x=N(unreadable)\n"));
    assert_non_null(strstr(dump, "mm@1 out x=N(unreadable)\n"));
    assert_non_null(strstr(run.err, "rlkrec: unreadable: "));
    free(dump);
    run_release(&run);
}

static unsigned lines_in(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void expect_unrecorded(const char *const *env, const char *says, bool taps)
{
    struct run run;
    run_program(&run, probe("identity"), env);
    assert_int_equal(run.status, 0);
    assert_int_equal(run.nenvs, 0);
    if (says) {
        if (!strstr(run.err, says))
            fail_msg("'%s' is not in '%s'", says, run.err);
        assert_int_equal(lines_in(run.err), 1);
    } else {
        assert_string_equal(run.err, "");
    }
    assert_string_equal(run.out, taps ? "" : "no recorder\n");
    run_release(&run);
}

static void recorder_cannot_load(void **state)
{
    (void)state;
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY", NULL}, NULL, false);
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY=", NULL}, NULL, false);
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY=/nonexistent/librlkrec.so", NULL},
                      "rlkrec: cannot load the recorder /nonexistent/librlkrec.so: ", false);
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY=/etc/passwd", NULL},
                      "rlkrec: cannot load the recorder /etc/passwd: ", false);
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY=libc.so.6", NULL}, "it has no rlk_tap_table", false);
    expect_unrecorded((const char *const[]){"RLKREC_LIBRARY=" RLK_TEST_OTHER_ABI, NULL},
                      "it speaks another version of the tap interface", false);
    expect_unrecorded((const char *const[]){"RLKREC_RECORDING", NULL},
                      "rlkrec: environment: RLKREC_RECORDING is not set", false);
}

static void environment_cannot_be_made(void **state)
{
    (void)state;
    expect_unrecorded((const char *const[]){"RLKREC_RECORDING=/nonexistent/rec.rlk", NULL},
                      "rlkrec: open: no environment in /nonexistent/rec.rlk: ", true);
    expect_unrecorded((const char *const[]){"RLKREC_RECORDING=/proc/rec.rlk", NULL},
                      "rlkrec: open: no environment in /proc/rec.rlk: ", true);
}

static void bad_environment_gets_defaults(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    static const char *const env[] = {"RLKREC_LEVEL=operator", "RLKREC_STEPS=5", "RLKREC_EVERY=0", NULL};
    run_program(&run, probe("virtual_ranks"), env);
    assert_string_equal(run.err,
                        "rlkrec: environment: RLKREC_LEVEL=operator: level 'operator' is none of launch, step, "
                        "module, op, buffer; the default is used\n");
    char *dump = run_dump(&run, 0, &complete);
    assert_int_equal(lines_in(dump), 7);
    free(dump);
    run_release(&run);
}

static void rank_of_the_process(void **state)
{
    (void)state;
    struct run run;
    bool complete = false;
    static const char *const env[] = {"RANK=17", "SLURM_PROCID=3", NULL};
    run_program(&run, probe("nulls"), env);
    assert_memory_equal(run.envs[0], "rank-00017.pid-", 15);
    char *dump = run_dump(&run, 0, &complete);
    assert_string_equal(dump, "0 op r17 s0 - w0.0 - -#0 -@0\n");
    free(dump);
    run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity),
        cmocka_unit_test(module_at),
        cmocka_unit_test(virtual_ranks),
        cmocka_unit_test(threads_share_the_ranks_counters),
        cmocka_unit_test(cancel_nesting_autotune),
        cmocka_unit_test(references),
        cmocka_unit_test(inputs_digest),
        cmocka_unit_test(keep_last),
        cmocka_unit_test(kinds),
        cmocka_unit_test(samples),
        cmocka_unit_test(levels_and_steps),
        cmocka_unit_test(payload_selection),
        cmocka_unit_test(leaves_no_trace),
        cmocka_unit_test(given_sums),
        cmocka_unit_test(null_contexts),
        cmocka_unit_test(nothing_recorded),
        cmocka_unit_test(finish_and_exits),
        cmocka_unit_test(said_once_and_marked),
        cmocka_unit_test(unreadable_tensors),
        cmocka_unit_test(recorder_cannot_load),
        cmocka_unit_test(environment_cannot_be_made),
        cmocka_unit_test(bad_environment_gets_defaults),
        cmocka_unit_test(rank_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
