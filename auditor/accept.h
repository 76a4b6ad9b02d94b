/* accept.h - an acceptance against the roots of a comparison (internal). */
#ifndef AUDITOR_ACCEPT_H
#define AUDITOR_ACCEPT_H

#include "auditor/audit.h"
#include "auditor/rlk_accept.h"

/* Everything a file must hold; RLK_EPARSE with the entry. */
int rlki_accept_check(const json_t *file, const char *path, struct rlk_detail *detail);
/* Days since 1970 of "YYYY-MM-DD"; false: no such day. */
bool rlki_accept_day(int64_t *out, const char *text);
int64_t rlki_accept_today(void);

/* Applies audit->opt.accept to all roots: annotates `result`, and *all tells whether every root is accepted. */
int rlki_accept_apply(struct rlki_audit *audit, const struct rlki_found *first, json_t *result, bool *all);

#endif
