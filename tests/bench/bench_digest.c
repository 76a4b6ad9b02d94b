/* bench_digest.c - the CPU digest against a plain loop of xxHash calls over the same units, in one process.
 *
 * usage: bench.digest [MiB] [--check RATIO]
 * "plain" gathers into a contiguous copy where the tensor is strided, then calls XXH3 once for h and once for g of each
 * unit with the length as a variable; it counts nothing and looks for no special values. Best of several interleaved
 * rounds. With --check the exit status is 1 if a contiguous row is slower than RATIO times the plain loop.
 */
#include "store/rlk_digest.h"
#include "tests/store/fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define ROUNDS 7

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Not inlined into a constant length: what a caller of the library gets. */
__attribute__((noinline)) static unsigned __int128 plain(const unsigned char *p, uint64_t units, size_t len)
{
    unsigned __int128 sum = 0;
    uint64_t multiset = 0;
    for (uint64_t i = 0; i < units; i++, p += len) {
        XXH128_hash_t h = XXH3_128bits(p, len);
        uint64_t b[2] = {h.low64, h.high64};
        XXH128_hash_t g = XXH3_128bits_withSeed(b, sizeof b, i);
        sum += (unsigned __int128)g.high64 << 64 | g.low64;
        multiset += h.low64;
    }
    return sum ^ multiset;
}

/* Row-major copy of a 2-D view, the way one would write it. */
__attribute__((noinline)) static void copy_out(unsigned char *out, const struct rlk_view *v, size_t size)
{
    const unsigned char *in = v->storage;
    for (uint64_t i = 0; i < v->shape[0]; i++)
        for (uint64_t j = 0; j < v->shape[1]; j++, out += size)
            memcpy(out, in + ((int64_t)i * v->strides[0] + (int64_t)j * v->strides[1]) * (int64_t)size, size);
}

enum order { CONTIGUOUS, TRANSPOSED, EXPANDED, SPECIAL };

static volatile uint64_t sink;

static double bench(enum rlk_dtype dtype, uint64_t D, enum order order, unsigned char *storage, unsigned char *scratch,
                    size_t bytes)
{
    static const char *const names[] = {"contiguous", "transposed", "expanded", "special"};
    const size_t size = rlk_dtype_bytes(dtype);
    const uint64_t rows = bytes / size / D, shape[2] = {rows, D}, line[1] = {rows * D};
    const int64_t strides[3][2] = {{(int64_t)D, 1}, {1, (int64_t)rows}, {0, 1}};
    const bool flat = D == 1;
    struct rlk_view view = {.dtype = dtype,
                            .ndim = flat ? 1 : 2,
                            .shape = flat ? line : shape,
                            .strides = flat ? NULL : strides[order == SPECIAL ? CONTIGUOUS : order],
                            .storage = storage,
                            .storage_bytes = bytes};
    const uint64_t u = rlk_unit_length(dtype, view.ndim, view.shape);
    double ours = 1e9, theirs = 1e9;
    struct rlk_sums sums;
    bool composable;
    for (int round = 0; round < ROUNDS; round++) {
        double t0 = now();
        if (rlk_digest_view(&sums, &composable, &view, NULL, NULL) != RLK_OK)
            abort();
        double t1 = now();
        const unsigned char *from = storage;
        if (!flat && order != CONTIGUOUS && order != SPECIAL) {
            copy_out(scratch, &view, size);
            from = scratch;
        }
        sink = (uint64_t)plain(from, rows * D / u, u * size);
        double t2 = now();
        ours = t1 - t0 < ours ? t1 - t0 : ours;
        theirs = t2 - t1 < theirs ? t2 - t1 : theirs;
    }
    double gb = (double)(rows * D * size) / 1e9;
    printf("%-8s u=%-2llu %4zu-byte units  %-10s  ours %6.2f GB/s  plain %6.2f GB/s  ratio %.2f\n",
           rlk_dtype_name(dtype), (unsigned long long)u, (size_t)u * size, names[order], gb / ours, gb / theirs,
           ours / theirs);
    return ours / theirs;
}

int main(int argc, char **argv)
{
    size_t mib = 32;
    double limit = 0, worst = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0 && i + 1 < argc)
            limit = strtod(argv[++i], NULL);
        else
            mib = strtoul(argv[i], NULL, 10);
    }
    const size_t bytes = mib << 20;
    unsigned char *storage = malloc(bytes), *scratch = malloc(bytes);
    if (mib == 0 || !storage || !scratch)
        return 2;
    static const enum rlk_dtype types[] = {RLK_BF16, RLK_FP32, RLK_INT64, RLK_FP8_E4M3};
    static const uint64_t widths[] = {1, 32, 64, 4096}; /* u = 1, 4, 8, 16 */
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        size_t size = rlk_dtype_bytes(types[t]);
        for (size_t k = 0; k < bytes / size; k++) /* ordinary numbers, cheap to make */
            rlk_scalar_store(types[t], storage + k * size,
                             rlk_scalar_from_double(types[t], (double)(k * 2654435761u % 199) + 1));
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            double ratio = bench(types[t], widths[w], CONTIGUOUS, storage, scratch, bytes);
            worst = ratio > worst ? ratio : worst;
            if (widths[w] == 1)
                continue;
            bench(types[t], widths[w], TRANSPOSED, storage, scratch, bytes);
            bench(types[t], widths[w], EXPANDED, storage, scratch, bytes);
        }
        if (rlk_dtype_is_integer(types[t]))
            continue;
        for (size_t k = 0; k < bytes / size; k += 2) /* every other element -0: every unit is hashed twice */
            rlk_scalar_store(types[t], storage + k * size, UINT64_C(1) << (8 * size - 1));
        bench(types[t], 4096, SPECIAL, storage, scratch, bytes);
    }
    printf("slowest contiguous row: %.2f times the plain loop\n", worst);
    free(storage);
    free(scratch);
    return limit > 0 && worst > limit;
}
