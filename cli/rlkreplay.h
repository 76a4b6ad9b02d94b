/* rlkreplay.h - the parts of rlkreplay: options, children that record, the relaunched command. */
#ifndef CLI_RLKREPLAY_H
#define CLI_RLKREPLAY_H

#include "cli/common/rlk_options.h"
#include "replayer/rlk_replay.h"

#include <limits.h>

struct rlki_layouts { /* of one replay */
    int tp, cp, rollout_tp, rollout_cp;
};

/* One `rlkrec run -- rlkreplay --run` into the recording `out`. */
struct rlki_child_replay {
    const char *recording, *out;
    struct rlki_layouts at;
    const char *device, *contract, *threads, *only, *steps, *plant;
    const struct rlki_list *modes;
    bool as_recorded, partial, alone;
};
/* The child's exit status (its words are on stderr), made again where the recorder had to drop events. */
int rlki_record_replay(const struct rlki_child_replay *child);

/* Standard error of a replay under rlkrec: the descriptor that rlkreplay itself had for it. */
bool rlki_speak_at(uint64_t fd);
/* This program, and rlkrec beside it. */
bool rlki_find_rlkrec(char self[PATH_MAX], char rlkrec[PATH_MAX]);

/* A directory of our own, and its removal with what is in it. */
int rlki_scratch(char path[PATH_MAX]);
void rlki_scratch_remove(const char *path);

/* --relaunch: argv of the recorded command with layout and mode substituted, printed, then run (dry: printed only). */
int rlki_relaunch(const char *recording, const char *layout, const char *rollout, const struct rlki_list *modes,
                  const char *out, bool dry);

#endif
