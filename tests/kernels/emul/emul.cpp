/* emul.cpp - blocks as fibers. */
#include "cuda_runtime.h"

#include "kernels/rlk_num.h"
#include "kernels/rlki_cuda.h"

#include <cstdio>
#include <map>
#include <sys/mman.h>
#include <vector>

dim3 blockIdx, blockDim, gridDim, threadIdx;

namespace {

enum { STACK = 64 * 1024, MAX_THREADS = 256 };

struct fiber {
    void *sp;
    bool done, waiting;
    int gate; /* barrier it waits at: -1 block, w = warp w */
};

fiber threads[MAX_THREADS];
char *stacks;
void *scheduler;
int running, count;
const std::function<void()> *body;
std::vector<char> shared;
struct slot { unsigned char bytes[16]; } slots[MAX_THREADS];

extern "C" void emul_switch(void **from, void *to);
__asm__(".text\n.globl emul_switch\nemul_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

void entry()
{
    threadIdx = dim3((unsigned)running);
    (*body)();
    threads[running].done = true;
    emul_switch(&threads[running].sp, scheduler);
}

void wait_at(int gate)
{
    const int me = running;
    threads[me].waiting = true;
    threads[me].gate = gate;
    emul_switch(&threads[me].sp, scheduler);
    threadIdx = dim3((unsigned)me);
}

/* Opens a gate when every live thread that belongs to it has come. */
bool open_gates()
{
    bool any = false;
    for (int gate = -1; gate < count / 32 + 1; gate++) {
        const int from = gate < 0 ? 0 : 32 * gate, to = gate < 0 ? count : (32 * gate + 32 < count ? 32 * gate + 32 : count);
        bool all = true, some = false;
        for (int i = from; i < to; i++)
            if (!threads[i].done) {
                all &= threads[i].waiting && threads[i].gate == gate;
                some = true;
            }
        for (int i = from; all && some && i < to; i++)
            threads[i].waiting = false;
        any |= all && some;
    }
    return any;
}

void run_block()
{
    if (!stacks)
        stacks = (char *)malloc((size_t)STACK * MAX_THREADS);
    for (int i = 0; i < count; i++) {
        void **top = (void **)(stacks + (size_t)STACK * (size_t)(i + 1)) - 2;
        *top = (void *)entry;
        threads[i] = fiber{top - 6, false, false, 0};
    }
    for (;;) {
        bool live = false, moved = false;
        for (int i = 0; i < count; i++) {
            if (threads[i].done)
                continue;
            live = true;
            if (threads[i].waiting)
                continue;
            moved = true;
            running = i;
            emul_switch(&scheduler, threads[i].sp);
        }
        if (!live)
            return;
        if (!moved && !open_gates())
            abort(); /* a barrier that not all threads reach */
    }
}

} // namespace

float *emul_shared()
{
    return (float *)(((uintptr_t)shared.data() + 255) & ~(uintptr_t)255);
}

void __syncthreads()
{
    wait_at(-1);
}

void __syncwarp()
{
    wait_at((int)threadIdx.x / 32);
}

void emul_exchange(const void *mine, size_t bytes, int source, void *theirs)
{
    const int me = running, warp = me / 32;
    memcpy(slots[me].bytes, mine, bytes);
    wait_at(warp);
    memcpy(theirs, slots[32 * warp + source].bytes, bytes);
    wait_at(warp);
}

namespace {

const size_t ARENA = (size_t)1 << 34;
char *arena;
size_t used;
bool guarded;
std::map<size_t, std::vector<void *>> spare;
std::map<void *, size_t> sizes;

struct door { /* open while it lives */
    door() { turn(PROT_READ | PROT_WRITE); }
    ~door() { turn(PROT_NONE); }
    static void turn(int how)
    {
        if (guarded && used && mprotect(arena, used, how) != 0)
            abort();
    }
};

bool on_device(const void *p)
{
    return arena && (const char *)p >= arena && (const char *)p < arena + used;
}

} // namespace

/* ---- graphs */

struct emul_graph {
    std::vector<std::function<void()>> node;
    int holders = 1;
};

namespace {

emul_graph *capturing;
int captured;

} // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = malloc(1);
    return 0;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    free(s);
    return 0;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return capturing ? 900 : 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, int)
{
    if (!s || capturing)
        return 900;
    capturing = new emul_graph;
    return 0;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *g)
{
    *g = capturing;
    capturing = nullptr;
    return *g ? 0 : 900;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long)
{
    g->holders++;
    captured++;
    *e = g;
    return 0;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    if (!--g->holders)
        delete g;
    return 0;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
    return cudaGraphDestroy(g);
}

/* EMUL_GRAPHS: how many were launched, said at the end on stderr. */
static int launched;
static void say_launched()
{
    fprintf(stderr, "graphs captured, launched: %d %d\n", captured, launched);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t)
{
    if (capturing)
        return 900;
    if (!launched++ && getenv("EMUL_GRAPHS"))
        atexit(say_launched);
    for (const auto &node : g->node)
        node();
    return 0;
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    if (capturing)
        return 900;
    const size_t size = (n + 4096) / 4096 * 4096;
    if (!arena) {
        const char *open = getenv("EMUL_GUARD");
        guarded = !open || open[0] != '0';
        arena = (char *)mmap(nullptr, ARENA, guarded ? PROT_NONE : PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            return 2;
    }
    std::vector<void *> &free_ones = spare[size];
    if (!free_ones.empty()) {
        *p = free_ones.back();
        free_ones.pop_back();
    } else {
        if (used + size > ARENA)
            return 2;
        *p = arena + used;
        used += size;
    }
    sizes[*p] = size;
    return 0;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return 0;
    if (!sizes.count(p))
        return 1;
    spare[sizes[p]].push_back(p);
    sizes.erase(p);
    return 0;
}

cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, cudaStream_t)
{
    const bool to = kind != cudaMemcpyDeviceToHost, from = kind != cudaMemcpyHostToDevice;
    if (n && (on_device(d) != to || on_device(s) != from))
        return 1;
    if (capturing) {
        if (kind == cudaMemcpyDeviceToHost)
            return 900;
        capturing->node.push_back([=] { cudaMemcpyAsync(d, s, n, kind, nullptr); });
        return 0;
    }
    door open;
    memcpy(d, s, n);
    return 0;
}

cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t)
{
    if (n && !on_device(d))
        return 1;
    if (capturing) {
        capturing->node.push_back([=] { cudaMemsetAsync(d, v, n, nullptr); });
        return 0;
    }
    door open;
    memset(d, v, n);
    return 0;
}

void emul_run(dim3 grid, dim3 block, size_t bytes, const std::function<void()> &f)
{
    if (capturing) {
        capturing->node.push_back([=] { emul_run(grid, block, bytes, f); });
        return;
    }
    count = (int)block.x;
    blockDim = block;
    gridDim = grid;
    body = &f;
    door open;
    shared.assign(bytes + 256, (char)0x7f); /* large floats: a read of what was not written shows */
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = dim3(x, y);
            run_block();
        }
}

/* The provider's GEMM: some order that is not the contract's. */
static float element(const struct rlki_side &s, int64_t o, int64_t k)
{
    const int64_t at = o * s.out + (s.index ? s.index[k] : k) * s.red;
    return s.type == RLK_K_BF16 ? rlkn_from_bf16(((const uint16_t *)s.p)[at]) : ((const float *)s.p)[at];
}

extern "C" int rlki_cublas_gemm(struct rlk_exec *, const struct rlki_gemm *given)
{
    const struct rlki_gemm g = *given;
    emul_run(dim3((unsigned)g.m), dim3(1), 0, [=] {
        const int64_t i = blockIdx.x;
        for (int64_t j = 0; j < g.n; j++) {
            float sum = 0.0f;
            for (int64_t k = g.k; k-- > 0;)
                sum += element(g.a, i, k) * element(g.b, j, k);
            const int64_t at = i * g.ldc + j;
            if (g.c_type == RLK_K_BF16)
                ((uint16_t *)g.c)[at] = rlkn_to_bf16(sum);
            else
                ((float *)g.c)[at] = sum + (g.resume ? ((float *)g.c)[at] : 0.0f);
        }
    });
    return 0;
}
