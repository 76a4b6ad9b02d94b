/* rlk_exit.h - exit status of every program here, in one place. The contract is docs/cli.md, "Exit status". */
#ifndef CLI_COMMON_RLK_EXIT_H
#define CLI_COMMON_RLK_EXIT_H

enum rlki_exit {
    RLKI_EXIT_OK = 0,             /* fine, or identical */
    RLKI_EXIT_CHECK = 1,          /* the check fails: diverged, tampered, a finding */
    RLKI_EXIT_FAULT = 2,          /* usage, I/O, internal */
    RLKI_EXIT_NOT_COMPARABLE = 3, /* not comparable, not replayable, refused layout */
    RLKI_EXIT_INCOMPLETE = 4,     /* no events, a rank or an END missing, events dropped; verify: no SEAL */
    RLKI_EXIT_ACCEPTED = 5,       /* only accepted drift */

    /* `rlkrec run` only; everything else it returns is the command's own. */
    RLKI_EXIT_CANNOT_START = 125, /* output exists, bad option */
    RLKI_EXIT_CANNOT_EXEC = 126,
    RLKI_EXIT_NOT_FOUND = 127,
    RLKI_EXIT_SIGNAL = 128, /* + number of the signal */

    /* `rlkaudit ... --bisect`, as `git bisect run` takes it. */
    RLKI_EXIT_BISECT_SKIP = 125,
    RLKI_EXIT_BISECT_ABORT = 128,
};

/* The status that tells more, by the precedence 2 > 3 > 1 > 4 > 5 > 0. */
enum rlki_exit rlki_exit_worse(enum rlki_exit a, enum rlki_exit b);

/* What `--bisect` returns for `status`; `usage` = the command line itself was wrong. */
int rlki_exit_bisect(enum rlki_exit status, int usage);

#endif
