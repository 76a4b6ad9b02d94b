/* rec_watch.c - the program's main thread may leave by pthread_exit(); the process then ends with its last thread. The
 * writer's thread must not be that one: it would keep the process alive for ever. So from the moment that the main
 * thread is gone, or may go without our noticing, a watcher waits until nobody but the writer and itself is left, and
 * closes. */
#include "recorder/rec.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAST_NS 10000000L  /* the main thread is gone */
#define SLOW_NS 100000000L /* it is there, but leaves unseen, or is just leaving */

static bool is_zombie(const char *tid)
{
    char path[64], stat[256];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    stat[n] = 0;
    const char *after = strrchr(stat, ')'); /* the name may hold anything */
    return after && (after[2] == 'Z' || after[2] == 'X');
}

static bool main_is_gone(void)
{
    char tid[24];
    snprintf(tid, sizeof tid, "%ld", (long)getpid());
    return is_zombie(tid);
}

static unsigned living_threads(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d)
        return UINT32_MAX;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && !is_zombie(e->d_name))
            n++;
    closedir(d);
    return n;
}

static bool worth_watching(const struct rlki_rec *state)
{
    return rlki_rec_is_current(state) && __atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) == RLKI_OPEN;
}

static void *watch(void *value)
{
    struct rlki_rec *state = value;
    do {
        while (worth_watching(state)) {
            bool gone = main_is_gone();
            if (gone && living_threads() <= 2) { /* the writer and this one */
                rlki_rec_close();
                return NULL;
            }
            if (!gone && __atomic_load_n(&state->main_seen, __ATOMIC_SEQ_CST))
                break; /* its own exit hook will start a watcher */
            nanosleep(&(struct timespec){0, gone ? FAST_NS : SLOW_NS}, NULL);
        }
        __atomic_store_n(&state->watched, 0, __ATOMIC_SEQ_CST);
        /* The hook may have run just now and taken us for the watcher that it wants. */
    } while (worth_watching(state) && !__atomic_load_n(&state->main_seen, __ATOMIC_SEQ_CST) &&
             !__atomic_exchange_n(&state->watched, 1, __ATOMIC_SEQ_CST));
    return NULL;
}

void rlki_watch(struct rlki_rec *state)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (__atomic_exchange_n(&state->watched, 1, __ATOMIC_SEQ_CST))
        return;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, (size_t)256 << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attr, watch, state))
        __atomic_store_n(&state->watched, 0, __ATOMIC_RELEASE);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}
