/* rlk_reader_impl.h - what the files of the reader share (internal).
 *
 * rlk_reader.c        opening, meta, state, values by key
 * rlk_reader_event.c  tables, chunks, events
 * rlk_reader_roll.c   roll-ups, stored or made by a scan
 * rlk_reader_blob.c   payloads
 * rlk_reader_verify.c everything
 */
#ifndef STORE_RLK_READER_IMPL_H
#define STORE_RLK_READER_IMPL_H

#include "store/rlk_decode.h"
#include "store/rlk_format.h"
#include "store/rlk_intern.h"
#include "store/rlk_mdb_read.h"
#include "store/rlk_reader.h"
#include "store/rlk_rollup.h"

#define RLKI_CACHED_CHUNKS 8u /* about 150 KB each */

struct rlki_chunk {
    uint64_t first, used; /* when it was used last */
    uint32_t count;       /* 0 = empty slot */
    int64_t newest;
    rlk_u128 previous, chain;
    struct rlki_buf records;
    uint32_t *offsets; /* of each record's length, and the end */
};

struct rlki_meta {
    const char *key, *value;
};

struct rlk_env {
    int fd;
    char *name; /* last part of the directory, for details */
    struct rlki_mdb mdb;
    struct rlki_tree trees[RLKI_DBS];
    struct rlk_arena arena; /* meta, descriptors */
    struct rlki_meta *meta;
    size_t nmeta, cap_meta;
    struct rlki_state state;
    uint32_t *ranks;
    bool has_end, complete;
    struct rlki_table texts; /* every string given out, once */
    const char **strings;    /* by id, NULL = not read yet */
    const struct rlki_desc **descs;
    struct rlki_chunk chunks[RLKI_CACHED_CHUNKS];
    uint64_t clock;
    struct rlki_buf value; /* scratch of rlki_env_value */
    struct rlki_source source;
    bool rolled; /* `roll` holds what one scan made */
    struct rlki_rollup roll;
};

/* Puts the place in front of the detail and hands rc through. */
int rlki_env_place(const struct rlk_env *env, int rc, struct rlk_detail *detail);

/* The file of a running process: its writer uses pages of older roots again, so damage may only mean that ours is old.
 * True = a newer root has been taken: try again, at most RLKI_RETRIES times. What was committed before is in it too. */
bool rlki_env_newer(struct rlk_env *env);
#define RLKI_RETRIES 8

/* The checked value under exactly `key`, or under the largest key not above it (`floor`; *found gets a u64 key).
 * The body is in env->value after 8 bytes. RLK_ENOENT, RLK_ECORRUPT. */
int rlki_env_value(struct rlk_env *env, enum rlki_database db, const void *key, size_t nkey, bool floor,
                   uint64_t *found, struct rlki_cur *body, struct rlk_detail *detail);
/* Reads and checks the value at a cursor of database `db` into env->value. */
int rlki_env_cursor_value(struct rlk_env *env, enum rlki_database db, const struct rlki_mdb_cursor *c,
                          struct rlki_cur *body, struct rlk_detail *detail);

/* Ranks that process groups name and that have no event here. */
const uint32_t *rlki_env_named(const struct rlk_env *env, uint32_t *n);
int rlki_env_tables(struct rlk_env *env); /* sets up env->source; RLK_ENOMEM */
int rlki_env_string(struct rlk_env *env, uint64_t id, const char **out, struct rlk_detail *detail);
/* Parses a chunk's value. On success the chunk is filled. */
int rlki_chunk_read(struct rlki_chunk *chunk, uint64_t key, struct rlki_cur body, struct rlk_detail *detail);
void rlki_chunk_release(struct rlki_chunk *chunk);
/* The chunk that holds `seq`. RLK_ENOENT. */
int rlki_env_chunk(struct rlk_env *env, uint64_t seq, const struct rlki_chunk **out, struct rlk_detail *detail);
/* As rlk_env_event, with the string ids of phase and module. */
int rlki_env_event(struct rlk_env *env, uint64_t seq, struct rlk_arena *arena, struct rlk_event *out, uint32_t *phase,
                   uint32_t *module, struct rlk_detail *detail);
/* Unpacks a codec and size of docs/format.md: appends `size` bytes to *out. */
int rlki_unpack(struct rlki_buf *out, uint8_t codec, const uint8_t *p, size_t n, uint64_t size);

#endif
