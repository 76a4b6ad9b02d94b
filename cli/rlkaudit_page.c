/* The page of a first-diff: its frame, the verdict, and the writers. */
#include "cli/rlkaudit_page.h"
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "rlkaudit_page_css.h" /* rlki_page_css: rlkaudit_page.css, made by CMake */

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

void rlki_page_raw(struct rlki_page *page, const char *html)
{
    size_t n = strlen(html);
    page->bytes += n;
    fwrite(html, 1, n, page->to);
}

void rlki_page_form(struct rlki_page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vfprintf(page->to, format, args);
    va_end(args);
    page->bytes += n > 0 ? (uint64_t)n : 0;
}

void rlki_page_text(struct rlki_page *page, const char *text)
{
    const char *shown = rlki_shortened(rlki_esc(text), RLKI_PAGE_NAME);
    for (; *shown; shown++) {
        const char *instead = *shown == '&'    ? "&amp;"
                              : *shown == '<'  ? "&lt;"
                              : *shown == '>'  ? "&gt;"
                              : *shown == '"'  ? "&quot;"
                              : *shown == '\'' ? "&#39;"
                                               : NULL;
        if (instead) {
            rlki_page_raw(page, instead);
        } else {
            fputc(*shown, page->to);
            page->bytes++;
        }
    }
}

void rlki_page_code(struct rlki_page *page, const char *text)
{
    rlki_page_raw(page, "<code>");
    rlki_page_text(page, text);
    rlki_page_raw(page, "</code>");
}

bool rlki_page_room(struct rlki_page *page)
{
    bool room = page->bytes < RLKI_PAGE_LISTS;
    page->left_out += !room;
    return room;
}

void rlki_page_side(struct rlki_page *page, int side)
{
    rlki_page_raw(page, side ? "<b class=\"side b\">B</b> " : "<b class=\"side a\">A</b> ");
}

/* The style sheet's SHA-256 in base 64: the one thing that the page may use. */
static void put_policy(struct rlki_page *page)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char base64[2 * EVP_MAX_MD_SIZE] = "";
    if (EVP_Digest(rlki_page_css, sizeof rlki_page_css, digest, &n, EVP_sha256(), NULL) == 1)
        EVP_EncodeBlock((unsigned char *)base64, digest, (int)n);
    rlki_page_form(page,
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; "
                   "base-uri 'none'; form-action 'none'\">\n",
                   base64);
}

void rlki_page_begin(struct rlki_page *page, FILE *to, const char *title)
{
    *page = (struct rlki_page){.to = to};
    rlki_page_raw(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    put_policy(page);
    rlki_page_raw(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n"
                        "<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    rlki_page_text(page, title);
    rlki_page_raw(page, "</title>\n<style>");
    fwrite(rlki_page_css, 1, sizeof rlki_page_css, to);
    page->bytes += sizeof rlki_page_css;
    rlki_page_raw(page, "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n");
}

void rlki_page_end(struct rlki_page *page, const char *schema)
{
    rlki_page_raw(page, "</main>\n<footer>\n");
    if (page->left_out)
        rlki_page_form(page,
                       "<p class=\"cut\">%s entries of the lists above were left out: the page ends its lists at "
                       "1.5 MB. The JSON holds what is missing.</p>\n",
                       rlki_count(page->left_out));
    rlki_page_form(page, "<p>rlkaudit %s, from a result of the form ", RLK_VERSION);
    rlki_page_code(page, schema);
    rlki_page_raw(page, ". This page runs no script and loads nothing. Its limits: 2 MB; drawings of 64 rows; lists as "
                        "said where they end; texts of 240 columns. Control characters, bidirectional overrides and "
                        "bytes that are no UTF-8 are shown as <code>\\xNN</code> and <code>\\u{NNNN}</code>.</p>\n"
                        "</footer>\n</body>\n</html>\n");
}

void rlki_page_section(struct rlki_page *page, const char *id, const char *heading)
{
    rlki_page_form(page, "<section id=\"%s\" aria-labelledby=\"h-%s\">\n<h2 id=\"h-%s\">%s</h2>\n<div>\n", id, id, id,
                   heading);
}

void rlki_page_section_end(struct rlki_page *page)
{
    rlki_page_raw(page, "</div>\n</section>\n");
}

void rlki_page_why(struct rlki_page *page, const json_t *diff)
{
    const char *why = rlki_why_text(diff);
    rlki_page_form(page, "%c%s", *why - 'a' + 'A', why + 1); /* words of this source */
    if (*rlki_raw(diff, "root_reason")) {
        rlki_page_raw(page, ": an input cannot be compared: ");
        rlki_page_text(page, rlki_raw(diff, "root_reason"));
    }
    rlki_page_raw(page, ".");
}

/* ---- the verdict ---- */

static const char *word_of(const json_t *result)
{
    static const char *const words[][2] = {{"diverged", "Diverged"},
                                           {"identical", "Identical"},
                                           {"not_comparable", "Not comparable"},
                                           {"incomplete", "Incomplete"},
                                           {"accepted_drift", "Accepted drift"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(rlki_raw(result, "verdict"), words[i][0]) == 0)
            return words[i][1];
    return "Unknown verdict";
}

static const char *mood_of(const json_t *result)
{
    const char *verdict = rlki_raw(result, "verdict");
    return strcmp(verdict, "diverged") == 0 ? "bad" : strcmp(verdict, "identical") == 0 ? "good" : "unsure";
}

static void put_first_sentence(struct rlki_page *page, const json_t *first)
{
    rlki_page_form(page, "<p class=\"lead\">%s at step <b>%lld</b>",
                   json_is_true(json_object_get(first, "root")) ? "The first root stands"
                                                                : "The first difference stands",
                   (long long)rlki_integer(first, "step"));
    if (json_array_size(json_object_get(first, "ranks"))) {
        rlki_page_form(page, ", rank%s <b>", json_array_size(json_object_get(first, "ranks")) > 1 ? "s" : "");
        rlki_page_text(page, rlki_ranks_text(json_object_get(first, "ranks"), 4));
        rlki_page_raw(page, "</b>");
    }
    rlki_page_raw(page, ", ");
    rlki_page_text(page, rlki_raw(first, "phase"));
    if (*rlki_raw(first, "pass")) {
        rlki_page_raw(page, " ");
        rlki_page_text(page, rlki_raw(first, "pass"));
    }
    rlki_page_raw(page, ": ");
    rlki_page_code(page, *rlki_raw(first, "module") ? rlki_raw(first, "module") : "(root)");
    rlki_page_raw(page, " ");
    rlki_page_code(page, rlki_raw(first, "op"));
    rlki_page_form(page, ", %s %lld", strcmp(rlki_raw(first, "role"), "in") == 0 ? "input" : "output",
                   (long long)rlki_integer(first, "index"));
    if (*rlki_raw(first, "name")) {
        rlki_page_raw(page, " ");
        rlki_page_code(page, rlki_raw(first, "name"));
    }
    rlki_page_raw(page, ". ");
    rlki_page_why(page, first);
    rlki_page_raw(page, "</p>\n");
}

static void put_lead(struct rlki_page *page, const json_t *result)
{
    const json_t *first = json_object_get(result, "first"), *why = json_object_get(result, "not_comparable");
    if (json_is_object(first)) {
        put_first_sentence(page, first);
        return;
    }
    rlki_page_raw(page, "<p class=\"lead\">");
    if (json_is_object(why)) {
        rlki_page_raw(page, "The two recordings cannot be compared: ");
        rlki_page_text(page, rlki_raw(why, "reason"));
        if (*rlki_raw(why, "name")) {
            rlki_page_raw(page, ", ");
            rlki_page_code(page, rlki_raw(why, "name"));
        }
        if (json_is_object(json_object_get(why, "at"))) {
            rlki_page_form(page, " at step %lld, ", (long long)rlki_integer(json_object_get(why, "at"), "step"));
            rlki_page_code(page, rlki_raw(json_object_get(why, "at"), "module"));
        }
        rlki_page_raw(page, ".");
    } else if (strcmp(rlki_raw(result, "verdict"), "identical") == 0) {
        rlki_page_raw(page, "Every tensor that could be compared has the same bits on both sides.");
    } else {
        rlki_page_raw(page, "Nothing differs in what is there, but a recording is not whole.");
    }
    rlki_page_raw(page, "</p>\n");
}

static void put_tile(struct rlki_page *page, const char *label, const char *number, const char *class)
{
    rlki_page_form(page, "<div%s%s%s><dt>%s</dt><dd>%s</dd></div>\n", *class ? " class=\"" : "", class,
                   *class ? "\"" : "", label, number);
}

static void put_run(struct rlki_page *page, const json_t *result, int side)
{
    const char *letter = side ? "b" : "a";
    const json_t *run = json_object_get(json_object_get(result, "runs"), letter), *word;
    size_t i;
    rlki_page_raw(page, "<li>");
    rlki_page_side(page, side);
    rlki_page_code(page, rlki_raw(json_object_get(result, "recordings"), letter));
    if (json_is_object(run)) {
        rlki_page_raw(page, " <span class=\"dim\">");
        if (*rlki_raw(run, "created")) {
            char day[20];
            snprintf(day, sizeof day, "%.19s", rlki_raw(run, "created"));
            rlki_page_text(page, day);
            rlki_page_raw(page, " &middot; ");
        }
        rlki_page_form(page, "%s rank%s", rlki_count_of(run, "ranks"), rlki_integer(run, "ranks") == 1 ? "" : "s");
        if (*rlki_raw(run, "layout")) {
            rlki_page_raw(page, " &middot; ");
            rlki_page_text(page, rlki_raw(run, "layout"));
        }
        rlki_page_form(page, " &middot; %s events &middot; %s%s", rlki_count_of(run, "events"),
                       json_is_true(json_object_get(run, "complete")) ? "complete" : "<b class=\"warn\">incomplete</b>",
                       json_is_true(json_object_get(run, "sealed")) ? ", sealed" : ", not sealed");
        rlki_page_raw(page, "</span>");
        if (json_array_size(json_object_get(run, "argv"))) {
            rlki_page_raw(page, "<span class=\"argv\">");
            json_array_foreach(json_object_get(run, "argv"), i, word) if (i < 24)
            {
                rlki_page_raw(page, i ? " " : "");
                rlki_page_text(page, json_string_value(word));
            }
            rlki_page_raw(page, i > 24 ? " ...</span>" : "</span>");
        }
    }
    rlki_page_raw(page, "</li>\n");
}

static void put_verdict(struct rlki_page *page, const json_t *result)
{
    const json_t *scope = json_object_get(result, "scope");
    bool complete = json_is_true(json_object_get(result, "complete"));
    rlki_page_form(page, "<header class=\"verdict m-%s\">\n<h1>%s%s</h1>\n", mood_of(result), word_of(result),
                   complete ? "" : " <small>incomplete recording</small>");
    put_lead(page, result);
    rlki_page_raw(page, "<dl class=\"tiles\">\n");
    put_tile(page, "tensors compared", rlki_count_of(scope, "compared"), "");
    put_tile(page, "not comparable", rlki_count_of(scope, "skipped"), rlki_integer(scope, "skipped") ? "warn" : "");
    put_tile(page, "roots", rlki_count(json_array_size(json_object_get(result, "roots"))),
             json_array_size(json_object_get(result, "roots")) ? "bad" : "");
    put_tile(page, "downstream", rlki_count_of(result, "downstream"), rlki_integer(result, "downstream") ? "warn" : "");
    if (rlki_integer(result, "masked"))
        put_tile(page, "not repeatable", rlki_count_of(result, "masked"), "");
    if (json_is_object(json_object_get(result, "acceptance")))
        put_tile(page, "roots accepted", rlki_count_of(json_object_get(result, "acceptance"), "accepted"), "");
    char status[24];
    snprintf(status, sizeof status, "%lld", (long long)rlki_integer(result, "exit"));
    put_tile(page, "exit status", status, "");
    rlki_page_raw(page, "</dl>\n<ul class=\"runs\">\n");
    put_run(page, result, 0);
    put_run(page, result, 1);
    rlki_page_raw(page, "</ul>\n</header>\n");
}

static void put_navigation(struct rlki_page *page, bool first)
{
    static const char *const always[][2] = {{"environment", "Environment"}, {"coverage", "Coverage"}};
    static const char *const with[][2] = {
        {"root", "Root"}, {"difference", "Difference"}, {"mechanism", "Mechanism"}, {"tree", "All differences"}};
    rlki_page_raw(page, "<nav aria-label=\"Sections\"><a href=\"#where\">Where</a>");
    for (size_t i = 0; first && i < sizeof with / sizeof *with; i++)
        rlki_page_form(page, "<a href=\"#%s\">%s</a>", with[i][0], with[i][1]);
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        rlki_page_form(page, "<a href=\"#%s\">%s</a>", always[i][0], always[i][1]);
    rlki_page_raw(page, "</nav>\n");
}

static void put_title(struct rlki_page *page, FILE *to, const json_t *result)
{
    const json_t *recordings = json_object_get(result, "recordings");
    char *title = NULL;
    if (asprintf(&title, "%s: %s, %s", word_of(result), rlki_raw(recordings, "a"), rlki_raw(recordings, "b")) < 0)
        title = NULL;
    rlki_page_begin(page, to, title ? title : "first-diff");
    free(title);
}

int rlki_page_first_diff(FILE *to, void *of)
{
    const json_t *result = ((struct rlki_page_of *)of)->result, *first = json_object_get(result, "first");
    char *next = rlki_next_command(result, ((struct rlki_page_of *)of)->with);
    struct rlki_page page;
    put_title(&page, to, result);
    put_verdict(&page, result);
    put_navigation(&page, json_is_object(first));
    rlki_page_raw(&page, "<main id=\"main\">\n");
    rlki_page_where(&page, result);
    if (json_is_object(first)) {
        rlki_page_root(&page, result);
        rlki_page_difference(&page, first);
        rlki_page_mechanism(&page, result, next);
        rlki_page_ranks(&page, result);
        rlki_page_tree(&page, result);
    }
    rlki_page_environment(&page, result);
    rlki_page_coverage(&page, result);
    rlki_page_notes(&page, result);
    rlki_page_end(&page, rlki_raw(result, "schema"));
    free(next);
    return 0;
}

int rlki_page_write(const char *path, const json_t *result, const struct rlki_audit_with *with)
{
    struct rlki_page_of of = {.result = result, .with = with};
    return rlki_write_text(path, rlki_page_first_diff, &of) ? RLKI_EXIT_FAULT : 0;
}
