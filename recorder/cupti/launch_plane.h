/* launch_plane.h - the launch plane: every kernel launch, graph launch and copy of the process, by CUPTI's driver
 * callbacks. docs/launch-plane.md says what is seen, what is recorded and what is not.
 *
 * Started by the driver itself through CUDA_INJECTION64_PATH (InitializeInjection); a program that never initialises
 * CUDA never meets it. Callbacks are host-only: no CUDA call that works on a device or waits, ever.
 */
#ifndef RECORDER_CUPTI_LAUNCH_PLANE_H
#define RECORDER_CUPTI_LAUNCH_PLANE_H

#include "recorder/cupti/cupti_api.h"
#include "recorder/cupti/func_cache.h"
#include "store/rlk_event.h"

/* What became of the launches seen: seen = recorded + the rest. A replayed graph counts each kernel node. */
struct rlki_launch_counts {
    uint64_t seen, recorded;
    uint64_t own;      /* the recorder's own kernels */
    uint64_t failed;   /* the driver refused them */
    uint64_t captured; /* became a graph node: they run, and are counted, when the graph is replayed */
    uint64_t skipped;  /* not asked for: --steps, --every, --level */
    uint64_t dropped;  /* queue full, disk full */
};
void rlki_launch_counts(struct rlki_launch_counts *out);
/* Writes the counts to the recording, before it is closed. */
void rlki_launch_plane_close(void);

/* The calling thread's launches, so that an operator knows the kernels it made: begin returns a mark, end the recorded
 * launch events since then as ranges (valid until the thread's next call). Nested marks work. */
uint64_t rlki_launches_begin(void);
const struct rlk_range *rlki_launches_end(uint64_t mark, uint32_t *n);

/* Launches of kernels and graphs, and copies, that a thread made while no operator of its own was open. */
uint64_t rlki_launches_unseen(void);

/* ---- inside (launch_record.c) */
void rlki_launch_made(void);
enum rlki_launch_fate { /* index into the counts */
                        RLKI_FATE_RECORDED,
                        RLKI_FATE_OWN,
                        RLKI_FATE_FAILED,
                        RLKI_FATE_CAPTURED,
                        RLKI_FATE_SKIPPED,
                        RLKI_FATE_DROPPED,
                        RLKI_FATES,
};
void rlki_count_launches(enum rlki_launch_fate fate, uint64_t n);
/* Records one launch event of `entry`, in the calling thread's name; count: 1 for a kernel, 0 for a copy. Strings of
 * `launch` live as long as the process. */
enum rlki_launch_fate rlki_record_launch(const char *entry, const struct rlk_launch *launch, uint32_t count);
/* A replay of an executable graph: its definition when it is new, then the replay. */
void rlki_record_replay(const void *exec, const char *entry, uint64_t stream);
/* A stream's number: 0 the legacy default, 1 the per-thread default, others in order of first use. */
uint64_t rlki_stream_number(const void *stream);
/* Stores the block under its content id; false: none. Known blocks are not stored again. */
bool rlki_store_params(const unsigned char *block, size_t bytes, rlk_u128 *id);

#endif
