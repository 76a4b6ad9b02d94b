/* report_read.c - gathers, in one pass over every environment, what the report is made of. */
#include "auditor/audit.h"
#include "auditor/report.h"

#include "store/rlk_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_BYTES (UINT64_C(1) << 30)

/* Operators of a module, as docs/report.md lists them. */
static const struct {
    const char *op, *module;
} operators[] = {
    {"rlk.gemm.column", "linear"},
    {"rlk.gemm.row", "linear"},
    {"rlk.gemm.dw", "linear"},
    {"rlk.ffn.qwen3.deterministic", "ffn"},
    {"rlk.attention.deterministic", "attention"},
    {"rlk.linear_logp.bitwise", "logp"},
    {"rlk.logits", "logp"},
    {"rlk.log_softmax", "logp"},
    {"rlk.rmsnorm", "norm"},
    {"rlk.rope", "rope"},
    {"rlk.embedding", "embedding"},
    {"rlk.add", "elementwise"},
    {"rlk.select", "elementwise"},
    {"rlk.adamw", "optimizer"},
    {"rlk.gradnorm", "gradnorm"},
    {"rlk.loss_sum", "loss"},
    {"rlk.sample", "sampling"},
};
static const char *const modules[RLKI_DECLARED_MODULES] = {"linear",    "ffn",      "attention", "logp",
                                                           "norm",      "rope",     "embedding", "elementwise",
                                                           "optimizer", "gradnorm", "loss",      "sampling"};

int rlki_declared_of_name(const char *name)
{
    for (int m = 0; m < RLKI_DECLARED_MODULES; m++)
        if (strcmp(modules[m], name) == 0)
            return m;
    return RLKI_DECLARED_UNKNOWN;
}

int rlki_declared_of_op(const char *op)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i].op, op) == 0)
            return rlki_declared_of_name(operators[i].module);
    return RLKI_DECLARED_UNKNOWN;
}

struct scan { /* of one environment */
    struct rlki_run_facts *facts;
    uint32_t env;
    uint32_t rank; /* whose operators are counted: the lowest */
    bool ranked;
    uint64_t calls[2][RLKI_DECLARED_MODULES], launches[2][RLKI_DECLARED_MODULES];
    const char *contract[2][RLKI_DECLARED_MODULES]; /* of the last operator */
    uint64_t eager, graphs;                         /* since the last operator */
    struct rlki_hash payloads;                      /* of log-probabilities already taken */
    int rc;
};

static json_t *of_step(json_t *all, int64_t step)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, step);
    json_t *one = json_object_get(all, key);
    if (!one) {
        rlki_set(all, key, json_object());
        one = json_object_get(all, key);
    }
    return one;
}

/* Several ranks may say the same number: the lowest one's counts, and its first. */
static void set_first(json_t *all, int64_t step, const char *name, double value)
{
    json_t *one = of_step(all, step);
    if (!rlki_member(one, name, NULL))
        rlki_set_any(one, name, rlki_number(value));
}

static void take_metric(struct scan *s, const struct rlk_event *e)
{
    if (strncmp(e->who.op, "train/", 6) == 0)
        set_first(s->facts->steps, e->who.step, e->who.op, e->u.metric.value);
}

static void fault(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fault(json_t *list, const char *format, ...)
{
    char text[400];
    va_list args;
    if (json_array_size(list) >= 20)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rlki_add(list, rlki_json_text(text));
}

/* "BF16 [64, 512] 0123...": dtype, shape, SHA-256 of the bytes. NULL: not well-formed. */
static json_t *read_hash(const char *text)
{
    char dtype[16];
    int at = 0;
    if (sscanf(text, "%15[A-Z0-9_] [%n", dtype, &at) != 1 || !at)
        return NULL;
    json_t *shape = json_array();
    const char *p = text + at;
    for (int d = 0; d < 8 && *p != ']'; d++) {
        char *end;
        const long long n = strtoll(p, &end, 10);
        if (end == p || n < 0)
            break;
        rlki_add(shape, json_integer(n));
        p = strncmp(end, ", ", 2) == 0 ? end + 2 : end;
    }
    if (strncmp(p, "] ", 2) != 0 || strlen(p + 2) != 64 || strspn(p + 2, "0123456789abcdef") != 64) {
        json_decref(shape);
        return NULL;
    }
    json_t *out = json_object();
    rlki_set(out, "dtype", json_string(dtype));
    rlki_set(out, "sha256", json_string(p + 2));
    rlki_set(out, "shape", shape);
    return out;
}

static void take_hashes(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    const char *version = e->u.note.text;
    json_t *all = rlki_member(f->hashes, version, json_object);
    for (uint32_t i = 0; i < e->nattrs && all; i++) {
        const struct rlk_attr *a = &e->attrs[i];
        json_t *one = a->type == RLK_ATTR_STRING ? read_hash(a->s) : NULL, *old = rlki_member(all, a->key, NULL);
        if (!one && !rlki_json_failed())
            fault(f->faults, "%s: the hash of %s is not well-formed", version, a->key);
        else if (old && !json_equal(old, one))
            fault(f->faults, "%s: %s has two hashes", version, a->key);
        if (one)
            rlki_set_any(all, a->key, one);
    }
}

static void take_note(struct scan *s, const struct rlk_event *e)
{
    if (strcmp(e->u.note.code, "weights.sha256") == 0)
        take_hashes(s, e);
    if (strncmp(e->u.note.code, "perf/", 5) != 0)
        return;
    int64_t step = e->who.step;
    char *end;
    for (uint32_t i = 0; i < e->nattrs; i++)
        if (strcmp(e->attrs[i].key, "step") == 0 && e->attrs[i].type == RLK_ATTR_INT)
            step = e->attrs[i].i;
    const double value = strtod(e->u.note.text, &end);
    if (end != e->u.note.text && !*end)
        set_first(s->facts->perf, step, e->u.note.code, value);
}

static int take_request(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    const uint32_t n = e->u.request.ntokens;
    if (!rlki_grow(&f->tokens, &f->cap_tokens, f->ntokens, sizeof *f->tokens))
        return RLK_ENOMEM;
    int64_t *copy = rlk_arena_alloc(&f->arena, ((size_t)n + 1) * sizeof *copy, sizeof *copy);
    if (!copy)
        return RLK_ENOMEM;
    if (n)
        memcpy(copy, e->u.request.tokens, n * sizeof *copy);
    f->tokens[f->ntokens++] = (struct rlki_tokens){.step = e->who.step, .id = e->u.request.id, .n = n, .token = copy};
    return RLK_OK;
}

/* The values of `t`, checked against its digest, in the arena. RLK_ENOENT: not kept. */
static int values(struct scan *s, const struct rlk_event *e, const struct rlk_tensor *t, uint64_t n, float **out)
{
    struct rlki_run_facts *f = s->facts;
    struct rlk_env *env = rlk_recording_env(f->recording, s->env);
    void *bytes = NULL;
    size_t size = 0;
    *out = NULL;
    if (!t->has_payload || t->dtype != RLK_FP32 || n > MAX_BYTES / sizeof(float))
        return RLK_ENOENT;
    int rc = rlk_env_payload(env, t->payload, MAX_BYTES, &bytes, &size, f->detail);
    if (rc)
        return rc == RLK_ELIMIT ? RLK_ENOENT : rc;
    struct rlk_view view = {
        .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .storage = bytes, .storage_bytes = size};
    struct rlk_sums sums;
    bool composable, same = size == n * sizeof(float);
    if (same && t->state == RLK_T_DIGESTED) {
        rc = rlk_digest_view(&sums, &composable, &view, t->place, f->detail);
        same = rc == RLK_OK && rlk_sums_same_bits(&sums, &t->sums);
    }
    if (rc != RLK_ENOMEM && !same)
        rc = rlk_fail(f->detail, RLK_ECORRUPT,
                      "%s: event %" PRIu64 ": the bytes of tensor \"%s\" do not have its digest",
                      rlk_recording_env_dir(f->recording, s->env), e->seq, t->name);
    if (rc == RLK_OK) {
        *out = rlk_arena_alloc(&f->arena, ((size_t)n + 1) * sizeof(float), sizeof(float));
        rc = *out ? RLK_OK : RLK_ENOMEM;
    }
    if (rc == RLK_OK && n)
        memcpy(*out, bytes, (size_t)n * sizeof(float));
    free(bytes);
    return rc;
}

uint64_t rlki_logps_key(int64_t step, bool rollout, const char *sample)
{
    return rlki_mix(rlki_mix(rlki_mix(97, (uint64_t)step), rollout), XXH3_64bits(sample, strlen(sample)));
}

static int add_logps(struct scan *s, const struct rlk_event *e, const struct rlk_sample_part *part, bool rollout,
                     const float *value)
{
    struct rlki_run_facts *f = s->facts;
    const uint64_t key = rlki_logps_key(e->who.step, rollout, part->id);
    uint64_t place;
    if (rlki_hash_get(&f->logp_index, key, &place)) { /* a replica: the same bits, or a fault */
        const struct rlki_logps *l = &f->logps[place];
        if (l->n != part->extent || memcmp(l->value, value + part->start, (size_t)l->n * sizeof *value) != 0)
            fault(f->logp_faults, "step %" PRId64 ": rank %u holds other log-probabilities of %s than rank %u", l->step,
                  e->rank, part->id, l->rank);
        return RLK_OK;
    }
    if (!rlki_grow(&f->logps, &f->cap_logps, f->nlogps, sizeof *f->logps))
        return RLK_ENOMEM;
    rlki_hash_put(&f->logp_index, key, f->nlogps);
    f->logps[f->nlogps++] = (struct rlki_logps){.step = e->who.step,
                                                .sample = part->id,
                                                .rollout = rollout,
                                                .rank = e->rank,
                                                .n = part->extent,
                                                .value = value + part->start};
    return RLK_OK;
}

/* Output `logp` of rlk.grpo.logprobs: of the rollout, or of the training forward. */
static int take_logps(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    const bool rollout = rlki_is_rollout(e->who.phase);
    const struct rlk_tensor *t = NULL;
    float *value;
    for (uint32_t i = 0; i < e->ntensors; i++)
        if (e->tensors[i].role == RLK_ROLE_OUT && strcmp(e->tensors[i].name, "logp") == 0)
            t = &e->tensors[i];
    if (!t || t->ndim != 1 || (!rollout && strcmp(e->who.phase, "actor_train") != 0))
        return RLK_OK;
    if (!rollout) {
        char where[300];
        const char *dir = rlk_recording_env_dir(f->recording, s->env), *base = strrchr(dir, '/');
        snprintf(where, sizeof where, "%s#%" PRIu64, base ? base + 1 : dir, e->seq); /* relative to the recording */
        rlki_add(f->artifacts, rlki_json_text(where));
        f->comparable += t->has_payload;
    }
    const uint64_t key =
        rlki_mix(rlki_mix(rlki_mix(t->payload.lo, t->payload.hi), (uint64_t)e->who.step), (uint64_t)rollout);
    if (t->has_payload && !rlki_hash_put(&s->payloads, rlki_mix(key, (uint64_t)e->who.work), 1))
        return RLK_OK; /* the same bytes of the same samples, from another rank */
    int rc = values(s, e, t, t->shape[0], &value);
    for (uint32_t i = 0; i < t->nsamples && rc == RLK_OK; i++) {
        const struct rlk_sample_part *part = &t->samples[i];
        if (part->start > t->shape[0] || part->extent > t->shape[0] - part->start)
            rc = rlk_fail(f->detail, RLK_ECORRUPT, "event %" PRIu64 ": sample %.40s lies outside its tensor", e->seq,
                          part->id);
        else
            rc = add_logps(s, e, part, rollout, value);
    }
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

static int take_readback(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    const char *dot = strchr(e->who.module, '.');
    struct rlki_bound *b = NULL;
    if (!dot)
        return RLK_OK;
    for (size_t i = 0; i < f->nbound && !b; i++)
        if (f->bound[i].env == s->env && strcmp(f->bound[i].module, e->who.module) == 0)
            b = &f->bound[i];
    if (!b) {
        if (!rlki_grow(&f->bound, &f->cap_bound, f->nbound, sizeof *f->bound))
            return RLK_ENOMEM;
        b = &f->bound[f->nbound++];
    }
    const int m = rlki_declared_of_name(dot + 1), side = strncmp(e->who.module, "rollout.", 8) == 0;
    *b = (struct rlki_bound){.env = s->env,
                             .module = e->who.module,
                             .case_id = e->u.readback.case_id,
                             .implementation = e->u.readback.implementation,
                             .contract = e->u.readback.contract,
                             .calls = e->u.readback.calls,
                             .counted = m >= 0};
    if (m >= 0) {
        b->observed = s->calls[side][m];
        b->launches = s->launches[side][m];
    }
    return RLK_OK;
}

static void take_launches(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    const bool definition = e->kind == RLK_EV_LAUNCH && strcmp(e->u.launch.entry, "graph.definition") == 0;
    for (uint32_t i = 0; i < e->nlaunches; i++) {
        const struct rlk_launch *l = &e->launches[i];
        const uint64_t graph = rlki_mix(rlki_mix(83, s->env), (uint64_t)l->graph);
        if (l->graph >= 0 && (definition || l->node >= 0))
            rlki_hash_put(&f->defined, graph, 1);
        if (definition)
            continue;
        if (l->graph >= 0) {
            s->graphs++;
            rlki_hash_put(&f->graphs, graph, (uint64_t)l->graph);
            f->graphs_undefined += !rlki_hash_get(&f->defined, graph, &(uint64_t){0});
        } else if (l->kernel[0]) {
            s->eager++;
        }
    }
}

static struct rlki_decode *decode_of(struct scan *s, const struct rlk_event *e)
{
    struct rlki_run_facts *f = s->facts;
    for (size_t i = f->ndecode; i > 0 && f->ndecode - i < 4; i--)
        if (f->decode[i - 1].env == s->env && f->decode[i - 1].step == e->who.step &&
            f->decode[i - 1].iteration == e->who.iteration)
            return &f->decode[i - 1];
    if (!rlki_grow(&f->decode, &f->cap_decode, f->ndecode, sizeof *f->decode))
        return NULL;
    f->decode[f->ndecode++] = (struct rlki_decode){.step = e->who.step, .iteration = e->who.iteration, .env = s->env};
    return &f->decode[f->ndecode - 1];
}

/* A launch belongs to the operator that is recorded next: an operator is written down when it ends. */
static int take_decode(struct scan *s, const struct rlk_event *e)
{
    if (strcmp(e->who.phase, "rollout-decode") != 0) {
        s->facts->graphs_outside += s->graphs;
        s->graphs = s->eager = 0;
        return RLK_OK;
    }
    struct rlki_decode *d = decode_of(s, e);
    if (!d)
        return RLK_ENOMEM;
    d->graphs += s->graphs;
    d->eager += s->eager;
    s->graphs = s->eager = 0;
    for (uint32_t i = 0; i < e->ntensors && !d->size; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        if (t->role == RLK_ROLE_OUT && t->ndim && strcmp(t->name, "token") == 0)
            d->size = t->place ? t->place->shape[0] : t->shape[0];
    }
    return RLK_OK;
}

/* Interned: one environment's equal strings are one. */
static void take_contract(struct scan *s, int side, int m, const char *contract)
{
    char key[40];
    if (s->contract[side][m] == contract)
        return;
    s->contract[side][m] = contract;
    snprintf(key, sizeof key, "%s.%s", side ? "rollout" : "training", modules[m]);
    if (!json_object_get(s->facts->contracts, key))
        rlki_set(s->facts->contracts, key, json_array());
    rlki_append_once(json_object_get(s->facts->contracts, key), contract);
}

static int take_op(struct scan *s, const struct rlk_event *e)
{
    const int m = rlki_declared_of_op(e->who.op), side = rlki_is_rollout(e->who.phase);
    uint64_t launches = e->nlaunches;
    for (uint32_t i = 0; i < e->nlaunch_ranges; i++)
        launches += e->launch_ranges[i].count;
    if (m >= 0 && e->rank == s->rank)
        s->calls[side][m]++;
    if (m >= 0) {
        s->launches[side][m] += launches;
        take_contract(s, side, m, e->u.op.contract);
    }
    int rc = take_decode(s, e);
    if (rc == RLK_OK && strcmp(e->who.op, "rlk.grpo.logprobs") == 0)
        rc = take_logps(s, e);
    return rc;
}

static int visit(void *context, const struct rlk_event *e)
{
    struct scan *s = context;
    if (e->autotune)
        return 0;
    take_launches(s, e);
    switch (e->kind) {
    case RLK_EV_OP:
        s->rc = take_op(s, e);
        break;
    case RLK_EV_METRIC:
        take_metric(s, e);
        break;
    case RLK_EV_NOTE:
        take_note(s, e);
        break;
    case RLK_EV_WEIGHTS:
        s->rc = rlki_take_weights(s->facts, e);
        break;
    case RLK_EV_REQUEST:
        s->rc = take_request(s, e);
        break;
    case RLK_EV_READBACK:
        s->rc = take_readback(s, e);
        break;
    default:
        break;
    }
    return s->rc;
}

static int scan_env(struct rlki_run_facts *f, size_t i)
{
    struct rlk_env *env = rlk_recording_env(f->recording, i);
    uint32_t n = 0;
    const uint32_t *ranks = rlk_env_ranks(env, &n);
    struct scan s = {.facts = f, .env = (uint32_t)i, .rank = n ? ranks[0] : 0};
    int rc = rlk_env_scan(env, 0, rlk_env_count(env), visit, &s, f->detail);
    if (rc == RLK_OK && s.payloads.failed)
        rc = RLK_ENOMEM;
    f->graphs_outside += s.graphs; /* after the last operator */
    rlki_hash_release(&s.payloads);
    return rc;
}

static void take_manifest(struct rlki_run_facts *f, const char *dir)
{
    static const char *const keys[] = {"steps", "every", "keep_last", "max_size", "retention"};
    const json_t *m = rlk_recording_manifest(f->recording);
    const char *base = strrchr(dir, '/'), *argv0 = json_string_value(json_array_get(json_object_get(m, "argv"), 0));
    snprintf(f->name, sizeof f->name, "%s", base ? base + 1 : dir);
    const size_t n = strlen(f->name);
    if (n > 4 && strcmp(f->name + n - 4, ".rlk") == 0)
        f->name[n - 4] = '\0';
    base = argv0 ? strrchr(argv0, '/') : NULL;
    snprintf(f->program, sizeof f->program, "%s", base ? base + 1 : argv0 ? argv0 : "recorded");
    f->layout = json_string_value(json_object_get(m, "layout"));
    f->level = json_string_value(json_object_get(m, "level"));
    f->whole = f->level && (strcmp(f->level, "op") == 0 || strcmp(f->level, "buffer") == 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(m, keys[i]);
        /* "every 1" keeps everything. */
        f->whole &= !v || json_is_null(v) || (json_is_integer(v) && json_integer_value(v) == 1 && i == 1);
    }
}

int rlki_run_facts_read(struct rlki_run_facts *f, const char *dir, struct rlk_detail *detail)
{
    struct rlk_detail why = {{0}};
    struct rlk_coverage coverage;
    *f = (struct rlki_run_facts){.detail = detail,
                                 .steps = json_object(),
                                 .perf = json_object(),
                                 .hashes = json_object(),
                                 .faults = json_array(),
                                 .artifacts = json_array(),
                                 .contracts = json_object(),
                                 .logp_faults = json_array()};
    if (!f->steps || !f->perf || !f->hashes || !f->faults || !f->artifacts || !f->contracts || !f->logp_faults)
        return rlk_fail(detail, RLK_ENOMEM, "starting");
    int rc = rlk_recording_open(&f->recording, dir, detail);
    if (rc == RLK_OK)
        rc = rlk_recording_intact(f->recording, RLK_INTACT_MOST, &f->intact, detail);
    if (rc == RLK_OK)
        rc = rlk_recording_coverage(f->recording, &coverage, detail);
    if (rc)
        return rc;
    take_manifest(f, dir);
    f->complete = rlk_recording_complete(f->recording, &why) && !coverage.dropped;
    f->whole &= !coverage.dropped;
    snprintf(f->why, sizeof f->why, "%.200s", coverage.dropped ? "events were dropped" : why.text);
    f->launch_plane = (coverage.planes & RLK_PLANE_LAUNCH) != 0 || coverage.launches_seen != 0;
    for (size_t i = 0; i < rlk_recording_envs(f->recording) && rc == RLK_OK; i++)
        rc = scan_env(f, i);
    if (rc == RLK_OK)
        rlki_weights_faults(f);
    if (rc == RLK_OK && (f->held_index.failed || f->held_parts.failed || f->defined.failed || f->graphs.failed ||
                         f->logp_index.failed || rlki_json_failed()))
        rc = rlk_fail(detail, RLK_ENOMEM, "reading");
    return rc;
}

void rlki_run_facts_release(struct rlki_run_facts *f)
{
    json_decref(f->steps);
    json_decref(f->perf);
    json_decref(f->hashes);
    json_decref(f->faults);
    json_decref(f->artifacts);
    json_decref(f->contracts);
    json_decref(f->logp_faults);
    free(f->tokens);
    free(f->logps);
    free(f->bound);
    free(f->decode);
    free(f->held);
    rlki_hash_release(&f->held_index);
    rlki_hash_release(&f->held_parts);
    rlki_hash_release(&f->defined);
    rlki_hash_release(&f->graphs);
    rlki_hash_release(&f->logp_index);
    rlk_arena_release(&f->arena);
    if (f->recording)
        rlk_recording_close(f->recording);
}
