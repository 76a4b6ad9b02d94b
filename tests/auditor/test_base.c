#include "auditor/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void test_names(void **unused)
{
    struct rlki_names names;
    char text[32];
    (void)unused;
    assert_int_equal(rlki_names_init(&names), 0);
    assert_int_equal(rlki_names_id(&names, NULL), 0);
    assert_int_equal(rlki_names_id(&names, ""), 0);
    uint32_t first = rlki_names_id(&names, "layers.0");
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "layers.%d", i);
        assert_string_equal(rlki_names_text(&names, rlki_names_id(&names, text)), text);
    }
    assert_int_equal(rlki_names_id(&names, "layers.0"), first);
    assert_string_equal(rlki_names_text(&names, 1u << 30), "");
    rlki_names_release(&names);
}

static void test_bits(void **unused)
{
    struct rlki_bits bits = {0};
    const uint64_t set[] = {0, 63, 64, 65535, 65536, 1000000, (UINT64_C(1) << 32) - 1};
    (void)unused;
    assert_false(rlki_bits_get(&bits, 5));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        rlki_bits_set(&bits, set[i]);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        assert_true(rlki_bits_get(&bits, set[i]));
    assert_false(rlki_bits_get(&bits, 1));
    assert_false(rlki_bits_get(&bits, 65537));
    assert_false(rlki_bits_get(&bits, UINT64_C(1) << 40));
    rlki_bits_release(&bits);
}

static void test_hash(void **unused)
{
    struct rlki_hash hash = {0};
    uint64_t value;
    (void)unused;
    assert_false(rlki_hash_get(&hash, 0, &value));
    for (uint64_t i = 0; i < 10000; i++)
        assert_true(rlki_hash_put(&hash, i * 0x10001, i));
    assert_false(rlki_hash_put(&hash, 0, 7));
    assert_true(rlki_hash_get(&hash, 0, &value) && value == 7);
    for (uint64_t i = 1; i < 10000; i++)
        assert_true(rlki_hash_get(&hash, i * 0x10001, &value) && value == i);
    assert_int_equal(rlki_hash_count(&hash, 3, 2), 0);
    assert_int_equal(rlki_hash_count(&hash, 3, 2), 2);
    rlki_hash_clear(&hash);
    assert_false(rlki_hash_get(&hash, 0, &value));
    rlki_hash_release(&hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
