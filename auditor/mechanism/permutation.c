/* permutation.c - the same elements in another order.
 *
 * Rule      the bytes hold the same elements, or the multiset sums are equal.
 * Excludes  every arithmetic cause: they change elements.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || strcmp(f->change.grade, "permutation") != 0)
        return RLK_OK;
    if (f->change.bytes)
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_SHOWS, "the same elements in another order");
    else
        rlki_holds(o, RLKI_M_PERMUTATION, RLKI_POINTS,
                   "the multiset digests are equal: the same units in another order");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_permutation = {
    RLKI_M_PERMUTATION, "compare how both sides order what is gathered (ranks, chunks, samples)", look};
