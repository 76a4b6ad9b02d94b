/* rlkrec: its subcommands stand in cli/rlkrec/commands.h. */
#include "cli/common/rlk_exit.h"
#include "cli/rlkrec/commands.h"

#include <fcntl.h>
#include <unistd.h>

static const struct rlki_subcommand commands[] = {RLKI_REC_COMMANDS(RLKI_ROW, RLKI_LATER_ROW)};

/* A standard stream that was closed must not become the number of a file of ours. A command still finds it closed. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != fd)
            _exit(RLKI_EXIT_FAULT);
}

int main(int argc, char **argv)
{
    static const struct rlki_program program = {
        .name = "rlkrec",
        .summary = "Records a training or rollout command, bit for bit, and looks after recordings.",
        .closing =
            "A recording is a directory NAME.rlk, by default in rlk-recordings/; @1 is the newest there, @2 the one "
            "before.\n"
            "rlkrec COMMAND --help shows the options; rlkaudit first-diff compares two recordings.\n",
        .commands = commands,
        .ncommands = sizeof commands / sizeof *commands,
    };
    fill_standard_streams();
    return rlki_dispatch(&program, argc, argv);
}
