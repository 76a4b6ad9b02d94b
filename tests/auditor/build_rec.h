/* build_rec.h - small recordings for the auditor's tests, written through rlk_writer. */
#ifndef TESTS_AUDITOR_BUILD_REC_H
#define TESTS_AUDITOR_BUILD_REC_H

#include "store/rlk_event.h"
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"

struct rec { /* one recording with one environment */
    char dir[256], env[300];
    struct rlk_writer *writer;
    struct rlk_producer *producer;
    struct rlk_event event; /* the one being made */
    struct rlk_tensor tensor[64];
    uint64_t shape[64][4];
};

/* Makes NAME.rlk below a temporary directory; ranks and layout go to the manifest (layout may be NULL). */
void rec_open(struct rec *rec, const char *name, uint32_t ranks, const char *layout);
void rec_close(struct rec *rec, bool incomplete);
void rec_remove(const struct rec *rec);

/* One event: begin, tensors, end. Values are given by a number: equal numbers = equal digests. */
void rec_op(struct rec *rec, const char *op, const char *module, const char *pass, int64_t step);
void rec_in(struct rec *rec, const char *name, uint64_t value);                 /* digested */
void rec_ref(struct rec *rec, const char *name, uint64_t seq, uint32_t output); /* by reference */
void rec_out(struct rec *rec, const char *name, uint64_t value);
struct rlk_tensor *rec_last(struct rec *rec); /* the tensor just added: dtype bf16, shape [4,8] */
uint64_t rec_put(struct rec *rec);            /* its sequence number */

/* exit of first-diff; *out (may be NULL) gets the result. Fails the test on an error code. */
int rec_diff(const struct rec *a, const struct rec *b, json_t **out);

#endif
