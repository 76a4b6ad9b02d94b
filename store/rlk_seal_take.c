#include "store/rlk_format.h"
#include "store/rlk_seal_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (1u << 20)

struct rlki_sha {
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    bool failed;
};

struct rlki_sha *rlki_sha_new(void)
{
    struct rlki_sha *sha = calloc(1, sizeof *sha);
    if (!sha)
        return NULL;
    sha->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    sha->ctx = EVP_MD_CTX_new();
    if (!sha->md || !sha->ctx) {
        rlki_sha_free(sha);
        return NULL;
    }
    return sha;
}

void rlki_sha_free(struct rlki_sha *sha)
{
    if (!sha)
        return;
    EVP_MD_CTX_free(sha->ctx);
    EVP_MD_free(sha->md);
    free(sha);
}

void rlki_sha_start(struct rlki_sha *sha, uint8_t tag)
{
    sha->failed = EVP_DigestInit_ex(sha->ctx, sha->md, NULL) != 1;
    rlki_sha_add(sha, &tag, 1);
}

void rlki_sha_add(struct rlki_sha *sha, const void *p, size_t n)
{
    if (n && EVP_DigestUpdate(sha->ctx, p, n) != 1)
        sha->failed = true;
}

bool rlki_sha_end(struct rlki_sha *sha, uint8_t hash[RLKI_HASH])
{
    unsigned n = 0;
    if (EVP_DigestFinal_ex(sha->ctx, hash, &n) != 1 || n != RLKI_HASH)
        sha->failed = true;
    return !sha->failed;
}

struct rlki_seal_file *rlki_seal_add_file(struct rlki_seal *seal, const char *path, size_t n)
{
    if (seal->nfiles == seal->cap_files) {
        size_t cap = seal->cap_files ? seal->cap_files * 2 : 16;
        struct rlki_seal_file *files = realloc(seal->files, cap * sizeof *files);
        if (!files)
            return NULL;
        seal->files = files;
        seal->cap_files = cap;
    }
    char *copy = strndup(path, n);
    if (!copy)
        return NULL;
    seal->files[seal->nfiles] = (struct rlki_seal_file){.path = copy};
    return &seal->files[seal->nfiles++];
}

int rlki_seal_add_env(struct rlki_seal *seal, const char *name, size_t n, uint32_t *index)
{
    size_t last = seal->nenvs;
    if (last && strlen(seal->envs[last - 1]) == n && memcmp(seal->envs[last - 1], name, n) == 0) {
        *index = (uint32_t)(last - 1);
        return RLK_OK;
    }
    if (last == seal->cap_envs) {
        size_t cap = seal->cap_envs ? seal->cap_envs * 2 : 16;
        char **envs = realloc(seal->envs, cap * sizeof *envs);
        if (!envs)
            return RLK_ENOMEM;
        seal->envs = envs;
        seal->cap_envs = cap;
    }
    seal->envs[last] = strndup(name, n);
    if (!seal->envs[last])
        return RLK_ENOMEM;
    seal->nenvs++;
    *index = (uint32_t)last;
    return RLK_OK;
}

struct rlki_seal_record *rlki_seal_add_record(struct rlki_seal *seal)
{
    if (seal->nrecords == seal->cap_records) {
        size_t cap = seal->cap_records ? seal->cap_records * 2 : 256;
        struct rlki_seal_record *records = realloc(seal->records, cap * sizeof *records);
        if (!records)
            return NULL;
        seal->records = records;
        seal->cap_records = cap;
    }
    return &seal->records[seal->nrecords++];
}

void rlki_seal_release(struct rlki_seal *seal)
{
    for (size_t i = 0; i < seal->nfiles; i++) {
        free(seal->files[i].path);
        free(seal->files[i].pages);
    }
    for (size_t i = 0; i < seal->nenvs; i++)
        free(seal->envs[i]);
    free(seal->files);
    free(seal->envs);
    free(seal->records);
    *seal = (struct rlki_seal){0};
}

static ssize_t read_full(int fd, uint8_t *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t got = read(fd, p + at, n - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return got;
        if (got == 0)
            break;
        at += (size_t)got;
    }
    return (ssize_t)at;
}

static int hash_pages(struct rlki_seal_file *file, int fd, struct rlki_sha *sha, uint8_t *buffer)
{
    size_t cap = 0;
    for (ssize_t got; (got = read_full(fd, buffer, BUFFER)) != 0;) {
        if (got < 0)
            return rlk_error_from_errno(errno);
        for (size_t at = 0; at < (size_t)got; at += RLKI_SEAL_PAGE) {
            size_t n = (size_t)got - at < RLKI_SEAL_PAGE ? (size_t)got - at : RLKI_SEAL_PAGE;
            if (file->npages == cap) {
                cap = cap ? cap * 2 : 4;
                uint8_t *pages = realloc(file->pages, cap * RLKI_HASH);
                if (!pages)
                    return RLK_ENOMEM;
                file->pages = pages;
            }
            rlki_sha_start(sha, 0x00);
            rlki_sha_add(sha, buffer + at, n);
            if (!rlki_sha_end(sha, file->pages + file->npages * RLKI_HASH))
                return RLK_EINTERNAL;
            file->npages++;
            file->size += n;
        }
        if ((size_t)got < BUFFER)
            break;
    }
    return RLK_OK;
}

struct take {
    struct rlki_seal *seal;
    const char *root;
    struct rlki_sha *sha;
    uint8_t *buffer;
    char **odd;
    struct rlk_detail *detail;
};

static bool left_out(const char *relative, const char *name)
{
    return strcmp(relative, RLKI_SEAL_FILE) == 0 || strcmp(relative, RLKI_SEAL_TEMPORARY) == 0 ||
           strcmp(name, "lock.mdb") == 0;
}

static int one_file(struct take *t, const char *path, const char *relative)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return rlk_fail(t->detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
    struct rlki_seal_file *file = rlki_seal_add_file(t->seal, relative, strlen(relative));
    int rc = file ? hash_pages(file, fd, t->sha, t->buffer) : RLK_ENOMEM;
    close(fd);
    return rc ? rlk_fail(t->detail, rc, "%.400s: %s", path, rlk_error_sentence(rc)) : RLK_OK;
}

static int odd_one(struct take *t, const char *relative)
{
    if (!t->odd)
        return rlk_fail(t->detail, RLK_EUNSUPPORTED, "%.400s: neither a file nor a directory", relative);
    if (!*t->odd && !(*t->odd = strdup(relative)))
        return RLK_ENOMEM;
    return RLK_OK;
}

static int walk(struct take *t, const char *relative, unsigned depth)
{
    char dir[PATH_MAX], path[PATH_MAX], below[PATH_MAX];
    if (depth > RLKI_SEAL_DEPTH || snprintf(dir, sizeof dir, "%s/%s", t->root, relative) >= (int)sizeof dir)
        return rlk_fail(t->detail, RLK_ELIMIT, "%.400s: too deep", relative);
    DIR *d = opendir(dir);
    if (!d)
        return rlk_fail(t->detail, rlk_error_from_errno(errno), "%.400s: %s", dir, strerror(errno));
    int rc = RLK_OK;
    for (struct dirent *e; rc == RLK_OK && (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (snprintf(below, sizeof below - 1, "%s%s", relative, e->d_name) >= (int)sizeof below - 1 ||
            snprintf(path, sizeof path, "%s/%s", t->root, below) >= (int)sizeof path) {
            rc = rlk_fail(t->detail, RLK_ELIMIT, "%.400s: the path is too long", dir);
            break;
        }
        if (left_out(below, e->d_name))
            continue;
        if (lstat(path, &st)) {
            rc = rlk_fail(t->detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
        } else if (S_ISREG(st.st_mode)) {
            rc = one_file(t, path, below);
        } else if (S_ISDIR(st.st_mode)) {
            strcat(below, "/"); /* room was left for it */
            rc = rlki_seal_add_file(t->seal, below, strlen(below)) ? walk(t, below, depth + 1) : RLK_ENOMEM;
        } else {
            rc = odd_one(t, below);
        }
    }
    closedir(d);
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct rlki_seal_file *)a)->path, ((const struct rlki_seal_file *)b)->path);
}

/* The chunks of one environment. Damage ends the list: what is behind it is told by the pages. */
static int take_records(struct take *t, const char *env, struct rlki_mdb_cursor *c)
{
    struct rlki_buf value = {0};
    uint32_t index;
    int rc = rlki_seal_add_env(t->seal, env, strlen(env), &index);
    for (int at = rc ? rc : rlki_mdb_first(c, NULL); at == RLK_OK; at = rlki_mdb_next(c, NULL)) {
        value.n = 0;
        rc = rlki_mdb_value(c, &value, NULL);
        if (rc == RLK_ENOMEM)
            break;
        if (rc || value.n < 28) {
            rc = RLK_OK;
            continue;
        }
        struct rlki_seal_record *r = rlki_seal_add_record(t->seal);
        if (!r) {
            rc = RLK_ENOMEM;
            break;
        }
        r->env = index;
        memcpy(&r->key, c->key, 8);
        memcpy(&r->count, value.p + 24, 4); /* behind check and previous chain value */
        rlki_sha_start(t->sha, 0x01);
        rlki_sha_add(t->sha, value.p, value.n);
        if (!rlki_sha_end(t->sha, r->hash)) {
            rc = RLK_EINTERNAL;
            break;
        }
    }
    rlki_buf_release(&value);
    return rc;
}

static int env_records(struct take *t, const char *file)
{
    char path[PATH_MAX], env[PATH_MAX];
    const char *slash = strchr(file, '/');
    if (!slash || strcmp(slash + 1, RLKI_DATA_FILE) != 0 || strncmp(file, "rank-", 5) != 0)
        return RLK_OK;
    snprintf(env, sizeof env, "%.*s", (int)(slash - file), file);
    if (snprintf(path, sizeof path, "%s/%s", t->root, file) >= (int)sizeof path)
        return RLK_ELIMIT;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return rlk_fail(t->detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
    struct rlki_mdb mdb;
    struct rlki_tree tree;
    struct rlki_mdb_cursor cursor = {0};
    int rc = rlki_mdb_open(&mdb, fd, NULL);
    if (rc == RLK_OK)
        rc = rlki_mdb_tree(&mdb, rlki_db_name[RLKI_DB_EVENTS], &tree, NULL);
    if (rc == RLK_OK && !tree.integer)
        rc = RLK_ECORRUPT;
    if (rc == RLK_OK)
        rc = rlki_mdb_cursor_init(&cursor, &mdb, &tree);
    if (rc == RLK_OK)
        rc = take_records(t, env, &cursor);
    rlki_mdb_cursor_release(&cursor);
    close(fd);
    return rc == RLK_ENOMEM || rc == RLK_EINTERNAL ? rc : RLK_OK; /* damage: the pages tell */
}

int rlki_seal_take(struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, char **odd, struct rlk_detail *detail)
{
    struct take t = {seal, dir, sha, malloc(BUFFER), odd, detail};
    *seal = (struct rlki_seal){0};
    int rc = t.buffer ? walk(&t, "", 0) : RLK_ENOMEM;
    if (rc == RLK_OK && seal->nfiles)
        qsort(seal->files, seal->nfiles, sizeof *seal->files, by_path);
    for (size_t i = 0; i < seal->nfiles && rc == RLK_OK; i++)
        rc = env_records(&t, seal->files[i].path);
    free(t.buffer);
    if (rc == RLK_ENOMEM)
        rlk_fail(detail, rc, "%.400s: out of memory", dir);
    return rc;
}
