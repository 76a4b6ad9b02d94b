/* rlk_digest_gpu.h - the digest of docs/digest.md on a CUDA device: bit-equal to rlk_digest_view(), in stream order,
 * without a host sync, an allocation or a copy on the program's streams; safe under stream capture.
 *
 * Uses the driver through libcuda.so.1, opened at run time: nothing here needs a GPU, a driver or cudart to build or
 * load. Results come back through a ring in host memory that the device writes; drain() only reads memory. Memory:
 * slots * 90 bytes on the device and slots * 289 bytes on the host, pinned (defaults: 2.9 MB and 9.5 MB). The host's
 * part is our own, registered with the driver: a context that the program destroys does not take it away under a drain.
 *
 * Threads: enqueue and drain may run on different threads; enqueue from several threads is serialised inside.
 */
#ifndef STORE_RLK_DIGEST_GPU_H
#define STORE_RLK_DIGEST_GPU_H

#include "store/rlk_digest.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RLK_GPU_MAX_TENSORS 128u /* a launch */

struct rlk_gpu_digester;

/* For the calling thread's current CUcontext. slots = results that may be outstanding, a power of two; 0 = 32,768.
 * RLK_EUNSUPPORTED: no driver, no context, or a device older than sm_75; RLK_ENOMEM: no memory for the ring. */
int rlk_gpu_digester_new(struct rlk_gpu_digester **out, uint32_t slots, struct rlk_detail *detail);
/* The context must still be current; pass `lost` = true when it is gone, then only host memory is freed. */
void rlk_gpu_digester_free(struct rlk_gpu_digester *digester, bool lost);

/* What one tensor would need: RLK_OK, or RLK_EUNSUPPORTED (a part that is not composable, or more than 6 dimensions
 * that cannot be merged, or more than 128 boxes), RLK_EINVAL (elements outside the storage). No device needed. */
int rlk_gpu_digest_plan(const struct rlk_view *view, const struct rlk_place *place, struct rlk_detail *detail);

/* Digests n tensors with one launch on `stream` (CUstream; NULL = legacy default). view.storage = device address of the
 * storage. places may be NULL, as may each places[i]. Result i carries ticket *first + i. `captured`: the stream is
 * being captured; the launch then owns its accumulators for good, and each replay yields the same tickets again.
 * RLK_EFULL: too many outstanding (drain, then again). RLK_EUNSUPPORTED, RLK_EINVAL: a tensor, see plan. RLK_ESTATE:
 * the driver refuses the launch (its error is in *detail; the program's own next call meets it just the same). On any
 * error nothing was launched. */
int rlk_gpu_digest_enqueue(struct rlk_gpu_digester *digester, const struct rlk_view *views,
                           const struct rlk_place *const *places, size_t n, void *stream, bool captured,
                           uint64_t *first, struct rlk_detail *detail);

/* The ticket that the next ordinary tensor will get: for a caller that lets no other enqueue meanwhile. */
uint64_t rlk_gpu_digest_next(const struct rlk_gpu_digester *digester);

/* Hands over the results that have arrived: ordinary ones in ticket order, those of captured replays in the order of
 * arrival; returns how many. A replay that finds the ring full loses results: the caller, who counts replays, sees the
 * gap. sums->elements is 0: the caller knows the count. One thread at a time. */
size_t rlk_gpu_digest_drain(struct rlk_gpu_digester *digester,
                            void (*sink)(void *context, uint64_t ticket, const struct rlk_sums *sums), void *context);

struct rlk_gpu_digest_stats {
    uint64_t device_bytes, host_bytes; /* held */
    uint64_t launches, tensors, results;
};
void rlk_gpu_digest_stats(struct rlk_gpu_digester *digester, struct rlk_gpu_digest_stats *out);

#ifdef __cplusplus
}
#endif

#endif
