/* rlkaudit report: the cross-layout report of two recordings. */
#include "auditor/rlk_report.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "store/rlk_recording.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool read_sizes(struct rlk_report_options *out, const char *text)
{
    for (const char *p = text; p && *p;) {
        char *end;
        const unsigned long n = strtoul(p, &end, 10);
        if (end == p || *p == '-' || n < 1 || n > 1u << 20 || out->nsizes == RLK_REPORT_SIZES ||
            (*end && (*end != ',' || !end[1])))
            return false;
        out->sizes[out->nsizes++] = (uint32_t)n;
        p = *end ? end + 1 : end;
    }
    return true;
}

static void line(const char *what, const json_t *verdict, const char *more)
{
    const char *text = json_is_true(verdict) ? "yes" : json_is_false(verdict) ? "NO" : "n.a.";
    const enum rlki_style style = json_is_true(verdict) ? RLKI_GREEN : json_is_false(verdict) ? RLKI_RED : RLKI_DIM;
    printf("  %-34s %s%-4s%s %s\n", what, rlki_style(stdout, style), text, rlki_style(stdout, RLKI_PLAIN), more);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return rlki_esc(text ? text : "");
}

static void print_errors(const json_t *errors)
{
    size_t i;
    json_t *text;
    json_array_foreach((json_t *)(uintptr_t)errors, i, text) printf("    %s\n", rlki_esc(json_string_value(text)));
}

static void print_run(const json_t *run)
{
    static const char *const rows[] = {"cudagraph", "runtime_readbacks", "runtime_scalar_logprob",
                                       "train_rollout_logprob", "updates"};
    const json_t *v = json_object_get(run, "validation");
    printf("%s (%s), %zu steps\n", text_of(run, "run_id"), text_of(run, "layout"),
           json_object_size(json_object_get(run, "steps")));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *row = json_object_get(v, rows[i]);
        line(rows[i], json_object_get(row, "passed"), text_of(row, "reason"));
        print_errors(json_object_get(row, "errors"));
        print_errors(json_object_get(json_object_get(row, "launches"), "errors"));
    }
    print_errors(json_object_get(v, "errors"));
}

static void print_list(const json_t *report, const char *key, const char *name, const char *verdict, const char *what)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(report, key), i, one)
    {
        char text[120];
        const json_t *id = json_object_get(one, name);
        if (json_is_string(id))
            snprintf(text, sizeof text, "%s, %.60s", what, text_of(one, name));
        else
            snprintf(text, sizeof text, "%s, step %lld", what, (long long)json_integer_value(id));
        const json_t *unequal = json_object_get(one, "unequal_parameter_tensors");
        unequal = unequal ? unequal : json_object_get(one, "unequal_metrics");
        const char *first = json_string_value(json_array_get(unequal, 0));
        line(text, json_object_get(one, verdict), first ? rlki_esc(first) : "");
    }
}

static void print(const json_t *report)
{
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(report, "runs"), i, run) print_run(run);
    printf("A and B agree\n");
    line("tokens", json_object_get(report, "tokens_equal"), "");
    print_list(report, "all_parameter_hash_comparisons", "version", "bitwise_equal", "parameters");
    print_list(report, "gradient_norm_comparisons", "step", "exactly_equal", "gradient norm");
    print_list(report, "metric_comparisons", "step", "exactly_equal", "metrics");
    print_errors(json_object_get(report, "errors"));
    printf("%s\n", json_is_true(json_object_get(report, "passed")) ? "passed" : "not passed");
}

int rlki_audit_report(int argc, char **argv)
{
    static char path[2][PATH_MAX];
    const char *json = NULL, *sizes = NULL;
    const struct rlki_option table[] = {
        {"capture-sizes", 0, RLKI_STRING, &sizes, "N,N,...",
         "batch sizes that decode runs as captured graphs (1,2,3,4)"},
        {"json", 0, RLKI_STRING, &json, "FILE", "the report as JSON; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "report",
        .synopsis = "[options] A B",
        .summary = "The cross-layout report of two recordings: tokens, log-probabilities, gradient norms, parameters.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 2,
        .max_args = 2,
        .more = "Exit: 0 every row that applies passed, 1 one did not, 3 nothing to compare, 4 incomplete.\n",
    };
    struct rlk_report_options options = {.a = path[0], .b = path[1]};
    struct rlk_detail detail = {{0}};
    json_t *report = NULL;
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (!read_sizes(&options, sizes))
        return rlki_usage(&command, "--capture-sizes takes numbers from 1, separated by commas");
    for (int s = 0; s < 2; s++) {
        const int rc = rlk_recording_resolve(path[s], PATH_MAX, args[s], &detail);
        if (rc)
            return rlki_fail(args[s], rc, &detail);
    }
    const int rc = rlk_report(&report, &options, &detail);
    if (rc)
        return rlki_fail("report", rc, &detail);
    status = (int)json_integer_value(json_object_get(report, "exit"));
    if (json && rlki_write_json(json, report) != 0)
        status = RLKI_EXIT_FAULT;
    else if (!json || strcmp(json, "-") != 0)
        print(report);
    json_decref(report);
    return rlki_finish(status);
}
