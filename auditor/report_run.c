/* report_run.c - one run: its metrics, times, tokens, and what can be judged of it alone. */
#include "auditor/audit.h"
#include "auditor/report.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void hex(char out[65], const unsigned char *digest)
{
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* By step, then id: shorter ids first, so that s10 follows s9. */
static int compare_tokens(const void *x, const void *y)
{
    const struct rlki_tokens *a = x, *b = y;
    const size_t na = strlen(a->id), nb = strlen(b->id);
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (na != nb)
        return na < nb ? -1 : 1;
    return strcmp(a->id, b->id);
}

static bool put_word(EVP_MD_CTX *ctx, uint64_t v)
{
    unsigned char bytes[8];
    for (int b = 0; b < 8; b++)
        bytes[b] = (unsigned char)(v >> (8 * b));
    return EVP_DigestUpdate(ctx, bytes, 8);
}

/* SHA-256 over the samples in order of id: u64 count of ids, then the ids as i64, little-endian. */
static json_t *tokens_of(const struct rlki_tokens *t, size_t n)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[65];
    uint64_t total = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (size_t s = 0; s < n && ok; s++) {
        ok = put_word(ctx, t[s].n);
        total += t[s].n;
        for (uint32_t i = 0; i < t[s].n && ok; i++)
            ok = put_word(ctx, (uint64_t)t[s].token[i]);
    }
    ok = ok && EVP_DigestFinal_ex(ctx, digest, NULL);
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return NULL;
    hex(text, digest);
    return json_pack("{s:s,s:I,s:I}", "sha256", text, "sample_count", (json_int_t)n, "token_count", (json_int_t)total);
}

/* A sample that several ranks have told of is one; if they tell different tokens, that is a fault. */
static void tell_once(struct rlki_run_facts *f)
{
    size_t n = 0;
    if (f->ntokens)
        qsort(f->tokens, f->ntokens, sizeof *f->tokens, compare_tokens);
    for (size_t i = 0; i < f->ntokens; i++) {
        const struct rlki_tokens *t = &f->tokens[i], *last = n ? &f->tokens[n - 1] : NULL;
        if (!last || last->step != t->step || strcmp(last->id, t->id) != 0) {
            f->tokens[n++] = *t;
            continue;
        }
        if (last->n != t->n || memcmp(last->token, t->token, t->n * sizeof *t->token) != 0) {
            char text[160];
            snprintf(text, sizeof text, "step %" PRId64 ": sample %.60s has two different sequences of tokens", t->step,
                     t->id);
            rlki_append_once(f->faults, text);
        }
    }
    f->ntokens = n;
}

static json_t *all_tokens(struct rlki_run_facts *f)
{
    json_t *all = json_object();
    tell_once(f);
    for (size_t i = 0, end; i < f->ntokens; i = end) {
        char key[24];
        for (end = i; end < f->ntokens && f->tokens[end].step == f->tokens[i].step;)
            end++;
        snprintf(key, sizeof key, "%" PRId64, f->tokens[i].step);
        rlki_set(all, key, tokens_of(f->tokens + i, end - i));
    }
    return all;
}

static int feed(const char *bytes, size_t n, void *ctx)
{
    return EVP_DigestUpdate(ctx, bytes, n) ? 0 : -1;
}

json_t *rlki_version_digest(const json_t *tensors)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[65];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    /* The spacing of Python's json.dumps(..., sort_keys=True), so that json and hashlib reproduce it. */
    const bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
                    json_dump_callback(tensors, feed, ctx, JSON_ENSURE_ASCII | JSON_SORT_KEYS) == 0 &&
                    EVP_DigestFinal_ex(ctx, digest, NULL);
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return NULL;
    hex(text, digest);
    return json_string(text);
}

/* Did the run learn anything? Where nothing moves, equality says little. */
static json_t *updates(const struct rlki_run_facts *f)
{
    json_t *row = json_object(), *checks = json_object(), *seen = json_object(), *metrics, *tensors;
    const char *step, *version;
    bool norm = true, rate = true, known = false;
    json_object_foreach(f->steps, step, metrics)
    {
        const double g = rlki_metric(f, step, "train/grad_norm"), lr = rlki_metric(f, step, "train/lr-pg_0");
        known |= !isnan(g);
        norm &= g > 0.0;
        rate &= lr > 0.0;
    }
    json_object_foreach(f->hashes, version, tensors)
    {
        json_t *digest = rlki_version_digest(tensors);
        rlki_set(seen, digest ? json_string_value(digest) : "", digest ? json_true() : NULL);
        json_decref(digest);
    }
    const size_t n = json_object_size(f->hashes);
    const bool change = n >= 2 && json_object_size(seen) == n;
    rlki_set(checks, "grad_norm_positive", json_boolean(norm));
    rlki_set(checks, "learning_rate_positive", json_boolean(rate));
    rlki_set(checks, "weights_change", n ? json_boolean(change) : json_null());
    rlki_set(row, "checks", checks);
    rlki_set(row, "passed", json_boolean(norm && rate && (change || !n)));
    json_decref(seen);
    return known ? row : rlki_not_applicable(row, "no gradient norms were recorded");
}

static json_t *validation(const struct rlki_run_facts *f, const struct rlk_report_options *o)
{
    static const char *const rows[] = {"cudagraph", "runtime_readbacks", "runtime_scalar_logprob",
                                       "train_rollout_logprob", "updates"};
    json_t *v = json_object(), *errors = json_array(), *open = json_array(), *logp = rlki_row_logp(f);
    bool passed = true;
    if (!f->complete)
        rlki_add(errors, rlki_json_text(f->why[0] ? f->why : "the recording is incomplete"));
    rlki_set(v, "cudagraph", rlki_row_graphs(f, o));
    rlki_set(v, "errors", errors);
    rlki_set(v, "group", json_string("consistency"));
    rlki_set(v, "offline_tensor_comparison", rlki_row_offline(f));
    rlki_set(v, "passed", json_null());
    rlki_set(v, "run_id", rlki_json_text(f->name));
    rlki_set(v, "runtime_readbacks", rlki_row_readbacks(f));
    rlki_set(v, "runtime_scalar_logprob", rlki_row_scalars(f, logp));
    rlki_set(v, "schema_version", json_string("rlk.cross_layout.v1"));
    rlki_set(v, "train_rollout_logprob", logp);
    rlki_set(v, "updates", updates(f));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *p = json_object_get(json_object_get(v, rows[i]), "passed");
        passed &= !json_is_false(p);
        if (json_is_null(p))
            rlki_add(open, json_string(rows[i]));
    }
    rlki_set(v, "passed", json_boolean(passed && !json_array_size(errors) && json_array_size(open) < 5));
    rlki_set(v, "not_applicable", open);
    return v;
}

json_t *rlki_run(struct rlki_run_facts *f, const struct rlk_report_options *o)
{
    json_t *run = json_object();
    rlki_set(run, "run_id", rlki_json_text(f->name));
    rlki_set(run, "layout", f->layout ? rlki_json_text(f->layout) : json_null());
    rlki_set(run, "steps", json_incref(f->steps));
    rlki_set(run, "performance", json_incref(f->perf));
    rlki_set(run, "tokens", all_tokens(f));
    rlki_set(run, "validation", validation(f, o));
    return run;
}
