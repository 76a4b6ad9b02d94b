/* uninitialized.c - memory that nobody wrote was taken for a result.
 *
 * Rule      poison: every changed element of both sides is the byte that its run filled fresh memory with
 *           (RLKREC_POISON) - it shows, against everything else. Fill: all changed elements of one side are one number
 *           and on the other side garbage, which a run that fills fresh memory leaves - it shows. Garbage: a side that
 *           does not repeat itself has, in whole rows or from a place on, what is no number or far beyond the
 *           rest of the tensor - it points.
 * Excludes  atomic-order: sums are not that far apart; with poison all else.
 * Next      the poison pair.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int poison_of(const struct rlki_side *side)
{
    const char *text = json_string_value(json_object_get(json_object_get(side->manifest, "env"), "RLKREC_POISON"));
    char *end;
    if (!text || !*text)
        return -1;
    long v = strtol(text, &end, 0);
    return *end || v < 0 || v > 255 ? -1 : (int)v;
}

static void poisoned(struct rlki_opinion *o, const int poison[2], uint64_t changed)
{
    static const enum rlki_class others[] = {RLKI_M_ATOMIC_ORDER,  RLKI_M_RACE,        RLKI_M_POSSIBLE_CORRUPTION,
                                             RLKI_M_STATE_RESTORE, RLKI_M_STALE_CACHE, RLKI_M_SHARD_BOUNDARY,
                                             RLKI_M_SEMANTICS,     RLKI_M_DTYPE,       RLKI_M_PERMUTATION};
    rlki_holds(
        o, RLKI_M_UNINITIALIZED, RLKI_SHOWS,
        "all %llu changed elements are the poison (RLKREC_POISON): byte 0x%02x in A, 0x%02x in B: nothing wrote them",
        (unsigned long long)changed, (unsigned)poison[0], (unsigned)poison[1]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        rlki_excludes(o, others[i], "what stands there is what fresh memory was filled with");
}

/* One number throughout on side s, garbage on the other. */
static bool filled(const struct rlki_facts *f, int s)
{
    const struct rlki_change *c = &f->change;
    bool constant = c->constant[s] || c->fill[s] >= 0;
    return constant && c->changed > 1 && !c->constant[1 - s] && c->wild[1 - s] * 4 >= c->changed;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_change *c = &f->change;
    const int poison[2] = {poison_of(&f->audit->side[0]), poison_of(&f->audit->side[1])};
    if (!f->both || !c->bytes || !c->changed)
        return RLK_OK;
    if (poison[0] >= 0 && poison[1] >= 0 && poison[0] != poison[1] && c->fill[0] == poison[0] &&
        c->fill[1] == poison[1]) {
        poisoned(o, poison, c->changed);
        return RLK_OK;
    }
    if (!f->output || !f->same_event || (f->launches.known && !f->launches.same && !rlki_varies(f)))
        return RLK_OK;
    for (int s = 0; s < 2; s++)
        if (filled(f, s)) {
            char what[32] = "one number";
            if (c->fill[s] >= 0)
                snprintf(what, sizeof what, "filled with byte 0x%02x", (unsigned)c->fill[s]);
            rlki_holds(
                o, RLKI_M_UNINITIALIZED, RLKI_SHOWS,
                "the same %llu elements are %s in %c and garbage in %c: memory that one run fills and nothing writes",
                (unsigned long long)c->changed, what, s ? 'B' : 'A', s ? 'A' : 'B');
            rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "what stands there is no sum");
            rlki_excludes(o, RLKI_M_RACE, "one side holds a fill there");
            return RLK_OK;
        }
    bool region = strcmp(c->pattern, "rows") == 0 || strcmp(c->pattern, "tail") == 0 || strcmp(c->pattern, "tile") == 0;
    if (rlki_varies(f) && region && c->wild[0] * 4 >= c->changed && c->wild[1] * 4 >= c->changed) {
        rlki_holds(o, RLKI_M_UNINITIALIZED, RLKI_POINTS,
                   "%s: garbage on both sides (%llu and %llu of %llu elements are no number, or far beyond the rest), "
                   "another one "
                   "each run",
                   c->pattern, (unsigned long long)c->wild[0], (unsigned long long)c->wild[1],
                   (unsigned long long)c->changed);
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "what stands there is no sum");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_uninitialized = {
    RLKI_M_UNINITIALIZED,
    "record two runs whose fresh memory is filled with different bytes, RLKREC_POISON=0 and =255 in their environment "
    "(a "
    "poison pair): where the output is the poison, nothing writes it. Deterministic fill flags hide it",
    look};
