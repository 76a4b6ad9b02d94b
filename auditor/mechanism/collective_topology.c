/* collective_topology.c - the ranks of a reduction stand in another order, or on other machines.
 *
 * Rule      with one algorithm on both sides and equal inputs: the reported order of the ranks, the topology or the
 *           hosts of the manifest differ, or one side had a collective earlier that the other had not (what NVLS and
 *           lazily made channels use follows from the history) - it points.
 * Evidence  what differs; that each side repeats itself.
 * Excludes  itself where a side does not repeat itself: a topology stays as it is.
 * Next      the same placement.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static bool differs(const struct rlki_facts *f, const char *key)
{
    const json_t *x = json_object_get(f->audit->side[0].manifest, key);
    const json_t *y = json_object_get(f->audit->side[1].manifest, key);
    return x && y && !json_equal(x, y);
}

static const char *manifest_text(const struct rlki_facts *f, int side, const char *key)
{
    const char *text = json_string_value(json_object_get(f->audit->side[side].manifest, key));
    return text ? text : "another one";
}

/* A collective that one side alone had before this one. */
static int earlier(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_audit *audit = f->audit;
    for (int s = 0; s < 2; s++) {
        const struct rlki_event_ref *list = s ? audit->inserted : audit->deleted;
        size_t n = s ? audit->ninserted : audit->ndeleted;
        for (size_t i = 0; i < n; i++) {
            const struct rlk_event *e;
            if (list[i].env != f->ev[s].env || list[i].seq >= f->ev[s].e.seq)
                continue;
            int rc = rlki_side_fetch(&f->audit->side[s], list[i].env, list[i].seq, &e, audit->detail);
            if (rc && rc != RLK_ENOENT)
                return rc;
            if (rc || e->kind != RLK_EV_COLLECTIVE)
                continue;
            rlki_holds(
                o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_POINTS,
                "%c had an earlier collective that %c has not: %.60s, #%llu; what NVLS and lazily made channels use "
                "follows from it (a lead, no proof)",
                s ? 'B' : 'A', s ? 'A' : 'B', e->who.op, (unsigned long long)list[i].seq);
            return RLK_OK;
        }
    }
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    const struct rlk_event *a = &f->ev[0].e, *b = &f->ev[1].e;
    uint32_t n = a->u.collective.norder;
    if (rlki_varies(f)) {
        rlki_excludes(o, RLKI_M_COLLECTIVE_TOPOLOGY, "%s does not repeat itself on one topology", rlki_who_varies(f));
        return RLK_OK;
    }
    if (n != b->u.collective.norder ||
        (n && memcmp(a->u.collective.order, b->u.collective.order, n * sizeof(uint32_t)) != 0))
        rlki_holds(o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_SHOWS, "another reduction order of the ranks");
    if (differs(f, "topology"))
        rlki_holds(o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_POINTS, "another topology: %.60s in A, %.60s in B",
                   manifest_text(f, 0, "topology"), manifest_text(f, 1, "topology"));
    else if (differs(f, "hosts"))
        rlki_holds(o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_POINTS, "the recordings were made on other hosts");
    if (rlki_steady(f))
        rlki_remark(o, "each side repeats itself here: the cause stays between runs");
    return earlier(f, o);
}

const struct rlki_mechanism rlki_rule_collective_topology = {
    RLKI_M_COLLECTIVE_TOPOLOGY,
    "run both on the same nodes in the same rank order, or fix the ring (NCCL_TOPO_FILE, NCCL_GRAPH_FILE); with NVLS, "
    "NCCL_NVLS_ENABLE=0",
    look};
