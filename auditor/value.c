/* value.c - what an input held, resolved through references; whether two values are the same; reaching back.
 *
 * A reference counts only when it points at an earlier event of the same environment: cycles, self references and
 * references into the future end here, as an unknown value.
 */
#include "auditor/audit.h"

#include <string.h>
#include <xxhash.h>

uint32_t rlki_sample_sum(const struct rlk_tensor *tensor, uint64_t *out, uint64_t *ids)
{
    uint64_t elements = 0;
    *out = 0;
    if (ids)
        *ids = 0;
    for (uint32_t i = 0; i < tensor->nsamples; i++) {
        const struct rlk_sample_part *s = &tensor->samples[i];
        uint64_t id = XXH3_64bits(s->id, strlen(s->id));
        if (!s->has_sums)
            return 0;
        elements += s->sums.elements;
        *out += rlki_mix(rlki_mix(id, s->sums.positional.lo), s->sums.positional.hi ^ s->sums.elements);
        if (ids)
            *ids += rlki_mix(97, id);
    }
    return elements == tensor->sums.elements ? tensor->nsamples : 0;
}

int rlki_value_of(struct rlki_audit *audit, int side, const struct rlk_event *event, uint32_t env,
                  const struct rlk_tensor *tensor, struct rlki_value *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = tensor->dtype;
    out->why = "undefined";
    if (tensor->state == RLK_T_DIGESTED) {
        out->known = true;
        out->sums = tensor->sums;
        out->nsamples = rlki_sample_sum(tensor, &out->samples, NULL);
        return RLK_OK;
    }
    if (tensor->state == RLK_T_NOT_DIGESTED)
        out->why = tensor->reason && tensor->reason[0] ? tensor->reason : "not_digested";
    if (tensor->state != RLK_T_REFERENCE)
        return RLK_OK;
    out->why = "bad-reference";
    if (tensor->ref_event >= event->seq)
        return RLK_OK;
    const struct rlk_event *producer;
    int rc = rlki_side_fetch(&audit->side[side], env, tensor->ref_event, &producer, audit->detail);
    if (rc == RLK_ENOENT)
        return RLK_OK;
    if (rc)
        return rc;
    const struct rlk_tensor *output = rlki_event_tensor(producer, RLK_ROLE_OUT, tensor->ref_output);
    if (!output)
        return RLK_OK;
    out->has_producer = true;
    out->env = env;
    out->producer = tensor->ref_event;
    out->output = tensor->ref_output;
    out->view = tensor->ref_view;
    if (output->state != RLK_T_DIGESTED) {
        out->why =
            output->state == RLK_T_NOT_DIGESTED && output->reason && output->reason[0] ? "not_digested" : "undefined";
        return RLK_OK;
    }
    out->known = true;
    out->dtype = tensor->ref_view.lo || tensor->ref_view.hi ? tensor->dtype : output->dtype;
    out->sums = output->sums;
    out->nsamples = rlki_sample_sum(output, &out->samples, NULL);
    return RLK_OK;
}

enum rlki_tri rlki_value_equal(const struct rlki_value *a, const struct rlki_value *b)
{
    if (!a->known || !b->known)
        return RLKI_MAYBE;
    bool same_view = rlk_u128_equal(a->view, b->view);
    bool seen_through = a->view.lo || a->view.hi || b->view.lo || b->view.hi;
    if (same_view && a->dtype == b->dtype && a->nsamples && a->nsamples == b->nsamples && a->samples == b->samples)
        return RLKI_YES; /* another order of the batch */
    if (same_view)
        return a->dtype == b->dtype && rlk_sums_same_bits(&a->sums, &b->sums) ? RLKI_YES : RLKI_NO;
    if (a->has_producer && b->has_producer)
        return RLKI_NO; /* other parts of what they refer to */
    return seen_through ? RLKI_MAYBE : RLKI_NO;
}

int rlki_value_producer(struct rlki_audit *audit, int side, const struct rlk_event *event, uint32_t env,
                        const struct rlk_tensor *tensor, struct rlki_value *value, bool *unsure)
{
    if (value->has_producer)
        return RLK_OK;
    uint64_t seq;
    uint32_t output;
    int rc = rlki_side_writer(&audit->side[side], env, event->rank, event->seq, tensor->alloc, tensor->name, &seq,
                              &output, audit->detail);
    if (rc == RLK_EAGAIN)
        *unsure = true;
    if (rc == RLK_EAGAIN || rc == RLK_ENOENT)
        return RLK_OK;
    if (rc)
        return rc;
    value->has_producer = true;
    value->env = env;
    value->producer = seq;
    value->output = output;
    return RLK_OK;
}

#define REACH_MAX 256u

struct reach {
    struct rlki_audit *audit;
    int side;
    uint32_t env;
    uint64_t seq[REACH_MAX];
    uint32_t output[REACH_MAX];
    size_t n;
    struct rlki_hash seen;
    bool clipped;
};

static void reach_push(struct reach *reach, uint64_t seq, uint32_t output)
{
    if (!rlki_hash_put(&reach->seen, rlki_mix(rlki_mix(3, seq), output), 1))
        return;
    if (reach->n == REACH_MAX || reach->seen.n > 65536) {
        reach->clipped = true;
        return;
    }
    reach->seq[reach->n] = seq;
    reach->output[reach->n++] = output;
}

/* The producers of every input of an unaligned event. */
static int reach_inputs(struct reach *reach, uint64_t seq)
{
    const struct rlk_event *event;
    struct rlki_side *side = &reach->audit->side[reach->side];
    int rc = rlki_side_fetch(side, reach->env, seq, &event, reach->audit->detail);
    if (rc == RLK_ENOENT)
        return RLK_OK;
    if (rc)
        return rc;
    for (uint32_t i = 0; i < event->ntensors; i++) {
        const struct rlk_tensor *t = &event->tensors[i];
        if (t->role != RLK_ROLE_IN)
            continue;
        uint64_t from;
        uint32_t output;
        if (t->state == RLK_T_REFERENCE) {
            if (t->ref_event < seq)
                reach_push(reach, t->ref_event, t->ref_output);
            continue;
        }
        rc = rlki_side_writer(side, reach->env, event->rank, seq, t->alloc, t->name, &from, &output,
                              reach->audit->detail);
        if (rc == RLK_OK)
            reach_push(reach, from, output);
        else if (rc == RLK_EAGAIN)
            reach->clipped = true;
        else if (rc != RLK_ENOENT)
            return rc;
    }
    return RLK_OK;
}

int rlki_reach(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, uint32_t output, enum rlki_tri *out)
{
    struct reach reach = {.audit = audit, .side = side, .env = env};
    bool dark = false;
    int rc = RLK_OK;
    *out = RLKI_NO;
    reach_push(&reach, seq, output);
    while (reach.n && rc == RLK_OK && *out == RLKI_NO) {
        reach.n--;
        enum rlki_mark mark = rlki_side_marked(&audit->side[side], env, reach.seq[reach.n], reach.output[reach.n]);
        if (mark == RLKI_MARK_DIFF)
            *out = RLKI_YES;
        else if (mark == RLKI_MARK_LONE)
            rc = reach_inputs(&reach, reach.seq[reach.n]);
        else if (mark == RLKI_MARK_DARK)
            dark = true;
        if (audit->cross && mark == RLKI_MARK_DARK)
            rc = reach_inputs(&reach, reach.seq[reach.n]);
    }
    if (*out == RLKI_NO && (dark || reach.clipped))
        *out = RLKI_MAYBE;
    if (reach.seen.failed)
        rc = RLK_ENOMEM;
    rlki_hash_release(&reach.seen);
    return rc;
}

enum rlki_tri rlki_output_equal(const struct rlk_tensor *a, const struct rlk_tensor *b, const char **reason)
{
    uint32_t na = a->place ? a->place->ndim : a->ndim, nb = b->place ? b->place->ndim : b->ndim;
    const uint64_t *sa = a->place ? a->place->shape : a->shape, *sb = b->place ? b->place->shape : b->shape;
    *reason = NULL;
    if (a->dtype != b->dtype || na != nb || (na && memcmp(sa, sb, na * sizeof *sa) != 0))
        return RLKI_NO;
    if (a->state == RLK_T_DIGESTED && b->state == RLK_T_DIGESTED) {
        bool whole_a = !a->place || rlk_place_is_whole(a->place), whole_b = !b->place || rlk_place_is_whole(b->place);
        if (whole_a != whole_b || (!whole_a && !rlk_place_equal(a->place, b->place))) {
            *reason = "placement";
            return RLKI_MAYBE;
        }
        uint64_t x, y;
        uint32_t n = rlki_sample_sum(a, &x, NULL);
        if (n && n == rlki_sample_sum(b, &y, NULL) && x == y)
            return RLKI_YES; /* the same samples, in this or another order */
        return rlk_sums_same_bits(&a->sums, &b->sums) ? RLKI_YES : RLKI_NO;
    }
    const struct rlk_tensor *t = a->state == RLK_T_DIGESTED ? b : a;
    *reason = t->state == RLK_T_NOT_DIGESTED && t->reason && t->reason[0] ? t->reason
              : t->state == RLK_T_UNDEFINED                               ? "undefined"
                                                                          : "not_digested";
    return RLKI_MAYBE;
}
