/* ledger.c - one pass over a recording's weights events, made when a rule first asks, and kept. */
#include "auditor/mechanism/ledger.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define EVENTS_MAX (UINT64_C(4) << 20) /* a recording with more events is not looked through */

struct version {
    uint64_t name; /* hash */
    uint32_t nth, label;
    int64_t step;
};

struct rlki_sync {
    struct rlki_ledger_sums sums;
    struct rlki_hash trainer_last, rollout_last; /* name -> digest */
    struct rlki_hash trainer_n;                  /* name -> versions so far */
    struct rlki_hash trainer_moved, rollout_moved;
    struct rlki_hash kept, fresh, keeper; /* (name, step) -> ranks given old bits, new ones; the lowest of the first */
    struct rlki_hash given;               /* (rank, name, digest) of the rollout -> step in which it was first given */
    struct rlki_hash labels;              /* (name, label), and (name, label, digest), that the trainer published */
    struct rlki_hash by_bits;             /* (name, digest) -> place in version + 1 */
    struct version *version;
    size_t n, cap;
    uint32_t trainer_rank, rollout_rank;
    bool has_trainer, has_rollout;
    bool failed;
};

struct fill {
    struct rlki_audit *audit;
    struct rlki_sync *sync;
};

static uint64_t name_key(const char *name)
{
    return rlki_mix(107, XXH3_64bits(name, strlen(name)));
}

static uint64_t bits_of(const struct rlk_sums *s)
{
    return rlki_mix(rlki_mix(109, s->positional.lo), s->positional.hi);
}

/* Enters one tensor; true if its bits are other than the last time. */
static bool enter(struct rlki_hash *last, struct rlki_hash *moved, uint64_t name, uint64_t bits)
{
    uint64_t before;
    bool had = rlki_hash_get(last, name, &before), other = had && before != bits;
    rlki_hash_put(last, name, bits);
    if (other)
        rlki_hash_put(moved, name, 1);
    return !had || other;
}

static int trainer_tensor(struct fill *fill, const struct rlk_event *e, const struct rlk_tensor *t)
{
    struct rlki_sync *sync = fill->sync;
    uint64_t name = name_key(t->name), bits = bits_of(&t->sums);
    uint64_t labelled = rlki_mix(rlki_mix(113, name), XXH3_64bits(e->u.weights.version, strlen(e->u.weights.version)));
    rlki_hash_put(&sync->labels, labelled, 1);
    rlki_hash_put(&sync->labels, rlki_mix(labelled, bits), 1);
    if (!enter(&sync->trainer_last, &sync->trainer_moved, name, bits))
        return RLK_OK;
    uint64_t nth = rlki_hash_count(&sync->trainer_n, name, 1) + 1;
    if (rlki_hash_get(&sync->by_bits, rlki_mix(name, bits), NULL))
        return RLK_OK; /* it came back to an older version: the first one counts */
    if (!rlki_grow(&sync->version, &sync->cap, sync->n, sizeof *sync->version))
        return RLK_ENOMEM;
    sync->version[sync->n++] =
        (struct version){name, (uint32_t)nth, rlki_names_id(&fill->audit->names, e->u.weights.version), e->who.step};
    rlki_hash_put(&sync->by_bits, rlki_mix(name, bits), sync->n);
    return RLK_OK;
}

static uint64_t given_key(uint32_t rank, const char *name, const struct rlk_sums *sums)
{
    return rlki_mix(rlki_mix(rlki_mix(137, rank), name_key(name)), bits_of(sums));
}

static uint64_t kept_key(const char *name, int64_t step)
{
    return rlki_mix(rlki_mix(139, name_key(name)), (uint64_t)step);
}

/* A rank of the rollout is given bits, which it may have had before. */
static void give(struct rlki_sync *sync, uint64_t key, uint64_t at, int64_t step, uint32_t rank)
{
    uint64_t first, lowest;
    const bool had = rlki_hash_get(&sync->given, key, &first);
    if (!had)
        rlki_hash_put(&sync->given, key, (uint64_t)step);
    if (!had || (int64_t)first >= step) {
        rlki_hash_count(&sync->fresh, at, 1);
        return;
    }
    rlki_hash_count(&sync->kept, at, 1);
    if (!rlki_hash_get(&sync->keeper, at, &lowest) || rank < lowest)
        rlki_hash_put(&sync->keeper, at, rank);
}

static int visit(void *context, const struct rlk_event *e)
{
    struct fill *fill = context;
    struct rlki_sync *sync = fill->sync;
    if (e->kind != RLK_EV_WEIGHTS)
        return 0;
    bool rollout = strcmp(e->u.weights.side, "rollout") == 0;
    bool *has = rollout ? &sync->has_rollout : &sync->has_trainer;
    uint32_t *rank = rollout ? &sync->rollout_rank : &sync->trainer_rank;
    if (!*has) {
        *has = true;
        *rank = e->rank;
    }
    for (uint32_t i = 0; rollout && i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        uint64_t key = given_key(e->rank, t->name, &t->sums);
        if (t->role == RLK_ROLE_OUT && t->state == RLK_T_DIGESTED)
            give(sync, key, kept_key(t->name, e->who.step), e->who.step, e->rank);
    }
    if (*rank != e->rank) /* the first rank stands for its replicas */
        return 0;
    sync->sums.syncs += rollout;
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        int rc = RLK_OK;
        if (t->role != RLK_ROLE_OUT || t->state != RLK_T_DIGESTED)
            continue;
        if (rollout)
            enter(&sync->rollout_last, &sync->rollout_moved, name_key(t->name), bits_of(&t->sums));
        else
            rc = trainer_tensor(fill, e, t);
        if (rc)
            return rc;
    }
    return 0;
}

static int build(struct rlki_audit *audit, int side, struct rlki_sync *sync)
{
    struct fill fill = {audit, sync};
    struct rlki_side *s = &audit->side[side];
    uint64_t weights = 0, events = 0;
    int rc = RLK_OK;
    for (size_t i = 0; i < s->nenv; i++) {
        weights += rlk_env_kind(s->env[i].env, RLK_EV_WEIGHTS);
        events += rlk_env_count(s->env[i].env);
    }
    if (!weights || events > EVENTS_MAX)
        return RLK_OK;
    for (size_t i = 0; i < s->nenv && rc == RLK_OK; i++)
        if (rlk_env_kind(s->env[i].env, RLK_EV_WEIGHTS))
            rc = rlk_env_scan(s->env[i].env, 0, UINT64_MAX, visit, &fill, audit->detail);
    if (sync->trainer_last.failed || sync->rollout_last.failed || sync->trainer_n.failed ||
        sync->trainer_moved.failed || sync->rollout_moved.failed || sync->by_bits.failed || sync->labels.failed ||
        sync->given.failed || sync->kept.failed || sync->fresh.failed || sync->keeper.failed)
        rc = RLK_ENOMEM;
    sync->sums.known = rc == RLK_OK;
    sync->sums.tensors = (uint32_t)sync->rollout_last.n;
    sync->sums.changed = (uint32_t)sync->rollout_moved.n;
    sync->sums.trainer = (uint32_t)sync->trainer_last.n;
    sync->sums.trainer_changed = (uint32_t)sync->trainer_moved.n;
    for (size_t i = 0; i < sync->trainer_last.cap && sync->has_rollout; i++)
        sync->sums.without +=
            sync->trainer_last.key[i] && !rlki_hash_get(&sync->rollout_last, sync->trainer_last.key[i], NULL);
    return rc;
}

static int sync_of(struct rlki_audit *audit, int side, struct rlki_sync **out)
{
    int rc = RLK_OK;
    if (!audit->sync[side]) {
        audit->sync[side] = calloc(1, sizeof *audit->sync[side]);
        if (!audit->sync[side])
            return RLK_ENOMEM;
        rc = build(audit, side, audit->sync[side]);
    }
    *out = audit->sync[side];
    return rc;
}

int rlki_sync_sums(struct rlki_audit *audit, int side, struct rlki_ledger_sums *out)
{
    struct rlki_sync *sync;
    memset(out, 0, sizeof *out);
    int rc = sync_of(audit, side, &sync);
    if (rc == RLK_OK)
        *out = sync->sums;
    return rc;
}

int rlki_sync_given(struct rlki_audit *audit, int side, uint32_t rank, const struct rlk_tensor *t, int64_t step,
                    int64_t *first)
{
    struct rlki_sync *sync;
    uint64_t at;
    int rc = sync_of(audit, side, &sync);
    *first = step;
    if (rc == RLK_OK && t->state == RLK_T_DIGESTED &&
        rlki_hash_get(&sync->given, given_key(rank, t->name, &t->sums), &at))
        *first = (int64_t)at;
    return rc;
}

int rlki_sync_kept(struct rlki_audit *audit, int side, const char *name, int64_t step, struct rlki_kept *out)
{
    struct rlki_sync *sync;
    uint64_t rank = 0;
    const uint64_t key = kept_key(name, step);
    *out = (struct rlki_kept){0};
    int rc = sync_of(audit, side, &sync);
    if (rc)
        return rc;
    rlki_hash_get(&sync->kept, key, &out->kept);
    rlki_hash_get(&sync->fresh, key, &out->fresh);
    rlki_hash_get(&sync->keeper, key, &rank);
    out->rank = (uint32_t)rank;
    return RLK_OK;
}

int rlki_sync_version(struct rlki_audit *audit, int side, const char *name, const struct rlk_sums *sums, int64_t step,
                      const char *label, struct rlki_origin_version *out)
{
    struct rlki_sync *sync;
    uint64_t key = name_key(name), place;
    memset(out, 0, sizeof *out);
    int rc = sync_of(audit, side, &sync);
    if (rc)
        return rc;
    for (size_t i = 0; i < sync->n; i++)
        if (sync->version[i].name == key && sync->version[i].step <= step && sync->version[i].nth > out->newest)
            out->newest = sync->version[i].nth;
    if (!rlki_hash_get(&sync->by_bits, rlki_mix(key, bits_of(sums)), &place))
        return RLK_OK;
    const struct version *v = &sync->version[place - 1];
    out->found = true;
    out->nth = v->nth;
    out->step = v->step;
    out->label = v->label;
    uint64_t labelled = rlki_mix(rlki_mix(113, key), XXH3_64bits(label, strlen(label)));
    out->other_label = rlki_hash_get(&sync->labels, labelled, NULL) &&
                       !rlki_hash_get(&sync->labels, rlki_mix(labelled, bits_of(sums)), NULL);
    return RLK_OK;
}

void rlki_sync_free(struct rlki_audit *audit)
{
    for (int s = 0; s < 2; s++) {
        struct rlki_sync *sync = audit->sync[s];
        if (!sync)
            continue;
        rlki_hash_release(&sync->trainer_last);
        rlki_hash_release(&sync->rollout_last);
        rlki_hash_release(&sync->trainer_n);
        rlki_hash_release(&sync->trainer_moved);
        rlki_hash_release(&sync->rollout_moved);
        rlki_hash_release(&sync->given);
        rlki_hash_release(&sync->kept);
        rlki_hash_release(&sync->fresh);
        rlki_hash_release(&sync->keeper);
        rlki_hash_release(&sync->labels);
        rlki_hash_release(&sync->by_bits);
        free(sync->version);
        free(sync);
        audit->sync[s] = NULL;
    }
}
