#include "store/rlk_json_file.h"
#include "store/rlk_pack_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

struct unpack {
    int fd;
    ZSTD_DCtx *zstd;
    char *in, *out;
    size_t in_bytes, out_bytes;
    ZSTD_inBuffer from;
    size_t at, have; /* of `out`: what is not taken yet */
    bool frame_ended, ended;
    uint64_t taken, most;
    const char *path, *dir;
    const json_t *names; /* of the index */
    char **made;         /* files and directories, in the order in which they were made */
    size_t nmade, cap_made;
    struct rlk_detail *detail;
};

static int broken(struct unpack *u, const char *what)
{
    return rlk_fail(u->detail, RLK_EPARSE, "%.300s: no pack, or a damaged one: at byte %llu unpacked: %.120s", u->path,
                    (unsigned long long)u->taken, what);
}

static int lost(struct unpack *u, const char *path)
{
    int err = errno ? errno : EIO;
    return rlk_fail(u->detail, rlk_error_from_errno(err), "%.400s: %s", path, strerror(err));
}

/* Makes at least one byte ready in `out`, unless the frame has ended. */
static int refill(struct unpack *u)
{
    u->at = u->have = 0;
    while (!u->have && !u->frame_ended) {
        if (u->from.pos == u->from.size) {
            ssize_t got = read(u->fd, u->in, u->in_bytes);
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                return lost(u, u->path);
            if (got == 0)
                return broken(u, "it ends too early");
            u->from = (ZSTD_inBuffer){u->in, (size_t)got, 0};
        }
        ZSTD_outBuffer out = {u->out, u->out_bytes, 0};
        size_t left = ZSTD_decompressStream(u->zstd, &out, &u->from);
        if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
        if (ZSTD_isError(left))
            return broken(u, ZSTD_getErrorName(left));
        u->frame_ended = left == 0;
        u->have = out.pos;
    }
    return RLK_OK;
}

/* The next bytes: at least one, at most n. */
static int take(struct unpack *u, const char **bytes, size_t *n)
{
    if (u->at == u->have) {
        int rc = refill(u);
        if (rc)
            return rc;
        if (!u->have)
            return broken(u, "it ends too early");
    }
    if (*n > u->have - u->at)
        *n = u->have - u->at;
    *bytes = u->out + u->at;
    u->at += *n;
    u->taken += *n;
    if (u->taken > u->most)
        return rlk_fail(u->detail, RLK_ELIMIT,
                        "%.300s: it unpacks to more than %llu bytes: allow it with --max-size if you trust it", u->path,
                        (unsigned long long)u->most);
    return RLK_OK;
}

static int take_all(struct unpack *u, void *to, size_t n)
{
    int rc = RLK_OK;
    for (size_t at = 0; at < n && rc == RLK_OK;) {
        const char *bytes = "";
        size_t some = n - at;
        rc = take(u, &bytes, &some);
        if (rc == RLK_OK)
            memcpy((char *)to + at, bytes, some);
        at += some;
    }
    return rc;
}

static bool read_octal(const char *text, size_t n, uint64_t *out)
{
    size_t i = 0;
    *out = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++)
        *out = *out << 3 | (uint64_t)(text[i] - '0');
    return i > 0 && (i == n || text[i] == 0 || text[i] == ' ');
}

static bool read_size(const char text[12], uint64_t *out)
{
    if (!((unsigned char)text[0] & 0x80))
        return read_octal(text, 12, out);
    *out = 0;
    for (int i = 1; i < 4; i++)
        if (text[i])
            return false;
    for (int i = 4; i < 12; i++)
        *out = *out << 8 | (unsigned char)text[i];
    return (unsigned char)text[0] == 0x80 && *out <= INT64_MAX;
}

/* The next entry's path and size; u->ended after the two blocks of zeros. */
static int next_entry(struct unpack *u, char path[260], uint64_t *size)
{
    struct rlki_tar h;
    static const char zeros[RLKI_TAR_BLOCK];
    uint64_t check;
    int rc = take_all(u, &h, sizeof h);
    if (rc)
        return rc;
    if (memcmp(&h, zeros, sizeof h) == 0) {
        u->ended = true;
        rc = take_all(u, &h, sizeof h);
        return rc == RLK_OK && memcmp(&h, zeros, sizeof h) != 0 ? broken(u, "no end") : rc;
    }
    if (memcmp(h.magic, "ustar", 6) != 0 || !read_octal(h.check, sizeof h.check, &check) || check != rlki_tar_check(&h))
        return broken(u, "no header of an entry");
    if (h.type != '0' && h.type != 0)
        return broken(u, "an entry that is no regular file");
    if (!read_size(h.size, size))
        return broken(u, "the size of an entry");
    snprintf(path, 260, "%.155s%s%.100s", h.prefix, h.prefix[0] ? "/" : "", h.name);
    return RLK_OK;
}

static int skip_padding(struct unpack *u, uint64_t size)
{
    char padding[RLKI_TAR_BLOCK];
    return take_all(u, padding, (RLKI_TAR_BLOCK - size % RLKI_TAR_BLOCK) % RLKI_TAR_BLOCK);
}

static int remember(struct unpack *u, const char *path)
{
    if (u->nmade == u->cap_made) {
        size_t cap = u->cap_made ? u->cap_made * 2 : 16;
        char **made = realloc(u->made, cap * sizeof *made);
        if (!made)
            return rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
        u->made = made;
        u->cap_made = cap;
    }
    u->made[u->nmade] = strdup(path);
    if (!u->made[u->nmade])
        return rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
    u->nmade++;
    return RLK_OK;
}

/* A directory that this unpacking made; making it again is fine. */
static int make_directory(struct unpack *u, const char *path)
{
    for (size_t i = u->nmade; i > 0; i--)
        if (strcmp(u->made[i - 1], path) == 0)
            return RLK_OK;
    int rc = remember(u, path);
    if (rc)
        return rc;
    if (mkdir(path, 0700) == 0)
        return RLK_OK;
    free(u->made[--u->nmade]); /* not ours to remove */
    return errno == EEXIST ? rlk_fail(u->detail, RLK_EEXIST, "%.400s", path) : lost(u, path);
}

static int write_bytes(struct unpack *u, int fd, const char *path, uint64_t size)
{
    int rc = RLK_OK;
    for (uint64_t left = size; left && rc == RLK_OK;) {
        const char *bytes = "";
        size_t n = left < u->out_bytes ? (size_t)left : u->out_bytes;
        rc = take(u, &bytes, &n);
        for (size_t at = 0; at < n && rc == RLK_OK;) {
            ssize_t put = write(fd, bytes + at, n - at);
            if (put < 0 && errno == EINTR)
                continue;
            if (put <= 0)
                rc = lost(u, path);
            else
                at += (size_t)put;
        }
        left -= n;
    }
    return rc;
}

static int take_file(struct unpack *u, const char *name, const char *member, uint64_t size)
{
    char path[PATH_MAX];
    const char *slash = strchr(member, '/');
    if (snprintf(path, sizeof path, "%s/%s", u->dir, name) >= (int)sizeof path)
        return rlk_fail(u->detail, RLK_EINVAL, "the path is too long");
    int rc = make_directory(u, path);
    if (rc == RLK_OK && slash) {
        if (snprintf(path, sizeof path, "%s/%s/%.*s", u->dir, name, (int)(slash - member), member) >= (int)sizeof path)
            return rlk_fail(u->detail, RLK_EINVAL, "the path is too long");
        rc = make_directory(u, path);
    }
    if (rc)
        return rc;
    if (snprintf(path, sizeof path, "%s/%s/%s", u->dir, name, member) >= (int)sizeof path)
        return rlk_fail(u->detail, RLK_EINVAL, "the path is too long");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? broken(u, "a file twice") : lost(u, path);
    rc = remember(u, path);
    if (rc)
        unlink(path);
    if (rc == RLK_OK)
        rc = write_bytes(u, fd, path, size);
    if (close(fd) && rc == RLK_OK)
        rc = lost(u, path);
    return rc == RLK_OK ? skip_padding(u, size) : rc;
}

static bool is_named(const struct unpack *u, const char *name)
{
    size_t i;
    const json_t *one;
    json_array_foreach(u->names, i, one) if (strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

/* The first entry says which recordings follow. */
static int take_index(struct unpack *u, json_t **out)
{
    char name[260], *text = NULL;
    uint64_t size = 0;
    json_error_t error;
    size_t i;
    const json_t *one;
    int rc = next_entry(u, name, &size);
    if (rc)
        return rc;
    if (u->ended || strcmp(name, RLKI_PACK_INDEX) != 0 || size > RLKI_PACK_INDEX_BYTES)
        return broken(u, "the first entry is not its index");
    text = malloc((size_t)size + 1);
    if (!text)
        return rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
    rc = take_all(u, text, (size_t)size);
    if (rc == RLK_OK)
        rc = skip_padding(u, size);
    *out = rc == RLK_OK ? json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &error) : NULL;
    free(text);
    if (rc)
        return rc;
    if (!*out && rlk_json_no_memory(&error))
        return rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
    const char *schema = json_string_value(json_object_get(*out, "schema"));
    u->names = json_object_get(*out, "recordings");
    if (!schema || strcmp(schema, RLK_PACK_SCHEMA) != 0 || !json_is_array(u->names) || !json_array_size(u->names) ||
        json_array_size(u->names) > RLKI_PACK_RECORDINGS)
        return broken(u, "its index");
    json_array_foreach(u->names, i, one)
    {
        const char *is = json_string_value(one);
        if (!is || strlen(is) != json_string_length(one) || !rlki_pack_name(is))
            return broken(u, "a name in its index that no recording has");
    }
    return RLK_OK;
}

static int take_entries(struct unpack *u)
{
    for (;;) {
        char path[260];
        uint64_t size = 0;
        int rc = next_entry(u, path, &size);
        char *slash = rc || u->ended ? NULL : strchr(path, '/');
        if (rc || u->ended)
            return rc;
        if (slash)
            *slash = 0;
        if (!slash || !is_named(u, path) || !rlki_pack_member(slash + 1))
            return broken(u, "an entry that is no part of a recording");
        rc = take_file(u, path, slash + 1, size);
        if (rc)
            return rc;
    }
}

/* After the end: nothing more, packed or not. */
static int take_end(struct unpack *u)
{
    char more;
    int rc = u->at == u->have ? refill(u) : RLK_OK;
    if (rc)
        return rc;
    if (u->at != u->have || u->from.pos != u->from.size || read(u->fd, &more, 1) != 0)
        return broken(u, "something behind its end");
    return RLK_OK;
}

/* Every recording that the index names has a manifest. */
static int check_whole(struct unpack *u)
{
    size_t i;
    const json_t *one;
    char path[PATH_MAX];
    json_array_foreach(u->names, i, one)
    {
        size_t k = 0;
        if (snprintf(path, sizeof path, "%s/%s/manifest.json", u->dir, json_string_value(one)) >= (int)sizeof path)
            return rlk_fail(u->detail, RLK_EINVAL, "the path is too long");
        while (k < u->nmade && strcmp(u->made[k], path) != 0)
            k++;
        if (k == u->nmade)
            return broken(u, "a recording without its manifest");
    }
    return RLK_OK;
}

static int start(struct unpack *u, uint64_t max_bytes)
{
    struct stat st;
    u->fd = open(u->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (u->fd < 0)
        return lost(u, u->path);
    if (fstat(u->fd, &st) || !S_ISREG(st.st_mode))
        return rlk_fail(u->detail, RLK_EINVAL, "%.400s: no regular file", u->path);
    u->most = max_bytes ? max_bytes : (uint64_t)st.st_size * RLK_PACK_RATIO + (1u << 20);
    u->in_bytes = ZSTD_DStreamInSize();
    u->out_bytes = ZSTD_DStreamOutSize();
    u->in = malloc(u->in_bytes);
    u->out = malloc(u->out_bytes);
    u->zstd = ZSTD_createDCtx();
    return u->in && u->out && u->zstd ? RLK_OK : rlk_fail(u->detail, RLK_ENOMEM, "out of memory");
}

int rlk_pack_read(const char *path, const char *dir, uint64_t max_bytes,
                  int (*made)(void *context, const char *recording), void *context, struct rlk_detail *detail)
{
    struct unpack u = {.fd = -1, .path = path, .dir = dir, .detail = detail};
    json_t *index = NULL;
    size_t i;
    const json_t *one;
    int rc = start(&u, max_bytes);
    if (rc == RLK_OK)
        rc = take_index(&u, &index);
    if (rc == RLK_OK)
        rc = take_entries(&u);
    if (rc == RLK_OK)
        rc = take_end(&u);
    if (rc == RLK_OK)
        rc = check_whole(&u);
    if (rc == RLK_OK && made) {
        json_array_foreach(u.names, i, one)
        {
            char where[PATH_MAX];
            snprintf(where, sizeof where, "%.2000s/%.200s", dir, json_string_value(one));
            if (rc == RLK_OK)
                rc = made(context, where);
        }
    }
    for (size_t k = u.nmade; k > 0; k--) {
        if (rc && unlink(u.made[k - 1]) && errno == EISDIR)
            rmdir(u.made[k - 1]);
        free(u.made[k - 1]);
    }
    free(u.made);
    json_decref(index);
    ZSTD_freeDCtx(u.zstd);
    free(u.in);
    free(u.out);
    if (u.fd >= 0)
        close(u.fd);
    return rc;
}
