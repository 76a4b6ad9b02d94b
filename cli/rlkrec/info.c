/* rlkrec info: what a recording holds. */
#include "cli/rlkrec/info.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *json;
    bool events;
    struct rlki_event_filter filter;
} opt;

static const struct rlki_option options[] = {
    {"json", 0, RLKI_STRING, &opt.json, "FILE|-", "the same as JSON"},
    {"events", 0, RLKI_FLAG, &opt.events, NULL, "list the events instead, one a line"},
    {"limit", 'n', RLKI_NUMBER, &opt.filter.limit, "N", "with --events: the first N"},
    {"rank", 0, RLKI_STRING, &opt.filter.rank, "R", "with --events: this rank's only"},
    {"steps", 0, RLKI_SPAN, &opt.filter.steps, "A:B", "with --events: steps A to B-1 only"},
};

static const struct rlki_command command = {
    "rlkrec",
    "info",
    "[REC] [options]",
    "What a recording (default: the newest) holds, and what it does not.",
    options,
    sizeof options / sizeof options[0],
    0,
    1,
    false,
    0,
    "0 complete; 4 incomplete: no events, a rank or its END missing, events dropped; 2 unreadable\n"};

static int add_meta(void *context, const char *key, const char *value)
{
    return json_object_set_new(context, key, rlki_json_string(value)) ? RLK_ENOMEM : 0;
}

static json_t *environment_json(const struct rlk_recording *recording, size_t i)
{
    struct rlk_env *env = rlk_recording_env(recording, i);
    const char *dir = rlk_recording_env_dir(recording, i), *slash = strrchr(dir, '/');
    json_t *out = json_object(), *ranks = json_array(), *meta = json_object();
    struct rlk_coverage coverage;
    uint32_t n = 0;
    const uint32_t *list = rlk_env_ranks(env, &n);

    json_object_set_new(out, "name", rlki_json_string(slash ? slash + 1 : dir));
    json_object_set_new(out, "events", json_integer((json_int_t)rlk_env_count(env)));
    json_object_set_new(out, "complete", json_boolean(rlk_env_complete(env)));
    for (uint32_t k = 0; k < n; k++)
        json_array_append_new(ranks, json_integer(list[k]));
    json_object_set_new(out, "ranks", ranks);
    json_object_set_new(out, "bytes", json_integer((json_int_t)rlki_disk_bytes(dir)));
    if (rlk_env_coverage(env, &coverage, NULL) == RLK_OK)
        json_object_set_new(out, "coverage", rlki_coverage_json(&coverage));
    rlk_env_meta_each(env, add_meta, meta);
    json_object_set_new(out, "meta", meta);
    return out;
}

/* Everything, as JSON; the text is made of it. *status gets 0, 4, or 2 where it is damaged. */
static json_t *gather(const struct rlk_recording *recording, int *status, int *code, struct rlk_detail *detail)
{
    const char *path = rlk_recording_path(recording);
    char seal[PATH_MAX + 8];
    struct rlki_totals totals;
    struct rlk_detail why;
    json_t *out = NULL, *environments;

    *code = rlki_totals(recording, &totals, detail);
    if (*code)
        return NULL;
    *status = rlki_completeness(recording, &totals, &why);
    snprintf(seal, sizeof seal, "%s/SEAL", path);
    out = json_pack("{s:s, s:o, s:i, s:b}", "schema", "rlk.info/1", "recording", rlki_json_string(path), "exit",
                    *status, "complete", *status == 0);
    json_object_set_new(out, "why", *status ? rlki_json_string(why.text) : json_null());
    json_object_set_new(out, "still_recording", json_boolean(rlki_still_recording(recording) != 0));
    json_object_set_new(out, "sealed", json_boolean(access(seal, F_OK) == 0));
    enum rlk_intact how;
    struct rlk_detail damage = {""};
    int rc = rlk_recording_intact(recording, RLK_INTACT_MOST, &how, &damage);
    json_object_set_new(out, "intact", json_string(rc == RLK_ECORRUPT ? "damaged" : rlk_intact_name(how)));
    if (rc == RLK_ECORRUPT) {
        *status = RLKI_EXIT_FAULT;
        json_object_set_new(out, "damage", rlki_json_string(damage.text));
        json_object_set_new(out, "exit", json_integer(*status));
    }
    json_object_set_new(out, "bytes", json_integer((json_int_t)rlki_disk_bytes(path)));
    json_object_set_new(out, "events", json_integer((json_int_t)totals.events));
    json_object_set_new(out, "steps", json_integer((json_int_t)totals.steps));
    json_object_set_new(out, "coverage", rlki_coverage_json(&totals.coverage));
    environments = json_array();
    for (size_t i = 0; i < rlk_recording_envs(recording); i++)
        json_array_append_new(environments, environment_json(recording, i));
    json_object_set_new(out, "environments", environments);
    json_object_set_new(out, "manifest", json_deep_copy(rlk_recording_manifest(recording)));
    return out;
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return value ? rlki_esc(value) : "-";
}

static const char *how_it_ended(const json_t *manifest)
{
    static char line[64];
    const json_t *ended = json_object_get(manifest, "exit"), *code = json_object_get(ended, "code");

    if (json_is_integer(code))
        snprintf(line, sizeof line, "exit %lld", (long long)json_integer_value(code));
    else if (json_is_integer(json_object_get(ended, "signal")))
        snprintf(line, sizeof line, "killed by signal %llu", (unsigned long long)number(ended, "signal"));
    else
        snprintf(line, sizeof line, "not known (rlkrec had not ended)");
    return line;
}

static void print_map(FILE *to, const char *title, const json_t *map)
{
    const char *key;
    json_t *value;
    bool any = false;

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        fprintf(to, "%s%s", any ? ", " : title, rlki_esc(key));
        if (json_is_string(value))
            fprintf(to, " %s", rlki_esc(json_string_value(value)));
        else if (json_is_integer(value))
            fprintf(to, " %s", rlki_count((uint64_t)json_integer_value(value)));
        any = true;
    }
    if (any)
        fputc('\n', to);
}

static void print_environments(FILE *to, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list) && i < 32; i++) {
        const json_t *e = json_array_get(list, i), *ranks = json_object_get(e, "ranks");
        size_t n = json_array_size(ranks);
        fprintf(to, "  %-28s %12s events  %9s  rank", text(e, "name"), rlki_count(number(e, "events")),
                rlki_bytes(number(e, "bytes")));
        for (size_t k = 0; k < n && k < 8; k++)
            fprintf(to, "%s%lld", k ? "," : " ", (long long)json_integer_value(json_array_get(ranks, k)));
        fprintf(to, "%s%s\n", n > 8 ? ",..." : "", json_is_true(json_object_get(e, "complete")) ? "" : "  no END");
    }
    if (json_array_size(list) > 32)
        fprintf(to, "  ... and %zu more (--json shows all)\n", json_array_size(list) - 32);
}

static void print(FILE *to, const json_t *info)
{
    const json_t *m = json_object_get(info, "manifest"), *c = json_object_get(info, "coverage");
    const json_t *faults = json_object_get(m, "faults");

    fprintf(to, "recording   %s  (%s%s)\n", text(info, "recording"), rlki_bytes(number(info, "bytes")),
            json_is_true(json_object_get(info, "sealed")) ? ", sealed" : ", not sealed");
    if (json_is_true(json_object_get(info, "complete")))
        fputs("state       complete\n", to);
    else
        fprintf(to, "state       INCOMPLETE%s: %s\n",
                json_is_true(json_object_get(info, "still_recording")) ? " (still recording)" : "", text(info, "why"));
    if (json_object_get(info, "damage"))
        fprintf(to, "DAMAGED     %s: see rlkrec verify\n", text(info, "damage"));
    else if (strcmp(text(info, "intact"), "not-checked") == 0 && json_is_true(json_object_get(info, "sealed")))
        fputs("            larger than 1 GiB: not compared with its seal (rlkrec verify)\n", to);
    fprintf(to, "command     %s\n", rlki_command_text(m, 400));
    fprintf(to, "made        %.19sZ by %s, %s", text(m, "created"), text(m, "tool"), how_it_ended(m));
    if (json_is_number(json_object_get(m, "seconds")))
        fprintf(to, " after %s", rlki_seconds(json_number_value(json_object_get(m, "seconds"))));
    fprintf(to, "\ncaptured    level %s, inputs %s, layout %s\n", text(m, "level"), text(m, "inputs"),
            text(m, "layout"));
    print_map(to, "libraries   ", json_object_get(m, "libraries"));
    bool trimmed = json_is_integer(json_object_get(m, "keep_last"));
    fprintf(to, "events      %s %s %s step%s%s\n", rlki_count(number(info, "events")),
            trimmed ? "seen, those of" : "in", rlki_count(number(info, "steps")), number(info, "steps") == 1 ? "" : "s",
            trimmed ? " kept (--keep-last; the counts here are of all that were seen)" : "");
    fprintf(to, "tensors     %s, %s by reference, %s with local placement\n", rlki_count(number(c, "tensors")),
            rlki_count(number(c, "by_reference")), rlki_count(number(c, "local_placement")));
    print_map(to, "no digest   ", json_object_get(c, "not_digested"));
    fprintf(to, "launches    %s seen, %s recorded\n", rlki_count(number(c, "launches_seen")),
            rlki_count(number(c, "launches_recorded")));
    fprintf(to, "lost        %s events dropped, program waited %s\n", rlki_count(number(c, "dropped")),
            rlki_seconds((double)number(c, "stall_ns") * 1e-9));
    for (size_t i = 0; i < json_array_size(faults); i++)
        fprintf(to, "fault       %s: %s\n", text(json_array_get(faults, i), "code"),
                text(json_array_get(faults, i), "text"));
    fprintf(to, "processes   %zu\n", json_array_size(json_object_get(info, "environments")));
    print_environments(to, json_object_get(info, "environments"));
}

static int show_events(const struct rlk_recording *recording, const char *name)
{
    struct rlk_detail detail = {""};
    uint64_t rank;

    if (opt.filter.rank && !rlki_read_number(&rank, opt.filter.rank))
        return rlki_usage(&command, "--rank takes a number, not '%s'", opt.filter.rank);
    int code = rlki_events_print(stdout, recording, &opt.filter, &detail);
    return code ? rlki_fail(name, code, &detail) : rlki_finish(RLKI_EXIT_OK);
}

int rlki_cmd_info(int argc, char **argv)
{
    char path[PATH_MAX], **args;
    struct rlk_recording *recording = NULL;
    struct rlk_detail detail = {""};
    json_t *info = NULL;
    int n, code, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    const char *name = n ? args[0] : "info";
    code = rlk_recording_resolve(path, sizeof path, n ? args[0] : NULL, &detail);
    if (!code)
        code = rlk_recording_open(&recording, path, &detail);
    if (code)
        return rlki_fail(name, code, &detail);
    if (opt.events) {
        status = show_events(recording, name);
        goto out;
    }
    info = gather(recording, &status, &code, &detail);
    if (code) {
        status = rlki_fail(name, code, &detail);
        goto out;
    }
    if (json_object_get(info, "damage"))
        rlki_say("%s: damaged: see rlkrec verify", name);
    if (opt.json) {
        int bad = rlki_write_json(opt.json, info);
        status = bad ? bad : status;
    } else {
        print(stdout, info);
        status = rlki_finish(status);
    }
out:
    json_decref(info);
    rlk_recording_close(recording);
    return status;
}
