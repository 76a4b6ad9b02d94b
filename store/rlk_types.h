/* rlk_types.h - element types and the plain values that the whole project passes around. No functions with state. */
#ifndef STORE_RLK_TYPES_H
#define STORE_RLK_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of the format (docs/format.md). A writer refuses more; a reader takes more for damage. */
#define RLK_MAX_STRING 4096u        /* bytes of one string, terminator apart */
#define RLK_MAX_DIMS 64u            /* dimensions of one tensor */
#define RLK_MAX_TENSORS (1u << 20)  /* tensors of one event */
#define RLK_MAX_EVENTS (1ull << 32) /* events of one environment */

/* 128-bit integers mod 2^128. */
typedef struct rlk_u128 {
    uint64_t lo, hi;
} rlk_u128;

static inline rlk_u128 rlk_u128_add(rlk_u128 a, rlk_u128 b)
{
    rlk_u128 s = {a.lo + b.lo, a.hi + b.hi};
    s.hi += s.lo < a.lo;
    return s;
}

static inline bool rlk_u128_equal(rlk_u128 a, rlk_u128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Element types. X(enumerator, stored value, name in specs and JSON, bytes an element, digest code, digest bits)
 *
 * Stored values never change meaning. code and bits enter the printed digest (docs/digest.md). quint8 and the like, and
 * packed sub-byte types, are recorded as uint8 with the innermost dimension in bytes. */
#define RLK_DTYPES(X)                                                                                                  \
    X(RLK_BOOL, 1, "bool", 1, 6, 8)                                                                                    \
    X(RLK_UINT8, 2, "uint8", 1, 1, 8)                                                                                  \
    X(RLK_INT8, 3, "int8", 1, 0, 8)                                                                                    \
    X(RLK_UINT16, 4, "uint16", 2, 1, 16)                                                                               \
    X(RLK_INT16, 5, "int16", 2, 0, 16)                                                                                 \
    X(RLK_UINT32, 6, "uint32", 4, 1, 32)                                                                               \
    X(RLK_INT32, 7, "int32", 4, 0, 32)                                                                                 \
    X(RLK_UINT64, 8, "uint64", 8, 1, 64)                                                                               \
    X(RLK_INT64, 9, "int64", 8, 0, 64)                                                                                 \
    X(RLK_FP8_E4M3, 10, "fp8_e4m3", 1, 10, 8)                                                                          \
    X(RLK_FP8_E5M2, 11, "fp8_e5m2", 1, 12, 8)                                                                          \
    X(RLK_FP16, 12, "fp16", 2, 2, 16)                                                                                  \
    X(RLK_BF16, 13, "bf16", 2, 4, 16)                                                                                  \
    X(RLK_FP32, 14, "fp32", 4, 2, 32)                                                                                  \
    X(RLK_FP64, 15, "fp64", 8, 2, 64)                                                                                  \
    X(RLK_COMPLEX32, 16, "complex32", 4, 5, 32)                                                                        \
    X(RLK_COMPLEX64, 17, "complex64", 8, 5, 64)                                                                        \
    X(RLK_COMPLEX128, 18, "complex128", 16, 5, 128)                                                                    \
    X(RLK_FP8_E4M3FNUZ, 19, "fp8_e4m3fnuz", 1, 11, 8)                                                                  \
    X(RLK_FP8_E5M2FNUZ, 20, "fp8_e5m2fnuz", 1, 13, 8)                                                                  \
    X(RLK_FP8_E8M0, 21, "fp8_e8m0", 1, 14, 8)

enum rlk_dtype {
    RLK_DTYPE_NONE = 0,
#define X(name, value, text, bytes, code, bits) name = value,
    RLK_DTYPES(X)
#undef X
};

const char *rlk_dtype_name(enum rlk_dtype dtype);     /* "bf16"; "?" for a value that is none */
enum rlk_dtype rlk_dtype_from_name(const char *name); /* RLK_DTYPE_NONE if unknown */
size_t rlk_dtype_bytes(enum rlk_dtype dtype);         /* 0 for a value that is none */
unsigned rlk_dtype_code(enum rlk_dtype dtype);
unsigned rlk_dtype_bits(enum rlk_dtype dtype);
bool rlk_dtype_is_integer(enum rlk_dtype dtype); /* bool included */
bool rlk_dtype_is_complex(enum rlk_dtype dtype);

/* The digest of a tensor or of a part of one, as stored: nothing is closed, parts add. docs/digest.md. */
struct rlk_sums {
    rlk_u128 positional; /* sum of g  mod 2^128 */
    rlk_u128 value;      /* sum of g' mod 2^128: -0 and NaN payloads made equal */
    uint64_t multiset;   /* sum of h.low64 mod 2^64 */
    uint64_t elements;   /* elements covered */
    uint64_t nan, inf, negzero;
};

static inline bool rlk_sums_same_bits(const struct rlk_sums *a, const struct rlk_sums *b)
{
    return a->elements == b->elements && rlk_u128_equal(a->positional, b->positional);
}

/* a += b, for disjoint parts of one tensor. */
static inline void rlk_sums_add(struct rlk_sums *a, const struct rlk_sums *b)
{
    a->positional = rlk_u128_add(a->positional, b->positional);
    a->value = rlk_u128_add(a->value, b->value);
    a->multiset += b->multiset;
    a->elements += b->elements;
    a->nan += b->nan;
    a->inf += b->inf;
    a->negzero += b->negzero;
}

/* Placement of a local tensor in its logical tensor (docs/identity.md, "Placement"): in each logical dimension the
 * local extent is the concatenation of runs [start, extent]; the local tensor is the product of them. */
struct rlk_run {
    uint64_t start, extent;
};

struct rlk_place {
    uint32_t ndim;              /* of the logical shape */
    const uint64_t *shape;      /* logical shape, ndim entries */
    const uint32_t *nruns;      /* runs of each dimension; RLK_WHOLE = the whole dimension; 0 = extent 0 */
    const struct rlk_run *runs; /* the runs of all dimensions, one after the other */
    const char *partial;        /* group over which this is a summand, NULL if none */
    const char *replica;        /* group whose members must hold equal bits, NULL if none */
    const char *zero;           /* group in which this copy is zero by design, NULL if none */
};
#define RLK_WHOLE UINT32_MAX

#ifdef __cplusplus
}
#endif

#endif
