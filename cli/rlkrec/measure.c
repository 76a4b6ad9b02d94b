#include "cli/rlkrec/measure.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t bytes_below(const char *dir, int depth)
{
    char path[4352];
    uint64_t sum = 0;
    struct dirent *entry;
    struct stat st;
    DIR *d = depth < 4 ? opendir(dir) : NULL;

    while (d && (entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (size_t)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= sizeof path || lstat(path, &st))
            continue;
        sum += (uint64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode))
            sum += bytes_below(path, depth + 1);
    }
    if (d)
        closedir(d);
    return sum;
}

uint64_t rlki_disk_bytes(const char *dir)
{
    return bytes_below(dir, 0);
}

/* Is process `pid`, which made `dir`, alive? One that began after dir was made only wears its number. */
static bool lives(int64_t pid, const char *dir)
{
    char proc[64];
    struct stat process, made;

    if (pid <= 0 || pid > INT32_MAX || (kill((pid_t)pid, 0) && errno != EPERM))
        return false;
    snprintf(proc, sizeof proc, "/proc/%lld", (long long)pid);
    return stat(proc, &process) || stat(dir, &made) || process.st_ctim.tv_sec <= made.st_mtim.tv_sec + 1;
}

static bool made_here(const json_t *manifest)
{
    const json_t *hosts = json_object_get(manifest, "hosts");
    char name[256] = "";

    if (json_is_true(json_object_get(manifest, "synthetic")) || gethostname(name, sizeof name - 1))
        return false;
    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *host = json_string_value(json_object_get(json_array_get(hosts, i), "name"));
        if (host && strcmp(host, name) == 0)
            return true;
    }
    return false;
}

/* The process that writes the environment `dir`, .../rank-R.pid-P, if it is alive. */
static int64_t living_writer(const char *dir)
{
    const char *base = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir, *pid = strstr(base, ".pid-");
    int64_t p = pid ? strtoll(pid + 5, NULL, 10) : 0;

    return lives(p, dir) ? p : 0;
}

/* The `rlkrec run` that made the recording, while its command runs. */
static int64_t living_maker(const json_t *manifest, const char *dir)
{
    int64_t p = json_integer_value(json_object_get(manifest, "pid"));

    return !json_object_get(manifest, "exit") && lives(p, dir) ? p : 0;
}

int64_t rlki_still_recording(const struct rlk_recording *recording)
{
    const json_t *manifest = rlk_recording_manifest(recording);
    int64_t p = 0;

    if (!made_here(manifest))
        return 0;
    for (size_t i = 0; i < rlk_recording_envs(recording) && !p; i++)
        if (!rlk_env_complete(rlk_recording_env(recording, i)))
            p = living_writer(rlk_recording_env_dir(recording, i));
    return p ? p : living_maker(manifest, rlk_recording_path(recording));
}

int64_t rlki_still_recording_at(const char *dir)
{
    struct rlk_recording *recording = NULL;
    char path[PATH_MAX];
    struct dirent *entry;
    json_t *manifest;
    int64_t p = 0;
    DIR *d;

    if (rlk_recording_open(&recording, dir, NULL) == RLK_OK) {
        p = rlki_still_recording(recording);
        rlk_recording_close(recording);
        return p;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        return 0;
    manifest = json_load_file(path, 0, NULL);
    d = made_here(manifest) ? opendir(dir) : NULL;
    while (d && !p && (entry = readdir(d)))
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < sizeof path)
            p = living_writer(path);
    if (d) {
        closedir(d);
        p = p ? p : living_maker(manifest, dir);
    }
    json_decref(manifest);
    return p;
}

struct step_set {
    int64_t *steps;
    size_t n, room;
};

static int add_step(void *context, const struct rlk_roll *roll)
{
    struct step_set *set = context;

    if (set->n && set->steps[set->n - 1] == roll->step) /* ascending within an environment: ranks follow each other */
        return 0;
    if (set->n == set->room) {
        size_t room = set->room ? set->room * 2 : 64;
        int64_t *grown = realloc(set->steps, room * sizeof *grown);
        if (!grown)
            return RLK_ENOMEM;
        set->steps = grown;
        set->room = room;
    }
    set->steps[set->n++] = roll->step;
    return 0;
}

static int other_phase(void *context, const struct rlk_roll *roll)
{
    bool *other = context;
    *other = *other || strcmp(roll->phase, "update_weights") != 0;
    return 0;
}

/* Weights are handed over for the step that comes next, also after the last one: that is no step that ran. */
static bool only_weights(const struct rlk_recording *recording, int64_t step)
{
    bool other = false, any = false;
    for (size_t i = 0; i < rlk_recording_envs(recording); i++) {
        struct rlk_env *env = rlk_recording_env(recording, i);
        uint32_t n = 0;
        const uint32_t *rank = rlk_env_ranks(env, &n);
        for (uint32_t k = 0; !other && k < n; k++, any = true)
            if (rlk_env_modules(env, step, rank[k], other_phase, &other, NULL))
                return false;
    }
    return any && !other;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int rlki_totals(const struct rlk_recording *recording, struct rlki_totals *out, struct rlk_detail *detail)
{
    struct step_set set = {NULL, 0, 0};
    int code = RLK_OK;

    memset(out, 0, sizeof *out);
    out->envs = rlk_recording_envs(recording);
    for (size_t i = 0; i < out->envs && !code; i++) {
        struct rlk_env *env = rlk_recording_env(recording, i);
        out->events += rlk_env_count(env);
        out->complete_envs += rlk_env_complete(env);
        code = rlk_env_steps(env, add_step, &set, detail);
    }
    if (!code)
        code = rlk_recording_coverage(recording, &out->coverage, detail);
    out->tensors = out->coverage.tensors;
    if (set.n)
        qsort(set.steps, set.n, sizeof *set.steps, ascending);
    for (size_t i = 0; i < set.n; i++)
        out->steps += i == 0 || set.steps[i] != set.steps[i - 1];
    if (out->steps > 1 && only_weights(recording, set.steps[set.n - 1]))
        out->steps--;
    free(set.steps);
    return code;
}

int rlki_completeness(const struct rlk_recording *recording, const struct rlki_totals *totals, struct rlk_detail *why)
{
    const struct rlk_coverage *c = &totals->coverage;
    const json_t *faults = json_object_get(rlk_recording_manifest(recording), "faults");

    why->text[0] = 0;
    if (!rlk_recording_complete(recording, why)) {
        if (!why->text[0])
            snprintf(why->text, sizeof why->text, "a rank or an END record is missing");
    } else if (!totals->events) {
        snprintf(why->text, sizeof why->text, "no events");
    } else if (!totals->tensors) {
        snprintf(why->text, sizeof why->text, "no tensor events");
    } else if (c->dropped) {
        snprintf(why->text, sizeof why->text, "%s events dropped", rlki_count(c->dropped));
    } else if (json_array_size(faults)) {
        const char *text = json_string_value(json_object_get(json_array_get(faults, 0), "text"));
        snprintf(why->text, sizeof why->text, "%s", text ? text : "the recorder met a fault");
    }
    for (uint32_t i = 0; i < c->nreasons && !why->text[0]; i++)
        if (strcmp(c->not_digested[i].reason, "ring-full") == 0)
            snprintf(why->text, sizeof why->text, "%s digests left out: ring full",
                     rlki_count(c->not_digested[i].count));
    return why->text[0] ? RLKI_EXIT_INCOMPLETE : RLKI_EXIT_OK;
}

const char *rlki_command_text(const json_t *manifest, size_t width)
{
    const json_t *argv = json_object_get(manifest, "argv");
    char text[512];
    size_t n = 0;

    width = width < sizeof text ? width : sizeof text - 1;
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(argv) && n < width; i++) {
        const char *word = json_string_value(json_array_get(argv, i));
        const char *slash = i == 0 && word ? strrchr(word, '/') : NULL;
        int more = snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", slash ? slash + 1 : word ? word : "?");
        n = more > 0 && n + (size_t)more < sizeof text ? n + (size_t)more : sizeof text - 1;
    }
    if (n > width && width > 3) {
        n = width - 3;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80) /* not inside a character */
            n--;
        memcpy(text + n, "...", 4);
    }
    return rlki_esc(text);
}

json_t *rlki_coverage_json(const struct rlk_coverage *c)
{
    static const char *const planes[] = {"launch", "tensor", "buffer"};
    json_t *out = json_object(), *reasons = json_object(), *list = json_array();

    json_object_set_new(out, "events", json_integer((json_int_t)c->events));
    json_object_set_new(out, "launches_seen", json_integer((json_int_t)c->launches_seen));
    json_object_set_new(out, "launches_recorded", json_integer((json_int_t)c->launches_recorded));
    json_object_set_new(out, "tensors", json_integer((json_int_t)c->tensors));
    json_object_set_new(out, "by_reference", json_integer((json_int_t)c->by_reference));
    for (uint32_t i = 0; i < c->nreasons && i < RLK_MAX_REASONS; i++)
        json_object_set_new(reasons, c->not_digested[i].reason, json_integer((json_int_t)c->not_digested[i].count));
    json_object_set_new(out, "not_digested", reasons);
    json_object_set_new(out, "local_placement", json_integer((json_int_t)c->local_placement));
    json_object_set_new(out, "dropped", json_integer((json_int_t)c->dropped));
    json_object_set_new(out, "stall_ns", json_integer((json_int_t)c->stall_ns));
    for (size_t i = 0; i < 3; i++)
        if (c->planes & (1u << i))
            json_array_append_new(list, json_string(planes[i]));
    json_object_set_new(out, "planes", list);
    return out;
}
