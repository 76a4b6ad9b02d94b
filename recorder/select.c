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

enum glob_key {
    MODULE,
    OP,
    NAME,
    PHASE,
    PASS,
    SAMPLE,
    GLOBS,
};
enum number_key {
    RANK,
    WORK,
    ITERATION,
    CALL,
    OCCURRENCE,
    INDEX,
    NUMBERS,
};
static const char *const glob_keys[GLOBS] = {"module=", "op=", "name=", "phase=", "pass=", "sample="};
static const char *const number_keys[NUMBERS] = {"rank=", "work=", "iteration=", "call=", "occurrence=", "index="};

struct line {
    struct rlk_steps steps;
    char *globs[GLOBS]; /* NULL = any */
    int64_t numbers[NUMBERS];
    bool has[NUMBERS];
    int role; /* -1 = any */
};

struct rlk_select {
    size_t n;
    struct line *lines;
};

void rlk_select_free(struct rlk_select *select)
{
    if (!select)
        return;
    for (size_t i = 0; i < select->n; i++)
        for (size_t k = 0; k < GLOBS; k++)
            free(select->lines[i].globs[k]);
    free(select->lines);
    free(select);
}

/* The value of `key` in text[0..n), or NULL; *left gets its length. An empty GLOB matches the empty text alone. */
static const char *value_of(const char *key, const char *text, size_t n, size_t *left)
{
    size_t len = strlen(key);
    if (n < len || memcmp(text, key, len) != 0)
        return NULL;
    *left = n - len;
    return text + len;
}

static int twice(const char *text, size_t n, const char *key, struct rlk_detail *detail)
{
    return rlk_fail(detail, RLK_EPARSE, "'%.*s': %s given twice", (int)n, text, key);
}

static int part_parse(struct line *line, const char *text, size_t n, struct rlk_detail *detail)
{
    size_t left;
    const char *value = value_of("step=", text, n, &left);
    if (value && left)
        return steps_parse(&line->steps, value, left, detail);
    for (size_t k = 0; k < GLOBS; k++) {
        if (!(value = value_of(glob_keys[k], text, n, &left)))
            continue;
        if (line->globs[k])
            return twice(text, n, glob_keys[k], detail);
        line->globs[k] = strndup(value, left);
        return line->globs[k] ? RLK_OK : RLK_ENOMEM;
    }
    for (size_t k = 0; k < NUMBERS; k++) {
        if (!(value = value_of(number_keys[k], text, n, &left)))
            continue;
        if (line->has[k])
            return twice(text, n, number_keys[k], detail);
        line->has[k] = true;
        if (whole_number(&line->numbers[k], value, left))
            return RLK_OK;
        return rlk_fail(detail, RLK_EPARSE, "'%.*s' is no number", (int)n, text);
    }
    for (int role = 0; role < 2; role++)
        if ((value = value_of(role ? "role=out" : "role=in", text, n, &left)) && !left) {
            if (line->role >= 0)
                return twice(text, n, "role=", detail);
            line->role = role ? RLK_ROLE_OUT : RLK_ROLE_IN;
            return RLK_OK;
        }
    return rlk_fail(detail, RLK_EPARSE,
                    "'%.*s' is none of step=A:B; module=, op=, name=, phase=, pass=, sample=GLOB; rank=, work=, "
                    "iteration=, call=, occurrence=, index=NUMBER; role=in|out",
                    (int)n, text);
}

/* The length of the part at text[0..n): up to a comma that no backslash takes. */
static size_t part_length(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] != ',')
        i += text[i] == '\\' && i + 1 < n ? 2 : 1;
    return i;
}

static int line_parse(struct line *line, const char *text, size_t n, struct rlk_detail *detail)
{
    line->steps = RLK_ALL_STEPS;
    line->role = -1;
    for (size_t at = 0; at <= n;) {
        size_t len = part_length(text + at, n - at);
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
        if (n && *at != '#') {
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

static bool line_matches(const struct line *line, const struct rlk_identity *who, uint32_t rank, enum rlk_role role,
                         uint32_t index, const char *name)
{
    const int64_t numbers[NUMBERS] = {
        [RANK] = rank,
        [WORK] = who->work,
        [ITERATION] = who->iteration,
        [CALL] = who->call,
        [OCCURRENCE] = who->occurrence,
        [INDEX] = index,
    };
    const char *texts[GLOBS] = {
        [MODULE] = who->module, [OP] = who->op,     [NAME] = name,
        [PHASE] = who->phase,   [PASS] = who->pass, [SAMPLE] = who->sample,
    };
    if (who->step < line->steps.first || who->step >= line->steps.last)
        return false;
    if (line->role >= 0 && line->role != (int)role)
        return false;
    for (size_t k = 0; k < NUMBERS; k++)
        if (line->has[k] && line->numbers[k] != numbers[k])
            return false;
    for (size_t k = 0; k < GLOBS; k++)
        if (!glob(line->globs[k], texts[k]))
            return false;
    return true;
}

bool rlk_select_match(const struct rlk_select *select, const struct rlk_identity *who, uint32_t rank,
                      enum rlk_role role, uint32_t index, const char *name)
{
    for (size_t i = 0; select && i < select->n; i++)
        if (line_matches(&select->lines[i], who, rank, role, index, name))
            return true;
    return false;
}
