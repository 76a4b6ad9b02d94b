#include "tests/recorder/harness.h"

#include "store/rlk_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

const char harness_library[] = RLK_TEST_LIBRARY;

static void child(const struct run *run, const char *const *argv, const char *const *env)
{
    static const char *const clear[] = {"LEVEL", "INPUTS",    "PAYLOAD",  "STEPS",
                                        "EVERY", "KEEP_LAST", "MAX_SIZE", "FORK"};
    char path[128];
    for (size_t i = 0; i < sizeof clear / sizeof *clear; i++) {
        snprintf(path, sizeof path, "RLKREC_%s", clear[i]);
        unsetenv(path);
    }
    unsetenv("RANK");
    unsetenv("SLURM_PROCID");
    unsetenv("OMPI_COMM_WORLD_RANK");
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0); /* LSan stops at forks and at threads that still run */
    setenv("RLKREC_LIBRARY", harness_library, 1);
    setenv("RLKREC_RECORDING", run->rec, 1);
    for (; env && *env; env++)
        putenv((char *)(uintptr_t)*env); /* a bare NAME removes it */
    snprintf(path, sizeof path, "%s/err", run->dir);
    if (!freopen(path, "w", stderr))
        _exit(126);
    snprintf(path, sizeof path, "%s/out", run->dir);
    if (!freopen(path, "w", stdout))
        _exit(126);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static char *slurp(const char *dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_envs(struct run *run)
{
    DIR *d = opendir(run->rec);
    run->nenvs = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "rank-", 5) && run->nenvs < 64)
            snprintf(run->envs[run->nenvs++], sizeof run->envs[0], "%.90s", e->d_name);
    if (d)
        closedir(d);
    qsort(run->envs, run->nenvs, sizeof run->envs[0], by_name);
}

void run_again(struct run *run, const char *const *argv, const char *const *env)
{
    free(run->err);
    free(run->out);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(run, argv, env);
    time_t deadline = time(NULL) + 30;
    pid_t got = 0;
    while ((got = waitpid(pid, &run->status, WNOHANG)) == 0 && time(NULL) < deadline)
        usleep(2000);
    if (got == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        fail_msg("%s hangs", argv[0]);
    }
    run->err = slurp(run->dir, "err");
    run->out = slurp(run->dir, "out");
    list_envs(run);
}

void run_program(struct run *run, const char *const *argv, const char *const *env)
{
    memset(run, 0, sizeof *run);
    snprintf(run->dir, sizeof run->dir, "/tmp/rlk-tap-XXXXXX");
    assert_non_null(mkdtemp(run->dir));
    snprintf(run->rec, sizeof run->rec, "%s/rec.rlk", run->dir);
    assert_int_equal(mkdir(run->rec, 0700), 0);
    run_again(run, argv, env);
}

void run_release(struct run *run)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", run->dir);
    assert_int_equal(system(command), 0);
    free(run->err);
    free(run->out);
}

struct text {
    char *s;
    size_t n, size;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *format, ...)
{
    char piece[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(piece, sizeof piece, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof piece)
        return;
    if (t->n + (size_t)n + 1 > t->size) {
        t->size = (t->size + (size_t)n) * 2 + 1024;
        t->s = realloc(t->s, t->size);
        if (!t->s)
            abort();
    }
    memcpy(t->s + t->n, piece, (size_t)n + 1);
    t->n += (size_t)n;
}

/* "in x=D": digested; "=R4.1": output 1 of event 4 itself; "=R4.1*": a view of it; "=U(reason)", "=N(reason)". */
static void add_tensor(struct text *t, const struct rlk_tensor *x)
{
    add(t, " %s %s=", x->role == RLK_ROLE_IN ? "in" : "out", x->name);
    switch (x->state) {
    case RLK_T_DIGESTED:
        add(t, "D");
        break;
    case RLK_T_REFERENCE:
        add(t, "R%" PRIu64 ".%u%s", x->ref_event, x->ref_output, x->ref_view.lo || x->ref_view.hi ? "*" : "");
        break;
    case RLK_T_UNDEFINED:
        add(t, "U(%s)", x->reason);
        break;
    default:
        add(t, "N(%s)", x->reason);
        break;
    }
    if (*x->version)
        add(t, "/%s", x->version);
    if (!x->composable)
        add(t, "!");
    for (uint32_t i = 0; i < x->nsamples; i++)
        add(t, "<%s:%" PRIu64 "+%" PRIu64 "%s>", x->samples[i].id, x->samples[i].start, x->samples[i].extent,
            x->samples[i].has_sums ? "" : "?");
    if (x->has_payload)
        add(t, "[bytes]");
}

static void add_detail(struct text *t, const struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_OP:
        add(t, "%s%s", *e->u.op.contract ? " contract " : "", e->u.op.contract);
        break;
    case RLK_EV_COLLECTIVE:
        add(t, " group %s algo %s order", e->u.collective.group, e->u.collective.algo);
        for (uint32_t i = 0; i < e->u.collective.norder; i++)
            add(t, " %u", e->u.collective.order[i]);
        break;
    case RLK_EV_WEIGHTS:
        add(t, " %s %s", e->u.weights.version, e->u.weights.side);
        break;
    case RLK_EV_RNG:
        add(t, " %s %" PRIu64 " %" PRIu64, e->u.rng.generator, e->u.rng.seed, e->u.rng.offset);
        break;
    case RLK_EV_METRIC:
        add(t, " %.17g", e->u.metric.value);
        break;
    case RLK_EV_READBACK:
        add(t, " %s %s %s %" PRIu64, e->u.readback.case_id, e->u.readback.implementation, e->u.readback.contract,
            e->u.readback.calls);
        break;
    case RLK_EV_LEAF:
        add(t, " %s %s %s %s %" PRIu64, e->u.leaf.name, e->u.leaf.reference, e->u.leaf.sha256, e->u.leaf.generator,
            e->u.leaf.seed);
        break;
    case RLK_EV_NOTE:
        add(t, " %s: %s", e->u.note.code, e->u.note.text);
        break;
    default:
        break;
    }
}

/* "0 op r0 s0 train w0.0 fwd m#1 mm@2 ~sample ..." ; a '-' stands for an empty name, "(autotune)" for what it says. */
static int add_event(void *context, const struct rlk_event *e)
{
    struct text *t = context;
    const struct rlk_identity *w = &e->who;
    add(t, "%" PRIu64 " %s r%u s%" PRId64 " %s w%" PRId64 ".%" PRId64 " %s %s#%u %s@%u", e->seq,
        rlk_event_kind_name(e->kind), e->rank, w->step, *w->phase ? w->phase : "-", w->work, w->iteration,
        *w->pass ? w->pass : "-", *w->module ? w->module : "-", w->call, *w->op ? w->op : "-", w->occurrence);
    if (*w->sample)
        add(t, " ~%s", w->sample);
    if (e->autotune)
        add(t, " (autotune)");
    add_detail(t, e);
    for (uint32_t i = 0; i < e->nattrs; i++)
        add(t, e->attrs[i].type == RLK_ATTR_STRING ? " %s='%s'" : " %s", e->attrs[i].key, e->attrs[i].s);
    for (uint32_t i = 0; i < e->nlaunches; i++)
        add(t, " launch %s", e->launches[i].kernel);
    for (uint32_t i = 0; i < e->ntensors; i++)
        add_tensor(t, &e->tensors[i]);
    add(t, "\n");
    return 0;
}

char *run_dump(const struct run *run, size_t i, bool *complete)
{
    char path[256];
    struct rlk_env *env = NULL;
    struct rlk_detail detail = {""};
    struct text text = {0};
    add(&text, "%s", "");
    snprintf(path, sizeof path, "%s/%s", run->rec, run->envs[i]);
    int rc = rlk_env_open(&env, path, &detail);
    if (rc == RLK_OK) {
        *complete = rlk_env_complete(env);
        rc = rlk_env_scan(env, 0, rlk_env_count(env), add_event, &text, &detail);
    }
    rlk_env_close(env);
    if (rc) {
        print_error("%s: %s: %s\n", path, rlk_error_name(rc), detail.text);
        free(text.s);
        return NULL;
    }
    return text.s;
}

void run_expect(const char *const *argv, const char *const *env, const char *lines)
{
    struct run run;
    bool complete = false;
    run_program(&run, argv, env);
    assert_string_equal(run.err, "");
    assert_int_equal(run.status, 0);
    assert_int_equal(run.nenvs, 1);
    char *dump = run_dump(&run, 0, &complete);
    assert_non_null(dump);
    assert_string_equal(dump, lines);
    assert_true(complete);
    free(dump);
    run_release(&run);
}
