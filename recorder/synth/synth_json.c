#include "recorder/synth/synth_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sy_shown(char out[96], const char *s)
{
    size_t n = 0;
    for (; s[n] && n < 64; n++)
        out[n] = (unsigned char)s[n] < 0x20 || s[n] == 0x7f ? '?' : s[n];
    /* Never cut inside a UTF-8 sequence. */
    if (s[n])
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
    snprintf(out + n, 96 - n, "%s", s[n] ? "..." : "");
    return out;
}

void sy_path(char *out, size_t size, const struct sy_at *at)
{
    const struct sy_at *chain[32];
    size_t depth = 0, used = 0;
    char shown[96];

    for (; at && at->up && depth < 32; at = at->up)
        chain[depth++] = at;
    out[0] = '\0';
    if (!depth)
        snprintf(out, size, "spec");
    while (depth-- > 0 && used < size) {
        const struct sy_at *p = chain[depth];
        int n = p->key ? snprintf(out + used, size - used, "%s%s", used ? "." : "", sy_shown(shown, p->key))
                       : snprintf(out + used, size - used, "[%zu]", p->index);
        used += n > 0 ? (size_t)n : 0;
    }
}

int sy_fail(const struct sy_at *at, const char *format, ...)
{
    char path[256], text[256];
    va_list ap;

    sy_path(path, sizeof path, at);
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return rlk_fail(at->detail, RLK_EPARSE, "%s: %s", path, text);
}

struct sy_at sy_get(const struct sy_at *at, const char *key)
{
    return (struct sy_at){json_object_get(at->v, key), at, key, 0, at->detail};
}

struct sy_at sy_item(const struct sy_at *at, size_t i)
{
    return (struct sy_at){json_array_get(at->v, i), at, NULL, i, at->detail};
}

static const char *type_name(const json_t *v)
{
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return v ? "null" : "nothing";
    }
}

static bool listed(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

int sy_object(const struct sy_at *at, const char *const *keys)
{
    const char *key;
    json_t *value;
    char shown[96];

    if (!json_is_object(at->v))
        return sy_fail(at, "expected an object, got %s", type_name(at->v));
    json_object_foreach((json_t *)(uintptr_t)at->v, key, value)
    {
        (void)value;
        if (!listed(key, keys))
            return sy_fail(at, "unknown key \"%s\"", sy_shown(shown, key));
    }
    return RLK_OK;
}

int sy_only_key(const struct sy_at *at, struct sy_at *value, const char *const *keys)
{
    char all[200] = "";
    size_t used = 0;
    int rc = sy_object(at, keys);

    if (rc)
        return rc;
    *value = (struct sy_at){NULL, at, NULL, 0, at->detail};
    if (json_object_size(at->v) == 1)
        for (size_t i = 0; keys[i]; i++)
            if (json_object_get(at->v, keys[i])) {
                *value = sy_get(at, keys[i]);
                return RLK_OK;
            }
    for (size_t i = 0; keys[i] && used < sizeof all; i++) {
        int n = snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", keys[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return sy_fail(at, "expected exactly one of %s", all);
}

int sy_list(const struct sy_at *at, size_t min, size_t max, size_t *n)
{
    if (!json_is_array(at->v))
        return sy_fail(at, "expected a list, got %s", type_name(at->v));
    *n = json_array_size(at->v);
    if (*n < min || *n > max) {
        if (min == max)
            return sy_fail(at, "expected a list of %zu, got %zu entries", min, *n);
        return sy_fail(at, "expected a list of %zu to %zu entries, got %zu", min, max, *n);
    }
    return RLK_OK;
}

int sy_int(const struct sy_at *at, int64_t lo, int64_t hi, int64_t *out)
{
    if (!json_is_integer(at->v))
        return sy_fail(at, "expected an integer, got %s", type_name(at->v));
    int64_t v = json_integer_value(at->v);
    if (v < lo || v > hi)
        return sy_fail(at, "%lld is outside %lld..%lld", (long long)v, (long long)lo, (long long)hi);
    *out = v;
    return RLK_OK;
}

int sy_u32(const struct sy_at *at, uint32_t lo, uint32_t hi, uint32_t *out)
{
    int64_t v = 0;
    int rc = sy_int(at, lo, hi, &v);
    if (!rc)
        *out = (uint32_t)v;
    return rc;
}

int sy_real(const struct sy_at *at, double *out)
{
    if (!json_is_number(at->v))
        return sy_fail(at, "expected a number, got %s", type_name(at->v));
    *out = json_number_value(at->v);
    return isfinite(*out) ? RLK_OK : sy_fail(at, "expected a finite number");
}

int sy_bool(const struct sy_at *at, bool *out)
{
    if (!json_is_boolean(at->v))
        return sy_fail(at, "expected true or false, got %s", type_name(at->v));
    *out = json_is_true(at->v);
    return RLK_OK;
}

int sy_string(const struct sy_at *at, bool may_be_empty, const char **out)
{
    if (!json_is_string(at->v))
        return sy_fail(at, "expected a string, got %s", type_name(at->v));
    size_t n = json_string_length(at->v);
    if (n > RLK_MAX_STRING)
        return sy_fail(at, "the string has %zu bytes, at most %u are possible", n, RLK_MAX_STRING);
    if (strlen(json_string_value(at->v)) != n)
        return sy_fail(at, "the string holds a NUL");
    if (!n && !may_be_empty)
        return sy_fail(at, "the string is empty");
    *out = json_string_value(at->v);
    return RLK_OK;
}

int sy_choice(const struct sy_at *at, const char *const *choices, const char **out)
{
    char all[160] = "", shown[96];
    size_t used = 0;
    const char *s = NULL;
    int rc = sy_string(at, true, &s);

    if (rc)
        return rc;
    for (size_t i = 0; choices[i]; i++) {
        if (strcmp(choices[i], s) == 0) {
            *out = choices[i];
            return RLK_OK;
        }
        int n = snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", choices[i]);
        used += n > 0 ? (size_t)n : 0;
        if (used >= sizeof all)
            used = sizeof all - 1;
    }
    return sy_fail(at, "\"%s\" is none of %s", sy_shown(shown, s), all);
}

int sy_opt_int(const struct sy_at *object, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    struct sy_at at = sy_get(object, key);
    return at.v ? sy_int(&at, lo, hi, out) : RLK_OK;
}

int sy_opt_u32(const struct sy_at *object, const char *key, uint32_t lo, uint32_t hi, uint32_t *out)
{
    struct sy_at at = sy_get(object, key);
    return at.v ? sy_u32(&at, lo, hi, out) : RLK_OK;
}

int sy_opt_bool(const struct sy_at *object, const char *key, bool *out)
{
    struct sy_at at = sy_get(object, key);
    return at.v ? sy_bool(&at, out) : RLK_OK;
}

int sy_opt_string(const struct sy_at *object, const char *key, const char **out)
{
    struct sy_at at = sy_get(object, key);
    return at.v ? sy_string(&at, true, out) : RLK_OK;
}

int sy_need(const struct sy_at *object, const char *key, struct sy_at *value)
{
    *value = sy_get(object, key);
    return value->v ? RLK_OK : sy_fail(object, "the key \"%s\" is missing", key);
}
