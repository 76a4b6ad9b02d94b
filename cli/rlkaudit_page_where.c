/* Where: steps x layers, and ranks x collectives. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_page.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 48u
#define COLS 64u
#define PLAIN_ROWS 24u /* up to so many layers all are drawn */
#define SLANTED 24u    /* columns of a step and a phase each */
#define RANK_ROWS 64u
#define LISTED 24u

struct cell {
    uint64_t roots, down;
};

struct map {
    const json_t *where;
    json_t *layers; /* those that are drawn */
    const json_t *phases;
    size_t *place; /* of a layer of the result among those; SIZE_MAX: not drawn */
    size_t nall, nplain;
    int64_t *step; /* the steps, ascending */
    size_t nsteps, nlayers, nphases;
    bool by_phase; /* a column is a step and a phase; else one or more steps */
    unsigned rows, cols;
    struct cell *cell;
    struct rlki_grid_cell *drawn;
    char text[512];
};

static int by_number(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

static json_int_t at(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

/* Steps of A, and those that only B has and that differ. */
static bool collect_steps(struct map *m)
{
    const json_t *steps = json_object_get(m->where, "steps"), *cells = json_object_get(m->where, "cells");
    size_t n = json_array_size(steps), k = json_array_size(cells), kept = 0;
    m->step = calloc(n + k + 1, sizeof *m->step);
    if (!m->step)
        return false;
    for (size_t i = 0; i < n; i++)
        m->step[m->nsteps++] = at(steps, i);
    for (size_t i = 0; i < k; i++)
        m->step[m->nsteps++] = at(json_array_get(cells, i), 0);
    if (m->nsteps)
        qsort(m->step, m->nsteps, sizeof *m->step, by_number);
    for (size_t i = 0; i < m->nsteps; i++)
        if (!kept || m->step[kept - 1] != m->step[i])
            m->step[kept++] = m->step[i];
    m->nsteps = kept;
    return true;
}

static size_t place_of_step(const struct map *m, int64_t step)
{
    size_t lo = 0, hi = m->nsteps;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->step[mid] < step)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Is its last part a number, as those of a stack of layers are? */
static bool numbered(const char *layer)
{
    size_t n = strlen(layer);
    return n && layer[n - 1] >= '0' && layer[n - 1] <= '9';
}

/* Of many layers those without number (the loss, the optimizer's groups) are drawn only where they differ. */
static bool choose_layers(struct map *m)
{
    const json_t *all = json_object_get(m->where, "layers"), *one;
    size_t i;
    m->nall = json_array_size(all);
    m->layers = json_array();
    m->place = calloc(m->nall + 1, sizeof *m->place);
    if (!m->layers || !m->place)
        return false;
    json_array_foreach(json_object_get(m->where, "cells"), i, one)
    {
        json_int_t layer = at(one, 2);
        if (layer >= 0 && (size_t)layer < m->nall)
            m->place[layer] = 1;
    }
    json_array_foreach(all, i, one)
    {
        const char *name = json_string_value(one);
        bool drawn = m->place[i] || m->nall <= PLAIN_ROWS || (name && numbered(name));
        m->place[i] = drawn ? json_array_size(m->layers) : SIZE_MAX;
        m->nplain += !drawn;
        if (drawn && json_array_append(m->layers, (json_t *)(uintptr_t)one) != 0)
            return false;
    }
    m->nlayers = json_array_size(m->layers);
    return true;
}

static struct cell *cell_at(struct map *m, int64_t step, size_t phase, size_t layer)
{
    size_t s = place_of_step(m, step);
    if (s >= m->nsteps || layer >= m->nlayers || phase >= m->nphases)
        return NULL;
    size_t col = m->by_phase ? s * m->nphases + phase : s * m->cols / m->nsteps;
    return &m->cell[layer * m->rows / m->nlayers * m->cols + col];
}

static const char *layer_name(const json_t *layers, size_t i)
{
    const char *name = json_string_value(json_array_get(layers, i));
    return name && *name ? name : "(root)";
}

static const char *row_text(const void *context, unsigned row)
{
    struct map *m = (struct map *)(uintptr_t)context;
    size_t first = (row * m->nlayers + m->rows - 1) / m->rows, end = ((row + 1) * m->nlayers + m->rows - 1) / m->rows;
    if (end <= first + 1)
        return layer_name(m->layers, first);
    snprintf(m->text, sizeof m->text, "%.200s and %zu more", layer_name(m->layers, first), end - first - 1);
    return m->text;
}

static const char *col_text(const void *context, unsigned col)
{
    struct map *m = (struct map *)(uintptr_t)context;
    if (m->by_phase)
        snprintf(m->text, sizeof m->text, "%lld %.60s", (long long)m->step[col / m->nphases],
                 json_string_value(json_array_get(m->phases, col % m->nphases)));
    else
        snprintf(m->text, sizeof m->text, "%lld", (long long)m->step[(col * m->nsteps + m->cols - 1) / m->cols]);
    return m->text;
}

static const char *hover_text(const void *context, unsigned row, unsigned col)
{
    struct map *m = (struct map *)(uintptr_t)context;
    const struct cell *cell = &m->cell[(size_t)row * m->cols + col];
    char head[300], tail[100];
    snprintf(head, sizeof head, "%.250s", row_text(m, row));
    snprintf(tail, sizeof tail, "%.80s", col_text(m, col));
    snprintf(m->text, sizeof m->text, "%s, step %s: %llu roots, %llu downstream", head, tail,
             (unsigned long long)cell->roots, (unsigned long long)cell->down);
    return m->text;
}

/* 1: a root; 2 to 5: downstream, few to many. */
static uint8_t class_of(const struct cell *cell)
{
    if (cell->roots)
        return 1;
    return cell->down == 0 ? 0 : cell->down < 4 ? 2 : cell->down < 16 ? 3 : cell->down < 64 ? 4 : 5;
}

static void ring_first(struct map *m, const json_t *first)
{
    const char *module = rlki_raw(first, "module");
    size_t phase = 0, best = m->nlayers, length = 0;
    for (size_t i = 0; i < m->nlayers; i++) {
        const char *name = json_string_value(json_array_get(m->layers, i));
        size_t n = name ? strlen(name) : 0;
        if (name && strncmp(module, name, n) == 0 && (!module[n] || module[n] == '.' || !n) &&
            (n > length || !*module)) {
            best = i;
            length = n;
        }
    }
    while (phase < m->nphases &&
           strcmp(json_string_value(json_array_get(m->phases, phase)), rlki_raw(first, "phase")) != 0)
        phase++;
    struct cell *cell = best < m->nlayers ? cell_at(m, rlki_integer(first, "step"), phase, best) : NULL;
    if (cell)
        m->drawn[cell - m->cell].ring = true;
}

static bool fill(struct map *m, const json_t *result)
{
    const json_t *one;
    size_t i;
    m->phases = json_object_get(m->where, "phases");
    m->nphases = json_array_size(m->phases);
    json_array_foreach(m->phases, i, one) if (!json_is_string(one)) return false;
    if (!choose_layers(m) || !collect_steps(m) || !m->nsteps || !m->nlayers)
        return false;
    m->by_phase = m->nphases > 1 && m->nsteps * m->nphases <= SLANTED;
    m->rows = m->nlayers < ROWS ? (unsigned)m->nlayers : ROWS;
    m->cols = m->by_phase ? (unsigned)(m->nsteps * m->nphases) : m->nsteps < COLS ? (unsigned)m->nsteps : COLS;
    m->cell = calloc((size_t)m->rows * m->cols, sizeof *m->cell);
    m->drawn = calloc((size_t)m->rows * m->cols, sizeof *m->drawn);
    if (!m->cell || !m->drawn)
        return false;
    json_array_foreach(json_object_get(m->where, "cells"), i, one)
    {
        if (at(one, 1) < 0 || at(one, 2) < 0 || (size_t)at(one, 2) >= m->nall)
            continue;
        struct cell *cell = cell_at(m, at(one, 0), (size_t)at(one, 1), m->place[at(one, 2)]);
        if (!cell)
            continue;
        cell->roots += rlki_amount(json_array_get(one, 3));
        cell->down += rlki_amount(json_array_get(one, 4));
    }
    for (i = 0; i < (size_t)m->rows * m->cols; i++)
        m->drawn[i].class = class_of(&m->cell[i]);
    if (json_is_object(json_object_get(result, "first")))
        ring_first(m, json_object_get(result, "first"));
    return true;
}

static void put_limits(struct rlki_page *page, const struct map *m)
{
    uint64_t steps = rlki_amount(json_object_get(m->where, "steps_total"));
    uint64_t layers = rlki_amount(json_object_get(m->where, "layers_total"));
    uint64_t cells = rlki_amount(json_object_get(m->where, "cells_total"));
    size_t listed = json_array_size(json_object_get(m->where, "cells"));
    if (!m->by_phase && m->nsteps > m->cols)
        rlki_page_form(page, "<p class=\"cut\">Each column stands for up to %zu steps.</p>\n",
                       (m->nsteps + m->cols - 1) / m->cols);
    if (steps > json_array_size(json_object_get(m->where, "steps")))
        rlki_page_form(page, "<p class=\"cut\">Of %s steps the first %zu are drawn, and later ones that differ.</p>\n",
                       rlki_count(steps), json_array_size(json_object_get(m->where, "steps")));
    if (m->nlayers > m->rows)
        rlki_page_form(page, "<p class=\"cut\">Each row stands for up to %zu layers.</p>\n",
                       (m->nlayers + m->rows - 1) / m->rows);
    if (m->nplain)
        rlki_page_form(page,
                       "<p class=\"dim\">%zu modules without a number and without a difference are not drawn.</p>\n",
                       m->nplain);
    if (layers > m->nall)
        rlki_page_form(page, "<p class=\"cut\">%s layers are not drawn.</p>\n", rlki_count(layers - m->nall));
    if (cells > listed)
        rlki_page_form(page, "<p class=\"cut\">%s later places that differ are not drawn.</p>\n",
                       rlki_count(cells - listed));
}

static void put_layers(struct rlki_page *page, const json_t *result, const json_t *where)
{
    struct map m = {.where = where};
    if (fill(&m, result)) {
        rlki_page_form(page, "<h3>%s by layer</h3>\n", m.by_phase ? "Step and phase" : "Step");
        const struct rlki_grid grid = {.rows = m.rows,
                                       .cols = m.cols,
                                       .cell = m.drawn,
                                       .colours = "grid layers",
                                       .what = "where the differences lie, layers by steps",
                                       .slanted = m.by_phase,
                                       .context = &m,
                                       .row = row_text,
                                       .col = col_text,
                                       .hover = hover_text};
        rlki_page_grid(page, &grid);
        rlki_page_raw(page,
                      "<p class=\"legend\"><i class=\"k c1 ring\"></i>first <i class=\"k c1\"></i>root "
                      "<i class=\"k c2\"></i><i class=\"k t c3\"></i><i class=\"k t c4\"></i><i class=\"k t c5\"></i>"
                      "downstream: 1, 4, 16, 64 or more <i class=\"k c0\"></i>no difference</p>\n");
        put_limits(page, &m);
    }
    json_decref(m.layers);
    free(m.place);
    free(m.step);
    free(m.cell);
    free(m.drawn);
}

/* ---- ranks x collectives ---- */

struct ranks {
    const json_t *ranks, *columns;
    size_t n;
    unsigned rows, cols;
    struct rlki_grid_cell *drawn;
    char text[600];
};

/* Of several ranks in one row the most telling: a root, brought in, received, equal. 1 to 4; 0: none of it. */
static uint8_t part_class(char ch, bool root)
{
    return ch == 'o' && root ? 1 : ch == 'i' || ch == 'b' ? 2 : ch == 'o' ? 3 : ch == '=' ? 4 : 0;
}

static const char *rank_text(const void *context, unsigned row)
{
    struct ranks *r = (struct ranks *)(uintptr_t)context;
    size_t first = (row * r->n + r->rows - 1) / r->rows, end = ((row + 1) * r->n + r->rows - 1) / r->rows;
    if (end <= first + 1)
        snprintf(r->text, sizeof r->text, "rank %lld", (long long)at(r->ranks, first));
    else
        snprintf(r->text, sizeof r->text, "ranks %lld-%lld", (long long)at(r->ranks, first),
                 (long long)at(r->ranks, end - 1));
    return r->text;
}

static const char *number_text(const void *context, unsigned col)
{
    struct ranks *r = (struct ranks *)(uintptr_t)context;
    snprintf(r->text, sizeof r->text, "%u", col + 1);
    return r->text;
}

static const char *part_text(const void *context, unsigned row, unsigned col)
{
    static const char *const said[] = {"", "the collective is a root", "brings a difference in",
                                       "only its result differs", "equal"};
    struct ranks *r = (struct ranks *)(uintptr_t)context;
    const json_t *c = json_array_get(r->columns, col);
    char rank[60];
    snprintf(rank, sizeof rank, "%.50s", rank_text(r, row));
    snprintf(r->text, sizeof r->text, "%s, %.100s of %.200s at step %lld: %s", rank, rlki_raw(c, "op"),
             rlki_raw(c, "module"), (long long)rlki_integer(c, "step"),
             said[r->drawn[(size_t)row * r->cols + col].class % 5]);
    return r->text;
}

static void put_columns(struct rlki_page *page, const struct ranks *r)
{
    const json_t *one;
    size_t i;
    rlki_page_raw(page, "<details><summary>The columns</summary>\n<div "
                        "class=\"scroll\"><table><thead><tr><th>#</th><th>step</th><th>phase</th>"
                        "<th>module</th><th>collective</th><th></th></tr></thead><tbody>\n");
    json_array_foreach(r->columns, i, one)
    {
        if (i >= r->cols || !rlki_page_room(page))
            break;
        rlki_page_form(page, "<tr><td class=\"n\">%zu</td><td class=\"n\">%lld</td><td>", i + 1,
                       (long long)rlki_integer(one, "step"));
        rlki_page_text(page, rlki_raw(one, "phase"));
        rlki_page_raw(page, "</td><td>");
        rlki_page_code(page, rlki_raw(one, "module"));
        rlki_page_raw(page, "</td><td>");
        rlki_page_code(page, rlki_raw(one, "op"));
        rlki_page_raw(page, json_is_true(json_object_get(one, "root"))
                                ? "</td><td><b class=\"tag bad\">root</b></td></tr>\n"
                                : "</td><td>downstream</td></tr>\n");
    }
    rlki_page_raw(page, "</tbody></table></div></details>\n");
}

static void put_ranks(struct rlki_page *page, const json_t *where)
{
    struct ranks r = {.ranks = json_object_get(where, "ranks"), .columns = json_object_get(where, "collectives")};
    uint64_t total = rlki_amount(json_object_get(where, "collectives_total"));
    r.n = json_array_size(r.ranks);
    r.cols = (unsigned)json_array_size(r.columns);
    r.cols = r.cols > 96 ? 96 : r.cols;
    r.rows = r.n < RANK_ROWS ? (unsigned)r.n : RANK_ROWS;
    if (!r.rows || !r.cols)
        return;
    r.drawn = calloc((size_t)r.rows * r.cols, sizeof *r.drawn);
    if (!r.drawn)
        return;
    for (unsigned c = 0; c < r.cols; c++) {
        const char *text = rlki_raw(json_array_get(r.columns, c), "ranks");
        for (size_t i = 0; i < r.n && text[i]; i++) {
            struct rlki_grid_cell *cell = &r.drawn[i * r.rows / r.n * r.cols + c];
            uint8_t class = part_class(text[i], json_is_true(json_object_get(json_array_get(r.columns, c), "root")));
            if (class && (!cell->class || class < cell->class))
                cell->class = class;
        }
    }
    const struct rlki_grid grid = {.rows = r.rows,
                                   .cols = r.cols,
                                   .cell = r.drawn,
                                   .colours = "grid parts",
                                   .what = "which ranks bring a difference into a collective, and which receive it",
                                   .context = &r,
                                   .row = rank_text,
                                   .col = number_text,
                                   .hover = part_text};
    rlki_page_raw(page, "<h3>Rank by collective</h3>\n");
    rlki_page_grid(page, &grid);
    rlki_page_raw(page,
                  "<p class=\"legend parts\"><i class=\"k c1\"></i>the collective is a root <i class=\"k c2\"></i>"
                  "brings a difference in <i class=\"k c3\"></i>only its result differs <i class=\"k c4\"></i>equal "
                  "<i class=\"k c0\"></i>not a member, or not looked at</p>\n");
    if (r.n > r.rows)
        rlki_page_form(page, "<p class=\"cut\">Each row stands for up to %zu ranks, by the most telling of them.</p>\n",
                       (r.n + r.rows - 1) / r.rows);
    if (total > r.cols)
        rlki_page_form(page, "<p class=\"cut\">The first %u of %s collectives that differ.</p>\n", r.cols,
                       rlki_count(total));
    put_columns(page, &r);
    free(r.drawn);
}

void rlki_page_where(struct rlki_page *page, const json_t *result)
{
    const json_t *where = json_object_get(result, "where");
    rlki_page_section(page, "where", "Where");
    if (!json_is_object(where))
        rlki_page_raw(page,
                      "<p>This result does not say where differences lie: it was made by an older rlkaudit.</p>\n");
    else
        put_layers(page, result, where);
    const char *mode = rlki_raw(result, "mode");
    if (json_is_object(where) && json_is_object(json_object_get(result, "first")) && *mode && strcmp(mode, "same") != 0)
        rlki_page_form(page,
                       "<h3>Rank by collective</h3>\n<p class=\"dim\">Not drawn across %s: the two sides run other "
                       "collectives over other ranks, and none has a counterpart. What collectives made is compared by "
                       "name, put together from all ranks, and stands among the differences below.</p>\n",
                       strcmp(mode, "phases") == 0 ? "phases" : "layouts");
    else if (json_is_object(where))
        put_ranks(page, where);
    if (json_is_object(where) && !json_is_object(json_object_get(result, "first")))
        rlki_page_raw(page, "<p>No tensor differs.</p>\n");
    rlki_page_section_end(page);
}
