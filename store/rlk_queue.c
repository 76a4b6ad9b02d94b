#include "store/rlk_queue.h"

#include <stdlib.h>

bool rlki_queue_init(struct rlki_queue *q, uint64_t bytes)
{
    uint64_t size = 64u * 1024u;
    while (size < bytes && size < (UINT64_C(1) << 31))
        size *= 2;
    q->ring = aligned_alloc(64, (size_t)size);
    q->size = size;
    q->head_seen = q->reserved = 0;
    atomic_init(&q->head, 0);
    atomic_init(&q->tail, 0);
    return q->ring != NULL;
}

void rlki_queue_release(struct rlki_queue *q)
{
    free(q->ring);
    q->ring = NULL;
}

struct rlki_slot *rlki_queue_reserve(struct rlki_queue *q, size_t body)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    uint64_t at = tail & (q->size - 1), to_end = q->size - at;
    uint64_t need = (sizeof(struct rlki_slot) + body + 15) & ~UINT64_C(15);
    uint64_t pad = to_end < need ? to_end : 0;
    if (q->size - (tail - q->head_seen) < pad + need) {
        q->head_seen = atomic_load_explicit(&q->head, memory_order_acquire);
        if (q->size - (tail - q->head_seen) < pad + need)
            return NULL;
    }
    if (pad) {
        struct rlki_slot *filler = (struct rlki_slot *)(void *)(q->ring + at);
        filler->bytes = (uint32_t)pad;
        filler->type = RLKI_SLOT_PAD;
        at = 0;
    }
    struct rlki_slot *slot = (struct rlki_slot *)(void *)(q->ring + at);
    slot->bytes = (uint32_t)need;
    q->reserved = tail + pad + need;
    return slot;
}

void rlki_queue_publish(struct rlki_queue *q)
{
    atomic_store_explicit(&q->tail, q->reserved, memory_order_release);
}

struct rlki_slot *rlki_queue_peek(struct rlki_queue *q)
{
    for (;;) {
        uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
        if (head == atomic_load_explicit(&q->tail, memory_order_acquire))
            return NULL;
        struct rlki_slot *slot = (struct rlki_slot *)(void *)(q->ring + (head & (q->size - 1)));
        if (slot->type != RLKI_SLOT_PAD)
            return slot;
        rlki_queue_pop(q, slot);
    }
}

void rlki_queue_pop(struct rlki_queue *q, const struct rlki_slot *slot)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    atomic_store_explicit(&q->head, head + slot->bytes, memory_order_release);
}
