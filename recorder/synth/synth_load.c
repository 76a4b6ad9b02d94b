/* The text of a spec: bounded, duplicate keys and NUL refused, errors with line and column. */
#include "recorder/synth/rlk_synth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads all of f; one byte more than the bound is an error. */
static int read_all(FILE *f, const char *path, char **text, size_t *n, struct rlk_detail *detail)
{
    size_t room = 1u << 16, used = 0;
    char *buffer = malloc(room);
    int rc = buffer ? RLK_OK : RLK_ENOMEM;

    while (!rc) {
        size_t got = fread(buffer + used, 1, room - used, f);
        used += got;
        if (used < room) {
            if (ferror(f))
                rc = rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", path, strerror(errno));
            break;
        }
        if (used > RLK_SYNTH_MAX_SPEC_BYTES) {
            rc = rlk_fail(detail, RLK_ELIMIT, "%s: a spec has at most %u bytes", path, RLK_SYNTH_MAX_SPEC_BYTES);
            break;
        }
        char *more = realloc(buffer, room * 2);
        if (!more) {
            rc = RLK_ENOMEM;
            break;
        }
        buffer = more;
        room *= 2;
    }
    if (!rc && used > RLK_SYNTH_MAX_SPEC_BYTES)
        rc = rlk_fail(detail, RLK_ELIMIT, "%s: a spec has at most %u bytes", path, RLK_SYNTH_MAX_SPEC_BYTES);
    if (rc) {
        free(buffer);
        return rc;
    }
    *text = buffer;
    *n = used;
    return RLK_OK;
}

int rlk_synth_load(const char *path, json_t **spec, struct rlk_detail *detail)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *shown = is_stdin ? "stdin" : path;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    json_error_t error;
    char *text = NULL;
    size_t n = 0;
    int rc;

    if (!f)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", path, strerror(errno));
    rc = read_all(f, shown, &text, &n, detail);
    if (!is_stdin)
        fclose(f);
    if (rc)
        return rc;
    *spec = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (*spec)
        return RLK_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return RLK_ENOMEM;
    return rlk_fail(detail, RLK_EPARSE, "%s:%d:%d: no JSON: %s", shown, error.line, error.column, error.text);
}

int rlk_synth_file(const char *path, const char *dir, const struct rlk_synth_options *options,
                   struct rlk_synth_result *result, struct rlk_detail *detail)
{
    json_t *spec = NULL;
    int rc;

    if (detail)
        detail->text[0] = '\0';
    rc = rlk_synth_load(path, &spec, detail);
    if (!rc)
        rc = rlk_synth_run(spec, dir, options, result, detail);
    json_decref(spec);
    return rc;
}
