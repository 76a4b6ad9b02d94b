/* Many threads and many ranks; run under TSan as well. */
#include "tests/recorder/harness.h"

#include "store/rlk_reader.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define W RLK_TEST_WORKLOADS "/"

static struct rlk_env *open_only(struct run *run, const char *const *argv)
{
    char path[256];
    struct rlk_env *env = NULL;
    struct rlk_detail detail = {""};
    run_program(run, argv, NULL);
    assert_string_equal(run->err, "");
    assert_int_equal(run->status, 0);
    assert_int_equal(run->nenvs, 1);
    snprintf(path, sizeof path, "%s/%s", run->rec, run->envs[0]);
    if (rlk_env_open(&env, path, &detail))
        fail_msg("%s", detail.text);
    assert_true(rlk_env_complete(env));
    return env;
}

/* Each rank's own events are in its order; every collective refers to that rank's partial of that step. */
struct ranks {
    int64_t step[64];
    uint64_t partial[64];
    unsigned state[64], bad;
};

static int check_rank(void *context, const struct rlk_event *e)
{
    struct ranks *r = context;
    unsigned k = e->rank;
    if (k >= 64)
        return 1;
    bool partial = e->kind == RLK_EV_OP;
    bool right = partial ? r->state[k] == 0 && e->who.step == r->step[k]
                         : r->state[k] == 1 && e->who.step == r->step[k] && e->ntensors == 2 &&
                               e->tensors[0].state == RLK_T_REFERENCE && e->tensors[0].ref_event == r->partial[k];
    right = right && e->who.occurrence == 0 && e->who.call == 0 && !strcmp(e->who.module, "m");
    r->bad += !right;
    if (partial)
        r->partial[k] = e->seq;
    r->state[k] = partial;
    r->step[k] += !partial;
    return 0;
}

static void many_ranks(void **state)
{
    (void)state;
    struct run run;
    struct ranks r = {0};
    uint32_t n = 0;
    struct rlk_env *env = open_only(&run, (const char *const[]){W "many_ranks", "ranks", "64", "8", NULL});
    assert_int_equal(rlk_env_count(env), 64 * 3 * 2);
    assert_int_equal(rlk_env_scan(env, 0, rlk_env_count(env), check_rank, &r, NULL), 0);
    assert_int_equal(r.bad, 0);
    const uint32_t *ranks = rlk_env_ranks(env, &n);
    assert_int_equal(n, 64);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(ranks[i], i);
    rlk_env_close(env);
    run_release(&run);
}

/* Occurrences of one identity are 0..n-1, each once, whatever threads recorded them. */
struct occurrences {
    uint8_t seen[1000000];
    unsigned n, bad;
    const char *op;
    int64_t step;
};

static int check_occurrence(void *context, const struct rlk_event *e)
{
    struct occurrences *o = context;
    uint32_t k = e->who.occurrence;
    o->bad += k >= sizeof o->seen || o->seen[k] || strcmp(e->who.op, o->op) != 0 || e->who.step != o->step;
    if (k < sizeof o->seen)
        o->seen[k] = 1;
    o->n++;
    return 0;
}

static void shared_counters(void **state)
{
    (void)state;
    struct run run;
    static struct occurrences o = {.op = "shared", .step = 5};
    struct rlk_env *env = open_only(&run, (const char *const[]){W "many_ranks", "shared", NULL});
    assert_int_equal(rlk_env_scan(env, 0, rlk_env_count(env), check_occurrence, &o, NULL), 0);
    assert_int_equal(o.n, 8000);
    assert_int_equal(o.bad, 0);
    for (unsigned i = 0; i < o.n; i++)
        assert_true(o.seen[i]);
    rlk_env_close(env);
    run_release(&run);
}

static void thread_churn(void **state)
{
    (void)state;
    struct run run;
    static struct occurrences o = {.op = "churn"};
    struct rlk_env *env = open_only(&run, (const char *const[]){W "many_ranks", "churn", "1000", NULL});
    assert_int_equal(rlk_env_scan(env, 0, rlk_env_count(env), check_occurrence, &o, NULL), 0);
    assert_int_equal(o.n, 2000);
    assert_int_equal(o.bad, 0);
    rlk_env_close(env);
    run_release(&run);
}

/* Cancelled threads leave neither a hole in the order nor a lock behind. */
static void cancelled_threads(void **state)
{
    (void)state;
    struct run run;
    struct rlk_coverage coverage;
    static struct occurrences o = {.op = "cancel"};
    struct rlk_env *env = open_only(&run, (const char *const[]){W "many_ranks", "cancel", NULL});
    assert_int_equal(rlk_env_coverage(env, &coverage, NULL), RLK_OK);
    assert_int_equal(coverage.dropped, 0);
    assert_int_equal(rlk_env_scan(env, 0, rlk_env_count(env), check_occurrence, &o, NULL), 0);
    assert_true(o.n > 20 && o.n == coverage.events);
    rlk_env_close(env);
    run_release(&run);
}

/* The training program: the same identities and digests every time, except where the sum is racy. */
struct digests {
    uint64_t hash, sums, n, racy;
    unsigned references;
};

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return h;
}

static int add_digests(void *context, const struct rlk_event *e)
{
    struct digests *d = context;
    char who[512];
    int len =
        snprintf(who, sizeof who, "%d %" PRId64 " %s %" PRId64 " %s %s %u %s %u", e->kind, e->who.step, e->who.phase,
                 e->who.work, e->who.pass, e->who.module, e->who.call, e->who.op, e->who.occurrence);
    uint64_t h = mix(1, who, (size_t)len);
    for (uint32_t i = 0; i < e->ntensors; i++) {
        d->references += e->tensors[i].state == RLK_T_REFERENCE;
        h = mix(h, &e->tensors[i].sums.positional, sizeof(rlk_u128));
    }
    if (!strcmp(e->who.op, "wgrad.sum") && !strcmp(e->who.module, "model.fc1"))
        d->racy += h;
    d->sums += h; /* a sum: threads interleave as they like */
    d->n++;
    return 0;
}

static struct digests train(const char *option)
{
    struct run run;
    struct digests d = {0};
    struct rlk_env *env = open_only(&run, (const char *const[]){W "train", "--steps", "2", option, NULL});
    assert_int_equal(rlk_env_scan(env, 0, rlk_env_count(env), add_digests, &d, NULL), 0);
    rlk_env_close(env);
    run_release(&run);
    return d;
}

static void training_repeats(void **state)
{
    (void)state;
    struct digests a = train(NULL), b = train(NULL);
    assert_true(a.n > 50 && a.n == b.n);
    assert_true(a.references > 40 && a.references == b.references);
    assert_true(a.sums == b.sums);
    a = train("--racy-sum");
    b = train("--racy-sum");
    assert_true(a.n == b.n && a.references == b.references);
    assert_true(a.sums != b.sums); /* the planted fault shows */
    assert_true(a.racy != b.racy); /* and where it was planted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks),        cmocka_unit_test(shared_counters),  cmocka_unit_test(thread_churn),
        cmocka_unit_test(cancelled_threads), cmocka_unit_test(training_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
