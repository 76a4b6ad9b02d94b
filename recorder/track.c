#include "recorder/track.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS 16u
#define MAX_WRITTEN 64u /* outputs of one event in one storage that are told apart */

struct written {
    struct written *next;
    uint32_t output;
    struct rlki_geometry geometry; /* flexible tail */
};

struct entry {
    uint64_t generation; /* 0 = empty slot */
    uint64_t version, seq;
    int64_t step;
    struct written *first, *last;
    uint32_t nwritten;
    bool poisoned;
};

struct shard {
    pthread_mutex_t lock;
    struct entry *slots; /* open addressing, linear probing, a power of two */
    size_t capacity, used, max, poisoned;
    uint64_t victim;
};

struct rlki_track {
    struct shard shards[SHARDS];
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static struct shard *shard_of(struct rlki_track *track, uint64_t generation)
{
    return &track->shards[mix(generation) >> 60 & (SHARDS - 1)];
}

static size_t home(const struct shard *shard, uint64_t generation)
{
    return (size_t)mix(generation) & (shard->capacity - 1);
}

/* The slot of `generation`, or the empty slot where it would go. */
static size_t probe(const struct shard *shard, uint64_t generation)
{
    size_t i = home(shard, generation);
    while (shard->slots[i].generation && shard->slots[i].generation != generation)
        i = (i + 1) & (shard->capacity - 1);
    return i;
}

static void written_free(struct entry *entry)
{
    for (struct written *w = entry->first; w;) {
        struct written *next = w->next;
        free(w);
        w = next;
    }
    entry->first = entry->last = NULL;
    entry->nwritten = 0;
}

static void erase(struct shard *shard, size_t i)
{
    size_t mask = shard->capacity - 1;
    written_free(&shard->slots[i]);
    shard->used--;
    for (size_t j = (i + 1) & mask; shard->slots[j].generation; j = (j + 1) & mask) {
        size_t want = home(shard, shard->slots[j].generation);
        if (((j - want) & mask) >= ((j - i) & mask)) { /* the hole lies on the way from home to j */
            shard->slots[i] = shard->slots[j];
            i = j;
        }
    }
    memset(&shard->slots[i], 0, sizeof shard->slots[i]);
}

static bool grow(struct shard *shard)
{
    size_t capacity = shard->capacity ? shard->capacity * 2 : 64;
    struct entry *slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    struct shard old = *shard;
    shard->slots = slots;
    shard->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].generation)
            slots[probe(shard, old.slots[i].generation)] = old.slots[i];
    free(old.slots);
    return true;
}

/* Room for one more entry; past the bound some other entry is forgotten. */
static bool make_room(struct shard *shard)
{
    if (shard->used >= shard->max) {
        size_t i = (size_t)mix(++shard->victim) & (shard->capacity - 1);
        while (!shard->slots[i].generation || shard->slots[i].poisoned)
            i = (i + 1) & (shard->capacity - 1);
        erase(shard, i);
    }
    return (shard->used + 1) * 3 <= shard->capacity * 2 || grow(shard);
}

struct rlki_track *rlki_track_new(size_t max_entries)
{
    struct rlki_track *track = calloc(1, sizeof *track);
    for (size_t i = 0; track && i < SHARDS; i++) {
        pthread_mutex_init(&track->shards[i].lock, NULL);
        track->shards[i].max = max_entries / SHARDS + 1;
    }
    return track;
}

void rlki_track_free(struct rlki_track *track)
{
    if (!track)
        return;
    for (size_t s = 0; s < SHARDS; s++) {
        for (size_t i = 0; i < track->shards[s].capacity; i++)
            written_free(&track->shards[s].slots[i]);
        free(track->shards[s].slots);
        pthread_mutex_destroy(&track->shards[s].lock);
    }
    free(track);
}

void rlki_track_wrote(struct rlki_track *track, uint64_t generation, uint64_t version, uint64_t seq, int64_t step,
                      uint32_t output, const struct rlki_geometry *geometry)
{
    if (!generation)
        return;
    size_t bytes = sizeof(struct written) + geometry->ndim * sizeof(struct rlki_dim);
    struct written *w = version ? malloc(bytes) : NULL;
    if (w) {
        w->next = NULL;
        w->output = output;
        memcpy(&w->geometry, geometry, rlki_geometry_bytes(geometry->ndim));
    }
    struct shard *shard = shard_of(track, generation);
    pthread_mutex_lock(&shard->lock);
    size_t i = shard->capacity ? probe(shard, generation) : 0;
    bool found = shard->capacity && shard->slots[i].generation == generation;
    if (found && shard->slots[i].poisoned) {
        found = false;
    } else if (w && !found && make_room(shard)) {
        i = probe(shard, generation);
        shard->slots[i] = (struct entry){.generation = generation, .version = version, .seq = seq};
        shard->used++;
        found = true;
    } else if (!w && found) {
        erase(shard, i);
        found = false;
    }
    if (found && w) {
        struct entry *e = &shard->slots[i];
        if (e->seq != seq)
            written_free(e);
        e->seq = seq;
        e->step = step;
        e->version = version;
        if (e->nwritten < MAX_WRITTEN) {
            *(e->last ? &e->last->next : &e->first) = w;
            e->last = w;
            e->nwritten++;
            w = NULL;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    free(w);
}

void rlki_track_forget(struct rlki_track *track, uint64_t generation)
{
    if (!generation)
        return;
    struct shard *shard = shard_of(track, generation);
    pthread_mutex_lock(&shard->lock);
    if (shard->capacity) {
        size_t i = probe(shard, generation);
        if (shard->slots[i].generation == generation && !shard->slots[i].poisoned)
            erase(shard, i);
    }
    pthread_mutex_unlock(&shard->lock);
}

void rlki_track_poison(struct rlki_track *track, uint64_t generation)
{
    if (!generation)
        return;
    struct shard *shard = shard_of(track, generation);
    pthread_mutex_lock(&shard->lock);
    size_t i = shard->capacity ? probe(shard, generation) : 0;
    bool found = shard->capacity && shard->slots[i].generation == generation;
    /* Half of them at most: an entry that may go must be there to be found. */
    if (!found && shard->poisoned < shard->max / 2 && make_room(shard)) {
        i = probe(shard, generation);
        shard->slots[i] = (struct entry){.generation = generation};
        shard->used++;
        found = true;
    }
    if (found && !shard->slots[i].poisoned && shard->poisoned < shard->max / 2) {
        written_free(&shard->slots[i]);
        shard->slots[i].version = 0;
        shard->slots[i].poisoned = true;
        shard->poisoned++;
    }
    pthread_mutex_unlock(&shard->lock);
}

bool rlki_track_find(struct rlki_track *track, uint64_t generation, uint64_t version,
                     const struct rlki_geometry *geometry, struct rlki_producer *out)
{
    bool found = false;
    if (!generation || !version)
        return false;
    struct shard *shard = shard_of(track, generation);
    pthread_mutex_lock(&shard->lock);
    const struct entry *e = shard->capacity ? &shard->slots[probe(shard, generation)] : NULL;
    if (e && e->generation == generation && e->version == version) {
        /* The output itself is the plainest answer; else the first that covers. */
        for (const struct written *w = e->first; w; w = w->next) {
            rlk_u128 view;
            if (!rlki_geometry_covers(&w->geometry, geometry, &view))
                continue;
            bool itself = view.lo == 0 && view.hi == 0;
            if (!found || itself)
                *out = (struct rlki_producer){e->seq, e->step, w->output, view};
            found = true;
            if (itself)
                break;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return found;
}
