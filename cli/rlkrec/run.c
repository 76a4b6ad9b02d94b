/* rlkrec run: makes the recording, starts the command with the recorder in reach, waits, closes. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/child.h"
#include "cli/rlkrec/closing.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/install.h"
#include "cli/rlkrec/manifest.h"
#include "cli/rlkrec/plan.h"
#include "cli/rlkrec/remove.h"
#include "cli/rlkrec/target.h"
#include "recorder/rlk_env.h"
#include "recorder/rlk_select.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *out, *level, *inputs, *plan;
    struct rlki_list payload;
    struct rlki_span steps;
    uint64_t every, keep_last, max_size;
    bool quiet;
} opt;

static const struct rlki_option options[] = {
    {"output", 'o', RLKI_STRING, &opt.out, "DIR", "the recording to make (default rlk-recordings/TIME-CMD.rlk)"},
    {"level", 0, RLKI_CHOICE, &opt.level, "launch|step|module|op|buffer",
     "how much (default op; buffer: not built yet)"},
    {"inputs", 0, RLKI_CHOICE, &opt.inputs, "reference|digest",
     "how inputs of known origin are kept (default reference)"},
    {"payload", 0, RLKI_LIST, &opt.payload, "SPEC", "keep bytes too: step=A:B,module=GLOB,op=GLOB,... (docs/cli.md)"},
    {"steps", 0, RLKI_SPAN, &opt.steps, "A:B", "record steps A to B-1 only"},
    {"every", 0, RLKI_COUNT, &opt.every, "N", "record every N-th step only"},
    {"keep-last", 0, RLKI_COUNT, &opt.keep_last, "K", "keep the last K steps only"},
    {"max-size", 0, RLKI_SIZE, &opt.max_size, "SIZE", "stop recording a process at this size (64M, 2G, ...)"},
    {"plan", 0, RLKI_STRING, &opt.plan, "FILE", "keep the bytes that rlkaudit first-diff --plan asked for"},
    {"quiet", 'q', RLKI_FLAG, &opt.quiet, NULL, "say nothing at the end unless something is wrong"},
};

static const struct rlki_command command = {
    "rlkrec",
    "run",
    "[options] [--] CMD [ARG]...",
    "Runs CMD and records what it computes; the exit status is CMD's own.",
    options,
    sizeof options / sizeof options[0],
    1,
    -1,
    true,
    RLKI_EXIT_CANNOT_START,
    "125: rlkrec could not start it; 126, 127: CMD cannot be executed, was not found.\n"
    "Inside a recorded command, and before each rank of srun or torchrun, run joins\nthe recording that is there.\n"};

/* The --payload SPECs and the lines of the plan, one a line; NULL = out of memory. */
static char *payload_lines(const char *plan)
{
    char *lines = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&lines, &n);

    if (!to)
        return NULL;
    for (uint32_t i = 0; i < opt.payload.n; i++)
        fprintf(to, "%s\n", opt.payload.items[i]);
    fputs(plan, to);
    if (fclose(to) != 0) {
        free(lines);
        return NULL;
    }
    if (n && lines[n - 1] == '\n')
        lines[n - 1] = 0;
    return lines;
}

/* What the parser cannot know. RLKI_GO_ON or the status. */
static int check_options(const char *payload, const struct rlki_install *install)
{
    struct rlk_select *select = NULL;
    struct rlk_detail detail = {""};

    if (opt.level && strcmp(opt.level, "buffer") == 0) {
        rlki_say("run: --level buffer is not built yet (docs/cli.md)");
        return RLKI_EXIT_CANNOT_START;
    }
    if (opt.level && strcmp(opt.level, "launch") == 0 && install->loads && !install->injects) {
        rlki_say(
            "run: --level launch: this rlkrec was built without the CUDA toolkit and sees no launches; build it with "
            "nvcc on the PATH");
        return RLKI_EXIT_CANNOT_START;
    }
    for (uint32_t i = 0; i < opt.payload.n; i++)
        if (strchr(opt.payload.items[i], '\n'))
            return rlki_usage(&command, "--payload: a line end in the SPEC");
    if (payload[0] && rlk_select_parse(&select, payload, &detail))
        return rlki_usage(&command, "%s: %s", opt.plan ? "--payload or --plan" : "--payload", detail.text);
    rlk_select_free(select);
    return RLKI_GO_ON;
}

static bool set_number(const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return !value || setenv(name, text, 1) == 0;
}

static void span_text(char out[48])
{
    size_t n = 0;

    if (opt.steps.first != INT64_MIN)
        n = (size_t)snprintf(out, 24, "%lld", (long long)opt.steps.first);
    out[n++] = ':';
    out[n] = 0;
    if (opt.steps.last != INT64_MAX)
        snprintf(out + n, 24, "%lld", (long long)opt.steps.last);
}

static bool prepend_python(const char *dir)
{
    const char *old = getenv("PYTHONPATH");
    size_t n = strlen(dir);
    char *joined = NULL;
    bool ok;

    if (!n || (old && strncmp(old, dir, n) == 0 && (old[n] == ':' || !old[n])))
        return true;
    /* An empty entry would mean the current directory: none is added where there was no PYTHONPATH. */
    if (asprintf(&joined, "%s%s%s", dir, old && old[0] ? ":" : "", old ? old : "") < 0)
        return false;
    ok = setenv("PYTHONPATH", joined, 1) == 0;
    free(joined);
    return ok;
}

/* Our own environment becomes the command's: nothing of ours reads it afterwards. A joining run changes only what was
 * asked of it. */
static bool injection_held(const struct rlki_install *install)
{
    const char *other = getenv("CUDA_INJECTION64_PATH");
    return other && other[0] && strcmp(other, install->library) != 0;
}

/* The tool that `program` is, of those that take the one place which CUDA has for an injected library; NULL: none. */
static const char *taker(const char *program)
{
    static const char *const takers[] = {"compute-sanitizer", "nsys", "ncu", "cuda-gdb", "cuda-memcheck", "nvprof"};
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;

    for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++)
        if (strcmp(name, takers[i]) == 0)
            return takers[i];
    return NULL;
}

static bool export_all(const struct rlki_target *target, const struct rlki_install *install, const char *payload,
                       const char *program)
{
    static const char *const choices[] = {RLK_ENV_PAYLOAD, RLK_ENV_STEPS, RLK_ENV_EVERY, RLK_ENV_KEEP_LAST,
                                          RLK_ENV_MAX_SIZE};
    bool ok = true, fresh = !target->joined || target->by_job;
    char steps[48];

    if (!install->loads) {
        unsetenv(RLK_ENV_LIBRARY); /* or the tap would complain a second time */
        return unsetenv(RLK_ENV_RECORDING) == 0;
    }
    for (size_t i = 0; fresh && i < sizeof choices / sizeof choices[0]; i++)
        ok &= unsetenv(choices[i]) == 0; /* left over in the user's environment: the manifest would not know */
    ok &= setenv(RLK_ENV_RECORDING, target->path, 1) == 0;
    ok &= setenv(RLK_ENV_LIBRARY, install->library, 1) == 0;
    if (opt.level || fresh)
        ok &= setenv(RLK_ENV_LEVEL, opt.level ? opt.level : "op", 1) == 0;
    if (opt.inputs || fresh)
        ok &= setenv(RLK_ENV_INPUTS, opt.inputs ? opt.inputs : "reference", 1) == 0;
    if (payload[0])
        ok &= setenv(RLK_ENV_PAYLOAD, payload, 1) == 0;
    if (opt.steps.set) {
        span_text(steps);
        ok &= setenv(RLK_ENV_STEPS, steps, 1) == 0;
    }
    ok &= set_number(RLK_ENV_EVERY, opt.every) && set_number(RLK_ENV_KEEP_LAST, opt.keep_last) &&
          set_number(RLK_ENV_MAX_SIZE, opt.max_size) && prepend_python(install->python);
    if (install->injects && !injection_held(install) && !taker(program)) /* ncu refuses to run where it is set */
        ok &= setenv("CUDA_INJECTION64_PATH", install->library, 1) == 0;
    return ok;
}

/* Who takes the one place that CUDA has for an injected library: said, and marked in the manifest (NULL: not ours), for
 * a program without a framework has nobody else to say it. */
static void check_injection(const char *program, const struct rlki_install *install, json_t *manifest)
{
    const char *name = taker(program);
    char text[400] = "";

    if (!install->injects)
        return;
    if (injection_held(install))
        snprintf(text, sizeof text, "CUDA_INJECTION64_PATH is taken by %.300s: kernel launches are not recorded",
                 getenv("CUDA_INJECTION64_PATH"));
    else if (name)
        snprintf(text, sizeof text, "%s takes the recorder's place in CUDA: kernel launches are not recorded", name);
    if (text[0])
        rlki_warn("%s", text);
    if (text[0] && manifest)
        rlki_manifest_fault(manifest, "launch-plane", text);
}

/* The directory with its manifest, or the one that another rank of the job has made. RLKI_GO_ON or the status. */
static int create(struct rlki_target *target, const json_t *manifest)
{
    struct rlk_detail detail = {""};
    int code = rlki_target_parents(target, &detail);

    for (unsigned attempt = 2; !code; attempt++) {
        code = rlk_recording_create(target->path, manifest, &detail);
        if (code != RLK_EEXIST)
            break;
        if (target->by_job)
            code = rlki_target_join(target, &detail);
        else if (!opt.out && rlki_target_next(target, attempt))
            code = RLK_OK;
        if (target->joined)
            break;
    }
    if (!code)
        return RLKI_GO_ON;
    rlki_fail(target->shown, code, code == RLK_EEXIST ? NULL : &detail);
    return RLKI_EXIT_CANNOT_START;
}

static int become(char **argv, char *const *envp)
{
    struct rlki_child child = {0};

    child.exec_error = rlki_child_become(argv, envp);
    return rlki_child_status(&child, argv[0]);
}

/* Nothing ran: the recording made for it goes again. */
static void withdraw(const struct rlki_target *target)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof path, "%s/manifest.json", target->path);
    unlink(path);
    if (rmdir(target->path) == 0)
        rlki_remove_stale_latest(target->path);
}

static int run_new(struct rlki_target *target, const struct rlki_install *install, json_t *manifest, char **argv)
{
    struct rlki_child child;
    struct rlk_detail detail = {""};
    int error;

    if (strncmp(target->shown, "rlk-recordings/", 15) == 0 && rlk_recording_set_latest(target->path, &detail))
        rlki_warn("rlk-recordings/latest: %s", detail.text);
    error = rlki_child_run(&child, argv, environ);
    if (error) {
        rlki_say("no process for %s: %s", argv[0], strerror(error));
        withdraw(target);
        return RLKI_EXIT_CANNOT_START;
    }
    if (child.exec_error)
        withdraw(target);
    else
        rlki_closing(target, manifest, &child, argv, install->loads, opt.quiet);
    return rlki_child_status(&child, argv[0]);
}

int rlki_cmd_run(int argc, char **argv)
{
    struct rlki_target target;
    struct rlki_install install;
    struct rlk_detail detail = {""};
    char **args, *payload = NULL, *plan = NULL, steps[48];
    json_t *manifest = NULL;
    int n, code, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    rlki_child_prepare();
    args[n] = NULL;
    if (opt.plan && !(plan = rlki_plan_read(opt.plan)))
        return RLKI_EXIT_CANNOT_START;
    payload = payload_lines(plan ? plan : "");
    free(plan);
    if (!payload) {
        rlki_fail("run", RLK_ENOMEM, NULL);
        return RLKI_EXIT_CANNOT_START;
    }
    rlki_install_find(&install);
    status = check_options(payload, &install);
    if (status != RLKI_GO_ON)
        goto out;
    status = RLKI_EXIT_CANNOT_START;
    code = rlki_target_choose(&target, opt.out, args, &detail);
    if (!code && target.joined)
        code = rlki_target_join(&target, &detail);
    if (code) {
        rlki_fail("run", code, &detail);
        goto out;
    }
    if (!install.loads)
        rlki_warn("the recorder cannot be loaded, the command runs without it: %s", install.error);
    if (!target.joined) {
        struct rlki_capture capture = {opt.level ? opt.level : "op",
                                       opt.inputs ? opt.inputs : "reference",
                                       opt.steps.set ? (span_text(steps), steps) : NULL,
                                       payload[0] ? payload : NULL,
                                       opt.every,
                                       opt.keep_last,
                                       opt.max_size};
        manifest = rlki_manifest_new(args, environ, &target, &capture);
        if (manifest && !install.loads)
            rlki_manifest_fault(manifest, "recorder-not-loaded", install.error);
        check_injection(args[0], &install, manifest);
        status = manifest ? create(&target, manifest) : (rlki_fail("run", RLK_ENOMEM, NULL), RLKI_EXIT_CANNOT_START);
        if (status != RLKI_GO_ON)
            goto out;
    } else if (opt.out) {
        rlki_warn("joining %s: --output is ignored", target.shown);
    }
    if (!export_all(&target, &install, payload, args[0])) {
        rlki_fail("run", RLK_ENOMEM, NULL);
        status = RLKI_EXIT_CANNOT_START;
        if (!target.joined)
            withdraw(&target);
        goto out;
    }
    status = target.joined ? become(args, environ) : run_new(&target, &install, manifest, args);
out:
    json_decref(manifest);
    free(payload);
    return status;
}
