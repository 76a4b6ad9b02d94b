#include "cli/rlkrec/closing.h"

#include "cli/common/rlk_output.h"
#include "cli/rlkrec/manifest.h"
#include "cli/rlkrec/measure.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the program as the shell does; "" if it cannot. */
static void program_path(char out[PATH_MAX], const char *name)
{
    const char *path = getenv("PATH");

    out[0] = 0;
    if (strchr(name, '/')) {
        snprintf(out, PATH_MAX, "%s", name);
        return;
    }
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if ((size_t)snprintf(out, PATH_MAX, "%.*s/%s", (int)n, n ? path : ".", name) < PATH_MAX &&
            access(out, X_OK) == 0)
            return;
        path += n + (path[n] == ':');
        out[0] = 0;
    }
}

/* An ELF file without an interpreter cannot load the recorder. */
static bool is_static(const char *path)
{
    unsigned char bytes[4096] = {0};
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    bool dynamic = false, elf;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, bytes, sizeof bytes, 0) : 0;

    if (fd >= 0)
        close(fd);
    elf = n > (ssize_t)sizeof header && memcmp(bytes, ELFMAG, SELFMAG) == 0 && bytes[EI_CLASS] == ELFCLASS64;
    if (!elf)
        return false;
    memcpy(&header, bytes, sizeof header);
    for (size_t i = 0; i < header.e_phnum; i++) {
        size_t at = header.e_phoff + i * sizeof segment;
        if (at + sizeof segment > (size_t)n || at < header.e_phoff)
            return false;
        memcpy(&segment, bytes + at, sizeof segment);
        dynamic |= segment.p_type == PT_INTERP || segment.p_type == PT_DYNAMIC;
    }
    return !dynamic;
}

/* "-S", "-I", "-E" of an interpreter called python*, alone or among others ("-BS"); 0 if none. */
static char python_switch(char *const *argv)
{
    const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

    if (strncmp(program, "python", 6) != 0)
        return 0;
    for (size_t i = 1; argv[i] && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-'; i++) {
        const char *p = argv[i] + 1;
        for (; *p && !strchr("cmWX", *p); p++)
            if (strchr("SIE", *p))
                return *p;
        if (*p == 'c' || *p == 'm')
            break;
        if (*p && !p[1]) /* -W and -X take the next word */
            i += argv[i + 1] != NULL;
    }
    return 0;
}

static void why_nothing(char *const *argv, size_t envs, const json_t *manifest)
{
    char path[PATH_MAX], flag = python_switch(argv);
    const char *steps = json_string_value(json_object_get(manifest, "steps"));

    bool choosy = steps || json_is_integer(json_object_get(manifest, "every"));

    program_path(path, argv[0]);
    if (envs)
        rlki_warn("no events: the recorder was loaded, but %s",
                  choosy ? "no step was inside --steps or --every" : "no operator ran at this level");
    else if (flag)
        rlki_warn("no events: python -%c skips the start-up hook that loads the recorder; run it without -%c", flag,
                  flag);
    else if (path[0] && is_static(path))
        rlki_warn("no events: %s is statically linked and cannot load the recorder", argv[0]);
    else
        rlki_warn("no events: %sno process of the command imported torch or called the tap (docs/cli.md, \"Nothing was "
                  "recorded\")",
                  choosy ? "no step was inside --steps or --every, or " : "");
}

/* Is there an earlier recording beside this one? */
static bool has_neighbour(const struct rlki_target *target)
{
    char dir[PATH_MAX];
    char *slash;
    struct stat st;

    snprintf(dir, sizeof dir, "%s", target->path);
    slash = strrchr(dir, '/');
    if (!slash)
        return false;
    *slash = 0;
    slash = strrchr(dir, '/');
    return slash && strcmp(slash + 1, "rlk-recordings") == 0 && stat(dir, &st) == 0 && st.st_nlink > 3;
}

static bool is_default_place(const struct rlki_target *target)
{
    return strncmp(target->shown, "rlk-recordings/", 15) == 0;
}

static void tell(const struct rlki_target *target, const struct rlk_recording *recording, char *const *argv,
                 const struct rlki_totals *totals, double seconds, const char *sealed, bool quiet)
{
    const struct rlk_coverage *c = &totals->coverage;
    struct rlk_detail why;
    bool incomplete = rlki_completeness(recording, totals, &why) != 0;

    if (quiet && !incomplete)
        return;
    rlki_say("%s: %s, %zu process%s, %s%s%s%s", target->shown, rlki_bytes(rlki_disk_bytes(target->path)), totals->envs,
             totals->envs == 1 ? "" : "es", incomplete ? "INCOMPLETE: " : "complete", incomplete ? why.text : "", ", ",
             sealed);
    if (!totals->events) {
        why_nothing(argv, totals->envs, rlk_recording_manifest(recording));
        return;
    }
    bool trimmed = json_is_integer(json_object_get(rlk_recording_manifest(recording), "keep_last"));
    rlki_say("%s events, %s tensors (%s by reference) %s %s step%s%s; %s, recorder waited %s, %s dropped",
             rlki_count(totals->events), rlki_count(c->tensors), rlki_count(c->by_reference),
             trimmed ? "seen, those of" : "in", rlki_count(totals->steps), totals->steps == 1 ? "" : "s",
             trimmed ? " kept" : "", rlki_seconds(seconds), rlki_seconds((double)c->stall_ns * 1e-9),
             rlki_count(c->dropped));
    if (!totals->tensors)
        rlki_warn("no tensor events: first-diff will have nothing to compare");
    else if (is_default_place(target) && has_neighbour(target))
        rlki_say("next: rlkaudit first-diff @2 @1");
    else
        rlki_say("next: record it again, then: rlkaudit first-diff %s OTHER", target->shown);
}

void rlki_closing(const struct rlki_target *target, json_t *manifest, const struct rlki_child *child, char *const *argv,
                  bool loaded, bool quiet)
{
    struct rlk_recording *recording = NULL;
    struct rlki_totals totals;
    struct rlk_detail detail = {""};
    const char *sealed = "not sealed";
    char reason[160];
    int64_t live = 0;
    int code = rlki_manifest_end(manifest, child);

    if (!code)
        code = rlk_recording_open(&recording, target->path, &detail);
    if (!code)
        code = rlki_manifest_gather(manifest, recording);
    if (!code)
        code = rlk_recording_write_manifest(target->path, manifest, &detail);
    rlk_recording_close(recording);
    recording = NULL;
    /* Opened again: what is told is what the disk now holds. */
    if (!code)
        code = rlk_recording_open(&recording, target->path, &detail);
    if (!code)
        code = rlki_totals(recording, &totals, &detail);
    if (code) {
        rlki_warn("%s: the recording could not be completed: %s%s%s", target->shown, detail.text,
                  detail.text[0] ? ": " : "", rlk_error_sentence(code));
        goto out;
    }
    live = rlki_still_recording(recording);
    if (target->by_job || live) {
        if (live)
            snprintf(reason, sizeof reason, "not sealed (process %lld still records): rlkrec seal when it has ended",
                     (long long)live);
        else
            snprintf(reason, sizeof reason, "not sealed (other ranks write to it): rlkrec seal when all have ended");
        sealed = reason;
    } else if (rlk_recording_seal(target->path, &detail) == RLK_OK) {
        sealed = "sealed";
    } else {
        rlki_warn("%s: sealing failed: %s", target->shown, detail.text);
    }
    if (loaded)
        tell(target, recording, argv, &totals, child->seconds, sealed, quiet);
    else
        rlki_say("%s: nothing was recorded", target->shown);
out:
    rlk_recording_close(recording);
}
