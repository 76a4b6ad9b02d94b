/* operators_run.c - what a run does beside the operators of kernels/: rollout, losses, optimizer, facts. */
#include "replayer/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum rlk_ktype F = RLK_K_FP32, I32 = RLK_K_INT32;

#define CF(v) RLKI_CF(&(v)->buffer->at)

static struct rlki_ptrs *host_out(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t rows,
                                  int64_t cols)
{
    const struct rlki_form f = {.shape = RLKI_HOST, .type = type, .rows = rows, .cols = cols};
    return rlki_result(x, name, &f);
}

/* ---- rollout ---- */

static void prompts(struct rlki_exec *x)
{
    const struct rlk_event *e = &x->in->e;
    const struct rlki_runs_now *now = &x->m->now;
    const struct rlk_tensor *s = rlki_recorded(x, "sequences", true), *l = rlki_recorded(x, "rollout_logp", true);
    const int64_t group = rlki_attr_int(e, "group", 0), vocab = rlki_attr_int(e, "vocab", 0);
    if (!s || !s->place || s->place->ndim != 2 || !l || !l->place || l->place->ndim != 2 || group < 1 || vocab < 1 ||
        vocab > INT32_MAX || !x->b) {
        rlki_not_replayable(x, "its shapes are not told");
        return;
    }
    const int64_t rows = now->samples, cols = (int64_t)s->place->shape[1], fresh = (int64_t)l->place->shape[1];
    struct rlki_ptrs *to = host_out(x, "sequences", I32, rows, cols);
    struct rlki_ptrs *drawn = host_out(x, "rollout_logp", F, rows, fresh);
    if (!to || !drawn)
        return;
    int32_t *token = to->p[0];
    memset(token, 0, (size_t)(rows * cols) * sizeof *token);
    memset(drawn->p[0], 0, (size_t)(rows * fresh) * sizeof(float));
    for (int k = 0; k < now->n; k++) {
        const int32_t row = now->row[k][0], length = now->row[k][2];
        if (row >= rows || length > cols) {
            rlki_not_replayable(x, "a prompt is longer than its row");
            return;
        }
        for (int32_t i = 0; i < length; i++)
            token[row * cols + i] = rlki_prompt_token((uint64_t)rlki_attr_int(e, "seed", 0),
                                                      rlki_attr_int(e, "step", 0), row / group, i, vocab);
    }
    rlki_own_begin(x);
    rlki_own_end(x);
}

static void append(struct rlki_exec *x)
{
    const struct rlki_runs_now *now = &x->m->now;
    const struct rlki_value *seq = rlki_value_in(x, "sequences", RLKI_HOST, I32);
    const struct rlki_value *drawn = rlki_value_in(x, "rollout_logp", RLKI_HOST, F);
    const struct rlki_value *token = rlki_tokens_in(x, "token", I32, 1, 0), *y = rlki_tokens_in(x, "y", F, -1, 0);
    if (!seq || !drawn || !token || !y)
        return;
    const int64_t rows = seq->form.rows, cols = seq->form.cols, fresh = drawn->form.cols, V = y->form.width;
    struct rlki_ptrs *to = host_out(x, "sequences", I32, rows, cols);
    struct rlki_ptrs *logp = host_out(x, "rollout_logp", F, drawn->form.rows, fresh);
    if (!to || !logp)
        return;
    memcpy(to->p[0], rlki_host(seq), (size_t)(rows * cols) * sizeof(int32_t));
    memcpy(logp->p[0], rlki_host(drawn), (size_t)(drawn->form.rows * fresh) * sizeof(float));
    int64_t at = -1;
    for (int s = 0; !x->rc && s < now->n; s++) {
        const int32_t *r = now->row[s];
        const int64_t place = (int64_t)r[1] + r[2], response = place - r[3];
        int32_t id = -1;
        at += r[2];
        if (r[0] >= rows || r[0] >= drawn->form.rows || place >= cols || response < 0 || response >= fresh ||
            r[2] < 1) {
            rlki_not_replayable(x, "a drawn token has no place");
            return;
        }
        x->rc = rlk_exec_download(&x->run->x, &id, (int32_t *)token->buffer->at.p[0] + at, sizeof id);
        if (!x->rc && (id < 0 || id >= V))
            x->rc = rlk_kfail(&x->run->x.detail, RLK_K_EINTERNAL, "sample %d: no token can be drawn", r[0]);
        if (!x->rc)
            x->rc = rlk_exec_download(&x->run->x, (float *)logp->p[0] + r[0] * fresh + response,
                                      (float *)y->buffer->at.p[0] + at * V + id, sizeof(float));
        ((int32_t *)to->p[0])[r[0] * cols + place] = id;
    }
    rlki_own_begin(x);
    rlki_own_end(x);
}

/* What the rollout has drawn, taken over by the trainer's ranks. */
static void result(struct rlki_exec *x)
{
    const struct rlki_value *seq = rlki_value_in(x, "sequences", RLKI_HOST, I32);
    const struct rlki_value *drawn = rlki_value_in(x, "rollout_logp", RLKI_HOST, F);
    if (!seq || !drawn)
        return;
    struct rlki_ptrs *to = host_out(x, "sequences", I32, seq->form.rows, seq->form.cols);
    struct rlki_ptrs *logp = host_out(x, "rollout_logp", F, drawn->form.rows, drawn->form.cols);
    if (!to || !logp)
        return;
    memcpy(to->p[0], rlki_host(seq), (size_t)(seq->form.rows * seq->form.cols) * sizeof(int32_t));
    memcpy(logp->p[0], rlki_host(drawn), (size_t)(drawn->form.rows * drawn->form.cols) * sizeof(float));
    rlki_own_begin(x);
    rlki_own_end(x);
}

static void sample(struct rlki_exec *x)
{
    const struct rlk_event *e = &x->in->e;
    const struct rlki_value *z = rlki_tokens_in(x, "z", F, -1, 0);
    struct rlki_ptrs *to = z ? rlki_tokens_out(x, "token", I32, 1, false) : NULL;
    uint64_t *of = to && !rlki_micro_of(x, NULL) ? malloc(((size_t)x->m->now.tokens + 1) * sizeof *of) : NULL;
    if (!of) {
        if (to)
            rlki_no_memory(x, x->in->e.who.op);
        return;
    }
    for (int64_t t = 0; t < x->m->now.tokens; t++)
        of[t] = (uint64_t)x->m->micro.owner[t];
    const struct rlk_sampling s = {e->who.module,
                                   z->form.width,
                                   (float)rlki_attr(e, "temperature", 1.0),
                                   (float)rlki_attr(e, "top_p", 1.0),
                                   (uint64_t)rlki_attr_int(e, "seed", 0),
                                   (uint32_t)rlki_attr_int(e, "step", 0),
                                   of};
    rlki_attrs_again(x);
    RLKI_RUN(x, rlk_sample(x->w, x->b, &s, CF(z), (int32_t *const *)(void *const *)to->p));
    free(of);
}

static void request(struct rlki_exec *x)
{
    struct rlk_event e = {.kind = RLK_EV_REQUEST, .id = ""};
    const uint32_t v = x->m->program->input[x->in->first_input];
    const struct rlki_value *seq = v == RLKI_NO_VALUE ? NULL : &x->m->value[v];
    const char *id = x->in->e.u.request.id;
    const int64_t row = id[0] == 's' ? strtol(id + 1, NULL, 10) : -1;
    const uint32_t n = x->in->e.u.request.ntokens;
    if (!seq || !seq->buffer || row < 0 || row >= seq->form.rows || n > seq->form.cols) {
        rlki_not_replayable(x, "its tokens are not there");
        return;
    }
    int64_t *token = malloc(((size_t)n + 1) * sizeof *token);
    for (uint32_t i = 0; token && i < n; i++)
        token[i] = ((const int32_t *)rlki_host(seq))[row * seq->form.cols + i];
    e.u.request = x->in->e.u.request;
    e.u.request.tokens = token;
    if (token && x->run->rec.tap && !x->run->rec.muted)
        x->run->rec.tap->event(x->run->rec.ctx[0], &e);
    free(token);
}

/* ---- GRPO ---- */

/* The run's samples serve as the operators' scratch. */
static bool have_samples(struct rlki_exec *x, int64_t cols)
{
    struct rlk_train *run = x->run;
    if (x->rc)
        return false;
    if (run->sample && x->m->sample_rows == run->opt.samples && x->m->sample_cols >= cols)
        return true;
    if (run->sample || cols < 1 || cols > 1 << 24 || run->opt.samples * cols > 1 << 30) {
        rlki_not_replayable(x, "the number or length of its samples changes");
        return false;
    }
    run->opt.prompt = 0;
    run->opt.fresh = (int)cols;
    run->opt.micro_batches = 1;
    x->rc = rlki_alloc_samples(run);
    x->m->sample_rows = run->opt.samples;
    x->m->sample_cols = cols;
    return !x->rc;
}

bool rlki_take_lengths(struct rlki_exec *x)
{
    const struct rlki_runs_now *now = &x->m->now;
    for (int s = 0; s < now->n; s++) {
        const int32_t *r = now->row[s];
        if (r[0] >= now->samples || r[0] >= x->m->sample_rows || r[1] != 0 || r[2] > x->m->sample_cols || r[3] > r[2]) {
            rlki_not_replayable(x, "a sample is longer than its row");
            return false;
        }
        x->run->sample[r[0]].length = r[2];
        x->run->sample[r[0]].prompt = r[3];
    }
    return true;
}

static void advantage(struct rlki_exec *x)
{
    const struct rlki_runs_now *now = &x->m->now;
    const struct rlki_value *seq = rlki_value_in(x, "sequences", RLKI_HOST, I32);
    const int64_t group = rlki_attr_int(&x->in->e, "group", 0);
    if (!seq || !have_samples(x, seq->form.cols) || !rlki_take_lengths(x))
        return;
    if (group < 1 || now->samples % group || now->n != now->samples || seq->form.rows != now->samples) {
        rlki_not_replayable(x, "not every sample is in its batch");
        return;
    }
    struct rlki_ptrs *to = host_out(x, "advantage", F, now->samples, 1);
    if (!to)
        return;
    for (int s = 0; s < now->n; s++)
        memcpy(x->run->sample[now->row[s][0]].token, (int32_t *)rlki_host(seq) + now->row[s][0] * seq->form.cols,
               (size_t)now->row[s][2] * sizeof(int32_t));
    x->run->opt.group = (int)group;
    rlki_rewards_of(x->run);
    memcpy(to->p[0], x->run->advantages.p[0], (size_t)now->samples * sizeof(float));
    rlki_own_begin(x);
    rlki_own_end(x);
}

static void keep(struct rlki_exec *x)
{
    const struct rlki_value *in = rlki_tokens_in(x, "logp", F, 1, 0);
    const struct rlk_tensor *t = x->in->outputs == 1 ? &x->in->e.tensors[x->in->inputs] : NULL;
    if (!in || !t) {
        rlki_not_replayable(x, "it does not keep one tensor");
        return;
    }
    rlki_own_begin(x);
    (void)rlki_inout(x, "logp", t->name, in);
    rlki_own_end(x);
}

static void loss(struct rlki_exec *x)
{
    const struct rlki_value *logp = rlki_tokens_in(x, "logp", F, 1, 0);
    const struct rlki_value *kept[2] = {rlki_tokens_in(x, "ref_logp", F, 1, 0), rlki_tokens_in(x, "old_logp", F, 1, 0)};
    const struct rlki_value *adv = rlki_value_in(x, "advantage", RLKI_HOST, F);
    const struct rlki_value *drawn = rlki_value_in(x, "rollout_logp", RLKI_HOST, F);
    struct rlk_train *run = x->run;
    struct rlki_losses b = {.host = NULL};
    struct rlki_pass p = {.run = run, .w = x->w, .b = x->b};
    if (!logp || !kept[0] || !kept[1] || !adv || !drawn || !x->b)
        return;
    if (!run->sample || !rlki_take_lengths(x) || rlki_micro_of(x, NULL))
        return;
    if (adv->form.rows < x->m->now.samples || drawn->form.rows < x->m->now.samples ||
        drawn->form.cols > x->m->sample_cols) {
        rlki_not_replayable(x, "its samples are not there");
        return;
    }
    for (int s = 0; s < run->opt.samples; s++) {
        run->sample[s].advantage = (double)((const float *)rlki_host(adv))[s];
        memcpy(run->sample[s].rollout, (const float *)rlki_host(drawn) + s * drawn->form.cols,
               (size_t)drawn->form.cols * sizeof(float));
    }
    for (int k = 0; !x->rc && k < 2; k++)
        x->rc = rlki_micro_store(run, &x->m->micro, &kept[k]->buffer->at, k);
    run->opt.clip_ratio = (float)rlki_attr(&x->in->e, "clip_ratio", 0.2);
    run->opt.kl_coef = (float)rlki_attr(&x->in->e, "kl_coef", 0.0);
    p.logp = logp->buffer->at;
    b.dlogp = rlki_tokens_out(x, "dlogp", F, 1, false);
    for (int k = 0; k < RLKI_SUMS; k++) {
        struct rlki_ptrs *to = rlki_tokens_out(x, strchr(rlki_sum_module[k], '.') + 1, F, 1, false);
        if (to)
            b.sum[k] = *to;
    }
    b.host = malloc(RLKI_LOSS_ROWS * ((size_t)x->m->now.tokens + 1) * sizeof *b.host);
    if (!b.host)
        rlki_no_memory(x, x->in->e.who.op);
    rlki_own_begin(x);
    for (int i = 0; !x->rc && i < x->w->held; i++)
        x->rc = rlki_rank_losses(run, &x->m->micro, &p, i, &b, &x->m->totals);
    rlki_own_end(x);
    free(b.host);
}

/* Log-probabilities of the responses, packed by sample: of the rollout, or of the batch in training. */
static void logprobs(struct rlki_exec *x)
{
    const struct rlk_tensor *t = rlki_recorded(x, "logp", true);
    const bool rollout = rlki_has_input(x, "rollout_logp");
    const struct rlki_value *drawn = rollout ? rlki_value_in(x, "rollout_logp", RLKI_HOST, F) : NULL;
    const struct rlki_value *logp = rollout ? NULL : rlki_tokens_in(x, "logp", F, 1, 0);
    int64_t n = 0;
    if (x->rc || !t)
        return;
    if (logp) {
        if (!x->run->sample || !rlki_take_lengths(x) || rlki_micro_of(x, NULL))
            return;
        x->rc = rlki_micro_store(x->run, &x->m->micro, &logp->buffer->at, 2);
    }
    for (uint32_t k = 0; k < t->nsamples; k++)
        n += t->samples[k].extent < 1u << 24 ? (int64_t)t->samples[k].extent : 1 << 24;
    struct rlki_ptrs *to = n < 1 << 28 ? host_out(x, "logp", F, n, 1) : NULL;
    const int64_t rows = logp ? x->run->opt.samples : drawn->form.rows;
    const int64_t cols = logp ? x->m->sample_cols : drawn->form.cols;
    int64_t at = 0;
    for (uint32_t k = 0; to && !x->rc && k < t->nsamples; k++) {
        const char *id = t->samples[k].id;
        const int64_t row = id[0] == 's' ? strtol(id + 1, NULL, 10) : -1, count = (int64_t)t->samples[k].extent;
        if (row < 0 || row >= rows || count > cols || t->samples[k].start != (uint64_t)at) {
            rlki_not_replayable(x, "a sample is not there");
            break;
        }
        memcpy((float *)to->p[0] + at, logp ? x->run->sample[row].now : (const float *)rlki_host(drawn) + row * cols,
               (size_t)count * sizeof(float));
        at += count;
    }
    rlki_own_begin(x);
    rlki_own_end(x);
}

/* Keys and values as they are, told by sample. */
static void keys_and_values(struct rlki_exec *x)
{
    if (x->in->inputs != 2 || x->in->outputs != 2) {
        rlki_not_replayable(x, "it is not one pair of tensors");
        return;
    }
    for (uint32_t k = 0; !x->rc && k < 2; k++) {
        const uint32_t v = x->m->program->input[x->in->first_input + k];
        if (v == RLKI_NO_VALUE || !x->m->value[v].buffer)
            rlki_not_replayable(x, "an input was left out");
        else if (rlki_side_world(x->m, x->m->value[v].form.side) != x->w ||
                 (x->m->value[v].form.shape != RLKI_CACHED &&
                  (x->m->value[v].form.shape != RLKI_TOKENS_BY ||
                   !rlk_u128_equal(x->m->value[v].form.batch, x->m->now.id))))
            rlki_not_replayable(x, "an input has another shape than its operator reads");
        else
            rlki_alias(x, k, v);
    }
    rlki_own_begin(x);
    rlki_own_end(x);
}

static void entropy(struct rlki_exec *x)
{
    const struct rlki_value *y = rlki_tokens_in(x, "y", F, -1, 0);
    struct rlki_ptrs *to = y ? rlki_tokens_out(x, "x", F, 1, false) : NULL;
    if (!to || !x->run->sample || !rlki_take_lengths(x) || rlki_micro_of(x, NULL))
        return;
    rlki_own_begin(x);
    x->rc = rlki_entropies(x->run, &x->m->micro, x->w, y->form.width, &y->buffer->at, to);
    rlki_own_end(x);
}

static void loss_sum(struct rlki_exec *x)
{
    const struct rlki_value *in = rlki_tokens_in(x, "x", F, 1, 0);
    double sum[2] = {0.0, 0.0};
    if (!in)
        return;
    RLKI_RUN(x, rlk_loss_sum(x->w, x->b, x->in->e.who.module, CF(in), NULL, sum));
    for (int k = 0; k < RLKI_SUMS; k++)
        if (strcmp(x->in->e.who.module, rlki_sum_module[k]) == 0)
            x->m->totals.sum[k] += sum[0];
    if (strcmp(x->in->e.who.module, "loss.entropy") == 0)
        x->m->totals.entropy += sum[0];
}

/* ---- optimizer ---- */

static void gradnorm(struct rlki_exec *x)
{
    const uint32_t n = x->in->inputs;
    struct rlk_param *all = calloc((size_t)n + 1, sizeof *all);
    struct rlki_ptrs *to = host_out(x, "grad_norm", RLK_K_FP64, 1, 1);
    if (!all)
        rlki_no_memory(x, x->in->e.who.op);
    for (uint32_t k = 0; !x->rc && k < n; k++) {
        const char *name = x->in->e.tensors[k].name;
        const struct rlki_value *g = rlki_value_in(x, name, RLKI_PARAMETER, F);
        if (g)
            all[k] = (struct rlk_param){name,        g->form.rows,  g->form.cols,
                                        g->form.cut, g->form.vocab, RLKI_F(&g->buffer->at)};
    }
    rlki_own_begin(x);
    RLKI_RUN(x, rlk_gradnorm(x->w, x->in->e.who.module, (int)n, all, &x->run->grad_norm));
    if (to && !x->rc)
        memcpy(to->p[0], &x->run->grad_norm, sizeof(double));
    rlki_own_end(x);
    free(all);
}

static void adamw(struct rlki_exec *x)
{
    const struct rlk_event *e = &x->in->e;
    static const char *const state[3] = {"master", "exp_avg", "exp_avg_sq"};
    const struct rlki_value *g = rlki_value_in(x, "grad", RLKI_PARAMETER, F);
    const struct rlki_value *norm = rlki_value_in(x, "grad_norm", RLKI_HOST, RLK_K_FP64);
    const struct rlk_tensor *w = rlki_recorded(x, "weight", true);
    struct rlki_ptrs *set[3];
    int64_t n[RLKI_RANKS];
    if (!g || !norm || !w || (w->dtype != RLK_BF16 && w->dtype != RLK_FP32)) {
        rlki_not_replayable(x, "it writes no weight");
        return;
    }
    const struct rlki_value *in[3];
    for (int k = 0; k < 3; k++)
        in[k] = rlki_parameter_in(x, state[k], F, g->form.rows, g->form.cols, g->form.cut, g->form.vocab);
    struct rlki_form f = g->form;
    f.type = (enum rlk_ktype)w->dtype;
    struct rlki_ptrs *weight = rlki_result(x, "weight", &f);
    const struct rlk_adamw a = {"optimizer",
                                (float)rlki_attr(e, "lr", 0.0),
                                (float)rlki_attr(e, "beta1", 0.9),
                                (float)rlki_attr(e, "beta2", 0.98),
                                (float)rlki_attr(e, "eps", 1e-8),
                                (float)rlki_attr(e, "weight_decay", 0.0),
                                rlk_clip_coefficient(*(const double *)rlki_host(norm), rlki_attr(e, "max_norm", 0.0)),
                                rlki_attr_int(e, "step", 1),
                                f.type};
    x->run->opt.lr = a.lr;
    rlki_rec_attr(x->run, "coefficient", (double)a.coefficient);
    rlki_own_begin(x);
    for (int k = 0; k < 3; k++)
        set[k] = rlki_inout(x, state[k], state[k], in[k]);
    for (int i = 0; i < x->w->held; i++)
        n[i] = rlki_form_local(x->m, &g->form, i);
    if (weight && set[0] && set[1] && set[2])
        RLKI_RUN(x, rlk_adamw(x->w, &a, n, RLKI_F(set[0]), RLKI_F(set[1]), RLKI_F(set[2]), CF(g), weight->p));
    rlki_own_end(x);
}

/* ---- facts ---- */

static void metric(struct rlki_exec *x)
{
    struct rlk_train *run = x->run;
    if (!run->sample) {
        rlki_not_replayable(x, "its samples are not there");
        return;
    }
    if (!x->m->have_metrics) {
        const bool muted = run->rec.muted;
        run->metrics = 0;
        run->rec.muted = true;
        rlki_metrics(run, &x->m->totals);
        run->rec.muted = muted;
        x->m->have_metrics = true;
    }
    for (int i = 0; i < run->metrics; i++)
        if (strcmp(run->metric[i].name, x->in->e.who.op) == 0) {
            rlki_rec_metric(run, run->metric[i].name, run->metric[i].value);
            return;
        }
    rlki_not_replayable(x, "no metric here has this name");
}

static void readback(struct rlki_exec *x)
{
    struct rlk_program *p = x->m->program;
    if (x->at == 0 || p->instr[x->at - 1].e.kind != RLK_EV_READBACK)
        rlki_rec_readbacks(x->run); /* all of them, at the first */
}

rlki_operator rlki_find_own_operator(const struct rlk_event *e)
{
    static const struct {
        const char *op;
        rlki_operator run;
    } all[] = {{"rlk.zero", rlki_do_zero},
               {"rlk.rollout.prompts", prompts},
               {"rlk.rollout.append", append},
               {"rlk.rollout.result", result},
               {"rlk.sample", sample},
               {"rlk.grpo.advantage", advantage},
               {"rlk.grpo.keep", keep},
               {"rlk.grpo.regroup", rlki_do_regroup},
               {"rlk.grpo.loss", loss},
               {"rlk.grpo.entropy", entropy},
               {"rlk.grpo.kv", keys_and_values},
               {"rlk.grpo.logprobs", logprobs},
               {"rlk.loss_sum", loss_sum},
               {"rlk.gradnorm", gradnorm},
               {"rlk.adamw", adamw}};
    switch (e->kind) {
    case RLK_EV_LEAF:
        return rlki_do_leaf;
    case RLK_EV_WEIGHTS:
        return rlki_do_weights;
    case RLK_EV_REQUEST:
        return request;
    case RLK_EV_METRIC:
        return metric;
    case RLK_EV_READBACK:
        return readback;
    case RLK_EV_NOTE:
        return rlki_do_batch;
    default:
        break;
    }
    for (size_t i = 0; e->kind == RLK_EV_OP && i < sizeof all / sizeof all[0]; i++)
        if (strcmp(e->who.op, all[i].op) == 0)
            return all[i].run;
    return NULL;
}
