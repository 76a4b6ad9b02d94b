/* bucket.c - gradients were reduced in other buckets.
 *
 * Rule      the collective holds other members on the two sides; or an input was made by collectives with members that
 *           no event of the other side corresponds to (flat buckets of other sizes) - it shows.
 * Evidence  how many members; the sizes.
 * Excludes  extra-or-missing: the same tensors were reduced.
 * Next      the same buckets.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both)
        return RLK_OK;
    if (!f->output) {
        const struct rlki_producer *p = f->producer;
        if (p[0].has && p[1].has && p[0].lone && p[1].lone && p[0].nmembers && p[1].nmembers && p[0].kept != RLKI_NO &&
            p[1].kept != RLKI_NO) {
            rlki_holds(o, RLKI_M_BUCKET, RLKI_SHOWS,
                       "it comes out of a bucket of %u members in A (%s) and of %u in B (%s)", p[0].nmembers, p[0].text,
                       p[1].nmembers, p[1].text);
            rlki_excludes(o, RLKI_M_RACE, "each side read what its own bucket gave");
            rlki_excludes(o, RLKI_M_EXTRA_OR_MISSING, "the same tensors are reduced, in other buckets");
        }
        return RLK_OK;
    }
    if (f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    uint32_t n = f->ev[0].e.u.collective.nmembers, m = f->ev[1].e.u.collective.nmembers;
    bool differs = n != m;
    for (uint32_t i = 0; i < n && !differs; i++)
        differs = !rlki_same_text(f->ev[0].e.u.collective.members[i], f->ev[1].e.u.collective.members[i]);
    if (!differs)
        return RLK_OK;
    rlki_holds(o, RLKI_M_BUCKET, RLKI_SHOWS, "the bucket holds %u member%s in A and %u in B%s", n, n == 1 ? "" : "s", m,
               n == m ? ", others" : "");
    rlki_excludes(o, RLKI_M_EXTRA_OR_MISSING, "the same tensors are reduced, in other buckets");
    if (!rlki_varies(f)) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the buckets differ");
        rlki_excludes(o, RLKI_M_RACE, "the buckets differ");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_bucket = {RLKI_M_BUCKET,
                                                "give both sides the same buckets (bucket_cap_mb, overlap and fusion "
                                                "settings, order of the parameters), or reduce each "
                                                "gradient alone",
                                                look};
