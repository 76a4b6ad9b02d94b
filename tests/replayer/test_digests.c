/* The sums that follow from sums: always those that a digest of the whole gives, whoever wrote what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replayer/run.h"
#include "store/rlk_digest.h"

static uint64_t generation(void)
{
    static uint64_t next;
    return ++next;
}

static void gone(uint64_t g)
{
    (void)g;
}

enum { ROWS = 96, HEADS = 2, DIM = 64, WIDTH = HEADS * DIM };

struct setting {
    struct rlk_tap_api tap;
    struct rlk_train run;
    uint64_t shape[3], local[3];
    uint32_t nruns[3];
    struct rlk_run heads;
    struct rlk_place place;
    uint16_t buffer[3][ROWS * WIDTH];
};

static uint32_t drawn(void)
{
    static uint64_t s = 0x9E3779B97F4A7C15u;
    s = s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s >> 33);
}

static struct setting *setting(void)
{
    struct setting *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->tap = (struct rlk_tap_api){.abi = RLK_TAP_ABI, .generation = generation, .storage_free = gone};
    s->run.rec.tap = &s->tap;
    s->run.rec.twins = rlki_twins_new();
    s->shape[0] = s->local[0] = ROWS;
    s->shape[1] = 8;
    s->local[1] = HEADS;
    s->shape[2] = s->local[2] = DIM;
    s->nruns[0] = s->nruns[2] = RLK_WHOLE;
    s->nruns[1] = 1;
    s->heads = (struct rlk_run){2, HEADS};
    s->place = (struct rlk_place){.ndim = 3, .shape = s->shape, .nruns = s->nruns, .runs = &s->heads, .replica = "cp"};
    for (int b = 0; b < 3; b++)
        rlki_rec_fresh(&s->run, s->buffer[b]);
    for (int i = 0; i < ROWS * WIDTH; i++)
        s->buffer[0][i] = s->buffer[1][i] = s->buffer[2][i] = (uint16_t)drawn();
    return s;
}

static void drop(struct setting *s)
{
    rlki_rec_release(&s->run);
    free(s);
}

static struct rlk_tap_tensor tensor(struct setting *s, int b)
{
    const struct rlki_known *k = rlki_rec_known(&s->run, s->buffer[b]);
    return (struct rlk_tap_tensor){.view = {.dtype = RLK_BF16,
                                            .ndim = 3,
                                            .shape = s->local,
                                            .storage = s->buffer[b],
                                            .storage_bytes = sizeof s->buffer[b]},
                                   .place = &s->place,
                                   .generation = k->generation,
                                   .version = k->version};
}

/* Told, and as it should be. */
static bool right(struct setting *s, int b, bool grows, bool *made)
{
    const struct rlk_tap_tensor t = tensor(s, b);
    struct rlk_sums sums, whole;
    bool composable;
    memset(&sums, 0, sizeof sums);
    *made = rlki_sums(&s->run, rlki_rec_known(&s->run, s->buffer[b]), &t, grows, &sums);
    return rlk_digest_view(&whole, &composable, &t.view, t.place, NULL) == RLK_OK &&
           (!*made || memcmp(&whole, &sums, sizeof sums) == 0);
}

static void test_replicas(void **state)
{
    (void)state;
    struct setting *s = setting();
    bool made;
    assert_true(right(s, 0, false, &made) && made);
    assert_true(right(s, 1, false, &made) && made);
    for (int i = 0; i < 300; i++) { /* one bit anywhere is another replica */
        s->buffer[1][drawn() % (ROWS * WIDTH)] ^= (uint16_t)(1u << drawn() % 16);
        assert_true(right(s, 1, false, &made) && made);
    }
    /* The first was written again before the next rank's was told: its sums are those of other bytes. */
    s->buffer[0][5] ^= 1;
    rlki_rec_written(&s->run, s->buffer[0]);
    memcpy(s->buffer[2], s->buffer[0], sizeof s->buffer[0]);
    assert_true(right(s, 2, false, &made) && made);
    /* Another placement of the same bytes has other sums. */
    s->heads.start = 4;
    assert_true(right(s, 1, false, &made) && made);
    rlki_twins_forget(&s->run);
    assert_true(right(s, 0, false, &made) && made);
    s->place.replica = NULL;
    assert_true(right(s, 0, false, &made) && !made);
    drop(s);
}

static void test_rows(void **state)
{
    (void)state;
    struct setting *s = setting();
    bool made;
    assert_true(right(s, 0, true, &made) && made);
    for (int i = 0; i < 400; i++) { /* nobody announces these: they are found */
        const unsigned n = drawn() % 5;
        for (unsigned k = 0; k < n; k++) {
            const uint32_t at = drawn() % (ROWS * WIDTH);
            static const uint16_t special[] = {0x8000, 0x7fc1, 0x7f80, 0xff80, 0};
            s->buffer[0][at] = drawn() % 2 ? (uint16_t)drawn() : special[drawn() % 5];
        }
        assert_true(right(s, 0, true, &made) && made);
    }
    memset(s->buffer[0], 0, sizeof s->buffer[0]); /* more than half: anew */
    assert_true(right(s, 0, true, &made) && made);
    s->heads.start = 0;
    assert_true(right(s, 0, true, &made) && made);
    const size_t copies = s->run.rec.shadows;
    assert_true(copies == sizeof s->buffer[0]);
    rlki_rec_fresh(&s->run, s->buffer[0]);
    assert_true(s->run.rec.shadows == 0);
    drop(s);
}

/* A border inside a unit: left to the recorder. */
static void test_lumps(void **state)
{
    (void)state;
    struct setting *s = setting();
    bool made;
    s->shape[1] = HEADS;
    s->nruns[1] = RLK_WHOLE;
    s->shape[2] = 4 * DIM;
    s->nruns[2] = 1;
    s->heads = (struct rlk_run){3, DIM};
    assert_true(right(s, 0, true, &made) && !made);
    assert_true(s->run.rec.shadows == 0);
    assert_true(right(s, 0, false, &made) && !made);
    drop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_lumps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
