/* bucket.c - gradients were reduced in other buckets.
 *
 * Rule      the collective holds other members on the two sides.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    uint32_t n = f->ev[0].e.u.collective.nmembers, m = f->ev[1].e.u.collective.nmembers;
    bool differs = n != m;
    for (uint32_t i = 0; i < n && !differs; i++)
        differs = !rlki_same_text(f->ev[0].e.u.collective.members[i], f->ev[1].e.u.collective.members[i]);
    if (differs)
        rlki_holds(o, RLKI_M_BUCKET, RLKI_SHOWS, "the bucket holds %u member%s in A and %u in B", n, n == 1 ? "" : "s",
                   m);
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_bucket = {
    RLKI_M_BUCKET,
    "give both sides the same buckets (bucket_cap_mb, overlap and fusion settings), or reduce each gradient alone",
    look};
