/* rlkaudit check: what one recording shows alone. */
#include "auditor/rlk_check.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "store/rlk_recording.h"

#include <limits.h>
#include <string.h>

#define SHOWN 8u

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return rlki_esc(text ? text : "");
}

static long long number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_finding(const json_t *finding)
{
    const json_t *mechanism = json_object_get(finding, "mechanism"), *evidence = json_object_get(mechanism, "evidence");
    const size_t ranks = json_array_size(json_object_get(finding, "ranks"));
    size_t i;
    json_t *line;
    printf("%s%s%s  rank %lld%s  step %lld  %s  %s  %s %s[%lld] %s\n", rlki_style(stdout, RLKI_RED),
           text_of(finding, "check"), rlki_style(stdout, RLKI_PLAIN), number_of(finding, "rank"),
           ranks > 1 ? " and others" : "", number_of(finding, "step"), text_of(finding, "pass"),
           text_of(finding, "module"), text_of(finding, "op"), text_of(finding, "role"), number_of(finding, "index"),
           text_of(finding, "name"));
    printf("  %s, confidence %s%s\n", text_of(mechanism, "class"), text_of(mechanism, "confidence"),
           json_is_true(json_object_get(finding, "root")) ? "" : ", not known whether a cause");
    json_array_foreach(evidence, i, line) printf("  %s\n", rlki_esc(json_string_value(line)));
    printf("  next: %s\n", text_of(mechanism, "next"));
}

static void print(const json_t *result)
{
    const json_t *findings = json_object_get(result, "findings");
    const long long total = number_of(result, "findings_total");
    size_t i;
    json_t *one;
    json_array_foreach(findings, i, one)
    {
        if (i == SHOWN)
            break;
        print_finding(one);
    }
    if (total > (long long)SHOWN)
        printf("... %lld more (--json)\n", total - (long long)SHOWN);
    printf("%s%s%s", rlki_style(stdout, total ? RLKI_RED : RLKI_GREEN), text_of(result, "verdict"),
           rlki_style(stdout, RLKI_PLAIN));
    if (!json_is_true(json_object_get(result, "complete")))
        printf(" (the recording is not complete: %s)", text_of(result, "why"));
    printf("  compared:");
    json_array_foreach(json_object_get(result, "checks"), i, one)
        printf(" %s %s", text_of(one, "check"), rlki_count((uint64_t)number_of(one, "examined")));
    printf("\n");
    json_array_foreach(json_object_get(result, "notes"), i, one) printf("note: %s\n", rlki_esc(json_string_value(one)));
}

static void progress(void *context, uint64_t done, uint64_t total)
{
    rlki_progress(context, done, total);
}

int rlki_audit_check(int argc, char **argv)
{
    static char path[PATH_MAX];
    const char *json = NULL;
    const struct rlki_option table[] = {
        {"json", 0, RLKI_STRING, &json, "FILE", "the result as JSON; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "check",
        .synopsis = "[options] [REC]",
        .summary = "What must hold inside one run and does not: recomputation, replicas, weights, labels, generators, "
                   "backends, overlap.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .max_args = 1,
        .more = "Exit: 0 clean, 1 findings, 2 usage or I/O, 4 nothing found in an incomplete recording.\n",
    };
    struct rlk_detail detail = {{0}};
    struct rlki_progress shown;
    struct rlk_check_options options = {.recording = path, .progress = progress, .progress_context = &shown};
    json_t *result = NULL;
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    const char *name = nargs ? args[0] : NULL;
    int rc = rlk_recording_resolve(path, sizeof path, name, &detail);
    if (rc)
        return rlki_fail(name ? name : "newest recording", rc, &detail);
    rlki_progress_begin(&shown, "checking");
    rc = rlk_check(&result, &options, &detail);
    rlki_progress_end(&shown);
    if (rc)
        return rlki_fail(name ? name : path, rc, &detail);
    status = (int)json_integer_value(json_object_get(result, "exit"));
    if (json && rlki_write_json(json, result) != 0)
        status = RLKI_EXIT_FAULT;
    else if (!json || strcmp(json, "-") != 0)
        print(result);
    json_decref(result);
    return rlki_finish(status);
}
