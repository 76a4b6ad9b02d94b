/* Drawings of a page, as SVG: grids of coloured cells, the map of a tensor, a histogram. Colours are classes of the
 * style sheet, so that light, dark and print each have their own. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 700u /* pixels that a grid of many columns takes */
#define LABEL_COLUMNS 36u
#define HOVERED 1200u /* cells that get a text of their own */

static void put_svg(struct rlki_page *page, unsigned width, unsigned height, const char *class, const char *what)
{
    rlki_page_form(
        page,
        "<div class=\"scroll\"><svg class=\"%s\" role=\"img\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\" "
        "aria-label=\"",
        class, width, height, width, height);
    rlki_page_text(page, what);
    rlki_page_raw(page, "\">\n");
}

static void put_label(struct rlki_page *page, double x, double y, const char *class, const char *text)
{
    rlki_page_form(page, "<text x=\"%.5g\" y=\"%.5g\" class=\"%s\">", x, y, class);
    rlki_page_text(page, rlki_shortened(rlki_esc(text), LABEL_COLUMNS));
    rlki_page_raw(page, "</text>\n");
}

struct frame { /* of a grid, in pixels */
    unsigned left, top, cw, ch;
};

static struct frame frame_of(const struct rlki_grid *g)
{
    unsigned widest = 0, highest = 0;
    struct frame f = {.cw = g->cols ? WIDE / g->cols : WIDE, .ch = g->rows <= 40 ? 15 : 11};
    for (unsigned r = 0; r < g->rows; r++) {
        unsigned n = rlki_columns(rlki_shortened(rlki_esc(g->row(g->context, r)), LABEL_COLUMNS));
        widest = n > widest ? n : widest;
    }
    for (unsigned c = 0; c < g->cols; c++) {
        unsigned n = rlki_columns(rlki_shortened(rlki_esc(g->col(g->context, c)), LABEL_COLUMNS));
        highest = n > highest ? n : highest;
    }
    f.cw = f.cw > 24 ? 24 : f.cw < 6 ? 6 : f.cw;
    f.left = 8 + widest * 7;
    f.top = g->slanted ? 12 + highest * 5 : 18;
    return f;
}

/* Labels of columns that leave room for each other. */
static void put_columns(struct rlki_page *page, const struct rlki_grid *g, const struct frame *f)
{
    unsigned clear = 0;
    for (unsigned c = 0; c < g->cols; c++) {
        const char *text = g->col(g->context, c);
        unsigned x = f->left + c * f->cw;
        if (!*text || (!g->slanted && x < clear))
            continue;
        if (g->slanted) {
            rlki_page_form(page, "<text class=\"tick\" transform=\"translate(%u %u) rotate(-45)\">", x + f->cw / 2 + 3,
                           f->top - 5);
            rlki_page_text(page, rlki_shortened(rlki_esc(text), LABEL_COLUMNS));
            rlki_page_raw(page, "</text>\n");
        } else {
            put_label(page, x, f->top - 5, "tick", text);
        }
        clear = x + 14 + 7 * rlki_columns(rlki_esc(text));
    }
}

static void put_cell(struct rlki_page *page, const struct rlki_grid *g, const struct frame *f, unsigned r, unsigned c)
{
    const struct rlki_grid_cell *cell = &g->cell[(size_t)r * g->cols + c];
    rlki_page_form(page, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" class=\"c%u%s\">", f->left + c * f->cw,
                   f->top + r * f->ch, f->cw - 1, f->ch - 1, cell->class, cell->ring ? " ring" : "");
    if (g->hover) {
        rlki_page_raw(page, "<title>");
        rlki_page_text(page, g->hover(g->context, r, c));
        rlki_page_raw(page, "</title>");
    }
    rlki_page_raw(page, "</rect>\n");
}

/* Many cells: one path a class, stretches of a row joined. */
static void put_paths(struct rlki_page *page, const struct rlki_grid *g, const struct frame *f)
{
    for (unsigned class = 1; class < 16; class ++) {
        bool any = false;
        for (unsigned r = 0; r < g->rows; r++)
            for (unsigned c = 0, end; c < g->cols; c = end) {
                const struct rlki_grid_cell *row = &g->cell[(size_t)r * g->cols];
                for (end = c + 1; row[c].class == class && end < g->cols && row[end].class == class;)
                    end++;
                if (row[c].class != class)
                    continue;
                rlki_page_form(page, "%sM%u %uh%uv%uh-%uz", any ? "" : "<path d=\"", f->left + c * f->cw,
                               f->top + r * f->ch, (end - c) * f->cw - 1, f->ch - 1, (end - c) * f->cw - 1);
                any = true;
            }
        if (any)
            rlki_page_form(page, "\" class=\"c%u\"/>\n", class);
    }
}

void rlki_page_grid(struct rlki_page *page, const struct rlki_grid *g)
{
    struct frame f = frame_of(g);
    size_t drawn = 0;
    for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
        drawn += g->cell[i].class != 0;
    put_svg(page, f.left + g->cols * f.cw + (g->slanted ? f.top : 24), f.top + g->rows * f.ch + 4, g->colours, g->what);
    rlki_page_form(page, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" class=\"field\"/>\n", f.left, f.top,
                   g->cols * f.cw, g->rows * f.ch);
    for (unsigned c = 1; c < g->cols; c++)
        rlki_page_form(page, "<path class=\"rule\" d=\"M%u %uv%u\"/>", f.left + c * f.cw, f.top, g->rows * f.ch);
    for (unsigned r = 0; r < g->rows; r++) {
        put_label(page, f.left - 6, f.top + r * f.ch + f.ch - 4, "name", g->row(g->context, r));
        if (r)
            rlki_page_form(page, "<path class=\"rule\" d=\"M%u %uh%u\"/>", f.left, f.top + r * f.ch, g->cols * f.cw);
    }
    put_columns(page, g, &f);
    if (drawn > HOVERED)
        put_paths(page, g, &f);
    for (unsigned r = 0; r < g->rows; r++)
        for (unsigned c = 0; c < g->cols; c++) {
            const struct rlki_grid_cell *cell = &g->cell[(size_t)r * g->cols + c];
            if (cell->class && (drawn <= HOVERED || cell->ring))
                put_cell(page, g, &f, r, c);
        }
    rlki_page_raw(page, "</svg></div>\n");
}

/* ---- the map of a tensor ---- */

/* Class of a character: shares 1..9 as they are; distances in seven steps. */
static unsigned map_class(char ch, bool far)
{
    if (ch == '.')
        return 0;
    if (!far)
        return ch >= '1' && ch <= '9' ? (unsigned)(ch - '0') : 0;
    if (ch == '!')
        return 8;
    unsigned k = ch >= '0' && ch <= '9' ? (unsigned)(ch - '0') : ch >= 'a' && ch <= 'z' ? (unsigned)(ch - 'a') + 10 : 0;
    return k == 0 ? 1 : k == 1 ? 2 : k == 2 ? 3 : k <= 4 ? 4 : k <= 8 ? 5 : k <= 12 ? 6 : 7;
}

/* Lines where parts meet, of one side: `whole` rows or columns of the tensor take `pixels`. */
static void put_cuts(struct rlki_page *page, const json_t *list, bool rows, uint64_t whole, unsigned wide,
                     unsigned high, const char *class)
{
    const json_t *at;
    size_t i;
    json_array_foreach(list, i, at)
    {
        if (i >= 64 || !whole || rlki_amount(at) >= whole)
            break;
        double place = 1 + (double)(rows ? high : wide) * (double)rlki_amount(at) / (double)whole;
        if (rows)
            rlki_page_form(page, "<path class=\"%s\" d=\"M1 %.5gh%u\"/>\n", class, place, wide);
        else
            rlki_page_form(page, "<path class=\"%s\" d=\"M%.5g 1v%u\"/>\n", class, place, high);
    }
}

static void put_borders(struct rlki_page *page, const json_t *map, unsigned wide, unsigned high)
{
    static const char *const keys[] = {"a", "b"}, *const classes[] = {"cuta", "cutb"};
    const json_t *shape = json_object_get(map, "shape");
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(json_object_get(map, "borders"), keys[s]);
        put_cuts(page, json_object_get(side, "rows"), true, rlki_amount(json_array_get(shape, 0)), wide, high,
                 classes[s]);
        put_cuts(page, json_object_get(side, "cols"), false, rlki_amount(json_array_get(shape, 1)), wide, high,
                 classes[s]);
    }
}

void rlki_page_map(struct rlki_page *page, const json_t *map, bool far)
{
    const json_t *lines = json_object_get(map, far ? "far" : "changed");
    unsigned rows = (unsigned)json_array_size(lines), cols = 0, cell;
    const json_t *line;
    size_t i;
    rows = rows > 64 ? 64 : rows;
    json_array_foreach(lines, i, line) if (i < rows && json_string_length(line) > cols) cols =
        (unsigned)json_string_length(line);
    cols = cols > 96 ? 96 : cols;
    if (!rows || !cols)
        return;
    cell = 380 / (rows > cols ? rows : cols);
    cell = cell < 4 ? 4 : cell > 16 ? 16 : cell;
    unsigned high = rows * cell < 20 ? 20 / rows : cell;
    put_svg(page, cols * cell + 2, rows * high + 2, far ? "map far" : "map share",
            far ? "the tensor as rows and columns: how far apart" : "the tensor as rows and columns: how many changed");
    rlki_page_form(page, "<rect x=\"0.5\" y=\"0.5\" width=\"%u\" height=\"%u\" class=\"field\"/>\n", cols * cell + 1,
                   rows * high + 1);
    for (unsigned class = 1; class <= 9; class ++) {
        bool any = false;
        for (unsigned r = 0; r < rows; r++) {
            const char *text = json_string_value(json_array_get(lines, r));
            unsigned n = text ? (unsigned)strnlen(text, cols) : 0;
            for (unsigned c = 0, end; c < n; c = end) {
                for (end = c + 1; end < n && map_class(text[c], far) == map_class(text[end], far);)
                    end++;
                if (map_class(text[c], far) != class)
                    continue;
                rlki_page_form(page, "%sM%u %uh%uv%uh-%uz", any ? "" : "<path d=\"", 1 + c * cell, 1 + r * high,
                               (end - c) * cell, high, (end - c) * cell);
                any = true;
            }
        }
        if (any)
            rlki_page_form(page, "\" class=\"c%u\"/>\n", class);
    }
    put_borders(page, map, cols * cell, rows * high);
    rlki_page_raw(page, "</svg></div>\n");
}

/* ---- histogram ---- */

static void put_bin_label(char *out, size_t size, size_t k)
{
    if (k < 2)
        snprintf(out, size, "%zu", k);
    else if (k < 11)
        snprintf(out, size, "%llu-%llu", 1ULL << (k - 1), (1ULL << k) - 1);
    else
        snprintf(out, size, "2^%zu", k - 1);
}

static void put_bar(struct rlki_page *page, unsigned x, unsigned wide, uint64_t n, uint64_t most, const char *label,
                    const char *class)
{
    /* logarithmic: one element of a million is still to be seen */
    double high = n ? 8 + 92 * log1p((double)n) / log1p((double)most) : 0;
    if (n)
        rlki_page_form(page, "<rect x=\"%u\" y=\"%.4g\" width=\"%u\" height=\"%.4g\" class=\"%s\"/>", x + 3, 118 - high,
                       wide - 6, high, class);
    rlki_page_form(
        page,
        "<text x=\"%u\" y=\"%.4g\" class=\"mid\">%s</text><text x=\"%u\" y=\"132\" class=\"mid tick\">%s</text>\n",
        x + wide / 2, 113 - high, n ? rlki_count(n) : "", x + wide / 2, label);
}

void rlki_page_histogram(struct rlki_page *page, const json_t *histogram)
{
    const json_t *counts = json_object_get(histogram, "counts");
    size_t n = json_array_size(counts), first = 0;
    uint64_t most = rlki_amount(json_object_get(histogram, "nan")), nan = most;
    char label[48];
    n = n > 65 ? 65 : n;
    while (first < n && !rlki_amount(json_array_get(counts, first)))
        first++;
    for (size_t k = first; k < n; k++)
        most = rlki_amount(json_array_get(counts, k)) > most ? rlki_amount(json_array_get(counts, k)) : most;
    if (!most)
        return;
    unsigned bars = (unsigned)(n - first) + (nan > 0), wide = bars > 14 ? 56 : 64;
    put_svg(page, bars * wide + 4, 140, "histogram", "how many changed elements at which distance");
    rlki_page_form(page, "<path class=\"rule\" d=\"M0 118.5h%u\"/>\n", bars * wide);
    for (size_t k = first; k < n; k++) {
        put_bin_label(label, sizeof label, k);
        put_bar(page, (unsigned)(k - first) * wide, wide, rlki_amount(json_array_get(counts, k)), most, label, "bar");
    }
    if (nan)
        put_bar(page, (bars - 1) * wide, wide, nan, most, "NaN", "bar nan");
    rlki_page_raw(page, "</svg></div>\n");
}
