/* synth_value.h - the bytes of evaluated tensors, and how fills, masks and changes make them. Internal.
 *
 * A value never changes once it is shared; it is counted, and all values of one evaluation share one bound.
 */
#ifndef RECORDER_SYNTH_SYNTH_VALUE_H
#define RECORDER_SYNTH_SYNTH_VALUE_H

#include "recorder/synth/synth_spec.h"

struct sy_heap { /* bytes held by values at once */
    uint64_t held, max;
};

struct sy_value {
    struct sy_heap *heap;
    uint64_t refs, numel, bytes;
    enum rlk_dtype dtype;
    unsigned char *data; /* never NULL */
};

/* Not zeroed. RLK_ELIMIT: past the bound of the heap. */
int sy_value_new(struct sy_heap *heap, enum rlk_dtype dtype, uint64_t numel, struct sy_value **out);
struct sy_value *sy_value_keep(struct sy_value *value); /* one more reference; NULL stays NULL */
void sy_value_drop(struct sy_value *value);
int sy_value_copy(const struct sy_value *value, struct sy_value **out);
bool sy_value_equal(const struct sy_value *a, const struct sy_value *b); /* dtype and every byte */

/* A generator's fill (not like, cast_of) into v. */
void sy_fill_generate(const struct sy_fill *fill, struct sy_value *v);
void sy_fill_cast(const struct sy_value *from, struct sy_value *v); /* same numel */

/* Bit k of `bits` = element k is masked; (numel + 63) / 64 words, written whole. */
void sy_mask_build(const struct sy_mask *mask, const struct sy_tensor *tensor, uint32_t rank, uint64_t *bits);

/* Applies one change to the masked elements of v, which nobody shares. `from` for SY_CHANGE_FROM. RLK_EINVAL: *element
 * is where `ulp` went past Inf. RLK_ELIMIT, RLK_ENOMEM: a scratch copy was too much. */
int sy_change_apply(const struct sy_change *change, const struct sy_tensor *tensor, struct sy_value *v,
                    const uint64_t *bits, const struct sy_value *from, uint64_t *element);

static inline bool sy_bit(const uint64_t *bits, uint64_t k)
{
    return bits[k >> 6] >> (k & 63) & 1;
}

#endif
