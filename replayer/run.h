/* run.h - the state of one training run, and what its parts offer each other. Internal.
 *
 *  model.c    known models; parameters and how TP cuts them; seeded values
 *  folder.c safetensors.c  weights from a Hugging Face folder
 *  tensors.c  memory of the ranks: the frame, parameters cut and put together
 *  layers.c   the policy forward, recomputed, and backward
 *  rollout.c  prompts and KV-cache decode
 *  decode.c   decode by captured graphs
 *  grpo.c     rewards, advantages, losses and their sums
 *  train.c    the step
 *  times.c    what it takes
 *  record.c   the listener of the operators, and events of our own, through the tap
 *  digests.c  sums of what is told, where they follow from sums that are there
 *  facts.c    what the cross-layout report is made of: log-probabilities by sample, hashes of weight versions
 *  plant.c, plant_math.c  faults
 */
#ifndef REPLAYER_RUN_H
#define REPLAYER_RUN_H

#include "kernels/rlk_ops.h"
#include "recorder/rlk_tap.h"
#include "replayer/rlk_train.h"

#define RLKI_RANKS 64

/* One tensor: a pointer a held rank. */
struct rlki_ptrs {
    void *p[RLKI_RANKS];
};
#define RLKI_IN(t) ((rlk_in)(t)->p)
#define RLKI_F(t) ((float *const *)(void *const *)(t)->p)
#define RLKI_CF(t) ((const float *const *)(void *const *)(t)->p)

/* ---- model.c ---- */

struct rlki_weight { /* one parameter */
    char name[80];
    int64_t rows, cols;
    int ndim;
    enum rlk_cut cut;
    bool vocab, decay;
    float std; /* of its seeded values; 0 = all ones */
};
enum rlki_slot { /* place of a parameter in its layer */
                 RLKI_NORM1,
                 RLKI_Q,
                 RLKI_K,
                 RLKI_V,
                 RLKI_QNORM,
                 RLKI_KNORM,
                 RLKI_O,
                 RLKI_NORM2,
                 RLKI_GATE,
                 RLKI_UP,
                 RLKI_DOWN,
                 RLKI_SLOTS
};
#define RLKI_EMBED 0
static inline int rlki_layer_param(int layer, enum rlki_slot slot)
{
    return 1 + layer * RLKI_SLOTS + (int)slot;
}
int rlki_model_params(const struct rlk_model_shape *shape, struct rlki_weight **out, int *n);
/* Logical values, rows x cols. Depends on (seed, ordinal of the parameter, element) only. */
void rlki_model_fill(struct rlk_pool *pool, const struct rlki_weight *weight, uint64_t seed, uint32_t ordinal,
                     uint16_t *out);
#define RLKI_GENERATOR "rlk.init.philox/1"
#define RLKI_DEVIATION 0.02f /* of matrices */
#define RLKI_ZEROS "zeros"
/* Leaves of a parameter beside its weight: PREFIX + name. */
#define RLKI_REF "ref."
#define RLKI_MASTER "master."
#define RLKI_EXP_AVG "exp_avg."
#define RLKI_EXP_AVG_SQ "exp_avg_sq."

/* ---- record.c ---- */

struct rlk_train;

struct rlki_known { /* a buffer as the recorder knows it */
    const void *data;
    uint64_t generation, version;
    bool device; /* memory of the exec's device, where that is not the host */
    struct rlki_shadow *shadow;
};
enum rlki_axis { RLKI_AXIS_WHOLE, RLKI_AXIS_TOKENS, RLKI_AXIS_SLABS, RLKI_AXIS_VOCAB };
struct rlki_named { /* a tensor of an event of our own */
    char name[96];
    enum rlk_ktype type;
    int ndim;
    struct {
        enum rlki_axis kind;
        int64_t n;
    } dim[3];
    const char *partial, *replica;
    const struct rlk_batch *batch;
};
struct rlki_rec {
    const struct rlk_tap_api *tap; /* NULL = nobody records */
    struct rlk_tap_ctx *ctx[RLKI_RANKS];
    struct rlk_tap_op *op[RLKI_RANKS];
    struct rlk_observe observe;
    struct rlki_known *known;
    size_t nknown, room;
    bool failed;
    bool muted;    /* what happens is not told, only kept account of */
    bool holding;  /* digests on the device wait for one another */
    int ordinal;   /* of the device whose tensors the recorder digests there; -1 = they are copied to the host */
    void *staging; /* host copy of the tensor that is told, where it is on a device and cannot be digested there */
    size_t staged;
    const char *program; /* the text of meta `rlktrain.program`; NULL = made from the options */
    /* Inputs of the next operator that it does not announce itself: a cache, token ids, the gradient it adds to. */
    struct rlki_extra {
        struct rlki_named t;
        const struct rlki_ptrs *data;
    } extra[8];
    int extras;
    /* Attributes of the next operator, and of the next event of our own. */
    struct rlk_attr attr[16];
    int attrs;
    int64_t cache_rows;
    /* Of the next tensor of an event of our own: its samples (rows of the logical tensor), and keep its bytes. */
    uint32_t nsamples;
    const struct rlk_sample_part *samples;
    bool payload;
    bool grows; /* outputs of this event of our own are buffers of which a few rows were written */
    struct rlki_twins *twins;
    uint64_t call;          /* of the operator that was heard last */
    size_t shadows;         /* bytes of copies */
    struct rlki_rows *rows; /* of the micro-batch in flight, where per-sample sums are asked for */
};

struct rlki_micro;
struct rlki_rows;
int rlki_rec_init(struct rlk_train *run);
void rlki_rec_release(struct rlk_train *run);
/* Spans of every rank of the run. */
void rlki_rec_step(struct rlk_train *run, int64_t step);
void rlki_rec_phase(struct rlk_train *run, const char *phase);
void rlki_rec_work(struct rlk_train *run, int64_t work, int64_t iteration);
void rlki_rec_pass(struct rlk_train *run, const char *pass);
/* A buffer at this address is a new one; somebody wrote into it without an event. */
void rlki_rec_fresh(struct rlk_train *run, const void *data);
void rlki_rec_fresh_device(struct rlk_train *run, const void *data); /* the same for memory of rlk_exec_alloc */
void rlki_rec_written(struct rlk_train *run, const void *data);
/* One event on every rank of w. Between begin and end: tensors, inputs first. All are nothing when nobody records. */
void rlki_rec_begin(struct rlk_train *run, const struct rlk_world *w, const char *module, const char *op,
                    const char *contract);
void rlki_rec_tensor(struct rlk_train *run, const struct rlk_world *w, const struct rlki_named *t,
                     const void *const *data, bool output);
/* The note rlk.batch (docs/replay.md): what the events after it compute on. runs: [n][4] of row, first, length,
 * prompt. */
#define RLKI_BATCH "rlk.batch"
void rlki_rec_batch(struct rlk_train *run, const struct rlk_world *w, int n, const int32_t *runs);
/* The next operator reads this too. */
void rlki_rec_also(struct rlk_train *run, const struct rlki_named *t, const struct rlki_ptrs *data);
/* The event's operator reads what the TP ranks hold, with cp the CP ranks too: attribute `combines`. */
void rlki_rec_combines(struct rlk_train *run, const struct rlk_world *w, bool cp);
/* The next operator, or event of our own, carries this attribute. `key` and text are kept until then. */
void rlki_rec_attr(struct rlk_train *run, const char *key, double value);
void rlki_rec_attr_int(struct rlk_train *run, const char *key, int64_t value);
void rlki_rec_attr_put(struct rlk_train *run, const struct rlk_attr *attr);
void rlki_rec_end(struct rlk_train *run, const struct rlk_world *w);
void rlki_rec_weights(struct rlk_train *run, const struct rlk_world *w, const char *version, const char *side,
                      const struct rlki_ptrs *weight);
/* A parameter, or a gradient or a state of its shape, as `name`. */
struct rlki_named rlki_named_parameter(const struct rlki_weight *w, const char *name, enum rlk_ktype type);
struct rlki_source { /* of a leaf: a place in a file with the hash of its bytes, or a generator and its seed */
    const char *reference, *sha256, *generator;
    uint64_t seed;
};
void rlki_rec_leaves(struct rlk_train *run);
void rlki_rec_leaf(struct rlk_train *run, const struct rlki_weight *p, const char *prefix, enum rlk_ktype type,
                   const struct rlki_ptrs *at, const struct rlki_source *source);
void rlki_rec_metric(struct rlk_train *run, const char *name, double value);
void rlki_rec_readbacks(struct rlk_train *run);
void rlki_rec_request(struct rlk_train *run, int sample);

/* Device tensors that are told from here on are digested together, at the latest when it goes off: nothing writes to
 * them until then. The outputs of all ranks of an operator are. */
void rlki_rec_hold(struct rlk_train *run, bool on);
/* What record.c knows of the buffer at `data`; NULL = nothing. */
struct rlki_known *rlki_rec_known(struct rlk_train *run, const void *data);

/* ---- digests.c ---- */

/* The sums of t, an output that is told, without reading all of it where they follow from what was told before. false:
 * the recorder is to make them. grows: a buffer of which a few rows were written. */
bool rlki_sums(struct rlk_train *run, struct rlki_known *k, const struct rlk_tap_tensor *t, bool grows,
               struct rlk_sums *sums);
struct rlki_twins *rlki_twins_new(void); /* NULL: out of memory, nothing is remembered */
/* What was told so far is no twin of what follows: its memory may go. */
void rlki_twins_forget(struct rlk_train *run);
void rlki_shadow_free(struct rlk_train *run, struct rlki_known *k);

/* A micro-batch begins, or ends (NULL): tensors of its tokens get per-sample sums, if asked for. */
void rlki_rec_micro(struct rlk_train *run, const struct rlki_micro *m);

/* ---- facts.c ---- */

/* Rows of samples in a tensor whose dimension 0 is tokens, one sample after the other. */
struct rlki_rows {
    int n;
    struct rlk_sample_part part[1];
};
/* Of `count` samples who[i] (NULL: 0, 1, ...): all tokens but the last `less`; `apart` rows a sample, 0 = as many as it
 * has tokens. NULL: out of memory. */
struct rlki_rows *rlki_rows_of(struct rlk_train *run, const int *who, int count, int64_t apart, int32_t less);

/* The drawn tokens' log-probabilities of the rollout, all samples; then those of the training forward of samples
 * [first, first+count), whose operator left `logp`. Both with their bytes, by sample: rlk.grpo.logprobs. */
void rlki_rec_rollout_logprobs(struct rlk_train *run);
void rlki_rec_train_logprobs(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_ptrs *logp);
/* Keys and values of every layer by sample: what the rollout's caches hold at its end (`rows` rows a sample), and what
 * the training forward makes of the same tokens: rlk.grpo.kv. */
struct rlki_pass;
void rlki_rec_rollout_kv(struct rlk_train *run, const struct rlki_ptrs *k, const struct rlki_ptrs *v, int64_t rows);
void rlki_rec_train_kv(struct rlk_train *run, const struct rlki_pass *p, int layer, const struct rlki_ptrs *k,
                       const struct rlki_ptrs *v);
struct rlki_named rlki_named_rollout_logp(const struct rlk_train *run);
/* SHA-256 of every parameter of the version in use, into run->hash, where they are not there yet. */
int rlki_hashes(struct rlk_train *run);
/* The hash of every parameter as the rollout holds it: a note, docs/report.md. */
int rlki_rec_hashes(struct rlk_train *run, const char *version);
/* Zeroed memory that every rank has its own copy of, so that each has its own producers; one for all of them where
 * nobody records. Write into p[0], then rlki_host_spread. Freed by free(p[0]). */
int rlki_host_new(struct rlk_train *run, struct rlki_ptrs *at, size_t bytes);
void rlki_host_spread(const struct rlki_ptrs *at, size_t bytes);

/* ---- plant.c ---- */

struct rlki_local {   /* what a rank holds of an input */
    const void *data; /* host memory: the copy, where the tensor is on a device */
    void *copy;       /* taken before the operator ran, where it works in place or on a device */
    int64_t n[4];
};
struct rlki_noted { /* an input of the call that is spoiled */
    char name[16];
    enum rlk_ktype type;
    int ndim;
    struct rlki_local at[RLKI_RANKS];
};
struct rlki_plant {
    int which; /* -1 = none */
    bool armed;
    uint64_t call;
    int inputs;
    struct rlki_noted in[8];
    float *rope;              /* host copy of the run's, on a device */
    const void *first_logp;   /* of TP rank 0, in the call in flight */
    struct rlk_policy *other; /* of the recomputation, when that is the fault */
};
int rlki_plant_init(struct rlk_train *run);
void rlki_plant_release(struct rlk_train *run);
void rlki_plant_begin(struct rlk_train *run, const struct rlk_op_event *event);
/* Before a tensor is recorded: takes note of inputs, spoils outputs. */
void rlki_plant_tensor(struct rlk_train *run, const struct rlk_op_event *event, const struct rlk_observed *tensor);
bool rlki_plant_stale(const struct rlk_train *run, int param, int rank);
const struct rlki_local *rlki_plant_input(const struct rlk_train *run, const char *name, int rank);
/* The run's table of cosines and sines, in host memory; NULL = out of memory. */
const float *rlki_plant_rope(struct rlk_train *run);
/* plant_math.c: what the faulty operator writes into `out`, the output of event->rank. */
void rlki_spoil_rank_order(struct rlk_train *run, const struct rlk_op_event *event, void *out);
void rlki_spoil_dx(struct rlk_train *run, const struct rlk_op_event *event, void *out);
void rlki_spoil_dw(struct rlk_train *run, const struct rlk_op_event *event, void *out);
void rlki_spoil_ring(struct rlk_train *run, const struct rlk_op_event *event, void *out, bool lse);
void rlki_spoil_vocab(struct rlk_train *run, const struct rlk_op_event *event, void *out, bool stats);
void rlki_spoil_zigzag(struct rlk_train *run, const struct rlk_op_event *event, void *out);
/* The policy of a pass. */
struct rlk_policy *rlki_plant_policy(struct rlk_train *run, bool recompute);

/* ---- the run ---- */

struct rlki_frame { /* memory of activations: taken in order, given back to a mark */
    struct rlki_chunk {
        char *base;
        size_t size, used;
    } * chunk;
    int chunks, at;
    /* Of tensors by token: taken as if the batch had `rows` rows at least, and shown from row `first` on. */
    int64_t rows, first;
};

#define RLKI_CAPTURE 4 /* sequences of a captured decode pass, at most */
struct rlki_decoder {  /* decode.c: what outlives a rollout */
    struct rlki_frame frame;
    void *workspace;
    size_t workspace_bytes;
    struct rlk_batch *batch[RLKI_CAPTURE + 1], *whole;
    int sequences;            /* of `whole` */
    struct rlk_graph **graph; /* [first row / RLKI_CAPTURE][sequences - 1] */
    int graphs;
};

struct rlki_sample {
    int32_t *token; /* prompt, then response */
    int32_t prompt, length;
    float *rollout, *old, *ref, *now; /* by response token */
    double reward, advantage;
};

enum { RLKI_METRICS = 64 };

/* Seconds of a step: its parts, then what is inside them. */
enum rlki_time {
    RLKI_TIME_ROLLOUT,
    RLKI_TIME_PREPARE,
    RLKI_TIME_REF,
    RLKI_TIME_OLD,
    RLKI_TIME_TRAIN,
    RLKI_TIME_WEIGHTS,
    RLKI_TIME_STEP,
    RLKI_TIME_PREFILL,
    RLKI_TIME_DECODE,
    RLKI_TIME_ZERO,
    RLKI_TIME_FORWARD,
    RLKI_TIME_LOSS,
    RLKI_TIME_BACKWARD,
    RLKI_TIME_GRAD_NORM,
    RLKI_TIME_OPTIMIZER,
    RLKI_TIME_EXPORT,
    RLKI_TIME_HASH,
    RLKI_TIMES
};

struct rlk_train {
    struct rlk_train_options opt;
    struct rlk_exec x;
    struct rlk_pool *pool;
    struct rlk_policy *policy;
    void *workspace;
    struct rlk_world train, roll;
    int params;
    struct rlki_weight *param;
    struct rlki_ptrs *weight, *ref, *master, *m, *v, *grad; /* trainer, by parameter */
    struct rlki_ptrs *rweight;                              /* rollout */
    float *rope;
    uint32_t *differ; /* of the device */
    char (*hash)[65]; /* of rweight, by parameter */
    bool hashed;
    int64_t positions;
    struct rlki_frame frame;
    struct rlki_decoder decoder;
    struct rlki_sample *sample;
    int *order;                    /* samples as they are packed into micro-batches */
    struct rlki_micro *scored;     /* micro-batches of log_probs, where training packs otherwise; else NULL */
    struct rlki_ptrs regrouped[2]; /* kept log-probabilities of the training micro-batch in flight, then */
    /* Host memory of every rank, equal on all of them (rlki_host_new): all tokens [samples][prompt + fresh], advantages
     * [samples], log-probabilities of the rollout [samples][fresh], the same packed, the gradient norm. */
    struct rlki_ptrs sequences, advantages, rollout_logp, logps, norm;
    struct rlki_ptrs *kept[2]; /* ref, old log-probabilities by micro-batch: host memory */
    int64_t step;
    struct rlki_rec rec;
    struct rlki_plant plant;
    const char *pass;
    bool in_rollout;
    const struct rlki_micro *micro; /* of the training side, in flight */
    struct rlk_metric metric[RLKI_METRICS];
    int metrics;
    double grad_norm;
    struct {
        double start, part, lap; /* clocks */
        double seconds[RLKI_TIMES];
    } times;
    /* views for facts */
    const int32_t **f_sequence;
    const float **f_logp[4];
    int32_t *f_length, *f_prompt;
    double *f_reward, *f_advantage;
};

/* ---- tensors.c ---- */

/* [n][width] of the batch's local tokens (batch NULL: `width` elements) on every held rank. */
int rlki_frame_take(struct rlk_train *run, const struct rlk_world *w, const struct rlk_batch *b, int64_t width,
                    enum rlk_ktype type, struct rlki_ptrs *out);
struct rlki_mark {
    int at;
    size_t used;
};
struct rlki_mark rlki_frame_mark(const struct rlk_train *run);
void rlki_frame_back(struct rlk_train *run, struct rlki_mark mark);
void rlki_frame_release(struct rlk_train *run);

int64_t rlki_local_elements(const struct rlk_world *w, const struct rlki_weight *p, int i);
/* Would the parameters' memory be there? On the CPU the system promises more than it has, and kills who takes it. */
int rlki_memory_fits(struct rlk_train *run);
/* Persistent memory of one parameter on every held rank. */
int rlki_param_alloc(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                     struct rlki_ptrs *out);
/* skip: a rank whose part stays as it is, -1 = none. */
int rlki_param_cut(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                   const void *logical, const struct rlki_ptrs *to, int skip);
/* The trainer's parameter to the rollout, on the device. *differ, memory of the device, becomes 1 where two trainer
 * ranks that hold an element disagree. */
int rlki_param_move(struct rlk_train *run, const struct rlki_weight *p, enum rlk_ktype type,
                    const struct rlki_ptrs *from, const struct rlki_ptrs *to, uint32_t *differ);
int rlki_param_join(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                    const struct rlki_ptrs *from, void *logical);
/* Runs work(arg) once measuring and makes room for what it takes. */
int rlki_room(struct rlk_train *run, int (*work)(void *arg), void *arg);

/* ---- layers.c ---- */

struct rlki_pass { /* one packed batch through the policy */
    struct rlk_train *run;
    struct rlk_world *w;
    const struct rlk_batch *b;
    const struct rlki_ptrs *weight;
    const int32_t *ids, *targets; /* by global token */
    struct rlki_ptrs *at_layer;   /* layers + 1 inputs, when kept for a backward; else NULL */
    struct rlki_ptrs x;           /* output of the last layer */
    struct rlki_ptrs h, rstd;     /* final norm */
    struct rlki_ptrs logp, stats;
    /* decode */
    const int32_t *cache_row;
    struct rlki_ptrs *k_cache, *v_cache; /* by layer */
};
/* Embedding, layers, final norm. */
int rlki_forward(struct rlki_pass *p);
/* Log-probabilities of p->targets from p->h. */
int rlki_logp(struct rlki_pass *p);
/* From d loss / d logp, layers recomputed one by one. Adds to run->grad. */
int rlki_backward(struct rlki_pass *p, const struct rlki_ptrs *dlogp);
const struct rlki_ptrs *rlki_head(const struct rlk_train *run, const struct rlki_ptrs *weight);
struct rlk_logp rlki_head_args(const struct rlki_pass *p);

/* ---- rollout.c, decode.c, grpo.c ---- */

struct rlki_turn { /* one pass of the rollout over its live samples */
    struct rlk_train *run;
    struct rlk_batch *batch;
    const int32_t *ids, *cache_row, *first; /* by token; by sequence */
    const uint64_t *id_of;                  /* by token: its sample */
    struct rlki_ptrs *k_cache, *v_cache;
    struct rlki_ptrs z, y, token; /* logits, log-softmax, drawn ids */
};
/* Forward, logits, drawn tokens, log-softmax. arg = struct rlki_turn. */
int rlki_turn_pass(void *arg);
/* Are decode passes captured? */
static inline bool rlki_captures(const struct rlk_train *run)
{
    return run->x.device != RLK_DEVICE_CPU && !run->opt.eager_decode;
}
/* Memory of the decode passes in place of the run's, and back: the same addresses in every rollout. */
void rlki_decoder_swap(struct rlk_train *run);
/* A pass of n sequences of one token by replays, then told. t->batch is set. Between two swaps. */
int rlki_decode(struct rlki_turn *t, int n);
void rlki_decoder_release(struct rlk_train *run);

int rlki_rollout(struct rlk_train *run);
/* Token `at` of the prompt of a group of samples. */
int32_t rlki_prompt_token(uint64_t seed, int64_t step, int64_t group, int32_t at, int64_t vocab);

/* A micro-batch: samples [first, first+count) packed. Arrays are by global token of the batch. */
struct rlki_micro {
    int first, count, number;
    const int *who; /* its samples, in the order of the batch */
    struct rlk_batch *batch;
    int64_t tokens;
    int32_t *ids, *targets;
    int32_t *owner, *at; /* sample, and its response token that this token predicts; -1 = none */
};
struct rlki_named rlki_named_sequences(const struct rlk_train *run);
struct rlki_named rlki_named_advantages(const struct rlk_train *run);
struct rlki_named rlki_named_cache(const struct rlk_train *run, const char *name, int kv_heads, int head_dim);
/* Keeps p->logp of micro-batch mb for the loss (which: 0 ref, 1 old). */
/* Micro-batches of log_probs, of training. */
static inline int rlki_batches(const struct rlk_train *run, bool scoring)
{
    return scoring && run->opt.score_batches ? run->opt.score_batches : run->opt.micro_batches;
}
/* What log_probs kept, dealt out to the training micro-batch m where it packs other samples. */
int rlki_regroup(struct rlk_train *run, const struct rlki_micro *m);
void rlki_regroup_end(struct rlk_train *run);
int rlki_keep(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, int mb, int which);
void rlki_keep_nothing(struct rlk_train *run);
int rlki_micro_new(struct rlk_train *run, int first, int count, struct rlki_micro *out);
void rlki_micro_tell(struct rlk_train *run, const struct rlki_micro *m); /* its rlk.batch */
void rlki_micro_free(struct rlk_train *run, struct rlki_micro *m);
/* Downloads logp and stores it with the samples (which: 0 ref, 1 old, 2 now). */
int rlki_micro_store(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_ptrs *logp, int which);
/* Rewards and advantages of all samples. */
void rlki_rewards(struct rlk_train *run);
enum rlki_sum {
    RLKI_SUM_LOSS,
    RLKI_SUM_PG,
    RLKI_SUM_KL,
    RLKI_SUM_CLIP,
    RLKI_SUM_PPO_KL,
    RLKI_SUM_ABS,
    RLKI_SUM_OIS,
    RLKI_SUM_WEIGHT,
    RLKI_SUMS
};
struct rlki_totals {
    double sum[RLKI_SUMS], entropy;
    double max_abs, mismatches, tokens;
};
/* Losses of the micro-batch from p->logp: dlogp on every rank, sums added to *totals. */
int rlki_losses(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, struct rlki_ptrs *dlogp,
                struct rlki_totals *totals);
/* The parts that rlki_losses, rlki_entropy and rlki_rewards are made of. */
struct rlki_losses {
    struct rlki_ptrs *dlogp, sum[RLKI_SUMS];
    float *host; /* [RLKI_LOSS_ROWS][tokens + 1] */
};
enum { RLKI_LOSS_ROWS = RLKI_SUMS + 2 };
extern const char *const rlki_sum_module[RLKI_SUMS];
int rlki_rank_losses(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, int i,
                     struct rlki_losses *b, struct rlki_totals *totals);
int rlki_entropies(struct rlk_train *run, const struct rlki_micro *m, const struct rlk_world *w, int64_t vocab,
                   const struct rlki_ptrs *log_softmax, const struct rlki_ptrs *entropy);
void rlki_rewards_of(struct rlk_train *run);
int rlki_entropy(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p,
                 struct rlki_totals *totals);

/* ---- train.c ---- */

/* Device, policy, worlds, fault and recorder of run->opt. */
int rlki_run_open(struct rlk_train *run);
/* Memory of opt.samples sequences of opt.prompt + opt.fresh tokens. */
int rlki_alloc_samples(struct rlk_train *run);
/* The metrics of a step into run->metric, told as they are made. */
void rlki_metrics(struct rlk_train *run, const struct rlki_totals *t);
void rlki_metric(struct rlk_train *run, const char *name, double value);

/* ---- times.c: what a step takes. A border waits for the device. ---- */

void rlki_times_begin(struct rlk_train *run);
void rlki_times_part(struct rlk_train *run, enum rlki_time part); /* it ends here, the next one begins */
void rlki_lap(struct rlk_train *run, enum rlki_time inside);      /* since the border before; adds up */
void rlki_times_tell(struct rlk_train *run);                      /* metrics perf/... */

/* Operators are called and nothing is to be told of it: a measurement, or a graph that is captured or filled. */
static inline bool rlki_quiet(const struct rlk_train *run)
{
    return run->x.measuring || run->x.silent;
}

static inline int rlki_fail_memory(struct rlk_train *run, const char *what)
{
    return rlk_kfail(&run->x.detail, RLK_K_ENOMEM, "out of memory for %s", what);
}

#endif
