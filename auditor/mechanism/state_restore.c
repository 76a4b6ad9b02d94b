/* state_restore.c - a state that a resume should have brought back was not.
 *
 * Rule      an input that comes from outside the recording, or whose value no recorded event wrote, is optimizer or
 *           scaler state by its name or is read in the optimizer's pass and is no parameter and no gradient. It shows
 *           where it is all zeros on one side only (a state that was made anew); else it points.
 * Evidence  the name; which side has zeros.
 * Excludes  atomic-order, race, dtype: the value was there before the first operator.
 * Next      what the checkpoint holds for it.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static bool is_state(const struct rlki_facts *f, const char *name)
{
    static const char *const words[] = {"exp_avg",     "exp_avg_sq", "momentum",       "moment",       "max_exp",
                                        "master",      "optimizer",  "opt_state",      "adam",         "variance",
                                        "loss_scale",  "scaler",     "growth_tracker", "running_mean", "running_var",
                                        "num_batches", "ema"};
    if (rlki_is_parameter_name(name) || rlki_is_gradient_name(name))
        return false;
    return rlki_has_any(name, words, sizeof words / sizeof *words) || rlki_same_text(f->ev[0].e.who.pass, "opt");
}

/* Zeros without bytes: the digest of a tensor of zeros is known by its sums: no -0, and multiset of one unit. */
static bool zeros(const struct rlki_facts *f, int side)
{
    if (f->change.bytes)
        return f->change.all_zero[side];
    return false;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || f->output || !f->t[0] || !f->t[1])
        return RLK_OK;
    const char *name = f->t[0]->name;
    if (!f->found->source && (f->producer[0].has || f->producer[1].has))
        return RLK_OK;
    if (!is_state(f, name))
        return RLK_OK;
    bool za = zeros(f, 0), zb = zeros(f, 1);
    rlki_holds(o, RLKI_M_STATE_RESTORE, za != zb ? RLKI_SHOWS : RLKI_POINTS,
               "%.100s is state of the optimizer that was there before the recording began, and it differs", name);
    if (za != zb)
        rlki_holds(o, RLKI_M_STATE_RESTORE, RLKI_SHOWS,
                   "%.100s is all zero in %c and not in %c: made anew, not restored", name, za ? 'A' : 'B',
                   za ? 'B' : 'A');
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the value was there before the first operator");
    rlki_excludes(o, RLKI_M_RACE, "the value was there before the first operator");
    if (f->t[0]->dtype == f->t[1]->dtype && za != zb)
        rlki_excludes(o, RLKI_M_DTYPE, "zeros are no rounding");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_state_restore = {RLKI_M_STATE_RESTORE,
                                                       "does the checkpoint hold it, and was it loaded? Compare the "
                                                       "optimizer's state_dict right after the resume with the one "
                                                       "that was saved",
                                                       look};
