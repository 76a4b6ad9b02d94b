/* kernel_differs.c - the operator ran another kernel, or another build of it.
 *
 * Rule      a pair of launches differs in its kernel's name or module image, or one side launches more kernels, or the
 *           operators carry other contract ids.
 * Evidence  the two names; the launches that only one side has; other shapes.
 * Excludes  atomic-order and race, unless a side does not repeat itself with its own kernel: then it is that, and the
 *           kernel stands beside it.
 * Next      pin the kernel.
 */
#include "auditor/mechanism/mechanism.h"

static bool other_shape(const struct rlki_facts *f)
{
    for (uint32_t i = 0; i < f->ev[0].e.ntensors && i < f->ev[1].e.ntensors; i++) {
        const struct rlk_tensor *a = &f->ev[0].e.tensors[i], *b = &f->ev[1].e.tensors[i];
        for (uint32_t d = 0; a->ndim == b->ndim && d < a->ndim; d++)
            if (a->shape[d] != b->shape[d])
                return true;
    }
    return false;
}

/* Launches that only one side has. */
static bool extra(const struct rlki_launches *l, struct rlki_opinion *o, enum rlki_hold hold)
{
    bool any = false;
    for (int s = 0; s < 2 && l->known && l->n[0] != l->n[1]; s++)
        for (uint32_t i = 0; i < l->n[s]; i++) {
            bool paired = s == 0 && l->pair[i] != UINT32_MAX;
            for (uint32_t k = 0; s == 1 && k < l->n[0] && !paired; k++)
                paired = l->pair[k] == i;
            if (paired)
                continue;
            rlki_holds(o, RLKI_M_KERNEL_DIFFERS, hold, "%u launches in A, %u in B: only %c has %.120s", l->n[0],
                       l->n[1], s ? 'B' : 'A', l->launch[s][i]->kernel);
            any = true;
        }
    return any;
}

static const char *contract_of(const struct rlki_ev *ev)
{
    return ev->e.u.op.contract && *ev->e.u.op.contract ? ev->e.u.op.contract : "none";
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_launches *l = &f->launches;
    const struct rlk_launch *x, *y;
    const bool varies = rlki_varies(f);
    const enum rlki_hold hold = varies ? RLKI_OPEN : RLKI_SHOWS;
    if (!f->output || !f->same_event)
        return RLK_OK;
    bool any = extra(l, o, hold);
    for (uint32_t i = 0; i < l->n[0]; i++) {
        if (!rlki_launch_pair(f, i, &x, &y))
            continue;
        if (!rlki_same_text(x->kernel, y->kernel)) {
            rlki_holds(o, RLKI_M_KERNEL_DIFFERS, hold, "kernel %.120s in A, %.120s in B", x->kernel, y->kernel);
            any = true;
        } else if (!rlki_same_text(x->image, y->image)) {
            rlki_holds(o, RLKI_M_KERNEL_DIFFERS, hold,
                       "kernel %.120s comes from another module image: %.40s in A, %.40s in B", x->kernel, x->image,
                       y->image);
            any = true;
        }
    }
    if (f->ev[0].e.kind == RLK_EV_OP && !rlki_same_text(f->ev[0].e.u.op.contract, f->ev[1].e.u.op.contract)) {
        rlki_holds(o, RLKI_M_KERNEL_DIFFERS, hold,
                   "contract %.80s in A, %.80s in B: another implementation of the operator", contract_of(&f->ev[0]),
                   contract_of(&f->ev[1]));
        any = true;
    }
    if (!any)
        return RLK_OK;
    if (other_shape(f))
        rlki_remark(o, "the two run on other shapes: libraries choose kernels by shape (batch, number of tokens)");
    if (varies)
        return RLK_OK;
    rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides ran other kernels");
    rlki_excludes(o, RLKI_M_RACE, "the two sides ran other kernels");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_kernel_differs = {
    RLKI_M_KERNEL_DIFFERS,
    "pin the kernel on both sides (library version, CUBLAS_WORKSPACE_CONFIG, the backend's own switch, a "
    "batch-invariant "
    "kernel); rlkaudit explain A B lists all launches",
    look};
