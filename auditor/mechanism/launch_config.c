/* launch_config.c - the same kernel was launched in another way, or the operator was told to work in another way.
 *
 * Rule      grid, block, cluster or shared memory of a paired launch of one kernel, image and tuned configuration
 *           differs; or an attribute of the operator or of the launch that sets how work is cut (splits, tiles, warps).
 * Excludes  atomic-order and race as the first cause, as kernel_differs.c does.
 * Next      the value that chooses the configuration.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <string.h>

static void attr_text(char *out, size_t size, const struct rlk_attr *x)
{
    if (x->type == RLK_ATTR_INT)
        snprintf(out, size, "%lld", (long long)x->i);
    else if (x->type == RLK_ATTR_DOUBLE)
        snprintf(out, size, "%.17g", x->d);
    else
        snprintf(out, size, "%.60s", x->s ? x->s : "");
}

static bool any_of(const char *key, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(key, words[i]))
            return true;
    return false;
}

/* What an attribute of this name speaks about. The recorder's own are few, a program may give any. */
static enum rlki_class class_of(const char *key, enum rlki_hold *hold)
{
    static const char *const dtype[] = {"dtype", "precision", "accum", "tf32"};
    static const char *const meaning[] = {"temperature", "top_p",   "top_k",         "logprob", "causal",
                                          "window",      "softcap", "softmax_scale", "eps",     "reduction",
                                          "smoothing",   "rope",    "theta",         "clip"};
    static const char *const work[] = {"split",    "tile",    "block",  "warps",     "stages", "workspace", "chunk",
                                       "num_ctas", "cluster", "unroll", "partition", "kv_len", "page"};
    static const char *const random[] = {"seed", "philox", "rng"};
    *hold = RLKI_SHOWS;
    if (any_of(key, random, sizeof random / sizeof *random))
        return RLKI_CLASSES; /* root.c judges the generator */
    if (any_of(key, dtype, sizeof dtype / sizeof *dtype))
        return RLKI_M_DTYPE;
    if (any_of(key, meaning, sizeof meaning / sizeof *meaning))
        return RLKI_M_SEMANTICS;
    if (any_of(key, work, sizeof work / sizeof *work))
        return RLKI_M_LAUNCH_CONFIG;
    *hold = RLKI_POINTS;
    return RLKI_M_LAUNCH_CONFIG;
}

static void attributes(struct rlki_opinion *o, bool collective, const char *what, const struct rlk_attr *a, uint32_t na,
                       const struct rlk_attr *b, uint32_t nb)
{
    for (uint32_t i = 0; i < na && i < 64; i++)
        for (uint32_t k = 0; k < nb && k < 64; k++) {
            char x[80], y[80];
            enum rlki_hold hold;
            if (!rlki_same_text(a[i].key, b[k].key))
                continue;
            attr_text(x, sizeof x, &a[i]);
            attr_text(y, sizeof y, &b[k]);
            if (a[i].type == b[k].type && strcmp(x, y) == 0)
                continue;
            enum rlki_class class = class_of(a[i].key, &hold);
            if (class == RLKI_CLASSES || (collective && class == RLKI_M_LAUNCH_CONFIG))
                rlki_remark(o, "%s %.60s: %s in A, %s in B", what, a[i].key, x, y);
            else
                rlki_holds(o, class, hold, "%s %.60s: %s in A, %s in B", what, a[i].key, x, y);
        }
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
        if (!rlki_same_text(x->kernel, y->kernel) || !rlki_same_text(x->image, y->image))
            continue;
        attributes(o, false, "launch attribute", x->attrs, x->nattrs, y->attrs, y->nattrs);
        if (!rlki_same_text(x->config, y->config) || rlki_launch_same_shape(x, y))
            continue;
        rlki_holds(
            o, RLKI_M_LAUNCH_CONFIG, RLKI_SHOWS,
            "kernel %.120s: grid %ux%ux%u block %ux%ux%u smem %u in A, grid %ux%ux%u block %ux%ux%u smem %u in B",
            x->kernel, x->grid[0], x->grid[1], x->grid[2], x->block[0], x->block[1], x->block[2], x->smem, y->grid[0],
            y->grid[1], y->grid[2], y->block[0], y->block[1], y->block[2], y->smem);
        any = true;
    }
    attributes(o, f->ev[0].e.kind == RLK_EV_COLLECTIVE, "attribute", f->ev[0].e.attrs, f->ev[0].e.nattrs,
               f->ev[1].e.attrs, f->ev[1].e.nattrs);
    if (any) {
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
