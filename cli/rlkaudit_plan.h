/* rlkaudit_plan.h - which tensors' bytes the next run must keep (docs/cli.md, "Plan"). */
#ifndef CLI_RLKAUDIT_PLAN_H
#define CLI_RLKAUDIT_PLAN_H

#include <jansson.h>

/* Writes the plan of a first-diff result to `path`, - = stdout: the roots' tensors and their operators' inputs, as many
 * as a run can be told. Returns 0, or an exit status after an error has been said. */
int rlki_plan_write(const char *path, const json_t *result);

#endif
