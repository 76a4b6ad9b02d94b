/* target.h - which recording a `rlkrec run` writes to: a new one, or one that it joins.
 *
 * It joins the recording named in RLKREC_RECORDING (a run inside a run), else the one of the launcher's job when it is
 * one of several ranks that a launcher (srun, torchrun, mpirun) started, each before `rlkrec run`.
 */
#ifndef CLI_RLKREC_TARGET_H
#define CLI_RLKREC_TARGET_H

#include "store/rlk_error.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct rlki_target {
    char path[PATH_MAX];  /* absolute once it exists */
    char shown[PATH_MAX]; /* as the user would type it */
    bool joined;          /* somebody else made it: no manifest, no seal, no closing line from us */
    bool by_job;          /* shared by the ranks of one job: nobody is its only parent */
    char job[256];        /* "slurm-812.0", "" outside a launcher's rank */
    uint32_t ranks;       /* from the launcher, 0 = unknown */
};

/* Decides. `out` = --output or NULL; argv names the default. Nothing is created yet. */
int rlki_target_choose(struct rlki_target *target, const char *out, char *const *argv, struct rlk_detail *detail);

/* For a default name that is taken: the next one (NAME-2, NAME-3, ...); false = give up. */
bool rlki_target_next(struct rlki_target *target, unsigned attempt);

/* Makes the directories above path. */
int rlki_target_parents(const struct rlki_target *target, struct rlk_detail *detail);

/* Waits until a recording made by another rank has its manifest, and sees whether it is of the same job. */
int rlki_target_join(struct rlki_target *target, struct rlk_detail *detail);

#endif
