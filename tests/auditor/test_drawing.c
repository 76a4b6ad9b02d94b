/* The drawing of a difference: one planted change each, with what it must give. */
#include "auditor/audit.h"
#include "auditor/drawing.h"
#include "store/rlk_error.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { ROWS = 128, COLS = 192, N = ROWS * COLS };
static float a[N], b[N];
static const uint64_t shape[] = {ROWS, COLS};
static const struct rlki_cuts *const uncut[2];

static void reset(void)
{
    for (int i = 0; i < N; i++)
        a[i] = b[i] = (float)(i % 97) + 1.5f;
}

static json_t *draw(void)
{
    json_t *out = json_object();
    rlki_json_begin();
    assert_int_equal(rlki_draw(out, RLK_FP32, 2, shape, NULL, uncut, a, b, N), RLK_OK);
    assert_false(rlki_json_failed());
    return out;
}

static const char *line(const json_t *out, const char *which, size_t i)
{
    return json_string_value(json_array_get(json_object_get(json_object_get(out, "map"), which), i));
}

static json_int_t counted(const json_t *out, size_t k)
{
    return json_integer_value(json_array_get(json_object_get(json_object_get(out, "histogram"), "counts"), k));
}

static void test_nothing(void **unused)
{
    (void)unused;
    reset();
    json_t *out = draw();
    assert_int_equal(json_object_size(out), 0);
    json_decref(out);
}

/* Elements next to each other in two distances, one NaN, one sign of zero. */
static void test_histogram(void **unused)
{
    (void)unused;
    reset();
    b[5] = nextafterf(b[5], INFINITY);
    b[6] = nextafterf(b[6], 0);
    for (int i = 0; i < 5; i++) /* 5 ULP: bin 3 holds 4 to 7 */
        b[7] = nextafterf(b[7], INFINITY);
    b[8] = NAN;
    a[9] = 0.0f;
    b[9] = -0.0f;
    json_t *out = draw(), *examples = json_object_get(out, "examples");
    assert_string_equal(json_string_value(json_object_get(json_object_get(out, "histogram"), "unit")), "ulp");
    assert_int_equal(counted(out, 0), 1);
    assert_int_equal(counted(out, 1), 2);
    assert_int_equal(counted(out, 2), 0);
    assert_int_equal(counted(out, 3), 1);
    assert_int_equal(json_array_size(json_object_get(json_object_get(out, "histogram"), "counts")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(out, "histogram"), "nan")), 1);
    assert_int_equal(json_array_size(examples), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(examples, 0), "bits_a")), "40d00000");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(examples, 2), "distance")), 5);
    assert_true(json_is_null(json_object_get(json_array_get(examples, 3), "distance")));
    json_decref(out);
}

static void test_map(void **unused)
{
    (void)unused;
    reset();
    for (int c = 0; c < COLS; c++) /* rows 64 and 65 whole: line 32 */
        for (int r = 64; r < 66; r++)
            b[r * COLS + c] = nextafterf(b[r * COLS + c], INFINITY);
    b[127 * COLS + 191] += 1; /* one of the four elements of the last cell */
    json_t *out = draw();
    assert_int_equal(json_array_size(json_object_get(json_object_get(out, "map"), "changed")), 64);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(strlen(line(out, "changed", i)), 96);
        size_t marks = 96 - strspn(line(out, "changed", i), ".");
        assert_int_equal(marks, i == 32 ? 96 : i == 63 ? 1 : 0);
    }
    assert_int_equal(strspn(line(out, "changed", 32), "9"), 96);
    assert_int_equal(strspn(line(out, "far", 32), "1"), 96);
    assert_int_equal(line(out, "changed", 63)[95], '6'); /* a quarter: no more than that */
    /* examples: six of row 64, and the farthest last */
    json_t *last = json_array_get(json_object_get(out, "examples"), 6);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(last, "index"), 0)), 127);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(last, "index"), 1)), 191);
    json_decref(out);
}

/* Extents that the map does not divide: every element falls into the cell that says so, and whole cells are 9. */
static void test_uneven(void **unused)
{
    (void)unused;
    static int32_t x[101 * 101], y[101 * 101];
    const uint64_t uneven[] = {101, 101};
    for (int i = 0; i < 101 * 101; i++)
        y[i] = x[i] + 3;
    json_t *out = json_object();
    assert_int_equal(rlki_draw(out, RLK_INT32, 2, uneven, NULL, uncut, x, y, 101 * 101), RLK_OK);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(strspn(line(out, "changed", i), "9"), 96);
    assert_string_equal(json_string_value(json_object_get(json_object_get(out, "histogram"), "unit")), "integer");
    assert_int_equal(counted(out, 2), 101 * 101);
    json_decref(out);
}

/* A shard's example stands at its logical index; a scalar has no map. */
static void test_places(void **unused)
{
    (void)unused;
    const struct rlk_run runs[] = {{.start = 8, .extent = 4}};
    const uint64_t whole[] = {2, 16}, local[] = {2, 4};
    const uint32_t nruns[] = {RLK_WHOLE, 1};
    const struct rlk_place place = {.ndim = 2, .shape = whole, .nruns = nruns, .runs = runs};
    double x[8] = {0}, y[8] = {0};
    y[6] = 1;
    json_t *out = json_object();
    assert_int_equal(rlki_draw(out, RLK_FP64, 2, local, &place, uncut, x, y, 8), RLK_OK);
    json_t *index = json_object_get(json_array_get(json_object_get(out, "examples"), 0), "index");
    assert_int_equal(json_integer_value(json_array_get(index, 0)), 1);
    assert_int_equal(json_integer_value(json_array_get(index, 1)), 10);
    json_decref(out);
    out = json_object();
    assert_int_equal(rlki_draw(out, RLK_FP64, 0, NULL, NULL, uncut, &x[6], &y[6], 1), RLK_OK);
    assert_null(json_object_get(out, "map"));
    assert_non_null(json_object_get(out, "histogram"));
    json_decref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing), cmocka_unit_test(test_histogram), cmocka_unit_test(test_map),
        cmocka_unit_test(test_uneven),  cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
