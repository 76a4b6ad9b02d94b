#include "recorder/counters.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct rlki_count {
    rlk_u128 key; /* 128 bits of hash stand for the names: a collision is beyond the life of any run */
    uint32_t next, used;
};

void rlki_counters_release(struct rlki_counters *counters)
{
    for (size_t i = 0; i < RLKI_PLACES; i++)
        free(counters->places[i].slots);
    memset(counters, 0, sizeof *counters);
}

static rlk_u128 hash(const void *bytes, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes, n, seed);
    return (rlk_u128){h.low64, h.high64};
}

rlk_u128 rlki_text_key(const char *text)
{
    return text ? hash(text, strlen(text), 0) : hash("", 0, 0);
}

rlk_u128 rlki_module_key(rlk_u128 pass, rlk_u128 module)
{
    uint64_t words[4] = {pass.lo, pass.hi, module.lo, module.hi};
    return hash(words, sizeof words, 1);
}

rlk_u128 rlki_op_key(rlk_u128 module_key, uint32_t call, bool autotune, const char *op)
{
    rlk_u128 name = rlki_text_key(op);
    uint64_t words[5] = {module_key.lo, module_key.hi, name.lo, name.hi, (uint64_t)call << 1 | autotune};
    return hash(words, sizeof words, 2);
}

struct rlki_place *rlki_counters_place(struct rlki_counters *counters, int64_t step, rlk_u128 phase, int64_t work,
                                       int64_t iteration)
{
    struct rlki_place *oldest = &counters->places[0];
    counters->clock++;
    for (size_t i = 0; i < RLKI_PLACES; i++) {
        struct rlki_place *p = &counters->places[i];
        if (p->serial && p->step == step && p->work == work && p->iteration == iteration &&
            rlk_u128_equal(p->phase, phase)) {
            p->used = counters->clock;
            return p;
        }
        if (p->used < oldest->used)
            oldest = p;
    }
    if (oldest->capacity > 1u << 16) { /* one large place must not cost every later one */
        free(oldest->slots);
        oldest->slots = NULL;
        oldest->capacity = 0;
    }
    if (oldest->slots)
        memset(oldest->slots, 0, oldest->capacity * sizeof *oldest->slots);
    oldest->count = 0;
    oldest->serial = oldest->used = counters->clock;
    oldest->step = step;
    oldest->work = work;
    oldest->iteration = iteration;
    oldest->phase = phase;
    return oldest;
}

static struct rlki_count *find(const struct rlki_place *place, rlk_u128 key)
{
    size_t mask = place->capacity - 1, i = (size_t)key.lo & mask;
    while (place->slots[i].used && !rlk_u128_equal(place->slots[i].key, key))
        i = (i + 1) & mask;
    return &place->slots[i];
}

static bool grow(struct rlki_place *place)
{
    struct rlki_place more = *place;
    more.capacity = place->capacity ? place->capacity * 2 : 32;
    if (more.capacity > 1u << 30 || !(more.slots = calloc(more.capacity, sizeof *more.slots)))
        return false;
    for (uint32_t i = 0; i < place->capacity; i++)
        if (place->slots[i].used)
            *find(&more, place->slots[i].key) = place->slots[i];
    free(place->slots);
    *place = more;
    return true;
}

uint32_t rlki_count_next(struct rlki_place *place, rlk_u128 key, bool *lost)
{
    if ((place->count + 1) * 3 > place->capacity * 2 && !grow(place)) {
        *lost = true;
        return 0;
    }
    struct rlki_count *c = find(place, key);
    if (!c->used) {
        c->key = key;
        c->used = 1;
        place->count++;
    }
    return c->next++;
}

void rlki_count_undo(struct rlki_place *place, rlk_u128 key, uint32_t count)
{
    if (!place->capacity)
        return;
    struct rlki_count *c = find(place, key);
    if (c->used && c->next == count + 1)
        c->next = count;
}
