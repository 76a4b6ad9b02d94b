/* rlk_accept.h - accepted drift: the file that says which difference is known, why, for whom, until when and how large
 * it may be (docs/cli.md, "accept"). rlk_audit_options.accept applies one to a comparison.
 */
#ifndef AUDITOR_RLK_ACCEPT_H
#define AUDITOR_RLK_ACCEPT_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RLK_ACCEPT_SCHEMA "rlk.accept/1"
#define RLK_ACCEPT_BYTES (4u << 20)

struct rlk_accept_request {
    const char *reason, *owner;
    const char *expires; /* "2026-12-31": the last day, UTC */
    bool any;            /* of any size; else: */
    int64_t max_ulp;     /* the bound; negative = the largest that the result shows */
    const char *modules; /* only roots of these modules (pattern of docs/identity.md, "Map files"); NULL = all */
};

/* The acceptance of the roots of a first-diff result. `file` (may be NULL) is an acceptance that it is added to: an
 * entry of the same scope is replaced. RLK_EINVAL: the request or the result cannot be used, the detail says why. */
int rlk_accept_make(json_t **out, size_t *roots, const json_t *file, const json_t *result,
                    const struct rlk_accept_request *request, struct rlk_detail *detail);

/* Reads and checks a file. */
int rlk_accept_read(json_t **out, const char *path, struct rlk_detail *detail);

#endif
