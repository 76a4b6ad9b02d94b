/* An operator that combines ranks, recorded as an event of each: its inputs are those of all the ranks it names. */
#include "auditor/audit.h"
#include "tests/auditor/build_rec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

struct fault {
    uint64_t norm1;            /* added to what rank 1's norm makes */
    uint64_t gather0, gather1; /* and to what the combining operator makes on each rank */
    bool alone;                /* rank 1 has no combining operator */
    const char *combines;
};

static uint64_t put(struct rec *rec, uint32_t rank, const char *combines)
{
    static struct rlk_attr attr;
    rec->event.rank = rank;
    attr = (struct rlk_attr){"combines", RLK_ATTR_STRING, 0, 0.0, combines};
    rec->event.nattrs = combines != NULL;
    rec->event.attrs = &attr;
    return rec_put(rec);
}

/* On two ranks: x -> norm -> gather (of both ranks' norms) -> end. */
static void make(struct rec *rec, const char *name, const struct fault *f)
{
    uint64_t norm[2], gather[2];
    rec_open(rec, name, 2, "tp2cp1");
    for (uint32_t r = 0; r < 2; r++) {
        rec_op(rec, "norm", "m", "fwd", 0);
        rec_in(rec, "x", 10 + r);
        rec_out(rec, "y", 20 + r + (r ? f->norm1 : 0));
        norm[r] = put(rec, r, NULL);
    }
    for (uint32_t r = 0; r < 2; r++) {
        if (r && f->alone)
            continue;
        rec_op(rec, "gather", "m", "fwd", 0);
        rec_ref(rec, "x", norm[r], 0);
        rec_out(rec, "y", 30 + r + (r ? f->gather1 : f->gather0));
        gather[r] = put(rec, r, f->combines);
        rec_op(rec, "end", "m", "fwd", 0);
        rec_ref(rec, "x", gather[r], 0);
        rec_out(rec, "y", 40 + r + (r ? f->gather1 : f->gather0));
        put(rec, r, NULL);
    }
    rec_close(rec, false);
}

static json_t *diff(const struct fault *a, const struct fault *b, int code)
{
    struct rec x, y;
    json_t *result;
    make(&x, "combine-a", a);
    make(&y, "combine-b", b);
    assert_int_equal(rec_diff(&x, &y, &result), code);
    rec_remove(&x);
    rec_remove(&y);
    return result;
}

static const char *op_of(const json_t *result, size_t root)
{
    const char *op = json_string_value(json_object_get(json_array_get(json_object_get(result, "roots"), root), "op"));
    return op ? op : "";
}

static size_t roots(const json_t *result)
{
    return json_array_size(json_object_get(result, "roots"));
}

static void test_downstream_of_another_rank(void **state)
{
    const struct fault clean = {.combines = "0,1"}, bad = {.norm1 = 1, .gather0 = 1, .gather1 = 1, .combines = "0,1"};
    (void)state;
    json_t *result = diff(&clean, &bad, 1);
    assert_int_equal(roots(result), 1);
    assert_string_equal(op_of(result, 0), "norm");
    json_decref(result);

    /* Where the operator does not say whom it reads, rank 0 has equal inputs and another output. */
    const struct fault clean_own = {0}, bad_own = {.norm1 = 1, .gather0 = 1, .gather1 = 1};
    result = diff(&clean_own, &bad_own, 1);
    assert_int_equal(roots(result), 2);
    assert_true(strcmp(op_of(result, 0), "gather") == 0 || strcmp(op_of(result, 1), "gather") == 0);
    json_decref(result);

    /* Each combines with itself alone: as if it said nothing. */
    const struct fault clean_self = {.combines = "0"}, bad_self = {.norm1 = 1, .gather0 = 1, .combines = "0"};
    result = diff(&clean_self, &bad_self, 1);
    assert_int_equal(roots(result), 2);
    json_decref(result);
}

/* Rank 1's own output is the same by chance: its module is read only because rank 0 asks. */
static void test_the_other_rank_shows_nothing(void **state)
{
    const struct fault clean = {.combines = "0,1"}, bad = {.norm1 = 1, .gather0 = 1, .combines = "0,1"};
    (void)state;
    json_t *result = diff(&clean, &bad, 1);
    assert_int_equal(roots(result), 1);
    assert_string_equal(op_of(result, 0), "norm");
    json_decref(result);
}

static void test_a_root(void **state)
{
    const struct fault clean = {.combines = "0,1"}, one = {.gather0 = 1, .combines = "0,1"},
                       both = {.gather0 = 1, .gather1 = 1, .combines = "0,1"};
    (void)state;
    json_t *result = diff(&clean, &clean, 0);
    assert_int_equal(roots(result), 0);
    json_decref(result);
    result = diff(&clean, &one, 1);
    assert_int_equal(roots(result), 1);
    assert_string_equal(op_of(result, 0), "gather");
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(result, "roots"), 0), "root")));
    json_decref(result);
    result = diff(&clean, &both, 1);
    assert_int_equal(roots(result), 1);
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(result, "roots"), 0), "ranks")), 2);
    json_decref(result);
}

static void test_missing_or_malformed(void **state)
{
    static const char *const odd[] = {"0,7", "x", "0,,1", ",", "1,0", "99999999999999999999", "0,", "0 1"};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const struct fault clean = {.combines = odd[i]}, bad = {.gather0 = 1, .combines = odd[i]};
        json_t *result = diff(&clean, &bad, 1);
        assert_int_equal(roots(result), 1);
        assert_string_equal(op_of(result, 0), "gather");
        if (i == 0) /* a rank that has no such operator: nobody knows its inputs */
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(json_object_get(result, "roots"), 0), "root")),
                "unknown");
        json_decref(result);
    }
    const struct fault clean = {.combines = "0,1", .alone = true},
                       bad = {.combines = "0,1", .alone = true, .gather0 = 1};
    json_t *result = diff(&clean, &bad, 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(result, "roots"), 0), "root")),
                        "unknown");
    json_decref(result);
}

static void test_parse(void **state)
{
    uint32_t ranks[4];
    (void)state;
    assert_int_equal(rlki_combine_ranks("0", ranks, 4), 1);
    assert_int_equal(rlki_combine_ranks("0,4,63", ranks, 4), 3);
    assert_true(ranks[0] == 0 && ranks[1] == 4 && ranks[2] == 63);
    assert_int_equal(rlki_combine_ranks("0,1,2,3,4", ranks, 4), 0);
    assert_int_equal(rlki_combine_ranks("", ranks, 4), 0);
    assert_int_equal(rlki_combine_ranks("4294967296", ranks, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_downstream_of_another_rank), cmocka_unit_test(test_the_other_rank_shows_nothing),
        cmocka_unit_test(test_a_root), cmocka_unit_test(test_missing_or_malformed), cmocka_unit_test(test_parse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
