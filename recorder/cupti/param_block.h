/* param_block.h - the parameter block of a launch as the device sees it, with device pointers made allocation-relative,
 * so that two runs of one program have the same bytes wherever their memory lies.
 *
 * Every aligned 8-byte word that is an address inside a live allocation becomes  1<<63 | ordinal<<40 | offset  (ordinal
 * and offset of alloc_map.h, ordinal mod 2^23, offset mod 2^40). An integer that happens to equal such an address is
 * replaced too: the same in both runs only if it was one.
 */
#ifndef RECORDER_CUPTI_PARAM_BLOCK_H
#define RECORDER_CUPTI_PARAM_BLOCK_H

#include "recorder/cupti/func_cache.h"

#define RLKI_MAX_PARAM_BLOCK 32768u

/* Builds the block from kernelParams or extra (cuLaunchKernel's two forms). Returns its size; 0 = none or unknown. */
size_t rlki_param_block(unsigned char *out, const struct rlki_func *func, void *const *kernel_params,
                        void *const *extra);

#endif
