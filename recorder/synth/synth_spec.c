/* The envelope of a spec (everything but its events), the list of events, and the manifest. */
#include "recorder/synth/synth_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder/synth/rlk_synth.h"
#include "store/rlk_recording.h"

#define MAX_EVENTS (1u << 26)
#define MAX_ENTRIES 65536u

void *sy_new(struct sy_spec *spec, size_t n, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return rlk_arena_alloc(&spec->arena, bytes ? bytes : 1, 16);
}

uint32_t sy_number_of(json_t *table, const char *text, uint32_t *count)
{
    json_t *known = json_object_get(table, text);
    if (known)
        return (uint32_t)json_integer_value(known);
    if (*count == SY_NONE || json_object_set_new_nocheck(table, text, json_integer(*count)))
        return SY_NONE;
    return (*count)++;
}

/* {"NAME": "text", ...} */
static int check_texts(const struct sy_at *at)
{
    const char *key, *text = NULL;
    json_t *value;
    int rc = RLK_OK;

    if (!json_is_object(at->v))
        return sy_fail(at, "expected an object of strings");
    json_object_foreach((json_t *)(uintptr_t)at->v, key, value)
    {
        struct sy_at v = {value, at, key, 0, at->detail};
        rc = sy_string(&v, true, &text);
        if (rc)
            return rc;
    }
    return rc;
}

static int check_text_list(const struct sy_at *at)
{
    const char *text = NULL;
    size_t n = 0;
    int rc = sy_list(at, 0, MAX_ENTRIES, &n);

    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = sy_string(&item, true, &text);
    }
    return rc;
}

static int check_gpus(const struct sy_at *at)
{
    static const char *const keys[] = {"uuid", "name", "sm", NULL};
    const char *text = NULL;
    size_t n = 0;
    int rc = sy_list(at, 0, MAX_ENTRIES, &n);

    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i), sm;
        rc = sy_object(&item, keys);
        if (!rc)
            rc = sy_opt_string(&item, "uuid", &text);
        if (!rc)
            rc = sy_opt_string(&item, "name", &text);
        sm = sy_get(&item, "sm");
        if (!rc && sm.v && !json_is_string(sm.v) && !json_is_integer(sm.v))
            rc = sy_fail(&sm, "expected a string or an integer");
    }
    return rc;
}

static int read_layout(struct sy_spec *spec, const struct sy_at *at)
{
    struct rlk_detail why = {""};
    int rc;

    if (!at->v)
        return RLK_OK;
    rc = sy_string(at, false, &spec->layout_text);
    if (rc)
        return rc;
    rc = rlk_layout_parse(&spec->layout, spec->layout_text, &why);
    if (!rc)
        rc = rlk_layout_fit(&spec->layout, spec->ranks, &why);
    spec->has_layout = !rc;
    return rc ? sy_fail(at, "%s", why.text) : RLK_OK;
}

static int read_missing(struct sy_spec *spec, const struct sy_at *at)
{
    const uint32_t *list = NULL;
    int rc = RLK_OK;

    spec->missing = SY_NEW(spec, spec->ranks, bool);
    if (!spec->missing)
        return RLK_ENOMEM;
    if (at->v)
        rc = sy_read_ranks(spec, at, true, &spec->nmissing, &list);
    for (uint32_t i = 0; i < spec->nmissing && !rc; i++)
        spec->missing[list[i]] = true;
    return rc;
}

static int check_machine(const struct sy_at *root)
{
    const char *text = NULL;
    struct sy_at v;
    int rc = RLK_OK;

    if ((v = sy_get(root, "env")).v)
        rc = check_texts(&v);
    if (!rc && (v = sy_get(root, "libraries")).v)
        rc = check_texts(&v);
    if (!rc)
        rc = sy_opt_string(root, "driver", &text);
    if (!rc && (v = sy_get(root, "gpus")).v)
        rc = check_gpus(&v);
    if (!rc)
        rc = sy_opt_string(root, "topology", &text);
    if (!rc && (v = sy_get(root, "hosts")).v)
        rc = check_text_list(&v);
    if (!rc && (v = sy_get(root, "argv")).v)
        rc = check_text_list(&v);
    return rc;
}

static int read_envelope(struct sy_spec *spec, const struct sy_at *root)
{
    static const char *const keys[] = {"rlk_synth", "ranks",    "layout",  "env",           "libraries", "driver",
                                       "gpus",      "topology", "hosts",   "argv",          "capture",   "complete",
                                       "dropped",   "events",   "comment", "missing_ranks", NULL};
    static const char *const levels[] = {"launch", "step", "module", "op", "buffer", NULL};
    struct sy_at v;
    int64_t one = 0, dropped = 0;
    const char *comment = NULL;
    int rc = sy_object(root, keys);

    if (!rc)
        rc = sy_need(root, "rlk_synth", &v);
    if (!rc)
        rc = sy_int(&v, 1, 1, &one);
    if (!rc)
        rc = sy_opt_u32(root, "ranks", 1, RLK_SYNTH_MAX_RANKS, &spec->ranks);
    if (rc)
        return rc;
    v = sy_get(root, "layout");
    rc = read_layout(spec, &v);
    if (!rc)
        rc = check_machine(root);
    if (!rc && (v = sy_get(root, "capture")).v)
        rc = sy_choice(&v, levels, &spec->capture);
    if (!rc)
        rc = sy_opt_bool(root, "complete", &spec->complete);
    v = sy_get(root, "missing_ranks");
    if (!rc)
        rc = read_missing(spec, &v);
    if (!rc)
        rc = sy_opt_int(root, "dropped", 0, INT64_MAX, &dropped);
    spec->dropped = (uint64_t)dropped;
    return rc ? rc : sy_opt_string(root, "comment", &comment);
}

static int read_events(struct sy_spec *spec, const struct sy_at *at)
{
    int rc = RLK_OK;

    if (at->v)
        rc = sy_list(at, 0, MAX_EVENTS, &spec->nevents);
    if (rc)
        return rc;
    spec->events = SY_NEW(spec, spec->nevents, struct sy_event);
    if (!spec->events)
        return RLK_ENOMEM;
    for (size_t i = 0; i < spec->nevents && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = sy_read_event(spec, &item, &spec->events[i]);
    }
    return rc;
}

int sy_spec_read(struct sy_spec *spec, const json_t *root, uint64_t max_bytes, struct rlk_detail *detail)
{
    struct sy_at at = {root, NULL, NULL, 0, detail}, events;
    int rc;

    *spec = (struct sy_spec){.root = root, .ranks = 1, .capture = "op", .complete = true};
    spec->max_bytes = max_bytes ? max_bytes : RLK_SYNTH_MAX_BYTES;
    spec->names = json_object();
    spec->allocs = json_object();
    spec->occurrences = json_object();
    spec->ids = json_object();
    rc = spec->names && spec->allocs && spec->occurrences && spec->ids ? RLK_OK : RLK_ENOMEM;
    if (!rc)
        rc = read_envelope(spec, &at);
    events = sy_get(&at, "events");
    if (!rc)
        rc = read_events(spec, &events);
    if (rc)
        sy_spec_release(spec);
    return rc;
}

void sy_spec_release(struct sy_spec *spec)
{
    json_decref(spec->names);
    json_decref(spec->allocs);
    json_decref(spec->occurrences);
    json_decref(spec->ids);
    rlk_arena_release(&spec->arena);
    *spec = (struct sy_spec){0};
}

static int copy_key(json_t *manifest, const struct sy_spec *spec, const char *key, json_t *fallback)
{
    json_t *v = json_object_get(spec->root, key);
    int failed = v ? json_object_set(manifest, key, v) : json_object_set(manifest, key, fallback);
    json_decref(fallback);
    return failed;
}

json_t *sy_manifest(const struct sy_spec *spec, const char *tool)
{
    char created[32];
    time_t now = time(NULL);
    struct tm utc;
    int failed = 0;

    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *planes = json_array();
    if (!planes)
        return NULL;
    if (spec->any_launch)
        failed |= json_array_append_new(planes, json_string("launch"));
    if (spec->any_tensor)
        failed |= json_array_append_new(planes, json_string("tensor"));
    json_t *m = json_pack("{si s{si si} ss ss sb ss ss si so s{si}}", "rlk_recording", 1, "format", "major",
                          RLK_FORMAT_MAJOR, "minor", RLK_FORMAT_MINOR, "created", created, "tool",
                          tool ? tool : "rlkrec synth", "synthetic", 1, "level", spec->capture, "inputs", "reference",
                          "ranks", (int)spec->ranks, "planes", planes, "exit", "code", 0);
    if (!m)
        return NULL;
    failed |= copy_key(m, spec, "argv", json_array());
    failed |= copy_key(m, spec, "env", json_object());
    failed |= copy_key(m, spec, "libraries", json_object());
    failed |= copy_key(m, spec, "driver", json_string(""));
    failed |= copy_key(m, spec, "gpus", json_array());
    failed |= copy_key(m, spec, "topology", json_string(""));
    failed |= copy_key(m, spec, "hosts", json_array());
    failed |= copy_key(m, spec, "missing_ranks", json_array());
    failed |= copy_key(m, spec, "layout", json_null());
    failed |= json_object_set_new(m, "faults", json_array());
    if (failed) {
        json_decref(m);
        m = NULL;
    }
    return m;
}
