/* collective_topology.c - the ranks of a reduction stand in another order.
 *
 * Rule      the reported order of the ranks, or the topology in the manifest, differs.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    const struct rlk_event *a = &f->ev[0].e, *b = &f->ev[1].e;
    uint32_t n = a->u.collective.norder;
    if (n != b->u.collective.norder ||
        (n && memcmp(a->u.collective.order, b->u.collective.order, n * sizeof(uint32_t)) != 0))
        rlki_holds(o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_POINTS, "another reduction order of the ranks");
    const json_t *x = json_object_get(f->audit->side[0].manifest, "topology");
    const json_t *y = json_object_get(f->audit->side[1].manifest, "topology");
    if (x && y && !json_equal(x, y))
        rlki_holds(o, RLKI_M_COLLECTIVE_TOPOLOGY, RLKI_POINTS, "the recordings were made on different topologies");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_collective_topology = {
    RLKI_M_COLLECTIVE_TOPOLOGY,
    "run both on the same nodes in the same rank order, or fix the ring (NCCL_TOPO_FILE, NCCL_GRAPH_FILE)", look};
