/* elements.h - what differs between two tensors whose bytes are there. */
#ifndef AUDITOR_ELEMENTS_H
#define AUDITOR_ELEMENTS_H

#include "store/rlk_types.h"

struct rlki_elements {
    uint64_t elements, changed;
    bool has_ulp;
    bool measured; /* some changed element is finite on both sides: else max_ulp and max_abs mean nothing */
    uint64_t max_ulp;
    double max_abs;
    uint64_t first; /* flat index of the first change */
    uint64_t nan;   /* changed elements that are NaN on either side */
    const char *pattern, *grade;
    bool tail_fixed;    /* changed bytes of B (or of A) all equal this one: */
    int fill_a, fill_b; /* 0..255, or -1: the byte that fills every changed element */
};

/* Row-major, the same shape and dtype, n elements each. */
int rlki_elements(struct rlki_elements *out, enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape, const void *a,
                  const void *b, uint64_t n, bool multiset_equal, bool value_equal);

#endif
