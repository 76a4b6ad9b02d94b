/* Placements: checks, equality, copies, covers against counting every element; layouts and their groups. */
#include "store/rlk_place.h"
#include "tests/store/lattice.h"
#include "tests/store/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define P(NDIM, SHAPE, NRUNS, RUNS)                                                                                    \
    (struct rlk_place)                                                                                                 \
    {                                                                                                                  \
        .ndim = NDIM, .shape = SHAPE, .nruns = NRUNS, .runs = RUNS                                                     \
    }

static void check_says_what_is_wrong(void **state)
{
    (void)state;
    const uint64_t shape[2] = {10, 8}, local[2] = {4, 8}, huge[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    const uint64_t none[2] = {0, UINT64_MAX};
    const uint32_t two[2] = {2, RLK_WHOLE};
    struct rlk_detail d;
    static const struct {
        struct rlk_run run[2];
        const char *text; /* NULL = fine */
    } rows[] = {
        {{{0, 2}, {6, 2}}, NULL},
        {{{0, 2}, {2, 2}}, NULL},
        {{{0, 0}, {6, 4}}, NULL},
        {{{6, 4}, {0, 0}}, NULL},
        {{{0, 2}, {8, 3}}, "leaves the logical size 10"},
        {{{0, 2}, {11, 0}}, "leaves the logical size 10"},
        {{{0, 2}, {UINT64_MAX, 2}}, "leaves the logical size 10"},
        {{{6, 2}, {0, 2}}, "does not lie behind"},
        {{{0, 3}, {2, 1}}, "does not lie behind"},
        {{{0, 3}, {6, 2}}, "hold 5, the local tensor 4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlk_place p = P(2, shape, two, rows[i].run);
        int rc = rlk_place_check(&p, 2, local, &d);
        assert_int_equal(rc, rows[i].text ? RLK_EINVAL : RLK_OK);
        if (rows[i].text)
            assert_non_null(strstr(d.text, rows[i].text));
    }
    struct rlk_place p = P(2, shape, NULL, NULL);
    assert_int_equal(rlk_place_check(&p, 2, shape, NULL), RLK_OK);
    assert_int_equal(rlk_place_check(&p, 1, shape, &d), RLK_EINVAL);
    assert_int_equal(rlk_place_check(&p, 2, local, &d), RLK_EINVAL);
    p = P(2, huge, NULL, NULL);
    assert_int_equal(rlk_place_check(&p, 2, huge, &d), RLK_EINVAL);
    p = P(2, none, NULL, NULL);
    assert_int_equal(rlk_place_check(&p, 2, none, &d), RLK_OK);
    p.ndim = RLK_MAX_DIMS + 1;
    assert_int_equal(rlk_place_check(&p, RLK_MAX_DIMS + 1, none, &d), RLK_EINVAL);
}

static void equal_looks_at_the_elements_held(void **state)
{
    (void)state;
    const uint64_t shape[2] = {10, 8}, other[2] = {10, 9};
    const uint32_t n1[2] = {1, RLK_WHOLE}, n3[2] = {3, 1}, n0[2] = {0, RLK_WHOLE}, full[2] = {1, 1};
    const struct rlk_run one[1] = {{2, 4}}, split[4] = {{2, 1}, {9, 0}, {3, 3}, {0, 8}}, all[2] = {{0, 10}, {0, 8}};
    const struct rlk_run less[1] = {{2, 3}}, nothing[1] = {{5, 0}};
    struct rlk_place a = P(2, shape, n1, one), b = P(2, shape, n3, split), c = P(2, shape, n1, less);
    struct rlk_place whole = P(2, shape, NULL, NULL), spelled = P(2, shape, full, all), wide = P(2, other, n1, one);
    struct rlk_place empty = P(2, shape, n0, NULL), empty2 = P(2, shape, n1, nothing);
    b.replica = "tp"; /* groups apart */
    assert_true(rlk_place_equal(&a, &b) && rlk_place_equal(&b, &a));
    assert_false(rlk_place_equal(&a, &c) || rlk_place_equal(&c, &a) || rlk_place_equal(&a, &wide));
    assert_false(rlk_place_equal(&a, &whole) || rlk_place_equal(&empty, &whole) || rlk_place_equal(&whole, NULL));
    assert_true(rlk_place_equal(&whole, &spelled) && rlk_place_equal(&empty, &empty2) && rlk_place_equal(NULL, NULL));
    assert_true(rlk_place_is_whole(&whole) && rlk_place_is_whole(&spelled));
    assert_false(rlk_place_is_whole(&a) || rlk_place_is_whole(&empty) || rlk_place_is_whole(NULL));
}

static void copies_are_deep(void **state)
{
    (void)state;
    uint64_t shape[3] = {10, 8, 5};
    uint32_t nruns[3] = {2, RLK_WHOLE, 0};
    struct rlk_run runs[2] = {{0, 2}, {6, 2}};
    char partial[] = "tp";
    struct rlk_arena arena = {NULL};
    struct rlk_place p = P(3, shape, nruns, runs);
    p.partial = partial;
    struct rlk_place *q = rlk_place_copy(&arena, &p);
    assert_non_null(q);
    assert_true(rlk_place_equal(&p, q));
    shape[0] = nruns[0] = 0;
    runs[0].start = 3;
    partial[0] = 'x';
    assert_int_equal(q->ndim, 3);
    assert_int_equal(q->shape[0], 10);
    assert_int_equal(q->nruns[0], 2);
    assert_int_equal(q->nruns[1], RLK_WHOLE);
    assert_int_equal(q->runs[0].start, 0);
    assert_int_equal(q->runs[1].start, 6);
    assert_string_equal(q->partial, "tp");
    assert_null(q->replica);
    rlk_arena_release(&arena);
}

/* ---- covers ---- */

#define MAX_PARTS 64
#define MAX_DIMS 3

struct box {
    uint64_t shape[MAX_DIMS], extent[MAX_DIMS];
    uint32_t nruns[MAX_DIMS];
    struct rlk_run runs[MAX_DIMS * 16];
    bool holds[MAX_DIMS][16]; /* coordinate is held */
    struct rlk_place place;
};

static void box_finish(struct box *b, const uint64_t *shape, uint32_t ndim, struct rng *r)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        b->shape[i] = shape[i];
        b->nruns[i] = 0;
        bool whole = true;
        for (uint64_t k = 0; k < shape[i]; k++) {
            whole = whole && b->holds[i][k];
            if (!b->holds[i][k])
                continue;
            bool goes_on = k > 0 && b->holds[i][k - 1] && b->nruns[i] > 0 && !rng_one_in(r, 5);
            if (goes_on) {
                b->runs[total - 1].extent++;
            } else {
                b->runs[total++] = (struct rlk_run){k, 1};
                b->nruns[i]++;
            }
        }
        if (whole && rng_one_in(r, 2)) {
            total -= b->nruns[i];
            b->nruns[i] = RLK_WHOLE;
        }
    }
    b->place = P(ndim, b->shape, b->nruns, b->runs);
}

static bool covers_by_counting(const struct box *boxes, size_t n, const uint64_t *shape, uint32_t ndim)
{
    uint64_t total = 1;
    for (uint32_t i = 0; i < ndim; i++)
        total *= shape[i];
    for (uint64_t k = 0; k < total; k++) {
        unsigned count = 0;
        for (size_t b = 0; b < n; b++) {
            uint64_t rest = k;
            bool in = true;
            for (uint32_t i = ndim; i-- > 0; rest /= shape[i])
                in = in && boxes[b].holds[i][rest % shape[i]];
            count += in;
        }
        if (count != 1)
            return false;
    }
    return true;
}

/* Splits a box into two along a random dimension, by an arbitrary subset of its coordinates. */
static void split(struct box *from, struct box *to, uint32_t ndim, const uint64_t *shape, struct rng *r)
{
    uint32_t dim = (uint32_t)rng_below(r, ndim);
    bool interval = rng_one_in(r, 2);
    uint64_t border = rng_below(r, shape[dim] + 1);
    *to = *from;
    for (uint64_t k = 0; k < shape[dim]; k++) {
        bool moves = interval ? k >= border : rng_one_in(r, 2);
        to->holds[dim][k] = from->holds[dim][k] && moves;
        from->holds[dim][k] = from->holds[dim][k] && !moves;
    }
}

static void cover_agrees_with_counting(void **state)
{
    (void)state;
    static struct box boxes[MAX_PARTS];
    const struct rlk_place *places[MAX_PARTS];
    struct rng r = rng_new(31);
    unsigned covered = 0, not_covered = 0;
    for (int round = 0; round < 6000; round++) {
        uint32_t ndim = 1 + (uint32_t)rng_below(&r, MAX_DIMS);
        uint64_t shape[MAX_DIMS];
        size_t n = 1;
        memset(&boxes[0], 0, sizeof boxes[0]);
        for (uint32_t i = 0; i < ndim; i++) {
            shape[i] = 1 + rng_below(&r, 9);
            for (uint64_t k = 0; k < shape[i]; k++)
                boxes[0].holds[i][k] = true;
        }
        for (uint64_t splits = rng_below(&r, 20); splits; splits--, n++)
            split(&boxes[rng_below(&r, n)], &boxes[n], ndim, shape, &r);
        if (rng_one_in(&r, 2)) { /* a fault: flip a coordinate of one part, drop one, or double one */
            size_t b = rng_below(&r, n);
            uint32_t dim = (uint32_t)rng_below(&r, ndim);
            uint64_t k = rng_below(&r, shape[dim]);
            switch (rng_below(&r, 3)) {
            case 0:
                boxes[b].holds[dim][k] = !boxes[b].holds[dim][k];
                break;
            case 1:
                boxes[b] = boxes[n - 1];
                n -= n > 1;
                break;
            default:
                boxes[n++] = boxes[b];
                break;
            }
        }
        for (size_t b = 0; b < n; b++) {
            box_finish(&boxes[b], shape, ndim, &r);
            places[b] = &boxes[b].place;
        }
        bool want = covers_by_counting(boxes, n, shape, ndim);
        struct rlk_detail detail = {""};
        int rc = rlk_place_cover(places, n, &detail);
        if (rc != (want ? RLK_OK : RLK_ECOVER))
            fail_msg("round %d: %s (%s), counting says %s", round, rlk_error_name(rc), detail.text,
                     want ? "covered" : "not covered");
        covered += want;
        not_covered += !want;
    }
    assert_true(covered > 1000 && not_covered > 1000);
}

static void cover_names_the_place(void **state)
{
    (void)state;
    const uint64_t shape[2] = {4, 6};
    const uint32_t nruns[2] = {1, 1};
    const struct rlk_run a[2] = {{0, 4}, {0, 3}}, b[2] = {{0, 2}, {3, 3}}, c[2] = {{2, 2}, {4, 2}};
    const struct rlk_run d[2] = {{2, 2}, {3, 3}}, e[2] = {{1, 3}, {3, 3}};
    struct rlk_place A = P(2, shape, nruns, a), B = P(2, shape, nruns, b), C = P(2, shape, nruns, c);
    struct rlk_place D = P(2, shape, nruns, d), E = P(2, shape, nruns, e);
    struct rlk_detail detail;
    const struct rlk_place *good[] = {&A, &B, &D}, *hole[] = {&A, &B, &C}, *twice[] = {&A, &B, &E};
    assert_int_equal(rlk_place_cover(good, 3, &detail), RLK_OK);
    assert_int_equal(rlk_place_cover(hole, 3, &detail), RLK_ECOVER);
    assert_string_equal(detail.text, "element [2, 3] belongs to no part");
    assert_int_equal(rlk_place_cover(twice, 3, &detail), RLK_ECOVER);
    assert_string_equal(detail.text, "element [1, 3] belongs to parts 1 and 2");
    const uint64_t other[2] = {4, 7}, empty[2] = {4, 0};
    struct rlk_place O = P(2, other, NULL, NULL), Z = P(2, empty, NULL, NULL), S = P(0, NULL, NULL, NULL);
    const struct rlk_place *mixed[] = {&A, &O}, *nothing[] = {&Z, &Z}, *scalar[] = {&S, &S};
    assert_int_equal(rlk_place_cover(mixed, 2, &detail), RLK_EINVAL);
    assert_int_equal(rlk_place_cover(nothing, 2, &detail), RLK_OK); /* no element, so each exactly once */
    assert_int_equal(rlk_place_cover(scalar, 1, &detail), RLK_OK);
    assert_int_equal(rlk_place_cover(scalar, 2, &detail), RLK_ECOVER);
    assert_int_equal(rlk_place_cover(scalar, 0, &detail), RLK_EINVAL);
}

/* 8 x 512 parts of 1,000 packed samples: 4,096 parts with 16,000 runs each in all but name. */
static void thousands_of_parts(void **state)
{
    (void)state;
    enum { TP = 8, CP = 512, SAMPLES = 1000 };
    uint64_t lengths[SAMPLES], shape[2] = {0, 4096};
    struct rng r = rng_new(32);
    for (unsigned i = 0; i < SAMPLES; i++) {
        lengths[i] = 1 + rng_below(&r, 4000);
        shape[0] += lengths[i];
    }
    struct rlk_place *places = calloc(TP * CP, sizeof *places);
    const struct rlk_place **list = calloc(TP * CP, sizeof *list);
    uint32_t *nruns = calloc(TP * CP * 2, sizeof *nruns);
    struct rlk_run **runs = calloc(TP * CP, sizeof *runs), *scratch = calloc(SAMPLES * 2 * CP, sizeof *scratch);
    assert_true(places && list && nruns && runs && scratch);
    for (uint32_t c = 0; c < CP; c++) {
        uint64_t held;
        uint32_t n = zigzag_runs(scratch, ZIGZAG_MEGATRON, CP, c, lengths, SAMPLES, &held);
        for (uint32_t t = 0; t < TP; t++) {
            size_t i = c * TP + t;
            runs[i] = calloc(n + 1, sizeof **runs);
            assert_non_null(runs[i]);
            memcpy(runs[i], scratch, n * sizeof *scratch);
            runs[i][n] = (struct rlk_run){t * 512, 512};
            nruns[2 * i] = n;
            nruns[2 * i + 1] = 1;
            places[i] = P(2, shape, nruns + 2 * i, runs[i]);
            list[i] = &places[i];
        }
    }
    struct rlk_detail detail;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    assert_int_equal(rlk_place_cover(list, TP * CP, &detail), RLK_OK);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    print_message("cover of %d parts: %.0f ms\n", TP * CP,
                  (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
    runs[TP * 77 + 3][nruns[2 * (TP * 77 + 3)]].extent--;
    assert_int_equal(rlk_place_cover(list, TP * CP, &detail), RLK_ECOVER);
    for (size_t i = 0; i < TP * CP; i++)
        free(runs[i]);
    free(places);
    free(list);
    free(nruns);
    free(runs);
    free(scratch);
}

/* Column i is cut in two at row i, so that every row is held by another set of parts. A small one is checked; a large
 * one is refused instead of worked on for hours. */
static int staircase(uint64_t n, struct rlk_detail *detail)
{
    static const uint32_t nruns[2] = {1, 1};
    const uint64_t shape[2] = {n, n};
    struct rlk_run(*runs)[2] = calloc(2 * n, sizeof *runs);
    struct rlk_place *places = calloc(2 * n, sizeof *places);
    const struct rlk_place **list = calloc(2 * n, sizeof *list);
    assert_true(runs && places && list);
    for (uint64_t i = 0; i < 2 * n; i++) {
        runs[i][0] = i < n ? (struct rlk_run){0, i} : (struct rlk_run){i - n, 2 * n - i};
        runs[i][1] = (struct rlk_run){i % n, 1};
        places[i] = P(2, shape, nruns, runs[i]);
        list[i] = &places[i];
    }
    int rc = rlk_place_cover(list, 2 * n, detail);
    free(runs);
    free(places);
    free(list);
    return rc;
}

static void hostile_parts_end(void **state)
{
    (void)state;
    struct rlk_detail detail;
    struct timespec t0, t1;
    assert_int_equal(staircase(300, &detail), RLK_OK);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    assert_int_equal(staircase(20000, &detail), RLK_ELIMIT);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    print_message("refused after %.0f ms\n",
                  (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
}

/* ---- layouts ---- */

static void layouts_parse(void **state)
{
    (void)state;
    struct rlk_layout l;
    struct rlk_detail d;
    assert_int_equal(rlk_layout_parse(&l, "tp2cp4", &d), RLK_OK);
    assert_true(l.tp == 2 && l.cp == 4 && l.ep == 1 && l.dp == 0 && l.pp == 1);
    assert_int_equal(rlk_layout_parse(&l, "pp3dp12ep2", &d), RLK_OK);
    assert_true(l.tp == 1 && l.cp == 1 && l.ep == 2 && l.dp == 12 && l.pp == 3);
    assert_int_equal(rlk_layout_parse(&l, "tp4294967295", &d), RLK_OK);
    static const char *const wrong[] = {
        "",      "tp",   "tp0", "tp2tp2",  "tp2cp",   "xp2", "tp2 cp2",      "TP2",
        "tp-1",  "tp02", "2tp", "tp2,cp2", "tp2cp4x", "t",   "tp4294967296", "tp99999999999999999999999999999",
        "tp2\n", "tp1.5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct rlk_layout before = l;
        d.text[0] = '\0';
        assert_int_equal(rlk_layout_parse(&l, wrong[i], &d), RLK_EPARSE);
        assert_true(d.text[0] != '\0');
        assert_memory_equal(&l, &before, sizeof l); /* untouched on failure */
    }
}

static void layouts_fit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t ranks, dp; /* dp 0 = does not fit */
    } rows[] = {{"tp2cp4", 8, 1}, {"tp2cp4", 16, 2}, {"tp2cp4", 12, 0}, {"tp2cp4", 4, 0},
                {"tp2dp3", 6, 3}, {"tp2dp3", 12, 0}, {"tp2dp3", 5, 0},  {"tp1", 7, 7},
                {"tp1", 0, 0},    {"pp4ep2", 8, 1},  {"dp1", 1, 1},     {"tp65536cp65536ep65536pp65536", 65536, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlk_layout l;
        assert_int_equal(rlk_layout_parse(&l, rows[i].text, NULL), RLK_OK);
        assert_int_equal(rlk_layout_fit(&l, rows[i].ranks, NULL), rows[i].dp ? RLK_OK : RLK_EINVAL);
        if (rows[i].dp)
            assert_int_equal(l.dp, rows[i].dp);
    }
}

static void groups_of_one_layout(void **state)
{
    (void)state;
    struct rlk_layout l;
    uint32_t out[16], n;
    assert_int_equal(rlk_layout_parse(&l, "tp2cp2pp2", NULL), RLK_OK); /* 16 ranks: dp 2 */
    static const struct {
        const char *group;
        uint32_t rank, n, out[2];
    } rows[] = {{"tp", 0, 2, {0, 1}}, {"tp", 7, 2, {6, 7}},    {"cp", 5, 2, {5, 7}},  {"ep", 9, 1, {9}},
                {"dp", 3, 2, {3, 7}}, {"dp", 14, 2, {10, 14}}, {"pp", 3, 2, {3, 11}}, {"pp", 8, 2, {0, 8}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(rlk_layout_group(&l, 16, rows[i].group, rows[i].rank, out, &n), RLK_OK);
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(out, rows[i].out, n * sizeof *out);
    }
    assert_int_equal(rlk_layout_group(&l, 16, "world", 0, out, &n), RLK_ENOENT);
    assert_int_equal(rlk_layout_group(&l, 16, "tpx", 0, out, &n), RLK_ENOENT);
    assert_int_equal(rlk_layout_group(&l, 16, "", 0, out, &n), RLK_ENOENT);
    assert_int_equal(rlk_layout_group(&l, 16, "tp", 16, out, &n), RLK_EINVAL);
    assert_int_equal(rlk_layout_group(&l, 12, "tp", 0, out, &n), RLK_EINVAL);
}

/* Random layouts: the groups of each kind partition the ranks, and every member names the same group. */
static void groups_partition_the_ranks(void **state)
{
    (void)state;
    static const char *const names[] = {"tp", "cp", "ep", "dp", "pp"};
    struct rng r = rng_new(33);
    uint32_t group[4096], again[4096], n, m;
    for (int round = 0; round < 300; round++) {
        struct rlk_layout l = {1 + (uint32_t)rng_below(&r, 4), 1 + (uint32_t)rng_below(&r, 4),
                               1 + (uint32_t)rng_below(&r, 3), rng_one_in(&r, 2) ? 0 : 1 + (uint32_t)rng_below(&r, 3),
                               1 + (uint32_t)rng_below(&r, 3)};
        uint32_t ranks = l.tp * l.cp * l.ep * l.pp * (l.dp ? l.dp : 1 + (uint32_t)rng_below(&r, 3)), before = 1;
        struct rlk_layout fitted = l;
        assert_int_equal(rlk_layout_fit(&fitted, ranks, NULL), RLK_OK);
        const uint32_t sizes[] = {fitted.tp, fitted.cp, fitted.ep, fitted.dp, fitted.pp};
        char text[64];
        snprintf(text, sizeof text, "tp%ucp%uep%udp%upp%u", sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]);
        struct rlk_layout parsed;
        assert_int_equal(rlk_layout_parse(&parsed, text, NULL), RLK_OK);
        assert_memory_equal(&parsed, &fitted, sizeof parsed);
        for (unsigned g = 0; g < 5; g++) {
            for (uint32_t rank = 0; rank < ranks; rank++) {
                assert_int_equal(rlk_layout_group(&l, ranks, names[g], rank, group, &n), RLK_OK);
                assert_int_equal(n, sizes[g]);
                bool own = false;
                for (uint32_t i = 0; i < n; i++) {
                    own = own || group[i] == rank;
                    assert_true(group[i] < ranks && (i == 0 || group[i] == group[i - 1] + before));
                }
                assert_true(own);
                uint32_t member = group[rng_below(&r, n)];
                assert_int_equal(rlk_layout_group(&l, ranks, names[g], member, again, &m), RLK_OK);
                assert_int_equal(n, m);
                assert_memory_equal(group, again, n * sizeof *group);
            }
            before *= sizes[g];
        }
    }
}

/* Random text never parses to something whose printed form parses differently, and never reads past its end. */
static void layout_fuzz(void **state)
{
    (void)state;
    static const char letters[] = "tcedpp0123456789p x";
    struct rng r = rng_new(34);
    unsigned parsed = 0;
    for (int round = 0; round < 200000; round++) {
        size_t n = rng_below(&r, 14);
        char *text = malloc(n + 1);
        assert_non_null(text);
        for (size_t i = 0; i < n; i++)
            text[i] = letters[rng_below(&r, sizeof letters - 1)];
        if (rng_one_in(&r, 2) && n >= 3)
            memcpy(text, "tp", 2);
        text[n] = '\0';
        struct rlk_layout l, m;
        struct rlk_detail d;
        if (rlk_layout_parse(&l, text, &d) == RLK_OK) {
            char again[80];
            snprintf(again, sizeof again, "pp%uep%ucp%utp%u", l.pp, l.ep, l.cp, l.tp);
            if (l.dp)
                snprintf(again + strlen(again), 16, "dp%u", l.dp);
            assert_int_equal(rlk_layout_parse(&m, again, &d), RLK_OK);
            assert_memory_equal(&l, &m, sizeof l);
            parsed++;
        }
        free(text);
    }
    assert_true(parsed > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_says_what_is_wrong),
        cmocka_unit_test(equal_looks_at_the_elements_held),
        cmocka_unit_test(copies_are_deep),
        cmocka_unit_test(cover_agrees_with_counting),
        cmocka_unit_test(cover_names_the_place),
        cmocka_unit_test(thousands_of_parts),
        cmocka_unit_test(hostile_parts_end),
        cmocka_unit_test(layouts_parse),
        cmocka_unit_test(layouts_fit),
        cmocka_unit_test(groups_of_one_layout),
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(layout_fuzz),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
