/* closing.h - what `rlkrec run` says at the end: where, how large, how much was seen, what to do next; and when nothing
 * was recorded, why.
 */
#ifndef CLI_RLKREC_CLOSING_H
#define CLI_RLKREC_CLOSING_H

#include "cli/rlkrec/child.h"
#include "cli/rlkrec/target.h"

#include <jansson.h>
#include <stdbool.h>

/* Completes the manifest, seals (unless others may still write), tells (quiet: only
 * what is wrong). Nothing here changes the command's status. */
void rlki_closing(const struct rlki_target *target, json_t *manifest, const struct rlki_child *child, char *const *argv,
                  bool loaded, bool quiet);

#endif
