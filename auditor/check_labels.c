/* check_labels.c - a request names the weight versions that made its tokens. */
#include "auditor/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSIONS 16u /* of one request; more are not looked at */

struct seen { /* what was in effect while a sample's tokens were made */
    uint64_t sample;
    uint32_t n, label[VERSIONS];
};

struct current { /* label of the rollout weights of one rank */
    uint32_t rank, label;
};

struct state {
    struct current *current;
    size_t ncurrent, cap_current;
    struct rlki_hash index; /* sample -> place in `seen` + 1 */
    struct seen *seen;
    size_t nseen, cap_seen;
};

static bool add(uint32_t *list, uint32_t *n, uint32_t label)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == label)
            return true;
    if (*n == VERSIONS)
        return false;
    list[(*n)++] = label;
    return true;
}

static struct current *current_of(struct state *s, uint32_t rank, bool make)
{
    for (size_t i = 0; i < s->ncurrent; i++)
        if (s->current[i].rank == rank)
            return &s->current[i];
    if (!make || !rlki_grow(&s->current, &s->cap_current, s->ncurrent, sizeof *s->current))
        return NULL;
    s->current[s->ncurrent] = (struct current){rank, 0};
    return &s->current[s->ncurrent++];
}

static int made(struct rlki_check *check, struct state *s, const struct rlk_event *event)
{
    const struct current *now = current_of(s, event->rank, false);
    const uint64_t sample = rlki_check_text(event->who.sample);
    uint64_t place;
    (void)check;
    if (!now)
        return RLK_OK;
    if (!rlki_hash_get(&s->index, sample, &place)) {
        if (!rlki_grow(&s->seen, &s->cap_seen, s->nseen, sizeof *s->seen))
            return RLK_ENOMEM;
        s->seen[s->nseen++] = (struct seen){.sample = sample};
        place = s->nseen;
        rlki_hash_put(&s->index, sample, place);
    }
    add(s->seen[place - 1].label, &s->seen[place - 1].n, now->label);
    return s->index.failed ? RLK_ENOMEM : RLK_OK;
}

static void list(char *out, size_t size, const struct rlki_names *names, const uint32_t *label, uint32_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && at < size - 1; i++) {
        const int wrote = snprintf(out + at, size - at, "%s%.40s", i ? ", " : "", rlki_names_text(names, label[i]));
        at += wrote < 0 ? 0 : (size_t)wrote;
    }
}

static int request(struct rlki_check *check, struct state *s, uint32_t env, const struct rlk_event *event)
{
    struct rlki_names *names = &rlki_check_audit(check)->names;
    const char *id = event->u.request.id;
    struct seen named = {0};
    uint64_t place;
    bool equal = true, all = true;
    char made_by[120], called[120];
    if (!event->u.request.nversions || !rlki_hash_get(&s->index, rlki_check_text(id), &place))
        return RLK_OK;
    const struct seen *seen = &s->seen[place - 1];
    for (uint32_t i = 0; i < event->u.request.nversions && all; i++)
        all = add(named.label, &named.n, rlki_names_id(names, event->u.request.versions[i]));
    if (!all || seen->n == VERSIONS)
        return RLK_OK;
    rlki_check_examined(check);
    for (uint32_t i = 0; i < seen->n; i++) {
        uint32_t n = named.n;
        add(named.label, &n, seen->label[i]);
        equal &= n == named.n;
    }
    for (uint32_t i = 0; i < named.n; i++) {
        uint32_t n = seen->n;
        struct seen copy = *seen;
        add(copy.label, &n, named.label[i]);
        equal &= n == seen->n;
    }
    if (equal)
        return RLK_OK;
    list(made_by, sizeof made_by, names, seen->label, seen->n);
    list(called, sizeof called, names, named.label, named.n);
    return rlki_check_find(check,
                           &(struct rlki_finding){.at = {env, event->seq},
                                                  .role = RLK_ROLE_OUT,
                                                  .name = "policy_versions",
                                                  .class = "version-label",
                                                  .confidence = "high"},
                           "request %.60s: its tokens were made under the weights labelled %s, and it names %s", id,
                           made_by, called);
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    if (event->kind == RLK_EV_WEIGHTS && strcmp(event->u.weights.side, "rollout") == 0) {
        struct current *now = current_of(s, event->rank, true);
        if (now)
            now->label = rlki_names_id(&rlki_check_audit(check)->names, event->u.weights.version);
        return now ? RLK_OK : RLK_ENOMEM;
    }
    if (event->kind == RLK_EV_OP && event->who.sample && event->who.sample[0] && rlki_is_rollout(event->who.phase))
        return made(check, s, event);
    return event->kind == RLK_EV_REQUEST ? request(check, s, env, event) : RLK_OK;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    free(s->current);
    free(s->seen);
    rlki_hash_release(&s->index);
}

const struct rlki_checker rlki_checker_labels = {
    .name = "labels",
    .next = "read the version when a token is drawn, not when the request ends",
    .state_size = sizeof(struct state),
    .event = event,
    .release = release,
};
