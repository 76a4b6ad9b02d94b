/* rlkrec info --events: one line an event. */
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/info.h"
#include "store/rlk_digest.h"

#include <stdlib.h>
#include <string.h>

struct dump {
    FILE *to;
    const struct rlki_event_filter *filter;
    uint64_t printed;
};

static void print_shape(FILE *to, uint32_t ndim, const uint64_t *shape)
{
    fputc('[', to);
    for (uint32_t i = 0; i < ndim; i++)
        fprintf(to, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
    fputc(']', to);
}

static void print_place(FILE *to, const struct rlk_place *place)
{
    const struct rlk_run *run = place->runs;

    fputs(" of ", to);
    print_shape(to, place->ndim, place->shape);
    for (uint32_t d = 0; d < place->ndim; d++) {
        if (place->nruns[d] == RLK_WHOLE)
            continue;
        fprintf(to, " d%u", d);
        for (uint32_t r = 0; r < place->nruns[d]; r++, run++)
            fprintf(to, "%c%llu+%llu", r ? ',' : '=', (unsigned long long)run->start, (unsigned long long)run->extent);
    }
    if (place->partial && place->partial[0])
        fprintf(to, " partial=%s", rlki_esc(place->partial));
    if (place->replica && place->replica[0])
        fprintf(to, " replica=%s", rlki_esc(place->replica));
    if (place->zero && place->zero[0])
        fprintf(to, " zero=%s", rlki_esc(place->zero));
}

static void print_tensor(FILE *to, const struct rlk_tensor *t)
{
    const struct rlk_place *place = t->place;
    char digest[33];

    fprintf(to, " | %s%u", t->role == RLK_ROLE_IN ? "in" : "out", t->index);
    if (t->name && t->name[0])
        fprintf(to, " %s", rlki_esc(t->name));
    fprintf(to, " %s", rlk_dtype_name((enum rlk_dtype)t->dtype));
    print_shape(to, t->ndim, t->shape);
    switch (t->state) {
    case RLK_T_DIGESTED:
        rlk_digest_print(digest, &t->sums, (enum rlk_dtype)t->dtype, place ? place->ndim : t->ndim,
                         place ? place->shape : t->shape);
        fprintf(to, " %s", digest);
        break;
    case RLK_T_REFERENCE:
        fprintf(to, " =#%llu.out%u", (unsigned long long)t->ref_event, t->ref_output);
        if (t->ref_view.lo || t->ref_view.hi) {
            rlk_u128_print(digest, t->ref_view);
            fprintf(to, " view %.8s", digest);
        }
        break;
    default:
        fprintf(to, " %s(%s)", t->state == RLK_T_UNDEFINED ? "undefined" : "not-digested", rlki_esc(t->reason));
    }
    if (place)
        print_place(to, place);
    if (t->version && t->version[0])
        fprintf(to, " version=%s", rlki_esc(t->version));
    if (t->has_payload)
        fputs(" payload", to);
}

static void print_detail(FILE *to, const struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_COLLECTIVE:
        fprintf(to, " group=%s", rlki_esc(e->u.collective.group));
        if (e->u.collective.algo && e->u.collective.algo[0])
            fprintf(to, " algo=%s proto=%s", rlki_esc(e->u.collective.algo), rlki_esc(e->u.collective.proto));
        break;
    case RLK_EV_SYNC:
        fprintf(to, " %s", rlki_esc(e->u.sync.what));
        break;
    case RLK_EV_RNG:
        fprintf(to, " %s seed=%llu offset=%llu", rlki_esc(e->u.rng.generator), (unsigned long long)e->u.rng.seed,
                (unsigned long long)e->u.rng.offset);
        break;
    case RLK_EV_WEIGHTS:
        fprintf(to, " version=%s side=%s", rlki_esc(e->u.weights.version), rlki_esc(e->u.weights.side));
        break;
    case RLK_EV_REQUEST:
        fprintf(to, " id=%s tokens=%u", rlki_esc(e->u.request.id), e->u.request.ntokens);
        break;
    case RLK_EV_METRIC:
        fprintf(to, " value=%.17g", e->u.metric.value);
        break;
    case RLK_EV_NOTE:
        fprintf(to, " %s: %s", rlki_esc(e->u.note.code), rlki_esc(e->u.note.text));
        break;
    case RLK_EV_LEAF:
        fprintf(to, " %s from %s", rlki_esc(e->u.leaf.name),
                rlki_esc(e->u.leaf.reference && e->u.leaf.reference[0] ? e->u.leaf.reference : e->u.leaf.generator));
        break;
    case RLK_EV_LAUNCH:
        fprintf(to, " %s", rlki_esc(e->u.launch.entry));
        for (uint32_t i = 0; i < e->nlaunches; i++) {
            const struct rlk_launch *l = &e->launches[i];
            fprintf(to, " %s[%u,%u,%u]x[%u,%u,%u]", l->kernel && l->kernel[0] ? rlki_esc(l->kernel) : "-", l->grid[0],
                    l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
            if (l->graph != RLK_NO_NODE)
                fprintf(to, " graph=%lld", (long long)l->graph);
            if (l->node != RLK_NO_NODE)
                fprintf(to, " node=%lld", (long long)l->node);
        }
        break;
    case RLK_EV_READBACK:
        fprintf(to, " case=%s implementation=%s calls=%llu", rlki_esc(e->u.readback.case_id),
                rlki_esc(e->u.readback.implementation), (unsigned long long)e->u.readback.calls);
        break;
    default:
        break;
    }
}

static bool wanted(const struct rlki_event_filter *f, const struct rlk_event *e)
{
    if (f->steps.set && (e->who.step < f->steps.first || e->who.step >= f->steps.last))
        return false;
    return !f->rank || strtoull(f->rank, NULL, 10) == e->rank;
}

/* Runs of LAUNCH events are not shown: they belong to the operators. */
static int one_event(void *context, const struct rlk_event *e)
{
    struct dump *d = context;
    const struct rlk_identity *w = &e->who;

    if (!wanted(d->filter, e))
        return 0;
    if (d->filter->limit && d->printed == d->filter->limit)
        return 1;
    d->printed++;
    fprintf(d->to, "#%llu r%u s%lld %s w%lld", (unsigned long long)e->seq, e->rank, (long long)w->step,
            w->phase && w->phase[0] ? rlki_esc(w->phase) : "-", (long long)w->work);
    if (w->iteration)
        fprintf(d->to, ".%lld", (long long)w->iteration);
    fprintf(d->to, " %s %s@%u %s %s@%u", w->pass && w->pass[0] ? rlki_esc(w->pass) : "-",
            w->module && w->module[0] ? rlki_esc(w->module) : "-", w->call, rlk_event_kind_name(e->kind),
            w->op && w->op[0] ? rlki_esc(w->op) : "-", w->occurrence);
    if (w->sample && w->sample[0])
        fprintf(d->to, " sample=%s", rlki_esc(w->sample));
    if (e->autotune)
        fputs(" autotune", d->to);
    print_detail(d->to, e);
    for (uint32_t i = 0; i < e->ntensors; i++)
        print_tensor(d->to, &e->tensors[i]);
    fputc('\n', d->to);
    return 0;
}

int rlki_events_print(FILE *to, const struct rlk_recording *recording, const struct rlki_event_filter *filter,
                      struct rlk_detail *detail)
{
    struct dump dump = {to, filter, 0};
    int code = RLK_OK;

    for (size_t i = 0; i < rlk_recording_envs(recording) && code == RLK_OK; i++) {
        struct rlk_env *env = rlk_recording_env(recording, i);
        code = rlk_env_scan(env, 0, rlk_env_count(env), one_event, &dump, detail);
    }
    return code == 1 ? RLK_OK : code;
}
