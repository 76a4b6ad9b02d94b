/* train.c - a run: its memory, and the step. */
#include "replayer/rlk_folder.h"
#include "replayer/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum rlk_ktype T = RLK_K_BF16, F = RLK_K_FP32;

void rlk_train_options_init(struct rlk_train_options *o)
{
    *o = (struct rlk_train_options){.model = *rlk_model_at(0),
                                    .tp = 1,
                                    .cp = 1,
                                    .rollout_cp = 1,
                                    .seed = 1,
                                    .threads = 1,
                                    .samples = 8,
                                    .group = 4,
                                    .prompt = 24,
                                    .fresh = 48,
                                    .stop_ids = 16,
                                    .micro_batches = 2,
                                    .temperature = 0.7f,
                                    .top_p = 0.95f,
                                    .lr = 1e-3f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.98f,
                                    .adam_eps = 1e-8f,
                                    .weight_decay = 0.1f,
                                    .clip_ratio = 0.2f,
                                    .kl_coef = 0.01f,
                                    .max_norm = 1.0,
                                    .contract = "portable/1"};
}

static int check_options(const struct rlk_train_options *o, struct rlk_kdetail *detail)
{
    const struct rlk_model_shape *s = &o->model;
    const struct rlk_dims dims = {s->hidden, s->intermediate, s->vocab, s->heads, s->kv_heads, s->head_dim};
    struct rlk_lattice lat;
    int rc = rlk_lattice_init(&lat, o->tp, o->cp, detail);
    if (!rc)
        rc = rlk_lattice_init(&lat, o->rollout_tp, o->rollout_cp, detail);
    if (!rc)
        rc = rlk_lattice_check(&dims, detail);
    if (rc)
        return rc;
    if (o->rollout_cp != 1)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "rollout layout tp%dcp%d: decode holds whole sequences, use cp1",
                         o->rollout_tp, o->rollout_cp);
    if (strcmp(o->contract, "portable/1") != 0)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "contract class %s is not built, use portable/1", o->contract);
    if (o->samples < 1 || o->samples > 4096 || o->group < 1 || o->samples % o->group != 0)
        return rlk_kfail(detail, RLK_K_EINVAL, "%d samples in groups of %d: use 1 to 4096 and a group that divides it",
                         o->samples, o->group);
    if (o->prompt < 8 || o->prompt > 1 << 20 || o->fresh < 1 || o->fresh > 1 << 20)
        return rlk_kfail(detail, RLK_K_EINVAL, "prompts of %d, %d new tokens: use 8 to 2^20 and 1 to 2^20", o->prompt,
                         o->fresh);
    for (int k = 0; k < 2; k++) {
        const int n = k ? o->score_batches : o->micro_batches;
        if (n < (k ? 0 : 1) || n > o->samples)
            return rlk_kfail(detail, RLK_K_EINVAL, "%d micro-batches of %d samples: use 1 to %d", n, o->samples,
                             o->samples);
    }
    if (!(o->temperature >= 0.0f) || o->stop_ids < 0 || o->stop_ids > s->vocab)
        return rlk_kfail(detail, RLK_K_EINVAL, "temperature %g, %d stop ids: use >= 0 and 0 to the vocabulary",
                         (double)o->temperature, o->stop_ids);
    return 0;
}

int rlki_alloc_samples(struct rlk_train *run)
{
    const size_t n = (size_t)run->opt.samples, most = (size_t)(run->opt.prompt + run->opt.fresh),
                 fresh = (size_t)run->opt.fresh;
    run->sample = calloc(n, sizeof *run->sample);
    run->f_sequence = calloc(n, sizeof *run->f_sequence);
    run->f_length = calloc(n, sizeof *run->f_length);
    run->f_prompt = calloc(n, sizeof *run->f_prompt);
    run->f_reward = calloc(n, sizeof *run->f_reward);
    run->f_advantage = calloc(n, sizeof *run->f_advantage);
    const size_t scoring = (size_t)rlki_batches(run, true);
    run->kept[0] = calloc(scoring, sizeof *run->kept[0]);
    run->kept[1] = calloc(scoring, sizeof *run->kept[1]);
    run->order = calloc(n, sizeof *run->order);
    for (size_t i = 0; run->order && i < n; i++)
        run->order[i] = (int)(run->opt.reverse ? n - 1 - i : i);
    if (rlki_batches(run, true) != rlki_batches(run, false) && !(run->scored = calloc(scoring, sizeof *run->scored)))
        return rlki_fail_memory(run, "samples");
    if (!run->order || !run->kept[0] || !run->kept[1] ||
        rlki_host_new(run, &run->sequences, n * most * sizeof(int32_t)) ||
        rlki_host_new(run, &run->advantages, n * sizeof(float)) ||
        rlki_host_new(run, &run->rollout_logp, n * fresh * sizeof(float)) ||
        rlki_host_new(run, &run->logps, n * fresh * sizeof(float)) || rlki_host_new(run, &run->norm, sizeof(double)))
        return rlki_fail_memory(run, "samples");
    bool ok = run->sample && run->f_sequence && run->f_length && run->f_prompt && run->f_reward && run->f_advantage;
    for (int k = 0; k < 4; k++)
        ok = (run->f_logp[k] = calloc(n, sizeof *run->f_logp[k])) && ok;
    for (size_t i = 0; ok && i < n; i++) {
        struct rlki_sample *p = &run->sample[i];
        p->token = calloc(most, sizeof *p->token);
        p->rollout = calloc(4 * fresh, sizeof *p->rollout);
        ok = p->token && p->rollout;
        if (ok) {
            p->old = p->rollout + fresh;
            p->ref = p->old + fresh;
            p->now = p->ref + fresh;
            run->f_logp[0][i] = p->rollout;
            run->f_logp[1][i] = p->old;
            run->f_logp[2][i] = p->ref;
            run->f_logp[3][i] = p->now;
            run->f_sequence[i] = p->token;
        }
    }
    return ok ? 0 : rlki_fail_memory(run, "samples");
}

static int alloc_parameters(struct rlk_train *run)
{
    const size_t n = (size_t)run->params;
    struct rlki_ptrs **const sets[] = {&run->weight, &run->ref,  &run->master, &run->m,
                                       &run->v,      &run->grad, &run->rweight};
    int rc = (run->hash = calloc(n, sizeof *run->hash)) ? 0 : rlki_fail_memory(run, "parameters");
    for (int k = 0; !rc && k < 7; k++) {
        *sets[k] = calloc(n, sizeof **sets[k]);
        rc = *sets[k] ? 0 : rlki_fail_memory(run, "parameters");
        for (size_t p = 0; !rc && p < n; p++)
            rc = rlki_param_alloc(run, k == 6 ? &run->roll : &run->train, &run->param[p], k < 2 || k == 6 ? T : F,
                                  &(*sets[k])[p]);
    }
    return rc;
}

static int seed_parameter(struct rlk_train *run, int p)
{
    const struct rlki_weight *w = &run->param[p];
    const size_t n = (size_t)(w->rows * w->cols);
    uint16_t *bits = malloc(n * sizeof *bits);
    float *wide = malloc(n * sizeof *wide);
    int rc = bits && wide ? 0 : rlki_fail_memory(run, w->name);
    if (!rc && run->opt.folder)
        rc = rlk_folder_read(run->opt.folder, w->name, w->ndim, w->rows, w->cols, bits, wide, &run->x.detail);
    if (!rc) {
        if (!run->opt.folder)
            rlki_model_fill(run->pool, w, run->opt.seed, (uint32_t)p, bits);
        for (size_t i = 0; i < n && !run->opt.folder; i++) {
            const uint32_t u = (uint32_t)bits[i] << 16;
            memcpy(&wide[i], &u, 4);
        }
        rc = rlki_param_cut(run, &run->train, w, T, bits, &run->weight[p], -1);
    }
    if (!rc)
        rc = rlki_param_cut(run, &run->train, w, T, bits, &run->ref[p], -1);
    if (!rc)
        rc = rlki_param_cut(run, &run->train, w, F, wide, &run->master[p], -1);
    free(wide);
    free(bits);
    return rc;
}

static int make_rope(struct rlk_train *run)
{
    const struct rlk_model_shape *s = &run->opt.model;
    run->positions = run->opt.prompt + run->opt.fresh;
    const size_t bytes = (size_t)run->positions * (size_t)s->head_dim * sizeof(float);
    float *host = malloc(bytes);
    int rc = host ? rlk_rope_table(s->theta, s->head_dim, run->positions, host, &run->x.detail) : RLK_K_ENOMEM;
    if (!rc && !(run->rope = rlk_exec_alloc(&run->x, bytes)))
        rc = RLK_K_ENOMEM;
    if (!rc)
        rc = rlk_exec_upload(&run->x, run->rope, host, bytes);
    if (!rc)
        rc = rlk_exec_sync(&run->x);
    free(host);
    return rc;
}

static int export_there(struct rlk_train *run)
{
    uint32_t differ = 0;
    int rc = 0;
    if (!run->differ && !(run->differ = rlk_exec_alloc(&run->x, sizeof differ)))
        return rlki_fail_memory(run, "a flag");
    rc = rlk_exec_zero(&run->x, run->differ, sizeof differ);
    for (int p = 0; !rc && p < run->params; p++)
        rc = rlki_param_move(run, &run->param[p], T, &run->weight[p], &run->rweight[p], run->differ);
    if (!rc)
        rc = rlk_exec_download(&run->x, &differ, run->differ, sizeof differ);
    if (!rc && differ)
        rc = rlk_kfail(&run->x.detail, RLK_K_ESTATE, "trainer ranks that hold the same weights hold other bits");
    return rc;
}

/* Trainer weights -> rollout weights, as a version. */
static int update_weights(struct rlk_train *run, int64_t version)
{
    char label[32];
    snprintf(label, sizeof label, "weight_v%06lld", (long long)version);
    int rc = 0;
    rlki_rec_phase(run, "update_weights");
    rlki_rec_work(run, 0, 0);
    rlki_rec_pass(run, "");
    run->hashed = false;
    const bool there = run->x.device != RLK_DEVICE_CPU && !run->opt.plant;
    if (there)
        rc = export_there(run);
    for (int p = 0; !rc && !there && p < run->params; p++) {
        const struct rlki_weight *w = &run->param[p];
        void *logical = malloc((size_t)(w->rows * w->cols) * rlk_ktype_bytes(T));
        rc = logical ? rlki_param_join(run, &run->train, w, T, &run->weight[p], logical)
                     : rlki_fail_memory(run, w->name);
        if (rc == RLK_K_ESTATE && run->opt.plant)
            rc = 0; /* a planted fault may well make replicas disagree: the recording is to say so */
        int skip = -1;
        for (int i = 0; version > 1 && i < run->roll.held; i++)
            if (rlki_plant_stale(run, p, run->roll.rank[i]))
                skip = run->roll.rank[i];
        if (!rc)
            rc = rlki_param_cut(run, &run->roll, w, T, logical, &run->rweight[p], skip);
        free(logical);
    }
    rlki_lap(run, RLKI_TIME_EXPORT);
    if (!rc) {
        rlki_rec_weights(run, &run->train, label, "trainer", run->weight);
        rlki_rec_weights(run, &run->roll, label, "rollout", run->rweight);
        rc = rlki_rec_hashes(run, label);
    }
    rlki_lap(run, RLKI_TIME_HASH);
    return rc;
}

int rlki_run_open(struct rlk_train *run)
{
    int rc;
    if (run->opt.threads != 1)
        run->pool = rlk_pool_new(run->opt.threads);
    rc = rlk_exec_init(&run->x, run->opt.device, NULL, run->pool);
    if (!rc)
        rc = rlk_exec_own_stream(&run->x);
    run->policy = rlk_policy_new();
    run->x.policy = run->policy;
    if (!rc && !run->policy)
        rc = rlki_fail_memory(run, "the policy");
    for (int i = 0; !rc && i < run->opt.modes; i++)
        rc = rlk_policy_mode(run->policy, run->opt.mode[i], &run->x.detail);
    if (!rc)
        rc = rlk_world_virtual(&run->train, &run->x, run->opt.tp, run->opt.cp);
    if (!rc)
        rc = rlk_world_virtual(&run->roll, &run->x, run->opt.rollout_tp, run->opt.rollout_cp);
    if (!rc)
        rc = rlki_plant_init(run);
    return rc ? rc : rlki_rec_init(run);
}

int rlk_train_new(const struct rlk_train_options *options, struct rlk_train **out, struct rlk_kdetail *detail)
{
    struct rlk_train *run = calloc(1, sizeof *run);
    int rc = 0;
    *out = NULL;
    if (!run)
        return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for a run");
    run->opt = *options;
    if (!run->opt.rollout_tp) {
        run->opt.rollout_tp = run->opt.tp;
        run->opt.rollout_cp = 1;
    }
    rc = check_options(&run->opt, &run->x.detail);
    if (!rc)
        rc = rlki_run_open(run);
    if (!rc)
        rc = rlki_model_params(&run->opt.model, &run->param, &run->params);
    if (!rc)
        rc = rlki_memory_fits(run);
    if (!rc)
        rc = rlki_alloc_samples(run);
    if (!rc)
        rc = alloc_parameters(run);
    for (int p = 0; !rc && p < run->params; p++)
        rc = seed_parameter(run, p);
    if (!rc)
        rc = make_rope(run);
    if (!rc) {
        rlki_rec_step(run, 0);
        rlki_rec_leaves(run);
        rc = update_weights(run, 1);
    }
    if (rc) {
        if (detail)
            *detail = run->x.detail;
        rlk_train_free(run);
        return rc;
    }
    *out = run;
    return 0;
}

static void free_set(struct rlk_train *run, struct rlki_ptrs *set)
{
    for (int p = 0; set && p < run->params; p++)
        for (int i = 0; i < RLKI_RANKS; i++)
            rlk_exec_free(&run->x, set[p].p[i]);
    free(set);
}

void rlk_train_free(struct rlk_train *run)
{
    if (!run)
        return;
    rlki_rec_release(run);
    rlki_plant_release(run);
    if (run->x.prims) { /* the exec was made */
        struct rlki_ptrs *const sets[] = {run->weight, run->ref, run->master, run->m, run->v, run->grad, run->rweight};
        for (int k = 0; k < 7; k++)
            free_set(run, sets[k]);
        rlki_decoder_release(run);
        rlki_frame_release(run);
        rlk_exec_free(&run->x, run->rope);
        rlk_exec_free(&run->x, run->differ);
        rlk_exec_free(&run->x, run->workspace);
        rlk_exec_drop_stream(&run->x);
    }
    for (int i = 0; run->sample && i < run->opt.samples; i++) {
        free(run->sample[i].token);
        free(run->sample[i].rollout);
    }
    free(run->sample);
    rlki_keep_nothing(run);
    free(run->kept[0]); /* of no micro-batch where the samples were never made */
    free(run->kept[1]);
    free(run->scored);
    free(run->order);
    free(run->sequences.p[0]);
    free(run->advantages.p[0]);
    free(run->rollout_logp.p[0]);
    free(run->logps.p[0]);
    free(run->norm.p[0]);
    for (int k = 0; k < 4; k++)
        free(run->f_logp[k]);
    free(run->f_sequence);
    free(run->f_length);
    free(run->f_prompt);
    free(run->f_reward);
    free(run->f_advantage);
    free(run->hash);
    free(run->param);
    rlk_policy_free(run->policy);
    rlk_pool_free(run->pool);
    free(run);
}

/* ---- the step ---- */

static int micro_of(const struct rlk_train *run, bool scoring, int mb, int *first)
{
    const int n = run->opt.samples, m = rlki_batches(run, scoring);
    *first = n * mb / m;
    return n * (mb + 1) / m - *first;
}

static struct rlki_pass pass_of(struct rlk_train *run, const struct rlki_micro *m, const struct rlki_ptrs *weight)
{
    return (struct rlki_pass){
        .run = run, .w = &run->train, .b = m->batch, .weight = weight, .ids = m->ids, .targets = m->targets};
}

static int score(void *arg)
{
    struct rlki_pass *p = arg;
    const int rc = rlki_forward(p);
    return rc ? rc : rlki_logp(p);
}

/* Log-probabilities of every sample under `weight`. which: 0 ref, 1 old. */
static int log_probs(struct rlk_train *run, const char *phase, const struct rlki_ptrs *weight, int which)
{
    int rc = 0;
    rlki_rec_phase(run, phase);
    for (int mb = 0; !rc && mb < rlki_batches(run, true); mb++) {
        const struct rlki_mark mark = rlki_frame_mark(run);
        struct rlki_micro m;
        int first;
        const int count = micro_of(run, true, mb, &first);
        rlki_rec_work(run, mb, 0);
        rlki_rec_pass(run, "fwd");
        if ((rc = rlki_micro_new(run, first, count, &m)))
            break;
        rlki_micro_tell(run, &m);
        struct rlki_pass p = pass_of(run, &m, weight);
        run->micro = &m;
        rlki_rec_micro(run, &m);
        rc = rlki_room(run, score, &p);
        if (!rc)
            rc = score(&p);
        if (!rc)
            rc = rlki_micro_store(run, &m, &p.logp, which);
        if (!rc)
            rc = rlki_keep(run, &m, &p, mb, which);
        run->micro = NULL;
        rlki_rec_micro(run, NULL);
        if (run->scored && which == 1)
            run->scored[mb] = m; /* its batch places what was kept */
        else
            rlki_micro_free(run, &m);
        rlki_frame_back(run, mark);
    }
    return rc;
}

struct training {
    struct rlki_pass *p;
    const struct rlki_micro *m;
    struct rlki_totals *totals;
};

static int measured(void *arg)
{
    const struct training *t = arg;
    struct rlki_ptrs g;
    struct rlki_totals none = {0};
    int rc = score(t->p);
    if (!rc)
        rc = rlki_frame_take(t->p->run, t->p->w, t->p->b, 1, F, &g);
    if (!rc)
        rc = rlki_entropy(t->p->run, t->m, t->p, &none);
    return rc ? rc : rlki_backward(t->p, &g);
}

static int train_micro(struct rlk_train *run, int mb, struct rlki_totals *totals)
{
    const struct rlki_mark mark = rlki_frame_mark(run);
    struct rlki_micro m;
    struct rlki_ptrs g;
    int first;
    const int count = micro_of(run, false, mb, &first);
    struct rlki_ptrs *at_layer = calloc((size_t)run->opt.model.layers + 1, sizeof *at_layer);
    rlki_rec_work(run, mb, 0);
    int rc = at_layer ? rlki_micro_new(run, first, count, &m) : rlki_fail_memory(run, "checkpoints");
    if (rc) {
        free(at_layer);
        return rc;
    }
    struct rlki_pass p = pass_of(run, &m, run->weight);
    struct training t = {&p, &m, totals};
    p.at_layer = at_layer;
    m.number = mb;
    run->micro = &m;
    rlki_rec_micro(run, &m);
    rc = rlki_room(run, measured, &t);
    rlki_rec_pass(run, "fwd");
    rlki_micro_tell(run, &m);
    if (!rc)
        rc = rlki_regroup(run, &m);
    if (!rc)
        rc = score(&p);
    if (!rc)
        rc = rlki_micro_store(run, &m, &p.logp, 2);
    rlki_lap(run, RLKI_TIME_FORWARD);
    if (!rc)
        rlki_rec_train_logprobs(run, &m, &p.logp);
    if (!rc)
        rc = rlki_losses(run, &m, &p, &g, totals);
    if (!rc) {
        const struct rlki_mark inner = rlki_frame_mark(run);
        rc = rlki_entropy(run, &m, &p, totals);
        rlki_frame_back(run, inner);
    }
    rlki_lap(run, RLKI_TIME_LOSS);
    if (!rc)
        rc = rlki_backward(&p, &g);
    rlki_lap(run, RLKI_TIME_BACKWARD);
    run->micro = NULL;
    rlki_rec_micro(run, NULL);
    rlki_regroup_end(run);
    free(at_layer);
    rlki_micro_free(run, &m);
    rlki_frame_back(run, mark);
    return rc;
}

/* An event of its own: what a backward adds to has a producer. */
static int zero_gradients(struct rlk_train *run)
{
    int rc = 0;
    rlki_rec_work(run, 0, 0);
    rlki_rec_pass(run, "");
    rlki_rec_begin(run, &run->train, "optimizer", "rlk.zero", "rlk.zero/portable/1");
    for (int p = 0; !rc && p < run->params; p++)
        for (int i = 0; !rc && i < run->train.held; i++)
            rc = rlk_exec_zero(&run->x, run->grad[p].p[i],
                               (size_t)rlki_local_elements(&run->train, &run->param[p], i) * sizeof(float));
    for (int p = 0; p < run->params; p++) {
        char name[96];
        snprintf(name, sizeof name, "%s.grad", run->param[p].name);
        const struct rlki_named t = rlki_named_parameter(&run->param[p], name, F);
        rlki_rec_tensor(run, &run->train, &t, RLKI_IN(&run->grad[p]), true);
    }
    rlki_rec_end(run, &run->train);
    return rc;
}

static int norm_room(void *arg)
{
    struct rlk_train *run = arg;
    struct rlk_param *all = calloc((size_t)run->params, sizeof *all);
    if (!all)
        return rlki_fail_memory(run, "the gradient norm");
    for (int p = 0; p < run->params; p++) {
        const struct rlki_weight *w = &run->param[p];
        all[p] = (struct rlk_param){w->name, w->rows, w->cols, w->cut, w->vocab, RLKI_F(&run->grad[p])};
    }
    const int rc = rlk_gradnorm(&run->train, "optimizer", run->params, all, &run->grad_norm);
    free(all);
    return rc;
}

static const struct rlki_named norm_named = {"grad_norm", RLK_K_FP64, 0, {{RLKI_AXIS_WHOLE, 1}}, NULL, "world", NULL};

static int gradient_norm(struct rlk_train *run)
{
    int rc = rlki_room(run, norm_room, run);
    rlki_rec_pass(run, "opt");
    rlki_rec_work(run, 0, 0);
    rlki_rec_begin(run, &run->train, "optimizer", "rlk.gradnorm", "rlk.gradnorm/portable/1");
    rlki_rec_combines(run, &run->train, true);
    for (int p = 0; p < run->params; p++) {
        char name[96];
        snprintf(name, sizeof name, "%s.grad", run->param[p].name);
        const struct rlki_named t = rlki_named_parameter(&run->param[p], name, F);
        rlki_rec_tensor(run, &run->train, &t, RLKI_IN(&run->grad[p]), false);
    }
    if (!rc)
        rc = norm_room(run);
    memcpy(run->norm.p[0], &run->grad_norm, sizeof run->grad_norm);
    rlki_host_spread(&run->norm, sizeof run->grad_norm);
    rlki_rec_tensor(run, &run->train, &norm_named, RLKI_IN(&run->norm), true);
    rlki_rec_end(run, &run->train);
    return rc;
}

static int optimize(struct rlk_train *run)
{
    const struct rlk_train_options *o = &run->opt;
    int rc = gradient_norm(run);
    rlki_lap(run, RLKI_TIME_GRAD_NORM);
    for (int p = 0; !rc && p < run->params; p++) {
        const struct rlki_weight *w = &run->param[p];
        const struct rlk_adamw a = {"optimizer",
                                    o->lr,
                                    o->beta1,
                                    o->beta2,
                                    o->adam_eps,
                                    w->decay ? o->weight_decay : 0.0f,
                                    rlk_clip_coefficient(run->grad_norm, o->max_norm),
                                    run->step + 1,
                                    T};
        const struct rlki_ptrs *const set[5] = {&run->grad[p], &run->master[p], &run->m[p], &run->v[p],
                                                &run->weight[p]};
        static const char *const name[5] = {"grad", "master", "exp_avg", "exp_avg_sq", "weight"};
        int64_t n[RLKI_RANKS];
        char module[96];
        for (int i = 0; i < run->train.held; i++)
            n[i] = rlki_local_elements(&run->train, w, i);
        snprintf(module, sizeof module, "optimizer.%s", w->name);
        rlki_rec_attr(run, "coefficient", (double)a.coefficient);
        rlki_rec_attr(run, "lr", (double)a.lr);
        rlki_rec_attr(run, "beta1", (double)a.beta1);
        rlki_rec_attr(run, "beta2", (double)a.beta2);
        rlki_rec_attr(run, "eps", (double)a.eps);
        rlki_rec_attr(run, "weight_decay", (double)a.weight_decay);
        rlki_rec_attr(run, "max_norm", o->max_norm);
        rlki_rec_attr_int(run, "step", a.step);
        rlki_rec_begin(run, &run->train, module, "rlk.adamw", "rlk.adamw/portable/1");
        for (int k = 0; k < 4; k++) {
            const struct rlki_named t = rlki_named_parameter(w, name[k], F);
            rlki_rec_tensor(run, &run->train, &t, RLKI_IN(set[k]), false);
        }
        rlki_rec_tensor(run, &run->train, &norm_named, RLKI_IN(&run->norm), false);
        rc = rlk_adamw(&run->train, &a, n, RLKI_F(set[1]), RLKI_F(set[2]), RLKI_F(set[3]), RLKI_CF(set[0]),
                       run->weight[p].p);
        for (int k = 1; k < 5; k++) {
            const struct rlki_named t = rlki_named_parameter(w, name[k], k == 4 ? T : F);
            rlki_rec_tensor(run, &run->train, &t, RLKI_IN(set[k]), true);
        }
        rlki_rec_end(run, &run->train);
    }
    return rc;
}

static int update(struct rlk_train *run, struct rlki_totals *totals)
{
    rlki_rec_phase(run, "actor_train");
    int rc = zero_gradients(run);
    rlki_lap(run, RLKI_TIME_ZERO);
    for (int mb = 0; !rc && mb < run->opt.micro_batches; mb++)
        rc = train_micro(run, mb, totals);
    if (!rc)
        rc = optimize(run);
    rlki_lap(run, RLKI_TIME_OPTIMIZER);
    return rc;
}

void rlki_metric(struct rlk_train *run, const char *name, double value)
{
    if (run->metrics < RLKI_METRICS)
        run->metric[run->metrics++] = (struct rlk_metric){name, value};
    rlki_rec_metric(run, name, value);
}

void rlki_metrics(struct rlk_train *run, const struct rlki_totals *t)
{
    const double samples = (double)run->opt.samples;
    const double weight = t->sum[RLKI_SUM_WEIGHT];
    double tokens = 0.0, total = 0.0;
    for (int s = 0; s < run->opt.samples; s++) {
        tokens += (double)(run->sample[s].length - run->sample[s].prompt);
        total += (double)run->sample[s].length;
    }
    rlki_metric(run, "train/loss", t->sum[RLKI_SUM_LOSS] / weight);
    rlki_metric(run, "train/pg_loss", t->sum[RLKI_SUM_PG] / weight);
    rlki_metric(run, "train/entropy_loss", t->entropy / weight);
    rlki_metric(run, "train/pg_clipfrac", t->sum[RLKI_SUM_CLIP] / weight);
    rlki_metric(run, "train/ppo_kl", t->sum[RLKI_SUM_PPO_KL] / weight);
    rlki_metric(run, "train/train_rollout_logprob_abs_diff", t->sum[RLKI_SUM_ABS] / weight);
    rlki_metric(run, "train/train_current_rollout_logprob_mismatch_count", t->mismatches / samples);
    rlki_metric(run, "train/train_current_rollout_logprob_max_abs_diff", t->max_abs);
    rlki_metric(run, "train/train_current_rollout_logprob_numel", tokens / samples);
    rlki_metric(run, "train/kl_loss", t->sum[RLKI_SUM_KL] / weight);
    rlki_metric(run, "train/ois", t->sum[RLKI_SUM_OIS] / weight);
    rlki_metric(run, "train/tis", t->sum[RLKI_SUM_OIS] / weight);
    rlki_metric(run, "train/tis_clipfrac", 0.0);
    rlki_metric(run, "train/tis_abs", fabs(t->sum[RLKI_SUM_OIS] / weight - 1.0));
    rlki_metric(run, "train/grad_norm", run->grad_norm);
    rlki_metric(run, "train/lr-pg_0", (double)run->opt.lr);
    rlki_metric(run, "train/lr-pg_1", (double)run->opt.lr);
    rlki_metric(run, "train/global_batch_size", samples);
    rlki_metric(run, "train/step", (double)run->step);
    rlki_metric(run, "tokens/sample_count", samples);
    rlki_metric(run, "tokens/token_count", total);
}

static void fill_facts(struct rlk_train *run, int64_t step, struct rlk_train_facts *facts)
{
    for (int s = 0; s < run->opt.samples; s++) {
        run->f_length[s] = run->sample[s].length;
        run->f_prompt[s] = run->sample[s].prompt;
        run->f_reward[s] = run->sample[s].reward;
        run->f_advantage[s] = run->sample[s].advantage;
    }
    *facts = (struct rlk_train_facts){step,           run->opt.samples, run->f_sequence,  run->f_length,
                                      run->f_prompt,  run->f_logp[0],   run->f_logp[1],   run->f_logp[2],
                                      run->f_logp[3], run->f_reward,    run->f_advantage, run->grad_norm,
                                      run->metrics,   run->metric};
}

/* One part of a step; the losses' sums go to *totals. */
static int part_of_step(struct rlk_train *run, enum rlki_time part, struct rlki_totals *totals)
{
    int rc = 0;
    if (part == RLKI_TIME_ROLLOUT)
        rc = rlki_rollout(run);
    else if (part == RLKI_TIME_REF)
        rc = log_probs(run, "ref_log_probs", run->ref, 0);
    else if (part == RLKI_TIME_OLD)
        rc = log_probs(run, "log_probs", run->weight, 1);
    else if (part == RLKI_TIME_TRAIN)
        rc = update(run, totals);
    if (!rc && part == RLKI_TIME_TRAIN) {
        rlki_metrics(run, totals);
        rlki_rec_readbacks(run);
    }
    if (!rc && part == RLKI_TIME_WEIGHTS) {
        rlki_rec_step(run, run->step + 1);
        rc = update_weights(run, run->step + 2);
    }
    if (!rc && part == RLKI_TIME_PREPARE)
        rlki_rewards(run);
    return rc;
}

int rlk_train_step(struct rlk_train *run, struct rlk_train_facts *facts, struct rlk_kdetail *detail)
{
    static const enum rlki_time order[] = {RLKI_TIME_ROLLOUT, RLKI_TIME_PREPARE, RLKI_TIME_REF,
                                           RLKI_TIME_OLD,     RLKI_TIME_TRAIN,   RLKI_TIME_WEIGHTS};
    struct rlki_totals totals = {0};
    int rc = 0;
    run->metrics = 0;
    rlki_keep_nothing(run);
    rlki_rec_step(run, run->step);
    rlki_times_begin(run);
    for (size_t k = 0; !rc && k < sizeof order / sizeof order[0]; k++) {
        rc = part_of_step(run, order[k], &totals);
        rlki_times_part(run, order[k]);
    }
    if (rc) {
        if (detail)
            *detail = run->x.detail;
        return rc;
    }
    rlki_times_tell(run);
    if (facts)
        fill_facts(run, run->step, facts);
    run->step++;
    return 0;
}

int rlk_train_params(const struct rlk_train *run)
{
    return run->params;
}

struct rlk_param_info rlk_train_param(const struct rlk_train *run, int p)
{
    return (struct rlk_param_info){run->param[p].name, run->param[p].rows, run->param[p].cols, run->param[p].ndim};
}

int rlk_train_copy(struct rlk_train *run, enum rlk_train_kind kind, int p, void *out, struct rlk_kdetail *detail)
{
    const struct rlki_ptrs *set = kind == RLK_TRAIN_WEIGHT    ? run->weight
                                  : kind == RLK_TRAIN_MASTER  ? run->master
                                  : kind == RLK_TRAIN_ROLLOUT ? run->rweight
                                                              : run->grad;
    const struct rlk_world *w = kind == RLK_TRAIN_ROLLOUT ? &run->roll : &run->train;
    const enum rlk_ktype type = kind == RLK_TRAIN_WEIGHT || kind == RLK_TRAIN_ROLLOUT ? T : F;
    const int rc = rlki_param_join(run, w, &run->param[p], type, &set[p], out);
    if (rc && detail)
        *detail = run->x.detail;
    return rc;
}
