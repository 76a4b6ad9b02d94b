/* sign_of_zero.c - the bits differ, no value does: the sign of zeros, the payload of NaNs.
 *
 * Rule      the value sums are equal (docs/digest.md), the positional ones are not.
 * Excludes  everything that changes numbers.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

/* The class stands for all that a value digest does not see; this says which of it. Without bytes the counts of -0 and
 * of NaN decide, and equal counts leave both open. */
static const char *what_values_hide(const struct rlki_facts *f, bool nans)
{
    bool bytes = f->change.bytes || f->found->kind == RLK_EV_METRIC;
    bool zero = strcmp(f->change.grade, "sign-of-zero") == 0;
    if (zero && f->change.nan)
        return "the sign of zero and the payload of NaN differ";
    if (zero && !bytes && nans)
        return "the sign of zero, and maybe the payload of NaN, differs";
    if (zero)
        return "the sign of zero differs";
    return bytes ? "the payload of NaN differs" : "the payload of NaN, or where zeros have a sign, differs";
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_tensor *a = f->t[0], *b = f->t[1];
    if (!f->both || (strcmp(f->change.grade, "sign-of-zero") != 0 && strcmp(f->change.grade, "nan-payload") != 0))
        return RLK_OK;
    rlki_holds(o, RLKI_M_SIGN_OF_ZERO, RLKI_SHOWS, "the value digests are equal: only %s",
               what_values_hide(f, a && b && a->sums.nan && b->sums.nan));
    static const enum rlki_class numbers[] = {RLKI_M_ATOMIC_ORDER, RLKI_M_RACE,  RLKI_M_UNINITIALIZED,
                                              RLKI_M_PERMUTATION,  RLKI_M_RNG,   RLKI_M_STATE_RESTORE,
                                              RLKI_M_STALE_CACHE,  RLKI_M_DTYPE, RLKI_M_POSSIBLE_CORRUPTION};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        rlki_excludes(o, numbers[i], "no value differs");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_sign_of_zero = {
    RLKI_M_SIGN_OF_ZERO,
    "nothing if values are what counts: rlkaudit accept with that reason; else rlkaudit explain A B", look};
