#include "cli/rlkrec/target.h"

#include "recorder/rlk_env.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_DIR "rlk-recordings"
#define JOIN_WAIT_MS 20000

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

static uint32_t number(const char *name)
{
    const char *value = variable(name);
    unsigned long v = value ? strtoul(value, NULL, 10) : 0;

    return v <= UINT32_MAX ? (uint32_t)v : 0;
}

/* The launcher's job, if this process is one of the ranks that it started. */
static void find_job(struct rlki_target *t)
{
    const char *slurm = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID");
    const char *elastic = variable("TORCHELASTIC_RUN_ID");
    const char *pmix = variable("PMIX_NAMESPACE"), *mpi = variable("OMPI_MCA_ess_base_jobid");
    int n = 0;

    if (elastic && variable("RANK")) {
        t->ranks = number("WORLD_SIZE");
        /* torchrun without --rdzv-id calls every run "none": the rendezvous tells them apart. */
        if (strcmp(elastic, "none") == 0)
            n = snprintf(t->job, sizeof t->job, "torchelastic-%s-%s",
                         getenv("MASTER_ADDR") ? getenv("MASTER_ADDR") : "",
                         getenv("MASTER_PORT") ? getenv("MASTER_PORT") : "");
        else
            n = snprintf(t->job, sizeof t->job, "torchelastic-%s", elastic);
    } else if (slurm && step && variable("SLURM_PROCID")) {
        t->ranks = number("SLURM_STEP_NUM_TASKS") ? number("SLURM_STEP_NUM_TASKS") : number("SLURM_NTASKS");
        n = snprintf(t->job, sizeof t->job, "slurm-%s.%s", slurm, step);
    } else if (variable("OMPI_COMM_WORLD_RANK") && (pmix || mpi)) {
        t->ranks = number("OMPI_COMM_WORLD_SIZE");
        n = snprintf(t->job, sizeof t->job, "mpi-%s", pmix ? pmix : mpi);
    }
    if (n < 0 || (size_t)n >= sizeof t->job || t->ranks == 1)
        t->job[0] = 0;
    for (char *p = t->job; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            *p = '_';
}

/* What the command is called: the script of an interpreter, else the program. */
static const char *called(char *const *argv)
{
    const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    bool interpreter = strncmp(program, "python", 6) == 0 || strcmp(program, "torchrun") == 0 ||
                       strcmp(program, "bash") == 0 || strcmp(program, "sh") == 0;

    for (size_t i = 1; interpreter && argv[i]; i++) {
        const char *slash = strrchr(argv[i], '/'), *name = slash ? slash + 1 : argv[i];
        const char *dot = strrchr(name, '.');
        if (argv[i][0] != '-' && dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".sh") == 0))
            return name;
        if (strcmp(argv[i], "-c") == 0)
            break;
    }
    return program;
}

static void plain_name(char out[41], const char *name)
{
    size_t n = 0;

    for (; *name && n < 40; name++)
        out[n++] = isalnum((unsigned char)*name) || strchr("._-", *name) ? *name : '_';
    while (n > 3 && (strncmp(out + n - 3, ".py", 3) == 0 || strncmp(out + n - 3, ".sh", 3) == 0))
        n -= 3;
    out[n] = 0;
    if (!n || out[0] == '.' || out[0] == '-')
        out[0] = '_';
}

static int keep(struct rlki_target *t, const char *path, struct rlk_detail *detail)
{
    char cwd[PATH_MAX] = "";

    if ((size_t)snprintf(t->shown, sizeof t->shown, "%s", path) >= sizeof t->shown)
        return rlk_fail(detail, RLK_ELIMIT, "%.100s...: the path is too long", path);
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return rlk_fail(detail, rlk_error_from_errno(errno), "the current directory: %s", strerror(errno));
    if ((size_t)snprintf(t->path, sizeof t->path, "%s%s%s", cwd, cwd[0] ? "/" : "", path) >= sizeof t->path)
        return rlk_fail(detail, RLK_ELIMIT, "%.100s...: the path is too long", path);
    return RLK_OK;
}

int rlki_target_choose(struct rlki_target *t, const char *out, char *const *argv, struct rlk_detail *detail)
{
    const char *named = variable(RLK_ENV_RECORDING);
    char path[PATH_MAX + 64], name[41], stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    size_t n;

    memset(t, 0, sizeof *t);
    if (named) {
        t->joined = true;
        return keep(t, named, detail);
    }
    find_job(t);
    t->by_job = t->job[0] != 0;
    if (out) {
        n = strlen(out);
        if (n >= PATH_MAX)
            return rlk_fail(detail, RLK_ELIMIT, "%.100s...: the path is too long", out);
        while (n > 1 && out[n - 1] == '/')
            n--;
        bool has = n > 4 && memcmp(out + n - 4, ".rlk", 4) == 0;
        snprintf(path, sizeof path, "%.*s%s", (int)n, out, has ? "" : ".rlk");
    } else if (t->by_job) {
        snprintf(path, sizeof path, DEFAULT_DIR "/%s.rlk", t->job);
    } else {
        plain_name(name, called(argv));
        if (!localtime_r(&now, &tm) || !strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm))
            snprintf(stamp, sizeof stamp, "%lld", (long long)now);
        snprintf(path, sizeof path, DEFAULT_DIR "/%s-%s.rlk", stamp, name);
    }
    return keep(t, path, detail);
}

bool rlki_target_next(struct rlki_target *t, unsigned attempt)
{
    char path[PATH_MAX + 32];
    size_t n = strlen(t->shown) - 4; /* without .rlk */

    if (attempt > 1000)
        return false;
    if (attempt > 2) /* and without the -N of the attempt before */
        n = (size_t)(strrchr(t->shown, '-') - t->shown);
    snprintf(path, sizeof path, "%.*s-%u.rlk", (int)n, t->shown, attempt);
    return keep(t, path, NULL) == RLK_OK;
}

int rlki_target_parents(const struct rlki_target *t, struct rlk_detail *detail)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s", t->path);
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        if (mkdir(path, 0777) && errno != EEXIST) {
            struct stat st; /* a directory that is there but may not be written to gives EACCES or EROFS */
            int error = errno;
            if (stat(path, &st) || !S_ISDIR(st.st_mode))
                return rlk_fail(detail, error == ENOENT ? RLK_EIO : rlk_error_from_errno(error), "%s: %s", path,
                                strerror(error));
        }
        *p = '/';
    }
    return RLK_OK;
}

int rlki_target_join(struct rlki_target *t, struct rlk_detail *detail)
{
    char path[PATH_MAX + 16];
    int code = RLK_OK;

    snprintf(path, sizeof path, "%s/manifest.json", t->path);
    /* The rank that makes it writes the manifest a moment after the directory. */
    for (int ms = 0; access(path, R_OK) != 0; ms += 20) {
        if (!t->by_job || ms >= JOIN_WAIT_MS)
            return rlk_fail(detail, RLK_ENOENT, "%s: no recording (it has no manifest.json)", t->shown);
        nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    }
    if (t->by_job) {
        json_t *manifest = json_load_file(path, 0, NULL);
        const char *job = json_string_value(json_object_get(manifest, "job"));
        if (!job || strcmp(job, t->job) != 0)
            code = rlk_fail(detail, RLK_EEXIST, "%s", t->shown);
        json_decref(manifest);
    }
    t->joined = code == RLK_OK;
    return code;
}
