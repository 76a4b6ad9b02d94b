#include "store/rlk_json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Appends up to `most` + 1 bytes. */
static int read_bytes(int fd, char **text, size_t *n, size_t most)
{
    size_t room = 0;
    for (;;) {
        if (*n == room) {
            size_t grown = room ? room * 2 : 16384;
            char *more = realloc(*text, grown);
            if (!more)
                return RLK_ENOMEM;
            *text = more;
            room = grown;
        }
        ssize_t got = read(fd, *text + *n, room - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EISDIR ? RLK_EINVAL : RLK_EIO;
        *n += (size_t)got;
        if (*n > most)
            return RLK_ELIMIT;
        if (got == 0)
            return RLK_OK;
    }
}

bool rlk_json_no_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory || (error->line < 0 && !error->text[0]);
}

static int parse(json_t **out, const char *text, size_t n, const char *path, const char *schema,
                 struct rlk_detail *detail)
{
    json_error_t error;
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    const char *is = json_string_value(json_object_get(json, "schema"));
    if (!json && rlk_json_no_memory(&error))
        return rlk_fail(detail, RLK_ENOMEM, "%.300s: out of memory", path);
    if (!json)
        return rlk_fail(detail, RLK_EPARSE, "%.300s: no %s file: no JSON at line %d, column %d (%.100s)", path, schema,
                        error.line, error.column, error.text);
    if (!is || strcmp(is, schema) != 0) {
        int rc = rlk_fail(detail, RLK_EPARSE, "%.300s: not a file of schema %s (\"schema\" is %.60s)", path, schema,
                          is ? is : "missing");
        json_decref(json);
        return rc;
    }
    *out = json;
    return RLK_OK;
}

int rlk_json_file(json_t **out, const char *path, const char *schema, size_t most, struct rlk_detail *detail)
{
    char *text = NULL;
    size_t n = 0;
    struct stat st;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
    int rc = fstat(fd, &st) || S_ISDIR(st.st_mode) ? RLK_EINVAL : read_bytes(fd, &text, &n, most);
    if (rc == RLK_EINVAL)
        rlk_fail(detail, rc = RLK_EIO, "%.400s: a directory", path);
    else if (rc == RLK_ELIMIT)
        rlk_fail(detail, rc, "%.400s: more than %zu bytes", path, most);
    else if (rc)
        rlk_fail(detail, rc, "%.400s: %s", path, rc == RLK_EIO ? strerror(errno) : rlk_error_sentence(rc));
    else
        rc = parse(out, text, n, path, schema, detail);
    free(text);
    close(fd);
    return rc;
}

const char *rlk_json_stranger(const json_t *object, const char *const *keys)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return key;
    }
    return NULL;
}

const char *rlk_json_line(const json_t *object, const char *key, size_t most)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (!text || n == 0 || n > most || strlen(text) != n)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return NULL;
    return text;
}
