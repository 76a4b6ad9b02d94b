/* rlkrec doctor: what works on this machine, one line a check. 0 = nothing failed. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/install.h"
#include "cli/rlkrec/manifest.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAST_FREE (UINT64_C(1) << 30)

enum verdict {
    OK,
    NONE, /* not there, and recording works without */
    FAIL,
};

static struct {
    const char *json, *python;
} opt;

static const struct rlki_option options[] = {
    {"json", 0, RLKI_STRING, &opt.json, "FILE|-", "the checks as JSON"},
    {"python", 0, RLKI_STRING, &opt.python, "PROG", "the Python of your training (default python3)"},
};

static const struct rlki_command command = {
    "rlkrec",
    "doctor",
    "[options]",
    "Checks what recording needs on this machine.",
    options,
    sizeof options / sizeof options[0],
    0,
    0,
    false,
    0,
    "0 nothing failed (a missing GPU or torch is no failure), 1 something did\n"};

static json_t *checks;

static void add(enum verdict verdict, const char *what, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(enum verdict verdict, const char *what, const char *format, ...)
{
    static const char *const names[] = {"ok", "none", "fail"};
    char text[768];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    json_array_append_new(
        checks, json_pack("{s:s, s:s, s:o}", "check", what, "verdict", names[verdict], "text", rlki_json_string(text)));
}

/* Runs argv, keeps the last line of what it prints (both streams). Its exit status; -1 = it could not run. */
static int ask(char *const *argv, char *line, size_t size)
{
    int report[2], status = -1;
    size_t n = 0, room = 1 << 16;
    char *text = calloc(1, room + 1), *last;
    pid_t pid;

    line[0] = 0;
    if (!text || pipe(report)) {
        free(text);
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        dup2(report[1], STDOUT_FILENO);
        dup2(report[1], STDERR_FILENO);
        close(report[0]);
        close(report[1]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(report[1]);
    for (ssize_t got = 1; pid > 0 && got != 0;) {
        char rest[4096];
        got = n < room ? read(report[0], text + n, room - n) : read(report[0], rest, sizeof rest);
        if (got < 0 && errno != EINTR)
            break;
        n += got > 0 && n < room ? (size_t)got : 0;
    }
    close(report[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    while (n && strchr("\n\r ", text[n - 1]))
        text[--n] = 0;
    last = strrchr(text, '\n');
    snprintf(line, size, "%s", last ? last + 1 : text);
    free(text);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void check_recorder(const struct rlki_install *install)
{
    if (install->loads)
        add(OK, "recorder", "%s", install->library);
    else
        add(FAIL, "recorder", "%s", install->error);
    if (install->python[0])
        add(OK, "adapter", "%s", install->python);
    else
        add(FAIL, "adapter", "the PyTorch adapter's files are not beside rlkrec");
}

static void check_torch(const struct rlki_install *install)
{
    const char *python = opt.python ? opt.python : "python3";
    char line[512];
    char *const version[] = {(char *)(uintptr_t)python, "-c", "import torch; print(torch.__version__)", NULL};
    char *const build[] = {(char *)(uintptr_t)python, "-m", "rlkrec_torch.build", "--check", NULL};
    int status = ask(version, line, sizeof line);

    if (status == 127 || status < 0) {
        add(NONE, "python", "%s does not run here", python);
        return;
    }
    add(OK, "python", "%s", python);
    if (status) {
        add(NONE, "torch", "%s cannot import it (%s)", python, line);
        return;
    }
    add(OK, "torch", "%s", line);
    if (!install->python[0])
        return;
    setenv("PYTHONPATH", install->python, 1);
    status = ask(build, line, sizeof line);
    if (status == 1)
        add(NONE, "observer", "%s: the first recording builds it", line);
    else
        add(status == 0 ? OK : FAIL, "observer", "%s", line[0] ? line : "rlkrec_torch.build --check says nothing");
}

static void check_gpu(const struct rlki_install *install)
{
    json_t *driver = rlki_nvidia_driver(), *gpus = rlki_nvidia_gpus();
    const char *injected = getenv("CUDA_INJECTION64_PATH");
    static const char *const cupti[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    void *library = NULL;
    const char *found = NULL;

    if (json_is_string(driver))
        add(OK, "driver", "NVIDIA %s, %zu GPU(s)", json_string_value(driver), json_array_size(gpus));
    else
        add(NONE, "driver", "no NVIDIA driver: tensors on the CPU are recorded");
    for (size_t i = 0; i < 3 && !library; i++) {
        library = dlopen(cupti[i], RTLD_LAZY | RTLD_LOCAL);
        found = cupti[i];
    }
    if (library) /* stays loaded: closing it leaks what it holds */
        add(OK, "cupti", "%s", found);
    else
        add(NONE, "cupti", "not found by the loader");
    if (injected && injected[0])
        add(NONE, "cupti slot", "held by %s (CUDA_INJECTION64_PATH)", injected);
    else
        add(OK, "cupti slot", "free in this environment");
    if (install->injects)
        add(OK, "launches", "this build records kernel launches, graph launches and copies");
    else
        add(NONE, "launches", "this build has no CUDA toolkit and records no kernel launches");
    if (install->injects)
        add(OK, "tensors", "those on a GPU are digested there");
    else
        add(NONE, "tensors", "this build has no CUDA toolkit: those on a GPU are counted, not digested");
    json_decref(driver);
    json_decref(gpus);
}

static void check_disk(void)
{
    const char *dir = "rlk-recordings";
    struct statvfs vfs;
    struct stat st;

    if (stat(dir, &st))
        dir = ".";
    if (access(dir, W_OK | X_OK))
        add(FAIL, "output", "%s: %s", dir, strerror(errno));
    else
        add(OK, "output", "%s can be written", dir[0] == '.' ? "the current directory" : dir);
    if (statvfs(dir, &vfs))
        return;
    uint64_t bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    add(bytes < LEAST_FREE ? FAIL : OK, "disk", "%s free", rlki_bytes(bytes));
}

static void print(FILE *to)
{
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *c = json_array_get(checks, i);
        const char *verdict = json_string_value(json_object_get(c, "verdict"));
        bool bad = strcmp(verdict, "fail") == 0;
        const char *colour = rlki_style(to, bad ? RLKI_RED : strcmp(verdict, "ok") == 0 ? RLKI_GREEN : RLKI_YELLOW);
        fprintf(to, "%s%-4s%s  %-10s  %s\n", colour, bad ? "FAIL" : verdict, rlki_style(to, RLKI_PLAIN),
                json_string_value(json_object_get(c, "check")),
                rlki_esc(json_string_value(json_object_get(c, "text"))));
    }
}

int rlki_cmd_doctor(int argc, char **argv)
{
    struct rlki_install install;
    char **args;
    int n, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    checks = json_array();
    rlki_install_find(&install);
    check_recorder(&install);
    check_torch(&install);
    check_gpu(&install);
    check_disk();
    status = RLKI_EXIT_OK;
    for (size_t i = 0; i < json_array_size(checks); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(checks, i), "verdict")), "fail") == 0)
            status = RLKI_EXIT_CHECK;
    if (opt.json) {
        json_t *json = json_pack("{s:s, s:i, s:O}", "schema", "rlk.doctor/1", "exit", status, "checks", checks);
        if (rlki_write_json(opt.json, json))
            status = RLKI_EXIT_FAULT;
        json_decref(json);
    } else {
        print(stdout);
        status = rlki_finish(status);
    }
    json_decref(checks);
    return status;
}
