/* rlk_writer.h - writes one environment (one process) of a recording: many producers, one writer thread, LMDB below.
 *
 * Threads: a struct rlk_producer belongs to one thread; everything else is thread-safe. Nothing here calls into the
 * watched program, takes a lock on a producer's path while the queue has room, or uses MDB_WRITEMAP.
 */
#ifndef STORE_RLK_WRITER_H
#define STORE_RLK_WRITER_H

#include "store/rlk_error.h"
#include "store/rlk_event.h"

struct rlk_writer;
struct rlk_producer;

struct rlk_writer_options {
    const char *dir;      /* environment directory NAME.rlk/rank-RRRRR.pid-P; created; must not exist */
    uint64_t queue_bytes; /* a producer's queue; 0 = 4 MiB */
    uint32_t commit_ms;   /* commit at least this often; 0 = 500 */
    uint32_t wait_ms; /* a producer waits at most this long for a full queue, then drops; 0 = 100; waits are stall_ns */
    uint64_t max_bytes;       /* stop recording (noted) when the environment grows past this; 0 = no bound */
    uint64_t keep_last_steps; /* retention; 0 = all */
    /* Resolves PENDING tensors (digests still on a device). RLK_OK, RLK_EAGAIN, or an error: not digested. */
    int (*resolve)(void *context, uint64_t ticket, struct rlk_sums *sums);
    void *resolve_context;
};

int rlk_writer_open(struct rlk_writer **out, const struct rlk_writer_options *options, struct rlk_detail *detail);

/* Key-value facts of this process for `meta` (libraries, versions, threads...): any time before close. */
int rlk_writer_meta(struct rlk_writer *writer, const char *key, const char *value);
/* Ranks this environment speaks for, listed in END; ranks of events are added by themselves. */
int rlk_writer_rank(struct rlk_writer *writer, uint32_t rank);
void rlk_writer_planes(struct rlk_writer *writer, uint32_t planes);
void rlk_writer_count_launches_seen(struct rlk_writer *writer, uint64_t n);
void rlk_writer_count_dropped(struct rlk_writer *writer, uint64_t n);

/* Registers the calling thread. Free it from the same thread, or let close do it. */
int rlk_writer_producer(struct rlk_writer *writer, struct rlk_producer **out);
void rlk_producer_free(struct rlk_producer *producer);

/* Appends a copy of *event; its place in the order goes to *seq (may be NULL). RLK_EFULL: dropped and counted.
 * RLK_ELIMIT, RLK_EINVAL: refused, nothing written. After a write error (disk full) every put is counted as dropped and
 * returns RLK_ESTATE: the caller goes on. */
int rlk_producer_put(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq);
/* The same for a LAUNCH event that says nothing but its entry, its step and one launch, and whose strings and
 * attributes' keys live until the writer is closed, each within RLK_MAX_STRING: they are not copied. The producer's
 * shortest way: it runs inside every launch of the watched program. */
int rlk_producer_launch(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq);

/* Stores bytes under their content id, compressed, never twice. Payload of a tensor = its elements in logical order,
 * little-endian. Blocks while the queue is full (bounded by wait_ms). */
int rlk_producer_payload(struct rlk_producer *producer, const void *bytes, size_t n, rlk_u128 *id);

/* Waits until everything put before is committed (not needed before close). */
int rlk_writer_flush(struct rlk_writer *writer, struct rlk_detail *detail);

/* First fault met, RLK_OK if none: what `rlkrec run` tells and what marks the recording. */
int rlk_writer_fault(struct rlk_writer *writer, struct rlk_detail *detail);
void rlk_writer_coverage(struct rlk_writer *writer, struct rlk_coverage *out);

/* Drains, writes roll-ups and END (unless `incomplete`), closes. Frees the writer in every case. */
int rlk_writer_close(struct rlk_writer *writer, bool incomplete, struct rlk_detail *detail);
/* In a forked child: drops everything without touching the parent's environment or waiting for its threads. */
void rlk_writer_abandon(struct rlk_writer *writer);

#endif
