/* rlk_select.h - what to record: levels, step ranges, sizes and payload selections, as written on the command line and
 * in the RLKREC_* variables. Pure parsing; used by `rlkrec run` to refuse what is wrong and by the recorder to obey it.
 */
#ifndef RECORDER_RLK_SELECT_H
#define RECORDER_RLK_SELECT_H

#include "recorder/rlk_tap.h"
#include "store/rlk_error.h"
#include "store/rlk_event.h"

/* "launch", "step", "module", "op", "buffer". RLK_EPARSE. */
int rlk_level_parse(enum rlk_tap_level *out, const char *text, struct rlk_detail *detail);
const char *rlk_level_name(enum rlk_tap_level level); /* "off" for RLK_TAP_OFF, "?" for a value that is none */

/* A:B, half-open; a side left out is open. A < B. RLK_EPARSE. */
struct rlk_steps {
    int64_t first, last; /* [first, last) */
};
#define RLK_ALL_STEPS ((struct rlk_steps){INT64_MIN, INT64_MAX})
int rlk_steps_parse(struct rlk_steps *out, const char *text, struct rlk_detail *detail);

/* Bytes, with an optional suffix K, M, G, T (powers of 1024). RLK_EPARSE. */
int rlk_size_parse(uint64_t *out, const char *text, struct rlk_detail *detail);

/* Selections of tensors whose bytes are kept: lines of comma lists of KEY=VALUE. All parts of a line must match; one
 * matching line suffices; lines that are empty or begin with # say nothing. Keys: step=A:B; module, op, name, phase, pass,
 * sample = a GLOB of fnmatch(3), where * also matches '.' and '/', and a backslash takes the next character, a comma too,
 * as it is; rank, work, iteration, call, occurrence, index = a number; role=in|out. */
struct rlk_select;
int rlk_select_parse(struct rlk_select **out, const char *lines,
                     struct rlk_detail *detail); /* RLK_EPARSE, RLK_ENOMEM */
void rlk_select_free(struct rlk_select *select); /* NULL is fine */
bool rlk_select_match(const struct rlk_select *select, const struct rlk_identity *who, uint32_t rank,
                      enum rlk_role role, uint32_t index, const char *name);

#endif
