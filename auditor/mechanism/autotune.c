/* autotune.c - a tuner chose another configuration of the same kernel.
 *
 * Rule      a paired launch of one kernel and image carries another configuration hash - it shows.
 * Evidence  how many configurations the ranks of each side run; how many tuned operators of the step have ranks that
 *           disagree; which side repeats itself.
 * Excludes  atomic-order and race, as kernel_differs.c does.
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
    for (size_t i = 0; i < found->nat && i < RLKI_RANKS_MAX && rc == RLK_OK; i++) {
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

/* ---- the step's tuned operators ---- */

#define TUNED_MAX (UINT64_C(1) << 20) /* events of a step and side that are looked at */

struct tuned {
    struct rlki_facts *f;
    int64_t step;
    struct rlki_hash config; /* operator, without rank -> hash of its configuration + 1 */
    struct rlki_hash split;  /* operators whose ranks disagree */
    uint64_t n, split_n;
};

static int visit(void *context, const struct rlk_event *e)
{
    struct tuned *t = context;
    struct rlki_audit *audit = t->f->audit;
    uint64_t before;
    if (e->kind != RLK_EV_OP || e->autotune || e->who.step != t->step || !e->nlaunches || !e->launches[0].config ||
        !*e->launches[0].config)
        return 0;
    uint64_t key =
        rlki_mix(rlki_mix(103, rlki_names_id(&audit->names, e->who.module)), rlki_names_id(&audit->names, e->who.op));
    key = rlki_mix(rlki_mix(rlki_mix(key, rlki_names_id(&audit->names, e->who.pass)), e->who.call), e->who.occurrence);
    key = rlki_mix(rlki_mix(key, (uint64_t)e->who.work), rlki_names_id(&audit->names, e->who.phase));
    uint64_t config = rlki_names_id(&audit->names, e->launches[0].config);
    if (!rlki_hash_get(&t->config, key, &before)) {
        rlki_hash_put(&t->config, key, config);
        t->n++;
    } else if (before != config && rlki_hash_put(&t->split, key, 1)) {
        t->split_n++;
    }
    return 0;
}

/* Says of the step of the first such difference how many tuned operators have ranks that disagree. */
static int table(struct rlki_facts *f, struct rlki_opinion *o)
{
    for (int s = 0; s < 2; s++) {
        struct rlki_side *side = &f->audit->side[s];
        struct tuned t = {.f = f, .step = f->found->step};
        uint64_t events = 0;
        int rc = RLK_OK;
        for (size_t i = 0; i < side->ntotals; i++)
            events += side->totals[i].step == t.step ? side->totals[i].events : 0;
        if (side->nranks < 2 || events > TUNED_MAX)
            return RLK_OK;
        for (uint32_t r = 0; r < side->nranks && rc == RLK_OK; r++) {
            struct rlki_nodes nodes = {0};
            rc = rlki_side_nodes(side, t.step, side->ranks[r], &nodes, f->audit->detail);
            for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
                for (size_t k = 0; k < nodes.node[i].nspans && rc == RLK_OK; k++) {
                    const struct rlki_span *span = &nodes.node[i].spans[k];
                    rc = rlk_env_scan(side->env[span->env].env, span->first, span->first + span->count, visit, &t,
                                      f->audit->detail);
                }
            rlki_nodes_release(&nodes);
        }
        if (rc == RLK_OK && (t.config.failed || t.split.failed))
            rc = RLK_ENOMEM;
        if (rc == RLK_OK && t.split_n)
            rlki_holds(
                o, RLKI_M_AUTOTUNE, RLKI_POINTS,
                "%llu of %llu tuned operators of step %lld run other configurations on some ranks than on others in %c",
                (unsigned long long)t.split_n, (unsigned long long)t.n, (long long)t.step, s ? 'B' : 'A');
        rlki_hash_release(&t.config);
        rlki_hash_release(&t.split);
        if (rc)
            return rc;
    }
    return RLK_OK;
}

static const char *repeats_of(enum rlki_repeat repeat)
{
    return repeat == RLKI_REPEAT_STEADY    ? "repeats itself here"
           : repeat == RLKI_REPEAT_RETUNED ? "is tuned anew in each run and does not repeat itself"
           : repeat == RLKI_REPEAT_VARIES  ? "does not repeat itself, with one configuration"
                                           : "was not repeated";
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_launch *x, *y;
    const bool varies = rlki_varies(f);
    uint32_t configs[2], ranks[2];
    bool any = false;
    if (!f->output || !f->same_event)
        return RLK_OK;
    for (uint32_t i = 0; i < f->launches.n[0]; i++) {
        if (!rlki_launch_pair(f, i, &x, &y) || !rlki_same_text(x->kernel, y->kernel) ||
            !rlki_same_text(x->image, y->image) || rlki_same_text(x->config, y->config))
            continue;
        rlki_holds(o, RLKI_M_AUTOTUNE, varies ? RLKI_OPEN : RLKI_SHOWS,
                   "kernel %.120s: another tuned config: %.40s in A, %.40s in B", x->kernel, x->config, y->config);
        any = true;
    }
    if (!any)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = over_ranks(f, s, &configs[s], &ranks[s]);
        if (rc)
            return rc;
    }
    if (ranks[0] > 1)
        rlki_holds(o, RLKI_M_AUTOTUNE, RLKI_OPEN, "%u configurations on %u ranks in A, %u on %u in B", configs[0],
                   ranks[0], configs[1], ranks[1]);
    if (f->repeat[0] || f->repeat[1])
        rlki_holds(o, RLKI_M_AUTOTUNE, RLKI_OPEN, "A %s, B %s", repeats_of(f->repeat[0]), repeats_of(f->repeat[1]));
    if (!f->audit->tuned_told) {
        f->audit->tuned_told = true;
        int rc = table(f, o);
        if (rc)
            return rc;
    }
    if (varies)
        return RLK_OK;
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides ran other configurations of the kernel");
    rlki_excludes(o, RLKI_M_RACE, "the two sides ran other configurations of the kernel");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_autotune = {
    RLKI_M_AUTOTUNE,
    "pin the configuration, or give every rank and run the same tuner cache (TRITON_CACHE_DIR, "
    "TORCHINDUCTOR_CACHE_DIR), filled once before the run",
    look};
