/* bench_adapter.c - what one thread needs to digest the tensors of one recorded step with a plain loop of xxHash calls.
 *
 * usage: bench.adapter ENVIRONMENT STEP       prints seconds, bytes and tensors: best of five passes
 * The loop makes h and g of each unit with the unit lengths of docs/digest.md, over bytes that are contiguous already;
 * it counts nothing and looks for no special values. The bytes lie in fresh memory, one tensor after the other.
 */
#include "store/rlk_digest.h"
#include "store/rlk_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

struct item {
    uint64_t units;
    size_t bytes; /* of a unit */
};

struct list {
    int64_t step;
    struct item *items;
    size_t n, capacity, bytes;
};

static int collect(void *context, const struct rlk_event *event)
{
    struct list *list = context;
    for (uint32_t i = 0; event->who.step == list->step && i < event->ntensors; i++) {
        const struct rlk_tensor *t = &event->tensors[i];
        uint64_t n = 1, u = rlk_unit_length(t->dtype, t->ndim, t->shape);
        for (uint32_t d = 0; d < t->ndim; d++)
            n *= t->shape[d];
        if (t->state != RLK_T_DIGESTED || n == 0)
            continue;
        if (list->n == list->capacity) {
            list->capacity = list->capacity ? list->capacity * 2 : 1024;
            list->items = realloc(list->items, list->capacity * sizeof *list->items);
            if (!list->items)
                return RLK_ENOMEM;
        }
        list->items[list->n++] = (struct item){n / u, u * rlk_dtype_bytes(t->dtype)};
        list->bytes += n / u * u * rlk_dtype_bytes(t->dtype);
    }
    return RLK_OK;
}

__attribute__((noinline)) static unsigned __int128 plain(const unsigned char *p, uint64_t units, size_t len)
{
    unsigned __int128 sum = 0;
    for (uint64_t i = 0; i < units; i++, p += len) {
        XXH128_hash_t h = XXH3_128bits(p, len);
        uint64_t b[2] = {h.low64, h.high64};
        XXH128_hash_t g = XXH3_128bits_withSeed(b, sizeof b, i);
        sum += ((unsigned __int128)g.high64 << 64 | g.low64) + h.low64;
    }
    return sum;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    struct rlk_detail detail = {""};
    struct rlk_env *env = NULL;
    struct list list = {0};
    unsigned char *bytes = NULL;
    volatile uint64_t sink = 0;
    double best = 1e9;
    int rc = 2;
    if (argc != 3 || rlk_env_open(&env, argv[1], &detail)) {
        fprintf(stderr, "usage: bench.adapter ENVIRONMENT STEP %s\n", detail.text);
        return 2;
    }
    list.step = strtoll(argv[2], NULL, 10);
    if (rlk_env_scan(env, 0, rlk_env_count(env), collect, &list, &detail) || !(bytes = malloc(list.bytes + 1)))
        goto out;
    memset(bytes, 1, list.bytes + 1);
    for (int pass = 0; pass < 5; pass++) {
        const unsigned char *p = bytes;
        double start = now();
        for (size_t i = 0; i < list.n; i++) {
            sink += (uint64_t)plain(p, list.items[i].units, list.items[i].bytes);
            p += list.items[i].units * list.items[i].bytes;
        }
        double took = now() - start;
        best = took < best ? took : best;
    }
    (void)sink; /* keeps the loop */
    printf("%.6f %zu %zu\n", best, list.bytes, list.n);
    rc = 0;
out:
    free(bytes);
    free(list.items);
    rlk_env_close(env);
    return rc;
}
