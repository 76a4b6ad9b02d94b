/* Text in lines that a screen holds. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_show.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SENTENCE_LINES 3u

void rlki_lines_begin(struct rlki_lines *lines, FILE *to)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    unsigned long width = columns ? strtoul(columns, NULL, 10) : 0;
    if (isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col)
        width = size.ws_col;
    if (!width)
        width = 100;
    *lines = (struct rlki_lines){.to = to, .width = width < 40 ? 40 : width > 240 ? 240 : (unsigned)width};
}

/* The code point at p (valid UTF-8: the text was escaped) and its length. */
static uint32_t code_at(const unsigned char *p, size_t *len)
{
    size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    uint32_t code = n == 1 ? *p : *p & (0x7fu >> n);
    for (size_t i = 1; i < n && p[i]; i++)
        code = code << 6 | (p[i] & 0x3fu);
    *len = n;
    return code;
}

/* Columns of a code point: 0 for combining marks, 2 for the wide scripts and pictures. */
static unsigned columns_of(uint32_t c)
{
    static const struct {
        uint32_t from, to;
        unsigned columns;
    } table[] = {{0x300, 0x36f, 0},     {0x1100, 0x115f, 2},  {0x20d0, 0x20ff, 0},   {0x2e80, 0xa4cf, 2},
                 {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},  {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},
                 {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},  {0x1f300, 0x1f64f, 2}, {0x1f900, 0x1f9ff, 2},
                 {0x20000, 0x3fffd, 2}, {0xe0100, 0xe01ef, 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (c >= table[i].from && c <= table[i].to)
            return table[i].columns;
    return 1;
}

unsigned rlki_columns(const char *text)
{
    unsigned columns = 0;
    size_t len;
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        columns += columns_of(code_at(p, &len));
        for (; len && *p; len--)
            p++;
    }
    return columns;
}

/* Bytes of the longest beginning of `text` within `columns`. */
static size_t beginning(const char *text, unsigned columns)
{
    unsigned at = 0;
    size_t n = 0, len;
    while (text[n]) {
        at += columns_of(code_at((const unsigned char *)text + n, &len));
        if (at > columns)
            break;
        for (; len && text[n]; len--)
            n++;
    }
    return n;
}

const char *rlki_shortened(const char *text, unsigned columns)
{
    unsigned all = rlki_columns(text), head = columns > 8 ? (columns - 3) * 2 / 3 : 1, tail = columns - 3 - head;
    if (all <= columns || columns < 8)
        return text;
    size_t first = beginning(text, head), last = beginning(text, all - tail);
    char *copy = NULL;
    while (rlki_columns(text + last) > tail) { /* a wide character stands across the border */
        size_t len;
        for (code_at((const unsigned char *)text + last, &len); len && text[last]; len--)
            last++;
    }
    if (asprintf(&copy, "%.*s...%s", (int)first, text, text + last) < 0)
        return "...";
    const char *out = rlki_esc(copy); /* into its pool: there is nothing left to escape */
    free(copy);
    return out;
}

static void new_line(struct rlki_lines *lines)
{
    if (lines->at)
        fputc('\n', lines->to);
    lines->at = 0;
}

void rlki_lines_end(struct rlki_lines *lines)
{
    new_line(lines);
}

void rlki_lines_label(struct rlki_lines *lines, const char *label)
{
    new_line(lines);
    fprintf(lines->to, "%s%-*s%s", rlki_style(lines->to, RLKI_DIM), (int)RLKI_LABEL, label,
            rlki_style(lines->to, RLKI_PLAIN));
    lines->at = RLKI_LABEL;
}

/* So that `columns` more fit: on this line behind `gap` spaces, or on the next. */
static void make_room(struct rlki_lines *lines, unsigned columns, unsigned gap)
{
    if (lines->at > RLKI_LABEL && lines->at + gap + columns > lines->width)
        new_line(lines);
    if (!lines->at) {
        fprintf(lines->to, "%*s", (int)RLKI_LABEL, "");
        lines->at = RLKI_LABEL;
    } else if (lines->at > RLKI_LABEL) {
        fprintf(lines->to, "%*s", (int)gap, "");
        lines->at += gap;
    }
}

void rlki_lines_item(struct rlki_lines *lines, enum rlki_style style, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    if (!text)
        return;
    const char *shown = rlki_shortened(text, lines->width - RLKI_LABEL);
    make_room(lines, rlki_columns(shown), 2);
    const char *on = style == RLKI_PLAIN ? "" : rlki_style(lines->to, style);
    fprintf(lines->to, "%s%s%s", on, shown, *on ? rlki_style(lines->to, RLKI_PLAIN) : "");
    lines->at += rlki_columns(shown);
    free(text);
}

void rlki_lines_sentence(struct rlki_lines *lines, const char *bullet, const char *text)
{
    unsigned margin = RLKI_LABEL + rlki_columns(bullet), room = lines->width - margin;
    if (lines->at > RLKI_LABEL)
        new_line(lines);
    make_room(lines, 0, 0);
    fputs(bullet, lines->to);
    for (unsigned line = 1; *text; line++) {
        size_t n = beginning(text, room);
        if (text[n] && line == SENTENCE_LINES) {
            fputs(rlki_shortened(text, room), lines->to);
            break;
        }
        size_t cut = n;
        while (text[n] && cut && text[cut] != ' ')
            cut--;
        if (text[n] && cut > n / 2) /* between words, unless a word fills the line */
            n = cut;
        fprintf(lines->to, "%.*s", (int)n, text);
        text += n;
        text += strspn(text, " ");
        if (*text)
            fprintf(lines->to, "\n%*s", (int)margin, "");
    }
    lines->at = lines->width;
}
