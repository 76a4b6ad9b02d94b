/* rlk_cuda_symbols.h - entry points of the CUDA driver, found at run time: nothing links against it. Inside the project. */
#ifndef STORE_RLK_CUDA_SYMBOLS_H
#define STORE_RLK_CUDA_SYMBOLS_H

#include "store/rlk_error.h"

#include <stdbool.h>
#include <stddef.h>

struct rlki_cuda_symbol {
    const char *name;
    size_t at; /* offset of the function pointer in the table to fill */
};

/* Fills the pointers of `out`. `load`: brings the driver into a process that has none yet. RLK_EUNSUPPORTED: there is no
 * driver, or it lacks an entry. */
int rlki_cuda_symbols(void *out, const struct rlki_cuda_symbol *table, size_t n, bool load, struct rlk_detail *detail);

#endif
