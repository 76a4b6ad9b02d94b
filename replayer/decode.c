/* decode.c - decode passes by captured graphs. docs/replay.md, "Captured decode".
 *
 * The passes have memory and a workspace of their own, taken alike each time, so that a graph's addresses stay good
 * from one rollout to the next. A tensor of the pass has rows for every sample of the run; a part of the batch computes
 * on its rows of it, and the whole batch is told afterwards.
 */
#include "replayer/run.h"

#include "kernels/rlk_graph.h"

#include <stdlib.h>

void rlki_decoder_swap(struct rlk_train *run)
{
    struct rlki_decoder *d = &run->decoder;
    const struct rlki_frame frame = run->frame;
    void *const workspace = run->workspace;
    const size_t bytes = run->x.workspace_bytes;
    run->frame = d->frame;
    run->workspace = run->x.workspace = d->workspace;
    run->x.workspace_bytes = d->workspace_bytes;
    d->frame = frame;
    d->workspace = workspace;
    d->workspace_bytes = bytes;
}

static int replayed(void *arg)
{
    struct rlki_turn *t = arg;
    const int rc = rlk_batch_move(&t->run->x, t->batch, t->first);
    return rc ? rc : rlki_turn_pass(t);
}

/* From the same memory every time. */
static int again(void *arg)
{
    struct rlki_turn *t = arg;
    const struct rlki_mark mark = rlki_frame_mark(t->run);
    const int rc = replayed(arg);
    rlki_frame_back(t->run, mark);
    return rc;
}

static int batch_of(struct rlk_train *run, int n, struct rlk_batch **out)
{
    int32_t *one = malloc(((size_t)n + 1) * sizeof *one);
    if (!one)
        return rlki_fail_memory(run, "a batch");
    for (int i = 0; i < n; i++)
        one[i] = 1;
    const int rc = rlk_batch_new(&run->x, &run->roll.lat, n, one, NULL, out);
    free(one);
    return rc;
}

/* The batch of n sequences that is told. */
static int whole_of(struct rlk_train *run, int n)
{
    struct rlki_decoder *d = &run->decoder;
    rlk_batch_free(&run->x, d->whole);
    d->whole = NULL;
    const int rc = batch_of(run, n, &d->whole);
    d->sequences = rc ? 0 : n;
    return rc;
}

static int make_ready(struct rlki_turn *t, int n)
{
    struct rlk_train *run = t->run;
    struct rlki_decoder *d = &run->decoder;
    int rc = 0;
    run->frame.rows = run->opt.samples;
    run->frame.first = 0;
    if (!d->graph) {
        d->graphs = (run->opt.samples + RLKI_CAPTURE - 1) / RLKI_CAPTURE * RLKI_CAPTURE;
        d->graph = calloc((size_t)d->graphs, sizeof *d->graph);
        rc = d->graph ? 0 : rlki_fail_memory(run, "graphs");
    }
    for (int size = 1; !rc && size <= RLKI_CAPTURE; size++)
        if (!d->batch[size])
            rc = batch_of(run, size, &d->batch[size]);
    if (!rc && !d->whole) {
        rc = whole_of(run, run->opt.samples);
        t->batch = d->whole;
        if (!rc) /* the workspace is made once, for all samples: a graph keeps its address */
            rc = rlki_room(run, rlki_turn_pass, t);
    }
    if (!rc && d->sequences != n)
        rc = whole_of(run, n);
    t->batch = d->whole;
    return rc;
}

static int part(const struct rlki_turn *t, int at, int size)
{
    struct rlk_train *run = t->run;
    struct rlki_decoder *d = &run->decoder;
    struct rlk_graph **g = &d->graph[at + size - 1];
    struct rlki_turn p = *t;
    int rc = RLK_K_ESTATE;
    p.batch = d->batch[size];
    p.ids += at;
    p.cache_row += at;
    p.first += at;
    p.id_of += at;
    run->frame.first = at;
    if (*g)
        rc = rlk_graph_launch(&run->x, *g, again, &p);
    if (rc == RLK_K_ESTATE) { /* never captured, or the workspace has grown since */
        rlk_graph_free(*g);
        rc = rlk_graph_new(&run->x, again, &p, g);
        if (!rc)
            rc = rlk_graph_launch(&run->x, *g, again, &p);
    }
    run->frame.first = 0;
    return rc;
}

int rlki_decode(struct rlki_turn *t, int n)
{
    int rc = make_ready(t, n);
    for (int at = 0; !rc && at < n; at += RLKI_CAPTURE)
        rc = part(t, at, n - at < RLKI_CAPTURE ? n - at : RLKI_CAPTURE);
    if (rc)
        return rc;
    rlki_rec_hold(t->run, true);
    rc = rlk_exec_tell(&t->run->x, replayed, t);
    rlki_rec_hold(t->run, false);
    return rc;
}

void rlki_decoder_release(struct rlk_train *run)
{
    struct rlki_decoder *d = &run->decoder;
    for (int i = 0; i < d->graphs && d->graph; i++)
        rlk_graph_free(d->graph[i]);
    free(d->graph);
    for (int size = 1; size <= RLKI_CAPTURE; size++)
        rlk_batch_free(&run->x, d->batch[size]);
    rlk_batch_free(&run->x, d->whole);
    rlki_decoder_swap(run);
    rlki_frame_release(run);
    rlk_exec_free(&run->x, run->workspace);
    run->workspace = NULL;
    rlki_decoder_swap(run);
    *d = (struct rlki_decoder){0};
}
