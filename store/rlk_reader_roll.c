#include "store/rlk_reader_impl.h"

/* A recording that was cut off has no roll-ups that could be trusted: one scan makes them. */
static int make_roll(struct rlk_env *env, struct rlk_detail *detail)
{
    struct rlk_arena arena = {0};
    struct rlk_event event;
    int rc = RLK_OK;
    if (env->rolled)
        return RLK_OK;
    for (uint64_t seq = env->state.first_seq; seq < env->state.next_seq; seq++) {
        uint32_t phase, module;
        rlk_arena_reset(&arena);
        rc = rlki_env_event(env, seq, &arena, &event, &phase, &module, detail);
        if (rc == RLK_ENOENT) {
            rc = RLK_OK;
            continue;
        }
        if (rc)
            break;
        if (event.who.step >= env->state.first_step)
            rc = rlki_rollup_add(&env->roll, &event, phase, module);
        if (rc)
            break;
    }
    rlk_arena_release(&arena);
    if (rc) {
        rlki_rollup_release(&env->roll);
        return rc;
    }
    for (size_t i = 0; i < env->roll.count; i++)
        rlki_group_sort(env->roll.groups[i]);
    rlki_rollup_sort(&env->roll);
    env->rolled = true;
    return RLK_OK;
}

static struct rlk_roll roll_of(int64_t step, uint32_t rank, const struct rlki_node *node)
{
    return (struct rlk_roll){.step = step,
                             .rank = rank,
                             .phase = rlki_empty,
                             .module = rlki_empty,
                             .pass = rlki_pass_name(node->pass),
                             .out_sum = node->out_sum,
                             .in_sum = node->in_sum,
                             .events = node->events,
                             .tensors = node->tensors,
                             .first_seq = node->first_seq,
                             .nranges = node->nranges,
                             .ranges = node->ranges};
}

static int stored_steps(struct rlk_env *env, int (*visit)(void *context, const struct rlk_roll *roll), void *context,
                        int *answer, struct rlk_detail *detail)
{
    struct rlki_mdb_cursor c;
    int rc = rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[RLKI_DB_ROLL]);
    if (rc)
        return rlk_fail(detail, rc, "out of memory");
    for (rc = rlki_mdb_first(&c, detail); rc == RLK_OK && *answer == 0; rc = rlki_mdb_next(&c, detail)) {
        struct rlki_cur body;
        struct rlki_node total = {0};
        int64_t step;
        uint32_t rank;
        rc = rlki_env_cursor_value(env, RLKI_DB_ROLL, &c, &body, detail);
        if (rc)
            break;
        rlki_total_get(&body, &total);
        if (body.bad || !rlki_roll_key_read(c.key, c.nkey, &step, &rank)) {
            rc = rlk_fail(detail, RLK_ECORRUPT, "roll: an entry is damaged");
            break;
        }
        struct rlk_roll roll = roll_of(step, rank, &total);
        *answer = visit(context, &roll);
    }
    rlki_mdb_cursor_release(&c);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

int rlk_env_steps(struct rlk_env *env, int (*visit)(void *context, const struct rlk_roll *roll), void *context,
                  struct rlk_detail *detail)
{
    int answer = 0, rc;
    if (env->complete) {
        rc = stored_steps(env, visit, context, &answer, detail);
        return rc ? rlki_env_place(env, rc, detail) : answer;
    }
    rc = make_roll(env, detail);
    if (rc)
        return rlki_env_place(env, rc, detail);
    for (size_t i = 0; i < env->roll.count && answer == 0; i++) {
        struct rlki_node total;
        rlki_group_total(env->roll.groups[i], &total);
        struct rlk_roll roll = roll_of(env->roll.groups[i]->step, env->roll.groups[i]->rank, &total);
        answer = visit(context, &roll);
    }
    return answer;
}

static int visit_group(struct rlk_env *env, const struct rlki_group *group,
                       int (*visit)(void *context, const struct rlk_roll *roll), void *context, int *answer,
                       struct rlk_detail *detail)
{
    int rc = RLK_OK;
    for (size_t i = 0; i < group->nnodes && rc == RLK_OK && *answer == 0; i++) {
        const struct rlki_node *node = &group->nodes[i];
        struct rlk_roll roll = roll_of(group->step, group->rank, node);
        rc = rlki_env_string(env, node->phase, &roll.phase, detail);
        if (rc == RLK_OK)
            rc = rlki_env_string(env, node->module, &roll.module, detail);
        if (rc == RLK_OK)
            *answer = visit(context, &roll);
    }
    return rc;
}

/* The nodes of one (step, rank), by pass or joined. RLK_ENOENT: none. */
static int stored_group(struct rlk_env *env, struct rlki_group *group, bool by_pass, struct rlk_detail *detail)
{
    uint8_t key[RLKI_ROLL_KEY];
    struct rlki_cur body;
    rlki_roll_key(key, group->step, group->rank);
    int rc = rlki_env_value(env, RLKI_DB_ROLLMOD, key, sizeof key, false, NULL, &body, detail);
    if (rc)
        return rc;
    rc = rlki_group_merge(group, body.p, rlki_left(&body), env->state.nstrings, by_pass);
    return rc ? rlk_fail(detail, rc, "rollmod: step %lld rank %u: damaged", (long long)group->step, group->rank)
              : RLK_OK;
}

static int each_node(struct rlk_env *env, int64_t step, uint32_t rank, bool by_pass,
                     int (*visit)(void *context, const struct rlk_roll *roll), void *context, struct rlk_detail *detail)
{
    struct rlki_group *group = rlki_group_new(step, rank), *made = NULL;
    int answer = 0, rc;
    if (!group)
        return rlki_env_place(env, rlk_fail(detail, RLK_ENOMEM, "out of memory"), detail);
    if (env->complete) {
        rc = stored_group(env, group, by_pass, detail);
    } else {
        rc = make_roll(env, detail);
        for (size_t i = 0; i < env->roll.count && rc == RLK_OK && !made; i++)
            if (env->roll.groups[i]->step == step && env->roll.groups[i]->rank == rank)
                made = env->roll.groups[i];
        if (made && !by_pass && rlki_group_join(group, made))
            rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
    }
    if (rc == RLK_OK) {
        rlki_group_sort(group);
        rc = visit_group(env, made && by_pass ? made : group, visit, context, &answer, detail);
    }
    rlki_group_free(group);
    if (rc == RLK_ENOENT)
        return RLK_OK; /* no such step or rank: no nodes */
    return rc ? rlki_env_place(env, rc, detail) : answer;
}

int rlk_env_modules(struct rlk_env *env, int64_t step, uint32_t rank,
                    int (*visit)(void *context, const struct rlk_roll *roll), void *context, struct rlk_detail *detail)
{
    return each_node(env, step, rank, false, visit, context, detail);
}

int rlk_env_passes(struct rlk_env *env, int64_t step, uint32_t rank,
                   int (*visit)(void *context, const struct rlk_roll *roll), void *context, struct rlk_detail *detail)
{
    return each_node(env, step, rank, true, visit, context, detail);
}
