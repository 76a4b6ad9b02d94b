/* rlkaudit first-diff, explain: parse, call, print. */
#include "auditor/rlk_audit.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "cli/rlkaudit_page.h"
#include "cli/rlkaudit_plan.h"
#include "store/rlk_recording.h"

#include <limits.h>
#include <string.h>

#define MAX_REPEATS 16u

struct paths {
    char a[PATH_MAX], b[PATH_MAX];
    char repeat[2][MAX_REPEATS][PATH_MAX];
    const char *list[2][MAX_REPEATS];
};

struct options {
    struct rlki_list self_a, self_b;
    const char *map, *dims, *allow, *phases, *json, *html, *accept, *plan;
    bool bisect, elements;
    const char *event, *rank;
};

static int resolve(char *path, const char *name)
{
    struct rlk_detail detail = {{0}};
    int rc = rlk_recording_resolve(path, PATH_MAX, name, &detail);
    return rc ? rlki_fail(name, rc, &detail) : 0;
}

static int fill(struct rlk_audit_options *out, struct paths *paths, const struct options *options, int nargs,
                char **args)
{
    const struct rlki_list *lists[2] = {&options->self_a, &options->self_b};
    int status = resolve(paths->a, args[0]);
    if (!status && nargs > 1)
        status = resolve(paths->b, args[1]);
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < lists[s]->n && !status; i++) {
            status = resolve(paths->repeat[s][i], lists[s]->items[i]);
            paths->list[s][i] = paths->repeat[s][i];
        }
    *out = (struct rlk_audit_options){
        .a = paths->a,
        .b = nargs > 1 ? paths->b : NULL,
        .self_a = paths->list[0],
        .self_b = paths->list[1],
        .nself_a = lists[0]->n,
        .nself_b = lists[1]->n,
        .phases = options->phases,
        .map = options->map,
        .dims = options->dims,
        .accept = options->accept,
        .allow_source = options->allow != NULL,
    };
    return status;
}

static void progress(void *context, uint64_t done, uint64_t total)
{
    rlki_progress(context, done, total);
}

/* Result to where it was asked for. JSON on stdout replaces the text. */
static int deliver(const struct options *options, const json_t *result,
                   void (*print)(FILE *, const json_t *, const struct rlki_audit_with *), int status)
{
    const struct rlki_audit_with with = {.map = options->map,
                                         .dims = options->dims,
                                         .allow_source = options->allow != NULL,
                                         .phases = options->phases != NULL};
    bool to_stdout =
        (options->json && strcmp(options->json, "-") == 0) || (options->plan && strcmp(options->plan, "-") == 0);
    if (options->json && rlki_write_json(options->json, result) != 0)
        return RLKI_EXIT_FAULT;
    if (options->html && rlki_page_write(options->html, result, &with) != 0)
        return RLKI_EXIT_FAULT;
    if (options->plan && rlki_plan_write(options->plan, result) != 0)
        return RLKI_EXIT_FAULT;
    if (!to_stdout && !(options->html && strcmp(options->html, "-") == 0))
        print(stdout, result, &with);
    return rlki_finish(status);
}

static bool wants_bisect(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--bisect") == 0)
            return true;
    return false;
}

int rlki_audit_first_diff(int argc, char **argv)
{
    static struct paths paths;
    struct options o = {0};
    const struct rlki_option table[] = {
        {"self-a", 0, RLKI_LIST, &o.self_a, "REC", "a repeat of A: shows what is not repeatable (again for more)"},
        {"self-b", 0, RLKI_LIST, &o.self_b, "REC", "a repeat of B"},
        {"map", 0, RLKI_STRING, &o.map, "FILE", "other module trees: pattern -> canonical name (docs/identity.md)"},
        {"dims", 0, RLKI_STRING, &o.dims, "FILE", "placements of local tensors by module pattern"},
        {"allow", 0, RLKI_CHOICE, &o.allow, "source", "go on where token ids, parameters or seeds differ at the start"},
        {"phases", 0, RLKI_STRING, &o.phases, "X:Y", "one recording: phase X against phase Y"},
        {"bisect", 0, RLKI_FLAG, &o.bisect, NULL, "exit status for git bisect run"},
        {"json", 0, RLKI_STRING, &o.json, "FILE", "the result as JSON; - = stdout"},
        {"html", 0, RLKI_STRING, &o.html, "FILE", "the result as a page, one file without scripts; - = stdout"},
        {"accept", 0, RLKI_STRING, &o.accept, "FILE",
         "accepted drift, made by rlkaudit accept: exit 5 when all is known"},
        {"plan", 0, RLKI_STRING, &o.plan, "FILE",
         "write which tensors' bytes the next rlkrec run --plan must keep; - = stdout"},
    };
    bool bisect = wants_bisect(argc, argv);
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "first-diff",
        .synopsis = "[options] A B | --phases X:Y REC",
        .summary = "Names the tensor in which two recordings first differ, and why.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 1,
        .max_args = 2,
        .usage_exit = bisect ? RLKI_EXIT_BISECT_ABORT : 0,
    };
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (o.phases ? nargs != 1 : nargs != 2)
        return rlki_usage(&command, o.phases ? "--phases takes one recording" : "two recordings are needed");
    if (o.phases && (!strchr(o.phases, ':') || strchr(o.phases, ':') == o.phases || !strchr(o.phases, ':')[1]))
        return rlki_usage(&command, "--phases is X:Y");
    if (o.self_a.n > MAX_REPEATS || o.self_b.n > MAX_REPEATS)
        return rlki_usage(&command, "at most %u repeats a side", MAX_REPEATS);
    if (o.json && o.html && strcmp(o.json, "-") == 0 && strcmp(o.html, "-") == 0)
        return rlki_usage(&command, "--json and --html cannot both go to stdout");
    if (o.plan && strcmp(o.plan, "-") == 0 &&
        ((o.json && strcmp(o.json, "-") == 0) || (o.html && strcmp(o.html, "-") == 0)))
        return rlki_usage(&command, "--plan cannot share stdout");
    struct rlk_audit_options options;
    struct rlk_detail detail = {{0}};
    struct rlki_progress shown;
    json_t *result = NULL;
    status = fill(&options, &paths, &o, nargs, args);
    if (status)
        return bisect ? rlki_exit_bisect(RLKI_EXIT_FAULT, 0) : status;
    rlki_progress_begin(&shown, "comparing");
    options.progress = progress;
    options.progress_context = &shown;
    int rc = rlk_audit_first_diff(&result, &options, &detail);
    rlki_progress_end(&shown);
    if (rc) {
        status = rlki_fail("first-diff", rc, &detail);
    } else {
        status = (int)json_integer_value(json_object_get(result, "exit"));
        status = deliver(&o, result, rlki_audit_print_first_diff, status);
    }
    json_decref(result);
    return bisect ? rlki_exit_bisect((enum rlki_exit)status, 0) : status;
}

static bool read_optional(int64_t *out, const char *text)
{
    uint64_t n;
    *out = -1;
    if (!text)
        return true;
    if (!rlki_read_number(&n, text) || n > INT64_MAX)
        return false;
    *out = (int64_t)n;
    return true;
}

int rlki_audit_explain(int argc, char **argv)
{
    static struct paths paths;
    struct options o = {0};
    const struct rlki_option table[] = {
        {"event", 0, RLKI_STRING, &o.event, "N",
         "event of A (SIDE.event of first-diff); default: the first difference"},
        {"rank", 0, RLKI_STRING, &o.rank, "R", "the rank it runs on; default: the lowest that has it"},
        {"elements", 0, RLKI_FLAG, &o.elements, NULL, "what differs inside its tensors, where bytes were kept"},
        {"map", 0, RLKI_STRING, &o.map, "FILE", "as for first-diff"},
        {"dims", 0, RLKI_STRING, &o.dims, "FILE", "as for first-diff"},
        {"allow", 0, RLKI_CHOICE, &o.allow, "source", "as for first-diff"},
        {"json", 0, RLKI_STRING, &o.json, "FILE", "the result as JSON; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "explain",
        .synopsis = "[options] A B",
        .summary = "One event on both sides: inputs with producers, kernels, why it is a root or not.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 2,
        .max_args = 2,
    };
    int nargs;
    char **args;
    int64_t event, rank;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (!read_optional(&event, o.event) || !read_optional(&rank, o.rank))
        return rlki_usage(&command, "--event and --rank take numbers");
    struct rlk_audit_options options;
    struct rlk_detail detail = {{0}};
    json_t *result = NULL;
    status = fill(&options, &paths, &o, nargs, args);
    if (status)
        return status;
    int rc = rlk_audit_explain(&result, &options, event, rank, o.elements, &detail);
    if (rc)
        return rlki_fail("explain", rc, &detail);
    status = deliver(&o, result, rlki_audit_print_explain, (int)json_integer_value(json_object_get(result, "exit")));
    json_decref(result);
    return status;
}
