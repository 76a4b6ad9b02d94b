/* semantics.c - the two sides compute different quantities under one name.
 *
 * Rule      log-probabilities of another kind: requests of the two sides say raw and processed, and each row differs by
 *           one number - it shows; only one of the two - it points. (attributes.c: an attribute that sets the meaning,
 *           temperature, top_p, causal..., differs - it shows.)
 * Evidence  the kinds; that every row differs by a constant (a normaliser: log of a sum, or a temperature).
 * Excludes  atomic-order and race: they do not shift a row by one number.
 * Next      compare the same kind on both sides.
 */
#include "auditor/mechanism/mechanism.h"

#include <math.h>
#include <string.h>

#define LOOK_AROUND (UINT64_C(1) << 14) /* events around the difference in which its requests are looked for */

struct kinds {
    int64_t step;
    const char *phase, *kind; /* "" = none said */
    bool several;
    struct rlki_names *names;
};

static int visit(void *context, const struct rlk_event *event)
{
    struct kinds *k = context;
    if (event->kind != RLK_EV_REQUEST || event->who.step != k->step || !event->u.request.logprob_kind ||
        !*event->u.request.logprob_kind)
        return 0;
    const char *kind = rlki_names_text(k->names, rlki_names_id(k->names, event->u.request.logprob_kind));
    k->several |= *k->kind && strcmp(k->kind, kind) != 0;
    k->kind = kind;
    return 0;
}

static int kind_of(struct rlki_facts *f, int side, struct kinds *k)
{
    const struct rlki_ev *ev = &f->ev[side];
    uint64_t from = ev->e.seq > LOOK_AROUND ? ev->e.seq - LOOK_AROUND : 0;
    *k = (struct kinds){.step = ev->e.who.step, .kind = "", .names = &f->audit->names};
    if (!rlk_env_kind(f->audit->side[side].env[ev->env].env, RLK_EV_REQUEST))
        return RLK_OK;
    return rlki_look_around(f, side, ev->env, from, ev->e.seq + LOOK_AROUND, visit, k);
}

/* The constant of each row, smallest and largest: one number for each row. */
static void constants(struct rlki_facts *f, double *lo, double *hi)
{
    const struct rlki_change *c = &f->change;
    uint64_t cols = c->ndim && c->shape[c->ndim - 1] ? c->shape[c->ndim - 1] : 1;
    *lo = INFINITY;
    *hi = -INFINITY;
    for (uint64_t i = 0; i < f->change.elements; i += cols) {
        double d = rlki_element(f, 1, i) - rlki_element(f, 0, i);
        if (!rlki_element_changed(f, i))
            continue;
        *lo = d < *lo ? d : *lo;
        *hi = d > *hi ? d : *hi;
    }
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    static const char *const words[] = {"logp", "log_p", "logit"};
    struct kinds k[2];
    if (!f->both || !f->output || !f->t[0] || rlk_dtype_is_integer(f->t[0]->dtype))
        return RLK_OK;
    bool logprob = rlki_has_any(f->t[0]->name, words, 3) || rlki_has_any(f->ev[0].e.who.op, words, 2);
    bool constant = strcmp(f->change.pattern, "row-constant") == 0;
    if (!logprob)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = kind_of(f, s, &k[s]);
        if (rc)
            return rc;
    }
    bool kinds = *k[0].kind && *k[1].kind && !k[0].several && !k[1].several && strcmp(k[0].kind, k[1].kind) != 0;
    enum rlki_hold hold = kinds && (constant || !f->change.bytes) ? RLKI_SHOWS : RLKI_POINTS;
    if (kinds)
        rlki_holds(o, RLKI_M_SEMANTICS, hold, "logprob_kind is %.40s in A and %.40s in B: other quantities", k[0].kind,
                   k[1].kind);
    if (constant && f->change.bytes && f->change.size != RLKI_SIZE_ROUNDING) {
        double lo, hi;
        constants(f, &lo, &hi);
        rlki_holds(o, RLKI_M_SEMANTICS, hold,
                   "in each row all elements differ by one number, %.6g to %.6g: another normaliser (temperature, "
                   "top-k, top-p)",
                   lo, hi);
    }
    if (kinds || (constant && f->change.bytes && f->change.size != RLKI_SIZE_ROUNDING)) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "another order of sums does not shift whole rows by one number");
        rlki_excludes(o, RLKI_M_RACE, "a race does not shift whole rows by one number");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_semantics = {RLKI_M_SEMANTICS,
                                                   "compare the same quantity: raw with raw log-probabilities, at the "
                                                   "same temperature, top-k and top-p (or compute the "
                                                   "processed ones on both sides)",
                                                   look};
