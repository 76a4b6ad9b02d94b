/* baseline.c - making a baseline, and what making and checking share. */
#include "auditor/baseline.h"
#include "auditor/audit.h"
#include "auditor/rlk_rolls.h"
#include "store/rlk_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PER_SHORT 16u /* hex digits */

int rlki_base_open(struct rlki_base *base, const char *dir, struct rlk_detail *detail)
{
    memset(base, 0, sizeof *base);
    if (rlki_names_init(&base->names) != 0)
        return rlk_fail(detail, RLK_ENOMEM, "starting");
    int rc = rlki_side_open(&base->side, 'a', dir, &base->names, detail);
    if (rc == RLK_OK)
        rc = rlki_side_intact(&base->side, detail);
    if (rc)
        return rc;
    base->by_pass = rlki_rolls_know_passes(&base->side);
    for (size_t i = 0; i < base->side.ntotals; i++) {
        int64_t step = base->side.totals[i].step;
        if (base->nsteps && base->steps[base->nsteps - 1] == step)
            continue;
        if (!rlki_grow(&base->steps, &base->cap, base->nsteps, sizeof *base->steps))
            return rlk_fail(detail, RLK_ENOMEM, "out of memory");
        base->steps[base->nsteps++] = step;
    }
    return RLK_OK;
}

void rlki_base_close(struct rlki_base *base)
{
    free(base->steps);
    rlki_side_close(&base->side);
    rlki_names_release(&base->names);
}

json_t *rlki_base_facts(const struct rlki_base *base)
{
    static const char *const keys[] = {"level", "inputs", "layout", "steps", "every"};
    json_t *facts = json_pack("{s:I,s:b}", "ranks", (json_int_t)base->side.world, "passes", base->by_pass);
    for (size_t i = 0; facts && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(base->side.manifest, keys[i]);
        rlki_set(facts, keys[i], value ? json_incref(value) : json_null());
    }
    return facts;
}

static uint64_t hash_sums(uint64_t h, uint32_t rank, rlk_u128 out, rlk_u128 in, uint64_t events)
{
    const uint64_t words[] = {h, rank, out.lo, out.hi, in.lo, in.hi, events};
    return rlk_content_id(words, sizeof words).lo;
}

uint64_t rlki_base_steps_hash(const struct rlki_base *base, int64_t first, int64_t last)
{
    const struct rlki_side *side = &base->side;
    uint64_t hash = 0;
    for (size_t i = 0; i < side->ntotals;) { /* by step, rank, environment: those of a rank add up */
        const struct rlki_total *t = &side->totals[i];
        rlk_u128 out = {0}, in = {0};
        uint64_t events = 0;
        size_t k = i;
        for (; k < side->ntotals && side->totals[k].step == t->step && side->totals[k].rank == t->rank; k++) {
            out = rlk_u128_add(out, side->totals[k].out);
            in = rlk_u128_add(in, side->totals[k].in);
            events += side->totals[k].events;
        }
        if (t->step >= first && t->step <= last)
            hash = hash_sums(hash ^ (uint64_t)t->step, t->rank, out, in, events);
        i = k;
    }
    return hash;
}

/* Length of the first `depth` parts of a module path. */
static size_t cut(const char *module, uint32_t depth)
{
    size_t n = 0;
    for (; module[n]; n++)
        if (module[n] == '.' && --depth == 0)
            return n;
    return n;
}

uint32_t rlki_short_id(const struct rlki_base *base, const struct rlki_roll *roll, uint32_t depth)
{
    const char *module = rlki_names_text(&base->names, roll->module);
    const uint64_t words[] = {rlki_names_hash(&base->names, roll->phase), rlki_names_hash(&base->names, roll->pass),
                              rlk_content_id(module, depth ? cut(module, depth) : 0).lo};
    return (uint32_t)rlk_content_id(words, sizeof words).lo;
}

static int by_id(const void *x, const void *y)
{
    const struct rlki_short *a = x, *b = y;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Sorts, and adds up those of one id. */
static void settle(struct rlki_shorts *shorts)
{
    size_t n = 0;
    if (shorts->n)
        qsort(shorts->item, shorts->n, sizeof *shorts->item, by_id);
    for (size_t i = 0; i < shorts->n; i++) {
        if (n && shorts->item[n - 1].id == shorts->item[i].id)
            shorts->item[n - 1].sum += shorts->item[i].sum;
        else
            shorts->item[n++] = shorts->item[i];
    }
    shorts->n = n;
}

int rlki_base_shorts(struct rlki_base *base, int64_t step, uint32_t depth, struct rlki_shorts *out,
                     struct rlk_detail *detail)
{
    int rc = RLK_OK;
    out->n = 0;
    for (uint32_t r = 0; r < base->side.nranks && rc == RLK_OK; r++) {
        struct rlki_rolls rolls = {0};
        rc = rlki_rolls_read(&base->side, step, base->side.ranks[r], base->by_pass, &rolls, detail);
        for (size_t i = 0; i < rolls.n && rc == RLK_OK; i++) {
            const struct rlki_roll *roll = &rolls.roll[i];
            if (!rlki_grow(&out->item, &out->cap, out->n, sizeof *out->item)) {
                rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
                break;
            }
            out->item[out->n++] = (struct rlki_short){
                rlki_short_id(base, roll, depth),
                (uint32_t)hash_sums(roll->key, base->side.ranks[r], roll->out, roll->in, roll->events)};
        }
        rlki_rolls_release(&rolls);
    }
    settle(out);
    return rc == RLK_OK && base->names.failed ? rlk_fail(detail, RLK_ENOMEM, "out of memory") : rc;
}

void rlki_shorts_release(struct rlki_shorts *shorts)
{
    free(shorts->item);
    memset(shorts, 0, sizeof *shorts);
}

const struct rlki_short *rlki_shorts_find(const struct rlki_shorts *shorts, uint32_t id)
{
    const struct rlki_short key = {.id = id};
    return shorts->n ? bsearch(&key, shorts->item, shorts->n, sizeof key, by_id) : NULL;
}

json_t *rlki_shorts_text(const struct rlki_shorts *shorts)
{
    char *text = malloc(shorts->n * PER_SHORT + 1);
    if (!text)
        return NULL;
    text[0] = 0;
    for (size_t i = 0; i < shorts->n; i++)
        snprintf(text + i * PER_SHORT, PER_SHORT + 1, "%08" PRIx32 "%08" PRIx32, shorts->item[i].id,
                 shorts->item[i].sum);
    json_t *json = json_string(text);
    free(text);
    return json;
}

/* The deepest cut at which the modules of a step take at most `most` bytes; 0 = phases and passes alone. */
static int depth_that_fits(struct rlki_base *base, int64_t step, size_t most, uint32_t *depth,
                           struct rlk_detail *detail)
{
    struct rlki_shorts shorts = {0};
    uint32_t low = 0, high = RLKI_BASELINE_DEPTH;
    int rc = rlki_base_shorts(base, step, high, &shorts, detail);
    if (rc == RLK_OK && shorts.n * PER_SHORT <= most)
        low = high;
    while (rc == RLK_OK && low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;
        rc = rlki_base_shorts(base, step, mid, &shorts, detail);
        if (shorts.n * PER_SHORT <= most)
            low = mid;
        else
            high = mid;
    }
    *depth = low;
    rlki_shorts_release(&shorts);
    return rc;
}

static int save_modules(struct rlki_base *base, size_t most, json_t *out, struct rlk_detail *detail)
{
    struct rlki_shorts shorts = {0};
    json_t *modules = json_object();
    uint32_t depth = 0;
    size_t taken = 0;
    int rc = base->nsteps ? depth_that_fits(base, base->steps[0], most, &depth, detail) : RLK_OK;
    for (size_t i = 0; i < base->nsteps && rc == RLK_OK; i++) {
        char step[24];
        rc = rlki_base_shorts(base, base->steps[i], depth, &shorts, detail);
        if (rc || (taken += shorts.n * PER_SHORT) > most)
            break;
        snprintf(step, sizeof step, "%" PRId64, base->steps[i]);
        rlki_set(modules, step, rlki_shorts_text(&shorts));
    }
    rlki_set(out, "depth", json_integer(depth));
    rlki_set(out, "modules", modules);
    rlki_shorts_release(&shorts);
    return rc;
}

static json_t *step_lines(const struct rlki_base *base)
{
    json_t *lines = json_array();
    size_t group = (base->nsteps + RLKI_BASELINE_STEPS - 1) / RLKI_BASELINE_STEPS;
    for (size_t i = 0; lines && i < base->nsteps; i += group) {
        size_t end = i + group < base->nsteps ? i + group : base->nsteps;
        int64_t first = base->steps[i], last = base->steps[end - 1];
        char text[80];
        if (first == last)
            snprintf(text, sizeof text, "%" PRId64 " %016" PRIx64, first, rlki_base_steps_hash(base, first, last));
        else
            snprintf(text, sizeof text, "%" PRId64 "..%" PRId64 " %016" PRIx64, first, last,
                     rlki_base_steps_hash(base, first, last));
        rlki_add(lines, json_string(text));
    }
    return lines;
}

int rlk_baseline_save(json_t **out, const char *dir, size_t most, struct rlk_detail *detail)
{
    struct rlki_base base;
    json_t *made = NULL;
    *out = NULL;
    rlki_json_begin();
    int rc = rlki_base_open(&base, dir, detail);
    if (rc == RLK_OK && !base.side.complete)
        rc = rlk_fail(detail, RLK_ESTATE, "%.200s is incomplete: %.250s", dir, base.side.why);
    if (rc == RLK_OK) {
        made = json_pack("{s:s,s:o,s:o}", "schema", RLK_BASELINE_SCHEMA, "facts", rlki_base_facts(&base), "steps",
                         step_lines(&base));
        rc = made ? save_modules(&base, most, made, detail) : RLK_ENOMEM;
    }
    if (rc == RLK_OK && rlki_json_failed())
        rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
    rlki_base_close(&base);
    if (rc)
        json_decref(made);
    else
        *out = made;
    return rc;
}
