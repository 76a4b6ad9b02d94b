/* rlktrain: a Qwen3 policy trained by GRPO over any TP x CP, on virtual ranks. Options, call, print. */
#include "cli/rlktrain.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"
#include "replayer/rlk_folder.h"
#include "store/rlk_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values { /* as written on the command line */
    const char *model, *layout, *rollout, *temperature, *top_p, *lr, *device, *contract, *plant, *save, *graphs;
    uint64_t steps, seed, samples, group, prompt, fresh, stop_ids, micro_batches, score_batches, threads;
    struct rlki_list modes;
    bool no_times, reverse, by_sample;
};

static struct values v = {.model = "qwen3-tiny",
                          .layout = "tp1cp1",
                          .device = "cpu",
                          .contract = "portable/1",
                          .graphs = "on",
                          .steps = 2,
                          .seed = 1,
                          .samples = 8,
                          .group = 4,
                          .prompt = 24,
                          .fresh = 48,
                          .stop_ids = 16,
                          .micro_batches = 2,
                          .threads = 1};

static const struct rlki_option options[] = {
    {"model", 0, RLKI_STRING, &v.model, "NAME|DIR",
     "qwen3-tiny, -mini, -0.6b, -1.7b, -4b, -8b with seeded weights; or a Hugging Face folder (qwen3-tiny)"},
    {"layout", 0, RLKI_STRING, &v.layout, "LAYOUT", "tp and cp of the training, 1, 2, 4 or 8 each (tp1cp1)"},
    {"rollout-layout", 0, RLKI_STRING, &v.rollout, "LAYOUT", "of the rollout; cp must be 1 (the training's tp)"},
    {"steps", 0, RLKI_NUMBER, &v.steps, "N", "optimizer steps (2)"},
    {"seed", 0, RLKI_NUMBER, &v.seed, "N", "of weights, prompts and sampling (1)"},
    {"samples", 0, RLKI_NUMBER, &v.samples, "N", "sequences a step (8)"},
    {"group", 0, RLKI_NUMBER, &v.group, "N", "sequences that share a prompt (4)"},
    {"prompt", 0, RLKI_NUMBER, &v.prompt, "N", "longest prompt, 8 at least (24)"},
    {"new", 0, RLKI_NUMBER, &v.fresh, "N", "most new tokens of a sequence (48)"},
    {"stop-ids", 0, RLKI_NUMBER, &v.stop_ids, "N", "ids below N end a response; 0 = none does (16)"},
    {"micro-batches", 0, RLKI_NUMBER, &v.micro_batches, "N", "micro-batches a step (2)"},
    {"score-batches", 0, RLKI_NUMBER, &v.score_batches, "N", "micro-batches of ref_log_probs and log_probs (the same)"},
    {"reverse", 0, RLKI_FLAG, &v.reverse, NULL, "pack samples into micro-batches last first"},
    {"by-sample", 0, RLKI_FLAG, &v.by_sample, NULL, "record sums by sample: joins other packings, costs time"},
    {"temperature", 0, RLKI_STRING, &v.temperature, "X", "of sampling and of log-probabilities (0.7)"},
    {"top-p", 0, RLKI_STRING, &v.top_p, "X", "in (0,1] (0.95)"},
    {"lr", 0, RLKI_STRING, &v.lr, "X", "learning rate (0.001)"},
    {"device", 0, RLKI_CHOICE, &v.device, "cpu|cuda", "where it runs (cpu)"},
    {"decode-graphs", 0, RLKI_CHOICE, &v.graphs, "on|off",
     "on CUDA, decode by captured graphs of 1 to 4 sequences (on)"},
    {"threads", 0, RLKI_NUMBER, &v.threads, "N", "CPU threads, 0 = one a processor (1)"},
    {"contract", 0, RLKI_STRING, &v.contract, "CLASS", "class of arithmetic (portable/1)"},
    {"mode", 0, RLKI_LIST, &v.modes, "[MODULE=]MODE", "strict, audit, auto or off; repeatable (strict)"},
    {"plant", 0, RLKI_STRING, &v.plant, "NAME", "plant a fault; `--plant help` lists them"},
    {"save", 0, RLKI_STRING, &v.save, "DIR", "at the end, write config.json and model.safetensors"},
    {"no-times", 0, RLKI_FLAG, &v.no_times, NULL, "leave out perf/*: what is printed is then the same in every layout"},
};

static const struct rlki_command command = {
    .program = "rlktrain",
    .synopsis = "[options]",
    .summary =
        "Trains a Qwen3 policy by GRPO on virtual ranks and prints a JSON object a step: the reference workload.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .more =
        "Run it under `rlkrec run --` to record it. Exit: 0 done, 2 usage or I/O, 3 a layout, model or class that is "
        "refused.\n"};

static bool read_real(const char *text, float *out)
{
    char *end;
    errno = 0;
    const float x = strtof(text, &end);
    if (!*text || *end || errno)
        return false;
    *out = x;
    return true;
}

/* RLKI_GO_ON, or the status to exit with. */
static int read_layout(const char *text, int *tp, int *cp)
{
    struct rlk_layout layout;
    struct rlk_detail detail;
    if (rlk_layout_parse(&layout, text, &detail) != RLK_OK)
        return rlki_usage(&command, "%s: not a layout, write tp4cp2", text);
    if (layout.dp > 1 || layout.pp > 1 || layout.ep > 1) {
        rlki_say("layout %s is refused: rlktrain has tp and cp only", text);
        return RLKI_EXIT_NOT_COMPARABLE;
    }
    *tp = (int)layout.tp;
    *cp = (int)layout.cp;
    return RLKI_GO_ON;
}

static int failed(int code, const struct rlk_kdetail *detail)
{
    rlki_say("%s", detail->text[0] ? detail->text : "failed");
    return code == RLK_K_EUNSUPPORTED ? RLKI_EXIT_NOT_COMPARABLE : RLKI_EXIT_FAULT;
}

/* A known name, else a folder. */
static int read_model(struct rlk_train_options *o, struct rlk_folder **folder)
{
    const struct rlk_model_shape *shape = rlk_model_find(v.model);
    struct rlk_kdetail detail = {""};
    rlk_train_options_init(o);
    if (!shape) {
        if (!strchr(v.model, '/') && access(v.model, F_OK) != 0)
            return rlki_usage(
                &command, "%s: no such model (qwen3-tiny, -mini, -0.6b, -1.7b, -4b, -8b), and no such folder", v.model);
        const int rc = rlk_folder_open(folder, v.model, &detail);
        if (rc)
            return failed(rc, &detail);
        shape = rlk_folder_shape(*folder);
        o->folder = *folder;
    }
    o->model = *shape;
    return RLKI_GO_ON;
}

static int read_values(struct rlk_train_options *o, struct rlk_folder **folder)
{
    const uint64_t most = 1u << 20;
    int status = read_model(o, folder);
    if (status != RLKI_GO_ON)
        return status;
    if ((status = read_layout(v.layout, &o->tp, &o->cp)) != RLKI_GO_ON)
        return status;
    if (v.rollout && (status = read_layout(v.rollout, &o->rollout_tp, &o->rollout_cp)) != RLKI_GO_ON)
        return status;
    if (v.samples > most || v.group > most || v.prompt > most || v.fresh > most || v.stop_ids > most ||
        v.micro_batches > most || v.score_batches > most || v.threads > 1024)
        return rlki_usage(&command, "a number is out of range");
    o->seed = v.seed;
    o->samples = (int)v.samples;
    o->group = (int)v.group;
    o->prompt = (int)v.prompt;
    o->fresh = (int)v.fresh;
    o->stop_ids = (int)v.stop_ids;
    o->micro_batches = (int)v.micro_batches;
    o->score_batches = (int)v.score_batches;
    o->reverse = v.reverse;
    o->by_sample = v.by_sample;
    o->eager_decode = strcmp(v.graphs, "off") == 0;
    o->threads = (unsigned)v.threads;
    if ((v.temperature && !read_real(v.temperature, &o->temperature)) || (v.top_p && !read_real(v.top_p, &o->top_p)) ||
        (v.lr && !read_real(v.lr, &o->lr)))
        return rlki_usage(&command, "--temperature, --top-p and --lr take a number");
    o->device = strcmp(v.device, "cuda") == 0 ? RLK_DEVICE_CUDA : RLK_DEVICE_CPU;
    o->contract = v.contract;
    if (v.modes.n > RLK_TRAIN_MODES)
        return rlki_usage(&command, "more than %d --mode", RLK_TRAIN_MODES);
    for (uint32_t i = 0; i < v.modes.n; i++)
        o->mode[o->modes++] = v.modes.items[i];
    o->plant = v.plant;
    return RLKI_GO_ON;
}

static int list_plants(void)
{
    for (int i = 0; rlk_plant_name(i); i++)
        printf("%-20s %s\n", rlk_plant_name(i), rlk_plant_help(i));
    return rlki_finish(RLKI_EXIT_OK);
}

int main(int argc, char **argv)
{
    struct rlk_train_options o;
    struct rlk_folder *folder = NULL;
    struct rlk_train *run = NULL;
    struct rlk_kdetail detail = {""};
    int nargs;
    char **args;
    rlki_program = "rlktrain";
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (v.plant && strcmp(v.plant, "help") == 0)
        return list_plants();
    if ((status = read_values(&o, &folder)) != RLKI_GO_ON) {
        rlk_folder_close(folder);
        return status;
    }
    int rc = rlk_train_new(&o, &run, &detail);
    if (!rc)
        rc = rlki_print_weights(run, 1, !v.no_times, &detail);
    for (uint64_t s = 0; !rc && s < v.steps; s++) {
        struct rlk_train_facts facts;
        rc = rlk_train_step(run, &facts, &detail);
        if (!rc)
            rc = rlki_print_step(&facts, !v.no_times, &detail);
        if (!rc)
            rc = rlki_print_weights(run, (long long)s + 2, !v.no_times, &detail);
    }
    if (!rc && v.save)
        rc = rlki_save(run, &o.model, v.save, &detail);
    rlk_train_free(run);
    rlk_folder_close(folder);
    return rlki_finish(rc ? failed(rc, &detail) : RLKI_EXIT_OK);
}
