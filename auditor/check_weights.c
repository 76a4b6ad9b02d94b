/* check_weights.c - a rollout tensor is the trainer's of that name and label; and what never changes was never
 * delivered. */
#include "auditor/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct version { /* one tensor of one weights event */
    struct rlki_place_of at;
    int64_t step;
    uint64_t sums, form; /* form: dtype, shape and placement: others are not compared */
    uint32_t name, label, index, rank;
    uint32_t nth;  /* weights event of that side and rank, from 0 */
    uint32_t next; /* of the same name: place + 1, or 0 */
};

struct table {
    struct version *v;
    size_t n, cap;
    struct rlki_hash first, last; /* name -> place + 1 */
};

struct state {
    struct table trainer, rollout;
    struct rlki_hash count; /* (side, rank) -> weights events */
};

static uint64_t form_of(const struct rlk_tensor *t)
{
    const struct rlk_place *p = t->place;
    uint64_t key = rlki_mix(t->dtype, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        key = rlki_mix(key, t->shape[i]);
    const struct rlk_run *run = p ? p->runs : NULL;
    for (uint32_t d = 0; p && !rlk_place_is_whole(p) && d < p->ndim; d++) {
        const uint32_t n = p->nruns ? p->nruns[d] : RLK_WHOLE;
        key = rlki_mix(key, p->shape[d]);
        for (uint32_t i = 0; n != RLK_WHOLE && i < n; i++, run++)
            key = rlki_mix(rlki_mix(key, run->start), run->extent);
    }
    return key;
}

static int add(struct table *table, const struct version *version)
{
    uint64_t last;
    if (table->n >= UINT32_MAX || !rlki_grow(&table->v, &table->cap, table->n, sizeof *table->v))
        return RLK_ENOMEM;
    table->v[table->n++] = *version;
    const uint64_t key = rlki_mix(17, version->name);
    if (rlki_hash_get(&table->last, key, &last))
        table->v[last - 1].next = (uint32_t)table->n;
    else
        rlki_hash_put(&table->first, key, table->n);
    rlki_hash_put(&table->last, key, table->n); /* replaces */
    return table->first.failed || table->last.failed ? RLK_ENOMEM : RLK_OK;
}

static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)
{
    struct state *s = opaque;
    struct rlki_names *names = &rlki_check_audit(check)->names;
    int rc = RLK_OK;
    if (event->kind != RLK_EV_WEIGHTS)
        return RLK_OK;
    const bool rollout = strcmp(event->u.weights.side, "rollout") == 0;
    struct version version = {.at = {env, event->seq}, .step = event->who.step, .rank = event->rank};
    version.nth = (uint32_t)rlki_hash_count(&s->count, rlki_mix(rollout ? 3 : 2, event->rank), 1);
    version.label = rlki_names_id(names, event->u.weights.version);
    for (uint32_t i = 0; i < event->ntensors && rc == RLK_OK; i++) {
        const struct rlk_tensor *t = &event->tensors[i];
        if (t->state != RLK_T_DIGESTED || (t->place && t->place->partial))
            continue;
        version.name = rlki_names_id(names, t->name);
        version.index = t->index;
        version.sums = rlki_check_sums(&t->sums);
        version.form = form_of(t);
        rc = add(rollout ? &s->rollout : &s->trainer, &version);
    }
    return rc ? rc : s->count.failed || names->failed ? RLK_ENOMEM : RLK_OK;
}

struct verdict { /* the trainer's versions of one name and form, up to the step of a rollout tensor */
    const struct version *labelled, *content, *newest;
    bool right;
};

static struct verdict look_up(const struct state *s, const struct version *r)
{
    struct verdict out = {0};
    uint64_t place = 0;
    if (!rlki_hash_get(&s->trainer.first, rlki_mix(17, r->name), &place))
        return out;
    for (const struct version *v = &s->trainer.v[place - 1]; v && !out.right;
         v = v->next ? &s->trainer.v[v->next - 1] : NULL) {
        if (v->form != r->form || v->step > r->step)
            continue;
        out.newest = v;
        if (v->label == r->label)
            out.labelled = v;
        if (v->sums == r->sums)
            out.content = v;
        out.right = v->label == r->label && v->sums == r->sums;
    }
    return out;
}

static int judge(struct rlki_check *check, const struct state *s, const struct version *r)
{
    const struct rlki_names *names = &rlki_check_audit(check)->names;
    const struct verdict v = look_up(s, r);
    struct rlki_finding f = {.at = r->at, .role = RLK_ROLE_OUT, .index = r->index, .confidence = "high"};
    const struct version *should = v.labelled ? v.labelled : v.newest;
    if (!v.newest)
        return RLK_OK;
    rlki_check_examined(check);
    if (v.right || (!v.content && !v.labelled))
        return RLK_OK;
    const char *label = rlki_names_text(names, r->label);
    f.against = &should->at;
    if (!v.content) {
        f.class = "unknown";
        f.confidence = "low";
        return rlki_check_find(check, &f,
                               "no version that the trainer had up to step %" PRId64
                               " has these bits, neither that labelled %.80s nor an older one",
                               r->step, label);
    }
    const char *real = rlki_names_text(names, v.content->label);
    if (v.content->nth < should->nth) {
        f.class = "stale-weights";
        return rlki_check_find(check, &f,
                               "under the label %.80s stands what the trainer had at step %" PRId64
                               " under the label %.80s: %u synchronisation%s behind",
                               label, v.content->step, real, should->nth - v.content->nth,
                               should->nth - v.content->nth == 1 ? "" : "s");
    }
    f.class = "version-label";
    return rlki_check_find(check, &f,
                           "under the label %.80s stands what the trainer had at step %" PRId64
                           " under the label %.80s: the content is right, the label is not",
                           label, v.content->step, real);
}

static bool changes(const struct table *table, uint64_t first, uint32_t rank, bool any_rank)
{
    const struct version *begin = NULL;
    for (const struct version *v = &table->v[first - 1]; v; v = v->next ? &table->v[v->next - 1] : NULL) {
        if (!any_rank && v->rank != rank)
            continue;
        if (begin && v->form == begin->form && v->nth != begin->nth && v->sums != begin->sums)
            return true;
        begin = begin ? begin : v;
    }
    return false;
}

/* How many names of the table change; *total of how many; *elsewhere: how many of them `other` does not have. */
static uint64_t count_changes(const struct table *table, const struct table *other, uint32_t rank, bool any_rank,
                              uint64_t *total, uint64_t *elsewhere)
{
    uint64_t changed = 0, place, dummy;
    *total = *elsewhere = 0;
    for (size_t i = 0; i < table->n; i++) {
        const uint64_t key = rlki_mix(17, table->v[i].name);
        if (!rlki_hash_get(&table->first, key, &place))
            continue;
        if (any_rank ? place != i + 1 : table->v[i].nth != 0 || table->v[i].rank != rank)
            continue;
        ++*total;
        changed += changes(table, place, rank, any_rank);
        *elsewhere += !rlki_hash_get(&other->first, key, &dummy);
    }
    return changed;
}

/* Nothing that this rollout rank was given ever changed, while the trainer's weights did. */
static int never(struct rlki_check *check, struct state *s, const struct version *last)
{
    uint64_t total, lost, tensors, dummy;
    const uint64_t changed = count_changes(&s->rollout, &s->trainer, last->rank, false, &tensors, &dummy);
    const uint64_t trained = count_changes(&s->trainer, &s->rollout, 0, true, &total, &lost);
    if (last->nth < 1 || changed || !tensors || !trained)
        return RLK_OK;
    const struct rlki_finding f = {.at = last->at,
                                   .role = RLK_ROLE_OUT,
                                   .index = last->index,
                                   .class = "stale-weights",
                                   .confidence = "high",
                                   .part = 1};
    int rc = rlki_check_find(check, &f,
                             "0 of %" PRIu64 " tensors changed in %u syncs, while %" PRIu64 " of %" PRIu64
                             " of the trainer's did",
                             tensors, last->nth + 1, trained, total);
    if (rc == RLK_OK && lost)
        rlki_check_evidence(check, "%" PRIu64 " trainer tensors have no rollout counterpart", lost);
    return rc;
}

static int finish(struct rlki_check *check, void *opaque)
{
    struct state *s = opaque;
    int rc = RLK_OK;
    for (size_t i = 0; i < s->rollout.n && rc == RLK_OK; i++) {
        const struct version *v = &s->rollout.v[i];
        uint64_t events = 0;
        rc = judge(check, s, v);
        rlki_hash_get(&s->count, rlki_mix(3, v->rank), &events);
        if (rc == RLK_OK && v->nth + 1 == events &&
            (i == 0 || s->rollout.v[i - 1].at.seq != v->at.seq || s->rollout.v[i - 1].at.env != v->at.env))
            rc = never(check, s, v);
    }
    return rc;
}

static void release(void *opaque)
{
    struct state *s = opaque;
    for (int side = 0; side < 2; side++) {
        struct table *table = side ? &s->rollout : &s->trainer;
        free(table->v);
        rlki_hash_release(&table->first);
        rlki_hash_release(&table->last);
    }
    rlki_hash_release(&s->count);
}

const struct rlki_checker rlki_checker_weights = {
    .name = "weights",
    .next = "compare what the trainer sends with what the engine holds after the synchronisation, tensor by tensor",
    .state_size = sizeof(struct state),
    .event = event,
    .finish = finish,
    .release = release,
};
