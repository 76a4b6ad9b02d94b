/* rlkreplay_relaunch.c - the recorded command again, with layout and mode substituted where the launcher is known.
 *
 * What is known: rlktrain (--layout, --rollout-layout, --mode), Megatron-style flags (--tensor-model-parallel-size,
 * --context-parallel-size, ...), vLLM-style ones (--tensor-parallel-size), torchrun's and srun's number of processes
 * where it stands in the command, and RLK_MODE and RLK_MODE_<MODULE> in the environment. Nothing is guessed: a layout
 * that the command has no flag for is refused.
 */
#include "cli/rlkreplay.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "recorder/rlk_env.h"
#include "store/rlk_place.h"
#include "store/rlk_recording.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORDS 1024

struct command {
    char *word[MOST_WORDS + 1];
    size_t n;
    char *env[RLK_TRAIN_MODES]; /* NAME=VALUE */
    size_t nenv;
    const char *missing; /* what was asked for and has no place in the command */
};

static bool put_word(struct command *c, const char *text)
{
    char *copy = c->n < MOST_WORDS ? strdup(text) : NULL;
    if (copy)
        c->word[c->n++] = copy;
    return copy != NULL;
}

static bool replace(char **word, const char *text)
{
    char *copy = strdup(text);
    if (copy) {
        free(*word);
        *word = copy;
    }
    return copy != NULL;
}

/* Sets the value of `flag` ("--flag VALUE" or "--flag=VALUE") wherever it stands. */
static int set_flag(struct command *c, const char *flag, const char *value)
{
    int found = 0;
    const size_t n = strlen(flag);
    for (size_t i = 0; i < c->n; i++) {
        char text[512];
        if (strcmp(c->word[i], flag) == 0 && i + 1 < c->n)
            found += replace(&c->word[++i], value);
        else if (strncmp(c->word[i], flag, n) == 0 && c->word[i][n] == '=') {
            snprintf(text, sizeof text, "%s=%s", flag, value);
            found += replace(&c->word[i], text);
        }
    }
    return found;
}

static const char *value_of(const struct command *c, const char *flag)
{
    const size_t n = strlen(flag);
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->word[i], flag) == 0 && i + 1 < c->n)
            return c->word[i + 1];
        if (strncmp(c->word[i], flag, n) == 0 && c->word[i][n] == '=')
            return c->word[i] + n + 1;
    }
    return NULL;
}

static const struct {
    const char *flag, *axis;
} known[] = {{"--tensor-model-parallel-size", "tp"},
             {"--tensor-parallel-size", "tp"},
             {"-tp", "tp"},
             {"--context-parallel-size", "cp"},
             {"--pipeline-model-parallel-size", "pp"},
             {"--pipeline-parallel-size", "pp"},
             {"--expert-model-parallel-size", "ep"}};

static uint32_t axis_of(const struct rlk_layout *l, const char *axis)
{
    return strcmp(axis, "tp") == 0 ? l->tp : strcmp(axis, "cp") == 0 ? l->cp : strcmp(axis, "pp") == 0 ? l->pp : l->ep;
}

static bool is_rlktrain(const struct command *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const char *slash = strrchr(c->word[i], '/');
        if (strcmp(slash ? slash + 1 : c->word[i], "rlktrain") == 0)
            return true;
        if (c->word[i][0] == '-')
            return false;
    }
    return false;
}

static bool set_or_add(struct command *c, const char *flag, const char *value)
{
    return set_flag(c, flag, value) || (put_word(c, flag) && put_word(c, value));
}

/* Flags of the layout; an axis above 1 that the command does not have is missing. The launcher's number of processes
 * follows where data parallelism stays as it was. */
static bool set_layout(struct command *c, const char *text, const struct rlk_layout *now)
{
    static const char *const axes[] = {"tp", "cp", "pp", "ep"};
    static const char *const processes[] = {"--nproc_per_node", "--nproc-per-node", "--ntasks", "-np"};
    char number[24];
    uint64_t before = 1, after = 1;
    if (is_rlktrain(c))
        return set_or_add(c, "--layout", text);
    for (size_t a = 0; a < 4; a++) {
        int found = 0;
        const uint32_t want = axis_of(now, axes[a]);
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            const char *old = strcmp(known[k].axis, axes[a]) == 0 ? value_of(c, known[k].flag) : NULL;
            if (!old)
                continue;
            if (!found++) {
                before *= strtoull(old, NULL, 10);
                after *= want;
            }
            snprintf(number, sizeof number, "%u", want);
            set_flag(c, known[k].flag, number);
        }
        if (!found && want > 1)
            c->missing = axes[a];
    }
    for (size_t k = 0; before && k < sizeof processes / sizeof processes[0]; k++) {
        const char *old = value_of(c, processes[k]);
        const uint64_t n = old ? strtoull(old, NULL, 10) : 0;
        if (n && n < 1u << 24 && n % before == 0) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)(n / before * after));
            set_flag(c, processes[k], number);
        }
    }
    return true;
}

static bool set_modes(struct command *c, const struct rlki_list *modes)
{
    for (uint32_t i = 0; i < modes->n; i++) {
        const char *text = modes->items[i], *eq = strchr(text, '=');
        char name[128] = "RLK_MODE";
        size_t n = strlen(name);
        if (is_rlktrain(c)) {
            if (!put_word(c, "--mode") || !put_word(c, text))
                return false;
            continue;
        }
        for (const char *p = text; eq && p < eq && n < sizeof name - 2; p++) {
            if (p == text)
                name[n++] = '_';
            name[n++] = (char)toupper((unsigned char)*p);
        }
        name[n] = 0;
        char *pair = malloc(n + strlen(text) + 2);
        if (!pair || c->nenv == RLK_TRAIN_MODES)
            return false;
        sprintf(pair, "%s=%s", name, eq ? eq + 1 : text);
        c->env[c->nenv++] = pair;
    }
    return true;
}

static bool plain(const char *word)
{
    for (const char *p = word; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_=./:,+@%", *p))
            return false;
    return *word != 0;
}

/* As a shell would take it. */
static void print_word(const char *word)
{
    if (plain(word)) {
        printf(" %s", word);
        return;
    }
    fputs(" '", stdout);
    for (const char *p = word; *p; p++) {
        if (*p == '\'')
            fputs("'\\''", stdout);
        else
            fputs(rlki_esc((const char[]){*p, 0}), stdout);
    }
    putchar('\'');
}

static void print_command(const struct command *c, const char *out)
{
    fputs("relaunch:", stdout);
    for (size_t i = 0; i < c->nenv; i++)
        print_word(c->env[i]);
    fputs(" rlkrec run", stdout);
    if (out) {
        fputs(" -o", stdout);
        print_word(out);
    }
    fputs(" --", stdout);
    for (size_t i = 0; i < c->n; i++)
        print_word(c->word[i]);
    putchar('\n');
    fflush(stdout);
}

static int run(struct command *c, const char *out)
{
    const char *argv[MOST_WORDS + 8];
    char self[PATH_MAX], rlkrec[PATH_MAX + 8];
    int n = 0, status = 0;
    if (!rlki_find_rlkrec(self, rlkrec)) {
        rlki_say("rlkrec is not beside rlkreplay");
        return RLKI_EXIT_FAULT;
    }
    argv[n++] = rlkrec;
    argv[n++] = "run";
    if (out) {
        argv[n++] = "-o";
        argv[n++] = out;
    }
    argv[n++] = "--";
    for (size_t i = 0; i < c->n; i++)
        argv[n++] = c->word[i];
    argv[n] = NULL;
    const pid_t pid = fork();
    if (pid == 0) {
        unsetenv(RLK_ENV_RECORDING);
        for (size_t i = 0; i < c->nenv; i++)
            putenv(c->env[i]);
        execv(rlkrec, (char *const *)(uintptr_t)argv);
        _exit(RLKI_EXIT_NOT_FOUND);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            break;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
        rlki_say("the relaunched command failed");
        return RLKI_EXIT_FAULT;
    }
    return RLKI_EXIT_OK;
}

static int read_command(struct command *c, const char *recording)
{
    struct rlk_recording *r;
    struct rlk_detail detail = {""};
    enum rlk_intact how;
    int rc = rlk_recording_open(&r, recording, &detail);
    int status = RLKI_GO_ON;
    if (rc)
        return rlki_fail(recording, rc, &detail);
    rc = rlk_recording_intact(r, RLK_INTACT_MOST, &how, &detail); /* a command that somebody changed is not run */
    if (rc) {
        rlk_recording_close(r);
        return rlki_fail(recording, rc, &detail);
    }
    const json_t *argv = json_object_get(rlk_recording_manifest(r), "argv");
    for (size_t i = 0; i < json_array_size(argv) && status == RLKI_GO_ON; i++) {
        const char *word = json_string_value(json_array_get(argv, i));
        if (!word || strstr(word, "[redacted]")) {
            rlki_say("%s: a part of the recorded command was redacted: it cannot be run again", recording);
            status = RLKI_EXIT_NOT_COMPARABLE;
        } else if (!put_word(c, word)) {
            rlki_say("%s: the recorded command is too long", recording);
            status = RLKI_EXIT_FAULT;
        }
    }
    if (status == RLKI_GO_ON && c->n == 0) {
        rlki_say("%s: the recording does not say what command was recorded", recording);
        status = RLKI_EXIT_NOT_COMPARABLE;
    }
    rlk_recording_close(r);
    return status;
}

int rlki_relaunch(const char *recording, const char *layout, const char *rollout, const struct rlki_list *modes,
                  const char *out, bool dry)
{
    struct command c = {.n = 0};
    struct rlk_layout now;
    struct rlk_detail detail;
    int status = read_command(&c, recording);
    bool ok = true;
    if (status == RLKI_GO_ON && layout && rlk_layout_parse(&now, layout, &detail) != RLK_OK) {
        rlki_say("%s: not a layout, write tp4cp2", layout);
        status = RLKI_EXIT_FAULT;
    }
    if (status == RLKI_GO_ON && layout)
        ok = set_layout(&c, layout, &now);
    if (status == RLKI_GO_ON && rollout && is_rlktrain(&c))
        ok = ok && set_or_add(&c, "--rollout-layout", rollout);
    else if (rollout)
        c.missing = "rollout layout";
    if (status == RLKI_GO_ON)
        ok = ok && set_modes(&c, modes);
    if (status == RLKI_GO_ON && !ok) {
        rlki_say("the command could not be made: it is too long, or memory is short");
        status = RLKI_EXIT_FAULT;
    }
    if (status == RLKI_GO_ON && c.missing) {
        rlki_say("the recorded command has no flag for %s (known: rlktrain's --layout, --tensor-model-parallel-size, "
                 "--context-parallel-size and the like): run it by hand",
                 c.missing);
        status = RLKI_EXIT_NOT_COMPARABLE;
    }
    if (status == RLKI_GO_ON) {
        print_command(&c, out);
        status = dry ? RLKI_EXIT_OK : run(&c, out);
    }
    for (size_t i = 0; i < c.n; i++)
        free(c.word[i]);
    for (size_t i = 0; i < c.nenv; i++)
        free(c.env[i]);
    return status;
}
