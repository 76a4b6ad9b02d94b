/* collective.c - a collective's inputs are the inputs of all its ranks; bucketed tensors join by member.
 *
 * Ranks are walked one after the other, so what each says of an instance is kept until the step ends. Ranks of the
 * communicator whose module agrees in both recordings were not read: their inputs are looked up then, because an input
 * by reference does not show in a roll-up.
 */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct differing { /* an unequal output */
    uint32_t env[2], tensor[2];
    uint64_t seq[2];
};

struct rlki_instance {
    uint64_t key, communicator, combine; /* combine: of an operator that combines ranks; 0 = a collective */
    char *phase, *module, *member;
    uint32_t nth;
    bool p2p, down, in_root, unknown, rng;
    uint32_t reason;
    uint32_t *ranks, nranks; /* the communicator; 0 = not known */
    uint32_t *said;          /* ranks heard of */
    size_t nsaid, cap_said;
    struct differing *out;
    size_t nout, cap_out;
};

bool rlki_has_members(const struct rlki_ev *ev)
{
    uint32_t n = ev->e.kind == RLK_EV_COLLECTIVE ? ev->e.u.collective.nmembers : 0;
    return n && rlki_ev_count(ev, RLK_ROLE_IN) == n && rlki_ev_count(ev, RLK_ROLE_OUT) == n;
}

static uint64_t instance_key(const struct rlki_ev *a, const char *member, uint32_t nth)
{
    uint64_t h = rlki_communicator_key(a);
    if (member)
        return rlki_mix(rlki_mix(h, XXH3_64bits(member, strlen(member))), nth);
    if (!rlki_is_p2p(a))
        h = rlki_mix(rlki_mix(h, a->phase), a->module);
    return rlki_mix(h, nth);
}

static struct rlki_instance *new_instance(struct rlki_audit *audit, const struct rlki_ev *a, uint64_t key, size_t room)
{
    if (!rlki_grow(&audit->instances, &audit->cap_instances, audit->ninstances, sizeof *audit->instances))
        return NULL;
    struct rlki_instance *inst = &audit->instances[audit->ninstances++];
    *inst = (struct rlki_instance){.key = key,
                                   .phase = strdup(a->e.who.phase),
                                   .module = strdup(a->e.who.module),
                                   .ranks = malloc((room + 1) * sizeof *inst->ranks)};
    if (!inst->phase || !inst->module || !inst->ranks)
        return NULL;
    rlki_hash_put(&audit->instance_index, key, audit->ninstances - 1);
    return inst;
}

/* An operator that combines ranks: one instance an identity and set of ranks. */
static struct rlki_instance *combined(struct rlki_audit *audit, const struct rlki_ev *a)
{
    const char *text = rlki_combines(a);
    const size_t room = strlen(text) / 2 + 1;
    uint64_t key = rlki_combine_key(audit, a), place;
    if (rlki_hash_get(&audit->instance_index, key, &place))
        return &audit->instances[place];
    struct rlki_instance *inst = new_instance(audit, a, key, room);
    if (inst) {
        inst->combine = key;
        inst->nranks = rlki_combine_ranks(text, inst->ranks, (uint32_t)room);
    }
    return inst;
}

static struct rlki_instance *instance_of(struct rlki_audit *audit, const struct rlki_ev *a, const char *member,
                                         uint32_t nth)
{
    const struct rlki_side *side = &audit->side[0];
    if (a->e.kind == RLK_EV_OP)
        return combined(audit, a);
    uint64_t key = instance_key(a, member, nth), place;
    if (!a->e.u.collective.nranks && side->has_layout) { /* one instance a communicator of the layout */
        uint32_t *ranks = malloc(((size_t)side->world + 1) * sizeof *ranks), n = 0;
        if (!ranks)
            return NULL;
        rlki_side_communicator(side, &a->e, ranks, &n);
        key = rlki_mix(key, n ? ranks[0] : 0);
        free(ranks);
    }
    if (rlki_hash_get(&audit->instance_index, key, &place))
        return &audit->instances[place];
    const size_t room = a->e.u.collective.nranks > side->world ? a->e.u.collective.nranks : side->world;
    struct rlki_instance *inst = new_instance(audit, a, key, room);
    if (!inst || (member && !(inst->member = strdup(member))))
        return NULL;
    inst->communicator = rlki_communicator_key(a);
    inst->nth = nth;
    inst->p2p = rlki_is_p2p(a);
    rlki_side_communicator(side, &a->e, inst->ranks, &inst->nranks);
    return inst;
}

/* What one rank's inputs say. */
static int hear(struct rlki_audit *audit, struct rlki_instance *inst, const struct rlki_ev *a, const struct rlki_ev *b,
                const struct rlk_tensor *ta, const struct rlk_tensor *tb)
{
    enum rlki_input input = RLKI_INPUT_UNKNOWN;
    uint32_t reason = 0;
    int rc = RLK_OK;
    if (ta && tb)
        rc = rlki_judge_input(audit, a, b, ta, tb, &input, &reason);
    else
        reason = rlki_names_id(&audit->names, "another number of inputs");
    inst->down |= input == RLKI_INPUT_DOWN;
    inst->in_root |= input == RLKI_INPUT_ROOT;
    rlki_where_collective(audit, inst->key, a,
                          input == RLKI_INPUT_DOWN || input == RLKI_INPUT_ROOT ? RLKI_PART_IN : RLKI_PART_HEARD);
    if (input == RLKI_INPUT_UNKNOWN) {
        inst->unknown = true;
        inst->reason = reason;
    }
    return rc;
}

static bool heard(const struct rlki_instance *inst, uint32_t rank)
{
    for (size_t i = 0; i < inst->nsaid; i++)
        if (inst->said[i] == rank)
            return true;
    return false;
}

static int said(struct rlki_instance *inst, uint32_t rank)
{
    if (heard(inst, rank))
        return RLK_OK;
    if (!rlki_grow(&inst->said, &inst->cap_said, inst->nsaid, sizeof *inst->said))
        return RLK_ENOMEM;
    inst->said[inst->nsaid++] = rank;
    return RLK_OK;
}

static int differs(struct rlki_audit *audit, struct rlki_instance *inst, const struct rlki_ev *a,
                   const struct rlki_ev *b, const struct rlk_tensor *ta, const struct rlk_tensor *tb)
{
    if (!rlki_grow(&inst->out, &inst->cap_out, inst->nout, sizeof *inst->out))
        return RLK_ENOMEM;
    rlki_where_collective(audit, inst->key, a, RLKI_PART_OUT);
    inst->out[inst->nout++] = (struct differing){
        .env = {a->env, b->env},
        .seq = {a->e.seq, b->e.seq},
        .tensor = {ta ? (uint32_t)(ta - a->e.tensors) : UINT32_MAX, tb ? (uint32_t)(tb - b->e.tensors) : UINT32_MAX},
    };
    return RLK_OK;
}

static int hear_all(struct rlki_audit *audit, struct rlki_instance *inst, const struct rlki_ev *a,
                    const struct rlki_ev *b)
{
    uint32_t na = rlki_ev_count(a, RLK_ROLE_IN), nb = rlki_ev_count(b, RLK_ROLE_IN);
    int rc = said(inst, a->e.rank);
    for (uint32_t i = 0; (i < na || i < nb) && rc == RLK_OK && !rlki_stop(audit); i++)
        rc = hear(audit, inst, a, b, rlki_ev_tensor(a, RLK_ROLE_IN, i), rlki_ev_tensor(b, RLK_ROLE_IN, i));
    return rc;
}

int rlki_collective_add(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b, bool rng)
{
    struct rlki_instance *inst = instance_of(audit, a, NULL, a->nth);
    if (!inst)
        return RLK_ENOMEM;
    inst->rng |= rng;
    int rc = hear_all(audit, inst, a, b);
    uint32_t n = rlki_ev_count(a, RLK_ROLE_OUT);
    for (uint32_t i = 0; a->differs && i < n && rc == RLK_OK; i++)
        if (rlki_side_marked(&audit->side[0], a->env, a->e.seq, i) == RLKI_MARK_DIFF)
            return differs(audit, inst, a, b, rlki_ev_tensor(a, RLK_ROLE_OUT, i), rlki_ev_tensor(b, RLK_ROLE_OUT, i));
    if (a->differs && rc == RLK_OK)
        rc = differs(audit, inst, a, b, NULL, rlki_ev_tensor(b, RLK_ROLE_OUT, n));
    return rc;
}

/* ---- members ---- */

static uint64_t member_key(const struct rlki_ev *ev, uint32_t i)
{
    const char *member = ev->e.u.collective.members[i];
    uint64_t h = XXH3_64bits(ev->e.u.collective.group, strlen(ev->e.u.collective.group));
    return rlki_mix(rlki_mix(h, ev->op), XXH3_64bits(member, strlen(member)));
}

struct member { /* of B */
    struct rlki_ev *ev;
    uint32_t i;
};

static int judge_member(struct rlki_audit *audit, struct rlki_ev *a, uint32_t i, struct rlki_ev *b, uint32_t k,
                        uint32_t nth)
{
    const struct rlk_tensor *ta = rlki_ev_tensor(a, RLK_ROLE_OUT, i), *tb = rlki_ev_tensor(b, RLK_ROLE_OUT, k);
    struct rlki_instance *inst = instance_of(audit, a, a->e.u.collective.members[i], nth);
    const char *reason = NULL;
    if (!inst)
        return RLK_ENOMEM;
    enum rlki_tri equal = ta && tb ? rlki_output_equal(ta, tb, &reason) : RLKI_NO;
    enum rlki_mark mark = equal == RLKI_YES ? RLKI_MARK_EQUAL : equal == RLKI_NO ? RLKI_MARK_DIFF : RLKI_MARK_DARK;
    if (equal == RLKI_MAYBE)
        rlki_skip(audit, reason, 1);
    else
        audit->compared++;
    rlki_side_mark(&audit->side[0], a->env, a->e.seq, i, a->e.u.collective.nmembers, mark);
    rlki_side_mark(&audit->side[1], b->env, b->e.seq, k, b->e.u.collective.nmembers, mark);
    if (!a->mate)
        a->mate = b;
    if (!b->mate)
        b->mate = a;
    int rc = said(inst, a->e.rank);
    if (rc == RLK_OK)
        rc = hear(audit, inst, a, b, rlki_ev_tensor(a, RLK_ROLE_IN, i), rlki_ev_tensor(b, RLK_ROLE_IN, k));
    if (rc == RLK_OK && equal == RLKI_NO)
        rc = differs(audit, inst, a, b, ta, tb);
    return rc;
}

int rlki_collective_members(struct rlki_audit *audit, struct rlki_unit *unit)
{
    struct rlki_hash where = {0}, count = {0};
    struct member *list = NULL;
    size_t n = 0, cap = 0;
    int rc = RLK_OK;
    for (size_t j = 0; j < unit->n[1]; j++) {
        struct rlki_ev *b = &unit->ev[1][j];
        for (uint32_t i = 0; rlki_has_members(b) && i < b->e.u.collective.nmembers; i++) {
            uint64_t key = member_key(b, i);
            if (!rlki_grow(&list, &cap, n, sizeof *list)) {
                rc = RLK_ENOMEM;
                goto out;
            }
            rlki_hash_put(&where, rlki_mix(key, rlki_hash_count(&count, key, 1)), n);
            list[n++] = (struct member){b, i};
        }
    }
    rlki_hash_clear(&count);
    for (size_t i = 0; i < unit->n[0] && rc == RLK_OK; i++) {
        struct rlki_ev *a = &unit->ev[0][i];
        for (uint32_t k = 0; rlki_has_members(a) && k < a->e.u.collective.nmembers && rc == RLK_OK; k++) {
            uint64_t key = member_key(a, k), nth = rlki_hash_count(&count, key, 1), place;
            if (rlki_hash_get(&where, rlki_mix(key, nth), &place))
                rc = judge_member(audit, a, k, list[place].ev, list[place].i, (uint32_t)nth);
            else
                rlki_skip(audit, "member", 1);
        }
    }
    if (where.failed || count.failed)
        rc = RLK_ENOMEM;
out:
    free(list);
    rlki_hash_release(&where);
    rlki_hash_release(&count);
    return rc;
}

/* ---- the end of the step ---- */

static const struct rlki_ev *find(const struct rlki_audit *audit, const struct rlki_unit *unit, int side,
                                  const struct rlki_instance *inst, uint32_t *i)
{
    uint32_t nth = 0;
    for (size_t k = 0; k < unit->n[side]; k++) {
        const struct rlki_ev *ev = &unit->ev[side][k];
        if (inst->combine && rlki_combine_key(audit, ev) == inst->combine)
            return ev;
        if (inst->combine)
            continue;
        if (ev->e.kind != RLK_EV_COLLECTIVE || rlki_communicator_key(ev) != inst->communicator)
            continue;
        if (!inst->member && !rlki_has_members(ev) && ev->nth == inst->nth)
            return ev;
        for (uint32_t m = 0; inst->member && rlki_has_members(ev) && m < ev->e.u.collective.nmembers; m++) {
            if (strcmp(ev->e.u.collective.members[m], inst->member) != 0 || nth++ != inst->nth)
                continue;
            *i = m;
            return ev;
        }
    }
    return NULL;
}

static int read_module(struct rlki_audit *audit, struct rlki_unit *unit, int side, const struct rlki_instance *inst)
{
    struct rlki_nodes nodes = {0};
    int rc = rlki_side_nodes(&audit->side[side], unit->step, unit->rank, &nodes, audit->detail);
    for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
        if (strcmp(rlki_names_text(&audit->names, nodes.node[i].module), inst->module) == 0 &&
            strcmp(rlki_names_text(&audit->names, nodes.node[i].phase), inst->phase) == 0)
            rc = rlki_unit_read(audit, unit, side, &nodes.node[i]);
    rlki_nodes_release(&nodes);
    return rc;
}

/* A rank that was not read, because its module agrees: what are its inputs? */
static int ask(struct rlki_audit *audit, struct rlki_unit *unit, struct rlki_instance *inst, uint32_t rank)
{
    uint32_t i = 0, k = 0;
    rlki_unit_reset(unit);
    unit->rank = rank;
    int rc = read_module(audit, unit, 0, inst);
    if (rc == RLK_OK)
        rc = read_module(audit, unit, 1, inst);
    if (rc)
        return rc;
    const struct rlki_ev *a = find(audit, unit, 0, inst, &i), *b = find(audit, unit, 1, inst, &k);
    if (!a || !b) {
        if (inst->nranks) {
            inst->unknown = true;
            inst->reason = rlki_names_id(&audit->names, "a rank of the collective is missing");
        }
        return RLK_OK;
    }
    if (inst->p2p)
        rc = said(inst, rank);
    if (rc)
        return rc;
    if (inst->member)
        return hear(audit, inst, a, b, rlki_ev_tensor(a, RLK_ROLE_IN, i), rlki_ev_tensor(b, RLK_ROLE_IN, k));
    return hear_all(audit, inst, a, b);
}

static int ask_the_others(struct rlki_audit *audit, struct rlki_unit *unit, struct rlki_instance *inst)
{
    int rc = RLK_OK;
    const uint32_t *ranks = inst->nranks ? inst->ranks : audit->side[0].ranks;
    uint32_t n = inst->nranks ? inst->nranks : audit->side[0].nranks;
    for (uint32_t i = 0; i < n && rc == RLK_OK && !rlki_stop(audit); i++)
        if (!heard(inst, ranks[i]))
            rc = ask(audit, unit, inst, ranks[i]);
    return rc;
}

static int conclude(struct rlki_audit *audit, struct rlki_instance *inst, int64_t step)
{
    struct rlk_arena arena = {0};
    int rc = RLK_OK;
    rlki_where_verdict(audit, inst->key, step, !inst->down && !inst->in_root);
    for (size_t i = 0; i < inst->nout && rc == RLK_OK; i++) {
        struct rlki_ev a, b;
        const struct differing *d = &inst->out[i];
        rlk_arena_reset(&arena);
        rc = rlki_ev_load(audit, 0, d->env[0], d->seq[0], &arena, &a);
        if (rc == RLK_OK)
            rc = rlki_ev_load(audit, 1, d->env[1], d->seq[1], &arena, &b);
        if (rc)
            break;
        if (inst->down || inst->in_root) {
            rlki_count_down(audit, &a);
            continue;
        }
        struct rlki_found *found =
            rlki_found_add(audit, &a, &b, d->tensor[0] == UINT32_MAX ? NULL : &a.e.tensors[d->tensor[0]],
                           d->tensor[1] == UINT32_MAX ? NULL : &b.e.tensors[d->tensor[1]],
                           inst->unknown ? RLKI_ROOT_UNKNOWN : RLKI_ROOT_TRUE);
        if (!found)
            rc = RLK_ENOMEM;
        else if (inst->unknown)
            found->reason = inst->reason;
        if (found)
            found->rng |= inst->rng;
    }
    rlk_arena_release(&arena);
    return rc;
}

int rlki_collectives_finish(struct rlki_audit *audit, int64_t step)
{
    struct rlki_unit unit = {.step = step};
    int rc = RLK_OK;
    for (size_t i = 0; i < audit->ninstances; i++) {
        struct rlki_instance *inst = &audit->instances[i];
        if (rc == RLK_OK && inst->nout && !inst->down && !inst->in_root && !rlki_stop(audit))
            rc = ask_the_others(audit, &unit, inst);
        if (rc == RLK_OK && inst->p2p && inst->nout && inst->nsaid < 2 && !inst->down && !inst->in_root) {
            inst->unknown = true;
            inst->reason = rlki_names_id(&audit->names, "the other end of the transfer is not recorded");
        }
        if (rc == RLK_OK && inst->nout && !rlki_stop(audit))
            rc = conclude(audit, inst, step);
    }
    rlki_collectives_drop(audit);
    rlki_unit_release(&unit);
    return rc;
}

void rlki_collectives_drop(struct rlki_audit *audit)
{
    for (size_t i = 0; i < audit->ninstances; i++) {
        struct rlki_instance *inst = &audit->instances[i];
        free(inst->phase);
        free(inst->module);
        free(inst->member);
        free(inst->ranks);
        free(inst->said);
        free(inst->out);
    }
    audit->ninstances = 0;
    rlki_hash_clear(&audit->instance_index);
}
