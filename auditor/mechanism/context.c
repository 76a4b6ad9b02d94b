/* context.c - what is worth telling under any class: which samples and outputs differ, contracts. */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <string.h>

/* Which samples of a batch differ, where sums were kept for each. */
static void samples(const struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_tensor *a = f->t[0], *b = f->t[1];
    char list[200] = "";
    size_t n = 0;
    uint32_t differing = 0;
    for (uint32_t i = 0; a && b && i < a->nsamples && i < 4096; i++)
        for (uint32_t k = 0; k < b->nsamples && k < 4096; k++) {
            const struct rlk_sample_part *x = &a->samples[i], *y = &b->samples[k];
            if (strcmp(x->id, y->id) != 0 || !x->has_sums || !y->has_sums || rlk_sums_same_bits(&x->sums, &y->sums))
                continue;
            if (differing++ < 4 && n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%.40s", n ? ", " : "", x->id);
        }
    if (differing)
        rlki_remark(o, "%u of %u samples differ: %s%s", differing, a->nsamples, list, differing > 4 ? ", ..." : "");
}

/* One of several outputs: an operator that gives the others right was fed right. */
static void outputs(const struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_ev *a = &f->ev[0];
    uint32_t n = rlki_ev_count(a, RLK_ROLE_OUT), differing = 0, known = 0;
    char list[200] = "";
    size_t at = 0;
    if (!f->output || n < 2 || n > 64 || f->found->no_rank)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const struct rlk_tensor *t = rlki_ev_tensor(a, RLK_ROLE_OUT, i);
        enum rlki_mark mark = rlki_side_marked(&f->audit->side[0], a->env, a->e.seq, i);
        known += mark == RLKI_MARK_EQUAL || mark == RLKI_MARK_DIFF;
        if (mark != RLKI_MARK_DIFF)
            continue;
        if (differing++ < 4 && at < sizeof list)
            at +=
                (size_t)snprintf(list + at, sizeof list - at, "%s%.40s", at ? ", " : "", t && t->name ? t->name : "?");
    }
    if (differing && known == n)
        rlki_remark(o, "%u of %u outputs differ%s: %s%s", differing, n, differing < n ? ", the others are equal" : "",
                    list, differing > 4 ? ", ..." : "");
}

void rlki_context(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both)
        return;
    samples(f, o);
    outputs(f, o);
    if (f->output && f->same_event && f->ev[0].e.kind == RLK_EV_OP &&
        !rlki_same_text(f->ev[0].e.u.op.contract, f->ev[1].e.u.op.contract))
        rlki_remark(o, "contract %.80s in A, %.80s in B", f->ev[0].e.u.op.contract, f->ev[1].e.u.op.contract);
}
