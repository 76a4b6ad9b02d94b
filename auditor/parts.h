/* parts.h - across layouts and phases tensors are joined by name, not events by place: a tensor of one side is composed
 * of the parts that its ranks hold. docs/identity.md, "Across layouts and phases". */
#ifndef AUDITOR_PARTS_H
#define AUDITOR_PARTS_H

#include "auditor/audit.h"

struct rlki_part {
    uint64_t key;   /* identity of the tensor, without rank */
    uint64_t slice; /* per-sample parts: which rows (work, iteration, start); else 0 */
    uint64_t place_hash;
    uint8_t side, role, dtype;
    bool composable, sample, metric, gradient;
    uint32_t rank, env, tensor; /* tensor: place in e.tensors */
    uint32_t index, noutputs;
    uint64_t seq;
    uint32_t sample_name, sample_at; /* place in t->samples */
    uint32_t reason;                 /* not comparable: a name; 0 */
    struct rlk_sums sums;
    const struct rlk_place *place; /* in the arena; NULL = local */
    uint32_t ndim;
    const uint64_t *shape; /* logical; the sample's for per-sample parts */
};

struct rlki_parts {
    struct rlki_part *part;
    size_t n, cap;
    struct rlk_arena arena;
};

/* A tensor of one side, put together. */
enum rlki_whole_state {
    RLKI_WHOLE_ABSENT = 0,
    RLKI_WHOLE_KNOWN,
    RLKI_WHOLE_PARTS, /* parts with a border inside a unit: compare with equal parts only */
    RLKI_WHOLE_DARK,  /* `reason` */
};
struct rlki_whole {
    enum rlki_whole_state state;
    const char *reason;
    bool replicas_differ;
    const struct rlki_part *first; /* the lowest rank's */
    struct rlk_sums sums;
};

bool rlki_part_same_shape(const struct rlki_part *a, const struct rlki_part *b); /* logical */
/* Puts n parts of one side and one key together; parts ascending by rank. */
int rlki_compose(struct rlki_whole *out, const struct rlki_part *part, size_t n, bool one_rank);
/* YES, NO, MAYBE (*reason). */
int rlki_wholes_equal(const struct rlki_whole *a, const struct rlki_part *pa, size_t na, const struct rlki_whole *b,
                      const struct rlki_part *pb, size_t nb, enum rlki_tri *out, const char **reason);

/* What map and dims files say of a tensor: its module and name, and where it lies (NULL: they do not). */
int rlki_part_place(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                    struct rlk_arena *arena, uint32_t *module, uint32_t *name, struct rlk_place **place);

/* Adds the parts of one event. `counts`: n-th counters of this rank. */
int rlki_parts_of(struct rlki_audit *audit, struct rlki_parts *parts, int side, const struct rlki_ev *ev,
                  struct rlki_hash *counts);

#endif
