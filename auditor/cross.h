/* cross.h - state of a comparison across layouts or phases, one step at a time. */
#ifndef AUDITOR_CROSS_H
#define AUDITOR_CROSS_H

#include "auditor/parts.h"

struct rlki_differing { /* a tensor that differs: its parts on both sides, the composed sums */
    const struct rlki_part *part[2], *first[2];
    size_t n[2];
    struct rlk_sums sums[2];
    bool comparable, whole_units[2]; /* as in struct rlki_spread */
};

struct rlki_cross {
    struct rlki_audit *audit;
    int64_t step;
    bool cut[2]; /* that side may lack events of this step on some rank */
    struct rlki_parts parts;
    struct rlk_arena scratch;
    struct rlki_hash inputs[2]; /* digested inputs that are not equal: rlki_part_id -> enum rlki_mark */
    struct rlki_hash lone;      /* events already listed */
    struct rlki_hash labels;    /* (name, label) of a trainer's weights tensor that differs */
    struct rlki_differing *differing;
    size_t ndiffering, cap_differing;
};

uint64_t rlki_part_id(const struct rlki_part *part);

/* cross_root.c: the root rule for every tensor of the step that differs. */
int rlki_cross_judge(struct rlki_cross *cross);

#endif
