/* From a spec to files: one environment a rank, the manifest, the seal; nothing left behind on an error. */
#include "recorder/synth/rlk_synth.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/synth/synth_close.h"
#include "recorder/synth/synth_eval.h"
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"

#define WAIT_MS 600000u /* a full queue is waited for: synthetic recordings drop nothing on their own */
#define QUEUE_BYTES (UINT64_C(64) << 20)

struct run {
    const struct sy_spec *spec;
    const char *dir;
    struct sy_eval eval;
    struct rlk_producer *producer;
    struct rlk_tensor *tensors; /* of the event at hand */
    uint32_t room;
    uint32_t *members; /* a communicator */
    struct sy_closers closers;
    struct rlk_synth_result result;
    struct rlk_detail *detail;
};

static int env_path(char *out, size_t size, const char *dir, uint32_t rank)
{
    char name[64];
    int rc = rlk_recording_env_name(name, sizeof name, rank, rank);
    int n = rc ? -1 : snprintf(out, size, "%s/%s", dir, name);
    return n < 0 || (size_t)n >= size ? RLK_ELIMIT : RLK_OK;
}

/* Removes what this run made and nothing else. */
static void remove_made(const struct sy_spec *spec, const char *dir)
{
    static const char *const files[] = {"data.mdb", "lock.mdb"}, *const tops[] = {"manifest.json", "SEAL"};
    char path[PATH_MAX], file[PATH_MAX];

    for (uint32_t r = 0; r < spec->ranks; r++) {
        if (env_path(path, sizeof path, dir, r))
            continue;
        for (size_t i = 0; i < 2; i++)
            if (snprintf(file, sizeof file, "%s/%s", path, files[i]) < (int)sizeof file)
                unlink(file);
        rmdir(path);
    }
    for (size_t i = 0; i < 2; i++)
        if (snprintf(file, sizeof file, "%s/%s", dir, tops[i]) < (int)sizeof file)
            unlink(file);
    rmdir(dir);
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool takes_part(const struct sy_event *e, uint32_t rank)
{
    return !e->nranks || bsearch(&rank, e->ranks, e->nranks, sizeof rank, by_rank);
}

/* The communicator's ranks. Left empty where the manifest's layout gives them. */
static void fill_communicator(struct run *run, const struct sy_event *spec_event, struct rlk_event *event)
{
    const struct sy_spec *spec = run->spec;

    if (event->kind != RLK_EV_COLLECTIVE || (spec_event->by_layout && spec->has_layout))
        return;
    event->u.collective.ranks = spec_event->ranks;
    event->u.collective.nranks = spec_event->nranks;
    if (spec_event->nranks && !spec_event->by_layout)
        return;
    event->u.collective.ranks = run->members;
    event->u.collective.nranks = spec->ranks;
}

static int put_tensors(struct run *run, size_t index, const struct sy_event *se)
{
    uint32_t n = se->nin + se->nout;
    int rc = RLK_OK;

    if (n > run->room) {
        struct rlk_tensor *tensors = realloc(run->tensors, n * sizeof *tensors);
        if (!tensors)
            return RLK_ENOMEM;
        run->tensors = tensors;
        run->room = n;
    }
    for (uint32_t i = 0; i < n && !rc; i++) {
        const struct sy_tensor *t = &se->tensors[i];
        bool is_input = i < se->nin;
        struct sy_where where = {index, is_input ? "in" : se->list_out, is_input ? i : i - se->nin};
        struct rlk_tensor *out = &run->tensors[i];
        rc = sy_eval_tensor(&run->eval, t, &where, is_input, out);
        if (rc)
            break;
        out->index = (uint32_t)where.index;
        if (t->payload && t->state == RLK_T_DIGESTED) {
            const struct sy_value *v = run->eval.results[t->memo].value;
            out->has_payload = true;
            rc = rlk_producer_payload(run->producer, v->data, (size_t)v->bytes, &out->payload);
        }
        run->result.tensors++;
        run->result.by_reference += out->state == RLK_T_REFERENCE;
    }
    return rc;
}

static int put_event(struct run *run, size_t index, uint32_t rank)
{
    const struct sy_event *se = &run->spec->events[index];
    struct rlk_event event = se->base;
    uint64_t seq = 0;
    int rc = put_tensors(run, index, se);

    if (rc)
        return rc;
    event.rank = rank;
    event.who.occurrence = run->eval.occurrences[se->occurrence_id]++;
    event.ntensors = se->nin + se->nout;
    event.tensors = run->tensors;
    fill_communicator(run, se, &event);
    rc = rlk_producer_put(run->producer, &event, &seq);
    if (rc)
        return rlk_fail(run->detail, rc, "events[%zu]: not written: %s (rank %u)", index, rlk_error_name(rc), rank);
    for (uint32_t i = 0; i < se->nout && se->producer && !rc; i++)
        rc = sy_eval_produced(&run->eval, &se->tensors[se->nin + i], seq, i);
    for (uint32_t i = 0; i < event.ntensors; i++)
        sy_eval_done(&run->eval, &se->tensors[i]);
    run->result.events++;
    run->result.launches += event.nlaunches;
    return rc;
}

static int write_rank(struct run *run, uint32_t rank, bool first)
{
    const struct sy_spec *spec = run->spec;
    uint64_t launches = run->result.launches;
    struct rlk_writer *writer = NULL;
    char path[PATH_MAX];
    struct rlk_writer_options options = {.dir = path, .queue_bytes = QUEUE_BYTES, .wait_ms = WAIT_MS};
    int rc = env_path(path, sizeof path, run->dir, rank);

    if (!rc)
        rc = rlk_writer_open(&writer, &options, run->detail);
    if (rc)
        return rc;
    rc = rlk_writer_rank(writer, rank);
    if (!rc)
        rc = rlk_writer_producer(writer, &run->producer);
    rlk_writer_planes(writer, (spec->any_tensor ? RLK_PLANE_TENSOR : 0) | (spec->any_launch ? RLK_PLANE_LAUNCH : 0));
    if (first)
        rlk_writer_count_dropped(writer, spec->dropped);
    sy_eval_begin_rank(&run->eval, rank);
    for (size_t i = 0; i < spec->nevents && !rc; i++)
        if (takes_part(&spec->events[i], rank))
            rc = put_event(run, i, rank);
    rlk_writer_count_launches_seen(writer, run->result.launches - launches);
    rlk_producer_free(run->producer);
    run->producer = NULL;
    if (rc) {
        struct rlk_detail ignored;
        rlk_writer_close(writer, true, &ignored);
        return rc;
    }
    return sy_close_later(&run->closers, writer, !spec->complete, run->detail);
}

static int write_ranks(struct run *run, const struct rlk_synth_options *options)
{
    const struct sy_spec *spec = run->spec;
    bool first = true;
    int rc = RLK_OK, closed;

    for (uint32_t r = 0; r < spec->ranks && !rc; r++) {
        if (!spec->missing[r]) {
            rc = write_rank(run, r, first);
            run->result.environments++;
            first = false;
        }
        if (!rc && options->progress)
            options->progress(options->context, r, spec->ranks);
    }
    closed = sy_close_all(&run->closers, rc ? NULL : run->detail);
    return rc ? rc : closed;
}

static int run_init(struct run *run, const struct sy_spec *spec, const char *dir, struct rlk_detail *detail)
{
    *run = (struct run){.spec = spec, .dir = dir, .detail = detail};
    run->members = calloc(spec->ranks, sizeof *run->members);
    for (uint32_t r = 0; run->members && r < spec->ranks; r++)
        run->members[r] = r;
    run->result.ranks = spec->ranks;
    return run->members ? sy_eval_init(&run->eval, spec, detail) : RLK_ENOMEM;
}

/* rlk_recording_seal reads nothing that is cheaper to know here; an incomplete recording has none. */
static int finish(struct run *run)
{
    int rc = RLK_OK;
    if (run->spec->complete)
        rc = rlk_recording_seal(run->dir, run->detail);
    run->result.sealed = run->spec->complete && !rc;
    return rc;
}

int rlk_synth_run(const json_t *root, const char *dir, const struct rlk_synth_options *options,
                  struct rlk_synth_result *result, struct rlk_detail *detail)
{
    static const struct rlk_synth_options defaults;
    struct sy_spec spec = {0};
    struct run run = {0};
    json_t *manifest = NULL;
    bool made = false;
    int rc;

    if (detail)
        detail->text[0] = '\0';
    if (!options)
        options = &defaults;
    rc = sy_spec_read(&spec, root, options->max_bytes, detail);
    if (rc)
        return rc;
    rc = run_init(&run, &spec, dir, detail);
    if (rc)
        goto out;
    manifest = sy_manifest(&spec, options->tool);
    rc = manifest ? rlk_recording_create(dir, manifest, detail) : RLK_ENOMEM;
    if (rc)
        goto out;
    made = true;
    rc = write_ranks(&run, options);
    if (!rc)
        rc = finish(&run);
    if (!rc && result)
        *result = run.result;
out:
    if (rc && made)
        remove_made(&spec, dir);
    json_decref(manifest);
    sy_eval_release(&run.eval);
    free(run.tensors);
    free(run.members);
    sy_spec_release(&spec);
    return rc;
}

int rlk_synth_check(const json_t *root, struct rlk_detail *detail)
{
    struct sy_spec spec = {0};
    int rc;

    if (detail)
        detail->text[0] = '\0';
    rc = sy_spec_read(&spec, root, 0, detail);
    sy_spec_release(&spec);
    return rc;
}
