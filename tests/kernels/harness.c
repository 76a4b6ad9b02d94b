#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rlk_num.h"

void (*t_bracket)(bool inside);

uint64_t t_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t h = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15) * 0xbf58476d1ce4e5b9ull ^
                 (c + 3) * 0x94d049bb133111ebull ^ (d + 7) * 0xd6e8feb86659fd93ull;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    return h ^ h >> 32;
}

enum rlk_device t_device(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "cuda") != 0)
        return RLK_DEVICE_CPU;
    struct rlk_exec x;
    if (rlk_exec_init(&x, RLK_DEVICE_CUDA, NULL, NULL)) {
        printf("skipped: %s\n", x.detail.text);
        exit(77);
    }
    return RLK_DEVICE_CUDA;
}

static void *keep(void ***list, size_t *n, void *p)
{
    if ((*n & (*n - 1)) == 0)
        *list = realloc(*list, (*n ? 2 * *n : 1) * sizeof **list);
    return (*list)[(*n)++] = p;
}

/* On a GPU pieces of 64 MiB blocks: thousands of small allocations would take longer than the tests. */
static void *device_memory(struct t_env *e, size_t bytes)
{
    const size_t chunk = (size_t)64 << 20, need = (bytes + 511) & ~(size_t)255;
    if (e->x.device == RLK_DEVICE_CPU || need > chunk)
        return keep(&e->blocks, &e->nblocks, rlk_exec_alloc(&e->x, bytes));
    if (e->left < need) {
        e->bump = keep(&e->blocks, &e->nblocks, rlk_exec_alloc(&e->x, chunk));
        e->left = chunk;
    }
    char *p = e->bump;
    e->bump += need;
    e->left -= need;
    return p;
}

static int init(struct t_env *e, const struct t_case *c)
{
    e->pool = c->threads > 1 ? rlk_pool_new(c->threads) : NULL;
    int rc = rlk_exec_init(&e->x, c->device, c->stream, e->pool);
    if (rc)
        return c->device == RLK_DEVICE_CUDA ? 77 : rc;
    e->x.prims = c->prims ? c->prims : e->x.prims;
    e->x.provider = c->provider ? c->provider : e->x.provider;
    e->x.policy = c->policy;
    e->x.observe = c->observe;
    e->x.node = c->node;
    if ((rc = rlk_world_virtual(&e->w, &e->x, c->tp, c->cp)))
        return rc;
    return rlk_batch_new(&e->x, &e->w.lat, c->sequences, c->length, NULL, &e->b);
}

int t_env_init(struct t_env *e, const struct t_case *c)
{
    *e = (struct t_env){0};
    if (t_bracket)
        t_bracket(true);
    const int rc = init(e, c);
    if (t_bracket)
        t_bracket(false);
    return rc;
}

void t_env_release(struct t_env *e)
{
    for (size_t i = 0; i < e->nblocks; i++)
        rlk_exec_free(&e->x, e->blocks[i]);
    for (size_t i = 0; i < e->narrays; i++)
        free(e->arrays[i]);
    free(e->blocks);
    free(e->arrays);
    rlk_exec_free(&e->x, e->workspace);
    rlk_batch_free(&e->x, e->b);
    rlk_pool_free(e->pool);
}

int64_t t_rows(const struct t_env *e, const struct t_spec *s)
{
    return s->rows_kind == ROWS_TOKENS ? rlk_batch_tokens(e->b) : s->rows;
}

struct part {
    int64_t rows, row0, cols, col0;
    const int32_t *map;
};

static struct part part_of(const struct t_env *e, const struct t_spec *s, int i)
{
    const int tp = rlk_world_tp(&e->w, i), cp = rlk_world_cp(&e->w, i);
    struct part p = {s->rows, 0, s->cols, 0, NULL};
    if (s->rows_kind == ROWS_TOKENS) {
        p.rows = rlk_batch_local(e->b, cp);
        p.map = rlk_batch_map(e->b, cp);
    } else if (s->rows_kind == ROWS_SLABS) {
        p.rows = s->rows / e->w.lat.tp;
        p.row0 = tp * p.rows;
    } else if (s->rows_kind == ROWS_VOCAB) {
        const struct rlk_span v = rlk_vocab_span(&e->w.lat, tp, s->rows);
        p.rows = (int64_t)v.extent;
        p.row0 = (int64_t)v.start;
    }
    if (s->cols_kind == COLS_SLABS) {
        p.cols = s->cols / e->w.lat.tp;
        p.col0 = tp * p.cols;
    }
    return p;
}

static int64_t global_row(const struct part *p, int64_t r)
{
    return p->map ? p->map[r] : p->row0 + r;
}

void **t_shard(struct t_env *e, const struct t_spec *s, const void *logical)
{
    const size_t size = rlk_ktype_bytes(s->type);
    void **out = keep(&e->arrays, &e->narrays, calloc(T_RANKS, sizeof *out));
    for (int i = 0; i < e->w.held; i++) {
        const struct part p = part_of(e, s, i);
        const size_t row = (size_t)p.cols * size;
        char *host = malloc((size_t)p.rows * row + 1);
        for (int64_t r = 0; r < p.rows; r++)
            memcpy(host + (size_t)r * row,
                   (const char *)logical + ((size_t)(global_row(&p, r) * s->cols + p.col0)) * size, row);
        out[i] = device_memory(e, (size_t)p.rows * row + 1);
        rlk_exec_upload(&e->x, out[i], host, (size_t)p.rows * row);
        rlk_exec_sync(&e->x);
        free(host);
    }
    return out;
}

void **t_blank(struct t_env *e, const struct t_spec *s)
{
    const size_t bytes = (size_t)t_rows(e, s) * (size_t)s->cols * rlk_ktype_bytes(s->type);
    void *host = malloc(bytes + 1);
    memset(host, s->rows_kind == ROWS_TOKENS ? 0xa5 : 0, bytes);
    void **out = t_shard(e, s, host);
    free(host);
    return out;
}

bool t_collect(struct t_env *e, const struct t_spec *s, void *const *local, void *logical)
{
    const size_t size = rlk_ktype_bytes(s->type), bytes = (size_t)t_rows(e, s) * (size_t)s->cols * size;
    unsigned char *seen = calloc(bytes / size + 1, 1);
    bool same = true;
    for (int i = 0; i < e->w.held; i++) {
        const struct part p = part_of(e, s, i);
        const size_t row = (size_t)p.cols * size;
        char *host = malloc((size_t)p.rows * row + 1);
        rlk_exec_download(&e->x, host, local[i], (size_t)p.rows * row);
        for (int64_t r = 0; r < p.rows; r++) {
            const size_t at = (size_t)(global_row(&p, r) * s->cols + p.col0);
            char *to = (char *)logical + at * size;
            if (p.cols && seen[at] && memcmp(to, host + (size_t)r * row, row) != 0)
                same = false;
            memcpy(to, host + (size_t)r * row, row);
            memset(seen + at, 1, (size_t)p.cols);
        }
        free(host);
    }
    free(seen);
    return same;
}

static float value(enum t_fill fill, uint64_t h, int64_t col)
{
    const float u = (float)(int32_t)(h >> 32) * 0x1p-31f;
    switch (fill) {
    case FILL_CANCELLING: /* large terms of both signs, so that order shows in every bit */
        return (h & 1 ? 1.0f : -1.0f) * (1.0f + (float)(h >> 8 & 0xffff) * 0x1p-16f) * (col & 1 ? 64.0f : 0.25f);
    case FILL_DENORMAL:
        return (h & 3) == 0 ? u : u * 0x1p-128f;
    case FILL_OUTLIER:
        return h % 61 == 0 ? u * 1e4f : u;
    case FILL_NAN:
        return h % 997 == 0 ? RLKN_NAN : u;
    default:
        return u;
    }
}

void *t_fill(const struct t_env *e, const struct t_case *c, const struct t_spec *s, uint32_t what, float scale)
{
    const int64_t rows = t_rows(e, s);
    void *out = malloc((size_t)(rows * s->cols) * rlk_ktype_bytes(s->type) + 8);
    int64_t r = 0;
    int32_t seq = 0, pos = 0;
    for (; r < rows; r++, pos++) {
        uint64_t key = (uint64_t)r;
        if (s->rows_kind == ROWS_TOKENS) {
            while (pos == c->length[seq]) {
                seq++;
                pos = 0;
            }
            key = t_hash(c->id ? c->id[seq] : (uint64_t)seq, (uint64_t)pos, 0, 0);
        }
        /* NaN only in activations: a NaN weight would hide everything else. */
        const enum t_fill fill = c->fill == FILL_NAN && s->rows_kind != ROWS_TOKENS ? FILL_RANDOM : c->fill;
        for (int64_t k = 0; k < s->cols; k++) {
            const float v = value(fill, t_hash(c->seed, what, key, (uint64_t)k), k) * scale;
            if (s->type == RLK_K_BF16)
                ((uint16_t *)out)[r * s->cols + k] = rlkn_to_bf16(v);
            else
                ((float *)out)[r * s->cols + k] = rlkn_canon(v);
        }
    }
    return out;
}

void t_result_free(struct t_result *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->out[i].data);
    *r = (struct t_result){0};
}

int t_compare(const struct t_result *a, const struct t_result *b, size_t *at)
{
    for (int i = 0; i < a->n; i++) {
        if (a->out[i].bytes != b->out[i].bytes)
            return i;
        if (memcmp(a->out[i].data, b->out[i].data, a->out[i].bytes) == 0)
            continue;
        for (*at = 0; ((char *)a->out[i].data)[*at] == ((char *)b->out[i].data)[*at];)
            ++*at;
        return i;
    }
    return -1;
}

struct t_case t_small(enum rlk_device device, struct rlk_policy *p)
{
    static const int32_t LENGTH[] = {17, 33};
    return (struct t_case){.device = device,
                           .tp = 2,
                           .cp = 2,
                           .threads = 2,
                           .sequences = 2,
                           .length = LENGTH,
                           .type = RLK_K_FP32,
                           .fill = FILL_RANDOM,
                           .seed = 9,
                           .head_dim = 64,
                           .policy = p};
}
