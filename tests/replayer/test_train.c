/* test_train.c - what a step is: nothing vacuous, rollout and training agree, refusals, repeats, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replayer/rlk_train.h"

static struct rlk_train_options small(void)
{
    struct rlk_train_options o;
    rlk_train_options_init(&o);
    o.model = *rlk_model_find("qwen3-mini");
    o.fresh = 12;
    return o;
}

static double metric(const struct rlk_train_facts *f, const char *name)
{
    for (int i = 0; i < f->metrics; i++)
        if (strcmp(f->metric[i].name, name) == 0)
            return f->metric[i].value;
    fail_msg("no metric %s", name);
    return 0.0;
}

static void begin(const struct rlk_train_options *o, struct rlk_train **run)
{
    struct rlk_kdetail detail = {""};
    if (rlk_train_new(o, run, &detail))
        fail_msg("%s", detail.text);
}

static void step(struct rlk_train *run, struct rlk_train_facts *f)
{
    struct rlk_kdetail detail = {""};
    if (rlk_train_step(run, f, &detail))
        fail_msg("%s", detail.text);
}

/* Gradients flow, rewards differ, weights move, and every parameter gets a gradient. */
static void test_nothing_vacuous(void **state)
{
    (void)state;
    const struct rlk_train_options o = small();
    struct rlk_train *run;
    struct rlk_train_facts f;
    begin(&o, &run);
    for (int s = 0; s < 2; s++) {
        int moved = 0, spread = 0;
        uint16_t *before[64];
        for (int p = 0; p < rlk_train_params(run); p++) {
            const struct rlk_param_info info = rlk_train_param(run, p);
            before[p] = malloc((size_t)(info.rows * info.cols) * 2);
            assert_int_equal(rlk_train_copy(run, RLK_TRAIN_ROLLOUT, p, before[p], NULL), 0);
        }
        step(run, &f);
        assert_true(f.grad_norm > 0.0);
        assert_true(metric(&f, "train/entropy_loss") > 0.0);
        assert_true(s == 0 || metric(&f, "train/kl_loss") > 0.0);
        for (int i = 1; i < o.group; i++)
            spread += f.reward[i] != f.reward[0];
        assert_true(spread > 0);
        for (int p = 0; p < rlk_train_params(run); p++) {
            const struct rlk_param_info info = rlk_train_param(run, p);
            const size_t n = (size_t)(info.rows * info.cols);
            uint16_t *after = malloc(n * 2);
            float *grad = malloc(n * 4);
            size_t nonzero = 0;
            assert_int_equal(rlk_train_copy(run, RLK_TRAIN_ROLLOUT, p, after, NULL), 0);
            assert_int_equal(rlk_train_copy(run, RLK_TRAIN_GRAD, p, grad, NULL), 0);
            for (size_t i = 0; i < n; i++)
                nonzero += grad[i] != 0.0f;
            if (!nonzero)
                fail_msg("%s has no gradient", info.name);
            moved += memcmp(before[p], after, n * 2) != 0;
            free(after);
            free(grad);
            free(before[p]);
        }
        assert_true(moved > rlk_train_params(run) / 2);
    }
    rlk_train_free(run);
}

static void test_rollout_equals_training(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    struct rlk_train *run;
    struct rlk_train_facts f;
    o.tp = 2;
    o.cp = 2;
    o.rollout_tp = 4;
    begin(&o, &run);
    for (int s = 0; s < 2; s++) {
        step(run, &f);
        int64_t n = 0;
        for (int i = 0; i < f.samples; i++) {
            const size_t bytes = (size_t)(f.length[i] - f.prompt[i]) * sizeof(float);
            assert_memory_equal(f.rollout_logp[i], f.train_logp[i], bytes);
            assert_memory_equal(f.rollout_logp[i], f.old_logp[i], bytes);
            n += f.length[i] - f.prompt[i];
            for (int32_t t = 0; t < f.length[i] - f.prompt[i]; t++)
                assert_true(f.train_logp[i][t] < 0.0f);
        }
        assert_true(n > f.samples);
        assert_true(metric(&f, "train/train_current_rollout_logprob_mismatch_count") == 0.0);
        assert_true(metric(&f, "train/ois") == 1.0);
    }
    rlk_train_free(run);
}

/* Threads change nothing; another seed does. */
static void test_threads_and_seed(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    double norm[3];
    for (int i = 0; i < 3; i++) {
        struct rlk_train *run;
        struct rlk_train_facts f;
        o.threads = i == 1 ? 3 : 1;
        o.seed = i == 2 ? 2 : 1;
        begin(&o, &run);
        step(run, &f);
        norm[i] = f.grad_norm;
        rlk_train_free(run);
    }
    assert_true(norm[0] == norm[1]);
    assert_true(norm[0] != norm[2]);
}

/* A mode that hands the policy to the provider computes something else, and still trains. */
static void test_mode_off(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    struct rlk_train *run;
    struct rlk_train_facts a, b;
    begin(&o, &run);
    step(run, &a);
    const double strict = a.grad_norm;
    rlk_train_free(run);
    o.modes = 1;
    o.mode[0] = "off";
    begin(&o, &run);
    step(run, &b);
    assert_true(b.grad_norm > 0.0);
    assert_true(b.grad_norm != strict);
    rlk_train_free(run);
}

static void refused(const struct rlk_train_options *o, int code, const char *word)
{
    struct rlk_train *run;
    struct rlk_kdetail detail = {""};
    assert_int_equal(rlk_train_new(o, &run, &detail), code);
    assert_null(run);
    if (!strstr(detail.text, word))
        fail_msg("\"%s\" does not say %s", detail.text, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    o.tp = 3;
    refused(&o, RLK_K_EUNSUPPORTED, "1, 2, 4 or 8");
    o = small();
    o.rollout_tp = 2;
    o.rollout_cp = 2;
    refused(&o, RLK_K_EUNSUPPORTED, "cp1");
    o = small();
    o.model.kv_heads = 4;
    refused(&o, RLK_K_EUNSUPPORTED, "kv_heads");
    o = small();
    o.contract = "sm90/1";
    refused(&o, RLK_K_EUNSUPPORTED, "portable/1");
    o = small();
    o.group = 3;
    refused(&o, RLK_K_EINVAL, "group");
    o = small();
    o.plant = "weather";
    refused(&o, RLK_K_EINVAL, "--plant help");
}

/* Greedy decode and no nucleus are legal. */
static void test_sampling_edges(void **state)
{
    (void)state;
    struct rlk_train_options o = small();
    struct rlk_train *run;
    struct rlk_train_facts f;
    o.temperature = 0.0f;
    o.top_p = 1.0f;
    o.stop_ids = 0;
    begin(&o, &run);
    step(run, &f);
    for (int i = 0; i < f.samples; i++)
        assert_int_equal(f.length[i] - f.prompt[i], o.fresh);
    for (int i = 1; i < o.group; i++) /* one prompt, one answer */
        assert_memory_equal(f.sequence[0], f.sequence[i], (size_t)f.length[0] * sizeof(int32_t));
    rlk_train_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_vacuous),  cmocka_unit_test(test_rollout_equals_training),
        cmocka_unit_test(test_threads_and_seed), cmocka_unit_test(test_mode_off),
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_sampling_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
