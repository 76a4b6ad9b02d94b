/* stale_weights.c - the rollout computed with weights of an older version, or with ones that never change.
 *
 * Rule      a rollout's weights tensor differs between the sides and one side's holds the bits of an older
 *           version of the trainer's tensor of that name, or what its own rank was given in an earlier step
 *           while the other side's is new; or that side's rollout never changes over two or more syncs
 *           although the trainer's (or the other side's rollout) does - it shows.
 * Evidence  how many versions behind; "0 of N tensors changed in K syncs"; tensors that the rollout never
 *           gets.
 * Excludes  atomic-order and race: nothing was computed.
 * Next      the weight update.
 */
#include "auditor/mechanism/ledger.h"
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static int side_of(struct rlki_facts *f, struct rlki_opinion *o, int s, const struct rlki_ledger_sums sums[2])
{
    const struct rlk_tensor *t = f->t[s];
    const struct rlki_ledger_sums *m = &sums[s], *other = &sums[1 - s];
    const char letter = s ? 'B' : 'A';
    struct rlki_origin_version v = {0};
    int rc = RLK_OK;
    if (t && t->state == RLK_T_DIGESTED)
        rc = rlki_sync_version(f->audit, s, t->name, &t->sums, f->found->step, f->ev[s].e.u.weights.version, &v);
    if (rc)
        return rc;
    if (v.found && v.nth < v.newest)
        rlki_holds(
            o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS,
            "in %c the rollout's %.80s is stale by %u version%s: the trainer's of step %lld, label %.40s, the newest "
            "being number %u of step %lld or before",
            letter, t->name, v.newest - v.nth, v.newest - v.nth == 1 ? "" : "s", (long long)v.step,
            rlki_names_text(&f->audit->names, v.label), v.newest, (long long)f->found->step);
    if (m->known && m->syncs > 1 && m->tensors && !m->changed && (m->trainer_changed || other->changed)) {
        rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS, "in %c 0 of %u tensors changed in %u syncs of the rollout",
                   letter, m->tensors, m->syncs);
        if (m->trainer_changed)
            rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS, "while %u of the trainer's %u did", m->trainer_changed,
                       m->trainer);
    }
    if (m->known && m->tensors && m->without)
        rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SILENT, "in %c %u trainer tensors have no rollout counterpart", letter,
                   m->without);
    return RLK_OK;
}

/* One side's rollout got new bits in this step, the other's kept what an earlier one gave. */
static int kept_one(struct rlki_facts *f, struct rlki_opinion *o)
{
    int64_t first[2];
    if (!f->t[0] || !f->t[1])
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = rlki_sync_given(f->audit, s, f->ev[s].e.rank, f->t[s], f->found->step, &first[s]);
        if (rc)
            return rc;
    }
    for (int s = 0; s < 2; s++)
        if (first[s] < f->found->step && first[1 - s] >= f->found->step)
            rlki_holds(
                o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS,
                "rank %u of the rollout still has the %.80s of step %lld in %c; in %c it got another one at step %lld",
                f->ev[s].e.rank, f->t[s]->name, (long long)first[s], s ? 'B' : 'A', s ? 'A' : 'B',
                (long long)f->found->step);
    return RLK_OK;
}

/* Across layouts no rank has a counterpart: each side's ranks against each other, and against the other side's. */
static int kept_by_some(struct rlki_facts *f, struct rlki_opinion *o)
{
    struct rlki_kept k[2];
    const char *name = f->t[0] ? f->t[0]->name : "";
    for (int s = 0; s < 2; s++) {
        int rc = rlki_sync_kept(f->audit, s, name, f->found->step, &k[s]);
        if (rc)
            return rc;
    }
    for (int s = 0; s < 2; s++)
        if (k[s].kept && (k[s].fresh || (k[1 - s].fresh && !k[1 - s].kept)))
            rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS,
                       "rank %u of the rollout still has the %.80s of an earlier step in %c: of %llu ranks %llu got "
                       "another one at step %lld, in %c %llu of %llu",
                       k[s].rank, name, s ? 'B' : 'A', (unsigned long long)(k[s].kept + k[s].fresh),
                       (unsigned long long)k[s].fresh, (long long)f->found->step, s ? 'A' : 'B',
                       (unsigned long long)k[1 - s].fresh, (unsigned long long)(k[1 - s].kept + k[1 - s].fresh));
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_found *found = f->found;
    struct rlki_ledger_sums sums[2];
    if (found->kind != RLK_EV_WEIGHTS || !f->has[0] || !f->has[1] ||
        !rlki_same_text(f->ev[0].e.u.weights.side, "rollout"))
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = rlki_sync_sums(f->audit, s, &sums[s]);
        if (rc)
            return rc;
    }
    for (int s = 0; s < 2; s++) {
        int rc = side_of(f, o, s, sums);
        if (rc)
            return rc;
    }
    int rc = f->found->no_rank ? kept_by_some(f, o) : kept_one(f, o);
    if (rc)
        return rc;
    if (found->stale && !sums[0].known && !sums[1].known)
        rlki_holds(o, RLKI_M_STALE_WEIGHTS, RLKI_SHOWS, "these are the trainer's weights of step %lld, label %.60s",
                   (long long)found->stale_step, rlki_names_text(&f->audit->names, found->stale_label));
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "nothing is computed here");
    rlki_excludes(o, RLKI_M_RACE, "nothing is computed here");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_stale_weights = {RLKI_M_STALE_WEIGHTS,
                                                       "look at the weight update of that step: was this tensor sent "
                                                       "(after the merge, before the un-merge), and loaded before "
                                                       "the first request?",
                                                       look};
