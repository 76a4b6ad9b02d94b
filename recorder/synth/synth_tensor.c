/* TENSOR: name, dtype, shape, placement, samples and the rest; fills and edits are in synth_edit.c. */
#include "recorder/synth/synth_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/synth/rlk_synth.h"

#define MAX_RUNS 65536u
#define MAX_SAMPLES (1u << 20)

static int read_shape(struct sy_spec *spec, const struct sy_at *at, uint32_t *ndim, const uint64_t **shape)
{
    size_t n = 0;
    int rc = sy_list(at, 0, RLK_MAX_DIMS, &n);
    if (rc)
        return rc;
    uint64_t *dims = SY_NEW(spec, n, uint64_t);
    if (!dims)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        int64_t d = 0;
        rc = sy_int(&item, 0, INT64_C(1) << 48, &d);
        dims[i] = (uint64_t)d;
    }
    *ndim = (uint32_t)n;
    *shape = dims;
    return rc;
}

/* Elements and bytes within the bounds; every prefix is checked, so a 0 cannot hide an overflow. */
static int measure(const struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] && n > RLK_SYNTH_MAX_ELEMENTS / t->shape[i])
            return sy_fail(at, "more than 2^31 elements");
        n *= t->shape[i];
    }
    t->numel = n;
    t->bytes = n * rlk_dtype_bytes(t->dtype);
    if (t->bytes > spec->max_bytes)
        return sy_fail(at, "%llu bytes, at most %llu are held at once", (unsigned long long)t->bytes,
                       (unsigned long long)spec->max_bytes);
    return RLK_OK;
}

/* One dimension: null = whole, else [[start, extent]...]. Appends to *runs. */
static int read_dim_runs(const struct sy_at *at, struct rlk_run *runs, size_t *used, uint32_t *n)
{
    size_t count = 0;
    int rc;

    if (json_is_null(at->v)) {
        *n = RLK_WHOLE;
        return RLK_OK;
    }
    rc = sy_list(at, 0, MAX_RUNS, &count);
    for (size_t i = 0; i < count && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        size_t two = 0;
        int64_t start = 0, extent = 0;
        rc = sy_list(&item, 2, 2, &two);
        if (rc)
            break;
        struct sy_at a = sy_item(&item, 0), b = sy_item(&item, 1);
        rc = sy_int(&a, 0, INT64_C(1) << 48, &start);
        if (!rc)
            rc = sy_int(&b, 0, INT64_C(1) << 48, &extent);
        if (!rc)
            runs[(*used)++] = (struct rlk_run){(uint64_t)start, (uint64_t)extent};
    }
    *n = (uint32_t)count;
    return rc;
}

static int read_runs(struct sy_spec *spec, const struct sy_at *at, struct rlk_place *place)
{
    size_t dims = 0, total = 0, used = 0;
    uint32_t *nruns = SY_NEW(spec, place->ndim, uint32_t);
    int rc = nruns ? RLK_OK : RLK_ENOMEM;

    for (uint32_t d = 0; d < place->ndim && !rc; d++)
        nruns[d] = RLK_WHOLE;
    if (!rc && at->v)
        rc = sy_list(at, 0, place->ndim, &dims);
    for (size_t d = 0; d < dims; d++)
        total += json_array_size(json_array_get(at->v, d));
    struct rlk_run *runs = rc ? NULL : SY_NEW(spec, total, struct rlk_run);
    if (!rc && !runs)
        rc = RLK_ENOMEM;
    for (size_t d = 0; d < dims && !rc; d++) {
        struct sy_at item = sy_item(at, d);
        rc = read_dim_runs(&item, runs, &used, &nruns[d]);
    }
    place->nruns = nruns;
    place->runs = runs;
    return rc;
}

static int read_logical(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const keys[] = {"shape", "runs", "partial", "replica", "zero", NULL};
    struct rlk_detail why = {""};
    struct sy_at shape, runs;
    int rc = sy_object(at, keys);

    if (!rc)
        rc = sy_need(at, "shape", &shape);
    if (rc)
        return rc;
    struct rlk_place *place = SY_NEW(spec, 1, struct rlk_place);
    if (!place)
        return RLK_ENOMEM;
    rc = read_shape(spec, &shape, &place->ndim, &place->shape);
    runs = sy_get(at, "runs");
    if (!rc)
        rc = read_runs(spec, &runs, place);
    if (!rc)
        rc = sy_opt_string(at, "partial", &place->partial);
    if (!rc)
        rc = sy_opt_string(at, "replica", &place->replica);
    if (!rc)
        rc = sy_opt_string(at, "zero", &place->zero);
    if (rc)
        return rc;
    rc = rlk_place_check(place, t->ndim, t->shape, &why);
    if (rc == RLK_ENOMEM)
        return rc;
    if (rc)
        return sy_fail(at, "does not fit the shape: %s", why.text);
    t->place = place;
    return RLK_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_sample_ids(struct sy_spec *spec, const struct sy_at *at, const struct rlk_sample_part *parts, size_t n)
{
    char shown[96];
    const char **ids = SY_NEW(spec, n, const char *);
    if (!ids)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        ids[i] = parts[i].id;
    if (n)
        qsort(ids, n, sizeof *ids, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            return sy_fail(at, "sample \"%s\" is there twice", sy_shown(shown, ids[i]));
    return RLK_OK;
}

/* [[id, start, extent]...]: rows of dimension 0, logical ones where there is a placement. */
static int read_samples(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    size_t n = 0, three = 0;
    int rc = sy_list(at, 0, MAX_SAMPLES, &n);

    if (rc)
        return rc;
    if (n && !t->ndim)
        return sy_fail(at, "a tensor of no dimensions has no samples");
    uint64_t rows = t->place ? (t->place->ndim ? t->place->shape[0] : 0) : t->ndim ? t->shape[0] : 0;
    struct rlk_sample_part *parts = SY_NEW(spec, n, struct rlk_sample_part);
    if (!parts)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        int64_t start = 0, extent = 0;
        rc = sy_list(&item, 3, 3, &three);
        if (rc)
            return rc;
        struct sy_at id = sy_item(&item, 0), a = sy_item(&item, 1), b = sy_item(&item, 2);
        rc = sy_string(&id, false, &parts[i].id);
        if (!rc)
            rc = sy_int(&a, 0, (int64_t)rows, &start);
        if (!rc)
            rc = sy_int(&b, 0, (int64_t)rows - start, &extent);
        parts[i].start = (uint64_t)start;
        parts[i].extent = (uint64_t)extent;
    }
    t->nsamples = (uint32_t)n;
    t->samples = parts;
    return rc ? rc : check_sample_ids(spec, at, parts, n);
}

static int read_alloc(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    char text[32];
    int64_t alloc = 0;
    int rc = sy_int(at, 0, INT64_MAX - 1, &alloc);

    if (rc)
        return rc;
    snprintf(text, sizeof text, "%lld", (long long)alloc);
    t->has_alloc = true;
    t->alloc = (uint64_t)alloc + 1; /* 0 means unknown in a recording */
    t->alloc_id = sy_number_of(spec->allocs, text, &spec->nallocs);
    return t->alloc_id == SY_NONE ? RLK_ENOMEM : RLK_OK;
}

static int read_state(const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const states[] = {"undefined", "not_digested", NULL};
    const char *state = NULL;
    struct sy_at v = sy_get(at, "state"), reason = sy_get(at, "reason");
    int rc = RLK_OK;

    t->reason = "";
    if (v.v) {
        rc = sy_choice(&v, states, &state);
        if (!rc)
            t->state = state[0] == 'u' ? RLK_T_UNDEFINED : RLK_T_NOT_DIGESTED;
        t->reason = "spec";
    } else if (reason.v) {
        return sy_fail(&reason, "belongs to a tensor with a \"state\"");
    }
    if (!rc && reason.v)
        rc = sy_string(&reason, false, &t->reason);
    return rc;
}

/* What hangs on name, dtype and shape. */
static int read_rest(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    struct sy_at v;
    int rc = RLK_OK;

    if ((v = sy_get(at, "fill")).v)
        rc = sy_read_fill(spec, &v, t);
    if (!rc && (v = sy_get(at, "edit")).v)
        rc = sy_read_edits(spec, &v, t);
    if (!rc && (v = sy_get(at, "logical")).v)
        rc = read_logical(spec, &v, t);
    if (!rc && (v = sy_get(at, "samples")).v)
        rc = read_samples(spec, &v, t);
    if (!rc && (v = sy_get(at, "alloc")).v)
        rc = read_alloc(spec, &v, t);
    if (!rc)
        rc = sy_opt_string(at, "version", &t->version);
    if (!rc)
        rc = read_state(at, t);
    if (!rc)
        rc = sy_opt_bool(at, "payload", &t->payload);
    return rc;
}

static int read_tensor(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const keys[] = {"name",    "dtype",   "shape", "fill",   "edit",    "logical", "alloc",
                                       "version", "samples", "state", "reason", "payload", NULL};
    struct sy_at name, dtype, shape;
    int rc = sy_object(at, keys);

    t->version = "";
    t->fill.kind = SY_FILL_CONST;
    t->fill.value.is_int = true;
    if (!rc)
        rc = sy_need(at, "name", &name);
    if (!rc)
        rc = sy_string(&name, false, &t->name);
    if (!rc)
        rc = sy_need(at, "dtype", &dtype);
    if (!rc)
        rc = sy_read_dtype(&dtype, &t->dtype);
    if (!rc)
        rc = sy_need(at, "shape", &shape);
    if (!rc)
        rc = read_shape(spec, &shape, &t->ndim, &t->shape);
    if (!rc)
        rc = measure(spec, &shape, t);
    if (!rc)
        rc = read_rest(spec, at, t);
    if (rc)
        return rc;
    /* Last, so that `like` its own name means an earlier tensor. */
    t->name_id = sy_number_of(spec->names, t->name, &spec->nnames);
    t->memo = spec->ntensors++;
    spec->any_tensor = true;
    return t->name_id == SY_NONE ? RLK_ENOMEM : RLK_OK;
}

int sy_read_tensors(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *tensors, size_t n)
{
    int rc = RLK_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = read_tensor(spec, &item, &tensors[i]);
    }
    return rc;
}
