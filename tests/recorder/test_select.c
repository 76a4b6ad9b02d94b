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

static bool match(const struct rlk_select *s, int64_t step, const char *module, const char *op, const char *name)
{
    const struct rlk_identity who = {.step = step, .module = module, .op = op};
    return rlk_select_match(s, &who, 0, RLK_ROLE_OUT, 0, name);
}

/* One tensor and no other: each key in turn decides. */
static void exactly(void **state)
{
    (void)state;
    static const char line[] = "step=3:4,rank=5,work=1,iteration=2,call=7,occurrence=8,phase=train,pass=bwd,sample=,"
                               "module=a\\,\\*b,op=aten::mm,role=in,index=9";
    struct rlk_select *s = NULL;
    struct rlk_detail d;
    assert_int_equal(rlk_select_parse(&s, line, &d), RLK_OK);
    const struct rlk_identity it = {3, 1, 2, "train", "bwd", "a,*b", "aten::mm", "", 7, 8};
    assert_true(rlk_select_match(s, &it, 5, RLK_ROLE_IN, 9, "any"));
    assert_false(rlk_select_match(s, &it, 6, RLK_ROLE_IN, 9, "any"));
    assert_false(rlk_select_match(s, &it, 5, RLK_ROLE_OUT, 9, "any"));
    assert_false(rlk_select_match(s, &it, 5, RLK_ROLE_IN, 8, "any"));
    const struct rlk_identity others[] = {
        {4, 1, 2, "train", "bwd", "a,*b", "aten::mm", "", 7, 8},
        {3, 0, 2, "train", "bwd", "a,*b", "aten::mm", "", 7, 8},
        {3, 1, 1, "train", "bwd", "a,*b", "aten::mm", "", 7, 8},
        {3, 1, 2, "trai", "bwd", "a,*b", "aten::mm", "", 7, 8},
        {3, 1, 2, "train", "fwd", "a,*b", "aten::mm", "", 7, 8},
        {3, 1, 2, "train", "bwd", "a,cb", "aten::mm", "", 7, 8},
        {3, 1, 2, "train", "bwd", "a,*b", "aten::mv", "", 7, 8},
        {3, 1, 2, "train", "bwd", "a,*b", "aten::mm", "s", 7, 8},
        {3, 1, 2, "train", "bwd", "a,*b", "aten::mm", "", 6, 8},
        {3, 1, 2, "train", "bwd", "a,*b", "aten::mm", "", 7, 7},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(rlk_select_match(s, &others[i], 5, RLK_ROLE_IN, 9, "any"));
    rlk_select_free(s);
}

static void selections(void **state)
{
    (void)state;
    struct rlk_select *s = NULL;
    struct rlk_detail d;
    assert_int_equal(rlk_select_parse(&s, "step=2:4,module=layers.*.mlp,op=aten::*\nname=loss", &d), RLK_OK);
    assert_true(match(s, 2, "layers.0.mlp", "aten::mm", "x"));
    assert_false(match(s, 4, "layers.0.mlp", "aten::mm", "x"));
    assert_false(match(s, 2, "layers.0.attn", "aten::mm", "x"));
    assert_false(match(s, 2, "layers.0.mlp", "rlk.mm", "x"));
    assert_true(match(s, 9, "", "anything", "loss"));
    assert_false(match(s, 9, NULL, NULL, NULL));
    rlk_select_free(s);
    s = NULL;
    assert_int_equal(rlk_select_parse(&s, "\n\n# op=aten::mm\n", &d), RLK_OK); /* no line: nothing is selected */
    assert_false(match(s, 0, "", "aten::mm", ""));
    rlk_select_free(s);
    assert_false(match(NULL, 0, "", "", ""));
    static const char *const bad[] = {
        "x",         "op=a,",  "rank=",    "rank=x",       "rank=1,rank=2", "role=", "role=inn", "role=in,role=out",
        "op=a,op=b", "step=1", "step=3:1", "op=a, name=b", "opx=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = NULL;
        assert_int_equal(rlk_select_parse(&s, bad[i], &d), RLK_EPARSE);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),     cmocka_unit_test(steps),   cmocka_unit_test(sizes),
        cmocka_unit_test(selections), cmocka_unit_test(exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
