/* Text that a terminal can be shown. */
#include "cli/common/rlk_output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 16u

/* A rotating pool, so that several escaped strings fit one printf. */
static char *slot(size_t bytes)
{
    static char *pool[SLOTS];
    static size_t room[SLOTS];
    static unsigned next;
    unsigned i = next++ % SLOTS;

    if (room[i] < bytes) {
        char *grown = realloc(pool[i], bytes);
        if (!grown)
            return NULL;
        pool[i] = grown;
        room[i] = bytes;
    }
    return pool[i];
}

/* Length of the UTF-8 sequence at p and its code point; 0 if it is none. */
static size_t utf8(const unsigned char *p, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;

    if (n <= 1) {
        *code = p[0];
        return n;
    }
    *code = p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3f);
    }
    if (*code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
        return 0;
    return n;
}

/* Code points that move the cursor, hide text or turn its direction. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe0000 && c < 0xe0080);
}

const char *rlki_esc(const char *text)
{
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    size_t n = strlen((const char *)p);
    char *out = slot(n * 10 + 1), *q = out;

    if (!out)
        return "(out of memory)";
    while (*p) {
        uint32_t code = 0;
        size_t len = utf8(p, &code);
        if (!len) {
            q += sprintf(q, "\\x%02x", *p++);
            continue;
        }
        if (code == '\n' || code == '\t' || code == '\r')
            q += sprintf(q, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
        else if (is_unsafe(code))
            q += sprintf(q, code < 0x100 ? "\\x%02x" : "\\u{%04x}", code);
        else
            q = (char *)memcpy(q, p, len) + len;
        p += len;
    }
    *q = 0;
    return out;
}

json_t *rlki_json_string(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    json_t *json = NULL;
    char *out, *q;

    if (!text)
        return json_null();
    json = json_string(text);
    if (json)
        return json;
    out = malloc(strlen(text) * 3 + 1);
    if (!out)
        return NULL;
    for (q = out; *p;) {
        uint32_t code;
        size_t len = utf8(p, &code);
        q = (char *)memcpy(q, len ? (const char *)p : "\xef\xbf\xbd", len ? len : 3) + (len ? len : 3);
        p += len ? len : 1;
    }
    *q = 0;
    json = json_string(out);
    free(out);
    return json;
}

const char *rlki_style(FILE *to, enum rlki_style style)
{
    static const char *const codes[] = {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if ((no && no[0]) || !term || strcmp(term, "dumb") == 0 || !isatty(fileno(to)))
        return "";
    return codes[style];
}

const char *rlki_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    size_t unit = 0;
    char *out = slot(32);

    if (!out)
        return "";
    while (v >= 999.5 && unit < 6) {
        v /= 1000;
        unit++;
    }
    snprintf(out, 32, unit && v < 99.95 ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return out;
}

const char *rlki_count(uint64_t count)
{
    char digits[24], *out = slot(32), *q = out;
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);

    if (!out)
        return "";
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            *q++ = ',';
        *q++ = digits[i];
    }
    *q = 0;
    return out;
}

const char *rlki_seconds(double s)
{
    char *out = slot(32);

    if (!out)
        return "";
    if (s < 1)
        snprintf(out, 32, "%.0f ms", s * 1e3);
    else if (s < 120)
        snprintf(out, 32, "%.1f s", s);
    else
        snprintf(out, 32, "%.0f min %02.0f s", (double)(long)(s / 60), s - 60 * (double)(long)(s / 60));
    return out;
}
