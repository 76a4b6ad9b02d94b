/* facts.c - what the cross-layout report is made of, beside metrics and requests: log-probabilities by sample, with
 * their bytes, and the hash of every parameter of a weight version. docs/report.md says what they look like.
 */
#include "replayer/run.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rlki_host_new(struct rlk_train *run, struct rlki_ptrs *at, size_t bytes)
{
    const int ranks = run->train.held > run->roll.held ? run->train.held : run->roll.held;
    const size_t each = (bytes + 63) / 64 * 64; /* an address of its own a rank */
    char *all = calloc(run->rec.tap ? (size_t)ranks : 1, each);
    for (int i = 0; all && i < ranks; i++) {
        at->p[i] = run->rec.tap ? all + (size_t)i * each : all;
        rlki_rec_fresh(run, at->p[i]);
    }
    return all ? 0 : RLK_K_ENOMEM;
}

void rlki_host_spread(const struct rlki_ptrs *at, size_t bytes)
{
    for (int i = 1; i < RLKI_RANKS && at->p[i] && at->p[i] != at->p[0]; i++)
        memcpy(at->p[i], at->p[0], bytes);
}

struct rlki_named rlki_named_rollout_logp(const struct rlk_train *run)
{
    return (struct rlki_named){
        "rollout_logp", RLK_K_FP32, 2,   {{RLKI_AXIS_WHOLE, run->opt.samples}, {RLKI_AXIS_WHOLE, run->opt.fresh}},
        NULL,           "world",    NULL};
}

/* One event on every rank of w: `from`, what the numbers were read from, and samples who[i] (NULL: 0, 1, ...), packed.
 */
static void tell(struct rlk_train *run, const struct rlk_world *w, const struct rlki_named *from,
                 const struct rlki_ptrs *data, const int *who, int count, bool rollout)
{
    struct rlki_rec *r = &run->rec;
    struct rlk_sample_part *part = r->tap ? calloc((size_t)count + 1, sizeof *part) : NULL;
    char(*id)[16] = part ? calloc((size_t)count + 1, sizeof *id) : NULL;
    struct rlki_named to = {"logp", RLK_K_FP32, 1, {{RLKI_AXIS_WHOLE, 0}}, NULL, "world", NULL};
    int64_t n = 0;
    for (int i = 0; id && i < count; i++) {
        const int s = who ? who[i] : i;
        const struct rlki_sample *p = &run->sample[s];
        const int32_t fresh = p->length - p->prompt;
        snprintf(id[i], sizeof id[i], "s%d", s);
        part[i] = (struct rlk_sample_part){.id = id[i], .start = (uint64_t)n, .extent = (uint64_t)fresh};
        memcpy((float *)run->logps.p[0] + n, rollout ? p->rollout : p->now, (size_t)fresh * sizeof(float));
        n += fresh;
    }
    if (id) {
        to.dim[0].n = n;
        rlki_host_spread(&run->logps, (size_t)n * sizeof(float));
        rlki_rec_begin(run, w, "logprobs", "rlk.grpo.logprobs", NULL);
        rlki_rec_combines(run, w, true);
        rlki_rec_tensor(run, w, from, RLKI_IN(data), false);
        r->nsamples = (uint32_t)count;
        r->samples = part;
        r->payload = true;
        rlki_rec_tensor(run, w, &to, RLKI_IN(&run->logps), true);
        r->nsamples = 0;
        r->samples = NULL;
        r->payload = false;
        rlki_rec_end(run, w);
    }
    free(id);
    free(part);
}

/* The trainer's ranks take over what the rollout's have drawn: rank i that of rank i mod the rollout's number. */
static void hand_over(struct rlk_train *run)
{
    const struct rlki_named all = rlki_named_sequences(run), logp = rlki_named_rollout_logp(run);
    const struct rlk_world *w = run->train.held > run->roll.held ? &run->train : &run->roll;
    struct rlki_ptrs from[2] = {run->sequences, run->rollout_logp};
    for (int i = 0; i < w->held; i++) {
        from[0].p[i] = run->sequences.p[i % run->roll.held];
        from[1].p[i] = run->rollout_logp.p[i % run->roll.held];
    }
    rlki_rec_begin(run, w, "rollout", "rlk.rollout.result", NULL);
    rlki_rec_tensor(run, w, &all, RLKI_IN(&from[0]), false);
    rlki_rec_tensor(run, w, &logp, RLKI_IN(&from[1]), false);
    rlki_rec_tensor(run, w, &all, RLKI_IN(&run->sequences), true);
    rlki_rec_tensor(run, w, &logp, RLKI_IN(&run->rollout_logp), true);
    rlki_rec_end(run, w);
}

void rlki_rec_rollout_logprobs(struct rlk_train *run)
{
    const struct rlki_named from = rlki_named_rollout_logp(run);
    rlki_rec_phase(run, "rollout-decode");
    rlki_rec_work(run, 0, 0);
    hand_over(run);
    tell(run, &run->roll, &from, &run->rollout_logp, NULL, run->opt.samples, true);
}

void rlki_rec_train_logprobs(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_ptrs *logp)
{
    const struct rlki_named from = {"logp", RLK_K_FP32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", m->batch};
    tell(run, &run->train, &from, logp, m->who, m->count, false);
}

/* ---- keys and values ---- */

struct rlki_rows *rlki_rows_of(struct rlk_train *run, const int *who, int count, int64_t apart, int32_t less)
{
    struct rlki_rows *r = calloc(1, sizeof *r + (size_t)count * (sizeof r->part[0] + 16));
    char *text = r ? (char *)(r->part + count + 1) : NULL;
    uint64_t at = 0;
    for (int i = 0; r && i < count; i++, text += 16) {
        const int s = who ? who[i] : i;
        const int32_t length = run->sample[s].length;
        snprintf(text, 16, "s%d", s);
        if (length > less)
            r->part[r->n++] = (struct rlk_sample_part){.id = text, .start = at, .extent = (uint64_t)(length - less)};
        at += (uint64_t)(apart ? apart : length);
    }
    return r;
}

/* k and v of one layer with their samples; b NULL: whole caches of `rows` rows. */
static void tell_kv(struct rlk_train *run, const struct rlk_world *w, int layer, const struct rlk_batch *b,
                    int64_t rows, const struct rlki_ptrs *const kv[2], const struct rlki_rows *samples)
{
    static const char *const names[2][2] = {{"k_cache", "v_cache"}, {"k", "v"}};
    const struct rlk_model_shape *s = &run->opt.model;
    struct rlki_named t = {
        "",
        RLK_K_BF16,
        3,
        {{b ? RLKI_AXIS_TOKENS : RLKI_AXIS_WHOLE, rows}, {RLKI_AXIS_SLABS, s->kv_heads}, {RLKI_AXIS_WHOLE, s->head_dim}},
        NULL,
        NULL,
        b};
    char module[64];
    snprintf(module, sizeof module, "model.layers.%d.self_attn.kv", layer);
    rlki_rec_begin(run, w, module, "rlk.grpo.kv", NULL);
    for (int out = 0; out < 2; out++)
        for (int i = 0; i < 2; i++) {
            snprintf(t.name, sizeof t.name, "%s", names[b || out][i]);
            run->rec.nsamples = out ? (uint32_t)samples->n : 0;
            run->rec.samples = out ? samples->part : NULL;
            rlki_rec_tensor(run, w, &t, RLKI_IN(kv[i]), out);
        }
    run->rec.nsamples = 0;
    run->rec.samples = NULL;
    rlki_rec_end(run, w);
}

void rlki_rec_rollout_kv(struct rlk_train *run, const struct rlki_ptrs *k, const struct rlki_ptrs *v, int64_t rows)
{
    struct rlki_rows *samples = run->rec.tap ? rlki_rows_of(run, NULL, run->opt.samples, rows, 1) : NULL;
    rlki_rec_phase(run, "rollout-decode");
    rlki_rec_work(run, 0, 0);
    for (int l = 0; samples && l < run->opt.model.layers; l++) {
        const struct rlki_ptrs *const kv[2] = {&k[l], &v[l]};
        tell_kv(run, &run->roll, l, NULL, rows * run->opt.samples, kv, samples);
    }
    free(samples);
}

void rlki_rec_train_kv(struct rlk_train *run, const struct rlki_pass *p, int layer, const struct rlki_ptrs *k,
                       const struct rlki_ptrs *v)
{
    const struct rlki_micro *m = run->micro;
    if (!run->rec.tap || run->x.measuring || !m || !p->at_layer || strcmp(run->pass, "fwd") != 0)
        return;
    struct rlki_rows *samples = rlki_rows_of(run, m->who, m->count, 0, 1);
    const struct rlki_ptrs *const kv[2] = {k, v};
    if (samples)
        tell_kv(run, p->w, layer, p->b, 0, kv, samples);
    free(samples);
}

/* ---- hashes ---- */

static void hex(char out[65], const unsigned char *digest)
{
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

struct hashing { /* parameters [first, first + n), their bytes one after the other */
    struct rlk_train *run;
    int first, n;
    const char *bytes;
    bool failed;
};
#define HASHED_AT_ONCE ((size_t)256 << 20)

static size_t bytes_of(const struct rlk_train *run, int p)
{
    return (size_t)(run->param[p].rows * run->param[p].cols) * rlk_ktype_bytes(RLK_K_BF16);
}

static void hash_one(void *arg, int64_t task, unsigned thread)
{
    struct hashing *h = arg;
    unsigned char digest[EVP_MAX_MD_SIZE];
    const int p = h->first + (int)task;
    const char *at = h->bytes;
    (void)thread;
    for (int k = h->first; k < p; k++)
        at += bytes_of(h->run, k);
    if (EVP_Digest(at, bytes_of(h->run, p), digest, NULL, EVP_sha256(), NULL))
        hex(h->run->hash[p], digest);
    else
        __atomic_store_n(&h->failed, true, __ATOMIC_RELAXED);
}

/* As many as fit are fetched, then hashed by all threads. */
int rlki_hashes(struct rlk_train *run)
{
    size_t room = HASHED_AT_ONCE, used = 0, all = 0;
    int rc = 0;
    if (run->hashed)
        return 0;
    for (int p = 0; p < run->params; p++) {
        room = bytes_of(run, p) > room ? bytes_of(run, p) : room;
        all += bytes_of(run, p);
    }
    if (!run->hash)
        run->hash = calloc((size_t)run->params, sizeof *run->hash);
    char *bytes = malloc((all < room ? all : room) + 1);
    if (!bytes || !run->hash)
        rc = rlki_fail_memory(run, "the hashes of the weights");
    struct hashing h = {.run = run, .bytes = bytes};
    for (int p = 0; !rc && p < run->params; p++) {
        rc = rlki_param_join(run, &run->roll, &run->param[p], RLK_K_BF16, &run->rweight[p], bytes + used);
        used += bytes_of(run, p);
        h.n++;
        if (!rc && (p + 1 == run->params || used + bytes_of(run, p + 1) > room)) {
            rlk_pool_run(run->pool, h.n, hash_one, &h);
            h.first = p + 1;
            h.n = 0;
            used = 0;
        }
    }
    if (!rc && h.failed)
        rc = rlki_fail_memory(run, "the hashes of the weights");
    run->hashed = !rc;
    free(bytes);
    return rc;
}

int rlk_train_hash(struct rlk_train *run, int p, char out[65], struct rlk_kdetail *detail)
{
    const int rc = rlki_hashes(run);
    if (!rc)
        memcpy(out, run->hash[p], 65);
    else if (detail)
        *detail = run->x.detail;
    return rc;
}

int rlki_rec_hashes(struct rlk_train *run, const char *version)
{
    struct rlki_rec *r = &run->rec;
    const size_t n = (size_t)run->params;
    if (!r->tap)
        return 0;
    struct rlk_attr *attr = calloc(n + 1, sizeof *attr);
    char(*text)[128] = calloc(n + 1, sizeof *text);
    int rc = attr && text ? 0 : rlki_fail_memory(run, "hashes");
    for (int p = 0; !rc && p < run->params; p++) {
        const struct rlki_weight *w = &run->param[p];
        char digest[65];
        rc = rlk_train_hash(run, p, digest, NULL);
        if (!rc && w->ndim == 1)
            snprintf(text[p], sizeof text[p], "BF16 [%lld] %s", (long long)w->cols, digest);
        else if (!rc)
            snprintf(text[p], sizeof text[p], "BF16 [%lld, %lld] %s", (long long)w->rows, (long long)w->cols, digest);
        attr[p] = (struct rlk_attr){.key = w->name, .type = RLK_ATTR_STRING, .s = text[p]};
    }
    if (!rc) {
        struct rlk_event e = {.kind = RLK_EV_NOTE, .nattrs = (uint32_t)n, .attrs = attr};
        e.u.note.code = "weights.sha256";
        e.u.note.text = version;
        r->tap->event(r->ctx[0], &e);
    }
    if (rc == RLK_K_ESTATE && run->opt.plant)
        rc = 0; /* replicas that disagree have no hash; the recording says so by their digests */
    free(text);
    free(attr);
    return rc;
}
