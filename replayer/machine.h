/* machine.h - what executes a program: values on the ranks of the new layout, and the operators. Internal.
 *
 *  machine.c   values, their memory, and operands by name
 *  replay.c    the loop over the instructions
 *  operators.c, operators_run.c, operators_state.c, operators_regroup.c   what each operator does
 *  alone.c     operands from recorded bytes
 */
#ifndef REPLAYER_MACHINE_H
#define REPLAYER_MACHINE_H

#include "replayer/program.h"
#include "replayer/run.h"

enum rlki_shape {
    RLKI_TOKENS_BY, /* [tokens of the batch][width], width cut by TP where `slab` */
    RLKI_PARAMETER, /* [rows][cols], cut as a parameter */
    RLKI_CACHED,    /* [rows][width], width cut by TP */
    RLKI_HOST,      /* rows x cols elements of host memory, the same on every rank */
};
struct rlki_form {
    enum rlki_shape shape;
    enum rlk_ktype type;
    int64_t width, rows, cols;
    bool slab, vocab;
    enum rlk_cut cut;
    int ndim, side;
    rlk_u128 batch; /* content of the runs that `tokens` are of */
};
struct rlki_buffer {
    struct rlki_ptrs at;
    size_t bytes[RLKI_RANKS];
    int held, refs;
    bool host;
};
struct rlki_value {
    struct rlki_form form;
    struct rlki_buffer *buffer; /* NULL = not there */
    bool computed;              /* operator replay: its bytes were not recorded */
};

struct rlki_runs_now { /* of the rlk.batch in force */
    uint32_t instr;    /* RLKI_NO_VALUE = none */
    int side, n;
    int64_t samples;
    rlk_u128 id;
    int32_t (*row)[4]; /* row of `sequences`, first, length, prompt */
    struct rlk_batch *batch;
    int64_t tokens;
};

struct rlki_machine {
    struct rlk_train *run;
    struct rlk_program *program;
    const struct rlk_replay_options *opt;
    struct rlki_value *value;
    struct rlki_runs_now now;
    struct rlki_micro micro; /* ids, targets of the batch in force */
    struct rlki_totals totals;
    bool have_metrics;
    struct rlk_policy *provider;
    /* free memory of the device by size class */
    struct rlki_spare {
        void **p;
        size_t n, room;
    } spare[256];
    uint64_t *measured; /* hash set of what the workspace was sized for */
    size_t nmeasured, room_measured;
    int64_t rope_positions;
    double rope_theta;
    int rope_dim;
    size_t memory, most; /* bytes taken, and the bound */
    const char **vocab;  /* names of parameters whose rows are a vocabulary */
    size_t nvocab;
    int64_t sample_rows, sample_cols;
    /* spans of the event before */
    const char *phase, *pass;
    int64_t step, work, iteration;
    bool begun;
};

struct rlki_exec { /* one instruction in execution */
    struct rlki_machine *m;
    struct rlk_train *run;
    struct rlk_world *w;
    const struct rlk_batch *b;
    struct rlki_instr *in;
    uint32_t at;
    int rc;
    const char *why;                         /* not replayable: why */
    bool recorded;                           /* its inputs are as recorded */
    uint64_t key;                            /* of the operands' sizes */
    const struct rlk_batch *const *batch_of; /* by input, where they are of other batches than b; else NULL */
};

/* ---- machine.c ---- */

/* Operands by name. NULL after a failure (x->rc). type 0, width -1, slab -1: any. */
const struct rlki_value *rlki_tokens_in(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t width,
                                        int slab);
const struct rlki_value *rlki_parameter_in(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t rows,
                                           int64_t cols, enum rlk_cut cut, bool vocab);
const struct rlki_value *rlki_value_in(struct rlki_exec *x, const char *name, enum rlki_shape shape,
                                       enum rlk_ktype type);
bool rlki_has_input(const struct rlki_exec *x, const char *name);
/* The recorded tensor, NULL if there is none. */
const struct rlk_tensor *rlki_recorded(const struct rlki_exec *x, const char *name, bool output);

/* Results by name. NULL after a failure. */
struct rlki_ptrs *rlki_tokens_out(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t width, bool slab);
struct rlki_ptrs *rlki_result(struct rlki_exec *x, const char *name, const struct rlki_form *form);
/* The input `in` as the result `out`: its own memory where nobody reads it any more, else a copy. */
struct rlki_ptrs *rlki_inout(struct rlki_exec *x, const char *in, const char *out, const struct rlki_value *value);
/* The result is the input itself. */
void rlki_alias(struct rlki_exec *x, uint32_t output, uint32_t value);

int64_t rlki_form_local(const struct rlki_machine *m, const struct rlki_form *f, int i);
struct rlk_world *rlki_side_world(struct rlki_machine *m, int side);
void rlki_no_memory(struct rlki_exec *x, const char *what);
int rlki_not_replayable(struct rlki_exec *x, const char *why);
void rlki_use_done(struct rlki_machine *m, uint32_t at);
void rlki_value_drop(struct rlki_machine *m, uint32_t value);
void rlki_machine_free(struct rlki_machine *m);
/* Host memory of a HOST value. */
static inline void *rlki_host(const struct rlki_value *v)
{
    return v->buffer->at.p[0];
}
/* Call before the operator: the workspace fits what `measure` finds. */
bool rlki_measured(struct rlki_exec *x);
void rlki_measure_end(struct rlki_exec *x);

/* owner and at of the batch in force, and ids and targets where `sequences` is not NULL. */
int rlki_micro_of(struct rlki_exec *x, const struct rlki_value *sequences);
/* An event of the run's own, as it was recorded: begin tells the inputs, end the outputs. */
void rlki_own_begin(struct rlki_exec *x);
void rlki_own_end(struct rlki_exec *x);
/* The recorded attributes go with the next event. */
void rlki_attrs_again(struct rlki_exec *x);
/* Workspace made to fit, then the call. */
#define RLKI_RUN(x, call)                                                                                              \
    do {                                                                                                               \
        if (!(x)->rc && !rlki_measured(x)) {                                                                           \
            (x)->rc = (call);                                                                                          \
            rlki_measure_end(x);                                                                                       \
        }                                                                                                              \
        if (!(x)->rc)                                                                                                  \
            (x)->rc = (call);                                                                                          \
    } while (0)

/* ---- alone.c ---- */
/* Were the bytes of all its inputs recorded? */
bool rlki_alone_inputs(const struct rlki_machine *m, const struct rlki_instr *in);
/* Recorded bytes in place of what the instruction wrote, where they were kept. */
int rlki_alone_outputs(struct rlki_exec *x, bool recorded_inputs);

/* ---- operators.c ---- */
/* operators_state.c */
int rlki_find_vocab(struct rlki_machine *m);
/* The batch of a note rlk.batch, on the ranks of x->w: runs, id, samples, batch. now->row and now->batch are the
 * caller's to free. */
bool rlki_batch_read(struct rlki_exec *x, const struct rlk_event *note, struct rlki_runs_now *now);
/* Lengths of the samples in the batch in force, into run->sample. */
bool rlki_take_lengths(struct rlki_exec *x);
void rlki_do_regroup(struct rlki_exec *x); /* operators_regroup.c */
void rlki_do_batch(struct rlki_exec *x);
void rlki_do_leaf(struct rlki_exec *x);
void rlki_do_zero(struct rlki_exec *x);
void rlki_do_weights(struct rlki_exec *x);
typedef void (*rlki_operator)(struct rlki_exec *x);
rlki_operator rlki_find_operator(const struct rlk_event *e);
rlki_operator rlki_find_own_operator(const struct rlk_event *e); /* operators_run.c */

#endif
