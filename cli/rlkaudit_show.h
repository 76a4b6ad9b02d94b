/* rlkaudit_show.h - results of the auditor shown: what text and page share. Everything comes from the JSON, which may
 * be a file of any origin: keys may be missing or of another type, texts may hold anything. */
#ifndef CLI_RLKAUDIT_SHOW_H
#define CLI_RLKAUDIT_SHOW_H

#include "cli/common/rlk_output.h"
#include "cli/rlkaudit.h"

#include <stdarg.h>
#include <stdint.h>

/* ---- JSON ---- */

const char *rlki_raw(const json_t *object, const char *key);  /* "" where there is no text */
const char *rlki_text(const json_t *object, const char *key); /* escaped (rlki_esc) */
int64_t rlki_integer(const json_t *object, const char *key);
const char *rlki_count_of(const json_t *object, const char *key); /* "12,345" */
/* Integers, counts of elements and the like: never negative. */
uint64_t rlki_amount(const json_t *value);

/* "[96,48]". Lives like rlki_esc's. */
const char *rlki_shape_text(const json_t *shape);
/* "0-3,7": ascending numbers, at most `most` stretches, then ",...". */
const char *rlki_ranks_text(const json_t *ranks, unsigned most);
/* Why it stands first: root, input, alone, unknown. */
const char *rlki_why_text(const json_t *diff);
/* A value of a manifest as text: strings bare, the rest as JSON. Lives like rlki_esc's, not escaped. */
const char *rlki_value_text(const json_t *value);
/* Are the kernels of both sides the same ones in the same order, launched alike (streams and graphs apart)? */
bool rlki_same_launch(const json_t *a, const json_t *b);
bool rlki_same_launches(const json_t *a, const json_t *b);
/* Numbers of events on ranks that have no difference of their own; those of ranks that have (JSON arrays, new). */
void rlki_split_ranks(const json_t *result, json_t **own, json_t **none);

/* The command that says more about the first difference, or a sentence; NULL: there is none. The caller frees. */
char *rlki_next_command(const json_t *result, const struct rlki_audit_with *with);

/* ---- lines: items side by side below a label, wrapped at the width of the screen ---- */

#define RLKI_LABEL 11u

struct rlki_lines {
    FILE *to;
    unsigned width, at; /* columns; at = 0: a line begins */
};

/* The columns of `to`: the terminal's, else COLUMNS, else 100; from 40 to 240. */
void rlki_lines_begin(struct rlki_lines *lines, FILE *to);
void rlki_lines_label(struct rlki_lines *lines, const char *label);
/* One item, kept together if it fits on a line at all; shortened in the middle if it is longer than a line. Strings in
 * it must have been escaped. */
void rlki_lines_item(struct rlki_lines *lines, enum rlki_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A sentence, wrapped between words; `bullet` stands before it. At most three lines. */
void rlki_lines_sentence(struct rlki_lines *lines, const char *bullet, const char *text);
void rlki_lines_end(struct rlki_lines *lines);
unsigned rlki_columns(const char *text); /* on a terminal */
/* `text` in at most `columns`, the middle left out; lives like rlki_esc's. */
const char *rlki_shortened(const char *text, unsigned columns);

/* Pieces of text that first-diff and explain share. `d`: a DIFF or an EV. */
void rlki_text_where(struct rlki_lines *lines, const json_t *d);
void rlki_text_sides(struct rlki_lines *lines, const json_t *a, const json_t *b);
void rlki_text_difference(struct rlki_lines *lines, const json_t *difference);
void rlki_text_mechanism(struct rlki_lines *lines, const json_t *mechanism);

#endif
