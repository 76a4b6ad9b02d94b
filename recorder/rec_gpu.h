/* rec_gpu.h - digests of tensors on a CUDA device: enqueued on the operator's stream, taken up later by the writer.
 *
 * An operator's device tensors are gathered (rlki_gpu_add) and digested by one launch (rlki_gpu_launch): inputs before
 * it runs, outputs when it ends. Each tensor goes to the writer as PENDING with a ticket; the writer's thread asks for
 * it (rlki_gpu_resolve), which drains the rings that the devices write. Nothing here waits for a device, but for 100 ms
 * at most when a ring is full, once a stall, and at the end of the process. What cannot be digested becomes
 * NOT_DIGESTED:
 *
 *   capture      the stream is being captured: the operator did not run; replays of the graph are not operators
 *   gpu-none     no driver, no context, or a device that the kernel does not run on
 *   gpu-memory   no memory for the ring: said once, marks the recording
 *   gpu-launch   the driver refuses the digest's launch: said once; after three in a row the context is left alone
 *   gpu-layout   a layout that the device's digest does not do (placement with borders inside a unit, lazy conjugate)
 *   gpu-contexts more contexts than we keep
 *   ring-full    results do not come: the device stalls
 *
 * Memory: a ring a context, 2.9 MB on the device and 9.5 MB pinned on the host (store/rlk_digest_gpu.h).
 */
#ifndef RECORDER_REC_GPU_H
#define RECORDER_REC_GPU_H

#include "recorder/rlk_tap.h"
#include "store/rlk_event.h"

struct rlki_rec;
struct rlki_gpu;

/* One device tensor of an operator in the making. */
struct rlki_gpu_item {
    struct rlk_view view; /* shape and strides lie in the operator's arena */
    const struct rlk_place *place;
    void *stream;
    int32_t ordinal;
    uint32_t index;
    uint8_t role; /* enum rlk_role */
};

/* Notes that tensor `index` of `role`, already filled in, is to be digested; its state becomes PENDING, without a
 * ticket yet. False: no memory. */
bool rlki_gpu_add(struct rlk_tap_op *op, enum rlk_role role, uint32_t index, const struct rlk_tap_tensor *from,
                  struct rlk_tensor *out);
/* Enqueues what was gathered; afterwards each such tensor is PENDING with a ticket, or NOT_DIGESTED. */
void rlki_gpu_launch(struct rlk_tap_op *op);
/* While on, what rlki_gpu_launch would enqueue on this thread waits for more, up to a launch's worth, or for off. */
void rlki_gpu_hold(bool on);
/* Tickets of tensors that go to no writer. */
void rlki_gpu_forget(struct rlki_rec *state, const struct rlk_tensor *tensors, uint32_t n);
/* The bytes of a device tensor's storage between its first and its last element, copied to the host in stream order
 * (this waits for the stream: --payload asked for it): *bytes is malloc'ed, *view becomes a view of it. */
int rlki_gpu_fetch(struct rlki_rec *state, const struct rlk_tap_tensor *from, struct rlk_view *view, void **bytes);
/* For struct rlk_writer_options; the context is the struct rlki_rec. */
int rlki_gpu_resolve(void *state, uint64_t ticket, struct rlk_sums *sums);
/* The queue was full: digests that have not come are given up, so that the program need not wait for them again. */
void rlki_gpu_stalled(struct rlki_rec *state);
/* Before the recording closes: waits while results still come, at most two seconds without one; then says in `meta`
 * what was done. From then on nothing is digested. */
void rlki_gpu_close(struct rlki_rec *state);

/* ---- tickets (rec_gpu_slots.c): results on their way from a ring to the writer. Thread-safe. */
struct rlki_slots;
struct rlki_slots *rlki_slots_new(uint32_t n);
void rlki_slots_free(struct rlki_slots *slots);
/* n tickets that wait for results of the ring `owner`; false: none free, or not as many. */
bool rlki_slots_take(struct rlki_slots *slots, uint64_t *tickets, const uint64_t *elements, uint32_t n, uint32_t owner);
void rlki_slots_arrived(struct rlki_slots *slots, uint64_t ticket, const struct rlk_sums *sums);
/* Nothing was launched for it. */
void rlki_slots_untake(struct rlki_slots *slots, uint64_t ticket);
/* Nobody will ask for it, but its result may still arrive. */
void rlki_slots_forget(struct rlki_slots *slots, uint64_t ticket);
/* RLK_OK (the ticket is then done with), RLK_EAGAIN, RLK_EFULL: given up, RLK_ESTATE: its ring is dead, RLK_EINVAL. */
int rlki_slots_result(struct rlki_slots *slots, uint64_t ticket, struct rlk_sums *sums);
/* On all that wait now; for_good: and on all that will. */
void rlki_slots_give_up(struct rlki_slots *slots, bool for_good);
void rlki_slots_owner_died(struct rlki_slots *slots, uint32_t owner);
/* How many wait for a result; *arrived gets the results so far. */
uint32_t rlki_slots_waiting(struct rlki_slots *slots, uint64_t *arrived);

/* ---- the driver (rec_gpu_driver.c) */
struct rlki_gpu_driver {
    int (*ctx_get_current)(void **);
    int (*ctx_get_device)(int *);
    int (*ctx_push)(void *);
    int (*ctx_pop)(void **);
    int (*primary_state)(int, unsigned *, int *);
    int (*primary_retain)(void **, int);
    int (*primary_release)(int);
    int (*stream_is_capturing)(void *, int *);
    int (*memcpy_dtoh)(void *, uint64_t, size_t, void *);
    int (*stream_synchronize)(void *);
    int (*ctx_id)(void *, unsigned long long *); /* of drivers from CUDA 12 on, else NULL */
};
/* Looks for libcuda.so.1 in the process, never loads it. */
int rlki_gpu_driver_open(struct rlki_gpu_driver *cu, struct rlk_detail *detail);
/* Makes a context of device `ordinal` current where another is, until leave; returns it, or NULL: there is none. */
void *rlki_gpu_enter(const struct rlki_gpu_driver *cu, int ordinal, int *pushed);
/* A number that no other context of the process has, gone ones included; 0: the driver is too old to tell. */
uint64_t rlki_gpu_context_id(const struct rlki_gpu_driver *cu, void *context);
void rlki_gpu_leave(const struct rlki_gpu_driver *cu, int pushed);

#endif
