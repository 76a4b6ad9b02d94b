/* rlk_train.h - the reference workload: a Qwen3 policy trained by GRPO on the operators of kernels/, over any TP x CP.
 *
 * Usage: rlk_train_options_init, rlk_train_new, rlk_train_step as often as wanted, rlk_train_free. A run is used by one
 * thread at a time. It holds every rank of its layouts (virtual transport) and announces what it computes through the
 * tap (recorder/rlk_tap.h); without a recorder that costs a branch an operator.
 *
 * Guaranteed (class portable/1, mode strict, no plant): everything a step yields - tokens, log-probabilities, metrics
 * but for the times, gradients, weights - has the same bits for every layout and rollout layout, thread count and
 * repeat. The order of operations is docs/replay.md.
 *
 * Errors: the codes of kernels/rlk_kbase.h; the words are in the caller's struct rlk_kdetail.
 */
#ifndef REPLAYER_RLK_TRAIN_H
#define REPLAYER_RLK_TRAIN_H

#include "kernels/rlk_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rlk_model_shape {
    const char *name;
    int layers;
    int64_t hidden, intermediate, vocab;
    int heads, kv_heads, head_dim;
    bool tied; /* lm_head is embed_tokens */
    double theta;
    float eps;
};
/* "qwen3-tiny", "qwen3-0.6b", ...; NULL when there is none. */
const struct rlk_model_shape *rlk_model_find(const char *name);
/* The n-th known model, NULL past the last. */
const struct rlk_model_shape *rlk_model_at(int n);

#define RLK_TRAIN_MODES 16

struct rlk_folder;

struct rlk_train_options {
    struct rlk_model_shape model;
    enum rlk_device device;
    unsigned threads;                   /* CPU threads, 0 = one a processor */
    int tp, cp, rollout_tp, rollout_cp; /* rollout_tp 0 = as tp; rollout_cp must be 1 (decode holds whole sequences) */
    uint64_t seed;
    int samples, group; /* sequences a step; group divides samples: they share a prompt */
    int prompt, fresh;  /* longest prompt (8 at least); most new tokens */
    int stop_ids;       /* ids below this end a response; 0 = every response has `fresh` tokens */
    int micro_batches;
    int score_batches; /* micro-batches of ref_log_probs and log_probs; 0 = as micro_batches */
    bool reverse;      /* samples are packed last first */
    bool eager_decode; /* CUDA: decode without captured graphs */
    bool by_sample;    /* record per-sample sums of every tensor of tokens: joins other packings, costs time */
    float temperature, top_p;
    float lr, beta1, beta2, adam_eps, weight_decay, clip_ratio, kl_coef;
    double max_norm;
    const char *contract; /* class: "portable/1" */
    int modes;
    const char *mode[RLK_TRAIN_MODES]; /* "strict", "ffn=off", ... in order */
    const char *plant;                 /* a fault of replayer/rlk_plant.h, NULL = none */
    struct rlk_folder *folder;         /* weights from here (rlk_folder.h), and `model` its shape; NULL = seeded */
};
void rlk_train_options_init(struct rlk_train_options *options); /* qwen3-tiny at tp1cp1, 8 samples x 48 tokens */

struct rlk_train;

/* Builds the policy (seeded weights, or those of the folder, which is read now), and hands it to the rollout side as
 * weight version 1. RLK_K_EUNSUPPORTED: a layout, model, class or device that is refused; the detail says what to
 * change. */
int rlk_train_new(const struct rlk_train_options *options, struct rlk_train **out, struct rlk_kdetail *detail);
void rlk_train_free(struct rlk_train *run); /* NULL is allowed */

struct rlk_metric {
    const char *name;
    double value;
};

/* What one step yielded. Belongs to the run until the next step. Sample s is sequence[s], prompt first. */
struct rlk_train_facts {
    int64_t step;
    int samples;
    const int32_t *const *sequence;
    const int32_t *length, *prompt; /* tokens of the sequence, of its prompt */
    /* Of token length[s]-prompt[s] responses each: index t = response token t. */
    const float *const *rollout_logp, *const *old_logp, *const *ref_logp, *const *train_logp;
    const double *reward, *advantage;
    double grad_norm;
    int metrics;
    const struct rlk_metric *metric;
};

/* One step: rollout, ref and old log-probabilities, update, next weight version. facts may be NULL. */
int rlk_train_step(struct rlk_train *run, struct rlk_train_facts *facts, struct rlk_kdetail *detail);

/* Parameters as logical tensors. */
struct rlk_param_info {
    const char *name; /* as Hugging Face names it */
    int64_t rows, cols;
    int ndim; /* 1 for norms */
};
int rlk_train_params(const struct rlk_train *run);
struct rlk_param_info rlk_train_param(const struct rlk_train *run, int param);

enum rlk_train_kind {
    RLK_TRAIN_WEIGHT,  /* bf16, as the trainer holds it now */
    RLK_TRAIN_MASTER,  /* fp32 */
    RLK_TRAIN_GRAD,    /* fp32, of the last step, before clipping */
    RLK_TRAIN_ROLLOUT, /* bf16, as the rollout holds it */
};
/* Copies one whole parameter to host memory. RLK_K_ESTATE: two ranks that hold an element disagree about its bits. */
int rlk_train_copy(struct rlk_train *run, enum rlk_train_kind kind, int param, void *out, struct rlk_kdetail *detail);

/* SHA-256, hex, of one parameter's bf16 bytes, row-major, as the rollout holds it: of the weight version in use. */
int rlk_train_hash(struct rlk_train *run, int param, char out[65], struct rlk_kdetail *detail);

/* Names of the faults that can be planted, NULL past the last, and what each does. */
const char *rlk_plant_name(int n);
const char *rlk_plant_help(int n);

#ifdef __cplusplus
}
#endif
#endif
