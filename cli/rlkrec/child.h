/* child.h - runs the command as a shell would run it in the foreground, and waits.
 *
 * The command is a child in our process group with our stdin, stdout, stderr, signal mask and dispositions: the
 * terminal's ^C, ^\ and ^Z reach it directly. A signal that was sent to us alone (kill, a batch system, a container's
 * stop) is passed on; we never die of it before the command has.
 */
#ifndef CLI_RLKREC_CHILD_H
#define CLI_RLKREC_CHILD_H

#include <sys/types.h>

struct rlki_child {
    pid_t pid;
    int exec_error;   /* errno of a failed exec, else 0 */
    int code, signal; /* how it ended: signal 0 = exited with code */
    double seconds;
    long max_rss_kb;
};

/* To be called first: from here on a stderr that nobody reads any more does not kill us. The command gets SIGPIPE as we
 * found it. */
void rlki_child_prepare(void);

/* Runs argv with environment envp and waits for it. 0, or an errno if no process could be made. */
int rlki_child_run(struct rlki_child *child, char *const *argv, char *const *envp);

/* Replaces this process by argv; returns the errno when that fails. */
int rlki_child_become(char *const *argv, char *const *envp);

/* The status a shell gives: code, 128 + signal, 127 not found, 126 not executable. Tells an exec error on stderr. */
int rlki_child_status(const struct rlki_child *child, const char *command);

#endif
