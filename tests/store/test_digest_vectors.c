/* The vectors of docs/digest.md, from the fills of docs/synth.md, and the unit lengths the document names. */
#include "store/rlk_digest.h"
#include "tests/store/fill.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct vector {
    enum rlk_dtype dtype;
    uint32_t ndim;
    uint64_t shape[2], unit;
    const char *printed, *positional, *value;
    uint64_t multiset;
};

static void check(const struct vector *v, const void *bytes, size_t n, struct rlk_sums *sums)
{
    char text[33];
    bool composable = false;
    struct rlk_view view = {
        .dtype = v->dtype, .ndim = v->ndim, .shape = v->shape, .storage = bytes, .storage_bytes = n};
    assert_int_equal(rlk_unit_length(v->dtype, v->ndim, v->shape), v->unit);
    assert_int_equal(rlk_digest_view(sums, &composable, &view, NULL, NULL), RLK_OK);
    assert_true(composable);
    rlk_u128_print(text, sums->positional);
    assert_string_equal(text, v->positional);
    rlk_u128_print(text, sums->value);
    assert_string_equal(text, v->value ? v->value : v->positional);
    assert_int_equal(sums->multiset, v->multiset);
    rlk_digest_print(text, sums, v->dtype, v->ndim, v->shape);
    assert_string_equal(text, v->printed);
    assert_int_equal(sums->elements, n / rlk_dtype_bytes(v->dtype));
}

static void bf16_normal_1(void **state)
{
    (void)state;
    const struct vector v = {RLK_BF16,
                             2,
                             {6, 256},
                             16,
                             "c7349274e9a02143572982d2faf0c169",
                             "c046d08e05b760c1e62122257179b236",
                             NULL,
                             0x6aaea9de4964d516};
    static const unsigned char begin[8] = {0x2f, 0xbd, 0x01, 0x3f, 0x81, 0x3f, 0x23, 0xbf};
    static unsigned char bytes[6 * 256 * 2];
    struct rlk_sums sums;
    fill(RLK_BF16, bytes, 6 * 256, FILL_NORMAL, 1, 0, 0);
    assert_memory_equal(bytes, begin, sizeof begin);
    check(&v, bytes, sizeof bytes, &sums);
    bytes[777] ^= 1; /* the check can fail */
    bool composable;
    struct rlk_view view = {
        .dtype = RLK_BF16, .ndim = 2, .shape = v.shape, .storage = bytes, .storage_bytes = sizeof bytes};
    struct rlk_sums other;
    assert_int_equal(rlk_digest_view(&other, &composable, &view, NULL, NULL), RLK_OK);
    assert_false(rlk_sums_same_bits(&sums, &other));
    assert_true(other.multiset != sums.multiset);
}

static void fp32_scalar(void **state)
{
    (void)state;
    const struct vector v = {
        RLK_FP32,          0, {0}, 1, "ebad0256b022afba37234324a9572261", "67e605b2f875f3f7faffa2a64292b2c0", NULL,
        0x591ef4e963e120d4};
    const float one = 1.0f;
    struct rlk_sums sums;
    check(&v, &one, sizeof one, &sums);
}

static void int64_small(void **state)
{
    (void)state;
    const struct vector v = {
        RLK_INT64,         1, {5}, 1, "80f9ff719a19d9ee6bb09a2ca68e6e6d", "e74fe75e2014b2820450b599d7481241", NULL,
        0x3fa7ab848b34ca4f};
    int64_t x[5];
    struct rlk_sums sums;
    fill(RLK_INT64, x, 5, FILL_INT, 7, 0, 1000);
    assert_int_equal(x[0], 437);
    check(&v, x, sizeof x, &sums);
}

static void bf16_odd_row(void **state)
{
    (void)state;
    const struct vector v = {RLK_BF16,
                             2,
                             {3, 131},
                             16,
                             "656443b7d9ceccdd708bef0a2a5b48ae",
                             "a6674d1757c64d1682584201eff8bd2d",
                             NULL,
                             0x7197f2e76d4d92f7};
    static unsigned char bytes[3 * 131 * 2];
    struct rlk_sums sums;
    fill(RLK_BF16, bytes, 3 * 131, FILL_NORMAL, 2, 0, 0);
    check(&v, bytes, sizeof bytes, &sums);
}

static void fp32_uniform_3(void **state)
{
    (void)state;
    const struct vector v = {
        RLK_FP32,          2, {4, 32}, 4, "637f363686bfe4505b0cb9d04f3cf2fe", "5c001f5dee0f1ae4da48da7398ae29c7", NULL,
        0xcb7e0fad4d472fe1};
    static unsigned char bytes[4 * 32 * 4];
    struct rlk_sums sums;
    fill(RLK_FP32, bytes, 4 * 32, FILL_UNIFORM, 3, 0, 0);
    check(&v, bytes, sizeof bytes, &sums);
}

static void fp16_special(void **state)
{
    (void)state;
    const struct vector v = {RLK_FP16,
                             2,
                             {2, 64},
                             8,
                             "80bdc5705a51798ae9b1f99f51589252",
                             "b9a352ed5f057be3ae8ae26fd97ecfb3",
                             "cafb62ae312d50316d26eac16a1fb15e",
                             0x51dd14fa8e78a650};
    static unsigned char bytes[2 * 64 * 2];
    struct rlk_sums sums;
    for (size_t k = 0; k < 128; k++)
        rlk_element_from_double(RLK_FP16, bytes + 2 * k, -0.0);
    memset(bytes + 128, 255, 128);
    check(&v, bytes, sizeof bytes, &sums);
    assert_int_equal(sums.nan, 64);
    assert_int_equal(sums.negzero, 64);
    assert_int_equal(sums.inf, 0);
}

static void empty(void **state)
{
    (void)state;
    const struct vector v = {
        RLK_BF16, 2, {0, 256}, 16, "1550c9ebb9aaf8f1f4664608e8514375", "00000000000000000000000000000000", NULL, 0};
    struct rlk_sums sums;
    check(&v, NULL, 0, &sums);
}

static void unit_lengths(void **state)
{
    (void)state;
    static const struct {
        enum rlk_dtype dtype;
        uint32_t ndim;
        uint64_t shape[3], unit;
    } rows[] = {
        {RLK_BF16, 2, {5208, 4096}, 16}, {RLK_FP32, 2, {768, 32}, 4},     {RLK_BF16, 2, {4096, 151936}, 16},
        {RLK_BF16, 2, {4, 152576}, 16},  {RLK_BF16, 2, {4, 50257}, 16},   {RLK_BF16, 2, {4096, 16}, 2},
        {RLK_BF16, 3, {7, 32, 64}, 8},   {RLK_BF16, 3, {7, 32, 128}, 16}, {RLK_INT64, 2, {8, 4096}, 1},
        {RLK_INT32, 2, {8, 4096}, 1},    {RLK_UINT32, 2, {8, 4096}, 1},   {RLK_INT16, 2, {8, 4096}, 16},
        {RLK_BOOL, 2, {8, 4096}, 16},    {RLK_COMPLEX64, 2, {8, 64}, 8},  {RLK_BF16, 1, {4096}, 1},
        {RLK_BF16, 2, {4, 100}, 1},      {RLK_BF16, 2, {4, 127}, 1},      {RLK_BF16, 2, {4, 129}, 16},
        {RLK_BF16, 2, {4, 0}, 16},       {RLK_BF16, 0, {0}, 1},           {RLK_BF16, 2, {4, 24}, 1},
        {RLK_BF16, 2, {4, 1}, 1},        {RLK_FP8_E4M3, 2, {4, 48}, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(rlk_unit_length(rows[i].dtype, rows[i].ndim, rows[i].shape), rows[i].unit);
}

static void reshapes_that_keep_u_keep_the_sums(void **state)
{
    (void)state;
    static unsigned char bytes[6 * 4096 * 2];
    const uint64_t three[3] = {6, 32, 128}, two[2] = {6, 4096};
    struct rlk_sums a, b;
    bool composable;
    char text_a[33], text_b[33];
    fill(RLK_BF16, bytes, 6 * 4096, FILL_NORMAL, 5, 0, 0);
    struct rlk_view view = {
        .dtype = RLK_BF16, .ndim = 3, .shape = three, .storage = bytes, .storage_bytes = sizeof bytes};
    assert_int_equal(rlk_digest_view(&a, &composable, &view, NULL, NULL), RLK_OK);
    view.ndim = 2;
    view.shape = two;
    assert_int_equal(rlk_digest_view(&b, &composable, &view, NULL, NULL), RLK_OK);
    assert_true(rlk_sums_same_bits(&a, &b));
    rlk_digest_print(text_a, &a, RLK_BF16, 3, three);
    rlk_digest_print(text_b, &b, RLK_BF16, 2, two);
    assert_string_not_equal(text_a, text_b); /* the shape is printed with it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_normal_1),
        cmocka_unit_test(fp32_scalar),
        cmocka_unit_test(int64_small),
        cmocka_unit_test(bf16_odd_row),
        cmocka_unit_test(fp32_uniform_3),
        cmocka_unit_test(fp16_special),
        cmocka_unit_test(empty),
        cmocka_unit_test(unit_lengths),
        cmocka_unit_test(reshapes_that_keep_u_keep_the_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
