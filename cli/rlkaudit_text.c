/* Text of rlkaudit's results. Everything comes from the JSON, every string from a recording is escaped. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"

#include <string.h>

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return rlki_esc(value ? value : "");
}

static const char *raw(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static long long integer(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *count(const json_t *object, const char *key)
{
    return rlki_count((uint64_t)json_integer_value(json_object_get(object, key)));
}

static void print_shape(FILE *to, const json_t *shape)
{
    size_t i;
    const json_t *d;
    fputc('[', to);
    json_array_foreach(shape, i, d) fprintf(to, "%s%lld", i ? "," : "", (long long)json_integer_value(d));
    fputc(']', to);
}

static void print_ranks(FILE *to, const json_t *diff)
{
    const json_t *ranks = json_object_get(diff, "ranks");
    size_t n = json_array_size(ranks);
    for (size_t i = 0; i < n && i < 8; i++)
        fprintf(to, "%s%lld", i ? "," : "", (long long)json_integer_value(json_array_get(ranks, i)));
    if (n > 8)
        fprintf(to, ",... (%zu ranks)", n);
}

static void print_where(FILE *to, const json_t *diff)
{
    bool ranks = json_array_size(json_object_get(diff, "ranks")) > 0;
    fprintf(to, "  step %lld", integer(diff, "step"));
    if (*raw(diff, "phase"))
        fprintf(to, "  phase %s", text(diff, "phase"));
    if (*raw(diff, "pass"))
        fprintf(to, "  pass %s", text(diff, "pass"));
    if (integer(diff, "work"))
        fprintf(to, "  work %lld", integer(diff, "work"));
    if (*raw(diff, "sample"))
        fprintf(to, "  sample %s", text(diff, "sample"));
    if (ranks) {
        fputs("  rank ", to);
        print_ranks(to, diff);
    }
    fprintf(to, "\n  module %s", *raw(diff, "module") ? text(diff, "module") : "(root)");
    if (integer(diff, "call"))
        fprintf(to, "  call %lld", integer(diff, "call"));
    fprintf(to, "\n  op %s", text(diff, "op"));
    if (integer(diff, "occurrence"))
        fprintf(to, "  occurrence %lld", integer(diff, "occurrence"));
    fprintf(to, "  %s %lld", strcmp(raw(diff, "role"), "in") == 0 ? "input" : "output", integer(diff, "index"));
    if (*raw(diff, "name"))
        fprintf(to, "  \"%s\"", text(diff, "name"));
    fputc('\n', to);
}

static void print_launch(FILE *to, const json_t *launch)
{
    fprintf(to, "      kernel %.160s  grid ", text(launch, "kernel"));
    print_shape(to, json_object_get(launch, "grid"));
    fputs(" block ", to);
    print_shape(to, json_object_get(launch, "block"));
    if (integer(launch, "smem"))
        fprintf(to, " smem %lld", integer(launch, "smem"));
    fputc('\n', to);
}

static void print_side(FILE *to, char letter, const json_t *side)
{
    if (!json_is_object(side)) {
        fprintf(to, "  %c   absent\n", letter);
        return;
    }
    fprintf(to, "  %c   event %lld", letter, integer(side, "event"));
    if (json_is_string(json_object_get(side, "dtype"))) {
        fprintf(to, "  %s ", text(side, "dtype"));
        print_shape(to, json_object_get(side, "logical_shape"));
    }
    if (*raw(side, "digest"))
        fprintf(to, "  digest %s", text(side, "digest"));
    if (*raw(side, "value"))
        fprintf(to, "  value %s", text(side, "value"));
    if (*raw(side, "not_digested"))
        fprintf(to, "  not digested (%s)", text(side, "not_digested"));
    if (*raw(side, "version"))
        fprintf(to, "  label %s", text(side, "version"));
    fputc('\n', to);
    const json_t *launches = json_object_get(side, "launches");
    for (size_t i = 0; i < json_array_size(launches) && i < 3; i++)
        print_launch(to, json_array_get(launches, i));
    if (json_array_size(launches) > 3)
        fprintf(to, "      and %zu more launches\n", json_array_size(launches) - 3);
}

static void print_difference(FILE *to, const json_t *d)
{
    if (!json_is_object(d))
        return;
    fprintf(to, "  differs  %s", text(d, "grade"));
    if (json_is_integer(json_object_get(d, "changed"))) {
        fprintf(to, ": %s of %s elements", count(d, "changed"), count(d, "elements"));
        if (*raw(d, "pattern"))
            fprintf(to, ", %s", text(d, "pattern"));
        if (json_is_integer(json_object_get(d, "max_ulp")))
            fprintf(to, ", at most %s ulp", count(d, "max_ulp"));
        if (json_is_real(json_object_get(d, "max_abs")))
            fprintf(to, ", at most %.6g", json_real_value(json_object_get(d, "max_abs")));
        if (integer(d, "nan"))
            fprintf(to, ", %s NaN on a side", integer(d, "nan") == integer(d, "changed") ? "all" : count(d, "nan"));
        fputs(", first at ", to);
        print_shape(to, json_object_get(d, "first_index"));
        fputc('\n', to);
    } else {
        fprintf(to, " (%s elements; their bytes were not kept)\n", count(d, "elements"));
    }
}

static void print_mechanism(FILE *to, const json_t *diff)
{
    const json_t *m = json_object_get(diff, "mechanism"), *evidence = json_object_get(m, "evidence"), *one;
    size_t i;
    fprintf(to, "  cause    %s (%s confidence)", text(m, "class"), text(m, "confidence"));
    json_array_foreach(json_object_get(m, "also"), i, one)
        fprintf(to, "%s%s", i ? ", " : "; also possible: ", rlki_esc(json_string_value(one)));
    fputc('\n', to);
    json_array_foreach(evidence, i, one) if (i < 6) fprintf(to, "           - %s\n", rlki_esc(json_string_value(one)));
}

static void print_why(FILE *to, const json_t *diff)
{
    const json_t *root = json_object_get(diff, "root");
    const char *class = raw(json_object_get(diff, "mechanism"), "class");
    if (json_is_string(root))
        fprintf(to, "  why      the earliest difference, but whether it is a root is unknown%s%s\n",
                *raw(diff, "root_reason") ? ": an input cannot be compared: " : "", text(diff, "root_reason"));
    else if (strcmp(class, "extra-or-missing") == 0)
        fputs("  why      only one of the two recordings holds it\n", to);
    else if (strcmp(raw(diff, "role"), "in") == 0)
        fputs("  why      this input differs and nothing recorded before explains it\n", to);
    else
        fputs("  why      every input is equal on both sides, this output is not\n", to);
}

static void print_scope(FILE *to, const json_t *result)
{
    const json_t *scope = json_object_get(result, "scope"), *coverage = json_object_get(result, "coverage");
    const json_t *value;
    const char *key;
    int n = 0;
    fprintf(to, "compared %s tensors", count(scope, "compared"));
    if (integer(scope, "skipped"))
        fprintf(to, ", %s not comparable (", count(scope, "skipped"));
    json_object_foreach((json_t *)json_object_get(scope, "reasons"), key, value)
    {
        if (n < 5)
            fprintf(to, "%s%s %s", n ? ", " : "", rlki_esc(key), rlki_count((uint64_t)json_integer_value(value)));
        n++;
    }
    fputs(integer(scope, "skipped") ? ")\n" : "\n", to);
    for (int s = 0; s < 2; s++) {
        const json_t *c = json_object_get(coverage, s ? "b" : "a");
        uint64_t left = 0;
        json_object_foreach((json_t *)json_object_get(c, "not_digested"), key, value) left +=
            (uint64_t)json_integer_value(value);
        fprintf(to, "%s %c: %s tensors, %s by reference, %s not digested, %s of %s launches, %s dropped\n",
                s ? "        " : "coverage", s ? 'B' : 'A', count(c, "tensors"), count(c, "by_reference"),
                rlki_count(left), count(c, "launches_recorded"), count(c, "launches_seen"), count(c, "dropped"));
    }
}

static void print_verdict(FILE *to, const json_t *result)
{
    const char *verdict = raw(result, "verdict");
    enum rlki_style style = strcmp(verdict, "identical") == 0  ? RLKI_GREEN
                            : strcmp(verdict, "diverged") == 0 ? RLKI_RED
                                                               : RLKI_YELLOW;
    const json_t *why = json_object_get(result, "not_comparable");
    fprintf(to, "%s%s%s%s", rlki_style(to, style),
            strcmp(verdict, "not_comparable") == 0 ? "not comparable" : rlki_esc(verdict), rlki_style(to, RLKI_PLAIN),
            json_is_true(json_object_get(result, "complete")) ? "" : " (incomplete)");
    if (json_is_object(why)) {
        const json_t *at = json_object_get(why, "at");
        fprintf(to, ": %s", text(why, "reason"));
        if (*raw(why, "name"))
            fprintf(to, " %s", text(why, "name"));
        if (json_is_object(at))
            fprintf(to, " (step %lld, module %s, op %s)", integer(at, "step"), text(at, "module"), text(at, "op"));
    }
    fputc('\n', to);
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
static void print_explain_command(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    const json_t *first = json_object_get(result, "first"), *recordings = json_object_get(result, "recordings");
    const json_t *a = json_object_get(first, "a"), *rank = json_object_get(first, "rank");
    if (with->phases) /* one recording: there is no pair of recordings to explain an event of */
        return;
    bool one_rank = json_is_integer(rank) && json_array_size(json_object_get(result, "per_rank")) < 2;
    if (!json_is_integer(rank))
        rank = json_array_get(json_object_get(a, "holders"), 0);
    fputs("next: rlkaudit explain ", to);
    print_word(to, raw(recordings, "a"));
    fputc(' ', to);
    print_word(to, raw(recordings, "b"));
    if (json_is_object(a)) {
        fprintf(to, " --event %lld", integer(a, "event"));
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
    fputs(with->allow_source ? " --allow source\n" : "\n", to);
}

void rlki_audit_print_first_diff(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    const json_t *first = json_object_get(result, "first"), *note;
    size_t i, roots = json_array_size(json_object_get(result, "roots"));
    print_verdict(to, result);
    if (json_is_object(first)) {
        fputs("\nfirst divergence\n", to);
        print_where(to, first);
        print_side(to, 'A', json_object_get(first, "a"));
        print_side(to, 'B', json_object_get(first, "b"));
        print_difference(to, json_object_get(first, "difference"));
        print_why(to, first);
        print_mechanism(to, first);
        fprintf(to, "  roots    %s; downstream %s", rlki_count(roots), count(result, "downstream"));
        if (integer(result, "masked"))
            fprintf(to, ", of which %s are not repeatable themselves", count(result, "masked"));
        fputs("\n\n", to);
    }
    print_scope(to, result);
    json_array_foreach(json_object_get(result, "environment"), i, note) if (i < 4)
        fprintf(to, "environment: %s differs\n", text(note, "key"));
    if (json_array_size(json_object_get(result, "environment")) > 4)
        fprintf(to, "environment: and %zu more\n", json_array_size(json_object_get(result, "environment")) - 4);
    note = json_object_get(result, "acceptance");
    if (json_is_object(note) && roots)
        fprintf(to, "accepted %lld of %s roots (%s)\n", integer(note, "accepted"), rlki_count(roots),
                text(note, "file"));
    json_array_foreach(json_object_get(result, "notes"), i, note) if (i < 6)
        fprintf(to, "note: %s\n", rlki_esc(json_string_value(note)));
    if (json_is_object(first))
        print_explain_command(to, result, with);
    else if (strcmp(raw(result, "verdict"), "identical") == 0)
        fputs("next: nothing differs in what was recorded; see coverage for what was not\n", to);
    else if (strcmp(raw(json_object_get(result, "not_comparable"), "reason"), "source") == 0)
        fputs("next: start both from the same source, or go on with --allow source\n", to);
    else if (strcmp(raw(result, "verdict"), "incomplete") == 0)
        fputs("next: rlkrec info shows what is missing\n", to);
}

static void print_tensor(FILE *to, const json_t *t)
{
    fprintf(to, "  %-3s %lld %-10s %s%s%s", strcmp(raw(t, "role"), "in") == 0 ? "in" : "out", integer(t, "index"),
            text(t, "status"), *raw(t, "name") ? "\"" : "", text(t, "name"), *raw(t, "name") ? "\"" : "");
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(t, s ? "b" : "a"), *producer = json_object_get(side, "producer");
        if (!json_is_object(side))
            continue;
        fprintf(to, "\n        %c %s ", s ? 'B' : 'A', text(side, "dtype"));
        print_shape(to, json_object_get(side, "shape"));
        fprintf(to, " %s", *raw(side, "digest") ? text(side, "digest") : text(side, "not_digested"));
        if (json_is_object(producer))
            fprintf(to, "  from event %lld: %s %s", integer(producer, "event"), text(producer, "module"),
                    text(producer, "op"));
    }
    fputc('\n', to);
    if (json_is_object(json_object_get(t, "difference")))
        print_difference(to, json_object_get(t, "difference"));
}

void rlki_audit_print_explain(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    (void)with;
    const json_t *t;
    size_t i;
    fprintf(to, "%s%s%s\n", rlki_style(to, RLKI_BOLD), text(result, "standing"), rlki_style(to, RLKI_PLAIN));
    if (json_is_object(json_object_get(result, "a")))
        print_where(to, json_object_get(result, "a"));
    print_side(to, 'A', json_object_get(result, "side_a"));
    print_side(to, 'B', json_object_get(result, "side_b"));
    json_array_foreach(json_object_get(result, "tensors"), i, t) if (i < 24) print_tensor(to, t);
    if (json_array_size(json_object_get(result, "tensors")) > 24)
        fprintf(to, "  and %zu more tensors (--json)\n", json_array_size(json_object_get(result, "tensors")) - 24);
    if (json_is_object(json_object_get(result, "mechanism")))
        print_mechanism(to, result);
    fprintf(to, "why: %s\n", text(result, "why"));
}
