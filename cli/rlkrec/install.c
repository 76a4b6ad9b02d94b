#include "cli/rlkrec/install.h"

#include "recorder/rlk_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool executable_dir(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    char *slash;

    if (n <= 0)
        return false;
    out[n] = 0;
    slash = strrchr(out, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

/* The first of `places` below the executable's directory that exists, as a real path; "" if none does. */
static void first_of(char out[PATH_MAX], const char *const *places)
{
    char dir[PATH_MAX], path[PATH_MAX + 128];

    out[0] = 0;
    if (!executable_dir(dir, sizeof dir))
        return;
    for (size_t i = 0; places[i] && !out[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, places[i]);
        if (!realpath(path, out))
            out[0] = 0;
    }
}

/* In the child: the answer is two bytes, then the loader's message. */
static void try_library(int to, const char *path)
{
    char answer[512] = {0};
    size_t n = 2;
    void *library;

    unsetenv(RLK_ENV_RECORDING);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        answer[0] = dlsym(library, "rlk_tap_table") != NULL;
        answer[1] = dlsym(library, "InitializeInjection") != NULL;
    }
    if (!answer[0]) {
        const char *why = library ? "it is not the recorder's library" : dlerror();
        n += (size_t)snprintf(answer + 2, sizeof answer - 2, "%s", why ? why : "cannot be loaded");
        n = n < sizeof answer ? n : sizeof answer - 1;
    }
    _exit(write(to, answer, n) == (ssize_t)n ? 0 : 1);
}

static void probe(struct rlki_install *out)
{
    char answer[512] = {0};
    size_t n = 0;
    int report[2], status = 0;
    pid_t pid;

    if (pipe(report)) {
        snprintf(out->error, sizeof out->error, "%s", strerror(errno));
        return;
    }
    pid = fork();
    if (pid == 0) {
        close(report[0]);
        try_library(report[1], out->library);
    }
    close(report[1]);
    while (pid > 0 && n < sizeof answer - 1) {
        ssize_t got = read(report[0], answer + n, sizeof answer - 1 - n);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    close(report[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    out->loads = n >= 2 && answer[0];
    out->injects = n >= 2 && answer[1];
    if (!out->loads)
        snprintf(out->error, sizeof out->error, "%s", n > 2 ? answer + 2 : "loading it ends the process");
}

void rlki_install_find(struct rlki_install *out)
{
    static const char *const libraries[] = {"../lib/librlkrec.so", "../lib64/librlkrec.so", "../recorder/librlkrec.so",
                                            NULL};
    static const char *const pythons[] = {"../share/rlkrec/recorder/torch/python", NULL};
    const char *named = getenv(RLK_ENV_LIBRARY);

    memset(out, 0, sizeof *out);
    first_of(out->python, pythons);
    if (named && named[0]) {
        if (!realpath(named, out->library))
            snprintf(out->error, sizeof out->error, "%s (" RLK_ENV_LIBRARY "): %s", named, strerror(errno));
    } else {
        first_of(out->library, libraries);
        if (!out->library[0])
            snprintf(out->error, sizeof out->error, "librlkrec.so is not beside rlkrec");
    }
    if (out->library[0])
        probe(out);
}
