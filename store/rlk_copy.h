/* rlk_copy.h - checks an event against the bounds of the format and copies it deeply into one block (internal). */
#ifndef STORE_RLK_COPY_H
#define STORE_RLK_COPY_H

#include "store/rlk_error.h"
#include "store/rlk_event.h"

/* Bytes that a deep copy takes (a multiple of 16). RLK_EINVAL, RLK_ELIMIT: the event cannot be stored. */
int rlki_event_size(const struct rlk_event *event, size_t *bytes);
/* The copy; `block` is 16-aligned and has the bytes that rlki_event_size gave. NULL strings become "". */
struct rlk_event *rlki_event_copy(void *block, const struct rlk_event *event);

#endif
