/* rlkrec pack, unpack: one file from recordings, and back. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"
#include "cli/rlkrec/remove.h"
#include "store/rlk_pack.h"
#include "store/rlk_scrub.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PACKED 64u

struct packing {
    size_t n;
    char paths[MAX_PACKED][PATH_MAX]; /* the recordings */
    char clean[MAX_PACKED][PATH_MAX]; /* their cleaned copies */
    char names[MAX_PACKED][NAME_MAX + 1];
    struct rlk_pack_item items[MAX_PACKED];
    char scratch[PATH_MAX]; /* directory of the copies, beside the pack; "" = none */
};

static int find(struct packing *p, int n, char **args)
{
    struct rlk_detail detail = {""};
    p->n = n ? (size_t)n : 1;
    for (size_t i = 0; i < p->n; i++) {
        const char *name = n ? args[i] : NULL;
        int rc = rlk_recording_resolve(p->paths[i], PATH_MAX, name, &detail);
        if (rc)
            return rlki_fail(name ? name : "the newest recording", rc, &detail);
        int64_t pid = rlki_still_recording_at(p->paths[i]);
        if (pid) {
            rlki_say("%s: process %lld still records into it", p->paths[i], (long long)pid);
            return RLKI_EXIT_FAULT;
        }
    }
    return RLKI_EXIT_OK;
}

/* A pack of a recording that changed since it was made would pass its damage on as what was recorded. */
static int intact(const struct packing *p)
{
    struct rlk_detail detail = {""};
    enum rlk_intact how;
    int rc = RLK_OK;
    for (size_t i = 0; i < p->n && rc == RLK_OK; i++) {
        struct rlk_recording *recording = NULL;
        rc = rlk_recording_open(&recording, p->paths[i], &detail);
        if (rc == RLK_OK)
            rc = rlk_recording_intact(recording, UINT64_MAX, &how, &detail);
        rlk_recording_close(recording);
    }
    return rc ? rlki_fail("pack", rc, &detail) : RLKI_EXIT_OK;
}

/* What a recording is called inside. A name that was made from the command says what the command was. */
static int name(struct packing *p, unsigned what)
{
    for (size_t i = 0; i < p->n; i++) {
        char real[PATH_MAX];
        const char *base = realpath(p->paths[i], real) ? strrchr(real, '/') : NULL;
        size_t n = base ? strlen(base + 1) : 0;
        if (what & (RLK_SCRUB_NAMES | RLK_SCRUB_PATHS | RLK_SCRUB_ENVIRONMENT) || !base)
            snprintf(p->names[i], sizeof p->names[i], "recording-%zu.rlk", i + 1);
        else
            snprintf(p->names[i], sizeof p->names[i], "%.200s%s", base + 1,
                     n > 4 && strcmp(base + 1 + n - 4, ".rlk") == 0 ? "" : ".rlk");
        p->items[i] = (struct rlk_pack_item){p->clean[i][0] ? p->clean[i] : p->paths[i], p->names[i]};
    }
    return RLKI_EXIT_OK;
}

/* Cleaned copies of all, under one key, so that they compare with each other. */
static int clean(struct packing *p, unsigned what, const char *output)
{
    struct rlk_scrub *scrub = NULL;
    struct rlk_detail detail = {""};
    if (snprintf(p->scratch, sizeof p->scratch, "%s.XXXXXX", output) >= (int)sizeof p->scratch) {
        p->scratch[0] = 0;
        rlki_say("%s: the path is too long", output);
        return RLKI_EXIT_FAULT;
    }
    if (!mkdtemp(p->scratch)) {
        rlki_say("%s: %s", output, strerror(errno));
        p->scratch[0] = 0;
        return RLKI_EXIT_FAULT;
    }
    int rc = rlk_scrub_new(&scrub, what);
    for (size_t i = 0; i < p->n && rc == RLK_OK; i++) {
        snprintf(p->clean[i], PATH_MAX, "%.4000s/%zu.rlk", p->scratch, i);
        rc = rlk_scrub_recording(scrub, p->paths[i], p->clean[i], &detail);
    }
    rlk_scrub_free(scrub);
    return rc ? rlki_fail("cleaning", rc, &detail) : RLKI_EXIT_OK;
}

/* A copy that failed half-way may have no manifest yet: it is ours, made by us, and goes all the same. */
static void drop(struct packing *p)
{
    for (size_t i = 0; i < p->n && p->scratch[0]; i++) {
        struct rlk_detail ignored;
        if (p->clean[i][0] && access(p->clean[i], F_OK) == 0)
            rlki_remove_tree(p->clean[i], &ignored);
    }
    if (p->scratch[0])
        rmdir(p->scratch);
}

int rlki_cmd_pack(int argc, char **argv)
{
    const char *output = NULL, *redact = NULL;
    const struct rlki_option table[] = {
        {"output", 'o', RLKI_STRING, &output, "FILE", "the pack; one that is there is replaced"},
        {"redact", 0, RLKI_STRING, &redact, "WHAT", "leave out: names,ops,paths,environment,values, or all"},
    };
    const struct rlki_command command = {
        .program = "rlkrec",
        .name = "pack",
        .synopsis = "[options] [REC]... -o FILE",
        .summary = "Packs recordings into one file (tar in zstd), whole or cleaned, to hand on.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .max_args = MAX_PACKED,
        .more = "Recordings packed together with --redact still compare with each other: docs/pack.md.\n",
    };
    static struct packing p;
    struct rlk_detail detail = {""};
    struct stat st;
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    unsigned what = redact ? rlk_scrub_parse(redact) : 0;
    if (!output)
        return rlki_usage(&command, "--output is needed: where the pack goes");
    if (redact && !what)
        return rlki_usage(&command, "--redact takes names, ops, paths, environment, values, joined by commas, or all");
    status = find(&p, nargs, args);
    if (status == RLKI_EXIT_OK)
        status = intact(&p);
    const bool replaced = status == RLKI_EXIT_OK && access(output, F_OK) == 0;
    if (status == RLKI_EXIT_OK && what)
        status = clean(&p, what, output);
    if (status == RLKI_EXIT_OK)
        status = name(&p, what);
    if (status == RLKI_EXIT_OK) {
        int rc = rlk_pack_write(output, p.items, p.n, &detail);
        status = rc ? rlki_fail(output, rc, &detail) : RLKI_EXIT_OK;
    }
    drop(&p);
    if (status == RLKI_EXIT_OK)
        printf("%s: %zu recording%s, %s%s\n", rlki_esc(output), p.n, p.n == 1 ? "" : "s",
               rlki_bytes(stat(output, &st) == 0 ? (uint64_t)st.st_size : 0), replaced ? "; replaced" : "");
    return rlki_finish(status);
}

/* Says where a recording went; one that changed before it was packed stays, and is no success. */
static int show(void *context, const char *path)
{
    int *status = context;
    struct rlk_recording *recording = NULL;
    struct rlk_detail detail = {""};
    enum rlk_intact how;
    int rc = rlk_recording_open(&recording, path, &detail);
    if (rc == RLK_OK)
        rc = rlk_recording_intact(recording, UINT64_MAX, &how, &detail);
    rlk_recording_close(recording);
    printf("%s\n", rlki_esc(path));
    if (rc)
        *status = rlki_fail(path, rc, &detail);
    return 0;
}

int rlki_cmd_unpack(int argc, char **argv)
{
    const char *dir = ".";
    uint64_t most = 0;
    const struct rlki_option table[] = {
        {"output", 'o', RLKI_STRING, &dir, "DIR", "where the recordings go; the current directory when not given"},
        {"max-size", 0, RLKI_SIZE, &most, "SIZE", "largest size unpacked; 256 times the pack's when not given"},
    };
    const struct rlki_command command = {
        .program = "rlkrec",
        .name = "unpack",
        .synopsis = "FILE [options]",
        .summary = "Makes the recordings of a pack again. Nothing that exists is touched.",
        .options = table,
        .noptions = sizeof table / sizeof *table,
        .min_args = 1,
        .max_args = 1,
    };
    struct rlk_detail detail = {""};
    int nargs;
    char **args;
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    status = RLKI_EXIT_OK;
    int rc = rlk_pack_read(args[0], dir, most, show, &status, &detail);
    if (rc == RLK_EEXIST) { /* not the pack's fault */
        rlki_say("unpack: %s: it exists already: unpack into another directory (-o DIR)", detail.text);
        return RLKI_EXIT_FAULT;
    }
    return rlki_finish(rc ? rlki_fail(rc == RLK_EPARSE || rc == RLK_ELIMIT ? args[0] : "unpack", rc, &detail) : status);
}
