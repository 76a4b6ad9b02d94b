#include "store/rlk_cuda_symbols.h"

#include <dlfcn.h>
#include <string.h>

int rlki_cuda_symbols(void *out, const struct rlki_cuda_symbol *table, size_t n, bool load, struct rlk_detail *detail)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
    if (!lib)
        return rlk_fail(detail, RLK_EUNSUPPORTED,
                        load ? "no CUDA driver (libcuda.so.1)" : "the process has no CUDA driver (libcuda.so.1)");
    for (size_t i = 0; i < n; i++) {
        void *f = dlsym(lib, table[i].name);
        if (!f)
            return rlk_fail(detail, RLK_EUNSUPPORTED, "the CUDA driver has no %s", table[i].name);
        memcpy((char *)out + table[i].at, &f, sizeof f);
    }
    return RLK_OK;
}
