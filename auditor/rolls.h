/* rolls.h - (phase, module, pass) nodes of one step as roll-ups have them, and which of those that differ came first
 * (internal).
 */
#ifndef AUDITOR_ROLLS_H
#define AUDITOR_ROLLS_H

#include "auditor/side.h"

/* Where something stands in the order of its rank: environments in order, sequence numbers inside. */
struct rlki_pos {
    uint32_t env;
    uint64_t seq;
};
int rlki_pos_compare(struct rlki_pos a, struct rlki_pos b);

struct rlki_roll {
    uint32_t phase, module, pass; /* numbers of names */
    uint64_t key;                 /* of the three: the same in every process */
    rlk_u128 out, in;
    uint64_t events, tensors;
    struct rlki_pos first, last;
};

struct rlki_rolls { /* zero-initialised = empty */
    struct rlki_roll *roll;
    size_t n, cap;
};

/* Do all environments say the pass of their nodes? */
bool rlki_rolls_know_passes(const struct rlki_side *side);
/* The nodes of one (step, rank) by first event; `by_pass` false: those of all passes joined. */
int rlki_rolls_read(struct rlki_side *side, int64_t step, uint32_t rank, bool by_pass, struct rlki_rolls *out,
                    struct rlk_detail *detail);
void rlki_rolls_release(struct rlki_rolls *rolls);

/* One that differs. */
struct rlki_suspect {
    const struct rlki_roll *good, *bad; /* NULL: the side has no such node (or is a baseline) */
    struct rlki_pos first, last;        /* in the order of one side */
    uint64_t ordinal;                   /* place of the node among those of its step and rank */
    bool named, may;                    /* the one to name; another in which the first difference may stand */
};

/* Of n suspects of one step and rank, marks the one to name and those that the order leaves open. The event that
 * differs first stands at or before the earliest `last`: nodes that begin later are out. Where the events of one stand
 * around those of another, the inner one is named. */
void rlki_rolls_suspect(struct rlki_suspect *suspects, size_t n);

#endif
