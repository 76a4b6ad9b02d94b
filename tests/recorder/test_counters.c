/* call and occurrence, one rank. The whole path through the tap is in test_tap.c. */
#include "recorder/counters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t next(struct rlki_place *p, rlk_u128 key)
{
    bool lost = false;
    uint32_t n = rlki_count_next(p, key, &lost);
    assert_false(lost);
    return n;
}

static rlk_u128 key_of(const char *pass, const char *module)
{
    return rlki_module_key(rlki_text_key(pass), rlki_text_key(module));
}

static void counts_by_place(void **state)
{
    (void)state;
    static struct rlki_counters c;
    rlk_u128 train = rlki_text_key("train"), eval = rlki_text_key("eval");
    rlk_u128 fwd = key_of("fwd", "m"), bwd = key_of("bwd", "m");
    struct rlki_place *p = rlki_counters_place(&c, 0, train, 0, 0);
    assert_int_equal(next(p, fwd), 0);
    assert_int_equal(next(p, fwd), 1);
    assert_int_equal(next(p, bwd), 0);
    assert_int_equal(next(rlki_counters_place(&c, 0, train, 1, 0), fwd), 0); /* a new micro-batch */
    assert_int_equal(next(rlki_counters_place(&c, 0, eval, 0, 0), fwd), 0);  /* a new phase */
    assert_int_equal(next(rlki_counters_place(&c, 1, train, 0, 0), fwd), 0); /* a new step */
    assert_int_equal(next(rlki_counters_place(&c, 0, train, 0, 1), fwd), 0); /* a new decode iteration */
    assert_int_equal(next(rlki_counters_place(&c, 0, train, 0, 0), fwd), 2); /* an interleaved one goes on */
    rlki_count_undo(rlki_counters_place(&c, 0, train, 0, 0), fwd, 1);        /* not the last: stays */
    assert_int_equal(next(rlki_counters_place(&c, 0, train, 0, 0), fwd), 3);
    rlki_count_undo(rlki_counters_place(&c, 0, train, 0, 0), fwd, 3);
    assert_int_equal(next(rlki_counters_place(&c, 0, train, 0, 0), fwd), 3);
    rlki_counters_release(&c);
}

static void keys_are_distinct(void **state)
{
    (void)state;
    rlk_u128 k[] = {key_of("", "ab"),
                    key_of("a", "b"),
                    key_of("ab", ""),
                    rlki_op_key(key_of("a", "b"), 0, false, "x"),
                    rlki_op_key(key_of("a", "b"), 0, true, "x"),
                    rlki_op_key(key_of("a", "b"), 1, false, "x"),
                    rlki_op_key(key_of("a", "b"), 0, false, "xx"),
                    rlki_op_key(key_of("a", "c"), 0, false, "x")};
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(rlk_u128_equal(k[i], k[j]));
    assert_true(rlk_u128_equal(rlki_text_key(NULL), rlki_text_key("")));
}

static void old_places_make_room(void **state)
{
    (void)state;
    static struct rlki_counters c;
    rlk_u128 phase = rlki_text_key(""), op = rlki_text_key("op");
    for (int64_t step = 0; step < 1000; step++) {
        struct rlki_place *p = rlki_counters_place(&c, step, phase, 0, 0);
        assert_int_equal(next(p, op), 0);
        for (uint32_t i = 0; i < 100; i++) {
            char name[16];
            snprintf(name, sizeof name, "op%u", i);
            assert_int_equal(next(p, rlki_text_key(name)), 0);
            assert_int_equal(next(p, rlki_text_key(name)), 1);
        }
        if (step >= 10) /* still there */
            assert_int_equal(next(rlki_counters_place(&c, step - 10, phase, 0, 0), op), 1);
    }
    rlki_counters_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_by_place),
        cmocka_unit_test(keys_are_distinct),
        cmocka_unit_test(old_places_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
