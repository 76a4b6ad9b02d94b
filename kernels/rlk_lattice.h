/* rlk_lattice.h - the lattice of 8 feature slabs x 16 sequence chunks, and where a rank's parts lie in it
 * (docs/contracts.md, section 3). Pure arithmetic; nothing here allocates or fails silently.
 *
 * Rank of (tp, cp) = tp + TP * cp. TP rank t owns slabs [8t/TP, 8(t+1)/TP) of every divided feature dimension. A
 * sequence of length len has 16 chunks of w = 16*ceil(len/256) tokens (the last ones cut or empty); pair p = chunks p
 * and 15-p; CP rank c owns pairs [8c/CP, 8(c+1)/CP). A rank's tokens are kept in (sequence, position) order.
 */
#ifndef KERNELS_RLK_LATTICE_H
#define KERNELS_RLK_LATTICE_H

#include "kernels/rlk_kbase.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RLK_SLABS 8
#define RLK_CHUNKS 16
#define RLK_VOCAB_TILE 128

struct rlk_lattice {
    int tp, cp;
};

/* RLK_K_EUNSUPPORTED unless tp and cp are each one of 1, 2, 4, 8; the detail says so. */
int rlk_lattice_init(struct rlk_lattice *lat, int tp, int cp, struct rlk_kdetail *detail);

/* The dimensions of a model on the lattice. Refused, never approximated: kv_heads % 8, heads % kv_heads, a hidden or
 * intermediate size that 8 does not divide, a head_dim other than 64 or 128, an empty vocabulary. */
struct rlk_dims {
    int64_t hidden, intermediate, vocab;
    int heads, kv_heads, head_dim;
};
int rlk_lattice_check(const struct rlk_dims *dims, struct rlk_kdetail *detail);

/* The part of a dimension of n features (8 | n) that TP rank t owns. */
struct rlk_span rlk_slab_span(const struct rlk_lattice *lat, int t, int64_t n);

/* Vocabulary: padded to V' = 1024*ceil(V/1024), slab s = [s*V'/8, (s+1)*V'/8), cut at V: the last slabs may be short or
 * empty. No storage exists for padding. */
int64_t rlk_vocab_padded(int64_t vocab);
struct rlk_span rlk_vocab_slab(int64_t vocab, int slab);
struct rlk_span rlk_vocab_span(const struct rlk_lattice *lat, int t, int64_t vocab);

/* Chunk width of a sequence of len tokens (0 for 0), and chunk k cut at len. */
int64_t rlk_chunk_width(int64_t len);
struct rlk_span rlk_chunk_span(int64_t len, int k);

/* The tokens of one sequence that CP rank c owns, as at most two spans ascending (touching spans are one, empty ones
 * none). Returns their number. */
int rlk_cp_spans(const struct rlk_lattice *lat, int c, int64_t len, struct rlk_span out[2]);

#ifdef __cplusplus
}
#endif
#endif
