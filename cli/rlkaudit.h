/* rlkaudit.h - what the files of the program rlkaudit offer each other. */
#ifndef CLI_RLKAUDIT_H
#define CLI_RLKAUDIT_H

#include <jansson.h>
#include <stdio.h>

int rlki_audit_first_diff(int argc, char **argv);
int rlki_audit_explain(int argc, char **argv);

/* Text of a result, from its JSON: one screen. */
void rlki_audit_print_first_diff(FILE *to, const json_t *result);
void rlki_audit_print_explain(FILE *to, const json_t *result);

#endif
