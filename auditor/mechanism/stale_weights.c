/* stale_weights.c - the rollout computed with weights of an older version.
 *
 * Rule      a rollout's weights tensor holds the bits of a trainer's tensor of that name under another label.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_found *found = f->found;
    if (found->kind == RLK_EV_WEIGHTS && found->stale)
        rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS, "these are the trainer's weights of step %lld, label %.60s",
                   (long long)found->stale_step, rlki_names_text(&f->audit->names, found->stale_label));
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_stale_weights = {
    RLKI_M_STALE_WEIGHTS,
    "look at the weight update of that step: was this tensor sent, and loaded before the first request?", look};
