/* rlk_decode.h - records to events (internal). The bytes are hostile. */
#ifndef STORE_RLK_DECODE_H
#define STORE_RLK_DECODE_H

#include "store/rlk_codec.h"
#include "store/rlk_error.h"
#include "store/rlk_event.h"

/* What a decoded descriptor holds; belongs to the reader, lives until close. */
struct rlki_desc {
    uint8_t type; /* RLKI_DESC_*; 0 = not read yet */
    union {
        struct rlk_tensor tensor; /* name, dtype, composable, ndim, shape, place */
        struct rlk_launch launch; /* kernel, image, config, grid, block, cluster, smem, attrs */
    } u;
};

/* Where strings and descriptors come from. Both return RLK_ECORRUPT for an id that does not exist. */
struct rlki_source {
    void *context;
    int (*string)(void *context, uint64_t id, const char **out);
    int (*desc)(void *context, uint64_t id, const struct rlki_desc **out);
};

/* Decodes the record [p, p+n) of event `seq`. RLK_ENOENT: a kind this reader does not know. */
int rlki_decode_event(const struct rlki_source *source, const uint8_t *p, size_t n, uint64_t seq,
                      struct rlk_arena *arena, struct rlk_event *out, uint32_t *phase, uint32_t *module);

/* Decodes a descriptor. */
int rlki_decode_desc(const struct rlki_source *source, const uint8_t *p, size_t n, struct rlk_arena *arena,
                     struct rlki_desc *out);

#endif
