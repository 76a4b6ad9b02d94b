/* cpu_dispatch.c - memory of the CPU, sums of cells, and the choice of the instruction set. */
#include <stdlib.h>
#include <string.h>

#include "kernels/rlki_cpu.h"

void *rlki_cpu_alloc(struct rlk_exec *x, size_t bytes)
{
    (void)x;
    void *p = NULL;
    return posix_memalign(&p, 256, bytes ? bytes : 1) == 0 ? p : NULL;
}

void rlki_cpu_free(struct rlk_exec *x, void *p)
{
    (void)x;
    free(p);
}

int rlki_cpu_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    (void)x;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}

int rlki_cpu_zero(struct rlk_exec *x, void *p, size_t bytes)
{
    (void)x;
    if (bytes)
        memset(p, 0, bytes);
    return 0;
}

int rlki_cpu_sync(struct rlk_exec *x)
{
    (void)x;
    return 0;
}

int rlki_cpu_rows(struct rlk_exec *x, const struct rlki_rows *r)
{
    (void)x;
    for (int64_t i = 0; i < r->rows; i++) {
        const size_t at = (size_t)(r->index ? r->index[i] : i);
        memcpy((char *)r->dst + (r->scatter ? at : (size_t)i) * r->dst_stride,
               (const char *)r->src + (r->scatter ? (size_t)i : at) * r->src_stride, r->bytes);
    }
    return 0;
}

/* ((0+1)+(2+3))+((4+5)+(6+7)), or the one. */
static double tree(const double *v, int count)
{
    return count == RLK_SLABS ? ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])) : v[0];
}

int rlki_cpu_cells(struct rlk_exec *x, const struct rlki_cells *a)
{
    double rows[RLK_SLABS], cols[RLK_SLABS];
    (void)x;
    for (int r = 0; r < a->row_slabs; r++) {
        rows[r] = 0.0;
        for (int64_t k = 0; k < a->blocks; k++) {
            for (int c = 0; c < a->col_slabs; c++)
                cols[c] = a->all[rlki_cell(a, r, k, c)];
            rows[r] += tree(cols, a->col_slabs);
        }
    }
    *a->out = tree(rows, a->row_slabs);
    return 0;
}

const struct rlki_prims *rlki_prims_cpu(void)
{
    const char *want = getenv("RLK_CPU_ISA");
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (avx512 && (!want || strcmp(want, "avx512") == 0))
        return &rlki_prims_cpu_avx512;
    if (avx2 && (!want || strcmp(want, "generic") != 0))
        return &rlki_prims_cpu_avx2;
#else
    (void)want;
#endif
    return &rlki_prims_cpu_generic;
}
