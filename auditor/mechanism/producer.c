/* producer.c - of a root that is an input: what each side read there, and who wrote it. */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <string.h>

static bool same_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* A reference is what its producer wrote. A digest shows it where the whole output was read; a buffer that was written
 * piece by piece is not the output of its last writer. */
static enum rlki_tri kept(const struct rlk_tensor *read, const struct rlk_tensor *written)
{
    if (read->state == RLK_T_REFERENCE)
        return RLKI_YES;
    if (!written || written->state != RLK_T_DIGESTED || read->state != RLK_T_DIGESTED ||
        read->dtype != written->dtype || !same_shape(read, written))
        return RLKI_MAYBE;
    return rlk_sums_same_bits(&read->sums, &written->sums) ? RLKI_YES : RLKI_NO;
}

static int producer_of(struct rlki_facts *f, int side)
{
    struct rlki_audit *audit = f->audit;
    const struct rlki_ev *ev = &f->ev[side];
    const struct rlk_tensor *t = f->t[side];
    struct rlki_producer *out = &f->producer[side];
    struct rlki_value value;
    struct rlki_ev producer;
    bool unsure = false;
    if (!t)
        return RLK_OK;
    int rc = rlki_value_of(audit, side, &ev->e, ev->env, t, &value);
    if (rc == RLK_OK)
        rc = rlki_value_producer(audit, side, &ev->e, ev->env, t, &value, &unsure);
    if (rc || !value.has_producer)
        return rc;
    rc = rlki_ev_load(audit, side, value.env, value.producer, &f->arena, &producer);
    if (rc)
        return rc == RLK_ENOENT ? RLK_OK : rc;
    *out = (struct rlki_producer){
        .has = true,
        .by_name = !t->alloc && t->state != RLK_T_REFERENCE,
        .kept = kept(t, rlki_ev_tensor(&producer, RLK_ROLE_OUT, value.output)),
        .env = value.env,
        .output = value.output,
        .seq = value.producer,
        .stream = producer.e.stream,
        .identity = rlki_ev_identity(audit, &producer),
        .view = value.view,
        .kind = producer.e.kind,
        .lone = rlki_side_marked(&audit->side[side], value.env, value.producer, value.output) == RLKI_MARK_LONE};
    if (producer.e.kind == RLK_EV_COLLECTIVE)
        out->nmembers = producer.e.u.collective.nmembers;
    snprintf(out->text, sizeof out->text, "%c #%llu %.80s output %u", side ? 'B' : 'A',
             (unsigned long long)value.producer, producer.e.who.op, value.output);
    return RLK_OK;
}

int rlki_facts_producers(struct rlki_facts *f)
{
    int rc = producer_of(f, 0);
    return rc == RLK_OK ? producer_of(f, 1) : rc;
}
