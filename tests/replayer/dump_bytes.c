/* dump_bytes REC: every output whose bytes were kept, a JSON object a line, for test_spread.py to put together its own
 * way. Reads the store; knows nothing of the auditor. */
#include "store/rlk_reader.h"
#include "store/rlk_recording.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static struct rlk_env *env;

static json_t *numbers(const uint64_t *list, uint32_t n)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(out, json_integer((json_int_t)list[i]));
    return out;
}

static json_t *runs_of(const struct rlk_place *place)
{
    json_t *out = json_array();
    const struct rlk_run *run = place->runs;
    for (uint32_t d = 0; d < place->ndim; d++) {
        uint32_t n = place->nruns ? place->nruns[d] : RLK_WHOLE;
        json_t *list = json_array();
        if (n == RLK_WHOLE)
            json_array_append_new(list, json_pack("[i,I]", 0, (json_int_t)place->shape[d]));
        for (uint32_t r = 0; n != RLK_WHOLE && r < n; r++, run++)
            json_array_append_new(list, json_pack("[I,I]", (json_int_t)run->start, (json_int_t)run->extent));
        json_array_append_new(out, list);
    }
    return out;
}

static int dump(const struct rlk_event *e, const struct rlk_tensor *t)
{
    void *bytes;
    size_t n;
    if (rlk_env_payload(env, t->payload, UINT64_C(1) << 30, &bytes, &n, NULL) != RLK_OK)
        return 1;
    char *hex = malloc(2 * n + 1);
    if (!hex)
        return 1;
    hex[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((unsigned char *)bytes)[i]);
    bool weights = e->kind == RLK_EV_WEIGHTS;
    json_t *samples = json_array();
    for (uint32_t i = 0; i < t->nsamples; i++)
        json_array_append_new(samples,
                              json_pack("{s:s,s:I,s:I}", "id", t->samples[i].id, "start",
                                        (json_int_t)t->samples[i].start, "extent", (json_int_t)t->samples[i].extent));
    json_t *out = json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:s}", "side",
                            weights ? e->u.weights.side : "", "version", weights ? e->u.weights.version : "", "rank",
                            (json_int_t)e->rank, "step", (json_int_t)e->who.step, "work", (json_int_t)e->who.work,
                            "phase", e->who.phase, "pass", e->who.pass, "module", e->who.module, "op", e->who.op,
                            "name", t->name, "dtype", rlk_dtype_name(t->dtype), "partial",
                            t->place && t->place->partial ? t->place->partial : "", "shape", numbers(t->shape, t->ndim),
                            "logical", t->place ? numbers(t->place->shape, t->place->ndim) : json_null(), "runs",
                            t->place ? runs_of(t->place) : json_null(), "samples", samples, "bytes", hex);
    int rc = !out || json_dumpf(out, stdout, JSON_COMPACT) != 0;
    putchar('\n');
    json_decref(out);
    free(hex);
    free(bytes);
    return rc;
}

static int visit(void *context, const struct rlk_event *e)
{
    int *rc = context;
    for (uint32_t i = 0; i < e->ntensors; i++)
        if (e->tensors[i].role == RLK_ROLE_OUT && e->tensors[i].has_payload)
            *rc |= dump(e, &e->tensors[i]);
    return RLK_OK;
}

int main(int argc, char **argv)
{
    struct rlk_recording *rec;
    struct rlk_detail detail = {{0}};
    if (argc != 2 || rlk_recording_open(&rec, argv[1], &detail) != RLK_OK) {
        fprintf(stderr, "dump_bytes: %s\n", detail.text);
        return 1;
    }
    int rc = 0;
    for (size_t i = 0; i < rlk_recording_envs(rec); i++) {
        env = rlk_recording_env(rec, i);
        rc |= rlk_env_scan(env, 0, rlk_env_count(env), visit, &rc, &detail) != RLK_OK;
    }
    rlk_recording_close(rec);
    return rc;
}
