/* race.c - something was read before it was written, or after it was written over.
 *
 * Rule      what an input read is not what its producer wrote.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_producer *p = f->producer;
    bool broken = false;
    if (!f->both || f->output || !f->t[0] || !f->t[1])
        return RLK_OK;
    if (f->found->source) {
        rlki_remark(o, "an input from outside the recording differs");
        return RLK_OK;
    }
    for (int s = 0; s < 2; s++) {
        if (!p[s].has || p[s].kept != RLKI_NO)
            continue;
        rlki_holds(o, RLKI_M_RACE, RLKI_SHOWS, "what was read is not what its producer wrote: %s", p[s].text);
        broken = true;
    }
    if (broken)
        return RLK_OK;
    if (!p[0].has && !p[1].has)
        rlki_remark(o, "the input differs, and no recorded event wrote it");
    else if (!p[0].has || !p[1].has)
        rlki_remark(o, "%s wrote it; in %c no recorded event did", p[p[0].has ? 0 : 1].text, p[0].has ? 'B' : 'A');
    else if (p[0].identity != p[1].identity || p[0].output != p[1].output)
        rlki_remark(o, "reads another event's output: %s, %s", p[0].text, p[1].text);
    else if (!rlk_u128_equal(p[0].view, p[1].view))
        rlki_remark(o, "reads another part of the same output: %s, %s", p[0].text, p[1].text);
    else
        rlki_remark(o, "the input differs, and what last wrote its buffer does not: %s, %s", p[0].text, p[1].text);
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_race = {
    RLKI_M_RACE,
    "order the two (stream wait, event, synchronize): run once with CUDA_LAUNCH_BLOCKING=1 - does it go away?", look};
