/* launch_config.c - the same kernel was launched in another way.
 *
 * Rule      grid, block, cluster or shared memory of a paired launch of one kernel, image and tuned configuration
 *           differs. (attributes.c adds attributes that set how work is cut: splits, tiles, warps.)
 * Evidence  both launches.
 * Excludes  atomic-order and race, as kernel_differs.c does.
 * Next      the value that chooses the configuration.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_launch *x, *y;
    const bool varies = rlki_varies(f);
    bool any = false;
    if (!f->output || !f->same_event)
        return RLK_OK;
    for (uint32_t i = 0; i < f->launches.n[0]; i++) {
        if (!rlki_launch_pair(f, i, &x, &y) || !rlki_same_text(x->kernel, y->kernel) ||
            !rlki_same_text(x->image, y->image) || !rlki_same_text(x->config, y->config) ||
            rlki_launch_same_shape(x, y))
            continue;
        rlki_holds(
            o, RLKI_M_LAUNCH_CONFIG, varies ? RLKI_OPEN : RLKI_SHOWS,
            "kernel %.120s: grid %ux%ux%u block %ux%ux%u smem %u in A, grid %ux%ux%u block %ux%ux%u smem %u in B",
            x->kernel, x->grid[0], x->grid[1], x->grid[2], x->block[0], x->block[1], x->block[2], x->smem, y->grid[0],
            y->grid[1], y->grid[2], y->block[0], y->block[1], y->block[2], y->smem);
        any = true;
    }
    if (any && !varies) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides launched the kernel in other ways");
        rlki_excludes(o, RLKI_M_RACE, "the two sides launched the kernel in other ways");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_launch_config = {RLKI_M_LAUNCH_CONFIG,
                                                       "find what chooses the configuration (number of tokens, batch, "
                                                       "environment) and pin it on both sides; rlkaudit explain "
                                                       "A B lists all launches",
                                                       look};
