/* locate.h - from a difference back to the events it stands for. */
#ifndef AUDITOR_LOCATE_H
#define AUDITOR_LOCATE_H

#include "auditor/audit.h"

/* The lowest rank's event on one side and the tensor that differs (NULL: none). RLK_ENOENT: that side has no event. */
int rlki_located(struct rlki_audit *audit, const struct rlki_found *found, int side, struct rlk_arena *arena,
                 struct rlki_ev *ev, const struct rlk_tensor **tensor);

/* elements.c: bytes of a tensor (the caller's to free), checked against its digest: RLK_ECORRUPT if they do not have
 * it. RLK_ENOENT: not kept, or too many. */
int rlki_bytes_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t, void **out,
                  uint64_t *n);

/* The bytes that the last rlki_difference() was made from, if it was that of `found`, and their shape: across layouts
 * that of the logical tensor. They stay the audit's. */
bool rlki_kept_bytes(const struct rlki_audit *audit, const struct rlki_found *found, const unsigned char *out[2],
                     uint32_t *ndim, const uint64_t **shape);
void rlki_drop_bytes(struct rlki_audit *audit);

const char *rlki_grade_of_sums(const struct rlk_sums *a, const struct rlk_sums *b);

#endif
