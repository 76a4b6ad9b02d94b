/* rlkaudit: the table of subcommands. */
#include "cli/rlkaudit.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: its part is not built yet */
    const char *help;
} commands[] = {
    {"first-diff", rlki_audit_first_diff, "name the tensor in which two recordings first differ"},
    {"explain", rlki_audit_explain, "one event on both sides: inputs, producers, kernels, why it is a root or not"},
    {"check", NULL, "findings in one recording (not built yet)"},
    {"report", NULL, "the cross-layout report of two recordings (not built yet)"},
    {"bisect", NULL, "first differing step, phase and module by roll-ups alone (not built yet)"},
    {"accept", NULL, "accept a known drift (not built yet)"},
    {"baseline", NULL, "save and check a baseline (not built yet)"},
    {"modes", NULL, "compare modes (not built yet)"},
    {"relaunch", NULL, "run an event again (not built yet)"},
};
#define NCOMMANDS (sizeof commands / sizeof commands[0])

static void help(FILE *to)
{
    fputs("usage: rlkaudit COMMAND [options]\n"
          "Compares recordings and names the tensor that went wrong first.\n\n",
          to);
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\nA recording is a directory NAME.rlk; @1 is the newest in rlk-recordings/, @2 the one before.\n"
          "Exit: 0 identical, 1 diverged, 2 usage or I/O, 3 not comparable, 4 incomplete, 5 accepted drift.\n"
          "rlkaudit COMMAND --help shows the options.\n",
          to);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    rlki_program = "rlkaudit";
    if (!name[0]) {
        help(stderr);
        return RLKI_EXIT_FAULT;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return rlki_finish(RLKI_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("rlkaudit %s (recording format %s)\n", RLK_VERSION, RLKI_FORMAT_TEXT);
        return rlki_finish(RLKI_EXIT_OK);
    }
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (commands[i].run)
            return commands[i].run(argc - 1, argv + 1);
        rlki_say("%s is not built yet (docs/cli.md)", name);
        return RLKI_EXIT_FAULT;
    }
    rlki_say("no such command: %s (see rlkaudit --help)", name);
    return RLKI_EXIT_FAULT;
}
