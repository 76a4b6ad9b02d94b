/* rec_injection.c - the driver loads one injected library (CUDA_INJECTION64_PATH). Where a debugger or profiler took
 * the place, there are no launches in the recording: this says so, by name. */
#include "recorder/rec.h"
#include "recorder/rlk_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the driver calls in us, where the launch plane was built. */
__attribute__((weak)) int InitializeInjection(void);

/* Libraries that tools put into a process, and the tools. */
static const struct {
    const char *library, *tool;
} tools[] = {{"libsanitizer-", "compute-sanitizer"},
             {"libInterceptorInjection", "compute-sanitizer or Nsight Compute"},
             {"libTreeLauncherTargetInjection", "compute-sanitizer or Nsight Compute"},
             {"libToolsInjection", "Nsight Systems"},
             {"libcuda-injection", "Nsight Compute"},
             {"libcudadebugger", "cuda-gdb"}};

static const char *tool_of(const char *path)
{
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        if (strstr(path, tools[i].library))
            return tools[i].tool;
    return NULL;
}

/* Which tool's library is in the process; *driver: is CUDA's? */
static const char *tool_in_process(bool *driver)
{
    char line[1024];
    const char *tool = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    *driver = false;
    while (maps && fgets(line, sizeof line, maps)) {
        const char *path = strchr(line, '/');
        if (!path)
            continue;
        *driver |= strstr(path, "/libcuda.so.") != NULL;
        tool = tool ? tool : tool_of(path);
    }
    if (maps)
        fclose(maps);
    return tool;
}

void rlki_injection_check(bool in_use)
{
    const char *there = getenv("CUDA_INJECTION64_PATH"), *ours = getenv(RLK_ENV_LIBRARY), *tool;
    char text[700];
    bool driver = false;
    if (rlki_launch_plane() || !InitializeInjection)
        return;
    const bool other = there && *there && ours && strcmp(there, ours) != 0;
    tool = tool_in_process(&driver);
    /* Without a sign of somebody else, CUDA may only not have started. */
    if (!driver || !(in_use || other || tool))
        return;
    if (!tool && other)
        tool = tool_of(there);
    if (other)
        snprintf(text, sizeof text,
                 "%s took the place of the recorder in CUDA (CUDA_INJECTION64_PATH=%.300s): launches are not recorded",
                 tool ? tool : "another tool", there);
    else
        snprintf(text, sizeof text,
                 "%s%sthe driver did not load the recorder (CUDA_INJECTION64_PATH%s): launches are not recorded",
                 tool ? tool : "", tool ? " is in this process, " : "", there && *there ? "" : " is not set");
    rlki_fault("launch-plane", text);
}
