/* rlkrec synth: a recording from a description (docs/synth.md). */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/commands.h"
#include "cli/rlkrec/measure.h"
#include "recorder/synth/rlk_synth.h"

#include <limits.h>
#include <string.h>

static struct {
    const char *out;
} opt;

static const struct rlki_option options[] = {
    {"output", 'o', RLKI_STRING, &opt.out, "DIR", "the recording to make; it must not exist"},
};

static const struct rlki_command command = {"rlkrec",
                                            "synth",
                                            "SPEC.json|- -o DIR",
                                            "Makes a complete, sealed recording from a description (docs/synth.md).",
                                            options,
                                            sizeof options / sizeof options[0],
                                            1,
                                            1,
                                            false,
                                            0,
                                            NULL};

static struct rlki_progress progress;

static void show(void *context, uint32_t rank, uint32_t ranks)
{
    rlki_progress(context, rank, ranks);
}

/* Is the fault one of the description, not of the recording to make? */
static bool of_the_spec(const char *spec, int code, const char *text)
{
    size_t n = strlen(spec);

    return code == RLK_EPARSE || strncmp(text, "events[", 7) == 0 || (strncmp(text, spec, n) == 0 && text[n] == ':');
}

int rlki_cmd_synth(int argc, char **argv)
{
    char dir[PATH_MAX], **args;
    const struct rlk_synth_options how = {.tool = "rlkrec synth " RLK_VERSION, .progress = show, .context = &progress};
    struct rlk_synth_result result;
    struct rlk_detail detail = {""};
    int n, code, status = rlki_parse(&command, argc, argv, &n, &args);

    if (status != RLKI_GO_ON)
        return status;
    if (!opt.out)
        return rlki_usage(&command, "--output is needed: where the recording goes");
    size_t len = strlen(opt.out);
    while (len > 1 && opt.out[len - 1] == '/')
        len--;
    bool has = len > 4 && memcmp(opt.out + len - 4, ".rlk", 4) == 0;
    if (len + 5 > sizeof dir)
        return rlki_usage(&command, "--output: the path is too long");
    snprintf(dir, sizeof dir, "%.*s%s", (int)len, opt.out, has ? "" : ".rlk");
    rlki_progress_begin(&progress, "writing ranks");
    code = rlk_synth_file(args[0], dir, &how, &result, &detail);
    rlki_progress_end(&progress);
    if (code)
        return rlki_fail(of_the_spec(args[0], code, detail.text) ? args[0] : dir, code, &detail);
    printf("%s: %s events, %s tensors on %u rank%s%s\n", rlki_esc(dir), rlki_count(result.events),
           rlki_count(result.tensors), result.environments, result.environments == 1 ? "" : "s",
           result.sealed ? ", sealed" : ", not sealed");
    return rlki_finish(RLKI_EXIT_OK);
}
