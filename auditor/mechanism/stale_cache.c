/* stale_cache.c - a cache (KV, prefix, graph buffer) held what an earlier step, request or weight version left.
 *
 * Rule      an input that is a cache by its name is not what its producer wrote, or is read from another write than on
 *           the other side, or the two carry other version labels. It shows where what was read is what the buffer held
 *           before, or where its label is older; else it points.
 * Excludes  atomic-order: the input was old before the operator began.
 * Next      when the cache is dropped.
 */
#include "auditor/mechanism/mechanism.h"

static bool is_cache(const struct rlki_facts *f)
{
    static const char *const words[] = {"cache", "kv", "prefix", "past_key", "block_table", "slot_mapping"};
    return rlki_has_any(f->t[0]->name, words, sizeof words / sizeof *words);
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    char older[200];
    bool any = false;
    if (!f->both || f->output || !f->t[0] || !f->t[1] || !is_cache(f))
        return RLK_OK;
    const char *va = f->t[0]->version, *vb = f->t[1]->version;
    if (!rlki_same_text(va, vb)) {
        rlki_holds(o, RLKI_M_STALE_CACHE, RLKI_SHOWS, "the cache was written by version %.40s in A, %.40s in B",
                   va && *va ? va : "?", vb && *vb ? vb : "?");
        any = true;
    }
    for (int s = 0; s < 2; s++) {
        if (!f->producer[s].has || f->producer[s].kept != RLKI_NO)
            continue;
        int rc = rlki_older_content(f, s, older, sizeof older);
        if (rc)
            return rc;
        rlki_holds(o, RLKI_M_STALE_CACHE, *older ? RLKI_SHOWS : RLKI_POINTS, "%.60s: %s", f->t[0]->name,
                   *older ? older : "what was read from the cache is not what was last written to it");
        any = true;
    }
    const struct rlki_producer *p = f->producer;
    if (!any && p[0].has && p[1].has && (p[0].identity != p[1].identity || p[0].output != p[1].output)) {
        rlki_holds(o, RLKI_M_STALE_CACHE, RLKI_POINTS, "the cache was last written by %s and by %s", p[0].text,
                   p[1].text);
        any = true;
    }
    if (!any && !p[0].has && !p[1].has) {
        rlki_holds(o, RLKI_M_STALE_CACHE, RLKI_POINTS, "%.60s differs and was filled before the recording began",
                   f->t[0]->name);
        any = true;
    }
    if (any)
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the cache was old before the operator began");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_stale_cache = {
    RLKI_M_STALE_CACHE,
    "drop or recompute the cache when weights change (reset_prefix_cache, flush before the first request), and rerun: "
    "does "
    "it go away?",
    look};
