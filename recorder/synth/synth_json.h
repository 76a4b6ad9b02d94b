/* synth_json.h - reading JSON with the path of every error: cursors, typed getters, unknown keys. Internal. */
#ifndef RECORDER_SYNTH_SYNTH_JSON_H
#define RECORDER_SYNTH_SYNTH_JSON_H

#include "store/rlk_error.h"
#include "store/rlk_event.h"

#include <jansson.h>

/* A place in the document: the value, and the way to it. Lives on the stack of the function that reads it. */
struct sy_at {
    const json_t *v;        /* NULL = the key is absent */
    const struct sy_at *up; /* NULL = the root */
    const char *key;        /* NULL = element `index` of a list */
    size_t index;
    struct rlk_detail *detail;
};

/* "PATH: TEXT" into the detail; returns RLK_EPARSE. */
int sy_fail(const struct sy_at *at, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "PATH" alone, "spec" for the root. Always terminated. */
void sy_path(char *out, size_t size, const struct sy_at *at);
/* At most 64 bytes of s, without control characters, for messages. */
const char *sy_shown(char out[96], const char *s);

struct sy_at sy_get(const struct sy_at *at, const char *key);   /* of an object; v NULL if absent */
struct sy_at sy_item(const struct sy_at *at, size_t i);         /* of a list */
int sy_object(const struct sy_at *at, const char *const *keys); /* an object with no other keys; keys ends in NULL */
int sy_only_key(const struct sy_at *at, struct sy_at *value, const char *const *keys); /* exactly one of keys */
int sy_list(const struct sy_at *at, size_t min, size_t max, size_t *n);

int sy_int(const struct sy_at *at, int64_t lo, int64_t hi, int64_t *out);
int sy_u32(const struct sy_at *at, uint32_t lo, uint32_t hi, uint32_t *out);
int sy_real(const struct sy_at *at, double *out); /* integer or real, finite */
int sy_bool(const struct sy_at *at, bool *out);
int sy_string(const struct sy_at *at, bool may_be_empty,
              const char **out); /* at most RLK_MAX_STRING bytes; the document's */
int sy_choice(const struct sy_at *at, const char *const *choices, const char **out);

/* Optional members: absent leaves *out as it is. */
int sy_opt_int(const struct sy_at *object, const char *key, int64_t lo, int64_t hi, int64_t *out);
int sy_opt_u32(const struct sy_at *object, const char *key, uint32_t lo, uint32_t hi, uint32_t *out);
int sy_opt_bool(const struct sy_at *object, const char *key, bool *out);
int sy_opt_string(const struct sy_at *object, const char *key, const char **out);
int sy_need(const struct sy_at *object, const char *key, struct sy_at *value); /* fails if absent */

#endif
