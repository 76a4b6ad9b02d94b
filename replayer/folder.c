/* folder.c - config.json and the tensors of a Qwen3 model in a Hugging Face folder. */
#include "replayer/rlk_folder.h"
#include "replayer/run.h"
#include "replayer/safetensors.h"

#include "kernels/rlk_num.h"

#include <limits.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES 1024

struct rlk_folder {
    char dir[400];
    struct rlk_model_shape shape;
    json_t *map; /* name -> file, where there are shards; else NULL */
    int files;
    struct rlki_tensors *file;
};

/* ---- config.json ---- */

static int wrong(const char *dir, const char *key, const char *what, int code, struct rlk_kdetail *detail)
{
    return rlk_kfail(detail, code, "%.300s/config.json: %.60s: %.120s", dir, key, what);
}

static int integer(const char *dir, const json_t *c, const char *key, int64_t most, int64_t *out,
                   struct rlk_kdetail *detail)
{
    const json_t *v = json_object_get(c, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
        return wrong(dir, key, "a positive number of a sensible size was expected", RLK_K_EINVAL, detail);
    *out = json_integer_value(v);
    return 0;
}

/* Where it is there, a setting has to be what this policy computes. */
static int settings(const char *dir, const json_t *c, struct rlk_kdetail *detail)
{
    const char *type = json_string_value(json_object_get(c, "model_type"));
    const char *act = json_string_value(json_object_get(c, "hidden_act"));
    const json_t *rope = json_object_get(c, "rope_parameters"), *scaling = json_object_get(c, "rope_scaling");
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    if (!type || strcmp(type, "qwen3") != 0)
        return wrong(dir, "model_type", "only qwen3 is read", RLK_K_EUNSUPPORTED, detail);
    if (act && strcmp(act, "silu") != 0)
        return wrong(dir, "hidden_act", "only silu is built", RLK_K_EUNSUPPORTED, detail);
    if (json_is_true(json_object_get(c, "attention_bias")))
        return wrong(dir, "attention_bias", "biases are not built", RLK_K_EUNSUPPORTED, detail);
    if (json_is_true(json_object_get(c, "use_sliding_window")))
        return wrong(dir, "use_sliding_window", "sliding windows are not built", RLK_K_EUNSUPPORTED, detail);
    if ((scaling && !json_is_null(scaling)) || (kind && strcmp(kind, "default") != 0))
        return wrong(dir, "rope", "only the default rotary embedding is built", RLK_K_EUNSUPPORTED, detail);
    return 0;
}

static int read_shape(struct rlk_folder *f, const json_t *c, struct rlk_kdetail *detail)
{
    const json_t *theta = json_object_get(c, "rope_theta"), *eps = json_object_get(c, "rms_norm_eps");
    struct rlk_model_shape *s = &f->shape;
    int64_t layers = 0, heads = 0, kv = 0, dim = 0;
    int rc = settings(f->dir, c, detail);
    if (!theta)
        theta = json_object_get(json_object_get(c, "rope_parameters"), "rope_theta");
    *s = (struct rlk_model_shape){
        .name = "folder", .theta = json_number_value(theta), .eps = (float)json_number_value(eps)};
    s->tied = json_is_true(json_object_get(c, "tie_word_embeddings"));
    if (!rc)
        rc = integer(f->dir, c, "num_hidden_layers", 1000, &layers, detail);
    if (!rc)
        rc = integer(f->dir, c, "hidden_size", 1 << 20, &s->hidden, detail);
    if (!rc)
        rc = integer(f->dir, c, "intermediate_size", 1 << 22, &s->intermediate, detail);
    if (!rc)
        rc = integer(f->dir, c, "vocab_size", 1 << 24, &s->vocab, detail);
    if (!rc)
        rc = integer(f->dir, c, "num_attention_heads", 1 << 12, &heads, detail);
    if (!rc)
        rc = integer(f->dir, c, "num_key_value_heads", 1 << 12, &kv, detail);
    if (!rc)
        rc = integer(f->dir, c, "head_dim", 1 << 12, &dim, detail);
    s->layers = (int)layers;
    s->heads = (int)heads;
    s->kv_heads = (int)kv;
    s->head_dim = (int)dim;
    if (!rc && !(s->theta > 1.0 && s->theta < 1e12))
        rc = wrong(f->dir, "rope_theta", "a number above 1 was expected", RLK_K_EINVAL, detail);
    if (!rc && !(s->eps > 0.0f && s->eps < 1.0f))
        rc = wrong(f->dir, "rms_norm_eps", "a number between 0 and 1 was expected", RLK_K_EINVAL, detail);
    return rc;
}

/* ---- files ---- */

static int add_file(struct rlk_folder *f, const char *name, struct rlk_kdetail *detail)
{
    char path[800];
    if (!name[0] || strchr(name, '/') || name[0] == '.' || strlen(name) > 255)
        return rlk_kfail(detail, RLK_K_EINVAL, "%.300s: the index names a file outside the folder", f->dir);
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    for (int i = 0; i < f->files; i++)
        if (strcmp(f->file[i].path, path) == 0)
            return 0;
    struct rlki_tensors *more = f->files < MAX_FILES ? realloc(f->file, ((size_t)f->files + 1) * sizeof *more) : NULL;
    if (!more)
        return rlk_kfail(detail, RLK_K_ENOMEM, "%.300s: too many files", f->dir);
    f->file = more;
    const int rc = rlki_tensors_open(&f->file[f->files], path, detail);
    f->files += rc == 0;
    return rc;
}

static int open_shards(struct rlk_folder *f, const char *path, struct rlk_kdetail *detail)
{
    int rc = 0;
    const char *name;
    json_t *value, *index = rlki_json_file(path, &rc, detail);
    f->map = json_incref(json_object_get(index, "weight_map"));
    json_decref(index);
    if (!rc && !json_is_object(f->map))
        rc = rlk_kfail(detail, RLK_K_EINVAL, "%.400s: there is no weight_map", path);
    json_object_foreach(f->map, name, value)
    {
        if (!rc && !json_is_string(value))
            rc = rlk_kfail(detail, RLK_K_EINVAL, "%.400s: %.80s: a file name was expected", path, name);
        if (!rc)
            rc = add_file(f, json_string_value(value), detail);
    }
    return rc;
}

static struct rlki_tensors *file_of(const struct rlk_folder *f, const char *name)
{
    const char *in = f->map ? json_string_value(json_object_get(f->map, name)) : "model.safetensors";
    for (int i = 0; in && i < f->files; i++) {
        const char *base = strrchr(f->file[i].path, '/');
        if (base && strcmp(base + 1, in) == 0)
            return &f->file[i];
    }
    return NULL;
}

/* A tensor that is no parameter of this model would be left out in silence. */
static int check_names(struct rlk_folder *f, struct rlk_kdetail *detail)
{
    struct rlki_weight *param = NULL;
    json_t *known = json_object();
    int n = 0, rc = known ? rlki_model_params(&f->shape, &param, &n) : RLK_K_ENOMEM;
    for (int p = 0; !rc && p < n; p++)
        rc = json_object_set_new(known, param[p].name, json_true()) ? RLK_K_ENOMEM : 0;
    if (rc)
        rc = rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for the names of parameters");
    for (int i = 0; i < f->files; i++) {
        const char *name;
        json_t *value;
        json_object_foreach(f->file[i].header, name, value)
        {
            const bool head = f->shape.tied && strcmp(name, "lm_head.weight") == 0; /* a copy of the embedding */
            if (!rc && !head && !json_object_get(known, name))
                rc = rlk_kfail(detail, RLK_K_EUNSUPPORTED, "%.300s: %.100s is no parameter of this model",
                               f->file[i].path, name);
        }
    }
    json_decref(known);
    free(param);
    return rc;
}

int rlk_folder_open(struct rlk_folder **out, const char *dir, struct rlk_kdetail *detail)
{
    struct rlk_folder *f = calloc(1, sizeof *f);
    char path[800];
    json_t *config = NULL;
    int rc = 0;
    *out = NULL;
    if (!f)
        return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for a folder");
    if (snprintf(f->dir, sizeof f->dir, "%s", dir) >= (int)sizeof f->dir)
        rc = rlk_kfail(detail, RLK_K_EINVAL, "%.300s: the path is too long", dir);
    snprintf(path, sizeof path, "%s/config.json", f->dir);
    if (!rc)
        config = rlki_json_file(path, &rc, detail);
    if (!rc)
        rc = read_shape(f, config, detail);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", f->dir);
    if (!rc)
        rc = access(path, F_OK) == 0 ? open_shards(f, path, detail) : add_file(f, "model.safetensors", detail);
    if (!rc)
        rc = check_names(f, detail);
    if (rc)
        rlk_folder_close(f);
    else
        *out = f;
    return rc;
}

void rlk_folder_close(struct rlk_folder *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->files; i++)
        rlki_tensors_close(&f->file[i]);
    free(f->file);
    json_decref(f->map);
    free(f);
}

const struct rlk_model_shape *rlk_folder_shape(const struct rlk_folder *f)
{
    return &f->shape;
}

const char *rlk_folder_path(const struct rlk_folder *f)
{
    return f->dir;
}

/* ---- tensors ---- */

static float half(uint16_t h)
{
    const int e = h >> 10 & 31;
    const float m = (float)(h & 1023), sign = h >> 15 ? -1.0f : 1.0f;
    if (e == 31)
        return m != 0.0f ? NAN : sign * INFINITY;
    return sign * (e ? ldexpf(1024.0f + m, e - 25) : ldexpf(m, -24));
}

static float element(const unsigned char *bytes, size_t i, char type)
{
    uint32_t u;
    float x;
    if (type == 'F') { /* F32 */
        u = (uint32_t)bytes[4 * i] | (uint32_t)bytes[4 * i + 1] << 8 | (uint32_t)bytes[4 * i + 2] << 16 |
            (uint32_t)bytes[4 * i + 3] << 24;
    } else {
        const uint16_t h = (uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        if (type == 'H')
            return half(h);
        u = (uint32_t)h << 16;
    }
    memcpy(&x, &u, sizeof x);
    return x;
}

int rlk_folder_read(struct rlk_folder *f, const char *name, int ndim, int64_t rows, int64_t cols, uint16_t *bits,
                    float *wide, struct rlk_kdetail *detail)
{
    struct rlki_tensors *file = file_of(f, name);
    if (!file)
        return rlk_kfail(detail, RLK_K_EINVAL, "%.300s: the index does not say where %.90s is", f->dir, name);
    return rlki_tensors_values(file, name, ndim, rows, cols, bits, wide, detail);
}

int rlki_tensors_values(struct rlki_tensors *file, const char *name, int ndim, int64_t rows, int64_t cols,
                        uint16_t *bits, float *wide, struct rlk_kdetail *detail)
{
    void *bytes = NULL;
    const char *dtype = "";
    size_t size = 0;
    int rc = rlki_tensors_read(file, name, ndim, rows, cols, &bytes, &size, &dtype, detail);
    if (rc)
        return rc;
    const char type = strcmp(dtype, "BF16") == 0  ? 'B'
                      : strcmp(dtype, "F16") == 0 ? 'H'
                      : strcmp(dtype, "F32") == 0 ? 'F'
                                                  : 0;
    const size_t n = (size_t)(rows * cols);
    if (!type)
        rc = rlk_kfail(detail, RLK_K_EUNSUPPORTED, "%.300s: %.90s is %.10s: BF16, F16 and F32 are read", file->path,
                       name, dtype);
    for (size_t i = 0; !rc && i < n; i++) {
        const float x = element(bytes, i, type);
        if (wide)
            wide[i] = x;
        if (bits && type == 'B') /* as they are, the payload of a NaN included */
            memcpy(&bits[i], (const char *)bytes + 2 * i, 2);
        else if (bits)
            bits[i] = rlkn_to_bf16(x);
    }
    free(bytes);
    return rc;
}

int rlk_folder_source(struct rlk_folder *f, const char *name, char *where, char sha256[65], struct rlk_kdetail *detail)
{
    struct rlki_tensors *file = file_of(f, name);
    unsigned char digest[EVP_MAX_MD_SIZE];
    void *bytes = NULL;
    const char *dtype;
    size_t size = 0;
    if (!file)
        return rlk_kfail(detail, RLK_K_EINVAL, "%.300s: the index does not say where %.90s is", f->dir, name);
    int rc = rlki_tensors_read(file, name, 0, 0, 0, &bytes, &size, &dtype, detail);
    if (!rc && !EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL))
        rc = rlk_kfail(detail, RLK_K_ENOMEM, "the hash of %.90s could not be made", name);
    if (!rc) {
        snprintf(where, 600, "%.500s#%.90s", file->path, name);
        for (int i = 0; i < 32; i++)
            snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    }
    free(bytes);
    return rc;
}
