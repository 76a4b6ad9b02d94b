/* rlkaudit bisect: parse, call, print. */
#include "auditor/rlk_rolls.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "store/rlk_recording.h"

#include <limits.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return rlki_esc(value ? value : "");
}

static long long number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_name(FILE *to, const json_t *node)
{
    const char *module = text_of(node, "module");
    fprintf(to, "%s", *module ? module : "(root)");
    if (*text_of(node, "pass"))
        fprintf(to, "  pass %s", text_of(node, "pass"));
}

static void print_side(FILE *to, const char *name, const json_t *side)
{
    if (!json_is_object(side))
        fprintf(to, "  %-5s absent\n", name);
    else
        fprintf(to, "  %-5s %lld events between event %lld and %lld\n", name, number_of(side, "events"),
                number_of(side, "first_event"), number_of(side, "last_event"));
}

void rlki_audit_print_node(FILE *to, const json_t *node, const json_t *also, long long total)
{
    size_t i;
    const json_t *one;
    const json_t *ranks = json_object_get(node, "ranks");
    fprintf(to, "  step %lld", number_of(node, "step"));
    if (*text_of(node, "phase"))
        fprintf(to, "  phase %s", text_of(node, "phase"));
    if (*text_of(node, "pass"))
        fprintf(to, "  pass %s", text_of(node, "pass"));
    fputs("  rank ", to);
    json_array_foreach(ranks, i, one) fprintf(to, "%s%lld", i ? "," : "", (long long)json_integer_value(one));
    if (number_of(node, "nranks") > (long long)json_array_size(ranks))
        fprintf(to, ",... (%lld ranks)", number_of(node, "nranks"));
    fprintf(to, "\n  module %s\n", *text_of(node, "module") ? text_of(node, "module") : "(root)");
    if (json_array_size(json_object_get(node, "what"))) {
        fputs("  differs ", to);
        json_array_foreach(json_object_get(node, "what"), i, one)
            fprintf(to, "%s%s", i ? ", " : "", rlki_esc(json_string_value(one)));
        fputc('\n', to);
    }
    if (total)
        fputs("  uncertain: or in\n", to);
    json_array_foreach(also, i, one)
    {
        if (i == 5)
            break;
        fputs("          ", to);
        print_name(to, one);
        if (number_of(one, "rank") != number_of(node, "rank"))
            fprintf(to, "  rank %lld", number_of(one, "rank"));
        fputc('\n', to);
    }
    if (total > 5)
        fprintf(to, "          and %lld more that the order of their events leaves open\n", total - 5);
}

static void print(FILE *to, const json_t *result)
{
    const json_t *first = json_object_get(result, "first"), *steps = json_object_get(result, "steps");
    const json_t *read = json_object_get(result, "read"), *recordings = json_object_get(result, "recordings"), *note;
    const json_t *reason = json_object_get(result, "not_comparable");
    size_t i;
    fprintf(to, "%s%s%s\n", rlki_style(to, number_of(result, "exit") ? RLKI_RED : RLKI_GREEN),
            text_of(result, "verdict"), rlki_style(to, RLKI_PLAIN));
    if (reason)
        fprintf(to, "  %s\n", text_of(reason, "reason"));
    if (json_is_object(first)) {
        fputs("\nfirst difference by roll-ups\n", to);
        rlki_audit_print_node(to, first, json_object_get(result, "also"), number_of(result, "also_total"));
        print_side(to, "GOOD", json_object_get(first, "good"));
        print_side(to, "BAD", json_object_get(first, "bad"));
    } else if (json_is_true(json_object_get(result, "lone_step"))) {
        fprintf(to, "\nstep %lld is on one side only\n", number_of(result, "step"));
    }
    fprintf(to, "\nsteps %s compared, %s differ", rlki_count((uint64_t)number_of(steps, "compared")),
            rlki_count((uint64_t)number_of(steps, "differing")));
    if (number_of(steps, "only_in_good") || number_of(steps, "only_in_bad"))
        fprintf(to, ", %lld only in GOOD, %lld only in BAD", number_of(steps, "only_in_good"),
                number_of(steps, "only_in_bad"));
    fprintf(to, "\nread  %s step totals, %s module nodes, %s events\n", rlki_count((uint64_t)number_of(read, "totals")),
            rlki_count((uint64_t)number_of(read, "nodes")), rlki_count((uint64_t)number_of(read, "events")));
    json_array_foreach(json_object_get(result, "notes"), i, note)
        fprintf(to, "note: %s\n", rlki_esc(json_string_value(note)));
    if (number_of(result, "exit") == RLKI_EXIT_CHECK)
        fprintf(to, "next: rlkaudit first-diff %s %s\n", text_of(recordings, "good"), text_of(recordings, "bad"));
}

static void progress(void *context, uint64_t done, uint64_t total)
{
    rlki_progress(context, done, total);
}

int rlki_audit_bisect(int argc, char **argv)
{
    const char *json = NULL;
    const struct rlki_option table[] = {
        {"json", 0, RLKI_STRING, &json, "FILE", "the result as JSON; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "bisect",
        .synopsis = "[options] GOOD BAD",
        .summary = "Names the first step, phase, pass and module that differ, by roll-ups: no event is read.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 2,
        .max_args = 2,
        .more = "The exit status is that of first-diff, but operators that were added or removed count here.\n"
                "git bisect run wants rlkaudit first-diff --bisect.\n",
    };
    static char path[2][PATH_MAX];
    int nargs;
    char **args;
    struct rlk_detail detail = {{0}};
    struct rlki_progress shown;
    json_t *result = NULL;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    for (int s = 0; s < 2; s++) {
        int rc = rlk_recording_resolve(path[s], PATH_MAX, args[s], &detail);
        if (rc)
            return rlki_fail(args[s], rc, &detail);
    }
    rlki_progress_begin(&shown, "comparing");
    struct rlk_rolls_progress report = {progress, &shown};
    int rc = rlk_audit_bisect(&result, path[0], path[1], &report, &detail);
    rlki_progress_end(&shown);
    if (rc)
        return rlki_fail("bisect", rc, &detail);
    status = (int)json_integer_value(json_object_get(result, "exit"));
    if (json && rlki_write_json(json, result) != 0)
        status = RLKI_EXIT_FAULT;
    else if (!json || strcmp(json, "-") != 0)
        print(stdout, result);
    json_decref(result);
    return rlki_finish(status);
}
