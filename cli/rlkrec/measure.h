/* measure.h - what several subcommands want to know of a recording beyond its contents. */
#ifndef CLI_RLKREC_MEASURE_H
#define CLI_RLKREC_MEASURE_H

#include "store/rlk_recording.h"

/* Bytes on disk of everything below dir. */
uint64_t rlki_disk_bytes(const char *dir);

/* The process id of who still records on this machine, 0 if nobody: an environment's process without END, or the
 * `rlkrec run` that made the recording and has not written how it ended (no process may have begun to record yet). */
int64_t rlki_still_recording(const struct rlk_recording *recording);
/* The same of a directory. Where it cannot be opened as a recording, any living process that it names counts. */
int64_t rlki_still_recording_at(const char *dir);

/* Events, and whether any environment has one with a tensor. */
struct rlki_totals {
    uint64_t events, tensors;
    uint64_t steps; /* distinct steps */
    size_t envs, complete_envs;
    struct rlk_coverage coverage;
};
int rlki_totals(const struct rlk_recording *recording, struct rlki_totals *out, struct rlk_detail *detail);

/* 0, or 4: no events, no tensor events, a rank or an END missing, events dropped, digests left out because a ring was
 * full. *why says which. */
int rlki_completeness(const struct rlk_recording *recording, const struct rlki_totals *totals, struct rlk_detail *why);

/* "python train.py --lr 1": the manifest's argv, shortened to `width` bytes, escaped. Lives like rlki_esc's. */
const char *rlki_command_text(const json_t *manifest, size_t width);

/* COV of docs/cli.md. */
json_t *rlki_coverage_json(const struct rlk_coverage *coverage);

#endif
