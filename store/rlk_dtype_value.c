#include "store/rlk_dtype_value.h"

#include <math.h>
#include <string.h>

/* A floating-point format: sign bit at the top (but e8m0), `mant` stored mantissa bits, exponent bias. Codes without
 * the sign are ordered like their values, so limits are codes too. */
struct format {
    uint8_t mant;
    int16_t bias;
    uint64_t sign;       /* 0: unsigned */
    uint64_t max_finite; /* largest finite code */
    uint64_t inf;        /* 0: none */
    uint64_t nan;        /* canonical */
    bool negzero;
};

static const struct format formats[] = {
    [RLK_FP8_E4M3] = {3, 7, 0x80, 0x7e, 0, 0x7f, true},
    [RLK_FP8_E5M2] = {2, 15, 0x80, 0x7b, 0x7c, 0x7f, true},
    [RLK_FP8_E4M3FNUZ] = {3, 8, 0x80, 0x7f, 0, 0x80, false},
    [RLK_FP8_E5M2FNUZ] = {2, 16, 0x80, 0x7f, 0, 0x80, false},
    [RLK_FP8_E8M0] = {0, 127, 0, 0xfe, 0, 0xff, false},
    [RLK_FP16] = {10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00, true},
    [RLK_BF16] = {7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fc0, true},
    [RLK_FP32] = {23, 127, 0x80000000, 0x7f7fffff, 0x7f800000, 0x7fc00000, true},
    [RLK_FP64] = {52, 1023, UINT64_C(1) << 63, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000, true},
};

static const struct format *format_of(enum rlk_dtype dtype)
{
    size_t i = (size_t)dtype;
    return i < sizeof formats / sizeof formats[0] && formats[i].nan ? &formats[i] : NULL;
}

enum rlk_dtype rlk_dtype_component(enum rlk_dtype dtype)
{
    switch (dtype) {
    case RLK_COMPLEX32:
        return RLK_FP16;
    case RLK_COMPLEX64:
        return RLK_FP32;
    case RLK_COMPLEX128:
        return RLK_FP64;
    default:
        return dtype;
    }
}

unsigned rlk_dtype_components(enum rlk_dtype dtype)
{
    return rlk_dtype_is_complex(dtype) ? 2 : 1;
}

bool rlk_dtype_is_float(enum rlk_dtype dtype)
{
    return format_of(dtype) != NULL;
}

static unsigned width_of(enum rlk_dtype dtype) /* bits of a scalar; 0: not one */
{
    return rlk_dtype_is_complex(dtype) ? 0 : (unsigned)rlk_dtype_bytes(dtype) * 8;
}

static uint64_t low_bits(unsigned width)
{
    return width >= 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
}

static bool is_signed_integer(enum rlk_dtype dtype)
{
    return dtype == RLK_INT8 || dtype == RLK_INT16 || dtype == RLK_INT32 || dtype == RLK_INT64;
}

uint64_t rlk_scalar_load(enum rlk_dtype dtype, const void *p)
{
    const unsigned char *b = p;
    uint64_t v = 0;
    for (unsigned i = 0; i < width_of(dtype) / 8; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

void rlk_scalar_store(enum rlk_dtype dtype, void *p, uint64_t bits)
{
    unsigned char *b = p;
    for (unsigned i = 0; i < width_of(dtype) / 8; i++)
        b[i] = (unsigned char)(bits >> (8 * i));
}

enum rlk_value_class rlk_scalar_class(enum rlk_dtype dtype, uint64_t bits)
{
    const struct format *f = format_of(dtype);
    if (!f)
        return RLK_VALUE_OTHER;
    if (!f->negzero && bits == f->nan)
        return RLK_VALUE_NAN;
    uint64_t magnitude = bits & ~f->sign;
    if (f->inf && magnitude == f->inf)
        return RLK_VALUE_INF;
    if (magnitude > f->max_finite)
        return RLK_VALUE_NAN;
    return f->negzero && bits == f->sign ? RLK_VALUE_NEGZERO : RLK_VALUE_OTHER;
}

uint64_t rlk_dtype_nan(enum rlk_dtype dtype)
{
    const struct format *f = format_of(dtype);
    return f ? f->nan : 0;
}

bool rlk_dtype_inf(enum rlk_dtype dtype, uint64_t *bits)
{
    const struct format *f = format_of(dtype);
    *bits = f ? f->inf : 0;
    return *bits != 0;
}

static double double_of_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t bits_of_double(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static int64_t sign_extend(uint64_t bits, unsigned width)
{
    uint64_t top = UINT64_C(1) << (width - 1);
    return (int64_t)((bits ^ top) - top);
}

static double float_to_double(enum rlk_dtype dtype, const struct format *f, uint64_t bits)
{
    if (dtype == RLK_FP64)
        return double_of_bits(bits);
    if (dtype == RLK_FP8_E8M0)
        return bits == f->nan ? (double)NAN : ldexp(1.0, (int)bits - f->bias);
    switch (rlk_scalar_class(dtype, bits)) {
    case RLK_VALUE_NAN:
        return (double)NAN;
    case RLK_VALUE_INF:
        return bits & f->sign ? -(double)INFINITY : (double)INFINITY;
    default:
        break;
    }
    uint64_t magnitude = bits & ~f->sign;
    uint64_t mantissa = magnitude & low_bits(f->mant);
    int exponent = (int)(magnitude >> f->mant);
    double v;
    if (exponent)
        v = double_of_bits((uint64_t)(exponent - f->bias + 1023) << 52 | mantissa << (52 - f->mant));
    else
        v = ldexp((double)mantissa, 1 - f->bias - f->mant);
    return bits & f->sign ? -v : v;
}

double rlk_scalar_to_double(enum rlk_dtype dtype, uint64_t bits)
{
    const struct format *f = format_of(dtype);
    if (f)
        return float_to_double(dtype, f, bits);
    if (is_signed_integer(dtype))
        return (double)sign_extend(bits, width_of(dtype));
    return (double)bits;
}

static uint64_t overflowed(const struct format *f, uint64_t sign)
{
    if (f->inf)
        return sign | f->inf;
    return f->negzero ? sign | f->nan : f->nan;
}

static uint64_t zero_of(const struct format *f, uint64_t sign)
{
    return f->negzero ? sign : 0;
}

/* m * 2^e, m != 0, to the nearest code, ties to even. m may have all 64 bits. */
static uint64_t round_to_format(const struct format *f, uint64_t sign, uint64_t m, int e)
{
    int lead = 63 - __builtin_clzll(m);
    int exponent = lead + e; /* of the leading bit */
    int emin = 1 - f->bias;
    int quantum = (exponent > emin ? exponent : emin) - f->mant;
    int shift = quantum - e;
    uint64_t r;
    if (shift > 64) { /* below half of the smallest subnormal */
        r = 0;
    } else if (shift == 64) {
        r = m > UINT64_C(1) << 63; /* exactly half goes to even, 0 */
    } else if (shift > 0) {
        uint64_t rest = m & low_bits((unsigned)shift), half = UINT64_C(1) << (shift - 1);
        r = m >> shift;
        r += rest > half || (rest == half && (r & 1));
    } else {
        r = m << -shift; /* at most mant+1 bits */
    }
    uint64_t code = r;
    if (exponent > emin) {
        if (exponent - emin > 4096)
            return overflowed(f, sign);
        code += (uint64_t)(exponent - emin) << f->mant; /* r holds the hidden bit; a carry steps the exponent */
    }
    if (code > f->max_finite)
        return overflowed(f, sign);
    return code ? sign | code : zero_of(f, sign);
}

/* m * 2^e to the nearest power of two, ties up, clamped to 2^-127 from below. */
static uint64_t round_to_e8m0(uint64_t m, int e)
{
    int lead = 63 - __builtin_clzll(m);
    int exponent = lead + e;
    if (lead > 0 && (m >> (lead - 1) & 1))
        exponent++;
    if (exponent < -127)
        return 0;
    return exponent > 127 ? 0xff : (uint64_t)(exponent + 127);
}

static uint64_t float_from_parts(enum rlk_dtype dtype, const struct format *f, bool negative, uint64_t m, int e)
{
    if (dtype == RLK_FP8_E8M0)
        return m ? round_to_e8m0(m, e) : 0;
    uint64_t sign = negative ? f->sign : 0;
    return m ? round_to_format(f, sign, m, e) : zero_of(f, sign);
}

static uint64_t integer_from_u64(enum rlk_dtype dtype, uint64_t v)
{
    return dtype == RLK_BOOL ? v != 0 : v & low_bits(width_of(dtype));
}

static uint64_t integer_from_double(enum rlk_dtype dtype, double v)
{
    if (dtype == RLK_BOOL)
        return !(fabs(v) <= 0.5); /* 0.5 goes to even; NaN and Inf are no zero */
    if (!isfinite(v))
        return 0;
    uint64_t bits = bits_of_double(v);
    int e = (int)(bits >> 52 & 0x7ff) - 1075;
    uint64_t m = bits & low_bits(52), r;
    if (e > -1075)
        m |= UINT64_C(1) << 52;
    if (e >= 64) {
        r = 0; /* a multiple of 2^64 */
    } else if (e >= 0) {
        r = m << e;
    } else if (e < -54) {
        r = 0;
    } else {
        uint64_t rest = m & low_bits((unsigned)-e), half = UINT64_C(1) << (-e - 1);
        r = m >> -e;
        r += rest > half || (rest == half && (r & 1));
    }
    return integer_from_u64(dtype, v < 0 ? 0 - r : r);
}

uint64_t rlk_scalar_from_double(enum rlk_dtype dtype, double v)
{
    const struct format *f = format_of(dtype);
    if (!f)
        return width_of(dtype) ? integer_from_double(dtype, v) : 0;
    if (isnan(v))
        return f->nan;
    bool negative = signbit(v) != 0;
    if (isinf(v))
        return overflowed(f, negative ? f->sign : 0);
    uint64_t bits = bits_of_double(v) & ~(UINT64_C(1) << 63);
    int exponent = (int)(bits >> 52);
    uint64_t m = bits & low_bits(52);
    if (exponent)
        m |= UINT64_C(1) << 52;
    else
        exponent = 1;
    return float_from_parts(dtype, f, negative, m, exponent - 1075);
}

uint64_t rlk_scalar_from_u64(enum rlk_dtype dtype, uint64_t v)
{
    const struct format *f = format_of(dtype);
    if (!f)
        return width_of(dtype) ? integer_from_u64(dtype, v) : 0;
    return float_from_parts(dtype, f, false, v, 0);
}

uint64_t rlk_scalar_from_i64(enum rlk_dtype dtype, int64_t v)
{
    const struct format *f = format_of(dtype);
    if (!f)
        return width_of(dtype) ? integer_from_u64(dtype, (uint64_t)v) : 0;
    return float_from_parts(dtype, f, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 0);
}

uint64_t rlk_scalar_cast(enum rlk_dtype to, enum rlk_dtype from, uint64_t bits)
{
    if (to == from)
        return bits;
    if (rlk_dtype_is_float(from))
        return rlk_scalar_from_double(to, rlk_scalar_to_double(from, bits));
    if (is_signed_integer(from))
        return rlk_scalar_from_i64(to, sign_extend(bits, width_of(from)));
    return rlk_scalar_from_u64(to, bits);
}

int64_t rlk_scalar_ordered(enum rlk_dtype dtype, uint64_t bits)
{
    const struct format *f = format_of(dtype);
    if (!f)
        return is_signed_integer(dtype) ? sign_extend(bits, width_of(dtype)) : (int64_t)bits;
    return bits & f->sign ? -(int64_t)(bits & ~f->sign) : (int64_t)bits;
}

uint64_t rlk_scalar_ulp(enum rlk_dtype dtype, uint64_t a, uint64_t b)
{
    bool nan_a = rlk_scalar_class(dtype, a) == RLK_VALUE_NAN;
    bool nan_b = rlk_scalar_class(dtype, b) == RLK_VALUE_NAN;
    if (nan_a || nan_b)
        return nan_a && nan_b ? 0 : UINT64_MAX;
    if (dtype == RLK_UINT64)
        return a > b ? a - b : b - a;
    int64_t x = rlk_scalar_ordered(dtype, a), y = rlk_scalar_ordered(dtype, b);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

int rlk_scalar_add_ulp(enum rlk_dtype dtype, uint64_t bits, int64_t n, uint64_t *out)
{
    const struct format *f = format_of(dtype);
    *out = bits;
    if (!f) {
        if (dtype == RLK_BOOL)
            *out = (bits + (uint64_t)n) & 1;
        else if (width_of(dtype))
            *out = (bits + (uint64_t)n) & low_bits(width_of(dtype));
        return RLK_OK;
    }
    if (rlk_scalar_class(dtype, bits) == RLK_VALUE_NAN)
        return RLK_OK;
    int64_t limit = (int64_t)(f->inf ? f->inf : f->max_finite), sum;
    if (__builtin_add_overflow(rlk_scalar_ordered(dtype, bits), n, &sum) || sum > limit || sum < (f->sign ? -limit : 0))
        return RLK_EINVAL;
    *out = sum < 0 ? f->sign | (uint64_t)-sum : (uint64_t)sum;
    return RLK_OK;
}

void rlk_element_from_double(enum rlk_dtype dtype, void *p, double v)
{
    enum rlk_dtype part = rlk_dtype_component(dtype);
    rlk_scalar_store(part, p, rlk_scalar_from_double(part, v));
    if (part != dtype)
        rlk_scalar_store(part, (unsigned char *)p + rlk_dtype_bytes(part), 0);
}

double rlk_element_to_double(enum rlk_dtype dtype, const void *p)
{
    enum rlk_dtype part = rlk_dtype_component(dtype);
    return rlk_scalar_to_double(part, rlk_scalar_load(part, p));
}
