#include "kernels/rlk_transport.h"
#include "kernels/rlki_prims.h"

static int members(const struct rlk_lattice *lat, enum rlk_group g)
{
    return g == RLK_GROUP_TP ? lat->tp : lat->cp;
}

/* Own index in the group, and the position of its member j among the held ranks (all are held, in rank order). */
static int own(const struct rlk_lattice *lat, enum rlk_group g, int rank)
{
    return g == RLK_GROUP_TP ? rank % lat->tp : rank / lat->tp;
}

static int member(const struct rlk_lattice *lat, enum rlk_group g, int rank, int j)
{
    return g == RLK_GROUP_TP ? rank / lat->tp * lat->tp + j : rank % lat->tp + lat->tp * j;
}

static int all_to_all(void *self, struct rlk_exec *x, const struct rlk_lattice *lat, enum rlk_group g, int held,
                      const int *rank, const struct rlk_exchange *ex)
{
    (void)self;
    const int n = members(lat, g);
    if (held != lat->tp * lat->cp)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "virtual transport: %d of %d ranks held, hold all", held,
                         lat->tp * lat->cp);
    for (int i = 0; i < held; i++) {
        const int me = own(lat, g, rank[i]);
        char *to = ex[i].recv;
        for (int j = 0; j < n; j++) {
            const struct rlk_exchange *peer = &ex[member(lat, g, rank[i], j)];
            const char *from = peer->send;
            for (int k = 0; k < me; k++)
                from += peer->send_bytes[k];
            if (peer->send_bytes[me] != ex[i].recv_bytes[j])
                return rlk_kfail(&x->detail, RLK_K_EINVAL,
                                 "virtual transport: rank %d expects %zu bytes, its peer sends %zu", rank[i],
                                 ex[i].recv_bytes[j], peer->send_bytes[me]);
            const int rc = ex[i].recv_bytes[j] ? x->prims->copy(x, to, from, ex[i].recv_bytes[j]) : 0;
            if (rc)
                return rc;
            to += ex[i].recv_bytes[j];
        }
    }
    return 0;
}

static int all_gather(void *self, struct rlk_exec *x, const struct rlk_lattice *lat, enum rlk_group g, int held,
                      const int *rank, const struct rlk_exchange *ex)
{
    (void)self;
    const int n = members(lat, g);
    if (held != lat->tp * lat->cp)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "virtual transport: %d of %d ranks held, hold all", held,
                         lat->tp * lat->cp);
    for (int i = 0; i < held; i++) {
        char *to = ex[i].recv;
        for (int j = 0; j < n; j++) {
            const struct rlk_exchange *peer = &ex[member(lat, g, rank[i], j)];
            if (peer->send_bytes[0] != ex[i].recv_bytes[j])
                return rlk_kfail(&x->detail, RLK_K_EINVAL,
                                 "virtual transport: rank %d expects %zu bytes, its peer sends %zu", rank[i],
                                 ex[i].recv_bytes[j], peer->send_bytes[0]);
            const int rc = ex[i].recv_bytes[j] ? x->prims->copy(x, to, peer->send, ex[i].recv_bytes[j]) : 0;
            if (rc)
                return rc;
            to += ex[i].recv_bytes[j];
        }
    }
    return 0;
}

const struct rlk_transport rlk_transport_virtual = {"virtual", NULL, all_to_all, all_gather};

int rlk_world_virtual(struct rlk_world *w, struct rlk_exec *x, int tp, int cp)
{
    *w = (struct rlk_world){.x = x, .net = &rlk_transport_virtual};
    const int rc = rlk_lattice_init(&w->lat, tp, cp, &x->detail);
    if (rc)
        return rc;
    w->held = tp * cp;
    for (int i = 0; i < w->held; i++)
        w->rank[i] = i;
    return 0;
}
