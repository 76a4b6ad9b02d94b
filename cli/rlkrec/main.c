/* rlkrec: the table of subcommands. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: its part is not built yet */
    const char *help;
} commands[] = {
    {"run", rlki_cmd_run, "run a command and record every tensor's digest"},
    {"ls", rlki_cmd_ls, "list recordings"},
    {"info", rlki_cmd_info, "what a recording holds: processes, ranks, coverage, events"},
    {"verify", rlki_cmd_verify, "check a recording against its seal"},
    {"seal", rlki_cmd_seal, "seal a recording (rlkrec run does it when it is the only parent)"},
    {"synth", rlki_cmd_synth, "make a recording from a description (docs/synth.md)"},
    {"rm", rlki_cmd_rm, "remove recordings, and nothing else"},
    {"doctor", rlki_cmd_doctor, "what works on this machine and what does not"},
    {"pack", NULL, "one file from a recording (not built yet)"},
    {"unpack", NULL, "a recording from one file (not built yet)"},
};
#define NCOMMANDS (sizeof commands / sizeof commands[0])

static void help(FILE *to)
{
    fputs("usage: rlkrec COMMAND [options]\n"
          "Records a training or rollout command, bit for bit, and looks after recordings.\n\n",
          to);
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\nA recording is a directory NAME.rlk, by default in rlk-recordings/; @1 is the newest there, @2 the one "
          "before.\n"
          "rlkrec COMMAND --help shows the options; rlkaudit first-diff compares two recordings.\n",
          to);
}

/* A standard stream that was closed must not become the number of a file of ours. A command still finds it closed. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != fd)
            _exit(RLKI_EXIT_FAULT);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    fill_standard_streams();
    if (!name[0]) {
        help(stderr);
        return RLKI_EXIT_FAULT;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return rlki_finish(RLKI_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("rlkrec %s (recording format %s)\n", RLK_VERSION, RLKI_FORMAT_TEXT);
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
    rlki_say("no such command: %s (see rlkrec --help)", name);
    return RLKI_EXIT_FAULT;
}
