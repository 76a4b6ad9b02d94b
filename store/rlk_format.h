/* rlk_format.h - the numbers and names of docs/format.md that writer and reader share (internal). */
#ifndef STORE_RLK_FORMAT_H
#define STORE_RLK_FORMAT_H

#include "store/rlk_codec.h"
#include "store/rlk_event.h"

#define RLKI_FORMAT_MAJOR 1
#define RLKI_FORMAT_MINOR 1
#define RLKI_META_FORMAT "rlk.format"
#define RLKI_META_FAULT "rlk.fault" /* never stored: a reader makes it from the state record */
#define RLKI_DATA_FILE "data.mdb"

/* X(enumerator, name, has MDB_INTEGERKEY) */
#define RLKI_DATABASES(X)                                                                                              \
    X(META, "meta", 0)                                                                                                 \
    X(STATE, "state", 1)                                                                                               \
    X(EVENTS, "events", 1)                                                                                             \
    X(STRINGS, "strings", 1)                                                                                           \
    X(DESCS, "descs", 1)                                                                                               \
    X(BLOBS, "blobs", 0)                                                                                               \
    X(ROLL, "roll", 0)                                                                                                 \
    X(ROLLMOD, "rollmod", 0)

enum rlki_database {
#define X(name, text, integer) RLKI_DB_##name,
    RLKI_DATABASES(X)
#undef X
        RLKI_DBS
};

extern const char *const rlki_db_name[RLKI_DBS];
extern const bool rlki_db_integer[RLKI_DBS];

#define RLKI_STATE_CHECKPOINT 0u
#define RLKI_STATE_END 1u

#define RLKI_MAX_META_KEY 255u
#define RLKI_MAX_META_VALUE 65536u
#define RLKI_MAX_LAUNCHES (1u << 20)
#define RLKI_MAX_ATTRS 65536u
#define RLKI_MAX_LIST (1u << 20)
#define RLKI_MAX_RANKS (1u << 20)
#define RLKI_MAX_RECORD (256u << 20)
#define RLKI_MAX_CHUNK ((256u << 20) + (256u << 10))
#define RLKI_MAX_RATIO 256u
#define RLKI_MAX_DESC (32u << 20)
#define RLKI_MAX_BLOCK ((1u << 20) + RLKI_MAX_DESC)
#define RLKI_BLOB_PART (4u << 20)
#define RLKI_MAX_BLOB (1ull << 40)
#define RLKI_BLOB_KEY 20u
#define RLKI_ROLL_KEY 12u

enum { RLKI_CODEC_RAW = 0, RLKI_CODEC_ZSTD = 1 };
enum { RLKI_DESC_TENSOR = 1, RLKI_DESC_LAUNCH = 2 };

/* Record mask. */
#define RLKI_M_RANK (1u << 0)
#define RLKI_M_THREAD (1u << 1)
#define RLKI_M_PHASE (1u << 2)
#define RLKI_M_PASS (1u << 3)
#define RLKI_M_MODULE (1u << 4)
#define RLKI_M_OP (1u << 5)
#define RLKI_M_CALL (1u << 6)
#define RLKI_M_OCCURRENCE (1u << 7)
#define RLKI_M_TENSORS (1u << 8)
#define RLKI_M_LAUNCHES (1u << 9)
#define RLKI_M_STEP (1u << 10)
#define RLKI_M_WORK (1u << 11)
#define RLKI_M_ITERATION (1u << 12)
#define RLKI_M_STREAM (1u << 13)
#define RLKI_M_SAMPLE (1u << 14)
#define RLKI_M_ID (1u << 15)
#define RLKI_M_ATTRS (1u << 16)
#define RLKI_M_RANGES (1u << 17)
#define RLKI_M_AUTOTUNE (1u << 18)

/* Tensor mask. */
#define RLKI_T_OUT (1u << 0)
#define RLKI_T_STATE_SHIFT 1u
#define RLKI_T_INDEX (1u << 3)
#define RLKI_T_VALUE (1u << 4)
#define RLKI_T_ELEMENTS (1u << 5)
#define RLKI_T_SPECIAL (1u << 6)
#define RLKI_T_ALLOC (1u << 7)
#define RLKI_T_VERSION (1u << 8)
#define RLKI_T_SAMPLES (1u << 9)
#define RLKI_T_PAYLOAD (1u << 10)
#define RLKI_T_VIEW (1u << 11)
#define RLKI_T_ALL ((1u << 12) - 1u)

/* Launch mask. */
#define RLKI_L_STREAM (1u << 0)
#define RLKI_L_GRAPH (1u << 1)
#define RLKI_L_NODE (1u << 2)
#define RLKI_L_PARAMS (1u << 3)
#define RLKI_L_ALL ((1u << 4) - 1u)

#define RLKI_D_NOT_COMPOSABLE (1u << 0)
#define RLKI_D_PLACE (1u << 1)

/* The check in front of every value. */
uint64_t rlki_check(enum rlki_database db, const void *key, size_t nkey, const void *body, size_t n);

void rlki_roll_key(uint8_t key[RLKI_ROLL_KEY], int64_t step, uint32_t rank);
bool rlki_roll_key_read(const uint8_t *key, size_t n, int64_t *step, uint32_t *rank);
void rlki_blob_key(uint8_t key[RLKI_BLOB_KEY], rlk_u128 id, uint32_t part);

/* The chain value of a chunk. */
rlk_u128 rlki_chain(uint64_t key, const void *body, size_t n);

/* State record: checkpoint and END. */
#define RLKI_KINDS 64u /* kinds counted one by one; a kind beyond is counted in none */
struct rlki_state {
    uint64_t first_seq, next_seq, nchunks;
    rlk_u128 chain;
    uint64_t nstrings, ndescs, nblobs;
    int64_t first_step;
    uint64_t nroll;
    int fault;
    char fault_text[256];
    struct rlk_coverage cov;
    uint64_t kinds[RLKI_KINDS];
    uint32_t nranks, nnamed;
    const uint32_t *ranks; /* the nnamed ranks that process groups name and that have no event here follow them */
};
void rlki_state_put(struct rlki_buf *b, const struct rlki_state *state);
/* *ranks is malloc'ed (NULL if none), both lists one after the other. RLK_ECORRUPT, RLK_ENOMEM. */
int rlki_state_get(struct rlki_state *state, uint32_t **ranks, const uint8_t *p, size_t n);

/* The one empty string that a reader gives: equal strings have equal pointers, "" too. */
extern const char rlki_empty[1];

/* Is it UTF-8 without NUL? (n bytes) */
bool rlki_utf8(const uint8_t *p, size_t n);

/* Counts one not digested tensor under its reason. */
void rlki_coverage_reason(struct rlk_coverage *cov, const char *reason, uint64_t count);

#endif
