/* rlk_rolls.h - what roll-ups alone say: the first step and module that differ, and a baseline of a few KB. The JSON is
 * docs/cli.md ("bisect", "baseline").
 *
 * No event is read, except of an environment that was cut off before its roll-ups were written (those are made by a
 * scan; the result counts them). Nothing here prints or exits; one call uses one thread.
 */
#ifndef AUDITOR_RLK_ROLLS_H
#define AUDITOR_RLK_ROLLS_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdint.h>

struct rlk_rolls_progress { /* may be NULL wherever one is taken */
    void (*report)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* {"schema": "rlk.bisect/1", "exit", ...} of two directories NAME.rlk. Errors as rlk_audit_first_diff(). */
int rlk_audit_bisect(json_t **out, const char *good, const char *bad, const struct rlk_rolls_progress *progress,
                     struct rlk_detail *detail);

/* ---- baseline: the roll-ups of a recording in a few KB ---- */

#define RLK_BASELINE_SCHEMA "rlk.baseline/1"
#define RLK_BASELINE_BYTES (4u << 20)

/* A hash of each step (of neighbouring steps together, where they are many) and, for as many steps as `most` bytes
 * hold, of each (phase, module, pass), module paths cut short where one step alone would not fit. RLK_ESTATE: the
 * recording is incomplete, the detail says why. */
int rlk_baseline_save(json_t **out, const char *dir, size_t most, struct rlk_detail *detail);
/* Reads and checks a file. */
int rlk_baseline_read(json_t **out, const char *path, struct rlk_detail *detail);
/* {"schema": "rlk.baseline_check/1", "exit", ...}; `baseline` comes from rlk_baseline_read(). */
int rlk_baseline_check(json_t **out, const char *dir, const json_t *baseline, struct rlk_detail *detail);

#endif
