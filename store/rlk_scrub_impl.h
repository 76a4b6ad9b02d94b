/* rlk_scrub_impl.h - what the files of the scrub share (internal to rlk_archive).
 *
 * rlk_scrub_text.c    strings: by their role kept, hashed or removed
 * rlk_scrub_env.c     one environment, event by event
 * rlk_scrub.c         manifest, whole recording
 */
#ifndef STORE_RLK_SCRUB_IMPL_H
#define STORE_RLK_SCRUB_IMPL_H

#include "store/rlk_event.h"
#include "store/rlk_scrub.h"
#include "store/rlk_seal_impl.h"

struct rlk_scrub {
    unsigned what;
    uint8_t key[32];
    struct rlki_sha *sha;
};

enum rlki_role_of_text {
    RLKI_TEXT_NAME, /* a dotted path or label that somebody chose */
    RLKI_TEXT_OP,   /* an operator or kernel */
    RLKI_TEXT_FREE, /* a sentence, a value */
    RLKI_TEXT_WORD, /* of the format's own vocabulary: only a slash makes it suspect */
};

#define RLKI_SCRUBBED "[redacted]"

/* The text that takes its place, in `arena` or `text` itself. NULL = out of memory. */
const char *rlki_scrub_text(struct rlk_scrub *scrub, struct rlk_arena *arena, enum rlki_role_of_text role,
                            const char *text);
/* A keyed hash of `n` bytes. */
uint64_t rlki_scrub_hash(struct rlk_scrub *scrub, const void *bytes, size_t n);

/* Copies one environment directory. */
int rlki_scrub_env(struct rlk_scrub *scrub, const char *from, const char *to, struct rlk_detail *detail);

#endif
