/* baseline_check.c - a recording against a baseline. */
#include "auditor/audit.h"
#include "auditor/baseline.h"
#include "auditor/lead.h"
#include "auditor/rlk_rolls.h"
#include "store/rlk_json_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LISTED 20u

static bool read_hex(const char *text, size_t digits, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = text[i];
        uint64_t v = c >= '0' && c <= '9' ? (uint64_t)(c - '0') : c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a' + 10) : 16;
        if (v == 16)
            return false;
        *out = *out << 4 | v;
    }
    return true;
}

int rlki_shorts_read(struct rlki_shorts *out, const char *text)
{
    size_t n = strlen(text);
    if (n % 16)
        return RLK_EPARSE;
    for (size_t i = 0; i < n / 16; i++) {
        uint64_t id, sum;
        if (!read_hex(text + 16 * i, 8, &id) || !read_hex(text + 16 * i + 8, 8, &sum))
            return RLK_EPARSE;
        if (out->n && out->item[out->n - 1].id >= id)
            return RLK_EPARSE;
        if (!rlki_grow(&out->item, &out->cap, out->n, sizeof *out->item))
            return RLK_ENOMEM;
        out->item[out->n++] = (struct rlki_short){(uint32_t)id, (uint32_t)sum};
    }
    return RLK_OK;
}

bool rlki_step_line(const char *text, int64_t *first, int64_t *last, uint64_t *hash)
{
    int at = 0;
    if (sscanf(text, "%20" SCNd64 "..%20" SCNd64 " %n", first, last, &at) != 2 || !at) {
        at = 0;
        if (sscanf(text, "%20" SCNd64 " %n", first, &at) != 1 || !at)
            return false;
        *last = *first;
    }
    return *first <= *last && strlen(text + at) == 16 && read_hex(text + at, 16, hash);
}

static int check_file(const json_t *file, const char *path, struct rlk_detail *detail)
{
    static const char *const keys[] = {"schema", "facts", "steps", "depth", "modules", "comment", NULL};
    const json_t *steps = json_object_get(file, "steps"), *modules = json_object_get(file, "modules"), *line;
    const json_t *depth = json_object_get(file, "depth");
    json_int_t deep = json_integer_value(depth);
    int64_t first, last, before = 0;
    uint64_t hash;
    size_t i;
    if (rlk_json_stranger(file, keys))
        return rlk_fail(detail, RLK_EPARSE, "%.300s: unknown key \"%.60s\"", path, rlk_json_stranger(file, keys));
    if (!json_is_object(json_object_get(file, "facts")) || !json_is_array(steps) || !json_is_object(modules) ||
        !json_is_integer(depth) || deep < 0 || deep > RLKI_BASELINE_DEPTH)
        return rlk_fail(detail, RLK_EPARSE, "%.300s: facts, steps, depth or modules are missing", path);
    json_array_foreach(steps, i, line)
    {
        const char *text = json_string_value(line);
        if (!text || !rlki_step_line(text, &first, &last, &hash) || (i && first <= before))
            return rlk_fail(detail, RLK_EPARSE, "%.300s: steps[%zu]: not \"STEP HASH\", or not ascending", path, i);
        before = last;
    }
    const char *step;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)modules, step, value)
    {
        struct rlki_shorts shorts = {0};
        int rc = json_is_string(value) ? rlki_shorts_read(&shorts, json_string_value(value)) : RLK_EPARSE;
        rlki_shorts_release(&shorts);
        if (rc)
            return rlk_fail(detail, rc, "%.300s: modules: step %.30s: not ascending pairs of 16 hex digits", path,
                            step);
    }
    return RLK_OK;
}

int rlk_baseline_read(json_t **out, const char *path, struct rlk_detail *detail)
{
    int rc = rlk_json_file(out, path, RLK_BASELINE_SCHEMA, RLK_BASELINE_BYTES, detail);
    if (rc == RLK_OK)
        rc = check_file(*out, path, detail);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

struct check {
    struct rlki_base base;
    const json_t *file;
    struct rlk_detail *detail;
    json_t *first, *also, *notes;
    bool changed;
    int64_t step;
    uint64_t compared, skipped, also_total;
};

static json_t *node_json(const struct check *c, const struct rlki_candidate *candidate)
{
    const struct rlki_names *names = &c->base.names;
    const struct rlki_roll *roll = &candidate->roll[0];
    const char *pass = rlki_names_text(names, roll->pass);
    return json_pack("{s:I,s:o,s:o,s:o,s:I,s:{s:I,s:I,s:I}}", "step", (json_int_t)c->step, "phase",
                     rlki_json_text(rlki_names_text(names, roll->phase)), "pass",
                     c->base.by_pass && strcmp(pass, "*") != 0 ? rlki_json_text(pass) : json_null(), "module",
                     rlki_json_text(rlki_names_text(names, roll->module)), "rank", (json_int_t)candidate->rank,
                     "events", "first_event", (json_int_t)roll->first.seq, "last_event", (json_int_t)roll->last.seq,
                     "events", (json_int_t)roll->events);
}

/* The modules of one rank whose hash is not the baseline's. A hash is of all ranks together: which of them differ is
 * not known, so all are looked at. */
static int suspect_rank(struct check *c, const struct rlki_shorts *was, const struct rlki_shorts *is, uint32_t depth,
                        uint32_t rank, struct rlki_lead *lead)
{
    struct rlki_rolls rolls = {0};
    size_t n = 0;
    int rc = rlki_rolls_read(&c->base.side, c->step, rank, c->base.by_pass, &rolls, c->detail);
    struct rlki_suspect *suspects = rc ? NULL : calloc(rolls.n + 1, sizeof *suspects);
    if (rc == RLK_OK && !suspects)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < rolls.n && rc == RLK_OK; i++) {
        uint32_t id = rlki_short_id(&c->base, &rolls.roll[i], depth);
        const struct rlki_short *old = rlki_shorts_find(was, id), *now = rlki_shorts_find(is, id);
        if (!old || !now || old->sum != now->sum)
            suspects[n++] = (struct rlki_suspect){
                .good = &rolls.roll[i], .first = rolls.roll[i].first, .last = rolls.roll[i].last, .ordinal = 2 * i};
    }
    if (rc == RLK_OK) {
        rlki_rolls_suspect(suspects, n);
        rc = rlki_lead_add(lead, &c->base.names, rank, &rolls, suspects, n);
    }
    free(suspects);
    rlki_rolls_release(&rolls);
    return rc;
}

/* The order of their events says which was first. */
static int name_module(struct check *c, const struct rlki_shorts *was, const struct rlki_shorts *is, uint32_t depth)
{
    struct rlki_lead lead = {0};
    int rc = RLK_OK;
    for (uint32_t r = 0; r < c->base.side.nranks && rc == RLK_OK; r++)
        rc = suspect_rank(c, was, is, depth, c->base.side.ranks[r], &lead);
    if (rc == RLK_OK)
        rc = rlki_lead_settle(&lead, &c->base.names);
    if (rc == RLK_ENOMEM)
        rlk_fail(c->detail, rc, "out of memory");
    if (rc == RLK_OK && lead.first) {
        c->first = node_json(c, lead.first);
        rlki_lead_ranks(c->first, lead.first);
        c->also_total = lead.nalso;
        for (size_t i = 0; i < lead.nalso && i < MAX_LISTED; i++)
            rlki_add(c->also, node_json(c, &lead.candidate[lead.also[i]]));
    }
    rlki_lead_release(&lead);
    return rc;
}

static int look_into(struct check *c)
{
    uint32_t depth = (uint32_t)json_integer_value(json_object_get(c->file, "depth"));
    struct rlki_shorts was = {0}, is = {0};
    char step[24], text[200];
    snprintf(step, sizeof step, "%" PRId64, c->step);
    const char *stored = json_string_value(json_object_get(json_object_get(c->file, "modules"), step));
    if (!stored) {
        rlki_add(c->notes, json_string("the baseline has no modules of that step: compare with a recording, or save "
                                       "with a larger --max-size"));
        return RLK_OK;
    }
    int rc = rlki_shorts_read(&was, stored);
    if (rc == RLK_OK)
        rc = rlki_base_shorts(&c->base, c->step, depth, &is, c->detail);
    size_t gone = 0;
    for (size_t i = 0; i < was.n && rc == RLK_OK; i++)
        gone += !rlki_shorts_find(&is, was.item[i].id);
    if (rc == RLK_OK)
        rc = name_module(c, &was, &is, depth);
    if (gone) {
        snprintf(text, sizeof text, "%zu modules of the baseline are not in the recording", gone);
        rlki_add(c->notes, json_string(text));
    }
    if (depth < RLKI_BASELINE_DEPTH && c->first) {
        snprintf(text, sizeof text, "the baseline tells modules apart to %u parts of their path", depth);
        rlki_add(c->notes, json_string(text));
    }
    rlki_shorts_release(&was);
    rlki_shorts_release(&is);
    return rc;
}

/* Has the recording all of [first, last], whole? */
static bool is_cut(const struct check *c, int64_t first, int64_t last)
{
    const struct rlki_side *side = &c->base.side;
    for (size_t i = 0; i < c->base.nsteps; i++)
        if (c->base.steps[i] >= first && c->base.steps[i] <= last && rlki_side_cut_anywhere(side, c->base.steps[i]))
            return true;
    return !side->complete && (!c->base.nsteps || last > c->base.steps[c->base.nsteps - 1]);
}

static bool holds(const struct rlki_base *base, int64_t step)
{
    for (size_t i = 0; i < base->nsteps; i++)
        if (base->steps[i] == step)
            return true;
    return false;
}

static int compare(struct check *c)
{
    const json_t *line;
    size_t i;
    int64_t first = 0, last = INT64_MIN;
    uint64_t hash;
    char text[160];
    json_array_foreach(json_object_get(c->file, "steps"), i, line)
    {
        if (!rlki_step_line(json_string_value(line), &first, &last, &hash))
            return RLK_EPARSE;
        if (is_cut(c, first, last)) {
            c->skipped++;
            continue;
        }
        c->compared++;
        if (rlki_base_steps_hash(&c->base, first, last) == hash)
            continue;
        c->changed = true;
        c->step = first;
        if (first != last) {
            snprintf(text, sizeof text, "in one of the steps %" PRId64 " to %" PRId64 ", which the baseline has as one",
                     first, last);
            rlki_add(c->notes, json_string(text));
        }
        if (!holds(&c->base, first)) {
            rlki_add(c->notes, json_string("that step is not in the recording"));
            return RLK_OK;
        }
        return look_into(c);
    }
    for (size_t k = 0; k < c->base.nsteps && !c->changed; k++)
        if (c->base.steps[k] > last) {
            c->changed = true;
            c->step = c->base.steps[k];
            rlki_add(c->notes, json_string("that step is not in the baseline"));
        }
    return RLK_OK;
}

static int result(struct check *c, const char *reason, json_t **out)
{
    bool complete = c->base.side.complete;
    int code = reason ? 3 : c->changed ? 1 : complete ? 0 : 4;
    const char *verdict = reason ? "not_comparable" : c->changed ? "changed" : complete ? "same" : "incomplete";
    if (!complete)
        rlki_add(c->notes, rlki_json_text(c->base.side.why));
    if (rlki_side_unchecked(&c->base.side)) {
        char text[160];
        snprintf(text, sizeof text, "the recording %s", rlki_side_unchecked(&c->base.side));
        rlki_add(c->notes, json_string(text));
    }
    *out = json_pack(
        "{s:s,s:s,s:i,s:b,s:o,s:O?,s:O,s:I,s:{s:I,s:I},s:O,s:o,s:s}", "schema", "rlk.baseline_check/1", "verdict",
        verdict, "exit", code, "complete", complete, "step", c->changed ? json_integer(c->step) : json_null(), "first",
        c->first, "also", c->also, "also_total", (json_int_t)c->also_total, "steps", "compared",
        (json_int_t)c->compared, "skipped", (json_int_t)c->skipped, "notes", c->notes, "recording",
        rlki_json_text(rlk_recording_path(c->base.side.recording)), "intact", rlk_intact_name(c->base.side.intact));
    if (*out && reason)
        rlki_set(*out, "not_comparable", json_pack("{s:s}", "reason", reason));
    return *out && !rlki_json_failed() ? RLK_OK : rlk_fail(c->detail, RLK_ENOMEM, "out of memory");
}

/* The fact that differs, or NULL. */
static const char *other_fact(const json_t *was, json_t *is)
{
    const char *key;
    json_t *value;
    json_object_foreach(is, key, value)
    {
        const json_t *old = json_object_get(was, key);
        if (!old || !json_equal(old, value))
            return key;
    }
    return NULL;
}

int rlk_baseline_check(json_t **out, const char *dir, const json_t *baseline, struct rlk_detail *detail)
{
    struct check c = {.file = baseline, .detail = detail, .also = json_array(), .notes = json_array()};
    char reason[100] = "";
    *out = NULL;
    rlki_json_begin();
    int rc = rlki_base_open(&c.base, dir, detail);
    json_t *facts = rc == RLK_OK ? rlki_base_facts(&c.base) : NULL;
    if (rc == RLK_OK && (!facts || !c.also || !c.notes))
        rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
    if (rc == RLK_OK) {
        const char *key = other_fact(json_object_get(baseline, "facts"), facts);
        if (key)
            snprintf(reason, sizeof reason, "recorded otherwise than the baseline: %.40s", key);
        else
            rc = compare(&c);
    }
    if (rc == RLK_OK)
        rc = result(&c, reason[0] ? reason : NULL, out);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    json_decref(facts);
    json_decref(c.first);
    json_decref(c.also);
    json_decref(c.notes);
    rlki_base_close(&c.base);
    return rc;
}
