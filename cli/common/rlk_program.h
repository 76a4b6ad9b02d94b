/* rlk_program.h - a program of subcommands, by table: a row and a file each.
 *
 * The program's table header lists them once, as an X-macro that makes both the prototypes and the rows:
 *
 *     #define RLKI_AUDIT_COMMANDS(BUILT, LATER)                                     \
 *         BUILT("explain", rlki_audit_explain, "one event on both sides")           \
 *         LATER("modes", "compare modes")
 *
 *     RLKI_AUDIT_COMMANDS(RLKI_PROTOTYPE, RLKI_NO_PROTOTYPE)
 *     static const struct rlki_subcommand table[] = {RLKI_AUDIT_COMMANDS(RLKI_ROW, RLKI_LATER_ROW)};
 */
#ifndef CLI_COMMON_RLK_PROGRAM_H
#define CLI_COMMON_RLK_PROGRAM_H

#include <stddef.h>

struct rlki_subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit status. NULL: not built yet */
    const char *help;                  /* one line */
};

struct rlki_program {
    const char *name, *summary;
    const char *closing; /* below the list of subcommands in --help */
    const struct rlki_subcommand *commands;
    size_t ncommands;
};

#define RLKI_PROTOTYPE(name, function, help) int function(int argc, char **argv);
#define RLKI_NO_PROTOTYPE(name, help)
#define RLKI_ROW(name, function, help) {name, function, help},
#define RLKI_LATER_ROW(name, help) {name, NULL, help " (not built yet)"},

/* Runs the subcommand that argv[1] names; --help, --version and mistakes are answered here. */
int rlki_dispatch(const struct rlki_program *program, int argc, char **argv);

#endif
