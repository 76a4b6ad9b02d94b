/* test_replay_hostile.c - recordings that are well-formed and lie: shapes, runs, references, names, attributes. A
 * replay refuses or fails, and never crashes.
 *
 * usage: test_replay_hostile BIN_DIR [COUNT [SEED]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "replayer/rlk_replay.h"
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static const uint64_t odd[] = {
    0, 1, 2, 3, 7, 8, 63, 64, 512, 4096, 65536, 1u << 20, UINT64_C(1) << 31, UINT64_C(1) << 40};

static uint64_t some(void)
{
    return odd[below(sizeof odd / sizeof odd[0])];
}

struct copier {
    struct rlk_env *env;
    struct rlk_producer *to;
    struct rlk_event *other; /* an event seen before */
    struct rlk_arena arena;
    uint64_t seq, target;
    bool drop;
};

/* The reader's own memory: changed in place. */
static void spoil_tensor(struct rlk_tensor *t, const struct rlk_event *other)
{
    uint64_t *shape = (uint64_t *)(uintptr_t)t->shape;
    switch (below(9)) {
    case 0:
        if (t->ndim)
            shape[below(t->ndim)] = some();
        break;
    case 1:
        if (t->place && t->place->ndim)
            ((uint64_t *)(uintptr_t)t->place->shape)[below(t->place->ndim)] = some();
        break;
    case 2: /* a whole other shape, both ways the same */
        for (uint32_t d = 0; t->place && d < t->ndim && d < t->place->ndim; d++) {
            shape[d] = some();
            ((uint64_t *)(uintptr_t)t->place->shape)[d] = shape[d];
            ((uint32_t *)(uintptr_t)t->place->nruns)[d] = RLK_WHOLE;
        }
        break;
    case 3:
        t->dtype = (uint8_t)(1 + below(21));
        break;
    case 4:
        t->ref_event = below((uint32_t)t->ref_event + 2);
        break;
    case 5:
        t->ref_output = below(12);
        break;
    case 6:
        if (other && other->ntensors)
            t->name = other->tensors[below(other->ntensors)].name;
        break;
    case 7:
        if (other && other->ntensors) {
            const struct rlk_tensor *o = &other->tensors[below(other->ntensors)];
            t->ndim = o->ndim;
            t->shape = o->shape;
            t->place = o->place;
        }
        break;
    default:
        t->state = (uint8_t)below(4);
        t->reason = "lie";
        break;
    }
}

static void spoil(struct rlk_event *e, const struct rlk_event *other)
{
    static char run[64];
    struct rlk_attr *attr = (struct rlk_attr *)(uintptr_t)e->attrs;
    switch (below(8)) {
    case 0:
        if (other)
            e->who.op = other->who.op;
        break;
    case 1:
        e->who.pass = below(2) ? "bwd" : "fwd";
        break;
    case 2:
        for (uint32_t i = 0; i < e->nattrs; i++)
            if (attr[i].type == RLK_ATTR_STRING) {
                snprintf(run, sizeof run, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, some() % 70000,
                         some() % 70000, some() % 70000, some() % 70000);
                attr[i].s = run;
            } else {
                attr[i].i = (int64_t)some() - 1;
                attr[i].d = (double)some();
            }
        break;
    case 3:
        if (e->kind == RLK_EV_WEIGHTS)
            e->u.weights.side = below(2) ? "rollout" : "trainer";
        else if (e->kind == RLK_EV_REQUEST)
            e->u.request.id = "s77777";
        else if (e->kind == RLK_EV_LEAF)
            e->u.leaf.generator = below(2) ? "zeros" : "";
        break;
    default:
        if (e->ntensors)
            spoil_tensor((struct rlk_tensor *)(uintptr_t)&e->tensors[below(e->ntensors)], other);
        break;
    }
}

static int copy(struct copier *c)
{
    struct rlk_event e;
    const uint64_t n = rlk_env_count(c->env);
    for (uint64_t seq = 0; seq < n; seq++) {
        if (rlk_env_event(c->env, seq, &c->arena, &e, NULL))
            continue;
        const bool hit = seq >= c->target && (seq - c->target) % 37 == 0 && seq < c->target + 150;
        struct rlk_event before = e;
        if (hit)
            spoil(&e, c->other);
        if (hit || below(50) == 0) {
            struct rlk_event *o = rlk_arena_alloc(&c->arena, sizeof *o, 16);
            *o = e;
            c->other = o;
        }
        if (rlk_producer_put(c->to, &e, NULL) && rlk_producer_put(c->to, &before, NULL)) {
            /* A lie that the writer refuses leaves a hole. */
        }
    }
    return 0;
}

static int replay(const char *dir)
{
    struct rlk_program *p;
    struct rlk_detail detail = {""};
    struct rlk_replay_outcome outcome;
    const struct rlk_select all = {NULL, INT64_MIN, INT64_MAX};
    const struct rlk_replay_options o = {.tp = below(2) ? 2 : 1,
                                         .cp = below(2) ? 2 : 1,
                                         .threads = 1,
                                         .contract = "portable/1",
                                         .partial = below(2) != 0};
    int rc = rlk_program_open(&p, dir, &detail);
    if (!rc)
        rc = rlk_program_select(p, &all, &detail);
    if (!rc)
        rc = rlk_replay_run(p, &o, &outcome, &detail);
    rlk_program_close(p);
    return rc ? 3 : 0;
}

static int in_child(const char *dir)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(replay(dir));
    }
    return pid < 0 || waitpid(pid, &status, 0) < 0 ? -1 : status;
}

static int one(const char *source, const char *dir, unsigned i, unsigned *refused)
{
    char env[512];
    struct rlk_recording *from;
    struct rlk_writer *writer;
    struct rlk_detail detail = {""};
    const json_t *manifest;
    int bad = rlk_recording_open(&from, source, &detail);
    if (bad)
        return fprintf(stderr, "%s\n", detail.text), 1;
    struct copier c = {.env = rlk_recording_env(from, 0)};
    manifest = rlk_recording_manifest(from);
    snprintf(env, sizeof env, "%s/rank-00000.pid-1", dir);
    bad = rlk_recording_create(dir, manifest, &detail);
    const struct rlk_writer_options o = {.dir = env, .queue_bytes = 1u << 26, .wait_ms = 60000};
    bad = bad || rlk_writer_open(&writer, &o, &detail) || rlk_writer_producer(writer, &c.to);
    static const char *const keys[] = {"layout", "rlktrain.rollout_layout", "rlk.program", "rlktrain.program"};
    for (size_t k = 0; !bad && k < 4; k++)
        bad = rlk_writer_meta(writer, keys[k], rlk_env_meta(c.env, keys[k]));
    c.target = below((uint32_t)rlk_env_count(c.env));
    bad = bad || copy(&c) || rlk_writer_close(writer, false, &detail);
    rlk_arena_release(&c.arena);
    rlk_recording_close(from);
    if (bad)
        return fprintf(stderr, "recording %u: %s\n", i, detail.text), 1;
    const int status = in_child(dir);
    *refused += WIFEXITED(status) && WEXITSTATUS(status) == 3;
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3))
        return fprintf(stderr, "recording %u: the replay ended with status %x\n", i, (unsigned)status), 1;
    return 0;
}

int main(int argc, char **argv)
{
    char scratch[] = "/tmp/rlk-hostile-XXXXXX", text[1024], dir[128];
    const unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 60;
    unsigned refused = 0;
    int bad = argc < 2 || !mkdtemp(scratch);
    if (bad)
        return 2;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    snprintf(text, sizeof text,
             "'%s/rlkrec' run -q -o %s/a -- '%s/rlktrain' --model qwen3-mini --steps 1 --new 3 --samples 2 --group 2 "
             "--micro-batches 1 >/dev/null",
             argv[1], scratch, argv[1]);
    bad = system(text) != 0;
    snprintf(text, sizeof text, "%s/a.rlk", scratch);
    for (unsigned i = 0; !bad && i < count; i++) {
        snprintf(dir, sizeof dir, "%s/b%u.rlk", scratch, i);
        bad = one(text, dir, i, &refused);
    }
    printf("%u lying recordings, %u refused\n", count, refused);
    if (!bad) {
        snprintf(text, sizeof text, "rm -rf %s", scratch);
        bad = system(text) != 0;
    }
    return bad || refused == 0;
}
