/* rlk_options.h - command lines by table: one struct rlki_command a subcommand, one row an option.
 *
 * Accepted forms: --name VALUE, --name=VALUE, -n VALUE, -nVALUE, flags -a or --all; "--" ends the options. Values are
 * checked here, so that a command starts only with what it can use. --help and --version belong to every command.
 * Nothing is allocated: strings point into argv, lists are filled in place.
 */
#ifndef CLI_COMMON_RLK_OPTIONS_H
#define CLI_COMMON_RLK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RLKI_MAX_LIST 64u

struct rlki_list { /* a repeatable option */
    uint32_t n;
    const char *items[RLKI_MAX_LIST];
};

struct rlki_span { /* "A:B", half-open; either side may be left out */
    bool set;
    int64_t first, last; /* INT64_MIN and INT64_MAX when left out */
};

enum rlki_option_type {              /* what `value` points at */
                        RLKI_FLAG,   /* bool, set to true */
                        RLKI_STRING, /* const char *; given twice, the last holds */
                        RLKI_CHOICE, /* const char *: one of `arg`, written "a|b|c" */
                        RLKI_LIST,   /* struct rlki_list */
                        RLKI_NUMBER, /* uint64_t */
                        RLKI_COUNT,  /* uint64_t, not 0 */
                        RLKI_SIZE,   /* uint64_t bytes: 4096, 64K, 1.5G, 2T (powers of 1024) */
                        RLKI_SPAN,   /* struct rlki_span */
                        RLKI_LATER,  /* `value` unused: its part is not built yet; says so and ends with `usage_exit` */
};

struct rlki_option {
    const char *name; /* "out" for --out */
    char letter;      /* 'o' for -o, 0 for none */
    enum rlki_option_type type;
    void *value;
    const char *arg;  /* "DIR"; the choices of a RLKI_CHOICE; NULL for a flag */
    const char *help; /* one line; NULL = not shown */
};

struct rlki_command {
    const char *program;  /* "rlkrec" */
    const char *name;     /* "run", or NULL for a program without subcommands */
    const char *synopsis; /* "[options] -- CMD..." */
    const char *summary;  /* one sentence */
    const struct rlki_option *options;
    size_t noptions;
    int min_args, max_args; /* positional arguments; max_args < 0 = any number */
    bool stop_at_first;     /* the first positional argument ends the options (a command line follows) */
    int usage_exit;         /* 0 = RLKI_EXIT_FAULT */
    const char *more;       /* printed below the options in --help, or NULL */
};

#define RLKI_GO_ON (-1)

/* argv[0] is the program or subcommand. RLKI_GO_ON: *args are the positional arguments (argv is permuted so that they
 * stand together). Else the exit status: --help and --version printed to stdout, a mistake told on stderr. */
int rlki_parse(const struct rlki_command *command, int argc, char **argv, int *nargs, char ***args);

/* Says what is wrong with the command line and where help is; returns the status to exit with. */
int rlki_usage(const struct rlki_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One value each; false = not well-formed or out of range. */
bool rlki_read_number(uint64_t *out, const char *text);
bool rlki_read_size(uint64_t *out, const char *text);
bool rlki_read_span(struct rlki_span *out, const char *text);

#endif
