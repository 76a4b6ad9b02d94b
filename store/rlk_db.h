/* rlk_db.h - the writer's side of LMDB (internal): an environment of its own, batches of puts, map growth. */
#ifndef STORE_RLK_DB_H
#define STORE_RLK_DB_H

#include "store/rlk_error.h"
#include "store/rlk_format.h"

struct MDB_env;
struct MDB_txn;

struct rlki_db {
    struct MDB_env *env;
    struct MDB_txn *txn;
    unsigned dbi[RLKI_DBS];
    uint64_t map_bytes, page_bytes;
};

/* Creates data.mdb in the (existing) directory, with all databases, committed. */
int rlki_db_open(struct rlki_db *db, const char *dir, struct rlk_detail *detail);
void rlki_db_close(struct rlki_db *db); /* aborts an open transaction */
int rlki_db_sync(struct rlki_db *db, struct rlk_detail *detail);
uint64_t rlki_db_bytes(const struct rlki_db *db); /* size of the file as committed */

/* Starts a transaction with room for about `bytes` more. */
int rlki_db_begin(struct rlki_db *db, uint64_t bytes, struct rlk_detail *detail);
int rlki_db_commit(struct rlki_db *db, struct rlk_detail *detail);
void rlki_db_abort(struct rlki_db *db);
/* Doubles the map. No transaction may be open. */
int rlki_db_grow(struct rlki_db *db, struct rlk_detail *detail);

/* Inside a transaction. RLK_EFULL: the map is full: abort, grow, do the batch again. */
int rlki_db_put(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey, const void *body, size_t n,
                bool append, struct rlk_detail *detail);
/* The body under a key (check apart); valid until the next put. RLK_ENOENT. */
int rlki_db_get(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey, const void **body,
                size_t *n, struct rlk_detail *detail);
int rlki_db_delete(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey,
                   struct rlk_detail *detail);
/* Smallest key of a database, copied. RLK_ENOENT when it is empty. */
int rlki_db_first(struct rlki_db *db, enum rlki_database which, void *key, size_t *nkey, size_t room,
                  struct rlk_detail *detail);

/* In a forked child: forgets the environment; only its file descriptor is closed. */
void rlki_db_abandon(struct rlki_db *db);

#endif
