/* replay.c - the loop over the instructions of a program. */
#include "replayer/machine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nobody's program needs more than the machine has: a hostile size fails at once. */
static size_t memory_of_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : (size_t)1 << 34;
}

static int fail(const struct rlk_train *run, int rc, struct rlk_detail *detail)
{
    return rlk_fail(detail, rc, "%s", run->x.detail.text[0] ? run->x.detail.text : "the replay failed");
}

static int open_machine(struct rlki_machine *m)
{
    const struct rlk_replay_options *o = m->opt;
    struct rlk_train *run = m->run;
    struct rlk_lattice lat;
    rlk_train_options_init(&run->opt);
    run->opt.device = o->device;
    run->opt.threads = o->threads;
    run->opt.tp = o->tp;
    run->opt.cp = o->cp;
    run->opt.rollout_tp = o->rollout_tp ? o->rollout_tp : o->tp;
    run->opt.rollout_cp = o->rollout_tp ? o->rollout_cp : 1;
    run->opt.modes = o->modes;
    memcpy(run->opt.mode, o->mode, sizeof run->opt.mode);
    run->opt.plant = o->plant;
    run->rec.program = m->program->text;
    if (o->contract && strcmp(o->contract, "portable/1") != 0)
        return rlk_kfail(&run->x.detail, RLK_K_EUNSUPPORTED, "contract class %.60s is not built, use portable/1",
                         o->contract);
    int rc = rlk_lattice_init(&lat, run->opt.tp, run->opt.cp, &run->x.detail);
    if (!rc)
        rc = rlk_lattice_init(&lat, run->opt.rollout_tp, run->opt.rollout_cp, &run->x.detail);
    if (!rc && run->opt.rollout_cp != 1)
        rc = rlk_kfail(&run->x.detail, RLK_K_EUNSUPPORTED,
                       "rollout layout tp%dcp%d: decode holds whole sequences, use cp1", run->opt.rollout_tp,
                       run->opt.rollout_cp);
    if (!rc && o->plant && strcmp(o->plant, "stale-shard") == 0)
        rc = rlk_kfail(&run->x.detail, RLK_K_EUNSUPPORTED, "stale-shard is a fault of rlktrain only");
    if (!rc)
        rc = rlki_run_open(run);
    if (!rc) {
        m->value = calloc((size_t)m->program->values + 1, sizeof *m->value);
        m->provider = rlk_policy_new();
        rc = m->value && m->provider ? rlki_find_vocab(m) : RLK_K_ENOMEM;
        if (rc)
            rlki_fail_memory(run, "the program");
    }
    return rc ? rc : rlk_policy_mode(m->provider, "off", &run->x.detail);
}

static void spans(struct rlki_machine *m, const struct rlk_identity *w)
{
    struct rlk_train *run = m->run;
    const bool first = !m->begun;
    if (first || m->step != w->step) {
        rlki_rec_step(run, w->step);
        m->totals = (struct rlki_totals){0};
        m->have_metrics = false;
    }
    if (first || m->phase != w->phase)
        rlki_rec_phase(run, w->phase);
    if (first || m->work != w->work || m->iteration != w->iteration)
        rlki_rec_work(run, w->work, w->iteration);
    if (first || m->pass != w->pass)
        rlki_rec_pass(run, w->pass);
    run->step = w->step;
    m->begun = true;
    m->step = w->step;
    m->phase = w->phase;
    m->work = w->work;
    m->iteration = w->iteration;
    m->pass = w->pass;
}

static void execute(struct rlki_exec *x)
{
    struct rlki_machine *m = x->m;
    struct rlk_train *run = m->run;
    const struct rlki_runs_now *now = &m->now;
    const bool recompute = strcmp(x->in->e.who.pass, "recompute") == 0;
    x->run = run;
    x->w = rlki_side_world(m, x->in->side);
    x->b = now->instr != RLKI_NO_VALUE && now->side == x->in->side && now->instr == x->in->batch ? now->batch : NULL;
    spans(m, &x->in->e.who);
    run->rec.muted = !x->in->wanted || !x->recorded;
    run->rec.extras = run->rec.attrs = 0;
    run->in_rollout = x->in->side != RLKI_SIDE_TRAINER;
    run->micro = x->b && !run->in_rollout ? &m->micro : NULL;
    rlk_policy_side(run->policy, run->in_rollout ? RLK_SIDE_ROLLOUT : RLK_SIDE_TRAINING);
    run->x.policy = x->in->provider && m->opt->as_recorded ? m->provider : rlki_plant_policy(run, recompute);
    if (run->micro && run->plant.which >= 0)
        rlki_micro_of(x, NULL);
    const rlki_operator op = rlki_find_operator(&x->in->e);
    if (!op)
        rlki_not_replayable(x, "no operator here has this name");
    if (!x->rc && x->in->e.kind == RLK_EV_OP && !rlki_find_own_operator(&x->in->e) &&
        strcmp(x->in->e.who.op, "rlk.attention.append") != 0)
        rlki_attrs_again(x); /* an operator of kernels/ announces itself */
    if (!x->rc)
        op(x);
}

static int step(struct rlki_machine *m, uint32_t i, struct rlk_replay_outcome *outcome, struct rlk_detail *detail)
{
    struct rlki_instr *in = &m->program->instr[i];
    struct rlki_exec x = {.m = m, .in = in, .at = i, .key = i ? 0 : 1};
    if (in->why && !m->opt->partial)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "%.100s at %.100s: %.100s", in->e.who.op, in->e.who.module, in->why);
    if (in->why) {
        x.rc = RLK_K_EUNSUPPORTED;
        x.why = in->why;
    } else {
        x.recorded = !m->opt->alone || rlki_alone_inputs(m, in);
        execute(&x);
        if (!x.rc && m->opt->alone)
            x.rc = rlki_alone_outputs(&x, x.recorded);
    }
    rlki_use_done(m, i);
    if (!x.rc) {
        outcome->executed++;
        outcome->announced += in->wanted && x.recorded;
        return 0;
    }
    if (x.why && m->opt->partial) {
        for (uint32_t k = 0; k < in->outputs; k++)
            rlki_value_drop(m, in->first_value + k);
        outcome->left_out++;
        return 0;
    }
    return x.why ? rlk_fail(detail, RLK_EUNSUPPORTED, "%.100s at %.100s: %.150s", in->e.who.op, in->e.who.module, x.why)
                 : fail(m->run, x.rc, detail);
}

int rlk_replay_run(struct rlk_program *p, const struct rlk_replay_options *o, struct rlk_replay_outcome *outcome,
                   struct rlk_detail *detail)
{
    struct rlki_machine m = {.program = p, .opt = o, .most = memory_of_machine()};
    uint64_t total = 0, done = 0;
    *outcome = (struct rlk_replay_outcome){0};
    m.now.instr = RLKI_NO_VALUE;
    m.run = calloc(1, sizeof *m.run);
    if (!m.run)
        return rlk_fail(detail, RLK_ENOMEM, "a replay");
    int rc = open_machine(&m);
    if (rc)
        rc = fail(m.run, rc, detail);
    for (uint32_t i = 0; i < p->n; i++)
        total += p->instr[i].needed;
    for (uint32_t i = 0; !rc && i < p->n; i++) {
        if (!p->instr[i].needed)
            continue;
        rc = step(&m, i, outcome, detail);
        if (o->progress && (++done & 63) == 0)
            o->progress(o->context, done, total);
    }
    if (m.run->x.prims)
        rlki_machine_free(&m);
    m.run->rec.program = NULL;
    rlk_train_free(m.run);
    return rc;
}
