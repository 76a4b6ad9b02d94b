/* locate.h - from a difference back to the events it stands for. */
#ifndef AUDITOR_LOCATE_H
#define AUDITOR_LOCATE_H

#include "auditor/audit.h"

/* The lowest rank's event on one side and the tensor that differs (NULL: none). RLK_ENOENT: that side has no event. */
int rlki_located(struct rlki_audit *audit, const struct rlki_found *found, int side, struct rlk_arena *arena,
                 struct rlki_ev *ev, const struct rlk_tensor **tensor);

/* origin.c: says in `evidence` what each side read in an input that is a root and no source. */
int rlki_input_evidence(struct rlki_audit *audit, const struct rlki_ev ev[2], const struct rlk_tensor *const t[2],
                        json_t *evidence);

const char *rlki_grade_of_sums(const struct rlk_sums *a, const struct rlk_sums *b);

#endif
