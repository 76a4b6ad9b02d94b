/* cuda_raw - a CUDA program with no framework that launches in every way there is, and says how often.
 *
 * usage: cuda_raw [--threads N] [--launches N] [--replays N] [--digest]
 *
 * Prints "launches N" (kernel launches made, replayed graph nodes included), "result X" (a checksum that recording must not
 * change), and for the bench "us_per_launch X". Exit 1 on any CUDA error.
 */
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CU(call)                                                                                                       \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS) {                                                                                      \
            fprintf(stderr, "%s:%d: driver error %d\n", __FILE__, __LINE__, (int)e_);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct big {
    float *p;
    int a, b;
};

__global__ void add_one(float *p, int n, float v)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        p[i] += v;
}
__global__ void by_struct(big s)
{
    if (threadIdx.x == 0)
        s.p[0] += (float)(s.a - s.b);
}
__global__ void cooperative(float *p)
{
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        p[1] += 1;
}
__global__ void no_parameters() {}

static std::atomic<long> launches;

static void many(int n, float *p, cudaStream_t s)
{
    for (int i = 0; i < n; i++)
        add_one<<<1, 32, 0, s>>>(p, 32, 1.0f);
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(s));
    launches += n;
}

/* The driver's ways: kernelParams, extra, the extended form with a cluster and with programmatic serialization. */
static void driver_ways(float *p)
{
    cudaFunction_t f;
    OK(cudaGetFuncBySymbol(&f, (const void *)add_one));
    int n = 32;
    float v = 1;
    void *params[] = {&p, &n, &v};
    CU(cuLaunchKernel((CUfunction)f, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
    struct {
        float *p;
        int n;
        float v;
    } packed = {p, 32, 1.0f};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_END};
    CU(cuLaunchKernel((CUfunction)f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
    CUlaunchAttribute a[2];
    memset(a, 0, sizeof a);
    a[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    a[0].value.clusterDim.x = 2;
    a[0].value.clusterDim.y = a[0].value.clusterDim.z = 1;
    a[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a[1].value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    c.gridDimX = 2;
    c.gridDimY = c.gridDimZ = c.blockDimY = c.blockDimZ = 1;
    c.blockDimX = 32;
    c.attrs = a;
    c.numAttrs = 2;
    CU(cuLaunchKernelEx(&c, (CUfunction)f, params, nullptr));
    launches += 3;
    void *coop[] = {&p};
    OK(cudaLaunchCooperativeKernel((const void *)cooperative, dim3(4), dim3(32), coop, 0, nullptr));
    by_struct<<<1, 32>>>(big{p, 5, 3});
    no_parameters<<<1, 1>>>();
    launches += 3;
    /* refused by the driver: seen, not recorded, and the error is the program's to see */
    if (cuLaunchKernel((CUfunction)f, 1, 1, 1, 4096, 1, 1, 0, nullptr, params, nullptr) == CUDA_SUCCESS)
        exit(1);
    OK(cudaDeviceSynchronize());
}

/* Captured, instantiated twice, one of them updated; and a graph made by calls. */
static void graphs(float *p, int replays)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t e1, e2, e3;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    add_one<<<1, 32, 0, s>>>(p, 32, 2.0f);
    by_struct<<<1, 64, 0, s>>>(big{p, 1, 0});
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&e1, g, 0));
    OK(cudaGraphInstantiate(&e2, g, 0));
    size_t n = 2;
    cudaGraphNode_t nodes[2];
    OK(cudaGraphGetNodes(g, nodes, &n));
    for (size_t i = 0; i < n; i++) { /* the node of add_one gets another grid in e2 alone */
        cudaKernelNodeParams k;
        OK(cudaGraphKernelNodeGetParams(nodes[i], &k));
        if (k.blockDim.x != 32)
            continue;
        k.gridDim = dim3(2);
        OK(cudaGraphExecKernelNodeSetParams(e2, nodes[i], &k));
    }
    cudaGraph_t made;
    cudaGraphNode_t node;
    int count = 32;
    float v = 3;
    void *params[] = {&p, &count, &v};
    cudaKernelNodeParams k = {};
    k.func = (void *)add_one;
    k.gridDim = dim3(1);
    k.blockDim = dim3(32);
    k.kernelParams = params;
    OK(cudaGraphCreate(&made, 0));
    OK(cudaGraphAddKernelNode(&node, made, nullptr, 0, &k));
    OK(cudaGraphInstantiate(&e3, made, 0));
    for (int i = 0; i < replays; i++) {
        OK(cudaGraphLaunch(e1, s));
        OK(cudaGraphLaunch(e2, s));
        OK(cudaGraphLaunch(e3, s));
        launches += 2 + 2 + 1;
    }
    OK(cudaStreamSynchronize(s));
    OK(cudaGraphExecDestroy(e1));
    OK(cudaGraphExecDestroy(e2));
    OK(cudaGraphExecDestroy(e3));
    OK(cudaGraphDestroy(g));
    OK(cudaGraphDestroy(made));
}

int main(int argc, char **argv)
{
    int threads = 8, each = 1000, replays = 1000;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--launches"))
            each = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--replays"))
            replays = atoi(argv[i + 1]);
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped: no CUDA device\n");
        return 77;
    }
    std::vector<float *> p((size_t)threads + 1);
    for (float *&x : p) {
        OK(cudaMalloc((void **)&x, 4096));
        OK(cudaMemset(x, 0, 4096));
    }
    std::vector<cudaStream_t> s((size_t)threads);
    for (cudaStream_t &x : s)
        OK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    many(100, p[0], s[0]); /* warm */
    const auto t0 = std::chrono::steady_clock::now();
    many(20000, p[0], s[0]);
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count() / 20000;
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; t++)
        pool.emplace_back([&, t] { many(each, p[(size_t)t], s[(size_t)t]); });
    for (std::thread &t : pool)
        t.join();
    driver_ways(p[(size_t)threads]);
    graphs(p[(size_t)threads], replays);
    double sum = 0;
    for (float *x : p) {
        float h[64];
        OK(cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost));
        for (float y : h)
            sum += y;
    }
    printf("launches %ld\nresult %.17g\n", launches.load(), sum);
    fprintf(stderr, "us_per_launch %.3f\n", us);
    return 0;
}
