/* rlk_pack.h - one file from recordings, and recordings from one file: a tar archive (POSIX ustar) in zstd
 * (docs/pack.md). (rlk_archive)
 */
#ifndef STORE_RLK_PACK_H
#define STORE_RLK_PACK_H

#include "store/rlk_error.h"

#include <stddef.h>
#include <stdint.h>

#define RLK_PACK_SCHEMA "rlk.pack/1"
#define RLK_PACK_RATIO 256u /* more than that many times the pack's own size is taken for a bomb */

struct rlk_pack_item {
    const char *dir;  /* NAME.rlk, at rest */
    const char *name; /* what it is called inside: NAME.rlk */
};

/* Writes `path` whole or not at all; what is there is replaced. RLK_EINVAL: a name that a pack cannot hold, or
 * something in a directory that is no part of a recording. */
int rlk_pack_write(const char *path, const struct rlk_pack_item *items, size_t n, struct rlk_detail *detail);

/* Makes DIR/NAME.rlk of each recording; `made` (may be NULL) is called with each path when all are whole. The pack is
 * hostile: only names that a recording has are written, each once, nothing outside NAME.rlk, nothing over what exists,
 * at most max_bytes in all (0 = RLK_PACK_RATIO times the pack's size, and 1 MiB). On an error nothing is left.
 * RLK_EPARSE: no pack, or a damaged one, the detail says where; RLK_EEXIST; RLK_ELIMIT. */
int rlk_pack_read(const char *path, const char *dir, uint64_t max_bytes,
                  int (*made)(void *context, const char *recording), void *context, struct rlk_detail *detail);

#endif
