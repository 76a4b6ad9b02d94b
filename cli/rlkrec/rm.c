/* rlkrec rm: removes recordings, and nothing else. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"
#include "cli/rlkrec/remove.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool force;
} opt;

static const struct rlki_option options[] = {
    {"force", 'f', RLKI_FLAG, &opt.force, NULL, "do not ask"},
};

static const struct rlki_command command = {"rlkrec",
                                            "rm",
                                            "[-f] REC...",
                                            "Removes recordings. A directory that holds anything else is refused.",
                                            options,
                                            sizeof options / sizeof options[0],
                                            1,
                                            -1,
                                            false,
                                            0,
                                            "A recording that a process still writes is refused, --force or not.\n"};

static bool confirmed(const char *path)
{
    char answer[16] = "";

    fprintf(stderr, "rlkrec: remove %s (%s)? [y/N] ", rlki_esc(path), rlki_bytes(rlki_disk_bytes(path)));
    if (!fgets(answer, sizeof answer, stdin))
        fputc('\n', stderr);
    return answer[0] == 'y' || answer[0] == 'Y';
}

static int remove_one(const char *path)
{
    struct rlk_detail detail = {""};
    int64_t live;
    int code = rlki_remove_check(path, &detail);

    if (code) {
        rlki_say("rm: refused: %s", detail.text);
        return RLKI_EXIT_FAULT;
    }
    live = rlki_still_recording_at(path);
    if (live) {
        rlki_say("rm: refused: process %lld still records into %s: end it first", (long long)live, path);
        return RLKI_EXIT_FAULT;
    }
    if (!opt.force && !isatty(STDIN_FILENO)) {
        rlki_say("rm: refused: nobody to ask about %s (use --force)", path);
        return RLKI_EXIT_FAULT;
    }
    if (!opt.force && !confirmed(path)) {
        rlki_say("rm: %s kept", path);
        return RLKI_EXIT_OK;
    }
    code = rlki_remove_tree(path, &detail);
    if (code)
        return rlki_fail("rm", code, &detail);
    rlki_remove_stale_latest(path);
    printf("removed %s\n", rlki_esc(path));
    return RLKI_EXIT_OK;
}

int rlki_cmd_rm(int argc, char **argv)
{
    char **args, **paths = NULL;
    int n, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    paths = calloc((size_t)n, sizeof *paths);
    status = paths ? RLKI_EXIT_OK : rlki_fail("rm", RLK_ENOMEM, NULL);
    /* All names first: @1 must not move while recordings go. */
    for (int i = 0; i < n && !status; i++) {
        char path[PATH_MAX];
        struct rlk_detail detail = {""};
        int code = args[i][0] ? rlk_recording_resolve(path, sizeof path, args[i], &detail) : RLK_ENOENT;
        /* A symbolic link (latest) stands for what it names. */
        paths[i] = code ? NULL : realpath(path, NULL);
        if (!paths[i])
            status = rlki_fail(args[i][0] ? args[i] : "rm", code ? code : RLK_ENOENT, &detail);
    }
    for (int i = 0; i < n && !status; i++)
        status = remove_one(paths[i]);
    for (int i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
    return rlki_finish(status);
}
