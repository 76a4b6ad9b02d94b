/* rlki_cpu.h - what the instruction sets share, and their tables. Internal. */
#ifndef KERNELS_RLKI_CPU_H
#define KERNELS_RLKI_CPU_H

#include "kernels/rlki_prims.h"

void *rlki_cpu_alloc(struct rlk_exec *x, size_t bytes);
void rlki_cpu_free(struct rlk_exec *x, void *p);
int rlki_cpu_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
int rlki_cpu_zero(struct rlk_exec *x, void *p, size_t bytes);
int rlki_cpu_sync(struct rlk_exec *x);
int rlki_cpu_rows(struct rlk_exec *x, const struct rlki_rows *r);
int rlki_cpu_cells(struct rlk_exec *x, const struct rlki_cells *a);

extern const struct rlki_prims rlki_prims_cpu_generic;
#if defined(__x86_64__)
extern const struct rlki_prims rlki_prims_cpu_avx2, rlki_prims_cpu_avx512;
#endif

#endif
