/* rlktrain_save.c - the weights as a Hugging Face folder: config.json and model.safetensors. */
#include "cli/rlktrain.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int no_memory(struct rlk_kdetail *detail)
{
    return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for the weights");
}

static int cannot(const char *path, struct rlk_kdetail *detail)
{
    return rlk_kfail(detail, RLK_K_EINTERNAL, "%.300s: %s", path, strerror(errno));
}

/* safetensors: u64 LE length of the header, the header (JSON, padded with blanks to 8), then the bytes of the tensors.
 */
static char *header(const struct rlk_train *run)
{
    json_t *all = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    json_int_t at = 0;
    bool bad = !all;
    for (int p = 0; !bad && p < rlk_train_params(run); p++) {
        const struct rlk_param_info info = rlk_train_param(run, p);
        const json_int_t end = at + (json_int_t)(info.rows * info.cols) * 2;
        json_t *shape = info.ndim == 1 ? json_pack("[I]", (json_int_t)info.cols)
                                       : json_pack("[I,I]", (json_int_t)info.rows, (json_int_t)info.cols);
        json_t *one = json_pack("{s:s,s:o,s:[I,I]}", "dtype", "BF16", "shape", shape, "data_offsets", at, end);
        bad = !one || json_object_set_new(all, info.name, one) != 0;
        at = end;
    }
    char *text = bad ? NULL : json_dumps(all, JSON_ENSURE_ASCII | JSON_COMPACT);
    json_decref(all);
    return text;
}

static int write_weights(struct rlk_train *run, FILE *to, const char *path, struct rlk_kdetail *detail)
{
    char *text = header(run);
    int rc = text ? 0 : no_memory(detail);
    if (!rc) {
        const uint64_t n = (strlen(text) + 7) / 8 * 8;
        unsigned char length[8];
        for (int b = 0; b < 8; b++)
            length[b] = (unsigned char)(n >> (8 * b));
        if (fwrite(length, 8, 1, to) != 1 || fprintf(to, "%-*s", (int)n, text) != (int)n)
            rc = cannot(path, detail);
    }
    for (int p = 0; !rc && p < rlk_train_params(run); p++) {
        const struct rlk_param_info info = rlk_train_param(run, p);
        const size_t n = (size_t)(info.rows * info.cols);
        uint16_t *bits = malloc(n * sizeof *bits);
        rc = bits ? rlk_train_copy(run, RLK_TRAIN_WEIGHT, p, bits, detail) : no_memory(detail);
        if (!rc && fwrite(bits, sizeof *bits, n, to) != n)
            rc = cannot(path, detail);
        free(bits);
    }
    free(text);
    return rc;
}

static int write_config(const struct rlk_model_shape *s, FILE *to, const char *path, struct rlk_kdetail *detail)
{
    json_t *o = json_pack("{s:[s],s:s,s:s,s:s,s:b,s:i,s:I,s:I,s:I,s:i,s:i,s:i,s:i,s:f,s:f,s:b}", "architectures",
                          "Qwen3ForCausalLM", "model_type", "qwen3", "torch_dtype", "bfloat16", "hidden_act", "silu",
                          "attention_bias", 0, "num_hidden_layers", s->layers, "hidden_size", (json_int_t)s->hidden,
                          "intermediate_size", (json_int_t)s->intermediate, "vocab_size", (json_int_t)s->vocab,
                          "num_attention_heads", s->heads, "num_key_value_heads", s->kv_heads, "head_dim", s->head_dim,
                          "max_position_embeddings", 40960, "rope_theta", s->theta, "rms_norm_eps", (double)s->eps,
                          "tie_word_embeddings", (int)s->tied);
    int rc = o ? 0 : no_memory(detail);
    if (!rc && (json_dumpf(o, to, JSON_INDENT(2) | JSON_REAL_PRECISION(8)) != 0 || fputc('\n', to) == EOF))
        rc = cannot(path, detail);
    json_decref(o);
    return rc;
}

/* A file appears whole or not at all. */
static int one_file(struct rlk_train *run, const struct rlk_model_shape *shape, const char *dir, bool config,
                    struct rlk_kdetail *detail)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    const char *name = config ? "config.json" : "model.safetensors";
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return rlk_kfail(detail, RLK_K_EINVAL, "--save: the path is too long");
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *to = fopen(temporary, "wb");
    if (!to)
        return cannot(temporary, detail);
    int rc = config ? write_config(shape, to, path, detail) : write_weights(run, to, path, detail);
    if (fclose(to) != 0 && !rc)
        rc = cannot(path, detail);
    if (!rc && rename(temporary, path) != 0)
        rc = cannot(path, detail);
    if (rc)
        remove(temporary);
    return rc;
}

int rlki_save(struct rlk_train *run, const struct rlk_model_shape *shape, const char *dir, struct rlk_kdetail *detail)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return cannot(dir, detail);
    const int rc = one_file(run, shape, dir, true, detail);
    return rc ? rc : one_file(run, shape, dir, false, detail);
}
