/* rng.c - random numbers were drawn from another place of the generator.
 *
 * Rule      seed, offset or grid of the generator differs here and at no earlier consumer.
 * Excludes  atomic-order and race: the numbers drawn differ before any is added up.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->found->rng)
        return RLK_OK;
    rlki_holds(o, RLKI_M_RNG, RLKI_SHOWS,
               "the generator's seed, offset or grid differs here and at no earlier consumer");
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the random numbers drawn differ");
    rlki_excludes(o, RLKI_M_RACE, "the random numbers drawn differ");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_rng = {
    RLKI_M_RNG,
    "seed both sides alike right before this operator, and save and restore the generator's state over recompute",
    look};
