#include "recorder/cupti/param_block.h"

#include "recorder/cupti/alloc_map.h"

#include <string.h>

static size_t from_extra(unsigned char *out, void *const *extra)
{
    const void *buffer = NULL;
    size_t size = 0;
    for (int i = 0; i < 16 && extra[i] && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
            size = *(const size_t *)extra[i + 1];
    }
    if (!buffer || size > RLKI_MAX_PARAM_BLOCK)
        return 0;
    memcpy(out, buffer, size);
    return size;
}

size_t rlki_param_block(unsigned char *out, const struct rlki_func *func, void *const *kernel_params,
                        void *const *extra)
{
    size_t size = 0;
    if (extra) {
        size = from_extra(out, extra);
    } else if (kernel_params && func->layout_known && func->block_bytes <= RLKI_MAX_PARAM_BLOCK) {
        size = func->block_bytes;
        memset(out, 0, size); /* padding between parameters is nobody's */
        for (uint32_t i = 0; i < func->nparams; i++)
            if (kernel_params[i])
                memcpy(out + func->params[i].offset, kernel_params[i], func->params[i].size);
    }
    rlki_alloc_relocate(out, size);
    return size;
}
