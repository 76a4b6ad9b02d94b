/* emul.cpp - blocks as fibers. */
#include "cuda_runtime.h"

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

void emul_run(dim3 grid, dim3 block, size_t bytes, const std::function<void()> &f)
{
    count = (int)block.x;
    blockDim = block;
    gridDim = grid;
    body = &f;
    shared.assign(bytes + 256, (char)0x7f); /* large floats: a read of what was not written shows */
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = dim3(x, y);
            run_block();
        }
}

/* The provider's GEMM has no emulation. */
extern "C" int rlki_cublas_gemm(struct rlk_exec *, const struct rlki_gemm *)
{
    return -15;
}
