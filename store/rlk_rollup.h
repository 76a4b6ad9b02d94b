/* rlk_rollup.h - roll-ups: sums of identities and digests by (step, rank, phase, module, pass) (internal;
 * docs/format.md).
 * Used by the writer as events pass, and by the reader when a recording was cut off. Not thread-safe.
 */
#ifndef STORE_RLK_ROLLUP_H
#define STORE_RLK_ROLLUP_H

#include "store/rlk_codec.h"
#include "store/rlk_error.h"
#include "store/rlk_event.h"

/* OUT(event) and IN(event). */
void rlki_event_sums(const struct rlk_event *event, rlk_u128 *out, rlk_u128 *in);
static inline bool rlki_event_counts(const struct rlk_event *event)
{
    return event->kind != RLK_EV_LAUNCH && !event->autotune;
}

/* What a node knows of the pass of its events. */
enum {
    RLKI_PASS_ANY = 0,
    RLKI_PASS_NONE,
    RLKI_PASS_FWD,
    RLKI_PASS_RECOMPUTE,
    RLKI_PASS_BWD,
    RLKI_PASS_OPT,
    RLKI_PASSES
};
uint8_t rlki_pass_code(const char *pass); /* RLKI_PASS_ANY: another name */
const char *rlki_pass_name(uint8_t pass); /* NULL: RLKI_PASS_ANY */

struct rlki_node {
    uint32_t phase, module; /* string ids */
    uint8_t pass;
    rlk_u128 out_sum, in_sum;
    uint64_t events, tensors, first_seq;
    uint32_t nranges, cap, gap; /* ranges nearer than `gap` are joined */
    struct rlk_range *ranges;
};

struct rlki_group { /* one (step, rank) */
    int64_t step;
    uint32_t rank;
    size_t nnodes, cap;
    struct rlki_node *nodes;
    uint32_t *slots; /* node + 1 by hash of (phase, module, pass) */
    size_t nslots, recent;
    bool merged; /* what the database held of it is in */
};

struct rlki_rollup { /* zero-initialised = empty */
    struct rlki_group **groups;
    size_t count, cap;
    uint32_t *slots; /* group + 1 by hash of (step, rank) */
    size_t nslots, recent;
};

/* RLK_ENOMEM: the event is not in. */
int rlki_rollup_add(struct rlki_rollup *rollup, const struct rlk_event *event, uint32_t phase, uint32_t module);
void rlki_rollup_sort(struct rlki_rollup *rollup); /* ascending by step, then rank; no adding afterwards */
void rlki_rollup_release(struct rlki_rollup *rollup);
/* Takes out and frees the groups that `drop` says true for. */
void rlki_rollup_drop(struct rlki_rollup *rollup, bool (*drop)(void *context, const struct rlki_group *group),
                      void *context);

void rlki_group_sort(struct rlki_group *group); /* by first_seq; no adding afterwards */
void rlki_group_total(const struct rlki_group *group, struct rlki_node *total);
void rlki_group_free(struct rlki_group *group);
/* Adds the nodes stored in a `rollmod` body, one for each pass or joined. RLK_ECORRUPT, RLK_ENOMEM. */
int rlki_group_merge(struct rlki_group *group, const uint8_t *p, size_t n, uint64_t max_string, bool by_pass);
/* Adds the nodes of `from`, those of all passes joined. RLK_ENOMEM. */
int rlki_group_join(struct rlki_group *to, const struct rlki_group *from);
struct rlki_group *rlki_group_new(int64_t step, uint32_t rank); /* NULL = out of memory */

void rlki_total_put(struct rlki_buf *b, const struct rlki_node *total);
void rlki_total_get(struct rlki_cur *c, struct rlki_node *total);
void rlki_nodes_put(struct rlki_buf *b, const struct rlki_group *group);

#endif
