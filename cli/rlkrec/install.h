/* install.h - where rlkrec's own parts are, seen from its executable: build tree and installation alike. */
#ifndef CLI_RLKREC_INSTALL_H
#define CLI_RLKREC_INSTALL_H

#include <limits.h>
#include <stdbool.h>

struct rlki_install {
    char library[PATH_MAX]; /* librlkrec.so: RLKREC_LIBRARY, else beside the executable; "" if there is none */
    char python[PATH_MAX];  /* what goes in front of PYTHONPATH; "" if there is none */
    bool loads;             /* the library can be loaded and has the tap's table */
    bool injects;           /* it provides InitializeInjection (CUDA_INJECTION64_PATH) */
    char error[512];        /* why not */
};

/* Looks, and tries the library in a child, so that nothing of it stays in this process. */
void rlki_install_find(struct rlki_install *out);

#endif
