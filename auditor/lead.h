/* lead.h - which node differed first, from the nodes that differ on each rank (internal).
 *
 * What a rank's own roll-ups say is certain: the event of that rank that differs first stands in one of its candidates
 * (rolls.h). Roll-ups do not say how the events of two ranks are ordered; so the first difference of all stands in a
 * candidate of some rank. Left out are those of phases that a rank runs wholly behind the phase of the node that is
 * named: an event there cannot have come before, as long as the ranks meet in the same phases.
 */
#ifndef AUDITOR_LEAD_H
#define AUDITOR_LEAD_H

#include "auditor/rolls.h"

#include <jansson.h>

#define RLKI_LEAD_RANKS 20u /* ranks that are listed */

struct rlki_candidate {
    struct rlki_roll roll[2]; /* of each side */
    bool has[2];
    bool named;                              /* by some rank */
    uint64_t key;                            /* of the node */
    uint32_t rank;                           /* the lowest that names it, else the lowest that has it as a candidate */
    uint32_t ranks[RLKI_LEAD_RANKS], nranks; /* those that name it; more than are listed are counted */
};

struct rlki_lead_rank;  /* one rank that differs */
struct rlki_lead_order; /* in what order ranks first come to their nodes: most ranks share one */

struct rlki_lead { /* zero-initialised = empty */
    struct rlki_candidate *candidate;
    size_t ncandidates, cap_candidates;
    struct rlki_hash index; /* key -> place in candidate */
    struct rlki_lead_rank *rank;
    size_t nranks, cap_ranks;
    struct rlki_lead_order *order;
    size_t norders, cap_orders;
    size_t *also, nalso, cap_also;
    const struct rlki_candidate *first; /* rlki_lead_settle(); NULL: nothing differs */
};

/* One rank, ranks ascending: all nodes of one side by first event, and the suspects after rlki_rolls_suspect().
 * RLK_ENOMEM. */
int rlki_lead_add(struct rlki_lead *lead, const struct rlki_names *names, uint32_t rank, const struct rlki_rolls *nodes,
                  const struct rlki_suspect *suspects, size_t n);
/* Chooses `first`, and in `also` the others in which the first difference may stand: those of the rank that names it in
 * front. RLK_ENOMEM. */
int rlki_lead_settle(struct rlki_lead *lead, const struct rlki_names *names);
/* Adds "ranks" and "nranks" to a node's JSON. */
void rlki_lead_ranks(json_t *node, const struct rlki_candidate *candidate);
void rlki_lead_release(struct rlki_lead *lead);

#endif
