/* autotune.c - a tuner chose another configuration of the same kernel.
 *
 * Rule      a paired launch of one kernel and image carries another configuration hash.
 * Evidence  how many configurations the ranks of each side run, and whether a side changes its own from run to run.
 * Excludes  atomic-order and race as the first cause, as kernel_differs.c does.
 * Next      pin the configuration, or share the tuner's cache.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

/* Configurations of the first launch over the ranks on which the difference stands. */
static int over_ranks(struct rlki_facts *f, int side, uint32_t *configs, uint32_t *ranks)
{
    const struct rlki_found *found = f->found;
    struct rlk_arena arena = {0};
    struct rlki_hash seen = {0};
    int rc = RLK_OK;
    *ranks = 0;
    for (size_t i = 0; i < found->nat && i < 1024 && rc == RLK_OK; i++) {
        const struct rlki_at *at = &found->at[i];
        struct rlki_ev ev;
        if (at->in_b || !at->has_mate)
            continue;
        rlk_arena_reset(&arena);
        rc = rlki_ev_load(f->audit, side, side ? at->mate_env : at->env, side ? at->mate_seq : at->seq, &arena, &ev);
        if (rc || !ev.e.nlaunches)
            continue;
        rlki_hash_put(&seen, rlki_names_id(&f->audit->names, ev.e.launches[0].config) + 1u, 1);
        ++*ranks;
    }
    *configs = (uint32_t)seen.n;
    if (seen.failed)
        rc = RLK_ENOMEM;
    rlki_hash_release(&seen);
    rlk_arena_release(&arena);
    return rc;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_launches *l = &f->launches;
    bool any = false;
    if (!f->output || !f->same_event)
        return RLK_OK;
    for (uint32_t i = 0; i < l->n[0]; i++) {
        if (l->pair[i] == UINT32_MAX)
            continue;
        const struct rlk_launch *x = l->launch[0][i], *y = l->launch[1][l->pair[i]];
        if (!rlki_same_text(x->kernel, y->kernel) || !rlki_same_text(x->image, y->image) ||
            rlki_same_text(x->config, y->config))
            continue;
        rlki_holds(o, RLKI_M_AUTOTUNE, RLKI_SHOWS, "kernel %.120s: another tuned configuration: %.40s in A, %.40s in B",
                   x->kernel, x->config, y->config);
        any = true;
    }
    if (!any)
        return RLK_OK;
    uint32_t configs[2], ranks[2];
    for (int s = 0; s < 2; s++) {
        int rc = over_ranks(f, s, &configs[s], &ranks[s]);
        if (rc)
            return rc;
    }
    if (ranks[0] > 1)
        rlki_holds(o, RLKI_M_AUTOTUNE, RLKI_SHOWS, "%u configurations on %u ranks in A, %u on %u in B", configs[0],
                   ranks[0], configs[1], ranks[1]);
    for (int s = 0; s < 2; s++)
        if (f->repeat[s] == RLKI_REPEAT_VARIES && f->audit->repeats[s].n)
            rlki_holds(o, RLKI_M_AUTOTUNE, RLKI_SHOWS, "%c does not repeat itself here either, %c %s", s ? 'B' : 'A',
                       s ? 'A' : 'B',
                       f->repeat[1 - s] == RLKI_REPEAT_STEADY   ? "does"
                       : f->repeat[1 - s] == RLKI_REPEAT_VARIES ? "neither"
                                                                : "was not repeated");
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides ran other configurations of the kernel");
    rlki_excludes(o, RLKI_M_RACE, "the two sides ran other configurations of the kernel");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_autotune = {
    RLKI_M_AUTOTUNE,
    "pin the configuration, or give every rank and run the same tuner cache (TRITON_CACHE_DIR, "
    "TORCHINDUCTOR_CACHE_DIR), filled once before the run",
    look};
