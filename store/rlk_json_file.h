/* rlk_json_file.h - small JSON files that people hand around: results, acceptances, baselines, plans. (rlk_archive) */
#ifndef STORE_RLK_JSON_FILE_H
#define STORE_RLK_JSON_FILE_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads the file, hostile as it may be: a regular file or pipe of at most `most` bytes, one JSON object without
 * duplicate keys, whose "schema" is `schema`. RLK_ENOENT, RLK_EIO, RLK_EPARSE (line and column, or what it is instead),
 * RLK_ELIMIT, RLK_ENOMEM. */
int rlk_json_file(json_t **out, const char *path, const char *schema, size_t most, struct rlk_detail *detail);

/* Was it memory that the reader ran out of? It does not always say so: then it says nothing at all. */
bool rlk_json_no_memory(const json_error_t *error);

/* A key of `object` that is none of `keys` (NULL-terminated), or NULL: a misspelt key must not be taken for a wish that
 * was granted. */
const char *rlk_json_stranger(const json_t *object, const char *const *keys);

/* A bounded one-line text: a string of 1 to `most` bytes without control characters, or NULL. */
const char *rlk_json_line(const json_t *object, const char *key, size_t most);

#endif
