/* check_recompute.c - a recomputed operator with the inputs of its forward has its outputs.
 *
 * Which forward? Frameworks that recompute inside the backward pass count works as they like, so work is no part of the
 * search: of the forwards of one (module, call, operator, occurrence) in the step it is the latest with equal inputs.
 * An operator without inputs (one that draws) belongs to the work whose operator was found before it. */
#include "auditor/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct forward { /* of this step */
    struct rlki_place_of at;
    struct rlki_generator rng;
    int64_t work;
    size_t next; /* an earlier one of the same key: place + 1, or 0 */
};

struct state {
    struct rlki_generators rngs;
    struct rlki_hash index; /* (environment, rank, identity without pass and work) -> place of the latest + 1 */
    struct rlki_hash works; /* (environment, rank, work of a recomputation) -> work of its forward */
    struct forward *forward;
    size_t n, cap;
};

#define LOOKED_AT 64u /* forwards of one key */

static uint64_t key_of(uint32_t env, const struct rlk_event *event)
{
    struct rlk_event copy = *event;
    copy.who.work = copy.who.iteration = 0;
    return rlki_mix(rlki_mix(rlki_check_key(&copy), env), event->rank);
}

static uint64_t work_key(uint32_t env, const struct rlk_event *event)
{
    return rlki_mix(rlki_mix(rlki_mix(19, env), event->rank), (uint64_t)event->who.work);
}

static bool draws(const char *op)
{
    static const char *const parts[] = {"dropout", "bernoulli", "rand",        "multinomial",
                                        "normal_", "uniform_",  "exponential_"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(op, parts[i]))
            return true;
    return false;
}

static bool same_rng(const struct rlki_generator *a, const struct rlki_generator *b)
{
    return a->generator == b->generator && a->seed == b->seed && a->offset == b->offset && a->grid == b->grid;
}

static int report(struct rlki_check *check, const struct forward *fwd, const struct rlki_generator *rng,
                  struct rlki_finding *f, const char *op, const struct rlk_tensor *was, const struct rlk_tensor *is)
{
    const char *name = is->name && is->name[0] ? is->name : "an output";
    if (was->dtype != is->dtype) {
        f->class = "dtype";
        f->confidence = "high";
        return rlki_check_find(check, f, "%s is %s in the forward pass and %s in the recomputation", name,
                               rlk_dtype_name(was->dtype), rlk_dtype_name(is->dtype));
    }
    if (fwd->rng.known && rng->known && !same_rng(&fwd->rng, rng)) {
        f->class = "rng";
        f->confidence = "high";
        return rlki_check_find(check, f,
                               "%s differs from the forward pass; the generator stands at seed %" PRIu64
                               " offset %" PRIu64 " grid %" PRIu64 " there and at seed %" PRIu64 " offset %" PRIu64
                               " grid %" PRIu64 " in the recomputation",
                               name, fwd->rng.seed, fwd->rng.offset, fwd->rng.grid, rng->seed, rng->offset, rng->grid);
    }
    if (!(fwd->rng.known && rng->known) && (fwd->rng.known || rng->known || draws(op))) {
        f->class = "rng";
        f->confidence = "medium";
        return rlki_check_find(check, f,
                               "%s differs from the forward pass; the operator draws, and its generator was not "
                               "recorded for both",
                               name);
    }
    f->class = "unknown";
    f->confidence = "low";
    return rlki_check_find(check, f, "%s differs from the forward pass although the inputs are equal", name);
}

/* Are its inputs the forward's? */
static int same_inputs(struct rlki_check *check, const struct forward *fwd, uint32_t env, const struct rlk_event *event,
                       enum rlki_tri *out)
{
    struct rlk_arena arena = {0};
    struct rlk_event was;
    int rc = rlki_check_load(check, fwd->at, &arena, &was);
    *out = RLKI_NO;
    if (rc == RLK_OK)
        rc = rlki_check_inputs(check, fwd->at, &was, (struct rlki_place_of){env, event->seq}, event, out);
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

/* The forward of a recomputed operator, or NULL; *inputs: YES or MAYBE. */
static int forward_of(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event,
                      const struct forward **out, enum rlki_tri *inputs)
{
    const bool blind = !rlki_event_ninputs(event);
    const int64_t own = event->who.work;
    uint64_t place = 0, work = (uint64_t)own;
    unsigned looked = 0;
    *out = NULL;
    *inputs = RLKI_YES;
    if (blind)
        rlki_hash_get(&s->works, work_key(env, event), &work);
    rlki_hash_get(&s->index, key_of(env, event), &place);
    for (; place && looked++ < LOOKED_AT; place = s->forward[place - 1].next) {
        const struct forward *fwd = &s->forward[place - 1];
        enum rlki_tri equal = blind && (uint64_t)fwd->work != work ? RLKI_NO : RLKI_YES;
        const int rc = blind ? RLK_OK : same_inputs(check, fwd, env, event, &equal);
        if (rc)
            return rc;
        if (equal == RLKI_YES || (equal == RLKI_MAYBE && fwd->work == own)) {
            *out = fwd;
            *inputs = equal;
        }
        if (equal == RLKI_YES)
            break;
    }
    if (*out && !blind)
        rlki_hash_put(&s->works, work_key(env, event), (uint64_t)(*out)->work);
    return s->works.failed ? RLK_ENOMEM : RLK_OK;
}

static int compare(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event,
                   const struct rlki_generator *rng)
{
    const struct rlki_place_of at = {env, event->seq};
    const struct forward *fwd;
    struct rlk_arena arena = {0};
    struct rlk_event was;
    enum rlki_tri inputs;
    int rc = forward_of(check, s, env, event, &fwd, &inputs);
    if (rc || !fwd)
        return rc;
    rc = rlki_check_load(check, fwd->at, &arena, &was);
    for (uint32_t i = rlki_event_ninputs(event); i < event->ntensors && rc == RLK_OK; i++) {
        const struct rlk_tensor *is = &event->tensors[i];
        const struct rlk_tensor *o = rlki_event_tensor(&was, RLK_ROLE_OUT, is->index);
        const char *why;
        if (!o)
            continue;
        const enum rlki_tri equal = rlki_output_equal(o, is, &why);
        if (equal != RLKI_MAYBE)
            rlki_check_examined(check);
        if (equal != RLKI_NO)
            continue;
        struct rlki_finding f = {
            .at = at, .against = &fwd->at, .role = RLK_ROLE_OUT, .index = is->index, .unknown = inputs == RLKI_MAYBE};
        rc = report(check, fwd, rng, &f, event->who.op, o, is);
    }
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    const struct rlki_generator rng = rlki_generators_event(&s->rngs, env, event);
    uint64_t before = 0;
    if (event->kind != RLK_EV_OP || !event->who.pass)
        return s->rngs.failed ? RLK_ENOMEM : RLK_OK;
    if (strcmp(event->who.pass, "recompute") == 0)
        return compare(check, s, env, event, &rng);
    if (strcmp(event->who.pass, "fwd") != 0)
        return RLK_OK;
    if (!rlki_grow(&s->forward, &s->cap, s->n, sizeof *s->forward))
        return RLK_ENOMEM;
    rlki_hash_get(&s->index, key_of(env, event), &before);
    s->forward[s->n++] = (struct forward){{env, event->seq}, rng, event->who.work, (size_t)before};
    rlki_hash_put(&s->index, key_of(env, event), s->n);
    return s->index.failed ? RLK_ENOMEM : RLK_OK;
}

static int step(struct rlki_check *check, void *opaque, int64_t number)
{
    struct state *s = opaque;
    (void)check;
    (void)number;
    s->n = 0;
    rlki_hash_clear(&s->index);
    rlki_hash_clear(&s->works);
    return RLK_OK;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    rlki_generators_release(&s->rngs);
    rlki_hash_release(&s->index);
    rlki_hash_release(&s->works);
    free(s->forward);
}

const struct rlki_checker rlki_checker_recompute = {
    .name = "recompute",
    .next = "restore the generator for the recomputation (preserve_rng_state=True), or fork it by (step, layer)",
    .state_size = sizeof(struct state),
    .event = event,
    .step = step,
    .release = release,
};
