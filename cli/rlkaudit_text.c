/* first-diff on one screen: the verdict, where, the root with its kernels, what differs, why, what else, what next.
 * Everything comes from the JSON, every string from a recording is escaped. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_show.h"

#include <stdlib.h>
#include <string.h>

#define KERNELS 3u
#define EVIDENCE 4u
#define EXCLUDED 4u
#define ROOTS 3u
#define LISTED 4u

static void verdict(struct rlki_lines *l, const json_t *result)
{
    const char *word = rlki_raw(result, "verdict");
    const json_t *why = json_object_get(result, "not_comparable"), *scope = json_object_get(result, "scope");
    const json_t *recordings = json_object_get(result, "recordings");
    enum rlki_style style = strcmp(word, "identical") == 0  ? RLKI_GREEN
                            : strcmp(word, "diverged") == 0 ? RLKI_RED
                                                            : RLKI_YELLOW;
    char shown[24] = "";
    for (size_t i = 0; word[i] && i + 1 < sizeof shown; i++)
        shown[i] = (char)(word[i] == '_' ? ' ' : word[i] >= 'a' && word[i] <= 'z' ? word[i] - 'a' + 'A' : word[i]);
    fprintf(l->to, "%s%s%s", rlki_style(l->to, style), rlki_esc(shown), rlki_style(l->to, RLKI_PLAIN));
    l->at = RLKI_LABEL > rlki_columns(shown) ? rlki_columns(shown) + 1 : rlki_columns(shown);
    if (l->at == rlki_columns(shown) + 1)
        fprintf(l->to, "%*s", (int)(RLKI_LABEL - rlki_columns(shown)), "");
    l->at = rlki_columns(shown) < RLKI_LABEL ? RLKI_LABEL : rlki_columns(shown);
    if (!json_is_true(json_object_get(result, "complete")))
        rlki_lines_item(l, RLKI_YELLOW, "(incomplete)");
    rlki_lines_item(l, RLKI_PLAIN, "A %s", rlki_shortened(rlki_text(recordings, "a"), l->width / 2));
    rlki_lines_item(l, RLKI_PLAIN, "B %s", rlki_shortened(rlki_text(recordings, "b"), l->width / 2));
    rlki_lines_item(l, RLKI_PLAIN, "compared %s tensors", rlki_count_of(scope, "compared"));
    if (rlki_integer(scope, "skipped"))
        rlki_lines_item(l, RLKI_YELLOW, "%s not comparable", rlki_count_of(scope, "skipped"));
    if (json_is_object(why)) {
        const json_t *at = json_object_get(why, "at");
        rlki_lines_label(l, "because");
        rlki_lines_item(l, RLKI_PLAIN, "%s%s%s", rlki_text(why, "reason"), *rlki_raw(why, "name") ? " " : "",
                        rlki_text(why, "name"));
        if (json_is_object(at))
            rlki_lines_item(l, RLKI_PLAIN, "step %lld, module %s, op %s", (long long)rlki_integer(at, "step"),
                            rlki_text(at, "module"), rlki_text(at, "op"));
    }
}

/* How the tensors of one role stand: "all 3 inputs equal", "2 other outputs equal". */
static void tensors(struct rlki_lines *l, const json_t *first)
{
    unsigned n[2] = {0, 0}, equal[2] = {0, 0};
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(first, "tensors"), i, one)
    {
        unsigned out = strcmp(rlki_raw(one, "role"), "in") != 0;
        n[out]++;
        equal[out] += strcmp(rlki_raw(one, "status"), "equal") == 0;
    }
    if (n[0] && equal[0] == n[0])
        rlki_lines_item(l, RLKI_PLAIN, n[0] == 1 ? "its input is equal" : "all %u inputs equal", n[0]);
    else if (n[0])
        rlki_lines_item(l, RLKI_PLAIN, "%u of %u inputs equal", equal[0], n[0]);
    if (n[1] > 1)
        rlki_lines_item(l, RLKI_PLAIN, "%u of %u outputs equal", equal[1], n[1]);
}

void rlki_text_where(struct rlki_lines *l, const json_t *d)
{
    const json_t *ranks = json_object_get(d, "ranks"), *a = json_object_get(d, "a");
    const json_t *any = json_is_object(a) ? a : json_is_object(json_object_get(d, "b")) ? json_object_get(d, "b") : d;
    bool root = json_is_true(json_object_get(d, "root"));
    rlki_lines_label(l, json_object_get(d, "root") ? "first" : "event");
    if (json_array_size(ranks))
        rlki_lines_item(l, RLKI_BOLD, "rank %s", rlki_ranks_text(ranks, 6));
    else if (json_is_integer(json_object_get(d, "rank")))
        rlki_lines_item(l, RLKI_BOLD, "rank %lld", (long long)rlki_integer(d, "rank"));
    rlki_lines_item(l, RLKI_BOLD, "step %lld", (long long)rlki_integer(d, "step"));
    rlki_lines_item(l, RLKI_BOLD, "%s%s%s", rlki_text(d, "phase"), *rlki_raw(d, "pass") ? " " : "",
                    rlki_text(d, "pass"));
    if (rlki_integer(d, "work"))
        rlki_lines_item(l, RLKI_PLAIN, "work %lld", (long long)rlki_integer(d, "work"));
    if (*rlki_raw(d, "sample"))
        rlki_lines_item(l, RLKI_PLAIN, "sample %s", rlki_text(d, "sample"));
    if (json_object_get(any, "event"))
        rlki_lines_item(l, RLKI_PLAIN, "event %lld", (long long)rlki_integer(any, "event"));
    if (json_object_get(d, "root")) /* a DIFF, no event */
        rlki_lines_item(l, root ? RLKI_RED : RLKI_YELLOW, root ? "ROOT" : "ROOT?");
    tensors(l, d);
    rlki_lines_label(l, "");
    rlki_lines_item(l, RLKI_BOLD, "%s", *rlki_raw(d, "module") ? rlki_text(d, "module") : "(root)");
    if (rlki_integer(d, "call"))
        rlki_lines_item(l, RLKI_PLAIN, "call %lld", (long long)rlki_integer(d, "call"));
    rlki_lines_item(l, RLKI_BOLD, "%s", rlki_text(d, "op"));
    if (rlki_integer(d, "occurrence"))
        rlki_lines_item(l, RLKI_PLAIN, "occurrence %lld", (long long)rlki_integer(d, "occurrence"));
    if (json_object_get(d, "role"))
        rlki_lines_item(l, RLKI_PLAIN, "%s %lld%s%s%s", strcmp(rlki_raw(d, "role"), "in") == 0 ? "input" : "output",
                        (long long)rlki_integer(d, "index"), *rlki_raw(d, "name") ? " \"" : "", rlki_text(d, "name"),
                        *rlki_raw(d, "name") ? "\"" : "");
    if (json_is_object(any) && *rlki_raw(any, "dtype"))
        rlki_lines_item(l, RLKI_PLAIN, "%s %s", rlki_text(any, "dtype"),
                        rlki_shape_text(json_object_get(any, "logical_shape")));
}

static void launch(struct rlki_lines *l, const json_t *one)
{
    rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_shortened(rlki_text(one, "kernel"), l->width / 2));
    rlki_lines_item(l, RLKI_PLAIN, "grid %s block %s", rlki_shape_text(json_object_get(one, "grid")),
                    rlki_shape_text(json_object_get(one, "block")));
    if (rlki_integer(one, "smem"))
        rlki_lines_item(l, RLKI_PLAIN, "smem %lld", (long long)rlki_integer(one, "smem"));
}

static void side(struct rlki_lines *l, const char *label, const json_t *s, const json_t *other, bool second)
{
    const json_t *launches = json_object_get(s, "launches"), *theirs = json_object_get(other, "launches");
    size_t n = json_array_size(launches);
    if (json_is_object(s) && !n && !*rlki_raw(s, "digest") && !*rlki_raw(s, "value") && !*rlki_raw(s, "not_digested") &&
        !*rlki_raw(s, "version"))
        return;
    rlki_lines_label(l, label);
    if (!json_is_object(s)) {
        rlki_lines_item(l, RLKI_PLAIN, "absent");
        return;
    }
    if (*rlki_raw(s, "digest"))
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(s, "digest"));
    if (*rlki_raw(s, "value"))
        rlki_lines_item(l, RLKI_PLAIN, "value %s", rlki_text(s, "value"));
    if (*rlki_raw(s, "not_digested"))
        rlki_lines_item(l, RLKI_PLAIN, "not digested (%s)", rlki_text(s, "not_digested"));
    if (*rlki_raw(s, "version"))
        rlki_lines_item(l, RLKI_PLAIN, "label %s", rlki_text(s, "version"));
    if (json_is_object(other) && strcmp(rlki_raw(s, "dtype"), rlki_raw(other, "dtype")) != 0)
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(s, "dtype"));
    if (json_array_size(json_object_get(s, "holders")))
        rlki_lines_item(l, RLKI_PLAIN, "on rank %s", rlki_ranks_text(json_object_get(s, "holders"), 6));
    if (second && n && json_is_object(other) && rlki_same_launches(launches, theirs)) {
        rlki_lines_item(l, RLKI_PLAIN, n == 1 ? "the same kernel, launched alike" : "the same %zu kernels", n);
        return;
    }
    for (size_t i = 0; i < n && i < KERNELS; i++)
        launch(l, json_array_get(launches, i));
    if (n > KERNELS)
        rlki_lines_item(l, RLKI_PLAIN, "and %zu more kernels", n - KERNELS);
}

void rlki_text_sides(struct rlki_lines *l, const json_t *a, const json_t *b)
{
    side(l, "A", a, b, false);
    side(l, "B", b, a, true);
}

/* Distances in classes: a line of text is no picture. */
static void histogram(struct rlki_lines *l, const json_t *h)
{
    static const struct {
        size_t from, to;
        const char *text;
    } classes[] = {{0, 0, "equal in value"}, {1, 1, "1"},      {2, 2, "2-3"},
                   {3, 4, "4-15"},           {5, 8, "16-255"}, {9, 64, "256 and more"}};
    const json_t *counts = json_object_get(h, "counts");
    if (json_array_size(counts) < 3) /* all of them 1 apart: "at most" has said it */
        return;
    rlki_lines_item(l, RLKI_PLAIN, "by %s", strcmp(rlki_raw(h, "unit"), "ulp") == 0 ? "ulp:" : "distance:");
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
        uint64_t n = 0;
        for (size_t k = classes[c].from; k <= classes[c].to && k < json_array_size(counts); k++)
            n += rlki_amount(json_array_get(counts, k));
        if (n)
            rlki_lines_item(l, RLKI_PLAIN, "%s: %s", classes[c].text, rlki_count(n));
    }
}

#define MAP_LINES 4u
#define MAP_COLUMNS 64u

/* "cut" and where: the parts of one side. */
static void cuts(struct rlki_lines *l, const json_t *side, const char *letter)
{
    static const char *const keys[] = {"rows", "cols"}, *const words[] = {"row", "column"};
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(side, keys[k]);
        size_t n = json_array_size(list);
        char text[160] = "", *end = text;
        for (size_t i = 0; i < n && i < 7; i++)
            end += snprintf(end, sizeof text - (size_t)(end - text), "%s%llu", i ? "," : "",
                            (unsigned long long)rlki_amount(json_array_get(list, i)));
        if (n)
            rlki_lines_item(l, RLKI_DIM, "%s cut at %s %s%s", letter, words[k], text, n > 7 ? ",..." : "");
    }
}

/* The map of the JSON in a few lines, the densest character of each cell; nothing where it would be all alike. */
static void map(struct rlki_lines *l, const json_t *m)
{
    const json_t *lines = json_object_get(m, "changed"), *one;
    char cell[MAP_LINES][MAP_COLUMNS + 1];
    size_t rows = json_array_size(lines), cols = json_string_length(json_array_get(lines, 0)), i;
    bool blank = false, full = false;
    if (!rows || !cols || rows > 64 || cols > 96 || rows * cols < 8)
        return;
    unsigned room = l->width > RLKI_LABEL + 8 ? l->width - RLKI_LABEL : 8;
    unsigned high = rows < MAP_LINES ? (unsigned)rows : MAP_LINES,
             wide = cols < MAP_COLUMNS ? (unsigned)cols : MAP_COLUMNS;
    wide = wide < room ? wide : room;
    memset(cell, '.', sizeof cell);
    json_array_foreach(lines, i, one)
    {
        const char *text = json_string_value(one);
        for (size_t c = 0; text && c < cols && text[c]; c++) {
            char *at = &cell[i * high / rows][c * wide / cols];
            blank |= text[c] == '.';
            full |= text[c] != '.';
            if (text[c] >= '1' && text[c] <= '9' && (*at == '.' || text[c] > *at))
                *at = text[c];
        }
    }
    if (!blank || !full)
        return;
    cuts(l, json_object_get(json_object_get(m, "borders"), "a"), "A");
    cuts(l, json_object_get(json_object_get(m, "borders"), "b"), "B");
    for (unsigned r = 0; r < high; r++) {
        cell[r][wide] = '\0';
        rlki_lines_label(l, r ? "" : "map");
        rlki_lines_item(l, RLKI_PLAIN, "%s", cell[r]);
    }
}

void rlki_text_difference(struct rlki_lines *l, const json_t *d)
{
    if (!json_is_object(d))
        return;
    rlki_lines_label(l, "differs");
    if (!json_is_integer(json_object_get(d, "changed"))) {
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(d, "grade"));
        rlki_lines_item(l, RLKI_PLAIN, "%s elements; %s", rlki_count_of(d, "elements"),
                        *rlki_raw(d, "unmeasured") ? rlki_text(d, "unmeasured") : "their bytes were not kept");
        return;
    }
    uint64_t changed = rlki_amount(json_object_get(d, "changed")), all = rlki_amount(json_object_get(d, "elements"));
    if (strcmp(rlki_raw(d, "grade"), "different") != 0)
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(d, "grade"));
    rlki_lines_item(l, RLKI_BOLD, "%s of %s elements (%.3g %%)", rlki_count(changed), rlki_count(all),
                    all ? 100.0 * (double)changed / (double)all : 0);
    if (*rlki_raw(d, "pattern"))
        rlki_lines_item(l, RLKI_BOLD, "%s", rlki_text(d, "pattern"));
    if (json_is_integer(json_object_get(d, "max_ulp")))
        rlki_lines_item(l, RLKI_PLAIN, "at most %s ulp", rlki_count_of(d, "max_ulp"));
    if (json_is_real(json_object_get(d, "max_abs")))
        rlki_lines_item(l, RLKI_PLAIN, "at most %.6g", json_real_value(json_object_get(d, "max_abs")));
    if (rlki_integer(d, "nan"))
        rlki_lines_item(l, RLKI_PLAIN, "%s NaN on a side",
                        rlki_integer(d, "nan") == rlki_integer(d, "changed") ? "all" : rlki_count_of(d, "nan"));
    rlki_lines_item(l, RLKI_PLAIN, "first at %s", rlki_shape_text(json_object_get(d, "first_index")));
    histogram(l, json_object_get(d, "histogram"));
    if (json_is_object(json_object_get(d, "parts")))
        rlki_lines_item(l, RLKI_PLAIN, "put together from %s parts in A, %s in B",
                        rlki_count_of(json_object_get(d, "parts"), "a"),
                        rlki_count_of(json_object_get(d, "parts"), "b"));
    if (strcmp(rlki_raw(d, "pattern"), "uniform") != 0 && l->width >= 80) /* "all over" has been said */
        map(l, json_object_get(d, "map"));
}

void rlki_text_mechanism(struct rlki_lines *l, const json_t *m)
{
    const char *sure = rlki_raw(m, "confidence");
    const json_t *one;
    size_t i, n = json_array_size(json_object_get(m, "excluded"));
    rlki_lines_label(l, "cause");
    rlki_lines_item(l, strcmp(sure, "high") == 0 ? RLKI_RED : RLKI_BOLD, "%s", rlki_text(m, "class"));
    rlki_lines_item(l, RLKI_PLAIN, "confidence %s", rlki_esc(sure));
    json_array_foreach(json_object_get(m, "also"), i, one)
        rlki_lines_item(l, RLKI_PLAIN, "%s%s", i ? "" : "also possible: ", rlki_esc(json_string_value(one)));
    json_array_foreach(json_object_get(m, "evidence"), i, one) if (i < EVIDENCE)
        rlki_lines_sentence(l, "+ ", rlki_esc(json_string_value(one)));
    if (json_array_size(json_object_get(m, "evidence")) > EVIDENCE)
        rlki_lines_item(l, RLKI_DIM, "and %zu more (--json)",
                        json_array_size(json_object_get(m, "evidence")) - EVIDENCE);
    json_array_foreach(json_object_get(m, "excluded"), i, one)
    {
        char *text = NULL;
        if (i < EXCLUDED && asprintf(&text, "not %s: %s", rlki_text(one, "class"), rlki_text(one, "why")) > 0)
            rlki_lines_sentence(l, "- ", text);
        free(text);
    }
    if (n > EXCLUDED)
        rlki_lines_item(l, RLKI_DIM, "and %zu more excluded (--json)", n - EXCLUDED);
    if (*rlki_raw(m, "next")) {
        rlki_lines_label(l, "try");
        rlki_lines_sentence(l, "", rlki_text(m, "next"));
    }
}

static void others(struct rlki_lines *l, const json_t *result)
{
    const json_t *roots = json_object_get(result, "roots"), *one;
    json_t *own, *none;
    size_t i, n = json_array_size(roots);
    rlki_lines_label(l, "roots");
    rlki_lines_item(l, RLKI_PLAIN, "%s; %s differences downstream", rlki_count(n), rlki_count_of(result, "downstream"));
    if (rlki_integer(result, "masked"))
        rlki_lines_item(l, RLKI_PLAIN, "%s of them not repeatable themselves", rlki_count_of(result, "masked"));
    json_array_foreach(roots, i, one) if (i && i <= ROOTS)
    {
        rlki_lines_label(l, i == 1 ? "also" : "");
        rlki_lines_item(l, RLKI_PLAIN, "step %lld %s %s", (long long)rlki_integer(one, "step"), rlki_text(one, "phase"),
                        rlki_text(one, "pass"));
        if (rlki_integer(one, "work"))
            rlki_lines_item(l, RLKI_PLAIN, "work %lld", (long long)rlki_integer(one, "work"));
        rlki_lines_item(l, RLKI_PLAIN, "%s", *rlki_raw(one, "module") ? rlki_text(one, "module") : "(root)");
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(one, "op"));
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(json_object_get(one, "mechanism"), "class"));
    }
    if (n > ROOTS + 1)
        rlki_lines_item(l, RLKI_DIM, "and %zu more", n - ROOTS - 1);
    one = json_object_get(result, "acceptance");
    if (json_is_object(one)) {
        rlki_lines_label(l, "accepted");
        rlki_lines_item(l, RLKI_PLAIN, "%s of %s roots", rlki_count_of(one, "accepted"), rlki_count(n));
        rlki_lines_item(l, RLKI_PLAIN, "by %s", rlki_text(one, "file"));
    }
    rlki_split_ranks(result, &own, &none);
    if (json_array_size(json_object_get(result, "per_rank")) > 1) {
        rlki_lines_label(l, "ranks");
        if (json_array_size(own))
            rlki_lines_item(l, RLKI_PLAIN, "a root on %s", rlki_ranks_text(own, 8));
        if (json_array_size(none))
            rlki_lines_item(l, RLKI_PLAIN, "none of their own on %s", rlki_ranks_text(none, 8));
    }
    json_decref(own);
    json_decref(none);
}

static void coverage(struct rlki_lines *l, const json_t *result)
{
    const json_t *all = json_object_get(result, "coverage"), *value;
    const json_t *reasons = json_object_get(json_object_get(result, "scope"), "reasons");
    const char *key;
    bool same = json_equal(json_object_get(all, "a"), json_object_get(all, "b"));
    unsigned n = 0;
    if (json_object_size(reasons)) {
        rlki_lines_label(l, "not");
        json_object_foreach((json_t *)(uintptr_t)reasons, key, value) if (n++ < LISTED)
            rlki_lines_item(l, RLKI_PLAIN, "%s %s", rlki_esc(key), rlki_count(rlki_amount(value)));
        if (n > LISTED)
            rlki_lines_item(l, RLKI_DIM, "and %u more reasons", n - LISTED);
    }
    for (int s = 0; s < (same ? 1 : 2); s++) {
        const json_t *c = json_object_get(all, s ? "b" : "a");
        uint64_t left = 0;
        json_object_foreach(json_object_get(c, "not_digested"), key, value) left += rlki_amount(value);
        rlki_lines_label(l, s ? "" : "coverage");
        rlki_lines_item(l, RLKI_PLAIN, "%s", same ? "A and B:" : s ? "B:" : "A:");
        rlki_lines_item(l, RLKI_PLAIN, "%s tensors", rlki_count_of(c, "tensors"));
        rlki_lines_item(l, RLKI_PLAIN, "%s by reference", rlki_count_of(c, "by_reference"));
        rlki_lines_item(l, left ? RLKI_YELLOW : RLKI_PLAIN, "%s not digested", rlki_count(left));
        rlki_lines_item(l, RLKI_PLAIN, "%s of %s launches", rlki_count_of(c, "launches_recorded"),
                        rlki_count_of(c, "launches_seen"));
        rlki_lines_item(l, rlki_integer(c, "dropped") ? RLKI_RED : RLKI_PLAIN, "%s dropped",
                        rlki_count_of(c, "dropped"));
    }
}

static void remarks(struct rlki_lines *l, const json_t *result)
{
    const json_t *list = json_object_get(result, "environment"), *one;
    size_t i;
    json_array_foreach(list, i, one) if (i < LISTED)
    {
        const char *a = rlki_esc(rlki_value_text(json_object_get(one, "a")));
        const char *b = rlki_esc(rlki_value_text(json_object_get(one, "b")));
        unsigned room = (l->width - RLKI_LABEL) / 3;
        rlki_lines_label(l, i ? "" : "differs in");
        rlki_lines_item(l, RLKI_PLAIN, "%s", rlki_text(one, "key"));
        rlki_lines_item(l, RLKI_PLAIN, "A %s", rlki_shortened(a, room));
        rlki_lines_item(l, RLKI_PLAIN, "B %s", rlki_shortened(b, room));
    }
    if (json_array_size(list) > LISTED)
        rlki_lines_item(l, RLKI_DIM, "and %zu more", json_array_size(list) - LISTED);
    list = json_object_get(result, "notes");
    if (json_array_size(list))
        rlki_lines_label(l, "notes");
    json_array_foreach(list, i, one) if (i < LISTED) rlki_lines_sentence(l, "", rlki_esc(json_string_value(one)));
    if (json_array_size(list) > LISTED)
        rlki_lines_item(l, RLKI_DIM, "and %zu more (--json)", json_array_size(list) - LISTED);
}

void rlki_audit_print_first_diff(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    const json_t *first = json_object_get(result, "first");
    struct rlki_lines l;
    char *next = rlki_next_command(result, with);
    rlki_lines_begin(&l, to);
    verdict(&l, result);
    if (json_is_object(first)) {
        rlki_text_where(&l, first);
        rlki_text_sides(&l, json_object_get(first, "a"), json_object_get(first, "b"));
        rlki_text_difference(&l, json_object_get(first, "difference"));
        rlki_lines_label(&l, "why");
        rlki_lines_sentence(&l, "", rlki_why_text(first));
        if (*rlki_raw(first, "root_reason"))
            rlki_lines_sentence(&l, "an input cannot be compared: ", rlki_text(first, "root_reason"));
        rlki_text_mechanism(&l, json_object_get(first, "mechanism"));
        others(&l, result);
    }
    coverage(&l, result);
    remarks(&l, result);
    rlki_lines_end(&l);
    if (next) /* whole and on one line: it is to be copied */
        fprintf(to, "next: %s\n", next);
    free(next);
}
