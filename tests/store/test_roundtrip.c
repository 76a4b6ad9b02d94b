/* What goes in comes out: every field of every kind; strings are shared; the order is kept; roll-ups add up. */
#include "store/rlk_reader.h"
#include "store/rlk_writer.h"
#include "tests/store/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define OK(x) assert_int_equal((x), RLK_OK)
#define EVENTS 4000u

static void path_of(char *out, size_t n, const char *dir)
{
    snprintf(out, n, "%s/rank-00000.pid-1", dir);
}

static enum rlk_event_kind kind_of(uint64_t i)
{
    return (enum rlk_event_kind)(1 + i % RLK_EV_NOTE);
}

static int note_meta(void *context, const char *key, const char *value)
{
    (void)value;
    *(int *)context += strncmp(key, "key", 3) == 0;
    return 0;
}

static void every_field_of_every_kind(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct rlk_detail detail = {""};
    struct rlk_writer *w;
    struct rlk_producer *p;
    fresh_dir(dir, "roundtrip");
    path_of(path, sizeof path, dir);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1}, &detail));
    OK(rlk_writer_producer(w, &p));
    OK(rlk_writer_meta(w, "key.1", "value \xc3\xa9"));
    OK(rlk_writer_meta(w, "key.2", ""));
    struct rng r = {42};
    struct rlk_arena arena = {0};
    for (uint64_t i = 0; i < EVENTS; i++) {
        uint64_t seq;
        rlk_arena_reset(&arena);
        struct rlk_event e = random_event(&r, kind_of(i), &arena);
        OK(rlk_producer_put(p, &e, &seq));
        assert_int_equal(seq, i);
        if (i % 1000 == 0)
            OK(rlk_writer_flush(w, &detail));
    }
    rlk_producer_free(p);
    OK(rlk_writer_close(w, false, &detail));

    struct rlk_env *env;
    if (rlk_env_open(&env, path, &detail))
        fail_msg("%s", detail.text);
    assert_true(rlk_env_complete(env));
    assert_int_equal(rlk_env_count(env), EVENTS);
    assert_string_equal(rlk_env_meta(env, "key.1"), "value \xc3\xa9");
    assert_string_equal(rlk_env_meta(env, "absent"), "");
    int metas = 0;
    OK(rlk_env_meta_each(env, note_meta, &metas));
    assert_int_equal(metas, 2);
    uint32_t nranks;
    const uint32_t *ranks = rlk_env_ranks(env, &nranks);
    assert_int_equal(nranks, 3);
    assert_int_equal(ranks[2], 2);
    struct rlk_arena back = {0};
    struct rlk_coverage cov;
    uint64_t tensors = 0, references = 0, launches = 0;
    r = (struct rng){42};
    const char *module[8] = {NULL};
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct rlk_event got;
        rlk_arena_reset(&arena);
        rlk_arena_reset(&back);
        struct rlk_event want = random_event(&r, kind_of(i), &arena);
        if (rlk_env_event(env, i, &back, &got, &detail))
            fail_msg("%s", detail.text);
        assert_int_equal(got.seq, i);
        const char *d = event_difference(&want, &got);
        if (d)
            fail_msg("event %u, kind %s: %s differs", (unsigned)i, rlk_event_kind_name(want.kind), d);
        if (strncmp(got.who.module, "layers.", 7) == 0 && strlen(got.who.module) == 8) {
            unsigned k = (unsigned)got.who.module[7] - '0'; /* equal strings have equal pointers */
            assert_true(!module[k] || module[k] == got.who.module);
            module[k] = got.who.module;
        }
        tensors += want.ntensors;
        launches += want.kind == RLK_EV_LAUNCH ? want.u.launch.count : want.nlaunches;
        for (uint32_t t = 0; t < want.ntensors; t++)
            references += want.tensors[t].state == RLK_T_REFERENCE;
    }
    const char *empty = NULL;
    for (uint64_t i = 0; i < 200; i++) { /* "" too is one string */
        struct rlk_event got;
        OK(rlk_env_event(env, i, &back, &got, &detail));
        const char *const texts[] = {got.id, got.who.sample, got.who.phase, got.who.op};
        for (int k = 0; k < 4; k++)
            if (!*texts[k]) {
                assert_true(!empty || empty == texts[k]);
                empty = texts[k];
            }
    }
    assert_non_null(empty);
    OK(rlk_env_coverage(env, &cov, &detail));
    assert_int_equal(cov.events, EVENTS);
    assert_int_equal(cov.tensors, tensors);
    assert_int_equal(cov.by_reference, references);
    assert_int_equal(cov.launches_recorded, launches);
    assert_int_equal(rlk_env_event(env, EVENTS, &back, &(struct rlk_event){0}, &detail), RLK_ENOENT);
    if (rlk_env_verify(env, &detail))
        fail_msg("%s", detail.text);
    rlk_env_close(env);
    rlk_arena_release(&arena);
    rlk_arena_release(&back);
    drop_dir(dir);
}

static void payloads(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct rlk_writer *w;
    struct rlk_producer *p;
    static const size_t sizes[] = {0, 1, 255, 256, 5000, 3u << 20, (4u << 20) - 1, 4u << 20, (4u << 20) + 1, 9u << 20};
    enum { N = sizeof sizes / sizeof sizes[0] };
    rlk_u128 ids[2 * N];
    unsigned char *bytes = malloc(9u << 20);
    fresh_dir(dir, "payload");
    path_of(path, sizeof path, dir);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .wait_ms = 10000}, NULL));
    OK(rlk_writer_producer(w, &p));
    for (int twice = 0; twice < 2; twice++)
        for (int i = 0; i < 2 * N; i++) { /* even: compressible, odd: not */
            struct rng r = {(uint64_t)i};
            for (size_t k = 0; k < sizes[i / 2]; k++)
                bytes[k] = (unsigned char)(i % 2 ? rng_next(&r) : k / 1000);
            OK(rlk_producer_payload(p, bytes, sizes[i / 2], &ids[i]));
            XXH128_hash_t h = XXH3_128bits(bytes, sizes[i / 2]);
            assert_true(h.low64 == ids[i].lo && h.high64 == ids[i].hi);
        }
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env;
    struct rlk_detail detail = {""};
    OK(rlk_env_open(&env, path, NULL));
    for (int i = 0; i < 2 * N; i++) {
        void *back;
        size_t n;
        struct rng r = {(uint64_t)i};
        if (rlk_env_payload(env, ids[i], UINT64_MAX, &back, &n, &detail))
            fail_msg("%d: %s", i, detail.text);
        assert_int_equal(n, sizes[i / 2]);
        for (size_t k = 0; k < n; k++)
            if (((unsigned char *)back)[k] != (unsigned char)(i % 2 ? rng_next(&r) : k / 1000))
                fail_msg("payload %d: byte %zu", i, k);
        free(back);
        if (n)
            assert_int_equal(rlk_env_payload(env, ids[i], n - 1, &back, &n, NULL), RLK_ELIMIT);
    }
    void *none;
    size_t n;
    assert_int_equal(rlk_env_payload(env, (rlk_u128){1, 2}, 10, &none, &n, NULL), RLK_ENOENT);
    OK(rlk_env_verify(env, &detail));
    rlk_env_close(env);
    free(bytes);
    drop_dir(dir);
}

static void empty_and_existing(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct rlk_writer *w;
    struct rlk_env *env;
    struct rlk_detail detail = {""};
    fresh_dir(dir, "empty");
    path_of(path, sizeof path, dir);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path}, NULL));
    OK(rlk_writer_rank(w, 7));
    OK(rlk_writer_close(w, false, NULL));
    assert_int_equal(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path}, &detail), RLK_EEXIST);
    assert_non_null(strstr(detail.text, "rank-00000.pid-1"));
    OK(rlk_env_open(&env, path, &detail));
    assert_true(rlk_env_complete(env));
    assert_int_equal(rlk_env_count(env), 0);
    uint32_t n;
    assert_int_equal(rlk_env_ranks(env, &n)[0], 7);
    assert_int_equal(n, 1);
    OK(rlk_env_verify(env, &detail));
    rlk_env_close(env);
    assert_int_equal(rlk_env_open(&env, dir, &detail), RLK_ENOENT);
    snprintf(path, sizeof path, "%s/no/such", dir);
    assert_int_equal(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path}, &detail), RLK_ENOENT);
    drop_dir(dir);
}

static void refused(void **state)
{
    (void)state;
    char dir[256], path[300], big[RLK_MAX_STRING + 2];
    struct rlk_writer *w;
    struct rlk_producer *p;
    fresh_dir(dir, "refused");
    path_of(path, sizeof path, dir);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path}, NULL));
    OK(rlk_writer_producer(w, &p));
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    uint64_t shape[RLK_MAX_DIMS + 1] = {0}, seq;
    struct rlk_event e = {.kind = RLK_EV_OP, .who.op = big};
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_ELIMIT);
    struct rlk_tensor t = {.dtype = RLK_FP32, .ndim = RLK_MAX_DIMS + 1, .shape = shape};
    e = (struct rlk_event){.kind = RLK_EV_OP, .ntensors = 1, .tensors = &t};
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_ELIMIT);
    t.ndim = 1;
    t.dtype = 99;
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_EINVAL);
    t.dtype = RLK_FP32;
    e.kind = RLK_EV_NONE;
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_EINVAL);
    e.kind = RLK_EV_LAUNCH; /* without its launch */
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_EINVAL);
    e.kind = RLK_EV_OP;
    e.ntensors = RLK_MAX_TENSORS + 1;
    assert_int_equal(rlk_producer_put(p, &e, &seq), RLK_ELIMIT);
    e.ntensors = 1;
    e.who.module = "bad \xff utf8 \xc3\xa9";
    OK(rlk_producer_put(p, &e, &seq)); /* bytes that are no UTF-8 become '?' */
    assert_int_equal(seq, 0);
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env;
    struct rlk_arena arena = {0};
    OK(rlk_env_open(&env, path, NULL));
    assert_int_equal(rlk_env_count(env), 1);
    OK(rlk_env_event(env, 0, &arena, &e, NULL));
    assert_string_equal(e.who.module, "bad ? utf8 \xc3\xa9");
    rlk_arena_release(&arena);
    rlk_env_close(env);
    drop_dir(dir);
}

/* An event far larger than the queue goes around it. */
static void large_event(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct rlk_writer *w;
    struct rlk_producer *p;
    enum { N = 5000 };
    fresh_dir(dir, "large");
    path_of(path, sizeof path, dir);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .queue_bytes = 1, .wait_ms = 10000}, NULL));
    OK(rlk_writer_producer(w, &p));
    struct rlk_tensor *t = calloc(N, sizeof *t);
    uint64_t shape[1] = {8};
    for (uint32_t i = 0; i < N; i++)
        t[i] = (struct rlk_tensor){.dtype = RLK_FP32, .ndim = 1, .shape = shape, .index = i, .sums = {.multiset = i}};
    struct rlk_event e = {.kind = RLK_EV_OP, .ntensors = N, .tensors = t};
    for (int i = 0; i < 20; i++)
        OK(rlk_producer_put(p, &e, NULL));
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env;
    struct rlk_arena arena = {0};
    struct rlk_event got;
    OK(rlk_env_open(&env, path, NULL));
    assert_int_equal(rlk_env_count(env), 20);
    OK(rlk_env_event(env, 19, &arena, &got, NULL));
    assert_int_equal(got.ntensors, N);
    assert_int_equal(got.tensors[N - 1].sums.multiset, N - 1);
    OK(rlk_env_verify(env, NULL));
    rlk_arena_release(&arena);
    rlk_env_close(env);
    free(t);
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_every_kind),
        cmocka_unit_test(payloads),
        cmocka_unit_test(empty_and_existing),
        cmocka_unit_test(refused),
        cmocka_unit_test(large_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
