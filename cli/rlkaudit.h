/* rlkaudit.h - what the files of the program rlkaudit offer each other. */
#ifndef CLI_RLKAUDIT_H
#define CLI_RLKAUDIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

int rlki_audit_first_diff(int argc, char **argv);
int rlki_audit_explain(int argc, char **argv);

/* Options that the next command has to repeat. */
struct rlki_audit_with {
    const char *map, *dims; /* NULL: not given */
    bool allow_source, phases;
};

/* Text of a result, from its JSON: one screen. */
void rlki_audit_print_first_diff(FILE *to, const json_t *result, const struct rlki_audit_with *with);
void rlki_audit_print_explain(FILE *to, const json_t *result, const struct rlki_audit_with *with);

#endif
