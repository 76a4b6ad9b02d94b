/* Tensors that are spread over ranks: put together on both sides and measured, against the same taken from the logical
 * tensors directly; and parts that do not fit together. */
#include "auditor/rlk_audit.h"
#include "store/rlk_digest.h"
#include "store/rlk_dtype_value.h"
#include "tests/auditor/build_rec.h"
#include "tests/auditor/refuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, COLS = 40, N = ROWS * COLS };
static float value[2][ROWS][COLS]; /* of A, of B */

struct part { /* runs in both dimensions; no bytes: they were not kept */
    uint32_t rank, nrows, ncols;
    struct rlk_run rows[4], cols[4];
    const char *partial;
    bool no_bytes, wrong_bytes;
};

static void fill(void)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            value[0][r][c] = value[1][r][c] = 1.0f + (float)(r * COLS + c) / 64.0f;
}

static void ulp(int r, int c, int n)
{
    for (int i = 0; i < n; i++)
        value[1][r][c] = nextafterf(value[1][r][c], INFINITY);
}

/* One event on one rank: its part of the tensor "y". */
static void put(struct rec *rec, int side, const struct part *p)
{
    static float local[N];
    const uint64_t logical[2] = {ROWS, COLS};
    struct rlk_run runs[8];
    uint32_t nruns[2] = {p->nrows, p->ncols};
    size_t n = 0;
    memcpy(runs, p->rows, p->nrows * sizeof *runs);
    memcpy(runs + p->nrows, p->cols, p->ncols * sizeof *runs);
    struct rlk_place place = {.ndim = 2, .shape = logical, .nruns = nruns, .runs = runs, .partial = p->partial};
    rec_op(rec, "mm", "m", "fwd", 0);
    rec->event.rank = p->rank;
    rec_out(rec, "y", 0);
    struct rlk_tensor *t = rec_last(rec);
    uint64_t *shape = rec->shape[rec->event.ntensors - 1];
    shape[0] = shape[1] = 0;
    for (uint32_t a = 0; a < p->nrows; a++)
        shape[0] += p->rows[a].extent;
    for (uint32_t b = 0; b < p->ncols; b++)
        shape[1] += p->cols[b].extent;
    for (uint32_t a = 0; a < p->nrows; a++)
        for (uint64_t r = p->rows[a].start; r < p->rows[a].start + p->rows[a].extent; r++)
            for (uint32_t b = 0; b < p->ncols; b++)
                for (uint64_t c = p->cols[b].start; c < p->cols[b].start + p->cols[b].extent; c++)
                    local[n++] = value[side][r][c];
    const struct rlk_view view = {
        .dtype = RLK_FP32, .ndim = 2, .shape = shape, .storage = local, .storage_bytes = n * sizeof *local};
    t->dtype = RLK_FP32;
    t->place = &place;
    assert_int_equal(rlk_digest_view(&t->sums, &t->composable, &view, &place, NULL), RLK_OK);
    if (p->wrong_bytes)
        local[n - 1] += 1;
    if (!p->no_bytes) {
        t->has_payload = true;
        assert_int_equal(rlk_producer_payload(rec->producer, local, n * sizeof *local, &t->payload), RLK_OK);
    }
    rec_put(rec);
}

static void make(struct rec *rec, const char *name, int side, const char *layout, uint32_t ranks,
                 const struct part *part, size_t n)
{
    rec_open(rec, name, ranks, layout);
    for (size_t i = 0; i < n; i++)
        put(rec, side, &part[i]);
    rec_close(rec, false);
}

/* tp4: columns in slabs of 10. */
static const struct part by_column[4] = {{0, 1, 1, {{0, ROWS}}, {{0, 10}}, NULL, false, false},
                                         {1, 1, 1, {{0, ROWS}}, {{10, 10}}, NULL, false, false},
                                         {2, 1, 1, {{0, ROWS}}, {{20, 10}}, NULL, false, false},
                                         {3, 1, 1, {{0, ROWS}}, {{30, 10}}, NULL, false, false}};
/* tp2cp2: two zigzag chunks of 6 rows x slabs of 20 columns; an empty part; a summand; a replica of the first. */
static const struct part zigzag[7] = {{0, 2, 1, {{0, 6}, {18, 6}}, {{0, 20}}, NULL, false, false},
                                      {1, 2, 1, {{0, 6}, {18, 6}}, {{20, 20}}, NULL, false, false},
                                      {2, 1, 1, {{6, 12}}, {{0, 20}}, NULL, false, false},
                                      {3, 2, 1, {{6, 6}, {12, 6}}, {{20, 20}}, NULL, false, false},
                                      {4, 1, 1, {{0, 0}}, {{0, 20}}, NULL, false, false},
                                      {5, 1, 1, {{0, ROWS}}, {{0, COLS}}, "tp", false, false},
                                      {6, 2, 1, {{0, 6}, {18, 6}}, {{0, 20}}, NULL, false, false}};

static json_t *diff_of(const struct part *a, size_t na, const struct part *b, size_t nb, int *code)
{
    struct rec ra, rb;
    json_t *result;
    make(&ra, "joined_a", 0, "tp4", 4, a, na);
    make(&rb, "joined_b", 1, "tp2cp2dp2", 8, b, nb);
    *code = rec_diff(&ra, &rb, &result);
    rec_remove(&ra);
    rec_remove(&rb);
    return result;
}

static const json_t *difference_of(const json_t *result)
{
    return json_object_get(json_object_get(result, "first"), "difference");
}

static json_int_t number(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

/* What is said of the joined tensors is what the logical ones say. */
static void check_measures(const json_t *d)
{
    uint64_t changed = 0, most = 0, first = 0, bins[66] = {0};
    double far = 0;
    const json_t *counts = json_object_get(json_object_get(d, "histogram"), "counts");
    for (uint64_t i = 0; i < N; i++) {
        float x = value[0][i / COLS][i % COLS], y = value[1][i / COLS][i % COLS];
        uint32_t bx, by;
        memcpy(&bx, &x, 4);
        memcpy(&by, &y, 4);
        if (bx == by)
            continue;
        uint64_t distance = bx > by ? bx - by : by - bx, k = 0; /* of one sign */
        first = changed++ ? first : i;
        most = distance > most ? distance : most;
        far = fabs((double)x - (double)y) > far ? fabs((double)x - (double)y) : far;
        for (; distance; distance >>= 1)
            k++;
        bins[k]++;
    }
    assert_int_equal(number(d, "elements"), N);
    assert_int_equal(number(d, "changed"), changed);
    assert_int_equal(number(d, "max_ulp"), most);
    assert_true(json_real_value(json_object_get(d, "max_abs")) == far);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(d, "first_index"), 0)), first / COLS);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(d, "first_index"), 1)), first % COLS);
    for (size_t k = 0; k < json_array_size(counts); k++)
        assert_int_equal(json_integer_value(json_array_get(counts, k)), bins[k]);
    const json_t *lines = json_object_get(json_object_get(d, "map"), "changed");
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            assert_int_equal(json_string_value(json_array_get(lines, (size_t)r))[c] != '.',
                             memcmp(&value[0][r][c], &value[1][r][c], sizeof(float)) != 0);
}

static void expect_list(const json_t *borders, const char *side, const char *key, const char *want)
{
    char *got = json_dumps(json_object_get(json_object_get(borders, side), key), JSON_COMPACT);
    assert_string_equal(got, want);
    free(got);
}

static void test_measured(void **unused)
{
    (void)unused;
    for (unsigned round = 0; round < 12; round++) {
        int code;
        fill();
        for (unsigned i = 0; i <= round * 3; i++)
            ulp((int)((i * 7 + round * 5) % ROWS), (int)((i * 11 + round) % COLS), (int)(1 + i % 9));
        json_t *result = diff_of(by_column, 4, zigzag, 7, &code);
        const json_t *d = difference_of(result), *borders = json_object_get(json_object_get(d, "map"), "borders");
        assert_int_equal(code, 1);
        check_measures(d);
        assert_int_equal(number(json_object_get(d, "parts"), "a"), 4);
        assert_int_equal(number(json_object_get(d, "parts"), "b"), 6); /* the summand is none */
        expect_list(borders, "a", "rows", "[]");
        expect_list(borders, "a", "cols", "[10,20,30]");
        expect_list(borders, "b", "rows", "[6,18]"); /* 12: two runs that touch are one */
        expect_list(borders, "b", "cols", "[20]");
        json_decref(result);
    }
    fill();
    int code;
    json_t *result = diff_of(by_column, 4, zigzag, 7, &code);
    assert_true(json_is_null(json_object_get(result, "first"))); /* a clean pair */
    assert_int_equal(code, 0);
    json_decref(result);
}

static const char *pattern(void)
{
    static char text[32];
    int code;
    json_t *result = diff_of(by_column, 4, zigzag, 7, &code);
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(difference_of(result), "pattern")));
    json_decref(result);
    return text;
}

static void test_pattern(void **unused)
{
    (void)unused;
    fill();
    for (int c = 3; c < 17; c++) { /* the rows on both sides of the cut before 6, and one at 18 */
        ulp(5, c, 1 + c % 3);
        ulp(6, c, 2);
        ulp(18, c, 1);
    }
    assert_string_equal(pattern(), "shard-boundary");
    ulp(9, 4, 1); /* and one elsewhere */
    assert_string_not_equal(pattern(), "shard-boundary");
    fill();
    for (int r = 0; r < ROWS; r++) /* columns at two of A's three cuts */
        ulp(r, r % 2 ? 9 : 20, 1 + r % 2);
    assert_string_equal(pattern(), "shard-boundary");
    fill();
    for (int c = 0; c < COLS; c++) /* a row in the middle of a chunk */
        ulp(9, c, 1 + c % 4);
    assert_string_equal(pattern(), "rows");
}

/* What is not there is said. */
static void test_unmeasured(void **unused)
{
    struct part a[4], b[7];
    int code;
    (void)unused;
    fill();
    ulp(2, 3, 4);
    memcpy(a, by_column, sizeof a);
    memcpy(b, zigzag, sizeof b);
    a[2].no_bytes = true;
    json_t *result = diff_of(a, 4, b, 7, &code);
    assert_true(json_is_null(json_object_get(difference_of(result), "changed")));
    assert_string_equal(json_string_value(json_object_get(difference_of(result), "unmeasured")),
                        "the bytes of 1 of 4 parts in A were not kept");
    json_decref(result);
    b[0].no_bytes = true; /* its replica on rank 6 has them */
    result = diff_of(by_column, 4, b, 7, &code);
    check_measures(difference_of(result));
    json_decref(result);
}

static int refused(const struct part *a, size_t na, const struct part *b, size_t nb, json_t **result,
                   struct rlk_detail *detail)
{
    struct rec ra, rb;
    make(&ra, "joined_a", 0, "tp4", 4, a, na);
    make(&rb, "joined_b", 1, "tp2cp2dp2", 8, b, nb);
    struct rlk_audit_options options = {.a = ra.dir, .b = rb.dir};
    *result = NULL;
    int rc = rlk_audit_first_diff(result, &options, detail);
    rec_remove(&ra);
    rec_remove(&rb);
    return rc;
}

static void test_damaged(void **unused)
{
    struct part b[7];
    struct rlk_detail detail = {{0}};
    json_t *result;
    (void)unused;
    fill();
    ulp(2, 3, 4);
    memcpy(b, zigzag, sizeof b);
    b[3].wrong_bytes = true;
    assert_int_equal(refused(by_column, 4, b, 7, &result, &detail), RLK_ECORRUPT);
    assert_non_null(strstr(detail.text, "do not have its digest"));
    assert_null(result);
}

/* A hole, an overlap: nothing is compared, and it says why. */
static void test_cover(void **unused)
{
    struct part b[7];
    struct rlk_detail detail = {{0}};
    json_t *result;
    (void)unused;
    fill();
    ulp(2, 3, 4);
    for (int hostile = 0; hostile < 2; hostile++) {
        memcpy(b, zigzag, sizeof b);
        b[2].rows[0] = hostile ? (struct rlk_run){5, 13} : (struct rlk_run){7, 11};
        assert_int_equal(refused(by_column, 4, b, 7, &result, &detail), RLK_OK);
        assert_true(json_is_null(json_object_get(result, "first")));
        const json_t *reasons = json_object_get(json_object_get(result, "scope"), "reasons");
        assert_int_equal(number(reasons, "cover"), 1);
        json_decref(result);
    }
}

/* Two ranks claim 2^60 elements; samples whose rows are counted right and lie on each other. */
static void hostile(struct rec *rec, const char *name, const char *layout, uint64_t fault, bool samples)
{
    static const uint64_t large[2] = {UINT64_C(1) << 40, UINT64_C(1) << 20}, small[2] = {4, 8};
    static const struct rlk_run halves[2][1] = {{{0, UINT64_C(1) << 39}}, {{UINT64_C(1) << 39, UINT64_C(1) << 39}}};
    static const uint32_t nruns[2] = {1, RLK_WHOLE};
    static const uint16_t zeros[32];
    rec_open(rec, name, 2, layout);
    for (uint32_t r = 0; r < 2; r++) {
        struct rlk_place place = {.ndim = 2, .shape = samples ? small : large, .nruns = nruns, .runs = halves[r]};
        struct rlk_sample_part part = {.id = "s", .start = 0, .extent = 8, .has_sums = true};
        rec_op(rec, "mm", "m", "fwd", 0);
        rec->event.rank = r;
        rec->event.who.work = samples ? r : 0; /* joined by sample, whatever its work */
        rec_out(rec, "y", 3 + r * fault);
        struct rlk_tensor *t = rec_last(rec);
        if (samples) { /* [4,8] on either rank: rows 0..3 of an eight-row sample, twice */
            const struct rlk_view view = {
                .dtype = RLK_BF16, .ndim = 2, .shape = small, .storage = zeros, .storage_bytes = sizeof zeros};
            bool composable;
            assert_int_equal(rlk_digest_view(&t->sums, &composable, &view, NULL, NULL), RLK_OK);
            part.sums = t->sums;
            part.sums.positional.lo += fault;
            t->nsamples = 1;
            t->samples = &part;
        } else {
            rec->shape[0][0] = large[0] / 2;
            rec->shape[0][1] = large[1];
            t->sums.elements = large[0] / 2 * large[1];
            t->place = &place;
        }
        t->has_payload = true;
        assert_int_equal(rlk_producer_payload(rec->producer, zeros, sizeof zeros, &t->payload), RLK_OK);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void test_hostile(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    for (int samples = 0; samples < 2; samples++) {
        hostile(&a, "hostile_a", "tp2", 0, samples);
        hostile(&b, "hostile_b", "cp2", 1, samples);
        assert_int_equal(rec_diff(&a, &b, &result), 1);
        const char *why = json_string_value(json_object_get(difference_of(result), "unmeasured"));
        assert_non_null(why);
        assert_string_equal(why, samples ? "two parts hold the same element" : "it has more than 1 GiB");
        json_decref(result);
        rec_remove(&a);
        rec_remove(&b);
    }
}

static void test_every_allocation(void **unused)
{
    struct rec a, b;
    struct rlk_detail detail;
    json_t *whole = NULL, *result;
    long n = 0;
    (void)unused;
    json_object_seed(1);
    fill();
    for (int c = 3; c < 17; c++)
        ulp(6, c, 2);
    make(&a, "joined_a", 0, "tp4", 4, by_column, 4);
    make(&b, "joined_b", 1, "tp2cp2dp2", 8, zigzag, 7);
    struct rlk_audit_options options = {.a = a.dir, .b = b.dir};
    assert_int_equal(rlk_audit_first_diff(&whole, &options, &detail), RLK_OK);
    for (bool all = false; !all; n++) {
        result = NULL;
        refuse_after(n);
        int rc = rlk_audit_first_diff(&result, &options, &detail);
        all = !refuse_met();
        refuse_after(-1);
        if (rc == RLK_ECORRUPT && strstr(detail.text, "manifest.json"))
            rc = RLK_ENOMEM; /* the JSON reader's word for it, below us */
        if (rc == RLK_OK && !json_equal(result, whole)) {
            print_message("allocation %ld\n", n);
            json_dumpf(result, stdout, JSON_INDENT(1));
        }
        if (rc != RLK_OK && rc != RLK_ENOMEM)
            print_message("allocation %ld: %s %s\n", n, rlk_error_name(rc), detail.text);
        assert_true(rc == RLK_ENOMEM || (rc == RLK_OK && json_equal(result, whole)));
        assert_true(rc == RLK_OK || !result);
        json_decref(result);
    }
    assert_true(n > 100);
    json_decref(whole);
    rec_remove(&a);
    rec_remove(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured),        cmocka_unit_test(test_pattern),
                                       cmocka_unit_test(test_unmeasured),      cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_cover),           cmocka_unit_test(test_hostile),
                                       cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
