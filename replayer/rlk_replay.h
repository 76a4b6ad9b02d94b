/* rlk_replay.h - re-executes the program of a recording under another layout, mode or device, and compares.
 *
 * Usage: rlk_program_open, rlk_program_select, look at the facts, rlk_replay_run (announces through the tap, so run it
 * in a process that records), rlk_program_close; rlk_replay_compare counts equal and different tensors of two
 * recordings. docs/replay.md says what a program is. A recording is read as hostile: damage is an error, never a crash.
 *
 * Errors: negative codes of store/rlk_error.h with a struct rlk_detail. RLK_EUNSUPPORTED: refused, the detail says
 * what to do instead. RLK_ESTATE: the recording is incomplete and what is there is no program.
 */
#ifndef REPLAYER_RLK_REPLAY_H
#define REPLAYER_RLK_REPLAY_H

#include "replayer/rlk_train.h"
#include "store/rlk_error.h"

#include <stdio.h>

struct rlk_program;

/* What cannot be replayed, by reason; the first event of each. */
#define RLK_REPLAY_REASONS 32
struct rlk_program_facts {
    uint64_t operators, leaves, events; /* of rank 0 */
    uint64_t provider;                  /* operators that the library's row computed */
    char provider_at[160];              /* the first of them */
    bool complete;                      /* its process ended with an END record */
    uint32_t ranks;
    uint64_t kept; /* operators with kept bytes of what they wrote: what --op needs */
    const char *layout, *rollout_layout;
    const char *plant; /* "none", or the fault that the recorded program had planted */
    uint32_t nreasons;
    struct {
        char text[200];
        uint64_t count;
    } reason[RLK_REPLAY_REASONS];
};

/* dir: a recording, of whose processes one recorded a program. Reads rank 0's events, checks that all ranks ran the
 * same sequence, and resolves every operand. */
int rlk_program_open(struct rlk_program **out, const char *dir, struct rlk_detail *detail);
void rlk_program_close(struct rlk_program *program); /* NULL is allowed */
const struct rlk_program_facts *rlk_program_facts(const struct rlk_program *program);

struct rlk_select {
    const char *only;    /* glob over module paths, NULL = all */
    int64_t first, last; /* steps [first, last) */
};
/* Events that are announced and compared; what they depend on is executed too. */
int rlk_program_select(struct rlk_program *program, const struct rlk_select *select, struct rlk_detail *detail);

struct rlk_replay_options {
    int tp, cp, rollout_tp, rollout_cp; /* rollout_tp 0 = as tp */
    enum rlk_device device;
    unsigned threads;
    const char *contract;
    bool as_recorded; /* an operator that the library's row computed is computed by it again */
    int modes;
    const char *mode[RLK_TRAIN_MODES];
    const char *plant; /* a fault of rlktrain, planted in what replays; NULL = none */
    bool partial;      /* leave out what cannot be replayed, and what depends on it */
    bool alone;        /* operator replay: each operator from its recorded inputs */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};
struct rlk_replay_outcome {
    uint64_t executed, announced, left_out;
};
int rlk_replay_run(struct rlk_program *program, const struct rlk_replay_options *options,
                   struct rlk_replay_outcome *outcome, struct rlk_detail *detail);

struct rlk_replay_difference { /* identity of the first difference, as text */
    char text[700];
};
struct rlk_replay_counts {
    uint64_t equal, different, absent; /* tensors and metrics; absent: the replay does not have it */
    struct rlk_replay_difference first;
};
/* What `select` names, in the order of `a`; of the processes that recorded a program, where one did. */
int rlk_replay_compare(const char *a, const char *b, const struct rlk_select *select, struct rlk_replay_counts *out,
                       struct rlk_detail *detail);

#endif
