/* check_replicas.c - what is placed as a replica, and what a collective gives to all its ranks, is equal on them. */
#include "auditor/check.h"

#include <stdlib.h>
#include <string.h>

struct copy { /* one rank's */
    struct rlki_place_of at;
    uint64_t sums;
    uint32_t rank, next; /* next: place + 1, or 0 */
};

struct group { /* copies of one tensor */
    uint32_t first, last, index;
    bool collective;
};

struct state {
    struct rlki_hash index; /* -> place in `group` + 1 */
    struct group *group;
    struct copy *copy;
    uint32_t *members;
    size_t ngroups, cap_groups, ncopies, cap_copies;
};

static bool gives_all(const char *function)
{
    return strcmp(function, "all_reduce") == 0 || strcmp(function, "all_gather") == 0 ||
           strcmp(function, "broadcast") == 0;
}

/* Name of the group of ranks; 0: not known. */
static uint64_t ranks_key(struct rlki_check *check, struct state *s, const struct rlk_event *event, const char *group)
{
    const struct rlki_side *side = &rlki_check_audit(check)->side[0];
    uint32_t n = 0;
    uint64_t key = 7;
    if (!group)
        rlki_side_communicator(side, event, s->members, &n);
    else if (!side->has_layout || event->rank >= side->world ||
             rlk_layout_group(&side->layout, side->world, group, event->rank, s->members, &n) != RLK_OK)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        key = rlki_mix(key, s->members[i]);
    return n > 1 ? key | 1 : 0;
}

static uint64_t runs_key(const struct rlk_place *place)
{
    uint64_t key = 11;
    const struct rlk_run *run = place ? place->runs : NULL;
    for (uint32_t d = 0; place && d < place->ndim; d++) {
        key = rlki_mix(key, place->shape[d]);
        const uint32_t n = place->nruns ? place->nruns[d] : RLK_WHOLE;
        for (uint32_t i = 0; n != RLK_WHOLE && i < n; i++, run++)
            key = rlki_mix(rlki_mix(key, run->start), run->extent);
    }
    return key;
}

static int add(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event,
               const struct rlk_tensor *t, uint64_t ranks)
{
    uint64_t key = rlki_mix(rlki_mix(rlki_check_key(event), rlki_check_text(event->who.pass)), ranks), place = 0;
    key = rlki_mix(rlki_mix(rlki_mix(key, t->index), runs_key(t->place)), t->dtype);
    if (!rlki_grow(&s->copy, &s->cap_copies, s->ncopies, sizeof *s->copy) || s->ncopies >= UINT32_MAX)
        return RLK_ENOMEM;
    s->copy[s->ncopies++] = (struct copy){{env, event->seq}, rlki_check_sums(&t->sums), event->rank, 0};
    const uint32_t now = (uint32_t)s->ncopies;
    if (rlki_hash_get(&s->index, key, &place)) {
        struct group *g = &s->group[place - 1];
        s->copy[g->last - 1].next = now;
        g->last = now;
        rlki_check_examined(check);
        return RLK_OK;
    }
    if (!rlki_grow(&s->group, &s->cap_groups, s->ngroups, sizeof *s->group))
        return RLK_ENOMEM;
    s->group[s->ngroups++] = (struct group){now, now, t->index, event->kind == RLK_EV_COLLECTIVE};
    rlki_hash_put(&s->index, key, s->ngroups);
    return s->index.failed ? RLK_ENOMEM : RLK_OK;
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    if (!s->members)
        s->members = malloc((rlki_check_audit(check)->side[0].world + 1u) * sizeof *s->members);
    if (!s->members)
        return RLK_ENOMEM;
    const bool collective = event->kind == RLK_EV_COLLECTIVE && gives_all(event->who.op);
    uint64_t ranks = collective ? ranks_key(check, s, event, NULL) : 0;
    int rc = RLK_OK;
    if (event->kind != RLK_EV_OP && !ranks)
        return RLK_OK;
    for (uint32_t i = rlki_event_ninputs(event); i < event->ntensors && rc == RLK_OK; i++) {
        const struct rlk_tensor *t = &event->tensors[i];
        if (t->state != RLK_T_DIGESTED || (t->place && (t->place->partial || t->place->zero)))
            continue;
        if (!collective)
            ranks = t->place && t->place->replica ? ranks_key(check, s, event, t->place->replica) : 0;
        if (ranks)
            rc = add(check, s, env, event, t, ranks);
    }
    return rc;
}

/* The copy that most ranks hold; of equally many the first. */
static uint32_t majority(const struct state *s, const struct group *g)
{
    uint32_t best = g->first, most = 0;
    for (uint32_t a = g->first; a; a = s->copy[a - 1].next) {
        uint32_t n = 0;
        for (uint32_t b = g->first; b && n <= 4096; b = s->copy[b - 1].next)
            n += s->copy[b - 1].sums == s->copy[a - 1].sums;
        if (n > most) {
            most = n;
            best = a;
        }
        if (n > 1 && a != g->first) /* enough: a value that several ranks hold */
            break;
    }
    return best;
}

/* Why two ranks of one operator disagree, as far as their launches say. */
static const char *launches_say(const struct rlk_event *a, const struct rlk_event *b)
{
    if (!a->nlaunches || !b->nlaunches)
        return "unknown";
    if (a->nlaunches != b->nlaunches)
        return "kernel-differs";
    for (uint32_t i = 0; i < a->nlaunches; i++) {
        const struct rlk_launch *x = &a->launches[i], *y = &b->launches[i];
        if (strcmp(x->kernel, y->kernel) != 0 || strcmp(x->image, y->image) != 0)
            return "kernel-differs";
        if (strcmp(x->config, y->config) != 0)
            return "autotune";
    }
    return "unknown";
}

static int disagree(struct rlki_check *check, const struct group *g, const struct copy *most, const struct copy *odd)
{
    struct rlk_arena arena[2] = {{0}, {0}};
    struct rlk_event a, b;
    enum rlki_tri inputs = RLKI_YES;
    int rc = rlki_check_load(check, most->at, &arena[0], &a);
    if (rc == RLK_OK)
        rc = rlki_check_load(check, odd->at, &arena[1], &b);
    if (rc == RLK_OK && !g->collective) /* those of a collective differ by design */
        rc = rlki_check_inputs(check, most->at, &a, odd->at, &b, &inputs);
    if (rc == RLK_OK && inputs != RLKI_NO) {
        struct rlki_finding f = {.at = odd->at,
                                 .against = &most->at,
                                 .role = RLK_ROLE_OUT,
                                 .index = g->index,
                                 .unknown = inputs == RLKI_MAYBE,
                                 .class = launches_say(&a, &b)};
        f.confidence = strcmp(f.class, "unknown") == 0 ? "low" : "high";
        rc = rlki_check_find(check, &f, "rank %u holds other bits than rank %u%s", odd->rank, most->rank,
                             g->collective ? " of what one collective gave to both"
                                           : " of what is placed as a replica, from equal inputs");
    }
    rlk_arena_release(&arena[0]);
    rlk_arena_release(&arena[1]);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

static int step(struct rlki_check *check, void *opaque, int64_t number)
{
    struct state *s = opaque;
    int rc = RLK_OK;
    (void)number;
    for (size_t i = 0; i < s->ngroups && rc == RLK_OK; i++) {
        const struct group *g = &s->group[i];
        bool differ = false;
        for (uint32_t c = g->first; c && !differ; c = s->copy[c - 1].next)
            differ = s->copy[c - 1].sums != s->copy[g->first - 1].sums;
        if (!differ)
            continue;
        const struct copy *most = &s->copy[majority(s, g) - 1];
        for (uint32_t c = g->first; c && rc == RLK_OK; c = s->copy[c - 1].next)
            if (s->copy[c - 1].sums != most->sums)
                rc = disagree(check, g, most, &s->copy[c - 1]);
    }
    s->ngroups = s->ncopies = 0;
    rlki_hash_clear(&s->index);
    return rc;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    rlki_hash_release(&s->index);
    free(s->group);
    free(s->copy);
    free(s->members);
}

const struct rlki_checker rlki_checker_replicas = {
    .name = "replicas",
    .next = "rlkrec run --payload for this module, and look at the ranks named: one device, or all of one host?",
    .state_size = sizeof(struct state),
    .event = event,
    .step = step,
    .release = release,
};
