/* events.h - random events for the tests of the store: every field of every kind, from a seed. */
#ifndef TESTS_STORE_EVENTS_H
#define TESTS_STORE_EVENTS_H

#include "store/rlk_event.h"

struct rng {
    uint64_t s;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);

/* A random event of `kind`; its parts live in `arena`. Identity fields come from small pools, so that they repeat. */
struct rlk_event random_event(struct rng *r, enum rlk_event_kind kind, struct rlk_arena *arena);

/* NULL = equal in everything but seq; else the name of the first field that differs. */
const char *event_difference(const struct rlk_event *a, const struct rlk_event *b);

/* A fresh directory under TMPDIR; removed, with all in it, by drop_dir. */
void fresh_dir(char out[256], const char *name);
void drop_dir(const char *dir);

#endif
