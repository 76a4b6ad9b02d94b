// The tap's header is C++ as well; compiled, not run.
#include "recorder/rlk_tap.h"

int main()
{
    struct rlk_tap_ctx *ctx = rlk_tap_context(RLK_TAP_OWN_RANK);
    RLK_TAP(step, ctx, 1);
    RLK_TAP(module_end, ctx);
    struct rlk_tap_tensor t = {};
    t.view.dtype = RLK_BF16;
    RLK_TAP(leaf, ctx, &t, nullptr, nullptr, "philox", 1);
    return 0;
}
