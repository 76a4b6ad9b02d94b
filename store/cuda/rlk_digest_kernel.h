/* rlk_digest_kernel.h - what the host and the digest kernel share: plain C structs, fixed layout. */
#ifndef STORE_CUDA_RLK_DIGEST_KERNEL_H
#define STORE_CUDA_RLK_DIGEST_KERNEL_H

#include <stdint.h>

#define RLKG_DIMS 6      /* enumeration dimensions of a segment after merging */
#define RLKG_TENSORS 128 /* tensors a launch */
#define RLKG_SEGMENTS 128
#define RLKG_THREADS 256
#define RLKG_MAX_UNIT 256 /* bytes */
#define RLKG_BLOCKS 3 /* a multiprocessor: 80 registers a thread; four would spill (32-byte units: 1.8 instead of 3.3 TB/s) */

/* How an element's special values look (docs/digest.md). */
enum rlkg_class {
    RLKG_PLAIN = 0,  /* integers, bool: none */
    RLKG_E4M3FN = 1, /* NaN = magnitude 7f, no Inf */
    RLKG_E5M2 = 2,
    RLKG_FNUZ = 3, /* NaN = 80, neither Inf nor -0 */
    RLKG_E8M0 = 4, /* NaN = ff */
    RLKG_F16 = 5,
    RLKG_BF16 = 6,
    RLKG_F32 = 7,
    RLKG_F64 = 8,
};

/* A box of units of one tensor, enumerated in memory order: fastest dimension first. */
struct rlkg_segment {
    uint64_t base;  /* device address of the first element */
    uint64_t units; /* product of ext */
    uint64_t seed0; /* logical number of the first unit */
    int64_t inner;  /* bytes between the elements of a unit */
    int64_t step[RLKG_DIMS];
    uint64_t seed[RLKG_DIMS];
    uint32_t ext[RLKG_DIMS];
    uint32_t first_block, units_per_block;
    uint32_t tensor_blocks; /* of the whole tensor, all its segments */
    uint16_t slot;          /* tensor of the launch */
    uint8_t ndim;           /* 0 = one unit */
    uint8_t es;             /* bytes of an element */
    uint8_t lane;           /* bytes of a component (complex: half of es) */
    uint8_t u;              /* elements of a unit */
    uint8_t tail;           /* elements of the last unit along `column` */
    uint8_t column;         /* which dimension that is; 255 = every unit is full */
    uint8_t cls;            /* enum rlkg_class */
    uint8_t vec;            /* bytes a load may take when inner == es; a power of two, at most 16; 0 = bytes only */
    uint8_t pad[2];
};

/* Sums in the making, on the device, of a tensor that several blocks digest; all zero between launches. */
struct rlkg_acc {
    unsigned long long sum[8]; /* enum rlkg_word */
    unsigned int arrived, pad; /* blocks that are done */
};

enum rlkg_word {
    RLKG_POS_LO = 0,
    RLKG_POS_HI = 1,
    RLKG_DIFF_LO = 2, /* value - positional */
    RLKG_DIFF_HI = 3,
    RLKG_MULTISET = 4,
    RLKG_NAN = 5,
    RLKG_INF = 6,
    RLKG_NEGZERO = 7,
    RLKG_ID = 8, /* ticket */
    RLKG_WORDS = 9,
};

/* A result in host memory that the device writes. Each word carries the sequence number that makes it valid, so that
 * the device needs no fence over the bus: 16 bytes arrive together, in any order. */
struct rlkg_record {
    struct {
        uint64_t value, seq;
    } word[RLKG_WORDS];
};

/* Two rings of records. Ordinary launches write slot ticket % slots with seq = ticket + 1; the host keeps at most
 * `slots` outstanding. A captured launch is replayed without the host knowing: it takes the next position of the second
 * ring. */
struct rlkg_captured {
    unsigned long long head; /* next position */
    unsigned long long lost; /* results that found the ring full */
};

struct rlkg_params_head {
    uint64_t acc;     /* struct rlkg_acc [slots] */
    uint64_t records; /* struct rlkg_record [slots] as the device sees it */
    uint64_t id;      /* ticket of the first tensor */
    uint32_t slots;   /* a power of two */
    uint32_t ntensors, nsegments;
    uint32_t captured; /* 1: the fields below count */
    uint64_t ring;     /* struct rlkg_captured * */
    uint64_t consumed; /* const volatile uint64_t *: results of the second ring that the host has read, mapped */
};

#endif
