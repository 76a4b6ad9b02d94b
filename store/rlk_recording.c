#include "store/rlk_recording.h"
#include "store/rlk_format.h"
#include "store/rlk_json_file.h"
#include "store/rlk_reader_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MANIFEST (16u << 20)
#define MAX_ENVS (1u << 20)

struct rlk_recording {
    char *path;
    json_t *manifest;
    struct rlk_env **envs;
    char **dirs;
    size_t n, cap;
    uint32_t *named; /* ranks that directories are called after, ascending by name: also of those without a file */
    size_t nnamed;
    char *unread; /* an environment directory without its file: made by a process that died at once */
};

int rlk_recording_env_name(char *out, size_t size, uint32_t rank, int64_t pid)
{
    int n = snprintf(out, size, "rank-%05u.pid-%lld", rank, (long long)pid);
    return n < 0 || (size_t)n >= size ? RLK_EINVAL : RLK_OK;
}

static int read_all(const char *path, char **text, size_t *n, struct rlk_detail *detail)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
    int rc = RLK_OK;
    *text = NULL;
    *n = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > MAX_MANIFEST) {
        rc = rlk_fail(detail, RLK_ECORRUPT, "%.400s: no regular file of at most 16 MiB", path);
        goto out;
    }
    *text = malloc((size_t)st.st_size + 1);
    if (!*text) {
        rc = rlk_fail(detail, RLK_ENOMEM, "%.400s: out of memory", path);
        goto out;
    }
    while (*n < (size_t)st.st_size) {
        ssize_t got = read(fd, *text + *n, (size_t)st.st_size - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = rlk_fail(detail, RLK_EIO, "%.400s: %s", path, strerror(errno));
            goto out;
        }
        if (got == 0)
            break;
        *n += (size_t)got;
    }
out:
    close(fd);
    if (rc) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

static int read_manifest(json_t **out, const char *dir, struct rlk_detail *detail)
{
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;
    json_error_t error;
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/manifest.json", dir) >= (int)sizeof path)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    int rc = read_all(path, &text, &n, detail);
    if (rc)
        return rc;
    json_t *manifest = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    free(text);
    const json_t *version = json_object_get(manifest, "rlk_recording"), *format = json_object_get(manifest, "format");
    const json_t *major = json_object_get(format, "major");
    if (!manifest && rlk_json_no_memory(&error))
        rc = rlk_fail(detail, RLK_ENOMEM, "%.400s: out of memory", path);
    else if (!manifest)
        rc = rlk_fail(detail, RLK_ECORRUPT, "%.300s: line %d: %s", path, error.line, error.text);
    else if (!json_is_object(manifest) || !json_is_integer(version) || !json_is_integer(major))
        rc = rlk_fail(detail, RLK_ECORRUPT, "%.400s: no manifest of a recording", path);
    else if (json_integer_value(version) != 1 || json_integer_value(major) != RLK_FORMAT_MAJOR)
        rc = rlk_fail(detail, RLK_EVERSION, "%.400s: format %lld; this program reads %d", path,
                      (long long)json_integer_value(major), RLK_FORMAT_MAJOR);
    if (rc)
        json_decref(manifest);
    else
        *out = manifest;
    return rc;
}

static int append(const char *p, size_t n, void *buffer)
{
    struct rlki_buf *b = buffer;
    rlki_put_bytes(b, p, n);
    return b->oom ? -1 : 0;
}

/* Read back before it is used: jansson's printer leaves pieces out when memory is short, and does not say so. */
static int print_json(struct rlki_buf *text, const json_t *value)
{
    int rc = json_dump_callback(value, append, text, JSON_INDENT(2)) ? RLK_ENOMEM : RLK_OK;
    rlki_put_u8(text, '\n');
    json_t *back = rc == RLK_OK && !text->oom ? json_loadb((const char *)text->p, text->n, 0, NULL) : NULL;
    if (!back || !json_equal(back, value))
        rc = RLK_ENOMEM;
    json_decref(back);
    return rc;
}

int rlk_recording_write_manifest(const char *dir, const json_t *manifest, struct rlk_detail *detail)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/manifest.json", dir) >= (int)sizeof path ||
        snprintf(temporary, sizeof temporary, "%s/manifest.json.tmp", dir) >= (int)sizeof temporary)
        return rlk_fail(detail, RLK_EINVAL, "the path is too long");
    struct rlki_buf text = {0};
    int rc = json_is_object(manifest) ? print_json(&text, manifest) : RLK_EINVAL, fd = -1;
    if (rc) {
        rlki_buf_release(&text);
        return rlk_fail(detail, rc, "%.400s: %s", path, rlk_error_sentence(rc));
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    for (size_t at = 0; fd >= 0 && at < text.n;) {
        ssize_t put = write(fd, text.p + at, text.n - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
            break;
        }
        at += (size_t)put;
    }
    if (fd < 0)
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
    if (fd >= 0 && rc == RLK_OK && fsync(fd))
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (rc == RLK_OK && rename(temporary, path))
        rc = rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", path, strerror(errno));
    if (rc && fd >= 0)
        unlink(temporary);
    rlki_buf_release(&text);
    return rc;
}

int rlk_recording_create(const char *dir, const json_t *manifest, struct rlk_detail *detail)
{
    char parent[PATH_MAX];
    if (snprintf(parent, sizeof parent, "%s", dir) >= (int)sizeof parent || !*dir)
        return rlk_fail(detail, RLK_EINVAL, "no path, or one that is too long");
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = 0;
    char *slash = strrchr(parent, '/');
    if (slash) {
        *slash = 0;
        const char *base = strrchr(parent, '/');
        if (strcmp(base ? base + 1 : parent, "rlk-recordings") == 0 && mkdir(parent, 0777) && errno != EEXIST)
            return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", parent, strerror(errno));
    }
    if (mkdir(dir, 0700))
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", dir, strerror(errno));
    int rc = rlk_recording_write_manifest(dir, manifest, detail);
    if (rc)
        rmdir(dir);
    return rc;
}

int rlk_recording_set_latest(const char *dir, struct rlk_detail *detail)
{
    char real[PATH_MAX], link[PATH_MAX + 64], temporary[PATH_MAX + 64];
    if (!realpath(dir, real))
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", dir, strerror(errno));
    char *slash = strrchr(real, '/');
    if (!slash || slash == real || !slash[1])
        return rlk_fail(detail, RLK_EINVAL, "%.400s: not inside a directory of recordings", dir);
    *slash = 0;
    const char *base = strrchr(real, '/');
    if (!base || strcmp(base + 1, "rlk-recordings") != 0)
        return RLK_OK; /* recordings elsewhere have no `latest` */
    snprintf(link, sizeof link, "%s/latest", real);
    snprintf(temporary, sizeof temporary, "%s/.latest.%lld", real, (long long)getpid());
    unlink(temporary);
    if (symlink(slash + 1, temporary))
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", temporary, strerror(errno));
    if (rename(temporary, link)) {
        int err = errno;
        unlink(temporary);
        return rlk_fail(detail, rlk_error_from_errno(err), "%.400s: %s", link, strerror(err));
    }
    return RLK_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_envs(struct rlk_recording *r, struct rlk_detail *detail)
{
    DIR *d = opendir(r->path);
    if (!d)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%.400s: %s", r->path, strerror(errno));
    int rc = RLK_OK;
    size_t n = 0;
    for (struct dirent *e; rc == RLK_OK && (e = readdir(d));) {
        char path[PATH_MAX];
        struct stat st;
        if (strncmp(e->d_name, "rank-", 5) != 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", r->path, e->d_name) >= (int)sizeof path || lstat(path, &st) ||
            !S_ISDIR(st.st_mode))
            continue;
        if (n == r->cap) {
            size_t cap = r->cap ? r->cap * 2 : 16;
            char **dirs = realloc(r->dirs, cap * sizeof *dirs);
            if (!dirs) {
                rc = RLK_ENOMEM;
                break;
            }
            r->dirs = dirs;
            r->cap = cap;
        }
        r->dirs[n] = n < MAX_ENVS ? strdup(path) : NULL;
        if (!r->dirs[n])
            rc = n < MAX_ENVS ? RLK_ENOMEM : RLK_ELIMIT;
        else
            r->n = ++n;
    }
    closedir(d);
    if (rc)
        return rlk_fail(detail, rc, "%.400s: %s", r->path, rlk_error_sentence(rc));
    if (n)
        qsort(r->dirs, n, sizeof *r->dirs, by_name);
    r->envs = calloc(n + 1, sizeof *r->envs);
    r->named = calloc(n + 1, sizeof *r->named);
    for (size_t i = 0; r->named && i < n; i++) {
        unsigned long rank = strtoul(strrchr(r->dirs[i], '/') + 6, NULL, 10);
        if (rank < UINT32_MAX)
            r->named[r->nnamed++] = (uint32_t)rank;
    }
    return r->envs && r->named ? RLK_OK : rlk_fail(detail, RLK_ENOMEM, "out of memory");
}

/* A file stays open for each environment; a thousand ranks are more than the usual soft limit allows. */
static void allow_files(size_t n)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max || limit.rlim_cur / 4 > n)
        return;
    rlim_t want = 4 * (rlim_t)n + 256; /* several recordings are open at a time */
    if (want <= limit.rlim_cur)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_envs(struct rlk_recording *r, struct rlk_detail *detail)
{
    size_t kept = 0;
    int rc = RLK_OK;
    allow_files(r->n);
    for (size_t i = 0; i < r->n && rc == RLK_OK; i++) {
        struct rlk_env *env = NULL;
        rc = rlk_env_open(&env, r->dirs[i], detail);
        if (rc == RLK_ENOENT) {
            free(r->unread);
            r->unread = r->dirs[i];
            r->dirs[i] = NULL;
            rc = RLK_OK;
            continue;
        }
        if (rc)
            break;
        char *dir = r->dirs[i];
        r->dirs[i] = NULL;
        r->dirs[kept] = dir;
        r->envs[kept++] = env;
    }
    if (rc == RLK_OK)
        r->n = kept;
    return rc;
}

int rlk_recording_open(struct rlk_recording **out, const char *dir, struct rlk_detail *detail)
{
    *out = NULL;
    struct rlk_recording *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(dir))) {
        free(r);
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    }
    int rc = read_manifest(&r->manifest, dir, detail);
    if (rc == RLK_OK)
        rc = list_envs(r, detail);
    if (rc == RLK_OK)
        rc = open_envs(r, detail);
    if (rc) {
        rlk_recording_close(r);
        return rc;
    }
    *out = r;
    return RLK_OK;
}

void rlk_recording_close(struct rlk_recording *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        if (r->envs)
            rlk_env_close(r->envs[i]);
        free(r->dirs[i]);
    }
    json_decref(r->manifest);
    free(r->envs);
    free(r->dirs);
    free(r->named);
    free(r->unread);
    free(r->path);
    free(r);
}

const char *rlk_recording_path(const struct rlk_recording *r)
{
    return r->path;
}

const json_t *rlk_recording_manifest(const struct rlk_recording *r)
{
    return r->manifest;
}

size_t rlk_recording_envs(const struct rlk_recording *r)
{
    return r->n;
}

struct rlk_env *rlk_recording_env(const struct rlk_recording *r, size_t i)
{
    return i < r->n ? r->envs[i] : NULL;
}

const char *rlk_recording_env_dir(const struct rlk_recording *r, size_t i)
{
    return i < r->n ? r->dirs[i] : NULL;
}

/* Has an environment with END events or a claim of this rank? */
static bool has_end(const struct rlk_recording *r, uint32_t rank)
{
    for (size_t i = 0; i < r->n; i++) {
        uint32_t n;
        const uint32_t *ranks = rlk_env_ranks(r->envs[i], &n);
        size_t low = 0, high = rlk_env_complete(r->envs[i]) ? n : 0;
        while (low < high) {
            size_t mid = (low + high) / 2;
            if (ranks[mid] == rank)
                return true;
            if (ranks[mid] < rank)
                low = mid + 1;
            else
                high = mid;
        }
    }
    return false;
}

static int ascending(const void *x, const void *y)
{
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

int rlk_recording_world(const struct rlk_recording *r, uint32_t *out, struct rlk_detail *detail)
{
    size_t n = r->nnamed, at = 0;
    uint32_t count;
    for (size_t i = 0; i < r->n; i++) {
        rlk_env_ranks(r->envs[i], &count);
        n += count;
        rlki_env_named(r->envs[i], &count);
        n += count;
    }
    uint32_t *all = calloc(n + 1, sizeof *all);
    if (!all)
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    for (; at < r->nnamed; at++)
        all[at] = r->named[at];
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < 2; k++) {
            const uint32_t *ranks = k ? rlki_env_named(r->envs[i], &count) : rlk_env_ranks(r->envs[i], &count);
            for (uint32_t j = 0; j < count; j++)
                all[at++] = ranks[j];
        }
    if (at)
        qsort(all, at, sizeof *all, ascending);
    *out = 0;
    for (size_t i = 0; i < at; i++)
        *out += !i || all[i] != all[i - 1];
    free(all);
    return RLK_OK;
}

bool rlk_recording_complete(const struct rlk_recording *r, struct rlk_detail *why)
{
    if (r->unread) {
        rlk_fail(why, 0, "%.400s: nothing was written", r->unread);
        return false;
    }
    if (r->n == 0) {
        rlk_fail(why, 0, "no process wrote an environment");
        return false;
    }
    for (size_t i = 0; i < r->n; i++)
        if (!rlk_env_complete(r->envs[i])) {
            rlk_fail(why, 0, "%s: no END: cut off", r->envs[i]->name);
            return false;
        }
    const json_t *ranks = json_object_get(r->manifest, "ranks");
    json_int_t expected = json_is_integer(ranks) ? json_integer_value(ranks) : 0;
    for (json_int_t rank = 0; rank < expected && rank <= UINT32_MAX; rank++)
        if (!has_end(r, (uint32_t)rank)) {
            rlk_fail(why, 0, "rank %lld of %lld is missing", (long long)rank, (long long)expected);
            return false;
        }
    for (size_t i = 0; i < r->n; i++) {
        uint32_t n;
        const uint32_t *named = rlki_env_named(r->envs[i], &n);
        for (uint32_t k = 0; k < n; k++)
            if (!has_end(r, named[k])) {
                rlk_fail(why, 0, "rank %u is missing: a process group of %s names it", named[k], r->envs[i]->name);
                return false;
            }
    }
    return true;
}

int rlk_recording_coverage(const struct rlk_recording *r, struct rlk_coverage *out, struct rlk_detail *detail)
{
    *out = (struct rlk_coverage){0};
    for (size_t i = 0; i < r->n; i++) {
        struct rlk_coverage one;
        int rc = rlk_env_coverage(r->envs[i], &one, detail);
        if (rc)
            return rc;
        out->events += one.events;
        out->launches_seen += one.launches_seen;
        out->launches_recorded += one.launches_recorded;
        out->tensors += one.tensors;
        out->by_reference += one.by_reference;
        out->local_placement += one.local_placement;
        out->dropped += one.dropped;
        out->stall_ns += one.stall_ns;
        out->planes |= one.planes;
        for (uint32_t k = 0; k < one.nreasons; k++)
            rlki_coverage_reason(out, one.not_digested[k].reason, one.not_digested[k].count);
    }
    return RLK_OK;
}
