/* times.c - seconds of a step and of its parts, and the rates made of them. */
#include "replayer/run.h"

#include <string.h>
#include <time.h>

static double now(struct rlk_train *run)
{
    struct timespec t;
    (void)rlk_exec_sync(&run->x); /* an error comes back where the next operator meets it */
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void rlki_times_begin(struct rlk_train *run)
{
    memset(run->times.seconds, 0, sizeof run->times.seconds);
    run->times.start = run->times.part = run->times.lap = now(run);
}

void rlki_times_part(struct rlk_train *run, enum rlki_time part)
{
    const double t = now(run);
    run->times.seconds[part] = t - run->times.part;
    run->times.seconds[RLKI_TIME_STEP] = t - run->times.start;
    run->times.part = run->times.lap = t;
}

void rlki_lap(struct rlk_train *run, enum rlki_time inside)
{
    const double t = now(run);
    run->times.seconds[inside] += t - run->times.lap;
    run->times.lap = t;
}

/* Multiply-adds of the matrices only, 2 FLOP each: forward 2*N*tokens with N = elements of the matrices (embedding
 * look-up apart, a tied head counted), training 4 times that (forward, recomputation, and a backward of two). */
void rlki_times_tell(struct rlk_train *run)
{
    static const struct {
        const char *name;
        enum rlki_time time;
    } inside[] = {{"perf/rollout_prefill_time", RLKI_TIME_PREFILL}, {"perf/rollout_decode_time", RLKI_TIME_DECODE},
                  {"perf/zero_gradients_time", RLKI_TIME_ZERO},     {"perf/train_forward_time", RLKI_TIME_FORWARD},
                  {"perf/train_loss_time", RLKI_TIME_LOSS},         {"perf/train_backward_time", RLKI_TIME_BACKWARD},
                  {"perf/grad_norm_time", RLKI_TIME_GRAD_NORM},     {"perf/optimizer_time", RLKI_TIME_OPTIMIZER},
                  {"perf/weight_export_time", RLKI_TIME_EXPORT},    {"perf/weight_hash_time", RLKI_TIME_HASH}};
    const double *s = run->times.seconds;
    double weights = 0.0, tokens = 0.0;
    for (int p = run->opt.model.tied ? 0 : 1; p < run->params; p++)
        if (run->param[p].ndim == 2)
            weights += (double)run->param[p].rows * (double)run->param[p].cols;
    for (int i = 0; i < run->opt.samples; i++)
        tokens += (double)run->sample[i].length;
    const double forward = 2.0 * weights * tokens * 1e-12;
    const double train = s[RLKI_TIME_REF] + s[RLKI_TIME_OLD] + s[RLKI_TIME_TRAIN], step = s[RLKI_TIME_STEP];
    rlki_metric(run, "perf/update_weights_time", s[RLKI_TIME_WEIGHTS]);
    rlki_metric(run, "perf/data_preprocess_time", s[RLKI_TIME_PREPARE]);
    rlki_metric(run, "perf/train_wait_time", step - train);
    rlki_metric(run, "perf/ref_log_probs_time", s[RLKI_TIME_REF]);
    rlki_metric(run, "perf/log_probs_time", s[RLKI_TIME_OLD]);
    rlki_metric(run, "perf/actor_train_time", s[RLKI_TIME_TRAIN]);
    rlki_metric(run, "perf/train_time", train);
    rlki_metric(run, "perf/log_probs_tflops", forward / s[RLKI_TIME_OLD]);
    rlki_metric(run, "perf/ref_log_probs_tflops", forward / s[RLKI_TIME_REF]);
    rlki_metric(run, "perf/actor_train_tflops", 4.0 * forward / s[RLKI_TIME_TRAIN]);
    rlki_metric(run, "perf/actor_train_tok_per_s", tokens / s[RLKI_TIME_TRAIN]);
    rlki_metric(run, "perf/step_time", step);
    rlki_metric(run, "perf/wait_time_ratio", (step - train) / step);
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
        rlki_metric(run, inside[i].name, s[inside[i].time]);
}
