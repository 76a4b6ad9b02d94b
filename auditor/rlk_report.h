/* rlk_report.h - the cross-layout report of two recordings: what each measured of itself, and whether the two agree.
 * docs/report.md says which recorded facts every row is made of; docs/schema/cross_layout_report.schema.json its shape.
 *
 * A row that cannot be judged from what was recorded has "status": "not_applicable" and "passed": null, never true.
 * Nothing here prints or exits; a recording is read as hostile. One call uses one thread.
 */
#ifndef AUDITOR_RLK_REPORT_H
#define AUDITOR_RLK_REPORT_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define RLK_REPORT_SIZES 32u

struct rlk_report_options {
    const char *a, *b; /* directories NAME.rlk */
    uint32_t nsizes;   /* batch sizes for which decode is to run captured graphs; 0 = 1, 2, 3, 4 */
    uint32_t sizes[RLK_REPORT_SIZES];
};

/* *out: the report, with "exit" 0 all that applies passed, 1 something did not, 3 nothing to compare, 4 incomplete. */
int rlk_report(json_t **out, const struct rlk_report_options *options, struct rlk_detail *detail);

#endif
