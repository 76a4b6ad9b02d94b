/* sample.h - a small recording of everything, and a reader that reads everything: for the tests of hostile input. */
#ifndef TESTS_STORE_SAMPLE_H
#define TESTS_STORE_SAMPLE_H

#include "store/rlk_reader.h"
#include "tests/store/events.h"

/* Writes an environment with `events` random events of every kind and two payloads. False = it failed. */
bool sample_write(const char *dir, uint64_t seed, unsigned events, bool incomplete);

struct sample_answer {
    int opened, verified; /* error codes */
    bool complete;
    uint64_t count;  /* events counted */
    uint64_t events; /* events read */
    uint64_t hash;   /* of everything read: events, meta, roll-ups, payload */
};

/* Opens dir and reads all there is, by every call of the reader; with `verify`, rlk_env_verify too. */
struct sample_answer sample_read(const char *dir, bool verify);

/* A whole file: malloc'ed, NULL = failure. */
unsigned char *sample_slurp(const char *path, size_t *n);
bool sample_spill(const char *path, const void *bytes, size_t n);

#endif
