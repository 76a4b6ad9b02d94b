/* rlkreplay_child.c - a replay in a process of its own, under `rlkrec run`: it records as it goes. */
#include "cli/rlkreplay.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "recorder/rlk_env.h"
#include "store/rlk_recording.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_ARGS 96

int rlki_scratch(char path[PATH_MAX])
{
    const char *tmp = getenv("TMPDIR");
    if (snprintf(path, PATH_MAX, "%s/rlkreplay-XXXXXX", tmp && tmp[0] ? tmp : "/tmp") >= PATH_MAX || !mkdtemp(path)) {
        rlki_say("%s: %s", path, strerror(errno));
        path[0] = 0;
        return RLKI_EXIT_FAULT;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

void rlki_scratch_remove(const char *path)
{
    if (path[0] && nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        rlki_warn("%s could not be removed", path);
}

bool rlki_find_rlkrec(char self[PATH_MAX], char rlkrec[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (n <= 0)
        return false;
    self[n] = 0;
    const char *slash = strrchr(self, '/');
    const int dir = slash ? (int)(slash - self) : 0;
    return snprintf(rlkrec, PATH_MAX, "%.*s/rlkrec", dir, self) < PATH_MAX && access(rlkrec, X_OK) == 0;
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return RLKI_EXIT_FAULT;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    rlki_say("the replay was ended by signal %d", WTERMSIG(status));
    return RLKI_EXIT_FAULT;
}

bool rlki_speak_at(uint64_t fd)
{
    return fd > 2 && fd < 1 << 20 && dup2((int)fd, STDERR_FILENO) >= 0 && close((int)fd) == 0;
}

/* What rlkrec said: only where the replay, which speaks for itself, has not said why it failed. */
static void pass_on(FILE *said, int status)
{
    char line[4096];
    if (status > 0 && status < RLKI_EXIT_CANNOT_START)
        return;
    rewind(said);
    while (fgets(line, sizeof line, said))
        fputs(line, stderr);
}

/* argv, whose standard error is `said`; ours stays open for the child of it, at the number in argv. */
static int run(char *const *argv, FILE *said)
{
    const pid_t pid = fork();
    if (pid < 0) {
        rlki_say("%s", strerror(errno));
        return RLKI_EXIT_FAULT;
    }
    if (pid == 0) {
        unsetenv(RLK_ENV_RECORDING); /* a recording of its own, also inside a recorded command */
        if (dup2(fileno(said), STDERR_FILENO) < 0)
            _exit(RLKI_EXIT_NOT_FOUND);
        execv(argv[0], argv);
        _exit(RLKI_EXIT_NOT_FOUND);
    }
    return wait_for(pid);
}

/* Did the recorder keep up? */
static bool whole(const char *path)
{
    struct rlk_recording *recording;
    struct rlk_coverage coverage;
    if (rlk_recording_open(&recording, path, NULL) != RLK_OK)
        return true; /* the comparison will say what is wrong */
    const bool good = rlk_recording_coverage(recording, &coverage, NULL) != RLK_OK || coverage.dropped == 0;
    rlk_recording_close(recording);
    return good;
}

int rlki_record_replay(const struct rlki_child_replay *c)
{
    char self[PATH_MAX], rlkrec[PATH_MAX + 8], layout[32], rollout[32], at[16];
    const char *argv[MOST_ARGS];
    int n = 0, status = RLKI_EXIT_FAULT;
    if (!rlki_find_rlkrec(self, rlkrec)) {
        rlki_say("rlkrec is not beside rlkreplay: the replay cannot be recorded");
        return RLKI_EXIT_FAULT;
    }
    FILE *said = tmpfile();
    const int own = dup(STDERR_FILENO); /* inherited by the replay, through rlkrec */
    if (!said || own < 3) {
        rlki_say("%s", strerror(errno));
        status = RLKI_EXIT_FAULT;
        goto out;
    }
    snprintf(at, sizeof at, "%d", own);
    snprintf(layout, sizeof layout, "tp%dcp%d", c->at.tp, c->at.cp);
    snprintf(rollout, sizeof rollout, "tp%dcp%d", c->at.rollout_tp, c->at.rollout_cp);
    const char *const fixed[] = {
        rlkrec,     "run",     "-q",         "-o",        c->out,      "--level",          "op",
        "--",       self,      "--run",      "--layout",  layout,      "--rollout-layout", rollout,
        "--device", c->device, "--contract", c->contract, "--threads", c->threads,         "--say-at",
        at};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        argv[n++] = fixed[i];
    const struct {
        const char *name, *value;
    } optional[] = {{"--only", c->only}, {"--steps", c->steps}, {"--plant", c->plant}};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (optional[i].value) {
            argv[n++] = optional[i].name;
            argv[n++] = optional[i].value;
        }
    for (uint32_t i = 0; c->modes && i < c->modes->n && i < RLK_TRAIN_MODES; i++) {
        argv[n++] = "--mode";
        argv[n++] = c->modes->items[i];
    }
    if (c->as_recorded)
        argv[n++] = "--as-recorded";
    if (c->partial)
        argv[n++] = "--partial";
    if (c->alone)
        argv[n++] = "--op";
    argv[n++] = "--";
    argv[n++] = c->recording;
    argv[n] = NULL;
    for (int attempt = 0; attempt < 3; attempt++) {
        if (attempt)
            rlki_scratch_remove(c->out);
        fflush(stdout);
        status = run((char *const *)(uintptr_t)argv, said);
        if (status || whole(c->out))
            break;
    }
    pass_on(said, status);
out:
    if (said)
        fclose(said);
    if (own >= 0)
        close(own);
    return status;
}
