/* grpo.c - rewards, group advantages, and the losses of a micro-batch.
 *
 * r = now - old, ratio = exp(r); pg = max(-A*ratio, -A*clip(ratio, 1-c, 1+c)); d = ref - now; kl = (exp(d) - d) - 1;
 * loss = pg + kl_coef*kl; weight = 1/(samples * response length), so that sums of weight*loss over a step are means
 * over samples of means over tokens. dlogp = weight * ((clipped ? 0 : -A*ratio) + kl_coef*(1 - exp(d))). Elementwise,
 * fp32, every operation rounded once, exp of kernels/rlk_num.h; sums are rlk.loss_sum.
 */
#include "replayer/run.h"

#include "kernels/rlk_num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rlki_micro_new(struct rlk_train *run, int first, int count, struct rlki_micro *m)
{
    int32_t *length = calloc((size_t)count + 1, sizeof *length);
    int rc = 0;
    *m = (struct rlki_micro){.first = first, .count = count, .who = run->order + first};
    if (!length)
        return rlki_fail_memory(run, "a micro-batch");
    for (int i = 0; i < count; i++) {
        length[i] = run->sample[m->who[i]].length;
        m->tokens += length[i];
    }
    const size_t n = (size_t)m->tokens + 1;
    m->ids = malloc(n * sizeof *m->ids);
    m->targets = malloc(n * sizeof *m->targets);
    m->owner = malloc(n * sizeof *m->owner);
    m->at = malloc(n * sizeof *m->at);
    if (!m->ids || !m->targets || !m->owner || !m->at) {
        rc = rlki_fail_memory(run, "a micro-batch");
    } else {
        int64_t t = 0;
        for (int i = 0; i < count; i++) {
            const struct rlki_sample *p = &run->sample[m->who[i]];
            for (int32_t k = 0; k < p->length; k++, t++) {
                const bool predicts = k + 1 >= p->prompt && k + 1 < p->length;
                m->ids[t] = p->token[k];
                m->targets[t] = predicts ? p->token[k + 1] : -1;
                m->owner[t] = m->who[i];
                m->at[t] = predicts ? k + 1 - p->prompt : -1;
            }
        }
        rc = rlk_batch_new(&run->x, &run->train.lat, count, length, NULL, &m->batch);
    }
    free(length);
    if (rc)
        rlki_micro_free(run, m);
    return rc;
}

void rlki_micro_free(struct rlk_train *run, struct rlki_micro *m)
{
    if (m->batch)
        rlk_batch_free(&run->x, m->batch);
    free(m->ids);
    free(m->targets);
    free(m->owner);
    free(m->at);
    *m = (struct rlki_micro){0};
}

int rlki_micro_store(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_ptrs *logp, int which)
{
    const struct rlk_world *w = &run->train;
    float *host = malloc(((size_t)m->tokens + 1) * sizeof *host);
    int rc = host ? 0 : rlki_fail_memory(run, "log-probabilities");
    for (int i = 0; !rc && i < w->held; i++) {
        const int cp = rlk_world_cp(w, i);
        const int64_t n = rlk_batch_local(m->batch, cp);
        const int32_t *map = rlk_batch_map(m->batch, cp);
        rc = n ? rlk_exec_download(&run->x, host, logp->p[i], (size_t)n * sizeof *host) : 0;
        for (int64_t k = 0; !rc && k < n; k++) {
            const int32_t t = map[k], at = m->at[t];
            struct rlki_sample *p = &run->sample[m->owner[t]];
            if (at < 0)
                continue;
            float *to = which == 0 ? p->ref : which == 1 ? p->old : p->now;
            if (rlk_world_tp(w, i) == 0)
                to[at] = host[k];
            else if (rlkn_bits(to[at]) != rlkn_bits(host[k]) && !run->opt.plant)
                rc = rlk_kfail(&run->x.detail, RLK_K_EINTERNAL, "rank %d has another log-probability than its peers",
                               w->rank[i]);
        }
    }
    free(host);
    return rc;
}

/* The rlk.batch of whole samples who[i] (NULL: 0, 1, ...). */
static void tell_rows(struct rlk_train *run, const int *who, int count)
{
    int32_t *runs = run->rec.tap ? malloc(((size_t)count + 1) * 4 * sizeof *runs) : NULL;
    for (int i = 0; runs && i < count; i++) {
        const int s = who ? who[i] : i;
        const struct rlki_sample *p = &run->sample[s];
        const int32_t row[4] = {s, 0, p->length, p->prompt};
        memcpy(runs + 4 * i, row, sizeof row);
    }
    if (runs)
        rlki_rec_batch(run, &run->train, count, runs);
    free(runs);
}

void rlki_micro_tell(struct rlk_train *run, const struct rlki_micro *m)
{
    tell_rows(run, m->who, m->count);
}

/* The share of response tokens with an even id: any rule serves that tells the samples of a group apart. FP64, in
 * order. */
void rlki_rewards_of(struct rlk_train *run)
{
    const int G = run->opt.group;
    for (int s = 0; s < run->opt.samples; s++) {
        struct rlki_sample *p = &run->sample[s];
        int32_t even = 0;
        for (int32_t i = p->prompt; i < p->length; i++)
            even += p->token[i] % 2 == 0;
        p->reward = (double)even / (double)(p->length - p->prompt);
    }
    for (int g = 0; g < run->opt.samples / G; g++) {
        struct rlki_sample *p = &run->sample[g * G];
        double mean = 0.0, square = 0.0;
        for (int i = 0; i < G; i++)
            mean += p[i].reward;
        mean /= G;
        for (int i = 0; i < G; i++)
            square += (p[i].reward - mean) * (p[i].reward - mean);
        for (int i = 0; i < G; i++)
            p[i].advantage = (p[i].reward - mean) / (sqrt(square / G) + 1e-6);
    }
    for (int s = 0; s < run->opt.samples; s++)
        ((float *)run->advantages.p[0])[s] = (float)run->sample[s].advantage;
}

void rlki_rewards(struct rlk_train *run)
{
    rlki_rewards_of(run);
    const struct rlki_named in = rlki_named_sequences(run), out = rlki_named_advantages(run);
    rlki_rec_phase(run, "advantages");
    rlki_rec_work(run, 0, 0);
    rlki_rec_pass(run, "");
    tell_rows(run, NULL, run->opt.samples);
    rlki_rec_attr_int(run, "group", run->opt.group);
    rlki_rec_begin(run, &run->train, "advantages", "rlk.grpo.advantage", "rlk.grpo.advantage/portable/1");
    rlki_rec_tensor(run, &run->train, &in, RLKI_IN(&run->sequences), false);
    rlki_host_spread(&run->advantages, (size_t)run->opt.samples * sizeof(float));
    rlki_rec_tensor(run, &run->train, &out, RLKI_IN(&run->advantages), true);
    rlki_rec_end(run, &run->train);
}

struct rlki_named rlki_named_advantages(const struct rlk_train *run)
{
    return (struct rlki_named){"advantage", RLK_K_FP32, 1, {{RLKI_AXIS_WHOLE, run->opt.samples}}, NULL, "world", NULL};
}

static const char *const kept_name[2] = {"ref_logp", "old_logp"};

int rlki_keep(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, int mb, int which)
{
    struct rlki_ptrs *to = &run->kept[which][mb];
    struct rlki_named t = {"logp", RLK_K_FP32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", p->b};
    int rc = 0;
    rlki_rec_begin(run, p->w, "keep", "rlk.grpo.keep", NULL);
    rlki_rec_tensor(run, p->w, &t, RLKI_IN(&p->logp), false);
    for (int i = 0; !rc && i < p->w->held; i++) {
        const int64_t n = rlk_batch_local(m->batch, rlk_world_cp(p->w, i));
        to->p[i] = malloc((size_t)(n + 1) * sizeof(float));
        if (!to->p[i])
            return rlki_fail_memory(run, "log-probabilities");
        rlki_rec_fresh(run, to->p[i]);
        rc = n ? rlk_exec_download(&run->x, to->p[i], p->logp.p[i], (size_t)n * sizeof(float)) : 0;
    }
    snprintf(t.name, sizeof t.name, "%s", kept_name[which]);
    if (!rc)
        rlki_rec_tensor(run, p->w, &t, RLKI_IN(to), true);
    rlki_rec_end(run, p->w);
    return rc;
}

void rlki_keep_nothing(struct rlk_train *run)
{
    for (int k = 0; k < 2; k++)
        for (int mb = 0; run->kept[k] && mb < rlki_batches(run, true); mb++)
            for (int i = 0; i < RLKI_RANKS; i++) {
                free(run->kept[k][mb].p[i]);
                run->kept[k][mb].p[i] = NULL;
            }
    for (int mb = 0; run->scored && mb < rlki_batches(run, true); mb++)
        rlki_micro_free(run, &run->scored[mb]);
}

void rlki_regroup_end(struct rlk_train *run)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < RLKI_RANKS; i++) {
            free(run->regrouped[k].p[i]);
            run->regrouped[k].p[i] = NULL;
        }
}

/* A sample's tokens lie on the same CP ranks in every packing, so each rank deals out its own. */
int rlki_regroup(struct rlk_train *run, const struct rlki_micro *m)
{
    const struct rlk_world *w = &run->train;
    for (int k = 0; run->scored && k < 2; k++) {
        struct rlki_named t = {"", RLK_K_FP32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", NULL};
        snprintf(t.name, sizeof t.name, "%s", kept_name[k]);
        rlki_rec_begin(run, w, "regroup", "rlk.grpo.regroup", NULL);
        for (int mb = 0; mb < rlki_batches(run, true); mb++) {
            t.batch = run->scored[mb].batch;
            rlki_rec_tensor(run, w, &t, RLKI_IN(&run->kept[k][mb]), false);
        }
        for (int i = 0; i < w->held; i++) {
            const int cp = rlk_world_cp(w, i);
            const int64_t n = rlk_batch_local(m->batch, cp);
            const int32_t *map = rlk_batch_map(m->batch, cp);
            float *to = calloc((size_t)n + 1, sizeof *to);
            run->regrouped[k].p[i] = to;
            if (!to)
                return rlki_fail_memory(run, "log-probabilities");
            rlki_rec_fresh(run, to);
            for (int64_t row = 0; row < n; row++) {
                const int32_t at = m->at[map[row]];
                const struct rlki_sample *s = &run->sample[m->owner[map[row]]];
                to[row] = at < 0 ? 0.0f : k == 0 ? s->ref[at] : s->old[at];
            }
        }
        t.batch = m->batch;
        rlki_rec_tensor(run, w, &t, RLKI_IN(&run->regrouped[k]), true);
        rlki_rec_end(run, w);
    }
    return 0;
}

struct terms {
    float x[RLKI_SUMS], g;
};

static struct terms terms_of(const struct rlk_train *run, const struct rlki_sample *p, int32_t at, float now)
{
    const struct rlk_train_options *o = &run->opt;
    const float A = (float)p->advantage;
    const float weight = (float)(1.0 / ((double)o->samples * (double)(p->length - p->prompt)));
    const float r = now - p->old[at], ratio = rlkn_exp(r);
    const float low = 1.0f - o->clip_ratio, high = 1.0f + o->clip_ratio;
    const float cut = ratio < low ? low : ratio > high ? high : ratio;
    const float plain = -A * ratio, clipped = -A * cut;
    const bool is_clipped = clipped > plain;
    const float d = p->ref[at] - now, e = rlkn_exp(d);
    const float kl = (e - d) - 1.0f, pg = is_clipped ? clipped : plain;
    struct terms t;
    t.x[RLKI_SUM_LOSS] = weight * (pg + o->kl_coef * kl);
    t.x[RLKI_SUM_PG] = weight * pg;
    t.x[RLKI_SUM_KL] = weight * kl;
    t.x[RLKI_SUM_CLIP] = is_clipped ? weight : 0.0f;
    t.x[RLKI_SUM_PPO_KL] = weight * -r;
    t.x[RLKI_SUM_ABS] = weight * fabsf(now - p->rollout[at]);
    t.x[RLKI_SUM_OIS] = weight * rlkn_exp(now - p->rollout[at]);
    t.x[RLKI_SUM_WEIGHT] = weight;
    t.g = weight * ((is_clipped ? 0.0f : plain) + o->kl_coef * (1.0f - e));
    return t;
}

const char *const rlki_sum_module[RLKI_SUMS] = {"loss.total",  "loss.pg",  "loss.kl",  "loss.pg_clipfrac",
                                                "loss.ppo_kl", "loss.abs", "loss.ois", "loss.weight"};

/* Host values [n] of one rank to its device memory. */
static int put(struct rlk_train *run, const struct rlki_ptrs *to, int i, const float *from, int64_t n)
{
    rlki_rec_written(run, to->p[i]);
    const int rc = n ? rlk_exec_upload(&run->x, to->p[i], from, (size_t)n * sizeof *from) : 0;
    return rc ? rc : rlk_exec_sync(&run->x);
}

int rlki_rank_losses(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, int i,
                     struct rlki_losses *b, struct rlki_totals *totals)
{
    const int cp = rlk_world_cp(p->w, i);
    const int64_t n = rlk_batch_local(m->batch, cp);
    const int32_t *map = rlk_batch_map(m->batch, cp);
    float *row[RLKI_SUMS + 2];
    for (int k = 0; k < RLKI_SUMS + 2; k++)
        row[k] = b->host + k * (m->tokens + 1);
    float *const now = row[RLKI_SUMS], *const g = row[RLKI_SUMS + 1];
    int rc = n ? rlk_exec_download(&run->x, now, p->logp.p[i], (size_t)n * sizeof *now) : 0;
    for (int64_t k = 0; !rc && k < n; k++) {
        const int32_t t = map[k], at = m->at[t];
        const struct rlki_sample *s = &run->sample[m->owner[t]];
        const struct terms v = at < 0 ? (struct terms){{0}, 0} : terms_of(run, s, at, now[k]);
        for (int j = 0; j < RLKI_SUMS; j++)
            row[j][k] = v.x[j];
        g[k] = v.g;
        if (at >= 0 && rlk_world_tp(p->w, i) == 0) { /* counts and a maximum have no order */
            const double diff = fabs((double)now[k] - (double)s->rollout[at]);
            totals->tokens += 1.0;
            totals->mismatches += now[k] != s->rollout[at];
            totals->max_abs = diff > totals->max_abs ? diff : totals->max_abs;
        }
    }
    for (int j = 0; !rc && j < RLKI_SUMS; j++)
        rc = put(run, &b->sum[j], i, row[j], n);
    return rc ? rc : put(run, b->dlogp, i, g, n);
}

static void record_losses(struct rlk_train *run, const struct rlki_pass *p, const struct rlki_losses *b, bool after)
{
    struct rlki_named t = {"logp", RLK_K_FP32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", p->b};
    if (!after) {
        const struct rlki_named advantages = rlki_named_advantages(run), drawn = rlki_named_rollout_logp(run);
        rlki_rec_attr(run, "clip_ratio", (double)run->opt.clip_ratio);
        rlki_rec_attr(run, "kl_coef", (double)run->opt.kl_coef);
        rlki_rec_begin(run, p->w, "loss", "rlk.grpo.loss", "rlk.grpo.loss/portable/1");
        rlki_rec_tensor(run, p->w, &t, RLKI_IN(&p->logp), false);
        for (int k = 0; k < 2; k++) {
            snprintf(t.name, sizeof t.name, "%s", kept_name[k]);
            rlki_rec_tensor(run, p->w, &t,
                            RLKI_IN(run->scored ? &run->regrouped[k] : &run->kept[k][run->micro->number]), false);
        }
        rlki_rec_tensor(run, p->w, &advantages, RLKI_IN(&run->advantages), false);
        rlki_rec_tensor(run, p->w, &drawn, RLKI_IN(&run->rollout_logp), false);
        return;
    }
    snprintf(t.name, sizeof t.name, "dlogp");
    rlki_rec_tensor(run, p->w, &t, RLKI_IN(b->dlogp), true);
    for (int k = 0; k < RLKI_SUMS; k++) {
        snprintf(t.name, sizeof t.name, "%s", strchr(rlki_sum_module[k], '.') + 1);
        rlki_rec_tensor(run, p->w, &t, RLKI_IN(&b->sum[k]), true);
    }
    rlki_rec_end(run, p->w);
}

int rlki_losses(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p, struct rlki_ptrs *dlogp,
                struct rlki_totals *totals)
{
    struct rlki_losses b = {.dlogp = dlogp};
    b.host = malloc(RLKI_LOSS_ROWS * ((size_t)m->tokens + 1) * sizeof *b.host);
    int rc = b.host ? 0 : rlki_fail_memory(run, "losses");
    if (!rc)
        rc = rlki_frame_take(run, p->w, p->b, 1, RLK_K_FP32, dlogp);
    for (int k = 0; !rc && k < RLKI_SUMS; k++)
        rc = rlki_frame_take(run, p->w, p->b, 1, RLK_K_FP32, &b.sum[k]);
    if (!rc)
        record_losses(run, p, &b, false);
    for (int i = 0; !rc && i < p->w->held; i++)
        rc = rlki_rank_losses(run, m, p, i, &b, totals);
    if (!rc)
        record_losses(run, p, &b, true);
    for (int k = 0; !rc && k < RLKI_SUMS; k++) {
        double sum[2] = {0.0, 0.0};
        rc = rlk_loss_sum(p->w, p->b, rlki_sum_module[k], RLKI_CF(&b.sum[k]), NULL, sum);
        totals->sum[k] += sum[0];
    }
    free(b.host);
    return rc;
}

/* Sums over whole rows of log-softmax, into host memory: of every row where a device does it, else of those that
 * predict.
 */
static int row_entropies(struct rlk_train *run, const struct rlki_micro *m, const struct rlk_world *w, int i, int64_t V,
                         const float *z, double *sum)
{
    const int64_t n = rlk_batch_local(m->batch, rlk_world_cp(w, i));
    const int32_t *map = rlk_batch_map(m->batch, rlk_world_cp(w, i));
    const struct rlki_mark mark = rlki_frame_mark(run);
    struct rlki_ptrs there;
    int rc = 0;
    if (run->x.device == RLK_DEVICE_CPU) {
        for (int64_t k = 0; !rc && k < n; k++)
            if (m->at[map[k]] >= 0)
                rc = rlk_entropy_rows(&run->x, 1, V, z + k * V, sum + k);
        return rc;
    }
    rc = rlki_frame_take(run, w, m->batch, 1, RLK_K_FP64, &there);
    if (!rc)
        rc = rlk_entropy_rows(&run->x, n, V, z, there.p[i]);
    if (!rc)
        rc = rlk_exec_download(&run->x, sum, there.p[i], (size_t)n * sizeof *sum);
    rlki_frame_back(run, mark);
    return rc;
}

/* Entropy of every predicted token, from whole rows of log-softmax: FP64, words ascending. */
int rlki_entropies(struct rlk_train *run, const struct rlki_micro *m, const struct rlk_world *w, int64_t V,
                   const struct rlki_ptrs *z, const struct rlki_ptrs *h)
{
    double *sum = malloc(((size_t)m->tokens + 1) * sizeof *sum);
    float *host = malloc(((size_t)m->tokens + 1) * sizeof *host);
    int rc = sum && host ? 0 : rlki_fail_memory(run, "entropies");
    for (int i = 0; !rc && i < w->held; i++) {
        const int cp = rlk_world_cp(w, i);
        const int64_t n = rlk_batch_local(m->batch, cp);
        const int32_t *map = rlk_batch_map(m->batch, cp);
        if (rlk_world_tp(w, i) != 0) { /* the same rows: TP peers take the first one's values */
            rc = n ? rlk_exec_download(&run->x, host, h->p[i - rlk_world_tp(w, i)], (size_t)n * sizeof *host) : 0;
        } else {
            rc = row_entropies(run, m, w, i, V, z->p[i], sum);
            for (int64_t k = 0; !rc && k < n; k++) {
                const struct rlki_sample *s = &run->sample[m->owner[map[k]]];
                host[k] = 0.0f;
                if (m->at[map[k]] >= 0)
                    host[k] = (float)(sum[k] / ((double)run->opt.samples * (double)(s->length - s->prompt)));
            }
        }
        if (!rc)
            rc = put(run, h, i, host, n);
    }
    free(host);
    free(sum);
    return rc;
}

int rlki_entropy(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_pass *p,
                 struct rlki_totals *totals)
{
    const int64_t V = run->opt.model.vocab;
    const struct rlk_logp l = rlki_head_args(p);
    const struct rlki_named y = {"y", RLK_K_FP32, 2, {{RLKI_AXIS_TOKENS, 0}, {RLKI_AXIS_WHOLE, V}}, NULL, "tp", p->b};
    const struct rlki_named x = {"x", RLK_K_FP32, 1, {{RLKI_AXIS_TOKENS, 0}}, NULL, "tp", p->b};
    struct rlki_ptrs z, h;
    int rc = rlki_frame_take(run, p->w, p->b, V, RLK_K_FP32, &z);
    if (!rc)
        rc = rlki_frame_take(run, p->w, p->b, 1, RLK_K_FP32, &h);
    if (!rc)
        rc = rlk_logits(p->w, p->b, &l, RLKI_IN(&p->h), RLKI_F(&z));
    rlki_rec_attr(run, "temperature", (double)l.temperature);
    if (!rc)
        rc = rlk_log_softmax(p->w, p->b, "lm_head", V, l.temperature, RLKI_CF(&z), RLKI_F(&z));
    const bool live = !rc && !run->x.measuring;
    if (live) {
        rlki_rec_begin(run, p->w, "entropy", "rlk.grpo.entropy", "rlk.grpo.entropy/portable/1");
        rlki_rec_combines(run, p->w, false);
        rlki_rec_tensor(run, p->w, &y, RLKI_IN(&z), false);
    }
    if (live && !rc)
        rc = rlki_entropies(run, m, p->w, V, &z, &h);
    if (live) {
        rlki_rec_tensor(run, p->w, &x, RLKI_IN(&h), true);
        rlki_rec_end(run, p->w);
    }
    double sum[2] = {0.0, 0.0};
    if (!rc)
        rc = rlk_loss_sum(p->w, p->b, "loss.entropy", RLKI_CF(&h), NULL, sum);
    totals->entropy += sum[0];
    return rc;
}
