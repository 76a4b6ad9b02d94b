/* rlkaudit baseline save|check: parse, call, print. */
#include "auditor/rlk_rolls.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "store/rlk_recording.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return rlki_esc(value ? value : "");
}

static void print_check(FILE *to, const json_t *result)
{
    const json_t *first = json_object_get(result, "first"), *steps = json_object_get(result, "steps"), *note;
    long long code = (long long)json_integer_value(json_object_get(result, "exit"));
    size_t i;
    fprintf(to, "%s%s%s\n", rlki_style(to, code ? RLKI_RED : RLKI_GREEN), text_of(result, "verdict"),
            rlki_style(to, RLKI_PLAIN));
    if (json_object_get(result, "not_comparable"))
        fprintf(to, "  %s\n", text_of(json_object_get(result, "not_comparable"), "reason"));
    if (json_is_object(first)) {
        fputs("\nfirst change\n", to);
        rlki_audit_print_node(to, first, json_object_get(result, "also"),
                              (long long)json_integer_value(json_object_get(result, "also_total")));
    } else if (json_is_integer(json_object_get(result, "step"))) {
        fprintf(to, "\nfirst change\n  step %lld\n", (long long)json_integer_value(json_object_get(result, "step")));
    }
    fprintf(to, "compared %lld steps, or groups of steps",
            (long long)json_integer_value(json_object_get(steps, "compared")));
    if (json_integer_value(json_object_get(steps, "skipped")))
        fprintf(to, "; %lld cut off", (long long)json_integer_value(json_object_get(steps, "skipped")));
    fputc('\n', to);
    json_array_foreach(json_object_get(result, "notes"), i, note)
        fprintf(to, "note: %s\n", rlki_esc(json_string_value(note)));
}

static int save(const char *dir, const char *output, uint64_t most)
{
    struct rlk_detail detail = {{0}};
    struct stat st;
    json_t *made = NULL;
    int status, rc = rlk_baseline_save(&made, dir, (size_t)most, &detail);
    if (rc == RLK_ESTATE) { /* what is incomplete is no baseline */
        rlki_say("%s", detail.text);
        return RLKI_EXIT_INCOMPLETE;
    }
    const bool replaced = access(output, F_OK) == 0;
    status = rc ? rlki_fail("baseline", rc, &detail) : rlki_write_json(output, made);
    if (!status && strcmp(output, "-") != 0)
        printf("%s: baseline of %s, %s%s\n", rlki_esc(output), rlki_esc(dir),
               rlki_bytes(stat(output, &st) == 0 ? (uint64_t)st.st_size : 0), replaced ? "; replaced" : "");
    json_decref(made);
    return rlki_finish(status);
}

static int check(const char *dir, const char *file, const char *json)
{
    struct rlk_detail detail = {{0}};
    json_t *baseline = NULL, *result = NULL;
    int rc = rlk_baseline_read(&baseline, file, &detail), status;
    if (rc == RLK_OK)
        rc = rlk_baseline_check(&result, dir, baseline, &detail);
    if (rc) {
        status = rlki_fail("baseline", rc, &detail);
    } else {
        status = (int)json_integer_value(json_object_get(result, "exit"));
        if (json && rlki_write_json(json, result) != 0)
            status = RLKI_EXIT_FAULT;
        else if (!json || strcmp(json, "-") != 0)
            print_check(stdout, result);
    }
    json_decref(baseline);
    json_decref(result);
    return rlki_finish(status);
}

int rlki_audit_baseline(int argc, char **argv)
{
    const char *json = NULL, *output = NULL;
    uint64_t most = 6144;
    const struct rlki_option table[] = {
        {"output", 'o', RLKI_STRING, &output, "FILE", "save: the baseline"},
        {"max-size", 0, RLKI_SIZE, &most, "SIZE", "save: bytes for modules; 6144 when not given"},
        {"json", 0, RLKI_STRING, &json, "FILE", "check: the result as JSON; - = stdout"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "baseline",
        .synopsis = "save [REC] -o FILE | check [REC] FILE [--json F]",
        .summary = "Keeps the roll-ups of a recording in a few KB, and compares a later one with them.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 1,
        .max_args = 3,
        .more = "check: 0 the same, 1 changed (it says where), 3 recorded otherwise, 4 incomplete.\n",
    };
    static char path[PATH_MAX];
    struct rlk_detail detail = {{0}};
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    bool saves = strcmp(args[0], "save") == 0;
    if (!saves && strcmp(args[0], "check") != 0)
        return rlki_usage(&command, "save or check, not '%s'", args[0]);
    if (saves ? nargs > 2 || !output || json : nargs < 2 || output)
        return rlki_usage(&command, saves ? "save takes REC and -o FILE" : "check takes REC and the baseline's FILE");
    int rc = rlk_recording_resolve(path, sizeof path, nargs - !saves > 1 ? args[1] : NULL, &detail);
    if (rc)
        return rlki_fail(nargs - !saves > 1 ? args[1] : "the newest recording", rc, &detail);
    if (most > (1u << 20))
        return rlki_usage(&command, "--max-size is at most 1M");
    return saves ? save(path, output, most) : check(path, args[nargs - 1], json);
}
