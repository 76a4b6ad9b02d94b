/* counters.h - the identity counters of one rank: `call` and `occurrence` (docs/identity.md section 2, docs/tap.md).
 *
 * Counts are kept for each (step, phase, work, iteration); a rank remembers the last RLKI_PLACES of these, so that
 * interleaved micro-batches go on where they left off. Not thread-safe: the rank's lock is held around every call.
 */
#ifndef RECORDER_COUNTERS_H
#define RECORDER_COUNTERS_H

#include "store/rlk_types.h"

#define RLKI_PLACES 32u

struct rlki_place {  /* one (step, phase, work, iteration) and its counts */
    uint64_t serial; /* 0 = unused; a new one each time the slot is taken again */
    uint64_t used;
    int64_t step, work, iteration;
    rlk_u128 phase;
    struct rlki_count *slots; /* open addressing, a power of two */
    uint32_t capacity, count;
};

struct rlki_counters {
    struct rlki_place places[RLKI_PLACES];
    uint64_t clock;
};

void rlki_counters_release(struct rlki_counters *counters);

rlk_u128 rlki_text_key(const char *text); /* "" and NULL alike */

/* The place of these four, an old one or a new one with all counts at 0. */
struct rlki_place *rlki_counters_place(struct rlki_counters *counters, int64_t step, rlk_u128 phase, int64_t work,
                                       int64_t iteration);

/* Keys of what is counted. */
rlk_u128 rlki_module_key(rlk_u128 pass, rlk_u128 module);                                /* its calls */
rlk_u128 rlki_op_key(rlk_u128 module_key, uint32_t call, bool autotune, const char *op); /* its occurrences */

/* Returns the count so far and raises it by one. Out of memory: 0, *lost set. */
uint32_t rlki_count_next(struct rlki_place *place, rlk_u128 key, bool *lost);
/* Takes back the last one, if nothing was counted since (an operator that threw). */
void rlki_count_undo(struct rlki_place *place, rlk_u128 key, uint32_t count);

#endif
