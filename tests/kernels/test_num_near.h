/* test_num_near.h - see test_num_near.c. */
#ifndef TESTS_KERNELS_TEST_NUM_NEAR_H
#define TESTS_KERNELS_TEST_NUM_NEAR_H

#include <stdint.h>

/* Of n gates, `stride` bit patterns apart from `first` on: how many quotients differ from the division when the
 * reciprocal is `off` ulp from the nearest one. n is at most 2^30. */
int64_t near_quotient_errors(uint32_t first, int64_t n, uint32_t stride, int off);

#endif
