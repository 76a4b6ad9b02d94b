#include "cli/common/rlk_program.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <string.h>

static void help(const struct rlki_program *program, FILE *to)
{
    size_t width = 0;

    for (size_t i = 0; i < program->ncommands; i++)
        if (strlen(program->commands[i].name) > width)
            width = strlen(program->commands[i].name);
    fprintf(to, "usage: %s COMMAND [options]\n%s\n\n", program->name, program->summary);
    for (size_t i = 0; i < program->ncommands; i++)
        fprintf(to, "  %-*s  %s\n", (int)width, program->commands[i].name, program->commands[i].help);
    fprintf(to, "\n%s", program->closing);
}

int rlki_dispatch(const struct rlki_program *program, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    rlki_program = program->name;
    if (!name[0]) {
        help(program, stderr);
        return RLKI_EXIT_FAULT;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(program, stdout);
        return rlki_finish(RLKI_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("%s %s (recording format %s)\n", program->name, RLK_VERSION, RLKI_FORMAT_TEXT);
        return rlki_finish(RLKI_EXIT_OK);
    }
    for (size_t i = 0; i < program->ncommands; i++) {
        if (strcmp(program->commands[i].name, name) != 0)
            continue;
        if (program->commands[i].run)
            return program->commands[i].run(argc - 1, argv + 1);
        rlki_say("%s is not built yet (docs/cli.md)", name);
        return RLKI_EXIT_FAULT;
    }
    rlki_say("no such command: %s (see %s --help)", name, program->name);
    return RLKI_EXIT_FAULT;
}
