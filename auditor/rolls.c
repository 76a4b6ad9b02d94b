#include "auditor/rolls.h"

#include <stdlib.h>
#include <string.h>

int rlki_pos_compare(struct rlki_pos a, struct rlki_pos b)
{
    if (a.env != b.env)
        return a.env < b.env ? -1 : 1;
    return a.seq < b.seq ? -1 : a.seq > b.seq;
}

bool rlki_rolls_know_passes(const struct rlki_side *side)
{
    for (size_t i = 0; i < side->nenv; i++)
        if (strcmp(rlk_env_meta(side->env[i].env, "rlk.format"), "1.0") == 0)
            return false;
    return true;
}

struct load {
    struct rlki_side *side;
    struct rlki_rolls *rolls;
    struct rlki_hash index;
    uint32_t env;
};

static int add_roll(void *context, const struct rlk_roll *from)
{
    struct load *load = context;
    struct rlki_names *names = load->side->names;
    struct rlki_rolls *rolls = load->rolls;
    uint32_t phase = rlki_names_id(names, from->phase), module = rlki_names_id(names, from->module);
    uint32_t pass = rlki_names_id(names, from->pass ? from->pass : "*");
    uint64_t key = rlki_mix(rlki_mix(rlki_mix(41, rlki_names_hash(names, phase)), rlki_names_hash(names, module)),
                            rlki_names_hash(names, pass)),
             at;
    if (!from->nranges)
        return RLK_ECORRUPT;
    const struct rlk_range *end = &from->ranges[from->nranges - 1];
    struct rlki_pos first = {load->env, from->first_seq}, last = {load->env, end->first + end->count - 1};
    if (!rlki_hash_get(&load->index, key, &at)) {
        if (!rlki_grow(&rolls->roll, &rolls->cap, rolls->n, sizeof *rolls->roll))
            return RLK_ENOMEM;
        at = rolls->n++;
        rolls->roll[at] = (struct rlki_roll){
            .phase = phase, .module = module, .pass = pass, .key = key, .first = first, .last = last};
        rlki_hash_put(&load->index, key, at);
    }
    struct rlki_roll *roll = &rolls->roll[at];
    roll->out = rlk_u128_add(roll->out, from->out_sum);
    roll->in = rlk_u128_add(roll->in, from->in_sum);
    roll->events += from->events;
    roll->tensors += from->tensors;
    if (rlki_pos_compare(first, roll->first) < 0)
        roll->first = first;
    if (rlki_pos_compare(last, roll->last) > 0)
        roll->last = last;
    return load->index.failed || names->failed ? RLK_ENOMEM : 0;
}

static int by_first(const void *x, const void *y)
{
    const struct rlki_roll *a = x, *b = y;
    return rlki_pos_compare(a->first, b->first);
}

int rlki_rolls_read(struct rlki_side *side, int64_t step, uint32_t rank, bool by_pass, struct rlki_rolls *out,
                    struct rlk_detail *detail)
{
    struct load load = {.side = side, .rolls = out};
    size_t n;
    const struct rlki_total *total = rlki_side_totals(side, step, rank, &n);
    int rc = RLK_OK;
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        struct rlk_env *env = side->env[total[i].env].env;
        load.env = total[i].env;
        rc = by_pass ? rlk_env_passes(env, step, rank, add_roll, &load, detail)
                     : rlk_env_modules(env, step, rank, add_roll, &load, detail);
    }
    if (out->n)
        qsort(out->roll, out->n, sizeof *out->roll, by_first);
    rlki_hash_release(&load.index);
    return rc;
}

void rlki_rolls_release(struct rlki_rolls *rolls)
{
    free(rolls->roll);
    memset(rolls, 0, sizeof *rolls);
}

static const struct rlki_roll *either(const struct rlki_suspect *s)
{
    return s->good ? s->good : s->bad;
}

/* Does another one stand wholly between its events? */
static bool holds_another(const struct rlki_suspect *suspects, size_t n, size_t i)
{
    const struct rlki_roll *outer = either(&suspects[i]);
    for (size_t k = 0; k < n; k++) {
        const struct rlki_roll *inner = either(&suspects[k]);
        if (k != i && suspects[k].may && inner->phase == outer->phase && inner->pass == outer->pass &&
            rlki_pos_compare(suspects[i].first, suspects[k].first) < 0 &&
            rlki_pos_compare(suspects[i].last, suspects[k].last) > 0)
            return true;
    }
    return false;
}

void rlki_rolls_suspect(struct rlki_suspect *suspects, size_t n)
{
    size_t name = n;
    if (!n)
        return;
    struct rlki_pos latest = suspects[0].last;
    for (size_t i = 1; i < n; i++)
        if (rlki_pos_compare(suspects[i].last, latest) < 0)
            latest = suspects[i].last;
    for (size_t i = 0; i < n; i++) {
        suspects[i].may = rlki_pos_compare(suspects[i].first, latest) <= 0;
        suspects[i].named = false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!suspects[i].may || (name < n && rlki_pos_compare(suspects[i].first, suspects[name].first) >= 0))
            continue;
        if (!holds_another(suspects, n, i))
            name = i;
    }
    suspects[name].named = true; /* of nodes inside each other the innermost holds no other: there is one */
    suspects[name].may = false;
}
