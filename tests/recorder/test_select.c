/* Levels, steps, sizes, payload selections: what is accepted and what is refused. */
#include "recorder/rlk_select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void levels(void **state)
{
    (void)state;
    static const char *const names[] = {"launch", "step", "module", "op", "buffer"};
    struct rlk_detail d = {""};
    enum rlk_tap_level level = RLK_TAP_OFF;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(rlk_level_parse(&level, names[i], &d), RLK_OK);
        assert_string_equal(rlk_level_name(level), names[i]);
    }
    assert_int_equal(rlk_level_parse(&level, "operator", &d), RLK_EPARSE);
    assert_int_equal(rlk_level_parse(&level, "", &d), RLK_EPARSE);
    assert_string_equal(rlk_level_name(RLK_TAP_OFF), "off");
    assert_string_equal(rlk_level_name((enum rlk_tap_level)99), "?");
}

static void steps(void **state)
{
    (void)state;
    struct rlk_steps s;
    struct rlk_detail d;
    assert_int_equal(rlk_steps_parse(&s, "2:5", &d), RLK_OK);
    assert_true(s.first == 2 && s.last == 5);
    assert_int_equal(rlk_steps_parse(&s, ":5", &d), RLK_OK);
    assert_true(s.first == INT64_MIN && s.last == 5);
    assert_int_equal(rlk_steps_parse(&s, "2:", &d), RLK_OK);
    assert_true(s.first == 2 && s.last == INT64_MAX);
    assert_int_equal(rlk_steps_parse(&s, ":", &d), RLK_OK);
    static const char *const bad[] = {"",      "5",    "5:5",  "5:2",  "a:b",
                                      "1:2:3", "1:2x", " 1:2", "1: 2", "1:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        d.text[0] = 0;
        assert_int_equal(rlk_steps_parse(&s, bad[i], &d), RLK_EPARSE);
        assert_true(d.text[0]);
    }
}

static void sizes(void **state)
{
    (void)state;
    uint64_t n;
    struct rlk_detail d;
    assert_int_equal(rlk_size_parse(&n, "0", &d), RLK_OK);
    assert_true(n == 0);
    assert_int_equal(rlk_size_parse(&n, "12", &d), RLK_OK);
    assert_true(n == 12);
    assert_int_equal(rlk_size_parse(&n, "3K", &d), RLK_OK);
    assert_true(n == 3072);
    assert_int_equal(rlk_size_parse(&n, "2g", &d), RLK_OK);
    assert_true(n == UINT64_C(2) << 30);
    static const char *const bad[] = {"", "K", "-1", "1KB", "1.5G", "99999999999999999999", "16777216T", "1 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(rlk_size_parse(&n, bad[i], &d), RLK_EPARSE);
}

static void selections(void **state)
{
    (void)state;
    struct rlk_select *s = NULL;
    struct rlk_detail d;
    assert_int_equal(rlk_select_parse(&s, "step=2:4,module=layers.*.mlp,op=aten::*\nname=loss", &d), RLK_OK);
    assert_true(rlk_select_match(s, 2, "layers.0.mlp", "aten::mm", "x"));
    assert_false(rlk_select_match(s, 4, "layers.0.mlp", "aten::mm", "x"));
    assert_false(rlk_select_match(s, 2, "layers.0.attn", "aten::mm", "x"));
    assert_false(rlk_select_match(s, 2, "layers.0.mlp", "rlk.mm", "x"));
    assert_true(rlk_select_match(s, 9, "", "anything", "loss"));
    assert_false(rlk_select_match(s, 9, NULL, NULL, NULL));
    rlk_select_free(s);
    s = NULL;
    assert_int_equal(rlk_select_parse(&s, "\n\n", &d), RLK_OK); /* no line: nothing is selected */
    assert_false(rlk_select_match(s, 0, "", "", ""));
    rlk_select_free(s);
    assert_false(rlk_select_match(NULL, 0, "", "", ""));
    static const char *const bad[] = {"x", "op=", "op=a,", "op=a,op=b", "step=1", "step=3:1", "op=a, name=b", "opx=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = NULL;
        assert_int_equal(rlk_select_parse(&s, bad[i], &d), RLK_EPARSE);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(steps),
        cmocka_unit_test(sizes),
        cmocka_unit_test(selections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
