#include "cli/rlkrec/child.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Signals that are passed on. SIGCHLD, SIGTSTP and SIGCONT are waited for as well, see wait_for(). */
static const int passed_on[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct sigaction found_pipe; /* SIGPIPE as our parent left it */
static bool prepared;

void rlki_child_prepare(void)
{
    struct sigaction ignore;

    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler = SIG_IGN;
    prepared = sigaction(SIGPIPE, &ignore, &found_pipe) == 0;
}

int rlki_child_become(char *const *argv, char *const *envp)
{
    if (prepared)
        sigaction(SIGPIPE, &found_pipe, NULL);
    execvpe(argv[0], argv, envp);
    return errno;
}

static int is_passed_on(int sig)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        if (passed_on[i] == sig)
            return 1;
    return 0;
}

/* By SIGTSTP itself, not SIGSTOP: in an orphaned process group, where nobody could continue us, the kernel ignores it,
 * for us as for the command. */
static void stop_ourselves(void)
{
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here we stop, and go on when continued */
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

/* Every signal in `set` is blocked: they are taken one by one here, so that nothing interrupts anything. */
static void wait_for(struct rlki_child *child, const sigset_t *set)
{
    bool stopped_it = false;

    for (;;) {
        struct rusage usage;
        siginfo_t info;
        int status;
        pid_t pid = wait4(child->pid, &status, WNOHANG, &usage);

        if (pid == child->pid) {
            child->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            child->max_rss_kb = usage.ru_maxrss;
            return;
        }
        if (pid < 0 && errno != EINTR) {
            child->code = RLKI_EXIT_FAULT; /* somebody else reaped it: cannot happen with SIGCHLD at its default */
            return;
        }
        int sig = sigwaitinfo(set, &info);
        /* A signal of the terminal has reached the command already. */
        bool alone = sig > 0 && info.si_code != SI_KERNEL;
        if (sig == SIGTSTP) {
            if (alone) {
                kill(child->pid, SIGTSTP);
                stopped_it = true;
            }
            stop_ourselves();
        } else if (sig == SIGCONT && stopped_it) {
            kill(child->pid, SIGCONT);
            stopped_it = false;
        } else if (is_passed_on(sig) && alone) {
            kill(child->pid, sig);
        }
    }
}

int rlki_child_run(struct rlki_child *child, char *const *argv, char *const *envp)
{
    struct sigaction dfl, was_chld;
    sigset_t set, was_mask;
    int report[2] = {-1, -1}, error = 0;
    double start = now();

    memset(child, 0, sizeof *child);
    if (pipe2(report, O_CLOEXEC))
        return errno;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        sigaddset(&set, passed_on[i]);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, &was_mask);
    memset(&dfl, 0, sizeof dfl);
    dfl.sa_handler = SIG_DFL; /* inherited as ignored, the kernel would reap the command for us */
    sigaction(SIGCHLD, &dfl, &was_chld);

    child->pid = fork();
    if (child->pid < 0) {
        error = errno;
    } else if (child->pid == 0) {
        sigaction(SIGCHLD, &was_chld, NULL);
        sigprocmask(SIG_SETMASK, &was_mask, NULL);
        error = rlki_child_become(argv, envp);
        ssize_t sent = write(report[1], &error, sizeof error);
        _exit(sent == (ssize_t)sizeof error ? RLKI_EXIT_NOT_FOUND : RLKI_EXIT_CANNOT_EXEC);
    }
    close(report[1]);
    if (!error) {
        /* End of file = the exec closed it. */
        while (read(report[0], &child->exec_error, sizeof child->exec_error) < 0 && errno == EINTR)
            continue;
        wait_for(child, &set);
    }
    close(report[0]);
    /* What came in while the command ended does not kill us now: the recording is to be closed. */
    sigaction(SIGCHLD, &was_chld, NULL);
    child->seconds = now() - start;
    return error;
}

int rlki_child_status(const struct rlki_child *child, const char *command)
{
    if (child->exec_error) {
        bool missing = child->exec_error == ENOENT || child->exec_error == ENOTDIR;
        rlki_say("%s: %s", command, missing ? "command not found" : strerror(child->exec_error));
        return missing ? RLKI_EXIT_NOT_FOUND : RLKI_EXIT_CANNOT_EXEC;
    }
    return child->signal ? RLKI_EXIT_SIGNAL + child->signal : child->code;
}
