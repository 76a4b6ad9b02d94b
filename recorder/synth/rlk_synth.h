/* rlk_synth.h - synthetic recordings: a JSON description in, a real recording out (docs/synth.md). Library rlk_synth:
 * tool side only, never part of what is injected into a watched program.
 *
 * One spec gives one recording: an environment rank-RRRRR.pid-R for every rank that is not in `missing_ranks`, END
 * records and SEAL unless `complete` is false. The same spec gives the same events, digests and payloads each time;
 * only `created` of the manifest and what hashes it differ.
 *
 * Specs are treated as hostile: whatever the text, the answer is a recording or an error code and a sentence with the
 * JSON path, e.g. `events[3].in[0].fill: unknown key "norml"`.
 *
 * Threads: any number of calls at once, on different directories. jansson's hash seed is the only shared state.
 */
#ifndef RECORDER_SYNTH_RLK_SYNTH_H
#define RECORDER_SYNTH_RLK_SYNTH_H

#include "store/rlk_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Bounds (docs/synth.md, "Bounds"). */
#define RLK_SYNTH_MAX_SPEC_BYTES (256u << 20) /* of the JSON text */
#define RLK_SYNTH_MAX_RANKS 65536u
#define RLK_SYNTH_MAX_ELEMENTS (UINT64_C(1) << 31) /* of one tensor */
#define RLK_SYNTH_MAX_BYTES (UINT64_C(4) << 30)    /* tensor values held at once while one rank is evaluated */

struct rlk_synth_options { /* zero-initialised = the defaults */
    uint64_t max_bytes;    /* tensor values held at once; 0 = RLK_SYNTH_MAX_BYTES */
    const char *tool;      /* `tool` of the manifest; NULL = "rlkrec synth" */
    /* Called after each rank; may be NULL. */
    void (*progress)(void *context, uint32_t rank, uint32_t ranks);
    void *context;
};

struct rlk_synth_result {
    uint32_t ranks;        /* the spec's */
    uint32_t environments; /* written */
    uint64_t events, tensors, by_reference, launches;
    bool sealed;
};

/* Reads the whole of `spec` and writes nothing. RLK_EPARSE: *detail has the JSON path and what is wrong there. */
int rlk_synth_check(const json_t *spec, struct rlk_detail *detail);

/* Writes the recording `spec` describes into the new directory `dir` (taken as given, no suffix added).
 * RLK_EPARSE: the spec is wrong (JSON path in *detail). RLK_EEXIST: `dir` exists. RLK_ELIMIT: a bound. Else what the
 * store says. On any error nothing is left at `dir` unless it was there before. options and result may be NULL. */
int rlk_synth_run(const json_t *spec, const char *dir, const struct rlk_synth_options *options,
                  struct rlk_synth_result *result, struct rlk_detail *detail);

/* The same from a file; `path` "-" = stdin. RLK_EPARSE with line and column if it is no JSON, has a key twice, or a
 * string with NUL. */
int rlk_synth_file(const char *path, const char *dir, const struct rlk_synth_options *options,
                   struct rlk_synth_result *result, struct rlk_detail *detail);
/* Reads a spec; *spec is the caller's to json_decref. */
int rlk_synth_load(const char *path, json_t **spec, struct rlk_detail *detail);

#endif
