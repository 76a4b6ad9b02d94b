/* rlkaudit: its subcommands stand in cli/rlkaudit.h. */
#include "cli/rlkaudit.h"

static const struct rlki_subcommand commands[] = {RLKI_AUDIT_COMMANDS(RLKI_ROW, RLKI_LATER_ROW)};

int main(int argc, char **argv)
{
    static const struct rlki_program program = {
        .name = "rlkaudit",
        .summary = "Compares recordings and names the tensor that went wrong first.",
        .closing = "A recording is a directory NAME.rlk; @1 is the newest in rlk-recordings/, @2 the one before.\n"
                   "Exit: 0 identical, 1 diverged, 2 usage or I/O, 3 not comparable, 4 incomplete, 5 accepted drift.\n"
                   "rlkaudit COMMAND --help shows the options.\n",
        .commands = commands,
        .ncommands = sizeof commands / sizeof *commands,
    };
    return rlki_dispatch(&program, argc, argv);
}
