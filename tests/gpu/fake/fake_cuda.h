/* fake_cuda.h - a stand-in for libcuda.so.1 in tests: "device" memory is memory, a stream is a thread that runs what is
 * enqueued in order, and the only kernel is the digest, done on the host (fake_kernel.c) from the very parameters that
 * the device would get. It answers the entry points that store/rlk_digest_gpu.c and recorder/rec_gpu_driver.c look up,
 * and can be made to fail as a driver does.
 */
#ifndef TESTS_GPU_FAKE_FAKE_CUDA_H
#define TESTS_GPU_FAKE_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
/* A primary context of device `ordinal` (0..7), made current. */
void fake_use_device(int ordinal);
/* Another context of it, not primary, made current. */
void *fake_context_new(int ordinal);
void fake_set_current(void *context);
/* It is gone with what was made in it, and none is current; the next new one gets its handle. A launch of a kernel that
 * was loaded in it aborts. */
void fake_context_destroy(void *context);
/* What the device runs from now on stays undone; the program's own error: every later call returns `code`. */
void fake_break(void *context, int code);

void *fake_stream_new(void);
/* A held stream runs nothing until it is let go. */
void fake_stream_hold(void *stream, bool held);
void fake_stream_sync(void *stream);
/* In stream order: waits, then copies. The program's own "kernel". */
void fake_copy(void *stream, void *to, const void *from, size_t bytes);

void fake_capture_begin(void *stream);
/* Kernels that were captured. */
size_t fake_capture_end(void *stream);
/* cuStreamIsCapturing answers with this error: another stream captures. */
void fake_capture_query_fails(int code);

/* The n-th next call of `entry` (as in cuda.h) and all after it return `code`; code 0 undoes it. */
void fake_fail(const char *entry, unsigned n, int code);
/* Everything is run by who enqueues it, before the call returns. */
void fake_inline(bool on);

struct fake_counts {
    uint64_t launches, device_bytes, pinned_bytes, capture_queries;
};
struct fake_counts fake_counts_now(void);

#pragma GCC visibility pop

/* fake_kernel.c: `parameters` as the device's kernel gets them. */
void fake_digest_kernel(const void *parameters);
size_t fake_digest_parameters(const void *parameters); /* bytes */

#endif
