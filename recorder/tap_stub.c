/* tap_stub.c - librlktap.a: finds the recorder once, or finds that there is none. Depends on libc (dlopen) only. */
#include "recorder/rlk_env.h"
#include "recorder/rlk_tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef const struct rlk_tap_api *(*table_function)(uint32_t abi);

/* Stands for "not looked for yet", so that the common case is one load and one branch. */
static const struct rlk_tap_api unopened;
static const struct rlk_tap_api *current = &unopened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complain(const char *library, const char *why)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "rlkrec: cannot load the recorder %s: %s; going on without recording", library,
                     why ? why : "unknown reason");
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    for (size_t i = 0; i < len; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    line[len] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len + 1);
    (void)written; /* nowhere left to say it */
}

static const struct rlk_tap_api *load(const char *library)
{
    /* Never unloaded: contexts and thread-exit hooks point into it. */
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        complain(library, dlerror());
        return NULL;
    }
    table_function table = NULL;
    void *symbol = dlsym(handle, "rlk_tap_table");
    memcpy(&table, &symbol, sizeof table); /* ISO C has no cast from object to function pointer */
    if (!table) {
        complain(library, "it has no rlk_tap_table");
        return NULL;
    }
    const struct rlk_tap_api *api = table(RLK_TAP_ABI);
    if (!api || api->abi != RLK_TAP_ABI) {
        complain(library, "it speaks another version of the tap interface");
        return NULL;
    }
    return api->level == RLK_TAP_OFF ? NULL : api;
}

static void find_recorder(void)
{
    int saved = errno;
    const char *library = secure_getenv(RLK_ENV_LIBRARY);
    const struct rlk_tap_api *api = library && *library ? load(library) : NULL;
    __atomic_store_n(&current, api, __ATOMIC_RELEASE);
    errno = saved;
}

static __attribute__((noinline, cold)) const struct rlk_tap_api *find_once(void)
{
    int saved = errno;
    pthread_once(&once, find_recorder); /* glibc starts it anew in a child forked in its middle */
    errno = saved;
    return __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}

const struct rlk_tap_api *rlk_tap(void)
{
    const struct rlk_tap_api *api = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    return __builtin_expect(api == &unopened, 0) ? find_once() : api;
}
