#include "cli/rlkrec/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_environment_name(const char *name)
{
    unsigned rank;
    long long pid;
    int end = 0;

    return sscanf(name, "rank-%u.pid-%lld%n", &rank, &pid, &end) == 2 && end > 0 && !name[end];
}

static bool is_file_of_recording(const char *name)
{
    return strcmp(name, "SEAL") == 0 || strncmp(name, "manifest.json", 13) == 0 || strncmp(name, "SEAL.", 5) == 0;
}

static bool is_file_of_environment(const char *name)
{
    return strcmp(name, "data.mdb") == 0 || strcmp(name, "lock.mdb") == 0;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Visits the entries of dir: all known, files regular, directories environments. `remove` takes them away. */
static int walk(const char *dir, bool inside, bool remove, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    int code = RLK_OK;
    struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d)
        return rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", dir, strerror(errno));
    while (!code && (errno = 0, entry = readdir(d))) {
        struct stat st;
        bool known;
        if (is_dot(entry->d_name))
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= sizeof path || lstat(path, &st)) {
            code = rlk_fail(detail, RLK_EIO, "%s/%s: %s", dir, entry->d_name, strerror(errno));
            break;
        }
        known = S_ISDIR(st.st_mode)   ? !inside && is_environment_name(entry->d_name)
                : S_ISREG(st.st_mode) ? (inside ? is_file_of_environment : is_file_of_recording)(entry->d_name)
                                      : false;
        if (!known)
            code = rlk_fail(detail, RLK_EINVAL, "%s is not part of a recording", path);
        else if (S_ISDIR(st.st_mode))
            code = walk(path, true, remove, detail);
        else if (remove && strcmp(entry->d_name, "manifest.json") != 0 && unlink(path))
            code = rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", path, strerror(errno));
    }
    closedir(d);
    if (!code && remove && inside && rmdir(dir))
        code = rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", dir, strerror(errno));
    return code;
}

int rlki_remove_check(const char *dir, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    json_t *manifest;
    struct stat st;
    int code = RLK_OK;

    if (lstat(dir, &st))
        return rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return rlk_fail(detail, RLK_EINVAL, "%s is not a directory", dir);
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        return rlk_fail(detail, RLK_ELIMIT, "%.100s...: the path is too long", dir);
    manifest = json_load_file(path, 0, NULL);
    if (!json_object_get(manifest, "rlk_recording"))
        code = rlk_fail(detail, RLK_EINVAL, "%s is not a recording (no manifest.json of one)", dir);
    json_decref(manifest);
    return code ? code : walk(dir, false, false, detail);
}

int rlki_remove_tree(const char *dir, struct rlk_detail *detail)
{
    char path[PATH_MAX];
    int code = walk(dir, false, true, detail);

    snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (!code && ((unlink(path) && errno != ENOENT) || rmdir(dir)))
        code = rlk_fail(detail, rlk_error_from_errno(errno), "%s: %s", dir, strerror(errno));
    return code;
}

void rlki_remove_stale_latest(const char *dir)
{
    char parent[PATH_MAX], link[PATH_MAX + 16], newest[PATH_MAX];
    struct stat st;
    char *slash;

    snprintf(parent, sizeof parent, "%s", dir);
    slash = strrchr(parent, '/');
    if (slash)
        *slash = 0;
    snprintf(link, sizeof link, "%s/latest", slash ? parent : ".");
    if (lstat(link, &st) || !S_ISLNK(st.st_mode) || stat(link, &st) == 0)
        return;
    unlink(link);
    if (rlk_recording_resolve(newest, sizeof newest, "@1", NULL) == RLK_OK)
        rlk_recording_set_latest(newest, NULL);
}
