/* What the Python tests drive: rlk_synth from a file, and a dump of a recording through the store's own reader.
 *
 *   synth_tool SPEC DIR      0, or 2 with the error on stderr
 *   synth_tool --max-bytes N SPEC DIR
 *   synth_tool --check SPEC
 *   synth_tool --dump DIR    one JSON line an event, then one an environment, then one for the recording
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/synth/rlk_synth.h"
#include "store/rlk_digest.h"
#include "store/rlk_recording.h"

#define MAX_PAYLOAD (64u << 20)

static struct rlk_env *env_at_hand;
static size_t env_index;

static json_t *hex128(rlk_u128 v)
{
    char text[33];
    rlk_u128_print(text, v);
    return json_string(text);
}

static json_t *dump_sums(const struct rlk_sums *s)
{
    char multiset[17];
    snprintf(multiset, sizeof multiset, "%016" PRIx64, s->multiset);
    return json_pack("{so so ss sI sI sI sI}", "positional", hex128(s->positional), "value", hex128(s->value),
                     "multiset", multiset, "elements", (json_int_t)s->elements, "nan", (json_int_t)s->nan, "inf",
                     (json_int_t)s->inf, "negzero", (json_int_t)s->negzero);
}

static json_t *dump_u64(const uint64_t *v, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)v[i]));
    return list;
}

static json_t *dump_u32(const uint32_t *v, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(v[i]));
    return list;
}

static json_t *dump_texts(const char *const *v, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(v[i]));
    return list;
}

static json_t *dump_place(const struct rlk_place *p)
{
    json_t *dims = json_array();
    const struct rlk_run *run = p->runs;

    for (uint32_t d = 0; d < p->ndim; d++) {
        if (!p->nruns || p->nruns[d] == RLK_WHOLE) {
            json_array_append_new(dims, json_null());
            continue;
        }
        json_t *runs = json_array();
        for (uint32_t i = 0; i < p->nruns[d]; i++, run++)
            json_array_append_new(runs, json_pack("[II]", (json_int_t)run->start, (json_int_t)run->extent));
        json_array_append_new(dims, runs);
    }
    return json_pack("{so so ss* ss* ss*}", "shape", dump_u64(p->shape, p->ndim), "runs", dims, "partial", p->partial,
                     "replica", p->replica, "zero", p->zero);
}

static json_t *dump_payload(rlk_u128 id)
{
    static const char digits[] = "0123456789abcdef";
    struct rlk_detail detail = {""};
    unsigned char *bytes = NULL;
    void *raw = NULL;
    size_t n = 0;
    int rc = rlk_env_payload(env_at_hand, id, MAX_PAYLOAD, &raw, &n, &detail);

    if (rc)
        return json_sprintf("ERROR %s %s", rlk_error_name(rc), detail.text);
    bytes = raw;
    char *hex = malloc(2 * n + 1);
    if (!hex)
        abort();
    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * n] = '\0';
    json_t *text = json_string(hex);
    free(hex);
    free(raw);
    return text;
}

static json_t *dump_tensor(const struct rlk_tensor *t)
{
    static const char *const states[] = {"digested", "reference", "undefined", "not_digested"};
    enum rlk_dtype dtype = (enum rlk_dtype)t->dtype;
    json_t *o = json_pack("{ss ss ss ss si so sb sI ss}", "name", t->name, "role",
                          t->role == RLK_ROLE_IN ? "in" : "out", "state", t->state < 4 ? states[t->state] : "?",
                          "dtype", rlk_dtype_name(dtype), "index", (int)t->index, "shape", dump_u64(t->shape, t->ndim),
                          "composable", (int)t->composable, "alloc", (json_int_t)t->alloc, "version", t->version);
    if (t->state == RLK_T_DIGESTED) {
        char printed[33];
        rlk_digest_print(printed, &t->sums, dtype, t->place ? t->place->ndim : t->ndim,
                         t->place ? t->place->shape : t->shape);
        json_object_set_new(o, "sums", dump_sums(&t->sums));
        json_object_set_new(o, "printed", json_string(printed));
    } else if (t->state == RLK_T_REFERENCE) {
        json_object_set_new(o, "ref",
                            json_pack("[Iio]", (json_int_t)t->ref_event, (int)t->ref_output, hex128(t->ref_view)));
    } else {
        json_object_set_new(o, "reason", json_string(t->reason));
    }
    if (t->place)
        json_object_set_new(o, "place", dump_place(t->place));
    if (t->nsamples) {
        json_t *samples = json_array();
        for (uint32_t i = 0; i < t->nsamples; i++) {
            const struct rlk_sample_part *s = &t->samples[i];
            json_array_append_new(samples,
                                  json_pack("{ss sI sI so*}", "id", s->id, "start", (json_int_t)s->start, "extent",
                                            (json_int_t)s->extent, "sums", s->has_sums ? dump_sums(&s->sums) : NULL));
        }
        json_object_set_new(o, "samples", samples);
    }
    if (t->has_payload)
        json_object_set_new(o, "payload", dump_payload(t->payload));
    return o;
}

static json_t *dump_attrs(const struct rlk_attr *attrs, uint32_t n)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(o, attrs[i].key,
                            attrs[i].type == RLK_ATTR_INT      ? json_integer(attrs[i].i)
                            : attrs[i].type == RLK_ATTR_DOUBLE ? json_real(attrs[i].d)
                                                               : json_string(attrs[i].s));
    return o;
}

static json_t *dump_launch(const struct rlk_launch *l)
{
    return json_pack("{ss ss ss so so so sI sI sI sI so}", "kernel", l->kernel, "image", l->image, "config", l->config,
                     "grid", dump_u32(l->grid, 3), "block", dump_u32(l->block, 3), "cluster", dump_u32(l->cluster, 3),
                     "smem", (json_int_t)l->smem, "stream", (json_int_t)l->stream, "graph", (json_int_t)l->graph,
                     "node", (json_int_t)l->node, "attrs", dump_attrs(l->attrs, l->nattrs));
}

static json_t *dump_kind(const struct rlk_event *e)
{
    char value[40];

    switch (e->kind) {
    case RLK_EV_OP:
        return json_pack("{ss}", "contract", e->u.op.contract);
    case RLK_EV_COLLECTIVE:
        return json_pack("{ss ss ss si so so so}", "group", e->u.collective.group, "algo", e->u.collective.algo,
                         "proto", e->u.collective.proto, "channels", (int)e->u.collective.channels, "order",
                         dump_u32(e->u.collective.order, e->u.collective.norder), "members",
                         dump_texts(e->u.collective.members, e->u.collective.nmembers), "ranks",
                         dump_u32(e->u.collective.ranks, e->u.collective.nranks));
    case RLK_EV_COPY:
        return json_pack("{ss}", "direction", e->u.copy.direction);
    case RLK_EV_SYNC:
        return json_pack("{ss sI}", "what", e->u.sync.what, "event", (json_int_t)e->u.sync.event);
    case RLK_EV_RNG:
        return json_pack("{ss sI sI sI}", "generator", e->u.rng.generator, "seed", (json_int_t)e->u.rng.seed, "offset",
                         (json_int_t)e->u.rng.offset, "grid", (json_int_t)e->u.rng.grid);
    case RLK_EV_WEIGHTS:
        return json_pack("{ss ss}", "version", e->u.weights.version, "side", e->u.weights.side);
    case RLK_EV_REQUEST:
        return json_pack("{ss ss so so}", "id", e->u.request.id, "logprob_kind", e->u.request.logprob_kind, "tokens",
                         dump_u64((const uint64_t *)e->u.request.tokens, e->u.request.ntokens), "versions",
                         dump_texts(e->u.request.versions, e->u.request.nversions));
    case RLK_EV_RELAUNCH:
        return json_pack("{ss si si sb}", "event", e->u.relaunch.event, "repeats", (int)e->u.relaunch.repeats, "agree",
                         (int)e->u.relaunch.agree, "matches_recorded", (int)e->u.relaunch.matches_recorded);
    case RLK_EV_METRIC:
        snprintf(value, sizeof value, "%.17g", e->u.metric.value);
        return json_pack("{ss}", "value", value);
    case RLK_EV_READBACK:
        return json_pack("{ss ss ss sI}", "case", e->u.readback.case_id, "implementation", e->u.readback.implementation,
                         "contract", e->u.readback.contract, "calls", (json_int_t)e->u.readback.calls);
    case RLK_EV_LEAF:
        return json_pack("{ss ss ss ss sI}", "name", e->u.leaf.name, "reference", e->u.leaf.reference, "sha256",
                         e->u.leaf.sha256, "generator", e->u.leaf.generator, "seed", (json_int_t)e->u.leaf.seed);
    default:
        return json_null();
    }
}

static int dump_event(void *context, const struct rlk_event *e)
{
    json_t *tensors = json_array(), *launches = json_array();

    (void)context;
    for (uint32_t i = 0; i < e->ntensors; i++)
        json_array_append_new(tensors, dump_tensor(&e->tensors[i]));
    for (uint32_t i = 0; i < e->nlaunches; i++)
        json_array_append_new(launches, dump_launch(&e->launches[i]));
    json_t *o =
        json_pack("{si sI ss si ss sb sI sI sI sI ss ss ss ss ss si si so so so so}", "env", (int)env_index, "seq",
                  (json_int_t)e->seq, "kind", rlk_event_kind_name(e->kind), "rank", (int)e->rank, "id", e->id,
                  "autotune", (int)e->autotune, "stream", (json_int_t)e->stream, "step", (json_int_t)e->who.step,
                  "work", (json_int_t)e->who.work, "iteration", (json_int_t)e->who.iteration, "phase", e->who.phase,
                  "pass", e->who.pass, "module", e->who.module, "op", e->who.op, "sample", e->who.sample, "call",
                  (int)e->who.call, "occurrence", (int)e->who.occurrence, "attrs", dump_attrs(e->attrs, e->nattrs),
                  "launches", launches, "u", dump_kind(e), "tensors", tensors);
    if (!o)
        return RLK_ENOMEM;
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
    return 0;
}

static int dump_env(struct rlk_recording *recording, struct rlk_detail *detail)
{
    struct rlk_coverage c = {0};
    uint32_t nranks = 0;
    const uint32_t *ranks = rlk_env_ranks(env_at_hand, &nranks);
    int rc = rlk_env_scan(env_at_hand, 0, UINT64_MAX, dump_event, NULL, detail);

    if (!rc)
        rc = rlk_env_coverage(env_at_hand, &c, detail);
    if (!rc)
        rc = rlk_env_verify(env_at_hand, detail);
    if (rc)
        return rc;
    const char *dir = rlk_recording_env_dir(recording, env_index), *base = strrchr(dir, '/');
    json_t *o = json_pack("{si ss sb so sI sI sI sI sI sI sI si}", "env", (int)env_index, "dir", base ? base + 1 : dir,
                          "complete", (int)rlk_env_complete(env_at_hand), "ranks", dump_u32(ranks, nranks), "events",
                          (json_int_t)c.events, "launches_seen", (json_int_t)c.launches_seen, "launches_recorded",
                          (json_int_t)c.launches_recorded, "tensors", (json_int_t)c.tensors, "by_reference",
                          (json_int_t)c.by_reference, "local_placement", (json_int_t)c.local_placement, "dropped",
                          (json_int_t)c.dropped, "planes", (int)c.planes);
    json_t *reasons = json_object();
    for (uint32_t i = 0; i < c.nreasons; i++)
        json_object_set_new(reasons, c.not_digested[i].reason, json_integer((json_int_t)c.not_digested[i].count));
    json_object_set_new(o, "not_digested", reasons);
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
    return 0;
}

static int dump(const char *dir, struct rlk_detail *detail)
{
    struct rlk_recording *recording = NULL;
    enum rlk_seal_state seal = RLK_SEAL_ABSENT;
    static const char *const seals[] = {"absent", "good", "tampered"};
    int rc = rlk_recording_open(&recording, dir, detail);

    for (env_index = 0; !rc && env_index < rlk_recording_envs(recording); env_index++) {
        env_at_hand = rlk_recording_env(recording, env_index);
        rc = dump_env(recording, detail);
    }
    if (!rc)
        rc = rlk_recording_verify(dir, &seal, NULL, NULL, detail);
    if (!rc) {
        json_t *manifest = json_deep_copy(rlk_recording_manifest(recording));
        json_t *o = json_pack("{so ss sb}", "manifest", manifest, "seal", seals[seal], "complete",
                              (int)rlk_recording_complete(recording, NULL));
        json_dumpf(o, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(o);
    }
    if (recording)
        rlk_recording_close(recording);
    return rc;
}

int main(int argc, char **argv)
{
    struct rlk_detail detail = {""};
    int rc = RLK_EINVAL;

    if (argc == 3 && strcmp(argv[1], "--dump") == 0) {
        rc = dump(argv[2], &detail);
    } else if (argc == 3 && strcmp(argv[1], "--check") == 0) {
        json_t *spec = NULL;
        rc = rlk_synth_load(argv[2], &spec, &detail);
        if (!rc)
            rc = rlk_synth_check(spec, &detail);
        json_decref(spec);
    } else if (argc == 5 && strcmp(argv[1], "--max-bytes") == 0) {
        struct rlk_synth_options options = {.max_bytes = strtoull(argv[2], NULL, 10)};
        rc = rlk_synth_file(argv[3], argv[4], &options, NULL, &detail);
    } else if (argc == 3) {
        rc = rlk_synth_file(argv[1], argv[2], NULL, NULL, &detail);
    }
    if (rc)
        fprintf(stderr, "%s: %s\n", rlk_error_name(rc), detail.text);
    return rc ? 2 : 0;
}
