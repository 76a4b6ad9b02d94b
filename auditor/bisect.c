/* bisect.c - the first step, phase, pass and module in which two recordings differ, from their roll-ups. */
#include "auditor/audit.h"
#include "auditor/lead.h"
#include "auditor/rlk_rolls.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LISTED 20u

struct bisect {
    struct rlki_names names;
    struct rlki_side side[2];
    struct rlk_detail *detail;
    bool by_pass, inputs; /* inputs: digested inputs are comparable too */
    uint64_t totals, nodes, steps, steps_differing, only[2], skipped;
    bool differs, lone; /* a step that one side has alone is the first difference */
    int64_t step;
    struct rlki_lead lead;
    json_t *notes;
};

static bool same_sums(const struct bisect *b, const rlk_u128 out[2], const rlk_u128 in[2], const uint64_t events[2])
{
    return rlk_u128_equal(out[0], out[1]) && (!b->inputs || rlk_u128_equal(in[0], in[1])) && events[0] == events[1];
}

static bool same_totals(struct bisect *b, int64_t step, uint32_t rank)
{
    rlk_u128 out[2] = {0}, in[2] = {0};
    uint64_t events[2] = {0};
    for (int s = 0; s < 2; s++) {
        size_t n;
        const struct rlki_total *t = rlki_side_totals(&b->side[s], step, rank, &n);
        for (size_t i = 0; i < n; i++) {
            out[s] = rlk_u128_add(out[s], t[i].out);
            in[s] = rlk_u128_add(in[s], t[i].in);
            events[s] += t[i].events;
        }
        b->totals += n;
    }
    return same_sums(b, out, in, events);
}

static json_t *place(const struct rlki_roll *roll)
{
    return roll ? json_pack("{s:I,s:I,s:I}", "first_event", (json_int_t)roll->first.seq, "last_event",
                            (json_int_t)roll->last.seq, "events", (json_int_t)roll->events)
                : json_null();
}

static json_t *what_differs(const struct bisect *b, const struct rlki_candidate *c)
{
    const struct rlki_roll *good = &c->roll[0], *bad = &c->roll[1];
    json_t *what = json_array();
    if (!c->has[0] || !c->has[1]) {
        rlki_add(what, json_string(c->has[0] ? "only-in-good" : "only-in-bad"));
        return what;
    }
    if (!rlk_u128_equal(good->out, bad->out))
        rlki_add(what, json_string("outputs"));
    if (b->inputs && !rlk_u128_equal(good->in, bad->in))
        rlki_add(what, json_string("inputs"));
    if (good->events != bad->events)
        rlki_add(what, json_string("events"));
    return what;
}

static json_t *node_json(const struct bisect *b, const struct rlki_candidate *c)
{
    const struct rlki_roll *good = c->has[0] ? &c->roll[0] : NULL, *bad = c->has[1] ? &c->roll[1] : NULL;
    const struct rlki_roll *roll = good ? good : bad;
    const char *pass = rlki_names_text(&b->names, roll->pass);
    return json_pack("{s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:I}", "step", (json_int_t)b->step, "phase",
                     rlki_json_text(rlki_names_text(&b->names, roll->phase)), "pass",
                     b->by_pass && strcmp(pass, "*") != 0 ? rlki_json_text(pass) : json_null(), "module",
                     rlki_json_text(rlki_names_text(&b->names, roll->module)), "what", what_differs(b, c), "good",
                     place(good), "bad", place(bad), "rank", (json_int_t)c->rank);
}

/* The nodes of one rank that differ, in GOOD's order; what only BAD has stands behind what precedes it there. */
static size_t suspects_of(struct bisect *b, const struct rlki_rolls rolls[2], struct rlki_suspect *out)
{
    struct rlki_hash index = {0};
    struct rlki_pos at = {0, 0};
    size_t n = 0;
    for (size_t j = 0; j < rolls[1].n; j++)
        rlki_hash_put(&index, rolls[1].roll[j].key, j);
    for (size_t i = 0; i < rolls[0].n; i++) {
        const struct rlki_roll *good = &rolls[0].roll[i];
        uint64_t j;
        const struct rlki_roll *bad = rlki_hash_get(&index, good->key, &j) ? &rolls[1].roll[j] : NULL;
        if (bad && same_sums(b, (rlk_u128[2]){good->out, bad->out}, (rlk_u128[2]){good->in, bad->in},
                             (uint64_t[2]){good->events, bad->events}))
            continue;
        out[n++] =
            (struct rlki_suspect){.good = good, .bad = bad, .first = good->first, .last = good->last, .ordinal = 2 * i};
    }
    rlki_hash_clear(&index);
    for (size_t i = 0; i < rolls[0].n; i++)
        rlki_hash_put(&index, rolls[0].roll[i].key, i);
    uint64_t behind = 0;
    for (size_t j = 0; j < rolls[1].n; j++) {
        uint64_t i;
        if (rlki_hash_get(&index, rolls[1].roll[j].key, &i)) {
            at = rolls[0].roll[i].first;
            behind = 2 * i + 1;
        } else {
            out[n++] = (struct rlki_suspect){.bad = &rolls[1].roll[j], .first = at, .last = at, .ordinal = behind};
        }
    }
    b->names.failed |= index.failed;
    rlki_hash_release(&index);
    return n;
}

static int look_into(struct bisect *b, int64_t step, uint32_t rank)
{
    struct rlki_rolls rolls[2] = {{0}};
    struct rlki_suspect *suspects = NULL;
    int rc = RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        rc = rlki_rolls_read(&b->side[s], step, rank, b->by_pass, &rolls[s], b->detail);
    if (rc)
        goto out;
    b->nodes += rolls[0].n + rolls[1].n;
    suspects = calloc(rolls[0].n + rolls[1].n + 1, sizeof *suspects);
    if (!suspects) {
        rc = RLK_ENOMEM;
        goto out;
    }
    size_t n = suspects_of(b, rolls, suspects);
    rlki_rolls_suspect(suspects, n);
    rc = rlki_lead_add(&b->lead, &b->names, rank, &rolls[0], suspects, n);
out:
    free(suspects);
    rlki_rolls_release(&rolls[0]);
    rlki_rolls_release(&rolls[1]);
    return rc;
}

/* One step on both sides: which ranks differ; the first such step is looked into. */
static int compare_step(struct bisect *b, int64_t step)
{
    const struct rlki_side *x = &b->side[0], *y = &b->side[1];
    bool any = false, is_first = !b->differs;
    int rc = RLK_OK;
    uint32_t i = 0, j = 0;
    b->steps++;
    while ((i < x->nranks || j < y->nranks) && rc == RLK_OK) {
        uint32_t rank = j == y->nranks || (i < x->nranks && x->ranks[i] < y->ranks[j]) ? x->ranks[i] : y->ranks[j];
        i += i < x->nranks && x->ranks[i] == rank;
        j += j < y->nranks && y->ranks[j] == rank;
        if (same_totals(b, step, rank))
            continue;
        if (rlki_side_cut(x, step, rank) || rlki_side_cut(y, step, rank)) {
            b->skipped++; /* events may be missing there */
            continue;
        }
        any = true;
        if (is_first) {
            b->step = step;
            b->differs = true;
            rc = look_into(b, step, rank);
        }
    }
    b->steps_differing += any;
    return rc;
}

/* A step that one side has alone. */
static void lone_step(struct bisect *b, int64_t step, int has)
{
    const struct rlki_side *other = &b->side[1 - has];
    b->only[has]++;
    if (b->differs || !other->complete || !b->side[has].complete || rlki_other_retention(&b->side[0], &b->side[1]))
        return;
    b->differs = b->lone = true;
    b->step = step;
}

static int walk(struct bisect *b, const struct rlk_rolls_progress *progress)
{
    const struct rlki_side *x = &b->side[0], *y = &b->side[1];
    size_t i = 0, j = 0;
    int rc = RLK_OK;
    while ((i < x->ntotals || j < y->ntotals) && rc == RLK_OK) {
        int64_t step = j == y->ntotals || (i < x->ntotals && x->totals[i].step < y->totals[j].step) ? x->totals[i].step
                                                                                                    : y->totals[j].step;
        bool in_x = i < x->ntotals && x->totals[i].step == step, in_y = j < y->ntotals && y->totals[j].step == step;
        if (in_x && in_y)
            rc = compare_step(b, step);
        else
            lone_step(b, step, in_x ? 0 : 1);
        while (i < x->ntotals && x->totals[i].step == step)
            i++;
        while (j < y->ntotals && y->totals[j].step == step)
            j++;
        if (progress && progress->report)
            progress->report(progress->context, i + j, x->ntotals + y->ntotals);
    }
    return rc;
}

static bool same_fact(const struct bisect *b, const char *key)
{
    const json_t *x = json_object_get(b->side[0].manifest, key), *y = json_object_get(b->side[1].manifest, key);
    return x == y || (x && y && json_equal(x, y));
}

/* Why the roll-ups of the two say nothing about each other, or NULL. */
static const char *incomparable(const struct bisect *b, bool walked)
{
    if (rlki_layouts_differ(&b->side[0], &b->side[1]))
        return "layouts differ: roll-ups belong to ranks; rlkaudit first-diff composes them";
    if (!same_fact(b, "level"))
        return "levels differ";
    return walked && b->side[0].events && b->side[1].events && !b->steps ? "no step in common" : NULL;
}

static uint64_t scanned(const struct bisect *b)
{
    uint64_t n = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < b->side[s].nenv; i++)
            if (!rlk_env_complete(b->side[s].env[i].env))
                n += rlk_env_count(b->side[s].env[i].env);
    return n;
}

static void notes(struct bisect *b, uint64_t events)
{
    static const char *const letter[2] = {"GOOD", "BAD"};
    char text[400];
    for (int s = 0; s < 2; s++)
        if (!b->side[s].complete) {
            snprintf(text, sizeof text, "%s is incomplete: %.300s", letter[s], b->side[s].why);
            rlki_add(b->notes, rlki_json_text(text));
        }
    for (int s = 0; s < 2; s++)
        if (rlki_side_unchecked(&b->side[s])) {
            snprintf(text, sizeof text, "%s %s", letter[s], rlki_side_unchecked(&b->side[s]));
            rlki_add(b->notes, json_string(text));
        }
    if (events)
        rlki_add(b->notes, json_string("a recording that was cut off has no roll-ups: they were made from its events"));
    if (!b->by_pass)
        rlki_add(b->notes, json_string("a recording of format 1.0: its roll-ups do not tell the passes apart"));
    if (!b->inputs)
        rlki_add(b->notes, json_string("recorded with other --inputs: only outputs were compared"));
}

static int result(struct bisect *b, json_t **out)
{
    const char *reason = incomparable(b, true);
    bool complete = b->side[0].complete && b->side[1].complete;
    uint64_t events = scanned(b);
    int code = reason ? 3 : b->differs ? 1 : complete ? 0 : 4;
    const char *verdict = reason ? "not_comparable" : b->differs ? "diverged" : complete ? "identical" : "incomplete";
    json_t *first = NULL, *also = json_array();
    if (b->lead.first && !reason) {
        first = node_json(b, b->lead.first);
        rlki_lead_ranks(first, b->lead.first);
    }
    for (size_t i = 0; also && i < b->lead.nalso && i < MAX_LISTED && !reason; i++)
        rlki_add(also, node_json(b, &b->lead.candidate[b->lead.also[i]]));
    notes(b, events);
    *out = json_pack("{s:s,s:s,s:i,s:b,s:o,s:o?,s:o,s:I,s:o,s:o,s:O,s:o,s:{s:s,s:s}}", "schema", "rlk.bisect/1",
                     "verdict", verdict, "exit", code, "complete", complete, "step",
                     b->differs && !reason ? json_integer(b->step) : json_null(), "first", first, "also", also,
                     "also_total", (json_int_t)(reason ? 0 : b->lead.nalso), "steps",
                     json_pack("{s:I,s:I,s:I,s:I,s:I}", "compared", (json_int_t)b->steps, "differing",
                               (json_int_t)b->steps_differing, "only_in_good", (json_int_t)b->only[0], "only_in_bad",
                               (json_int_t)b->only[1], "skipped", (json_int_t)b->skipped),
                     "read",
                     json_pack("{s:I,s:I,s:I}", "totals", (json_int_t)b->totals, "nodes", (json_int_t)b->nodes,
                               "events", (json_int_t)events),
                     "notes", b->notes, "recordings",
                     json_pack("{s:o,s:o}", "good", rlki_json_text(rlk_recording_path(b->side[0].recording)), "bad",
                               rlki_json_text(rlk_recording_path(b->side[1].recording))),
                     "intact", "good", rlk_intact_name(b->side[0].intact), "bad", rlk_intact_name(b->side[1].intact));
    if (*out && reason)
        rlki_set(*out, "not_comparable", json_pack("{s:s}", "reason", reason));
    if (*out && b->lone)
        rlki_set(*out, "lone_step", json_true());
    if (*out && !rlki_json_failed())
        return RLK_OK;
    json_decref(*out);
    *out = NULL;
    return rlk_fail(b->detail, RLK_ENOMEM, "writing the result");
}

int rlk_audit_bisect(json_t **out, const char *good, const char *bad, const struct rlk_rolls_progress *progress,
                     struct rlk_detail *detail)
{
    struct bisect b = {.detail = detail, .notes = json_array()};
    *out = NULL;
    rlki_json_begin();
    int rc = rlki_names_init(&b.names) == 0 && b.notes ? RLK_OK : rlk_fail(detail, RLK_ENOMEM, "starting");
    if (rc == RLK_OK)
        rc = rlki_side_open(&b.side[0], 'a', good, &b.names, detail);
    if (rc == RLK_OK)
        rc = rlki_side_open(&b.side[1], 'b', bad, &b.names, detail);
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        rc = rlki_side_intact(&b.side[s], detail);
    if (rc == RLK_OK) {
        b.by_pass = rlki_rolls_know_passes(&b.side[0]) && rlki_rolls_know_passes(&b.side[1]);
        b.inputs = same_fact(&b, "inputs");
        rc = incomparable(&b, false) ? RLK_OK : walk(&b, progress);
    }
    if (rc == RLK_OK)
        rc = rlki_lead_settle(&b.lead, &b.names);
    if (rc == RLK_OK && (b.names.failed || rlki_json_failed()))
        rc = rlk_fail(detail, RLK_ENOMEM, "comparing");
    if (rc == RLK_OK)
        rc = result(&b, out);
    for (int s = 0; s < 2; s++)
        rlki_side_close(&b.side[s]);
    rlki_lead_release(&b.lead);
    json_decref(b.notes);
    rlki_names_release(&b.names);
    return rc;
}
