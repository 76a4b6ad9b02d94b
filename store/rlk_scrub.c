#include "store/rlk_scrub_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned what;
} words[] = {{"names", RLK_SCRUB_NAMES},   {"ops", RLK_SCRUB_OPS},
             {"paths", RLK_SCRUB_PATHS},   {"environment", RLK_SCRUB_ENVIRONMENT},
             {"values", RLK_SCRUB_VALUES}, {"all", RLK_SCRUB_ALL}};

unsigned rlk_scrub_parse(const char *text)
{
    unsigned what = 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ","), i = 0;
        while (i < sizeof words / sizeof *words && (strlen(words[i].name) != n || memcmp(words[i].name, p, n) != 0))
            i++;
        if (i == sizeof words / sizeof *words)
            return 0;
        what |= words[i].what;
        p += n;
        if (!*p)
            return what;
    }
}

int rlk_scrub_new(struct rlk_scrub **out, unsigned what)
{
    *out = NULL;
    struct rlk_scrub *scrub = calloc(1, sizeof *scrub);
    if (!scrub)
        return RLK_ENOMEM;
    scrub->what = what;
    scrub->sha = rlki_sha_new();
    if (!scrub->sha || getrandom(scrub->key, sizeof scrub->key, 0) != (ssize_t)sizeof scrub->key) {
        int rc = scrub->sha ? RLK_EIO : RLK_ENOMEM;
        rlk_scrub_free(scrub);
        return rc;
    }
    *out = scrub;
    return RLK_OK;
}

void rlk_scrub_free(struct rlk_scrub *scrub)
{
    if (!scrub)
        return;
    if (scrub->sha)
        rlki_sha_free(scrub->sha);
    free(scrub);
}

/* Every text with a slash, at any depth. */
static int without_slashes(json_t *value)
{
    const char *key;
    json_t *one;
    size_t i;
    int rc = 0;
    if (json_is_string(value) && strpbrk(json_string_value(value), "/\\"))
        return json_string_set(value, RLKI_SCRUBBED);
    if (json_is_array(value))
        json_array_foreach(value, i, one) rc |= without_slashes(one);
    if (json_is_object(value)) {
        void *next;
        json_object_foreach_safe(value, next, key, one)
        {
            rc |= without_slashes(one);
            if (strpbrk(key, "/\\"))
                rc |= json_object_del(value, key);
        }
    }
    return rc;
}

/* Keeps the keys that say how it was recorded. */
static int without_environment(json_t *manifest)
{
    static const char *const kept[] = {
        "rlk_recording", "format",  "created", "tool",      "ranks",    "layout",    "level",  "inputs", "planes",
        "exit",          "steps",   "every",   "keep_last", "max_size", "libraries", "driver", "gpus",   "synthetic",
        "missing_ranks", "seconds", "payload", "faults",    "topology", "plan",      NULL};
    const char *key;
    json_t *value;
    void *next;
    size_t i;
    int rc = 0;
    json_object_foreach_safe(manifest, next, key, value)
    {
        size_t k = 0;
        while (kept[k] && strcmp(kept[k], key) != 0)
            k++;
        if (!kept[k])
            rc |= json_object_del(manifest, key);
    }
    json_array_foreach(json_object_get(manifest, "gpus"), i, value) if (json_object_get(value, "uuid")) rc |=
        json_object_del(value, "uuid");
    return rc;
}

static int without_names(json_t *manifest)
{
    json_t *fault;
    size_t i;
    int rc = 0;
    if (json_is_string(json_object_get(manifest, "payload")))
        rc |= json_object_set_new(manifest, "payload", json_string(RLKI_SCRUBBED));
    json_array_foreach(json_object_get(manifest, "faults"), i, fault) rc |=
        json_is_object(fault) ? json_object_set_new(fault, "text", json_string(RLKI_SCRUBBED)) : 0;
    return rc;
}

static int clean_manifest(json_t **out, const struct rlk_scrub *scrub, const json_t *manifest)
{
    static const struct {
        const char *name;
        unsigned what;
    } said[] = {{"names", RLK_SCRUB_NAMES},
                {"ops", RLK_SCRUB_OPS},
                {"paths", RLK_SCRUB_PATHS},
                {"environment", RLK_SCRUB_ENVIRONMENT},
                {"values", RLK_SCRUB_VALUES}};
    json_t *clean = json_deep_copy(manifest), *list = json_array();
    int rc = !clean || !list;
    if (!rc && scrub->what & RLK_SCRUB_ENVIRONMENT)
        rc |= without_environment(clean);
    if (!rc && scrub->what & RLK_SCRUB_NAMES)
        rc |= without_names(clean);
    if (!rc && scrub->what & RLK_SCRUB_PATHS)
        rc |= without_slashes(clean);
    for (size_t i = 0; i < sizeof said / sizeof *said && !rc; i++)
        if (scrub->what & said[i].what)
            rc |= json_array_append_new(list, json_string(said[i].name));
    if (!rc)
        rc |= json_object_set(clean, "redacted", list);
    if (!rc) /* the writer's own format, whatever the original was written in */
        rc |= json_object_set_new(clean, "format",
                                  json_pack("{s:i,s:i}", "major", RLK_FORMAT_MAJOR, "minor", RLK_FORMAT_MINOR));
    json_decref(list);
    if (rc)
        json_decref(clean);
    *out = rc ? NULL : clean;
    return rc ? RLK_ENOMEM : RLK_OK;
}

int rlk_scrub_recording(struct rlk_scrub *scrub, const char *from, const char *to, struct rlk_detail *detail)
{
    struct rlk_recording *recording = NULL;
    json_t *manifest = NULL;
    char path[PATH_MAX];
    int rc = rlk_recording_open(&recording, from, detail);
    if (rc)
        return rc;
    rc = clean_manifest(&manifest, scrub, rlk_recording_manifest(recording));
    rc = rc ? rlk_fail(detail, rc, "out of memory") : rlk_recording_create(to, manifest, detail);
    for (size_t i = 0; i < rlk_recording_envs(recording) && rc == RLK_OK; i++) {
        const char *dir = rlk_recording_env_dir(recording, i), *name = strrchr(dir, '/');
        if (snprintf(path, sizeof path, "%s/%s", to, name ? name + 1 : dir) >= (int)sizeof path)
            rc = rlk_fail(detail, RLK_EINVAL, "the path is too long");
        else
            rc = rlki_scrub_env(scrub, dir, path, detail);
    }
    snprintf(path, sizeof path, "%.4000s/%s", from, RLKI_SEAL_FILE);
    if (rc == RLK_OK && access(path, F_OK) == 0)
        rc = rlk_recording_seal(to, detail);
    json_decref(manifest);
    rlk_recording_close(recording);
    return rc;
}
