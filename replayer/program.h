/* program.h - the program that a recording holds, as rank 0 ran it (docs/replay.md, "The program"). Internal.
 *
 * The file is hostile: every index is checked here, shapes where an operator uses them.
 */
#ifndef REPLAYER_PROGRAM_H
#define REPLAYER_PROGRAM_H

#include "replayer/rlk_replay.h"
#include "store/rlk_place.h"
#include "store/rlk_recording.h"

enum { RLKI_SIDE_TRAINER = 0, RLKI_SIDE_ROLLOUT = 1, RLKI_SIDE_BOTH = 2, RLKI_SIDES = 3 };
#define RLKI_NO_VALUE UINT32_MAX

struct rlki_instr { /* one event of rank 0 */
    struct rlk_event e;
    uint8_t side;
    bool provider;    /* was computed by the library's row */
    bool wanted;      /* selected: announced and compared */
    bool needed;      /* executed: wanted, or what a wanted one depends on */
    const char *why;  /* NULL, or why it cannot be replayed */
    uint32_t ordinal; /* n-th operator of its side on this rank */
    uint32_t inputs, outputs;
    uint32_t first_input; /* place of its inputs in program->input; a weights event: of what its tensors were */
    uint32_t first_value; /* of its outputs; for its side's runs: see batch */
    uint32_t batch;       /* instruction of the rlk.batch in force, RLKI_NO_VALUE = none */
};

struct rlki_ranks { /* who ran what */
    uint64_t *seq[RLKI_SIDES];
    uint32_t n[RLKI_SIDES], room[RLKI_SIDES];
    uint64_t sum[RLKI_SIDES]; /* of identities in order */
};

struct rlk_program {
    struct rlk_recording *recording;
    struct rlk_env *env;
    struct rlk_arena arena;
    struct rlki_instr *instr;
    uint32_t n, room;
    uint32_t *input; /* value of each input; RLKI_NO_VALUE = none: from its own payload, if it has one */
    uint32_t ninput, room_input;
    uint32_t values;
    uint32_t *maker;    /* by value: instruction */
    uint32_t *last_use; /* by value: instruction, RLKI_NO_VALUE = none */
    struct rlki_ranks rank[64];
    struct rlk_program_facts facts;
    char layout[64], rollout[64], text[512], plant[32];
    bool hashes; /* of weights are recorded */
};

/* Attribute of an event, or `otherwise`. */
double rlki_attr(const struct rlk_event *e, const char *key, double otherwise);
int64_t rlki_attr_int(const struct rlk_event *e, const char *key, int64_t otherwise);
const char *rlki_attr_text(const struct rlk_event *e, const char *key);
/* NULL, or why no operator here computes this event. */
const char *rlki_unknown_operator(const struct rlk_event *e);
void rlki_program_reason(struct rlk_program *p, const struct rlk_event *e, const char *why);
bool rlki_selected(const struct rlk_select *select, const struct rlk_event *e);

#endif
