#include "tests/store/sample.h"

#include "store/rlk_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool sample_write(const char *dir, uint64_t seed, unsigned events, bool incomplete)
{
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rng r = {seed};
    struct rlk_arena arena = {0};
    char bytes[3000];
    rlk_u128 id;
    bool ok = rlk_writer_open(&w, &(struct rlk_writer_options){.dir = dir, .wait_ms = 30000}, NULL) == RLK_OK;
    if (!ok)
        return false;
    ok = rlk_writer_producer(w, &p) == RLK_OK && rlk_writer_meta(w, "key", "value") == RLK_OK;
    memset(bytes, 'a', sizeof bytes);
    ok = ok && rlk_producer_payload(p, bytes, sizeof bytes, &id) == RLK_OK;
    ok = ok && rlk_producer_payload(p, "short", 5, &id) == RLK_OK;
    for (unsigned i = 0; ok && i < events; i++) {
        rlk_arena_reset(&arena);
        struct rlk_event e = random_event(&r, (enum rlk_event_kind)(1 + i % RLK_EV_NOTE), &arena);
        ok = rlk_producer_put(p, &e, NULL) == RLK_OK;
        if (ok && i % (events / 4 + 1) == 0)
            ok = rlk_writer_flush(w, NULL) == RLK_OK;
    }
    rlk_arena_release(&arena);
    return rlk_writer_close(w, incomplete, NULL) == RLK_OK && ok;
}

struct reader {
    struct rlk_env *env;
    struct sample_answer *answer;
    int64_t steps[64];
    uint32_t ranks[64];
    unsigned n;
};

static void mix(struct sample_answer *a, const void *p, size_t n)
{
    a->hash = XXH3_64bits_withSeed(p, n, a->hash);
}

static void mix_text(struct sample_answer *a, const char *s)
{
    mix(a, s, strlen(s));
}

static int on_meta(void *context, const char *key, const char *value)
{
    struct reader *r = context;
    mix_text(r->answer, key);
    mix_text(r->answer, value);
    return 0;
}

static int on_event(void *context, const struct rlk_event *e)
{
    struct reader *r = context;
    r->answer->events++;
    mix(r->answer, &e->seq, sizeof e->seq);
    mix(r->answer, &e->kind, sizeof e->kind);
    mix(r->answer, &e->rank, sizeof e->rank);
    mix(r->answer, &e->who.step, sizeof e->who.step);
    mix_text(r->answer, e->who.phase);
    mix_text(r->answer, e->who.module);
    mix_text(r->answer, e->who.op);
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        mix_text(r->answer, t->name);
        mix_text(r->answer, t->reason);
        mix(r->answer, t->shape, t->ndim * sizeof *t->shape);
        if (t->state == RLK_T_DIGESTED)
            mix(r->answer, &t->sums.positional, sizeof t->sums.positional);
        if (t->place)
            mix(r->answer, t->place->nruns, t->place->ndim * sizeof *t->place->nruns);
        if (t->has_payload) {
            void *bytes;
            size_t n;
            if (rlk_env_payload(r->env, t->payload, 1u << 20, &bytes, &n, NULL) == RLK_OK)
                free(bytes);
        }
    }
    for (uint32_t i = 0; i < e->nlaunches; i++)
        mix_text(r->answer, e->launches[i].kernel);
    if (e->ntensors && e->tensors[0].state == RLK_T_REFERENCE) { /* reading while reading */
        struct rlk_arena arena = {0};
        struct rlk_event other;
        rlk_env_event(r->env, e->tensors[0].ref_event, &arena, &other, NULL);
        rlk_arena_release(&arena);
    }
    return 0;
}

static int on_roll(void *context, const struct rlk_roll *roll)
{
    struct reader *r = context;
    mix(r->answer, &roll->out_sum, sizeof roll->out_sum);
    mix(r->answer, &roll->in_sum, sizeof roll->in_sum);
    mix_text(r->answer, roll->module);
    if (!*roll->module && !*roll->phase && roll->nranges == 0 && r->n < 64) {
        r->steps[r->n] = roll->step;
        r->ranks[r->n++] = roll->rank;
    }
    for (uint32_t i = 0; i < roll->nranges; i++)
        mix(r->answer, &roll->ranges[i], sizeof roll->ranges[i]);
    return 0;
}

struct sample_answer sample_read(const char *dir, bool verify)
{
    struct sample_answer a = {0};
    struct reader r = {.answer = &a};
    struct rlk_detail detail = {""};
    a.opened = rlk_env_open(&r.env, dir, &detail);
    if (a.opened) {
        a.verified = a.opened;
        return a;
    }
    a.complete = rlk_env_complete(r.env);
    a.count = rlk_env_count(r.env);
    uint32_t n;
    const uint32_t *ranks = rlk_env_ranks(r.env, &n);
    if (n)
        mix(&a, ranks, n * sizeof *ranks);
    struct rlk_coverage cov;
    rlk_env_coverage(r.env, &cov, &detail);
    mix(&a, &cov.tensors, sizeof cov.tensors);
    rlk_env_meta_each(r.env, on_meta, &r);
    rlk_env_scan(r.env, 0, UINT64_MAX, on_event, &r, &detail);
    rlk_env_steps(r.env, on_roll, &r, &detail);
    for (unsigned i = 0; i < r.n; i++)
        rlk_env_modules(r.env, r.steps[i], r.ranks[i], on_roll, &r, &detail);
    void *bytes;
    size_t size;
    XXH128_hash_t h = XXH3_128bits("short", 5);
    if (rlk_env_payload(r.env, (rlk_u128){h.low64, h.high64}, 100, &bytes, &size, &detail) == RLK_OK) {
        mix(&a, bytes, size);
        free(bytes);
    }
    if (verify)
        a.verified = rlk_env_verify(r.env, &detail);
    rlk_env_close(r.env);
    return a;
}

unsigned char *sample_slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    unsigned char *bytes = malloc((size_t)size + 1);
    *n = bytes ? fread(bytes, 1, (size_t)size, f) : 0;
    fclose(f);
    return bytes;
}

bool sample_spill(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    bool ok = fwrite(bytes, 1, n, f) == n;
    return fclose(f) == 0 && ok;
}
