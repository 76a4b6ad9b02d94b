#include "cli/common/rlk_exit.h"

static int weight(enum rlki_exit status)
{
    static const int order[] = {[RLKI_EXIT_OK] = 0,    [RLKI_EXIT_ACCEPTED] = 1,       [RLKI_EXIT_INCOMPLETE] = 2,
                                [RLKI_EXIT_CHECK] = 3, [RLKI_EXIT_NOT_COMPARABLE] = 4, [RLKI_EXIT_FAULT] = 5};

    return status <= RLKI_EXIT_ACCEPTED ? order[status] : order[RLKI_EXIT_FAULT];
}

enum rlki_exit rlki_exit_worse(enum rlki_exit a, enum rlki_exit b)
{
    return weight(b) > weight(a) ? b : a;
}

int rlki_exit_bisect(enum rlki_exit status, int usage)
{
    if (usage)
        return RLKI_EXIT_BISECT_ABORT;
    switch (status) {
    case RLKI_EXIT_OK:
    case RLKI_EXIT_ACCEPTED:
        return 0;
    case RLKI_EXIT_CHECK:
        return 1;
    default:
        return RLKI_EXIT_BISECT_SKIP;
    }
}
