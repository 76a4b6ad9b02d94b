/* rlk_queue.h - a byte ring between one producing thread and the writer thread (internal). Lock-free, in order.
 *
 * A slot is reserved, filled by the producer, published; the consumer looks at the oldest slot and releases it.
 * Slots are contiguous and 16-aligned; what is larger than a quarter of the ring belongs outside (struct rlki_far).
 */
#ifndef STORE_RLK_QUEUE_H
#define STORE_RLK_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rlki_slot_type {
    RLKI_SLOT_PAD,
    RLKI_SLOT_EVENT,
    RLKI_SLOT_EVENT_FAR,
    RLKI_SLOT_LAUNCH,
    RLKI_SLOT_BLOB,
    RLKI_SLOT_BLOB_FAR
};

struct rlki_slot {
    uint32_t bytes; /* this header included, a multiple of 16 */
    uint32_t type;
    uint64_t seq; /* events */
};

struct rlki_far { /* body of a FAR slot: malloc'ed, freed by the consumer */
    void *block;
    size_t bytes;
};

struct rlki_queue {
    uint8_t *ring;
    uint64_t size;                      /* a power of two */
    _Alignas(64) _Atomic uint64_t head; /* consumed up to here */
    _Alignas(64) _Atomic uint64_t tail; /* published up to here */
    uint64_t head_seen, reserved;       /* the producer's own */
};

bool rlki_queue_init(struct rlki_queue *q, uint64_t bytes); /* false = out of memory */
void rlki_queue_release(struct rlki_queue *q);
/* Largest body that fits in a slot. */
static inline size_t rlki_queue_most(const struct rlki_queue *q)
{
    return (size_t)(q->size / 4) - sizeof(struct rlki_slot);
}

/* Producer. NULL = no room now. The slot's body follows it. */
struct rlki_slot *rlki_queue_reserve(struct rlki_queue *q, size_t body);
void rlki_queue_publish(struct rlki_queue *q);
static inline uint64_t rlki_queue_used(struct rlki_queue *q)
{
    return atomic_load_explicit(&q->tail, memory_order_relaxed) - atomic_load_explicit(&q->head, memory_order_relaxed);
}

/* Consumer. NULL = empty. */
struct rlki_slot *rlki_queue_peek(struct rlki_queue *q);
void rlki_queue_pop(struct rlki_queue *q, const struct rlki_slot *slot);

#endif
