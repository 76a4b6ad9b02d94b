/* rlk_mdb_read.h - reads LMDB 0.9 files without LMDB (internal): no lock, no map, every step checked.
 *
 * The file is hostile. Pages are read with pread(); page numbers, types, offsets, sizes, key order and depth are
 * checked before they are followed, so a walk ends and stays in the file whatever the bytes are. RLK_ECORRUPT with the
 * place.
 */
#ifndef STORE_RLK_MDB_READ_H
#define STORE_RLK_MDB_READ_H

#include "store/rlk_codec.h"
#include "store/rlk_error.h"

#define RLKI_MDB_DEPTH 32
#define RLKI_MDB_MAX_KEY 511u

struct rlki_mdb {
    int fd;
    uint32_t page_bytes;
    uint64_t pages; /* whole pages in the file */
    uint64_t txnid; /* of the root in use */
    uint64_t main_root;
    uint32_t main_depth;
};

struct rlki_tree { /* one named database */
    uint64_t root; /* UINT64_MAX = empty */
    uint32_t depth;
    uint64_t entries;
    bool integer; /* MDB_INTEGERKEY: keys are u64 */
};

/* Reads the newer meta page. A file of 0 bytes: RLK_ENOENT. */
int rlki_mdb_open(struct rlki_mdb *mdb, int fd, struct rlk_detail *detail);
/* Takes a newer root if there is one. *newer tells. */
int rlki_mdb_refresh(struct rlki_mdb *mdb, bool *newer, struct rlk_detail *detail);
/* RLK_ENOENT: no such database. */
int rlki_mdb_tree(const struct rlki_mdb *mdb, const char *name, struct rlki_tree *tree, struct rlk_detail *detail);

struct rlki_mdb_cursor { /* one position; walks forward only. Zero-initialise, release. */
    const struct rlki_mdb *mdb;
    struct rlki_tree tree;
    uint32_t level;
    uint8_t *pages; /* depth pages */
    uint64_t pgno[RLKI_MDB_DEPTH];
    uint32_t index[RLKI_MDB_DEPTH], count[RLKI_MDB_DEPTH];
    uint8_t key[RLKI_MDB_MAX_KEY];
    uint32_t nkey;
    uint64_t value_bytes;
    uint64_t value_page; /* 0 = in the leaf */
    const uint8_t *value;
};

int rlki_mdb_cursor_init(struct rlki_mdb_cursor *c, const struct rlki_mdb *mdb, const struct rlki_tree *tree);
void rlki_mdb_cursor_release(struct rlki_mdb_cursor *c);
/* Smallest key; RLK_ENOENT if empty. */
int rlki_mdb_first(struct rlki_mdb_cursor *c, struct rlk_detail *detail);
int rlki_mdb_last(struct rlki_mdb_cursor *c, struct rlk_detail *detail);
/* Next key; RLK_ENOENT at the end. */
int rlki_mdb_next(struct rlki_mdb_cursor *c, struct rlk_detail *detail);
/* Largest key <= `key`; RLK_ENOENT if there is none. */
int rlki_mdb_seek(struct rlki_mdb_cursor *c, const void *key, size_t nkey, struct rlk_detail *detail);
/* Appends the value at the cursor to *out. */
int rlki_mdb_value(const struct rlki_mdb_cursor *c, struct rlki_buf *out, struct rlk_detail *detail);
/* Order of two keys of a tree. */
int rlki_mdb_compare(const struct rlki_tree *tree, const void *a, size_t na, const void *b, size_t nb);

#endif
