#include "cli/common/rlk_output.h"

#include "cli/common/rlk_exit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *rlki_program = "rlkrec";

static void say(const char *prefix, const char *format, va_list ap)
{
    char text[4096];

    vsnprintf(text, sizeof text, format, ap);
    fprintf(stderr, "%s: %s%s\n", rlki_program, prefix, rlki_esc(text));
}

void rlki_say(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say("", format, ap);
    va_end(ap);
}

void rlki_warn(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say("warning: ", format, ap);
    va_end(ap);
}

/* Whether the detail alone tells it: the code's sentence would only say it again, or less. */
static bool tells_all(int code, const char *detail)
{
    switch (code) {
    case RLK_ENOMEM:
    case RLK_EINVAL:
    case RLK_ENOENT:
    case RLK_EPARSE:
    case RLK_EUNSUPPORTED:
    case RLK_EPERM:
        return true;
    default:
        return strstr(detail, rlk_error_sentence(code)) != NULL;
    }
}

int rlki_fail(const char *what, int code, const struct rlk_detail *detail)
{
    const char *more = detail && code != RLK_EEXIST && strcmp(detail->text, what) != 0 ? detail->text : "";
    size_t n = strlen(what);
    bool named = strncmp(more, what, n) == 0 && more[n] == ':';

    if (!more[0])
        rlki_say("%s: %s", what, rlk_error_sentence(code));
    else
        rlki_say("%s%s%s%s%s", named ? "" : what, named ? "" : ": ", more, tells_all(code, more) ? "" : ": ",
                 tells_all(code, more) ? "" : rlk_error_sentence(code));
    return RLKI_EXIT_FAULT;
}

static int lost(const char *path)
{
    rlki_say("%s: %s", path, strerror(errno ? errno : EIO));
    return RLKI_EXIT_FAULT;
}

int rlki_finish(int status)
{
    errno = 0;
    if (fflush(stdout) || ferror(stdout))
        return lost("writing to stdout");
    return status;
}

/* A file that takes its name only when it is whole. Devices, pipes and symlinks (/dev/stdout, /dev/fd/N) are written
 * directly: there is nothing to replace. */
static int write_file(const char *path, int (*print)(FILE *to, void *context), void *context)
{
    struct stat st;
    char *temp = NULL;
    FILE *file = NULL;
    int status = RLKI_EXIT_FAULT;
    bool made = false, direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);

    if (direct) {
        file = fopen(path, "w");
    } else if (asprintf(&temp, "%s.XXXXXX", path) > 0) {
        int fd = mkstemp(temp);
        mode_t mask = umask(0);
        umask(mask);
        made = fd >= 0;
        if (fd >= 0 && (fchmod(fd, 0666 & ~mask) || !(file = fdopen(fd, "w"))))
            close(fd);
    }
    if (!file) {
        status = lost(path);
        if (made)
            unlink(temp);
        goto out;
    }
    status = print(file, context);
    errno = 0;
    if (fflush(file) || ferror(file))
        status = lost(path);
    if (fclose(file) && !status)
        status = lost(path);
    if (!direct && (status || rename(temp, path))) {
        if (!status)
            status = lost(path);
        unlink(temp);
    }
out:
    free(temp);
    return status;
}

int rlki_write_text(const char *path, int (*print)(FILE *to, void *context), void *context)
{
    if (strcmp(path, "-") == 0) {
        int status = print(stdout, context);
        return status ? status : rlki_finish(0);
    }
    return write_file(path, print, context);
}

static int print_json(FILE *to, void *context)
{
    const size_t flags = JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY;

    errno = 0;
    if (json_dumpf(context, to, flags) || fputc('\n', to) == EOF)
        return lost("writing JSON");
    return 0;
}

int rlki_write_json(const char *path, const json_t *json)
{
    return rlki_write_text(path, print_json, (void *)(uintptr_t)json);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void rlki_progress_begin(struct rlki_progress *p, const char *what)
{
    const char *term = getenv("TERM");

    p->what = what;
    p->last = now();
    p->shown = false;
    p->on = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void rlki_progress(struct rlki_progress *p, uint64_t done, uint64_t total)
{
    double t;

    if (!p->on)
        return;
    t = now();
    if (t - p->last < 1)
        return;
    p->last = t;
    p->shown = true;
    if (total)
        fprintf(stderr, "\r\x1b[K%s: %s: %s of %s (%.0f %%)", rlki_program, p->what, rlki_count(done),
                rlki_count(total), 100.0 * (double)done / (double)total);
    else
        fprintf(stderr, "\r\x1b[K%s: %s: %s", rlki_program, p->what, rlki_count(done));
}

void rlki_progress_end(struct rlki_progress *p)
{
    if (p->shown)
        fputs("\r\x1b[K", stderr);
    p->shown = p->on = false;
}
