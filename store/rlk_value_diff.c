#include "store/rlk_value_diff.h"

#include "store/rlk_dtype_value.h"

#include <math.h>
#include <string.h>

#define STEP ((size_t)4096) /* bytes compared at once: equal stretches cost a memcmp */

static double absolute_difference(enum rlk_dtype part, uint64_t x, uint64_t y)
{
    if (!rlk_dtype_is_float(part))
        return (double)rlk_scalar_ulp(part, x, y); /* of integers: the exact difference */
    double a = rlk_scalar_to_double(part, x), b = rlk_scalar_to_double(part, y);
    return a == b ? 0 : fabs(a - b);
}

static void changed_element(struct rlk_value_diff *d, enum rlk_dtype part, unsigned parts, const unsigned char *a,
                            const unsigned char *b)
{
    const size_t size = rlk_dtype_bytes(part);
    bool other = false, zero_sign = false, nan_on_one_side = false;
    for (unsigned c = 0; c < parts; c++, a += size, b += size) {
        uint64_t x = rlk_scalar_load(part, a), y = rlk_scalar_load(part, b);
        if (x == y)
            continue;
        enum rlk_value_class class_x = rlk_scalar_class(part, x), class_y = rlk_scalar_class(part, y);
        if (class_x == RLK_VALUE_NAN && class_y == RLK_VALUE_NAN)
            continue; /* another payload or sign */
        if (class_x == RLK_VALUE_NAN || class_y == RLK_VALUE_NAN) {
            other = nan_on_one_side = true;
            continue;
        }
        uint64_t ulp = rlk_scalar_ulp(part, x, y);
        if (ulp == 0) { /* +0 and -0 */
            zero_sign = true;
            continue;
        }
        other = true;
        double distance = absolute_difference(part, x, y);
        d->max_ulp = d->has_ulp && ulp > d->max_ulp ? ulp : d->max_ulp;
        d->max_abs = distance > d->max_abs ? distance : d->max_abs;
    }
    d->nan += nan_on_one_side;
    d->zero_signs += !other && zero_sign;
    d->nan_payloads += !other && !zero_sign;
}

int rlk_value_diff(struct rlk_value_diff *out, enum rlk_dtype dtype, const void *a, const void *b, uint64_t n)
{
    const size_t size = rlk_dtype_bytes(dtype);
    const enum rlk_dtype part = rlk_dtype_component(dtype);
    const unsigned parts = rlk_dtype_components(dtype);
    const unsigned char *x = a, *y = b;
    memset(out, 0, sizeof *out);
    out->elements = out->first = n;
    out->has_ulp = rlk_dtype_is_float(part);
    if (size == 0)
        return RLK_EINVAL;
    for (uint64_t i = 0; i < n;) {
        const uint64_t end = n - i < STEP / size ? n : i + STEP / size;
        if (memcmp(x + i * size, y + i * size, (size_t)(end - i) * size) == 0)
            i = end;
        for (; i < end; i++) {
            if (memcmp(x + i * size, y + i * size, size) == 0)
                continue;
            out->first = out->changed++ == 0 ? i : out->first;
            changed_element(out, part, parts, x + i * size, y + i * size);
        }
    }
    return RLK_OK;
}
