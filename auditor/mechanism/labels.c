/* labels.c - notes on version labels: labels are no difference (docs/cli.md), but who counts staleness by them must
 * know that the two sides label the same weights and requests otherwise, or that a counter goes back.
 */
#include "auditor/audit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define EVENTS_MAX (UINT64_C(1) << 20) /* a recording with more events is not looked through for this */
#define TOLD 3u                        /* notes of one kind */

struct labels {
    struct rlki_audit *audit;
    int side;
    struct rlki_hash counts;
    struct rlki_hash *of;   /* which -> label, a name, of A */
    struct rlki_hash *last; /* (rank, side of the weights) -> label of the sync before */
    unsigned told[3];
};

/* The policy versions of a request in one text. */
static uint32_t versions_text(struct rlki_audit *audit, const struct rlk_event *e)
{
    char text[200] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < e->u.request.nversions && i < 16 && n + 24 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.20s", i ? "," : "", e->u.request.versions[i]);
    return rlki_names_id(&audit->names, text);
}

/* The number at a label's end; false: none. */
static bool number_of(const char *label, long *out)
{
    size_t n = strlen(label), i = n;
    while (i > 0 && isdigit((unsigned char)label[i - 1]))
        i--;
    if (i == n || n - i > 9)
        return false;
    *out = strtol(label + i, NULL, 10);
    return true;
}

static void goes_back(struct labels *l, const struct rlk_event *e, uint64_t who, uint32_t label)
{
    const struct rlki_names *names = &l->audit->names;
    uint64_t before;
    long x, y;
    if (rlki_hash_get(l->last, who, &before) && number_of(rlki_names_text(names, (uint32_t)before), &x) &&
        number_of(rlki_names_text(names, label), &y) && y < x && l->told[2]++ < TOLD)
        rlki_note(l->audit, "version labels of the %.20s go back in %c: from %.40s to %.40s at step %lld",
                  e->u.weights.side, l->side ? 'B' : 'A', rlki_names_text(names, (uint32_t)before),
                  rlki_names_text(names, label), (long long)e->who.step);
    rlki_hash_put(l->last, who, label);
}

static int visit(void *context, const struct rlk_event *e)
{
    struct labels *l = context;
    const struct rlki_names *names = &l->audit->names;
    bool request = e->kind == RLK_EV_REQUEST;
    if (!request && e->kind != RLK_EV_WEIGHTS)
        return 0;
    const char *who = request ? e->u.request.id : e->u.weights.side;
    uint64_t key = rlki_mix(rlki_mix(rlki_mix(127, request), e->rank), XXH3_64bits(who, strlen(who))), before;
    uint32_t label = request ? versions_text(l->audit, e) : rlki_names_id(&l->audit->names, e->u.weights.version);
    if (!request)
        goes_back(l, e, key, label);
    key = rlki_mix(key, rlki_hash_count(&l->counts, key, 1));
    if (l->side == 0)
        rlki_hash_put(l->of, key, label);
    else if (rlki_hash_get(l->of, key, &before) && before != label && l->told[request]++ < TOLD)
        rlki_note(l->audit,
                  request ? "step %lld: the policy version labels of request %s are %s in A and %s in B"
                          : "step %lld: the %s's weights are labelled %s in A and %s in B",
                  (long long)e->who.step, who, rlki_names_text(names, (uint32_t)before), rlki_names_text(names, label));
    return 0;
}

int rlki_label_notes(struct rlki_audit *audit)
{
    struct rlki_hash of = {0}, last = {0};
    uint64_t events = 0, labelled = 0;
    int rc = RLK_OK;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < audit->side[s].nenv; i++) {
            const struct rlk_env *env = audit->side[s].env[i].env;
            uint64_t n = rlk_env_kind(env, RLK_EV_WEIGHTS) + rlk_env_kind(env, RLK_EV_REQUEST);
            labelled += n;
            events += n ? rlk_env_count(env) : 0;
        }
    if (!labelled || events > EVENTS_MAX || audit->opt.phases)
        return RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        struct labels l = {.audit = audit, .side = s, .of = &of, .last = &last};
        struct rlki_side *side = &audit->side[s];
        for (size_t i = 0; i < side->nenv && rc == RLK_OK; i++)
            if (rlk_env_kind(side->env[i].env, RLK_EV_WEIGHTS) || rlk_env_kind(side->env[i].env, RLK_EV_REQUEST))
                rc = rlk_env_scan(side->env[i].env, 0, UINT64_MAX, visit, &l, audit->detail);
        if (l.counts.failed)
            rc = RLK_ENOMEM;
        rlki_hash_release(&l.counts);
        rlki_hash_clear(&last);
    }
    if (of.failed || last.failed)
        rc = RLK_ENOMEM;
    rlki_hash_release(&of);
    rlki_hash_release(&last);
    return rc;
}
