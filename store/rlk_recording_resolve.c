/* From what a user types to the directory of a recording. */
#include "store/rlk_recording.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOME "rlk-recordings"

static bool is_recording(const char *dir, struct stat *manifest)
{
    char path[PATH_MAX];
    struct stat st;
    return snprintf(path, sizeof path, "%s/manifest.json", dir) < (int)sizeof path && stat(dir, &st) == 0 &&
           S_ISDIR(st.st_mode) && stat(path, manifest) == 0 && S_ISREG(manifest->st_mode);
}

struct found {
    char *path;
    char created[40];
    struct timespec changed;
};

/* When it was made: the manifest says it; the file's own time where that is no text, or the same second. */
static void when(struct found *f, const struct stat *st)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/manifest.json", f->path);
    json_t *manifest = json_load_file(path, 0, NULL);
    const char *created = json_string_value(json_object_get(manifest, "created"));
    snprintf(f->created, sizeof f->created, "%s", created ? created : "");
    json_decref(manifest);
    f->changed = st->st_mtim;
}

static int newest_first(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = strcmp(y->created, x->created);
    if (order)
        return order;
    if (x->changed.tv_sec != y->changed.tv_sec)
        return x->changed.tv_sec < y->changed.tv_sec ? 1 : -1;
    if (x->changed.tv_nsec != y->changed.tv_nsec)
        return x->changed.tv_nsec < y->changed.tv_nsec ? 1 : -1;
    return strcmp(y->path, x->path);
}

static int nth_newest(char *out, size_t size, unsigned long nth, struct rlk_detail *detail)
{
    DIR *d = opendir(HOME);
    struct found *list = NULL;
    size_t n = 0, cap = 0;
    int rc = RLK_OK;
    for (struct dirent *e; d && rc == RLK_OK && (e = readdir(d));) {
        char path[PATH_MAX];
        struct stat st, link;
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, HOME "/%s", e->d_name) >= (int)sizeof path ||
            lstat(path, &link) || S_ISLNK(link.st_mode) || !is_recording(path, &st))
            continue;
        if (n == cap) {
            cap = cap ? cap * 2 : 32;
            struct found *more = realloc(list, cap * sizeof *list);
            if (!more) {
                rc = RLK_ENOMEM;
                break;
            }
            list = more;
        }
        list[n].path = strdup(path);
        if (!list[n].path) {
            rc = RLK_ENOMEM;
            break;
        }
        when(&list[n], &st);
        n++;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(list, n, sizeof *list, newest_first);
    if (rc)
        rlk_fail(detail, rc, "out of memory");
    else if (nth > n)
        rc = n == 0 ? rlk_fail(detail, RLK_ENOENT, "there is no recording in %s/", HOME)
                    : rlk_fail(detail, RLK_ENOENT, "@%lu: there are only %zu recordings in %s/", nth, n, HOME);
    else if ((size_t)snprintf(out, size, "%s", list[nth - 1].path) >= size)
        rc = rlk_fail(detail, RLK_EINVAL, "the path is too long");
    for (size_t i = 0; i < n; i++)
        free(list[i].path);
    free(list);
    return rc;
}

int rlk_recording_resolve(char *path, size_t size, const char *name, struct rlk_detail *detail)
{
    static const char *const before[] = {"", "", HOME "/", HOME "/"}, *const after[] = {"", ".rlk", "", ".rlk"};
    if (!name || !*name)
        return nth_newest(path, size, 1, detail);
    if (*name == '@') {
        char *end;
        errno = 0;
        unsigned long nth = strtoul(name + 1, &end, 10);
        if (name[1] < '0' || name[1] > '9' || *end || errno || nth == 0)
            return rlk_fail(detail, RLK_EINVAL, "%.400s: @1 is the newest recording, @2 the one before", name);
        return nth_newest(path, size, nth, detail);
    }
    bool there = false;
    for (size_t i = 0; i < 4; i++) {
        char candidate[PATH_MAX];
        struct stat st;
        if (i >= 2 && *name == '/')
            continue;
        int n = snprintf(candidate, sizeof candidate, "%s%s%s", before[i], name, after[i]);
        if (n < 0 || n >= (int)sizeof candidate)
            continue;
        there |= stat(candidate, &st) == 0;
        if (is_recording(candidate, &st)) {
            if ((size_t)snprintf(path, size, "%s", candidate) >= size)
                return rlk_fail(detail, RLK_EINVAL, "%.400s: the path is too long", name);
            return RLK_OK;
        }
    }
    return rlk_fail(detail, RLK_ENOENT, "%.400s: %s", name,
                    there ? "not a recording: it has no manifest.json" : "there is no such recording");
}
