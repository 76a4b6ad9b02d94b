/* Bisecting reads roll-ups only: recordings whose events cannot be read any more give the same answer. */
#include "auditor/rlk_audit.h"
#include "auditor/rlk_rolls.h"
#include "store/rlk_reader_impl.h"
#include "tests/auditor/build_rec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A chunk for each step, so that all but the last can be damaged (opening looks at the last). */
static void make(struct rec *rec, const char *name, int64_t fault_step, const char *fault_module)
{
    static const char *const modules[] = {"layers.0", "layers.1", "layers.2"};
    bool bad = false;
    rec_open(rec, name, 1, NULL);
    for (int64_t step = 0; step < 6; step++) {
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < 3; i++) {
                const char *module = modules[pass ? 2 - i : i];
                bad |= step == fault_step && !pass && strcmp(module, fault_module) == 0;
                rec_op(rec, "mm", module, pass ? "bwd" : "fwd", step);
                rec_out(rec, "y", bad ? 9 : 1);
                rec_put(rec);
            }
        assert_int_equal(rlk_writer_flush(rec->writer, NULL), RLK_OK);
    }
    rec_close(rec, false);
}

struct chunk_at {
    off_t at; /* of the value in the file; -1 = none */
    size_t n;
    uint64_t key;
};

/* Writes nonsense into a chunk. `forge`: under a checksum that holds, so that only who unpacks it finds out. */
static void spoil(int fd, const struct chunk_at *chunk, bool forge)
{
    uint8_t *value = malloc(chunk->n);
    assert_non_null(value);
    assert_int_equal(pread(fd, value, chunk->n, chunk->at), (ssize_t)chunk->n);
    memcpy(value + 40, "damaged", 7);
    if (forge) {
        uint64_t check = rlki_check(RLKI_DB_EVENTS, &chunk->key, 8, value + 8, chunk->n - 8);
        memcpy(value, &check, sizeof check);
    }
    assert_int_equal(pwrite(fd, value, chunk->n, chunk->at), (ssize_t)chunk->n);
    free(value);
}

/* Damages every chunk but the last. Returns how many. */
static int damage(const struct rec *rec, bool forge)
{
    struct rlk_env *env;
    struct rlki_mdb_cursor c;
    struct chunk_at before = {.at = -1};
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/data.mdb", rec->env);
    assert_int_equal(rlk_env_open(&env, rec->env, NULL), RLK_OK);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[RLKI_DB_EVENTS]), RLK_OK);
    for (int rc = rlki_mdb_first(&c, NULL); rc == RLK_OK; rc = rlki_mdb_next(&c, NULL)) {
        if (before.at >= 0) {
            spoil(fd, &before, forge);
            n++;
        }
        off_t in_page = c.value_page ? 16 : (off_t)(c.value - (c.pages + (size_t)c.level * env->mdb.page_bytes));
        before.at = (off_t)((c.value_page ? c.value_page : c.pgno[c.level]) * env->mdb.page_bytes) + in_page;
        before.n = (size_t)c.value_bytes;
        memcpy(&before.key, c.key, 8);
    }
    rlki_mdb_cursor_release(&c);
    close(fd);
    rlk_env_close(env);
    return n;
}

static void test_only_rollups_are_read(void **unused)
{
    struct rec a, b;
    struct rlk_detail detail = {{0}};
    json_t *result = NULL, *whole = NULL;
    (void)unused;
    make(&a, "rolls_a", -1, "");
    make(&b, "rolls_b", 3, "layers.1");
    struct rlk_audit_options options = {.a = a.dir, .b = b.dir};
    assert_int_equal(rlk_audit_first_diff(&whole, &options, &detail), RLK_OK);
    assert_string_equal(json_string_value(json_object_get(json_object_get(whole, "first"), "module")), "layers.1");
    json_decref(whole);
    assert_int_equal(damage(&a, true), 5);
    assert_int_equal(damage(&b, true), 5);
    assert_int_equal(rlk_audit_first_diff(&whole, &options, &detail), RLK_ECORRUPT); /* who reads events finds out */
    assert_int_equal(rlk_audit_bisect(&result, a.dir, b.dir, NULL, &detail), RLK_OK);
    const json_t *first = json_object_get(result, "first");
    assert_int_equal(json_integer_value(json_object_get(result, "exit")), 1);
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 3);
    assert_string_equal(json_string_value(json_object_get(first, "module")), "layers.1");
    assert_string_equal(json_string_value(json_object_get(first, "pass")), "fwd");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(result, "read"), "events")), 0);
    json_decref(result);
    assert_int_equal(rlk_audit_bisect(&result, a.dir, a.dir, NULL, &detail), RLK_OK);
    assert_int_equal(json_integer_value(json_object_get(result, "exit")), 0);
    json_decref(result);
    rec_remove(&a);
    rec_remove(&b);
}

/* ... but bytes that are not what was written are no recording, whoever reads them. */
static void test_damage_is_no_verdict(void **unused)
{
    struct rec a, b;
    struct rlk_detail detail = {{0}};
    json_t *result = NULL;
    (void)unused;
    make(&a, "rolls_a", -1, "");
    make(&b, "rolls_b", -1, "");
    assert_int_equal(rlk_audit_bisect(&result, a.dir, b.dir, NULL, &detail), RLK_OK);
    const json_t *intact = json_object_get(result, "intact");
    assert_string_equal(json_string_value(json_object_get(intact, "bad")), "checksums");
    json_decref(result);
    assert_int_equal(damage(&b, false), 5);
    assert_int_equal(rlk_audit_bisect(&result, a.dir, b.dir, NULL, &detail), RLK_ECORRUPT);
    assert_int_equal(rlk_audit_bisect(&result, b.dir, a.dir, NULL, &detail), RLK_ECORRUPT);
    assert_int_equal(rlk_baseline_save(&result, b.dir, 6144, &detail), RLK_ECORRUPT);
    rec_remove(&a);
    rec_remove(&b);
}

/* What the reader gives by module is what it gave before nodes knew their passes. */
static int count_nodes(void *context, const struct rlk_roll *roll)
{
    struct rlk_roll *sum = context;
    sum->out_sum = rlk_u128_add(sum->out_sum, roll->out_sum);
    sum->events += roll->events;
    sum->rank++; /* nodes seen */
    sum->nranges += roll->pass != NULL;
    return 0;
}

static void test_passes_add_up(void **unused)
{
    struct rec a;
    struct rlk_env *env;
    (void)unused;
    for (int incomplete = 0; incomplete < 2; incomplete++) {
        struct rlk_roll modules = {0}, passes = {0};
        rec_open(&a, "passes", 1, NULL);
        for (int i = 0; i < 8; i++) {
            rec_op(&a, "mm", i & 1 ? "m" : "n", i & 2 ? "bwd" : i & 4 ? "mine" : "fwd", 0);
            rec_out(&a, "y", (uint64_t)i);
            rec_put(&a);
        }
        rec_close(&a, incomplete);
        assert_int_equal(rlk_env_open(&env, a.env, NULL), RLK_OK);
        assert_int_equal(rlk_env_verify(env, NULL), RLK_OK);
        assert_int_equal(rlk_env_modules(env, 0, 0, count_nodes, &modules, NULL), RLK_OK);
        assert_int_equal(rlk_env_passes(env, 0, 0, count_nodes, &passes, NULL), RLK_OK);
        assert_int_equal(modules.rank, 2);
        assert_int_equal(modules.nranges, 0);
        assert_int_equal(passes.rank, 6);
        assert_int_equal(passes.nranges, 4); /* "mine" is no pass of docs/identity.md */
        assert_int_equal(modules.events, 8);
        assert_int_equal(passes.events, 8);
        assert_true(rlk_u128_equal(modules.out_sum, passes.out_sum));
        rlk_env_close(env);
        rec_remove(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_rollups_are_read),
                                       cmocka_unit_test(test_damage_is_no_verdict),
                                       cmocka_unit_test(test_passes_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
