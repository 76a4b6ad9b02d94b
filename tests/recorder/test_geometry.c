/* Views against producers, by brute force: every small layout of a storage, element by element. */
#include "recorder/geometry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STORAGE 48u
#define MAX_ELEMENTS 64u

static uint64_t random_state = 1;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

struct layout {
    uint32_t ndim;
    uint64_t shape[4];
    int64_t strides[4];
    uint64_t offset;
    uint32_t n;
    uint32_t element[MAX_ELEMENTS]; /* storage index of each element, in logical order */
};

static bool expand(struct layout *l)
{
    l->n = 1;
    for (uint32_t i = 0; i < l->ndim; i++)
        l->n *= (uint32_t)l->shape[i];
    if (l->n > MAX_ELEMENTS)
        return false;
    for (uint32_t e = 0; e < l->n; e++) {
        int64_t at = (int64_t)l->offset;
        uint32_t rest = e;
        for (uint32_t i = l->ndim; i-- > 0;) {
            at += (int64_t)(rest % l->shape[i]) * l->strides[i];
            rest /= (uint32_t)l->shape[i];
        }
        if (at < 0 || at >= (int64_t)STORAGE)
            return false;
        l->element[e] = (uint32_t)at;
    }
    return true;
}

/* Contiguous, permuted, sliced, expanded and arbitrary layouts. */
static struct layout layout_draw(void)
{
    for (;;) {
        struct layout l = {.ndim = draw(4)};
        uint32_t kind = draw(5);
        int64_t stride = 1;
        for (uint32_t i = l.ndim; i-- > 0;) {
            l.shape[i] = 1 + draw(4);
            l.strides[i] = stride;
            stride *= (int64_t)l.shape[i] + (kind == 2 ? draw(2) : 0);
        }
        if (kind == 1 && l.ndim > 1) { /* permuted */
            uint32_t a = draw(l.ndim), b = draw(l.ndim);
            uint64_t n = l.shape[a];
            int64_t s = l.strides[a];
            l.shape[a] = l.shape[b];
            l.strides[a] = l.strides[b];
            l.shape[b] = n;
            l.strides[b] = s;
        }
        if (kind == 3 && l.ndim) /* expanded */
            l.strides[draw(l.ndim)] = 0;
        if (kind == 4 && l.ndim) /* anything */
            l.strides[draw(l.ndim)] = (int64_t)draw(9) - 2;
        l.offset = draw(3) ? 0 : draw(12);
        if (expand(&l))
            return l;
    }
}

static const struct rlki_geometry *geometry_of(const struct layout *l, void *buffer)
{
    struct rlk_view view = {
        .dtype = RLK_FP32, .ndim = l->ndim, .shape = l->shape, .strides = l->strides, .offset = l->offset};
    assert_true(rlki_geometry_fill(buffer, &view));
    return buffer;
}

static bool contains(const struct layout *l, uint32_t element)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->element[i] == element)
            return true;
    return false;
}

static bool subset(const struct layout *producer, const struct layout *reader)
{
    for (uint32_t i = 0; i < reader->n; i++)
        if (!contains(producer, reader->element[i]))
            return false;
    return true;
}

static bool same_elements(const struct layout *a, const struct layout *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) &&
           !memcmp(a->element, b->element, a->n * sizeof a->element[0]);
}

static void never_covers_what_it_does_not(void **state)
{
    (void)state;
    uint64_t a[64], b[64];
    unsigned covered = 0, subsets = 0, wrong_identity = 0;
    for (unsigned i = 0; i < 300000; i++) {
        struct layout producer = layout_draw(), reader = layout_draw();
        rlk_u128 view = {1, 1};
        bool says = rlki_geometry_covers(geometry_of(&producer, a), geometry_of(&reader, b), &view);
        bool is = subset(&producer, &reader);
        assert_true(!says || is);
        covered += says;
        subsets += is;
        if (says && (view.lo == 0 && view.hi == 0) != same_elements(&producer, &reader))
            wrong_identity++;
    }
    assert_int_equal(wrong_identity, 0);
    print_message("recognised %u of %u readers that are covered\n", covered, subsets);
    assert_true(subsets > 10000 && covered * 10 > subsets * 8);
}

/* The same logical view of differently laid out producers has one hash; different views have different ones. */
static void view_hash_is_logical(void **state)
{
    (void)state;
    uint64_t a[64], b[64];
    /* [4,3] row-major, and the same tensor stored transposed */
    struct layout rows = {2, {4, 3}, {3, 1}, 0, 0, {0}}, columns = {2, {4, 3}, {1, 4}, 0, 0, {0}};
    /* row 2 of each; column 1 of each; the transpose of each */
    struct layout row_r = {1, {3}, {1}, 6, 0, {0}}, row_c = {1, {3}, {4}, 2, 0, {0}};
    struct layout col_r = {1, {4}, {3}, 1, 0, {0}}, col_c = {1, {4}, {1}, 4, 0, {0}};
    struct layout t_r = {2, {3, 4}, {1, 3}, 0, 0, {0}}, t_c = {2, {3, 4}, {4, 1}, 0, 0, {0}};
    rlk_u128 v[6];
    assert_true(rlki_geometry_covers(geometry_of(&rows, a), geometry_of(&row_r, b), &v[0]));
    assert_true(rlki_geometry_covers(geometry_of(&columns, a), geometry_of(&row_c, b), &v[1]));
    assert_true(rlki_geometry_covers(geometry_of(&rows, a), geometry_of(&col_r, b), &v[2]));
    assert_true(rlki_geometry_covers(geometry_of(&columns, a), geometry_of(&col_c, b), &v[3]));
    assert_true(rlki_geometry_covers(geometry_of(&rows, a), geometry_of(&t_r, b), &v[4]));
    assert_true(rlki_geometry_covers(geometry_of(&columns, a), geometry_of(&t_c, b), &v[5]));
    for (int i = 0; i < 6; i += 2) {
        assert_true(rlk_u128_equal(v[i], v[i + 1]));
        assert_true(v[i].lo || v[i].hi);
        for (int j = 0; j < i; j++)
            assert_false(rlk_u128_equal(v[i], v[j]));
    }
}

/* Two covered views of one row-major producer have one hash iff they read the same elements in the same shape. */
static void view_hash_tells_views_apart(void **state)
{
    (void)state;
    uint64_t a[64], b[64];
    struct layout producer = {3, {2, 4, 6}, {24, 6, 1}, 0, 0, {0}};
    static struct layout seen[2000];
    static rlk_u128 hash[2000];
    unsigned n = 0;
    while (n < 2000) {
        seen[n] = layout_draw();
        n += rlki_geometry_covers(geometry_of(&producer, a), geometry_of(&seen[n], b), &hash[n]);
    }
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < i; j++)
            assert_true(same_elements(&seen[i], &seen[j]) == rlk_u128_equal(hash[i], hash[j]) ||
                        seen[i].n == 1); /* one element has many strides */
}

static void types_and_flags(void **state)
{
    (void)state;
    uint64_t a[64], b[64], shape[1] = {4};
    rlk_u128 view, conj, bits;
    struct rlk_view v = {.dtype = RLK_COMPLEX64, .ndim = 1, .shape = shape};
    assert_true(rlki_geometry_fill((struct rlki_geometry *)a, &v));
    v.conj = true;
    assert_true(rlki_geometry_fill((struct rlki_geometry *)b, &v));
    assert_true(rlki_geometry_covers((void *)a, (void *)b, &conj)); /* a conjugated reading is a view */
    assert_true(conj.lo || conj.hi);
    assert_true(rlki_geometry_covers((void *)b, (void *)b, &view)); /* of a conjugated output it is the output */
    assert_true(!view.lo && !view.hi);
    v = (struct rlk_view){.dtype = RLK_FP64, .ndim = 1, .shape = shape};
    assert_true(rlki_geometry_fill((struct rlki_geometry *)b, &v));
    assert_true(rlki_geometry_covers((void *)a, (void *)b, &bits)); /* the same width seen as another type */
    assert_true((bits.lo || bits.hi) && !rlk_u128_equal(bits, conj));
    v.dtype = RLK_FP32;
    assert_true(rlki_geometry_fill((struct rlki_geometry *)b, &v));
    assert_false(rlki_geometry_covers((void *)a, (void *)b, &view)); /* another width: unsure */
    shape[0] = 0;
    assert_true(rlki_geometry_fill((struct rlki_geometry *)b, &v));
    assert_false(rlki_geometry_covers((void *)b, (void *)b, &view)); /* nothing is read */
}

static void hostile_sizes(void **state)
{
    (void)state;
    uint64_t a[2 + 2 * 66], big[65];
    int64_t strides[65];
    for (int i = 0; i < 65; i++) {
        big[i] = UINT64_C(1) << 40;
        strides[i] = INT64_MAX;
    }
    struct rlk_view v = {.dtype = RLK_FP32, .ndim = 65, .shape = big, .strides = strides};
    assert_false(rlki_geometry_fill((struct rlki_geometry *)a, &v)); /* too many dimensions */
    v.ndim = 2;
    v.strides = NULL;
    assert_false(rlki_geometry_fill((struct rlki_geometry *)a, &v)); /* 2^80 elements */
    v.strides = strides;
    assert_true(rlki_geometry_fill((struct rlki_geometry *)a, &v) == false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_covers_what_it_does_not),
        cmocka_unit_test(view_hash_is_logical),
        cmocka_unit_test(view_hash_tells_views_apart),
        cmocka_unit_test(types_and_flags),
        cmocka_unit_test(hostile_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
