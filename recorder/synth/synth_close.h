/* synth_close.h - closes environments beside the rank that is being written. Internal.
 *
 * Closing an environment waits for its thread and for the disk, and a recording may have thousands of them.
 */
#ifndef RECORDER_SYNTH_SYNTH_CLOSE_H
#define RECORDER_SYNTH_SYNTH_CLOSE_H

#include "store/rlk_writer.h"

#include <pthread.h>

#define SY_CLOSERS 8u

struct sy_closers { /* zero-initialised = none at work */
    struct sy_closer {
        pthread_t thread;
        bool running, incomplete;
        struct rlk_writer *writer;
        int rc;
        struct rlk_detail detail;
    } slots[SY_CLOSERS];
    unsigned next;
};

/* Takes the writer. Returns the failure of an earlier one whose place is needed (detail filled), or of this one where
 * no thread could be had. */
int sy_close_later(struct sy_closers *closers, struct rlk_writer *writer, bool incomplete, struct rlk_detail *detail);
/* Waits for all. The first failure, in the order of closing; `detail` may be NULL. */
int sy_close_all(struct sy_closers *closers, struct rlk_detail *detail);

#endif
