/* Do parts cover each element once? A sweep along the first dimension cuts it where the set of parts changes; for each
 * *distinct* set the rest of the shape is swept in the same way. Parts that hold the same runs of a dimension are one
 * class there, so the lattices that occur (token shards x feature shards) cost about the number of their runs. */
#include "store/rlk_place.h"
#include "store/rlk_place_runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Bound on the work for parts that no parallel layout produces (hostile recordings). */
#define MAX_EDGES (UINT64_C(1) << 26)

typedef unsigned __int128 u128;

struct cover {
    uint32_t ndim;
    const uint64_t *shape;
    const struct rlki_runs *runs; /* part * ndim + dimension */
    const u128 *key;              /* hash of these runs */
    const size_t *number;         /* the caller's index of a part: empty ones are left out */
    uint64_t edges;
    uint64_t at[RLK_MAX_DIMS]; /* first element of the segment that is swept */
    struct rlk_detail *detail;
};

struct edge {
    uint64_t position;
    uint32_t class;
    bool opens;
};

struct class
{
    size_t first, count; /* in the sorted list */
    u128 id;
    bool active;
};

/* One dimension for one set of parts. */
struct level {
    const struct cover *cover;
    uint32_t dim;
    size_t n, nclasses, nedges, table_size;
    uint32_t *list, *active; /* parts, sorted by key; the parts of a segment */
    struct class *classes;
    struct edge *edges;
    u128 *table; /* sets of parts already looked into; 0 = free */
};

static u128 join(XXH128_hash_t h)
{
    return (u128)h.high64 << 64 | h.low64;
}

static u128 key_of(const struct rlki_runs *runs)
{
    struct rlki_runs_at at = {0};
    u128 key = 1;
    while (rlki_runs_step(runs, &at)) {
        uint64_t link[4] = {(uint64_t)key, (uint64_t)(key >> 64), at.start, at.extent};
        key = join(XXH3_128bits(link, sizeof link));
    }
    return key;
}

static bool same_runs(const struct rlki_runs *a, const struct rlki_runs *b)
{
    struct rlki_runs_at at_a = {0}, at_b = {0};
    bool more;
    do {
        more = rlki_runs_step(a, &at_a);
        if (more != rlki_runs_step(b, &at_b) || at_a.start != at_b.start || at_a.extent != at_b.extent)
            return false;
    } while (more);
    return true;
}

static int by_key(const void *a, const void *b, void *context)
{
    const struct level *l = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    u128 key_x = l->cover->key[(size_t)x * l->cover->ndim + l->dim];
    u128 key_y = l->cover->key[(size_t)y * l->cover->ndim + l->dim];
    if (key_x != key_y)
        return key_x < key_y ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int by_position(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int fault(struct cover *c, uint32_t known, const char *what)
{
    char where[256];
    size_t n = 0;
    for (uint32_t i = 0; i < c->ndim && n < sizeof where - 24; i++)
        n += (size_t)snprintf(where + n, sizeof where - n, "%s%" PRIu64, i ? ", " : "", i < known ? c->at[i] : 0);
    where[n] = '\0';
    return rlk_fail(c->detail, RLK_ECOVER, "element [%s] belongs to %s", where, what);
}

static int overlap(struct cover *c, uint32_t a, uint32_t b)
{
    char what[80];
    size_t x = c->number[a], y = c->number[b];
    snprintf(what, sizeof what, "parts %zu and %zu", x < y ? x : y, x < y ? y : x);
    return fault(c, c->ndim, what);
}

static void level_release(struct level *l)
{
    free(l->list);
    free(l->active);
    free(l->classes);
    free(l->edges);
    free(l->table);
}

static const struct rlki_runs *class_runs(const struct level *l, const struct class *class)
{
    return &l->cover->runs[(size_t)l->list[class->first] * l->cover->ndim + l->dim];
}

static int level_classes(struct level *l, const uint32_t *list, size_t n)
{
    l->n = n;
    l->list = malloc(n * sizeof *l->list);
    l->active = malloc(n * sizeof *l->active);
    l->classes = calloc(n, sizeof *l->classes);
    if (!l->list || !l->active || !l->classes)
        return RLK_ENOMEM;
    memcpy(l->list, list, n * sizeof *list);
    qsort_r(l->list, n, sizeof *l->list, by_key, l);
    for (size_t i = 0; i < n; i++) {
        const struct rlki_runs *runs = &l->cover->runs[(size_t)l->list[i] * l->cover->ndim + l->dim];
        struct class *last = l->nclasses ? &l->classes[l->nclasses - 1] : NULL;
        if (last && same_runs(class_runs(l, last), runs)) {
            last->count++;
            continue;
        }
        uint64_t index = l->nclasses;
        l->classes[l->nclasses++] = (struct class){i, 1, join(XXH3_128bits(&index, sizeof index)), false};
    }
    return RLK_OK;
}

static int level_edges(struct level *l, struct cover *c)
{
    size_t n = 0;
    for (size_t k = 0; k < l->nclasses; k++) {
        struct rlki_runs_at at = {0};
        while (rlki_runs_step(class_runs(l, &l->classes[k]), &at))
            n += 2;
    }
    c->edges += n + l->n;
    if (c->edges > MAX_EDGES)
        return rlk_fail(c->detail, RLK_ELIMIT, "cover: the parts are too irregular to check");
    l->table_size = 16;
    while (l->table_size < 2 * n)
        l->table_size *= 2;
    l->edges = malloc(n * sizeof *l->edges);
    l->table = calloc(l->table_size, sizeof *l->table);
    if (!l->edges || !l->table)
        return RLK_ENOMEM;
    for (size_t k = 0; k < l->nclasses; k++) {
        struct rlki_runs_at at = {0};
        while (rlki_runs_step(class_runs(l, &l->classes[k]), &at)) {
            l->edges[l->nedges++] = (struct edge){at.start, (uint32_t)k, true};
            l->edges[l->nedges++] = (struct edge){at.start + at.extent, (uint32_t)k, false};
        }
    }
    qsort(l->edges, l->nedges, sizeof *l->edges, by_position);
    return RLK_OK;
}

/* Remembers a set; false if it was known. */
static bool remember(struct level *l, u128 set)
{
    if (set == 0)
        set = 1;
    for (size_t i = (size_t)set & (l->table_size - 1);; i = (i + 1) & (l->table_size - 1)) {
        if (l->table[i] == set)
            return false;
        if (l->table[i] == 0) {
            l->table[i] = set;
            return true;
        }
    }
}

static int cover_from(struct cover *c, uint32_t dim, const uint32_t *list, size_t n);

/* A segment of the dimension over which the set of active classes is the same. */
static int cover_segment(struct cover *c, struct level *l, u128 set)
{
    size_t n = 0;
    if (!remember(l, set))
        return RLK_OK;
    for (size_t k = 0; k < l->nclasses; k++)
        for (size_t i = 0; l->classes[k].active && i < l->classes[k].count; i++)
            l->active[n++] = l->list[l->classes[k].first + i];
    c->edges += l->nclasses;
    return cover_from(c, l->dim + 1, l->active, n);
}

/* Parts list[0..n), n > 0, and the dimensions from `dim` on, at the place c->at[0..dim). */
static int cover_from(struct cover *c, uint32_t dim, const uint32_t *list, size_t n)
{
    if (dim == c->ndim)
        return n == 1 ? RLK_OK : overlap(c, list[0], list[1]);
    struct level l = {.cover = c, .dim = dim};
    int rc = level_classes(&l, list, n);
    if (rc == RLK_OK)
        rc = level_edges(&l, c);
    u128 set = 0;
    size_t active = 0, i = 0;
    uint64_t position = 0;
    while (rc == RLK_OK && position < c->shape[dim]) {
        for (; i < l.nedges && l.edges[i].position == position; i++) {
            struct class *class = &l.classes[l.edges[i].class];
            class->active = l.edges[i].opens;
            set = l.edges[i].opens ? set + class->id : set - class->id;
            active += l.edges[i].opens ? 1 : (size_t)-1;
        }
        c->at[dim] = position;
        if (active == 0)
            rc = fault(c, dim + 1, "no part");
        else
            rc = cover_segment(c, &l, set);
        position = i < l.nedges ? l.edges[i].position : c->shape[dim];
    }
    level_release(&l);
    return rc;
}

/* Elements of the part, 0 if it holds none. */
static int check_part(const struct rlk_place *part, const struct rlk_place *first, size_t index, uint64_t *elements,
                      struct rlk_detail *detail)
{
    uint64_t local[RLK_MAX_DIMS];
    struct rlki_runs runs[RLK_MAX_DIMS];
    if (part->ndim != first->ndim || part->ndim > RLK_MAX_DIMS ||
        (part->ndim && memcmp(part->shape, first->shape, part->ndim * sizeof *part->shape) != 0))
        return rlk_fail(detail, RLK_EINVAL, "cover: part %zu has another logical shape than part 0", index);
    rlki_place_runs(part, runs);
    *elements = 1;
    for (uint32_t i = 0; i < part->ndim; i++) {
        local[i] = 0;
        for (uint32_t k = 0; k < runs[i].n; k++)
            local[i] += runs[i].run ? runs[i].run[k].extent : runs[i].whole.extent;
        *elements *= local[i];
    }
    return rlk_place_check(part, part->ndim, local, detail); /* also that no sum or product above overflowed */
}

int rlk_place_cover(const struct rlk_place *const *parts, size_t n, struct rlk_detail *detail)
{
    if (n == 0 || n > UINT32_MAX)
        return rlk_fail(detail, RLK_EINVAL, "cover: no parts, or too many");
    const uint32_t ndim = parts[0]->ndim;
    struct cover c = {.ndim = ndim, .shape = parts[0]->shape, .detail = detail};
    int rc = RLK_OK;
    size_t held = 0, cells;
    bool empty = false;
    if (__builtin_mul_overflow(n, (size_t)(ndim ? ndim : 1), &cells))
        return rlk_fail(detail, RLK_EINVAL, "cover: too many parts");
    struct rlki_runs *runs = calloc(cells, sizeof *runs);
    u128 *key = calloc(cells, sizeof *key);
    size_t *number = calloc(n, sizeof *number);
    uint32_t *list = calloc(n, sizeof *list);
    if (!runs || !key || !number || !list)
        rc = RLK_ENOMEM;
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        uint64_t elements = 0;
        rc = check_part(parts[i], parts[0], i, &elements, detail);
        if (rc != RLK_OK || elements == 0)
            continue;
        rlki_place_runs(parts[i], runs + held * ndim);
        for (uint32_t k = 0; k < ndim; k++)
            key[held * ndim + k] = key_of(&runs[held * ndim + k]);
        list[held] = (uint32_t)held;
        number[held++] = i;
    }
    for (uint32_t i = 0; i < ndim && rc == RLK_OK; i++)
        empty = empty || c.shape[i] == 0;
    c.runs = runs;
    c.key = key;
    c.number = number;
    if (rc == RLK_OK && !empty)
        rc = held ? cover_from(&c, 0, list, held) : fault(&c, 0, "no part");
    free(runs);
    free(key);
    free(number);
    free(list);
    return rc;
}
