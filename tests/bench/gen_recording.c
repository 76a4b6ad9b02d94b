/* gen_recording: writes a large recording of the shape of a training run, for benchmarks of the reader and the auditor.
 *
 *   gen_recording OUT.rlk [-n EVENTS] [-m STEPS] [-r RANKS] [-l LAUNCHES] [-c EVENT] [-x INCOMPLETE] [-e EACH]
 *                 [-f EVENT] [-i DIGESTED]
 *
 * EVENTS operators (one input by reference, one digested output) over STEPS steps, RANKS virtual ranks in one
 * environment and 200 modules; LAUNCHES launch events before each operator (0). -c changes the output of operator
 * EVENT, counted from 0, and of nothing else; so does the same call with another EVENT, or none. -x 1 leaves END out.
 * -e 1 gives each rank an environment of its own, as one process a rank does (EVENTS / STEPS a multiple of RANKS).
 * -f EVENT changes the outputs of that operator and of all after it; -i 1 digests every input, so that each of them is
 * a root instead of following from the one before. Everything else is a function of the arguments.
 */
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULES 200u
#define OPS 8u

struct options {
    const char *out;
    uint64_t events, steps, ranks, launches, change, from;
    bool incomplete, each, digested;
};

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static char modules[MODULES][64];
static const char *const ops[OPS] = {"aten::mm",  "aten::add", "aten::mul",     "aten::silu",
                                     "aten::bmm", "aten::sum", "aten::softmax", "aten::copy_"};

static int put(struct rlk_producer *p, const struct rlk_event *e, uint64_t *seq)
{
    int rc;
    while ((rc = rlk_producer_put(p, e, seq)) == RLK_EFULL)
        usleep(1000); /* a generator would rather wait than lose an event */
    return rc;
}

static int put_launches(struct rlk_producer *p, const struct options *o, const struct rlk_event *like, uint64_t n)
{
    int rc = RLK_OK;
    for (uint64_t i = 0; i < o->launches && rc == RLK_OK; i++) {
        struct rlk_launch launch = {.kernel = ops[n % OPS], .graph = RLK_NO_NODE, .node = RLK_NO_NODE, .stream = 7};
        launch.grid[0] = (uint32_t)(1 + n % 13);
        launch.block[0] = 128;
        struct rlk_event e = {.kind = RLK_EV_LAUNCH, .rank = like->rank, .who = like->who, .nlaunches = 1};
        e.launches = &launch;
        e.u.launch.count = 1;
        rc = put(p, &e, NULL);
    }
    return rc;
}

/* Events first, first + stride, ...: all, or those of one rank. */
static int generate(struct rlk_producer *p, const struct options *o, uint64_t first, uint64_t stride)
{
    static const uint64_t shape[2] = {128, 4096};
    uint64_t per_step = (o->events + o->steps - 1) / o->steps, per_module = per_step / (MODULES * o->ranks) + 1;
    uint64_t *last = calloc(o->ranks, sizeof *last);
    int rc = last ? RLK_OK : RLK_ENOMEM;
    for (uint64_t n = first; n < o->events && rc == RLK_OK; n += stride) {
        uint64_t in_step = n % per_step, rank = in_step % o->ranks, nth = in_step / o->ranks;
        struct rlk_event e = {.kind = RLK_EV_OP, .rank = (uint32_t)rank, .thread = (uint32_t)rank};
        e.who.step = (int64_t)(n / per_step);
        e.who.phase = "actor_train";
        e.who.pass = nth / per_module < MODULES / 2 ? "fwd" : "bwd";
        e.who.module = modules[nth / per_module % MODULES];
        e.who.op = ops[nth % per_module % OPS];
        e.who.occurrence = (uint32_t)(nth % per_module / OPS);
        rc = put_launches(p, o, &e, n);
        struct rlk_tensor t[2] = {{.name = "self", .dtype = RLK_BF16, .composable = true, .ndim = 2, .shape = shape},
                                  {.name = "out", .dtype = RLK_BF16, .composable = true, .ndim = 2, .shape = shape}};
        t[0].state = o->digested || n < o->ranks ? RLK_T_DIGESTED : RLK_T_REFERENCE;
        t[0].ref_event = last[rank];
        t[1].role = RLK_ROLE_OUT;
        for (int i = 0; i < 2; i++) {
            struct rlk_sums *s = &t[i].sums;
            s->positional = (rlk_u128){mix(2 * n), mix(2 * n + 1)};
            s->value = s->positional;
            s->multiset = mix(~n);
            s->elements = shape[0] * shape[1];
        }
        if (n == o->change || n >= o->from) {
            t[1].sums.positional.lo ^= 1;
            t[1].sums.value.lo ^= 1;
            t[1].sums.multiset ^= 1;
        }
        e.ntensors = 2;
        e.tensors = t;
        if (rc == RLK_OK)
            rc = put(p, &e, &last[rank]);
    }
    free(last);
    return rc;
}

static int parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){NULL, 100000, 10, 1, 0, UINT64_MAX, UINT64_MAX, false, false, false};
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            o->out = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return -1;
        uint64_t v = strtoull(argv[++i], NULL, 0);
        switch (argv[i - 1][1]) {
        case 'n':
            o->events = v;
            break;
        case 'm':
            o->steps = v;
            break;
        case 'r':
            o->ranks = v;
            break;
        case 'l':
            o->launches = v;
            break;
        case 'c':
            o->change = v;
            break;
        case 'f':
            o->from = v;
            break;
        case 'i':
            o->digested = v != 0;
            break;
        case 'e':
            o->each = v != 0;
            break;
        case 'x':
            o->incomplete = v != 0;
            break;
        default:
            return -1;
        }
    }
    return o->out && o->events && o->steps && o->ranks && o->ranks < 1000000 ? 0 : -1;
}

/* One environment: of `rank`, or of all. */
static int environment(const struct options *o, uint32_t rank, struct rlk_detail *detail)
{
    struct rlk_writer *w = NULL;
    struct rlk_producer *p;
    char dir[4200], name[64];
    rlk_recording_env_name(name, sizeof name, rank, 1 + (int64_t)rank);
    snprintf(dir, sizeof dir, "%.4000s/%s", o->out, name);
    int rc = rlk_writer_open(&w, &(struct rlk_writer_options){.dir = dir, .wait_ms = 10000}, detail);
    if (rc == RLK_OK)
        rc = rlk_writer_producer(w, &p);
    if (rc == RLK_OK) {
        rlk_writer_planes(w, RLK_PLANE_TENSOR);
        rc = generate(p, o, rank, o->each ? o->ranks : 1);
    }
    if (w) {
        int closed = rlk_writer_close(w, o->incomplete || rc, rc ? NULL : detail);
        rc = rc ? rc : closed;
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct options o;
    struct rlk_detail detail = {""};
    if (parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: gen_recording OUT.rlk [-n EVENTS] [-m STEPS] [-r RANKS] [-l LAUNCHES] [-c EVENT] [-x 0|1] "
                "[-e 0|1] [-f EVENT] [-i 0|1]\n");
        return 2;
    }
    for (uint32_t i = 0; i < MODULES; i++)
        snprintf(modules[i], sizeof modules[i], "model.layers.%u.%s", i / 4,
                 i % 4 == 0   ? "self_attn.qkv_proj"
                 : i % 4 == 1 ? "self_attn.o_proj"
                 : i % 4 == 2 ? "mlp.gate_up_proj"
                              : "mlp.down_proj");
    json_t *manifest =
        json_pack("{s:i, s:{s:i, s:i}, s:s, s:s, s:s, s:s, s:I, s:b}", "rlk_recording", 1, "format", "major",
                  RLK_FORMAT_MAJOR, "minor", RLK_FORMAT_MINOR, "created", "2026-01-01T00:00:00Z", "tool",
                  "gen_recording", "level", "op", "inputs", "reference", "ranks", (json_int_t)o.ranks, "synthetic", 1);
    int rc = manifest ? rlk_recording_create(o.out, manifest, &detail) : RLK_ENOMEM;
    json_decref(manifest);
    for (uint32_t rank = 0; rank < (o.each ? o.ranks : 1) && rc == RLK_OK; rank++)
        rc = environment(&o, rank, &detail);
    if (rc) {
        fprintf(stderr, "gen_recording: %s: %s\n", rlk_error_name(rc), detail.text);
        return 2;
    }
    return 0;
}
