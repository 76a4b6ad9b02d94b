/* What the writer does when things go wrong or get tight: threads, flush, late digests, full disks, kill -9, forks,
 * bounds. */
#include "store/rlk_reader.h"
#include "store/rlk_writer_impl.h"
#include "tests/store/events.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(x) assert_int_equal((x), RLK_OK)

static void path_of(char out[300], char dir[256], const char *name)
{
    fresh_dir(dir, name);
    snprintf(out, 300, "%s/rank-00000.pid-1", dir);
}

static struct rlk_env *reopen(const char *path)
{
    struct rlk_env *env;
    struct rlk_detail detail = {""};
    if (rlk_env_open(&env, path, &detail))
        fail_msg("%s", detail.text);
    if (rlk_env_verify(env, &detail))
        fail_msg("%s", detail.text);
    return env;
}

static struct rlk_event op_event(int64_t step, uint32_t rank, const char *module)
{
    return (struct rlk_event){
        .kind = RLK_EV_OP, .rank = rank, .who = {.step = step, .module = module, .op = "aten::mm"}};
}

/* ---- launches: the short way must say what the long one says ---- */

static void launches(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct rlk_writer *w;
    struct rlk_producer *p;
    uint64_t seq = 99;
    path_of(path, dir, "writer.launches");
    const struct rlk_writer_options options = {.dir = path};
    OK(rlk_writer_open(&w, &options, NULL));
    OK(rlk_writer_producer(w, &p));
    struct rlk_attr attrs[70];
    for (int i = 0; i < 70; i++)
        attrs[i] = (struct rlk_attr){.key = "cooperative", .type = RLK_ATTR_INT, .i = 7 - i};
    for (uint32_t i = 0; i < 400; i++) {
        struct rlk_launch l = {.kernel = i % 3 ? "_Z6kernelPf" : "",
                               .image = i % 4 ? "abcd" : "",
                               .config = "",
                               .grid = {i, 2, 3},
                               .block = {i % 1024, 5, 6},
                               .cluster = {i % 2, 0, 1},
                               .smem = i * 7,
                               .stream = i % 5,
                               .graph = RLK_NO_NODE,
                               .node = RLK_NO_NODE,
                               .nattrs = i == 11 ? 70 : i % 3, /* more than a slot takes: the long way */
                               .attrs = attrs,
                               .has_params = i % 2,
                               .params = {i, 0}};
        struct rlk_event e = {.kind = RLK_EV_LAUNCH, .rank = i % 3, .thread = i % 4, .stream = l.stream};
        e.who.step = (int64_t)i / 50;
        e.nlaunches = 1;
        e.launches = &l;
        e.u.launch.entry = i % 7 ? "cuLaunchKernel" : "cuMemcpyAsync";
        e.u.launch.count = i % 7 != 0;
        OK(rlk_producer_put(p, &e, NULL));
        OK(rlk_producer_launch(p, &e, &seq));
        assert_int_equal(seq, 2 * i + 1);
    }
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env = reopen(path);
    assert_int_equal(rlk_env_count(env), 800);
    struct rlk_arena arena = {0};
    for (uint64_t i = 0; i < 800; i += 2) {
        struct rlk_event a, b;
        OK(rlk_env_event(env, i, &arena, &a, NULL));
        OK(rlk_env_event(env, i + 1, &arena, &b, NULL));
        assert_null(event_difference(&a, &b));
        assert_int_equal(b.launches[0].grid[0], i / 2);
        rlk_arena_reset(&arena);
    }
    rlk_arena_release(&arena);
    rlk_env_close(env);
    drop_dir(dir);
}

/* ---- threads ---- */

#define THREADS 4
#define EACH 3000u

struct worker {
    struct rlk_writer *w;
    uint32_t n;
    uint64_t seqs[EACH];
    rlk_u128 blob;
};

static void *work(void *context)
{
    struct worker *me = context;
    struct rlk_producer *p;
    char module[32];
    if (rlk_writer_producer(me->w, &p))
        return me;
    snprintf(module, sizeof module, "thread.%u", me->n);
    for (uint32_t i = 0; i < EACH; i++) {
        struct rlk_event e = op_event(i / 100, me->n % 2, module);
        e.thread = me->n;
        e.who.occurrence = i;
        if (rlk_producer_put(p, &e, &me->seqs[i]))
            return me;
        if (i % 500 == 0) {
            rlk_writer_count_launches_seen(me->w, 1);
            if (rlk_producer_payload(p, module, strlen(module), &me->blob) || rlk_writer_meta(me->w, module, "x"))
                return me;
        }
    }
    rlk_producer_free(p);
    return NULL;
}

static void run_workers(const char *path, struct worker *workers, uint32_t commit_ms)
{
    struct rlk_writer *w;
    pthread_t threads[THREADS];
    struct rlk_coverage cov;
    OK(rlk_writer_open(
        &w, &(struct rlk_writer_options){.dir = path, .queue_bytes = 1, .wait_ms = 30000, .commit_ms = commit_ms},
        NULL));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].w = w;
        workers[i].n = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        OK(rlk_writer_flush(w, NULL));
        rlk_writer_coverage(w, &cov);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    OK(rlk_writer_flush(w, NULL));
    rlk_writer_coverage(w, &cov);
    assert_int_equal(cov.events, THREADS * EACH);
    assert_int_equal(cov.dropped, 0);
    OK(rlk_writer_close(w, false, NULL));
}

struct steps {
    struct rlk_roll list[128];
    size_t n;
};

static int keep_step(void *context, const struct rlk_roll *roll)
{
    struct steps *s = context;
    s->list[s->n++] = *roll;
    return 0;
}

static void many_producers(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    struct steps steps[2] = {{.n = 0}, {.n = 0}};
    for (int run = 0; run < 2; run++) {
        char dir[256], path[300];
        path_of(path, dir, "threads");
        run_workers(path, workers, run ? 1 : 500);
        struct rlk_env *env = reopen(path);
        assert_true(rlk_env_complete(env));
        assert_int_equal(rlk_env_count(env), THREADS * EACH);
        struct rlk_arena arena = {0};
        for (uint32_t t = 0; t < THREADS; t++)
            for (uint32_t i = 0; i < EACH;
                 i++) { /* each event stands where its put said, and a thread's in its order */
                struct rlk_event e;
                rlk_arena_reset(&arena);
                OK(rlk_env_event(env, workers[t].seqs[i], &arena, &e, NULL));
                assert_int_equal(e.thread, t);
                assert_int_equal(e.who.occurrence, i);
                assert_true(i == 0 || workers[t].seqs[i] > workers[t].seqs[i - 1]);
            }
        rlk_arena_release(&arena);
        OK(rlk_env_steps(env, keep_step, &steps[run], NULL));
        assert_int_equal(steps[run].n, 2 * EACH / 100);
        rlk_env_close(env);
        drop_dir(dir);
    }
    /* The same events, interleaved and committed otherwise: the same sums. */
    for (size_t i = 0; i < steps[0].n; i++) {
        assert_int_equal(steps[0].list[i].step, (int64_t)(i / 2));
        assert_int_equal(steps[0].list[i].rank, i % 2);
        assert_true(rlk_u128_equal(steps[0].list[i].out_sum, steps[1].list[i].out_sum));
        assert_true(rlk_u128_equal(steps[0].list[i].in_sum, steps[1].list[i].in_sum));
        assert_int_equal(steps[0].list[i].events, 200);
        assert_true(i < 2 || !rlk_u128_equal(steps[0].list[i].out_sum, steps[0].list[i - 2].out_sum));
    }
}

/* ---- digests that come later ---- */

struct device {
    _Atomic uint64_t ready; /* tickets below have their digest */
    _Atomic uint64_t asked;
};

static int resolve(void *context, uint64_t ticket, struct rlk_sums *sums)
{
    struct device *d = context;
    atomic_fetch_add(&d->asked, 1);
    if (ticket == 13)
        return RLK_EFULL;
    if (ticket >= atomic_load(&d->ready))
        return RLK_EAGAIN;
    *sums = (struct rlk_sums){.multiset = ticket, .elements = 4};
    return RLK_OK;
}

static void pending(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct device device = {0};
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_coverage cov;
    path_of(path, dir, "pending");
    OK(rlk_writer_open(
        &w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1, .resolve = resolve, .resolve_context = &device},
        NULL));
    OK(rlk_writer_producer(w, &p));
    uint64_t shape[1] = {4};
    for (uint64_t i = 0; i < 20; i++) {
        struct rlk_tensor t = {.role = RLK_ROLE_OUT, .state = RLK_T_PENDING, .dtype = RLK_FP32, .ndim = 1};
        t.shape = shape;
        t.ticket = i;
        struct rlk_event e = op_event(0, 0, "m");
        e.ntensors = 1;
        e.tensors = &t;
        OK(rlk_producer_put(p, &e, NULL));
    }
    atomic_store(&device.ready, 5);
    for (int i = 0; i < 2000; i++) { /* what is ready is committed, what is behind is held */
        usleep(1000);
        rlk_writer_coverage(w, &cov);
        if (cov.events == 5)
            break;
    }
    usleep(20000);
    rlk_writer_coverage(w, &cov);
    assert_int_equal(cov.events, 5);
    atomic_store(&device.ready, 100);
    OK(rlk_writer_flush(w, NULL));
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env = reopen(path);
    struct rlk_arena arena = {0};
    for (uint64_t i = 0; i < 20; i++) {
        struct rlk_event e;
        OK(rlk_env_event(env, i, &arena, &e, NULL));
        assert_int_equal(e.tensors[0].state, i == 13 ? RLK_T_NOT_DIGESTED : RLK_T_DIGESTED);
        if (i == 13)
            assert_string_equal(e.tensors[0].reason, "ring-full");
        else
            assert_int_equal(e.tensors[0].sums.multiset, i);
    }
    OK(rlk_env_coverage(env, &cov, NULL));
    assert_int_equal(cov.nreasons, 1);
    assert_string_equal(cov.not_digested[0].reason, "ring-full");
    rlk_arena_release(&arena);
    rlk_env_close(env);
    drop_dir(dir);
}

/* A device that is gone: closing waits once, not once for each event. */
static void never_resolved(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct device device = {0};
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_coverage cov;
    path_of(path, dir, "never");
    const uint64_t closing = rlki_late_ns[1];
    rlki_late_ns[1] = 300000000;
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .resolve = resolve, .resolve_context = &device},
                       NULL));
    OK(rlk_writer_producer(w, &p));
    uint64_t shape[1] = {4};
    struct rlk_tensor t = {.role = RLK_ROLE_OUT, .state = RLK_T_PENDING, .dtype = RLK_FP32, .ndim = 1, .shape = shape};
    struct rlk_event e = op_event(0, 0, "m");
    e.ntensors = 1;
    e.tensors = &t;
    t.ticket = 1000;
    for (int i = 0; i < 100; i++)
        OK(rlk_producer_put(p, &e, NULL));
    time_t start = time(NULL);
    OK(rlk_writer_close(w, false, NULL));
    assert_true(time(NULL) - start < 15);
    rlki_late_ns[1] = closing;
    struct rlk_env *env = reopen(path);
    OK(rlk_env_coverage(env, &cov, NULL));
    assert_int_equal(cov.nreasons, 1);
    assert_string_equal(cov.not_digested[0].reason, "late");
    assert_int_equal(cov.not_digested[0].count, 100);
    rlk_env_close(env);
    drop_dir(dir);
}

/* ---- back-pressure ---- */

static void full_queue(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct device device = {0};
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_coverage cov;
    path_of(path, dir, "full");
    OK(rlk_writer_open(&w,
                       &(struct rlk_writer_options){
                           .dir = path, .queue_bytes = 1, .wait_ms = 5, .resolve = resolve, .resolve_context = &device},
                       NULL));
    OK(rlk_writer_producer(w, &p));
    uint64_t shape[1] = {4}, put = 0, dropped = 0;
    struct rlk_tensor t = {.role = RLK_ROLE_OUT, .state = RLK_T_PENDING, .dtype = RLK_FP32, .ndim = 1, .shape = shape};
    struct rlk_event e = op_event(0, 0, "m");
    e.ntensors = 1;
    e.tensors = &t;
    while (dropped < 3) { /* the first digest never comes, so the queue fills */
        int rc = rlk_producer_put(p, &e, NULL);
        assert_true(rc == RLK_OK || rc == RLK_EFULL);
        put += rc == RLK_OK;
        dropped += rc == RLK_EFULL;
        assert_true(put < 10000);
    }
    rlk_writer_coverage(w, &cov);
    assert_int_equal(cov.dropped, dropped);
    assert_true(cov.stall_ns >= 3 * 4000000u);
    atomic_store(&device.ready, 1);
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env = reopen(path);
    OK(rlk_env_coverage(env, &cov, NULL));
    assert_int_equal(cov.dropped, dropped);
    assert_int_equal(rlk_env_count(env), put); /* no hole where something was dropped */
    rlk_env_close(env);
    drop_dir(dir);
}

/* ---- the disk is full ---- */

static void put_blobs(struct rlk_producer *p, struct rng *r, int n)
{
    unsigned char bytes[8192];
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)rng_next(r);
        rlk_u128 id;
        rlk_producer_payload(p, bytes, sizeof bytes, &id);
    }
}

static void child_disk_full(const char *path)
{
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_detail detail = {""};
    struct rng r = {7};
    struct rlk_event e = op_event(0, 0, "m");
    struct rlimit limit = {1u << 20, 1u << 20};
    if (rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1}, NULL) ||
        rlk_writer_producer(w, &p))
        _exit(10);
    setrlimit(RLIMIT_FSIZE, &limit); /* and SIGXFSZ keeps its default action, which is death */
    int good = 0, refused = 0;
    for (int i = 0; i < 4000 && refused < 10; i++) {
        put_blobs(p, &r, 2);
        int rc = rlk_producer_put(p, &e, NULL);
        good += rc == RLK_OK;
        refused += rc == RLK_ESTATE;
        usleep(200);
    }
    if (good == 0 || refused != 10)
        _exit(11);
    if (rlk_writer_fault(w, &detail) != RLK_ENOSPC || !*detail.text)
        _exit(12);
    if (rlk_writer_flush(w, NULL) != RLK_ENOSPC)
        _exit(13);
    struct rlk_coverage cov;
    rlk_writer_coverage(w, &cov);
    if (cov.dropped < 10)
        _exit(14);
    if (rlk_writer_close(w, false, &detail) != RLK_ENOSPC)
        _exit(15);
    _exit(0);
}

static int wait_child(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void disk_full(void **state)
{
    (void)state;
    char dir[256], path[300];
    path_of(path, dir, "enospc");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_disk_full(path);
    assert_int_equal(wait_child(pid), 0);
    struct rlk_env *env = reopen(path); /* what was committed is there and good; it is not complete */
    struct rlk_coverage cov;
    assert_false(rlk_env_complete(env));
    OK(rlk_env_coverage(env, &cov, NULL));
    assert_int_equal(cov.events, rlk_env_count(env));
    assert_true(cov.dropped >= 10 ||
                *rlk_env_meta(env, "rlk.fault") == 0); /* last words, where there was room for them */
    rlk_env_close(env);
    drop_dir(dir);
}

/* ---- kill -9 ---- */

static void child_until_killed(const char *path, int tell)
{
    struct rlk_writer *w;
    struct rlk_producer *p;
    char module[32];
    if (rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 5}, NULL) ||
        rlk_writer_producer(w, &p))
        _exit(10);
    for (uint64_t i = 0;; i++) {
        snprintf(module, sizeof module, "layers.%u", (unsigned)(i % 5000)); /* tables grow with every batch */
        struct rlk_event e = op_event((int64_t)(i / 1000), 0, module);
        rlk_producer_put(p, &e, NULL);
        if (i % 500 == 0) {
            if (rlk_writer_flush(w, NULL))
                _exit(11);
            if (write(tell, &i, sizeof i) != sizeof i)
                _exit(12);
        }
    }
}

static void killed(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 6; round++) {
        char dir[256], path[300];
        int fds[2];
        path_of(path, dir, "kill");
        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(fds[0]);
            child_until_killed(path, fds[1]);
        }
        close(fds[1]);
        uint64_t last = 0;
        for (unsigned i = 0; i < 5 + 7 * round; i++)
            assert_int_equal(read(fds[0], &last, sizeof last), sizeof last);
        kill(pid, SIGKILL);
        assert_int_equal(wait_child(pid), 1000 + SIGKILL);
        struct rlk_env *env = reopen(path);
        struct steps steps = {.n = 0};
        assert_false(rlk_env_complete(env));
        assert_true(rlk_env_count(env) > last);
        OK(rlk_env_steps(env, keep_step, &steps, NULL)); /* made by a scan */
        assert_int_equal(steps.n, (rlk_env_count(env) + 999) / 1000);
        assert_int_equal(steps.list[0].events, rlk_env_count(env) < 1000 ? rlk_env_count(env) : 1000);
        rlk_env_close(env);
        close(fds[0]);
        drop_dir(dir);
    }
}

/* ---- a recording that is still being written is read ---- */

static void read_while_written(void **state)
{
    (void)state;
    char dir[256], path[300];
    int fds[2];
    path_of(path, dir, "live");
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_until_killed(path, fds[1]);
    uint64_t committed = 0;
    struct rlk_arena arena = {0};
    for (int i = 0; i < 30; i++) {
        struct rlk_env *env;
        struct rlk_detail detail = {""};
        struct rlk_event e;
        for (int k = 0; k < 5; k++)
            assert_int_equal(read(fds[0], &committed, sizeof committed), sizeof committed);
        int rc = rlk_env_open(&env, path, &detail);
        if (rc)
            fail_msg("%s", detail.text);
        assert_true(rlk_env_count(env) > committed);
        for (int k = 0; k < 3; k++) /* meanwhile the writer reuses pages of the root that we hold */
            assert_int_equal(read(fds[0], &committed, sizeof committed), sizeof committed);
        for (uint64_t seq = 0; seq < rlk_env_count(env); seq += 97) {
            rlk_arena_reset(&arena);
            if (rlk_env_event(env, seq, &arena, &e, &detail))
                fail_msg("%s", detail.text);
            assert_int_equal(e.who.step, seq / 1000);
        }
        rlk_env_close(env);
    }
    rlk_arena_release(&arena);
    kill(pid, SIGKILL);
    wait_child(pid);
    close(fds[0]);
    close(fds[1]);
    drop_dir(dir);
}

/* ---- fork without exec ---- */

static void forked_child(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it does not allow threads after a fork */
#endif
    char dir[256], path[300], file[320];
    struct rlk_writer *w;
    struct rlk_producer *p;
    path_of(path, dir, "fork");
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1}, NULL));
    OK(rlk_writer_producer(w, &p));
    struct rlk_event e = op_event(0, 0, "m");
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 100; k++)
            OK(rlk_producer_put(p, &e, NULL));
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(10);
            rlk_writer_abandon(w);
            struct rlk_writer *own;
            snprintf(file, sizeof file, "%s/rank-00000.pid-child%d", dir, i);
            int rc = rlk_writer_open(&own, &(struct rlk_writer_options){.dir = file}, NULL);
            if (rc == RLK_OK)
                rc = rlk_writer_close(own, false, NULL);
            _exit(rc ? 1 : 0);
        }
        assert_int_equal(wait_child(pid), 0);
    }
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env = reopen(path);
    assert_true(rlk_env_complete(env));
    assert_int_equal(rlk_env_count(env), 2000);
    rlk_env_close(env);
    drop_dir(dir);
}

/* ---- bounds ---- */

static void max_bytes(void **state)
{
    (void)state;
    char dir[256], path[300], file[320];
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_detail detail = {""};
    struct rng r = {3};
    path_of(path, dir, "max");
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1, .max_bytes = 400000}, NULL));
    OK(rlk_writer_producer(w, &p));
    struct rlk_event e = op_event(0, 0, "m");
    uint64_t put = 0, refused = 0;
    for (int i = 0; i < 20000 && refused < 5; i++) {
        put_blobs(p, &r, 1);
        int rc = rlk_producer_put(p, &e, NULL);
        put += rc == RLK_OK;
        refused += rc == RLK_ESTATE;
        usleep(100);
    }
    assert_int_equal(refused, 5);
    assert_int_equal(rlk_writer_fault(w, &detail), RLK_ELIMIT);
    assert_non_null(strstr(detail.text, "max-size"));
    OK(rlk_writer_close(w, false, NULL));
    struct rlk_env *env = reopen(path);
    struct rlk_arena arena = {0};
    struct rlk_coverage cov;
    assert_true(rlk_env_complete(env));
    OK(rlk_env_event(env, rlk_env_count(env) - 1, &arena, &e, NULL));
    assert_int_equal(e.kind, RLK_EV_NOTE);
    assert_string_equal(e.u.note.code, "max-size");
    assert_non_null(strstr(rlk_env_meta(env, "rlk.fault"), "max-size"));
    OK(rlk_env_coverage(env, &cov, NULL));
    assert_int_equal(cov.events + cov.dropped, put + refused + 1); /* the note is one */
    struct stat st;
    snprintf(file, sizeof file, "%s/data.mdb", path);
    assert_int_equal(stat(file, &st), 0);
    assert_true(st.st_size < 2000000);
    rlk_arena_release(&arena);
    rlk_env_close(env);
    drop_dir(dir);
}

static int count_event(void *context, const struct rlk_event *event)
{
    uint64_t *n = context;
    n[0]++;
    if ((uint64_t)event->who.step < n[1])
        n[1] = (uint64_t)event->who.step;
    return 0;
}

static void keep_last_steps(void **state)
{
    (void)state;
    char dir[256], path[300], file[320];
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct stat before, after;
    path_of(path, dir, "keep");
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path, .commit_ms = 1, .keep_last_steps = 3}, NULL));
    OK(rlk_writer_producer(w, &p));
    snprintf(file, sizeof file, "%s/data.mdb", path);
    for (int64_t step = 0; step < 60; step++) {
        for (uint32_t i = 0; i < 2000; i++) {
            uint64_t shape[1] = {4};
            struct rlk_tensor t = {.role = RLK_ROLE_OUT, .dtype = RLK_FP32, .ndim = 1, .shape = shape};
            t.sums.positional = t.sums.value = (rlk_u128){(uint64_t)step * UINT64_C(0x9e3779b97f4a7c15), i};
            struct rlk_event e = op_event(step, i % 2, "m");
            e.ntensors = 1;
            e.tensors = &t;
            OK(rlk_producer_put(p, &e, NULL));
        }
        OK(rlk_writer_flush(w, NULL));
        if (step == 20)
            assert_int_equal(stat(file, &before), 0);
    }
    OK(rlk_writer_close(w, false, NULL));
    assert_int_equal(stat(file, &after), 0);
    assert_true(after.st_size < before.st_size * 3 / 2); /* the file does not grow with the run */
    struct rlk_env *env = reopen(path);
    struct steps steps = {.n = 0};
    struct rlk_event e;
    struct rlk_arena arena = {0};
    uint64_t seen[2] = {0, UINT64_MAX};
    assert_true(rlk_env_complete(env));
    assert_int_equal(rlk_env_count(env), 120000);
    OK(rlk_env_steps(env, keep_step, &steps, NULL));
    assert_int_equal(steps.n, 6);
    assert_int_equal(steps.list[0].step, 57);
    OK(rlk_env_scan(env, 0, UINT64_MAX, count_event, seen, NULL));
    assert_int_equal(seen[0], 6000);
    assert_int_equal(seen[1], 57);
    assert_int_equal(rlk_env_event(env, 0, &arena, &e, NULL), RLK_ENOENT);
    OK(rlk_env_event(env, 119999, &arena, &e, NULL));
    rlk_arena_release(&arena);
    rlk_env_close(env);
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_producers),     cmocka_unit_test(pending),      cmocka_unit_test(never_resolved),
        cmocka_unit_test(full_queue),         cmocka_unit_test(disk_full),    cmocka_unit_test(killed),
        cmocka_unit_test(read_while_written), cmocka_unit_test(forked_child), cmocka_unit_test(max_bytes),
        cmocka_unit_test(keep_last_steps),    cmocka_unit_test(launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
