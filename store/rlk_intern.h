/* rlk_intern.h - a table of distinct byte strings with ids 1, 2, 3, ... (internal). Not thread-safe. */
#ifndef STORE_RLK_INTERN_H
#define STORE_RLK_INTERN_H

#include "store/rlk_codec.h"
#include "store/rlk_event.h"

struct rlki_entry {
    const uint8_t *p; /* NUL-terminated, stable until release */
    uint32_t n;
    uint64_t hash;
};

struct rlki_table { /* zero-initialised = empty */
    struct rlki_entry *entries;
    uint32_t *slots; /* id, 0 = free */
    size_t count, cap, nslots;
    struct rlk_arena bytes;
};

/* Id of the bytes, added if new. 0 = out of memory (or more than 2^31 entries). */
uint32_t rlki_table_id(struct rlki_table *table, const void *p, size_t n);
static inline const struct rlki_entry *rlki_table_entry(const struct rlki_table *table, uint32_t id)
{
    return &table->entries[id - 1];
}
void rlki_table_release(struct rlki_table *table);

#endif
