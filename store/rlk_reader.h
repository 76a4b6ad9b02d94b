/* rlk_reader.h - reads one environment of a recording. The bytes are hostile: every length, index and checksum is
 * checked, damage is RLK_ECORRUPT with the place in the detail, never a crash or an unbounded allocation.
 * Opened read-only and without locks. One struct rlk_env belongs to one thread at a time.
 */
#ifndef STORE_RLK_READER_H
#define STORE_RLK_READER_H

#include "store/rlk_error.h"
#include "store/rlk_event.h"

struct rlk_env;

int rlk_env_open(struct rlk_env **out, const char *dir, struct rlk_detail *detail);
void rlk_env_close(struct rlk_env *env);

uint64_t rlk_env_count(const struct rlk_env *env); /* events committed */
/* How many events of a kind it counted, removed ones included. */
uint64_t rlk_env_kind(const struct rlk_env *env, enum rlk_event_kind kind);
bool rlk_env_complete(const struct rlk_env *env); /* END present and its counts and chain agree */
/* Ranks: from END, else from the events. Points into env. */
const uint32_t *rlk_env_ranks(const struct rlk_env *env, uint32_t *n);
/* From END; when there is none, counted from what was committed. */
int rlk_env_coverage(struct rlk_env *env, struct rlk_coverage *out, struct rlk_detail *detail);
/* "" if absent; valid until close. */
const char *rlk_env_meta(struct rlk_env *env, const char *key);
int rlk_env_meta_each(struct rlk_env *env, int (*visit)(void *context, const char *key, const char *value),
                      void *context);

/* Event `seq`, its parts in `arena`. Strings are interned: within one env, equal strings have equal pointers, valid
 * until close. RLK_ENOENT: past the end, or a kind this reader does not know. */
int rlk_env_event(struct rlk_env *env, uint64_t seq, struct rlk_arena *arena, struct rlk_event *out,
                  struct rlk_detail *detail);

/* Visits events [first, last) in order; unknown kinds are skipped; the event is valid during the call only (its arena
 * is reset between calls; strings last until close). A non-zero return of visit stops and is returned. */
int rlk_env_scan(struct rlk_env *env, uint64_t first, uint64_t last,
                 int (*visit)(void *context, const struct rlk_event *event), void *context, struct rlk_detail *detail);

/* Roll-up nodes: step > phase > module, by rank. Sums hold identity and digests only, never addresses, streams, times,
 * and do not depend on the order in which threads interleave: equal sums = equal identities and digests.
 * Where the environment was cut off before its roll-up was written, it is made on opening by one scan. */
struct rlk_roll {
    int64_t step;
    uint32_t rank;
    const char *phase, *module; /* "" and "" in a step's total (rlk_env_steps) */
    const char *pass;           /* rlk_env_passes only; NULL = any (an older recording, or a pass of another name) */
    rlk_u128 out_sum;           /* identities, outputs, metrics, weights */
    rlk_u128 in_sum;            /* identities and sums of digested inputs */
    uint64_t events;            /* events inside (autotune and launch events are not counted) */
    uint64_t tensors;           /* tensors inside, by-reference ones included */
    uint64_t first_seq;         /* smallest sequence number inside */
    uint32_t nranges;           /* where the events are (modules only) */
    const struct rlk_range *ranges;
};
/* Totals of each (step, rank), ascending by step, then rank. */
int rlk_env_steps(struct rlk_env *env, int (*visit)(void *context, const struct rlk_roll *roll), void *context,
                  struct rlk_detail *detail);
/* The (phase, module) nodes of one (step, rank), in order of first_seq. */
int rlk_env_modules(struct rlk_env *env, int64_t step, uint32_t rank,
                    int (*visit)(void *context, const struct rlk_roll *roll), void *context, struct rlk_detail *detail);

/* The same by (phase, module, pass). */
int rlk_env_passes(struct rlk_env *env, int64_t step, uint32_t rank,
                   int (*visit)(void *context, const struct rlk_roll *roll), void *context, struct rlk_detail *detail);

/* Bytes stored under a content id: *bytes is malloc'ed. RLK_ENOENT: none. RLK_ECORRUPT: they do not match the id.
 * More than max_bytes when unpacked: RLK_ELIMIT. */
int rlk_env_payload(struct rlk_env *env, rlk_u128 id, uint64_t max_bytes, void **bytes, size_t *n,
                    struct rlk_detail *detail);

/* Reads everything: checksums, chain, counts, strings, payloads. RLK_ECORRUPT with the first place. */
int rlk_env_verify(struct rlk_env *env, struct rlk_detail *detail);
/* Reads every value and compares its checksum, nothing more: some fifty times as fast. */
int rlk_env_intact(struct rlk_env *env, struct rlk_detail *detail);

#endif
