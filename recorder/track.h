/* track.h - who wrote each storage last: generation -> (event, version, the outputs it wrote there). Thread-safe.
 * Bounded: past its capacity it forgets an entry, and the reader of that storage is digested instead.
 */
#ifndef RECORDER_TRACK_H
#define RECORDER_TRACK_H

#include "recorder/geometry.h"

struct rlki_track;

struct rlki_track *rlki_track_new(size_t max_entries); /* NULL: out of memory */
void rlki_track_free(struct rlki_track *track);

/* Event `seq` of step `step` wrote `geometry` of storage `generation` as its output `output` and left it at `version`.
 * Several outputs of one event in one storage add up; any other event's entry is replaced. version 0 or no memory:
 * forgets instead. */
void rlki_track_wrote(struct rlki_track *track, uint64_t generation, uint64_t version, uint64_t seq, int64_t step,
                      uint32_t output, const struct rlki_geometry *geometry);
/* The producer of unknown origin: freed, written by something unrecorded. */
void rlki_track_forget(struct rlki_track *track, uint64_t generation);
/* It is written again and again by something unrecorded (a graph's replays): from now on nobody's producer, whatever is
 * written to it. */
void rlki_track_poison(struct rlki_track *track, uint64_t generation);

struct rlki_producer {
    uint64_t seq;
    int64_t step;
    uint32_t output;
    rlk_u128 view; /* 0 = the output itself */
};
/* The recorded output that holds every element which `geometry` reads, if the storage is still at `version`. */
bool rlki_track_find(struct rlki_track *track, uint64_t generation, uint64_t version,
                     const struct rlki_geometry *geometry, struct rlki_producer *out);

#endif
