#include "store/rlk_intern.h"

#include <xxhash.h>

static bool grow_slots(struct rlki_table *t)
{
    size_t n = t->nslots ? t->nslots * 2 : 1024;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < t->count; i++) {
        size_t at = t->entries[i].hash & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)(i + 1);
    }
    free(t->slots);
    t->slots = slots;
    t->nslots = n;
    return true;
}

static bool grow_entries(struct rlki_table *t)
{
    size_t cap = t->cap ? t->cap * 2 : 512;
    struct rlki_entry *entries = realloc(t->entries, cap * sizeof *entries);
    if (!entries)
        return false;
    t->entries = entries;
    t->cap = cap;
    return true;
}

uint32_t rlki_table_id(struct rlki_table *t, const void *p, size_t n)
{
    uint64_t hash = XXH3_64bits(p, n);
    if (t->nslots) {
        size_t at = hash & (t->nslots - 1);
        for (; t->slots[at]; at = (at + 1) & (t->nslots - 1)) {
            const struct rlki_entry *e = rlki_table_entry(t, t->slots[at]);
            if (e->hash == hash && e->n == n && memcmp(e->p, p, n) == 0)
                return t->slots[at];
        }
    }
    if (t->count >= INT32_MAX || n > UINT32_MAX)
        return 0;
    if (((t->count + 1) * 2 > t->nslots && !grow_slots(t)) || (t->count == t->cap && !grow_entries(t)))
        return 0;
    uint8_t *copy = rlk_arena_alloc(&t->bytes, n + 1, 1);
    if (!copy)
        return 0;
    memcpy(copy, p, n);
    size_t at = hash & (t->nslots - 1);
    while (t->slots[at])
        at = (at + 1) & (t->nslots - 1);
    t->entries[t->count] = (struct rlki_entry){copy, (uint32_t)n, hash};
    t->count++;
    t->slots[at] = (uint32_t)t->count;
    return (uint32_t)t->count;
}

void rlki_table_release(struct rlki_table *t)
{
    free(t->entries);
    free(t->slots);
    rlk_arena_release(&t->bytes);
    *t = (struct rlki_table){0};
}
