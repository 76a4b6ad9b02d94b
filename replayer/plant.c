/* plant.c - faults, so that it can be seen whether they are found.
 *
 * Most of them are an operator that claims its contract and computes something else: the listener takes note of the
 * inputs of the call, and overwrites the outputs before they are recorded and before anybody reads them. All of them
 * act on the training side, from step 0 on, in layer 0.
 */
#include "replayer/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault {
    RANK_ORDER,
    RING_ATTENTION,
    DX_SHARD,
    WGRAD_CP,
    VOCAB_SLAB,
    STALE_SHARD,
    ZIGZAG_MAP,
    RECOMPUTE_PROVIDER,
    MODE_OFF,
    VOCAB_BATCH,
};

#define ATTENTION "model.layers.0.self_attn"

/* op NULL: not an operator that is overwritten. */
static const struct {
    const char *name, *help, *op, *pass, *module;
} faults[] = {
    {"rank-order", "o_proj is summed over TP in rank order, not as a tree (shows at tp4, tp8)", "rlk.gemm.row", "fwd",
     ATTENTION ".o_proj"},
    {"ring-attention", "attention merges the keys of CP ranks as they come round a ring (cp2 and more)",
     "rlk.attention.deterministic", "fwd", ATTENTION},
    {"dx-shard", "dX of q, k, v is rounded at the width of the physical shard (tp2 and more)", "rlk.gemm.column", "bwd",
     ATTENTION ".qkv"},
    {"wgrad-cp", "the gradient of q_proj is summed over CP shards, in rank order", "rlk.gemm.dw", "bwd",
     ATTENTION ".q_proj"},
    {"vocab-slab", "log-probabilities are reduced over physical slabs of the vocabulary (shows below tp8)",
     "rlk.linear_logp.bitwise", "fwd", "lm_head"},
    {"stale-shard", "the last rollout rank keeps its shard of down_proj when weights are updated", NULL, NULL, NULL},
    {"zigzag-map", "rotary positions of q by the zigzag map of twice the CP size (sequences above 32 tokens)",
     "rlk.rope", "fwd", ATTENTION ".rotary_q"},
    {"recompute-provider", "the mlp is recomputed by the provider row", NULL, NULL, NULL},
    {"mode-off", "attention is the provider's, forward and backward, in rollout and training", NULL, NULL, NULL},
    {"vocab-batch", "as vocab-slab, in micro-batches of more than two samples only", "rlk.linear_logp.bitwise", "fwd",
     "lm_head"},
};
#define NFAULTS ((int)(sizeof faults / sizeof faults[0]))

const char *rlk_plant_name(int n)
{
    return n >= 0 && n < NFAULTS ? faults[n].name : NULL;
}

const char *rlk_plant_help(int n)
{
    return n >= 0 && n < NFAULTS ? faults[n].help : NULL;
}

int rlki_plant_init(struct rlk_train *run)
{
    struct rlki_plant *p = &run->plant;
    int rc = 0;
    p->which = -1;
    if (!run->opt.plant)
        return 0;
    for (int i = 0; i < NFAULTS; i++)
        if (strcmp(faults[i].name, run->opt.plant) == 0)
            p->which = i;
    if (p->which < 0)
        return rlk_kfail(&run->x.detail, RLK_K_EINVAL, "%.80s: no such fault; --plant help lists them", run->opt.plant);
    if (p->which == MODE_OFF)
        return rlk_policy_ablate(run->policy, "boundary:" ATTENTION, &run->x.detail);
    if (p->which == RECOMPUTE_PROVIDER) {
        p->other = rlk_policy_new();
        if (!p->other)
            return rlki_fail_memory(run, "a policy");
        for (int i = 0; !rc && i < run->opt.modes; i++)
            rc = rlk_policy_mode(p->other, run->opt.mode[i], &run->x.detail);
        if (!rc)
            rc = rlk_policy_ablate(p->other, "boundary:model.layers.0.mlp", &run->x.detail);
    }
    return rc;
}

static void forget(struct rlki_plant *p)
{
    for (int k = 0; k < p->inputs; k++)
        for (int i = 0; i < RLKI_RANKS; i++) {
            free(p->in[k].at[i].copy);
            p->in[k].at[i].copy = NULL;
        }
    p->inputs = 0;
    p->first_logp = NULL;
}

void rlki_plant_release(struct rlk_train *run)
{
    forget(&run->plant);
    rlk_policy_free(run->plant.other);
    run->plant.other = NULL;
    free(run->plant.rope);
    run->plant.rope = NULL;
}

void rlki_plant_begin(struct rlk_train *run, const struct rlk_op_event *event)
{
    struct rlki_plant *p = &run->plant;
    if (p->which < 0 || !faults[p->which].op || event->call == p->call)
        return;
    forget(p);
    p->call = event->call;
    p->armed = !run->in_rollout && run->micro && strcmp(event->op, faults[p->which].op) == 0 &&
               strcmp(event->pass, faults[p->which].pass) == 0 && strcmp(event->module, faults[p->which].module) == 0;
    /* Later micro-batches add to a gradient that is no longer known. */
    if (p->which == WGRAD_CP && p->armed && run->micro->first != 0)
        p->armed = false;
    if (p->which == VOCAB_BATCH && p->armed && run->micro->count <= 2)
        p->armed = false;
}

const struct rlki_local *rlki_plant_input(const struct rlk_train *run, const char *name, int rank)
{
    for (int k = 0; k < run->plant.inputs; k++)
        if (strcmp(run->plant.in[k].name, name) == 0)
            return &run->plant.in[k].at[rank];
    return NULL;
}

/* The faulty operators compute on the host: bytes that lie on a device are fetched, and put back. */
static void *fetched(struct rlk_train *run, const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (copy && rlk_exec_download(&run->x, copy, data, bytes)) {
        free(copy);
        copy = NULL;
    }
    return copy;
}

const float *rlki_plant_rope(struct rlk_train *run)
{
    struct rlki_plant *p = &run->plant;
    if (run->x.device == RLK_DEVICE_CPU)
        return run->rope;
    if (!p->rope)
        p->rope = fetched(run, run->rope, (size_t)run->positions * (size_t)run->opt.model.head_dim * sizeof(float));
    return p->rope;
}

static void note(struct rlk_train *run, struct rlki_plant *p, const struct rlk_op_event *event,
                 const struct rlk_observed *t)
{
    struct rlki_noted *n = NULL;
    for (int k = 0; k < p->inputs; k++)
        if (strcmp(p->in[k].name, t->name) == 0)
            n = &p->in[k];
    if (!n) {
        if (p->inputs == 8)
            return;
        n = &p->in[p->inputs++];
        memset(n, 0, sizeof *n);
        snprintf(n->name, sizeof n->name, "%s", t->name);
        n->type = t->type;
        n->ndim = (int)t->at.ndim;
    }
    struct rlki_local *l = &n->at[event->rank];
    const struct rlk_span *span = t->at.spans;
    l->data = t->data;
    for (uint32_t d = 0; d < t->at.ndim && d < 4; d++) {
        l->n[d] = t->at.nspans[d] == RLK_K_WHOLE ? (int64_t)t->at.shape[d] : 0;
        for (uint32_t k = 0; t->at.nspans[d] != RLK_K_WHOLE && k < t->at.nspans[d]; k++)
            l->n[d] += (int64_t)(span++)->extent;
    }
    if ((p->which == ZIGZAG_MAP || run->x.device != RLK_DEVICE_CPU) && t->elements)
        l->copy = fetched(run, t->data, (size_t)t->elements * rlk_ktype_bytes(t->type));
    if (run->x.device != RLK_DEVICE_CPU)
        l->data = l->copy;
}

static bool have_inputs(const struct rlki_plant *p)
{
    for (int k = 0; k < p->inputs; k++)
        for (int i = 0; i < RLKI_RANKS; i++) {
            const struct rlki_local *l = &p->in[k].at[i];
            int64_t n = l->n[0];
            for (int d = 1; d < p->in[k].ndim && d < 4; d++)
                n *= l->n[d];
            if (n && !l->data)
                return false;
        }
    return true;
}

static void spoil(struct rlk_train *run, const struct rlk_op_event *event, const struct rlk_observed *t, void *out)
{
    switch ((enum fault)run->plant.which) {
    case RANK_ORDER:
        rlki_spoil_rank_order(run, event, out);
        break;
    case RING_ATTENTION:
        rlki_spoil_ring(run, event, out, strcmp(t->name, "lse") == 0);
        break;
    case DX_SHARD:
        rlki_spoil_dx(run, event, out);
        break;
    case WGRAD_CP:
        rlki_spoil_dw(run, event, out);
        break;
    case VOCAB_SLAB:
    case VOCAB_BATCH:
        rlki_spoil_vocab(run, event, out, strcmp(t->name, "stats") == 0);
        break;
    case ZIGZAG_MAP:
        rlki_spoil_zigzag(run, event, out);
        break;
    case STALE_SHARD:
    case RECOMPUTE_PROVIDER:
    case MODE_OFF:
        break;
    }
}

void rlki_plant_tensor(struct rlk_train *run, const struct rlk_op_event *event, const struct rlk_observed *t)
{
    struct rlki_plant *p = &run->plant;
    void *const out = (void *)(uintptr_t)t->data;
    if (p->which < 0 || !p->armed || event->call != p->call)
        return;
    if (!t->output) {
        note(run, p, event, t);
        return;
    }
    if (!t->elements || !have_inputs(p))
        return;
    if (run->x.device == RLK_DEVICE_CPU) {
        spoil(run, event, t, out);
        return;
    }
    const size_t bytes = (size_t)t->elements * rlk_ktype_bytes(t->type);
    void *copy = fetched(run, out, bytes);
    if (copy) {
        spoil(run, event, t, copy);
        if (rlk_exec_upload(&run->x, out, copy, bytes) == 0)
            (void)rlk_exec_sync(&run->x);
    }
    free(copy);
}

bool rlki_plant_stale(const struct rlk_train *run, int param, int rank)
{
    return run->plant.which == STALE_SHARD && param == rlki_layer_param(0, RLKI_DOWN) && rank == run->roll.held - 1;
}

struct rlk_policy *rlki_plant_policy(struct rlk_train *run, bool recompute)
{
    return recompute && run->plant.other ? run->plant.other : run->policy;
}
