/* layout_reduction.c - a sum over ranks, taken over other numbers of them, in another order.
 *
 * Rule      under two layouts, the tensor is made by a reduction of ranks on one side and locally, or by one over
 *           another number of ranks, on the other.
 * Excludes  nothing that happens inside a kernel.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdlib.h>
#include <string.h>

static bool reduces(const struct rlki_ev *ev)
{
    return ev->e.kind == RLK_EV_COLLECTIVE && strstr(ev->e.who.op, "reduce");
}

/* Over how many ranks a collective runs; 0: not known. */
static int ranks_of(const struct rlki_side *side, const struct rlki_ev *ev, uint32_t *n)
{
    size_t room = ev->e.u.collective.nranks > side->world ? ev->e.u.collective.nranks : side->world;
    uint32_t *ranks = malloc((room + 1) * sizeof *ranks);
    if (!ranks)
        return RLK_ENOMEM;
    rlki_side_communicator(side, &ev->e, ranks, n);
    free(ranks);
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_audit *audit = f->audit;
    const struct rlki_ev *ev = f->ev;
    uint32_t n[2] = {1, 1};
    bool any = false;
    if (!f->both || !f->output || !audit->cross || audit->same_layout)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = reduces(&ev[s]) ? ranks_of(&audit->side[s], &ev[s], &n[s]) : RLK_OK;
        if (rc)
            return rc;
        any |= reduces(&ev[s]);
    }
    if (!any || !n[0] || !n[1] || n[0] == n[1])
        return RLK_OK;
    rlki_holds(o, RLKI_M_LAYOUT_REDUCTION, RLKI_POINTS,
               "made by %.60s on %u rank%s in A and by %.60s on %u rank%s in B: sums are taken in another order",
               ev[0].e.who.op, n[0], n[0] == 1 ? "" : "s", ev[1].e.who.op, n[1], n[1] == 1 ? "" : "s");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_layout_reduction = {
    RLKI_M_LAYOUT_REDUCTION,
    "expected between layouts: a tree-invariant reduction (contract bitwise) removes it, or accept it with a bound",
    look};
