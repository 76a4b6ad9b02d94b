/* Hugging Face folders: a good one is read to the bit, and whatever else stands in its files ends in a code and a
 * sentence, never in a crash (run under the sanitizers) and never in wrong numbers. */
#include "replayer/rlk_folder.h"
#include "replayer/run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[128];

#define CONFIG                                                                                                         \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "             \
    "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"head_dim\": 2, \"vocab_size\": 5, "                     \
    "\"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}"

struct text {
    char at[1 << 16];
    size_t n;
};

static void put(const char *name, const void *bytes, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void drop(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    remove(path);
}

static void file(struct text *t, const char *header, const void *data, size_t n)
{
    const uint64_t length = strlen(header);
    t->n = 8 + (size_t)length + n;
    assert_true(t->n <= sizeof t->at);
    for (int b = 0; b < 8; b++)
        t->at[b] = (char)(length >> (8 * b));
    memcpy(t->at + 8, header, (size_t)length);
    memcpy(t->at + 8 + length, data, n);
}

/* Every parameter of the model of CONFIG, as `dtype`; element i of the file's tensors is the i-th of `data`. */
static size_t header_of(char *out, size_t room, const char *dtype, size_t each)
{
    const struct rlk_model_shape shape = {"t", 1, 8, 8, 5, 1, 1, 2, false, 1e4, 1e-6f};
    struct rlki_weight *w;
    int n;
    size_t at = 0, used = 0;
    assert_int_equal(rlki_model_params(&shape, &w, &n), 0);
    used += (size_t)snprintf(out + used, room - used, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int p = 0; p < n; p++) {
        const size_t bytes = (size_t)(w[p].rows * w[p].cols) * each;
        used += (size_t)snprintf(out + used, room - used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", w[p].name, dtype);
        if (w[p].ndim == 2)
            used += (size_t)snprintf(out + used, room - used, "%d,", (int)w[p].rows);
        used += (size_t)snprintf(out + used, room - used, "%d],\"data_offsets\":[%zu,%zu]}", (int)w[p].cols, at,
                                 at + bytes);
        at += bytes;
    }
    snprintf(out + used, room - used, "}");
    free(w);
    return at;
}

static char header[8192];
static unsigned char data[8192];

/* Opens the folder and reads all of it; 0 or a code. */
static int read_all(struct rlk_kdetail *detail)
{
    struct rlk_folder *f = NULL;
    struct rlki_weight *w = NULL;
    int n = 0;
    memset(detail, 0, sizeof *detail);
    int rc = rlk_folder_open(&f, dir, detail);
    assert_int_equal(rc != 0, f == NULL);
    if (!rc)
        rc = rlki_model_params(rlk_folder_shape(f), &w, &n);
    for (int p = 0; !rc && p < n; p++) {
        const size_t elements = (size_t)(w[p].rows * w[p].cols);
        uint16_t *bits = elements < 1 << 20 ? malloc(elements * sizeof *bits) : NULL;
        float *wide = elements < 1 << 20 ? malloc(elements * sizeof *wide) : NULL;
        if (!bits || !wide)
            rc = RLK_K_ENOMEM;
        else
            rc = rlk_folder_read(f, w[p].name, w[p].ndim, w[p].rows, w[p].cols, bits, wide, detail);
        free(wide);
        free(bits);
    }
    free(w);
    rlk_folder_close(f);
    return rc;
}

static void good(void)
{
    struct text t;
    const size_t n = header_of(header, sizeof header, "BF16", 2);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 7 + 3);
    file(&t, header, data, n);
    put("config.json", CONFIG, strlen(CONFIG));
    put("model.safetensors", t.at, t.n);
    drop("model.safetensors.index.json");
}

static int start(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/rlkfolderXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "b.safetensors"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        drop(names[i]);
    return rmdir(dir);
}

static void test_good(void **state)
{
    struct rlk_folder *f;
    struct rlk_kdetail detail;
    uint16_t bits[40];
    float wide[40];
    char where[600], sha[65];
    (void)state;
    good();
    assert_int_equal(read_all(&detail), 0);
    assert_int_equal(rlk_folder_open(&f, dir, &detail), 0);
    assert_int_equal(rlk_folder_shape(f)->vocab, 5);
    assert_true(rlk_folder_shape(f)->theta == 1e4 && rlk_folder_shape(f)->eps == 1e-6f && !rlk_folder_shape(f)->tied);
    assert_int_equal(rlk_folder_read(f, "model.embed_tokens.weight", 2, 5, 8, bits, wide, &detail), 0);
    assert_memory_equal(bits, data, sizeof bits);
    for (int i = 0; i < 40; i++) {
        const uint32_t u = (uint32_t)bits[i] << 16;
        assert_memory_equal(&wide[i], &u, 4);
    }
    assert_int_equal(rlk_folder_source(f, "model.norm.weight", where, sha, &detail), 0);
    assert_non_null(strstr(where, "/model.safetensors#model.norm.weight"));
    assert_int_equal(strlen(sha), 64);
    /* The shape that is asked for has to be the file's. */
    assert_int_equal(rlk_folder_read(f, "model.embed_tokens.weight", 2, 8, 5, bits, wide, &detail), RLK_K_EINVAL);
    assert_int_equal(rlk_folder_read(f, "model.embed_tokens.weight", 1, 1, 40, bits, wide, &detail), RLK_K_EINVAL);
    rlk_folder_close(f);
}

/* F32 and F16 give the same numbers: exact as floats, rounded to nearest even as bf16. */
static void test_types(void **state)
{
    static const float values[] = {1.0f,        -0.5f,           1.00390625f /* 1 + 2^-8: a tie, to even */,
                                   1.01171875f, 6.103515625e-5f, 0.0f};
    static const uint16_t halves[] = {0x3c00, 0xb800, 0x3c04, 0x3c0c, 0x0400, 0x0000},
                          bf16[] = {0x3f80, 0xbf00, 0x3f80, 0x3f82, 0x3880, 0x0000};
    (void)state;
    for (int wide_file = 0; wide_file < 2; wide_file++) {
        struct text t;
        struct rlk_folder *f;
        struct rlk_kdetail detail;
        uint16_t bits[40];
        float wide[40];
        good();
        const size_t n = header_of(header, sizeof header, wide_file ? "F32" : "F16", wide_file ? 4 : 2);
        memset(data, 0, sizeof data);
        memcpy(data, wide_file ? (const void *)values : (const void *)halves,
               wide_file ? sizeof values : sizeof halves);
        file(&t, header, data, n);
        put("model.safetensors", t.at, t.n);
        assert_int_equal(rlk_folder_open(&f, dir, &detail), 0);
        assert_int_equal(rlk_folder_read(f, "model.embed_tokens.weight", 2, 5, 8, bits, wide, &detail), 0);
        assert_memory_equal(wide, values, sizeof values);
        assert_memory_equal(bits, bf16, sizeof bf16);
        rlk_folder_close(f);
    }
}

static void test_shards(void **state)
{
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"weight_map\": 7}",
        "{\"weight_map\": {\"model.norm.weight\": 7}}",
        "{\"weight_map\": {\"model.norm.weight\": \"../model.safetensors\"}}",
        "{\"weight_map\": {\"model.norm.weight\": \"/etc/passwd\"}}",
        "{\"weight_map\": {\"model.norm.weight\": \"..\"}}",
        "{\"weight_map\": {\"model.norm.weight\": \"\"}}",
        "{\"weight_map\": {\"model.norm.weight\": \"c.safetensors\"}}",
        "{\"weight_map\": {\"model.norm.weight\": \"a.safetensors\"}}" /* the others are nowhere */};
    struct rlk_kdetail detail;
    char index[8192], *p = index;
    struct text t;
    (void)state;
    good();
    const size_t n = header_of(header, sizeof header, "BF16", 2);
    /* The first parameter in a.safetensors, the rest in b.safetensors. */
    const char *rest = strstr(header, ",\"model.layers");
    char one[400], two[8192];
    snprintf(one, sizeof one, "{%.*s}", (int)(rest - strchr(header, ',') - 1), strchr(header, ',') + 1);
    file(&t, one, data, 80);
    put("a.safetensors", t.at, t.n);
    size_t used = (size_t)snprintf(two, sizeof two, "{");
    p += sprintf(p, "{\"weight_map\":{\"model.embed_tokens.weight\":\"a.safetensors\"");
    for (const char *at = rest; at; at = strstr(at + 1, ",\"")) { /* offsets count from the shard's own start */
        unsigned long first, last;
        const char *colon = strchr(at, ':'), *offsets = strstr(at, "data_offsets");
        if (!offsets || strncmp(at, ",\"model", 7) != 0) {
            if (strncmp(at, ",\"lm_head", 9) != 0)
                continue;
        }
        assert_int_equal(sscanf(offsets, "data_offsets\":[%lu,%lu]", &first, &last), 2);
        used += (size_t)snprintf(two + used, sizeof two - used, "%s%.*s\"data_offsets\":[%lu,%lu]}",
                                 used > 1 ? "," : "", (int)(offsets - 1 - at - 1), at + 1, first - 80, last - 80);
        p += sprintf(p, ",%.*s:\"b.safetensors\"", (int)(colon - at - 1), at + 1);
    }
    snprintf(two + used, sizeof two - used, "}");
    strcpy(p, "}}");
    file(&t, two, data + 80, n - 80);
    put("b.safetensors", t.at, t.n);
    put("model.safetensors.index.json", index, strlen(index));
    drop("model.safetensors");
    assert_int_equal(read_all(&detail), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("model.safetensors.index.json", bad[i], strlen(bad[i]));
        assert_int_equal(read_all(&detail), RLK_K_EINVAL);
        assert_true(detail.text[0]);
    }
    drop("model.safetensors.index.json");
}

/* One thing wrong in a good config. */
static void test_config(void **state)
{
    static const struct {
        const char *from, *to;
        int code;
    } edits[] = {
        {"\"qwen3\"", "\"llama\"", RLK_K_EUNSUPPORTED},
        {"\"qwen3\"", "7", RLK_K_EUNSUPPORTED},
        {"\"hidden_size\": 8", "\"hidden_size\": 0", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": -8", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": 8.0", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": \"8\"", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": 9223372036854775807", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": 99999999999999999999999", RLK_K_EINVAL},
        {"\"hidden_size\": 8", "\"hidden_size\": 16", RLK_K_EINVAL}, /* not the shapes of the file */
        {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", RLK_K_EINVAL},
        {"\"num_hidden_layers\": 1, ", "", RLK_K_EINVAL},
        {"\"vocab_size\": 5", "\"vocab_size\": 6", RLK_K_EINVAL},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": \"small\"", RLK_K_EINVAL},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", RLK_K_EINVAL},
        {"\"rope_theta\": 10000.0", "\"rope_theta\": 0", RLK_K_EINVAL},
        {"\"rope_theta\": 10000.0", "\"rope_scaling\": {\"factor\": 2}, \"rope_theta\": 10000.0", RLK_K_EUNSUPPORTED},
        {"\"rope_theta\": 10000.0", "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1e4}",
         RLK_K_EUNSUPPORTED},
        {"\"rope_theta\": 10000.0", "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}", 0},
        {"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"rope_theta\": 10000.0", RLK_K_EINVAL},
        {"false}", "false, \"attention_bias\": true}", RLK_K_EUNSUPPORTED},
        {"false}", "false, \"hidden_act\": \"gelu\"}", RLK_K_EUNSUPPORTED},
        {"false}", "false, \"use_sliding_window\": true}", RLK_K_EUNSUPPORTED},
        {"false}", "true}", 0}, /* tied: the head in the file is a copy */
        {"false}", "false", RLK_K_EINVAL},
        {"{\"model", "[{\"model", RLK_K_EINVAL},
        {"false}", "false}\0x", RLK_K_EINVAL},
    };
    (void)state;
    good();
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct rlk_kdetail detail;
        char text[2048];
        const char *at = strstr(CONFIG, edits[i].from);
        assert_non_null(at);
        const size_t before = (size_t)(at - CONFIG),
                     add = i + 1 == sizeof edits / sizeof *edits ? 8 : strlen(edits[i].to);
        memcpy(text, CONFIG, before);
        memcpy(text + before, edits[i].to, add);
        const char *tail = at + strlen(edits[i].from);
        memcpy(text + before + add, tail, strlen(tail));
        put("config.json", text, before + add + strlen(tail));
        const int rc = read_all(&detail);
        if (rc != edits[i].code)
            fail_msg("%s -> %s: %d, %s", edits[i].from, edits[i].to, rc, detail.text);
        assert_int_equal(rc != 0, detail.text[0] != 0);
    }
    drop("config.json");
    struct rlk_kdetail detail;
    assert_int_equal(read_all(&detail), RLK_K_EINVAL);
}

static void test_headers(void **state)
{
    static const struct {
        const char *from, *to;
    } edits[] = {
        {"\"BF16\"", "\"BF17\""},
        {"\"BF16\"", "\"I16\""}, /* fits, and is no number we read */
        {"\"BF16\"", "16"},
        {"[5,8]", "[8,5]"},
        {"[5,8]", "[40]"},
        {"[5,8]", "[5,-8]"},
        {"[5,8]", "[5,8.0]"},
        {"[5,8]", "{}"},
        {"[5,8]", "[4294967296,4294967296]"},
        {"[5,8]", "[9223372036854775807,9223372036854775807]"},
        {"[0,80]", "[80,0]"},
        {"[0,80]", "[0,81]"},
        {"[0,80]", "[2,82]"},
        {"[0,80]", "[-80,0]"},
        {"[0,80]", "[0]"},
        {"[0,80]", "[0,80,80]"},
        {"[0,80]", "[\"0\",80]"},
        {"[0,80]", "[0,9223372036854775807]"},
        {"[0,80]", "[0,99999999999999999999999]"},
        {"model.norm.weight", "model.norm.weighs"},
        {"model.norm.weight", "model.norm.bias"},
        {"model.norm.weight", "model.embed_tokens.weight"},
        {"\"model.embed", "\"x\":{},\"model.embed"},
        {"\"model.embed", "\"x\":null,\"model.embed"},
        {"{\"__meta", "[{\"__meta"},
        {"]}}", "]}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct rlk_kdetail detail;
        struct text t;
        char text[9000];
        good();
        const size_t n = header_of(header, sizeof header, "BF16", 2);
        const char *at = strstr(header, edits[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - header), header, edits[i].to, at + strlen(edits[i].from));
        file(&t, text, data, n);
        put("model.safetensors", t.at, t.n);
        const int rc = read_all(&detail);
        if (!rc || !detail.text[0])
            fail_msg("%s -> %s is read (%d)", edits[i].from, edits[i].to, rc);
    }
}

static uint64_t random_of(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Whatever stands there: a code and a sentence, or numbers of the right shape. */
static void test_anything(void **state)
{
    struct text whole, t;
    uint64_t seed = 1;
    int refused = 0;
    (void)state;
    good();
    const size_t n = header_of(header, sizeof header, "BF16", 2);
    file(&whole, header, data, n);
    for (int round = 0; round < 3000; round++) {
        struct rlk_kdetail detail;
        t = whole;
        const uint64_t kind = random_of(&seed) % 4;
        const size_t area = kind == 0 ? 8 : 8 + strlen(header); /* the length alone, or the header too */
        for (uint64_t k = 0, edits = 1 + random_of(&seed) % 4; kind != 3 && k < edits; k++)
            t.at[random_of(&seed) % area] =
                kind == 2 ? "0123456789-[]{}\":,."[random_of(&seed) % 19] : (char)random_of(&seed);
        if (kind == 3 || round % 7 == 0)
            t.n = random_of(&seed) % (t.n + 1);
        put("model.safetensors", t.at, t.n);
        const int rc = read_all(&detail);
        assert_int_equal(rc != 0, detail.text[0] != 0);
        refused += rc != 0;
    }
    assert_in_range(refused, 2000, 3000); /* a changed name in the metadata is fine */
    for (int round = 0; round < 1000; round++) {
        struct rlk_kdetail detail;
        char text[sizeof CONFIG];
        memcpy(text, CONFIG, sizeof text);
        text[random_of(&seed) % (sizeof text - 1)] = (char)random_of(&seed);
        put("model.safetensors", whole.at, whole.n);
        put("config.json", text, round % 5 ? sizeof text - 1 : random_of(&seed) % sizeof text);
        read_all(&detail);
    }
}

static void test_odd_files(void **state)
{
    struct rlk_kdetail detail;
    char path[300], deep[3000];
    struct text t;
    (void)state;
    good();
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    drop("model.safetensors");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(read_all(&detail), RLK_K_EINVAL);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* does not wait for a writer */
    assert_int_equal(read_all(&detail), RLK_K_EINVAL);
    drop("model.safetensors");
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    file(&t, deep, data, 0);
    put("model.safetensors", t.at, t.n);
    assert_int_equal(read_all(&detail), RLK_K_EINVAL);
    put("model.safetensors", "", 0);
    assert_int_equal(read_all(&detail), RLK_K_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),     cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_shards),   cmocka_unit_test(test_config),
                                       cmocka_unit_test(test_headers),  cmocka_unit_test(test_anything),
                                       cmocka_unit_test(test_odd_files)};
    return cmocka_run_group_tests(tests, start, end);
}
