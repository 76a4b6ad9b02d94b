/* Damaged, truncated, forged and foreign files: an answer or an error with its place, never a crash, a hang, a wrong
 * answer. */
#include "store/rlk_db.h"
#include "store/rlk_reader_impl.h"
#include "tests/store/sample.h"

#include <lmdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(x) assert_int_equal((x), RLK_OK)
#define EVENTS 60u
#ifdef __SANITIZE_ADDRESS__
#define SLOW 4u
#else
#define SLOW 1u
#endif

struct sample {
    char base[256], dir[300], file[320];
    unsigned char *bytes;
    size_t n;
    struct sample_answer good;
};

static void setup(struct sample *s, bool incomplete)
{
    fresh_dir(s->base, "hostile");
    snprintf(s->dir, sizeof s->dir, "%s/rank-00000.pid-1", s->base);
    snprintf(s->file, sizeof s->file, "%s/data.mdb", s->dir);
    assert_true(sample_write(s->dir, 5, EVENTS, incomplete));
    s->bytes = sample_slurp(s->file, &s->n);
    assert_non_null(s->bytes);
    s->good = sample_read(s->dir, true);
    OK(s->good.opened);
    OK(s->good.verified);
    assert_int_equal(s->good.events, EVENTS);
    assert_int_equal(s->good.complete, !incomplete);
}

static void teardown(struct sample *s)
{
    free(s->bytes);
    drop_dir(s->base);
}

static bool same_answer(const struct sample_answer *a, const struct sample_answer *b)
{
    return a->complete == b->complete && a->count == b->count && a->events == b->events && a->hash == b->hash;
}

/* Cut at every page, and inside every page. */
static void truncated(void **state)
{
    (void)state;
    struct sample s;
    setup(&s, false);
    unsigned good = 0;
    for (size_t cut = 0; cut < s.n; cut += 1024) {
        assert_true(sample_spill(s.file, s.bytes, cut));
        struct sample_answer a = sample_read(s.dir, true);
        if (a.opened == RLK_OK && a.complete && a.verified == RLK_OK) { /* only when nothing that is used was cut off */
            assert_true(same_answer(&a, &s.good));
            good++;
        }
    }
    assert_true(good * 4096 < s.n);
    assert_true(sample_spill(s.file, s.bytes, 0)); /* died while it made the file */
    struct sample_answer a = sample_read(s.dir, true);
    OK(a.opened);
    assert_false(a.complete);
    assert_int_equal(a.count, 0);
    teardown(&s);
}

/* Every byte (every 17th unless RLK_TEST_LONG is set) changed: found, or of no consequence. */
static void flipped(void **state)
{
    (void)state;
    struct sample s;
    setup(&s, false);
    size_t found = 0, harmless = 0, step = getenv("RLK_TEST_LONG") ? 1 : 17 * SLOW;
    FILE *f = fopen(s.file, "r+b");
    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    for (size_t at = 0; at < s.n; at += step) {
        unsigned char changed = s.bytes[at] ^ (unsigned char)(1u << (at / step % 8));
        fseek(f, (long)at, SEEK_SET);
        fwrite(&changed, 1, 1, f);
        struct sample_answer a = sample_read(s.dir, true);
        if (a.opened || a.verified || !a.complete) {
            found++;
        } else {
            if (!same_answer(&a, &s.good))
                fail_msg("byte %zu: another answer, and verify says it is good", at);
            harmless++;
        }
        fseek(f, (long)at, SEEK_SET);
        fwrite(s.bytes + at, 1, 1, f);
    }
    fclose(f);
    assert_true(found > 0 && harmless > 0); /* free pages and their like are of no consequence */
    teardown(&s);
}

/* Whole words replaced, as a bad page or a forger would: sizes, page numbers, flags. No checksum is repaired here. */
static void overwritten(void **state)
{
    (void)state;
    static const uint64_t words[] = {0, 1, 2, 3, 0x7f, 0xffff, 0x10000, UINT32_MAX, INT64_MAX, UINT64_MAX};
    struct sample s;
    setup(&s, false);
    struct rng r = {11};
    unsigned rounds = getenv("RLK_TEST_LONG") ? 30000 : 1200 / SLOW;
    unsigned char *copy = malloc(s.n);
    assert_non_null(copy);
    for (unsigned i = 0; i < rounds; i++) {
        memcpy(copy, s.bytes, s.n);
        for (uint64_t k = 0, n = 1 + rng_below(&r, 3); k < n; k++) {
            size_t size = (size_t)1 << rng_below(&r, 4);
            /* The head of a page twice as often as anything else: that is where the tree is. */
            size_t at = rng_below(&r, 2) ? (size_t)rng_below(&r, s.n - 8) & ~(size_t)1
                                         : (size_t)rng_below(&r, s.n / 4096) * 4096 + (size_t)rng_below(&r, 64);
            uint64_t word = rng_below(&r, 3) ? words[rng_below(&r, 10)] : rng_below(&r, s.n / 4096 + 2);
            memcpy(copy + at, &word, size);
        }
        assert_true(sample_spill(s.file, copy, s.n));
        struct sample_answer a = sample_read(s.dir, true);
        if (a.opened == RLK_OK && a.verified == RLK_OK && a.complete && !same_answer(&a, &s.good))
            fail_msg("round %u: another answer, and verify says it is good", i);
    }
    free(copy);
    teardown(&s);
}

/* ---- behind the checksums: values forged with a check that fits ---- */

struct value {
    enum rlki_database db;
    uint8_t key[64];
    size_t nkey, n;
    unsigned char *body;
};

static size_t all_values(const char *dir, struct value *list, size_t most)
{
    struct rlk_env *env;
    size_t count = 0;
    OK(rlk_env_open(&env, dir, NULL));
    for (int db = 0; db < RLKI_DBS; db++) {
        struct rlki_mdb_cursor c;
        OK(rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[db]));
        for (int rc = rlki_mdb_first(&c, NULL); rc == RLK_OK; rc = rlki_mdb_next(&c, NULL)) {
            struct rlki_cur body;
            struct value *v = &list[count++];
            assert_true(count < most && c.nkey <= sizeof v->key);
            OK(rlki_env_cursor_value(env, (enum rlki_database)db, &c, &body, NULL));
            v->db = (enum rlki_database)db;
            v->nkey = c.nkey;
            memcpy(v->key, c.key, c.nkey);
            v->n = rlki_left(&body);
            v->body = malloc(v->n + 1);
            assert_non_null(v->body);
            memcpy(v->body, body.p, v->n);
        }
        rlki_mdb_cursor_release(&c);
    }
    rlk_env_close(env);
    return count;
}

static void rebuild(const char *dir, const struct value *list, size_t n, size_t forged, const unsigned char *body,
                    size_t nbody)
{
    struct rlki_db db;
    OK(rlki_db_open(&db, dir, NULL));
    OK(rlki_db_begin(&db, 1u << 20, NULL));
    for (size_t i = 0; i < n; i++)
        OK(rlki_db_put(&db, list[i].db, list[i].key, list[i].nkey, i == forged ? body : list[i].body,
                       i == forged ? nbody : list[i].n, false, NULL));
    OK(rlki_db_commit(&db, NULL));
    rlki_db_close(&db);
}

static size_t forge(struct rng *r, unsigned char *to, const unsigned char *from, size_t n)
{
    memcpy(to, from, n);
    for (uint64_t k = 0, times = 1 + rng_below(r, 4); k < times && n; k++) {
        size_t at = (size_t)rng_below(r, n);
        switch (rng_below(r, 5)) {
        case 0:
            to[at] = (unsigned char)rng_next(r);
            break;
        case 1:
            to[at] ^= (unsigned char)(1u << rng_below(r, 8));
            break;
        case 2: /* a varint as large as they come */
            for (size_t i = at; i < n && i < at + 9; i++)
                to[i] = 0xff;
            break;
        case 3:
            n = at;
            break;
        default:
            to[at] = 0;
        }
    }
    return n;
}

static void forged(void **state)
{
    (void)state;
    struct sample s;
    struct value list[400];
    char made[300];
    setup(&s, false);
    size_t n = all_values(s.dir, list, 400), largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = list[i].n > largest ? list[i].n : largest;
    unsigned char *body = malloc(largest + 1);
    assert_non_null(body);
    struct rng r = {23};
    unsigned rounds = getenv("RLK_TEST_LONG") ? 8000 : 600 / SLOW, refused = 0;
    snprintf(made, sizeof made, "%s/made", s.base);
    char file[320];
    snprintf(file, sizeof file, "%s/data.mdb", made);
    for (unsigned i = 0; i < rounds; i++) {
        mkdir(made, 0700);
        size_t which = (size_t)rng_below(&r, n);
        rebuild(made, list, n, i == 0 ? n : which, body, forge(&r, body, list[which].body, list[which].n));
        struct sample_answer a = sample_read(made, true);
        if (i == 0)
            assert_true(same_answer(&a, &s.good)); /* nothing forged: the rebuilding itself is sound */
        refused += a.opened || a.verified || !a.complete;
        unlink(file);
    }
    assert_true(refused > rounds / 2);
    free(body);
    for (size_t i = 0; i < n; i++)
        free(list[i].body);
    teardown(&s);
}

static void newer_format(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        int code;
    } cases[] = {{"1.0", RLK_OK},     {"1.7", RLK_OK},    {"2.0", RLK_EVERSION},    {"0.9", RLK_EVERSION},
                 {"1", RLK_ECORRUPT}, {"", RLK_ECORRUPT}, {"one.two", RLK_ECORRUPT}};
    struct sample s;
    struct value list[400];
    char made[300], file[320];
    setup(&s, false);
    size_t n = all_values(s.dir, list, 400), which = n;
    for (size_t i = 0; i < n; i++)
        if (list[i].db == RLKI_DB_META && memcmp(list[i].key, "rlk.format", 10) == 0)
            which = i;
    assert_true(which < n);
    snprintf(made, sizeof made, "%s/made", s.base);
    snprintf(file, sizeof file, "%s/data.mdb", made);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rlk_env *env;
        struct rlk_detail detail = {""};
        mkdir(made, 0700);
        rebuild(made, list, n, which, (const unsigned char *)cases[i].version, strlen(cases[i].version));
        int rc = rlk_env_open(&env, made, &detail);
        if (rc != cases[i].code)
            fail_msg("%s: %s", cases[i].version, rlk_error_name(rc));
        if (rc == RLK_OK)
            rlk_env_close(env);
        else
            assert_non_null(strstr(detail.text, "made/data.mdb"));
        unlink(file);
    }
    for (size_t i = 0; i < n; i++)
        free(list[i].body);
    teardown(&s);
}

/* Kinds of a later minor version are skipped, and what it adds behind the known fields is not looked at. */
static void later_minor(void **state)
{
    (void)state;
    char base[256], dir[300];
    struct rlki_db db;
    struct rlki_buf body = {0};
    fresh_dir(base, "minor");
    snprintf(dir, sizeof dir, "%s/e", base);
    mkdir(dir, 0700);
    static const uint8_t records[] = {
        5,  99, 0x7f, 1, 2, 3,                       /* an unknown kind */
        3,  9,  0,    1,                             /* a metric that is too short: damage */
        11, 9,  0,    0, 0, 0, 0, 0, 0, 0, 0x40, 77, /* a metric and one byte that a later version added */
    };
    struct rlki_state st = {.next_seq = 3, .nchunks = 1, .first_step = INT64_MIN};
    uint64_t zero = 0;
    rlki_put_u128(&body, (rlk_u128){0, 0});
    rlki_put_u32(&body, 3);
    rlki_put_z(&body, 0);
    rlki_put_u8(&body, RLKI_CODEC_RAW);
    rlki_put_v(&body, sizeof records);
    rlki_put_bytes(&body, records, sizeof records);
    st.chain = rlki_chain(0, body.p, body.n);
    OK(rlki_db_open(&db, dir, NULL));
    OK(rlki_db_begin(&db, 1u << 20, NULL));
    OK(rlki_db_put(&db, RLKI_DB_META, "rlk.format", 10, "1.5", 3, false, NULL));
    OK(rlki_db_put(&db, RLKI_DB_EVENTS, &zero, 8, body.p, body.n, false, NULL));
    body.n = 0;
    rlki_state_put(&body, &st);
    rlki_put_u32(&body, 12345); /* a later version's */
    OK(rlki_db_put(&db, RLKI_DB_STATE, &zero, 8, body.p, body.n, false, NULL));
    OK(rlki_db_commit(&db, NULL));
    rlki_db_close(&db);
    struct rlk_env *env;
    struct rlk_arena arena = {0};
    struct rlk_event e;
    struct rlk_detail detail = {""};
    if (rlk_env_open(&env, dir, &detail))
        fail_msg("%s", detail.text);
    assert_int_equal(rlk_env_event(env, 0, &arena, &e, NULL), RLK_ENOENT);
    assert_int_equal(rlk_env_event(env, 1, &arena, &e, &detail), RLK_ECORRUPT);
    assert_string_equal(detail.text, "e/data.mdb: event 1: damaged");
    OK(rlk_env_event(env, 2, &arena, &e, NULL));
    assert_true(e.u.metric.value > 2 - 1e-9 && e.u.metric.value < 2 + 1e-9);
    rlk_env_close(env);
    rlk_arena_release(&arena);
    rlki_buf_release(&body);
    drop_dir(base);
}

/* Our reader and LMDB itself see the same keys and values. */
static void as_lmdb_sees_it(void **state)
{
    (void)state;
    struct sample s;
    setup(&s, true);
    struct rlk_env *env;
    MDB_env *mdb;
    MDB_txn *txn;
    OK(rlk_env_open(&env, s.dir, NULL));
    OK(mdb_env_create(&mdb));
    OK(mdb_env_set_maxdbs(mdb, 16));
    OK(mdb_env_open(mdb, s.file, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK, 0));
    OK(mdb_txn_begin(mdb, NULL, MDB_RDONLY, &txn));
    size_t seen = 0;
    for (int db = 0; db < RLKI_DBS; db++) {
        MDB_dbi dbi;
        MDB_cursor *theirs;
        MDB_val k, v;
        struct rlki_mdb_cursor ours;
        struct rlki_buf value = {0};
        OK(mdb_dbi_open(txn, rlki_db_name[db], 0, &dbi));
        OK(mdb_cursor_open(txn, dbi, &theirs));
        OK(rlki_mdb_cursor_init(&ours, &env->mdb, &env->trees[db]));
        int rc = rlki_mdb_first(&ours, NULL);
        while (mdb_cursor_get(theirs, &k, &v, MDB_NEXT) == 0) {
            OK(rc);
            value.n = 0;
            OK(rlki_mdb_value(&ours, &value, NULL));
            assert_int_equal(k.mv_size, ours.nkey);
            assert_memory_equal(k.mv_data, ours.key, k.mv_size);
            assert_int_equal(v.mv_size, value.n);
            assert_memory_equal(v.mv_data, value.p, value.n);
            struct rlki_mdb_cursor found; /* and each key is found again */
            OK(rlki_mdb_cursor_init(&found, &env->mdb, &env->trees[db]));
            OK(rlki_mdb_seek(&found, k.mv_data, k.mv_size, NULL));
            assert_memory_equal(k.mv_data, found.key, k.mv_size);
            rlki_mdb_cursor_release(&found);
            rc = rlki_mdb_next(&ours, NULL);
            seen++;
        }
        assert_int_equal(rc, RLK_ENOENT);
        rlki_buf_release(&value);
        rlki_mdb_cursor_release(&ours);
        mdb_cursor_close(theirs);
    }
    assert_true(seen > 10);
    mdb_txn_abort(txn);
    mdb_env_close(mdb);
    rlk_env_close(env);
    teardown(&s);
}

/* Deep trees: many small values, so that there are branch pages above branch pages. */
static void deep_tree(void **state)
{
    (void)state;
    char base[256], dir[300];
    struct rlki_db db;
    fresh_dir(base, "deep");
    snprintf(dir, sizeof dir, "%s/e", base);
    mkdir(dir, 0700);
    OK(rlki_db_open(&db, dir, NULL));
    OK(rlki_db_begin(&db, 64u << 20, NULL));
    struct rng r = {9};
    enum { N = 60000 };
    for (uint64_t i = 0; i < N; i++) {
        uint64_t key = 2 * i + 5;
        OK(rlki_db_put(&db, RLKI_DB_EVENTS, &key, 8, &key, (size_t)rng_below(&r, 9), true, NULL));
        uint8_t text[20];
        rlki_blob_key(text, (rlk_u128){i * UINT64_C(0x9e3779b97f4a7c15), i * i}, 0);
        OK(rlki_db_put(&db, RLKI_DB_BLOBS, text, sizeof text, text, sizeof text, false, NULL));
    }
    OK(rlki_db_commit(&db, NULL));
    rlki_db_close(&db);
    struct rlki_mdb mdb;
    struct rlki_tree tree;
    char file[320];
    snprintf(file, sizeof file, "%s/data.mdb", dir);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    OK(rlki_mdb_open(&mdb, fileno(f), NULL));
    OK(rlki_mdb_tree(&mdb, "events", &tree, NULL));
    assert_true(tree.depth >= 3);
    struct rlki_mdb_cursor c;
    OK(rlki_mdb_cursor_init(&c, &mdb, &tree));
    for (uint64_t ask = 4; ask < 2 * N + 10; ask += 37) { /* the largest key that is not above */
        int rc = rlki_mdb_seek(&c, &ask, 8, NULL);
        if (ask < 5) {
            assert_int_equal(rc, RLK_ENOENT);
            continue;
        }
        OK(rc);
        uint64_t got, want = ask >= 2 * (N - 1) + 5 ? 2 * (N - 1) + 5 : ask % 2 ? ask : ask - 1;
        memcpy(&got, c.key, 8);
        assert_int_equal(got, want);
    }
    rlki_mdb_cursor_release(&c);
    OK(rlki_mdb_tree(&mdb, "blobs", &tree, NULL));
    OK(rlki_mdb_cursor_init(&c, &mdb, &tree));
    size_t n = 0;
    for (int rc = rlki_mdb_first(&c, NULL); rc == RLK_OK; rc = rlki_mdb_next(&c, NULL))
        n++;
    assert_int_equal(n, N);
    rlki_mdb_cursor_release(&c);
    fclose(f);
    drop_dir(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated),       cmocka_unit_test(flipped),      cmocka_unit_test(overwritten),
        cmocka_unit_test(forged),          cmocka_unit_test(newer_format), cmocka_unit_test(later_minor),
        cmocka_unit_test(as_lmdb_sees_it), cmocka_unit_test(deep_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
