/* extra_or_missing.c - only one side has the event, or something that wrote what is read here.
 *
 * Rule      a loss, gradient, parameter or weights event that one of two complete recordings lacks; or an input whose
 *           last writer has no counterpart on the other side, which reads what another event wrote.
 * Excludes  nothing: why it is missing the recordings do not say.
 */
#include "auditor/mechanism/mechanism.h"

/* Which event that side `s` alone has wrote what side `s` read, by its digest? */
static int by_content(struct rlki_facts *f, struct rlki_opinion *o, int s)
{
    const struct rlki_audit *audit = f->audit;
    const struct rlki_event_ref *list = s ? audit->inserted : audit->deleted;
    size_t n = s ? audit->ninserted : audit->ndeleted;
    const struct rlk_tensor *t = f->t[s];
    for (size_t i = 0; t && t->state == RLK_T_DIGESTED && t->sums.elements > 1 && i < n; i++) {
        const struct rlk_event *e;
        int rc = rlki_side_fetch(&f->audit->side[s], list[i].env, list[i].seq, &e, audit->detail);
        if (rc == RLK_ENOENT || (rc == RLK_OK && (list[i].env != f->ev[s].env || list[i].seq >= f->ev[s].e.seq)))
            continue;
        if (rc)
            return rc;
        for (uint32_t k = 0; k < e->ntensors; k++) {
            const struct rlk_tensor *w = &e->tensors[k];
            if (w->role != RLK_ROLE_OUT || w->state != RLK_T_DIGESTED || w->dtype != t->dtype ||
                !rlk_sums_same_bits(&w->sums, &t->sums))
                continue;
            rlki_holds(o, RLKI_M_EXTRA_OR_MISSING, RLKI_SHOWS,
                       "what %c read is what its #%llu %.80s wrote, an event that %c has not", s ? 'B' : 'A',
                       (unsigned long long)list[i].seq, e->who.op, s ? 'A' : 'B');
            rlki_excludes(o, RLKI_M_RACE, "each side read what a recorded write left");
            return RLK_OK;
        }
    }
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (f->found->extra) {
        rlki_holds(o, RLKI_M_EXTRA_OR_MISSING, RLKI_SHOWS, "only one of two complete recordings holds it");
        return RLK_OK;
    }
    if (f->output || !f->both)
        return RLK_OK;
    for (int s = 0; s < 2 && !f->producer[0].has && !f->producer[1].has; s++) {
        int rc = by_content(f, o, s);
        if (rc)
            return rc;
    }
    for (int s = 0; s < 2; s++) {
        const struct rlki_producer *p = &f->producer[s], *q = &f->producer[1 - s];
        if (!p->has || !p->lone || p->kept == RLKI_NO || (q->has && q->lone))
            continue;
        rlki_holds(o, RLKI_M_EXTRA_OR_MISSING, RLKI_SHOWS, "%s wrote it, an event that %c has not", p->text,
                   s ? 'A' : 'B');
        if (q->has)
            rlki_holds(o, RLKI_M_EXTRA_OR_MISSING, RLKI_SHOWS, "in %c it is what %s wrote", s ? 'A' : 'B', q->text);
        rlki_excludes(o, RLKI_M_RACE, "each side read what the last recorded write left");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_extra_or_missing = {
    RLKI_M_EXTRA_OR_MISSING, "look at alignment.inserted and alignment.deleted: which call did one side leave out?",
    look};
