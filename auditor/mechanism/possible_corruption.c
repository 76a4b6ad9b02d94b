/* possible_corruption.c - one result stands alone against many of the same operator on the same inputs.
 *
 * Rule      the recorded output of one side is not what relaunches give, and at least three of them, all or all but
 *           one, agree with each other - it shows that this one execution went wrong; hardware, or a neighbour that
 *           wrote over it. Never without relaunches.
 * Evidence  the relaunches; that the other side repeats itself.
 * Excludes  atomic-order: the operator repeats itself when it is run alone.
 * Next      the same on another GPU.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    bool alone[2] = {false, false};
    if (!f->both || !f->output)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        struct rlki_relaunch r;
        int rc = rlki_relaunch_of(f, s, &r);
        if (rc)
            return rc;
        if (!r.repeats)
            continue;
        alone[s] = !r.matches && r.agree >= 3 && r.agree + 1 >= r.repeats;
        if (alone[s])
            rlki_holds(o, RLKI_M_POSSIBLE_CORRUPTION, RLKI_SHOWS,
                       "%u of %u relaunches agree with each other, and not with what %c recorded", r.agree, r.repeats,
                       s ? 'B' : 'A');
        else
            rlki_remark(o, "%u of %u relaunches in %c agree, the recorded output is %sone of them", r.agree, r.repeats,
                        s ? 'B' : 'A', r.matches ? "" : "not ");
    }
    if (!alone[0] && !alone[1])
        return RLK_OK;
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "relaunched alone, the operator repeats itself");
    if (!f->launches.known || f->launches.same)
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS, "a neighbour that wrote over the output would leave the same");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_possible_corruption = {
    RLKI_M_POSSIBLE_CORRUPTION,
    "rerun the step on another GPU: if the minority stays with the machine, take it out and run the vendor's "
    "diagnostics "
    "(dcgmi diag -r 3)",
    look};
