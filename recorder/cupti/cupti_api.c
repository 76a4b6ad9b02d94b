#include "recorder/cupti/cupti_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The directory of the first mapped file whose name begins with `prefix`; false if none is. */
static bool mapped_dir(const char *prefix, char *out, size_t size)
{
    char line[1024];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return false;
    while (!found && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/'), *name = path ? strrchr(path, '/') : NULL;
        if (!name || strncmp(name + 1, prefix, strlen(prefix)) != 0)
            continue;
        *name = '\0';
        found = (size_t)snprintf(out, size, "%s", path) < size;
    }
    fclose(maps);
    return found;
}

static void *try_dir(const char *dir, const char *below, const char *soname)
{
    char path[1400];
    if ((size_t)snprintf(path, sizeof path, "%s%s/%s", dir, below, soname) >= sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *find(const char *soname)
{
    /* where a wheel's or a toolkit's CUDA runtime lies, CUPTI lies beside it or one of these steps away */
    static const char *const beside[] = {"",
                                         "/../../cuda_cupti/lib",
                                         "/../extras/CUPTI/lib64",
                                         "/../../../extras/CUPTI/lib64",
                                         "/../../nvidia/cu13/lib",
                                         "/../../nvidia/cuda_cupti/lib"};
    static const char *const marks[] = {"libcudart.so", "libtorch_cuda.so", "libc10_cuda.so", "libcublas"};
    char dir[1024];
    void *lib = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
    for (size_t m = 0; !lib && m < sizeof marks / sizeof marks[0]; m++)
        for (size_t b = 0; mapped_dir(marks[m], dir, sizeof dir) && !lib && b < sizeof beside / sizeof beside[0]; b++)
            lib = try_dir(dir, beside[b], soname);
    const char *home = getenv("CUDA_HOME");
    if (!lib && home)
        lib = try_dir(home, "/extras/CUPTI/lib64", soname);
    if (!lib && home)
        lib = try_dir(home, "/lib64", soname);
    if (!lib)
        lib = dlopen(soname, RTLD_NOW | RTLD_LOCAL); /* the loader's path */
    if (!lib)
        lib = try_dir("/usr/local/cuda", "/extras/CUPTI/lib64", soname);
    if (!lib)
        lib = try_dir("/usr/local/cuda", "/lib64", soname);
    return lib;
}

static int resolve(struct rlki_cupti *c, void *cupti, void *driver, struct rlk_detail *detail)
{
    const struct {
        const char *name;
        void *lib;
        size_t at;
        bool needed;
    } table[] = {
#define ENTRY(name, lib, field, needed) {name, lib, offsetof(struct rlki_cupti, field), needed}
        ENTRY("cuptiSubscribe", cupti, subscribe, true),
        ENTRY("cuptiSubscribe_v2", cupti, subscribe_v2, false),
        ENTRY("cuptiUnsubscribe", cupti, unsubscribe, true),
        ENTRY("cuptiEnableCallback", cupti, enable_callback, true),
        ENTRY("cuptiGetCallbackName", cupti, callback_name, true),
        ENTRY("cuptiGetVersion", cupti, version, true),
        ENTRY("cuptiGetResultString", cupti, result_string, true),
        ENTRY("cuptiGetGraphId", cupti, graph_id, false),
        ENTRY("cuptiGetGraphExecId", cupti, graph_exec_id, false),
        ENTRY("cuptiGetGraphNodeId", cupti, graph_node_id, false),
        ENTRY("cuKernelGetParamInfo", driver, kernel_param_info, false),
        ENTRY("cuFuncGetParamInfo", driver, func_param_info, false),
        ENTRY("cuKernelGetName", driver, kernel_name, false),
        ENTRY("cuFuncGetName", driver, func_name, false),
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        void *f = table[i].lib ? dlsym(table[i].lib, table[i].name) : NULL;
        if (!f && table[i].needed)
            return rlk_fail(detail, RLK_EUNSUPPORTED, "this CUPTI has no %s", table[i].name);
        memcpy((char *)c + table[i].at, &f, sizeof f);
    }
    return RLK_OK;
}

int rlki_cupti_open(struct rlki_cupti *out, struct rlk_detail *detail)
{
    char dir[1024];
    memset(out, 0, sizeof *out);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    /* A CUDA 12 program beside a CUDA 13 CUPTI would meet other callback numbers: take the one of its own major. */
    const bool twelve =
        mapped_dir("libcudart.so.12", dir, sizeof dir) || dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    void *cupti = find(twelve ? "libcupti.so.12" : "libcupti.so.13");
    if (!cupti && !twelve)
        cupti = find("libcupti.so.12");
    if (!cupti)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "no libcupti.so.%s was found: launches are not recorded",
                        twelve ? "12" : "13");
    int err = resolve(out, cupti, driver, detail);
    Dl_info info;
    if (!err && dladdr(*(void **)(void *)&out->subscribe, &info) && info.dli_fname)
        snprintf(out->path, sizeof out->path, "%s", info.dli_fname);
    return err;
}
