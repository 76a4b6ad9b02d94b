/* collective_algorithm.c - the collective library reduced in another way.
 *
 * Rule      algorithm, protocol or number of channels differs.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    const struct rlk_event *a = &f->ev[0].e, *b = &f->ev[1].e;
    if (!rlki_same_text(a->u.collective.algo, b->u.collective.algo) ||
        !rlki_same_text(a->u.collective.proto, b->u.collective.proto) ||
        a->u.collective.channels != b->u.collective.channels)
        rlki_holds(o, RLKI_M_COLLECTIVE_ALGORITHM, RLKI_SHOWS,
                   "algorithm %.30s/%.30s with %u channels in A, %.30s/%.30s with %u in B", a->u.collective.algo,
                   a->u.collective.proto, a->u.collective.channels, b->u.collective.algo, b->u.collective.proto,
                   b->u.collective.channels);
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_collective_algorithm = {
    RLKI_M_COLLECTIVE_ALGORITHM,
    "pin the collective: NCCL_ALGO=Ring, NCCL_PROTO=Simple, and one value of NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS",
    look};
