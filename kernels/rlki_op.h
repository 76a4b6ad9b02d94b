/* rlki_op.h - what the operators share: binding, announcing, collectives. Internal. */
#ifndef KERNELS_RLKI_OP_H
#define KERNELS_RLKI_OP_H

#include "kernels/rlk_ops.h"
#include "kernels/rlki_batch.h"
#include "kernels/rlki_prims.h"

/* One dimension of an announced tensor. */
enum rlki_dim_kind {
    RLKI_WHOLE,  /* of size n */
    RLKI_TOKENS, /* the batch's tokens, placed by CP */
    RLKI_SLABS,  /* n features, placed by TP */
    RLKI_VOCAB   /* n words, placed by TP */
};
struct rlki_dim {
    enum rlki_dim_kind kind;
    int64_t n;
};
struct rlki_tensor {
    const char *name;
    bool output;
    enum rlk_ktype type;
    const void *const *data; /* by held rank */
    int ndim;
    struct rlki_dim dim[4];
    const char *partial, *replica;
};

/* One operator call in flight. */
struct rlki_call {
    struct rlk_world *w;
    const struct rlk_batch *batch; /* for RLKI_TOKENS; NULL where none is used */
    const struct rlki_prims *prims;
    bool provider, observed;
    unsigned unannounced;
    size_t mark;
    uint64_t control;
    struct rlk_op_event event;
};

/* Binds (policy), takes the workspace mark and announces the inputs among tensor[]. */
int rlki_begin(struct rlki_call *c, struct rlk_world *w, const struct rlk_batch *b, enum rlk_module module,
               const char *op, const char *contract, const char *pass, const char *path,
               const struct rlki_tensor *tensor, int tensors);
/* The same for an operator that moves bytes and computes nothing: no policy binds it. */
int rlki_begin_copy(struct rlki_call *c, struct rlk_world *w, const struct rlk_batch *b, const char *op,
                    const char *contract, const char *path, const struct rlki_tensor *tensor, int tensors);
/* Announces the outputs, releases the workspace, returns rc. */
int rlki_end(struct rlki_call *c, int rc, const struct rlki_tensor *tensor, int tensors);

/* Leaves that one rank of a group of n computes itself: 8/n by contract, 1 for a provider. */
static inline int rlki_leaves(const struct rlki_call *c, int group)
{
    return c->provider ? 1 : RLK_SLABS / group;
}
static inline int rlki_tp(const struct rlki_call *c, int i)
{
    return rlk_world_tp(c->w, i);
}
static inline int rlki_cp(const struct rlki_call *c, int i)
{
    return rlk_world_cp(c->w, i);
}
static inline int64_t rlki_local(const struct rlki_call *c, int i)
{
    return c->batch->part[rlk_world_cp(c->w, i)].n;
}

/* part[i] (n[i] floats: equal within a group) -> out[i] = round(scale * tree over the group by rank index), on every
 * member; with accumulate out is FP32 and gets the sum added. Group of one: in place of the collective, one rounding.
 */
int rlki_all_reduce(struct rlki_call *c, enum rlk_group g, const int64_t *n, float *const *part, float scale,
                    void *const *out, enum rlk_ktype type, bool accumulate);

/* part[i]: [tokens][width] FP32 of all tokens -> out[i]: [own tokens][width], the tree over CP of each own row. */
int rlki_reduce_tokens(struct rlki_call *c, int64_t width, float *const *part, float scale, void *const *out,
                       enum rlk_ktype type);

/* in[i]: [own tokens] rows of `bytes` -> out[i]: [tokens] rows in global order, from the CP group. */
int rlki_gather_tokens(struct rlki_call *c, size_t bytes, const void *const *in, void *const *out);

/* in[i] -> out[i]: the group's segments back to back; n[i][j] = bytes of member j of rank[i]'s group. */
int rlki_all_gather(struct rlki_call *c, enum rlk_group g, const size_t (*n)[RLK_SLABS], const void *const *in,
                    void *const *out);

/* Local tree over count leaves into *out as FP32 (a node), or final. */
int rlki_tree(struct rlki_call *c, int64_t n, int count, float *const *leaf, float scale, void *out,
              enum rlk_ktype type, bool accumulate);

/* Refusals shared by the operators. */
int rlki_check_type(struct rlk_exec *x, const char *op, enum rlk_ktype type);
int rlki_check_slabs(struct rlk_exec *x, const char *op, const char *what, int64_t n);

static inline const char *rlki_at(const void *p, int64_t elements, enum rlk_ktype type)
{
    return (const char *)p + (size_t)elements * rlk_ktype_bytes(type);
}

#endif
