/* The rest of a page: ranks, the tree of all differences, environment, coverage, notes. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_page.h"

#include <stdlib.h>
#include <string.h>

#define GROUPS 24u
#define KEYS 120u
#define MOVES 50u

/* ---- ranks ---- */

static bool same_place(const json_t *x, const json_t *y)
{
    static const char *const keys[] = {"step", "phase", "work",       "sample", "pass", "module",
                                       "call", "op",    "occurrence", "role",   "index"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *a = json_object_get(x, keys[i]), *b = json_object_get(y, keys[i]);
        if (a != b && !(a && b && json_equal(a, b)))
            return false;
    }
    return true;
}

static void put_where(struct rlki_page *page, const json_t *d)
{
    rlki_page_form(page, "step %lld ", (long long)rlki_integer(d, "step"));
    rlki_page_text(page, rlki_raw(d, "phase"));
    rlki_page_raw(page, " ");
    rlki_page_text(page, rlki_raw(d, "pass"));
    rlki_page_raw(page, " ");
    rlki_page_code(page, *rlki_raw(d, "module") ? rlki_raw(d, "module") : "(root)");
    rlki_page_raw(page, " ");
    rlki_page_code(page, rlki_raw(d, "op"));
}

static void put_group(struct rlki_page *page, const json_t *ranks, const json_t *first)
{
    rlki_page_raw(page, "<tr><td>");
    rlki_page_text(page, rlki_ranks_text(ranks, 16));
    rlki_page_form(page, "</td><td class=\"n\">%zu</td><td>", json_array_size(ranks));
    if (first) {
        put_where(page, first);
        rlki_page_raw(page, "</td><td>");
        rlki_page_text(page, rlki_raw(json_object_get(first, "mechanism"), "class"));
    } else {
        rlki_page_raw(page, "no root of their own</td><td>");
    }
    rlki_page_raw(page, "</td></tr>\n");
}

/* Ranks whose first root is the same one stand in one row. */
void rlki_page_ranks(struct rlki_page *page, const json_t *result)
{
    const json_t *list = json_object_get(result, "per_rank"), *one;
    const json_t *first[GROUPS];
    json_t *group[GROUPS], *none = json_array();
    size_t n = 0, i, k, beyond = 0;
    if (json_array_size(list) < 2)
        goto out;
    json_array_foreach(list, i, one)
    {
        const json_t *d = json_object_get(one, "first");
        if (!json_is_object(d)) {
            json_array_append(none, json_object_get(one, "rank"));
            continue;
        }
        for (k = 0; k < n && !same_place(first[k], d); k++)
            ;
        if (k == GROUPS) {
            beyond++;
            continue;
        }
        if (k == n) {
            first[n] = d;
            group[n++] = json_array();
        }
        json_array_append(group[k], json_object_get(one, "rank"));
    }
    rlki_page_section(page, "ranks", "Ranks");
    rlki_page_raw(
        page, "<div class=\"scroll\"><table><thead><tr><th>ranks</th><th></th><th>first root on them</th><th>mechanism"
              "</th></tr></thead><tbody>\n");
    for (k = 0; k < n; k++)
        put_group(page, group[k], first[k]);
    if (json_array_size(none))
        put_group(page, none, NULL);
    rlki_page_raw(page, "</tbody></table></div>\n");
    if (beyond)
        rlki_page_form(page, "<p class=\"cut\">%zu more ranks have other first roots.</p>\n", beyond);
    rlki_page_section_end(page);
out:
    for (k = 0; k < n; k++)
        json_decref(group[k]);
    json_decref(none);
}

/* ---- the tree: step, phase, layer, root ---- */

struct tree {
    const json_t *roots, *cells, *phases, *layers;
    bool *told; /* roots already written */
};

static const char *name_at(const json_t *list, const json_t *index)
{
    json_int_t i = json_integer_value(index);
    const char *name = i < 0 ? NULL : json_string_value(json_array_get(list, (size_t)i));
    return name ? name : "";
}

static bool in_layer(const char *module, const char *layer)
{
    size_t n = strlen(layer);
    return n ? strncmp(module, layer, n) == 0 && (!module[n] || module[n] == '.') : !*module;
}

/* Known drift, and who answers for it. */
static void put_ruling(struct rlki_page *page, const json_t *acceptance)
{
    rlki_page_form(page, " <span class=\"tag %s\">",
                   strcmp(rlki_raw(acceptance, "ruling"), "accepted") == 0 ? "good" : "warn");
    rlki_page_text(page, rlki_raw(acceptance, "ruling"));
    rlki_page_raw(page, ": ");
    rlki_page_text(page, rlki_raw(acceptance, "reason"));
    rlki_page_raw(page, " (");
    rlki_page_text(page, rlki_raw(acceptance, "owner"));
    rlki_page_raw(page, ", until ");
    rlki_page_text(page, rlki_raw(acceptance, "expires"));
    rlki_page_raw(page, ")</span>");
}

static void put_root(struct rlki_page *page, const json_t *d)
{
    const json_t *difference = json_object_get(d, "difference"), *m = json_object_get(d, "mechanism");
    rlki_page_raw(page, "<details class=\"root\"><summary>");
    rlki_page_code(page, *rlki_raw(d, "module") ? rlki_raw(d, "module") : "(root)");
    rlki_page_raw(page, " ");
    rlki_page_code(page, rlki_raw(d, "op"));
    rlki_page_form(page, " %s %lld ", strcmp(rlki_raw(d, "role"), "in") == 0 ? "in" : "out",
                   (long long)rlki_integer(d, "index"));
    if (*rlki_raw(d, "name"))
        rlki_page_code(page, rlki_raw(d, "name"));
    rlki_page_form(page, " <span class=\"tag %s\">%s</span> <span class=\"tag\">",
                   json_is_true(json_object_get(d, "root")) ? "bad" : "warn",
                   json_is_true(json_object_get(d, "root")) ? "root" : "root?");
    rlki_page_text(page, rlki_raw(m, "class"));
    rlki_page_raw(page, "</span>");
    if (*rlki_raw(json_object_get(d, "acceptance"), "ruling"))
        put_ruling(page, json_object_get(d, "acceptance"));
    rlki_page_raw(page, "</summary>\n<p>");
    rlki_page_text(page, rlki_raw(d, "pass"));
    rlki_page_form(page, " work %lld, call %lld, occurrence %lld", (long long)rlki_integer(d, "work"),
                   (long long)rlki_integer(d, "call"), (long long)rlki_integer(d, "occurrence"));
    if (json_array_size(json_object_get(d, "ranks"))) {
        rlki_page_raw(page, ", ranks ");
        rlki_page_text(page, rlki_ranks_text(json_object_get(d, "ranks"), 12));
    }
    rlki_page_raw(page, ". ");
    rlki_page_why(page, d);
    if (json_is_integer(json_object_get(difference, "changed")))
        rlki_page_form(page, " %s of %s elements differ.", rlki_count_of(difference, "changed"),
                       rlki_count_of(difference, "elements"));
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(d, s ? "b" : "a");
        rlki_page_raw(page, "<br>");
        rlki_page_side(page, s);
        if (!json_is_object(side)) {
            rlki_page_raw(page, "absent");
            continue;
        }
        rlki_page_form(page, "event %lld ", (long long)rlki_integer(side, "event"));
        rlki_page_text(page, rlki_raw(side, "dtype"));
        if (json_is_array(json_object_get(side, "logical_shape")))
            rlki_page_text(page, rlki_shape_text(json_object_get(side, "logical_shape")));
        rlki_page_raw(page, " ");
        rlki_page_code(page, *rlki_raw(side, "digest") ? rlki_raw(side, "digest") : rlki_raw(side, "not_digested"));
        if (json_array_size(json_object_get(side, "launches"))) {
            rlki_page_raw(page, " ");
            rlki_page_code(page, rlki_raw(json_array_get(json_object_get(side, "launches"), 0), "kernel"));
        }
    }
    rlki_page_raw(page, "</p></details>\n");
}

static void put_counts(struct rlki_page *page, uint64_t roots, uint64_t down)
{
    if (roots)
        rlki_page_form(page, " <span class=\"tag bad\">%s root%s</span>", rlki_count(roots), roots == 1 ? "" : "s");
    if (down)
        rlki_page_form(page, " <span class=\"tag warn\">%s downstream</span>", rlki_count(down));
}

static void put_layer(struct rlki_page *page, struct tree *t, const json_t *cell)
{
    const char *layer = name_at(t->layers, json_array_get(cell, 2)),
               *phase = name_at(t->phases, json_array_get(cell, 1));
    uint64_t roots = rlki_amount(json_array_get(cell, 3));
    const json_t *d;
    size_t i;
    rlki_page_raw(page, roots ? "<details open><summary>" : "<div class=\"leaf\">");
    rlki_page_text(page, phase);
    rlki_page_raw(page, " ");
    rlki_page_code(page, *layer ? layer : "(root)");
    put_counts(page, roots, rlki_amount(json_array_get(cell, 4)));
    if (!roots) {
        rlki_page_raw(page, "</div>\n");
        return;
    }
    rlki_page_raw(page, "</summary>\n");
    json_array_foreach(t->roots, i, d)
    {
        if (t->told[i] || rlki_integer(d, "step") != json_integer_value(json_array_get(cell, 0)) ||
            strcmp(rlki_raw(d, "phase"), phase) != 0 || !in_layer(rlki_raw(d, "module"), layer))
            continue;
        t->told[i] = true;
        if (rlki_page_room(page))
            put_root(page, d);
    }
    rlki_page_raw(page, "</details>\n");
}

static void put_step(struct rlki_page *page, struct tree *t, size_t from, size_t end)
{
    uint64_t roots = 0, down = 0;
    for (size_t i = from; i < end; i++) {
        roots += rlki_amount(json_array_get(json_array_get(t->cells, i), 3));
        down += rlki_amount(json_array_get(json_array_get(t->cells, i), 4));
    }
    rlki_page_form(page, "<details%s><summary>step %lld", from ? "" : " open",
                   (long long)json_integer_value(json_array_get(json_array_get(t->cells, from), 0)));
    put_counts(page, roots, down);
    rlki_page_raw(page, "</summary>\n");
    for (size_t i = from; i < end; i++)
        if (rlki_page_room(page))
            put_layer(page, t, json_array_get(t->cells, i));
    rlki_page_raw(page, "</details>\n");
}

void rlki_page_tree(struct rlki_page *page, const json_t *result)
{
    const json_t *where = json_object_get(result, "where");
    struct tree t = {.roots = json_object_get(result, "roots"),
                     .cells = json_object_get(where, "cells"),
                     .phases = json_object_get(where, "phases"),
                     .layers = json_object_get(where, "layers")};
    size_t n = json_array_size(t.cells), roots = json_array_size(t.roots);
    t.told = calloc(roots + 1, sizeof *t.told);
    if (!t.told)
        return;
    rlki_page_section(page, "tree", "All differences");
    for (size_t i = 0, end; i < n; i = end) {
        json_int_t step = json_integer_value(json_array_get(json_array_get(t.cells, i), 0));
        for (end = i + 1; end < n && json_integer_value(json_array_get(json_array_get(t.cells, end), 0)) == step;)
            end++;
        if (rlki_page_room(page))
            put_step(page, &t, i, end);
    }
    bool heading = false;
    for (size_t i = 0; i < roots; i++) {
        if (t.told[i] || !rlki_page_room(page))
            continue;
        if (!heading)
            rlki_page_raw(page, n ? "<h3>Further roots</h3>\n" : "");
        heading = true;
        put_root(page, json_array_get(t.roots, i));
    }
    rlki_page_section_end(page);
    free(t.told);
}

/* ---- environment ---- */

void rlki_page_environment(struct rlki_page *page, const json_t *result)
{
    const json_t *list = json_object_get(result, "environment"), *one;
    size_t i;
    rlki_page_section(page, "environment", "Environment");
    if (!json_array_size(list))
        rlki_page_raw(
            page, "<p>Nothing that was written down about the two runs differs: command, variables, libraries, driver, "
                  "GPUs, topology, layout.</p>\n");
    else
        rlki_page_raw(page,
                      "<div class=\"scroll\"><table><thead><tr><th>what</th><th><b class=\"side a\">A</b></th><th><b "
                      "class=\"side b\">B</b></th></tr></thead><tbody>\n");
    json_array_foreach(list, i, one)
    {
        if (i >= KEYS || !rlki_page_room(page))
            break;
        rlki_page_raw(page, "<tr><td>");
        rlki_page_code(page, rlki_raw(one, "key"));
        for (int s = 0; s < 2; s++) {
            rlki_page_raw(page, "</td><td>");
            rlki_page_code(page, rlki_value_text(json_object_get(one, s ? "b" : "a")));
        }
        rlki_page_raw(page, "</td></tr>\n");
    }
    if (json_array_size(list))
        rlki_page_raw(page, "</tbody></table></div>\n");
    if (json_array_size(list) > KEYS)
        rlki_page_form(page, "<p class=\"cut\">and %zu more differences</p>\n", json_array_size(list) - KEYS);
    rlki_page_section_end(page);
}

/* ---- coverage ---- */

static uint64_t sum_of(const json_t *reasons)
{
    const char *key;
    const json_t *value;
    uint64_t sum = 0;
    json_object_foreach((json_t *)(uintptr_t)reasons, key, value) sum += rlki_amount(value);
    return sum;
}

static void put_cover(struct rlki_page *page, const char *label, const json_t *a, const json_t *b, const char *key)
{
    rlki_page_form(page, "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n", label,
                   rlki_count_of(a, key), rlki_count_of(b, key));
}

static void put_reasons(struct rlki_page *page, const char *label, const json_t *reasons)
{
    const char *key;
    const json_t *value;
    unsigned n = 0;
    if (!json_object_size(reasons))
        return;
    rlki_page_form(page, "<p>%s: ", label);
    json_object_foreach((json_t *)(uintptr_t)reasons, key, value) if (n++ < 32)
    {
        rlki_page_raw(page, "<span class=\"tag warn\">");
        rlki_page_text(page, key);
        rlki_page_form(page, " %s</span> ", rlki_count(rlki_amount(value)));
    }
    rlki_page_raw(page, "</p>\n");
}

void rlki_page_coverage(struct rlki_page *page, const json_t *result)
{
    const json_t *all = json_object_get(result, "coverage"), *a = json_object_get(all, "a"),
                 *b = json_object_get(all, "b");
    const json_t *scope = json_object_get(result, "scope");
    uint64_t compared = rlki_amount(json_object_get(scope, "compared")),
             skipped = rlki_amount(json_object_get(scope, "skipped"));
    rlki_page_section(page, "coverage", "Coverage");
    rlki_page_form(page, "<p>%s tensors were compared, %s could not be.", rlki_count(compared), rlki_count(skipped));
    if (compared + skipped)
        rlki_page_form(
            page, " <progress max=\"1\" value=\"%.4f\" aria-label=\"share that was compared\"></progress> %.4g %%",
            (double)compared / (double)(compared + skipped), 100.0 * (double)compared / (double)(compared + skipped));
    rlki_page_raw(page, "</p>\n");
    put_reasons(page, "Not compared", json_object_get(scope, "reasons"));
    rlki_page_raw(page,
                  "<div class=\"scroll\"><table><thead><tr><th></th><th class=\"n\"><b class=\"side a\">A</b></th><th "
                  "class=\"n\"><b class=\"side b\">B</b></th></tr></thead><tbody>\n");
    put_cover(page, "events", a, b, "events");
    put_cover(page, "tensors", a, b, "tensors");
    put_cover(page, "of them by reference", a, b, "by_reference");
    rlki_page_form(page, "<tr><td>not digested</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   rlki_count(sum_of(json_object_get(a, "not_digested"))),
                   rlki_count(sum_of(json_object_get(b, "not_digested"))));
    put_cover(page, "of local placement", a, b, "local_placement");
    put_cover(page, "kernel launches seen", a, b, "launches_seen");
    put_cover(page, "kernel launches recorded", a, b, "launches_recorded");
    put_cover(page, "events dropped", a, b, "dropped");
    rlki_page_form(page, "<tr><td>recorder waited</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   rlki_seconds((double)rlki_amount(json_object_get(a, "stall_ns")) * 1e-9),
                   rlki_seconds((double)rlki_amount(json_object_get(b, "stall_ns")) * 1e-9));
    rlki_page_raw(page, "</tbody></table></div>\n");
    put_reasons(page, "Not digested in A", json_object_get(a, "not_digested"));
    put_reasons(page, "Not digested in B", json_object_get(b, "not_digested"));
    rlki_page_section_end(page);
}

/* ---- notes and alignment ---- */

static void put_events(struct rlki_page *page, const char *label, const json_t *alignment, const char *key,
                       const char *total)
{
    const json_t *list = json_object_get(alignment, key), *one;
    size_t i;
    if (!json_array_size(list))
        return;
    rlki_page_form(page, "<details><summary>%s: %s</summary>\n<ol>\n", label, rlki_count_of(alignment, total));
    json_array_foreach(list, i, one)
    {
        if (i >= MOVES || !rlki_page_room(page))
            break;
        rlki_page_raw(page, "<li>");
        put_where(page, json_is_object(json_object_get(one, "a")) ? json_object_get(one, "a") : one);
        rlki_page_raw(page, "</li>\n");
    }
    rlki_page_raw(page, "</ol>\n");
    if (rlki_amount(json_object_get(alignment, total)) > MOVES)
        rlki_page_form(page, "<p class=\"cut\">the first %u of them</p>\n", MOVES);
    rlki_page_raw(page, "</details>\n");
}

void rlki_page_notes(struct rlki_page *page, const json_t *result)
{
    const json_t *alignment = json_object_get(result, "alignment"), *notes = json_object_get(result, "notes"), *one;
    size_t i;
    bool any = json_array_size(json_object_get(alignment, "inserted")) +
               json_array_size(json_object_get(alignment, "deleted")) +
               json_array_size(json_object_get(alignment, "moved"));
    if (!any && !json_array_size(notes))
        return;
    rlki_page_section(page, "notes", "Notes");
    if (json_array_size(notes))
        rlki_page_raw(page, "<ul>\n");
    json_array_foreach(notes, i, one)
    {
        rlki_page_raw(page, "<li>");
        rlki_page_text(page, json_string_value(one));
        rlki_page_raw(page, "</li>\n");
    }
    if (json_array_size(notes))
        rlki_page_raw(page, "</ul>\n");
    put_events(page, "Events only in B", alignment, "inserted", "inserted_total");
    put_events(page, "Events only in A", alignment, "deleted", "deleted_total");
    put_events(page, "Events that stand elsewhere", alignment, "moved", "moved_total");
    rlki_page_section_end(page);
}
