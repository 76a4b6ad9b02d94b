/* baseline.h - hashes of steps and modules of one recording, as a baseline holds them (internal). */
#ifndef AUDITOR_BASELINE_H
#define AUDITOR_BASELINE_H

#include "auditor/rolls.h"

#include <jansson.h>

#define RLKI_BASELINE_STEPS 100u /* lines of steps in a file */
#define RLKI_BASELINE_DEPTH 64u

struct rlki_short { /* a module, named and hashed in 32 bits each */
    uint32_t id, sum;
};

struct rlki_shorts { /* zero-initialised = empty; ascending by id, each id once */
    struct rlki_short *item;
    size_t n, cap;
};

struct rlki_base {
    struct rlki_names names;
    struct rlki_side side;
    bool by_pass;
    int64_t *steps; /* ascending */
    size_t nsteps, cap;
};

int rlki_base_open(struct rlki_base *base, const char *dir, struct rlk_detail *detail);
void rlki_base_close(struct rlki_base *base);
/* What must agree for hashes to be comparable: level, inputs, ranks, layout, passes. */
json_t *rlki_base_facts(const struct rlki_base *base);
/* Of the totals of all ranks in steps [first, last]. */
uint64_t rlki_base_steps_hash(const struct rlki_base *base, int64_t first, int64_t last);
/* The module hashes of one step, paths cut after `depth` parts. */
int rlki_base_shorts(struct rlki_base *base, int64_t step, uint32_t depth, struct rlki_shorts *out,
                     struct rlk_detail *detail);
void rlki_shorts_release(struct rlki_shorts *shorts);
const struct rlki_short *rlki_shorts_find(const struct rlki_shorts *shorts, uint32_t id);
uint32_t rlki_short_id(const struct rlki_base *base, const struct rlki_roll *roll, uint32_t depth);

/* The text of a file: "0:1122aabb..." */
json_t *rlki_shorts_text(const struct rlki_shorts *shorts);
int rlki_shorts_read(struct rlki_shorts *out, const char *text); /* RLK_EPARSE, RLK_ENOMEM */
/* "3 0123456789abcdef" or "3-7 0123456789abcdef". */
bool rlki_step_line(const char *text, int64_t *first, int64_t *last, uint64_t *hash);

#endif
