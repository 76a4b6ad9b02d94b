/* rlkaudit accept: parse, call, write. */
#include "auditor/rlk_accept.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"
#include "store/rlk_json_file.h"

#include <string.h>
#include <unistd.h>

#define MAX_RESULT (256u << 20)

/* What is there already: NULL if there is no such file. */
static int read_old(json_t **out, const char *path, struct rlk_detail *detail)
{
    *out = NULL;
    return access(path, F_OK) == 0 ? rlk_accept_read(out, path, detail) : RLK_OK;
}

int rlki_audit_accept(int argc, char **argv)
{
    struct rlk_accept_request request = {.max_ulp = -1};
    const char *bound = NULL, *output = NULL;
    const struct rlki_option table[] = {
        {"reason", 0, RLKI_STRING, &request.reason, "TEXT", "why it may differ"},
        {"owner", 0, RLKI_STRING, &request.owner, "TEXT", "who answers for it"},
        {"expires", 0, RLKI_STRING, &request.expires, "DATE", "last day, YYYY-MM-DD (UTC)"},
        {"bound", 0, RLKI_STRING, &bound, "N|any", "largest difference in ULP; default: as large as it is now"},
        {"module", 0, RLKI_STRING, &request.modules, "PATTERN",
         "only roots of these modules (* without, ** with dots)"},
        {"output", 'o', RLKI_STRING, &output, "FILE", "the acceptance; what it holds already stays"},
    };
    const struct rlki_command command = {
        .program = "rlkaudit",
        .name = "accept",
        .synopsis = "DIFF.json --reason TEXT --owner TEXT --expires DATE [options] -o FILE",
        .summary = "Accepts the roots of a result of first-diff --json: first-diff --accept FILE then exits 5.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 1,
        .max_args = 1,
    };
    int nargs;
    char **args;
    uint64_t ulp;
    size_t roots = 0;
    struct rlk_detail detail = {{0}};
    json_t *result = NULL, *old = NULL, *made = NULL;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (!request.reason || !request.owner || !request.expires || !output)
        return rlki_usage(&command, "--reason, --owner, --expires and -o are needed");
    if (bound && strcmp(bound, "any") != 0 && (!rlki_read_number(&ulp, bound) || ulp > INT64_MAX))
        return rlki_usage(&command, "--bound is a number of ULP, or any");
    request.any = bound && strcmp(bound, "any") == 0;
    if (bound && !request.any)
        request.max_ulp = (int64_t)ulp;
    int rc = rlk_json_file(&result, args[0], "rlk.first_diff/1", MAX_RESULT, &detail);
    if (rc == RLK_OK)
        rc = read_old(&old, output, &detail);
    if (rc == RLK_OK)
        rc = rlk_accept_make(&made, &roots, old, result, &request, &detail);
    if (rc)
        status = rlki_fail("accept", rc, &detail);
    else
        status = rlki_write_json(output, made);
    if (status == 0 && rc == RLK_OK)
        printf("%zu root%s accepted until %s: %s\n", roots, roots == 1 ? "" : "s", rlki_esc(request.expires),
               rlki_esc(output));
    json_decref(result);
    json_decref(old);
    json_decref(made);
    return rlki_finish(status);
}
