/* rlk_output.h - what the programs print: results to stdout or a file, messages to stderr, nothing that a terminal
 * obeys.
 *
 * Every string that comes from a recording, a command line or the environment passes rlki_esc() before it is printed,
 * or is JSON, which is written in ASCII. The programs are single-threaded here.
 */
#ifndef CLI_COMMON_RLK_OUTPUT_H
#define CLI_COMMON_RLK_OUTPUT_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifndef RLK_VERSION
#define RLK_VERSION "0"
#endif
#define RLKI_FORMAT_TEXT "1.1"

/* Set once by main: the name in front of messages. */
extern const char *rlki_program;

/* `text` with control characters (C0, DEL, C1), line ends, bidirectional overrides and bytes that are no UTF-8 written
 * as \n, \xNN or \u{NNNN}. Lives for the next 15 calls. NULL gives "". */
const char *rlki_esc(const char *text);

/* "rlkrec: " and one line on stderr; the text is escaped whole. rlki_warn starts it with "warning: ". */
void rlki_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rlki_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says what failed and what can be done (store/rlk_error.h), each thing once; returns RLKI_EXIT_FAULT. With RLK_EEXIST
 * `what` is what exists. */
int rlki_fail(const char *what, int code, const struct rlk_detail *detail);

/* Flushes stdout. A failed write (disk full, closed pipe) is told and makes the status RLKI_EXIT_FAULT. */
int rlki_finish(int status);

/* Writes `json` to `path`, or to stdout if it is "-": pretty, ASCII, keys in order, doubles in full precision, newline
 * at the end. A file appears whole or not at all. Returns 0 or RLKI_EXIT_FAULT, told on stderr. Does not steal `json`.
 */
int rlki_write_json(const char *path, const json_t *json);
/* The same for text made by `print`, which returns 0 or a status. */
int rlki_write_text(const char *path, int (*print)(FILE *to, void *context), void *context);

/* A JSON string of any bytes: what is no UTF-8 becomes U+FFFD. NULL gives null. */
json_t *rlki_json_string(const char *text);

/* Colour: an escape sequence, or "" where `to` is no terminal, NO_COLOR is set or TERM is dumb. */
enum rlki_style {
    RLKI_PLAIN,
    RLKI_BOLD,
    RLKI_DIM,
    RLKI_RED,
    RLKI_GREEN,
    RLKI_YELLOW,
};
const char *rlki_style(FILE *to, enum rlki_style style);

/* "1.4 GB" (powers of 1000), "12,345", "3.2 s": for people; JSON has the plain numbers. Live like rlki_esc's. */
const char *rlki_bytes(uint64_t bytes);
const char *rlki_count(uint64_t count);
const char *rlki_seconds(double seconds);

/* Progress on stderr: one line rewritten at most once a second, on a terminal only, gone at the end. */
struct rlki_progress {
    const char *what;
    double last;
    bool on, shown;
};
void rlki_progress_begin(struct rlki_progress *progress, const char *what);
void rlki_progress(struct rlki_progress *progress, uint64_t done, uint64_t total); /* total 0 = unknown */
void rlki_progress_end(struct rlki_progress *progress);

#endif
