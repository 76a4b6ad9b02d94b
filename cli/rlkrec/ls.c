/* rlkrec ls: the recordings of a directory, newest first. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *json;
} opt;

static const struct rlki_option options[] = {
    {"json", 0, RLKI_STRING, &opt.json, "FILE|-", "the list as JSON"},
};

static const struct rlki_command command = {"rlkrec",
                                            "ls",
                                            "[DIR] [--json FILE|-]",
                                            "Lists the recordings in DIR (default rlk-recordings), newest first.",
                                            options,
                                            sizeof options / sizeof options[0],
                                            0,
                                            1,
                                            false,
                                            0,
                                            NULL};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* What one line shows, as JSON. A recording that cannot be read is listed with the reason. */
static json_t *describe(const char *path, const char *name)
{
    struct rlk_recording *recording = NULL;
    struct rlk_detail detail = {""}, why = {""};
    struct rlki_totals totals;
    char seal[PATH_MAX + 8];
    json_t *row = json_pack("{s:o, s:o}", "name", rlki_json_string(name), "path", rlki_json_string(path));
    int code = rlk_recording_open(&recording, path, &detail);

    if (!code)
        code = rlki_totals(recording, &totals, &detail);
    json_object_set_new(row, "bytes", json_integer((json_int_t)rlki_disk_bytes(path)));
    if (code) {
        json_object_set_new(row, "error", rlki_json_string(detail.text[0] ? detail.text : rlk_error_sentence(code)));
    } else {
        const json_t *m = rlk_recording_manifest(recording);
        bool complete = rlki_completeness(recording, &totals, &why) == 0;
        json_object_set_new(row, "created", rlki_json_string(text_of(m, "created")));
        json_object_set_new(row, "command", rlki_json_string(rlki_command_text(m, 200)));
        json_object_set_new(row, "level", rlki_json_string(text_of(m, "level")));
        json_object_set_new(row, "events", json_integer((json_int_t)totals.events));
        json_object_set_new(row, "steps", json_integer((json_int_t)totals.steps));
        json_object_set_new(row, "complete", json_boolean(complete));
        if (!complete)
            json_object_set_new(row, "why", rlki_json_string(why.text));
        json_object_set_new(row, "recording", json_boolean(rlki_still_recording(recording) != 0));
        snprintf(seal, sizeof seal, "%s/SEAL", path);
        json_object_set_new(row, "sealed", json_boolean(access(seal, F_OK) == 0));
    }
    rlk_recording_close(recording);
    return row;
}

static int print(FILE *to, const json_t *list)
{
    if (!json_array_size(list)) {
        fputs("no recordings\n", to);
        return 0;
    }
    fprintf(to, "%-4s %-40s %-20s %9s %12s %6s  %s\n", "", "NAME", "CREATED", "SIZE", "EVENTS", "STEPS", "STATE");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes"));
        char at[24];
        snprintf(at, sizeof at, "@%zu", i + 1);
        fprintf(to, "%-4s %-40s ", at, rlki_esc(text_of(row, "name")));
        if (json_object_get(row, "error")) {
            fprintf(to, "%-20s %9s %12s %6s  unreadable: %s\n", "-", rlki_bytes(bytes), "-", "-",
                    rlki_esc(text_of(row, "error")));
            continue;
        }
        const char *state = json_is_true(json_object_get(row, "recording"))   ? "recording"
                            : !json_is_true(json_object_get(row, "complete")) ? "incomplete"
                                                                              : "complete";
        fprintf(to, "%-20.19s %9s %12s %6s  %s%s\n", rlki_esc(text_of(row, "created")), rlki_bytes(bytes),
                rlki_count((uint64_t)json_integer_value(json_object_get(row, "events"))),
                rlki_count((uint64_t)json_integer_value(json_object_get(row, "steps"))), state,
                json_is_true(json_object_get(row, "sealed")) ? ", sealed" : "");
    }
    return 0;
}

struct entry {
    char name[256], created[40];
    struct timespec changed;
};

/* As rlk_recording_resolve() counts @1, @2. */
static int newest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(y->created, x->created);

    if (order)
        return order;
    if (x->changed.tv_sec != y->changed.tv_sec)
        return x->changed.tv_sec < y->changed.tv_sec ? 1 : -1;
    if (x->changed.tv_nsec != y->changed.tv_nsec)
        return x->changed.tv_nsec < y->changed.tv_nsec ? 1 : -1;
    return strcmp(y->name, x->name);
}

static void fill_entry(struct entry *e, const char *name, const char *manifest_path, const struct stat *st)
{
    json_t *manifest = json_load_file(manifest_path, 0, NULL);

    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(e->created, sizeof e->created, "%s", text_of(manifest, "created"));
    e->changed = st->st_mtim;
    json_decref(manifest);
}

/* The directories of dir that have a manifest, newest first. */
static int find(const char *dir, struct entry **out, size_t *n)
{
    struct entry *list = NULL;
    size_t room = 0;
    struct dirent *d;
    DIR *dp = opendir(dir);

    *out = NULL;
    *n = 0;
    if (!dp)
        return errno;
    while ((d = readdir(dp))) {
        char path[PATH_MAX];
        struct stat st;
        if (d->d_name[0] == '.' || (size_t)snprintf(path, sizeof path, "%s/%s", dir, d->d_name) >= sizeof path - 16 ||
            lstat(path, &st) || !S_ISDIR(st.st_mode))
            continue;
        strcat(path, "/manifest.json");
        if (lstat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        if (*n == room) {
            room = room ? room * 2 : 32;
            struct entry *grown = realloc(list, room * sizeof *list);
            if (!grown) {
                closedir(dp);
                free(list);
                return ENOMEM;
            }
            list = grown;
        }
        fill_entry(&list[(*n)++], d->d_name, path, &st);
    }
    closedir(dp);
    if (*n)
        qsort(list, *n, sizeof *list, newest_first);
    *out = list;
    return 0;
}

int rlki_cmd_ls(int argc, char **argv)
{
    char **args;
    struct entry *entries = NULL;
    size_t count = 0;
    json_t *list = NULL;
    struct rlki_progress progress;
    int n, error, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    const char *dir = n ? args[0] : "rlk-recordings";
    error = find(dir, &entries, &count);
    if (error && !(error == ENOENT && !n)) { /* nothing recorded yet is no error */
        rlki_say("%s: %s", dir, strerror(error));
        return RLKI_EXIT_FAULT;
    }
    list = json_array();
    rlki_progress_begin(&progress, "reading recordings");
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, entries[i].name);
        json_array_append_new(list, describe(path, entries[i].name));
        rlki_progress(&progress, i + 1, count);
    }
    rlki_progress_end(&progress);
    if (opt.json) {
        json_t *json = json_pack("{s:s, s:O}", "schema", "rlk.ls/1", "recordings", list);
        status = rlki_write_json(opt.json, json);
        json_decref(json);
    } else {
        status = rlki_finish(print(stdout, list));
    }
    json_decref(list);
    free(entries);
    return status;
}
