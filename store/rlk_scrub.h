/* rlk_scrub.h - a copy of a recording without what should not leave the house (docs/pack.md). (rlk_archive)
 *
 * Names become keyed hashes, equal names equal hashes under one key, so recordings that are scrubbed with one scrub
 * compare with each other as before.
 */
#ifndef STORE_RLK_SCRUB_H
#define STORE_RLK_SCRUB_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {                      /* what is taken out */
       RLK_SCRUB_NAMES = 1, /* modules, tensors, samples, requests, version labels, ids, texts of attributes, notes */
       RLK_SCRUB_OPS = 2,   /* operators, contracts and kernels */
       RLK_SCRUB_PATHS = 4, /* texts with a slash */
       RLK_SCRUB_ENVIRONMENT = 8, /* command line, environment variables, hosts, users, the facts of a process */
       RLK_SCRUB_VALUES = 16,     /* bytes of tensors, parameters of kernels, token ids */
       RLK_SCRUB_ALL = 31,
};

struct rlk_scrub; /* what, and the key */

/* A random key. RLK_ENOMEM, RLK_EIO (no randomness). */
int rlk_scrub_new(struct rlk_scrub **out, unsigned what);
void rlk_scrub_free(struct rlk_scrub *scrub);

/* Writes the copy `to` (which must not exist) of the recording `from`, sealed when `from` has a SEAL. RLK_EEXIST,
 * RLK_ENOSPC, RLK_ECORRUPT (of `from`)...; on an error what was made is left to the caller. */
int rlk_scrub_recording(struct rlk_scrub *scrub, const char *from, const char *to, struct rlk_detail *detail);

/* Parses "names,paths" or "all"; 0 = not well-formed. */
unsigned rlk_scrub_parse(const char *text);

#endif
