/* rlk_transport.h - moving bytes between ranks. A transport never adds: sums are taken locally, by rank index, in a
 * tree.
 *
 * A process holds some ranks of the world (all of them with the virtual transport) and calls each collective once for
 * all it holds. Segments follow one another in the order of the group's members (their rank ascending); an extent may
 * be 0.
 */
#ifndef KERNELS_RLK_TRANSPORT_H
#define KERNELS_RLK_TRANSPORT_H

#include "kernels/rlk_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rlk_group { RLK_GROUP_TP = 0, RLK_GROUP_CP = 1 };

/* What one held rank sends and receives: bytes by member. all_gather sends the segment `own` to everybody. */
struct rlk_exchange {
    const void *send;
    void *recv;
    size_t send_bytes[RLK_SLABS], recv_bytes[RLK_SLABS];
};

struct rlk_transport {
    const char *name;
    void *self;
    /* ex[i] belongs to rank[i]. Both return 0 or a code with x->detail filled. */
    int (*all_to_all)(void *self, struct rlk_exec *x, const struct rlk_lattice *lat, enum rlk_group group, int held,
                      const int *rank, const struct rlk_exchange *ex);
    /* send = own segment (send_bytes[0]); recv_bytes[j] = what member j sends. */
    int (*all_gather)(void *self, struct rlk_exec *x, const struct rlk_lattice *lat, enum rlk_group group, int held,
                      const int *rank, const struct rlk_exchange *ex);
};

/* All ranks in this process, on one device: copies. */
extern const struct rlk_transport rlk_transport_virtual;

/* The ranks of TP x CP that this process holds. Tensor arguments of operators are arrays with one entry a held rank. */
struct rlk_world {
    struct rlk_exec *x;
    struct rlk_lattice lat;
    const struct rlk_transport *net;
    int held;
    int rank[RLK_SLABS * RLK_SLABS];
};

/* Every rank of tp x cp, virtual. RLK_K_EUNSUPPORTED as rlk_lattice_init, with the words in x->detail. */
int rlk_world_virtual(struct rlk_world *w, struct rlk_exec *x, int tp, int cp);

static inline int rlk_world_tp(const struct rlk_world *w, int i)
{
    return w->rank[i] % w->lat.tp;
}
static inline int rlk_world_cp(const struct rlk_world *w, int i)
{
    return w->rank[i] / w->lat.tp;
}

#ifdef __cplusplus
}
#endif
#endif
