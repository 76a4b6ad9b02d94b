/* program.c - reads the program of a recording: rank 0's events in order, every operand resolved to what produced it.
 */
#include "replayer/program.h"
#include "replayer/run.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rlk_program_facts *rlk_program_facts(const struct rlk_program *p)
{
    return &p->facts;
}

static const struct rlk_attr *find_attr(const struct rlk_event *e, const char *key)
{
    for (uint32_t i = 0; i < e->nattrs; i++)
        if (strcmp(e->attrs[i].key, key) == 0)
            return &e->attrs[i];
    return NULL;
}

double rlki_attr(const struct rlk_event *e, const char *key, double otherwise)
{
    const struct rlk_attr *a = find_attr(e, key);
    return a && a->type == RLK_ATTR_DOUBLE ? a->d : otherwise;
}

int64_t rlki_attr_int(const struct rlk_event *e, const char *key, int64_t otherwise)
{
    const struct rlk_attr *a = find_attr(e, key);
    return a && a->type == RLK_ATTR_INT ? a->i : otherwise;
}

const char *rlki_attr_text(const struct rlk_event *e, const char *key)
{
    const struct rlk_attr *a = find_attr(e, key);
    return a && a->type == RLK_ATTR_STRING ? a->s : "";
}

void rlki_program_reason(struct rlk_program *p, const struct rlk_event *e, const char *why)
{
    struct rlk_program_facts *f = &p->facts;
    char text[200];
    snprintf(text, sizeof text, "%.40s %.60s: %.80s", rlk_event_kind_name(e->kind), e->who.op, why);
    for (uint32_t i = 0; i < f->nreasons; i++)
        if (strcmp(f->reason[i].text, text) == 0) {
            f->reason[i].count++;
            return;
        }
    const uint32_t at = f->nreasons < RLK_REPLAY_REASONS ? f->nreasons++ : RLK_REPLAY_REASONS - 1;
    if (f->reason[at].count == 0)
        memcpy(f->reason[at].text, text, sizeof text);
    f->reason[at].count++;
}

static int no_memory(struct rlk_detail *detail)
{
    return rlk_fail(detail, RLK_ENOMEM, "the program of the recording");
}

/* ---- pass 1: who ran what ---- */

static bool is_operator(enum rlk_event_kind kind)
{
    return kind == RLK_EV_OP || kind == RLK_EV_COLLECTIVE || kind == RLK_EV_COPY || kind == RLK_EV_WEIGHTS ||
           kind == RLK_EV_LEAF;
}

static bool is_kept(const struct rlk_event *e)
{
    if (e->kind == RLK_EV_NOTE)
        return strcmp(e->u.note.code, RLKI_BATCH) == 0;
    return is_operator(e->kind) || e->kind == RLK_EV_METRIC || e->kind == RLK_EV_REQUEST || e->kind == RLK_EV_READBACK;
}

static int side_of(const struct rlk_event *e)
{
    if (e->kind == RLK_EV_WEIGHTS)
        return strcmp(e->u.weights.side, "rollout") == 0 ? RLKI_SIDE_ROLLOUT : RLKI_SIDE_TRAINER;
    if (e->kind == RLK_EV_NOTE)
        return strcmp(e->u.note.text, "rollout") == 0 ? RLKI_SIDE_ROLLOUT : RLKI_SIDE_TRAINER;
    if (strcmp(e->who.op, "rlk.rollout.result") == 0)
        return RLKI_SIDE_BOTH;
    return strncmp(e->who.phase, "rollout", 7) == 0 ? RLKI_SIDE_ROLLOUT : RLKI_SIDE_TRAINER;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

/* Strings of one environment are interned: their addresses stand for them. */
static uint64_t identity_of(uint64_t h, const struct rlk_event *e)
{
    const struct rlk_identity *w = &e->who;
    h = mix(mix(mix(h, (uint64_t)e->kind), (uint64_t)w->step), (uint64_t)w->work);
    h = mix(mix(h, (uint64_t)w->iteration), (uint64_t)(uintptr_t)w->phase);
    h = mix(mix(h, (uint64_t)(uintptr_t)w->pass), (uint64_t)(uintptr_t)w->module);
    h = mix(h, (uint64_t)(uintptr_t)w->op);
    if (e->kind == RLK_EV_WEIGHTS) /* counted together with the other side's, which not every rank has */
        return mix(mix(h, (uint64_t)(uintptr_t)e->u.weights.version), (uint64_t)(uintptr_t)e->u.weights.side);
    return mix(mix(h, w->call), w->occurrence);
}

struct scan {
    struct rlk_program *p;
    int rc;
    uint32_t highest;
};

static int note_rank(void *context, const struct rlk_event *e)
{
    struct scan *s = context;
    struct rlk_program *p = s->p;
    if (e->autotune)
        return 0;
    p->facts.events++;
    p->hashes = p->hashes || (e->kind == RLK_EV_NOTE && strcmp(e->u.note.code, "weights.sha256") == 0);
    if (!is_operator(e->kind))
        return 0;
    if (e->rank >= 64)
        return s->rc = RLK_EUNSUPPORTED;
    const int side = side_of(e);
    struct rlki_ranks *r = &p->rank[e->rank];
    if (r->n[side] == r->room[side]) {
        const uint32_t room = r->room[side] ? 2 * r->room[side] : 256;
        uint64_t *more = realloc(r->seq[side], room * sizeof *more);
        if (!more)
            return s->rc = RLK_ENOMEM;
        r->seq[side] = more;
        r->room[side] = room;
    }
    r->seq[side][r->n[side]++] = e->seq;
    r->sum[side] = identity_of(r->sum[side], e);
    s->highest = e->rank > s->highest ? e->rank : s->highest;
    return 0;
}

static int check_ranks(struct rlk_program *p, uint32_t highest, struct rlk_detail *detail)
{
    struct rlk_layout layout[2];
    uint32_t ranks[RLKI_SIDES];
    p->facts.ranks = highest + 1;
    for (int side = 0; side < 2; side++) {
        const char *text = side ? p->rollout : p->layout;
        if (rlk_layout_parse(&layout[side], text, NULL) != RLK_OK || layout[side].pp > 1 || layout[side].ep > 1 ||
            layout[side].dp > 1)
            return rlk_fail(detail, RLK_EUNSUPPORTED, "the recording's layout %.60s has no replay: tp and cp only",
                            text[0] ? text : "(none)");
        ranks[side] = layout[side].tp * layout[side].cp;
    }
    ranks[RLKI_SIDE_BOTH] = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    for (int side = 0; side < RLKI_SIDES; side++)
        for (uint32_t i = 0; i < 64; i++) {
            const struct rlki_ranks *r = &p->rank[i], *first = &p->rank[0];
            if (i < ranks[side] ? r->n[side] != first->n[side] || r->sum[side] != first->sum[side] : r->n[side] != 0)
                return rlk_fail(detail, RLK_EUNSUPPORTED,
                                "rank %u does not run what rank 0 runs (%u and %u operators of the %s side): a program "
                                "is replayed where all ranks run one sequence; record it whole, without drops",
                                i, r->n[side], first->n[side], side == RLKI_SIDE_TRAINER ? "training" : "rollout");
        }
    return RLK_OK;
}

/* ---- pass 2: rank 0's instructions ---- */

static int keep(struct rlk_program *p, uint64_t seq, struct rlk_detail *detail)
{
    struct rlk_event e;
    int rc = rlk_env_event(p->env, seq, &p->arena, &e, detail);
    if (rc)
        return rc == RLK_ENOENT ? RLK_OK : rc;
    if (p->n == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 1024;
        struct rlki_instr *more = realloc(p->instr, room * sizeof *more);
        if (!more)
            return no_memory(detail);
        p->instr = more;
        p->room = room;
    }
    struct rlki_instr *in = &p->instr[p->n++];
    *in = (struct rlki_instr){.e = e, .side = (uint8_t)side_of(&e), .first_value = p->values, .batch = RLKI_NO_VALUE};
    for (uint32_t i = 0; i < e.ntensors; i++) {
        if (e.tensors[i].role == RLK_ROLE_OUT)
            in->outputs++;
        else if (in->outputs)
            return rlk_fail(detail, RLK_ECORRUPT, "event %llu has an input behind its outputs",
                            (unsigned long long)seq);
        else
            in->inputs++;
    }
    in->provider = e.kind == RLK_EV_OP && strcmp(e.u.op.contract, "provider") == 0;
    p->values += in->outputs;
    p->facts.operators += e.kind == RLK_EV_OP;
    p->facts.kept += e.kind == RLK_EV_OP && in->inputs && in->outputs && e.tensors[in->inputs].has_payload &&
                     strcmp(e.who.op, "rlk.grpo.logprobs") != 0;
    p->facts.leaves += e.kind == RLK_EV_LEAF;
    if (in->provider && !p->facts.provider++)
        snprintf(p->facts.provider_at, sizeof p->facts.provider_at, "%.100s, %.40s", e.who.module, e.who.op);
    return RLK_OK;
}

struct pick {
    struct rlk_program *p;
    uint64_t *seq;
    uint64_t n, room;
};

static int pick_first(void *context, const struct rlk_event *e)
{
    struct pick *k = context;
    if (e->rank != 0 || e->autotune || !is_kept(e))
        return 0;
    if (k->n == k->room) {
        const uint64_t room = k->room ? 2 * k->room : 1024;
        uint64_t *more = realloc(k->seq, room * sizeof *more);
        if (!more)
            return RLK_ENOMEM;
        k->seq = more;
        k->room = room;
    }
    k->seq[k->n++] = e->seq;
    return 0;
}

static int read_instructions(struct rlk_program *p, struct rlk_detail *detail)
{
    struct pick k = {.p = p};
    int rc = rlk_env_scan(p->env, 0, rlk_env_count(p->env), pick_first, &k, detail);
    for (uint64_t i = 0; !rc && i < k.n; i++)
        rc = keep(p, k.seq[i], detail);
    free(k.seq);
    uint32_t at[RLKI_SIDES] = {0};
    for (uint32_t i = 0; !rc && i < p->n; i++)
        if (is_operator(p->instr[i].e.kind))
            p->instr[i].ordinal = at[p->instr[i].side]++;
    return rc;
}

/* ---- pass 3: operands ---- */

struct known_name {
    const char *name;
    uint32_t value;
};

struct resolver {
    struct rlk_program *p;
    uint32_t *of[RLKI_SIDES];  /* by ordinal: instruction */
    struct known_name *weight; /* what each parameter is now, on the trainer's side */
    uint32_t nweight, room;
    uint32_t sequences, batch;
};

static int put_weight(struct resolver *r, const char *name, uint32_t value)
{
    for (uint32_t i = 0; i < r->nweight; i++)
        if (strcmp(r->weight[i].name, name) == 0) {
            r->weight[i].value = value;
            return RLK_OK;
        }
    if (r->nweight == r->room) {
        const uint32_t room = r->room ? 2 * r->room : 64;
        struct known_name *more = realloc(r->weight, room * sizeof *more);
        if (!more)
            return RLK_ENOMEM;
        r->weight = more;
        r->room = room;
    }
    r->weight[r->nweight++] = (struct known_name){name, value};
    return RLK_OK;
}

static uint32_t get_weight(const struct resolver *r, const char *name)
{
    for (uint32_t i = 0; i < r->nweight; i++)
        if (strcmp(r->weight[i].name, name) == 0)
            return r->weight[i].value;
    return RLKI_NO_VALUE;
}

static int put_input(struct rlk_program *p, uint32_t value)
{
    if (p->ninput == p->room_input) {
        const uint32_t room = p->room_input ? 2 * p->room_input : 4096;
        uint32_t *more = realloc(p->input, room * sizeof *more);
        if (!more)
            return RLK_ENOMEM;
        p->input = more;
        p->room_input = room;
    }
    p->input[p->ninput++] = value;
    return RLK_OK;
}

/* The producing instruction of rank 0 for an event of any rank. */
static const struct rlki_instr *producer(const struct resolver *r, uint64_t seq)
{
    const struct rlk_program *p = r->p;
    for (uint32_t rank = 0; rank < p->facts.ranks; rank++)
        for (int side = 0; side < RLKI_SIDES; side++) {
            const struct rlki_ranks *k = &p->rank[rank];
            uint32_t low = 0, high = k->n[side];
            while (low < high) {
                const uint32_t mid = low + (high - low) / 2;
                if (k->seq[side][mid] < seq)
                    low = mid + 1;
                else
                    high = mid;
            }
            if (low < k->n[side] && k->seq[side][low] == seq && r->of[side] && low < p->rank[0].n[side])
                return &p->instr[r->of[side][low]];
        }
    return NULL;
}

/* A tensor without a reference: a leaf of the same bytes. */
static uint32_t leaf_of(const struct rlk_program *p, uint32_t before, const struct rlk_tensor *t)
{
    for (uint32_t i = 0; i < before; i++) {
        const struct rlk_event *e = &p->instr[i].e;
        if (e->kind != RLK_EV_LEAF || p->instr[i].outputs != 1)
            continue;
        const struct rlk_tensor *l = &e->tensors[e->ntensors - 1];
        if (l->state == RLK_T_DIGESTED && l->dtype == t->dtype && rlk_sums_same_bits(&l->sums, &t->sums) && l->place &&
            t->place && rlk_place_equal(l->place, t->place))
            return p->instr[i].first_value;
    }
    return RLKI_NO_VALUE;
}

static uint64_t elements_of(const struct rlk_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(n, t->shape[d], &n))
            return UINT64_MAX;
    return n;
}

static uint32_t resolve(struct resolver *r, uint32_t at, const struct rlk_tensor *t, const char **why)
{
    const struct rlk_program *p = r->p;
    if (t->state == RLK_T_DIGESTED) {
        const uint32_t leaf = leaf_of(p, at, t);
        if (leaf == RLKI_NO_VALUE && !t->has_payload)
            *why = "an input comes from nowhere: neither a leaf nor kept bytes (record from the start, or --payload)";
        return leaf;
    }
    if (t->state != RLK_T_REFERENCE) {
        *why = "an input was not digested";
        return RLKI_NO_VALUE;
    }
    const struct rlki_instr *from = producer(r, t->ref_event);
    if (!from || from >= p->instr + at || t->ref_output >= from->outputs) {
        *why = "an input refers to an event that is not in the recording";
        return RLKI_NO_VALUE;
    }
    const struct rlk_tensor *out = &from->e.tensors[from->inputs + t->ref_output];
    if (out->dtype != t->dtype || elements_of(out) != elements_of(t)) {
        *why = "an input is a part of what was written";
        return RLKI_NO_VALUE;
    }
    return from->first_value + t->ref_output;
}

static int resolve_weights(struct resolver *r, uint32_t i)
{
    struct rlk_program *p = r->p;
    struct rlki_instr *in = &p->instr[i];
    int rc = RLK_OK;
    for (uint32_t k = 0; !rc && k < in->outputs; k++) {
        const char *name = in->e.tensors[in->inputs + k].name;
        const uint32_t value = get_weight(r, name);
        if (value == RLKI_NO_VALUE)
            in->why = "a weight that nothing before it wrote";
        rc = put_input(p, value);
        if (!rc && in->side == RLKI_SIDE_TRAINER)
            rc = put_weight(r, name, in->first_value + k);
    }
    return rc;
}

static int resolve_one(struct resolver *r, uint32_t i)
{
    struct rlk_program *p = r->p;
    struct rlki_instr *in = &p->instr[i];
    const struct rlk_event *e = &in->e;
    int rc = RLK_OK;
    in->first_input = p->ninput;
    in->batch = r->batch;
    in->why = rlki_unknown_operator(e);
    if (e->kind == RLK_EV_WEIGHTS)
        return resolve_weights(r, i);
    if (e->kind == RLK_EV_REQUEST)
        return put_input(p, r->sequences);
    for (uint32_t k = 0; !rc && k < in->inputs; k++)
        rc = put_input(p, resolve(r, i, &e->tensors[k], &in->why));
    for (uint32_t k = 0; !rc && k < in->outputs; k++) {
        const char *name = e->tensors[in->inputs + k].name;
        if (e->kind == RLK_EV_LEAF && k == 0)
            rc = put_weight(r, name, in->first_value);
        else if (strcmp(e->who.op, "rlk.adamw") == 0 && strcmp(name, "weight") == 0 &&
                 strncmp(e->who.module, "optimizer.", 10) == 0)
            rc = put_weight(r, e->who.module + 10, in->first_value + k);
        else if (strcmp(name, "sequences") == 0)
            r->sequences = in->first_value + k;
    }
    if (e->kind == RLK_EV_NOTE)
        r->batch = i;
    return rc;
}

static int resolve_all(struct rlk_program *p, struct rlk_detail *detail)
{
    struct resolver r = {.p = p, .sequences = RLKI_NO_VALUE, .batch = RLKI_NO_VALUE};
    int rc = RLK_OK;
    for (int side = 0; side < RLKI_SIDES; side++)
        if (!(r.of[side] = calloc((size_t)p->rank[0].n[side] + 1, sizeof *r.of[side])))
            rc = RLK_ENOMEM;
    for (uint32_t i = 0; !rc && i < p->n; i++) {
        struct rlki_instr *in = &p->instr[i];
        if (is_operator(in->e.kind) && in->ordinal < p->rank[0].n[in->side])
            r.of[in->side][in->ordinal] = i;
        rc = resolve_one(&r, i);
    }
    p->maker = malloc(((size_t)p->values + 1) * sizeof *p->maker);
    p->last_use = malloc(((size_t)p->values + 1) * sizeof *p->last_use);
    if (!p->maker || !p->last_use)
        rc = RLK_ENOMEM;
    for (uint32_t i = 0; !rc && i < p->n; i++) {
        struct rlki_instr *in = &p->instr[i];
        for (uint32_t k = 0; k < in->outputs; k++)
            p->maker[in->first_value + k] = i;
        if (in->why)
            rlki_program_reason(p, &in->e, in->why);
    }
    for (int side = 0; side < RLKI_SIDES; side++)
        free(r.of[side]);
    free(r.weight);
    return rc ? no_memory(detail) : RLK_OK;
}

/* ---- */

static int find_env(struct rlk_program *p, const char *dir, struct rlk_detail *detail)
{
    int rc = rlk_recording_open(&p->recording, dir, detail);
    if (rc)
        return rc;
    enum rlk_intact how;
    rc = rlk_recording_intact(p->recording, RLK_INTACT_MOST, &how, detail);
    if (rc)
        return rc;
    const size_t n = rlk_recording_envs(p->recording);
    size_t programs = 0;
    bool whole = n > 0;
    for (size_t i = 0; i < n; i++) {
        struct rlk_env *env = rlk_recording_env(p->recording, i);
        whole = whole && rlk_env_complete(env);
        if (rlk_env_meta(env, "rlk.program")[0] || !p->env)
            p->env = env;
        programs += rlk_env_meta(env, "rlk.program")[0] != 0;
    }
    if (!n || (!whole && !programs))
        return rlk_fail(detail, RLK_ESTATE,
                        "the recording is incomplete: %s, and nothing of a program; record it again, to the end",
                        n ? "a process ended without its END record" : "it has no events");
    if (programs > 1)
        return rlk_fail(
            detail, RLK_EUNSUPPORTED,
            "%zu of its %zu processes recorded a program of their own: one is replayed at a time, so record "
            "each with an rlkrec run of its own; --relaunch runs the whole command again",
            programs, n);
    const char *version = rlk_env_meta(p->env, "rlk.program");
    if (strcmp(version, "1") != 0)
        return rlk_fail(detail, RLK_EUNSUPPORTED,
                        version[0]
                            ? "its program has another version (%.40s): replay it with the release that made it%s"
                            : "the recording holds no program%s%s: rlktrain records one; --relaunch runs the "
                              "recorded command again",
                        version, "");
    p->facts.complete = rlk_env_complete(p->env);
    snprintf(p->layout, sizeof p->layout, "%s", rlk_env_meta(p->env, "layout"));
    snprintf(p->rollout, sizeof p->rollout, "%s", rlk_env_meta(p->env, "rlktrain.rollout_layout"));
    snprintf(p->text, sizeof p->text, "%s", rlk_env_meta(p->env, "rlktrain.program"));
    const char *plant = strstr(p->text, "plant=");
    snprintf(p->plant, sizeof p->plant, "%s", plant ? plant + 6 : "none");
    p->facts.layout = p->layout;
    p->facts.rollout_layout = p->rollout;
    p->facts.plant = p->plant;
    return RLK_OK;
}

int rlk_program_open(struct rlk_program **out, const char *dir, struct rlk_detail *detail)
{
    struct rlk_program *p = calloc(1, sizeof *p);
    struct scan s = {.p = p};
    *out = NULL;
    if (!p)
        return no_memory(detail);
    int rc = find_env(p, dir, detail);
    if (!rc)
        rc = rlk_env_scan(p->env, 0, rlk_env_count(p->env), note_rank, &s, detail);
    if (s.rc == RLK_ENOMEM)
        rc = no_memory(detail);
    else if (s.rc)
        rc = rlk_fail(detail, s.rc, "more than 64 ranks: no layout of tp and cp up to 8 has them");
    if (!rc && p->facts.events == 0)
        rc = rlk_fail(detail, RLK_ESTATE, "the recording is incomplete: it has no events; record it again, to the end");
    if (!rc)
        rc = check_ranks(p, s.highest, detail);
    if (rc == RLK_EUNSUPPORTED && !rlk_env_complete(p->env)) {
        const struct rlk_detail was = *detail;
        rc = rlk_fail(detail, RLK_ESTATE, "the recording is incomplete (its process ended without END): %.380s",
                      was.text);
    }
    if (!rc)
        rc = read_instructions(p, detail);
    if (!rc)
        rc = resolve_all(p, detail);
    if (!rc && p->facts.leaves == 0)
        rc = rlk_fail(detail, RLK_EUNSUPPORTED,
                      "the recording holds no leaves, so nothing says what the weights were: record from the start, "
                      "without --steps and --keep-last");
    if (rc) {
        rlk_program_close(p);
        return rc;
    }
    *out = p;
    return RLK_OK;
}

void rlk_program_close(struct rlk_program *p)
{
    if (!p)
        return;
    for (int i = 0; i < 64; i++)
        for (int side = 0; side < RLKI_SIDES; side++)
            free(p->rank[i].seq[side]);
    free(p->instr);
    free(p->input);
    free(p->maker);
    free(p->last_use);
    rlk_arena_release(&p->arena);
    rlk_recording_close(p->recording);
    free(p);
}

/* ---- selection ---- */

bool rlki_selected(const struct rlk_select *select, const struct rlk_event *e)
{
    if (e->who.step < select->first || e->who.step >= select->last)
        return false;
    if (!select->only)
        return true;
    return e->kind == RLK_EV_OP && fnmatch(select->only, e->who.module, 0) == 0;
}

static bool feeds_metrics(const struct rlk_event *e)
{
    static const char *const op[] = {"rlk.loss_sum", "rlk.grpo.loss", "rlk.gradnorm", "rlk.adamw",
                                     "rlk.grpo.advantage"};
    for (size_t i = 0; i < sizeof op / sizeof op[0]; i++)
        if (e->kind == RLK_EV_OP && strcmp(e->who.op, op[i]) == 0)
            return true;
    return false;
}

/* Backwards: what a needed instruction reads is needed. A metric needs every sum of its step. */
static void close_needs(struct rlk_program *p)
{
    int64_t metric_step = INT64_MIN;
    for (uint32_t i = 0; i < p->values; i++)
        p->last_use[i] = RLKI_NO_VALUE;
    for (uint32_t i = p->n; i-- > 0;) {
        struct rlki_instr *in = &p->instr[i];
        in->needed = in->needed || in->wanted;
        if (in->needed && in->e.kind == RLK_EV_METRIC)
            metric_step = in->e.who.step;
        if (in->e.who.step == metric_step && feeds_metrics(&in->e))
            in->needed = true;
        if (!in->needed)
            continue;
        const uint32_t n = in->e.kind == RLK_EV_WEIGHTS ? in->outputs : in->e.kind == RLK_EV_REQUEST ? 1 : in->inputs;
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t v = p->input[in->first_input + k];
            if (v == RLKI_NO_VALUE)
                continue;
            p->instr[p->maker[v]].needed = true;
            if (p->last_use[v] == RLKI_NO_VALUE)
                p->last_use[v] = i;
        }
        if (in->batch != RLKI_NO_VALUE)
            p->instr[in->batch].needed = true;
    }
}

int rlk_program_select(struct rlk_program *p, const struct rlk_select *select, struct rlk_detail *detail)
{
    const bool all = !select->only && select->first == INT64_MIN && select->last == INT64_MAX;
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        struct rlki_instr *in = &p->instr[i];
        in->needed = false;
        in->wanted = rlki_selected(select, &in->e) && (all || in->e.kind != RLK_EV_READBACK);
        wanted += in->wanted;
    }
    if (!wanted)
        return rlk_fail(detail, RLK_EUNSUPPORTED,
                        "nothing of the recording is selected: --only takes a glob over module paths "
                        "('model.layers.0.*'), --steps A:B; rlkrec info --events lists what there is");
    close_needs(p);
    return RLK_OK;
}
