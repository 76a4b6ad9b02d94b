/* rlk_seal_check.c - is a recording still what was recorded? Asked before anything is concluded or made from it. */
#include "store/rlk_format.h"
#include "store/rlk_seal_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (1u << 20)

static int changed(struct rlk_detail *detail, const char *path, const char *what)
{
    return rlk_fail(detail, RLK_ECORRUPT, "%.160s: %s", path, what);
}

static bool stays_inside(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        if (*p == '/' || (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/')))
            return false;
    return *path != 0;
}

static int compare_pages(const struct rlki_seal_file *file, int fd, struct rlki_sha *sha, uint8_t *buffer,
                         struct rlk_detail *detail)
{
    uint8_t hash[RLKI_HASH];
    char what[80];
    for (uint64_t page = 0; page < file->npages;) {
        ssize_t got = pread(fd, buffer, BUFFER, (off_t)(page * RLKI_SEAL_PAGE));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? rlk_fail(detail, rlk_error_from_errno(errno), "%.160s: %s", file->path, strerror(errno))
                       : changed(detail, file->path, "cut off since it was sealed");
        for (size_t at = 0; at < (size_t)got && page < file->npages; at += RLKI_SEAL_PAGE, page++) {
            size_t n = (size_t)got - at < RLKI_SEAL_PAGE ? (size_t)got - at : RLKI_SEAL_PAGE;
            bool last = page + 1 == file->npages;
            if (n < RLKI_SEAL_PAGE && !last)
                break; /* read again from this page on */
            rlki_sha_start(sha, 0x00);
            rlki_sha_add(sha, buffer + at, n);
            if (!rlki_sha_end(sha, hash))
                return RLK_EINTERNAL;
            if (memcmp(hash, file->pages + page * RLKI_HASH, RLKI_HASH) == 0)
                continue;
            snprintf(what, sizeof what, "page %llu changed since it was sealed", (unsigned long long)page);
            return changed(detail, file->path, what);
        }
    }
    return RLK_OK;
}

static int compare_file(const char *dir, const struct rlki_seal_file *file, struct rlki_sha *sha, uint8_t *buffer,
                        struct rlk_detail *detail)
{
    char path[PATH_MAX];
    struct stat st;
    size_t n = strlen(file->path);
    if (n && file->path[n - 1] == '/')
        return RLK_OK; /* a directory */
    if (!stays_inside(file->path))
        return changed(detail, file->path, "no file of a recording, and sealed");
    if (snprintf(path, sizeof path, "%s/%s", dir, file->path) >= (int)sizeof path)
        return rlk_fail(detail, RLK_ELIMIT, "%.160s: the path is too long", file->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? changed(detail, file->path, "removed since it was sealed")
                               : rlk_fail(detail, rlk_error_from_errno(errno), "%.160s: %s", path, strerror(errno));
    int rc = RLK_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->size)
        rc = changed(detail, file->path, "of another size than when it was sealed");
    if (rc == RLK_OK)
        rc = compare_pages(file, fd, sha, buffer, detail);
    close(fd);
    return rc;
}

/* A process that was put beside those that were sealed would be read like one of them. */
static int none_added(const struct rlk_recording *recording, const struct rlki_seal *seal, struct rlk_detail *detail)
{
    for (size_t i = 0; i < rlk_recording_envs(recording); i++) {
        char path[PATH_MAX];
        const char *dir = rlk_recording_env_dir(recording, i), *last = strrchr(dir, '/');
        bool sealed = false;
        if (snprintf(path, sizeof path, "%s/%s", last ? last + 1 : dir, RLKI_DATA_FILE) >= (int)sizeof path)
            return rlk_fail(detail, RLK_ELIMIT, "%.160s: the path is too long", dir);
        for (size_t k = 0; k < seal->nfiles && !sealed; k++)
            sealed = strcmp(seal->files[k].path, path) == 0;
        if (!sealed)
            return changed(detail, path, "added since it was sealed (rlkrec seal -f seals anew)");
    }
    return RLK_OK;
}

static int against_seal(const struct rlk_recording *recording, const char *dir, const struct rlki_seal *seal,
                        struct rlki_sha *sha, uint64_t most, enum rlk_intact *how, struct rlk_detail *detail)
{
    uint64_t bytes = 0;
    uint8_t *buffer = malloc(BUFFER);
    int rc = buffer ? none_added(recording, seal, detail) : RLK_ENOMEM;
    for (size_t i = 0; i < seal->nfiles; i++)
        bytes += seal->files[i].size < UINT64_MAX - bytes ? seal->files[i].size : UINT64_MAX - bytes;
    *how = bytes <= most ? RLK_INTACT_SEAL : RLK_INTACT_UNKNOWN;
    for (size_t i = 0; i < seal->nfiles && rc == RLK_OK && bytes <= most; i++)
        rc = compare_file(dir, &seal->files[i], sha, buffer, detail);
    free(buffer);
    return rc == RLK_ENOMEM ? rlk_fail(detail, rc, "out of memory") : rc;
}

/* Without a seal: every value by its own checksum. Of a process without END nothing is said: it may still write. */
static int by_checksums(const struct rlk_recording *recording, uint64_t most, enum rlk_intact *how,
                        struct rlk_detail *detail)
{
    uint64_t bytes = 0;
    bool all = true;
    int rc = RLK_OK;
    for (size_t i = 0; i < rlk_recording_envs(recording); i++) {
        char path[PATH_MAX];
        struct stat st;
        all &= rlk_env_complete(rlk_recording_env(recording, i));
        if (snprintf(path, sizeof path, "%s/%s", rlk_recording_env_dir(recording, i), RLKI_DATA_FILE) <
                (int)sizeof path &&
            stat(path, &st) == 0)
            bytes += (uint64_t)st.st_size;
    }
    for (size_t i = 0; i < rlk_recording_envs(recording) && rc == RLK_OK && bytes <= most; i++)
        if (rlk_env_complete(rlk_recording_env(recording, i)))
            rc = rlk_env_intact(rlk_recording_env(recording, i), detail);
    *how = all && bytes <= most ? RLK_INTACT_CHECKSUMS : RLK_INTACT_UNKNOWN;
    return rc;
}

const char *rlk_intact_name(enum rlk_intact how)
{
    return how == RLK_INTACT_SEAL ? "seal" : how == RLK_INTACT_CHECKSUMS ? "checksums" : "not-checked";
}

int rlk_recording_intact(const struct rlk_recording *recording, uint64_t most, enum rlk_intact *how,
                         struct rlk_detail *detail)
{
    struct rlki_seal seal = {0};
    struct rlk_detail where = {""};
    const char *dir = rlk_recording_path(recording);
    *how = RLK_INTACT_UNKNOWN;
    struct rlki_sha *sha = rlki_sha_new();
    if (!sha)
        return rlk_fail(detail, RLK_ENOMEM, "SHA-256 cannot be set up");
    int rc = rlki_seal_read(&seal, dir, sha, &where);
    if (rc == RLK_ENOENT)
        rc = by_checksums(recording, most, how, &where);
    else if (rc == RLK_OK)
        rc = against_seal(recording, dir, &seal, sha, most, how, &where);
    if (rc)
        rlk_fail(detail, rc, "%.120s: %.200s", dir, where.text);
    rlki_seal_release(&seal);
    rlki_sha_free(sha);
    return rc;
}
