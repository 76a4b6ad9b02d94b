/* check.h - the checks of one recording, and what they are given (internal). One check a file; docs/check.md. */
#ifndef AUDITOR_CHECK_H
#define AUDITOR_CHECK_H

#include "auditor/audit.h"
#include "auditor/rlk_check.h"

/* An event by its place. */
struct rlki_place_of {
    uint32_t env;
    uint64_t seq;
};

struct rlki_check; /* check.c */

struct rlki_checker {
    const char *name;
    const char *next;  /* what to do about a finding */
    size_t state_size; /* zeroed at the start */
    /* Each may be NULL. `event`: every event outside autotune spans, step by step, each environment in its order; the
     * event is valid during the call. `step`: all events of the step were given. `finish`: all steps were. */
    int (*event)(struct rlki_check *check, void *state, uint32_t env, const struct rlk_event *event);
    int (*step)(struct rlki_check *check, void *state, int64_t step);
    int (*finish)(struct rlki_check *check, void *state);
    void (*release)(void *state);
};

#define RLKI_CHECKERS_X(X) X(recompute) X(replicas) X(weights) X(labels) X(group_rng) X(backend) X(overlap)
#define X(name) extern const struct rlki_checker rlki_checker_##name;
RLKI_CHECKERS_X(X)
#undef X

/* Side 0 is the recording. */
struct rlki_audit *rlki_check_audit(struct rlki_check *check);
/* One more comparison was made. */
void rlki_check_examined(struct rlki_check *check);
/* The event again, its parts in `arena`; RLK_ENOENT as rlk_env_event(). */
int rlki_check_load(struct rlki_check *check, struct rlki_place_of at, struct rlk_arena *arena, struct rlk_event *out);

struct rlki_finding {
    struct rlki_place_of at;
    const struct rlki_place_of *against; /* or NULL */
    uint8_t role;
    uint32_t index;
    const char *name; /* of what differs where the event has no such tensor; NULL = the tensor's */
    bool unknown;     /* root "unknown": not known whether the inputs are equal */
    const char *class, *confidence;
    uint32_t part; /* findings of other parts of one event stay apart */
};
/* Findings of one check on one identity without rank are one: the first is kept, ranks and tensors are counted. The
 * evidence is a sentence. */
int rlki_check_find(struct rlki_check *check, const struct rlki_finding *finding, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* One more sentence for the finding made last, if it was new. */
void rlki_check_evidence(struct rlki_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rlki_check_note(struct rlki_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Are the inputs of the two equal, one by one? MAYBE: one is not known. */
int rlki_check_inputs(struct rlki_check *check, struct rlki_place_of a, const struct rlk_event *ea,
                      struct rlki_place_of b, const struct rlk_event *eb, enum rlki_tri *out);
/* Identity without rank, op or pass: (step, phase, work, iteration, module, call, op, occurrence). */
uint64_t rlki_check_key(const struct rlk_event *event);
uint64_t rlki_check_text(const char *text);            /* hash of a string */
uint64_t rlki_check_sums(const struct rlk_sums *sums); /* hash of a digest */

/* The state of the generator that holds for an event: the last rng event before it on its thread with nothing but syncs
 * in between (docs/identity.md, "Root"). */
struct rlki_generator {
    bool known;
    uint64_t generator, seed, offset, grid; /* generator: hash of its name */
};
struct rlki_generators { /* zeroed = empty */
    struct rlki_generator_of {
        uint32_t env, rank, thread;
        struct rlki_generator rng;
    } * of;
    size_t n, cap;
    bool failed;
};
/* Takes every event in its order; what holds for this one. */
struct rlki_generator rlki_generators_event(struct rlki_generators *rngs, uint32_t env, const struct rlk_event *event);
void rlki_generators_release(struct rlki_generators *rngs);

#endif
