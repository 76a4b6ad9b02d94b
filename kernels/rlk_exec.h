/* rlk_exec.h - where operators run: device, stream, threads, workspace, listener, policy. All of it is the caller's.
 *
 * An exec is used by one thread at a time. Operators enqueue on the stream (CUDA) or return when done (CPU); none of
 * them allocates device memory or synchronises, except where its comment says so.
 */
#ifndef KERNELS_RLK_EXEC_H
#define KERNELS_RLK_EXEC_H

#include "kernels/rlk_kbase.h"
#include "kernels/rlk_lattice.h"
#include "kernels/rlk_observe.h"
#include "kernels/rlk_policy.h"
#include "kernels/rlk_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rlk_device { RLK_DEVICE_CPU = 0, RLK_DEVICE_CUDA = 1 };

struct rlki_prims;

struct rlk_exec {
    enum rlk_device device;
    void *stream;          /* cudaStream_t on CUDA, NULL = the default stream; NULL on the CPU */
    struct rlk_pool *pool; /* CPU threads, NULL = the calling thread */
    void *workspace;       /* memory of the device, 256-byte aligned; see rlk_exec_measure */
    size_t workspace_bytes;
    const struct rlk_observe *observe; /* NULL = nobody listens */
    struct rlk_policy *policy;         /* NULL = strict: every operator by its contract */
    enum rlk_node node;                /* node precision of every tree; RLK_NODE_FP32 is the contract */
    struct rlk_kdetail detail;         /* particulars of the last error */

    /* Private. */
    const struct rlki_prims *prims, *provider;
    size_t used, peak;
    bool measuring;
    bool told;   /* rlk_exec_tell is under way */
    bool silent; /* operators are neither observed nor counted: a graph is captured or filled */
    uint64_t calls;
    struct rlk_graph *graph; /* that takes the uploads of the operators */
    bool own_stream;
};

/* Fills *x for a device. RLK_K_EUNSUPPORTED with the reason in x->detail when the build or the machine has no CUDA.
 * The instruction set of the CPU is chosen here; RLK_CPU_ISA=generic|avx2|avx512 in the environment overrides it (the
 * bits do not change). */
int rlk_exec_init(struct rlk_exec *x, enum rlk_device device, void *stream, struct rlk_pool *pool);
const char *rlk_exec_isa(const struct rlk_exec *x); /* "generic", "avx2", "avx512", "cuda" */

/* A stream of x's own in place of the default stream, which no graph can be captured on (rlk_graph.h); nothing on the
 * CPU. drop waits for what is on it. */
int rlk_exec_own_stream(struct rlk_exec *x);
void rlk_exec_drop_stream(struct rlk_exec *x);
/* Number of the device as the process counts them, when its memory is a CUDA driver's; else -1 (CPU, emulation). */
int rlk_exec_ordinal(const struct rlk_exec *x);

/* Measuring: operators check their arguments and note the workspace they would take, touch no memory and are not
 * observed or counted; the policy decides whose workspace it is. rlk_exec_peak is the most that any operator took since
 * the last rlk_exec_measure(x, true). Idiom: rlk_exec_measure(x, true); step(x); bytes = rlk_exec_peak(x);
 * rlk_exec_measure(x, false); x->workspace = ... */
void rlk_exec_measure(struct rlk_exec *x, bool on);
size_t rlk_exec_peak(const struct rlk_exec *x);

/* Memory of the device, for callers that have none of their own. alloc returns NULL when short. Copies are in stream
 * order; download returns when the bytes are there. */
void *rlk_exec_alloc(struct rlk_exec *x, size_t bytes);
void rlk_exec_free(struct rlk_exec *x, void *p);
int rlk_exec_upload(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
int rlk_exec_download(struct rlk_exec *x, void *dst, const void *src, size_t bytes);
/* rows of `bytes` bytes (a multiple of 2), strides in bytes; both on the device. */
int rlk_exec_rows(struct rlk_exec *x, void *dst, size_t dst_stride, const void *src, size_t src_stride, int64_t rows,
                  size_t bytes);
/* *flag, memory of the device, becomes 1 where a and b, of the device, differ in a byte (bytes even); else it stays. */
int rlk_exec_differ(struct rlk_exec *x, const void *a, const void *b, size_t bytes, uint32_t *flag);
int rlk_exec_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes); /* both on the device */
int rlk_exec_zero(struct rlk_exec *x, void *p, size_t bytes);
int rlk_exec_sync(struct rlk_exec *x);

#ifdef __cplusplus
}
#endif
#endif
