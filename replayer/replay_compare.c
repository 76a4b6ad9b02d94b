/* replay_compare.c - counts equal and different tensors of two recordings of one program, across layouts.
 *
 * A tensor of an event is composed of what the ranks hold (docs/digest.md: parts add); copies count once and must
 * agree. This is first-diff's notion of equality without its explanations.
 */
#include "replayer/program.h"
#include "store/rlk_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part { /* what one or more ranks hold of a tensor */
    uint64_t place;
    struct rlk_sums sums;
    uint32_t next; /* + 1; 0 = none */
};

struct entry {
    uint64_t key;
    uint64_t seq;    /* of its first event */
    uint32_t tensor; /* among that event's */
    uint32_t parts;  /* + 1 */
    bool unlike;     /* copies disagree */
    bool uncertain;  /* a part without digest, or one that does not add */
};

struct side {
    struct rlk_recording *recording;
    struct rlk_env *env;
    struct entry *entry;
    uint32_t n, room;
    uint32_t *slot; /* hash: entry + 1 */
    size_t nslots;
    struct part *part;
    uint32_t nparts, room_parts;
    const struct rlk_select *select;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

static uint64_t mix_text(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return mix(h, 0xff);
}

static uint64_t key_of(const struct rlk_event *e, const char *name, uint64_t index)
{
    const struct rlk_identity *w = &e->who;
    uint64_t h = mix(mix(mix(1, (uint64_t)e->kind), (uint64_t)w->step), (uint64_t)w->work);
    h = mix(h, (uint64_t)w->iteration);
    if (e->kind != RLK_EV_WEIGHTS) /* counted together with the other side's, which not every rank has */
        h = mix(mix(h, w->call), w->occurrence);
    h = mix_text(mix_text(h, w->phase), w->pass);
    h = mix_text(mix_text(h, w->module), w->op);
    if (e->kind == RLK_EV_WEIGHTS)
        h = mix_text(mix_text(h, e->u.weights.version), e->u.weights.side);
    if (e->kind == RLK_EV_LEAF)
        h = mix_text(h, e->u.leaf.name);
    if (e->kind == RLK_EV_REQUEST)
        h = mix_text(h, e->u.request.id);
    return mix(mix_text(h, name), index);
}

static bool grow(struct side *s)
{
    const size_t slots = s->nslots ? 2 * s->nslots : 1 << 14;
    uint32_t *more = calloc(slots, sizeof *more);
    struct entry *entry = realloc(s->entry, (slots / 2) * sizeof *entry);
    if (entry)
        s->entry = entry;
    if (!more || !entry) {
        free(more);
        return false;
    }
    s->room = (uint32_t)(slots / 2);
    for (uint32_t i = 0; i < s->n; i++) {
        size_t k = s->entry[i].key & (slots - 1);
        while (more[k])
            k = (k + 1) & (slots - 1);
        more[k] = i + 1;
    }
    free(s->slot);
    s->slot = more;
    s->nslots = slots;
    return true;
}

/* NULL: not there (make false), or out of memory. */
static struct entry *entry_of(struct side *s, uint64_t key, bool make)
{
    if (make && s->n == s->room && (s->n > UINT32_MAX / 4 || !grow(s)))
        return NULL;
    if (!s->nslots)
        return NULL;
    size_t k = key & (s->nslots - 1);
    while (s->slot[k] && s->entry[s->slot[k] - 1].key != key)
        k = (k + 1) & (s->nslots - 1);
    if (s->slot[k])
        return &s->entry[s->slot[k] - 1];
    if (!make)
        return NULL;
    s->slot[k] = ++s->n;
    s->entry[s->n - 1] = (struct entry){.key = key};
    return &s->entry[s->n - 1];
}

static uint64_t place_of(const struct rlk_tensor *t)
{
    const struct rlk_place *p = t->place;
    uint64_t h = mix(7, t->dtype);
    uint32_t used = 0;
    if (!p)
        return h;
    for (uint32_t d = 0; d < p->ndim; d++) {
        h = mix(mix(h, p->shape[d]), p->nruns[d]);
        for (uint32_t k = 0; p->nruns[d] != RLK_WHOLE && k < p->nruns[d]; k++, used++)
            h = mix(mix(h, p->runs[used].start), p->runs[used].extent);
    }
    return h;
}

static bool put_part(struct side *s, struct entry *e, uint64_t place, const struct rlk_sums *sums)
{
    for (uint32_t i = e->parts; i; i = s->part[i - 1].next)
        if (s->part[i - 1].place == place) {
            e->unlike = e->unlike || !rlk_sums_same_bits(&s->part[i - 1].sums, sums);
            return true;
        }
    if (s->nparts == s->room_parts) {
        const uint32_t room = s->room_parts ? 2 * s->room_parts : 1 << 14;
        struct part *more = room > s->room_parts ? realloc(s->part, room * sizeof *more) : NULL;
        if (!more)
            return false;
        s->part = more;
        s->room_parts = room;
    }
    s->part[s->nparts++] = (struct part){place, *sums, e->parts};
    e->parts = s->nparts;
    return true;
}

static bool put(struct side *s, const struct rlk_event *event, const char *name, uint32_t index, uint64_t place,
                const struct rlk_sums *sums, bool uncertain)
{
    const uint32_t before = s->n;
    struct entry *e = entry_of(s, key_of(event, name, index), true);
    if (!e)
        return false;
    if (s->n > before) {
        e->seq = event->seq;
        e->tensor = index;
    }
    e->uncertain = e->uncertain || uncertain;
    return put_part(s, e, place, sums);
}

static int visit(void *context, const struct rlk_event *e)
{
    struct side *s = context;
    if (e->autotune || (s->select && !rlki_selected(s->select, e)))
        return 0;
    if (e->kind == RLK_EV_METRIC) {
        struct rlk_sums sums = {.elements = 1};
        memcpy(&sums.positional.lo, &e->u.metric.value, sizeof sums.positional.lo);
        return put(s, e, "", 0, 0, &sums, false) ? 0 : RLK_ENOMEM;
    }
    if (e->kind == RLK_EV_REQUEST) {
        struct rlk_sums sums = {.elements = e->u.request.ntokens};
        sums.positional = rlk_content_id(e->u.request.tokens, (size_t)e->u.request.ntokens * sizeof(int64_t));
        return put(s, e, "tokens", 0, 0, &sums, false) ? 0 : RLK_ENOMEM;
    }
    for (uint32_t k = 0; k < e->ntensors; k++) {
        const struct rlk_tensor *t = &e->tensors[k];
        if (t->role != RLK_ROLE_OUT)
            continue;
        const bool sure = t->state == RLK_T_DIGESTED && t->composable && !(t->place && t->place->partial);
        if (!put(s, e, t->name, k, place_of(t), &t->sums, !sure))
            return RLK_ENOMEM;
    }
    return 0;
}

static int read_side(struct side *s, const char *dir, const struct rlk_select *select, struct rlk_detail *detail)
{
    int rc = rlk_recording_open(&s->recording, dir, detail);
    s->select = select;
    bool program = false;
    for (size_t i = 0; !rc && i < rlk_recording_envs(s->recording); i++)
        program = program || rlk_env_meta(rlk_recording_env(s->recording, i), "rlk.program")[0];
    for (size_t i = 0; !rc && i < rlk_recording_envs(s->recording); i++) {
        struct rlk_env *env = rlk_recording_env(s->recording, i);
        if (program && !rlk_env_meta(env, "rlk.program")[0])
            continue;
        s->env = env;
        rc = rlk_env_scan(s->env, 0, rlk_env_count(s->env), visit, s, detail);
        if (rc == RLK_ENOMEM)
            rc = rlk_fail(detail, rc, "%s", dir);
    }
    return rc;
}

static struct rlk_sums whole(const struct side *s, const struct entry *e)
{
    struct rlk_sums sum = {0};
    for (uint32_t i = e->parts; i; i = s->part[i - 1].next)
        rlk_sums_add(&sum, &s->part[i - 1].sums);
    return sum;
}

static int describe(struct rlk_replay_counts *out, const struct side *s, const struct entry *e, bool unlike,
                    struct rlk_detail *detail)
{
    struct rlk_arena arena = {0};
    struct rlk_event event;
    int rc = rlk_env_event(s->env, e->seq, &arena, &event, detail);
    if (!rc) {
        const struct rlk_identity *w = &event.who;
        const char *name = event.kind == RLK_EV_REQUEST ? event.u.request.id
                           : e->tensor < event.ntensors ? event.tensors[e->tensor].name
                                                        : "value";
        snprintf(out->first.text, sizeof out->first.text,
                 "step %" PRId64 " %.60s%s%.20s w%" PRId64 "%s%.0" PRId64 " %.160s %.80s %.100s%s", w->step,
                 w->phase[0] ? w->phase : "-", w->pass[0] ? " " : "", w->pass, w->work, w->iteration ? "." : "",
                 w->iteration, w->module[0] ? w->module : rlk_event_kind_name(event.kind), w->op, name,
                 unlike ? " (copies on the ranks disagree)" : "");
    }
    rlk_arena_release(&arena);
    return rc;
}

int rlk_replay_compare(const char *a, const char *b, const struct rlk_select *select, struct rlk_replay_counts *out,
                       struct rlk_detail *detail)
{
    struct side s[2] = {{0}, {0}};
    *out = (struct rlk_replay_counts){0};
    int rc = read_side(&s[0], a, select, detail);
    if (!rc)
        rc = read_side(&s[1], b, select, detail);
    for (uint32_t i = 0; !rc && i < s[0].n; i++) {
        const struct entry *e = &s[0].entry[i];
        struct entry *f = entry_of(&s[1], e->key, false);
        bool different = f && (e->unlike || f->unlike);
        if (f) {
            const struct rlk_sums x = whole(&s[0], e), y = whole(&s[1], f);
            different = different || !rlk_sums_same_bits(&x, &y);
        }
        const bool absent = !f || ((e->uncertain || f->uncertain) && !different);
        out->absent += absent;
        out->different += !absent && different;
        out->equal += !absent && !different;
        if (!absent && different && !out->first.text[0])
            rc = describe(out, &s[0], e, e->unlike || f->unlike, detail);
    }
    for (int k = 0; k < 2; k++) {
        rlk_recording_close(s[k].recording);
        free(s[k].entry);
        free(s[k].slot);
        free(s[k].part);
    }
    return rc;
}
