/* rlk_digest_units.h - hashing consecutive units that lie contiguously in memory. Internal to store/. */
#ifndef STORE_RLK_DIGEST_UNITS_H
#define STORE_RLK_DIGEST_UNITS_H

#include "store/rlk_types.h"

/* Running sums of one part. Zero-initialise `sums`; `dtype` and `unit_bytes` are set once. */
struct rlki_digest {
    struct rlk_sums sums;
    enum rlk_dtype dtype;
    size_t unit_bytes; /* of a full unit; a power of two, at most 256 */
};

/* Adds `n` full units at `p` with numbers number, number+1, ... */
void rlki_digest_units(struct rlki_digest *d, const unsigned char *p, uint64_t n, uint64_t number);
/* Adds one shorter unit, the end of a row. */
void rlki_digest_tail(struct rlki_digest *d, const unsigned char *p, size_t bytes, uint64_t number);
/* Adds only the counts of NaN, Inf and -0 among `bytes` bytes. */
void rlki_digest_count(struct rlki_digest *d, const unsigned char *p, uint64_t bytes);

/* Elements are looked at in pieces of at most this many bytes, which stay in the first-level cache. */
#define RLKI_PIECE ((size_t)4096)

/* Is a NaN, Inf or -0 among these bytes (whole elements)? Exact. */
bool rlki_scan_special(enum rlk_dtype dtype, const unsigned char *p, size_t bytes);
/* Copies at most RLKI_PIECE bytes with -0 as +0 and every NaN as the canonical one; adds to the counts in *sums. */
void rlki_canonicalise(struct rlk_sums *sums, enum rlk_dtype dtype, unsigned char *out, const unsigned char *p,
                       size_t bytes);

#endif
