/* plan.h - the plan that `rlkaudit first-diff --plan` wrote (docs/cli.md, "Plan"). */
#ifndef CLI_RLKREC_PLAN_H
#define CLI_RLKREC_PLAN_H

/* Its lines, malloc'ed; NULL after an error has been said. */
char *rlki_plan_read(const char *path);

#endif
