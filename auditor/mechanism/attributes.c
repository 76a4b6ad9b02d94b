/* attributes.c - attributes of the two operators, or of their launches, that differ, and which class they speak for. */
#include "auditor/mechanism/mechanism.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool rlki_has_word(const char *text, const char *word)
{
    for (; text && *text; text++) {
        size_t n = 0;
        while (word[n] && tolower((unsigned char)text[n]) == word[n])
            n++;
        if (!word[n])
            return true;
    }
    return false;
}

bool rlki_has_any(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rlki_has_word(text, words[i]))
            return true;
    return false;
}

static void attr_text(char *out, size_t size, const struct rlk_attr *x)
{
    if (x->type == RLK_ATTR_INT)
        snprintf(out, size, "%lld", (long long)x->i);
    else if (x->type == RLK_ATTR_DOUBLE)
        snprintf(out, size, "%.17g", x->d);
    else
        snprintf(out, size, "%.60s", x->s ? x->s : "");
}

/* What an attribute of this name speaks about. The recorder's own are few, a program may give any.
 * RLKI_CLASSES: nothing by itself. */
static enum rlki_class class_of(const char *key, enum rlki_hold *hold)
{
    static const struct {
        enum rlki_class class;
        enum rlki_hold hold;
        const char *words[16];
    } table[] = {
        {RLKI_CLASSES, RLKI_SILENT, {"seed", "philox", "rng", "determin", "stream", "bytes"}},
        {RLKI_M_VERSION_LABEL, RLKI_POINTS, {"policy_version", "weight_version", "version"}},
        {RLKI_M_DTYPE, RLKI_SHOWS, {"dtype", "precision", "accum", "tf32"}},
        {RLKI_M_SEMANTICS,
         RLKI_SHOWS,
         {"temperature", "top_p", "top_k", "logprob", "causal", "window", "softcap", "softmax_scale", "eps",
          "reduction", "smoothing", "theta", "clip", "interleaved"}},
        {RLKI_M_LAUNCH_CONFIG,
         RLKI_SHOWS,
         {"split", "tile", "block", "warps", "stages", "workspace", "chunk", "num_ctas", "cluster", "unroll",
          "partition", "page"}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (size_t k = 0; k < 16 && table[i].words[k]; k++)
            if (rlki_has_word(key, table[i].words[k])) {
                *hold = table[i].hold;
                return table[i].class;
            }
    *hold = RLKI_POINTS;
    return RLKI_M_LAUNCH_CONFIG;
}

static void compare(struct rlki_opinion *o, bool collective, const char *what, const struct rlk_attr *a, uint32_t na,
                    const struct rlk_attr *b, uint32_t nb)
{
    for (uint32_t i = 0; i < na && i < 64; i++)
        for (uint32_t k = 0; k < nb && k < 64; k++) {
            char x[80], y[80];
            enum rlki_hold hold;
            /* `combines`: which ranks an operator reads is of the layout, not of how it computes. */
            if (!rlki_same_text(a[i].key, b[k].key) || rlki_same_text(a[i].key, "combines"))
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

/* Both sides asked for determinism, and did not get it. */
static void promised(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_event *a = &f->ev[0].e;
    for (uint32_t i = 0; i < a->nattrs && rlki_varies(f); i++)
        if (rlki_has_word(a->attrs[i].key, "determin") && a->attrs[i].type == RLK_ATTR_INT && a->attrs[i].i)
            rlki_remark(o, "%.60s=%lld was asked for, and %s does not repeat itself", a->attrs[i].key,
                        (long long)a->attrs[i].i, rlki_who_varies(f));
}

void rlki_attributes(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_launch *x, *y;
    if (!f->output || !f->same_event)
        return;
    for (uint32_t i = 0; i < f->launches.n[0]; i++)
        if (rlki_launch_pair(f, i, &x, &y) && rlki_same_text(x->kernel, y->kernel))
            compare(o, false, "launch attribute", x->attrs, x->nattrs, y->attrs, y->nattrs);
    compare(o, f->ev[0].e.kind == RLK_EV_COLLECTIVE, "attribute", f->ev[0].e.attrs, f->ev[0].e.nattrs, f->ev[1].e.attrs,
            f->ev[1].e.nattrs);
    promised(f, o);
}
