/* rlk_audit.h - compares two recordings and names the tensor that differs first. docs/identity.md is the specification,
 * docs/cli.md that of the JSON.
 *
 * Nothing here prints or exits. A recording is read as hostile: damage is RLK_ECORRUPT, never a wrong answer. Memory is
 * bounded by one step of one rank of both sides plus what differs; parts whose roll-ups agree are never read. One call
 * uses one thread.
 */
#ifndef AUDITOR_RLK_AUDIT_H
#define AUDITOR_RLK_AUDIT_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rlk_audit_options {
    const char *a, *b;                         /* directories NAME.rlk; b = NULL with `phases` */
    const char *const *self_a, *const *self_b; /* repeats of A and of B */
    size_t nself_a, nself_b;
    const char *phases; /* "X:Y": phase X of A against phase Y of it; "X+Z" joins phases; NULL = compare a and b */
    const char *map;    /* file: other module trees (docs/identity.md, "Map files"), or NULL */
    const char *dims;   /* file: placements of local tensors ("Dims files"), or NULL */
    const char *accept; /* file: accepted drift (auditor/rlk_accept.h), or NULL */
    bool allow_source;  /* --allow source */
    bool by_name;       /* join tensors by name and sample even where the layouts are the same */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
};

/* The result of docs/cli.md "first-diff --json" goes to *out (the caller's to json_decref). The exit status is its
 * "exit". Errors: RLK_ENOENT, RLK_EIO, RLK_ECORRUPT, RLK_EVERSION, RLK_EPARSE (map or dims file), RLK_ENOMEM. */
int rlk_audit_first_diff(json_t **out, const struct rlk_audit_options *options, struct rlk_detail *detail);

/* One event on both sides: identity, inputs with their producers, kernels, why it is a root or not, and with `elements`
 * what differs. `event` is its sequence number in A as SIDE.event gives it; negative = the one first-diff names. `rank`
 * is the rank it runs on; negative = the lowest that has it. {"schema": "rlk.explain/1", ...}, docs/cli.md. */
int rlk_audit_explain(json_t **out, const struct rlk_audit_options *options, int64_t event, int64_t rank, bool elements,
                      struct rlk_detail *detail);

#endif
