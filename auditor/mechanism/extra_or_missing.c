/* extra_or_missing.c - only one side has the event, or something that wrote what is read here.
 *
 * Rule      a loss, gradient, parameter or weights event that one of two complete recordings lacks; or an input whose
 *           last writer has no counterpart on the other side, which reads what another event wrote.
 * Excludes  nothing: why it is missing the recordings do not say.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (f->found->extra) {
        rlki_holds(o, RLKI_M_EXTRA_OR_MISSING, RLKI_SHOWS, "only one of two complete recordings holds it");
        return RLK_OK;
    }
    if (f->output || !f->both || f->found->source)
        return RLK_OK;
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
