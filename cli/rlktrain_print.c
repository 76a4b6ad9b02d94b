/* rlktrain_print.c - a step and a weight version as JSON lines, with the digests of the cross-layout report. */
#include "cli/rlktrain.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int no_memory(struct rlk_kdetail *detail)
{
    return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for a line of output");
}

static void hex(char out[65], const unsigned char *digest)
{
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static int line(json_t *object, struct rlk_kdetail *detail)
{
    char *text = object ? json_dumps(object, JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    const int rc = text ? 0 : no_memory(detail);
    if (text) {
        puts(text);
        fflush(stdout);
    }
    free(text);
    json_decref(object);
    return rc;
}

/* SHA-256 over the samples in order: u64 count of ids, then the ids as i64, little-endian. */
static int token_digest(const struct rlk_train_facts *f, char out[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (int s = 0; ok && s < f->samples; s++) {
        for (int32_t i = -1; ok && i < f->length[s]; i++) {
            const uint64_t v = (uint64_t)(int64_t)(i < 0 ? f->length[s] : f->sequence[s][i]);
            unsigned char bytes[8];
            for (int b = 0; b < 8; b++)
                bytes[b] = (unsigned char)(v >> (8 * b));
            ok = EVP_DigestUpdate(ctx, bytes, 8);
        }
    }
    ok = ok && EVP_DigestFinal_ex(ctx, digest, NULL);
    EVP_MD_CTX_free(ctx);
    if (ok)
        hex(out, digest);
    return ok ? 0 : RLK_K_ENOMEM;
}

int rlki_print_step(const struct rlk_train_facts *f, bool times, struct rlk_kdetail *detail)
{
    char digest[65];
    json_t *o = json_object();
    bool bad = !o || token_digest(f, digest) != 0;
    if (bad) {
        json_decref(o);
        return no_memory(detail);
    }
    bad |= json_object_set_new(o, "event", json_string("step")) != 0;
    bad |= json_object_set_new(o, "step", json_integer(f->step)) != 0;
    for (int i = 0; i < f->metrics; i++)
        if (times || strncmp(f->metric[i].name, "perf/", 5) != 0)
            bad |= json_object_set_new(o, f->metric[i].name, json_real(f->metric[i].value)) != 0;
    bad |= json_object_set_new(o, "tokens/sha256", json_string(digest)) != 0;
    if (bad) {
        json_decref(o);
        return no_memory(detail);
    }
    return line(o, detail);
}

static json_t *one_parameter(struct rlk_train *run, int p, int *rc, struct rlk_kdetail *detail)
{
    const struct rlk_param_info info = rlk_train_param(run, p);
    char text[65];
    json_t *o = NULL;
    *rc = rlk_train_hash(run, p, text, detail);
    if (!*rc)
        o = info.ndim == 1
                ? json_pack("{s:s,s:s,s:[I]}", "dtype", "BF16", "sha256", text, "shape", (json_int_t)info.cols)
                : json_pack("{s:s,s:s,s:[I,I]}", "dtype", "BF16", "sha256", text, "shape", (json_int_t)info.rows,
                            (json_int_t)info.cols);
    if (!o && !*rc)
        *rc = no_memory(detail);
    return o;
}

int rlki_print_weights(struct rlk_train *run, long long version, bool times, struct rlk_kdetail *detail)
{
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    json_t *all = json_object();
    char label[32], text[65], *dump = NULL;
    unsigned char digest[EVP_MAX_MD_SIZE];
    int rc = all ? 0 : no_memory(detail);
    for (int p = 0; !rc && p < rlk_train_params(run); p++) {
        json_t *one = one_parameter(run, p, &rc, detail);
        if (one && json_object_set_new(all, rlk_train_param(run, p).name, one) != 0)
            rc = no_memory(detail);
    }
    /* The spacing of Python's json.dumps(..., sort_keys=True), so that json and hashlib reproduce it. */
    if (!rc)
        dump = json_dumps(all, JSON_ENSURE_ASCII | JSON_SORT_KEYS);
    if (!rc && (!dump || !EVP_Digest(dump, strlen(dump), digest, NULL, EVP_sha256(), NULL)))
        rc = no_memory(detail);
    if (!rc) {
        hex(text, digest);
        snprintf(label, sizeof label, "weight_v%06lld", version);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        json_t *o = json_pack("{s:s,s:s,s:s,s:i}", "event", "weights", "version", label, "sha256", text, "tensor_count",
                              rlk_train_params(run));
        if (o && times)
            json_object_set_new(
                o, "perf/hash_time",
                json_real((double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec)));
        rc = line(o, detail);
    }
    free(dump);
    json_decref(all);
    return rc;
}
