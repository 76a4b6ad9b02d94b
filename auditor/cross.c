#include "auditor/audit.h"
int rlki_cross_walk(struct rlki_audit *audit)
{
    (void)audit;
    return RLK_EUNSUPPORTED;
}
