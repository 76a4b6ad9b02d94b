/* rlk_encode.h - events to records (internal): what the writer thread does with each event. */
#ifndef STORE_RLK_ENCODE_H
#define STORE_RLK_ENCODE_H

#include "store/rlk_intern.h"

/* Where a field's last string and its id are remembered: most events repeat the field of the one before. */
#define RLKI_RECENT 64u
struct rlki_recent {
    const uint8_t *p; /* the table's own bytes */
    uint32_t n, id;
};

struct rlki_encoder { /* zero-initialised = empty */
    struct rlki_table strings, descs;
    struct rlki_recent recent[RLKI_RECENT];
    struct rlki_buf desc, record; /* scratch */
};

/* Id of a string, sanitised to UTF-8; 0 for "". Out of memory: *oom = true. */
uint32_t rlki_encode_string(struct rlki_encoder *enc, const char *s, bool *oom);

/* Appends length and record of *event (seq filled in; no PENDING tensor) to *out. RLK_ENOMEM, RLK_ELIMIT: nothing
 * appended. The ids of phase and module are handed back for the roll-up. */
int rlki_encode_event(struct rlki_encoder *enc, struct rlki_buf *out, const struct rlk_event *event, uint32_t *phase,
                      uint32_t *module);

void rlki_encoder_release(struct rlki_encoder *enc);

#endif
