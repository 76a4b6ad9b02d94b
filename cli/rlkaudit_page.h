/* rlkaudit_page.h - results as one self-contained HTML file: no script, nothing from elsewhere, inert whatever a
 * recording holds.
 *
 * All of it goes through the four writers below. Text that is not written in this source passes rlki_page_text(), which
 * makes it visible as a terminal would see it (control characters, bidirectional overrides and bytes that are no UTF-8
 * as escapes), shortens it and escapes it for HTML: in content and in attributes in double quotes alike. The page's
 * Content-Security-Policy allows its own style sheet, by hash, and nothing else: what got past would still not run.
 *
 * Lists end where the page reaches its limit, with a sentence that says so: ask rlki_page_room() for each entry.
 */
#ifndef CLI_RLKAUDIT_PAGE_H
#define CLI_RLKAUDIT_PAGE_H

#include "cli/rlkaudit_show.h"

#define RLKI_PAGE_LISTS UINT64_C(1500000) /* bytes that lists may fill a page to; what is not a list takes 100 KB */
#define RLKI_PAGE_NAME 240u               /* columns of a text, the middle of a longer one is left out */

struct rlki_page {
    FILE *to;
    uint64_t bytes, left_out;
};

void rlki_page_raw(struct rlki_page *page, const char *html);
/* Numbers and words of this source only. */
void rlki_page_form(struct rlki_page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rlki_page_text(struct rlki_page *page, const char *text);
void rlki_page_code(struct rlki_page *page, const char *text); /* the same as a name: <code> */
/* May one more entry of a list be written? Counts it as left out if not. */
bool rlki_page_room(struct rlki_page *page);

/* Everything up to the page's header; the caller writes it, <main id="main"> and sections. */
void rlki_page_begin(struct rlki_page *page, FILE *to, const char *title);
void rlki_page_end(struct rlki_page *page, const char *schema);
void rlki_page_section(struct rlki_page *page, const char *id, const char *heading);
void rlki_page_section_end(struct rlki_page *page);
/* Why a DIFF stands as it does: a sentence. */
void rlki_page_why(struct rlki_page *page, const json_t *diff);
/* A side's letter, as a badge. */
void rlki_page_side(struct rlki_page *page, int side);

/* The sections of a first-diff. */
void rlki_page_where(struct rlki_page *page, const json_t *result);
void rlki_page_root(struct rlki_page *page, const json_t *result);
void rlki_page_difference(struct rlki_page *page, const json_t *first);
void rlki_page_mechanism(struct rlki_page *page, const json_t *result, const char *next);
void rlki_page_tree(struct rlki_page *page, const json_t *result);
void rlki_page_ranks(struct rlki_page *page, const json_t *result);
void rlki_page_environment(struct rlki_page *page, const json_t *result);
void rlki_page_coverage(struct rlki_page *page, const json_t *result);
void rlki_page_notes(struct rlki_page *page, const json_t *result);

/* Drawings (rlkaudit_page_draw.c). */
struct rlki_grid_cell {
    uint8_t class; /* 0: nothing is drawn; else the class "c<class>" of the style sheet's colours */
    bool ring;     /* the first difference */
};
struct rlki_grid {
    unsigned rows, cols;
    const struct rlki_grid_cell *cell; /* rows x cols */
    const char *colours;               /* class of the drawing */
    const char *what;                  /* for those who do not see it */
    bool slanted;                      /* column labels are words */
    const void *context;
    /* Texts: "" = none. hover may be NULL. They live until the next call. */
    const char *(*row)(const void *context, unsigned row);
    const char *(*col)(const void *context, unsigned col);
    const char *(*hover)(const void *context, unsigned row, unsigned col);
};
void rlki_page_grid(struct rlki_page *page, const struct rlki_grid *grid);
/* The JSON's "map"; `far`: distances, else shares. Where parts meet is drawn over it. */
void rlki_page_map(struct rlki_page *page, const json_t *map, bool far);
void rlki_page_histogram(struct rlki_page *page, const json_t *histogram);

/* The whole page of a first-diff; returns 0 or a status. For rlki_write_text. */
struct rlki_page_of {
    const json_t *result;
    const struct rlki_audit_with *with;
};
int rlki_page_first_diff(FILE *to, void *of);
/* first-diff --html: 0 or RLKI_EXIT_FAULT, told on stderr. */
int rlki_page_write(const char *path, const json_t *result, const struct rlki_audit_with *with);

#endif
