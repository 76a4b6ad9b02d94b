/* Out of memory is a return code: an allocator that fails the n-th call, for every n, in writer, reader and archive. */
#include "store/rlk_reader.h"
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"
#include "tests/store/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/failing_alloc.h"

/* The n to try: all of the first hundred, then about eighty more up to `all`. */
static long next_n(long n, long all)
{
    return n < 100 ? n + 1 : n + 1 + all / 80;
}

static void reader(void **state)
{
    (void)state;
    char base[256], dir[300];
    fresh_dir(base, "oom");
    snprintf(dir, sizeof dir, "%s/e", base);
    assert_true(sample_write(dir, 3, 60, true)); /* without END: the roll-up is made by a scan */
    alloc_restore();
    struct sample_answer good = sample_read(dir, true);
    long all = alloc_calls();
    assert_int_equal(good.opened | good.verified, RLK_OK);
    assert_true(all > 100);
    long failed = 0;
    for (long n = 1; n <= all; n = next_n(n, all)) {
        alloc_fail(n, 1);
        struct sample_answer a = sample_read(dir, true);
        bool hit = alloc_hit();
        alloc_restore();
        assert_true(a.opened == RLK_OK || a.opened == RLK_ENOMEM);
        assert_true(a.verified == RLK_OK || a.verified == RLK_ENOMEM); /* lack of memory is never told as damage */
        failed += hit;
        if (a.opened == RLK_OK && a.events == good.events && a.hash == good.hash)
            assert_int_equal(a.count, good.count);
    }
    assert_true(failed > 100);
    drop_dir(base);
}

/* One short run; every return code is taken as it comes. *closed = what close said. */
static int write_some(const char *dir, int *closed)
{
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rng r = {8};
    rlk_u128 id;
    int rc = rlk_writer_open(&w, &(struct rlk_writer_options){.dir = dir, .queue_bytes = 1, .wait_ms = 1000}, NULL);
    *closed = rc;
    if (rc)
        return rc;
    rc = rlk_writer_producer(w, &p);
    char meta[3000];
    memset(meta, 'x', sizeof meta);
    meta[sizeof meta - 1] = 0;
    for (int i = 0; i < 26 && rc == RLK_OK; i++) {
        struct rlk_arena arena = {0};
        alloc_exempt = true;
        struct rlk_event e = random_event(&r, (enum rlk_event_kind)(1 + i % RLK_EV_NOTE), &arena);
        alloc_exempt = false;
        int one = rlk_producer_put(p, &e, NULL);
        rlk_arena_release(&arena);
        if (one && one != RLK_EFULL && one != RLK_ESTATE)
            rc = one;
        rlk_producer_payload(p, meta, (size_t)(100 + i * 100), &id);
    }
    rlk_writer_meta(w, "k", meta);
    rlk_writer_rank(w, 5);
    rlk_writer_flush(w, NULL);
    *closed = rlk_writer_close(w, false, NULL);
    return rc;
}

static void writer(void **state)
{
    (void)state;
    char base[256], dir[300];
    int closed;
    fresh_dir(base, "oom");
    snprintf(dir, sizeof dir, "%s/w0", base);
    alloc_restore();
    assert_int_equal(write_some(dir, &closed), RLK_OK);
    assert_int_equal(closed, RLK_OK);
    long all = alloc_calls();
    for (long n = 1; n <= all; n = next_n(n, all)) {
        struct rlk_env *env;
        struct rlk_detail detail = {""};
        snprintf(dir, sizeof dir, "%s/w%ld", base, n);
        alloc_fail(n, 1);
        write_some(dir, &closed);
        alloc_restore();
        if (rlk_env_open(&env, dir, &detail)) /* it may never have been made */
            continue;
        int rc = rlk_env_verify(env, &detail);
        if (rc)
            fail_msg("allocation %ld of %ld: %s", n, all, detail.text);
        if (closed == RLK_OK &&
            rlk_env_complete(env)) { /* vouched for: then nothing is missing without being counted */
            struct rlk_coverage cov;
            assert_int_equal(rlk_env_coverage(env, &cov, NULL), RLK_OK);
            assert_true(cov.events + cov.dropped >= rlk_env_count(env));
        }
        rlk_env_close(env);
    }
    drop_dir(base);
}

/* Memory that is gone and stays away: the writer still comes to an end. */
static void writer_for_good(void **state)
{
    (void)state;
    char base[256], dir[300];
    int closed, refused = 0;
    fresh_dir(base, "gone");
    snprintf(dir, sizeof dir, "%s/w0", base);
    alloc_restore();
    assert_int_equal(write_some(dir, &closed), RLK_OK);
    const long all = alloc_calls(), step = 1;
    for (long n = 1; n <= all; n += step) {
        snprintf(dir, sizeof dir, "%s/w%ld", base, n);
        alloc_fail(n, ALLOC_ALL);
        alarm(25);
        write_some(dir, &closed);
        alarm(0);
        alloc_restore();
        refused += closed != RLK_OK;
    }
    assert_true(refused > 10);
    drop_dir(base);
}

static int ignore_place(void *context, const char *place)
{
    (void)context, (void)place;
    return 0;
}

static int whole(const char *dir)
{
    struct rlk_recording *r;
    enum rlk_seal_state seal;
    struct rlk_detail why = {""};
    int rc = rlk_recording_open(&r, dir, &why);
    if (rc == RLK_OK) {
        struct rlk_coverage cov;
        rlk_recording_complete(r, &why);
        rc = rlk_recording_coverage(r, &cov, &why);
        if (rc == RLK_OK)
            rc = rlk_recording_write_manifest(dir, rlk_recording_manifest(r), &why);
        rlk_recording_close(r);
    }
    if (rc == RLK_OK)
        rc = rlk_recording_seal(dir, &why);
    if (rc == RLK_OK)
        rc = rlk_recording_verify(dir, &seal, ignore_place, NULL, &why);
    if (rc == RLK_OK && seal != RLK_SEAL_GOOD)
        fail_msg("a seal that was just made is not good");
    return rc;
}

static void archive(void **state)
{
    (void)state;
    char base[256], dir[300], env[340];
    fresh_dir(base, "oom");
    snprintf(dir, sizeof dir, "%s/a.rlk", base);
    json_t *manifest =
        json_pack("{s:i, s:{s:i, s:i}, s:i}", "rlk_recording", 1, "format", "major", 1, "minor", 0, "ranks", 1);
    assert_int_equal(rlk_recording_create(dir, manifest, NULL), RLK_OK);
    json_decref(manifest);
    snprintf(env, sizeof env, "%s/rank-00000.pid-1", dir);
    assert_true(sample_write(env, 3, 20, false));
    alloc_restore();
    assert_int_equal(whole(dir), RLK_OK);
    long all = alloc_calls(), failed = 0;
    for (long n = 1; n <= all; n = next_n(n, all)) {
        alloc_fail(n, 1);
        int rc = whole(dir);
        alloc_restore();
        failed += rc != RLK_OK;
        /* jansson says only that a text could not be parsed */
        assert_true(rc == RLK_OK || rc == RLK_ENOMEM || rc == RLK_ECORRUPT);
        assert_int_equal(whole(dir), RLK_OK); /* and nothing was spoilt */
    }
    assert_true(failed > 50);
    drop_dir(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reader), cmocka_unit_test(writer),
                                       cmocka_unit_test(writer_for_good), cmocka_unit_test(archive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
