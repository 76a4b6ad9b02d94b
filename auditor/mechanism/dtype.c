/* dtype.c - the same quantity in another number format.
 *
 * Rule      the dtype of the tensor differs, or of an input of the same place - it shows. One side's values all fit a
 *           narrower format than the tensor's, the other side's do not: a cast on the way - it shows. One side reads a
 *           tensor in another format that the other side does not read at all (a table made in advance) - it points.
 * Evidence  the formats; whether the error grows along the rows.
 * Excludes  atomic-order and race: another format rounds differently every time.
 * Next      the same format on both sides.
 */
#include "auditor/mechanism/mechanism.h"

#include "store/rlk_dtype_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Does every element of the side survive a round trip through the narrower format? */
static bool fits(const struct rlki_facts *f, int side, enum rlk_dtype narrow)
{
    const enum rlk_dtype wide = (enum rlk_dtype)f->t[0]->dtype;
    for (uint64_t i = 0; i < f->change.elements; i++) {
        uint64_t bits = rlk_scalar_load(wide, f->change.data[side] + i * rlk_dtype_bytes(wide));
        if (rlk_scalar_cast(wide, narrow, rlk_scalar_cast(narrow, wide, bits)) != bits)
            return false;
    }
    return true;
}

static bool narrower(const struct rlki_facts *f, struct rlki_opinion *o)
{
    static const enum rlk_dtype formats[] = {RLK_FP8_E4M3, RLK_FP8_E5M2, RLK_BF16, RLK_FP16, RLK_FP32};
    const enum rlk_dtype wide = (enum rlk_dtype)f->t[0]->dtype;
    if (!f->change.bytes || f->change.elements < 8 || rlk_dtype_is_integer(wide) || rlk_dtype_components(wide) != 1 ||
        f->change.max_ulp <= 2 || /* whole numbers, say: a rounded one would be further off */
        f->change.all_zero[0] || f->change.all_zero[1] || f->change.constant[0] || f->change.constant[1])
        return false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (rlk_dtype_bytes(formats[i]) >= rlk_dtype_bytes(wide))
            continue;
        bool a = fits(f, 0, formats[i]), b = fits(f, 1, formats[i]);
        if (a == b)
            continue;
        rlki_holds(o, RLKI_M_DTYPE, RLKI_SHOWS,
                   "every element of %c is a %s number, those of %c are not: rounded to %s on the way", a ? 'A' : 'B',
                   rlk_dtype_name(formats[i]), a ? 'B' : 'A', rlk_dtype_name(formats[i]));
        return true;
    }
    return false;
}

static const struct rlk_tensor *named(const struct rlki_ev *ev, const char *name)
{
    for (uint32_t i = 0; i < ev->e.ntensors; i++)
        if (ev->e.tensors[i].role == RLK_ROLE_IN && rlki_same_text(ev->e.tensors[i].name, name))
            return &ev->e.tensors[i];
    return NULL;
}

/* Inputs of other formats, or that only one side reads. */
static bool inputs(struct rlki_facts *f, struct rlki_opinion *o)
{
    bool any = false;
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < f->ev[s].e.ntensors && i < 64; i++) {
            const struct rlk_tensor *t = &f->ev[s].e.tensors[i], *u;
            if (t->role != RLK_ROLE_IN || rlk_dtype_is_integer(t->dtype) || !t->name || !*t->name)
                continue;
            u = named(&f->ev[1 - s], t->name);
            if (u && u->dtype != t->dtype && s == 0) {
                rlki_holds(o, RLKI_M_DTYPE, RLKI_SHOWS, "input \"%.60s\" is %s in A, %s in B", t->name,
                           rlk_dtype_name(t->dtype), rlk_dtype_name(u->dtype));
                any = true;
            } else if (!u && f->t[0] &&
                       rlki_ev_count(&f->ev[0], RLK_ROLE_IN) != rlki_ev_count(&f->ev[1], RLK_ROLE_IN)) {
                rlki_holds(o, RLKI_M_DTYPE, rlk_dtype_bytes(t->dtype) < 4 ? RLKI_POINTS : RLKI_OPEN,
                           "only %c reads \"%.60s\", a %s tensor: made in advance and rounded", s ? 'B' : 'A', t->name,
                           rlk_dtype_name(t->dtype));
                any = true;
            }
        }
    return any;
}

/* Does the difference grow along dimension 0 (positions)? The mean of the last quarter against that of the first. */
static void growth(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_change *c = &f->change;
    double sum[2] = {0, 0};
    if (!c->bytes || !c->ndim || c->shape[0] < 8 || rlk_dtype_is_integer(f->t[0]->dtype))
        return;
    uint64_t quarter = f->change.elements / 4;
    for (uint64_t i = 0; i < quarter; i++) {
        double x = fabs(rlki_element(f, 0, i) - rlki_element(f, 1, i));
        double y =
            fabs(rlki_element(f, 0, f->change.elements - 1 - i) - rlki_element(f, 1, f->change.elements - 1 - i));
        sum[0] += isfinite(x) ? x : 0;
        sum[1] += isfinite(y) ? y : 0;
    }
    if (sum[1] > 2 * sum[0] && sum[1] > 0)
        rlki_remark(o,
                    "the difference grows with the position: %.1f times as large in the last quarter of the rows as in "
                    "the first",
                    sum[0] > 0 ? sum[1] / sum[0] : INFINITY);
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_tensor *a = f->t[0], *b = f->t[1];
    if (!f->both || !a || !b)
        return RLK_OK;
    bool any = false;
    if (a->dtype != b->dtype) {
        rlki_holds(o, RLKI_M_DTYPE, RLKI_SHOWS, "dtype %s in A, %s in B", rlk_dtype_name(a->dtype),
                   rlk_dtype_name(b->dtype));
        any = true;
    } else if (f->output) {
        any = narrower(f, o);
    }
    if (f->output && f->ev[0].e.kind == RLK_EV_OP && f->ev[1].e.kind == RLK_EV_OP)
        any |= inputs(f, o);
    if (!any)
        return RLK_OK;
    growth(f, o);
    if (!rlki_varies(f)) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the two sides round to other formats");
        rlki_excludes(o, RLKI_M_RACE, "the two sides round to other formats");
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_dtype = {RLKI_M_DTYPE,
                                               "compute it in the same format on both sides (autocast, the head in "
                                               "fp32 on both, tables in fp32), then compare again",
                                               look};
