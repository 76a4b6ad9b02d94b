/* version_label.c - the weights are right, what they are called is not.
 *
 * Rule      a tensor of version numbers (an integer by its name), or an attribute, differs, while the
 *           rollout's weights of both sides agree up to that step - it shows. A rollout's weights tensor
 *           holds the newest version under a label that the trainer gave to other bits only - it shows.
 * Evidence  the labels; that the contents agree.
 * Excludes  stale-weights where the contents agree.
 * Next      where the label is read.
 */
#include "auditor/mechanism/ledger.h"
#include "auditor/mechanism/mechanism.h"

#include <string.h>

/* Do the rollout's weights differ anywhere? */
static bool weights_differ(const struct rlki_facts *f)
{
    const struct rlki_audit *audit = f->audit;
    for (size_t i = 0; i < audit->nfound; i++)
        if (audit->found[i].kind == RLK_EV_WEIGHTS && !audit->found[i].dropped &&
            audit->found[i].step <= f->found->step)
            return true;
    return false;
}

/* Labels that the contents do not bear out: newer bits than the other side's under the same label. */
static int newer(struct rlki_facts *f, struct rlki_opinion *o)
{
    for (int s = 0; s < 2; s++) {
        const struct rlk_tensor *t = f->t[s];
        struct rlki_origin_version v;
        if (!t || t->state != RLK_T_DIGESTED)
            continue;
        int rc = rlki_sync_version(f->audit, s, t->name, &t->sums, f->found->step, f->ev[s].e.u.weights.version, &v);
        if (rc)
            return rc;
        const char *label = f->ev[s].e.u.weights.version, *bits = rlki_names_text(&f->audit->names, v.label);
        if (v.found && v.nth == v.newest && *label && *bits && v.other_label)
            rlki_holds(o, RLKI_M_VERSION_LABEL, RLKI_SHOWS,
                       "in %c the rollout's %.80s is labelled %.40s and holds the trainer's newest, label %.40s",
                       s ? 'B' : 'A', t->name, label, bits);
    }
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->t[0] || !f->t[1])
        return RLK_OK;
    if (f->found->kind == RLK_EV_WEIGHTS)
        return rlki_same_text(f->ev[0].e.u.weights.side, "rollout") ? newer(f, o) : RLK_OK;
    bool version = rlki_has_word(f->t[0]->name, "version") && rlk_dtype_is_integer(f->t[0]->dtype);
    if (!version || weights_differ(f))
        return RLK_OK;
    rlki_holds(
        o, RLKI_M_VERSION_LABEL, RLKI_SHOWS,
        "\"%.80s\" names other versions, and no weights tensor up to this step differs: the contents are the same",
        f->t[0]->name);
    if (f->change.bytes && f->change.changed)
        rlki_holds(o, RLKI_M_VERSION_LABEL, RLKI_SHOWS, "the first that differs, element %llu: %.0f in A, %.0f in B",
                   (unsigned long long)f->change.first_flat, rlki_element(f, 0, f->change.first_flat),
                   rlki_element(f, 1, f->change.first_flat));
    rlki_excludes(o, RLKI_M_STALE_WEIGHTS, "no weights tensor differs");
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "versions are not computed");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_version_label = {
    RLKI_M_VERSION_LABEL,
    "read the version when each token is generated, not when the request ends, and keep its counter over a resume",
    look};
