/* rlk_pack_impl.h - the tar header that writer and reader share (internal to rlk_archive). */
#ifndef STORE_RLK_PACK_IMPL_H
#define STORE_RLK_PACK_IMPL_H

#include "store/rlk_pack.h"

#include <stdbool.h>
#include <stddef.h>

#define RLKI_TAR_BLOCK 512u
#define RLKI_PACK_INDEX "rlkpack.json"
#define RLKI_PACK_INDEX_BYTES (1u << 20)
#define RLKI_PACK_RECORDINGS 1000u

struct rlki_tar { /* POSIX ustar */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], check[8], type, link[100], magic[6], version[2],
        user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct rlki_tar) == RLKI_TAR_BLOCK, "a tar header is one block");

/* Sum of the header's bytes, with blanks in place of `check`. */
unsigned rlki_tar_check(const struct rlki_tar *header);
/* A name that a recording in a pack may have: NAME.rlk, no slash, no control character, not hidden, at most 150 bytes.
 */
bool rlki_pack_name(const char *name);
/* A file that a recording has: manifest.json, SEAL, rank-RRRRR.pid-P/data.mdb. */
bool rlki_pack_member(const char *path);

#endif
