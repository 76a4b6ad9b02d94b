/* dtype.c - the same quantity in another number format.
 *
 * Rule      the dtype of the tensor differs.
 * Excludes  atomic-order and race: another format rounds differently every time.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_tensor *a = f->t[0], *b = f->t[1];
    if (!f->both || !a || !b || a->dtype == b->dtype)
        return RLK_OK;
    rlki_holds(o, RLKI_M_DTYPE, RLKI_SHOWS, "dtype %s in A, %s in B", rlk_dtype_name(a->dtype),
               rlk_dtype_name(b->dtype));
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides round to other formats");
    rlki_excludes(o, RLKI_M_RACE, "the two sides round to other formats");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_dtype = {RLKI_M_DTYPE, "compute it in the same format on both sides", look};
