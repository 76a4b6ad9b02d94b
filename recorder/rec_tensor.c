/* rec_tensor.c - one tensor of an event: digested, by reference, or the reason why neither. */
#include "recorder/rec_gpu.h"
#include "recorder/rec_op.h"
#include "store/rlk_place.h"

#include <stdlib.h>
#include <string.h>

static const struct rlki_geometry *geometry_of(struct rlk_tap_op *op, const struct rlk_view *view)
{
    if (view->ndim > RLK_MAX_DIMS)
        return NULL;
    struct rlki_geometry *g = rlki_op_alloc(op, 1, rlki_geometry_bytes(view->ndim));
    return g && rlki_geometry_fill(g, view) ? g : NULL;
}

static void not_digested(struct rlk_tensor *out, const char *reason)
{
    out->state = RLK_T_NOT_DIGESTED;
    out->reason = reason;
}

static bool refer(struct rlk_tap_op *op, const struct rlk_tap_tensor *from, const struct rlki_geometry *geometry,
                  struct rlk_tensor *out)
{
    struct rlki_producer producer;
    if (from->always_digest || rlki_options.digest_inputs || !geometry ||
        !rlki_track_find(op->ctx->state->track, from->generation, from->version, geometry, &producer))
        return false;
    /* Old steps are let go: what is kept must not refer to what is not. */
    if (rlki_options.keep_last && producer.step != op->event.who.step)
        return false;
    out->state = RLK_T_REFERENCE;
    out->ref_event = producer.seq;
    out->ref_output = producer.output;
    out->ref_view = producer.view;
    out->composable = !from->place || rlk_place_composable(from->place, from->view.dtype);
    return true;
}

/* One piece of a sample: local rows [local, local + n) are its tokens [token, token + n). Adds its sums. */
static int sample_piece(struct rlk_sums *sums, const struct rlk_tap_tensor *from, uint64_t local, uint64_t n,
                        uint64_t token, uint64_t extent)
{
    const struct rlk_place *whole = from->place;
    uint64_t shape[RLK_MAX_DIMS], logical[RLK_MAX_DIMS];
    uint32_t nruns[RLK_MAX_DIMS];
    struct rlk_view view = from->view;
    if (view.ndim == 0 || view.ndim > RLK_MAX_DIMS || (whole && whole->ndim != view.ndim))
        return RLK_EINVAL;
    uint32_t total = 1;
    memcpy(shape, view.shape, view.ndim * sizeof *shape);
    memcpy(logical, whole ? whole->shape : view.shape, view.ndim * sizeof *logical);
    for (uint32_t i = 0; i < view.ndim; i++) {
        nruns[i] = whole && whole->nruns ? whole->nruns[i] : RLK_WHOLE;
        total += i && nruns[i] != RLK_WHOLE ? nruns[i] : 0;
    }
    int64_t stride = 1;
    for (uint32_t i = 1; i < view.ndim; i++)
        stride *= (int64_t)view.shape[i];
    stride = view.strides ? view.strides[0] : stride;
    uint32_t skip = nruns[0] == RLK_WHOLE ? 0 : nruns[0]; /* runs of dimension 0 */
    struct rlk_run *runs = malloc(total * sizeof *runs);
    if (!runs)
        return RLK_ENOMEM;
    runs[0] = (struct rlk_run){token, n};
    if (total > 1)
        memcpy(runs + 1, whole->runs + skip, (total - 1) * sizeof *runs);
    shape[0] = n;
    logical[0] = extent;
    nruns[0] = 1;
    view.shape = shape;
    view.offset = (uint64_t)((int64_t)view.offset + (int64_t)local * stride);
    struct rlk_place place = {.ndim = view.ndim, .shape = logical, .nruns = nruns, .runs = runs};
    struct rlk_sums part;
    bool composable = false;
    int rc = rlk_digest_view(&part, &composable, &view, &place, NULL);
    if (rc == RLK_OK && !composable)
        rc = RLK_EUNSUPPORTED;
    if (rc == RLK_OK)
        rlk_sums_add(sums, &part);
    free(runs);
    return rc;
}

/* The rows of a sample that this rank holds: rows are those of the logical tensor, so with a placement its runs decide.
 */
static int sample_sums(struct rlk_sums *sums, const struct rlk_tap_tensor *from, const struct rlk_sample_part *part)
{
    const struct rlk_place *place = from->place;
    struct rlk_run whole = {0, from->view.ndim ? from->view.shape[0] : 0};
    bool cut = place && place->nruns && place->ndim && place->nruns[0] != RLK_WHOLE;
    uint32_t n = cut ? place->nruns[0] : 1;
    const struct rlk_run *runs = cut ? place->runs : &whole;
    uint64_t end = part->start + part->extent, local = 0;
    int rc = end < part->start ? RLK_EINVAL : RLK_OK;
    memset(sums, 0, sizeof *sums);
    for (uint32_t i = 0; i < n && rc == RLK_OK; local += runs[i++].extent) {
        uint64_t first = runs[i].start > part->start ? runs[i].start : part->start;
        uint64_t last = runs[i].start + runs[i].extent < end ? runs[i].start + runs[i].extent : end;
        if (first < last)
            rc = sample_piece(sums, from, local + (first - runs[i].start), last - first, first - part->start,
                              part->extent);
    }
    return rc;
}

static void take_samples(struct rlk_tap_op *op, const struct rlk_tap_tensor *from, struct rlk_tensor *out)
{
    if (!from->nsamples)
        return;
    struct rlk_sample_part *parts = rlki_op_copy(op, from->samples, from->nsamples, sizeof *parts);
    for (uint32_t i = 0; parts && i < from->nsamples; i++) {
        parts[i].id = rlki_op_string(op, parts[i].id);
        parts[i].has_sums = out->state == RLK_T_DIGESTED && sample_sums(&parts[i].sums, from, &parts[i]) == RLK_OK;
        if (!parts[i].has_sums)
            memset(&parts[i].sums, 0, sizeof parts[i].sums);
    }
    out->samples = parts;
    out->nsamples = parts ? from->nsamples : 0;
}

static bool is_empty(const struct rlk_view *view)
{
    for (uint32_t d = 0; d < view->ndim; d++)
        if (view->shape[d] == 0)
            return true;
    return false;
}

static void take_payload(struct rlk_tap_op *op, const struct rlk_tap_tensor *from, struct rlk_tensor *out)
{
    const struct rlk_identity *who = &op->event.who;
    void *bytes = NULL;
    size_t n = 0;
    if ((out->state != RLK_T_DIGESTED && out->state != RLK_T_REFERENCE && out->state != RLK_T_PENDING) ||
        !(from->payload || rlk_select_match(rlki_options.payload, who, op->event.rank, (enum rlk_role)out->role,
                                            out->index, from->name)))
        return;
    struct rlk_view view = from->view;
    void *fetched = NULL;
    int rc = from->device && !is_empty(&view) ? rlki_gpu_fetch(op->ctx->state, from, &view, &fetched) : RLK_OK;
    if (rc == RLK_OK)
        rc = rlki_payload_bytes(&view, &bytes, &n);
    free(fetched);
    if (rc == RLK_OK)
        rc = rlki_rec_payload(op->ctx->state, bytes, n, &out->payload);
    free(bytes);
    out->has_payload = rc == RLK_OK;
    if (rc && rc != RLK_ESTATE) /* that one is said where the event is put */
        rlki_fault("payload",
                   "the bytes of a tensor could not be kept (memory, the queue is full, or a device refused)");
}

static void add_device(struct rlk_tap_op *op, enum rlk_role role, uint32_t index, const struct rlk_tap_tensor *from,
                       struct rlk_tensor *out)
{
    if (from->device != RLK_TAP_CUDA)
        not_digested(out, "device");
    else if (!from->view.storage)
        not_digested(out, "no-storage");
    else if (!rlki_gpu_add(op, role, index, from, out))
        op->broken = true;
}

void rlki_tensor_make(struct rlk_tap_op *op, enum rlk_role role, uint32_t index, const struct rlk_tap_tensor *from,
                      struct rlk_tensor *out, struct rlki_write *write)
{
    const struct rlk_view *view = &from->view;
    const struct rlki_geometry *geometry = NULL;
    *out = (struct rlk_tensor){.name = rlki_op_string(op, from->name),
                               .role = (uint8_t)role,
                               .index = index,
                               .dtype = (uint8_t)view->dtype,
                               .composable = true,
                               .ndim = view->ndim,
                               .alloc = from->generation,
                               .version = rlki_op_string(op, from->label)};
    if (view->ndim > RLK_MAX_DIMS) {
        op->broken = true;
        return;
    }
    out->shape = rlki_op_copy(op, view->shape, view->ndim, sizeof *view->shape);
    if (from->place && !(out->place = rlk_place_copy(&op->arena, from->place)))
        op->broken = true;
    if (from->generation && from->version)
        geometry = geometry_of(op, view);
    struct rlk_detail detail = {""};
    if (from->state == RLK_T_UNDEFINED || from->state == RLK_T_NOT_DIGESTED) {
        out->state = from->state;
        out->reason = rlki_op_string(op, from->reason && *from->reason ? from->reason : "unstated");
    } else if (op->event.autotune) {
        not_digested(out, "autotune");
    } else if (role == RLK_ROLE_IN && refer(op, from, geometry, out)) {
        ;
    } else if (from->sums) {
        out->sums = *from->sums;
        out->composable = !from->place || rlk_place_composable(from->place, view->dtype);
    } else if (from->device && !is_empty(view)) {
        add_device(op, role, index, from, out);
    } else if (rlk_digest_view(&out->sums, &out->composable, view, from->place, &detail)) {
        memset(&out->sums, 0, sizeof out->sums);
        not_digested(out, "unreadable");
        rlki_fault("unreadable", detail.text);
    }
    take_samples(op, from, out);
    take_payload(op, from, out);
    if (write)
        *write = (struct rlki_write){.generation = from->generation,
                                     .version = from->version,
                                     .geometry = geometry}; /* op_end looks at the state that it has then */
}
