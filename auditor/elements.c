/* elements.c - "difference" of a DIFF: from the bytes where both sides kept them, else from the sums. */
#include "auditor/elements.h"
#include "auditor/audit.h"
#include "auditor/drawing.h"
#include "auditor/joined.h"
#include "auditor/locate.h"

#include "store/rlk_digest.h"
#include "store/rlk_dtype_value.h"
#include "store/rlk_place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(1) << 30)

const char *rlki_grade_of_sums(const struct rlk_sums *a, const struct rlk_sums *b)
{
    /* The same bytes, and yet unequal: seen through other views. What differs in them the sums do not say. */
    if (rlk_sums_same_bits(a, b))
        return "different";
    if (rlk_u128_equal(a->value, b->value) && a->elements == b->elements)
        return a->negzero != b->negzero || !(a->nan && b->nan) ? "sign-of-zero" : "nan-payload";
    if (a->multiset == b->multiset && a->elements == b->elements)
        return "permutation";
    return "different";
}

int rlki_located(struct rlki_audit *audit, const struct rlki_found *found, int side, struct rlk_arena *arena,
                 struct rlki_ev *ev, const struct rlk_tensor **tensor)
{
    uint32_t env, place = side ? found->tensor_b : found->tensor_a;
    uint64_t seq;
    *tensor = NULL;
    if (!found->nat)
        return RLK_ENOENT;
    const struct rlki_at *at = &found->at[0];
    bool has = side == 0 ? !at->in_b : at->in_b || at->has_mate;
    if (!has)
        return RLK_ENOENT;
    bool own = side == 0 || (at->in_b && !at->after);
    env = own ? at->env : at->mate_env;
    seq = own ? at->seq : at->mate_seq;
    int rc = rlki_ev_load(audit, side, env, seq, arena, ev);
    if (rc == RLK_OK && place < ev->e.ntensors)
        *tensor = &ev->e.tensors[place];
    return rc;
}

/* Bytes of a tensor, checked against its digest. RLK_ENOENT: not kept. */
static int bytes_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                    const struct rlki_value *value, void **out, uint64_t *n)
{
    uint64_t numel = 1;
    size_t size = 0;
    for (uint32_t d = 0; d < t->ndim; d++) {
        if (t->shape[d] && numel > MAX_BYTES / t->shape[d])
            return RLK_ENOENT;
        numel *= t->shape[d];
    }
    if (!t->has_payload || numel * rlk_dtype_bytes(t->dtype) > MAX_BYTES)
        return RLK_ENOENT;
    int rc = rlk_env_payload(audit->side[side].env[ev->env].env, t->payload, MAX_BYTES, out, &size, audit->detail);
    if (rc)
        return rc == RLK_ELIMIT ? RLK_ENOENT : rc;
    *n = numel;
    struct rlk_view view = {
        .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .storage = *out, .storage_bytes = size};
    struct rlk_sums sums;
    bool composable;
    if (size != numel * rlk_dtype_bytes(t->dtype))
        rc = RLK_ECORRUPT;
    else if (value->known && !value->view.lo && !value->view.hi)
        rc = rlk_digest_view(&sums, &composable, &view, t->place, audit->detail);
    else
        return RLK_OK;
    if (rc == RLK_OK && rlk_sums_same_bits(&sums, &value->sums))
        return RLK_OK;
    free(*out);
    *out = NULL;
    if (rc == RLK_ENOMEM)
        return rc;
    return rlk_fail(audit->detail, RLK_ECORRUPT, "%s: event %llu: the bytes of tensor \"%s\" do not have its digest",
                    rlk_recording_env_dir(audit->side[side].recording, ev->env), (unsigned long long)ev->e.seq,
                    t->name);
}

int rlki_bytes_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t, void **out,
                  uint64_t *n)
{
    struct rlki_value value;
    *out = NULL;
    int rc = rlki_value_of(audit, side, &ev->e, ev->env, t, &value);
    return rc ? rc : bytes_of(audit, side, ev, t, &value, out, n);
}

json_t *rlki_index_json(uint64_t flat, uint32_t ndim, const uint64_t *shape, const struct rlk_place *place)
{
    uint64_t at[RLK_MAX_DIMS];
    json_t *array = json_array();
    if (ndim > RLK_MAX_DIMS)
        return array;
    for (uint32_t d = ndim; d > 0; d--) {
        at[d - 1] = shape[d - 1] ? flat % shape[d - 1] : 0;
        flat = shape[d - 1] ? flat / shape[d - 1] : 0;
    }
    const struct rlk_run *run = place ? place->runs : NULL;
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t index = at[d];
        if (place && place->ndim == ndim && place->nruns[d] != RLK_WHOLE) {
            uint64_t left = index;
            for (uint32_t r = 0; r < place->nruns[d]; r++) { /* local to logical */
                if (left < run[r].extent) {
                    index = run[r].start + left;
                    break;
                }
                left -= run[r].extent;
            }
            run += place->nruns[d];
        }
        rlki_add(array, json_integer((json_int_t)index));
    }
    return array;
}

/* What is compared: a tensor of one rank as it is there, or one that was put together. */
struct whole {
    enum rlk_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    const struct rlk_place *place; /* turns local indices into logical ones */
    uint64_t n;
    void *bytes[2];
    const struct rlki_cuts *cuts[2];
};

static json_t *from_elements(const struct rlki_elements *e, const struct whole *t)
{
    json_t *out = json_pack("{s:I,s:I,s:n,s:n,s:n,s:I,s:s,s:s}", "elements", (json_int_t)e->elements, "changed",
                            (json_int_t)e->changed, "max_ulp", "max_abs", "first_index", "nan", (json_int_t)e->nan,
                            "pattern", e->pattern, "grade", e->grade);
    if (!out)
        return NULL;
    if (e->has_ulp && e->measured)
        rlki_set(out, "max_ulp", json_integer(e->max_ulp > INT64_MAX ? INT64_MAX : (json_int_t)e->max_ulp));
    if (e->measured && isfinite(e->max_abs))
        rlki_set(out, "max_abs", json_real(e->max_abs));
    if (e->changed)
        rlki_set(out, "first_index", rlki_index_json(e->first, t->ndim, t->shape, t->place));
    if (e->fill_a >= 0 && e->changed)
        rlki_set(out, "fill_a", json_integer(e->fill_a));
    if (e->fill_b >= 0 && e->changed)
        rlki_set(out, "fill_b", json_integer(e->fill_b));
    return out;
}

static json_t *sums_only(uint64_t elements, const char *grade, const char *why)
{
    json_t *out = json_pack("{s:I,s:n,s:n,s:n,s:n,s:n,s:n,s:s}", "elements", (json_int_t)elements, "changed", "max_ulp",
                            "max_abs", "first_index", "nan", "pattern", "grade", grade);
    if (out && why)
        rlki_set(out, "unmeasured", json_string(why));
    return out;
}

static json_t *metric_difference(const struct rlki_ev *a, const struct rlki_ev *b)
{
    struct rlki_elements e;
    const struct whole scalar = {.dtype = RLK_FP64};
    bool same = a->e.u.metric.value == b->e.u.metric.value;
    if (rlki_elements(&e, RLK_FP64, 0, NULL, &a->e.u.metric.value, &b->e.u.metric.value, 1, false, same) != RLK_OK)
        return NULL;
    return from_elements(&e, &scalar);
}

void rlki_drop_bytes(struct rlki_audit *audit)
{
    free(audit->kept.bytes[0]);
    free(audit->kept.bytes[1]);
    audit->kept.bytes[0] = audit->kept.bytes[1] = NULL;
}

bool rlki_kept_bytes(const struct rlki_audit *audit, const struct rlki_found *found, const unsigned char *out[2],
                     uint32_t *ndim, const uint64_t **shape)
{
    const struct rlki_at *x = &audit->kept.at, *y = &found->at[0];
    if (!audit->kept.bytes[0] || !audit->kept.bytes[1] || !found->nat || x->env != y->env || x->seq != y->seq ||
        x->mate_env != y->mate_env || x->mate_seq != y->mate_seq || audit->kept.tensor[0] != found->tensor_a ||
        audit->kept.tensor[1] != found->tensor_b)
        return false;
    out[0] = audit->kept.bytes[0];
    out[1] = audit->kept.bytes[1];
    *ndim = audit->kept.ndim;
    *shape = audit->kept.shape;
    return true;
}

static bool at_cuts(const struct whole *w, int side)
{
    return w->cuts[side] && w->cuts[side]->n &&
           rlki_at_cuts(w->cuts[side], rlk_dtype_bytes(w->dtype), w->ndim, w->shape, w->bytes[0], w->bytes[1], w->n);
}

/* Measures and draws. The bytes become the audit's. */
static int measure(struct rlki_audit *audit, const struct whole *w, bool value_equal, json_t **out)
{
    struct rlki_elements e;
    int rc = rlki_elements(&e, w->dtype, w->ndim, w->shape, w->bytes[0], w->bytes[1], w->n, false, value_equal);
    static const char *const plainer[] = {"rows", "suffix", "tile", "uniform", "unknown"};
    for (size_t i = 0; rc == RLK_OK && e.changed && i < sizeof plainer / sizeof *plainer; i++)
        if (strcmp(e.pattern, plainer[i]) == 0 && (at_cuts(w, 0) || at_cuts(w, 1)))
            e.pattern = "shard-boundary";
    if (rc == RLK_OK)
        *out = from_elements(&e, w);
    if (rc == RLK_OK && !*out)
        rc = RLK_ENOMEM;
    if (rc == RLK_OK && audit->drawn++ < RLKI_DRAWN)
        rc = rlki_draw(*out, w->dtype, w->ndim, w->shape, w->place, w->cuts, w->bytes[0], w->bytes[1], w->n);
    audit->kept.bytes[0] = w->bytes[0];
    audit->kept.bytes[1] = w->bytes[1];
    audit->kept.ndim = w->ndim;
    if (w->ndim)
        memcpy(audit->kept.shape, w->shape, w->ndim * sizeof *w->shape);
    if (rc) {
        rlki_drop_bytes(audit);
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

static int compare_bytes(struct rlki_audit *audit, const struct rlki_ev ev[2], const struct rlk_tensor *const t[2],
                         const struct rlki_value value[2], json_t **out)
{
    struct rlki_cuts cuts = {0};
    struct whole w = {
        .dtype = t[0]->dtype, .ndim = t[0]->ndim, .shape = t[0]->shape, .place = t[0]->place, .cuts = {&cuts, NULL}};
    uint64_t n[2] = {0, 0};
    int rc = RLK_OK;
    for (int s = 0; s < 2 && (rc == RLK_OK || rc == RLK_ENOENT); s++) { /* damage shows on either side */
        int one = bytes_of(audit, s, &ev[s], t[s], &value[s], &w.bytes[s], &n[s]);
        rc = one ? one : rc;
    }
    if (rc == RLK_OK && n[0] != n[1])
        rc = RLK_ENOENT;
    if (rc == RLK_OK)
        rc = rlki_cuts_local(&cuts, t[0]->place);
    w.n = n[0];
    if (rc == RLK_OK)
        rc = measure(audit, &w, rlk_u128_equal(value[0].sums.value, value[1].sums.value), out);
    else
        for (int s = 0; s < 2; s++)
            free(w.bytes[s]);
    rlki_cuts_release(&cuts);
    return rc;
}

/* Across layouts: what the ranks of either side hold, put together. */
static int compare_spread(struct rlki_audit *audit, const struct rlki_spread *spread, json_t **out)
{
    struct rlki_joined side[2] = {0};
    const char *why = spread->comparable ? NULL : "the two have other types or logical shapes";
    int rc = why ? RLK_ENOENT : RLK_OK;
    for (int s = 0; s < 2 && !why && (rc == RLK_OK || rc == RLK_ENOENT); s++) { /* damage shows on either side */
        int one = rlki_join(audit, s, spread, &side[s]);
        rc = one && (rc == RLK_OK || one != RLK_ENOENT) ? one : rc;
    }
    if (rc == RLK_ENOENT) {
        const char *said = why ? why : *side[0].why ? side[0].why : side[1].why;
        *out =
            sums_only(spread->sums[0].elements,
                      spread->comparable ? rlki_grade_of_sums(&spread->sums[0], &spread->sums[1]) : "different", said);
        rc = RLK_OK;
    } else if (rc == RLK_OK) {
        const struct whole w = {.dtype = side[0].dtype,
                                .ndim = side[0].ndim,
                                .shape = side[0].shape,
                                .n = side[0].n,
                                .bytes = {side[0].bytes, side[1].bytes},
                                .cuts = {&side[0].cuts, &side[1].cuts}};
        side[0].bytes = side[1].bytes = NULL;
        rc = measure(audit, &w, rlk_u128_equal(spread->sums[0].value, spread->sums[1].value), out);
        if (rc == RLK_OK)
            rlki_set(*out, "parts",
                     json_pack("{s:I,s:I}", "a", (json_int_t)side[0].parts, "b", (json_int_t)side[1].parts));
    }
    rlki_joined_release(&side[0]);
    rlki_joined_release(&side[1]);
    return rc;
}

int rlki_difference(struct rlki_audit *audit, const struct rlki_found *found, json_t **out)
{
    return rlki_difference_of(audit, found, 0, out);
}

int rlki_difference_of(struct rlki_audit *audit, const struct rlki_found *found, size_t n, json_t **out)
{
    struct rlk_arena arena = {0};
    struct rlki_ev ev[2];
    const struct rlk_tensor *t[2];
    struct rlki_value value[2];
    int rc = RLK_OK;
    *out = NULL;
    rlki_drop_bytes(audit);
    if (found->nat)
        audit->kept.at = found->at[0];
    audit->kept.tensor[0] = found->tensor_a;
    audit->kept.tensor[1] = found->tensor_b;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        rc = rlki_located(audit, found, s, &arena, &ev[s], &t[s]);
        if (rc == RLK_OK && t[s])
            rc = rlki_value_of(audit, s, &ev[s].e, ev[s].env, t[s], &value[s]);
    }
    if (rc == RLK_ENOENT || (rc == RLK_OK && found->extra)) {
        *out = json_null();
        rc = RLK_OK;
        goto out;
    }
    if (rc)
        goto out;
    if (found->kind == RLK_EV_METRIC) {
        *out = metric_difference(&ev[0], &ev[1]);
    } else if (!t[0] || !t[1]) {
        *out = json_null();
    } else if (n < found->nspread) {
        rc = compare_spread(audit, &found->spread[n], out);
    } else {
        bool comparable = t[0]->dtype == t[1]->dtype && t[0]->ndim == t[1]->ndim &&
                          (!t[0]->ndim || memcmp(t[0]->shape, t[1]->shape, t[0]->ndim * sizeof *t[0]->shape) == 0);
        rc = comparable ? compare_bytes(audit, ev, t, value, out) : RLK_ENOENT;
        if (rc == RLK_ENOENT) {
            rc = RLK_OK;
            *out = sums_only(value[0].sums.elements,
                             comparable ? rlki_grade_of_sums(&value[0].sums, &value[1].sums) : "different",
                             comparable ? NULL : "the two have other types or shapes");
        }
    }
    if (!*out && rc == RLK_OK)
        rc = RLK_ENOMEM;
out:
    rlk_arena_release(&arena);
    return rc;
}
