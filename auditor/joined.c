/* joined.c - a part's local tensor is the product of its runs (docs/identity.md, "Placement"): each row of it goes to
 * where the runs say. Nothing in a recording is believed: runs are checked against the logical shape, bytes against
 * their digest, an element that two parts hold or none is no tensor.
 */
#include "auditor/joined.h"
#include "auditor/locate.h"
#include "auditor/parts.h"

#include "store/rlk_digest.h"
#include "store/rlk_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(1) << 30)

struct join {
    struct rlki_audit *audit;
    int side;
    struct rlki_joined *out;
    size_t size;           /* of an element */
    unsigned char *filled; /* a bit an element */
    uint64_t nfilled;
    size_t missing; /* parts without bytes */
    bool begun;
};

static int refuse(struct join *j, const char *why)
{
    snprintf(j->out->why, sizeof j->out->why, "%s", why);
    return RLK_ENOENT;
}

void rlki_joined_release(struct rlki_joined *joined)
{
    free(joined->bytes);
    joined->bytes = NULL;
    rlki_cuts_release(&joined->cuts);
}

/* What one piece holds: a window of rows of the logical tensor (a sample's, else all), seen through its runs. */
struct held {
    const struct rlk_place *place;
    uint32_t ndim;
    uint64_t shape[RLK_MAX_DIMS]; /* of the tensor that is put together */
    uint64_t from, rows;          /* logical rows of dimension 0 that belong to it */
};

static int look_at(struct join *j, const struct rlki_spread *spread, const struct rlki_piece *piece,
                   const struct rlki_ev *ev, const struct rlk_tensor *t, struct rlk_arena *arena, struct held *out)
{
    uint32_t module, name;
    struct rlk_place *place;
    int rc = rlki_part_place(j->audit, j->side, ev, t, arena, &module, &name, &place);
    if (rc)
        return rc;
    out->place = t->place ? t->place : place;
    out->ndim = out->place ? out->place->ndim : t->ndim;
    if (out->ndim > RLK_MAX_DIMS || (out->place && rlk_place_check(out->place, t->ndim, t->shape, NULL) != RLK_OK))
        return refuse(j, "a part and its placement do not fit each other");
    if (out->ndim)
        memcpy(out->shape, out->place ? out->place->shape : t->shape, out->ndim * sizeof *out->shape);
    out->from = 0;
    out->rows = out->ndim ? out->shape[0] : 1;
    if (!spread->by_sample)
        return RLK_OK;
    if (piece->part >= t->nsamples || !out->ndim)
        return refuse(j, "the rows of a sample are not there");
    out->from = t->samples[piece->part].start;
    out->rows = out->shape[0] = t->samples[piece->part].extent;
    return RLK_OK;
}

/* The first piece says what is put together; the others must say the same. */
static int begin(struct join *j, const struct held *held, enum rlk_dtype dtype)
{
    struct rlki_joined *out = j->out;
    if (j->begun)
        return dtype == out->dtype && held->ndim == out->ndim &&
                       (!held->ndim || memcmp(held->shape, out->shape, held->ndim * sizeof *held->shape) == 0)
                   ? RLK_OK
                   : refuse(j, "parts of other types or logical shapes");
    out->dtype = dtype;
    out->ndim = held->ndim;
    memcpy(out->shape, held->shape, held->ndim * sizeof *held->shape);
    j->size = rlk_dtype_bytes(dtype);
    out->n = 1;
    for (uint32_t d = 0; d < held->ndim; d++) {
        if (held->shape[d] && out->n > MAX_BYTES / held->shape[d])
            return refuse(j, "it has more than 1 GiB");
        out->n *= held->shape[d];
    }
    if (!j->size || out->n > MAX_BYTES / j->size)
        return refuse(j, "it has more than 1 GiB");
    out->bytes = calloc((size_t)out->n + 1, j->size);
    j->filled = calloc((size_t)out->n / 8 + 1, 1);
    j->begun = true;
    return out->bytes && j->filled ? RLK_OK : RLK_ENOMEM;
}

/* One dimension of a part while it is walked: the run, and the place in it. */
struct walk {
    const struct rlk_run *run;
    uint32_t n, at;
    uint64_t within;
    struct rlk_run whole;
};

static uint64_t logical(const struct walk *w)
{
    return w->run[w->at].start + w->within;
}

static void first_of(struct walk *w)
{
    w->at = 0;
    w->within = 0;
    while (w->at < w->n && !w->run[w->at].extent)
        w->at++;
}

static bool next_of(struct walk *w)
{
    if (++w->within < w->run[w->at].extent)
        return true;
    w->within = 0;
    do
        w->at++;
    while (w->at < w->n && !w->run[w->at].extent);
    return w->at < w->n;
}

static void begin_walk(struct walk w[], const struct held *held, const struct rlk_tensor *t)
{
    const struct rlk_run *next = held->place ? held->place->runs : NULL;
    for (uint32_t d = 0; d < held->ndim; d++) {
        uint32_t n = held->place && held->place->nruns ? held->place->nruns[d] : RLK_WHOLE;
        w[d] = (struct walk){.n = 1, .whole = {0, t->shape[d]}};
        w[d].run = &w[d].whole;
        if (n != RLK_WHOLE) {
            w[d].run = next;
            w[d].n = n;
            next += n;
        }
        first_of(&w[d]);
    }
}

/* `count` elements that lie next to each other. An element that is there already is another part's. */
static int put(struct join *j, uint64_t at, const unsigned char *from, uint64_t count)
{
    for (uint64_t i = at; i < at + count; i++) {
        if (j->filled[i / 8] >> (i % 8) & 1)
            return refuse(j, "two parts hold the same element");
        j->filled[i / 8] |= (unsigned char)(1u << (i % 8));
    }
    memcpy((unsigned char *)j->out->bytes + at * j->size, from, (size_t)count * j->size);
    j->nfilled += count;
    return RLK_OK;
}

/* The elements of one row of the local tensor: its innermost runs, from `row` (a flat row of the logical tensor) on. */
static int put_row(struct join *j, const struct walk *inner, uint64_t row, const unsigned char *from)
{
    uint64_t width = j->out->shape[j->out->ndim - 1];
    int rc = RLK_OK;
    for (uint32_t r = 0; r < inner->n && rc == RLK_OK; r++) {
        rc = put(j, row * width + inner->run[r].start, from, inner->run[r].extent);
        from += inner->run[r].extent * j->size;
    }
    return rc;
}

/* A tensor of one dimension: the rows are its elements, of which a sample has a window. */
static int put_flat(struct join *j, const struct held *held, struct walk *w, const unsigned char *from, uint64_t n)
{
    int rc = RLK_OK;
    for (uint64_t i = 0; i < n && rc == RLK_OK; i++) {
        uint64_t at = logical(w);
        if (at >= held->from && at - held->from < held->rows)
            rc = put(j, at - held->from, from + i * j->size, 1);
        if (!next_of(w))
            break;
    }
    return rc;
}

static int put_part(struct join *j, const struct held *held, const struct rlk_tensor *t, const unsigned char *from,
                    uint64_t n)
{
    struct walk w[RLK_MAX_DIMS];
    uint32_t last = held->ndim ? held->ndim - 1 : 0, d;
    int rc = RLK_OK;
    if (!n)
        return RLK_OK;
    if (!held->ndim)
        return put(j, 0, from, 1);
    begin_walk(w, held, t);
    if (last == 0)
        return put_flat(j, held, &w[0], from, n);
    for (;;) {
        uint64_t first = logical(&w[0]), row = first - held->from;
        for (d = 1; d < last; d++)
            row = row * j->out->shape[d] + logical(&w[d]);
        if (first >= held->from && first - held->from < held->rows)
            rc = put_row(j, &w[last], row, from);
        from += t->shape[last] * j->size;
        for (d = last; rc == RLK_OK && d > 0; d--) { /* the next row */
            if (next_of(&w[d - 1]))
                break;
            first_of(&w[d - 1]);
        }
        if (rc || d == 0)
            return rc;
    }
}

static bool has_text(const char *text)
{
    return text && *text;
}

/* Is there a part before it with the same runs (the same rows, of a sample)? */
static bool is_replica(const struct rlki_spread *spread, int side, size_t i)
{
    const struct rlki_piece *p = spread->piece[side];
    for (size_t k = 0; k < i; k++)
        if (p[k].place_hash == p[i].place_hash && p[k].slice == p[i].slice && p[k].taken)
            return true;
    return false;
}

static int take_piece(struct join *j, const struct rlki_spread *spread, size_t i, struct rlk_arena *arena)
{
    struct rlki_piece *piece = &spread->piece[j->side][i];
    struct rlki_ev ev;
    struct held held;
    void *bytes = NULL;
    uint64_t n = 0;
    rlk_arena_reset(arena);
    piece->taken = false;
    int rc = rlki_ev_load(j->audit, j->side, piece->env, piece->seq, arena, &ev);
    if (rc)
        return rc;
    const struct rlk_tensor *t = piece->tensor < ev.e.ntensors ? &ev.e.tensors[piece->tensor] : NULL;
    if (!t)
        return refuse(j, "a part is not there");
    rc = look_at(j, spread, piece, &ev, t, arena, &held);
    if (rc || (held.place && (has_text(held.place->partial) || has_text(held.place->zero))))
        return rc;
    j->out->parts++;
    rc = begin(j, &held, t->dtype);
    if (rc == RLK_OK && held.place)
        rc = rlki_cuts_add(&j->out->cuts, held.place, held.from, held.rows, spread->by_sample);
    if (rc || is_replica(spread, j->side, i))
        return rc;
    rc = rlki_bytes_of(j->audit, j->side, &ev, t, &bytes, &n);
    if (rc == RLK_ENOENT) {
        j->missing++;
        return RLK_OK;
    }
    if (rc == RLK_OK) {
        rc = put_part(j, &held, t, bytes, n);
        piece->taken = rc == RLK_OK;
        j->out->taken += n > 0;
    }
    free(bytes);
    return rc;
}

/* Is it what was compared? Where ranks hold replicas that differ, the bytes may be another's. */
static int check(struct join *j, const struct rlki_spread *spread)
{
    const struct rlki_joined *out = j->out;
    struct rlk_view view = {.dtype = out->dtype,
                            .ndim = out->ndim,
                            .shape = out->shape,
                            .storage = out->bytes,
                            .storage_bytes = out->n * j->size};
    struct rlk_sums sums;
    bool composable;
    if (!spread->whole_units[j->side])
        return RLK_OK;
    int rc = rlk_digest_view(&sums, &composable, &view, NULL, j->audit->detail);
    if (rc)
        return rc;
    return rlk_sums_same_bits(&sums, &spread->sums[j->side]) ? RLK_OK
                                                             : refuse(j, "replicas of a part differ: which was meant?");
}

int rlki_join(struct rlki_audit *audit, int side, const struct rlki_spread *spread, struct rlki_joined *out)
{
    struct join j = {.audit = audit, .side = side, .out = out};
    struct rlk_arena arena = {0};
    int rc = RLK_OK;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < spread->n[side] && rc == RLK_OK; i++)
        rc = take_piece(&j, spread, i, &arena);
    if (rc == RLK_OK && !j.begun)
        rc = refuse(&j, "no rank holds a part of it");
    if (rc == RLK_OK && j.nfilled < out->n && j.missing) {
        snprintf(out->why, sizeof out->why, "the bytes of %zu of %zu parts in %c were not kept", j.missing, out->parts,
                 side ? 'B' : 'A');
        rc = RLK_ENOENT;
    }
    if (rc == RLK_OK && j.nfilled < out->n)
        rc = refuse(&j, "no part holds some of its elements");
    if (rc == RLK_OK)
        rc = check(&j, spread);
    rlk_arena_release(&arena);
    free(j.filled);
    return rc;
}
