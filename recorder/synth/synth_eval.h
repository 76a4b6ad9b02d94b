/* synth_eval.h - one rank's tensors: references, edits, digests, producers. Internal.
 *
 * A rank's state is arrays by the numbers of synth_spec.h. What a tensor of the spec evaluated to is kept together with
 * the values it was made from, so that thousands of ranks with the same tensors cost one evaluation.
 */
#ifndef RECORDER_SYNTH_SYNTH_EVAL_H
#define RECORDER_SYNTH_SYNTH_EVAL_H

#include "recorder/synth/synth_value.h"

struct sy_result { /* what one TENSOR evaluated to, last time */
    bool valid, digested;
    uint32_t ndeps;
    struct sy_value **deps; /* values it was made from, counted; NULL entries stand for "not shard" */
    struct sy_value *value;
    struct rlk_sums sums;
    bool composable;
    struct rlk_sample_part *samples; /* with sums; nsamples of the tensor */
};

struct sy_output { /* an output that later inputs may refer to */
    uint32_t index;
    const struct sy_tensor *tensor;
    struct sy_value *value;
};

struct sy_made { /* the last event that wrote a buffer or a name */
    uint64_t seq;
    uint32_t n, room;
    struct sy_output *outputs;
};

struct sy_eval {
    const struct sy_spec *spec;
    struct rlk_detail *detail;
    struct sy_heap heap;
    struct sy_result *results; /* spec->ntensors */
    struct sy_value *marker;   /* a dependency that says "this rank is the shard" */
    uint64_t *bits;            /* scratch of masks */
    uint64_t bits_words;

    /* Of the rank at hand. */
    uint32_t rank;
    struct sy_value **latest; /* by name */
    struct sy_made *by_name, *by_alloc;
    uint32_t *occurrences;
};

int sy_eval_init(struct sy_eval *eval, const struct sy_spec *spec, struct rlk_detail *detail);
void sy_eval_release(struct sy_eval *eval);
void sy_eval_begin_rank(struct sy_eval *eval, uint32_t rank); /* forgets the rank before */

/* Where a tensor is, for messages. */
struct sy_where {
    size_t event;
    const char *list;
    size_t index;
};

/* Evaluates t on the current rank, makes it the latest of its name and fills *out, by reference where `is_input` and
 * its producer's output is equal. out->payload is left to the caller. The pointers in *out last until sy_eval_done(t).
 */
int sy_eval_tensor(struct sy_eval *eval, const struct sy_tensor *t, const struct sy_where *where, bool is_input,
                   struct rlk_tensor *out);
/* After the event was put: t may give its memory back. */
void sy_eval_done(struct sy_eval *eval, const struct sy_tensor *t);
/* Output t (index among the outputs) of event `seq` is the producer of what follows. Before sy_eval_done(t). */
int sy_eval_produced(struct sy_eval *eval, const struct sy_tensor *t, uint64_t seq, uint32_t index);

/* Digest of the value and of its samples (synth_digest.c). */
int sy_digest(const struct sy_tensor *t, struct sy_result *result, struct rlk_detail *detail);
/* 0 = the output itself, else a hash of the geometry through which the input sees it. */
int sy_view(const struct sy_tensor *in, const struct sy_tensor *out, rlk_u128 *view);

#endif
