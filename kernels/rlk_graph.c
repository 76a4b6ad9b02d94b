#include "kernels/rlk_graph.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/rlki_prims.h"

/* What the operators see instead of the exec's own tables, until put back. */
struct held {
    const struct rlki_prims *prims, *provider;
    struct rlk_graph *graph;
    bool silent;
};

static struct held swap(struct rlk_exec *x, const struct rlki_prims *prims, const struct rlki_prims *provider,
                        struct rlk_graph *graph, bool silent)
{
    const struct held was = {x->prims, x->provider, x->graph, x->silent};
    x->prims = prims;
    x->provider = provider;
    x->graph = graph;
    x->silent = silent;
    return was;
}

static void put_back(struct rlk_exec *x, const struct held *was)
{
    x->prims = was->prims;
    x->provider = was->provider;
    x->graph = was->graph;
    x->silent = was->silent;
}

int rlk_exec_tell(struct rlk_exec *x, int (*work)(void *), void *arg)
{
    struct rlki_prims only = rlki_prims_none; /* and what a listener reads tensors with */
    only.download = x->prims->download;
    only.sync = x->prims->sync;
    const struct held was = swap(x, &only, &only, NULL, false);
    x->told = true;
    const int rc = work(arg);
    x->told = false;
    put_back(x, &was);
    return rc;
}

#ifdef RLK_HAVE_CUDA

struct upload { /* one of work's, in order */
    void *to;
    size_t bytes, at;
};

struct rlk_graph {
    void *exec;   /* executable graph */
    char *pinned; /* the uploads' bytes, read by the graph */
    size_t bytes;
    const void *workspace;
    size_t workspace_bytes;
    struct upload *upload;
    size_t n, room, next; /* noted; the next one of the call in flight */
    struct rlki_prims capture, capture_provider;
    int (*really)(struct rlk_exec *, void *, const void *, size_t);
};

/* Notes the uploads of a call: how much room they take. */
static int upload_noted(struct rlk_exec *x, void *to, const void *from, size_t bytes)
{
    struct rlk_graph *g = x->graph;
    (void)from;
    if (g->n == g->room) {
        const size_t room = g->room ? 2 * g->room : 64;
        struct upload *more = realloc(g->upload, room * sizeof *more);
        if (!more)
            return rlk_kfail(&x->detail, RLK_K_ENOMEM, "graph: out of memory for its uploads");
        g->upload = more;
        g->room = room;
    }
    g->upload[g->n++] = (struct upload){to, bytes, g->bytes};
    g->bytes += (bytes + 15u) & ~(size_t)15u;
    return 0;
}

/* The next upload's bytes into the graph's buffer, if it is the one that was noted. */
static int upload_filled(struct rlk_exec *x, void *to, const void *from, size_t bytes)
{
    struct rlk_graph *g = x->graph;
    const struct upload *u = g->next < g->n ? &g->upload[g->next] : NULL;
    if (!u || u->to != to || u->bytes != bytes)
        return rlk_kfail(&x->detail, RLK_K_ESTATE, "graph: upload %zu is not the one that was captured", g->next);
    memcpy(g->pinned + u->at, from, bytes);
    g->next++;
    return 0;
}

static int upload_captured(struct rlk_exec *x, void *to, const void *from, size_t bytes)
{
    const int rc = upload_filled(x, to, from, bytes);
    return rc || !bytes ? rc
                        : x->graph->really(x, to, x->graph->pinned + x->graph->upload[x->graph->next - 1].at, bytes);
}

static int call(struct rlk_exec *x, struct rlk_graph *g, const struct rlki_prims *prims,
                const struct rlki_prims *provider, int (*work)(void *), void *arg)
{
    const struct held was = swap(x, prims, provider, g, true);
    g->next = 0;
    const int rc = work(arg);
    put_back(x, &was);
    return rc;
}

static int uploads_only(struct rlk_exec *x, struct rlk_graph *g,
                        int (*upload)(struct rlk_exec *, void *, const void *, size_t), int (*work)(void *), void *arg)
{
    struct rlki_prims only = rlki_prims_none;
    only.upload = upload;
    return call(x, g, &only, &only, work, arg);
}

static int capture(struct rlk_exec *x, struct rlk_graph *g, int (*work)(void *), void *arg)
{
    g->capture = *x->prims;
    g->capture_provider = *x->provider;
    g->really = x->prims->upload;
    g->capture.upload = g->capture_provider.upload = upload_captured;
    int rc = rlki_cuda_capture_begin(x);
    if (rc)
        return rc;
    rc = call(x, g, &g->capture, &g->capture_provider, work, arg);
    const struct rlk_kdetail why = x->detail;
    const int ended = rlki_cuda_capture_end(x, &g->exec);
    if (rc)
        x->detail = why;
    return rc ? rc : ended;
}

int rlk_graph_new(struct rlk_exec *x, int (*work)(void *), void *arg, struct rlk_graph **out)
{
    *out = NULL;
    if (x->device != RLK_DEVICE_CUDA || !x->stream)
        return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "graph: needs a CUDA exec with a stream of its own");
    struct rlk_graph *g = calloc(1, sizeof *g);
    if (!g)
        return rlk_kfail(&x->detail, RLK_K_ENOMEM, "graph: out of memory");
    g->workspace = x->workspace;
    g->workspace_bytes = x->workspace_bytes;
    int rc = uploads_only(x, g, upload_noted, work, arg);
    if (!rc && !(g->pinned = rlki_cuda_pinned(x, g->bytes + 16)))
        rc = RLK_K_ENOMEM;
    if (!rc)
        rc = call(x, g, x->prims, x->provider, work, arg);
    if (!rc)
        rc = rlk_exec_sync(x);
    if (!rc)
        rc = capture(x, g, work, arg);
    if (rc)
        rlk_graph_free(g);
    else
        *out = g;
    return rc;
}

int rlk_graph_launch(struct rlk_exec *x, struct rlk_graph *g, int (*work)(void *), void *arg)
{
    if (x->workspace != g->workspace || x->workspace_bytes != g->workspace_bytes)
        return rlk_kfail(&x->detail, RLK_K_ESTATE, "graph: the workspace is not the one that was captured");
    int rc = rlk_exec_sync(x); /* the replay before reads the buffer */
    if (!rc)
        rc = uploads_only(x, g, upload_filled, work, arg);
    if (!rc && g->next != g->n)
        rc = rlk_kfail(&x->detail, RLK_K_ESTATE, "graph: %zu uploads, %zu were captured", g->next, g->n);
    return rc ? rc : rlki_cuda_graph_launch(x, g->exec);
}

void rlk_graph_free(struct rlk_graph *g)
{
    if (!g)
        return;
    rlki_cuda_graph_free(g->exec);
    rlki_cuda_pinned_free(g->pinned);
    free(g->upload);
    free(g);
}

#else

int rlk_graph_new(struct rlk_exec *x, int (*work)(void *), void *arg, struct rlk_graph **out)
{
    (void)work, (void)arg;
    *out = NULL;
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "graph: this build has no CUDA");
}

int rlk_graph_launch(struct rlk_exec *x, struct rlk_graph *g, int (*work)(void *), void *arg)
{
    (void)g, (void)work, (void)arg;
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "graph: this build has no CUDA");
}

void rlk_graph_free(struct rlk_graph *g)
{
    (void)g;
}

#endif
