/* cuda_graph.cu - streams, capture and replay of graphs, pinned memory. */
#include "kernels/cuda_common.cuh"

static int done(struct rlk_exec *x, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return 0;
    cudaGetLastError();
    return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "%s: %s", what, cudaGetErrorString(e));
}

extern "C" int rlki_cuda_ordinal(void)
{
    int device = -1;
    if (cudaGetDevice(&device) == cudaSuccess)
        return device;
    cudaGetLastError();
    return -1;
}

extern "C" int rlki_cuda_stream_new(struct rlk_exec *x, void **stream)
{
    cudaStream_t s = NULL;
    const int rc = done(x, cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream");
    *stream = s;
    return rc;
}

extern "C" void rlki_cuda_stream_free(struct rlk_exec *x, void *stream)
{
    (void)x;
    cudaStreamSynchronize((cudaStream_t)stream);
    cudaStreamDestroy((cudaStream_t)stream);
}

extern "C" int rlki_cuda_capture_begin(struct rlk_exec *x)
{
    return done(x, cudaStreamBeginCapture(stream_of(x), cudaStreamCaptureModeThreadLocal), "capture");
}

extern "C" int rlki_cuda_capture_end(struct rlk_exec *x, void **graph)
{
    cudaGraph_t noted = NULL;
    cudaGraphExec_t exec = NULL;
    int rc = done(x, cudaStreamEndCapture(stream_of(x), &noted), "end of capture");
    if (!rc)
        rc = done(x, cudaGraphInstantiate(&exec, noted, 0), "instantiation of a graph");
    if (noted)
        cudaGraphDestroy(noted);
    *graph = exec;
    return rc;
}

extern "C" int rlki_cuda_graph_launch(struct rlk_exec *x, void *graph)
{
    return done(x, cudaGraphLaunch((cudaGraphExec_t)graph, stream_of(x)), "launch of a graph");
}

extern "C" void rlki_cuda_graph_free(void *graph)
{
    if (graph)
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

extern "C" void *rlki_cuda_pinned(struct rlk_exec *x, size_t bytes)
{
    void *p = NULL;
    return done(x, cudaMallocHost(&p, bytes), "pinned memory") ? NULL : p;
}

extern "C" void rlki_cuda_pinned_free(void *p)
{
    if (p)
        cudaFreeHost(p);
}
