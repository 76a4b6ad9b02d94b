/* atomic_order.c - one kernel adds in an order that changes from run to run.
 *
 * Rule      the same launches on the same inputs, and the event does not repeat itself.
 */
#include "auditor/mechanism/mechanism.h"

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both || !f->output || (f->repeat[0] != RLKI_REPEAT_VARIES && f->repeat[1] != RLKI_REPEAT_VARIES))
        return RLK_OK;
    bool a = f->repeat[0] == RLKI_REPEAT_VARIES, b = f->repeat[1] == RLKI_REPEAT_VARIES;
    rlki_holds(o, RLKI_M_ATOMIC_ORDER, RLKI_POINTS,
               "the same event is a root of %s against a repeat of itself: it is not repeatable",
               a && b ? "A and of B"
               : a    ? "A"
                      : "B");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_atomic_order = {
    RLKI_M_ATOMIC_ORDER,
    "use the operator's deterministic variant (torch.use_deterministic_algorithms, FLASH_ATTENTION_DETERMINISTIC=1, "
    "deterministic=True)",
    look};
