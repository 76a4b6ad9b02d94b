/* origin.c - of a root that is an input: what each side read there, in words. */
#include "auditor/audit.h"
#include "auditor/locate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct origin {
    bool has_producer;
    enum rlki_tri kept; /* is what was read what the producer wrote? */
    uint64_t seq, identity;
    uint32_t output;
    rlk_u128 view;
    char text[160];
};

static void tell(json_t *evidence, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(json_t *evidence, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rlki_add(evidence, rlki_json_text(text));
}

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

static int origin_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                     struct origin *out)
{
    struct rlk_arena arena = {0};
    struct rlki_value value;
    struct rlki_ev producer;
    bool unsure = false;
    memset(out, 0, sizeof *out);
    int rc = rlki_value_of(audit, side, &ev->e, ev->env, t, &value);
    if (rc == RLK_OK)
        rc = rlki_value_producer(audit, side, &ev->e, ev->env, t, &value, &unsure);
    if (rc || !value.has_producer)
        return rc;
    rc = rlki_ev_load(audit, side, value.env, value.producer, &arena, &producer);
    if (rc == RLK_OK) {
        *out = (struct origin){.has_producer = true,
                               .kept = kept(t, rlki_ev_tensor(&producer, RLK_ROLE_OUT, value.output)),
                               .seq = value.producer,
                               .identity = rlki_ev_identity(audit, &producer),
                               .output = value.output,
                               .view = value.view};
        snprintf(out->text, sizeof out->text, "%c #%llu %.80s output %u", side ? 'B' : 'A',
                 (unsigned long long)value.producer, producer.e.who.op, value.output);
    }
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

int rlki_input_evidence(struct rlki_audit *audit, const struct rlki_ev ev[2], const struct rlk_tensor *const t[2],
                        json_t *evidence)
{
    struct origin o[2];
    bool broken = false;
    for (int s = 0; s < 2; s++) {
        int rc = origin_of(audit, s, &ev[s], t[s], &o[s]);
        if (rc)
            return rc;
    }
    for (int s = 0; s < 2; s++) {
        if (!o[s].has_producer || o[s].kept != RLKI_NO)
            continue;
        tell(evidence, "what was read is not what its producer wrote: %s", o[s].text);
        broken = true;
    }
    if (broken)
        return RLK_OK;
    if (!o[0].has_producer && !o[1].has_producer)
        tell(evidence, "the input differs, and no recorded event wrote it");
    else if (!o[0].has_producer || !o[1].has_producer)
        tell(evidence, "%s wrote it; in %c no recorded event did", o[o[0].has_producer ? 0 : 1].text,
             o[0].has_producer ? 'B' : 'A');
    else if (o[0].identity != o[1].identity || o[0].output != o[1].output)
        tell(evidence, "reads another event's output: %s, %s", o[0].text, o[1].text);
    else if (!rlk_u128_equal(o[0].view, o[1].view))
        tell(evidence, "reads another part of the same output: %s, %s", o[0].text, o[1].text);
    else
        tell(evidence, "the input differs, and what last wrote its buffer does not: %s, %s", o[0].text, o[1].text);
    return RLK_OK;
}
