#include "auditor/audit.h"
int rlk_audit_explain(json_t **out, const struct rlk_audit_options *options, int64_t event, int64_t rank, bool elements,
                      struct rlk_detail *detail)
{
    (void)out;
    (void)options;
    (void)event;
    (void)rank;
    (void)elements;
    (void)detail;
    return RLK_EUNSUPPORTED;
}
