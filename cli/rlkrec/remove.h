/* remove.h - takes a recording away, and never anything else. */
#ifndef CLI_RLKREC_REMOVE_H
#define CLI_RLKREC_REMOVE_H

#include "store/rlk_recording.h"

/* Does the directory hold a recording and nothing but what belongs to one? RLK_OK, or RLK_EINVAL and the entry that
 * does not belong, RLK_ENOENT. Symbolic links are not followed. */
int rlki_remove_check(const char *dir, struct rlk_detail *detail);

/* Removes it. The manifest goes last, so that what an interruption leaves can be removed again. */
int rlki_remove_tree(const char *dir, struct rlk_detail *detail);

/* Where `latest` beside dir points to nothing now, lets it name the newest again, or removes it. */
void rlki_remove_stale_latest(const char *dir);

#endif
