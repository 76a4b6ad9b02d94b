/* many_ranks.c - many virtual ranks and many threads in one process.
 *
 *   many_ranks ranks [RANKS [THREADS]]   each thread speaks for its share of the ranks; every rank computes, then all
 *                                        take part in an all_reduce on group "tp"
 *   many_ranks churn [THREADS]           threads that come, record twice for one rank and go, eight at a time
 *   many_ranks cancel                    threads that record without pause and are cancelled
 *   many_ranks shared                    four threads record for one rank in one module call, as autograd's threads do
 */
#include "tests/workloads/tensor.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 256, MAX_THREADS = 64 };

static int nranks = 64, nthreads = 8;
static struct tensor part[MAX_RANKS], whole[MAX_RANKS];
static pthread_barrier_t all_here;

static void compute(int r, int step)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context((uint32_t)r);
    RLK_TAP(step, ctx, step);
    RLK_TAP(pass, ctx, "fwd");
    RLK_TAP(module_begin, ctx, "m");
    struct rlk_tap_op *op = tensor_op(ctx, "partial");
    for (size_t i = 0; i < tensor_count(&part[r]); i++)
        part[r].data[i] = (float)(r + 1) * 0.1f + (float)i + (float)step;
    tensor_out(op, &part[r]);
    tensor_op_end(op);
}

static void reduce(int r)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context((uint32_t)r);
    struct rlk_tap_op *op = ctx ? rlk_tap()->collective_begin(ctx, "all_reduce", "tp") : NULL;
    tensor_in(op, &part[r]);
    for (size_t i = 0; i < tensor_count(&whole[r]); i++) {
        float sum = 0;
        for (int k = 0; k < nranks; k++)
            sum += part[k].data[i];
        whole[r].data[i] = sum;
    }
    tensor_out(op, &whole[r]);
    tensor_op_end(op);
    RLK_TAP(module_end, ctx);
}

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int step = 0; step < 3; step++) {
        for (int r = me; r < nranks; r += nthreads)
            compute(r, step);
        pthread_barrier_wait(&all_here);
        for (int r = me; r < nranks; r += nthreads)
            reduce(r);
        pthread_barrier_wait(&all_here);
    }
    return NULL;
}

static int ranks(void)
{
    pthread_t threads[MAX_THREADS];
    pthread_barrier_init(&all_here, NULL, (unsigned)nthreads);
    for (int r = 0; r < nranks; r++) {
        part[r] = tensor_new("y", 8, 16);
        whole[r] = tensor_new("y", 8, 16);
    }
    for (int i = 0; i < nthreads; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
            return 1;
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    for (int r = 0; r < nranks; r++) {
        tensor_free(&part[r]);
        tensor_free(&whole[r]);
    }
    return 0;
}

static void *come_and_go(void *arg)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context(0);
    for (int i = 0; i < 2; i++)
        tensor_op_end(tensor_op(ctx, arg ? "shared" : "churn"));
    return NULL;
}

static int churn(int n)
{
    pthread_t threads[8];
    for (int i = 0; i < n; i++) {
        if (i >= 8)
            pthread_join(threads[i % 8], NULL);
        if (pthread_create(&threads[i % 8], NULL, come_and_go, NULL))
            return 1;
    }
    for (int i = 0; i < 8 && i < n; i++)
        pthread_join(threads[(n - 1 - i) % 8], NULL);
    return 0;
}

static void *share(void *arg)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context(0);
    RLK_TAP(module_at, ctx, "m", "bwd", 0);
    for (int i = 0; i < 1000; i++)
        come_and_go(arg);
    return NULL;
}

static void *record_until_cancelled(void *arg)
{
    struct rlk_tap_ctx *ctx = rlk_tap_context(0);
    while (!arg) {
        int old;
        tensor_op_end(tensor_op(ctx, "cancel"));
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old); /* TSan is lost when usleep() is cancelled */
        usleep(20);
        pthread_setcancelstate(old, NULL);
        pthread_testcancel();
    }
    return NULL;
}

static int cancel(void)
{
    pthread_t threads[4];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, record_until_cancelled, NULL))
                return 1;
        usleep(20000);
        for (int i = 0; i < 4; i++)
            pthread_cancel(threads[i]);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}

static int shared(void)
{
    pthread_t threads[4];
    RLK_TAP(step, rlk_tap_context(0), 5);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, share, &nranks))
            return 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "ranks";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(mode, "churn"))
        return churn(n > 0 ? n : 1000);
    if (!strcmp(mode, "shared"))
        return shared();
    if (!strcmp(mode, "cancel"))
        return cancel();
    nranks = n > 0 && n <= MAX_RANKS ? n : nranks;
    n = argc > 3 ? atoi(argv[3]) : 0;
    nthreads = n > 0 && n <= MAX_THREADS ? n : nthreads;
    return strcmp(mode, "ranks") ? 2 : ranks();
}
