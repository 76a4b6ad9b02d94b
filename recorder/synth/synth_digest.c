/* Sums of a tensor and of its samples; the geometry of a by-reference view. */
#include "recorder/synth/synth_eval.h"

#include <stdlib.h>
#include <string.h>

#include "store/rlk_digest.h"

static int digest_rows(const struct sy_tensor *t, const unsigned char *data, const uint64_t *shape,
                       const struct rlk_place *place, struct rlk_sums *sums, bool *composable,
                       struct rlk_detail *detail)
{
    uint64_t numel = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        numel *= shape[i];
    struct rlk_view view = {.dtype = t->dtype,
                            .ndim = t->ndim,
                            .shape = shape,
                            .storage = data,
                            .storage_bytes = numel * rlk_dtype_bytes(t->dtype)};
    return rlk_digest_view(sums, composable, &view, place, detail);
}

/* Runs of dimension 0, without the special value for "whole". */
static uint32_t first_runs(const struct rlk_place *place, struct rlk_run *whole, const struct rlk_run **runs)
{
    if (place->nruns[0] == RLK_WHOLE) {
        *whole = (struct rlk_run){0, place->shape[0]};
        *runs = whole;
        return 1;
    }
    *runs = place->runs;
    return place->nruns[0];
}

/* The part of `sample` that this rank holds: its logical rows cut with the runs, counted from the sample's first row.
 * The rows lie one after another in `data`, in the order of the runs. */
static int digest_placed_sample(const struct sy_tensor *t, const struct sy_value *v, struct rlk_sample_part *sample,
                                struct rlk_detail *detail)
{
    const struct rlk_place *p = t->place;
    const struct rlk_run *runs = NULL;
    struct rlk_run whole;
    uint32_t nruns = first_runs(p, &whole, &runs), cut = 0, total = 0;
    size_t row = t->shape[0] ? (size_t)(v->bytes / t->shape[0]) : 0, used = 0;
    uint64_t local = 0, rows = 0;
    int rc = RLK_ENOMEM;
    bool composable = true;

    for (uint32_t d = 1; d < p->ndim; d++)
        total += p->nruns[d] == RLK_WHOLE ? 0 : p->nruns[d];
    struct rlk_run *cuts = calloc((size_t)nruns + total + 1, sizeof *cuts);
    unsigned char *data = malloc(v->bytes ? (size_t)v->bytes : 1);
    uint64_t *shape = calloc(2 * (size_t)p->ndim, sizeof *shape);
    uint32_t *counts = calloc(p->ndim, sizeof *counts);
    if (!cuts || !data || !shape || !counts)
        goto out;
    for (uint32_t i = 0; i < nruns; local += runs[i++].extent) {
        uint64_t lo = runs[i].start, hi = lo + runs[i].extent, end = sample->start + sample->extent;
        lo = lo < sample->start ? sample->start : lo;
        hi = hi > end ? end : hi;
        if (lo >= hi)
            continue;
        cuts[cut++] = (struct rlk_run){lo - sample->start, hi - lo};
        memcpy(data + used, v->data + (local + lo - runs[i].start) * row, (size_t)(hi - lo) * row);
        used += (size_t)(hi - lo) * row;
        rows += hi - lo;
    }
    if (total)
        memcpy(cuts + cut, p->runs + (p->nruns[0] == RLK_WHOLE ? 0 : p->nruns[0]), total * sizeof *cuts);
    memcpy(counts, p->nruns, p->ndim * sizeof *counts);
    counts[0] = cut;
    memcpy(shape, t->shape, t->ndim * sizeof *shape);
    shape[0] = rows;
    uint64_t *logical = shape + p->ndim;
    memcpy(logical, p->shape, p->ndim * sizeof *logical);
    logical[0] = sample->extent;
    struct rlk_place part = {p->ndim, logical, counts, cuts, NULL, NULL, NULL};
    rc = digest_rows(t, data, shape, &part, &sample->sums, &composable, detail);
out:
    free(cuts);
    free(data);
    free(shape);
    free(counts);
    return rc;
}

static int digest_local_sample(const struct sy_tensor *t, const struct sy_value *v, struct rlk_sample_part *sample,
                               struct rlk_detail *detail)
{
    uint64_t shape[RLK_MAX_DIMS];
    size_t row = t->shape[0] ? (size_t)(v->bytes / t->shape[0]) : 0;
    bool composable = true;

    memcpy(shape, t->shape, t->ndim * sizeof *shape);
    shape[0] = sample->extent;
    return digest_rows(t, v->data + sample->start * row, shape, NULL, &sample->sums, &composable, detail);
}

int sy_digest(const struct sy_tensor *t, struct sy_result *result, struct rlk_detail *detail)
{
    int rc = digest_rows(t, result->value->data, t->shape, t->place, &result->sums, &result->composable, detail);

    if (rc)
        return rc;
    free(result->samples);
    result->samples = calloc((size_t)t->nsamples + 1, sizeof *result->samples);
    if (!result->samples)
        return RLK_ENOMEM;
    for (uint32_t i = 0; i < t->nsamples && !rc; i++) {
        struct rlk_sample_part *s = &result->samples[i];
        *s = t->samples[i];
        s->has_sums = true;
        rc = t->place ? digest_placed_sample(t, result->value, s, detail)
                      : digest_local_sample(t, result->value, s, detail);
    }
    result->digested = !rc;
    return rc;
}

static bool same_shape(const struct sy_tensor *a, const struct sy_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/* Content id over u64 words: ndim, the local shape, then (where the input has a placement) logical ndim and shape, and
 * a count and pairs for each dimension's runs. */
int sy_view(const struct sy_tensor *in, const struct sy_tensor *out, rlk_u128 *view)
{
    const struct rlk_place *p = in->place;
    size_t words = 1 + (size_t)in->ndim, n = 0, r = 0;

    *view = (rlk_u128){0, 0};
    if (same_shape(in, out) && (!p || (out->place && rlk_place_equal(p, out->place))))
        return RLK_OK;
    for (uint32_t d = 0; p && d < p->ndim; d++)
        words += 2 + (p->nruns[d] == RLK_WHOLE ? 0 : 2 * (size_t)p->nruns[d]);
    uint64_t *w = calloc(words + 1, sizeof *w);
    if (!w)
        return RLK_ENOMEM;
    w[n++] = in->ndim;
    for (uint32_t d = 0; d < in->ndim; d++)
        w[n++] = in->shape[d];
    if (p)
        w[n++] = p->ndim;
    for (uint32_t d = 0; p && d < p->ndim; d++) {
        w[n++] = p->shape[d];
        w[n++] = p->nruns[d];
        for (uint32_t i = 0; p->nruns[d] != RLK_WHOLE && i < p->nruns[d]; i++, r++) {
            w[n++] = p->runs[r].start;
            w[n++] = p->runs[r].extent;
        }
    }
    *view = rlk_content_id(w, n * sizeof *w);
    free(w);
    return RLK_OK;
}
