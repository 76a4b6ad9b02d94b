/* rlk_check.h - what one recording shows alone (docs/check.md).
 *
 * Nothing here prints or exits; a recording is read as hostile. One call uses one thread.
 */
#ifndef AUDITOR_RLK_CHECK_H
#define AUDITOR_RLK_CHECK_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdint.h>

struct rlk_check_options {
    const char *recording; /* a directory NAME.rlk */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
};

/* *out: {"schema": "rlk.check/1", "exit", ...} of docs/check.md, the caller's to json_decref. Errors: as
 * rlk_audit_first_diff(). */
int rlk_check(json_t **out, const struct rlk_check_options *options, struct rlk_detail *detail);

#endif
