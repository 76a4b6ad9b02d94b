/* mapfile.c - line by line, the first line that fits holds. The grammar is in docs/identity.md. */
#include "auditor/mapfile.h"

#include "store/rlk_json_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE 8192u
#define MAX_LINES 65536u
#define MAX_STARS 9u

struct line {
    int side;                      /* 0, 1, -1 = both */
    char *from_module, *from_name; /* from_name NULL: any tensor */
    char *to_module, *to_name;     /* map */
    json_t *logical;               /* map: {"shape", "runs"}; may be NULL */
    char *dims;                    /* dims: the rest of the line */
};

struct rlki_mapping {
    struct line *map, *dims;
    size_t nmap, cap_map, ndims, cap_dims;
};

/* "*" stands for any text without a dot, "**" for any text; what each took goes to `took`. */
static bool fits_within(unsigned *effort, const char *pattern, const char *text, const char *took[], size_t length[],
                        unsigned n)
{
    for (; *pattern && *pattern != '*'; pattern++, text++)
        if (*pattern != *text)
            return false;
    if (!*pattern)
        return !*text;
    bool any = pattern[1] == '*';
    if (n >= MAX_STARS)
        return false;
    for (size_t k = 0;; k++) {
        took[n] = text;
        length[n] = k;
        if (!*effort || !--*effort)
            return false; /* stars and names that would take for ever */
        if (fits_within(effort, pattern + (any ? 2 : 1), text + k, took, length, n + 1))
            return true;
        if (!text[k] || (!any && text[k] == '.'))
            return false;
    }
}

static bool fits(const char *pattern, const char *text, const char *took[], size_t length[], unsigned n)
{
    unsigned effort = 100000;
    return fits_within(&effort, pattern, text, took, length, n);
}

bool rlki_pattern_fits(const char *pattern, const char *text)
{
    const char *took[MAX_STARS];
    size_t length[MAX_STARS];
    return fits(pattern, text, took, length, 0);
}

/* {1}..{9} in `to` become what the stars took. */
static void fill_in(char *out, size_t size, const char *to, const char *took[], const size_t length[])
{
    size_t n = 0;
    while (*to && n + 1 < size) {
        if (to[0] == '{' && to[1] >= '1' && to[1] <= '9' && to[2] == '}') {
            unsigned i = (unsigned)(to[1] - '1');
            for (size_t k = 0; took[i] && k < length[i] && n + 1 < size; k++)
                out[n++] = took[i][k];
            to += 3;
        } else {
            out[n++] = *to++;
        }
    }
    out[n] = '\0';
}

static char *word(char **rest)
{
    char *p = *rest;
    while (*p && isspace((unsigned char)*p))
        p++;
    if (!*p)
        return NULL;
    char *start = p;
    while (*p && !isspace((unsigned char)*p))
        p++;
    if (*p)
        *p++ = '\0';
    *rest = p;
    return start;
}

static unsigned stars(const char *pattern)
{
    unsigned n = 0;
    for (; *pattern; pattern++)
        if (*pattern == '*') {
            n++;
            pattern += pattern[1] == '*';
        }
    return n;
}

/* MODULE[#NAME] */
static int split_pattern(char *text, char **module, char **name)
{
    char *hash = strchr(text, '#');
    if (hash)
        *hash = '\0';
    *module = strdup(text);
    *name = hash ? strdup(hash + 1) : NULL;
    return !*module || (hash && !*name) ? RLK_ENOMEM : RLK_OK;
}

static int read_map_line(struct line *out, char *rest, const char *file, unsigned number, struct rlk_detail *detail)
{
    json_error_t error;
    char *from = word(&rest), *arrow = word(&rest), *to = word(&rest);
    if (!from || !arrow || strcmp(arrow, "->") != 0 || !to)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: expected PATTERN -> NAME", file, number);
    if (stars(from) > MAX_STARS)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: more than %u stars", file, number, MAX_STARS);
    int rc = split_pattern(from, &out->from_module, &out->from_name);
    if (rc == RLK_OK)
        rc = split_pattern(to, &out->to_module, &out->to_name);
    if (rc)
        return rc;
    if (out->to_name && !out->from_name)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: a tensor name on the right needs one on the left", file, number);
    while (*rest && isspace((unsigned char)*rest))
        rest++;
    if (!*rest)
        return RLK_OK;
    out->logical = json_loads(rest, JSON_REJECT_DUPLICATES, &error);
    if (!out->logical && rlk_json_no_memory(&error))
        return RLK_ENOMEM;
    if (!json_is_object(out->logical) || !json_is_array(json_object_get(out->logical, "shape")) ||
        !json_is_array(json_object_get(out->logical, "runs")) || !out->from_name)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: after the name only {\"shape\":[..],\"runs\":[..]}, for a tensor",
                        file, number);
    return RLK_OK;
}

static int read_dims_line(struct line *out, char *rest, const char *file, unsigned number, struct rlk_detail *detail)
{
    char *from = word(&rest);
    if (!from || !*rest)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: expected PATTERN DIM...", file, number);
    if (stars(from) > MAX_STARS)
        return rlk_fail(detail, RLK_EPARSE, "%s:%u: more than %u stars", file, number, MAX_STARS);
    int rc = split_pattern(from, &out->from_module, &out->from_name);
    out->dims = strdup(rest);
    return rc || !out->dims ? RLK_ENOMEM : RLK_OK;
}

static void line_release(struct line *line)
{
    free(line->from_module);
    free(line->from_name);
    free(line->to_module);
    free(line->to_name);
    free(line->dims);
    json_decref(line->logical);
}

static int read_file(struct rlki_mapping *mapping, const char *path, bool dims, struct rlk_detail *detail)
{
    char text[MAX_LINE];
    unsigned number = 0;
    int rc = RLK_OK;
    FILE *f = fopen(path, "r");
    if (!f)
        return rlk_fail(detail, RLK_ENOENT, "%s cannot be opened", path);
    while (rc == RLK_OK && fgets(text, sizeof text, f)) {
        struct line line = {.side = -1};
        char *rest = text;
        number++;
        if (strlen(text) + 1 == sizeof text || number > MAX_LINES) {
            rc = rlk_fail(detail, RLK_EPARSE, "%s:%u: line too long, or too many", path, number);
            break;
        }
        while (isspace((unsigned char)*rest))
            rest++;
        if (!*rest || *rest == '#')
            continue;
        if ((rest[0] == 'a' || rest[0] == 'b' || rest[0] == '*') && isspace((unsigned char)rest[1])) {
            line.side = rest[0] == 'a' ? 0 : rest[0] == 'b' ? 1 : -1;
            rest += 2;
        }
        rc =
            dims ? read_dims_line(&line, rest, path, number, detail) : read_map_line(&line, rest, path, number, detail);
        struct line **list = dims ? &mapping->dims : &mapping->map;
        size_t *n = dims ? &mapping->ndims : &mapping->nmap, *cap = dims ? &mapping->cap_dims : &mapping->cap_map;
        if (rc == RLK_OK && !rlki_grow(list, cap, *n, sizeof **list))
            rc = RLK_ENOMEM;
        if (rc == RLK_OK)
            (*list)[(*n)++] = line;
        else
            line_release(&line);
    }
    if (rc == RLK_OK && ferror(f))
        rc = rlk_fail(detail, RLK_EIO, "%s", path);
    fclose(f);
    return rc;
}

int rlki_mapping_open(struct rlki_mapping **out, const char *map, const char *dims, struct rlk_detail *detail)
{
    *out = NULL;
    if (!map && !dims)
        return RLK_OK;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return RLK_ENOMEM;
    int rc = map ? read_file(*out, map, false, detail) : RLK_OK;
    if (rc == RLK_OK && dims)
        rc = read_file(*out, dims, true, detail);
    return rc;
}

void rlki_mapping_free(struct rlki_mapping *mapping)
{
    if (!mapping)
        return;
    for (size_t i = 0; i < mapping->nmap; i++)
        line_release(&mapping->map[i]);
    for (size_t i = 0; i < mapping->ndims; i++)
        line_release(&mapping->dims[i]);
    free(mapping->map);
    free(mapping->dims);
    free(mapping);
}

uint32_t rlki_map_module(struct rlki_audit *audit, int side, uint32_t module)
{
    const struct rlki_mapping *mapping = audit->mapping;
    for (size_t i = 0; mapping && i < mapping->nmap; i++) {
        const struct line *line = &mapping->map[i];
        const char *took[MAX_STARS] = {0};
        size_t length[MAX_STARS];
        char out[RLK_MAX_STRING + 1];
        if (line->from_name || (line->side >= 0 && line->side != side) ||
            !fits(line->from_module, rlki_names_text(&audit->names, module), took, length, 0))
            continue;
        fill_in(out, sizeof out, line->to_module, took, length);
        return rlki_names_id(&audit->names, out);
    }
    return module;
}

/* {"shape":[..],"runs":[[[start,extent]..]..]} as a placement; NULL: not well-formed, or out of memory. */
static struct rlk_place *place_of(const json_t *logical, struct rlk_arena *arena)
{
    const json_t *shape = json_object_get(logical, "shape"), *runs = json_object_get(logical, "runs");
    size_t ndim = json_array_size(shape), total = 0, n = 0;
    if (ndim > RLK_MAX_DIMS)
        return NULL;
    for (size_t d = 0; d < json_array_size(runs); d++)
        total += json_array_size(json_array_get(runs, d));
    struct rlk_place *place = rlk_arena_alloc(arena, sizeof *place, _Alignof(struct rlk_place));
    uint64_t *dims = rlk_arena_alloc(arena, (ndim + 1) * sizeof *dims, sizeof *dims);
    uint32_t *nruns = rlk_arena_alloc(arena, (ndim + 1) * sizeof *nruns, sizeof *nruns);
    struct rlk_run *run = rlk_arena_alloc(arena, (total + 1) * sizeof *run, _Alignof(struct rlk_run));
    if (!place || !dims || !nruns || !run)
        return NULL;
    for (size_t d = 0; d < ndim; d++) {
        const json_t *of = json_array_get(runs, d);
        dims[d] = (uint64_t)json_integer_value(json_array_get(shape, d));
        nruns[d] = of && json_is_array(of) ? (uint32_t)json_array_size(of) : RLK_WHOLE;
        for (size_t r = 0; nruns[d] != RLK_WHOLE && r < nruns[d]; r++, n++) {
            const json_t *pair = json_array_get(of, r);
            run[n].start = (uint64_t)json_integer_value(json_array_get(pair, 0));
            run[n].extent = (uint64_t)json_integer_value(json_array_get(pair, 1));
        }
    }
    *place = (struct rlk_place){.ndim = (uint32_t)ndim, .shape = dims, .nruns = nruns, .runs = run};
    return place;
}

int rlki_map_tensor(struct rlki_audit *audit, int side, uint32_t module, uint32_t name, uint32_t *out_module,
                    uint32_t *out_name, const struct rlk_tensor *tensor, struct rlk_arena *arena,
                    struct rlk_place **place)
{
    const struct rlki_mapping *mapping = audit->mapping;
    for (size_t i = 0; mapping && i < mapping->nmap; i++) {
        const struct line *line = &mapping->map[i];
        const char *took[MAX_STARS * 2] = {0};
        size_t length[MAX_STARS * 2];
        char out[RLK_MAX_STRING + 1];
        unsigned n = stars(line->from_module);
        if (!line->from_name || (line->side >= 0 && line->side != side) || n > MAX_STARS ||
            !fits(line->from_module, rlki_names_text(&audit->names, module), took, length, 0) ||
            !fits(line->from_name, rlki_names_text(&audit->names, name), took + n, length + n, 0))
            continue;
        fill_in(out, sizeof out, line->to_module, took, length);
        *out_module = rlki_names_id(&audit->names, out);
        if (line->to_name) {
            fill_in(out, sizeof out, line->to_name, took, length);
            *out_name = rlki_names_id(&audit->names, out);
        }
        if (!line->logical || tensor->place)
            return RLK_OK;
        struct rlk_place *made = place_of(line->logical, arena);
        if (made && rlk_place_check(made, tensor->ndim, tensor->shape, NULL) == RLK_OK)
            *place = made;
        return RLK_OK;
    }
    return RLK_OK;
}

/* ---- dims ---- */

struct sharded {
    uint32_t n, at; /* ranks of the group, this one's place */
    bool zigzag;
};

/* "t(cp:zigzag)": the group's size and this rank's place. false: not well-formed, or no such group. */
static bool read_dim(const struct rlki_side *side, const char *dim, uint32_t rank, struct sharded *out)
{
    char group[64];
    const char *open = strchr(dim, '('), *close = strrchr(dim, ')');
    *out = (struct sharded){.n = 1};
    if (!open)
        return true;
    if (!close || close[1] || close <= open + 1 || (size_t)(close - open) > sizeof group)
        return false;
    memcpy(group, open + 1, (size_t)(close - open - 1));
    group[close - open - 1] = '\0';
    char *colon = strchr(group, ':');
    if (colon) {
        *colon = '\0';
        if (strcmp(colon + 1, "zigzag") != 0)
            return false;
        out->zigzag = true;
    }
    if (!side->has_layout || rank >= side->world)
        return false;
    uint32_t *ranks = malloc(((size_t)side->world + 1) * sizeof *ranks), n = 0;
    bool ok = ranks && rlk_layout_group(&side->layout, side->world, group, rank, ranks, &n) == RLK_OK && n;
    for (uint32_t i = 0; ok && i < n; i++)
        if (ranks[i] == rank)
            out->at = i;
    out->n = ok ? n : 1;
    free(ranks);
    return ok;
}

/* Runs of one dimension; *n of them, 0 = does not divide. */
static void runs_of(const struct sharded *s, uint64_t local, uint64_t *size, struct rlk_run run[2], uint32_t *n)
{
    *size = local * s->n;
    *n = 1;
    run[0] = (struct rlk_run){local * s->at, local};
    if (!s->zigzag || s->n == 1)
        return;
    uint64_t chunk = local / 2;
    *n = local % 2 ? 0 : 2;
    run[0] = (struct rlk_run){chunk * s->at, chunk};
    run[1] = (struct rlk_run){chunk * (2 * (uint64_t)s->n - 1 - s->at), chunk};
}

static int place_by_dims(const struct rlki_side *side, const char *text, const struct rlk_tensor *t, uint32_t rank,
                         struct rlk_arena *arena, struct rlk_place **out)
{
    char copy[MAX_LINE];
    char *rest = copy, *dim;
    uint32_t d = 0;
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    struct rlk_place *place = rlk_arena_alloc(arena, sizeof *place, _Alignof(struct rlk_place));
    uint64_t *shape = rlk_arena_alloc(arena, (t->ndim + 1) * sizeof *shape, sizeof *shape);
    uint32_t *nruns = rlk_arena_alloc(arena, (t->ndim + 1) * sizeof *nruns, sizeof *nruns);
    struct rlk_run *run = rlk_arena_alloc(arena, (2 * (size_t)t->ndim + 1) * sizeof *run, _Alignof(struct rlk_run));
    if (!place || !shape || !nruns || !run)
        return RLK_ENOMEM;
    while ((dim = word(&rest)) && *dim != '#') {
        struct sharded s;
        if (d == t->ndim || !read_dim(side, dim, rank, &s) || (s.n > 1 && t->shape[d] > UINT64_MAX / s.n))
            return RLK_OK;
        runs_of(&s, t->shape[d], &shape[d], run + n, &nruns[d]);
        if (!nruns[d])
            return RLK_OK;
        n += nruns[d++];
    }
    if (d != t->ndim)
        return RLK_OK;
    *place = (struct rlk_place){.ndim = d, .shape = shape, .nruns = nruns, .runs = run};
    if (rlk_place_check(place, t->ndim, t->shape, NULL) == RLK_OK)
        *out = place;
    return RLK_OK;
}

int rlki_dims_place(struct rlki_audit *audit, int side, uint32_t module, const struct rlk_tensor *tensor, uint32_t rank,
                    struct rlk_arena *arena, struct rlk_place **place)
{
    const struct rlki_mapping *mapping = audit->mapping;
    int rc = RLK_OK;
    *place = NULL;
    for (size_t i = 0; mapping && i < mapping->ndims && !*place && rc == RLK_OK; i++) {
        const struct line *line = &mapping->dims[i];
        const char *took[MAX_STARS] = {0};
        size_t length[MAX_STARS];
        if ((line->side >= 0 && line->side != side) ||
            !fits(line->from_module, rlki_names_text(&audit->names, module), took, length, 0) ||
            (line->from_name && !fits(line->from_name, tensor->name, took, length, 0)))
            continue;
        rc = place_by_dims(&audit->side[side], line->dims, tensor, rank, arena, place);
    }
    return rc;
}
