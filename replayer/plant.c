/* plant.c - faults, so that it can be seen whether they are found. */
#include "replayer/run.h"
#include <string.h>

static const struct {
    const char *name, *help;
} faults[] = {
    {"rank-order", "o_proj of layer 0 is summed over TP in rank order"},
};
#define NFAULTS ((int)(sizeof faults / sizeof faults[0]))

const char *rlk_plant_name(int n)
{
    return n >= 0 && n < NFAULTS ? faults[n].name : NULL;
}
const char *rlk_plant_help(int n)
{
    return n >= 0 && n < NFAULTS ? faults[n].help : NULL;
}
int rlki_plant_init(struct rlk_train *run)
{
    run->plant.which = -1;
    return 0;
}
void rlki_plant_release(struct rlk_train *run)
{
    (void)run;
}
void rlki_plant_begin(struct rlk_train *run, const struct rlk_op_event *event)
{
    (void)run;
    (void)event;
}
void rlki_plant_tensor(struct rlk_train *run, const struct rlk_op_event *event, const struct rlk_observed *tensor)
{
    (void)run;
    (void)event;
    (void)tensor;
}
bool rlki_plant_stale(const struct rlk_train *run, int param, int rank)
{
    (void)run;
    (void)param;
    (void)rank;
    return false;
}
struct rlk_policy *rlki_plant_policy(struct rlk_train *run, bool recompute)
{
    (void)recompute;
    return run->policy;
}
