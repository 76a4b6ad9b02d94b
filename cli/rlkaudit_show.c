/* rlkaudit show: a result that was saved with --json, as text or as a page. */
#include "cli/rlkaudit_show.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_page.h"

#include <string.h>

static const struct shown {
    const char *schema;
    void (*print)(FILE *to, const json_t *result, const struct rlki_audit_with *with);
    int (*page)(FILE *to, void *of); /* NULL: there is none */
} kinds[] = {
    {"rlk.first_diff/1", rlki_audit_print_first_diff, rlki_page_first_diff},
    {"rlk.explain/1", rlki_audit_print_explain, NULL},
};

static const struct shown *kind_of(const json_t *result)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(rlki_raw(result, "schema"), kinds[i].schema) == 0)
            return &kinds[i];
    return NULL;
}

static json_t *read_result(const char *path)
{
    json_error_t error;
    json_t *result = strcmp(path, "-") == 0 ? json_loadf(stdin, JSON_REJECT_DUPLICATES, &error)
                                            : json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!result)
        rlki_say(error.line > 0 ? "%s: no result: no JSON (%s, line %d)" : "%s: %s", path, error.text, error.line);
    return result;
}

int rlki_audit_show(int argc, char **argv)
{
    const char *html = NULL;
    const struct rlki_option table[] = {
        {"html", 0, RLKI_STRING, &html, "FILE", "as a page, one file without scripts; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "show",
        .synopsis = "[options] RESULT.json",
        .summary = "Shows a result that was saved with --json; exits with the status that it had.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 1,
        .max_args = 1,
    };
    const struct rlki_audit_with with = {0};
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    json_t *result = read_result(args[0]);
    const struct shown *kind = kind_of(result);
    status = RLKI_EXIT_FAULT;
    if (result && !kind)
        rlki_say("%s: not a result that can be shown: its schema is \"%s\"", args[0], rlki_raw(result, "schema"));
    else if (kind && html && !kind->page)
        rlki_say("%s: there is no page of a result of this kind", args[0]);
    else if (kind) {
        struct rlki_page_of of = {.result = result, .with = &with};
        int64_t had = rlki_integer(result, "exit");
        status = html && rlki_write_text(html, kind->page, &of) ? RLKI_EXIT_FAULT
                 : had < 0 || had > 5                           ? RLKI_EXIT_FAULT
                                                                : (int)had;
        if (!html)
            kind->print(stdout, result, &with);
        status = rlki_finish(status);
    }
    json_decref(result);
    return status;
}
