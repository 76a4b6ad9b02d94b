/* The writer on one core: launch events a second, bytes on the disk an event, and what a put costs its caller.
 *
 *   bench_writer [EVENTS [DIR]]
 *
 * Producer and writer thread are pinned to one CPU, so the rate is what one core does in all. Figures, no assertion:
 * the yardstick in the same run is a plain copy of as many bytes as the events hold.
 */
#include "store/rlk_reader.h"
#include "store/rlk_writer.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#define KERNELS 400u
#define BLOCKS 3000u /* distinct parameter blocks of 96 bytes */

static char kernels[KERNELS][200], modules[64][48];
static rlk_u128 blocks[BLOCKS];

static int put_launch(struct rlk_producer *p, uint64_t n)
{
    struct rlk_launch l = {.kernel = kernels[n % KERNELS], .image = "a3f09c2e11d04b7c", .graph = RLK_NO_NODE};
    l.node = RLK_NO_NODE;
    l.grid[0] = (uint32_t)(1 + n % 7);
    l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
    l.block[0] = 256;
    l.smem = 49152;
    l.stream = 7;
    l.has_params = true;
    l.params = blocks[n % BLOCKS];
    struct rlk_event e = {.kind = RLK_EV_LAUNCH, .rank = 3, .thread = 1, .stream = 7, .nlaunches = 1, .launches = &l};
    e.who.step = (int64_t)(n / 100000);
    e.who.phase = "actor_train";
    e.who.pass = "fwd";
    e.who.module = modules[n / 20 % 64];
    e.who.op = "aten::mm";
    e.who.occurrence = (uint32_t)(n % 20);
    e.u.launch.count = 1;
    e.u.launch.entry = "cuLaunchKernelEx";
    e.u.launch.count = 1;
    return rlk_producer_put(p, &e, NULL);
}

static int put_op(struct rlk_producer *p, uint64_t n)
{
    static const uint64_t shape[2] = {128, 4096};
    struct rlk_tensor t[2] = {{.name = "self", .state = RLK_T_REFERENCE, .dtype = RLK_BF16, .ndim = 2, .shape = shape},
                              {.name = "out", .role = RLK_ROLE_OUT, .dtype = RLK_BF16, .ndim = 2, .shape = shape}};
    t[0].ref_event = n ? n - 1 : 0;
    t[1].sums.positional = t[1].sums.value = (rlk_u128){mix(n), mix(~n)};
    t[1].sums.multiset = mix(n * 3);
    t[1].sums.elements = 128 * 4096;
    struct rlk_event e = {.kind = RLK_EV_OP, .rank = 3, .thread = 1, .stream = 7, .ntensors = 2, .tensors = t};
    e.who.step = (int64_t)(n / 100000);
    e.who.phase = "actor_train";
    e.who.pass = "fwd";
    e.who.module = modules[n / 20 % 64];
    e.who.op = "aten::mm";
    e.who.occurrence = (uint32_t)(n % 20);
    return rlk_producer_put(p, &e, NULL);
}

static int bench(const char *base, const char *what, int (*put)(struct rlk_producer *p, uint64_t n), uint64_t events)
{
    char dir[512], file[600];
    struct rlk_writer *w;
    struct rlk_producer *p;
    struct rlk_detail detail = {""};
    struct stat st;
    uint64_t dropped = 0;
    snprintf(dir, sizeof dir, "%s/%s", base, what);
    int rc = rlk_writer_open(&w, &(struct rlk_writer_options){.dir = dir}, &detail);
    if (rc == RLK_OK)
        rc = rlk_writer_producer(w, &p);
    if (rc) {
        fprintf(stderr, "%s\n", detail.text);
        return rc;
    }
    unsigned char block[96] = {0};
    for (uint32_t i = 0; i < BLOCKS; i++) {
        for (size_t k = 0; k < sizeof block; k += 8) {
            uint64_t v = mix(i * 1000 + k);
            memcpy(block + k, &v, 8);
        }
        rlk_producer_payload(p, block, sizeof block, &blocks[i]);
    }
    double t0 = now(), c0 = cpu();
    for (uint64_t n = 0; n < events; n++)
        dropped += put(p, n) != RLK_OK;
    double t1 = now();
    struct rlk_coverage cov;
    rlk_writer_coverage(w, &cov);
    rc = rlk_writer_close(w, false, &detail);
    double t2 = now(), c2 = cpu();
    snprintf(file, sizeof file, "%s/data.mdb", dir);
    if (stat(file, &st))
        return RLK_EIO;
    printf("%-8s %llu events: %.2f M/s to the end of close (%.2f s wall, %.2f s CPU = %.0f ns an event = %.2f M/s of "
           "one core), puts %.2f s, "
           "waited %.2f s, dropped %llu, %.1f bytes an event on disk\n",
           what, (unsigned long long)events, (double)events / (t2 - t0) * 1e-6, t2 - t0, c2 - c0,
           (c2 - c0) / (double)events * 1e9, (double)events / (c2 - c0) * 1e-6, t1 - t0, (double)cov.stall_ns * 1e-9,
           (unsigned long long)dropped, (double)st.st_size / (double)events);
    double r0 = now();
    struct rlk_env *env;
    rc = rlk_env_open(&env, dir, &detail);
    if (rc == RLK_OK) {
        double r1 = now();
        bool complete = rlk_env_complete(env);
        rc = rlk_env_verify(env, &detail);
        printf("%-8s open %.2f ms, complete %d, full verification %.2f s (%.2f M events/s): %s\n", what,
               (r1 - r0) * 1e3, complete, now() - r1, (double)events / (now() - r1) * 1e-6, rc ? detail.text : "good");
        rlk_env_close(env);
    }
    return rc;
}

int main(int argc, char **argv)
{
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 0) : 3000000;
    char base[256];
    snprintf(base, sizeof base, "%s/rlk-bench-XXXXXX", argc > 2 ? argv[2] : "/tmp");
    if (!mkdtemp(base))
        return 2;
    cpu_set_t one;
    CPU_ZERO(&one);
    int here = sched_getcpu();
    CPU_SET((size_t)(here < 0 ? 0 : here), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (uint32_t i = 0; i < KERNELS; i++)
        snprintf(
            kernels[i], sizeof kernels[i],
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EE"
            "EEviT0_T1_%u",
            i);
    for (uint32_t i = 0; i < 64; i++)
        snprintf(modules[i], sizeof modules[i], "model.layers.%u.mlp.down_proj", i);
    size_t bytes = 700;
    char *from = calloc(bytes, 1024), *to = calloc(bytes, 1024);
    double t0 = now();
    for (uint64_t n = 0; n < events && from && to; n++)
        memcpy(to + n % 1024 * bytes, from + n % 1000 * bytes, bytes);
    printf("yardstick: copying %zu bytes an event %.0f ns (%d)\n", bytes, (now() - t0) / (double)events * 1e9,
           to ? to[events % bytes] : 0);
    free(from);
    free(to);
    int rc = bench(base, "launch", put_launch, events);
    if (rc == RLK_OK)
        rc = bench(base, "op", put_op, events);
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    if (system(command) != 0)
        return 2;
    return rc ? 2 : 0;
}
