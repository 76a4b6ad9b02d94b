/* What text and page read out of a result. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_show.h"

#include <stdlib.h>
#include <string.h>

const char *rlki_raw(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

const char *rlki_text(const json_t *object, const char *key)
{
    return rlki_esc(rlki_raw(object, key));
}

int64_t rlki_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

uint64_t rlki_amount(const json_t *value)
{
    json_int_t n = json_integer_value(value);
    return n < 0 ? 0 : (uint64_t)n;
}

const char *rlki_count_of(const json_t *object, const char *key)
{
    return rlki_count(rlki_amount(json_object_get(object, key)));
}

/* A stream in memory, whose text then lives like rlki_esc's. */
static const char *taken(FILE *to, char **text)
{
    const char *out = "";
    if (to && fclose(to) == 0 && *text)
        out = rlki_esc(*text);
    free(*text);
    *text = NULL;
    return out;
}

const char *rlki_shape_text(const json_t *shape)
{
    char *text = NULL;
    size_t size, i;
    const json_t *d;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return "";
    fputc('[', to);
    json_array_foreach(shape, i, d) fprintf(to, "%s%lld", i ? "," : "", (long long)json_integer_value(d));
    fputc(']', to);
    return taken(to, &text);
}

const char *rlki_ranks_text(const json_t *ranks, unsigned most)
{
    char *text = NULL;
    size_t size, n = json_array_size(ranks);
    unsigned stretches = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return "";
    for (size_t i = 0, end; i < n; i = end) {
        json_int_t from = json_integer_value(json_array_get(ranks, i)), last = from;
        for (end = i + 1; end < n && json_integer_value(json_array_get(ranks, end)) == last + 1; end++)
            last++;
        if (stretches++ == most) {
            fprintf(to, ",... (%zu in all)", n);
            break;
        }
        fprintf(to, "%s%lld", i ? "," : "", (long long)from);
        if (last > from)
            fprintf(to, "%s%lld", last == from + 1 ? "," : "-", (long long)last);
    }
    return taken(to, &text);
}

const char *rlki_why_text(const json_t *diff)
{
    if (json_is_string(json_object_get(diff, "root")))
        return "the earliest difference, but whether it is a root is unknown";
    if (strcmp(rlki_raw(json_object_get(diff, "mechanism"), "class"), "extra-or-missing") == 0)
        return "only one of the two recordings holds it";
    if (strcmp(rlki_raw(diff, "role"), "in") == 0)
        return "this input differs and nothing recorded before explains it";
    return "every input is equal on both sides, this output is not";
}

const char *rlki_value_text(const json_t *value)
{
    char *text;
    if (!value || json_is_null(value))
        return "-";
    if (json_is_string(value))
        return json_string_value(value);
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    const char *out = rlki_esc(text ? text : "");
    free(text);
    return out;
}

bool rlki_same_launch(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"kernel", "image", "grid", "block", "smem", "config", "cluster"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !(x && y && json_equal(x, y)))
            return false;
    }
    return true;
}

bool rlki_same_launches(const json_t *a, const json_t *b)
{
    size_t n = json_array_size(a);
    if (n != json_array_size(b))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!rlki_same_launch(json_array_get(a, i), json_array_get(b, i)))
            return false;
    return true;
}

void rlki_split_ranks(const json_t *result, json_t **own, json_t **none)
{
    const json_t *one;
    size_t i;
    *own = json_array();
    *none = json_array();
    json_array_foreach(json_object_get(result, "per_rank"), i, one)
        json_array_append(json_is_object(json_object_get(one, "first")) ? *own : *none, json_object_get(one, "rank"));
}

/* A word of a command line, so that the shell gives it back as it is. */
static void print_word(FILE *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    const char *safe = rlki_esc(word);
    if (*safe && strspn(safe, plain) == strlen(safe)) {
        fputs(safe, to);
        return;
    }
    fputc('\'', to);
    for (; *safe; safe++) {
        if (*safe == '\'')
            fputs("'\\''", to);
        else
            fputc(*safe, to);
    }
    fputc('\'', to);
}

/* The command that explains the first difference, with the options that the comparison ran with. `--event` is an event
 * of A: where A has none the default, the first difference, is meant. */
static void print_explain(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    const json_t *first = json_object_get(result, "first"), *recordings = json_object_get(result, "recordings");
    const json_t *a = json_object_get(first, "a"), *rank = json_object_get(first, "rank");
    bool one_rank = json_is_integer(rank) && json_array_size(json_object_get(result, "per_rank")) < 2;
    if (!json_is_integer(rank))
        rank = json_array_get(json_object_get(a, "holders"), 0);
    fputs("rlkaudit explain ", to);
    print_word(to, rlki_raw(recordings, "a"));
    fputc(' ', to);
    print_word(to, rlki_raw(recordings, "b"));
    if (json_is_object(a)) {
        fprintf(to, " --event %lld", (long long)rlki_integer(a, "event"));
        if (json_is_integer(rank) && !one_rank) /* each process counts its own events */
            fprintf(to, " --rank %lld", (long long)json_integer_value(rank));
    }
    fputs(" --elements", to);
    if (with->map) {
        fputs(" --map ", to);
        print_word(to, with->map);
    }
    if (with->dims) {
        fputs(" --dims ", to);
        print_word(to, with->dims);
    }
    if (with->allow_source)
        fputs(" --allow source", to);
}

char *rlki_next_command(const json_t *result, const struct rlki_audit_with *with)
{
    const char *verdict = rlki_raw(result, "verdict");
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    /* one recording: there is no pair of recordings to explain an event of */
    bool pair = strcmp(rlki_raw(result, "mode"), "phases") != 0;
    if (json_is_object(json_object_get(result, "first"))) {
        if (pair)
            print_explain(to, result, with);
    } else if (strcmp(verdict, "identical") == 0) {
        fputs("nothing differs in what was recorded; see coverage for what was not", to);
    } else if (strcmp(rlki_raw(json_object_get(result, "not_comparable"), "reason"), "source") == 0) {
        fputs("start both from the same source, or go on with --allow source", to);
    } else if (strcmp(verdict, "incomplete") == 0) {
        fputs("rlkrec info shows what is missing", to);
    }
    if (fclose(to) || !text || !*text) {
        free(text);
        return NULL;
    }
    return text;
}
