/* manifest.h - manifest.json as `rlkrec run` writes it (docs/format.md). */
#ifndef CLI_RLKREC_MANIFEST_H
#define CLI_RLKREC_MANIFEST_H

#include "cli/rlkrec/child.h"
#include "cli/rlkrec/target.h"
#include "store/rlk_recording.h"

struct rlki_capture {                             /* what was asked for */
    const char *level, *inputs, *steps, *payload; /* steps and payload NULL when not given */
    uint64_t every, keep_last, max_size;
};

/* At the start. NULL = out of memory. */
json_t *rlki_manifest_new(char *const *argv, char *const *envp, const struct rlki_target *target,
                          const struct rlki_capture *capture);

/* {"code", "text"} into `faults`. */
int rlki_manifest_fault(json_t *manifest, const char *code, const char *text);

/* At the end: how the command ended and how long it took. */
int rlki_manifest_end(json_t *manifest, const struct rlki_child *child);
/* ... and what the processes said of themselves: libraries, faults, planes. */
int rlki_manifest_gather(json_t *manifest, const struct rlk_recording *recording);

/* The driver and the GPUs as the kernel module tells them, without any library: NULL or empty where there is none. */
json_t *rlki_nvidia_driver(void);
json_t *rlki_nvidia_gpus(void);

#endif
