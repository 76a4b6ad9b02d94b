/* No memory, whichever allocation it is that fails: the program goes on, nothing crashes or hangs, and what is recorded
 * can be read. Every allocation of the recorder, the store and LMDB comes through here (linker option --wrap). */
#include "recorder/rlk_tap.h"
#include "store/rlk_reader.h"
#include "store/rlk_writer.h"
#include "tests/failing_alloc.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

const struct rlk_tap_api *rlk_tap_table(uint32_t abi);

static void scenario(void)
{
    const struct rlk_tap_api *tap = rlk_tap_table(RLK_TAP_ABI);
    static float data[64];
    static const uint64_t shape[2] = {8, 8};
    struct rlk_sample_part part = {.id = "s", .extent = 8};
    uint64_t g = tap->generation();
    if (tap->level == RLK_TAP_OFF)
        return;
    tap->meta("lib.x", "1");
    for (int64_t step = 0; step < 3; step++) {
        struct rlk_tap_ctx *ctx = tap->ctx((uint32_t)(step % 2));
        tap->step(ctx, step);
        tap->phase(ctx, "a phase with a name that is longer than the first room for a text");
        tap->module_begin(ctx, "model.layers.0.mlp.down_proj.with.a.path.that.needs.more.room");
        struct rlk_tap_op *op = tap->op_begin(ctx, "mm", "rlk.mm/1");
        struct rlk_tap_tensor t = {
            .name = "x", .generation = g, .version = (uint64_t)step + 1, .nsamples = 1, .samples = &part};
        t.view = (struct rlk_view){
            .dtype = RLK_FP32, .ndim = 2, .shape = shape, .storage = data, .storage_bytes = sizeof data};
        t.payload = true;
        for (int i = 0; i < 10; i++)
            tap->op_in(op, &t);
        t.version++;
        tap->op_out(op, &t);
        tap->op_attr(op, &(struct rlk_attr){.key = "k", .type = RLK_ATTR_STRING, .s = "v"});
        tap->op_end(op);
        tap->op_cancel(tap->op_begin(ctx, "throws", NULL));
        tap->leaf(ctx, &t, "file#x", NULL, NULL, 0);
        tap->metric(ctx, "loss", 1);
        tap->module_end(ctx);
    }
    tap->fault("planned", "a fault of the adapter");
    tap->finish();
}

/* One child with the n-th allocation failing. Returns false if the countdown was never reached. */
static bool try_one(long n, long length, const char *rec)
{
    char command[128];
    int status = 0;
    snprintf(command, sizeof command, "rm -rf %s", rec);
    assert_int_equal(system(command), 0);
    assert_int_equal(mkdir(rec, 0700), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        setenv("RLKREC_RECORDING", rec, 1);
        setenv("RLKREC_PAYLOAD", "name=x\nop=leaf", 1);
        alarm(20);
        alloc_fail(n, length);
        scenario();
        bool reached = alloc_hit();
        alloc_restore();
        _exit(reached ? 0 : 9);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0 && status != 9 << 8)
        fail_msg("allocation %ld (and %ld after it) missing: status %x", n, length - 1, status);
    return status == 0;
}

static int count(void *context, const struct rlk_event *e)
{
    (void)e;
    ++*(unsigned *)context;
    return 0;
}

static unsigned readable(const char *rec)
{
    unsigned n = 0;
    DIR *d = opendir(rec);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        struct rlk_env *env = NULL;
        struct rlk_detail detail = {""};
        if (strncmp(e->d_name, "rank-", 5) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", rec, e->d_name);
        int rc = rlk_env_open(&env, path, &detail);
        if (rc == RLK_OK && rlk_env_count(env) && (rc = rlk_env_scan(env, 0, rlk_env_count(env), count, &n, &detail)))
            fail_msg("%s: %s", path, detail.text);
        rlk_env_close(env);
    }
    closedir(d);
    return n;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char dir[] = "/tmp/rlk-mem-XXXXXX", rec[64], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(rec, sizeof rec, "%s/rec.rlk", dir);
    assert_false(try_one(1000000, 1, rec)); /* nothing fails: everything is there */
    assert_true(readable(rec) >= 10);
    long n = 1;
    unsigned whole = 0;
    for (; n < 2000 && try_one(n, 1, rec); n += n < 80 ? 1 : 2)
        whole += readable(rec) >= 10;
    assert_true(n > 30 && n < 2000);
    print_message("of %ld allocations the first 80 and every second one after failed once; %u recordings were whole "
                  "all the same\n",
                  n - 1, whole);
    for (long k = 1; k < n; k += 7) /* and from some point on nearly all */
        try_one(k, 1000, rec);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* A thread that waits for room in the writer must not be cancelled there: the process would wait for it at its end. */
static unsigned puts_seen, puts_cancellable;
int __real_rlk_producer_put(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq);
int __wrap_rlk_producer_put(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq);

int __wrap_rlk_producer_put(struct rlk_producer *producer, const struct rlk_event *event, uint64_t *seq)
{
    int state = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    puts_seen++;
    puts_cancellable += state != PTHREAD_CANCEL_DISABLE;
    pthread_setcancelstate(state, NULL);
    return __real_rlk_producer_put(producer, event, seq);
}

static void no_cancellation_inside_the_writer(void **state)
{
    (void)state;
    char dir[] = "/tmp/rlk-mem-XXXXXX", command[64];
    int status = -1;
    assert_non_null(mkdtemp(dir));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int after = -1;
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        setenv("RLKREC_RECORDING", dir, 1);
        scenario();
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
        _exit(puts_seen < 10 || puts_cancellable || after != PTHREAD_CANCEL_ENABLE);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cancellation_inside_the_writer),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
