/* `rlkaudit check` from within: one recording in which every check has something to look at. Clean, none finds
 * anything; with one thing planted, its check finds that and the others stay silent. Then memory that runs out. */
#include "auditor/rlk_check.h"
#include "tests/auditor/build_rec.h"
#include "tests/auditor/refuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plant { CLEAN, RECOMPUTE, REPLICA, COLLECTIVE, WEIGHTS, LABEL, GROUP_RNG, BACKEND, OVERLAP, PLANTS };

static const struct {
    const char *check, *class, *op;
} expected[PLANTS] = {
    [RECOMPUTE] = {"recompute", "unknown", "act"},        [REPLICA] = {"replicas", "unknown", "norm"},
    [COLLECTIVE] = {"replicas", "unknown", "all_reduce"}, [WEIGHTS] = {"weights", "stale-weights", "weights"},
    [LABEL] = {"labels", "version-label", "request"},     [GROUP_RNG] = {"group-rng", "rng", "multinomial"},
    [BACKEND] = {"backend", "extra-or-missing", ""},      [OVERLAP] = {"overlap", "race", "all_reduce"},
};

static void op(struct rec *rec, uint32_t rank, const char *name, const char *module, const char *pass, int64_t step)
{
    rec_op(rec, name, module, pass, step);
    rec->event.rank = rank;
}

/* Forward and recomputation of one operator; a tensor that is a replica; a collective. */
static void training(struct rec *rec, uint32_t rank, enum plant plant)
{
    static const uint64_t shape[2] = {4, 8};
    static const uint32_t both[] = {0, 1};
    const struct rlk_place replica = {.ndim = 2, .shape = shape, .replica = "tp"};
    op(rec, rank, "act", "mlp", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "y", 2);
    rec_put(rec);
    op(rec, rank, "act", "mlp", "recompute", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "y", plant == RECOMPUTE ? 90 : 2);
    rec_put(rec);
    op(rec, rank, "norm", "norm", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "h", plant == REPLICA && rank == 1 ? 91 : 3);
    rec_last(rec)->place = &replica;
    rec_put(rec);
    op(rec, rank, "mm", "proj", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "part", 10 + rank);
    rec_last(rec)->alloc = 100 + rank;
    rec_put(rec);
    op(rec, rank, "all_reduce", "proj", "fwd", 0);
    rec->event.kind = RLK_EV_COLLECTIVE;
    rec->event.u.collective.group = "tp";
    rec->event.u.collective.nranks = 2;
    rec->event.u.collective.ranks = both;
    rec_in(rec, "part", plant == OVERLAP && rank == 1 ? 92 : 10 + rank);
    rec_last(rec)->alloc = 100 + rank;
    rec_out(rec, "y", plant == COLLECTIVE && rank == 1 ? 93 : 5);
    rec_put(rec);
}

static void weights(struct rec *rec, const char *side, const char *version, int64_t step, uint64_t value)
{
    op(rec, 0, "weights", "", "", step);
    rec->event.kind = RLK_EV_WEIGHTS;
    rec->event.who.phase = "update_weights";
    rec->event.u.weights.side = side;
    rec->event.u.weights.version = version;
    rec_out(rec, "fc.weight", value);
    rec_last(rec)->version = version;
    rec_put(rec);
}

static void draw(struct rec *rec, const char *sample, int64_t iteration, uint64_t seed, uint64_t token)
{
    op(rec, 0, "", "", "", 0);
    rec->event.kind = RLK_EV_RNG;
    rec->event.u.rng.generator = "philox";
    rec->event.u.rng.seed = seed;
    rec->event.u.rng.offset = (uint64_t)iteration * 4;
    rec_put(rec);
    op(rec, 0, "multinomial", "sampler", "", 0);
    rec->event.who.phase = "rollout-decode";
    rec->event.who.sample = sample;
    rec->event.who.iteration = iteration;
    rec_in(rec, "probs", 40 + (uint64_t)iteration);
    rec_out(rec, "token", token);
    rec_put(rec);
}

static void rollout(struct rec *rec, enum plant plant)
{
    static const char *const versions[] = {"v1", "v2"};
    static const int64_t tokens[] = {3, 4};
    for (int step = 0; step < 2; step++) {
        uint64_t newest = 20 + (uint64_t)step;
        weights(rec, "trainer", versions[step], step, newest);
        weights(rec, "rollout", versions[step], step, plant == WEIGHTS && step ? 20 : newest);
    }
    for (int64_t i = 0; i < 3; i++) {
        draw(rec, "p0.0", i, 1, 50 + (uint64_t)i);
        draw(rec, "p0.1", i, plant == GROUP_RNG ? 1 : 2, plant == GROUP_RNG ? 50 + (uint64_t)i : 60 + (uint64_t)i);
    }
    for (int64_t i = 0; i < 2; i++) {
        op(rec, 0, "mm", "fc", "", 1);
        rec->event.who.phase = "rollout-decode";
        rec->event.who.sample = "r1";
        rec->event.who.iteration = i;
        rec_in(rec, "x", 70);
        rec_in(rec, "fc.weight", plant == WEIGHTS ? 20 : 21);
        rec_out(rec, "y", 80 + (uint64_t)i);
        rec_put(rec);
    }
    op(rec, 0, "request", "", "", 1);
    rec->event.kind = RLK_EV_REQUEST;
    rec->event.who.sample = "r1";
    rec->event.u.request.id = "r1";
    rec->event.u.request.logprob_kind = "";
    rec->event.u.request.tokens = tokens;
    rec->event.u.request.ntokens = 2;
    rec->event.u.request.versions = plant == LABEL ? versions : versions + 1;
    rec->event.u.request.nversions = 1;
    rec_put(rec);
    op(rec, 0, "", "attention", "", 1);
    rec->event.kind = RLK_EV_READBACK;
    rec->event.u.readback.case_id = "attn-1";
    rec->event.u.readback.implementation = "flash_deterministic";
    rec->event.u.readback.contract = "";
    rec->event.u.readback.calls = plant == BACKEND ? 0 : 12;
    rec_put(rec);
}

static void make(struct rec *rec, enum plant plant, bool incomplete)
{
    rec_open(rec, "check", 2, "tp2");
    training(rec, 0, plant);
    training(rec, 1, plant);
    rollout(rec, plant);
    rec_close(rec, incomplete);
}

static json_t *check(const struct rec *rec)
{
    struct rlk_check_options options = {.recording = rec->dir};
    struct rlk_detail detail = {{0}};
    json_t *out = NULL;
    int rc = rlk_check(&out, &options, &detail);
    if (rc)
        print_message("%s\n", detail.text);
    assert_int_equal(rc, RLK_OK);
    return out;
}

static json_int_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static void test_plants(void **unused)
{
    (void)unused;
    for (int plant = CLEAN; plant < PLANTS; plant++) {
        struct rec rec;
        make(&rec, (enum plant)plant, false);
        json_t *out = check(&rec);
        const json_t *findings = json_object_get(out, "findings"), *one;
        size_t i;
        json_array_foreach(findings, i,
                           one) if (plant == CLEAN || strcmp(text(one, "check"), expected[plant].check) != 0)
        {
            json_dumpf(one, stdout, JSON_INDENT(1));
            fail_msg("plant %d: a finding of %s", plant, text(one, "check"));
        }
        assert_int_equal(number(out, "exit"), plant == CLEAN ? 0 : 1);
        assert_string_equal(text(out, "verdict"), plant == CLEAN ? "clean" : "findings");
        assert_int_equal(number(out, "findings_total"), json_array_size(findings));
        json_array_foreach(json_object_get(out, "checks"), i, one) if (plant == CLEAN) if (number(one, "examined") < 1)
            fail_msg("%s examined nothing: it could find nothing", text(one, "check"));
        if (plant != CLEAN) {
            assert_true(json_array_size(findings) >= 1);
            one = json_array_get(findings, 0);
            assert_string_equal(text(json_object_get(one, "mechanism"), "class"), expected[plant].class);
            if (*expected[plant].op)
                assert_string_equal(text(one, "op"), expected[plant].op);
            assert_true(json_array_size(json_object_get(json_object_get(one, "mechanism"), "evidence")) > 0);
            assert_true(*text(json_object_get(one, "mechanism"), "next") != '\0');
        }
        json_decref(out);
        rec_remove(&rec);
    }
}

/* What cannot be read to its end is no pass; a finding in it counts. */
static void test_incomplete(void **unused)
{
    struct rec rec;
    (void)unused;
    make(&rec, CLEAN, true);
    json_t *out = check(&rec);
    assert_int_equal(number(out, "exit"), 4);
    assert_string_equal(text(out, "verdict"), "incomplete");
    json_decref(out);
    rec_remove(&rec);
    make(&rec, COLLECTIVE, true);
    out = check(&rec);
    assert_int_equal(number(out, "exit"), 1);
    assert_true(json_is_false(json_object_get(out, "complete")));
    json_decref(out);
    rec_remove(&rec);
    rec_open(&rec, "check", 1, NULL);
    rec_close(&rec, false);
    out = check(&rec); /* no events: nothing was checked */
    assert_int_equal(number(out, "exit"), 4);
    json_decref(out);
    rec_remove(&rec);
}

static void test_errors(void **unused)
{
    struct rlk_check_options options = {.recording = "/nowhere.rlk"};
    struct rlk_detail detail = {{0}};
    json_t *out = NULL;
    (void)unused;
    assert_int_not_equal(rlk_check(&out, &options, &detail), RLK_OK);
    assert_null(out);
    assert_true(detail.text[0] != '\0');
}

/* A finding for each of many ranks is one; many findings are listed up to a number and counted beyond it. */
static void test_many(void **unused)
{
    struct rec rec;
    char module[32];
    (void)unused;
    rec_open(&rec, "check", 3, NULL);
    for (uint32_t r = 0; r < 3; r++)
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < 1010; i++) {
                snprintf(module, sizeof module, "m%d", i);
                op(&rec, r, "act", module, pass ? "recompute" : "fwd", 0);
                rec_in(&rec, "x", 1);
                rec_out(&rec, "y", pass ? 7 : 2);
                rec_put(&rec);
            }
    rec_close(&rec, false);
    json_t *out = check(&rec), *first = json_array_get(json_object_get(out, "findings"), 0);
    assert_int_equal(number(out, "findings_total"), 1010);
    assert_int_equal(json_array_size(json_object_get(out, "findings")), 1000);
    assert_int_equal(json_array_size(json_object_get(first, "ranks")), 3);
    json_decref(out);
    rec_remove(&rec);
}

static void test_every_allocation(void **unused)
{
    (void)unused;
    json_object_seed(1);
    for (int plant = CLEAN; plant < PLANTS; plant += WEIGHTS) { /* clean, weights, overlap */
        struct rec rec;
        struct rlk_detail detail;
        long n = 0;
        make(&rec, (enum plant)plant, false);
        struct rlk_check_options options = {.recording = rec.dir};
        json_t *whole = check(&rec);
        for (bool all = false; !all; n++) {
            json_t *out = NULL;
            refuse_after(n);
            int rc = rlk_check(&out, &options, &detail);
            all = !refuse_met();
            refuse_after(-1);
            if (rc == RLK_ECORRUPT && strstr(detail.text, "manifest.json"))
                rc = RLK_ENOMEM; /* the JSON reader's word for it, below us */
            if (rc != RLK_ENOMEM && !(rc == RLK_OK && json_equal(out, whole)))
                fail_msg("plant %d, allocation %ld: %s %s", plant, n, rlk_error_name(rc), detail.text);
            assert_true(rc == RLK_OK || !out);
            json_decref(out);
        }
        assert_true(n > 100);
        json_decref(whole);
        rec_remove(&rec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plants), cmocka_unit_test(test_incomplete),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
