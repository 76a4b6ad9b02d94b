#include "store/rlk_pack_impl.h"
#include "store/rlk_recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#define LEVEL 3
#define READ_BYTES (256u << 10)

unsigned rlki_tar_check(const struct rlki_tar *header)
{
    const unsigned char *p = (const unsigned char *)header;
    unsigned sum = 0;
    for (size_t i = 0; i < RLKI_TAR_BLOCK; i++)
        sum += i >= offsetof(struct rlki_tar, check) && i < offsetof(struct rlki_tar, type) ? ' ' : p[i];
    return sum;
}

bool rlki_pack_name(const char *name)
{
    size_t n = strlen(name);
    if (n < 5 || n > 150 || name[0] == '.' || strcmp(name + n - 4, ".rlk") != 0 || strchr(name, '/'))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return true;
}

bool rlki_pack_member(const char *path)
{
    unsigned long long rank, pid;
    int end = 0;
    if (strcmp(path, "manifest.json") == 0 || strcmp(path, "SEAL") == 0)
        return true;
    if (strlen(path) > 90 || strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789.-/") != strlen(path))
        return false;
    return sscanf(path, "rank-%10llu.pid-%20llu/data.mdb%n", &rank, &pid, &end) == 2 && end && !path[end];
}

struct pack {
    FILE *file;
    ZSTD_CCtx *zstd;
    char *out;
    size_t out_bytes;
    const char *path;
    struct rlk_detail *detail;
};

static int lost(const struct pack *p, const char *path)
{
    int err = errno ? errno : EIO;
    return rlk_fail(p->detail, rlk_error_from_errno(err), "%.400s: %s", path, strerror(err));
}

static int put(struct pack *p, const void *bytes, size_t n, ZSTD_EndDirective end)
{
    ZSTD_inBuffer in = {bytes, n, 0};
    for (;;) {
        ZSTD_outBuffer out = {p->out, p->out_bytes, 0};
        size_t left = ZSTD_compressStream2(p->zstd, &out, &in, end);
        if (ZSTD_isError(left))
            return rlk_fail(p->detail,
                            ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? RLK_ENOMEM : RLK_EINTERNAL,
                            "packing: %s", ZSTD_getErrorName(left));
        errno = 0;
        if (out.pos && fwrite(p->out, 1, out.pos, p->file) != out.pos)
            return lost(p, p->path);
        if (in.pos == in.size && (end == ZSTD_e_continue || left == 0))
            return RLK_OK;
    }
}

/* Octal, or from 8 GiB on base 256, as GNU tar and libarchive read it. */
static void put_size(char out[12], uint64_t size)
{
    if (size < UINT64_C(1) << 33) {
        snprintf(out, 12, "%011llo", (unsigned long long)size);
        return;
    }
    memset(out, 0, 12);
    out[0] = (char)0x80;
    for (int i = 11; i > 3; i--, size >>= 8)
        out[i] = (char)(size & 0xff);
}

static int put_header(struct pack *p, const char *prefix, const char *name, uint64_t size)
{
    struct rlki_tar h = {.type = '0', .magic = "ustar", .version = {'0', '0'}};
    memcpy(h.name, name, strlen(name)); /* rlki_pack_member and rlki_pack_name bound both */
    memcpy(h.prefix, prefix, strlen(prefix));
    snprintf(h.mode, sizeof h.mode, "%07o", 0600u);
    snprintf(h.uid, sizeof h.uid, "%07o", 0u);
    snprintf(h.gid, sizeof h.gid, "%07o", 0u);
    snprintf(h.mtime, sizeof h.mtime, "%011o", 0u);
    put_size(h.size, size);
    snprintf(h.check, sizeof h.check, "%06o", rlki_tar_check(&h));
    h.check[7] = ' ';
    return put(p, &h, sizeof h, ZSTD_e_continue);
}

static int put_padding(struct pack *p, uint64_t size)
{
    static const char zeros[RLKI_TAR_BLOCK];
    size_t more = (RLKI_TAR_BLOCK - size % RLKI_TAR_BLOCK) % RLKI_TAR_BLOCK;
    return put(p, zeros, more, ZSTD_e_continue);
}

static int put_file(struct pack *p, const char *prefix, const char *path, const char *member)
{
    struct stat st;
    char *buffer = NULL;
    uint64_t done = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = RLK_OK;
    if (fd < 0)
        return lost(p, path);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = rlk_fail(p->detail, RLK_EINVAL, "%.400s: no regular file", path);
    buffer = rc ? NULL : malloc(READ_BYTES);
    if (rc == RLK_OK && !buffer)
        rc = rlk_fail(p->detail, RLK_ENOMEM, "out of memory");
    if (rc == RLK_OK)
        rc = put_header(p, prefix, member, (uint64_t)st.st_size);
    while (rc == RLK_OK && done < (uint64_t)st.st_size) {
        uint64_t left = (uint64_t)st.st_size - done;
        ssize_t got = read(fd, buffer, left < READ_BYTES ? (size_t)left : READ_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            rc = got < 0 ? lost(p, path) : rlk_fail(p->detail, RLK_EIO, "%.400s: it shrank meanwhile", path);
        else
            rc = put(p, buffer, (size_t)got, ZSTD_e_continue);
        done += got > 0 ? (uint64_t)got : 0;
    }
    if (rc == RLK_OK)
        rc = put_padding(p, done);
    free(buffer);
    close(fd);
    return rc;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Files of the recording, in order; anything else in the directory is no part of it. */
static int put_directory(struct pack *p, const struct rlk_pack_item *item, const char *below)
{
    char dir[PATH_MAX], path[PATH_MAX], member[PATH_MAX];
    struct dirent **list = NULL;
    int rc = RLK_OK;
    snprintf(dir, sizeof dir, "%s%s%s", item->dir, *below ? "/" : "", below);
    int n = scandir(dir, &list, NULL, by_name);
    if (n < 0)
        return lost(p, dir);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        struct stat st;
        bool skip = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock.mdb") == 0 ||
                    strcmp(name, "SEAL.tmp") == 0 || strcmp(name, "manifest.json.tmp") == 0;
        if (rc == RLK_OK && !skip) {
            if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path ||
                snprintf(member, sizeof member, "%s%s%s", below, *below ? "/" : "", name) >= (int)sizeof member)
                rc = rlk_fail(p->detail, RLK_EINVAL, "a path is too long");
            else if (lstat(path, &st))
                rc = lost(p, path);
            else if (S_ISDIR(st.st_mode) && !*below && strncmp(name, "rank-", 5) == 0)
                rc = put_directory(p, item, name);
            else if (rlki_pack_member(member))
                rc = put_file(p, item->name, path, member);
            else
                rc = rlk_fail(p->detail, RLK_EINVAL, "%.400s: no part of a recording", path);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

static int put_index(struct pack *p, const struct rlk_pack_item *items, size_t n)
{
    json_t *names = json_array(), *index = NULL;
    char *text = NULL;
    int bad = !names, rc;
    for (size_t i = 0; i < n && !bad; i++)
        bad |= json_array_append_new(names, json_string(items[i].name));
    if (!bad)
        index = json_pack("{s:s,s:O}", "schema", RLK_PACK_SCHEMA, "recordings", names);
    text = index ? json_dumps(index, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (!text) {
        rc = rlk_fail(p->detail, RLK_ENOMEM, "out of memory");
    } else {
        rc = put_header(p, "", RLKI_PACK_INDEX, strlen(text));
        if (rc == RLK_OK)
            rc = put(p, text, strlen(text), ZSTD_e_continue);
        if (rc == RLK_OK)
            rc = put_padding(p, strlen(text));
    }
    free(text);
    json_decref(index);
    json_decref(names);
    return rc;
}

static int check_names(const struct rlk_pack_item *items, size_t n, struct rlk_detail *detail)
{
    if (n == 0 || n > RLKI_PACK_RECORDINGS)
        return rlk_fail(detail, RLK_EINVAL, "a pack holds 1 to %u recordings", RLKI_PACK_RECORDINGS);
    for (size_t i = 0; i < n; i++) {
        if (!rlki_pack_name(items[i].name))
            return rlk_fail(detail, RLK_EINVAL, "%.300s: not a name that a pack can hold", items[i].name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(items[i].name, items[k].name) == 0)
                return rlk_fail(detail, RLK_EINVAL, "two recordings are called %.300s", items[i].name);
    }
    return RLK_OK;
}

int rlk_pack_write(const char *path, const struct rlk_pack_item *items, size_t n, struct rlk_detail *detail)
{
    static const char end[2 * RLKI_TAR_BLOCK];
    struct pack p = {.path = path, .detail = detail, .out_bytes = ZSTD_CStreamOutSize()};
    char temporary[PATH_MAX];
    int fd = -1, rc = check_names(items, n, detail);
    if (rc)
        return rc;
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    p.out = malloc(p.out_bytes);
    p.zstd = ZSTD_createCCtx();
    if (!p.out || !p.zstd) {
        rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
        goto out;
    }
    ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_checksumFlag, 1);
    fd = mkstemp(temporary);
    p.file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!p.file) {
        rc = lost(&p, path);
        goto out;
    }
    rc = put_index(&p, items, n);
    for (size_t i = 0; i < n && rc == RLK_OK; i++)
        rc = put_directory(&p, &items[i], "");
    if (rc == RLK_OK)
        rc = put(&p, end, sizeof end, ZSTD_e_end);
    errno = 0;
    if (rc == RLK_OK && (fflush(p.file) || fsync(fd)))
        rc = lost(&p, path);
    if (rc == RLK_OK && rename(temporary, path))
        rc = lost(&p, path);
out:
    if (rc && fd >= 0)
        unlink(temporary);
    if (p.file)
        fclose(p.file);
    else if (fd >= 0)
        close(fd);
    ZSTD_freeCCtx(p.zstd);
    free(p.out);
    return rc;
}
