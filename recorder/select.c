#include "recorder/rlk_select.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum rlk_tap_level level;
} levels[] = {
    {"launch", RLK_TAP_LAUNCH}, {"step", RLK_TAP_STEP},     {"module", RLK_TAP_MODULE},
    {"op", RLK_TAP_OP},         {"buffer", RLK_TAP_BUFFER},
};

int rlk_level_parse(enum rlk_tap_level *out, const char *text, struct rlk_detail *detail)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(text, levels[i].name)) {
            *out = levels[i].level;
            return RLK_OK;
        }
    return rlk_fail(detail, RLK_EPARSE, "level '%s' is none of launch, step, module, op, buffer", text);
}

const char *rlk_level_name(enum rlk_tap_level level)
{
    if (level == RLK_TAP_OFF)
        return "off";
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].level == level)
            return levels[i].name;
    return "?";
}

/* A decimal int64 in text[0..n). */
static bool whole_number(int64_t *out, const char *text, size_t n)
{
    char copy[32];
    if (n == 0 || n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    if (copy[0] != '-' && (copy[0] < '0' || copy[0] > '9'))
        return false;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (errno || *end || end == copy)
        return false;
    *out = value;
    return true;
}

static int steps_parse(struct rlk_steps *out, const char *text, size_t n, struct rlk_detail *detail)
{
    struct rlk_steps steps = RLK_ALL_STEPS;
    const char *colon = memchr(text, ':', n);
    size_t left = colon ? (size_t)(colon - text) : 0;
    size_t right = colon ? n - left - 1 : 0;
    if (!colon || (left && !whole_number(&steps.first, text, left)) ||
        (right && !whole_number(&steps.last, colon + 1, right)))
        return rlk_fail(detail, RLK_EPARSE, "'%.*s' is no step range A:B", (int)n, text);
    if (steps.first >= steps.last)
        return rlk_fail(detail, RLK_EPARSE, "step range '%.*s' is empty (A:B leaves B out)", (int)n, text);
    *out = steps;
    return RLK_OK;
}

int rlk_steps_parse(struct rlk_steps *out, const char *text, struct rlk_detail *detail)
{
    return steps_parse(out, text, strlen(text) < INT_MAX ? strlen(text) : INT_MAX, detail);
}

int rlk_size_parse(uint64_t *out, const char *text, struct rlk_detail *detail)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || errno)
        return rlk_fail(detail, RLK_EPARSE, "'%s' is no size", text);
    static const char suffixes[] = "KMGT";
    const char *suffix = *end ? strchr(suffixes, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end) : NULL;
    unsigned shift = suffix ? 10u * (unsigned)(suffix - suffixes + 1) : 0;
    if ((*end && (!suffix || end[1])) || value > UINT64_MAX >> shift)
        return rlk_fail(detail, RLK_EPARSE, "'%s' is no size (digits and K, M, G or T)", text);
    *out = (uint64_t)value << shift;
    return RLK_OK;
}

struct line {
    struct rlk_steps steps;
    char *module, *op, *name; /* globs; NULL = any */
};

struct rlk_select {
    size_t n;
    struct line *lines;
};

void rlk_select_free(struct rlk_select *select)
{
    if (!select)
        return;
    for (size_t i = 0; i < select->n; i++) {
        free(select->lines[i].module);
        free(select->lines[i].op);
        free(select->lines[i].name);
    }
    free(select->lines);
    free(select);
}

static int part_parse(struct line *line, const char *text, size_t n, struct rlk_detail *detail)
{
    static const char *const keys[] = {"step=", "module=", "op=", "name="};
    char **globs[] = {NULL, &line->module, &line->op, &line->name};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        size_t len = strlen(keys[k]);
        if (n <= len || memcmp(text, keys[k], len) != 0)
            continue;
        if (k == 0)
            return steps_parse(&line->steps, text + len, n - len, detail);
        if (*globs[k])
            return rlk_fail(detail, RLK_EPARSE, "'%.*s': %s given twice", (int)n, text, keys[k]);
        *globs[k] = strndup(text + len, n - len);
        return *globs[k] ? RLK_OK : RLK_ENOMEM;
    }
    return rlk_fail(detail, RLK_EPARSE, "'%.*s' is none of step=A:B, module=GLOB, op=GLOB, name=GLOB", (int)n, text);
}

static int line_parse(struct line *line, const char *text, size_t n, struct rlk_detail *detail)
{
    line->steps = RLK_ALL_STEPS;
    for (size_t at = 0; at <= n;) {
        const char *comma = memchr(text + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - text) - at : n - at;
        int rc = part_parse(line, text + at, len, detail);
        if (rc)
            return rc;
        at += len + 1;
    }
    return RLK_OK;
}

int rlk_select_parse(struct rlk_select **out, const char *lines, struct rlk_detail *detail)
{
    int rc = RLK_ENOMEM;
    struct rlk_select *select = calloc(1, sizeof *select);
    if (!select)
        goto out;
    for (const char *at = lines; *at;) {
        size_t n = strcspn(at, "\n");
        if (n >= RLK_MAX_STRING) {
            rc = rlk_fail(detail, RLK_EPARSE, "a payload selection is longer than %u bytes", RLK_MAX_STRING);
            goto out;
        }
        if (n) {
            struct line *more = realloc(select->lines, (select->n + 1) * sizeof *more);
            if (!more)
                goto out;
            select->lines = more;
            memset(&more[select->n], 0, sizeof *more);
            if ((rc = line_parse(&more[select->n++], at, n, detail)))
                goto out;
            rc = RLK_ENOMEM;
        }
        at += n + (at[n] == '\n');
    }
    *out = select;
    select = NULL;
    rc = RLK_OK;
out:
    rlk_select_free(select);
    return rc;
}

static bool glob(const char *pattern, const char *text)
{
    return !pattern || fnmatch(pattern, text ? text : "", 0) == 0;
}

bool rlk_select_match(const struct rlk_select *select, int64_t step, const char *module, const char *op,
                      const char *name)
{
    for (size_t i = 0; select && i < select->n; i++) {
        const struct line *line = &select->lines[i];
        if (step >= line->steps.first && step < line->steps.last && glob(line->op, op) && glob(line->name, name) &&
            glob(line->module, module))
            return true;
    }
    return false;
}
