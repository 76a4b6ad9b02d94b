/* race.c - something was read before it was written, or after it was written over.
 *
 * Rule      an input: what was read is not what its producer wrote - it shows; it points where each run of
 *           that side reads the same, or both sides read what nobody wrote. An output: the same launches on
 *           the same inputs, a side that does not repeat itself, and differences far beyond rounding - it
 *           shows if they are all over the tensor, else it points. An input that names another event's
 *           output than the other side's - it is open (another wiring leaves the same).
 * Evidence  which write was missed; the streams, and that no recorded wait orders them; what the buffer held
 *           before.
 * Excludes  atomic-order where an input was read wrong: the operator itself did nothing.
 * Next      order the two; more capture orders too, and may hide it.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

/* More capture orders more: the arm that records more may be right for that reason alone. */
static void observer(struct rlki_facts *f, struct rlki_opinion *o)
{
    static const char *const keys[] = {"level", "inputs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *a = json_string_value(json_object_get(f->audit->side[0].manifest, keys[i]));
        const char *b = json_string_value(json_object_get(f->audit->side[1].manifest, keys[i]));
        if (!rlki_same_text(a, b))
            rlki_holds(
                o, RLKI_M_RACE, RLKI_POINTS,
                "capture %.20s is %.20s in A and %.20s in B: recording itself orders operations, and may hide it",
                keys[i], a ? a : "?", b ? b : "?");
    }
}

/* One side read what its producer did not write. */
static int missed(struct rlki_facts *f, struct rlki_opinion *o, int s)
{
    const struct rlki_producer *p = &f->producer[s];
    const struct rlki_change *c = &f->change;
    char older[200];
    enum rlki_tri ordered;
    /* A race is seldom lost in the same way twice; a write in place that nobody recorded is. */
    const bool both = f->producer[1 - s].has && f->producer[1 - s].kept == RLKI_NO;
    const bool again = f->repeat[s] == RLKI_REPEAT_STEADY || both;
    rlki_holds(o, RLKI_M_RACE, again ? RLKI_POINTS : RLKI_SHOWS, "what was read is not what its producer wrote: %s",
               p->text);
    if (both)
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS,
                   "on both sides: a write that neither recording has (below the dispatcher, or in place), rather than "
                   "a race");
    else if (again)
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS,
                   "it is the same in each run of %c: a write in place that was not recorded, rather than a race",
                   s ? 'B' : 'A');
    int rc = rlki_stream_order(f, s, &ordered);
    if (rc)
        return rc;
    if (ordered == RLKI_NO)
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS,
                   "written on stream %llu, read on stream %llu: no recorded wait orders them in %c",
                   (unsigned long long)p->stream, (unsigned long long)f->ev[s].e.stream, s ? 'B' : 'A');
    rc = rlki_older_content(f, s, older, sizeof older);
    if (rc == RLK_OK && *older)
        rlki_holds(o, RLKI_M_RACE, again ? RLKI_POINTS : RLKI_SHOWS, "%s", older);
    else if (rc == RLK_OK && c->bytes && (strcmp(c->pattern, "tail") == 0 || strcmp(c->pattern, "suffix") == 0))
        rlki_holds(
            o, RLKI_M_RACE, RLKI_SHOWS,
            "from element %llu on (%.1f %%) it is something else, as where a copy had not come that far: an earlier "
            "content of the buffer",
            (unsigned long long)c->first_flat, 100.0 * (double)c->changed / (double)c->elements);
    return rc;
}

/* Nothing says that a write was missed; what can be said of where the two read. */
static void told(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_producer *p = f->producer;
    if (!p[0].has && !p[1].has) {
        rlki_remark(o, "the input differs, and no recorded event wrote it");
    } else if (!p[0].has || !p[1].has) {
        rlki_remark(o, "%s wrote it; in %c no recorded event did", p[p[0].has ? 0 : 1].text, p[0].has ? 'B' : 'A');
    } else if (p[0].identity != p[1].identity || p[0].output != p[1].output) {
        if (p[0].lone || p[1].lone) {
            rlki_remark(o, "reads another event's output: %s, %s", p[0].text, p[1].text);
            rlki_excludes(o, RLKI_M_RACE, "each side read what the last recorded write left");
            return;
        }
        rlki_holds(o, RLKI_M_RACE, RLKI_OPEN, "reads another event's output: %s, %s", p[0].text, p[1].text);
    } else if (!rlk_u128_equal(p[0].view, p[1].view)) {
        rlki_remark(o, "reads another part of the same output: %s, %s", p[0].text, p[1].text);
    } else {
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS, "the input differs, and what last wrote its buffer does not: %s, %s",
                   p[0].text, p[1].text);
    }
}

static int an_input(struct rlki_facts *f, struct rlki_opinion *o)
{
    bool broken = false;
    if (!f->t[0] || !f->t[1])
        return RLK_OK;
    if (f->found->source) {
        rlki_remark(o, "an input from outside the recording differs");
        return RLK_OK;
    }
    for (int s = 0; s < 2; s++) {
        if (!f->producer[s].has || f->producer[s].kept != RLKI_NO)
            continue;
        int rc = missed(f, o, s);
        if (rc)
            return rc;
        broken = true;
    }
    if (!broken) {
        told(f, o);
        return RLK_OK;
    }
    observer(f, o);
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the input was read wrong, before the operator added anything");
    return RLK_OK;
}

static void an_output(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_change *c = &f->change;
    if (rlki_steady(f)) {
        rlki_excludes(o, RLKI_M_RACE, "%s",
                      f->relaunched ? "relaunched, it repeats itself" : "each side repeats itself here");
        return;
    }
    if (!rlki_varies(f)) {
        if (f->launches.same && c->size != RLKI_SIZE_ROUNDING && f->repeat[0] != RLKI_REPEAT_RETUNED &&
            f->repeat[1] != RLKI_REPEAT_RETUNED)
            rlki_open(o, RLKI_M_RACE);
        return;
    }
    if (c->size == RLKI_SIZE_ROUNDING)
        return;
    bool spread = strcmp(c->pattern, "uniform") == 0 || strcmp(c->pattern, "whole") == 0 ||
                  strcmp(c->pattern, "suffix") == 0 || strcmp(c->pattern, "unknown") == 0;
    bool shows = c->size == RLKI_SIZE_LARGE && f->launches.same && spread;
    rlki_holds(o, RLKI_M_RACE, shows ? RLKI_SHOWS : RLKI_POINTS,
               "%s does not repeat itself here, with the same inputs%s", rlki_who_varies(f),
               f->launches.same ? " and launches" : "");
    if (c->size == RLKI_SIZE_LARGE)
        rlki_holds(o, RLKI_M_RACE, RLKI_POINTS,
                   "the difference is large, %llu ulp, %.3g: far beyond what another order of the same sum gives",
                   (unsigned long long)c->max_ulp, c->max_abs);
    observer(f, o);
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !rlki_computes(f->found->kind))
        return RLK_OK;
    if (!f->output)
        return an_input(f, o);
    if (f->same_event)
        an_output(f, o);
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_race = {RLKI_M_RACE,
                                              "order the two (wait_stream, an event, synchronize); does it go with "
                                              "CUDA_LAUNCH_BLOCKING=1, or with heavier capture "
                                              "(--inputs digest)? Recording itself orders operations and may hide it. "
                                              "compute-sanitizer --tool racecheck for one kernel",
                                              look};
