/* The digest against tests/store/slow_digest.c over random tensors, strides and parts; and its algebra. */
#include "store/rlk_digest.h"
#include "store/rlk_place.h"
#include "tests/store/fill.h"
#include "tests/store/random.h"
#include "tests/store/slow_digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const enum rlk_dtype dtypes[] = {
#define X(name, value, text, bytes, code, bits) name,
    RLK_DTYPES(X)
#undef X
};
#define NDTYPES (sizeof dtypes / sizeof dtypes[0])

/* Random bytes with the special values of the type sprinkled in, densely or sparsely or not at all. */
static void random_bytes(struct rng *r, enum rlk_dtype dtype, unsigned char *p, size_t elements)
{
    enum rlk_dtype part = rlk_dtype_component(dtype);
    size_t size = rlk_dtype_bytes(part), n = elements * rlk_dtype_components(dtype);
    uint64_t special_one_in = rng_one_in(r, 3) ? 0 : rng_one_in(r, 2) ? 3 : 200, inf;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = rng_word(r);
        if (special_one_in == 0 && rlk_dtype_is_float(part))
            bits = rlk_scalar_from_double(part, 1.0 + (double)(bits % 64) / 64);
        if (special_one_in && rng_one_in(r, special_one_in)) {
            uint64_t top = UINT64_C(1) << (8 * size - 1);
            bits = rlk_dtype_nan(part) ^ (rng_one_in(r, 2) ? top : 0) ^ (rng_one_in(r, 2) ? 1 : 0);
            if (rng_one_in(r, 3))
                bits = top;
            else if (rng_one_in(r, 3) && rlk_dtype_inf(part, &inf))
                bits = inf | (rng_one_in(r, 2) ? top : 0);
        }
        rlk_scalar_store(part, p + i * size, bits);
    }
}

static uint64_t random_extent(struct rng *r)
{
    static const uint64_t sizes[] = {1,  2,  3,  5,   7,   8,   15,  16,  17,  24,  32,
                                     40, 64, 96, 100, 127, 128, 129, 131, 136, 200, 257};
    return sizes[rng_below(r, sizeof sizes / sizeof sizes[0])];
}

/* A tensor in memory of its own: exactly the bytes it may read, so that ASan sees any read beside them. */
struct tensor {
    uint64_t shape[6];
    int64_t strides[6];
    unsigned char *bytes;
    struct rlk_view view;
};

static void tensor_free(struct tensor *t)
{
    free(t->bytes);
}

/* Strides: contiguous, permuted, sliced, expanded, overlapping, reversed. */
static void random_layout(struct rng *r, struct tensor *t, uint32_t ndim)
{
    uint32_t order[6];
    for (uint32_t i = 0; i < ndim; i++)
        order[i] = i;
    if (rng_one_in(r, 2))
        for (uint32_t i = ndim; i-- > 1;) {
            uint32_t j = (uint32_t)rng_below(r, i + 1), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
    int64_t dense = rng_one_in(r, 6) ? 1 + (int64_t)rng_below(r, 3) : 1;
    for (uint32_t i = ndim; i-- > 0;) {
        uint32_t d = order[i];
        t->strides[d] = dense;
        if (rng_one_in(r, 8))
            t->strides[d] = 0; /* expanded */
        else if (rng_one_in(r, 12))
            t->strides[d] = dense / 2; /* overlapping */
        if (rng_one_in(r, 12))
            t->strides[d] = -t->strides[d];
        dense *= (int64_t)t->shape[d] + (rng_one_in(r, 6) ? (int64_t)rng_below(r, 4) : 0);
    }
}

static void random_tensor(struct rng *r, struct tensor *t, enum rlk_dtype dtype, uint32_t ndim)
{
    int64_t low = 0, high = 0;
    random_layout(r, t, ndim);
    for (uint32_t i = 0; i < ndim; i++) {
        int64_t reach = t->strides[i] * ((int64_t)t->shape[i] - 1);
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    size_t elements = (size_t)(high - low + 1), size = rlk_dtype_bytes(dtype);
    t->bytes = malloc(elements * size);
    assert_non_null(t->bytes);
    random_bytes(r, dtype, t->bytes, elements);
    t->view =
        (struct rlk_view){.dtype = dtype,
                          .ndim = ndim,
                          .shape = t->shape,
                          .strides = t->strides,
                          .storage = t->bytes,
                          .storage_bytes = elements * size,
                          .offset = (uint64_t)-low,
                          .conj = rng_one_in(r, 6),
                          .neg = rng_one_in(r, 6) && rlk_dtype_code(dtype) != 14 && !rlk_dtype_is_integer(dtype) &&
                                 dtype != RLK_FP8_E4M3FNUZ && dtype != RLK_FP8_E5M2FNUZ};
}

static void assert_same_sums(const struct rlk_sums *a, const struct rlk_sums *b)
{
    assert_true(rlk_u128_equal(a->positional, b->positional));
    assert_true(rlk_u128_equal(a->value, b->value));
    assert_int_equal(a->multiset, b->multiset);
    assert_int_equal(a->elements, b->elements);
    assert_int_equal(a->nan, b->nan);
    assert_int_equal(a->inf, b->inf);
    assert_int_equal(a->negzero, b->negzero);
}

static void check(const struct rlk_view *view, const struct rlk_place *place)
{
    struct rlk_sums fast, slow;
    bool composable_fast, composable_slow;
    struct rlk_detail detail = {""};
    int rc = rlk_digest_view(&fast, &composable_fast, view, place, &detail);
    if (rc)
        fail_msg("%s: %s", rlk_error_name(rc), detail.text);
    slow_digest(&slow, &composable_slow, view, place);
    assert_int_equal(composable_fast, composable_slow);
    assert_same_sums(&fast, &slow);
}

static void any_strides(void **state)
{
    (void)state;
    struct rng r = rng_new(1);
    for (int round = 0; round < 500; round++) {
        struct tensor t;
        uint32_t ndim = (uint32_t)rng_below(&r, 5);
        uint64_t elements = 1;
        for (uint32_t i = 0; i < ndim; i++) {
            do
                t.shape[i] = random_extent(&r);
            while (elements * t.shape[i] > 9000);
            elements *= t.shape[i];
        }
        random_tensor(&r, &t, dtypes[(size_t)round % NDTYPES], ndim);
        check(&t.view, NULL);
        tensor_free(&t);
    }
}

/* Rows longer than a tile, and tiles with a few rows left over. */
static void wide_transposed(void **state)
{
    (void)state;
    static const uint64_t shapes[][2] = {{3, 5600}, {5, 3400}, {67, 272}, {1, 16500}};
    struct rng r = rng_new(4);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t d = 0; d < NDTYPES; d++) {
            size_t elements = (size_t)(shapes[i][0] * shapes[i][1]), size = rlk_dtype_bytes(dtypes[d]);
            const int64_t strides[2] = {1, (int64_t)shapes[i][0]};
            unsigned char *bytes = malloc(elements * size);
            assert_non_null(bytes);
            random_bytes(&r, dtypes[d], bytes, elements);
            struct rlk_view view = {.dtype = dtypes[d],
                                    .ndim = 2,
                                    .shape = shapes[i],
                                    .strides = strides,
                                    .storage = bytes,
                                    .storage_bytes = elements * size,
                                    .conj = d % 2 == 0};
            check(&view, NULL);
            free(bytes);
        }
}

/* Random ascending runs of a dimension, now and then touching, empty, or the whole. Returns how many. */
static uint32_t random_runs(struct rng *r, struct rlk_run *runs, uint64_t size, uint64_t grain, uint64_t *extent)
{
    uint32_t n = 0;
    *extent = 0;
    for (uint64_t at = rng_below(r, 2) * grain; at < size && n < 8;) {
        uint64_t len = grain * rng_below(r, 4);
        if (len > size - at || rng_one_in(r, 5))
            len = size - at;
        runs[n++] = (struct rlk_run){at, len};
        *extent += len;
        at += len + grain * rng_below(r, 3);
    }
    return n;
}

static void any_part(void **state)
{
    (void)state;
    struct rng r = rng_new(2);
    unsigned lumps = 0;
    for (int round = 0; round < 500; round++) {
        struct tensor t;
        uint64_t logical[6];
        uint32_t nruns[6], total = 0, ndim = 2 + (uint32_t)rng_below(&r, 3);
        struct rlk_run runs[6 * 8];
        uint64_t elements = 64;
        for (uint32_t i = 0; i < ndim; i++) {
            bool last = i + 1 == ndim;
            do
                logical[i] = last ? (uint64_t[]){64, 96, 128, 131, 256, 257}[rng_below(&r, 6)] : random_extent(&r);
            while (!last && elements * logical[i] > 9000);
            elements *= logical[i];
            nruns[i] = RLK_WHOLE;
            t.shape[i] = logical[i];
            if (rng_one_in(&r, 3))
                continue;
            uint64_t grain = last && !rng_one_in(&r, 3) ? 16 : 1 + rng_below(&r, 3);
            nruns[i] = random_runs(&r, runs + total, logical[i], grain, &t.shape[i]);
            total += nruns[i];
        }
        struct rlk_place place = {.ndim = ndim, .shape = logical, .nruns = nruns, .runs = runs};
        enum rlk_dtype dtype = dtypes[(size_t)round % NDTYPES];
        random_tensor(&r, &t, dtype, ndim);
        lumps += !rlk_place_composable(&place, dtype);
        check(&t.view, &place);
        tensor_free(&t);
    }
    if (lumps < 40 || lumps > 460)
        fail_msg("%u of 500 parts with a border inside a unit: one kind was hardly met", lumps);
}

/* Cuts along every dimension at unit borders: the parts add up to the whole, whatever memory order each has. */
static void parts_add(void **state)
{
    (void)state;
    struct rng r = rng_new(3);
    for (int round = 0; round < 200; round++) {
        enum rlk_dtype dtype = dtypes[(size_t)round % NDTYPES];
        const uint64_t D = (uint64_t[]){64, 96, 128, 131, 40}[rng_below(&r, 5)];
        const uint64_t shape[3] = {1 + rng_below(&r, 9), 1 + rng_below(&r, 9), D};
        const size_t size = rlk_dtype_bytes(dtype);
        const uint64_t u = rlk_unit_length(dtype, 3, shape), elements = shape[0] * shape[1] * D;
        unsigned char *bytes = malloc(elements * size);
        assert_non_null(bytes);
        random_bytes(&r, dtype, bytes, elements);
        struct rlk_view view = {
            .dtype = dtype, .ndim = 3, .shape = shape, .storage = bytes, .storage_bytes = elements * size};
        struct rlk_sums whole, sum = {.elements = 0}, part;
        bool composable;
        assert_int_equal(rlk_digest_view(&whole, &composable, &view, NULL, NULL), RLK_OK);
        const uint64_t cut[3] = {rng_below(&r, shape[0] + 1), rng_below(&r, shape[1] + 1),
                                 rng_below(&r, D / u + 1) * u};
        for (unsigned k = 0; k < 8; k++) {
            const uint32_t nruns[3] = {1, 1, 1};
            struct rlk_run runs[3];
            uint64_t local[3];
            const int64_t strides[3] = {(int64_t)(shape[1] * D), (int64_t)D, 1};
            uint64_t offset = 0;
            for (unsigned i = 0; i < 3; i++) {
                runs[i] = k >> i & 1 ? (struct rlk_run){cut[i], shape[i] - cut[i]} : (struct rlk_run){0, cut[i]};
                local[i] = runs[i].extent;
                offset += runs[i].start * (uint64_t)strides[i];
            }
            struct rlk_place place = {.ndim = 3, .shape = shape, .nruns = nruns, .runs = runs};
            struct rlk_view cell = view;
            cell.shape = local;
            cell.strides = strides;
            cell.offset = offset;
            assert_int_equal(rlk_digest_view(&part, &composable, &cell, &place, NULL), RLK_OK);
            assert_true(composable);
            rlk_sums_add(&sum, &part);
        }
        assert_same_sums(&sum, &whole);
        free(bytes);
    }
}

/* What each sum sees: a permutation of units, the sign of a zero, a NaN payload, one bit. */
static void what_each_sum_sees(void **state)
{
    (void)state;
    enum { ROWS = 6, D = 128, N = ROWS * D };
    const uint64_t shape[2] = {ROWS, D};
    uint16_t x[N], y[N];
    struct rlk_sums a, b;
    bool composable;
    fill(RLK_BF16, x, N, FILL_NORMAL, 4, 0, 0);
    x[5] = 0;
    x[700] = 0x7fc0;
    struct rlk_view va = {.dtype = RLK_BF16, .ndim = 2, .shape = shape, .storage = x, .storage_bytes = sizeof x};
    struct rlk_view vb = va;
    vb.storage = y;
    assert_int_equal(rlk_digest_view(&a, &composable, &va, NULL, NULL), RLK_OK);

    memcpy(y, x, sizeof x); /* rows reversed: the same units in another order */
    for (unsigned i = 0; i < ROWS; i++)
        memcpy(y + i * D, x + (ROWS - 1 - i) * D, D * 2);
    assert_int_equal(rlk_digest_view(&b, &composable, &vb, NULL, NULL), RLK_OK);
    assert_false(rlk_u128_equal(a.positional, b.positional));
    assert_false(rlk_u128_equal(a.value, b.value));
    assert_true(a.multiset == b.multiset);

    memcpy(y, x, sizeof x); /* a zero changes its sign and a NaN its payload: the value stays */
    y[5] = 0x8000;
    y[700] = 0xffff;
    assert_int_equal(rlk_digest_view(&b, &composable, &vb, NULL, NULL), RLK_OK);
    assert_false(rlk_u128_equal(a.positional, b.positional));
    assert_true(rlk_u128_equal(a.value, b.value));
    assert_false(a.multiset == b.multiset);
    assert_int_equal(b.negzero, 1);
    assert_int_equal(b.nan, 1);

    y[5] = 0x0001; /* a real difference */
    assert_int_equal(rlk_digest_view(&b, &composable, &vb, NULL, NULL), RLK_OK);
    assert_false(rlk_u128_equal(a.value, b.value));
}

static void reads_stay_in_the_storage(void **state)
{
    (void)state;
    const uint64_t shape[2] = {4, 8}, none[2] = {0, 8}, huge[3] = {UINT64_C(1) << 62, 4, 4}, wide[2] = {4, 9};
    const int64_t strides[2] = {8, 1}, back[2] = {-8, 1}, far[2] = {INT64_MAX, INT64_MAX}, low[2] = {INT64_MIN, 1};
    float *x = malloc(32 * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < 32; i++)
        x[i] = (float)i;
    struct rlk_sums s;
    bool composable;
    struct rlk_detail detail;
    struct rlk_view v = {
        .dtype = RLK_FP32, .ndim = 2, .shape = shape, .strides = strides, .storage = x, .storage_bytes = 128};
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_OK);
    v.storage_bytes = 127;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.storage_bytes = 128;
    v.offset = 1;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.offset = UINT64_MAX;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.strides = back;
    v.offset = 24;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_OK);
    v.offset = 23;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.offset = 0;
    v.strides = far;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.strides = low;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.strides = NULL;
    v.shape = wide;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.ndim = 3;
    v.shape = huge;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.ndim = RLK_MAX_DIMS + 1;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.ndim = 2;
    v.shape = none; /* empty: nothing is read, wherever it points */
    v.strides = far;
    v.storage = NULL;
    v.offset = 12345;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_OK);
    assert_int_equal(s.elements, 0);
    v.shape = shape;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    v.dtype = (enum rlk_dtype)200;
    assert_int_equal(rlk_digest_view(&s, &composable, &v, NULL, &detail), RLK_EINVAL);
    free(x);
}

static void sixty_four_dimensions(void **state)
{
    (void)state;
    uint64_t shape[RLK_MAX_DIMS];
    float x[16];
    for (uint32_t i = 0; i < RLK_MAX_DIMS; i++)
        shape[i] = i % 16 == 0 ? 2 : 1;
    fill(RLK_FP32, x, 16, FILL_NORMAL, 8, 0, 0);
    struct rlk_view v = {
        .dtype = RLK_FP32, .ndim = RLK_MAX_DIMS, .shape = shape, .storage = x, .storage_bytes = sizeof x};
    check(&v, NULL);
}

static void every_dtype_has_its_code(void **state)
{
    (void)state;
    char seen[NDTYPES][33];
    const uint64_t shape[1] = {0};
    const struct rlk_sums zero = {.elements = 0};
    for (size_t i = 0; i < NDTYPES; i++) { /* equal sums of different types never print alike */
        rlk_digest_print(seen[i], &zero, dtypes[i], 1, shape);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_strides),
        cmocka_unit_test(wide_transposed),
        cmocka_unit_test(any_part),
        cmocka_unit_test(parts_add),
        cmocka_unit_test(what_each_sum_sees),
        cmocka_unit_test(reads_stay_in_the_storage),
        cmocka_unit_test(sixty_four_dimensions),
        cmocka_unit_test(every_dtype_has_its_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
