#include "store/rlk_db.h"

#include <errno.h>
#include <limits.h>
#include <lmdb.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_MAP (UINT64_C(1) << 30) /* address space only; the file is as large as what was written */
#define SMALL_MAP (UINT64_C(16) << 20)
#define CHECK_BYTES 8u

static int fail(struct rlk_detail *detail, int err, const char *what)
{
    int code;
    if (err == MDB_MAP_FULL)
        code = RLK_EFULL;
    else if (err == MDB_NOTFOUND)
        code = RLK_ENOENT;
    else if (err == MDB_CORRUPTED || err == MDB_PAGE_NOTFOUND || err == MDB_INVALID)
        code = RLK_ECORRUPT;
    else
        code = err > 0 ? rlk_error_from_errno(err) : RLK_EINTERNAL;
    return rlk_fail(detail, code, "%s: %s", what, mdb_strerror(err));
}

static int open_databases(struct rlki_db *db)
{
    int err = 0;
    for (int i = 0; i < RLKI_DBS && !err; i++)
        err = mdb_dbi_open(db->txn, rlki_db_name[i], MDB_CREATE | (rlki_db_integer[i] ? MDB_INTEGERKEY : 0u),
                           &db->dbi[i]);
    return err;
}

int rlki_db_open(struct rlki_db *db, const char *dir, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    MDB_stat stat;
    *db = (struct rlki_db){0};
    if (snprintf(path, sizeof path, "%s/%s", dir, RLKI_DATA_FILE) >= (int)sizeof path)
        return rlk_fail(detail, RLK_EINVAL, "%.200s...: the path is too long", dir);
    int err = mdb_env_create(&db->env);
    if (err)
        return fail(detail, err, path);
    db->map_bytes = FIRST_MAP;
    err = mdb_env_set_maxdbs(db->env, RLKI_DBS);
    if (!err)
        err = mdb_env_set_mapsize(db->env, db->map_bytes);
    /* One writer, in a directory that it has just made: LMDB's lock would only add a file and a way to fail. */
    const unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NORDAHEAD;
    if (!err)
        err = mdb_env_open(db->env, path, flags, 0600);
    if (err == ENOMEM) { /* a limit on address space: begin small */
        mdb_env_close(db->env);
        db->env = NULL;
        db->map_bytes = SMALL_MAP;
        err = mdb_env_create(&db->env);
        if (!err)
            err = mdb_env_set_maxdbs(db->env, RLKI_DBS);
        if (!err)
            err = mdb_env_set_mapsize(db->env, db->map_bytes);
        if (!err)
            err = mdb_env_open(db->env, path, flags, 0600);
    }
    if (!err)
        err = mdb_txn_begin(db->env, NULL, 0, &db->txn);
    if (!err)
        err = open_databases(db);
    if (!err) {
        err = mdb_txn_commit(db->txn);
        db->txn = NULL;
    }
    if (!err)
        err = mdb_env_stat(db->env, &stat);
    if (err) {
        int code = fail(detail, err, path);
        rlki_db_close(db);
        return code;
    }
    db->page_bytes = stat.ms_psize;
    return RLK_OK;
}

void rlki_db_close(struct rlki_db *db)
{
    rlki_db_abort(db);
    if (db->env)
        mdb_env_close(db->env);
    db->env = NULL;
}

void rlki_db_abandon(struct rlki_db *db)
{
    mdb_filehandle_t fd = -1;
    if (db->env && mdb_env_get_fd(db->env, &fd) == 0 && fd >= 0)
        close(fd);
    db->env = NULL; /* its memory may have been in mid-change in the parent's thread: left alone */
    db->txn = NULL;
}

int rlki_db_sync(struct rlki_db *db, struct rlk_detail *detail)
{
    int err = mdb_env_sync(db->env, 1);
    return err ? fail(detail, err, "sync") : RLK_OK;
}

uint64_t rlki_db_bytes(const struct rlki_db *db)
{
    MDB_envinfo info;
    if (!db->env || mdb_env_info(db->env, &info))
        return 0;
    return (info.me_last_pgno + 1) * db->page_bytes;
}

int rlki_db_grow(struct rlki_db *db, struct rlk_detail *detail)
{
    if (db->map_bytes > UINT64_MAX / 4)
        return rlk_fail(detail, RLK_ELIMIT, "the map cannot grow");
    int err = mdb_env_set_mapsize(db->env, db->map_bytes * 2);
    if (err)
        return fail(detail, err, "growing the map");
    db->map_bytes *= 2;
    return RLK_OK;
}

int rlki_db_begin(struct rlki_db *db, uint64_t bytes, struct rlk_detail *detail)
{
    int rc = RLK_OK;
    uint64_t used = rlki_db_bytes(db), need = bytes + bytes / 4 + (UINT64_C(4) << 20);
    while (rc == RLK_OK && db->map_bytes - used < need)
        rc = rlki_db_grow(db, detail);
    if (rc)
        return rc;
    int err = mdb_txn_begin(db->env, NULL, 0, &db->txn);
    if (err) {
        db->txn = NULL;
        return fail(detail, err, "begin");
    }
    return RLK_OK;
}

/* LMDB says EIO for a write that was cut short, which is what a full disk does first. One more write tells. */
static bool disk_is_full(struct rlki_db *db)
{
    static const char probe[65536];
    mdb_filehandle_t fd;
    struct stat st;
    if (mdb_env_get_fd(db->env, &fd) || fstat(fd, &st))
        return false;
    ssize_t put = pwrite(fd, probe, sizeof probe, st.st_size);
    bool full = put < 0 ? rlk_error_from_errno(errno) == RLK_ENOSPC : put < (ssize_t)sizeof probe;
    return (put > 0 && ftruncate(fd, st.st_size) != 0) || full;
}

int rlki_db_commit(struct rlki_db *db, struct rlk_detail *detail)
{
    int err = mdb_txn_commit(db->txn);
    db->txn = NULL;
    if (err == EIO && disk_is_full(db))
        err = ENOSPC;
    return err ? fail(detail, err, "commit") : RLK_OK;
}

void rlki_db_abort(struct rlki_db *db)
{
    if (db->txn)
        mdb_txn_abort(db->txn);
    db->txn = NULL;
}

int rlki_db_put(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey, const void *body, size_t n,
                bool append, struct rlk_detail *detail)
{
    MDB_val k = {nkey, (void *)(uintptr_t)key}, v = {CHECK_BYTES + n, NULL};
    int err = mdb_put(db->txn, db->dbi[which], &k, &v, MDB_RESERVE | (append ? MDB_APPEND : 0u));
    if (err)
        return fail(detail, err, rlki_db_name[which]);
    uint64_t check = rlki_check(which, key, nkey, body, n);
    memcpy(v.mv_data, &check, CHECK_BYTES);
    if (n)
        memcpy((uint8_t *)v.mv_data + CHECK_BYTES, body, n);
    return RLK_OK;
}

int rlki_db_get(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey, const void **body,
                size_t *n, struct rlk_detail *detail)
{
    MDB_val k = {nkey, (void *)(uintptr_t)key}, v;
    int err = mdb_get(db->txn, db->dbi[which], &k, &v);
    if (err)
        return fail(detail, err, rlki_db_name[which]);
    if (v.mv_size < CHECK_BYTES)
        return rlk_fail(detail, RLK_ECORRUPT, "%s: a value without its check", rlki_db_name[which]);
    *body = (uint8_t *)v.mv_data + CHECK_BYTES;
    *n = v.mv_size - CHECK_BYTES;
    return RLK_OK;
}

int rlki_db_delete(struct rlki_db *db, enum rlki_database which, const void *key, size_t nkey,
                   struct rlk_detail *detail)
{
    MDB_val k = {nkey, (void *)(uintptr_t)key};
    int err = mdb_del(db->txn, db->dbi[which], &k, NULL);
    return err && err != MDB_NOTFOUND ? fail(detail, err, rlki_db_name[which]) : RLK_OK;
}

int rlki_db_first(struct rlki_db *db, enum rlki_database which, void *key, size_t *nkey, size_t room,
                  struct rlk_detail *detail)
{
    MDB_cursor *cursor;
    MDB_val k, v;
    int err = mdb_cursor_open(db->txn, db->dbi[which], &cursor);
    if (err)
        return fail(detail, err, rlki_db_name[which]);
    err = mdb_cursor_get(cursor, &k, &v, MDB_FIRST);
    if (!err && k.mv_size <= room) {
        memcpy(key, k.mv_data, k.mv_size);
        *nkey = k.mv_size;
    } else if (!err) {
        err = MDB_BAD_VALSIZE;
    }
    mdb_cursor_close(cursor);
    return err ? fail(detail, err, rlki_db_name[which]) : RLK_OK;
}
