/* rlkrec seal: seals a recording that several parents wrote, when all of them have ended. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"

#include <limits.h>

static struct {
    bool force;
} opt;

static const struct rlki_option options[] = {
    {"force", 'f', RLKI_FLAG, &opt.force, NULL, "seal it anew, or while a process still records"},
};

static const struct rlki_command command = {
    "rlkrec",
    "seal",
    "[-f] [REC]",
    "Seals a recording (default: the newest): SHA-256 over every record and page.",
    options,
    sizeof options / sizeof options[0],
    0,
    1,
    false,
    0,
    "A sealed recording is left alone: a new seal would hide what changed since the old one.\n"};

int rlki_cmd_seal(int argc, char **argv)
{
    char path[PATH_MAX], **args;
    struct rlk_recording *recording = NULL;
    struct rlk_detail detail = {""};
    enum rlk_seal_state state = RLK_SEAL_ABSENT;
    enum rlk_intact how;
    int64_t live;
    int n, code, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    code = rlk_recording_resolve(path, sizeof path, n ? args[0] : NULL, &detail);
    if (!code)
        code = rlk_recording_open(&recording, path, &detail);
    if (code)
        return rlki_fail(n ? args[0] : "seal", code, &detail);
    live = rlki_still_recording(recording);
    code = rlk_recording_verify(path, &state, NULL, NULL, &detail);
    if (!live && !opt.force && !code && state == RLK_SEAL_ABSENT) /* damage would be sealed as what was recorded */
        code = rlk_recording_intact(recording, UINT64_MAX, &how, &detail);
    rlk_recording_close(recording);
    if (code)
        return rlki_fail(n ? args[0] : "seal", code, &detail);
    if (live && !opt.force) {
        rlki_say("seal: process %lld still records into %s", (long long)live, path);
        return RLKI_EXIT_FAULT;
    }
    if (!opt.force && state != RLK_SEAL_ABSENT) {
        bool good = state == RLK_SEAL_GOOD;
        rlki_say("seal: %s is sealed already%s", path, good ? "" : ", and has changed since: see rlkrec verify");
        return good ? RLKI_EXIT_OK : RLKI_EXIT_CHECK;
    }
    code = rlk_recording_seal(path, &detail);
    if (code)
        return rlki_fail(path, code, &detail);
    printf("%s: sealed\n", rlki_esc(path));
    return rlki_finish(RLKI_EXIT_OK);
}
