#include "recorder/synth/synth_value.h"

#include <stdlib.h>
#include <string.h>

int sy_value_new(struct sy_heap *heap, enum rlk_dtype dtype, uint64_t numel, struct sy_value **out)
{
    uint64_t bytes = numel * rlk_dtype_bytes(dtype); /* numel is bounded by 2^31 */
    if (bytes > heap->max || heap->held > heap->max - bytes)
        return RLK_ELIMIT;
    struct sy_value *v = calloc(1, sizeof *v);
    unsigned char *data = malloc(bytes ? (size_t)bytes : 1);
    if (!v || !data) {
        free(v);
        free(data);
        return RLK_ENOMEM;
    }
    heap->held += bytes;
    *v = (struct sy_value){heap, 1, numel, bytes, dtype, data};
    *out = v;
    return RLK_OK;
}

struct sy_value *sy_value_keep(struct sy_value *value)
{
    if (value)
        value->refs++;
    return value;
}

void sy_value_drop(struct sy_value *value)
{
    if (!value || --value->refs)
        return;
    value->heap->held -= value->bytes;
    free(value->data);
    free(value);
}

int sy_value_copy(const struct sy_value *value, struct sy_value **out)
{
    int rc = sy_value_new(value->heap, value->dtype, value->numel, out);
    if (!rc)
        memcpy((*out)->data, value->data, (size_t)value->bytes);
    return rc;
}

bool sy_value_equal(const struct sy_value *a, const struct sy_value *b)
{
    return a == b || (a->dtype == b->dtype && a->bytes == b->bytes && memcmp(a->data, b->data, (size_t)a->bytes) == 0);
}
