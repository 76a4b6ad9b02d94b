/* check_group_rng.c - samples draw from generator states of their own. Two samples that drew every time from the same
 * state and got the same are one sample counted twice; equal results from states of their own are a sharp distribution,
 * and equal states with other results are other prompts. */
#include "auditor/check.h"

#include <stdlib.h>
#include <string.h>

struct draws { /* of one sample in this step */
    struct rlki_place_of first;
    uint64_t sample, chain, number; /* chain: states and results in their order */
};

struct state {
    struct rlki_generators rngs;
    struct rlki_hash index, chains; /* (phase, sample) -> place + 1; chain -> place + 1 */
    struct draws *draws;
    size_t n, cap;
};

static int draw(struct state *s, uint32_t env, const struct rlk_event *event, const struct rlki_generator *rng)
{
    const uint64_t sample = rlki_mix(rlki_check_text(event->who.sample), rlki_check_text(event->who.phase));
    uint64_t place;
    if (!rlki_hash_get(&s->index, sample, &place)) {
        if (!rlki_grow(&s->draws, &s->cap, s->n, sizeof *s->draws))
            return RLK_ENOMEM;
        s->draws[s->n++] = (struct draws){.first = {env, event->seq}, .sample = sample, .chain = 13};
        place = s->n;
        rlki_hash_put(&s->index, sample, place);
    }
    struct draws *d = &s->draws[place - 1];
    uint64_t chain = rlki_mix(rlki_mix(d->chain, rlki_check_text(event->who.op)), rlki_check_text(event->who.module));
    chain = rlki_mix(rlki_mix(rlki_mix(chain, rng->generator), rng->seed), rng->offset);
    for (uint32_t i = rlki_event_ninputs(event); i < event->ntensors; i++) {
        if (event->tensors[i].state != RLK_T_DIGESTED)
            return RLK_OK; /* not known what it drew: such a draw is not counted */
        chain = rlki_mix(chain, rlki_check_sums(&event->tensors[i].sums));
    }
    d->chain = chain;
    d->number++;
    return s->index.failed ? RLK_ENOMEM : RLK_OK;
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    const struct rlki_generator rng = rlki_generators_event(&s->rngs, env, event);
    (void)check;
    if (s->rngs.failed)
        return RLK_ENOMEM;
    if (!rng.known || event->kind != RLK_EV_OP || !event->who.sample || !event->who.sample[0] ||
        !rlki_is_rollout(event->who.phase))
        return RLK_OK;
    return draw(s, env, event, &rng);
}

static int step(struct rlki_check *check, void *opaque, int64_t number)
{
    struct state *s = opaque;
    int rc = RLK_OK;
    (void)number;
    for (size_t i = 0; i < s->n && rc == RLK_OK; i++) {
        const struct draws *d = &s->draws[i];
        uint64_t place;
        if (d->number < 2)
            continue;
        rlki_check_examined(check);
        if (!rlki_hash_get(&s->chains, d->chain, &place)) {
            rlki_hash_put(&s->chains, d->chain, i + 1);
            continue;
        }
        const struct rlki_finding f = {.at = d->first,
                                       .against = &s->draws[place - 1].first,
                                       .role = RLK_ROLE_OUT,
                                       .class = "rng",
                                       .confidence = "high"};
        rc = rlki_check_find(check, &f,
                             "this sample drew %llu times, each time from the same seed and offset as the sample that "
                             "it is held against, and got the same",
                             (unsigned long long)d->number);
    }
    s->n = 0;
    rlki_hash_clear(&s->index);
    rlki_hash_clear(&s->chains);
    return rc ? rc : s->chains.failed ? RLK_ENOMEM : RLK_OK;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    rlki_generators_release(&s->rngs);
    rlki_hash_release(&s->index);
    rlki_hash_release(&s->chains);
    free(s->draws);
}

const struct rlki_checker rlki_checker_group_rng = {
    .name = "group-rng",
    .next = "give every sample of a group a seed or an offset of its own",
    .state_size = sizeof(struct state),
    .event = event,
    .step = step,
    .release = release,
};
