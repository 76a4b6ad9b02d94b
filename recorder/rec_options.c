#include "recorder/rec.h"
#include "recorder/rlk_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static void complain(const char *name, const char *value, const struct rlk_detail *detail)
{
    char text[700];
    snprintf(text, sizeof text, "%s=%.100s: %s; the default is used", name, value, detail->text);
    rlki_say("environment", text);
}

static void read_count(uint64_t *out, const char *name)
{
    struct rlk_detail detail = {""};
    const char *value = variable(name);
    if (value && rlk_size_parse(out, value, &detail))
        complain(name, value, &detail);
}

/* The rank of this process as launchers name it. */
static uint32_t own_rank(void)
{
    static const char *const names[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        char *end = NULL;
        errno = 0;
        unsigned long rank = value && *value >= '0' && *value <= '9' ? strtoul(value, &end, 10) : 0;
        if (end && !*end && !errno && rank < UINT32_MAX)
            return (uint32_t)rank;
    }
    return 0;
}

/* Absolute, so that a chdir of the program changes nothing. */
static bool read_recording(char *out, size_t size)
{
    const char *value = variable(RLK_ENV_RECORDING);
    if (!value) {
        rlki_say("environment", RLK_ENV_RECORDING " is not set; going on without recording");
        return false;
    }
    char here[PATH_MAX] = "";
    if (value[0] != '/' && !getcwd(here, sizeof here)) {
        rlki_say("environment", "the working directory has no name; going on without recording");
        return false;
    }
    int n = snprintf(out, size, "%s%s%s", here, *here ? "/" : "", value);
    if (n < 0 || (size_t)n >= size) {
        rlki_say("environment", RLK_ENV_RECORDING " is too long; going on without recording");
        return false;
    }
    return true;
}

bool rlki_options_read(struct rlki_options *out)
{
    struct rlk_detail detail = {""};
    *out = (struct rlki_options){.level = RLK_TAP_OP, .steps = RLK_ALL_STEPS, .every = 1, .own_rank = own_rank()};
    const char *value = variable(RLK_ENV_LEVEL);
    if (value && rlk_level_parse(&out->level, value, &detail))
        complain(RLK_ENV_LEVEL, value, &detail);
    if ((value = variable(RLK_ENV_STEPS)) && rlk_steps_parse(&out->steps, value, &detail))
        complain(RLK_ENV_STEPS, value, &detail);
    if ((value = variable(RLK_ENV_INPUTS))) {
        out->digest_inputs = !strcmp(value, "digest");
        if (!out->digest_inputs && strcmp(value, "reference") != 0) {
            rlk_fail(&detail, RLK_EPARSE, "neither reference nor digest");
            complain(RLK_ENV_INPUTS, value, &detail);
        }
    }
    if ((value = variable(RLK_ENV_PAYLOAD)) && rlk_select_parse(&out->payload, value, &detail)) {
        out->payload = NULL;
        complain(RLK_ENV_PAYLOAD, value, &detail);
    }
    read_count(&out->every, RLK_ENV_EVERY);
    if (out->every == 0)
        out->every = 1;
    read_count(&out->keep_last, RLK_ENV_KEEP_LAST);
    read_count(&out->max_bytes, RLK_ENV_MAX_SIZE);
    value = variable(RLK_ENV_FORK);
    out->fork_detach = value && !strcmp(value, "detach");
    return read_recording(out->recording, sizeof out->recording);
}

bool rlki_options_want_step(const struct rlki_options *options, int64_t step)
{
    if (step < options->steps.first || step >= options->steps.last)
        return false;
    return options->every <= 1 || (step < 0 ? 0 - (uint64_t)step : (uint64_t)step) % options->every == 0;
}

static bool named(const char *op, const char *boundary)
{
    size_t n = strlen(boundary);
    return op && !strncmp(op, boundary, n) && (op[n] == 0 || op[n] == '.');
}

bool rlki_options_want(const struct rlki_options *options, enum rlk_event_kind kind, const char *op)
{
    switch (kind) {
    case RLK_EV_LAUNCH:
    case RLK_EV_SYNC:
    case RLK_EV_RNG:
    case RLK_EV_REQUEST:
    case RLK_EV_RELAUNCH:
    case RLK_EV_METRIC:
    case RLK_EV_READBACK:
    case RLK_EV_NOTE:
        return true;
    case RLK_EV_WEIGHTS:
    case RLK_EV_LEAF:
        return options->level >= RLK_TAP_STEP;
    case RLK_EV_COLLECTIVE:
        return options->level >= RLK_TAP_MODULE;
    case RLK_EV_COPY:
        return options->level >= RLK_TAP_OP;
    case RLK_EV_OP:
        return options->level >= RLK_TAP_OP || (options->level >= RLK_TAP_STEP && named(op, RLK_TAP_OP_STEP)) ||
               (options->level >= RLK_TAP_MODULE && named(op, RLK_TAP_OP_MODULE));
    case RLK_EV_NONE:
    default:
        return false;
    }
}
