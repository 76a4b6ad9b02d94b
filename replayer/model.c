/* model.c - known models, their parameters, and seeded values. */
#include "replayer/run.h"

#include "kernels/rlk_num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct rlk_model_shape models[] = {
    /* name, layers, hidden, intermediate, vocab, heads, kv, head_dim, tied, theta, eps */
    {"qwen3-tiny", 2, 256, 768, 2048, 16, 8, 64, false, 1e6, 1e-6f},
    {"qwen3-mini", 2, 64, 128, 512, 8, 8, 64, false, 1e6, 1e-6f}, /* the tests' own */
    {"qwen3-0.6b", 28, 1024, 3072, 151936, 16, 8, 128, true, 1e6, 1e-6f},
    {"qwen3-1.7b", 28, 2048, 6144, 151936, 16, 8, 128, true, 1e6, 1e-6f},
    {"qwen3-4b", 36, 2560, 9728, 151936, 32, 8, 128, true, 1e6, 1e-6f},
    {"qwen3-8b", 36, 4096, 12288, 151936, 32, 8, 128, false, 1e6, 1e-6f},
};

const struct rlk_model_shape *rlk_model_at(int n)
{
    return n >= 0 && (size_t)n < sizeof models / sizeof models[0] ? &models[n] : NULL;
}

const struct rlk_model_shape *rlk_model_find(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, name) == 0 || strcmp(strchr(models[i].name, '-') + 1, name) == 0)
            return &models[i];
    return NULL;
}

static struct rlki_weight matrix(const char *name, int64_t rows, int64_t cols, enum rlk_cut cut, bool vocab)
{
    struct rlki_weight w = {"", rows, cols, 2, cut, vocab, true, RLKI_DEVIATION};
    snprintf(w.name, sizeof w.name, "%s", name);
    return w;
}

static struct rlki_weight gamma_of(const char *name, int64_t size)
{
    struct rlki_weight w = {"", 1, size, 1, RLK_CUT_NONE, false, false, 0.0f};
    snprintf(w.name, sizeof w.name, "%s", name);
    return w;
}

static struct rlki_weight in_layer(const struct rlk_model_shape *s, int layer, enum rlki_slot slot)
{
    const int64_t H = s->hidden, Q = (int64_t)s->heads * s->head_dim, KV = (int64_t)s->kv_heads * s->head_dim;
    const int64_t I = s->intermediate;
    static const char *const name[RLKI_SLOTS] = {
        "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.q_norm", "self_attn.k_norm", "self_attn.o_proj", "post_attention_layernorm",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    char path[80];
    snprintf(path, sizeof path, "model.layers.%d.%s.weight", layer, name[slot]);
    switch (slot) {
    case RLKI_NORM1:
    case RLKI_NORM2:
        return gamma_of(path, H);
    case RLKI_QNORM:
    case RLKI_KNORM:
        return gamma_of(path, s->head_dim);
    case RLKI_Q:
        return matrix(path, Q, H, RLK_CUT_OUT, false);
    case RLKI_K:
    case RLKI_V:
        return matrix(path, KV, H, RLK_CUT_OUT, false);
    case RLKI_O:
        return matrix(path, H, Q, RLK_CUT_IN, false);
    case RLKI_DOWN:
        return matrix(path, H, I, RLK_CUT_IN, false);
    case RLKI_GATE:
    case RLKI_UP:
    case RLKI_SLOTS:
        break;
    }
    return matrix(path, I, H, RLK_CUT_OUT, false);
}

int rlki_model_params(const struct rlk_model_shape *s, struct rlki_weight **out, int *n)
{
    const int count = 1 + s->layers * RLKI_SLOTS + 1 + (s->tied ? 0 : 1);
    struct rlki_weight *w = calloc((size_t)count, sizeof *w);
    if (!w)
        return RLK_K_ENOMEM;
    w[RLKI_EMBED] = matrix("model.embed_tokens.weight", s->vocab, s->hidden, RLK_CUT_OUT, true);
    for (int l = 0; l < s->layers; l++)
        for (int k = 0; k < RLKI_SLOTS; k++)
            w[rlki_layer_param(l, (enum rlki_slot)k)] = in_layer(s, l, (enum rlki_slot)k);
    w[1 + s->layers * RLKI_SLOTS] = gamma_of("model.norm.weight", s->hidden);
    if (!s->tied)
        w[count - 1] = matrix("lm_head.weight", s->vocab, s->hidden, RLK_CUT_OUT, true);
    *out = w;
    *n = count;
    return 0;
}

/* One Philox block an element: the sum of its four words' upper halves, centred (an integer below 2^18, exact), times
 * one fp32 constant: about normal, and nothing a math library could round differently. */
struct fill {
    const struct rlki_weight *w;
    uint64_t seed;
    uint32_t ordinal;
    uint16_t *out;
};
#define FILL 65536 /* elements a task */

static void fill_some(void *arg, int64_t task, unsigned thread)
{
    const struct fill *f = arg;
    const float scale = f->w->std / 37837.23f; /* 65536 / sqrt(3): the deviation of that sum */
    const int64_t n = f->w->rows * f->w->cols, end = (task + 1) * FILL < n ? (task + 1) * FILL : n;
    (void)thread;
    for (int64_t i = task * FILL; i < end; i++) {
        uint32_t c[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), f->ordinal, 0x696e6974u};
        if (f->w->std == 0.0f) {
            f->out[i] = rlkn_to_bf16(1.0f);
            continue;
        }
        rlkn_philox(c, (uint32_t)f->seed, (uint32_t)(f->seed >> 32));
        const int32_t sum = (int32_t)((c[0] >> 16) + (c[1] >> 16) + (c[2] >> 16) + (c[3] >> 16)) - 131070;
        f->out[i] = rlkn_to_bf16((float)sum * scale);
    }
}

void rlki_model_fill(struct rlk_pool *pool, const struct rlki_weight *w, uint64_t seed, uint32_t ordinal, uint16_t *out)
{
    struct fill f = {w, seed, ordinal, out};
    rlk_pool_run(pool, (w->rows * w->cols + FILL - 1) / FILL, fill_some, &f);
}
