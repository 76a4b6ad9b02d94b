/* info.h - what `rlkrec info` shows, as JSON and as text. */
#ifndef CLI_RLKREC_INFO_H
#define CLI_RLKREC_INFO_H

#include "cli/common/rlk_options.h"
#include "store/rlk_recording.h"

#include <stdio.h>

struct rlki_event_filter {
    uint64_t limit;   /* 0 = all */
    const char *rank; /* NULL = all */
    struct rlki_span steps;
};

/* One line an event, in each environment's order: the same for the same computation, without addresses, times and
 * process ids (docs/cli.md, "rlkrec info --events"). */
int rlki_events_print(FILE *to, const struct rlk_recording *recording, const struct rlki_event_filter *filter,
                      struct rlk_detail *detail);

#endif
