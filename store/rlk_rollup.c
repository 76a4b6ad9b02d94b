#include "store/rlk_rollup.h"
#include "store/rlk_format.h"

#define FIRST_GAP 32u
#define MAX_RANGES 4096u

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b << 32 | b >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

static uint64_t node_hash(uint32_t phase, uint32_t module, uint8_t pass)
{
    return mix((uint64_t)pass << 32 | phase, module);
}

static const char *const passes[RLKI_PASSES] = {NULL, "", "fwd", "recompute", "bwd", "opt"};

uint8_t rlki_pass_code(const char *pass)
{
    uint8_t code = RLKI_PASSES - 1;
    while (code > RLKI_PASS_ANY && strcmp(passes[code], pass ? pass : "") != 0)
        code--;
    return code;
}

const char *rlki_pass_name(uint8_t pass)
{
    return pass < RLKI_PASSES ? passes[pass] : NULL;
}

/* Halves the number of ranges at least once: joins neighbours that are nearer than a growing gap. */
static void coarsen(struct rlki_node *node)
{
    while (node->nranges > MAX_RANGES / 2) {
        uint32_t n = 0;
        if (node->gap < UINT32_MAX / 2)
            node->gap *= 2;
        for (uint32_t i = 1; i < node->nranges; i++) {
            struct rlk_range *last = &node->ranges[n];
            const struct rlk_range *r = &node->ranges[i];
            if (r->first - (last->first + last->count) <= node->gap)
                last->count = r->first + r->count - last->first;
            else
                node->ranges[++n] = *r;
        }
        node->nranges = n + 1;
    }
}

/* Ranges are added in ascending order, except when nodes are merged: then they are sorted first (node_merge). */
static bool add_range(struct rlki_node *node, struct rlk_range r)
{
    struct rlk_range *last = node->nranges ? &node->ranges[node->nranges - 1] : NULL;
    if (last && r.first < last->first + last->count) { /* overlaps: only widen */
        if (r.first + r.count > last->first + last->count)
            last->count = r.first + r.count - last->first;
        return true;
    }
    if (last && r.first - (last->first + last->count) <= node->gap) {
        last->count = r.first + r.count - last->first;
        return true;
    }
    if (node->nranges == node->cap) {
        if (node->nranges >= MAX_RANGES) {
            coarsen(node);
            return add_range(node, r);
        }
        uint32_t cap = node->cap ? node->cap * 2 : 2;
        struct rlk_range *ranges = realloc(node->ranges, cap * sizeof *ranges);
        if (!ranges)
            return false;
        node->ranges = ranges;
        node->cap = cap;
    }
    node->ranges[node->nranges++] = r;
    return true;
}

static bool index_nodes(struct rlki_group *g)
{
    size_t n = g->nslots ? g->nslots * 2 : 16;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < g->nnodes; i++) {
        size_t at = node_hash(g->nodes[i].phase, g->nodes[i].module, g->nodes[i].pass) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)(i + 1);
    }
    free(g->slots);
    g->slots = slots;
    g->nslots = n;
    return true;
}

static struct rlki_node *find_node(struct rlki_group *g, uint32_t phase, uint32_t module, uint8_t pass)
{
    if (g->recent < g->nnodes && g->nodes[g->recent].phase == phase && g->nodes[g->recent].module == module &&
        g->nodes[g->recent].pass == pass)
        return &g->nodes[g->recent];
    if ((g->nnodes + 1) * 2 > g->nslots && !index_nodes(g))
        return NULL;
    size_t at = node_hash(phase, module, pass) & (g->nslots - 1);
    for (; g->slots[at]; at = (at + 1) & (g->nslots - 1)) {
        struct rlki_node *node = &g->nodes[g->slots[at] - 1];
        if (node->phase == phase && node->module == module && node->pass == pass) {
            g->recent = g->slots[at] - 1;
            return node;
        }
    }
    if (g->nnodes == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 8;
        struct rlki_node *nodes = realloc(g->nodes, cap * sizeof *nodes);
        if (!nodes)
            return NULL;
        g->nodes = nodes;
        g->cap = cap;
    }
    g->nodes[g->nnodes] =
        (struct rlki_node){.phase = phase, .module = module, .pass = pass, .first_seq = UINT64_MAX, .gap = FIRST_GAP};
    g->recent = g->nnodes++;
    g->slots[at] = (uint32_t)g->nnodes;
    return &g->nodes[g->recent];
}

struct rlki_group *rlki_group_new(int64_t step, uint32_t rank)
{
    struct rlki_group *g = calloc(1, sizeof *g);
    if (g) {
        g->step = step;
        g->rank = rank;
    }
    return g;
}

static bool index_groups(struct rlki_rollup *r, size_t n)
{
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < r->count; i++) {
        size_t at = mix((uint64_t)r->groups[i]->step, r->groups[i]->rank) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)(i + 1);
    }
    free(r->slots);
    r->slots = slots;
    r->nslots = n;
    return true;
}

static struct rlki_group *find_group(struct rlki_rollup *r, int64_t step, uint32_t rank)
{
    if (r->recent < r->count && r->groups[r->recent]->step == step && r->groups[r->recent]->rank == rank)
        return r->groups[r->recent];
    if ((r->count + 1) * 2 > r->nslots && !index_groups(r, r->nslots ? r->nslots * 2 : 16))
        return NULL;
    size_t at = mix((uint64_t)step, rank) & (r->nslots - 1);
    for (; r->slots[at]; at = (at + 1) & (r->nslots - 1)) {
        struct rlki_group *g = r->groups[r->slots[at] - 1];
        if (g->step == step && g->rank == rank) {
            r->recent = r->slots[at] - 1;
            return g;
        }
    }
    if (r->count == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 8;
        struct rlki_group **groups = realloc(r->groups, cap * sizeof *groups);
        if (!groups)
            return NULL;
        r->groups = groups;
        r->cap = cap;
    }
    struct rlki_group *g = rlki_group_new(step, rank);
    if (!g)
        return NULL;
    r->groups[r->count] = g;
    r->recent = r->count++;
    r->slots[at] = (uint32_t)r->count;
    return g;
}

int rlki_rollup_add(struct rlki_rollup *rollup, const struct rlk_event *event, uint32_t phase, uint32_t module)
{
    if (!rlki_event_counts(event))
        return RLK_OK;
    struct rlki_group *g = find_group(rollup, event->who.step, event->rank);
    struct rlki_node *node = g ? find_node(g, phase, module, rlki_pass_code(event->who.pass)) : NULL;
    if (!node || !add_range(node, (struct rlk_range){event->seq, 1}))
        return RLK_ENOMEM;
    rlk_u128 out, in;
    rlki_event_sums(event, &out, &in);
    node->out_sum = rlk_u128_add(node->out_sum, out);
    node->in_sum = rlk_u128_add(node->in_sum, in);
    node->events++;
    node->tensors += event->ntensors;
    if (event->seq < node->first_seq)
        node->first_seq = event->seq;
    return RLK_OK;
}

static int compare_groups(const void *a, const void *b)
{
    const struct rlki_group *x = *(struct rlki_group *const *)a, *y = *(struct rlki_group *const *)b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

void rlki_rollup_sort(struct rlki_rollup *rollup)
{
    if (rollup->count)
        qsort(rollup->groups, rollup->count, sizeof *rollup->groups, compare_groups);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct rlki_node *x = a, *y = b;
    return x->first_seq < y->first_seq ? -1 : x->first_seq > y->first_seq;
}

void rlki_group_sort(struct rlki_group *group)
{
    if (group->nnodes)
        qsort(group->nodes, group->nnodes, sizeof *group->nodes, compare_nodes);
}

void rlki_group_total(const struct rlki_group *group, struct rlki_node *total)
{
    *total = (struct rlki_node){.first_seq = UINT64_MAX};
    for (size_t i = 0; i < group->nnodes; i++) {
        const struct rlki_node *node = &group->nodes[i];
        total->out_sum = rlk_u128_add(total->out_sum, node->out_sum);
        total->in_sum = rlk_u128_add(total->in_sum, node->in_sum);
        total->events += node->events;
        total->tensors += node->tensors;
        if (node->first_seq < total->first_seq)
            total->first_seq = node->first_seq;
    }
}

void rlki_group_free(struct rlki_group *group)
{
    if (!group)
        return;
    for (size_t i = 0; i < group->nnodes; i++)
        free(group->nodes[i].ranges);
    free(group->nodes);
    free(group->slots);
    free(group);
}

void rlki_rollup_drop(struct rlki_rollup *r, bool (*drop)(void *context, const struct rlki_group *group), void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (drop(context, r->groups[i]))
            rlki_group_free(r->groups[i]);
        else
            r->groups[kept++] = r->groups[i];
    }
    r->count = kept;
    r->recent = SIZE_MAX;
    if (r->nslots) { /* same size: no allocation that could fail */
        memset(r->slots, 0, r->nslots * sizeof *r->slots);
        for (size_t i = 0; i < kept; i++) {
            size_t at = mix((uint64_t)r->groups[i]->step, r->groups[i]->rank) & (r->nslots - 1);
            while (r->slots[at])
                at = (at + 1) & (r->nslots - 1);
            r->slots[at] = (uint32_t)(i + 1);
        }
    }
}

static bool drop_all(void *context, const struct rlki_group *group)
{
    (void)context, (void)group;
    return true;
}

void rlki_rollup_release(struct rlki_rollup *rollup)
{
    rlki_rollup_drop(rollup, drop_all, NULL);
    free(rollup->groups);
    free(rollup->slots);
    *rollup = (struct rlki_rollup){0};
}

void rlki_total_put(struct rlki_buf *b, const struct rlki_node *total)
{
    rlki_put_u128(b, total->out_sum);
    rlki_put_u128(b, total->in_sum);
    rlki_put_v(b, total->events);
    rlki_put_v(b, total->tensors);
    rlki_put_v(b, total->first_seq);
}

void rlki_total_get(struct rlki_cur *c, struct rlki_node *total)
{
    total->out_sum = rlki_get_u128(c);
    total->in_sum = rlki_get_u128(c);
    total->events = rlki_get_v(c);
    total->tensors = rlki_get_v(c);
    total->first_seq = rlki_get_v(c);
}

void rlki_nodes_put(struct rlki_buf *b, const struct rlki_group *group)
{
    rlki_put_v(b, group->nnodes);
    for (size_t i = 0; i < group->nnodes; i++) {
        const struct rlki_node *node = &group->nodes[i];
        rlki_put_v(b, node->phase);
        rlki_put_v(b, node->module);
        rlki_total_put(b, node);
        rlki_put_v(b, node->nranges);
        uint64_t at = 0;
        for (uint32_t k = 0; k < node->nranges; k++) {
            rlki_put_v(b, node->ranges[k].first - at);
            rlki_put_v(b, node->ranges[k].count);
            at = node->ranges[k].first + node->ranges[k].count;
        }
    }
    for (size_t i = 0; i < group->nnodes; i++)
        rlki_put_u8(b, group->nodes[i].pass);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct rlk_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Adds `from` to `to`; both may have ranges. */
static int node_merge(struct rlki_node *to, const struct rlki_node *from, const struct rlk_range *ranges)
{
    to->out_sum = rlk_u128_add(to->out_sum, from->out_sum);
    to->in_sum = rlk_u128_add(to->in_sum, from->in_sum);
    to->events += from->events;
    to->tensors += from->tensors;
    if (from->first_seq < to->first_seq)
        to->first_seq = from->first_seq;
    size_t n = (size_t)to->nranges + from->nranges;
    struct rlk_range *all = malloc((n ? n : 1) * sizeof *all);
    if (!all)
        return RLK_ENOMEM;
    if (to->nranges)
        memcpy(all, to->ranges, to->nranges * sizeof *all);
    if (from->nranges)
        memcpy(all + to->nranges, ranges, from->nranges * sizeof *all);
    qsort(all, n, sizeof *all, compare_ranges);
    to->nranges = 0;
    int rc = RLK_OK;
    for (size_t i = 0; i < n && rc == RLK_OK; i++)
        rc = add_range(to, all[i]) ? RLK_OK : RLK_ENOMEM;
    free(all);
    return rc;
}

/* One node; its ranges are malloc'ed, NULL on an error. */
static int read_node(struct rlki_cur *c, struct rlki_node *node, uint64_t max_string)
{
    *node = (struct rlki_node){0};
    node->phase = rlki_get_v32(c);
    node->module = rlki_get_v32(c);
    rlki_total_get(c, node);
    node->nranges = rlki_get_n(c, MAX_RANGES + 1, 2);
    if (node->phase > max_string || node->module > max_string)
        c->bad = true;
    node->ranges = malloc((node->nranges + 1u) * sizeof *node->ranges);
    if (!node->ranges)
        return RLK_ENOMEM;
    uint64_t at = 0;
    for (uint32_t k = 0; k < node->nranges && !c->bad; k++) {
        uint64_t skip = rlki_get_v(c), count = rlki_get_v(c);
        if (skip > RLK_MAX_EVENTS || count > RLK_MAX_EVENTS || at + skip + count > RLK_MAX_EVENTS || count == 0)
            c->bad = true;
        node->ranges[k] = (struct rlk_range){at + skip, count};
        at += skip + count;
    }
    return c->bad ? RLK_ECORRUPT : RLK_OK;
}

/* The passes stand behind the nodes: a cursor there. Empty in format 1.0. */
static struct rlki_cur passes_of(struct rlki_cur c, uint32_t nnodes)
{
    for (uint32_t i = 0; i < nnodes && !c.bad; i++) {
        struct rlki_node node = {0};
        rlki_get_v32(&c);
        rlki_get_v32(&c);
        rlki_total_get(&c, &node);
        uint32_t nranges = rlki_get_n(&c, MAX_RANGES + 1, 2);
        for (uint32_t k = 0; k < nranges && !c.bad; k++) {
            rlki_get_v(&c);
            rlki_get_v(&c);
        }
    }
    if (rlki_left(&c) < nnodes)
        c.p = c.end;
    return c;
}

int rlki_group_merge(struct rlki_group *group, const uint8_t *p, size_t n, uint64_t max_string, bool by_pass)
{
    struct rlki_cur c = {p, p + n, false};
    int rc = RLK_OK;
    uint32_t nnodes = rlki_get_n(&c, UINT32_MAX, 38);
    struct rlki_cur pass = by_pass ? passes_of(c, nnodes) : (struct rlki_cur){0};
    for (uint32_t i = 0; i < nnodes && rc == RLK_OK; i++) {
        struct rlki_node from;
        rc = read_node(&c, &from, max_string);
        if (rc == RLK_OK && by_pass && rlki_left(&pass)) {
            from.pass = rlki_get_u8(&pass);
            if (from.pass >= RLKI_PASSES)
                from.pass = RLKI_PASS_ANY;
        }
        struct rlki_node *to = rc == RLK_OK ? find_node(group, from.phase, from.module, from.pass) : NULL;
        if (rc == RLK_OK)
            rc = to ? node_merge(to, &from, from.ranges) : RLK_ENOMEM;
        free(from.ranges);
    }
    return c.bad ? RLK_ECORRUPT : rc;
}

int rlki_group_join(struct rlki_group *to, const struct rlki_group *from)
{
    int rc = RLK_OK;
    for (size_t i = 0; i < from->nnodes && rc == RLK_OK; i++) {
        struct rlki_node *node = find_node(to, from->nodes[i].phase, from->nodes[i].module, RLKI_PASS_ANY);
        rc = node ? node_merge(node, &from->nodes[i], from->nodes[i].ranges) : RLK_ENOMEM;
    }
    return rc;
}
