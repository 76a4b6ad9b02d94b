/* align.c - pairs the events of two module calls (docs/identity.md, "Alignment").
 *
 * A call whose operators are the same on both sides is paired by ordinal, any other by longest common subsequence.
 * Where several threads work inside one call their interleaving means nothing: each thread is a sequence of its own,
 * and threads are matched by what they did.
 */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct seq { /* events of one thread in one call, or of the whole call */
    struct rlki_ev **ev;
    uint32_t n;
    uint64_t ops, outs; /* hashes of the operators in order; and of the outputs with them */
    bool used;
};

struct scratch {
    struct rlki_ev **ev[2];
    size_t cap_ev[2];
    struct seq *seq[2];
    size_t nseq[2], cap_seq[2];
    uint64_t *key[2];
    uint32_t *pair;
};

static uint64_t output_hash(const struct rlki_ev *ev)
{
    uint64_t h = ev->key;
    for (uint32_t i = 0; i < ev->e.ntensors; i++)
        if (ev->e.tensors[i].role == RLK_ROLE_OUT)
            h = rlki_mix(h, ev->e.tensors[i].sums.positional.lo);
    return h;
}

static void describe(struct seq *seq)
{
    seq->ops = seq->outs = 11;
    for (uint32_t i = 0; i < seq->n; i++) {
        seq->ops = rlki_mix(seq->ops, (uint64_t)seq->ev[i]->op << 8 | (uint64_t)seq->ev[i]->e.kind);
        seq->outs = rlki_mix(seq->outs, output_hash(seq->ev[i]));
    }
}

static void pair_up(struct rlki_ev *a, struct rlki_ev *b, bool moved)
{
    a->mate = b;
    b->mate = a;
    a->moved = b->moved = moved;
}

/* Too large for the table: by what identity says, (op, occurrence) in order. */
static int by_occurrence(struct seq *a, struct seq *b)
{
    struct rlki_hash where = {0};
    struct rlki_hash count = {0};
    for (uint32_t j = 0; j < b->n; j++) {
        uint64_t nth = rlki_hash_count(&count, b->ev[j]->key, 1);
        rlki_hash_put(&where, rlki_mix(b->ev[j]->key, nth), j);
    }
    rlki_hash_clear(&count);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t nth = rlki_hash_count(&count, a->ev[i]->key, 1), j;
        if (rlki_hash_get(&where, rlki_mix(a->ev[i]->key, nth), &j) && !b->ev[j]->mate)
            pair_up(a->ev[i], b->ev[j], false);
    }
    int rc = where.failed || count.failed ? RLK_ENOMEM : RLK_OK;
    rlki_hash_release(&where);
    rlki_hash_release(&count);
    return rc;
}

static int align_seq(struct seq *a, struct seq *b)
{
    uint64_t *keys = NULL;
    uint32_t *pair = NULL;
    bool failed = false;
    int rc = RLK_OK;
    a->used = b->used = true;
    if (a->n == b->n && a->ops == b->ops) {
        for (uint32_t i = 0; i < a->n; i++)
            pair_up(a->ev[i], b->ev[i], false);
        return RLK_OK;
    }
    keys = malloc(((size_t)a->n + b->n) * sizeof *keys);
    pair = malloc(((size_t)a->n + 1) * sizeof *pair);
    if (!keys || !pair) {
        rc = RLK_ENOMEM;
        goto out;
    }
    for (uint32_t i = 0; i < a->n; i++)
        keys[i] = a->ev[i]->key;
    for (uint32_t j = 0; j < b->n; j++)
        keys[a->n + j] = b->ev[j]->key;
    if (rlki_lcs(keys, a->n, keys + a->n, b->n, pair, &failed)) {
        for (uint32_t i = 0; i < a->n; i++)
            if (pair[i] != UINT32_MAX)
                pair_up(a->ev[i], b->ev[pair[i]], false);
    } else {
        rc = failed ? RLK_ENOMEM : by_occurrence(a, b);
    }
out:
    free(keys);
    free(pair);
    return rc;
}

static bool in_sequence(const struct rlki_ev *ev)
{
    return ev->e.kind != RLK_EV_WEIGHTS && !rlki_has_members(ev); /* those have ledgers of their own */
}

/* One sequence for each thread of a call, threads in order of appearance. */
static int split(struct scratch *s, int side, struct rlki_ev *ev, size_t n, bool by_thread)
{
    s->nseq[side] = 0;
    size_t total = 0;
    while (s->cap_ev[side] < n)
        if (!rlki_grow(&s->ev[side], &s->cap_ev[side], n - 1, sizeof *s->ev[side]))
            return RLK_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!in_sequence(&ev[i]))
            continue;
        bool seen = false;
        for (size_t k = 0; k < s->nseq[side] && !seen; k++)
            seen = !by_thread ||
                   (s->seq[side][k].ev[0]->e.thread == ev[i].e.thread && s->seq[side][k].ev[0]->env == ev[i].env);
        if (seen)
            continue;
        if (!rlki_grow(&s->seq[side], &s->cap_seq[side], s->nseq[side], sizeof *s->seq[side]))
            return RLK_ENOMEM;
        struct seq *seq = &s->seq[side][s->nseq[side]++];
        *seq = (struct seq){.ev = s->ev[side] + total};
        for (size_t k = i; k < n; k++)
            if (in_sequence(&ev[k]) && (!by_thread || (ev[k].e.thread == ev[i].e.thread && ev[k].env == ev[i].env)))
                seq->ev[seq->n++] = &ev[k];
        total += seq->n;
        describe(seq);
    }
    return RLK_OK;
}

static size_t threads_of(const struct rlki_ev *ev, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n && count < 64; i++) {
        bool seen = false;
        for (size_t k = i; k > 0 && !seen && i - k < 4096; k--)
            seen = ev[k - 1].e.thread == ev[i].e.thread && ev[k - 1].env == ev[i].env;
        count += !seen;
    }
    return count;
}

/* Did two sequences do the same (with the same results)? Of a call that was cut off: as far as both go. */
static bool agree(const struct seq *a, const struct seq *b, bool outputs, bool cut)
{
    if (!cut)
        return a->n == b->n && a->ops == b->ops && (!outputs || a->outs == b->outs);
    for (uint32_t i = 0; i < a->n && i < b->n; i++) {
        const struct rlki_ev *x = a->ev[i], *y = b->ev[i];
        if (x->op != y->op || x->e.kind != y->e.kind || (outputs && output_hash(x) != output_hash(y)))
            return false;
    }
    return true;
}

/* Pairs sequences that did the same with the same results, then the same operators, then what is left in order. */
static int match_sequences(struct scratch *s, bool cut)
{
    int rc = RLK_OK;
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < s->nseq[0]; i++) {
            for (size_t j = 0; j < s->nseq[1] && !s->seq[0][i].used; j++) {
                struct seq *a = &s->seq[0][i], *b = &s->seq[1][j];
                if (b->used || (pass < 2 && !agree(a, b, pass == 0, cut)))
                    continue;
                rc = align_seq(a, b);
                if (rc)
                    return rc;
            }
        }
    }
    return RLK_OK;
}

/* What is left alone on both sides of one call although operator, dtypes and shapes agree has moved. */
static int pair_moved(struct rlki_ev *a, size_t na, struct rlki_ev *b, size_t nb)
{
    struct rlki_hash first = {0}; /* (key, n-th) -> place in b */
    struct rlki_hash count = {0};
    for (size_t j = 0; j < nb; j++)
        if (!b[j].mate && in_sequence(&b[j]))
            rlki_hash_put(&first, rlki_mix(b[j].key, rlki_hash_count(&count, b[j].key, 1)), j);
    rlki_hash_clear(&count);
    for (size_t i = 0; i < na && first.n; i++) {
        uint64_t j;
        if (a[i].mate || !in_sequence(&a[i]))
            continue;
        if (rlki_hash_get(&first, rlki_mix(a[i].key, rlki_hash_count(&count, a[i].key, 1)), &j))
            pair_up(&a[i], &b[j], true);
    }
    int rc = first.failed || count.failed ? RLK_ENOMEM : RLK_OK;
    rlki_hash_release(&first);
    rlki_hash_release(&count);
    return rc;
}

/* cut: events may be missing, so the number of threads says nothing. */
static int align_call(struct scratch *s, struct rlki_ev *a, size_t na, struct rlki_ev *b, size_t nb, bool cut)
{
    if (na > UINT32_MAX || nb > UINT32_MAX)
        return RLK_ELIMIT;
    size_t ta = threads_of(a, na), tb = threads_of(b, nb);
    bool by_thread = (ta == tb || cut) && (ta > 1 || tb > 1) && ta < 64 && tb < 64;
    int rc = split(s, 0, a, na, by_thread);
    if (rc == RLK_OK)
        rc = split(s, 1, b, nb, by_thread);
    if (rc == RLK_OK)
        rc = match_sequences(s, cut);
    if (rc == RLK_OK)
        rc = pair_moved(a, na, b, nb);
    return rc;
}

static int compare_calls(const struct rlki_ev *a, const struct rlki_ev *b)
{
#define BY(field)                                                                                                      \
    if (a->field != b->field)                                                                                          \
        return a->field < b->field ? -1 : 1;
    BY(phase)
    BY(module)
    BY(e.who.work)
    BY(e.who.iteration)
    BY(pass)
    BY(e.who.call)
#undef BY
    return 0;
}

static size_t call_end(const struct rlki_ev *ev, size_t n, size_t i)
{
    size_t k = i + 1;
    while (k < n && compare_calls(&ev[i], &ev[k]) == 0)
        k++;
    return k;
}

/* Calls that only one side has, but whose events another call of the same module there holds with the same results:
 * moved as well (another pass or call count). Only equal ones; nothing is concluded from them. */
static int pair_moved_calls(struct rlki_unit *unit)
{
    struct rlki_hash first = {0}, count = {0};
    int rc = RLK_OK;
    for (size_t j = 0; j < unit->n[1]; j++) {
        struct rlki_ev *b = &unit->ev[1][j];
        if (b->mate || !in_sequence(b) || !rlki_ev_count(b, RLK_ROLE_OUT))
            continue;
        uint64_t key = rlki_mix(rlki_mix(output_hash(b), b->module), b->phase);
        rlki_hash_put(&first, rlki_mix(key, rlki_hash_count(&count, key, 1)), j);
    }
    rlki_hash_clear(&count);
    for (size_t i = 0; i < unit->n[0] && first.n; i++) {
        struct rlki_ev *a = &unit->ev[0][i];
        uint64_t j;
        if (a->mate || !in_sequence(a) || !rlki_ev_count(a, RLK_ROLE_OUT))
            continue;
        uint64_t key = rlki_mix(rlki_mix(output_hash(a), a->module), a->phase);
        if (rlki_hash_get(&first, rlki_mix(key, rlki_hash_count(&count, key, 1)), &j))
            pair_up(a, &unit->ev[1][j], true);
    }
    rc = first.failed || count.failed ? RLK_ENOMEM : RLK_OK;
    rlki_hash_release(&first);
    rlki_hash_release(&count);
    return rc;
}

static const char *gradient_of(const struct rlki_ev *ev)
{
    for (uint32_t i = rlki_ev_count(ev, RLK_ROLE_IN); ev->e.kind == RLK_EV_OP && i < ev->e.ntensors; i++)
        if (rlki_is_gradient_name(ev->e.tensors[i].name))
            return ev->e.tensors[i].name;
    return NULL;
}

static uint64_t gradient_key(const struct rlki_ev *ev, const char *name)
{
    return rlki_mix(rlki_mix(rlki_mix(43, ev->module), ev->phase), XXH3_64bits(name, strlen(name)));
}

struct gradient {
    size_t n[2];
    struct rlki_ev *last[2];
};

enum gradient_rule {
    EACH_PAIRS, /* as aligned: one by one */
    LAST_PAIRS,
    NONE_PAIRS,
};

/* Gradients compare once a step, after the last micro-batch: where one side wrote a gradient more often, only its last
 * value has a counterpart. Which is the last of a side whose step was cut off is not known: what it lacks of the same
 * micro-batches may simply be missing, so there they pair one by one. Had it more of them than a side that is whole,
 * the micro-batches are others, and no value but the last has a counterpart. */
static enum gradient_rule rule_for(const struct gradient *gradient, const bool cut[2])
{
    const size_t *n = gradient->n;
    if (n[0] == n[1] || !n[0] || !n[1])
        return EACH_PAIRS;
    if (!cut[0] && !cut[1])
        return LAST_PAIRS;
    return cut[n[0] < n[1] ? 0 : 1] ? EACH_PAIRS : NONE_PAIRS;
}

static int pair_gradients(const struct rlki_audit *audit, struct rlki_unit *unit)
{
    const bool cut[2] = {rlki_side_cut(&audit->side[0], unit->step, unit->rank),
                         rlki_side_cut(&audit->side[1], unit->step, unit->rank)};
    struct rlki_hash index = {0};
    struct gradient *list = NULL;
    size_t n = 0, cap = 0;
    int rc = RLK_OK;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < unit->n[s]; i++) {
            struct rlki_ev *ev = &unit->ev[s][i];
            const char *name = gradient_of(ev);
            uint64_t at;
            if (!name)
                continue;
            if (!rlki_hash_get(&index, gradient_key(ev, name), &at)) {
                if (!rlki_grow(&list, &cap, n, sizeof *list)) {
                    rc = RLK_ENOMEM;
                    goto out;
                }
                at = n;
                list[n++] = (struct gradient){{0, 0}, {NULL, NULL}};
                rlki_hash_put(&index, gradient_key(ev, name), at);
            }
            list[at].n[s]++;
            if (!list[at].last[s] || list[at].last[s]->e.seq < ev->e.seq)
                list[at].last[s] = ev;
        }
    for (int s = 0; s < 2 && n; s++)
        for (size_t i = 0; i < unit->n[s]; i++) {
            struct rlki_ev *ev = &unit->ev[s][i];
            const char *name = gradient_of(ev);
            uint64_t at;
            if (!name || !rlki_hash_get(&index, gradient_key(ev, name), &at) || rule_for(&list[at], cut) == EACH_PAIRS)
                continue;
            if (ev->mate)
                ev->mate->mate = NULL;
            ev->mate = NULL;
            ev->elsewhere = true;
        }
    for (size_t i = 0; i < n; i++)
        if (rule_for(&list[i], cut) == LAST_PAIRS)
            pair_up(list[i].last[0], list[i].last[1], false);
    if (index.failed)
        rc = RLK_ENOMEM;
out:
    free(list);
    rlki_hash_release(&index);
    return rc;
}

int rlki_align(struct rlki_audit *audit, struct rlki_unit *unit)
{
    struct scratch s = {0};
    int rc = RLK_OK;
    size_t i = 0, j = 0;
    bool cut = rlki_side_cut(&audit->side[0], unit->step, unit->rank) ||
               rlki_side_cut(&audit->side[1], unit->step, unit->rank);
    while (rc == RLK_OK && i < unit->n[0] && j < unit->n[1]) {
        int order = compare_calls(&unit->ev[0][i], &unit->ev[1][j]);
        size_t ei = call_end(unit->ev[0], unit->n[0], i), ej = call_end(unit->ev[1], unit->n[1], j);
        if (order == 0)
            rc = align_call(&s, unit->ev[0] + i, ei - i, unit->ev[1] + j, ej - j, cut);
        if (order <= 0)
            i = ei;
        if (order >= 0)
            j = ej;
    }
    if (rc == RLK_OK)
        rc = pair_moved_calls(unit);
    if (rc == RLK_OK)
        rc = pair_gradients(audit, unit);
    free(s.ev[0]);
    free(s.ev[1]);
    free(s.seq[0]);
    free(s.seq[1]);
    return rc;
}
