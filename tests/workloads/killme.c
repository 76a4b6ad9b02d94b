/* killme.c - ways for a process to end in mid-run.
 *
 *   killme HOW [EVENTS]   records EVENTS events (default 500), flushes, records as many again and then ends by
 *   kill | segv | abort | _exit | quick_exit   or
 *   handler               exit(7) out of a signal handler while it records
 *   wait                  says "ready" and goes on recording until somebody kills it
 *   stuck                 exit(7) while another thread never stops recording
 *   full                  records until 200 MB have gone through, ends by itself (for a full disk)
 */
#include "tests/workloads/tensor.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct rlk_tap_ctx *ctx;
static struct tensor t;
static int step;

static void record(int events)
{
    for (int i = 0; i < events; i++) {
        RLK_TAP(step, ctx, step++);
        struct rlk_tap_op *op = tensor_op(ctx, "mm");
        t.data[0] = (float)step;
        tensor_out(op, &t);
        tensor_op_end(op);
    }
}

static void on_alarm(int sig)
{
    (void)sig;
    exit(7); /* not async-signal-safe, and yet programs do it */
}

static void *forever(void *arg)
{
    (void)arg;
    struct rlk_tap_ctx *mine = rlk_tap_context(RLK_TAP_OWN_RANK);
    for (;;)
        tensor_op_end(tensor_op(mine, "forever"));
    return NULL;
}

static void big(void)
{
    struct tensor x = tensor_new("x", 256, 1024); /* 1 MB of payload an event */
    for (int i = 0; i < 200; i++) {
        struct rlk_tap_op *op = tensor_op(ctx, "big");
        for (size_t k = 0; k < tensor_count(&x); k++)
            x.data[k] = (float)((k * 2654435761u + (unsigned)i) % 16777213u);
        struct rlk_tap_tensor shown = tensor_shown(&x);
        shown.payload = true;
        if (op)
            rlk_tap()->op_out(op, &shown);
        tensor_op_end(op);
        usleep(1000);
    }
    tensor_free(&x);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "kill";
    int events = argc > 2 ? atoi(argv[2]) : 500;
    ctx = rlk_tap_context(RLK_TAP_OWN_RANK);
    t = tensor_new("t", 8, 8);
    record(events);
    if (rlk_tap())
        rlk_tap()->flush();
    record(events);
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    else if (!strcmp(how, "segv"))
        raise(SIGSEGV);
    else if (!strcmp(how, "abort"))
        abort();
    else if (!strcmp(how, "_exit"))
        _exit(7);
    else if (!strcmp(how, "quick_exit"))
        quick_exit(7);
    else if (!strcmp(how, "handler")) {
        signal(SIGALRM, on_alarm);
        ualarm(5000, 0);
        for (;;)
            record(100);
    } else if (!strcmp(how, "wait")) {
        printf("ready\n");
        fflush(stdout);
        for (;;) {
            record(1);
            usleep(1000);
        }
    } else if (!strcmp(how, "stuck")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, forever, NULL))
            return 1;
        usleep(20000);
        exit(7);
    } else if (!strcmp(how, "full"))
        big();
    else
        return 2;
    tensor_free(&t);
    printf("done\n");
    return 0;
}
