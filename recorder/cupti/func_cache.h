/* func_cache.h - what is known of a kernel handle: name, image, parameter layout; asked once, read without a lock.
 *
 * A handle is a CUfunction or, for launches through the runtime, a CUkernel in its place: both are tried.
 */
#ifndef RECORDER_CUPTI_FUNC_CACHE_H
#define RECORDER_CUPTI_FUNC_CACHE_H

#include "recorder/cupti/cupti_api.h"

struct rlki_param { /* one parameter in the block that the device reads */
    uint16_t offset, size;
};

struct rlki_func {
    const char *name;  /* as CUPTI names it (mangled); "" if unknown */
    const char *image; /* hash, "" if unknown */
    bool own;          /* the recorder's own kernel */
    bool layout_known;
    uint32_t nparams, block_bytes;
    const struct rlki_param *params;
};

/* Never NULL: without memory, a record that says nothing. `name` is CUPTI's symbolName, may be NULL. */
const struct rlki_func *rlki_func_get(const struct rlki_cupti *cupti, const void *handle, const char *name);
/* A module went: handles may be reused for others. */
void rlki_func_forget_all(void);

#endif
