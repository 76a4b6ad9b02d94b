/* The first difference: its tensors and kernels on both sides, what differs inside, why. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_page.h"

#include <stdlib.h>
#include <string.h>

#define KERNELS 24u
#define TENSORS 48u
#define SENTENCES 40u

static void put_field(struct rlki_page *page, const char *label, const char *value)
{
    if (!*value)
        return;
    rlki_page_form(page, "<div><dt>%s</dt><dd>", label);
    rlki_page_code(page, value);
    rlki_page_raw(page, "</dd></div>\n");
}

static void put_number(struct rlki_page *page, const char *label, const json_t *object, const char *key)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)rlki_integer(object, key));
    if (rlki_integer(object, key))
        put_field(page, label, number);
}

static void put_place(struct rlki_page *page, const json_t *d)
{
    char step[24];
    snprintf(step, sizeof step, "%lld", (long long)rlki_integer(d, "step"));
    rlki_page_raw(page, "<dl class=\"facts\">\n");
    put_field(page, "module", *rlki_raw(d, "module") ? rlki_raw(d, "module") : "(root)");
    put_field(page, "operator", rlki_raw(d, "op"));
    put_field(page, "step", step);
    put_field(page, "phase", rlki_raw(d, "phase"));
    put_field(page, "pass", rlki_raw(d, "pass"));
    if (json_array_size(json_object_get(d, "ranks")))
        put_field(page, "ranks", rlki_ranks_text(json_object_get(d, "ranks"), 12));
    put_number(page, "work", d, "work");
    put_number(page, "call", d, "call");
    put_number(page, "occurrence", d, "occurrence");
    put_field(page, "sample", rlki_raw(d, "sample"));
    put_field(page, "kind", rlki_raw(d, "kind"));
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(d, s ? "b" : "a");
        char event[24];
        snprintf(event, sizeof event, "%lld", (long long)rlki_integer(side, "event"));
        put_field(page, s ? "event of B" : "event of A", json_is_object(side) ? event : "absent");
        if (json_array_size(json_object_get(side, "holders")))
            put_field(page, s ? "held in B by ranks" : "held in A by ranks",
                      rlki_ranks_text(json_object_get(side, "holders"), 12));
    }
    rlki_page_raw(page, "</dl>\n");
}

static void put_digests(struct rlki_page *page, const char *a, const char *b)
{
    if (strcmp(a, b) == 0) {
        rlki_page_code(page, *a ? a : "-");
        return;
    }
    rlki_page_side(page, 0);
    rlki_page_code(page, *a ? a : "-");
    rlki_page_raw(page, "<br>");
    rlki_page_side(page, 1);
    rlki_page_code(page, *b ? b : "-");
}

static void put_tensor(struct rlki_page *page, const json_t *t)
{
    const json_t *producer = json_object_get(t, "producer");
    const char *status = rlki_raw(t, "status");
    bool equal = strcmp(status, "equal") == 0;
    rlki_page_form(page, "<tr%s><td>%s %lld</td><td>", equal ? "" : " class=\"hit\"",
                   strcmp(rlki_raw(t, "role"), "in") == 0 ? "in" : "out", (long long)rlki_integer(t, "index"));
    rlki_page_code(page, rlki_raw(t, "name"));
    rlki_page_raw(page, "</td><td>");
    rlki_page_text(page, rlki_raw(t, "dtype"));
    rlki_page_raw(page, " ");
    rlki_page_text(page, rlki_shape_text(json_object_get(t, "shape")));
    rlki_page_form(page, "</td><td><span class=\"tag %s\">", equal ? "good" : "bad");
    rlki_page_text(page, status);
    rlki_page_raw(page, "</span></td><td>");
    put_digests(page, rlki_raw(t, "a"), rlki_raw(t, "b"));
    rlki_page_raw(page, "</td><td>");
    if (json_is_object(producer)) {
        rlki_page_form(page, "event %lld ", (long long)rlki_integer(producer, "event"));
        rlki_page_code(page, rlki_raw(producer, "module"));
        rlki_page_raw(page, " ");
        rlki_page_code(page, rlki_raw(producer, "op"));
    }
    rlki_page_raw(page, "</td></tr>\n");
}

static void put_tensors(struct rlki_page *page, const json_t *first)
{
    const json_t *list = json_object_get(first, "tensors"), *one;
    size_t i;
    rlki_page_raw(page,
                  "<h3>Its tensors</h3>\n<div class=\"scroll\"><table><thead><tr><th></th><th>name</th><th>type</th>"
                  "<th></th><th>digest</th><th>made by</th></tr></thead><tbody>\n");
    json_array_foreach(list, i, one) if (i < TENSORS) put_tensor(page, one);
    rlki_page_raw(page, "</tbody></table></div>\n");
    if (json_array_size(list) > TENSORS)
        rlki_page_form(page, "<p class=\"cut\">and %zu more tensors</p>\n", json_array_size(list) - TENSORS);
}

/* Without the list of tensors (across layouts, or one side alone): the tensor on either side. */
static void put_sides(struct rlki_page *page, const json_t *first)
{
    rlki_page_raw(page, "<h3>The tensor</h3>\n<div class=\"scroll\"><table><tbody>\n");
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(first, s ? "b" : "a");
        rlki_page_raw(page, "<tr><td>");
        rlki_page_side(page, s);
        rlki_page_raw(page, "</td><td>");
        if (!json_is_object(side)) {
            rlki_page_raw(page, "absent</td></tr>\n");
            continue;
        }
        rlki_page_text(page, rlki_raw(side, "dtype"));
        rlki_page_raw(page, " ");
        if (json_is_array(json_object_get(side, "logical_shape")))
            rlki_page_text(page, rlki_shape_text(json_object_get(side, "logical_shape")));
        rlki_page_raw(page, "</td><td>");
        rlki_page_code(page, *rlki_raw(side, "digest")         ? rlki_raw(side, "digest")
                             : *rlki_raw(side, "value")        ? rlki_raw(side, "value")
                             : *rlki_raw(side, "not_digested") ? rlki_raw(side, "not_digested")
                                                               : "-");
        if (*rlki_raw(side, "version")) {
            rlki_page_raw(page, " label ");
            rlki_page_code(page, rlki_raw(side, "version"));
        }
        rlki_page_raw(page, "</td></tr>\n");
    }
    rlki_page_raw(page, "</tbody></table></div>\n");
}

/* ---- kernels ---- */

static void put_one_of(struct rlki_page *page, const json_t *launch, const json_t *other, const char *key)
{
    const json_t *value = json_object_get(launch, key), *theirs = json_object_get(other, key);
    bool marked = json_is_object(other) && !(value == theirs || (value && theirs && json_equal(value, theirs)));
    rlki_page_raw(page, marked ? "<td><mark>" : "<td>");
    if (json_is_array(value))
        rlki_page_text(page, rlki_shape_text(value));
    else if (value && !json_is_null(value) && !(json_is_string(value) && !json_string_length(value)))
        rlki_page_code(page, rlki_value_text(value));
    rlki_page_raw(page, marked ? "</mark></td>" : "</td>");
}

static void put_launch(struct rlki_page *page, size_t i, int side, const json_t *launch, const json_t *other)
{
    static const char *const keys[] = {"kernel", "grid", "block", "smem", "config", "image"};
    rlki_page_form(page, "<tr><td class=\"n\">%zu</td><td>", i + 1);
    if (side < 0) {
        rlki_page_raw(page, "<b class=\"side a\">A</b> <b class=\"side b\">B</b>");
    } else {
        rlki_page_side(page, side);
    }
    rlki_page_raw(page, "</td>");
    if (!json_is_object(launch))
        rlki_page_raw(page, "<td colspan=\"6\"><mark>no such launch</mark></td>");
    for (size_t k = 0; json_is_object(launch) && k < sizeof keys / sizeof *keys; k++)
        put_one_of(page, launch, side < 0 ? NULL : other, keys[k]);
    rlki_page_raw(page, "</tr>\n");
}

static void put_kernels(struct rlki_page *page, const json_t *first)
{
    const json_t *a = json_object_get(json_object_get(first, "a"), "launches");
    const json_t *b = json_object_get(json_object_get(first, "b"), "launches");
    size_t na = json_array_size(a), nb = json_array_size(b), n = na > nb ? na : nb;
    rlki_page_raw(page, "<h3>Its kernels</h3>\n");
    if (!n) {
        rlki_page_raw(
            page, "<p class=\"dim\">No kernel launch was recorded for this event: it ran on the CPU, or launches were "
                  "not recorded.</p>\n");
        return;
    }
    rlki_page_raw(
        page, "<div class=\"scroll\"><table><thead><tr><th>#</th><th></th><th>kernel</th><th>grid</th><th>block</th>"
              "<th>smem</th><th>config</th><th>image</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < n && i < KERNELS; i++) {
        const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
        if (x && y && rlki_same_launch(x, y)) {
            put_launch(page, i, -1, x, y);
            continue;
        }
        put_launch(page, i, 0, x, y ? y : NULL);
        put_launch(page, i, 1, y, x ? x : NULL);
    }
    rlki_page_raw(page, "</tbody></table></div>\n");
    if (n > KERNELS)
        rlki_page_form(page, "<p class=\"cut\">and %zu more launches</p>\n", n - KERNELS);
    if (rlki_same_launches(a, b))
        rlki_page_raw(page, "<p>The same kernels on both sides, launched alike.</p>\n");
}

void rlki_page_root(struct rlki_page *page, const json_t *result)
{
    const json_t *first = json_object_get(result, "first");
    rlki_page_section(page, "root", json_is_true(json_object_get(first, "root")) ? "Root" : "First difference");
    put_place(page, first);
    rlki_page_raw(page, "<p>");
    rlki_page_why(page, first);
    rlki_page_raw(page, "</p>\n");
    if (json_array_size(json_object_get(first, "tensors")))
        put_tensors(page, first);
    else
        put_sides(page, first);
    put_kernels(page, first);
    rlki_page_section_end(page);
}

/* ---- what differs ---- */

static void put_example(struct rlki_page *page, const json_t *e)
{
    rlki_page_raw(page, "<tr><td>");
    rlki_page_text(page, rlki_shape_text(json_object_get(e, "index")));
    for (int s = 0; s < 2; s++) {
        rlki_page_raw(page, "</td><td class=\"n\">");
        rlki_page_code(page, rlki_raw(e, s ? "b" : "a"));
        rlki_page_raw(page, "</td><td class=\"n dim\">");
        rlki_page_code(page, rlki_raw(e, s ? "bits_b" : "bits_a"));
    }
    rlki_page_form(page, "</td><td class=\"n\">%s</td></tr>\n",
                   json_is_integer(json_object_get(e, "distance")) ? rlki_count_of(e, "distance") : "-");
}

static void put_examples(struct rlki_page *page, const json_t *d, bool ulp)
{
    const json_t *list = json_object_get(d, "examples"), *one;
    size_t i;
    if (!json_array_size(list))
        return;
    rlki_page_form(
        page,
        "<h3>Elements: the first few%s</h3>\n<div class=\"scroll\"><table><thead><tr><th>index</th><th colspan=\"2\">"
        "<b class=\"side a\">A</b></th><th colspan=\"2\"><b class=\"side b\">B</b></th><th>%s</th></tr></thead>"
        "<tbody>\n",
        json_array_size(list) > 6 ? ", and the farthest" : "", ulp ? "ulp" : "apart");
    json_array_foreach(list, i, one) if (i < 8) put_example(page, one);
    rlki_page_raw(page, "</tbody></table></div>\n");
}

static void put_scale(struct rlki_page *page, const json_t *shape)
{
    uint64_t rows = rlki_amount(json_array_get(shape, 0)), cols = rlki_amount(json_array_get(shape, 1));
    rlki_page_form(page,
                   "<p class=\"dim\">The tensor as %s row%s (leading dimensions joined) of %s column%s (last "
                   "dimension), row 0 on top.",
                   rlki_count(rows), rows == 1 ? "" : "s", rlki_count(cols), cols == 1 ? "" : "s");
    if (rows > 64 || cols > 96)
        rlki_page_form(page, " A cell stands for %s by %s elements.", rlki_count(rows > 64 ? (rows + 63) / 64 : 1),
                       rlki_count(cols > 96 ? (cols + 95) / 96 : 1));
    rlki_page_raw(page, "</p>\n");
}

static void put_places(struct rlki_page *page, const char *what, const json_t *list)
{
    const json_t *one;
    size_t i;
    if (!json_array_size(list))
        return;
    rlki_page_raw(page, what);
    json_array_foreach(list, i, one) if (i < 16)
        rlki_page_form(page, "%s%s", i ? ", " : "", rlki_count(rlki_amount(one)));
    if (json_array_size(list) > 16)
        rlki_page_form(page, " and %zu more", json_array_size(list) - 16);
}

/* The lines over the map, in words. */
static void put_borders(struct rlki_page *page, const json_t *borders)
{
    static const char *const keys[] = {"a", "b"};
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(borders, keys[s]), *rows = json_object_get(side, "rows"),
                     *cols = json_object_get(side, "cols");
        if (!json_array_size(rows) && !json_array_size(cols))
            continue;
        rlki_page_raw(page, "<p class=\"dim\">Parts of ");
        rlki_page_side(page, s);
        rlki_page_form(page, " meet at the <span class=\"cut%s\">%s</span> lines:", keys[s], s ? "dotted" : "dashed");
        put_places(page, " before row ", rows);
        put_places(page, json_array_size(rows) ? "; before column " : " before column ", cols);
        rlki_page_raw(page, "</p>\n");
    }
}

static void put_maps(struct rlki_page *page, const json_t *d, bool ulp)
{
    const json_t *map = json_object_get(d, "map");
    if (!json_is_object(map))
        return;
    rlki_page_raw(page, "<h3>Over the tensor</h3>\n");
    put_scale(page, json_object_get(map, "shape"));
    rlki_page_raw(page, "<div class=\"pair\"><figure>\n");
    rlki_page_map(page, map, false);
    rlki_page_raw(
        page, "<figcaption class=\"share\">share of elements that differ: <i class=\"k c1\"></i>one or more <i "
              "class=\"k t c3\"></i><i class=\"k t c5\"></i><i class=\"k t c7\"></i>a half <i class=\"k c9\"></i>all"
              "</figcaption></figure>\n<figure>\n");
    rlki_page_map(page, map, true);
    rlki_page_form(
        page,
        "<figcaption class=\"far\">farthest, %s: <i class=\"k c1\"></i>0 <i class=\"k c2\"></i>1 <i class=\"k "
        "c3\"></i>2 <i class=\"k c4\"></i>4 <i class=\"k c5\"></i>16 <i class=\"k c6\"></i>256 <i class=\"k "
        "c7\"></i>4,096 and more <i class=\"k c8\"></i>NaN</figcaption></figure></div>\n",
        ulp ? "ulp" : "difference");
    put_borders(page, json_object_get(map, "borders"));
}

static void put_measures(struct rlki_page *page, const json_t *d)
{
    uint64_t changed = rlki_amount(json_object_get(d, "changed")), all = rlki_amount(json_object_get(d, "elements"));
    rlki_page_form(page,
                   "<dl class=\"tiles\"><div><dt>elements that differ</dt><dd>%s <small>of %s</small></dd></div>\n",
                   rlki_count(changed), rlki_count(all));
    rlki_page_form(page, "<div><dt>share</dt><dd>%.3g %%</dd></div>\n",
                   all ? 100.0 * (double)changed / (double)all : 0);
    if (json_is_integer(json_object_get(d, "max_ulp")))
        rlki_page_form(page, "<div><dt>farthest</dt><dd>%s <small>ulp</small></dd></div>\n",
                       rlki_count_of(d, "max_ulp"));
    if (json_is_number(json_object_get(d, "max_abs")))
        rlki_page_form(page, "<div><dt>largest difference</dt><dd>%.4g</dd></div>\n",
                       json_number_value(json_object_get(d, "max_abs")));
    rlki_page_form(page, "<div><dt>NaN on a side</dt><dd>%s</dd></div>\n", rlki_count_of(d, "nan"));
    if (json_is_object(json_object_get(d, "parts")))
        rlki_page_form(
            page,
            "<div><dt>put together from parts</dt><dd>%s <small>in A,</small> %s <small>in B</small></dd></div>\n",
            rlki_count_of(json_object_get(d, "parts"), "a"), rlki_count_of(json_object_get(d, "parts"), "b"));
    rlki_page_raw(page, "<div><dt>pattern</dt><dd>");
    rlki_page_text(page, *rlki_raw(d, "pattern") ? rlki_raw(d, "pattern") : "-");
    rlki_page_raw(page, "</dd></div>\n<div><dt>grade</dt><dd>");
    rlki_page_text(page, rlki_raw(d, "grade"));
    rlki_page_raw(page, "</dd></div></dl>\n");
}

void rlki_page_difference(struct rlki_page *page, const json_t *first)
{
    const json_t *d = json_object_get(first, "difference"), *histogram = json_object_get(d, "histogram");
    rlki_page_section(page, "difference", "Difference");
    if (!json_is_object(d)) {
        rlki_page_raw(page, "<p>One side has no such tensor: there is nothing to compare element by element.</p>\n");
    } else if (!json_is_integer(json_object_get(d, "changed"))) {
        rlki_page_form(page, "<p>%s elements. What differs among them is not known: ", rlki_count_of(d, "elements"));
        rlki_page_text(page, *rlki_raw(d, "unmeasured") ? rlki_raw(d, "unmeasured")
                                                        : "their bytes were not kept on both sides");
        rlki_page_raw(page, ". By the digest alone: <b>");
        rlki_page_text(page, rlki_raw(d, "grade"));
        rlki_page_raw(page,
                      "</b>. <code>rlkaudit first-diff --plan FILE</code> writes which bytes to keep, <code>rlkrec run "
                      "--plan FILE</code> keeps them.</p>\n");
    } else {
        bool ulp = strcmp(rlki_raw(histogram, "unit"), "integer") != 0;
        put_measures(page, d);
        if (json_is_object(histogram)) {
            rlki_page_form(page,
                           "<h3>%s</h3>\n<p class=\"dim\">Elements at each distance; bars are logarithmic.%s</p>\n",
                           ulp ? "Distance in ULP" : "Difference of the integers",
                           rlki_amount(json_array_get(json_object_get(histogram, "counts"), 0))
                               ? " 0: other bits of the same value."
                               : "");
            rlki_page_histogram(page, histogram);
        }
        put_maps(page, d, ulp);
        put_examples(page, d, ulp);
    }
    rlki_page_section_end(page);
}

/* ---- mechanism ---- */

static void put_sentences(struct rlki_page *page, const char *class, const json_t *list)
{
    const json_t *one;
    size_t i;
    rlki_page_form(page, "<ul class=\"%s\">\n", class);
    json_array_foreach(list, i, one)
    {
        if (i >= SENTENCES)
            break;
        rlki_page_raw(page, "<li>");
        if (json_is_object(one)) {
            rlki_page_raw(page, "<b>");
            rlki_page_text(page, rlki_raw(one, "class"));
            rlki_page_raw(page, "</b> ");
            rlki_page_text(page, rlki_raw(one, "why"));
        } else {
            rlki_page_text(page, json_string_value(one));
        }
        rlki_page_raw(page, "</li>\n");
    }
    rlki_page_raw(page, "</ul>\n");
    if (json_array_size(list) > SENTENCES)
        rlki_page_form(page, "<p class=\"cut\">and %zu more</p>\n", json_array_size(list) - SENTENCES);
}

static void put_class(struct rlki_page *page, const json_t *m)
{
    const char *sure = rlki_raw(m, "confidence");
    const json_t *one;
    size_t i;
    int dots = strcmp(sure, "high") == 0 ? 3 : strcmp(sure, "medium") == 0 ? 2 : 1;
    rlki_page_raw(page, "<p class=\"class\"><b>");
    rlki_page_text(page, rlki_raw(m, "class"));
    rlki_page_form(page, "</b> <span class=\"sure s%d\"><i></i><i></i><i></i></span> ", dots);
    rlki_page_text(page, sure);
    rlki_page_raw(page, " confidence</p>\n");
    if (!json_array_size(json_object_get(m, "also")))
        return;
    rlki_page_raw(page, "<p>Still possible: ");
    json_array_foreach(json_object_get(m, "also"), i, one) if (i < SENTENCES)
    {
        rlki_page_raw(page, "<span class=\"tag\">");
        rlki_page_text(page, json_string_value(one));
        rlki_page_raw(page, "</span> ");
    }
    rlki_page_raw(page, "</p>\n");
}

void rlki_page_mechanism(struct rlki_page *page, const json_t *result, const char *next)
{
    const json_t *m = json_object_get(json_object_get(result, "first"), "mechanism");
    rlki_page_section(page, "mechanism", "Mechanism");
    if (json_is_object(m)) {
        put_class(page, m);
        if (json_array_size(json_object_get(m, "evidence"))) {
            rlki_page_raw(page, "<h3>Evidence</h3>\n");
            put_sentences(page, "evidence", json_object_get(m, "evidence"));
        } else {
            rlki_page_raw(page, "<p class=\"dim\">Nothing that was recorded points to a mechanism.</p>\n");
        }
        if (json_array_size(json_object_get(m, "excluded"))) {
            rlki_page_raw(page, "<h3>Excluded</h3>\n");
            put_sentences(page, "excluded", json_object_get(m, "excluded"));
        }
    }
    if (*rlki_raw(m, "next") || next) {
        rlki_page_raw(page, "<div class=\"next\"><h3>Next</h3>\n");
        if (*rlki_raw(m, "next")) {
            rlki_page_raw(page, "<p>");
            rlki_page_text(page, rlki_raw(m, "next"));
            rlki_page_raw(page, "</p>\n");
        }
        if (next) {
            rlki_page_raw(page, "<pre tabindex=\"0\">");
            rlki_page_text(page, next);
            rlki_page_raw(page, "</pre>\n");
        }
        rlki_page_raw(page, "</div>\n");
    }
    rlki_page_section_end(page);
}
