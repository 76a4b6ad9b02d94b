#include "store/rlk_seal_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'R', 'L', 'K', 'S', 'E', 'A', 'L', '1'};

/* Merkle tree over n leaves of 32 bytes; `leaves` is used up. */
static bool merkle(struct rlki_sha *sha, uint8_t *leaves, size_t n, uint8_t root[RLKI_HASH])
{
    if (n == 0) {
        rlki_sha_start(sha, 0x04);
        return rlki_sha_end(sha, root);
    }
    for (; n > 1; n = (n + 1) / 2)
        for (size_t i = 0; i < n; i += 2) {
            uint8_t *to = leaves + i / 2 * RLKI_HASH;
            if (i + 1 == n) {
                memmove(to, leaves + i * RLKI_HASH, RLKI_HASH); /* an odd one is promoted */
                continue;
            }
            rlki_sha_start(sha, 0x03);
            rlki_sha_add(sha, leaves + i * RLKI_HASH, 2 * RLKI_HASH);
            if (!rlki_sha_end(sha, to))
                return false;
        }
    memcpy(root, leaves, RLKI_HASH);
    return true;
}

static void add_name(struct rlki_sha *sha, const char *name)
{
    uint16_t n = (uint16_t)strlen(name);
    rlki_sha_add(sha, &n, sizeof n);
    rlki_sha_add(sha, name, n);
}

static bool file_leaf(struct rlki_sha *sha, const struct rlki_seal_file *file, uint8_t *leaf)
{
    uint8_t pages[RLKI_HASH];
    uint8_t *copy = malloc((size_t)file->npages * RLKI_HASH + 1);
    if (!copy)
        return false;
    if (file->npages)
        memcpy(copy, file->pages, (size_t)file->npages * RLKI_HASH);
    bool ok = merkle(sha, copy, (size_t)file->npages, pages);
    free(copy);
    rlki_sha_start(sha, 0x05);
    add_name(sha, file->path);
    rlki_sha_add(sha, &file->size, sizeof file->size);
    rlki_sha_add(sha, pages, sizeof pages);
    return ok && rlki_sha_end(sha, leaf);
}

int rlki_seal_root(const struct rlki_seal *seal, struct rlki_sha *sha, uint8_t root[RLKI_HASH])
{
    size_t most = seal->nfiles > seal->nrecords ? seal->nfiles : seal->nrecords;
    uint8_t *leaves = malloc(most * RLKI_HASH + 1), both[2][RLKI_HASH];
    if (!leaves)
        return RLK_ENOMEM;
    bool ok = true;
    for (size_t i = 0; ok && i < seal->nfiles; i++)
        ok = file_leaf(sha, &seal->files[i], leaves + i * RLKI_HASH);
    ok = ok && merkle(sha, leaves, seal->nfiles, both[0]);
    for (size_t i = 0; ok && i < seal->nrecords; i++) {
        const struct rlki_seal_record *r = &seal->records[i];
        rlki_sha_start(sha, 0x06);
        add_name(sha, seal->envs[r->env]);
        rlki_sha_add(sha, &r->key, sizeof r->key);
        rlki_sha_add(sha, &r->count, sizeof r->count);
        rlki_sha_add(sha, r->hash, sizeof r->hash);
        ok = rlki_sha_end(sha, leaves + i * RLKI_HASH);
    }
    ok = ok && merkle(sha, leaves, seal->nrecords, both[1]);
    free(leaves);
    rlki_sha_start(sha, 0x02);
    rlki_sha_add(sha, both, sizeof both);
    return ok && rlki_sha_end(sha, root) ? RLK_OK : RLK_ENOMEM;
}

static void put_name(struct rlki_buf *b, const char *name)
{
    uint16_t n = (uint16_t)strlen(name);
    rlki_put_bytes(b, &n, sizeof n);
    rlki_put_bytes(b, name, n);
}

static int encode(const struct rlki_seal *seal, struct rlki_sha *sha, struct rlki_buf *b)
{
    uint8_t hash[RLKI_HASH];
    rlki_put_bytes(b, magic, sizeof magic);
    rlki_put_u64(b, seal->nfiles);
    for (size_t i = 0; i < seal->nfiles; i++) {
        put_name(b, seal->files[i].path);
        rlki_put_u64(b, seal->files[i].size);
        rlki_put_bytes(b, seal->files[i].pages, (size_t)seal->files[i].npages * RLKI_HASH);
    }
    rlki_put_u64(b, seal->nrecords);
    for (size_t i = 0; i < seal->nrecords; i++) {
        const struct rlki_seal_record *r = &seal->records[i];
        put_name(b, seal->envs[r->env]);
        rlki_put_u64(b, r->key);
        rlki_put_u32(b, r->count);
        rlki_put_bytes(b, r->hash, sizeof r->hash);
    }
    int rc = rlki_seal_root(seal, sha, hash);
    if (rc)
        return rc;
    rlki_put_bytes(b, hash, sizeof hash);
    rlki_sha_start(sha, 0x07);
    rlki_sha_add(sha, b->p, b->n);
    if (!rlki_sha_end(sha, hash))
        return RLK_EINTERNAL;
    rlki_put_bytes(b, hash, sizeof hash);
    return b->oom ? RLK_ENOMEM : RLK_OK;
}

int rlki_seal_write(const struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, struct rlk_detail *detail)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    struct rlki_buf b = {0};
    if (snprintf(path, sizeof path, "%s/%s", dir, RLKI_SEAL_FILE) >= (int)sizeof path ||
        snprintf(temporary, sizeof temporary, "%s/%s", dir, RLKI_SEAL_TEMPORARY) >= (int)sizeof temporary)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    int fd = -1, rc = encode(seal, sha, &b);
    if (rc) {
        rlk_fail(detail, rc, "%.400s: %s", path, rlk_error_sentence(rc));
        goto out;
    }
    unlink(temporary);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
        goto out;
    }
    for (size_t at = 0; at < b.n;) {
        ssize_t put = write(fd, b.p + at, b.n - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
            goto out;
        }
        at += (size_t)put;
    }
    if (fsync(fd) || rename(temporary, path))
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
out:
    if (fd >= 0)
        close(fd);
    if (rc && fd >= 0)
        unlink(temporary);
    rlki_buf_release(&b);
    return rc;
}

static int read_bytes(const char *path, struct rlki_buf *b, struct rlk_detail *detail)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return rlk_fail(detail, errno == ELOOP ? RLK_ECORRUPT : rlk_error_from_errno(errno), "%.400s: %s", path,
                        strerror(errno));
    int rc = RLK_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = rlk_fail(detail, RLK_ECORRUPT, "%s: not a regular file", RLKI_SEAL_FILE);
    else if (!rlki_buf_room(b, (size_t)st.st_size + 1))
        rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
    while (rc == RLK_OK && b->n < (size_t)st.st_size) {
        ssize_t got = read(fd, b->p + b->n, (size_t)st.st_size - b->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            rc = rlk_fail(detail, RLK_EIO, "%.400s: %s", path, strerror(errno));
        if (got <= 0)
            break;
        b->n += (size_t)got;
    }
    close(fd);
    return rc;
}

static const char *get_name(struct rlki_cur *c, size_t *n)
{
    uint16_t len = 0;
    const uint8_t *p = rlki_get_bytes(c, sizeof len);
    if (p)
        memcpy(&len, p, sizeof len);
    p = rlki_get_bytes(c, len);
    if (!p || len == 0 || memchr(p, 0, len))
        c->bad = true;
    *n = len;
    return (const char *)p;
}

static int decode(struct rlki_seal *seal, struct rlki_cur *c)
{
    const uint8_t *head = rlki_get_bytes(c, sizeof magic);
    if (!head || memcmp(head, magic, sizeof magic) != 0)
        return RLK_ECORRUPT;
    uint64_t n = rlki_get_u64(c);
    for (uint64_t i = 0; i < n && !c->bad; i++) {
        size_t len;
        const char *path = get_name(c, &len);
        uint64_t size = rlki_get_u64(c), npages = size / RLKI_SEAL_PAGE + (size % RLKI_SEAL_PAGE != 0);
        if (c->bad || npages > rlki_left(c) / RLKI_HASH)
            return RLK_ECORRUPT;
        struct rlki_seal_file *file = rlki_seal_add_file(seal, path, len);
        if (!file || !(file->pages = malloc((size_t)npages * RLKI_HASH + 1)))
            return RLK_ENOMEM;
        memcpy(file->pages, rlki_get_bytes(c, npages * RLKI_HASH), (size_t)npages * RLKI_HASH);
        file->size = size;
        file->npages = npages;
    }
    n = rlki_get_u64(c);
    for (uint64_t i = 0; i < n && !c->bad; i++) {
        size_t len;
        uint32_t env = 0;
        const char *name = get_name(c, &len);
        uint64_t key = rlki_get_u64(c);
        uint32_t count = rlki_get_u32(c);
        const uint8_t *hash = rlki_get_bytes(c, RLKI_HASH);
        if (c->bad)
            return RLK_ECORRUPT;
        struct rlki_seal_record *r = rlki_seal_add_record(seal);
        if (!r || rlki_seal_add_env(seal, name, len, &env))
            return RLK_ENOMEM;
        r->env = env;
        r->key = key;
        r->count = count;
        memcpy(r->hash, hash, RLKI_HASH);
    }
    return c->bad ? RLK_ECORRUPT : RLK_OK;
}

int rlki_seal_read(struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    struct rlki_buf b = {0};
    uint8_t hash[RLKI_HASH];
    *seal = (struct rlki_seal){0};
    if (snprintf(path, sizeof path, "%s/%s", dir, RLKI_SEAL_FILE) >= (int)sizeof path)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    int rc = read_bytes(path, &b, detail);
    if (rc)
        goto out;
    rc = RLK_ECORRUPT;
    if (b.n < sizeof magic + 2 * RLKI_HASH) {
        rlk_fail(detail, rc, "%s: cut off", RLKI_SEAL_FILE);
        goto out;
    }
    rlki_sha_start(sha, 0x07);
    rlki_sha_add(sha, b.p, b.n - RLKI_HASH);
    if (!rlki_sha_end(sha, hash) || memcmp(hash, b.p + b.n - RLKI_HASH, RLKI_HASH) != 0) {
        rlk_fail(detail, rc, "%s: changed: its own hash does not fit", RLKI_SEAL_FILE);
        goto out;
    }
    struct rlki_cur c = {b.p, b.p + b.n - 2 * RLKI_HASH, false};
    rc = decode(seal, &c);
    if (rc == RLK_OK && c.p != c.end)
        rc = RLK_ECORRUPT;
    if (rc == RLK_OK)
        rc = rlki_seal_root(seal, sha, hash);
    if (rc == RLK_OK && memcmp(hash, b.p + b.n - 2 * RLKI_HASH, RLKI_HASH) != 0)
        rc = RLK_ECORRUPT;
    if (rc)
        rlk_fail(detail, rc, "%s: %s", RLKI_SEAL_FILE, rc == RLK_ECORRUPT ? "not well-formed" : "out of memory");
out:
    rlki_buf_release(&b);
    if (rc)
        rlki_seal_release(seal);
    return rc;
}
