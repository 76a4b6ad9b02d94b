/* operators_regroup.c - kept log-probabilities of one packing dealt out to a micro-batch of another. */
#include "replayer/machine.h"

#include <stdlib.h>
#include <string.h>

/* Input k into the samples (which: 0 ref, 1 old), and the batch that it is of. */
static void gather(struct rlki_exec *x, uint32_t k, int which, struct rlk_batch **batch)
{
    struct rlki_machine *m = x->m;
    const struct rlk_program *p = m->program;
    const uint32_t v = p->input[x->in->first_input + k];
    const struct rlki_value *value = v == RLKI_NO_VALUE ? NULL : &m->value[v];
    const uint32_t from = value && value->buffer ? p->instr[p->maker[v]].batch : RLKI_NO_VALUE;
    if (from == RLKI_NO_VALUE) {
        rlki_not_replayable(x, "an input was left out");
        return;
    }
    const struct rlki_form *f = &value->form;
    const int64_t samples = m->now.samples;
    struct rlki_runs_now here = m->now;
    struct rlki_micro micro = m->micro;
    m->now = (struct rlki_runs_now){.side = x->in->side};
    m->micro = (struct rlki_micro){0};
    if (rlki_batch_read(x, &p->instr[from].e, &m->now)) {
        if (m->now.samples != samples || f->shape != RLKI_TOKENS_BY || f->type != RLK_K_FP32 || f->width != 1 ||
            f->slab || f->side != x->in->side || !rlk_u128_equal(f->batch, m->now.id))
            rlki_not_replayable(x, "an input has another shape than its operator reads");
        else if (rlki_take_lengths(x) && !rlki_micro_of(x, NULL))
            x->rc = rlki_micro_store(x->run, &m->micro, &value->buffer->at, which);
    }
    *batch = m->now.batch;
    free(m->now.row);
    m->micro.batch = NULL;
    rlki_micro_free(x->run, &m->micro);
    m->now = here;
    m->micro = micro;
}

static void deal(struct rlki_exec *x, int which, const struct rlki_ptrs *to)
{
    const struct rlki_micro *m = &x->m->micro;
    float *host = malloc(((size_t)m->tokens + 1) * sizeof *host);
    if (!host)
        rlki_no_memory(x, x->in->e.who.op);
    for (int i = 0; !x->rc && i < x->w->held; i++) {
        const int cp = rlk_world_cp(x->w, i);
        const int64_t n = rlk_batch_local(m->batch, cp);
        const int32_t *map = rlk_batch_map(m->batch, cp);
        for (int64_t k = 0; k < n; k++) {
            const struct rlki_sample *s = &x->run->sample[m->owner[map[k]]];
            const int32_t at = m->at[map[k]];
            host[k] = at < 0 ? 0.0f : which ? s->old[at] : s->ref[at];
        }
        x->rc = n ? rlk_exec_upload(&x->run->x, to->p[i], host, (size_t)n * sizeof *host) : 0;
        if (!x->rc)
            x->rc = rlk_exec_sync(&x->run->x);
    }
    free(host);
}

void rlki_do_regroup(struct rlki_exec *x)
{
    const uint32_t n = x->in->inputs;
    const char *name = x->in->outputs == 1 ? x->in->e.tensors[n].name : "";
    const int which = strcmp(name, "ref_logp") == 0 ? 0 : strcmp(name, "old_logp") == 0 ? 1 : -1;
    if (which < 0 || !n || !x->b || !x->run->sample) {
        rlki_not_replayable(x, "it is not log-probabilities of samples");
        return;
    }
    struct rlk_batch **batch = calloc(n, sizeof *batch);
    if (!batch)
        rlki_no_memory(x, x->in->e.who.op);
    for (uint32_t k = 0; !x->rc && k < n; k++)
        gather(x, k, which, &batch[k]);
    struct rlki_ptrs *to = x->rc ? NULL : rlki_tokens_out(x, name, RLK_K_FP32, 1, false);
    if (to && rlki_take_lengths(x) && !rlki_micro_of(x, NULL))
        deal(x, which, to);
    x->batch_of = (const struct rlk_batch *const *)batch;
    rlki_own_begin(x);
    rlki_own_end(x);
    x->batch_of = NULL;
    for (uint32_t k = 0; batch && k < n; k++)
        rlk_batch_free(&x->run->x, batch[k]);
    free(batch);
}
