/* check_backend.c - an implementation that a readback declares ran. */
#include "auditor/check.h"

#include <string.h>

struct state {
    struct rlki_hash contracts; /* of the operators of each environment */
    struct rlki_hash any;       /* environments that record contracts */
};

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    const char *contract = event->kind == RLK_EV_OP ? event->u.op.contract : NULL;
    if (contract && contract[0]) {
        rlki_hash_put(&s->contracts, rlki_mix(env, rlki_check_text(contract)), 1);
        rlki_hash_put(&s->any, rlki_mix(1, env), 1);
    }
    if (event->kind != RLK_EV_READBACK)
        return s->contracts.failed || s->any.failed ? RLK_ENOMEM : RLK_OK;
    contract = event->u.readback.contract;
    struct rlki_finding f = {.at = {env, event->seq},
                             .role = RLK_ROLE_OUT,
                             .name = event->u.readback.implementation,
                             .class = "extra-or-missing",
                             .confidence = "high"};
    uint64_t dummy;
    rlki_check_examined(check);
    if (!event->u.readback.calls)
        return rlki_check_find(check, &f, "%.80s declares %.80s for %.80s, and no call of it was counted",
                               event->u.readback.case_id, event->u.readback.implementation, event->who.module);
    if (!contract[0] || !rlki_hash_get(&s->any, rlki_mix(1, env), &dummy) ||
        rlki_hash_get(&s->contracts, rlki_mix(env, rlki_check_text(contract)), &dummy))
        return RLK_OK;
    f.confidence = "medium";
    return rlki_check_find(check, &f,
                           "%.80s counts %llu calls of contract %.80s; operators with contracts were recorded before "
                           "it, none with this one",
                           event->u.readback.case_id, (unsigned long long)event->u.readback.calls, contract);
}

static void release(void *opaque)
{
    struct state *s = opaque;
    rlki_hash_release(&s->contracts);
    rlki_hash_release(&s->any);
}

const struct rlki_checker rlki_checker_backend = {
    .name = "backend",
    .next = "look for the fallback: which operators ran in this module (rlkrec info REC --events)",
    .state_size = sizeof(struct state),
    .event = event,
    .release = release,
};
