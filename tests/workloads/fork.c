/* fork.c - processes that make processes, all on the tap.
 *
 *   fork plain [CHILDREN]   the parent records, forks children without exec, records on; each child records through a
 *                           context of its own, having tried the parent's, and leaves by exit()
 *   fork _exit              the child leaves by _exit() after finish(), as a worker process does
 *   fork silent             children record nothing
 *   fork busy               forks while four threads record without pause
 *   fork exec               records, then execs itself, which records again: same pid
 *   fork spawn              a child by fork and exec records on its own
 */
#include "tests/workloads/tensor.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rlk_tap_ctx *ctx;
static struct tensor t;

static void write_op(struct rlk_tap_ctx *c, const char *name)
{
    struct rlk_tap_op *op = tensor_op(c, name);
    tensor_out(op, &t);
    tensor_op_end(op);
}

static void read_op(struct rlk_tap_ctx *c, const char *name)
{
    struct rlk_tap_op *op = tensor_op(c, name);
    tensor_in(op, &t);
    tensor_op_end(op);
}

static int join_all(int children)
{
    int bad = 0, status;
    for (int i = 0; i < children; i++)
        bad |= wait(&status) < 0 || status != 0;
    return bad;
}

static int plain(int children, bool silent, bool hard)
{
    RLK_TAP(step, ctx, 1);
    write_op(ctx, "parent.before");
    struct rlk_tap_op *open = tensor_op(ctx, "parent.open");
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            if (silent)
                exit(0);
            write_op(ctx, "stale"); /* the parent's context: nothing happens */
            tensor_out(open, &t);
            tensor_op_end(open);
            struct rlk_tap_ctx *mine = rlk_tap_context(RLK_TAP_OWN_RANK);
            read_op(mine, "child.read"); /* its producer is in the parent's environment: digested */
            write_op(mine, "child.write");
            read_op(mine, "child.again");
            if (hard) {
                rlk_tap()->finish();
                _exit(0);
            }
            exit(0);
        }
    }
    tensor_out(open, &t);
    tensor_op_end(open);
    read_op(ctx, "parent.after");
    return join_all(children);
}

static volatile int stop;

static void *record(void *arg)
{
    (void)arg;
    struct rlk_tap_ctx *mine = rlk_tap_context(RLK_TAP_OWN_RANK);
    while (!stop) {
        struct rlk_tap_op *op = tensor_op(mine, "busy");
        struct rlk_tap_tensor shown = tensor_shown(&t);
        if (op)
            rlk_tap()->op_in(op, &shown);
        tensor_op_end(op);
        usleep(20);
    }
    return NULL;
}

static int busy(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, record, NULL);
    int bad = 0;
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct rlk_tap_ctx *mine = rlk_tap_context(RLK_TAP_OWN_RANK);
            read_op(mine, "child");
            exit(0);
        }
        bad |= pid < 0 || join_all(1);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return bad;
}

static int exec_chain(const char *self, const char *next)
{
    write_op(ctx, "first");
    char *const argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)next, NULL};
    rlk_tap_context(0);
    execv(self, argv);
    return 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain";
    ctx = rlk_tap_context(RLK_TAP_OWN_RANK);
    t = tensor_new("t", 4, 8);
    int rc = 2;
    if (!strcmp(mode, "plain"))
        rc = plain(argc > 2 ? atoi(argv[2]) : 2, false, false);
    else if (!strcmp(mode, "_exit"))
        rc = plain(1, false, true);
    else if (!strcmp(mode, "silent"))
        rc = plain(3, true, false);
    else if (!strcmp(mode, "busy"))
        rc = busy();
    else if (!strcmp(mode, "exec"))
        rc = exec_chain(argv[0], "execed");
    else if (!strcmp(mode, "execed")) {
        write_op(ctx, "second");
        rc = 0;
    } else if (!strcmp(mode, "spawn")) {
        write_op(ctx, "parent");
        if (fork() == 0)
            return exec_chain(argv[0], "execed");
        rc = join_all(1);
    }
    tensor_free(&t);
    return rc;
}
