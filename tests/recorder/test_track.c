/* Who wrote a storage last. */
#include "recorder/track.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t buffers[4][16];

static const struct rlki_geometry *vector(int slot, uint64_t offset, uint64_t n)
{
    struct rlk_view v = {.dtype = RLK_FP32, .ndim = 1, .shape = &n, .offset = offset};
    assert_true(rlki_geometry_fill((struct rlki_geometry *)buffers[slot], &v));
    return (const struct rlki_geometry *)buffers[slot];
}

static void last_write_decides(void **state)
{
    (void)state;
    struct rlki_track *t = rlki_track_new(1000);
    struct rlki_producer p;
    const struct rlki_geometry *whole = vector(0, 0, 8), *half = vector(1, 0, 4), *tail = vector(2, 4, 4);
    assert_false(rlki_track_find(t, 7, 1, whole, &p));
    rlki_track_wrote(t, 7, 1, 10, 0, 2, whole);
    assert_true(rlki_track_find(t, 7, 1, whole, &p));
    assert_true(p.seq == 10 && p.output == 2 && p.view.lo == 0 && p.view.hi == 0);
    assert_true(rlki_track_find(t, 7, 1, half, &p) && (p.view.lo || p.view.hi));
    assert_false(rlki_track_find(t, 7, 2, whole, &p)); /* written since, by something unrecorded */
    assert_false(rlki_track_find(t, 8, 1, whole, &p)); /* a recycled storage has another generation */
    assert_false(rlki_track_find(t, 0, 1, whole, &p)); /* unknown */
    assert_false(rlki_track_find(t, 7, 0, whole, &p));

    rlki_track_wrote(t, 7, 2, 11, 0, 0, half); /* a slice was written: the rest has no single producer any more */
    assert_false(rlki_track_find(t, 7, 2, whole, &p));
    assert_false(rlki_track_find(t, 7, 2, tail, &p));
    assert_true(rlki_track_find(t, 7, 2, half, &p) && p.seq == 11);

    rlki_track_wrote(t, 7, 3, 12, 0, 0, half); /* one event, two outputs in one storage */
    rlki_track_wrote(t, 7, 3, 12, 0, 1, tail);
    assert_true(rlki_track_find(t, 7, 3, half, &p) && p.seq == 12 && p.output == 0);
    assert_true(rlki_track_find(t, 7, 3, tail, &p) && p.seq == 12 && p.output == 1);
    assert_false(rlki_track_find(t, 7, 3, whole, &p));

    rlki_track_forget(t, 7);
    assert_false(rlki_track_find(t, 7, 3, half, &p));
    rlki_track_wrote(t, 7, 4, 13, 0, 0, whole);
    rlki_track_wrote(t, 7, 0, 14, 0, 0, whole); /* left at an unknown version */
    assert_false(rlki_track_find(t, 7, 4, whole, &p));
    rlki_track_free(t);
}

static void bounded_and_never_wrong(void **state)
{
    (void)state;
    struct rlki_track *t = rlki_track_new(1600);
    struct rlki_producer p;
    const struct rlki_geometry *whole = vector(0, 0, 8);
    for (uint64_t g = 1; g <= 20000; g++)
        rlki_track_wrote(t, g, g + 1, g + 2, 0, 0, whole);
    unsigned known = 0;
    for (uint64_t g = 1; g <= 20000; g++)
        if (rlki_track_find(t, g, g + 1, whole, &p)) {
            assert_true(p.seq == g + 2);
            known++;
        }
    assert_true(known > 1000 && known <= 1700);
    for (uint64_t g = 1; g <= 20000; g += 2)
        rlki_track_forget(t, g);
    for (uint64_t g = 1; g <= 20000; g++)
        if (rlki_track_find(t, g, g + 1, whole, &p))
            assert_true(g % 2 == 0 && p.seq == g + 2);
    rlki_track_free(t);
}

static void *churn(void *context)
{
    struct rlki_track *t = context;
    struct rlki_producer p;
    uint64_t shape[1] = {8}, geometry[16];
    struct rlk_view v = {.dtype = RLK_FP32, .ndim = 1, .shape = shape};
    if (!rlki_geometry_fill((struct rlki_geometry *)geometry, &v))
        return context;
    uint64_t bad = 0;
    for (uint64_t i = 1; i < 20000; i++) {
        uint64_t g = i % 200 + 1;
        rlki_track_wrote(t, g, g, g * 3, 0, 0, (void *)geometry);
        if (rlki_track_find(t, g, g, (void *)geometry, &p) && p.seq != g * 3)
            bad++;
        if (i % 7 == 0)
            rlki_track_forget(t, g);
    }
    return bad ? context : NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct rlki_track *t = rlki_track_new(64);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, t), 0);
    for (int i = 0; i < 4; i++) {
        void *bad = NULL;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    rlki_track_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_write_decides),
        cmocka_unit_test(bounded_and_never_wrong),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
