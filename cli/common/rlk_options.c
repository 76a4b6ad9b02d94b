#include "cli/common/rlk_options.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rlki_read_number(uint64_t *out, const char *text)
{
    char *end = NULL;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *out = v;
    return true;
}

bool rlki_read_size(uint64_t *out, const char *text)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double scale = 1;

    if (text[0] < '0' || text[0] > '9' || strpbrk(text, "xXpPnN"))
        return false;
    errno = 0;
    double v = strtod(text, &end);
    if (errno)
        return false;
    if (*end) {
        const char *unit = strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end);
        if (!unit)
            return false;
        for (const char *u = units; u <= unit; u++)
            scale *= 1024;
        end++;
        if (*end == 'i' || *end == 'I')
            end++;
        if (*end == 'B' || *end == 'b')
            end++;
        if (*end)
            return false;
    }
    v *= scale;
    if (!(v >= 0 && v < 9e18))
        return false;
    *out = (uint64_t)v;
    return true;
}

bool rlki_read_span(struct rlki_span *out, const char *text)
{
    const char *colon = strchr(text, ':');
    struct rlki_span s = {true, INT64_MIN, INT64_MAX};
    char *end = NULL;

    if (!colon || colon[1] == ' ' || text[0] == ' ')
        return false;
    errno = 0;
    if (colon != text) {
        s.first = strtoll(text, &end, 10);
        if (end != colon)
            return false;
    }
    if (colon[1]) {
        s.last = strtoll(colon + 1, &end, 10);
        if (*end)
            return false;
    }
    if (errno || s.first >= s.last)
        return false;
    *out = s;
    return true;
}

static void title(char *out, size_t size, const struct rlki_command *c)
{
    snprintf(out, size, "%s%s%s", c->program, c->name ? " " : "", c->name ? c->name : "");
}

static int usage_exit(const struct rlki_command *c)
{
    return c->usage_exit ? c->usage_exit : RLKI_EXIT_FAULT;
}

int rlki_usage(const struct rlki_command *c, const char *format, ...)
{
    char name[64], text[1024];
    va_list ap;

    title(name, sizeof name, c);
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    fprintf(stderr, "%s: %s\n%s: see %s --help\n", name, rlki_esc(text), name, name);
    return usage_exit(c);
}

static void help(const struct rlki_command *c)
{
    char name[64], left[96];

    title(name, sizeof name, c);
    printf("usage: %s %s\n%s\n", name, c->synopsis, c->summary);
    if (c->noptions)
        putchar('\n');
    for (size_t i = 0; i < c->noptions; i++) {
        const struct rlki_option *o = &c->options[i];
        char letter[8] = "    ";
        if (!o->help)
            continue;
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        if (strlen(left) < 28)
            printf("%-28s  %s\n", left, o->help);
        else
            printf("%s\n%-28s  %s\n", left, "", o->help);
    }
    if (c->more)
        printf("\n%s", c->more);
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strchr(value, '|') ? 0 : strlen(value);

    for (const char *p = choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, value, n) == 0 && (p[n] == '|' || !p[n]) && n)
            return true;
    }
    return false;
}

/* Stores one value. RLKI_GO_ON or the exit status. */
static int take(const struct rlki_command *c, const struct rlki_option *o, const char *value)
{
    bool good = true;

    switch (o->type) {
    case RLKI_FLAG:
        *(bool *)o->value = true;
        break;
    case RLKI_STRING:
        *(const char **)o->value = value;
        good = value[0] != 0;
        break;
    case RLKI_CHOICE:
        *(const char **)o->value = value;
        if (!is_choice(o->arg, value))
            return rlki_usage(c, "--%s takes one of %s, not '%s'", o->name, o->arg, value);
        break;
    case RLKI_LIST: {
        struct rlki_list *list = o->value;
        if (list->n == RLKI_MAX_LIST)
            return rlki_usage(c, "--%s given more than %u times", o->name, RLKI_MAX_LIST);
        list->items[list->n++] = value;
        good = value[0] != 0;
        break;
    }
    case RLKI_NUMBER:
        good = rlki_read_number(o->value, value);
        break;
    case RLKI_COUNT:
        if (!rlki_read_number(o->value, value) || !*(uint64_t *)o->value)
            return rlki_usage(c, "--%s takes a whole number from 1 on, not '%s'", o->name, value);
        break;
    case RLKI_SIZE:
        good = rlki_read_size(o->value, value);
        break;
    case RLKI_SPAN:
        good = rlki_read_span(o->value, value);
        break;
    case RLKI_LATER:
        break;
    }
    return good ? RLKI_GO_ON : rlki_usage(c, "--%s takes %s, not '%s'", o->name, o->arg, value);
}

static const struct rlki_option *find(const struct rlki_command *c, const char *name, size_t n, char letter)
{
    for (size_t i = 0; i < c->noptions; i++) {
        const struct rlki_option *o = &c->options[i];
        if (letter ? o->letter == letter : strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

static void show_version(const struct rlki_command *c)
{
    printf("%s %s (recording format %s)\n", c->program, RLK_VERSION, RLKI_FORMAT_TEXT);
}

/* The option at argv[*i], its value perhaps in argv[*i + 1]. */
static int one_option(const struct rlki_command *c, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *value = NULL;
    const struct rlki_option *o;

    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        size_t n = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
        if (strcmp(word, "--help") == 0) {
            help(c);
            return rlki_finish(RLKI_EXIT_OK);
        }
        if (strcmp(word, "--version") == 0) {
            show_version(c);
            return rlki_finish(RLKI_EXIT_OK);
        }
        o = find(c, word + 2, n, 0);
        value = equals ? equals + 1 : NULL;
    } else {
        o = find(c, NULL, 0, word[1]);
        if (!o && strcmp(word, "-h") == 0) {
            help(c);
            return rlki_finish(RLKI_EXIT_OK);
        }
        value = word[2] ? word + 2 : NULL;
    }
    if (!o)
        return rlki_usage(c, "no such option: %s", word);
    if (o->type == RLKI_LATER) {
        rlki_usage(c, "--%s is not built yet (docs/cli.md)", o->name);
        return usage_exit(c);
    }
    if (o->type == RLKI_FLAG && value)
        return rlki_usage(c, "--%s takes no value", o->name);
    if (o->type != RLKI_FLAG && !value) {
        if (*i + 1 >= argc)
            return rlki_usage(c, "--%s needs a value: %s", o->name, o->arg);
        value = argv[++*i];
    }
    return take(c, o, value);
}

int rlki_parse(const struct rlki_command *c, int argc, char **argv, int *nargs, char ***args)
{
    int n = 0, status = RLKI_GO_ON;

    /* Positional arguments are gathered at argv[1..n]; what is overwritten has been read already. */
    for (int i = 1; i < argc && status == RLKI_GO_ON; i++) {
        bool literal = strcmp(argv[i], "--") == 0;
        bool positional = literal || argv[i][0] != '-' || !argv[i][1];
        if (!positional) {
            status = one_option(c, argc, argv, &i);
        } else if (literal || c->stop_at_first) {
            for (i += literal; i < argc; i++)
                argv[1 + n++] = argv[i];
        } else {
            argv[1 + n++] = argv[i];
        }
    }
    if (status != RLKI_GO_ON)
        return status;
    if (n < c->min_args)
        return rlki_usage(c, n ? "an argument is missing: %s" : "arguments are missing: %s", c->synopsis);
    if (c->max_args >= 0 && n > c->max_args)
        return rlki_usage(c, "too many arguments, from '%s' on", argv[1 + c->max_args]);
    *nargs = n;
    *args = argv + 1;
    return RLKI_GO_ON;
}
