/* rlkrec verify: a recording against its seal. 0 good, 1 changed (with the place), 4 no seal, 2 unreadable. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"

#include "store/rlk_recording.h"

#include <limits.h>
#include <string.h>

#define MAX_PLACES 20u

static struct {
    const char *json;
} opt;

static const struct rlki_option options[] = {
    {"json", 0, RLKI_STRING, &opt.json, "FILE|-", "the result as JSON"},
};

static const struct rlki_command command = {
    "rlkrec",
    "verify",
    "[REC] [--json FILE|-]",
    "Checks a recording (default: the newest) against its seal.",
    options,
    sizeof options / sizeof options[0],
    0,
    1,
    false,
    0,
    "0 good, 1 changed since it was sealed (the place is named), 2 unreadable, 4 not sealed\n"};

struct places {
    json_t *list;
    uint64_t n;
};

static int add_place(void *context, const char *place)
{
    struct places *places = context;

    if (places->n++ < MAX_PLACES && json_array_append_new(places->list, rlki_json_string(place)))
        return RLK_ENOMEM;
    return 0;
}

static int print(FILE *to, const char *path, const char *verdict, const struct places *places)
{
    fprintf(to, "%s: %s\n", rlki_esc(path), verdict);
    for (size_t i = 0; i < json_array_size(places->list); i++)
        fprintf(to, "  %s\n", rlki_esc(json_string_value(json_array_get(places->list, i))));
    if (places->n > MAX_PLACES)
        fprintf(to, "  ... and %s more places\n", rlki_count(places->n - MAX_PLACES));
    return 0;
}

int rlki_cmd_verify(int argc, char **argv)
{
    static const char *const verdicts[] = {"not sealed", "good", "TAMPERED"};
    static const int statuses[] = {RLKI_EXIT_INCOMPLETE, RLKI_EXIT_OK, RLKI_EXIT_CHECK};
    char path[PATH_MAX], **args;
    struct places places = {NULL, 0};
    struct rlk_detail detail = {""};
    enum rlk_seal_state state = RLK_SEAL_ABSENT;
    int n, code, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    places.list = json_array();
    code = rlk_recording_resolve(path, sizeof path, n ? args[0] : NULL, &detail);
    if (!code)
        code = rlk_recording_verify(path, &state, add_place, &places, &detail);
    /* Damage that keeps the seal from being read at all is a change too, where there is a seal. */
    if (code == RLK_ECORRUPT) {
        state = RLK_SEAL_TAMPERED;
        if (!places.n)
            add_place(&places, detail.text);
        code = RLK_OK;
    }
    if (code) {
        status = rlki_fail(n ? args[0] : "verify", code, &detail);
        goto out;
    }
    status = statuses[state];
    if (opt.json) {
        json_t *json = json_pack("{s:s, s:o, s:s, s:i, s:O, s:I}", "schema", "rlk.verify/1", "recording",
                                 rlki_json_string(path), "verdict",
                                 state == RLK_SEAL_GOOD     ? "good"
                                 : state == RLK_SEAL_ABSENT ? "not_sealed"
                                                            : "tampered",
                                 "exit", status, "places", places.list, "count", (json_int_t)places.n);
        if (rlki_write_json(opt.json, json))
            status = RLKI_EXIT_FAULT;
        json_decref(json);
    }
    if (!opt.json || strcmp(opt.json, "-") != 0)
        print(stdout, path, verdicts[state], &places);
    status = rlki_finish(status);
out:
    json_decref(places.list);
    return status;
}
