/* launches.c - the kernel launches of a difference's two events, paired. */
#include "auditor/mechanism/mechanism.h"

#include <string.h>
#include <xxhash.h>

/* The launches of an event: its own, and those recorded as events. RLK_ENOMEM. */
static int launches_of(struct rlki_facts *f, int side)
{
    struct rlki_launches *l = &f->launches;
    const struct rlki_ev *ev = &f->ev[side];
    for (uint32_t i = 0; i < ev->e.nlaunches && l->n[side] < RLKI_MAX_LAUNCHES; i++)
        l->launch[side][l->n[side]++] = &ev->e.launches[i];
    for (uint32_t r = 0; r < ev->e.nlaunch_ranges; r++)
        for (uint64_t k = 0; k < ev->e.launch_ranges[r].count && k < RLKI_MAX_LAUNCHES; k++) {
            struct rlk_event e;
            if (l->n[side] == RLKI_MAX_LAUNCHES)
                return RLK_OK;
            int rc = rlk_env_event(f->audit->side[side].env[ev->env].env, ev->e.launch_ranges[r].first + k, &f->arena,
                                   &e, NULL);
            if (rc == RLK_ENOMEM)
                return rc;
            if (rc == RLK_OK && e.kind == RLK_EV_LAUNCH && e.nlaunches)
                l->launch[side][l->n[side]++] = &e.launches[0];
        }
    return RLK_OK;
}

bool rlki_launch_same_shape(const struct rlk_launch *x, const struct rlk_launch *y)
{
    return memcmp(x->grid, y->grid, sizeof x->grid) == 0 && memcmp(x->block, y->block, sizeof x->block) == 0 &&
           memcmp(x->cluster, y->cluster, sizeof x->cluster) == 0 && x->smem == y->smem;
}

static bool same_attrs(const struct rlk_launch *x, const struct rlk_launch *y)
{
    if (x->nattrs != y->nattrs)
        return false;
    for (uint32_t i = 0; i < x->nattrs; i++) {
        const struct rlk_attr *p = &x->attrs[i], *q = &y->attrs[i];
        if (!rlki_same_text(p->key, q->key) || p->type != q->type || p->i != q->i ||
            memcmp(&p->d, &q->d, sizeof p->d) != 0 || !rlki_same_text(p->s, q->s))
            return false;
    }
    return true;
}

/* Equal numbers of them pair in order; else the kernels that both have, in order. */
static int pair_up(struct rlki_launches *l)
{
    uint64_t key[2][RLKI_MAX_LAUNCHES];
    bool failed = false;
    for (uint32_t i = 0; i < l->n[0]; i++)
        l->pair[i] = l->n[0] == l->n[1] ? i : UINT32_MAX;
    if (l->n[0] == l->n[1] || !l->n[0] || !l->n[1])
        return RLK_OK;
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < l->n[s]; i++) {
            const char *kernel = l->launch[s][i]->kernel ? l->launch[s][i]->kernel : "";
            key[s][i] = XXH3_64bits(kernel, strlen(kernel));
        }
    rlki_lcs(key[0], l->n[0], key[1], l->n[1], l->pair, &failed);
    if (failed)
        return RLK_ENOMEM;
    /* What stands between the same neighbours on both sides is the same place, under another name. */
    for (uint32_t i = 0; i < l->n[0]; i++) {
        uint32_t j = i ? l->pair[i - 1] + 1 : 0;
        bool taken = l->pair[i] != UINT32_MAX || (i && l->pair[i - 1] == UINT32_MAX) || j >= l->n[1];
        for (uint32_t k = 0; k < l->n[0] && !taken; k++)
            taken = l->pair[k] == j;
        if (!taken)
            l->pair[i] = j;
    }
    return RLK_OK;
}

bool rlki_launch_pair(const struct rlki_facts *f, uint32_t i, const struct rlk_launch **x, const struct rlk_launch **y)
{
    const struct rlki_launches *l = &f->launches;
    if (l->pair[i] == UINT32_MAX)
        return false;
    *x = l->launch[0][i];
    *y = l->launch[1][l->pair[i]];
    return true;
}

int rlki_facts_launches(struct rlki_facts *f)
{
    struct rlki_launches *l = &f->launches;
    int rc = launches_of(f, 0);
    if (rc == RLK_OK)
        rc = launches_of(f, 1);
    if (rc == RLK_OK)
        rc = pair_up(l);
    l->known = l->n[0] && l->n[1];
    l->same = l->known && l->n[0] == l->n[1];
    for (uint32_t i = 0; rc == RLK_OK && i < l->n[0]; i++) {
        const struct rlk_launch *x, *y;
        if (!rlki_launch_pair(f, i, &x, &y))
            continue;
        l->graph |= (x->graph == RLK_NO_NODE) != (y->graph == RLK_NO_NODE);
        l->same &= rlki_same_text(x->kernel, y->kernel) && rlki_same_text(x->image, y->image) &&
                   rlki_same_text(x->config, y->config) && rlki_launch_same_shape(x, y) && same_attrs(x, y);
    }
    return rc;
}

int rlki_launched_otherwise(struct rlki_audit *audit, const struct rlki_found *found, bool *out)
{
    struct rlki_facts f = {.audit = audit, .found = found};
    int rc = RLK_OK;
    *out = false;
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        rc = rlki_located(audit, found, s, &f.arena, &f.ev[s], &f.t[s]);
    if (rc == RLK_OK)
        rc = rlki_facts_launches(&f);
    if (rc == RLK_OK)
        *out = f.launches.known && !f.launches.same;
    rlk_arena_release(&f.arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}
