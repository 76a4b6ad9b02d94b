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

/* The tensor that differs, and, where that is an output, all inputs of its event. */
static void put_root(FILE *to, const json_t *diff, json_int_t rank)
{
    const char *role = json_string_value(json_object_get(diff, "role"));
    put_event(to, diff, rank);
    fprintf(to, ",role=%s,index=%" JSON_INTEGER_FORMAT "\n", role && !strcmp(role, "in") ? "in" : "out",
            json_integer_value(json_object_get(diff, "index")));
    if (role && !strcmp(role, "in"))
        return;
    put_event(to, diff, rank);
    fputs(",role=in\n", to);
}

static char *root_lines(const json_t *diff, size_t *n)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, n);
    const json_t *ranks = json_object_get(diff, "ranks");
    if (!to)
        return NULL;
    if (json_array_size(ranks) > RANKS_MAX || json_array_size(ranks) == 0)
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
    size_t said = 0, i;
    fputs("# rlk.plan/1: tensors whose bytes `rlkrec run --plan` keeps; a line is a SPEC of --payload (docs/cli.md)\n",
          to);
    for (i = 0; i < json_array_size(roots); i++) {
        size_t n = 0;
        char *lines = root_lines(json_array_get(roots, i), &n);
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
