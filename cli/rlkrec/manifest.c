#include "cli/rlkrec/manifest.h"

#include "cli/common/rlk_output.h"
#include "cli/rlkrec/redact.h"
#include "store/rlk_place.h"

#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static json_t *utc_now(void)
{
    char text[40], whole[64];
    struct timespec now;
    struct tm tm;

    /* With microseconds: @1 and @2 go by it. */
    if (clock_gettime(CLOCK_REALTIME, &now) || !gmtime_r(&now.tv_sec, &tm) ||
        !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm))
        return json_null();
    snprintf(whole, sizeof whole, "%s.%06ldZ", text, now.tv_nsec / 1000);
    return json_string(whole);
}

static json_t *cpu_model(void)
{
    char line[256];
    json_t *model = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");

    while (file && !model && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon[strcspn(colon, "\n")] = 0;
        model = rlki_json_string(colon + 1 + strspn(colon + 1, " "));
    }
    if (file)
        fclose(file);
    return model ? model : json_null();
}

static json_t *this_host(void)
{
    json_t *host = json_object();
    struct utsname u;
    struct sysinfo s;

    if (uname(&u) == 0) {
        json_object_set_new(host, "name", rlki_json_string(u.nodename));
        json_object_set_new(host, "kernel", rlki_json_string(u.release));
        json_object_set_new(host, "machine", rlki_json_string(u.machine));
    }
    json_object_set_new(host, "cpu", cpu_model());
    json_object_set_new(host, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    if (sysinfo(&s) == 0)
        json_object_set_new(host, "memory", json_integer((json_int_t)s.totalram * s.mem_unit));
    return json_pack("[o]", host);
}

static json_t *number_or_null(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text ? rlki_json_string(text) : json_null();
}

json_t *rlki_manifest_new(char *const *argv, char *const *envp, const struct rlki_target *target,
                          const struct rlki_capture *capture)
{
    char *cwd = getcwd(NULL, 0), *clean_cwd = rlki_redact_text(cwd ? cwd : "");
    json_t *m = json_object(), *args = rlki_redact_argv(argv), *env = rlki_redact_environment(envp);
    int bad = !m || !args || !env || !clean_cwd;

    if (!bad) {
        bad |= json_object_set_new(m, "rlk_recording", json_integer(1));
        bad |= json_object_set_new(m, "format",
                                   json_pack("{s:i, s:i}", "major", RLK_FORMAT_MAJOR, "minor", RLK_FORMAT_MINOR));
        bad |= json_object_set_new(m, "created", utc_now());
        bad |= json_object_set_new(m, "tool", json_string("rlkrec " RLK_VERSION));
        bad |= json_object_set_new(m, "pid", json_integer(getpid()));
        bad |= json_object_set(m, "argv", args);
        bad |= json_object_set_new(m, "cwd", rlki_json_string(clean_cwd));
        bad |= json_object_set(m, "env", env);
        bad |= json_object_set_new(m, "libraries", json_pack("{s:s}", "glibc", gnu_get_libc_version()));
        bad |= json_object_set_new(m, "driver", rlki_nvidia_driver());
        bad |= json_object_set_new(m, "gpus", rlki_nvidia_gpus());
        bad |= json_object_set_new(m, "topology", json_null());
        bad |= json_object_set_new(m, "hosts", this_host());
        bad |= json_object_set_new(m, "ranks", number_or_null(target->ranks));
        bad |= json_object_set_new(m, "layout", json_null());
        bad |= json_object_set_new(m, "level", json_string(capture->level));
        bad |= json_object_set_new(m, "inputs", json_string(capture->inputs));
        bad |= json_object_set_new(m, "steps", text_or_null(capture->steps));
        bad |= json_object_set_new(m, "payload", text_or_null(capture->payload));
        bad |= json_object_set_new(m, "every", number_or_null(capture->every));
        bad |= json_object_set_new(m, "keep_last", number_or_null(capture->keep_last));
        bad |= json_object_set_new(m, "max_size", number_or_null(capture->max_size));
        bad |= json_object_set_new(m, "planes", json_array());
        bad |= json_object_set_new(m, "faults", json_array());
        if (target->by_job)
            bad |= json_object_set_new(m, "job", json_string(target->job));
    }
    json_decref(args);
    json_decref(env);
    free(clean_cwd);
    free(cwd);
    if (bad) {
        json_decref(m);
        m = NULL;
    }
    return m;
}

int rlki_manifest_fault(json_t *manifest, const char *code, const char *text)
{
    json_t *faults = json_object_get(manifest, "faults");
    char *clean = rlki_redact_text(text);
    json_t *fault =
        clean ? json_pack("{s:o, s:o}", "code", rlki_json_string(code), "text", rlki_json_string(clean)) : NULL;

    free(clean);
    return fault && json_array_append_new(faults, fault) == 0 ? RLK_OK : RLK_ENOMEM;
}

int rlki_manifest_end(json_t *manifest, const struct rlki_child *child)
{
    json_t *how = child->exec_error ? json_pack("{s:i}", "exec_errno", child->exec_error)
                  : child->signal   ? json_pack("{s:i}", "signal", child->signal)
                                    : json_pack("{s:i}", "code", child->code);
    int bad = json_object_set_new(manifest, "exit", how);

    bad |= json_object_set_new(manifest, "ended", utc_now());
    bad |= json_object_set_new(manifest, "seconds", json_real(child->seconds));
    bad |= json_object_set_new(manifest, "max_rss", json_integer((json_int_t)child->max_rss_kb * 1024));
    return bad ? RLK_ENOMEM : RLK_OK;
}

/* Keys that a process leaves in its environment's `meta`: "lib.NAME" = version, "fault.CODE" = text, and
 * "layout" = LAYOUT of docs/cli.md, from a program that knows its own: the first process's holds. */
static int one_fact(void *context, const char *key, const char *value)
{
    json_t *manifest = context;
    struct rlk_layout layout;

    if (strncmp(key, "lib.", 4) == 0)
        json_object_set_new(json_object_get(manifest, "libraries"), key + 4, rlki_json_string(value));
    else if (strncmp(key, "fault.", 6) == 0)
        return rlki_manifest_fault(manifest, key + 6, value);
    else if (strcmp(key, "layout") == 0 && json_is_null(json_object_get(manifest, "layout")) &&
             rlk_layout_parse(&layout, value, NULL) == RLK_OK)
        json_object_set_new(manifest, "layout", rlki_json_string(value));
    return 0;
}

int rlki_manifest_gather(json_t *manifest, const struct rlk_recording *recording)
{
    static const char *const planes[] = {"launch", "tensor", "buffer"};
    struct rlk_coverage coverage;
    int code = RLK_OK;

    for (size_t i = 0; i < rlk_recording_envs(recording) && !code; i++)
        code = rlk_env_meta_each(rlk_recording_env(recording, i), one_fact, manifest);
    if (!code && rlk_recording_coverage(recording, &coverage, NULL) == RLK_OK) {
        json_t *list = json_array();
        for (size_t i = 0; i < 3; i++)
            if (coverage.planes & (1u << i))
                json_array_append_new(list, json_string(planes[i]));
        code = json_object_set_new(manifest, "planes", list) ? RLK_ENOMEM : RLK_OK;
    }
    return code;
}
