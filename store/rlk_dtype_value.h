/* rlk_dtype_value.h - the numbers behind the bits of every element type.
 *
 * A *scalar* is one real number: an element, or one component of a complex element. Its bits are held in a uint64_t,
 * zero-extended. All functions are pure; an unknown dtype, or a complex one where a scalar is asked for, counts as
 * uint8 of value 0 and never reads or writes out of bounds.
 *
 *   type           NaN               Inf     -0     largest   remarks
 *   ieee (fp16..)  all-ones exp.     yes     yes
 *   fp8_e4m3       7f ff             none    80     448       OCP "fn"
 *   fp8_e5m2       7d 7e 7f, fd..ff  7c fc   80     57344
 *   fp8_e4m3fnuz   80                none    none   240       bias 8
 *   fp8_e5m2fnuz   80                none    none   57344     bias 16
 *   fp8_e8m0       ff                none    none   2^127     2^(bits-127); no sign, no zero
 *   integers, bool none              none    none
 */
#ifndef STORE_RLK_DTYPE_VALUE_H
#define STORE_RLK_DTYPE_VALUE_H

#include "store/rlk_error.h"
#include "store/rlk_types.h"

/* complex64 -> fp32 and so on; any other type is its own component. */
enum rlk_dtype rlk_dtype_component(enum rlk_dtype dtype);
unsigned rlk_dtype_components(enum rlk_dtype dtype); /* 2 for complex types, else 1 */
bool rlk_dtype_is_float(enum rlk_dtype dtype);       /* a real floating-point type, fp8 included */

uint64_t rlk_scalar_load(enum rlk_dtype dtype, const void *p); /* any alignment; little-endian */
void rlk_scalar_store(enum rlk_dtype dtype, void *p, uint64_t bits);

enum rlk_value_class {
    RLK_VALUE_OTHER = 0,
    RLK_VALUE_NAN = 1,
    RLK_VALUE_INF = 2,
    RLK_VALUE_NEGZERO = 3,
};
enum rlk_value_class rlk_scalar_class(enum rlk_dtype dtype, uint64_t bits);
uint64_t rlk_dtype_nan(enum rlk_dtype dtype);             /* the canonical NaN; 0 for integers */
bool rlk_dtype_inf(enum rlk_dtype dtype, uint64_t *bits); /* false: the type has none */

/* Exact for every float type and for integers up to 2^53; larger integers round to nearest even. */
double rlk_scalar_to_double(enum rlk_dtype dtype, uint64_t bits);

/* One rounding to nearest even. Overflow gives Inf, in types without one NaN; the sign stays where the type has one.
 * A NaN becomes the canonical NaN. Integers: half to even, then wrap; NaN and Inf give 0; bool: 1 unless that is 0 (NaN
 * and Inf give 1). e8m0: nearest power of two, ties up, sign dropped, 0 gives 2^-127. */
uint64_t rlk_scalar_from_double(enum rlk_dtype dtype, double v);
uint64_t rlk_scalar_from_i64(enum rlk_dtype dtype, int64_t v); /* one rounding, also beyond 2^53 */
uint64_t rlk_scalar_from_u64(enum rlk_dtype dtype, uint64_t v);
/* The same dtype keeps every bit. */
uint64_t rlk_scalar_cast(enum rlk_dtype to, enum rlk_dtype from, uint64_t bits);

/* Ordered integer of a float: the bits if the sign is 0, else minus the bits without the sign; both zeros are 0. Not
 * for NaN. Neighbouring values differ by 1, Inf follows the largest finite value. */
int64_t rlk_scalar_ordered(enum rlk_dtype dtype, uint64_t bits);
/* Distance of two floats in ordered integers; NaN on either side: UINT64_MAX, except 0 for two NaN. */
uint64_t rlk_scalar_ulp(enum rlk_dtype dtype, uint64_t a, uint64_t b);
/* Adds n to the ordered integer. NaN stays; result 0 is +0; integers add n and wrap (bool mod 2). RLK_EINVAL: past Inf
 * (past the largest value where there is no Inf). */
int rlk_scalar_add_ulp(enum rlk_dtype dtype, uint64_t bits, int64_t n, uint64_t *out);

/* Whole elements: complex is v + 0i; to_double gives the real component. `p` holds rlk_dtype_bytes(dtype). */
void rlk_element_from_double(enum rlk_dtype dtype, void *p, double v);
double rlk_element_to_double(enum rlk_dtype dtype, const void *p);

#endif
