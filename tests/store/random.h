/* random.h - reproducible random numbers for the property tests; RLK_TEST_SEED changes the seed. */
#ifndef TESTS_STORE_RANDOM_H
#define TESTS_STORE_RANDOM_H

#include "store/rlk_philox.h"

#include <stdbool.h>
#include <stdlib.h>

struct rng {
    uint32_t seed;
    uint64_t k;
};

static inline struct rng rng_new(uint32_t stream)
{
    const char *text = getenv("RLK_TEST_SEED");
    return (struct rng){(text ? (uint32_t)strtoul(text, NULL, 10) : 1u) * 1000003u + stream, 0};
}

static inline uint64_t rng_word(struct rng *r)
{
    uint32_t w[4];
    rlk_fill_words(w, r->seed, 9, r->k++);
    return (uint64_t)w[0] << 32 | w[1];
}

static inline uint64_t rng_below(struct rng *r, uint64_t n) /* n > 0 */
{
    return rng_word(r) % n;
}

static inline bool rng_one_in(struct rng *r, uint64_t n)
{
    return rng_below(r, n) == 0;
}

#endif
