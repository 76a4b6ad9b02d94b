#include "store/rlk_reader_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_META 65536u

int rlki_env_place(const struct rlk_env *env, int rc, struct rlk_detail *detail)
{
    if (rc && detail) {
        char text[sizeof detail->text];
        memcpy(text, detail->text, sizeof text);
        text[sizeof text - 1] = 0;
        snprintf(detail->text, sizeof detail->text, "%.200s/%s: %.250s", env->name, RLKI_DATA_FILE,
                 *text ? text : rlk_error_sentence(rc));
    }
    return rc;
}

static int open_trees(struct rlk_env *env, struct rlk_detail *detail)
{
    for (int i = 0; i < RLKI_DBS; i++) {
        int rc = rlki_mdb_tree(&env->mdb, rlki_db_name[i], &env->trees[i], detail);
        if (rc == RLK_ENOENT) /* not made yet when the process died */
            env->trees[i] = (struct rlki_tree){UINT64_MAX, 0, 0, rlki_db_integer[i]};
        else if (rc)
            return rc;
        else if (env->trees[i].integer != rlki_db_integer[i])
            return rlk_fail(detail, RLK_ECORRUPT, "database %s: its descriptor is damaged", rlki_db_name[i]);
    }
    return RLK_OK;
}

int rlki_env_cursor_value(struct rlk_env *env, enum rlki_database db, const struct rlki_mdb_cursor *c,
                          struct rlki_cur *body, struct rlk_detail *detail)
{
    env->value.n = 0;
    env->value.oom = false;
    if (c->value_bytes < 8)
        return rlk_fail(detail, RLK_ECORRUPT, "%s: a value without its check", rlki_db_name[db]);
    int rc = rlki_mdb_value(c, &env->value, detail);
    if (rc)
        return rc;
    *body = (struct rlki_cur){env->value.p + 8, env->value.p + env->value.n, false};
    uint64_t check;
    memcpy(&check, env->value.p, 8);
    if (check == rlki_check(db, c->key, c->nkey, body->p, rlki_left(body)))
        return RLK_OK;
    if (!rlki_db_integer[db])
        return rlk_fail(detail, RLK_ECORRUPT, "%s: checksum", rlki_db_name[db]);
    uint64_t key;
    memcpy(&key, c->key, sizeof key);
    return rlk_fail(detail, RLK_ECORRUPT, "%s %llu: checksum", rlki_db_name[db], (unsigned long long)key);
}

static int value_once(struct rlk_env *env, enum rlki_database db, const void *key, size_t nkey, bool floor,
                      uint64_t *found, struct rlki_cur *body, struct rlk_detail *detail)
{
    struct rlki_mdb_cursor c;
    int rc = rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[db]);
    if (rc)
        return rlk_fail(detail, rc, "out of memory");
    rc = rlki_mdb_seek(&c, key, nkey, detail);
    if (rc == RLK_OK && !floor && rlki_mdb_compare(&c.tree, c.key, c.nkey, key, nkey) != 0)
        rc = RLK_ENOENT;
    if (rc == RLK_OK)
        rc = rlki_env_cursor_value(env, db, &c, body, detail);
    if (rc == RLK_OK && found)
        memcpy(found, c.key, sizeof *found);
    rlki_mdb_cursor_release(&c);
    return rc;
}

bool rlki_env_newer(struct rlk_env *env)
{
    bool newer;
    struct rlk_detail ignored;
    return rlki_mdb_refresh(&env->mdb, &newer, &ignored) == RLK_OK && newer && open_trees(env, &ignored) == RLK_OK;
}

int rlki_env_value(struct rlk_env *env, enum rlki_database db, const void *key, size_t nkey, bool floor,
                   uint64_t *found, struct rlki_cur *body, struct rlk_detail *detail)
{
    int rc = RLK_OK;
    for (int tries = 0; tries < RLKI_RETRIES; tries++) {
        rc = value_once(env, db, key, nkey, floor, found, body, detail);
        if ((rc != RLK_ECORRUPT && rc != RLK_ENOENT) || !rlki_env_newer(env))
            break;
    }
    return rc;
}

static int add_meta(struct rlk_env *env, const void *key, size_t nkey, const void *value, size_t n)
{
    if (env->nmeta == env->cap_meta) {
        size_t cap = env->cap_meta ? env->cap_meta * 2 : 32;
        struct rlki_meta *meta = realloc(env->meta, cap * sizeof *meta);
        if (!meta)
            return RLK_ENOMEM;
        env->meta = meta;
        env->cap_meta = cap;
    }
    char *k = rlk_arena_alloc(&env->arena, nkey + 1, 1), *v = rlk_arena_alloc(&env->arena, n + 1, 1);
    if (!k || !v)
        return RLK_ENOMEM;
    memcpy(k, key, nkey);
    if (n)
        memcpy(v, value, n);
    env->meta[env->nmeta++] = (struct rlki_meta){k, v};
    return RLK_OK;
}

static int read_meta(struct rlk_env *env, struct rlk_detail *detail)
{
    struct rlki_mdb_cursor c;
    int rc = rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[RLKI_DB_META]);
    if (rc)
        return rlk_fail(detail, rc, "out of memory");
    for (rc = rlki_mdb_first(&c, detail); rc == RLK_OK; rc = rlki_mdb_next(&c, detail)) {
        struct rlki_cur body;
        rc = rlki_env_cursor_value(env, RLKI_DB_META, &c, &body, detail);
        if (rc)
            break;
        size_t n = rlki_left(&body);
        if (n > RLKI_MAX_META_VALUE || c.nkey > RLKI_MAX_META_KEY || env->nmeta == MAX_META ||
            !rlki_utf8(c.key, c.nkey) || !rlki_utf8(body.p, n)) {
            rc = rlk_fail(detail, RLK_ECORRUPT, "meta: entry %zu is no text within the bounds", env->nmeta);
            break;
        }
        rc = add_meta(env, c.key, c.nkey, body.p, n);
        if (rc)
            break;
    }
    rlki_mdb_cursor_release(&c);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

static int check_version(struct rlk_env *env, struct rlk_detail *detail)
{
    const char *text = rlk_env_meta(env, RLKI_META_FORMAT);
    unsigned major, minor;
    char rest;
    if (env->nmeta == 0 && env->mdb.main_depth == 0)
        return RLK_OK; /* died before its first commit */
    if (sscanf(text, "%u.%u%c", &major, &minor, &rest) != 2)
        return rlk_fail(detail, RLK_ECORRUPT, "no recording: meta has no %s", RLKI_META_FORMAT);
    if (major != RLKI_FORMAT_MAJOR)
        return rlk_fail(detail, RLK_EVERSION, "format %u.%u; this program reads %d.x", major, minor, RLKI_FORMAT_MAJOR);
    return RLK_OK;
}

static int read_state_record(struct rlk_env *env, uint64_t key, struct rlki_state *state, uint32_t **ranks,
                             struct rlk_detail *detail)
{
    struct rlki_cur body;
    int rc = rlki_env_value(env, RLKI_DB_STATE, &key, sizeof key, false, NULL, &body, detail);
    if (rc == RLK_OK)
        rc = rlki_state_get(state, ranks, body.p, rlki_left(&body));
    if (rc && rc != RLK_ENOENT)
        return rlk_fail(detail, rc, "%s: damaged", key == RLKI_STATE_END ? "END" : "checkpoint");
    uint64_t bytes = env->mdb.pages * env->mdb.page_bytes; /* each string and descriptor takes a byte at least */
    if (rc == RLK_OK && (state->nstrings > bytes || state->ndescs > bytes || state->nstrings > INT32_MAX ||
                         state->ndescs > INT32_MAX)) {
        free(*ranks);
        *ranks = NULL;
        return rlk_fail(detail, RLK_ECORRUPT, "%s: more strings than the file can hold",
                        key == RLKI_STATE_END ? "END" : "checkpoint");
    }
    return rc;
}

/* Do the chunks that are there fit the counts and the chain of a state record? */
static int chunks_agree(struct rlk_env *env, const struct rlki_state *s, struct rlk_detail *detail)
{
    uint64_t key;
    struct rlki_cur body;
    struct rlki_chunk chunk = {0};
    if (s->next_seq == s->first_seq)
        return env->trees[RLKI_DB_EVENTS].entries ? rlk_fail(detail, RLK_ECORRUPT, "events beyond the last count")
                                                  : RLK_OK;
    uint64_t last = UINT64_MAX;
    int rc = rlki_env_value(env, RLKI_DB_EVENTS, &last, sizeof last, true, &key, &body, detail);
    if (rc == RLK_ENOENT)
        return rlk_fail(detail, RLK_ECORRUPT, "the events are missing");
    if (rc == RLK_OK)
        rc = rlki_chunk_read(&chunk, key, body, detail);
    if (rc == RLK_OK && (key + chunk.count != s->next_seq || !rlk_u128_equal(chunk.chain, s->chain)))
        rc = rlk_fail(detail, RLK_ECORRUPT, "chunk %llu: not the last one counted", (unsigned long long)key);
    rlki_chunk_release(&chunk);
    return rc;
}

static int read_state(struct rlk_env *env, struct rlk_detail *detail)
{
    struct rlki_state end;
    uint32_t *end_ranks = NULL;
    env->state.first_step = INT64_MIN;
    if (env->trees[RLKI_DB_STATE].depth == 0 && env->trees[RLKI_DB_EVENTS].depth == 0)
        return RLK_OK; /* died before its first commit */
    int rc = read_state_record(env, RLKI_STATE_CHECKPOINT, &env->state, &env->ranks, detail);
    if (rc)
        return rc == RLK_ENOENT ? rlk_fail(detail, RLK_ECORRUPT, "checkpoint: missing") : rc;
    rc = chunks_agree(env, &env->state, detail);
    if (rc)
        return rc;
    struct rlk_detail ignored;
    rc = read_state_record(env, RLKI_STATE_END, &end, &end_ranks, &ignored);
    if (rc == RLK_ENOMEM)
        return rc;
    env->has_end = rc != RLK_ENOENT;
    if (rc)
        return RLK_OK; /* none, or damaged: not complete */
    env->complete = end.next_seq == env->state.next_seq && end.first_seq == env->state.first_seq &&
                    end.nchunks == env->state.nchunks && rlk_u128_equal(end.chain, env->state.chain) &&
                    end.nroll == env->trees[RLKI_DB_ROLL].entries && end.nroll == env->trees[RLKI_DB_ROLLMOD].entries;
    if (env->complete) {
        free(env->ranks);
        env->state = end;
        env->ranks = end_ranks;
    } else {
        free(end_ranks);
    }
    return RLK_OK;
}

static char *last_part(const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && dir[at - 1] != '/')
        at--;
    return strndup(dir + at, n - at);
}

static int open_file(struct rlk_env *env, const char *dir, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", dir, RLKI_DATA_FILE) >= (int)sizeof path)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    env->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hang us */
    if (env->fd < 0)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%s", strerror(errno));
    if (fstat(env->fd, &st) || !S_ISREG(st.st_mode))
        return rlk_fail(detail, RLK_ECORRUPT, "not a regular file");
    return RLK_OK;
}

/* Everything that depends on the root: databases, meta, state. */
static int open_root(struct rlk_env *env, struct rlk_detail *detail)
{
    int rc = rlki_mdb_open(&env->mdb, env->fd, detail);
    if (rc == RLK_ENOENT)
        return RLK_OK; /* died while it made the file */
    uint64_t txnid = env->mdb.txnid;
    if (rc == RLK_OK)
        rc = open_trees(env, detail);
    if (rc == RLK_OK)
        rc = read_meta(env, detail);
    if (rc == RLK_OK)
        rc = check_version(env, detail);
    if (rc == RLK_OK)
        rc = read_state(env, detail);
    if (rc == RLK_OK && env->state.fault) /* what the writer had to give up, told like a fact of the process */
        rc = add_meta(env, RLKI_META_FAULT, strlen(RLKI_META_FAULT), env->state.fault_text,
                      strlen(env->state.fault_text));
    env->mdb.txnid = txnid; /* of the root that we began with */
    return rc;
}

static void forget_root(struct rlk_env *env)
{
    free(env->ranks);
    env->ranks = NULL;
    env->nmeta = 0;
    free(env->meta);
    env->meta = NULL;
    env->cap_meta = 0;
    env->has_end = env->complete = false;
}

int rlk_env_open(struct rlk_env **out, const char *dir, struct rlk_detail *detail)
{
    struct rlk_detail own = {""};
    *out = NULL;
    struct rlk_env *env = calloc(1, sizeof *env);
    if (!env || !(env->name = last_part(dir))) {
        free(env);
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    }
    env->fd = -1;
    for (int i = 0; i < RLKI_DBS; i++)
        env->trees[i] = (struct rlki_tree){UINT64_MAX, 0, 0, rlki_db_integer[i]};
    int rc = open_file(env, dir, &own);
    for (int tries = 0; rc == RLK_OK; tries++) {
        rc = open_root(env, &own);
        struct rlki_mdb again = {0};
        if (rc != RLK_ECORRUPT || tries == RLKI_RETRIES || rlki_mdb_open(&again, env->fd, NULL) ||
            again.txnid == env->mdb.txnid)
            break;
        forget_root(env); /* the writer has committed meanwhile: what did not fit may be two commits mixed */
        rc = RLK_OK;
    }
    if (rc == RLK_OK)
        rc = rlki_env_tables(env);
    if (rc) {
        if (detail)
            *detail = own;
        rlki_env_place(env, rc, detail);
        rlk_env_close(env);
        return rc;
    }
    *out = env;
    return RLK_OK;
}

void rlk_env_close(struct rlk_env *env)
{
    if (!env)
        return;
    if (env->fd >= 0)
        close(env->fd);
    for (size_t i = 0; i < RLKI_CACHED_CHUNKS; i++)
        rlki_chunk_release(&env->chunks[i]);
    rlki_rollup_release(&env->roll);
    rlki_table_release(&env->texts);
    rlk_arena_release(&env->arena);
    rlki_buf_release(&env->value);
    free(env->strings);
    free(env->descs);
    free(env->meta);
    free(env->ranks);
    free(env->name);
    free(env);
}

uint64_t rlk_env_count(const struct rlk_env *env)
{
    return env->state.next_seq;
}

uint64_t rlk_env_kind(const struct rlk_env *env, enum rlk_event_kind kind)
{
    return (unsigned)kind < RLKI_KINDS ? env->state.kinds[kind] : 0;
}

bool rlk_env_complete(const struct rlk_env *env)
{
    return env->complete;
}

const uint32_t *rlk_env_ranks(const struct rlk_env *env, uint32_t *n)
{
    *n = env->ranks ? env->state.nranks : 0;
    return env->ranks;
}

const uint32_t *rlki_env_named(const struct rlk_env *env, uint32_t *n)
{
    *n = env->ranks ? env->state.nnamed : 0;
    return env->ranks ? env->ranks + env->state.nranks : NULL;
}

int rlk_env_coverage(struct rlk_env *env, struct rlk_coverage *out, struct rlk_detail *detail)
{
    (void)detail; /* the checkpoint of the last commit counts what was committed */
    *out = env->state.cov;
    return RLK_OK;
}

const char *rlk_env_meta(struct rlk_env *env, const char *key)
{
    for (size_t i = 0; i < env->nmeta; i++)
        if (strcmp(env->meta[i].key, key) == 0)
            return env->meta[i].value;
    return "";
}

int rlk_env_meta_each(struct rlk_env *env, int (*visit)(void *context, const char *key, const char *value),
                      void *context)
{
    int rc = 0;
    for (size_t i = 0; i < env->nmeta && rc == 0; i++)
        rc = visit(context, env->meta[i].key, env->meta[i].value);
    return rc;
}
