/* check_overlap.c - a collective or a copy reads what the recorded writers wrote, and others read what it wrote. Both
 * run beside the stream of operators, so this is where something that waits for nothing shows. */
#include "auditor/check.h"

#include <stdlib.h>
#include <string.h>

struct buffer { /* a generation of memory: its last two writes */
    struct rlki_place_of at, before;
    uint64_t sums, sums_before, shape;
    uint32_t dtype;
    bool async, known, known_before;
};

struct state {
    struct rlki_hash index; /* (environment, rank, alloc) -> place + 1 */
    struct buffer *buffer;
    size_t n, cap;
};

static bool async_kind(enum rlk_event_kind kind)
{
    return kind == RLK_EV_COLLECTIVE || kind == RLK_EV_COPY;
}

static uint64_t shape_key(const struct rlk_tensor *t)
{
    uint64_t key = t->ndim;
    for (uint32_t i = 0; i < t->ndim; i++)
        key = rlki_mix(key, t->shape[i]);
    return key;
}

static int read_input(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event,
                      const struct rlk_tensor *t)
{
    struct rlki_finding f = {
        .at = {env, event->seq}, .role = RLK_ROLE_IN, .index = t->index, .class = "race", .confidence = "high"};
    uint64_t place;
    if (t->state == RLK_T_NOT_DIGESTED && t->reason && strcmp(t->reason, "async") == 0) {
        f.unknown = true;
        return rlki_check_find(check, &f, "it reads the output of a collective before that was waited for");
    }
    if (t->state != RLK_T_DIGESTED || !t->alloc ||
        !rlki_hash_get(&s->index, rlki_mix(rlki_mix(env, event->rank), t->alloc), &place))
        return RLK_OK;
    const struct buffer *b = &s->buffer[place - 1];
    if (!b->known || !(b->async || async_kind(event->kind)) || b->dtype != t->dtype || b->shape != shape_key(t))
        return RLK_OK;
    rlki_check_examined(check);
    const uint64_t sums = rlki_check_sums(&t->sums);
    if (sums == b->sums)
        return RLK_OK;
    f.against = &b->at;
    int rc = rlki_check_find(check, &f,
                             "what it read is not what event %llu, the last recorded writer of that buffer, wrote",
                             (unsigned long long)b->at.seq);
    if (rc == RLK_OK && b->known_before && sums == b->sums_before)
        rlki_check_evidence(check, "it is what event %llu wrote there before", (unsigned long long)b->before.seq);
    return rc;
}

static int write_output(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event,
                        const struct rlk_tensor *t)
{
    const uint64_t key = rlki_mix(rlki_mix(env, event->rank), t->alloc);
    uint64_t place;
    if (event->kind == RLK_EV_COLLECTIVE && t->state == RLK_T_NOT_DIGESTED && t->reason &&
        (strcmp(t->reason, "unwaited") == 0 || strcmp(t->reason, "un-waited") == 0)) {
        const struct rlki_finding f = {.at = {env, event->seq},
                                       .role = RLK_ROLE_OUT,
                                       .index = t->index,
                                       .class = "race",
                                       .confidence = "medium",
                                       .unknown = true};
        const int rc = rlki_check_find(
            check, &f, "its output was overwritten, or the recording ended, before anything waited for it");
        if (rc)
            return rc;
    }
    if (!t->alloc)
        return RLK_OK;
    if (!rlki_hash_get(&s->index, key, &place)) {
        if (!rlki_grow(&s->buffer, &s->cap, s->n, sizeof *s->buffer))
            return RLK_ENOMEM;
        s->buffer[s->n++] = (struct buffer){0};
        place = s->n;
        rlki_hash_put(&s->index, key, place);
    }
    struct buffer *b = &s->buffer[place - 1];
    b->before = b->at;
    b->sums_before = b->sums;
    b->known_before = b->known;
    b->at = (struct rlki_place_of){env, event->seq};
    b->known = t->state == RLK_T_DIGESTED;
    b->sums = b->known ? rlki_check_sums(&t->sums) : 0;
    b->shape = shape_key(t);
    b->dtype = t->dtype;
    b->async = async_kind(event->kind);
    return s->index.failed ? RLK_ENOMEM : RLK_OK;
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    int rc = RLK_OK;
    if (event->kind != RLK_EV_OP && !async_kind(event->kind) && event->kind != RLK_EV_WEIGHTS)
        return RLK_OK;
    for (uint32_t i = 0; i < event->ntensors && rc == RLK_OK; i++)
        rc = event->tensors[i].role == RLK_ROLE_IN ? read_input(check, opaque, env, event, &event->tensors[i])
                                                   : write_output(check, opaque, env, event, &event->tensors[i]);
    return rc;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    rlki_hash_release(&s->index);
    free(s->buffer);
}

const struct rlki_checker rlki_checker_overlap = {
    .name = "overlap",
    .next =
        "wait for the collective or copy before reading (wait(), or an event between the two streams), and run again",
    .state_size = sizeof(struct state),
    .event = event,
    .release = release,
};
