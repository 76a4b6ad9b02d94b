/* rlk_value_diff.h - what differs between two payloads of one shape and element type, in numbers. Pure, no allocation.
 *
 * For who reports differences (docs/cli.md "difference"): changed, max_ulp, max_abs, first_index come from here.
 */
#ifndef STORE_RLK_VALUE_DIFF_H
#define STORE_RLK_VALUE_DIFF_H

#include "store/rlk_error.h"
#include "store/rlk_types.h"

struct rlk_value_diff {
    uint64_t elements;
    uint64_t changed; /* elements whose bits differ */
    uint64_t first;   /* flat index of the first of them; `elements` if there is none */
    uint64_t
        zero_signs; /* changed elements that differ in nothing but the signs of zeros and the payloads of NaN, with */
    uint64_t
        nan_payloads; /* ... at least one zero's sign; ... only NaN payloads. An element counts in one of the two */
    uint64_t nan;     /* changed elements with a component that is NaN on one side only */
    bool has_ulp;     /* false for integers and bool */
    uint64_t max_ulp; /* over changed components that are numbers or Inf on both sides, in ordered integers */
    double max_abs;   /* over the same components; Inf where one side is Inf and the other is not equal to it.
                       * Integers: the exact difference, rounded once. */
};

/* `a` and `b` hold n elements each, any alignment. RLK_EINVAL: an unknown element type. */
int rlk_value_diff(struct rlk_value_diff *out, enum rlk_dtype dtype, const void *a, const void *b, uint64_t n);

/* The grades of docs/cli.md that need no order and no bound: is every change only a zero's sign or a NaN's payload? */
static inline bool rlk_value_diff_is_value_equal(const struct rlk_value_diff *d)
{
    return d->changed == d->zero_signs + d->nan_payloads;
}

/* Elements beside value equality that lie farther apart than `ulp`, or where one side only is NaN, make this false. */
static inline bool rlk_value_diff_is_within(const struct rlk_value_diff *d, uint64_t ulp)
{
    return rlk_value_diff_is_value_equal(d) || (d->nan == 0 && d->has_ulp && d->max_ulp <= ulp);
}

#endif
