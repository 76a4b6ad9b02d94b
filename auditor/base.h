/* base.h - small containers of the auditor: names, bit maps by page, sets of hashes. Failures to allocate are sticky
 * (`failed`), looked at once a unit. */
#ifndef AUDITOR_BASE_H
#define AUDITOR_BASE_H

#include "store/rlk_types.h"

/* Strings by number; 0 is "". Equal text = equal number. */
struct rlki_names {
    char **text;
    uint64_t *hash; /* of the text: the same in every process */
    uint32_t n, cap;
    uint32_t *slot; /* open addressing over numbers + 1 */
    uint32_t nslot;
    bool failed;
};
int rlki_names_init(struct rlki_names *names);
void rlki_names_release(struct rlki_names *names);
uint32_t rlki_names_id(struct rlki_names *names, const char *text); /* NULL = "" */
static inline const char *rlki_names_text(const struct rlki_names *names, uint32_t id)
{
    return id < names->n ? names->text[id] : "";
}
static inline uint64_t rlki_names_hash(const struct rlki_names *names, uint32_t id)
{
    return id < names->n ? names->hash[id] : 0;
}

/* A bit for each sequence number, in pages made when a bit is set. */
struct rlki_bits {
    uint64_t **page;
    size_t npages;
    bool failed;
};
void rlki_bits_set(struct rlki_bits *bits, uint64_t i);
bool rlki_bits_get(const struct rlki_bits *bits, uint64_t i);
void rlki_bits_release(struct rlki_bits *bits);

/* 64-bit hash -> 64-bit value. */
struct rlki_hash {
    uint64_t *key, *value;
    size_t cap, n;
    bool failed;
};
bool rlki_hash_get(const struct rlki_hash *table, uint64_t key, uint64_t *value);
/* true if the key is new. */
bool rlki_hash_put(struct rlki_hash *table, uint64_t key, uint64_t value);
/* Adds to the value (a new key starts at 0); returns the value before. */
uint64_t rlki_hash_count(struct rlki_hash *table, uint64_t key, uint64_t add);
void rlki_hash_clear(struct rlki_hash *table);
void rlki_hash_release(struct rlki_hash *table);

/* Mixes for identities: order matters. */
static inline uint64_t rlki_mix(uint64_t h, uint64_t v)
{
    h ^= v + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
    h *= UINT64_C(0xff51afd7ed558ccd);
    return h ^ (h >> 32);
}

/* Grows *array (of `size`-byte items) to hold n + 1; false = out of memory, array unchanged. */
bool rlki_grow(void *array, size_t *cap, size_t n, size_t size);

#endif
