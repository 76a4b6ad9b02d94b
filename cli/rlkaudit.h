/* rlkaudit.h - what the files of the program rlkaudit offer each other. */
#ifndef CLI_RLKAUDIT_H
#define CLI_RLKAUDIT_H

#include "cli/common/rlk_program.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* One row and one file (cli/rlkaudit_NAME.c) each. */
#define RLKI_AUDIT_COMMANDS(BUILT, LATER)                                                                              \
    BUILT("first-diff", rlki_audit_first_diff, "name the tensor in which two recordings first differ")                 \
    BUILT("explain", rlki_audit_explain, "one event on both sides: inputs, producers, kernels, why it is a root")      \
    BUILT("show", rlki_audit_show, "a saved result as text or as a page")                                              \
    BUILT("check", rlki_audit_check, "what one recording shows alone: findings without a second run")                  \
    BUILT("show", rlki_audit_show, "a saved result as text or as a page")                                              \
    BUILT("report", rlki_audit_report, "the cross-layout report of two recordings")                                    \
    BUILT("bisect", rlki_audit_bisect, "first differing step, phase and module by roll-ups alone")                     \
    BUILT("accept", rlki_audit_accept, "accept a known drift, for a time and up to a bound")                           \
    BUILT("baseline", rlki_audit_baseline, "a few KB that say whether a later recording is the same")                  \
    LATER("modes", "compare modes")                                                                                    \
    LATER("relaunch", "run an event again")

RLKI_AUDIT_COMMANDS(RLKI_PROTOTYPE, RLKI_NO_PROTOTYPE)

/* Options that the next command has to repeat. */
struct rlki_audit_with {
    const char *map, *dims; /* NULL: not given */
    bool allow_source, phases;
};

/* Text of a result, from its JSON: one screen. */
/* NODE of bisect and baseline; `total` others besides, of which `also` lists some. */
void rlki_audit_print_node(FILE *to, const json_t *node, const json_t *also, long long total);
void rlki_audit_print_first_diff(FILE *to, const json_t *result, const struct rlki_audit_with *with);
void rlki_audit_print_explain(FILE *to, const json_t *result, const struct rlki_audit_with *with);

#endif
