/* check.c - reads one recording step by step, gives every event to every check, and makes JSON of what they find. */
#include "auditor/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LISTED 1000u

static const struct rlki_checker *const checkers[] = {
#define X(name) &rlki_checker_##name,
    RLKI_CHECKERS_X(X)
#undef X
};
#define CHECKERS (sizeof checkers / sizeof *checkers)

struct rlki_check {
    struct rlki_audit audit;
    void *state[CHECKERS];
    size_t now; /* the check that runs */
    uint64_t examined[CHECKERS], found[CHECKERS];
    json_t *findings[CHECKERS];
    struct rlki_hash index; /* (check, identity without rank) -> place in findings + 1; 0: not listed */
    json_t *last;           /* the finding made last, if it is new */
    uint64_t listed;
    uint64_t *cursor; /* of each environment */
};

struct rlki_audit *rlki_check_audit(struct rlki_check *check)
{
    return &check->audit;
}

void rlki_check_examined(struct rlki_check *check)
{
    check->examined[check->now]++;
}

int rlki_check_load(struct rlki_check *check, struct rlki_place_of at, struct rlk_arena *arena, struct rlk_event *out)
{
    return rlk_env_event(check->audit.side[0].env[at.env].env, at.seq, arena, out, check->audit.detail);
}

uint64_t rlki_check_text(const char *text)
{
    return text ? XXH3_64bits(text, strlen(text)) : XXH3_64bits("", 0);
}

uint64_t rlki_check_sums(const struct rlk_sums *sums)
{
    return rlki_mix(rlki_mix(rlki_mix(5, sums->positional.lo), sums->positional.hi), sums->elements);
}

uint64_t rlki_check_key(const struct rlk_event *event)
{
    const struct rlk_identity *who = &event->who;
    uint64_t key = rlki_mix(event->kind, (uint64_t)who->step);
    key = rlki_mix(rlki_mix(key, (uint64_t)who->work), (uint64_t)who->iteration);
    key = rlki_mix(rlki_mix(key, rlki_check_text(who->phase)), rlki_check_text(who->module));
    key = rlki_mix(rlki_mix(key, who->call), who->occurrence);
    return rlki_mix(key, rlki_check_text(who->op));
}

int rlki_check_inputs(struct rlki_check *check, struct rlki_place_of a, const struct rlk_event *ea,
                      struct rlki_place_of b, const struct rlk_event *eb, enum rlki_tri *out)
{
    const uint32_t n = rlki_event_ninputs(ea);
    *out = RLKI_YES;
    if (n != rlki_event_ninputs(eb)) {
        *out = RLKI_MAYBE;
        return RLK_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct rlki_value va, vb;
        int rc = rlki_value_of(&check->audit, 0, ea, a.env, &ea->tensors[i], &va);
        if (rc == RLK_OK)
            rc = rlki_value_of(&check->audit, 0, eb, b.env, &eb->tensors[i], &vb);
        if (rc)
            return rc;
        const enum rlki_tri equal = rlki_value_equal(&va, &vb);
        if (equal == RLKI_NO) {
            *out = RLKI_NO;
            return RLK_OK;
        }
        if (equal == RLKI_MAYBE)
            *out = RLKI_MAYBE;
    }
    return RLK_OK;
}

/* ---- generators ---- */

struct rlki_generator rlki_generators_event(struct rlki_generators *rngs, uint32_t env, const struct rlk_event *event)
{
    static const struct rlki_generator none;
    struct rlki_generator_of *of = NULL;
    for (size_t i = 0; i < rngs->n && !of; i++)
        if (rngs->of[i].env == env && rngs->of[i].rank == event->rank && rngs->of[i].thread == event->thread)
            of = &rngs->of[i];
    if (!of) {
        if (event->kind != RLK_EV_RNG)
            return none;
        if (!rlki_grow(&rngs->of, &rngs->cap, rngs->n, sizeof *rngs->of)) {
            rngs->failed = true;
            return none;
        }
        of = &rngs->of[rngs->n++];
        *of = (struct rlki_generator_of){env, event->rank, event->thread, none};
    }
    if (event->kind == RLK_EV_RNG)
        of->rng = (struct rlki_generator){true, rlki_check_text(event->u.rng.generator), event->u.rng.seed,
                                          event->u.rng.offset, event->u.rng.grid};
    if (event->kind == RLK_EV_RNG || event->kind == RLK_EV_SYNC)
        return none;
    const struct rlki_generator now = of->rng;
    of->rng = none;
    return now;
}

void rlki_generators_release(struct rlki_generators *rngs)
{
    free(rngs->of);
}

/* ---- findings ---- */

static json_t *sentence(const char *format, va_list args)
{
    char text[480];
    vsnprintf(text, sizeof text, format, args);
    return rlki_json_text(text);
}

void rlki_check_evidence(struct rlki_check *check, const char *format, ...)
{
    va_list args;
    if (!check->last)
        return;
    va_start(args, format);
    rlki_add(json_object_get(json_object_get(check->last, "mechanism"), "evidence"), sentence(format, args));
    va_end(args);
}

void rlki_check_note(struct rlki_check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *text = sentence(format, args);
    va_end(args);
    rlki_note(&check->audit, "%s", text ? json_string_value(text) : "");
    json_decref(text);
}

static json_t *finding_json(struct rlki_check *check, const struct rlki_finding *f, const struct rlk_event *e)
{
    const struct rlk_identity *who = &e->who;
    const struct rlk_tensor *t = rlki_event_tensor(e, f->role, f->index);
    json_t *against = f->against ? rlki_json_event(&check->audit, 0, f->against->env, f->against->seq) : json_null();
    const uint32_t place = t ? (uint32_t)(t - e->tensors) : UINT32_MAX;
    json_t *out =
        json_pack("{s:s,s:I,s:I,s:o,s:I,s:o,s:o,s:o,s:I,s:o,s:I,s:s,s:I,s:o}", "check", checkers[check->now]->name,
                  "rank", (json_int_t)e->rank, "step", (json_int_t)who->step, "phase", rlki_json_text(who->phase),
                  "work", (json_int_t)who->work, "sample", rlki_json_text(who->sample), "pass",
                  rlki_json_text(who->pass), "module", rlki_json_text(who->module), "call", (json_int_t)who->call, "op",
                  rlki_json_text(who->op), "occurrence", (json_int_t)who->occurrence, "role",
                  f->role == RLK_ROLE_IN ? "in" : "out", "index", (json_int_t)f->index, "name",
                  rlki_json_text(f->name ? f->name
                                 : t     ? t->name
                                         : ""));
    if (!out) {
        json_decref(against);
        return NULL;
    }
    rlki_set(out, "ranks", json_pack("[I]", (json_int_t)e->rank));
    rlki_set(out, "kind", json_string(rlk_event_kind_name(e->kind)));
    if (who->iteration)
        rlki_set(out, "iteration", json_integer(who->iteration));
    rlki_set(out, "tensors", json_integer(1));
    rlki_set(out, "a", rlki_json_side(&check->audit, 0, f->at.env, f->at.seq, place));
    rlki_set(out, "against", against);
    rlki_set(out, "root", f->unknown ? json_string("unknown") : json_true());
    rlki_set(out, "difference", json_null());
    rlki_set(out, "mechanism",
             json_pack("{s:s,s:[],s:s,s:[],s:s}", "class", f->class, "also", "confidence", f->confidence, "evidence",
                       "next", checkers[check->now]->next));
    return out;
}

/* Another rank or tensor of a finding that is there. */
static void finding_again(json_t *finding, uint32_t rank)
{
    json_t *ranks = json_object_get(finding, "ranks"), *tensors = json_object_get(finding, "tensors");
    const json_t *last = json_array_get(ranks, json_array_size(ranks) - 1);
    if (json_integer_value(last) < (json_int_t)rank)
        rlki_add(ranks, json_integer(rank));
    else if (json_array_size(ranks) == 1)
        json_integer_set(tensors, json_integer_value(tensors) + 1);
}

static const char *one_less(const char *confidence)
{
    return strcmp(confidence, "high") == 0 ? "medium" : "low";
}

int rlki_check_find(struct rlki_check *check, const struct rlki_finding *finding, const char *format, ...)
{
    struct rlki_finding f = *finding;
    struct rlk_arena arena = {0};
    struct rlk_event e;
    uint64_t place = 0;
    va_list args;
    check->last = NULL;
    int rc = rlki_check_load(check, f.at, &arena, &e);
    if (rc)
        goto out;
    if (f.unknown)
        f.confidence = one_less(f.confidence);
    const uint64_t key = rlki_mix(rlki_mix(rlki_mix(check->now, rlki_check_key(&e)), rlki_check_text(e.who.pass)),
                                  rlki_mix(rlki_check_text(e.who.sample), f.part));
    if (rlki_hash_get(&check->index, key, &place)) {
        if (place)
            finding_again(json_array_get(check->findings[check->now], (size_t)place - 1), e.rank);
        goto out;
    }
    check->found[check->now]++;
    if (check->listed < LISTED) {
        json_t *json = finding_json(check, &f, &e);
        rc = json && json_array_append_new(check->findings[check->now], json) == 0 ? RLK_OK : RLK_ENOMEM;
        if (rc)
            goto out;
        check->listed++;
        place = json_array_size(check->findings[check->now]);
        check->last = json;
        va_start(args, format);
        rlki_add(json_object_get(json_object_get(json, "mechanism"), "evidence"), sentence(format, args));
        va_end(args);
    }
    rlki_hash_put(&check->index, key, place);
    rc = check->index.failed ? RLK_ENOMEM : RLK_OK;
out:
    rlk_arena_release(&arena);
    return rc == RLK_ENOMEM ? rlk_fail(check->audit.detail, rc, "a finding") : rc;
}

/* ---- the pass ---- */

static int give(struct rlki_check *check, uint32_t env, const struct rlk_event *event)
{
    int rc = RLK_OK;
    for (size_t i = 0; i < CHECKERS && rc == RLK_OK; i++) {
        check->now = i;
        if (checkers[i]->event)
            rc = checkers[i]->event(check, check->state[i], env, event);
    }
    return rc;
}

/* Events of one environment up to the end of `step`. Steps never go back inside an environment but for stray events,
 * which are taken with the step at hand. */
static int read_step(struct rlki_check *check, uint32_t env, int64_t step, struct rlk_arena *arena)
{
    struct rlk_env *e = check->audit.side[0].env[env].env;
    const uint64_t end = rlk_env_count(e);
    int rc = RLK_OK;
    for (uint64_t *seq = &check->cursor[env]; *seq < end && rc == RLK_OK; ++*seq) {
        struct rlk_event event;
        rlk_arena_reset(arena);
        rc = rlk_env_event(e, *seq, arena, &event, check->audit.detail);
        if (rc == RLK_ENOENT) {
            rc = RLK_OK;
            continue;
        }
        if (rc == RLK_OK && event.who.step > step)
            return RLK_OK;
        if (rc == RLK_OK && !event.autotune)
            rc = give(check, env, &event);
    }
    return rc;
}

static int each_step(struct rlki_check *check, int64_t step, struct rlk_arena *arena)
{
    int rc = RLK_OK;
    for (uint32_t env = 0; env < check->audit.side[0].nenv && rc == RLK_OK; env++)
        rc = read_step(check, env, step, arena);
    for (size_t i = 0; i < CHECKERS && rc == RLK_OK; i++) {
        check->now = i;
        if (checkers[i]->step)
            rc = checkers[i]->step(check, check->state[i], step);
    }
    return rc;
}

static int run(struct rlki_check *check, const struct rlk_check_options *options)
{
    const struct rlki_side *side = &check->audit.side[0];
    struct rlk_arena arena = {0};
    int rc = RLK_OK;
    for (size_t i = 0; i < side->ntotals && rc == RLK_OK; i++) {
        if (i && side->totals[i].step == side->totals[i - 1].step)
            continue;
        if (options->progress)
            options->progress(options->progress_context, i, side->ntotals);
        rc = each_step(check, side->totals[i].step, &arena);
    }
    if (rc == RLK_OK) /* what no total counts: requests, readbacks */
        rc = each_step(check, INT64_MAX, &arena);
    for (size_t i = 0; i < CHECKERS && rc == RLK_OK; i++) {
        check->now = i;
        if (checkers[i]->finish)
            rc = checkers[i]->finish(check, check->state[i]);
    }
    rlk_arena_release(&arena);
    return rc;
}

static int result(struct rlki_check *check, json_t **out)
{
    const struct rlki_side *side = &check->audit.side[0];
    json_t *checks = json_array(), *findings = json_array();
    uint64_t total = 0;
    for (size_t i = 0; i < CHECKERS; i++) {
        total += check->found[i];
        rlki_add(checks, json_pack("{s:s,s:I,s:I}", "check", checkers[i]->name, "examined",
                                   (json_int_t)check->examined[i], "findings", (json_int_t)check->found[i]));
        if (findings && json_array_extend(findings, check->findings[i]) != 0)
            return RLK_ENOMEM;
    }
    const bool complete = side->complete && side->events;
    const int status = total ? 1 : complete ? 0 : 4;
    if (rlki_side_unchecked(side))
        rlki_note(&check->audit, "the recording %s", rlki_side_unchecked(side));
    *out = json_pack(
        "{s:s,s:s,s:i,s:b,s:o,s:o,s:o,s:o,s:I,s:O,s:s}", "schema", "rlk.check/1", "verdict",
        total      ? "findings"
        : complete ? "clean"
                   : "incomplete",
        "exit", status, "complete", complete, "why", rlki_json_text(side->events ? side->why : "no events"),
        "recording", rlki_json_text(rlk_recording_path(side->recording)), "checks", checks, "findings", findings,
        "findings_total", (json_int_t)total, "notes", check->audit.notes, "intact", rlk_intact_name(side->intact));
    return *out && !rlki_json_failed() ? RLK_OK : RLK_ENOMEM;
}

int rlk_check(json_t **out, const struct rlk_check_options *options, struct rlk_detail *detail)
{
    const struct rlk_audit_options open = {.a = options->recording, .b = options->recording};
    struct rlki_check *check = calloc(1, sizeof *check);
    *out = NULL;
    if (!check)
        return rlk_fail(detail, RLK_ENOMEM, "starting");
    rlki_json_begin();
    int rc = rlki_audit_open(&check->audit, &open, detail);
    if (rc == RLK_OK)
        rc = rlki_audit_intact(&check->audit);
    if (rc == RLK_OK) {
        check->cursor = calloc(check->audit.side[0].nenv + 1, sizeof *check->cursor);
        rc = check->cursor ? RLK_OK : RLK_ENOMEM;
    }
    for (size_t i = 0; i < CHECKERS && rc == RLK_OK; i++) {
        check->state[i] = calloc(1, checkers[i]->state_size);
        check->findings[i] = json_array();
        rc = check->state[i] && check->findings[i] ? RLK_OK : RLK_ENOMEM;
    }
    if (rc == RLK_OK)
        rc = run(check, options);
    if (rc == RLK_OK)
        rc = result(check, out);
    for (size_t i = 0; i < CHECKERS; i++) {
        if (check->state[i] && checkers[i]->release)
            checkers[i]->release(check->state[i]);
        free(check->state[i]);
        json_decref(check->findings[i]);
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    free(check->cursor);
    rlki_hash_release(&check->index);
    rlki_audit_close(&check->audit);
    free(check);
    return rc == RLK_ENOMEM ? rlk_fail(detail, rc, "checking") : rc;
}
