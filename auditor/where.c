/* where.c - where the differences lie: steps x layers, and for the collectives which ranks brought a difference in and
 * which only received it. Counts identities without rank, as `roots` and `downstream` do.
 */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CELLS 65536u
#define MAX_COLUMNS 4096u
#define MAX_COLUMN_BYTES (UINT64_C(16) << 20)
#define LISTED_CELLS 4096u
#define LISTED_LAYERS 512u
#define LISTED_STEPS 1024u
#define LISTED_COLUMNS 96u

struct cell {
    int64_t step;
    uint32_t phase, layer, nlayer, nphase; /* nlayer, nphase: where they stand in A's order */
    uint64_t roots, down;
};

struct column {
    int64_t step;
    uint32_t phase, module, op, env;
    uint64_t seq;
    bool differs, root;
    uint8_t *part; /* enum rlki_part_of by place of the rank in A */
};

struct rlki_where {
    struct rlki_hash layer_of; /* module -> layer */
    struct rlki_hash cell_index, column_index;
    struct cell *cell;
    size_t ncell, cap_cell;
    struct column *column;
    size_t ncolumn, cap_column, listed;
    uint32_t *layer; /* in order of first appearance */
    size_t nlayer, cap_layer;
    struct rlki_hash layer_seen;
    uint32_t *phase; /* likewise */
    size_t nphase, cap_phase;
    struct rlki_hash phase_seen;
    bool full_cells, full_columns;
};

static struct rlki_where *where_of(struct rlki_audit *audit)
{
    if (!audit->where)
        audit->where = calloc(1, sizeof *audit->where);
    audit->failed |= !audit->where;
    return audit->where;
}

void rlki_where_free(struct rlki_where *where)
{
    if (!where)
        return;
    for (size_t i = 0; i < where->ncolumn; i++)
        free(where->column[i].part);
    free(where->column);
    free(where->cell);
    free(where->layer);
    free(where->phase);
    rlki_hash_release(&where->phase_seen);
    rlki_hash_release(&where->layer_of);
    rlki_hash_release(&where->layer_seen);
    rlki_hash_release(&where->cell_index);
    rlki_hash_release(&where->column_index);
    free(where);
}

/* "model.layers.17.attn.core" -> "model.layers.17"; without a number the first two parts. */
static size_t layer_length(const char *module)
{
    size_t second = 0;
    for (size_t i = 0, parts = 0; module[i];) {
        size_t end = i + strcspn(module + i, "."), digits = strspn(module + i, "0123456789");
        if (digits && i + digits == end)
            return end;
        if (++parts == 2)
            second = end;
        i = module[end] ? end + 1 : end;
    }
    return second ? second : strlen(module);
}

static uint32_t layer_of(struct rlki_audit *audit, uint32_t module)
{
    struct rlki_where *where = audit->where;
    const char *text = rlki_names_text(&audit->names, module);
    uint64_t layer;
    if (rlki_hash_get(&where->layer_of, module + 1u, &layer))
        return (uint32_t)layer;
    size_t n = layer_length(text);
    char *copy = strndup(text, n);
    audit->failed |= !copy;
    layer = copy ? rlki_names_id(&audit->names, copy) : module;
    free(copy);
    rlki_hash_put(&where->layer_of, module + 1u, layer);
    return (uint32_t)layer;
}

static void see(struct rlki_hash *seen, uint32_t **list, size_t *n, size_t *cap, uint32_t name)
{
    if (rlki_hash_get(seen, name + 1u, NULL))
        return;
    rlki_hash_put(seen, name + 1u, *n);
    if (rlki_grow(list, cap, *n, sizeof **list))
        (*list)[(*n)++] = name;
    else
        seen->failed = true;
}

static void see_layer(struct rlki_where *where, uint32_t layer)
{
    see(&where->layer_seen, &where->layer, &where->nlayer, &where->cap_layer, layer);
}

static void see_phase(struct rlki_where *where, uint32_t phase)
{
    see(&where->phase_seen, &where->phase, &where->nphase, &where->cap_phase, phase);
}

static struct cell *cell_of(struct rlki_audit *audit, int64_t step, uint32_t phase, uint32_t module)
{
    struct rlki_where *where = where_of(audit);
    uint64_t place;
    if (!where)
        return NULL;
    uint32_t layer = layer_of(audit, module);
    uint64_t key = rlki_mix(rlki_mix(rlki_mix(41, (uint64_t)step), phase), layer);
    if (rlki_hash_get(&where->cell_index, key, &place))
        return &where->cell[place];
    if (where->ncell >= MAX_CELLS) {
        where->full_cells = true;
        return NULL;
    }
    if (!rlki_grow(&where->cell, &where->cap_cell, where->ncell, sizeof *where->cell)) {
        audit->failed = true;
        return NULL;
    }
    rlki_hash_put(&where->cell_index, key, where->ncell);
    struct cell *cell = &where->cell[where->ncell++];
    *cell = (struct cell){.step = step, .phase = phase, .layer = layer};
    return cell;
}

void rlki_where_down(struct rlki_audit *audit, const struct rlki_ev *ev)
{
    struct cell *cell = cell_of(audit, ev->e.who.step, ev->phase, ev->module);
    if (cell)
        cell->down++;
}

/* Place of a rank among A's; -1: not there. */
static int64_t rank_place(const struct rlki_side *side, uint32_t rank)
{
    uint32_t lo = 0, hi = side->nranks;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (side->ranks[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < side->nranks && side->ranks[lo] == rank ? (int64_t)lo : -1;
}

static struct column *column_of(struct rlki_audit *audit, uint64_t key, const struct rlki_ev *ev)
{
    struct rlki_where *where = where_of(audit);
    const struct rlki_side *a = &audit->side[0];
    uint64_t place;
    if (!where)
        return NULL;
    key = rlki_mix(rlki_mix(43, key), (uint64_t)ev->e.who.step);
    if (rlki_hash_get(&where->column_index, key, &place))
        return &where->column[place];
    if (where->ncolumn >= MAX_COLUMNS || (where->ncolumn + 1) * (uint64_t)a->nranks > MAX_COLUMN_BYTES) {
        where->full_columns = true;
        return NULL;
    }
    uint8_t *part = calloc((size_t)a->nranks + 1, 1);
    if (!part || !rlki_grow(&where->column, &where->cap_column, where->ncolumn, sizeof *where->column)) {
        free(part);
        audit->failed = true;
        return NULL;
    }
    rlki_hash_put(&where->column_index, key, where->ncolumn);
    struct column *column = &where->column[where->ncolumn++];
    *column = (struct column){.step = ev->e.who.step,
                              .phase = ev->phase,
                              .module = ev->module,
                              .op = ev->op,
                              .env = ev->env,
                              .seq = ev->e.seq,
                              .part = part};
    return column;
}

void rlki_where_collective(struct rlki_audit *audit, uint64_t key, const struct rlki_ev *ev, enum rlki_part_of part)
{
    struct column *column = column_of(audit, key, ev);
    int64_t place = column ? rank_place(&audit->side[0], ev->e.rank) : -1;
    if (place >= 0)
        column->part[place] |= (uint8_t)(part | RLKI_PART_HEARD);
    if (column && part == RLKI_PART_OUT)
        column->differs = true;
}

void rlki_where_verdict(struct rlki_audit *audit, uint64_t key, int64_t step, bool root)
{
    uint64_t place;
    if (audit->where && rlki_hash_get(&audit->where->column_index, rlki_mix(rlki_mix(43, key), (uint64_t)step), &place))
        audit->where->column[place].root |= root;
}

/* ---- JSON ---- */

static int by_step(const void *x, const void *y)
{
    const struct cell *a = x, *b = y;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->nlayer != b->nlayer)
        return a->nlayer < b->nlayer ? -1 : 1;
    return a->nphase < b->nphase ? -1 : a->nphase > b->nphase;
}

static int compare_columns(const void *x, const void *y)
{
    const struct column *a = x, *b = y;
    if (a->differs != b->differs)
        return a->differs ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return a->env < b->env ? -1 : a->env > b->env;
}

/* Layers of A as its lowest rank goes through them in one step; those that differ come behind, if they are others. */
static int list_layers(struct rlki_audit *audit, struct rlki_where *where, int64_t step)
{
    struct rlki_nodes nodes = {0};
    int rc = RLK_OK;
    if (audit->side[0].nranks)
        rc = rlki_side_nodes(&audit->side[0], step, audit->side[0].ranks[0], &nodes, audit->detail);
    for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++) {
        see_layer(where, layer_of(audit, nodes.node[i].module));
        see_phase(where, nodes.node[i].phase);
    }
    rlki_nodes_release(&nodes);
    for (size_t i = 0; i < where->ncell; i++) {
        struct cell *cell = &where->cell[i];
        uint64_t place = 0;
        see_layer(where, cell->layer);
        see_phase(where, cell->phase);
        rlki_hash_get(&where->layer_seen, cell->layer + 1u, &place);
        cell->nlayer = (uint32_t)place;
        rlki_hash_get(&where->phase_seen, cell->phase + 1u, &place);
        cell->nphase = (uint32_t)place;
    }
    return rc;
}

static void mark_roots(struct rlki_audit *audit)
{
    for (size_t i = 0; i < audit->nfound; i++) {
        const struct rlki_found *found = &audit->found[i];
        if (found->dropped)
            continue;
        struct cell *cell = cell_of(audit, found->step, found->phase, found->module);
        if (cell)
            cell->roots++;
    }
}

static json_t *steps_json(const struct rlki_audit *audit, uint64_t *total)
{
    const struct rlki_side *a = &audit->side[0];
    json_t *steps = json_array();
    *total = 0;
    for (size_t i = 0; i < a->ntotals; i++) {
        if (i && a->totals[i].step == a->totals[i - 1].step)
            continue;
        if ((*total)++ < LISTED_STEPS)
            rlki_add(steps, json_integer(a->totals[i].step));
    }
    return steps;
}

static json_t *cells_json(struct rlki_audit *audit, struct rlki_where *where, json_t *phases)
{
    struct rlki_hash phase_at = {0};
    json_t *cells = json_array();
    if (where->ncell)
        qsort(where->cell, where->ncell, sizeof *where->cell, by_step);
    for (size_t p = 0; p < where->nphase; p++) /* those that a cell is in, in A's order */
        for (size_t i = 0; i < where->ncell && i < LISTED_CELLS; i++)
            if (where->cell[i].phase == where->phase[p]) {
                rlki_hash_put(&phase_at, where->phase[p] + 1u, json_array_size(phases));
                rlki_add(phases, rlki_json_text(rlki_names_text(&audit->names, where->phase[p])));
                break;
            }
    for (size_t i = 0; i < where->ncell && i < LISTED_CELLS; i++) {
        const struct cell *cell = &where->cell[i];
        uint64_t phase = 0;
        rlki_hash_get(&phase_at, cell->phase + 1u, &phase);
        rlki_add(cells, json_pack("[I,I,I,I,I]", (json_int_t)cell->step, (json_int_t)phase, (json_int_t)cell->nlayer,
                                  (json_int_t)cell->roots, (json_int_t)cell->down));
    }
    audit->failed |= phase_at.failed;
    rlki_hash_release(&phase_at);
    return cells;
}

static json_t *column_json(struct rlki_audit *audit, const struct column *column)
{
    static const char letter[8] = {'.', '=', '.', 'i', '.', 'o', '.', 'b'};
    const struct rlki_side *a = &audit->side[0];
    char *ranks = malloc((size_t)a->nranks + 1);
    if (!ranks)
        return NULL;
    for (uint32_t r = 0; r < a->nranks; r++)
        ranks[r] = letter[column->part[r] & 7u];
    ranks[a->nranks] = '\0';
    const struct rlki_names *names = &audit->names;
    json_t *out = json_pack("{s:I,s:o,s:o,s:o,s:b,s:s}", "step", (json_int_t)column->step, "phase",
                            rlki_json_text(rlki_names_text(names, column->phase)), "module",
                            rlki_json_text(rlki_names_text(names, column->module)), "op",
                            rlki_json_text(rlki_names_text(names, column->op)), "root", column->root, "ranks", ranks);
    free(ranks);
    return out;
}

static void collectives_json(struct rlki_audit *audit, struct rlki_where *where, json_t *out)
{
    json_t *list = json_array(), *ranks = json_array();
    uint64_t total = 0;
    if (where->ncolumn)
        qsort(where->column, where->ncolumn, sizeof *where->column, compare_columns);
    for (size_t i = 0; i < where->listed && where->column[i].differs; i++)
        if (total++ < LISTED_COLUMNS)
            rlki_add(list, column_json(audit, &where->column[i]));
    for (uint32_t r = 0; total && r < audit->side[0].nranks; r++)
        rlki_add(ranks, json_integer(audit->side[0].ranks[r]));
    rlki_set(out, "ranks", ranks);
    rlki_set(out, "collectives", list);
    rlki_set(out, "collectives_total", json_integer((json_int_t)total));
}

int rlki_where_json(struct rlki_audit *audit, const struct rlki_found *first, json_t **out)
{
    struct rlki_where *where = where_of(audit);
    uint64_t nsteps = 0;
    *out = NULL;
    if (!where)
        return RLK_ENOMEM;
    where->listed = where->ncolumn;
    if (rlki_stop(audit)) /* not comparable: what was found before that says nothing */
        where->ncell = where->listed = 0;
    else
        mark_roots(audit);
    int64_t step = first ? first->step : audit->side[0].ntotals ? audit->side[0].totals[0].step : 0;
    int rc = list_layers(audit, where, step);
    if (rc)
        return rc;
    json_t *json = json_object(), *layers = json_array(), *phases = json_array();
    rlki_set(json, "steps", steps_json(audit, &nsteps));
    rlki_set(json, "steps_total", json_integer((json_int_t)nsteps));
    json_t *cells = cells_json(audit, where, phases);
    for (size_t i = 0; i < where->nlayer && i < LISTED_LAYERS; i++)
        rlki_add(layers, rlki_json_text(rlki_names_text(&audit->names, where->layer[i])));
    rlki_set(json, "phases", phases);
    rlki_set(json, "layers", layers);
    rlki_set(json, "layers_total", json_integer((json_int_t)where->nlayer));
    rlki_set(json, "cells", cells);
    rlki_set(json, "cells_total", json_integer((json_int_t)where->ncell));
    collectives_json(audit, where, json);
    audit->failed |= where->layer_of.failed || where->phase_seen.failed || where->layer_seen.failed ||
                     where->cell_index.failed || where->column_index.failed;
    *out = json;
    return json ? RLK_OK : RLK_ENOMEM;
}
