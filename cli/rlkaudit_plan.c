#include "cli/rlkaudit_plan.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An environment variable holds at most 128 KiB (MAX_ARG_STRLEN); the recorder is told through one. */
#define PLAN_MAX (96u * 1024)
#define RANKS_MAX 64u

/* One KEY=GLOB that matches `text` alone. A line end cannot be written and any character stands for it. */
static void put_text(FILE *to, const char *key, const char *text)
{
    fprintf(to, ",%s=", key);
    for (const char *c = text ? text : ""; *c; c++) {
        if (strchr("*?[]\\,", *c))
            fputc('\\', to);
        fputc(*c == '\n' || *c == '\r' ? '?' : *c, to);
    }
}

static void put_event(FILE *to, const json_t *diff, json_int_t rank)
{
    static const char *const texts[] = {"phase", "pass", "sample", "module", "op"};
    static const char *const numbers[] = {"work", "call", "occurrence"};
    json_int_t step = json_integer_value(json_object_get(diff, "step"));
    fprintf(to, "step=%" JSON_INTEGER_FORMAT ":%" JSON_INTEGER_FORMAT, step, step + 1);
    if (rank >= 0)
        fprintf(to, ",rank=%" JSON_INTEGER_FORMAT, rank);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        fprintf(to, ",%s=%" JSON_INTEGER_FORMAT, numbers[i], json_integer_value(json_object_get(diff, numbers[i])));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put_text(to, texts[i], json_string_value(json_object_get(diff, texts[i])));
}

/* An input that differs; or, of an output, all outputs of its event, for all of which the root stands, and all inputs.
 */
static void put_root(FILE *to, const json_t *diff, json_int_t rank)
{
    const char *role = json_string_value(json_object_get(diff, "role"));
    put_event(to, diff, rank);
    if (role && !strcmp(role, "in")) {
        fprintf(to, ",role=in,index=%" JSON_INTEGER_FORMAT "\n", json_integer_value(json_object_get(diff, "index")));
        return;
    }
    fputs(",role=out\n", to);
    put_event(to, diff, rank);
    fputs(",role=in\n", to);
}

static bool is_gradient(const char *name)
{
    size_t n = strlen(name);
    return !strcmp(name, "grad") || (n > 5 && !strcmp(name + n - 5, ".grad"));
}

/* What the two sides have in common of an event across layouts and phases: the other one may make the same tensor by
 * another operator, on other ranks, at another place of its order (docs/identity.md). */
static void put_common(FILE *to, const json_t *diff, bool phases)
{
    const char *sample = json_string_value(json_object_get(diff, "sample"));
    if (!phases)
        put_text(to, "phase", json_string_value(json_object_get(diff, "phase")));
    put_text(to, "pass", json_string_value(json_object_get(diff, "pass")));
    fprintf(to, ",call=%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(diff, "call")));
    if (!phases && !(sample && *sample))
        fprintf(to, ",work=%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(diff, "work")));
    put_text(to, "module", json_string_value(json_object_get(diff, "module")));
}

static void put_across(FILE *to, const json_t *diff, bool phases)
{
    json_int_t step = json_integer_value(json_object_get(diff, "step")),
               index = json_integer_value(json_object_get(diff, "index"));
    const char *role = json_string_value(json_object_get(diff, "role"));
    const char *name = json_string_value(json_object_get(diff, "name"));
    const char *kind = json_string_value(json_object_get(diff, "kind"));
    const char *op = json_string_value(json_object_get(diff, "op"));
    bool in = role && !strcmp(role, "in"), named = name && *name, weights = kind && !strcmp(kind, "weights");
    bool gradient = !in && named && is_gradient(name);
    fprintf(to, "step=%" JSON_INTEGER_FORMAT ":%" JSON_INTEGER_FORMAT, step, step + 1);
    if (gradient)
        put_text(to, "module", json_string_value(json_object_get(diff, "module")));
    else if (!weights)
        put_common(to, diff, phases);
    if (weights || !named)
        put_text(to, "op", op);
    if (named)
        put_text(to, "name", name);
    else
        fprintf(to, ",index=%" JSON_INTEGER_FORMAT, index);
    fprintf(to, ",role=%s\n", in ? "in" : "out");
    for (int inputs = 0; inputs < 2 && !in && !weights && !gradient; inputs++) { /* as put_root() */
        if (!inputs && !named)
            continue;
        fprintf(to, "step=%" JSON_INTEGER_FORMAT ":%" JSON_INTEGER_FORMAT, step, step + 1);
        put_common(to, diff, phases);
        if (!inputs)
            put_text(to, "op", op);
        fprintf(to, ",role=%s\n", inputs ? "in" : "out");
    }
}

static char *root_lines(const json_t *diff, const char *mode, size_t *n)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, n);
    const json_t *ranks = json_object_get(diff, "ranks");
    if (!to)
        return NULL;
    if (json_is_null(json_object_get(diff, "rank")))
        put_across(to, diff, mode && !strcmp(mode, "phases"));
    else if (json_array_size(ranks) > RANKS_MAX || json_array_size(ranks) == 0)
        put_root(to, diff, -1);
    else
        for (size_t i = 0; i < json_array_size(ranks); i++)
            put_root(to, diff, json_integer_value(json_array_get(ranks, i)));
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int print(FILE *to, void *context)
{
    const json_t *roots = json_object_get(context, "roots");
    const char *mode = json_string_value(json_object_get(context, "mode"));
    size_t said = 0, i;
    fputs("# rlk.plan/1: tensors whose bytes `rlkrec run --plan` keeps; a line is a SPEC of --payload (docs/cli.md)\n",
          to);
    for (i = 0; i < json_array_size(roots); i++) {
        size_t n = 0;
        char *lines = root_lines(json_array_get(roots, i), mode, &n);
        if (!lines)
            return RLKI_EXIT_FAULT;
        bool fits = said + n <= PLAN_MAX;
        if (fits)
            fputs(lines, to);
        said += n;
        free(lines);
        if (!fits)
            break;
    }
    if (i < json_array_size(roots))
        fprintf(to, "# %zu further roots are left out: a run can be told of 96 KiB\n", json_array_size(roots) - i);
    if (i == 0)
        fputs("# nothing differs: nothing to keep\n", to);
    return 0;
}

int rlki_plan_write(const char *path, const json_t *result)
{
    return rlki_write_text(path, print, (void *)(uintptr_t)result);
}
