#include "auditor/side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_totals(const void *x, const void *y)
{
    const struct rlki_total *a = x, *b = y;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->env < b->env ? -1 : a->env > b->env;
}

struct totals_load {
    struct rlki_side *side;
    size_t cap;
    uint32_t env;
};

static int add_total(void *context, const struct rlk_roll *roll)
{
    struct totals_load *load = context;
    struct rlki_side *side = load->side;
    if (!rlki_grow(&side->totals, &load->cap, side->ntotals, sizeof *side->totals))
        return RLK_ENOMEM;
    side->totals[side->ntotals++] = (struct rlki_total){
        .step = roll->step,
        .rank = roll->rank,
        .env = load->env,
        .out = roll->out_sum,
        .in = roll->in_sum,
        .events = roll->events,
        .tensors = roll->tensors,
        .first_seq = roll->first_seq,
    };
    return 0;
}

static int compare_u32(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static int load_ranks(struct rlki_side *side)
{
    size_t cap = 0, n = 0;
    for (size_t i = 0; i < side->nenv; i++) {
        uint32_t count;
        const uint32_t *ranks = rlk_env_ranks(side->env[i].env, &count);
        for (uint32_t k = 0; k < count; k++) {
            if (!rlki_grow(&side->ranks, &cap, n, sizeof *side->ranks))
                return RLK_ENOMEM;
            side->ranks[n++] = ranks[k];
        }
    }
    for (size_t i = 0; i < side->ntotals; i++) {
        if (i && side->totals[i].rank == side->totals[i - 1].rank)
            continue;
        if (!rlki_grow(&side->ranks, &cap, n, sizeof *side->ranks))
            return RLK_ENOMEM;
        side->ranks[n++] = side->totals[i].rank;
    }
    if (n)
        qsort(side->ranks, n, sizeof *side->ranks, compare_u32);
    for (size_t i = 0; i < n; i++)
        if (!i || side->ranks[i] != side->ranks[side->nranks - 1])
            side->ranks[side->nranks++] = side->ranks[i];
    return RLK_OK;
}

static uint64_t not_digested(const struct rlk_coverage *coverage, const char *reason)
{
    for (uint32_t i = 0; i < coverage->nreasons && i < RLK_MAX_REASONS; i++)
        if (strcmp(coverage->not_digested[i].reason, reason) == 0)
            return coverage->not_digested[i].count;
    return 0;
}

/* Complete in the sense of exit status 4 (docs/cli.md). */
static int load_completeness(struct rlki_side *side, struct rlk_detail *detail)
{
    struct rlk_detail why = {{0}};
    int rc = rlk_recording_coverage(side->recording, &side->coverage, detail);
    if (rc)
        return rc;
    for (size_t i = 0; i < side->ntotals; i++) {
        side->events += side->totals[i].events;
        side->tensors += side->totals[i].tensors;
    }
    side->complete = rlk_recording_complete(side->recording, &why);
    if (!side->complete)
        snprintf(side->why, sizeof side->why, "%.250s", why.text[0] ? why.text : "an END is missing");
    else if (!side->events)
        snprintf(side->why, sizeof side->why, "no events");
    else if (!side->tensors)
        snprintf(side->why, sizeof side->why, "no tensor events");
    else if (side->coverage.dropped)
        snprintf(side->why, sizeof side->why, "%llu events dropped", (unsigned long long)side->coverage.dropped);
    else if (not_digested(&side->coverage, "ring-full"))
        snprintf(side->why, sizeof side->why, "%llu digests left out because a ring was full",
                 (unsigned long long)not_digested(&side->coverage, "ring-full"));
    if (side->why[0])
        side->complete = false;
    return RLK_OK;
}

#define RANKS_MAX (1 << 20) /* more are none: lists of a communicator's ranks have room for all */

static int load_layout(struct rlki_side *side, struct rlk_detail *detail)
{
    const json_t *ranks = json_object_get(side->manifest, "ranks");
    const char *layout = json_string_value(json_object_get(side->manifest, "layout"));
    int rc = rlk_recording_world(side->recording, &side->world, detail);
    if (rc)
        return rc;
    if (json_is_integer(ranks) && json_integer_value(ranks) > 0 && json_integer_value(ranks) <= RANKS_MAX)
        side->world = (uint32_t)json_integer_value(ranks);
    side->synthetic = json_is_true(json_object_get(side->manifest, "synthetic"));
    if (layout && rlk_layout_parse(&side->layout, layout, NULL) == RLK_OK &&
        rlk_layout_fit(&side->layout, side->world, NULL) == RLK_OK)
        side->has_layout = true;
    return RLK_OK;
}

int rlki_side_open(struct rlki_side *side, char letter, const char *dir, struct rlki_names *names,
                   struct rlk_detail *detail)
{
    memset(side, 0, sizeof *side);
    side->letter = letter;
    side->names = names;
    side->writer_budget = UINT64_C(4000000);
    int rc = rlk_recording_open(&side->recording, dir, detail);
    if (rc)
        return rc;
    side->manifest = rlk_recording_manifest(side->recording);
    side->nenv = rlk_recording_envs(side->recording);
    side->env = calloc(side->nenv + 1, sizeof *side->env);
    side->cache = calloc(RLKI_CACHE, sizeof *side->cache);
    if (!side->env || !side->cache)
        return rlk_fail(detail, RLK_ENOMEM, "opening %s", dir);
    struct totals_load load = {.side = side};
    for (size_t i = 0; i < side->nenv; i++) {
        side->env[i].env = rlk_recording_env(side->recording, i);
        load.env = (uint32_t)i;
        rc = rlk_env_steps(side->env[i].env, add_total, &load, detail);
        if (rc)
            return rc;
    }
    if (side->ntotals)
        qsort(side->totals, side->ntotals, sizeof *side->totals, compare_totals);
    rc = load_ranks(side);
    if (rc)
        return rc;
    rc = load_layout(side, detail);
    if (rc)
        return rc;
    return load_completeness(side, detail);
}

int rlki_side_intact(struct rlki_side *side, struct rlk_detail *detail)
{
    return rlk_recording_intact(side->recording, RLK_INTACT_MOST, &side->intact, detail);
}

const char *rlki_side_unchecked(const struct rlki_side *side)
{
    if (side->intact != RLK_INTACT_UNKNOWN)
        return NULL;
    for (size_t i = 0; i < side->nenv; i++)
        if (!rlk_env_complete(side->env[i].env))
            return "was not checked for damage: a process has no END";
    return "was not checked for damage: it is larger than 1 GiB (rlkrec verify reads all of it)";
}

bool rlki_other_retention(const struct rlki_side *a, const struct rlki_side *b)
{
    static const char *const keys[] = {"steps", "every", "keep_last", "max_size", "retention"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *of_a = json_object_get(a->manifest, keys[i]), *of_b = json_object_get(b->manifest, keys[i]);
        if ((of_a && !json_is_null(of_a)) || (of_b && !json_is_null(of_b)))
            if (!json_equal(of_a, of_b))
                return true;
    }
    return false;
}

bool rlki_layouts_differ(const struct rlki_side *a, const struct rlki_side *b)
{
    if (a->has_layout && b->has_layout)
        return a->layout.tp != b->layout.tp || a->layout.cp != b->layout.cp || a->layout.ep != b->layout.ep ||
               a->layout.dp != b->layout.dp || a->layout.pp != b->layout.pp;
    return a->world != b->world;
}

void rlki_side_close(struct rlki_side *side)
{
    for (size_t i = 0; side->env && i < side->nenv; i++) {
        rlki_bits_release(&side->env[i].lone);
        rlki_bits_release(&side->env[i].dark);
        rlki_bits_release(&side->env[i].diff);
        rlki_bits_release(&side->env[i].many);
        rlki_hash_release(&side->env[i].which);
    }
    for (size_t i = 0; side->cache && i < RLKI_CACHE; i++)
        rlk_arena_release(&side->cache[i].arena);
    free(side->cache);
    free(side->env);
    free(side->ranks);
    free(side->totals);
    rlki_hash_release(&side->writers);
    if (side->recording)
        rlk_recording_close(side->recording);
    memset(side, 0, sizeof *side);
}

const struct rlki_total *rlki_side_totals(const struct rlki_side *side, int64_t step, uint32_t rank, size_t *n)
{
    size_t lo = 0, hi = side->ntotals;
    struct rlki_total key = {.step = step, .rank = rank, .env = 0};
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare_totals(&side->totals[mid], &key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *n = 0;
    while (lo + *n < side->ntotals && side->totals[lo + *n].step == step && side->totals[lo + *n].rank == rank)
        ++*n;
    return *n ? &side->totals[lo] : NULL;
}

bool rlki_side_has_rank(const struct rlki_side *side, uint32_t rank)
{
    return side->nranks && bsearch(&rank, side->ranks, side->nranks, sizeof rank, compare_u32);
}

int64_t rlki_side_last_step(const struct rlki_side *side, uint32_t rank)
{
    for (size_t i = side->ntotals; i > 0; i--)
        if (side->totals[i - 1].rank == rank)
            return side->totals[i - 1].step;
    return INT64_MIN;
}

bool rlki_side_cut(const struct rlki_side *side, int64_t step, uint32_t rank)
{
    return !side->complete && (side->coverage.dropped || step >= rlki_side_last_step(side, rank));
}

bool rlki_side_cut_anywhere(const struct rlki_side *side, int64_t step)
{
    bool cut = !side->complete && (!side->nranks || side->nranks < side->world); /* a rank left nothing */
    for (uint32_t i = 0; i < side->nranks && !cut; i++)
        cut = rlki_side_cut(side, step, side->ranks[i]);
    return cut;
}

struct nodes_load {
    struct rlki_side *side;
    struct rlki_nodes *nodes;
    struct rlki_hash index;
    uint32_t env;
};

static int add_node(void *context, const struct rlk_roll *roll)
{
    struct nodes_load *load = context;
    struct rlki_nodes *nodes = load->nodes;
    uint32_t phase = rlki_names_id(load->side->names, roll->phase);
    uint32_t module = rlki_names_id(load->side->names, roll->module);
    uint64_t key = rlki_mix(rlki_mix(1, phase), module), at;
    if (!rlki_hash_get(&load->index, key, &at)) {
        if (!rlki_grow(&nodes->node, &nodes->cap, nodes->n, sizeof *nodes->node))
            return RLK_ENOMEM;
        at = nodes->n++;
        nodes->node[at] = (struct rlki_node){.phase = phase, .module = module, .first_seq = roll->first_seq};
        rlki_hash_put(&load->index, key, at);
    }
    struct rlki_node *node = &nodes->node[at];
    node->out = rlk_u128_add(node->out, roll->out_sum);
    node->in = rlk_u128_add(node->in, roll->in_sum);
    node->events += roll->events;
    node->tensors += roll->tensors;
    for (uint32_t i = 0; i < roll->nranges; i++) {
        if (!rlki_grow(&node->spans, &node->cap, node->nspans, sizeof *node->spans))
            return RLK_ENOMEM;
        node->spans[node->nspans++] =
            (struct rlki_span){.env = load->env, .first = roll->ranges[i].first, .count = roll->ranges[i].count};
    }
    return load->index.failed ? RLK_ENOMEM : 0;
}

int rlki_side_nodes(struct rlki_side *side, int64_t step, uint32_t rank, struct rlki_nodes *out,
                    struct rlk_detail *detail)
{
    struct nodes_load load = {.side = side, .nodes = out};
    size_t n;
    const struct rlki_total *total = rlki_side_totals(side, step, rank, &n);
    int rc = RLK_OK;
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        load.env = total[i].env;
        rc = rlk_env_modules(side->env[total[i].env].env, step, rank, add_node, &load, detail);
    }
    rlki_hash_release(&load.index);
    return rc;
}

void rlki_nodes_release(struct rlki_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        free(nodes->node[i].spans);
    free(nodes->node);
    memset(nodes, 0, sizeof *nodes);
}

int rlki_side_fetch(struct rlki_side *side, uint32_t env, uint64_t seq, const struct rlk_event **out,
                    struct rlk_detail *detail)
{
    *out = NULL;
    if (env >= side->nenv)
        return RLK_ENOENT;
    struct rlki_cached *slot = &side->cache[(seq * 31u + env) % RLKI_CACHE];
    if (!slot->used || slot->env != env || slot->seq != seq) {
        slot->used = false;
        rlk_arena_reset(&slot->arena);
        int rc = rlk_env_event(side->env[env].env, seq, &slot->arena, &slot->event, detail);
        if (rc)
            return rc;
        slot->used = true;
        slot->env = env;
        slot->seq = seq;
    }
    *out = &slot->event;
    return RLK_OK;
}

static uint64_t which_key(uint64_t seq, uint32_t output, enum rlki_mark mark)
{
    return rlki_mix(rlki_mix(seq, output), (uint64_t)mark);
}

void rlki_side_mark(struct rlki_side *side, uint32_t env, uint64_t seq, uint32_t output, uint32_t noutputs,
                    enum rlki_mark mark)
{
    struct rlki_env_state *state = &side->env[env];
    if (mark == RLKI_MARK_EQUAL)
        return;
    if (mark == RLKI_MARK_DIFF && (!state->first_diff || seq < state->first_diff - 1))
        state->first_diff = seq + 1;
    rlki_bits_set(mark == RLKI_MARK_DIFF ? &state->diff : mark == RLKI_MARK_DARK ? &state->dark : &state->lone, seq);
    if (noutputs > 1) {
        rlki_bits_set(&state->many, seq);
        rlki_hash_put(&state->which, which_key(seq, output, mark), 1);
    }
}

enum rlki_mark rlki_side_marked(const struct rlki_side *side, uint32_t env, uint64_t seq, uint32_t output)
{
    const struct rlki_env_state *state = &side->env[env];
    bool many = rlki_bits_get(&state->many, seq);
    if (rlki_bits_get(&state->diff, seq) &&
        (!many || rlki_hash_get(&state->which, which_key(seq, output, RLKI_MARK_DIFF), NULL)))
        return RLKI_MARK_DIFF;
    if (rlki_bits_get(&state->lone, seq) &&
        (!many || rlki_hash_get(&state->which, which_key(seq, output, RLKI_MARK_LONE), NULL)))
        return RLKI_MARK_LONE;
    if (rlki_bits_get(&state->dark, seq) &&
        (!many || rlki_hash_get(&state->which, which_key(seq, output, RLKI_MARK_DARK), NULL)))
        return RLKI_MARK_DARK;
    return RLKI_MARK_EQUAL;
}

int rlki_side_communicator(const struct rlki_side *side, const struct rlk_event *event, uint32_t *out, uint32_t *n)
{
    *n = 0;
    if (event->u.collective.nranks) {
        if (event->u.collective.nranks > side->world)
            return RLK_OK;
        memcpy(out, event->u.collective.ranks, event->u.collective.nranks * sizeof *out);
        *n = event->u.collective.nranks;
        return RLK_OK;
    }
    if (!side->has_layout || event->rank >= side->world)
        return RLK_OK;
    if (rlk_layout_group(&side->layout, side->world, event->u.collective.group, event->rank, out, n) != RLK_OK)
        *n = 0;
    return RLK_OK;
}

bool rlki_side_failed(const struct rlki_side *side)
{
    bool failed = side->writers.failed;
    for (size_t i = 0; i < side->nenv; i++) {
        const struct rlki_env_state *s = &side->env[i];
        failed |= s->lone.failed | s->dark.failed | s->diff.failed | s->many.failed | s->which.failed;
    }
    return failed;
}

uint32_t rlki_event_ninputs(const struct rlk_event *event)
{
    uint32_t lo = 0, hi = event->ntensors;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (event->tensors[mid].role == RLK_ROLE_IN)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct rlk_tensor *rlki_event_tensor(const struct rlk_event *event, uint8_t role, uint32_t index)
{
    uint32_t first = role == RLK_ROLE_IN ? 0 : rlki_event_ninputs(event);
    if (index >= event->ntensors - first)
        return NULL;
    const struct rlk_tensor *t = &event->tensors[first + index];
    return t->role == role && t->index == index ? t : NULL;
}
