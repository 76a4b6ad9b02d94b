/* test_layouts.c - a training run yields the same bytes in all sixteen layouts: tokens, log-probabilities, metrics,
 * gradients, weights of every version, masters. And the control: with a reduction in rank order it does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replayer/rlk_train.h"

static bool long_run;

/* Everything a run yields, end to end, with a name for each piece. */
struct trace {
    char *bytes;
    size_t n, room;
    struct piece {
        char name[96];
        size_t at, n;
    } * piece;
    size_t pieces, piece_room;
};

static void add(struct trace *t, const char *name, const void *bytes, size_t n)
{
    if (t->n + n > t->room) {
        t->room = (t->n + n) * 2;
        t->bytes = realloc(t->bytes, t->room);
        assert_non_null(t->bytes);
    }
    if (t->pieces == t->piece_room) {
        t->piece_room = t->piece_room ? t->piece_room * 2 : 256;
        t->piece = realloc(t->piece, t->piece_room * sizeof *t->piece);
        assert_non_null(t->piece);
    }
    memcpy(t->bytes + t->n, bytes, n);
    snprintf(t->piece[t->pieces].name, sizeof t->piece->name, "%s", name);
    t->piece[t->pieces].at = t->n;
    t->piece[t->pieces++].n = n;
    t->n += n;
}

static void trace_free(struct trace *t)
{
    free(t->bytes);
    free(t->piece);
}

/* The first piece that differs, NULL if none. */
static const char *differs(const struct trace *a, const struct trace *b)
{
    for (size_t i = 0; i < a->pieces && i < b->pieces; i++)
        if (strcmp(a->piece[i].name, b->piece[i].name) != 0 || a->piece[i].n != b->piece[i].n ||
            memcmp(a->bytes + a->piece[i].at, b->bytes + b->piece[i].at, a->piece[i].n) != 0)
            return a->piece[i].name;
    return a->pieces == b->pieces ? NULL : "number of pieces";
}

static void add_parameters(struct trace *t, struct rlk_train *run, enum rlk_train_kind kind, const char *what)
{
    for (int p = 0; p < rlk_train_params(run); p++) {
        const struct rlk_param_info info = rlk_train_param(run, p);
        const size_t n = (size_t)(info.rows * info.cols) * (kind == RLK_TRAIN_GRAD || kind == RLK_TRAIN_MASTER ? 4 : 2);
        struct rlk_kdetail detail = {""};
        char name[128], *bytes = malloc(n);
        assert_non_null(bytes);
        if (rlk_train_copy(run, kind, p, bytes, &detail))
            fail_msg("%s", detail.text);
        snprintf(name, sizeof name, "%s %.80s", what, info.name);
        add(t, name, bytes, n);
        free(bytes);
    }
}

static void add_step(struct trace *t, const struct rlk_train_facts *f)
{
    for (int s = 0; s < f->samples; s++) {
        const size_t n = (size_t)(f->length[s] - f->prompt[s]) * sizeof(float);
        add(t, "tokens", f->sequence[s], (size_t)f->length[s] * sizeof(int32_t));
        add(t, "rollout log-probabilities", f->rollout_logp[s], n);
        add(t, "reference log-probabilities", f->ref_logp[s], n);
        add(t, "old log-probabilities", f->old_logp[s], n);
        add(t, "log-probabilities", f->train_logp[s], n);
        add(t, "advantage", &f->advantage[s], sizeof(double));
    }
    for (int i = 0; i < f->metrics; i++)
        if (strncmp(f->metric[i].name, "perf/", 5) != 0)
            add(t, f->metric[i].name, &f->metric[i].value, sizeof(double));
}

static void run_one(struct trace *t, const struct rlk_train_options *o, int steps)
{
    struct rlk_train *run;
    struct rlk_kdetail detail = {""};
    *t = (struct trace){0};
    if (rlk_train_new(o, &run, &detail))
        fail_msg("%s", detail.text);
    add_parameters(t, run, RLK_TRAIN_ROLLOUT, "v1");
    for (int s = 0; s < steps; s++) {
        struct rlk_train_facts facts;
        if (rlk_train_step(run, &facts, &detail))
            fail_msg("tp%dcp%d: %s", o->tp, o->cp, detail.text);
        add_step(t, &facts);
        add_parameters(t, run, RLK_TRAIN_GRAD, "gradient");
        add_parameters(t, run, RLK_TRAIN_ROLLOUT, s ? "v3" : "v2");
        add_parameters(t, run, RLK_TRAIN_WEIGHT, "trainer weight");
        add_parameters(t, run, RLK_TRAIN_MASTER, "master");
    }
    rlk_train_free(run);
}

static struct rlk_train_options small(void)
{
    struct rlk_train_options o;
    rlk_train_options_init(&o);
    o.model = *rlk_model_find("qwen3-mini");
    o.samples = 4;
    o.group = 2;
    o.prompt = 24;
    o.fresh = 16;
    return o;
}

static void sixteen(struct rlk_train_options o, int steps)
{
    struct trace first, t;
    o.tp = o.cp = 1;
    run_one(&first, &o, steps);
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int cp = 1; cp <= 8; cp *= 2) {
            if (tp == 1 && cp == 1)
                continue;
            o.tp = tp;
            o.cp = cp;
            o.rollout_tp = 8 / tp; /* another one than the training's */
            run_one(&t, &o, steps);
            const char *at = differs(&first, &t);
            if (at)
                fail_msg("tp%dcp%d: %s differs from tp1cp1", tp, cp, at);
            trace_free(&t);
        }
    trace_free(&first);
}

static void test_all_layouts(void **state)
{
    (void)state;
    sixteen(small(), 2);
}

/* Sequences that fill more chunks than CP ranks, so that every rank holds tokens of its own. */
static void test_longer_sequences(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    if (!long_run)
        skip();
    o.prompt = 300;
    o.fresh = 40;
    o.stop_ids = 0;
    sixteen(o, 2);
}

static void test_tiny(void **state)
{
    (void)state;
    struct rlk_train_options o;
    rlk_train_options_init(&o);
    sixteen(o, 2);
}

/* The comparison can fail: each fault is silent in one layout and shows in another. */
static void control(const char *plant, const char *model, int tp, int cp, int fresh)
{
    struct rlk_train_options o = small();
    struct trace good, silent, shown;
    o.model = *rlk_model_find(model);
    o.fresh = fresh;
    o.samples = 8;
    o.group = 4;
    run_one(&good, &o, 1);
    o.plant = plant;
    run_one(&silent, &o, 1);
    o.tp = tp;
    o.cp = cp;
    run_one(&shown, &o, 1);
    const char *at = differs(&good, &silent);
    if (at)
        fail_msg("%s at tp1cp1: %s differs", plant, at);
    if (!differs(&good, &shown))
        fail_msg("%s at tp%dcp%d: nothing differs", plant, tp, cp);
    trace_free(&good);
    trace_free(&silent);
    trace_free(&shown);
}

static void test_control_rank_order(void **state)
{
    (void)state;
    control("rank-order", "qwen3-tiny", 8, 1, 16);
}

static void test_control_dx(void **state)
{
    (void)state;
    control("dx-shard", "qwen3-mini", 2, 1, 16);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "long") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layouts),        cmocka_unit_test(test_longer_sequences), cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_control_rank_order), cmocka_unit_test(test_control_dx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
