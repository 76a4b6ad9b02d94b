#include "kernels/rlk_exec.h"

#include <string.h>

#include "kernels/rlki_prims.h"

int rlk_exec_init(struct rlk_exec *x, enum rlk_device device, void *stream, struct rlk_pool *pool)
{
    *x = (struct rlk_exec){.device = device, .stream = stream, .pool = pool};
    if (device == RLK_DEVICE_CPU) {
        x->prims = rlki_prims_cpu();
        x->provider = &rlki_prims_provider;
        return 0;
    }
#ifdef RLK_HAVE_CUDA
    x->prims = &rlki_prims_cuda;
    x->provider = &rlki_prims_cuda_provider;
    return rlki_cuda_usable(&x->detail);
#else
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "this build has no CUDA: configure with -DRLK_CUDA=ON and nvcc");
#endif
}

const char *rlk_exec_isa(const struct rlk_exec *x)
{
    return x->prims->isa;
}

int rlk_exec_own_stream(struct rlk_exec *x)
{
    int rc = 0;
    (void)x; /* without CUDA */
#ifdef RLK_HAVE_CUDA
    if (x->device == RLK_DEVICE_CUDA && !x->own_stream) {
        rc = rlki_cuda_stream_new(x, &x->stream);
        x->own_stream = !rc;
    }
#else
    (void)x;
#endif
    return rc;
}

void rlk_exec_drop_stream(struct rlk_exec *x)
{
#ifdef RLK_HAVE_CUDA
    if (x->own_stream)
        rlki_cuda_stream_free(x, x->stream);
#endif
    x->stream = NULL;
    x->own_stream = false;
}

int rlk_exec_ordinal(const struct rlk_exec *x)
{
    (void)x; /* without CUDA */
#ifdef RLK_HAVE_CUDA
    return x->device == RLK_DEVICE_CUDA ? rlki_cuda_ordinal() : -1;
#else
    (void)x;
    return -1;
#endif
}

void rlk_exec_measure(struct rlk_exec *x, bool on)
{
    x->measuring = on;
    x->used = 0;
    if (on)
        x->peak = 0;
}

size_t rlk_exec_peak(const struct rlk_exec *x)
{
    return x->peak;
}

void *rlki_take(struct rlk_exec *x, size_t bytes)
{
    const size_t at = x->used;
    const size_t end = at + ((bytes + 255u) & ~(size_t)255u) + 256u; /* never an empty piece: NULL means failure */
    if (end < at) {
        rlk_kfail(&x->detail, RLK_K_ENOMEM, "workspace: the size overflows");
        return NULL;
    }
    if (!x->measuring && end > x->workspace_bytes) {
        rlk_kfail(&x->detail, RLK_K_ENOMEM,
                  "workspace of %zu bytes: %zu are needed here; size it with rlk_exec_measure", x->workspace_bytes,
                  end);
        return NULL;
    }
    x->used = end;
    x->peak = end > x->peak ? end : x->peak;
    return x->measuring ? (void *)(uintptr_t)(256u + at) : (char *)x->workspace + at;
}

void *rlk_exec_alloc(struct rlk_exec *x, size_t bytes)
{
    return x->prims->alloc(x, bytes);
}

void rlk_exec_free(struct rlk_exec *x, void *p)
{
    if (p)
        x->prims->free(x, p);
}

int rlk_exec_upload(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    return x->prims->upload(x, dst, src, bytes);
}

int rlk_exec_download(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    return x->prims->download(x, dst, src, bytes);
}

int rlk_exec_copy(struct rlk_exec *x, void *dst, const void *src, size_t bytes)
{
    return bytes ? x->prims->copy(x, dst, src, bytes) : 0;
}

int rlk_exec_rows(struct rlk_exec *x, void *dst, size_t dst_stride, const void *src, size_t src_stride, int64_t rows,
                  size_t bytes)
{
    const struct rlki_rows r = {rows, bytes, NULL, src, dst, src_stride, dst_stride, false};
    if (dst_stride == bytes && src_stride == bytes)
        return rlk_exec_copy(x, dst, src, (size_t)rows * bytes);
    return rows && bytes ? x->prims->rows(x, &r) : 0;
}

int rlk_exec_differ(struct rlk_exec *x, const void *a, const void *b, size_t bytes, uint32_t *flag)
{
#ifdef RLK_HAVE_CUDA
    if (x->device == RLK_DEVICE_CUDA)
        return rlki_cuda_differ(x, a, b, bytes, flag);
#endif
    (void)x;
    if (bytes && memcmp(a, b, bytes) != 0)
        *flag = 1;
    return 0;
}

int rlk_exec_zero(struct rlk_exec *x, void *p, size_t bytes)
{
    return bytes ? x->prims->zero(x, p, bytes) : 0;
}

int rlk_exec_sync(struct rlk_exec *x)
{
    return x->prims->sync(x);
}
