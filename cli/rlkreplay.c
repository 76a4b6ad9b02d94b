/* rlkreplay: the program of a recording again, under another layout, mode or device. Options, call, print. */
#include "cli/rlkreplay.h"

#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_output.h"
#include "store/rlk_place.h"
#include "store/rlk_recording.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values { /* as written on the command line */
    const char *layout, *rollout, *contract, *device, *only, *out, *plant, *json;
    struct rlki_list modes;
    struct rlki_span steps;
    uint64_t threads, said;
    bool op, relaunch, dry, partial, run, as_recorded;
};

static struct values v = {.contract = "portable/1", .device = "cpu", .threads = 1};

static const struct rlki_option options[] = {
    {"layout", 0, RLKI_STRING, &v.layout, "LAYOUT", "tp and cp, 1, 2, 4 or 8 each (as recorded)"},
    {"rollout-layout", 0, RLKI_STRING, &v.rollout, "LAYOUT", "of the rollout; cp must be 1 (the layout's tp)"},
    {"mode", 0, RLKI_LIST, &v.modes, "[MODULE=]MODE", "strict, audit, auto or off; repeatable (as recorded)"},
    {"contract", 0, RLKI_STRING, &v.contract, "CLASS", "class of arithmetic (portable/1)"},
    {"device", 0, RLKI_CHOICE, &v.device, "cpu|cuda", "where it runs (cpu)"},
    {"threads", 0, RLKI_NUMBER, &v.threads, "N", "CPU threads, 0 = one a processor (1)"},
    {"steps", 0, RLKI_SPAN, &v.steps, "A:B", "compare steps A to B-1 only"},
    {"only", 0, RLKI_STRING, &v.only, "GLOB", "compare operators of these modules only ('model.layers.0.*')"},
    {"op", 0, RLKI_FLAG, &v.op, NULL, "each operator alone, from its recorded inputs (--payload when recording)"},
    {"relaunch", 0, RLKI_FLAG, &v.relaunch, NULL, "run the recorded command again, layout and mode substituted"},
    {"dry-run", 0, RLKI_FLAG, &v.dry, NULL, "with --relaunch: print the command, run nothing"},
    {"partial", 0, RLKI_FLAG, &v.partial, NULL, "leave out what cannot be replayed, and what depends on it"},
    {"plant", 0, RLKI_STRING, &v.plant, "NAME", "plant a fault of rlktrain; `--plant help` lists them"},
    {"output", 'o', RLKI_STRING, &v.out, "DIR", "keep the recording of the replay"},
    {"json", 0, RLKI_STRING, &v.json, "FILE|-", "the result as JSON"},
    {"run", 0, RLKI_FLAG, &v.run, NULL, NULL},
    {"as-recorded", 0, RLKI_FLAG, &v.as_recorded, NULL, NULL},
    {"say-at", 0, RLKI_NUMBER, &v.said, NULL, NULL},
};

static const struct rlki_command command = {
    .program = "rlkreplay",
    .synopsis = "[REC] [options]",
    .summary = "Re-executes the program of a recording on virtual ranks under another layout, mode or device, and says "
               "what is equal.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .max_args = 1,
    .more = "First the recorded layout and mode are replayed: that must equal the recording.\n"
            "Exit: 0 identical, 1 something differs, 2 usage or I/O, 3 not replayable, refused, or the replay is "
            "unfaithful, 4 something was not compared.\n"};

struct replay {                                                /* what main found out */
    char path[PATH_MAX], scratch[PATH_MAX], out[PATH_MAX + 8]; /* out: -o with .rlk, "" = none */
    struct rlk_program *program;
    const struct rlk_program_facts *facts;
    struct rlki_layouts recorded, wanted;
    struct rlk_select select;
    struct rlk_replay_counts self, counts;
    bool checked, replayed;
    const char *verdict;
};

/* RLKI_GO_ON, or the status to exit with. */
static int read_layout(const char *text, int *tp, int *cp)
{
    struct rlk_layout layout;
    struct rlk_detail detail;
    if (rlk_layout_parse(&layout, text, &detail) != RLK_OK)
        return rlki_usage(&command, "%s: not a layout, write tp4cp2", text);
    const bool fits = layout.dp <= 1 && layout.pp <= 1 && layout.ep <= 1 && layout.tp <= 8 && layout.cp <= 8 &&
                      (layout.tp & (layout.tp - 1)) == 0 && (layout.cp & (layout.cp - 1)) == 0;
    if (!fits) {
        rlki_say("layout %s is refused: there are tp and cp, each 1, 2, 4 or 8; take one of those, for example tp4cp2",
                 text);
        return RLKI_EXIT_NOT_COMPARABLE;
    }
    *tp = (int)layout.tp;
    *cp = (int)layout.cp;
    return RLKI_GO_ON;
}

static int failed(const char *what, int code, const struct rlk_detail *detail)
{
    if (code == RLK_EUNSUPPORTED || code == RLK_ESTATE) {
        rlki_say("%s: %s", what, detail->text);
        return code == RLK_ESTATE ? RLKI_EXIT_INCOMPLETE : RLKI_EXIT_NOT_COMPARABLE;
    }
    return rlki_fail(what, code, detail);
}

static void progress(void *context, uint64_t done, uint64_t total)
{
    rlki_progress(context, done, total);
}

/* The child: replays, and tells the recorder. */
static int run_here(struct replay *r)
{
    struct rlki_progress bar;
    struct rlk_replay_outcome outcome;
    struct rlk_detail detail = {""};
    struct rlk_replay_options o = {.tp = r->wanted.tp,
                                   .cp = r->wanted.cp,
                                   .rollout_tp = r->wanted.rollout_tp,
                                   .rollout_cp = r->wanted.rollout_cp,
                                   .device = strcmp(v.device, "cuda") == 0 ? RLK_DEVICE_CUDA : RLK_DEVICE_CPU,
                                   .threads = (unsigned)v.threads,
                                   .contract = v.contract,
                                   .as_recorded = v.as_recorded,
                                   .plant = v.plant,
                                   .partial = v.partial,
                                   .alone = v.op,
                                   .progress = progress,
                                   .context = &bar};
    for (uint32_t i = 0; i < v.modes.n && i < RLK_TRAIN_MODES; i++)
        o.mode[o.modes++] = v.modes.items[i];
    rlki_progress_begin(&bar, "replaying");
    const int rc = rlk_replay_run(r->program, &o, &outcome, &detail);
    rlki_progress_end(&bar);
    return rc ? failed(r->path, rc, &detail) : RLKI_EXIT_OK;
}

static void list_reasons(const struct rlk_program_facts *f)
{
    for (uint32_t i = 0; i < f->nreasons; i++)
        rlki_say("  %s x %s", rlki_count(f->reason[i].count), f->reason[i].text);
}

/* What is refused without --partial. */
static int refuse(const struct replay *r)
{
    const struct rlk_program_facts *f = r->facts;
    if (f->nreasons) {
        rlki_say("%s: not everything can be replayed%s", r->path,
                 v.partial ? "; left out:" : " (--partial leaves it out, with what depends on it):");
        list_reasons(f);
        if (!v.partial)
            return RLKI_EXIT_NOT_COMPARABLE;
    }
    if (v.op && f->kept == 0) {
        rlki_say("%s: no operator's bytes were kept: record with --payload, for example --payload step=0:1", r->path);
        return RLKI_EXIT_NOT_COMPARABLE;
    }
    if (f->provider && !v.partial) {
        rlki_say("%s: %s operators were computed by the provider's row, which promises no bits (first: %s): record "
                 "with --mode strict, or replay with --partial",
                 r->path, rlki_count(f->provider), f->provider_at);
        return RLKI_EXIT_NOT_COMPARABLE;
    }
    return RLKI_GO_ON;
}

/* One replay into `out`, compared with the recording. */
static int replay_and_compare(struct replay *r, const struct rlki_layouts *at, const struct rlki_list *modes,
                              const char *out, struct rlk_replay_counts *counts)
{
    char threads[24], steps[64];
    struct rlk_detail detail = {""};
    snprintf(threads, sizeof threads, "%llu", (unsigned long long)v.threads);
    if (v.steps.set && v.steps.last != INT64_MAX)
        snprintf(steps, sizeof steps, "%lld:%lld", (long long)(v.steps.first == INT64_MIN ? 0 : v.steps.first),
                 (long long)v.steps.last);
    else
        snprintf(steps, sizeof steps, "%lld:", (long long)(v.steps.first == INT64_MIN ? 0 : v.steps.first));
    const struct rlki_child_replay child = {.recording = r->path,
                                            .out = out,
                                            .at = *at,
                                            .device = v.device,
                                            .contract = v.contract,
                                            .threads = threads,
                                            .only = v.only,
                                            .steps = v.steps.set ? steps : NULL,
                                            .plant = v.plant,
                                            .modes = modes,
                                            .as_recorded = !modes || modes->n == 0,
                                            .partial = v.partial,
                                            .alone = v.op};
    const int status = rlki_record_replay(&child);
    if (status)
        return status == RLKI_EXIT_NOT_COMPARABLE || status == RLKI_EXIT_INCOMPLETE ? status : RLKI_EXIT_FAULT;
    const int rc = rlk_replay_compare(r->path, out, &r->select, counts, &detail);
    return rc ? failed(out, rc, &detail) : RLKI_GO_ON;
}

static void print_counts(const char *what, const struct rlki_layouts *at, const struct rlk_replay_counts *c)
{
    if (v.json && strcmp(v.json, "-") == 0)
        return;
    printf("%s at tp%dcp%d, rollout tp%dcp%d: %s equal, %s different", what, at->tp, at->cp, at->rollout_tp,
           at->rollout_cp, rlki_count(c->equal), rlki_count(c->different));
    if (c->absent)
        printf(", %s not compared", rlki_count(c->absent));
    if (c->different)
        printf(", first at %s", rlki_esc(c->first.text));
    putchar('\n');
    fflush(stdout);
}

static json_t *counts_json(bool done, const struct rlki_layouts *at, const struct rlk_replay_counts *c)
{
    char layout[32], rollout[32];
    snprintf(layout, sizeof layout, "tp%dcp%d", at->tp, at->cp);
    snprintf(rollout, sizeof rollout, "tp%dcp%d", at->rollout_tp, at->rollout_cp);
    if (!done)
        return json_null();
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:o}", "layout", layout, "rollout_layout", rollout, "equal",
                     (json_int_t)c->equal, "different", (json_int_t)c->different, "absent", (json_int_t)c->absent,
                     "first", c->different ? rlki_json_string(c->first.text) : json_null());
}

static int write_result(const struct replay *r, int status)
{
    json_t *modes = json_array(), *left = json_array();
    for (uint32_t i = 0; i < v.modes.n; i++)
        json_array_append_new(modes, rlki_json_string(v.modes.items[i]));
    for (uint32_t i = 0; r->facts && i < r->facts->nreasons; i++)
        json_array_append_new(left, json_pack("{s:o,s:I}", "what", rlki_json_string(r->facts->reason[i].text), "count",
                                              (json_int_t)r->facts->reason[i].count));
    json_t *o =
        json_pack("{s:s,s:s,s:i,s:o,s:s,s:o,s:s,s:o,s:o,s:o,s:o}", "schema", "rlk.replay/1", "verdict", r->verdict,
                  "exit", status, "recording", rlki_json_string(r->path), "device", v.device, "mode", modes, "contract",
                  v.contract, "self_check", counts_json(r->checked, &r->recorded, &r->self), "replay",
                  counts_json(r->replayed, &r->wanted, &r->counts), "left_out", left, "output",
                  r->out[0] ? rlki_json_string(r->out) : json_null());
    int rc = RLKI_EXIT_FAULT;
    if (o)
        rc = rlki_write_json(v.json, o);
    else
        rlki_say("out of memory for the result");
    json_decref(o);
    return rc ? rc : status;
}

static bool same_layouts(const struct rlki_layouts *a, const struct rlki_layouts *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->rollout_tp == b->rollout_tp && a->rollout_cp == b->rollout_cp;
}

static int unfaithful(struct replay *r)
{
    const bool recorded = strcmp(r->facts->plant, "none") != 0;
    rlki_say("replay itself diverged: at the recorded layout and mode it does not equal the recording%s%s",
             recorded ? "; the recorded program had a fault planted: " : "", recorded ? r->facts->plant : "");
    if (v.plant && !recorded)
        rlki_say(
            "--plant %s does that: the fault shows in the recorded layout tp%dcp%d already; plant it in the replay of "
            "a recording in whose layout it does nothing (most: tp1cp1)",
            v.plant, r->recorded.tp, r->recorded.cp);
    r->verdict = "unfaithful";
    return RLKI_EXIT_NOT_COMPARABLE;
}

static int judge(struct replay *r)
{
    const struct rlk_replay_counts *c = &r->counts;
    r->verdict = c->different ? "different" : "identical";
    if (c->different)
        return RLKI_EXIT_CHECK;
    if (c->absent && !v.partial && !v.op) {
        rlki_say("%s tensors have no digest in the recording or none in the replay", rlki_count(c->absent));
        r->verdict = "incomplete";
        return RLKI_EXIT_INCOMPLETE;
    }
    if (!r->facts->complete) {
        rlki_say("the recording is incomplete: its process ended without END; what is there was replayed");
        r->verdict = "incomplete";
        return RLKI_EXIT_INCOMPLETE;
    }
    return RLKI_EXIT_OK;
}

static int check_and_replay(struct replay *r)
{
    char self[PATH_MAX + 16], out[PATH_MAX + 16];
    const bool same = same_layouts(&r->recorded, &r->wanted) && v.modes.n == 0;
    int status = rlki_scratch(r->scratch);
    if (status)
        return status;
    snprintf(self, sizeof self, "%s/self.rlk", r->scratch);
    snprintf(out, sizeof out, "%s/replay.rlk", r->scratch);
    const char *self_out = same && r->out[0] ? r->out : self;
    if ((status = replay_and_compare(r, &r->recorded, NULL, self_out, &r->self)) != RLKI_GO_ON)
        return status;
    r->checked = true;
    print_counts("self check", &r->recorded, &r->self);
    if (r->self.different && !(v.partial && r->facts->provider))
        return unfaithful(r);
    if (same) {
        r->counts = r->self;
    } else if ((status = replay_and_compare(r, &r->wanted, &v.modes, r->out[0] ? r->out : out, &r->counts)) !=
               RLKI_GO_ON) {
        return status;
    }
    r->replayed = true;
    if (!same)
        print_counts("replay", &r->wanted, &r->counts);
    return judge(r);
}

/* What the options and the recording say; RLKI_GO_ON or a status. */
static int prepare(struct replay *r, const char *name)
{
    struct rlk_detail detail = {""};
    int status;
    int rc = rlk_recording_resolve(r->path, sizeof r->path, name, &detail);
    if (rc)
        return rlki_fail(name ? name : "recording", rc, &detail);
    if (v.relaunch)
        return rlki_relaunch(r->path, v.layout, v.rollout, &v.modes, v.out, v.dry);
    r->wanted = (struct rlki_layouts){0, 0, 0, 1};
    if (v.layout && (status = read_layout(v.layout, &r->wanted.tp, &r->wanted.cp)) != RLKI_GO_ON)
        return status;
    if (v.rollout && (status = read_layout(v.rollout, &r->wanted.rollout_tp, &r->wanted.rollout_cp)) != RLKI_GO_ON)
        return status;
    if (v.out) {
        const size_t n = strlen(v.out);
        if (n >= PATH_MAX)
            return rlki_usage(&command, "the path of -o is too long");
        snprintf(r->out, sizeof r->out, "%s%s", v.out, n > 4 && strcmp(v.out + n - 4, ".rlk") == 0 ? "" : ".rlk");
        if (access(r->out, F_OK) == 0 && !v.run) {
            rlki_say("%s exists: choose another name, or remove it with rlkrec rm", r->out);
            return RLKI_EXIT_FAULT;
        }
    }
    if (v.threads > 1024 || v.modes.n > RLK_TRAIN_MODES)
        return rlki_usage(&command, "a number is out of range");
    r->select = (struct rlk_select){v.only, INT64_MIN, INT64_MAX};
    if (v.steps.set) {
        r->select.first = v.steps.first;
        r->select.last = v.steps.last;
    }
    if ((rc = rlk_program_open(&r->program, r->path, &detail)))
        return failed(r->path, rc, &detail);
    r->facts = rlk_program_facts(r->program);
    if ((status = read_layout(r->facts->layout, &r->recorded.tp, &r->recorded.cp)) != RLKI_GO_ON ||
        (status = read_layout(r->facts->rollout_layout, &r->recorded.rollout_tp, &r->recorded.rollout_cp)) !=
            RLKI_GO_ON)
        return status;
    if (!v.layout && !v.rollout) {
        r->wanted = r->recorded;
    } else {
        if (!v.layout) {
            r->wanted.tp = r->recorded.tp;
            r->wanted.cp = r->recorded.cp;
        }
        if (!v.rollout)
            r->wanted.rollout_tp = r->wanted.tp;
    }
    if ((rc = rlk_program_select(r->program, &r->select, &detail)))
        return failed(r->path, rc, &detail);
    return refuse(r);
}

/* RLKI_GO_ON, or the status to exit with. */
static int check_plant(void)
{
    int n = 0;
    const bool list = v.plant && strcmp(v.plant, "help") == 0;
    while (v.plant && rlk_plant_name(n) && (list || strcmp(v.plant, rlk_plant_name(n)) != 0)) {
        if (list)
            printf("%-20s %s\n", rlk_plant_name(n), rlk_plant_help(n));
        n++;
    }
    if (list)
        return RLKI_EXIT_OK;
    return !v.plant || rlk_plant_name(n) ? RLKI_GO_ON
                                         : rlki_usage(&command, "%s: no such fault, see --plant help", v.plant);
}

int main(int argc, char **argv)
{
    static struct replay r = {.verdict = "refused"};
    int nargs;
    char **args;
    rlki_program = "rlkreplay";
    int status = rlki_parse(&command, argc, argv, &nargs, &args);
    if (status != RLKI_GO_ON)
        return status;
    if (v.said && !rlki_speak_at(v.said))
        return RLKI_EXIT_FAULT;
    if ((status = check_plant()) != RLKI_GO_ON)
        return rlki_finish(status);
    status = prepare(&r, nargs ? args[0] : NULL);
    if (status == RLKI_GO_ON)
        status = v.run ? run_here(&r) : check_and_replay(&r);
    if (!v.run && v.json && !v.relaunch && status != RLKI_EXIT_FAULT)
        status = write_result(&r, status);
    rlki_scratch_remove(r.scratch);
    rlk_program_close(r.program);
    return rlki_finish(status);
}
