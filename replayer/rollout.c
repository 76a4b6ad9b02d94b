/* rollout.c - prompts, and responses by KV-cache decode. */
#include "replayer/run.h"

#include "kernels/rlk_num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum rlk_ktype T = RLK_K_BF16, F = RLK_K_FP32;

struct decode {
    struct rlk_train *run;
    struct rlki_ptrs *k_cache, *v_cache;
    int32_t rows; /* of the cache for one sample */
    int live;     /* samples that go on */
    int *who;     /* their numbers */
    int32_t *cache_row, *length, *first, *ids;
    uint64_t *id_of; /* by token of the batch */
    int64_t tokens;
    struct rlki_turn turn; /* its batch: of a decode pass by graphs not ours */
    int32_t *drawn;
};

int32_t rlki_prompt_token(uint64_t seed, int64_t step, int64_t group, int32_t at, int64_t vocab)
{
    uint32_t t[4] = {(uint32_t)at, (uint32_t)group, (uint32_t)step, 0x70726f6du};
    rlkn_philox(t, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (int32_t)(t[0] % (uint32_t)vocab);
}

/* Prompts depend on (seed, step, group of samples) only. */
static void make_prompts(struct rlk_train *run)
{
    const struct rlk_train_options *o = &run->opt;
    for (int s = 0; s < o->samples; s++) {
        struct rlki_sample *p = &run->sample[s];
        uint32_t c[4] = {UINT32_MAX, (uint32_t)(s / o->group), (uint32_t)run->step, 0x70726f6du};
        rlkn_philox(c, (uint32_t)o->seed, (uint32_t)(o->seed >> 32));
        p->prompt = 8 + (int32_t)(c[0] % (uint32_t)(o->prompt - 7));
        p->length = p->prompt;
        for (int32_t i = 0; i < p->prompt; i++)
            p->token[i] = rlki_prompt_token(o->seed, run->step, s / o->group, i, o->model.vocab);
    }
}

struct rlki_named rlki_named_sequences(const struct rlk_train *run)
{
    return (struct rlki_named){
        "sequences", RLK_K_INT32,
        2,           {{RLKI_AXIS_WHOLE, run->opt.samples}, {RLKI_AXIS_WHOLE, run->opt.prompt + run->opt.fresh}},
        NULL,        "world",
        NULL};
}

/* The event rlk.batch of whole prompts, or of the batch of an iteration. */
static int tell_batch(struct rlk_train *run, const struct decode *d)
{
    const int n = d ? d->live : run->opt.samples;
    int32_t *runs = malloc(((size_t)n + 1) * 4 * sizeof *runs);
    if (!runs)
        return rlki_fail_memory(run, "a batch");
    for (int i = 0; i < n; i++) {
        const int s = d ? d->who[i] : i;
        const int32_t row[4] = {s, d ? d->first[i] : 0, d ? d->length[i] : run->sample[s].prompt,
                                run->sample[s].prompt};
        memcpy(runs + 4 * i, row, sizeof row);
    }
    rlki_rec_batch(run, &run->roll, n, runs);
    free(runs);
    return 0;
}

/* What the samples hold now, as one tensor: made of the prompts (drawn NULL), or of what it was and drawn tokens. */
static void tell_sequences(struct rlk_train *run, const struct decode *d)
{
    const struct rlki_named all = rlki_named_sequences(run);
    const struct rlki_named logp = rlki_named_rollout_logp(run);
    const size_t fresh = (size_t)run->opt.fresh;
    const struct rlki_named y = {"y",
                                 RLK_K_FP32,
                                 2,
                                 {{RLKI_AXIS_TOKENS, 0}, {RLKI_AXIS_WHOLE, run->opt.model.vocab}},
                                 NULL,
                                 "tp",
                                 d ? d->turn.batch : NULL};
    const struct rlki_named token = {
        "token", RLK_K_INT32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", d ? d->turn.batch : NULL};
    if (!d) {
        rlki_rec_attr_int(run, "seed", (int64_t)run->opt.seed);
        rlki_rec_attr_int(run, "step", run->step);
        rlki_rec_attr_int(run, "group", run->opt.group);
        rlki_rec_attr_int(run, "vocab", run->opt.model.vocab);
        rlki_rec_attr_int(run, "new", run->opt.fresh);
    }
    rlki_rec_begin(run, &run->roll, "rollout", d ? "rlk.rollout.append" : "rlk.rollout.prompts", NULL);
    if (d) {
        rlki_rec_combines(run, &run->roll, true);
        rlki_rec_tensor(run, &run->roll, &all, RLKI_IN(&run->sequences), false);
        rlki_rec_tensor(run, &run->roll, &token, RLKI_IN(&d->turn.token), false);
        rlki_rec_tensor(run, &run->roll, &logp, RLKI_IN(&run->rollout_logp), false);
        rlki_rec_tensor(run, &run->roll, &y, RLKI_IN(&d->turn.y), false);
    }
    const size_t n = (size_t)run->opt.samples, most = (size_t)(run->opt.prompt + run->opt.fresh);
    int32_t *ids = run->sequences.p[0];
    float *kept = run->rollout_logp.p[0];
    memset(ids, 0, n * most * sizeof *ids);
    memset(kept, 0, n * fresh * sizeof *kept);
    for (size_t s = 0; s < n; s++) {
        const struct rlki_sample *p = &run->sample[s];
        memcpy(ids + s * most, p->token, (size_t)p->length * sizeof *ids);
        memcpy(kept + s * fresh, p->rollout, (size_t)(p->length - p->prompt) * sizeof *kept);
    }
    rlki_host_spread(&run->sequences, n * most * sizeof *ids);
    rlki_host_spread(&run->rollout_logp, n * fresh * sizeof *kept);
    rlki_rec_tensor(run, &run->roll, &all, RLKI_IN(&run->sequences), true);
    rlki_rec_tensor(run, &run->roll, &logp, RLKI_IN(&run->rollout_logp), true);
    rlki_rec_end(run, &run->roll);
}

int rlki_turn_pass(void *arg)
{
    struct rlki_turn *t = arg;
    struct rlk_train *run = t->run;
    const int64_t V = run->opt.model.vocab;
    struct rlki_pass p = {.run = run,
                          .w = &run->roll,
                          .b = t->batch,
                          .weight = run->rweight,
                          .ids = t->ids,
                          .cache_row = t->cache_row,
                          .k_cache = t->k_cache,
                          .v_cache = t->v_cache};
    const struct rlk_sampling s = {"sampler",           V,       run->opt.temperature, run->opt.top_p, run->opt.seed,
                                   (uint32_t)run->step, t->id_of};
    int rc = rlki_forward(&p);
    const struct rlk_logp l = rlki_head_args(&p);
    if (!rc)
        rc = rlki_frame_take(run, p.w, p.b, V, F, &t->z);
    if (!rc)
        rc = rlki_frame_take(run, p.w, p.b, V, F, &t->y);
    if (!rc)
        rc = rlki_frame_take(run, p.w, p.b, 1, RLK_K_INT32, &t->token);
    if (!rc)
        rc = rlk_logits(p.w, p.b, &l, RLKI_IN(&p.h), RLKI_F(&t->z));
    rlki_rec_attr(run, "temperature", (double)s.temperature);
    rlki_rec_attr(run, "top_p", (double)s.top_p);
    rlki_rec_attr_int(run, "seed", (int64_t)s.seed);
    rlki_rec_attr_int(run, "step", (int64_t)s.step);
    if (!rc)
        rc = rlk_sample(p.w, p.b, &s, RLKI_CF(&t->z), (int32_t *const *)(void *const *)t->token.p);
    rlki_rec_attr(run, "temperature", (double)l.temperature);
    if (!rc)
        rc = rlk_log_softmax(p.w, p.b, "lm_head", V, l.temperature, RLKI_CF(&t->z), RLKI_F(&t->y));
    return rc;
}

/* The drawn tokens, into d->drawn. All TP ranks drew the same ones. */
static int take_drawn(struct decode *d)
{
    struct rlk_train *run = d->run;
    const size_t n = (size_t)d->tokens;
    int rc = 0;
    for (int i = 0; !rc && i < run->roll.held; i++) {
        int32_t *to = d->drawn + (i ? n : 0);
        rc = rlk_exec_download(&run->x, to, d->turn.token.p[i], n * sizeof *to);
        for (size_t k = 0; !rc && i && k < n; k++)
            if (to[k] != d->drawn[k])
                rc = rlk_kfail(&run->x.detail, RLK_K_EINTERNAL, "rollout ranks 0 and %d drew tokens %d and %d", i,
                               d->drawn[k], to[k]);
    }
    return rc;
}

/* The drawn token of row `row` goes to sample s, with its log-probability. */
static int accept(struct decode *d, int s, int64_t row)
{
    struct rlk_train *run = d->run;
    struct rlki_sample *p = &run->sample[s];
    const int64_t V = run->opt.model.vocab;
    const int32_t token = d->drawn[row];
    if (token < 0 || token >= V)
        return rlk_kfail(&run->x.detail, RLK_K_EINTERNAL, "sample %d: no token can be drawn (logits are not numbers)",
                         s);
    p->token[p->length] = token;
    p->length++;
    return rlk_exec_download(&run->x, &p->rollout[p->length - p->prompt - 1], (float *)d->turn.y.p[0] + row * V + token,
                             sizeof(float));
}

static bool ended(const struct rlk_train *run, const struct rlki_sample *p)
{
    return p->length - p->prompt >= run->opt.fresh || p->token[p->length - 1] < run->opt.stop_ids;
}

/* The batch of iteration 0 (whole prompts) or of a later one (one token of every live sample). */
static void make_batch(struct decode *d, int64_t iteration)
{
    struct rlk_train *run = d->run;
    d->tokens = 0;
    for (int i = 0; i < d->live; i++) {
        const struct rlki_sample *p = &run->sample[d->who[i]];
        d->first[i] = iteration ? p->length - 1 : 0;
        d->length[i] = iteration ? 1 : p->prompt;
        d->cache_row[i] = d->who[i] * d->rows;
        for (int32_t t = 0; t < d->length[i]; t++, d->tokens++) {
            d->ids[d->tokens] = p->token[d->first[i] + t];
            d->id_of[d->tokens] = (uint64_t)d->who[i];
        }
    }
    d->turn = (struct rlki_turn){.run = run,
                                 .ids = d->ids,
                                 .cache_row = d->cache_row,
                                 .first = d->first,
                                 .id_of = d->id_of,
                                 .k_cache = d->k_cache,
                                 .v_cache = d->v_cache};
}

/* One pass as it stands, its memory given back by the caller. */
static int eager(struct decode *d, int64_t iteration)
{
    struct rlk_train *run = d->run;
    int rc = rlk_batch_new(&run->x, &run->roll.lat, d->live, d->length, d->first, &d->turn.batch);
    if (!rc && iteration <= 1)
        rc = rlki_room(run, rlki_turn_pass, &d->turn);
    return rc ? rc : rlki_turn_pass(&d->turn);
}

static int iterate(struct decode *d, int64_t iteration)
{
    struct rlk_train *run = d->run;
    const bool graphs = iteration && rlki_captures(run);
    if (graphs)
        rlki_decoder_swap(run);
    const struct rlki_mark mark = rlki_frame_mark(run);
    int live = 0;
    make_batch(d, iteration);
    rlki_rec_phase(run, iteration ? "rollout-decode" : "rollout-prefill");
    rlki_rec_work(run, 0, iteration);
    rlki_rec_pass(run, "fwd");
    int rc = tell_batch(run, d);
    if (!rc)
        rc = graphs ? rlki_decode(&d->turn, d->live) : eager(d, iteration);
    if (!rc)
        rc = take_drawn(d);
    int64_t row = -1;
    for (int i = 0; !rc && i < d->live; i++) {
        row += d->length[i];
        rc = accept(d, d->who[i], row);
        if (!rc && !ended(run, &run->sample[d->who[i]]))
            d->who[live++] = d->who[i];
    }
    d->live = live;
    if (!rc)
        tell_sequences(run, d);
    if (!graphs)
        rlk_batch_free(&run->x, d->turn.batch);
    d->turn.batch = NULL;
    rlki_frame_back(run, mark);
    if (graphs)
        rlki_decoder_swap(run);
    rlki_lap(run, iteration ? RLKI_TIME_DECODE : RLKI_TIME_PREFILL);
    return rc;
}

struct rlki_named rlki_named_cache(const struct rlk_train *run, const char *name, int kv_heads, int head_dim)
{
    struct rlki_named t = {
        "",   T,
        3,    {{RLKI_AXIS_WHOLE, run->rec.cache_rows}, {RLKI_AXIS_SLABS, kv_heads}, {RLKI_AXIS_WHOLE, head_dim}},
        NULL, NULL,
        NULL};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

/* Empty caches have a producer. */
static void tell_caches(struct rlk_train *run, const struct decode *d)
{
    const struct rlk_model_shape *s = &run->opt.model;
    rlki_rec_begin(run, &run->roll, "rollout.cache", "rlk.zero", "rlk.zero/portable/1");
    for (int l = 0; l < 2 * s->layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "%c_cache.%d", l % 2 ? 'v' : 'k', l / 2);
        const struct rlki_named t = rlki_named_cache(run, name, s->kv_heads, s->head_dim);
        rlki_rec_tensor(run, &run->roll, &t, RLKI_IN(l % 2 ? &d->v_cache[l / 2] : &d->k_cache[l / 2]), true);
    }
    rlki_rec_end(run, &run->roll);
}

static int decode_alloc(struct decode *d)
{
    struct rlk_train *run = d->run;
    const struct rlk_model_shape *s = &run->opt.model;
    const size_t n = (size_t)run->opt.samples, most = n * (size_t)(run->opt.prompt + 1);
    int rc = 0;
    d->rows = run->opt.prompt + run->opt.fresh;
    run->rec.cache_rows = (int64_t)d->rows * run->opt.samples;
    d->k_cache = calloc((size_t)s->layers, sizeof *d->k_cache);
    d->v_cache = calloc((size_t)s->layers, sizeof *d->v_cache);
    d->who = calloc(n, sizeof *d->who);
    d->cache_row = calloc(n, sizeof *d->cache_row);
    d->length = calloc(n, sizeof *d->length);
    d->first = calloc(n, sizeof *d->first);
    d->ids = calloc(most, sizeof *d->ids);
    d->id_of = calloc(most, sizeof *d->id_of);
    d->drawn = calloc(2 * most, sizeof *d->drawn);
    if (!d->k_cache || !d->v_cache || !d->who || !d->cache_row || !d->length || !d->first || !d->ids || !d->id_of ||
        !d->drawn)
        return rlki_fail_memory(run, "the rollout");
    const int64_t width = run->rec.cache_rows * (s->kv_heads / run->roll.lat.tp) * s->head_dim;
    const bool graphs = rlki_captures(run);
    if (graphs) /* the caches lie where the graphs know them */
        rlki_decoder_swap(run);
    for (int l = 0; !rc && l < 2 * s->layers; l++) {
        struct rlki_ptrs *c = l % 2 ? &d->v_cache[l / 2] : &d->k_cache[l / 2];
        rc = rlki_frame_take(run, &run->roll, NULL, width, T, c);
        /* Defined bytes everywhere: the recorder digests whole caches. */
        for (int i = 0; !rc && i < run->roll.held; i++)
            rc = rlk_exec_zero(&run->x, c->p[i], (size_t)width * rlk_ktype_bytes(T));
    }
    if (graphs)
        rlki_decoder_swap(run);
    if (!rc)
        tell_caches(run, d);
    return rc;
}

int rlki_rollout(struct rlk_train *run)
{
    struct decode d = {.run = run};
    const struct rlki_mark mark = rlki_frame_mark(run);
    rlki_decoder_swap(run);
    const struct rlki_mark decoder = rlki_frame_mark(run);
    rlki_decoder_swap(run);
    run->in_rollout = true;
    rlk_policy_side(run->policy, RLK_SIDE_ROLLOUT);
    make_prompts(run);
    rlki_rec_phase(run, "rollout-prefill");
    rlki_rec_work(run, 0, 0);
    rlki_rec_pass(run, "fwd");
    int rc = tell_batch(run, NULL);
    tell_sequences(run, NULL);
    if (!rc)
        rc = decode_alloc(&d);
    d.live = run->opt.samples;
    for (int i = 0; !rc && i < d.live; i++)
        d.who[i] = i;
    for (int64_t iteration = 0; !rc && d.live > 0; iteration++)
        rc = iterate(&d, iteration);
    if (!rc) {
        rlki_rec_rollout_kv(run, d.k_cache, d.v_cache, d.rows);
        rlki_rec_rollout_logprobs(run);
    }
    for (int s = 0; !rc && s < run->opt.samples; s++)
        rlki_rec_request(run, s);
    rlk_policy_side(run->policy, RLK_SIDE_TRAINING);
    run->in_rollout = false;
    rlki_frame_back(run, mark);
    rlki_decoder_swap(run);
    rlki_frame_back(run, decoder);
    rlki_decoder_swap(run);
    free(d.k_cache);
    free(d.v_cache);
    free(d.who);
    free(d.cache_row);
    free(d.length);
    free(d.first);
    free(d.ids);
    free(d.id_of);
    free(d.drawn);
    return rc;
}
