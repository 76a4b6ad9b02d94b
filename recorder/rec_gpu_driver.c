/* rec_gpu_driver.c - the driver's entry points that the tensor plane needs beside those of store/rlk_digest_gpu.c. */
#include "recorder/rec_gpu.h"
#include "store/rlk_cuda_symbols.h"

#include <stddef.h>

int rlki_gpu_driver_open(struct rlki_gpu_driver *cu, struct rlk_detail *detail)
{
    static const struct rlki_cuda_symbol table[] = {
#define ENTRY(name, field) {name, offsetof(struct rlki_gpu_driver, field)}
        ENTRY("cuCtxGetCurrent", ctx_get_current),
        ENTRY("cuCtxGetDevice", ctx_get_device),
        ENTRY("cuCtxPushCurrent_v2", ctx_push),
        ENTRY("cuCtxPopCurrent_v2", ctx_pop),
        ENTRY("cuDevicePrimaryCtxGetState", primary_state),
        ENTRY("cuDevicePrimaryCtxRetain", primary_retain),
        ENTRY("cuDevicePrimaryCtxRelease_v2", primary_release),
        ENTRY("cuStreamIsCapturing", stream_is_capturing),
        ENTRY("cuMemcpyDtoHAsync_v2", memcpy_dtoh),
        ENTRY("cuStreamSynchronize", stream_synchronize),
#undef ENTRY
    };
    static const struct rlki_cuda_symbol newer[] = {{"cuCtxGetId", offsetof(struct rlki_gpu_driver, ctx_id)}};
    int rc = rlki_cuda_symbols(cu, table, sizeof table / sizeof table[0], false, detail);
    if (rc == RLK_OK)
        (void)rlki_cuda_symbols(cu, newer, 1, false, NULL);
    return rc;
}

uint64_t rlki_gpu_context_id(const struct rlki_gpu_driver *cu, void *context)
{
    unsigned long long id = 0;
    return cu->ctx_id && cu->ctx_id(context, &id) == 0 ? id : 0;
}

void *rlki_gpu_enter(const struct rlki_gpu_driver *cu, int ordinal, int *pushed)
{
    void *context = NULL;
    int device = -1, active = 0;
    unsigned flags = 0;
    *pushed = -1;
    if (cu->ctx_get_current(&context) == 0 && context && cu->ctx_get_device(&device) == 0 && device == ordinal)
        return context;
    /* The operator's device guard is gone by now. Its device has a primary context, or the tensor could not be there.
     */
    if (cu->primary_state(ordinal, &flags, &active) || !active || cu->primary_retain(&context, ordinal))
        return NULL;
    if (cu->ctx_push(context)) {
        cu->primary_release(ordinal);
        return NULL;
    }
    *pushed = ordinal;
    return context;
}

void rlki_gpu_leave(const struct rlki_gpu_driver *cu, int pushed)
{
    void *context;
    if (pushed < 0)
        return;
    cu->ctx_pop(&context);
    cu->primary_release(pushed);
}
