/* rlk_kbase.h - codes, element types and plain values of the kernels library. It depends on nothing of the project.
 *
 * The numbers are those of store/rlk_error.h and store/rlk_types.h, and struct rlk_placement has the members of
 * struct rlk_place in its order, so that a caller who has both headers copies without a table.
 */
#ifndef KERNELS_RLK_KBASE_H
#define KERNELS_RLK_KBASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0 = ok, negative = error. The sentence for the caller is in struct rlk_kdetail. */
enum rlk_kcode {
    RLK_K_OK = 0,
    RLK_K_ENOMEM = -1,        /* the workspace or the heap is too small; the detail names the bytes */
    RLK_K_EINVAL = -2,        /* an argument is outside what the function accepts; the detail names it and its limits */
    RLK_K_ESTATE = -10,       /* the call does not fit the state of the object */
    RLK_K_EUNSUPPORTED = -15, /* refused: the detail says what to change */
    RLK_K_EINTERNAL = -17     /* the device reported a fault; the detail has its words */
};

/* The particulars of the last error. Caller-owned, NULL wherever one is taken. */
struct rlk_kdetail {
    char text[512];
};

/* Fills *detail (if not NULL) and returns code. */
int rlk_kfail(struct rlk_kdetail *detail, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum rlk_ktype {
    RLK_K_NONE = 0,
    RLK_K_UINT8 = 2,
    RLK_K_INT32 = 7,
    RLK_K_INT64 = 9,
    RLK_K_BF16 = 13,
    RLK_K_FP32 = 14,
    RLK_K_FP64 = 15
};
size_t rlk_ktype_bytes(enum rlk_ktype type); /* 0 for a value that is none */

/* Precision of the nodes of a reduction tree (docs/contracts.md, section 3). FP32 is the contract; BF16 rounds every
 * leaf and every node to bf16 and exists to reproduce the trees of others. */
enum rlk_node { RLK_NODE_FP32 = 0, RLK_NODE_BF16 = 1 };

struct rlk_span {
    uint64_t start, extent;
};

/* Where a local tensor lies in its logical tensor: in each logical dimension the local extent is the concatenation of
 * spans; the local tensor is the product of them. nspans[d] = RLK_K_WHOLE: the whole dimension; 0: extent 0. */
struct rlk_placement {
    uint32_t ndim;
    const uint64_t *shape;
    const uint32_t *nspans;
    const struct rlk_span *spans; /* of all dimensions, one after the other; none for a whole dimension */
    const char *partial;          /* group over which this is a summand, NULL if none */
    const char *replica;          /* group whose members hold equal bits, NULL if none */
    const char *zero;             /* group in which this copy is zero by design, NULL if none */
};
#define RLK_K_WHOLE UINT32_MAX

#ifdef __cplusplus
}
#endif
#endif
