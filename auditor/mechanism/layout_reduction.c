/* layout_reduction.c - a sum over ranks, taken over other numbers of them, in another order.
 *
 * Rule      under two layouts, the tensor is made by a reduction of ranks on one side and locally, or by one over
 *           another number of ranks, on the other; or its operator combines the inputs of other numbers of ranks
 *           (attribute `combines`); or a dimension that its inputs have and its outputs have not is cut into other
 *           numbers of pieces. Where the two run other contracts it is left open, and nothing is said where the
 *           difference is larger than rounding, or of integers.
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

/* The part of one dimension that is here. */
struct cut {
    uint64_t size; /* of the logical dimension */
    const struct rlk_run *runs;
    uint32_t nruns; /* RLK_WHOLE */
    uint64_t here;
};

static struct cut cut_of(const struct rlk_place *place, uint32_t dim)
{
    struct cut cut = {.size = place->shape[dim], .runs = place->runs, .nruns = RLK_WHOLE, .here = place->shape[dim]};
    if (!place->nruns || place->nruns[dim] == RLK_WHOLE)
        return cut;
    for (uint32_t d = 0; d < dim; d++)
        cut.runs += place->nruns[d] == RLK_WHOLE ? 0 : place->nruns[d];
    cut.nruns = place->nruns[dim];
    cut.here = 0;
    for (uint32_t r = 0; r < cut.nruns; r++)
        cut.here += cut.runs[r].extent;
    if (cut.here == cut.size)
        cut.nruns = RLK_WHOLE;
    return cut;
}

/* The same pieces of dimensions that may be of other sizes: heads of queries and of keys. */
static bool same_pieces(const struct cut *a, const struct cut *b)
{
    bool same = a->nruns == b->nruns && a->size < (UINT64_C(1) << 31) && b->size < (UINT64_C(1) << 31);
    for (uint32_t r = 0; same && r < a->nruns && a->nruns != RLK_WHOLE; r++)
        same = a->runs[r].start * b->size == b->runs[r].start * a->size &&
               a->runs[r].extent * b->size == b->runs[r].extent * a->size;
    return same;
}

/* Has an output a dimension that is cut like this one? */
static bool output_has(const struct rlki_ev *ev, const struct cut *cut)
{
    for (uint32_t i = rlki_event_ninputs(&ev->e); i < ev->e.ntensors; i++) {
        const struct rlk_place *place = ev->e.tensors[i].place;
        for (uint32_t d = 0; place && d < place->ndim; d++) {
            struct cut own = cut_of(place, d);
            if (same_pieces(&own, cut))
                return true;
        }
    }
    return false;
}

/* What one rank holds of a dimension of the inputs that is cut otherwise than any of the outputs': sums run over it.
 * `size` 0: no such one. false: not known, for want of a placement. */
static bool summed_cut(const struct rlki_ev *ev, struct cut *out)
{
    *out = (struct cut){0};
    for (uint32_t i = 0; i < ev->e.ntensors; i++) {
        const struct rlk_place *place = ev->e.tensors[i].place;
        if (!place)
            return false;
        for (uint32_t d = 0; ev->e.tensors[i].role == RLK_ROLE_IN && d < place->ndim; d++) {
            struct cut cut = cut_of(place, d);
            if (cut.nruns != RLK_WHOLE && !out->size && !output_has(ev, &cut))
                *out = cut;
        }
    }
    return true;
}

static uint64_t combined_ranks(const struct rlki_ev *ev)
{
    const char *text = rlki_combines(ev);
    uint64_t n = 1;
    for (const char *p = text ? text : ""; *p; p++)
        n += *p == ',';
    return n;
}

/* An operator of one contract whose sum runs over other numbers of ranks' inputs. */
static void inside_operator(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_ev *ev = f->ev;
    if (!f->same_event || ev[0].e.kind != RLK_EV_OP || f->change.size == RLKI_SIZE_LARGE ||
        (f->t[0] && rlk_dtype_is_integer((enum rlk_dtype)f->t[0]->dtype)))
        return; /* no order of a sum explains that */
    const bool other_contract = !rlki_same_text(ev[0].e.u.op.contract, ev[1].e.u.op.contract);
    const enum rlki_hold hold = other_contract ? RLKI_OPEN : RLKI_POINTS;
    const uint64_t combined[2] = {combined_ranks(&ev[0]), combined_ranks(&ev[1])};
    struct cut cut[2];
    const bool of_a = summed_cut(&ev[0], &cut[0]), known = summed_cut(&ev[1], &cut[1]) && of_a;
    bool said = false;
    if (combined[0] != combined[1]) {
        rlki_holds(o, RLKI_M_LAYOUT_REDUCTION, hold,
                   "it combines what %llu rank%s hold%s in A and %llu in B: sums are taken in another order",
                   (unsigned long long)combined[0], combined[0] == 1 ? "" : "s", combined[0] == 1 ? "s" : "",
                   (unsigned long long)combined[1]);
        said = true;
    } else if (known && (cut[0].size != cut[1].size || cut[0].here != cut[1].here)) {
        const uint64_t size = cut[0].size ? cut[0].size : cut[1].size;
        rlki_holds(o, RLKI_M_LAYOUT_REDUCTION, hold,
                   "a rank holds %llu in A and %llu in B of the %llu that its sums run over: they are taken in another "
                   "order",
                   (unsigned long long)(cut[0].size ? cut[0].here : size),
                   (unsigned long long)(cut[1].size ? cut[1].here : size), (unsigned long long)size);
        said = true;
    }
    if (said && f->change.size == RLKI_SIZE_UNKNOWN && !f->launches.known)
        rlki_open(o, RLKI_M_KERNEL_DIFFERS); /* neither how far nor by what */
    if (said && !other_contract && ev[0].e.u.op.contract && ev[0].e.u.op.contract[0])
        rlki_holds(o, RLKI_M_LAYOUT_REDUCTION, hold, "both claim the contract %.80s: one of them does not keep it",
                   ev[0].e.u.op.contract);
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_audit *audit = f->audit;
    const struct rlki_ev *ev = f->ev;
    uint32_t n[2] = {1, 1};
    bool any = false;
    if (!f->both || !f->output || !audit->cross || audit->same_layout)
        return RLK_OK;
    inside_operator(f, o);
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
