/* rlkreplay_relaunch.c - the recorded command again, with layout and mode substituted where the launcher is known. */
#include "cli/rlkreplay.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "store/rlk_recording.h"

#include <string.h>

int rlki_relaunch(const char *recording, const char *layout, const char *rollout, const struct rlki_list *modes,
                  const char *out, bool dry)
{
    (void)recording;
    (void)layout;
    (void)rollout;
    (void)modes;
    (void)out;
    (void)dry;
    rlki_say("--relaunch is not built yet (docs/cli.md)");
    return RLKI_EXIT_FAULT;
}
