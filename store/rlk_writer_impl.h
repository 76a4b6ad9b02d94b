/* rlk_writer_impl.h - what the files of the writer share (internal).
 *
 * rlk_writer.c        the API: producers put into their queues; nothing here touches the database
 * rlk_writer_thread.c the writer thread: merges the queues by sequence number, resolves, decides when to commit
 * rlk_writer_batch.c  a batch: events become records, chunks, table blocks, roll-ups, and one LMDB transaction
 */
#ifndef STORE_RLK_WRITER_IMPL_H
#define STORE_RLK_WRITER_IMPL_H

#include "store/rlk_db.h"
#include "store/rlk_encode.h"
#include "store/rlk_queue.h"
#include "store/rlk_rollup.h"
#include "store/rlk_writer.h"

#include <pthread.h>
#include <stdatomic.h>

#define RLKI_CHUNK_BYTES (128u << 10)      /* a chunk is closed when its records reach this */
#define RLKI_BATCH_BYTES (16u << 20)       /* a batch is committed early when it reaches this */
#define RLKI_FAR_BYTES (UINT64_C(1) << 30) /* what may wait outside the queues */
#define RLKI_SEEN_BLOBS 4096u
#define RLKI_MAX_LAUNCH_ATTRS 64u /* in a LAUNCH slot */

struct rlk_producer {
    struct rlki_queue queue;
    struct rlk_writer *writer;
    struct rlk_producer *next; /* under writer->lock */
    _Atomic bool closed;
    rlk_u128 seen[RLKI_SEEN_BLOBS]; /* content ids put lately, so that they need not be put again */
};

enum rlki_run_state { RLKI_RUN, RLKI_STOPPED /* max-size */, RLKI_FAULT };

struct rlki_item { /* of a batch: the header of key and body in `items` */
    uint64_t n;
    uint16_t nkey;
    uint8_t db, append;
};

struct rlki_rank {
    uint32_t rank;
    int64_t newest; /* INT64_MIN = no event yet */
};

struct rlki_chunk_info {
    uint64_t first;
    int64_t newest;
};

struct rlki_batch { /* the writer thread's own */
    struct rlki_db db;
    struct rlki_encoder enc;
    struct rlki_rollup rollup;
    struct rlki_state state, committed; /* as of now; as of the last commit */
    uint64_t strings_put, descs_put;    /* ids up to here are in `items` or the database */
    struct rlki_buf records, body, packed, items, value;
    uint32_t chunk_events;
    uint64_t chunk_first;
    int64_t newest; /* step */
    struct rlki_rank *ranks;
    size_t nranks, cap_ranks, recent_rank;
    uint32_t *rank_list; /* for the state record: ranks, then the named ones */
    uint32_t *named;     /* ascending: ranks that process groups name */
    size_t nnamed, cap_named;
    uint64_t named_recent;        /* hash of the last list looked at */
    struct rlki_chunk_info *kept; /* chunks in the database, for retention */
    size_t nkept, cap_kept, kept_from;
    uint64_t keep_last_steps;
    bool dirty;  /* something to commit */
    bool broken; /* out of memory in what END would vouch for: no END */
    void *zstd;  /* ZSTD_CCtx */
};

struct rlk_writer {
    struct rlk_writer_options options;
    _Atomic uint64_t next_seq, dropped, stall_ns, launches_seen, far_bytes;
    _Atomic uint32_t planes;
    _Atomic int run;      /* enum rlki_run_state */
    _Atomic int sleeping; /* futex word: 1 = the writer thread waits */

    pthread_mutex_t lock; /* what follows, up to the batch */
    pthread_cond_t committed_cond;
    struct rlk_producer *producers;
    uint64_t producers_generation;
    struct rlki_buf meta; /* waiting: u16 key, u32 value lengths, bytes */
    uint32_t *new_ranks;
    size_t nnew_ranks;
    uint64_t flush_to, flush_requests, flushed;
    bool closing, incomplete, done;
    int fault;
    struct rlk_detail fault_detail;
    struct rlk_coverage coverage; /* as of the last commit */
    int close_error;
    struct rlk_detail close_detail;

    char name[128]; /* last part of the directory, for details */
    pthread_t thread;
    struct rlki_batch batch; /* the writer thread's */
    uint64_t merged;         /* next sequence number to take */
    uint64_t stop_at;        /* sequence number of the max-size note; UINT64_MAX = none */
};

/* rlk_writer_batch.c */
int rlki_batch_open(struct rlki_batch *b, const struct rlk_writer_options *options, struct rlk_detail *detail);
void rlki_batch_close(struct rlki_batch *b);
void rlki_batch_forget(struct rlki_batch *b); /* in a forked child */
/* Adds an event. RLK_ENOMEM, RLK_ELIMIT: a hole was put in its place, nothing else. */
int rlki_batch_event(struct rlki_batch *b, const struct rlk_event *event);
int rlki_batch_hole(struct rlki_batch *b, uint64_t seq);
int rlki_batch_blob(struct rlki_batch *b, rlk_u128 id, const void *bytes, size_t n);
int rlki_batch_meta(struct rlki_batch *b, const void *key, size_t nkey, const void *value, size_t n);
int rlki_batch_rank(struct rlki_batch *b, uint32_t rank, int64_t step);
uint64_t rlki_batch_bytes(const struct rlki_batch *b);
/* One transaction with all of it; `end` also writes roll-ups of everything and END. */
int rlki_batch_commit(struct rlki_batch *b, bool end, struct rlk_detail *detail);
/* After a fault: tries to leave fault and drops behind, in a transaction that holds nothing else. */
void rlki_batch_last_words(struct rlki_batch *b);

/* rlk_writer.c */
uint64_t rlki_now_ns(void);
struct rlki_blob_slot { /* body of a BLOB slot, the bytes follow; of a BLOB_FAR slot: `far` holds them */
    rlk_u128 id;
    uint64_t n;
    struct rlki_far far;
};

struct rlki_launch_slot { /* body of a LAUNCH slot: what rlk_producer_launch() was given; attributes follow */
    struct rlk_launch launch;
    const char *entry;
    int64_t step;
    uint32_t rank, thread, count, pad;
};

/* rlk_writer_thread.c */
extern uint64_t rlki_late_ns[2]; /* tests shorten them */
void *rlki_writer_main(void *writer);
void rlki_writer_wake(struct rlk_writer *w);

#endif
