/* weights.c - the ledger of weight versions: aligned by (step, side, n-th event, name), never by label.
 *
 * The input of a trainer's tensor is the last write of its buffer; of a rollout's, the trainer's tensor of that name
 * and label on any rank. The latter is looked up only when a rollout's tensor differs: the steps from WINDOW before it
 * on are read for weights events.
 */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WINDOW 8

struct rlki_ledger {
    int64_t read_to[2];
    bool started[2];
    struct rlki_hash by_label[2]; /* (name, label) -> sum over the trainer's ranks of its digests */
    struct rlki_hash by_bits[2];  /* (name, digest) -> place in `versions` + 1 */
    struct version {
        int64_t step;
        uint32_t label;
    } * versions;
    size_t nversions, cap;
};

void rlki_ledger_free(struct rlki_ledger *ledger)
{
    if (!ledger)
        return;
    for (int s = 0; s < 2; s++) {
        rlki_hash_release(&ledger->by_label[s]);
        rlki_hash_release(&ledger->by_bits[s]);
    }
    free(ledger->versions);
    free(ledger);
}

static uint64_t text_hash(const char *text)
{
    return XXH3_64bits(text, strlen(text));
}

static uint64_t label_key(const char *name, const char *label)
{
    return rlki_mix(rlki_mix(23, text_hash(name)), text_hash(label));
}

static uint64_t bits_key(const struct rlk_tensor *t)
{
    return rlki_mix(rlki_mix(29, text_hash(t->name)), t->sums.positional.lo ^ t->sums.positional.hi);
}

struct enter {
    struct rlki_audit *audit;
    int side;
};

static int enter_event(void *context, const struct rlk_event *event)
{
    struct enter *enter = context;
    struct rlki_ledger *ledger = enter->audit->ledger;
    if (event->kind != RLK_EV_WEIGHTS || strcmp(event->u.weights.side, "trainer") != 0)
        return 0;
    for (uint32_t i = 0; i < event->ntensors; i++) {
        const struct rlk_tensor *t = &event->tensors[i];
        if (t->role != RLK_ROLE_OUT || t->state != RLK_T_DIGESTED)
            continue;
        rlki_hash_count(&ledger->by_label[enter->side], label_key(t->name, event->u.weights.version),
                        rlki_mix(event->rank, t->sums.positional.lo ^ t->sums.positional.hi));
        if (rlki_hash_get(&ledger->by_bits[enter->side], bits_key(t), NULL))
            continue;
        if (!rlki_grow(&ledger->versions, &ledger->cap, ledger->nversions, sizeof *ledger->versions))
            return RLK_ENOMEM;
        ledger->versions[ledger->nversions] = (struct version){
            .step = event->who.step, .label = rlki_names_id(&enter->audit->names, event->u.weights.version)};
        rlki_hash_put(&ledger->by_bits[enter->side], bits_key(t), ledger->nversions++);
    }
    return 0;
}

static int enter_step(struct rlki_audit *audit, int side, int64_t step, uint32_t rank)
{
    struct rlki_nodes nodes = {0};
    struct enter enter = {audit, side};
    int rc = rlki_side_nodes(&audit->side[side], step, rank, &nodes, audit->detail);
    for (size_t i = 0; i < nodes.n && rc == RLK_OK; i++)
        for (size_t k = 0; k < nodes.node[i].nspans && rc == RLK_OK; k++) {
            const struct rlki_span *span = &nodes.node[i].spans[k];
            rc = rlk_env_scan(audit->side[side].env[span->env].env, span->first, span->first + span->count, enter_event,
                              &enter, audit->detail);
        }
    rlki_nodes_release(&nodes);
    return rc;
}

/* Enters the trainer's tensors of both sides up to `step`. */
static int ledger_to(struct rlki_audit *audit, int64_t step)
{
    int rc = RLK_OK;
    if (!audit->ledger)
        audit->ledger = calloc(1, sizeof *audit->ledger);
    if (!audit->ledger)
        return RLK_ENOMEM;
    for (int s = 0; s < 2; s++) {
        struct rlki_ledger *ledger = audit->ledger;
        int64_t from = step > INT64_MIN + WINDOW ? step - WINDOW : INT64_MIN;
        if (ledger->started[s] && ledger->read_to[s] + 1 > from)
            from = ledger->read_to[s] + 1;
        const struct rlki_side *side = &audit->side[s];
        for (size_t i = 0; i < side->ntotals && rc == RLK_OK; i++) {
            const struct rlki_total *t = &side->totals[i];
            bool again = i && side->totals[i - 1].step == t->step && side->totals[i - 1].rank == t->rank;
            if (t->step >= from && t->step <= step && !again)
                rc = enter_step(audit, s, t->step, t->rank);
        }
        ledger->started[s] = true;
        ledger->read_to[s] = step;
    }
    return rc;
}

/* Why a tensor of an aligned pair of weights events differs. */
static int judge_trainer(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                         const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_input *out)
{
    struct rlki_value va = {0}, vb = {0};
    bool unsure = false;
    enum rlki_tri one = RLKI_NO, two = RLKI_NO;
    int rc = rlki_value_producer(audit, 0, &a->e, a->env, ta, &va, &unsure);
    if (rc == RLK_OK)
        rc = rlki_value_producer(audit, 1, &b->e, b->env, tb, &vb, &unsure);
    if (rc == RLK_OK && va.has_producer)
        rc = rlki_reach(audit, 0, va.env, va.producer, va.output, &one);
    if (rc == RLK_OK && vb.has_producer)
        rc = rlki_reach(audit, 1, vb.env, vb.producer, vb.output, &two);
    if (rc)
        return rc;
    *out = RLKI_INPUT_EQUAL;
    if (one == RLKI_YES || two == RLKI_YES)
        *out = RLKI_INPUT_DOWN;
    else if (one == RLKI_MAYBE || two == RLKI_MAYBE || unsure)
        *out = RLKI_INPUT_UNKNOWN;
    else if (!va.has_producer && !vb.has_producer && rlki_unlinked(audit, a))
        *out = RLKI_INPUT_DOWN;
    else if (!va.has_producer && !vb.has_producer && rlki_source_differs(audit, a, b, ta, tb))
        *out = RLKI_INPUT_DOWN;
    else if (!(va.has_producer && vb.has_producer) && rlki_below_operators(audit))
        *out = RLKI_INPUT_UNKNOWN;
    return RLK_OK;
}

static int judge_rollout(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                         const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_input *out)
{
    uint64_t x, y;
    int rc = ledger_to(audit, a->e.who.step);
    if (rc)
        return rc;
    /* Under another label it is another tensor: what that one is on both sides decides. */
    const char *labels[2] = {a->e.u.weights.version, b->e.u.weights.version};
    *out = RLKI_INPUT_EQUAL;
    for (int i = 0; i < 2; i++)
        if (rlki_hash_get(&audit->ledger->by_label[0], label_key(ta->name, labels[i]), &x) &&
            rlki_hash_get(&audit->ledger->by_label[1], label_key(tb->name, labels[i]), &y) && x != y)
            *out = RLKI_INPUT_DOWN;
    return RLK_OK;
}

/* Are B's (or A's) rollout weights those of an older trainer version? */
static void look_for_stale(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                           const struct rlk_tensor *ta, const struct rlk_tensor *tb, struct rlki_found *found)
{
    uint64_t place;
    for (int s = 1; s >= 0 && !found->stale && audit->ledger; s--) {
        const struct rlki_ev *ev = s ? b : a;
        if (!rlki_hash_get(&audit->ledger->by_bits[s], bits_key(s ? tb : ta), &place))
            continue;
        const struct version *v = &audit->ledger->versions[place];
        if (v->label == rlki_names_id(&audit->names, ev->e.u.weights.version))
            continue;
        found->stale = true;
        found->stale_step = v->step;
        found->stale_label = v->label;
    }
}

static int judge_tensors(struct rlki_audit *audit, struct rlki_ev *a, struct rlki_ev *b, uint32_t i, uint32_t k,
                         bool *down)
{
    const struct rlk_tensor *ta = rlki_ev_tensor(a, RLK_ROLE_OUT, i), *tb = rlki_ev_tensor(b, RLK_ROLE_OUT, k);
    const char *reason = NULL;
    if (!ta || !tb)
        return RLK_OK;
    rlki_check_parameter(audit, a, b, ta, tb);
    if (rlki_stop(audit))
        return RLK_OK;
    enum rlki_tri equal = rlki_output_equal(ta, tb, &reason);
    enum rlki_mark mark = equal == RLKI_YES ? RLKI_MARK_EQUAL : equal == RLKI_NO ? RLKI_MARK_DIFF : RLKI_MARK_DARK;
    rlki_side_mark(&audit->side[0], a->env, a->e.seq, i, rlki_ev_count(a, RLK_ROLE_OUT), mark);
    rlki_side_mark(&audit->side[1], b->env, b->e.seq, k, rlki_ev_count(b, RLK_ROLE_OUT), mark);
    if (equal == RLKI_MAYBE)
        rlki_skip(audit, reason, 1);
    else
        audit->compared++;
    if (equal != RLKI_NO)
        return RLK_OK;
    enum rlki_input input = RLKI_INPUT_EQUAL;
    bool rollout = strcmp(a->e.u.weights.side, "rollout") == 0;
    int rc = rollout ? judge_rollout(audit, a, b, ta, tb, &input) : judge_trainer(audit, a, b, ta, tb, &input);
    if (rc || rlki_stop(audit))
        return rc;
    if (input == RLKI_INPUT_DOWN) {
        *down = true;
        return RLK_OK;
    }
    struct rlki_found *found =
        rlki_found_add(audit, a, b, ta, tb, input == RLKI_INPUT_EQUAL ? RLKI_ROOT_TRUE : RLKI_ROOT_UNKNOWN);
    if (!found)
        return RLK_ENOMEM;
    if (rollout)
        look_for_stale(audit, a, b, ta, tb, found);
    return RLK_OK;
}

static int judge_event(struct rlki_audit *audit, struct rlki_ev *a, struct rlki_ev *b)
{
    struct rlki_hash where = {0}, count = {0};
    uint32_t na = rlki_ev_count(a, RLK_ROLE_OUT), nb = rlki_ev_count(b, RLK_ROLE_OUT), paired = 0;
    bool down = false;
    size_t before = audit->nfound;
    int rc = RLK_OK;
    a->mate = b;
    b->mate = a;
    if (strcmp(a->e.u.weights.version, b->e.u.weights.version) != 0)
        rlki_note(audit, "step %lld: the %s's weights are labelled %s in A and %s in B", (long long)a->e.who.step,
                  a->e.u.weights.side, a->e.u.weights.version, b->e.u.weights.version);
    for (uint32_t k = 0; k < nb; k++) {
        const struct rlk_tensor *t = rlki_ev_tensor(b, RLK_ROLE_OUT, k);
        uint64_t name = t ? text_hash(t->name) : 0;
        rlki_hash_put(&where, rlki_mix(name, rlki_hash_count(&count, name, 1)), k);
    }
    rlki_hash_clear(&count);
    const struct rlk_tensor *missing = NULL;
    for (uint32_t i = 0; i < na && rc == RLK_OK && !rlki_stop(audit); i++) {
        const struct rlk_tensor *t = rlki_ev_tensor(a, RLK_ROLE_OUT, i);
        uint64_t name = t ? text_hash(t->name) : 0, k;
        if (rlki_hash_get(&where, rlki_mix(name, rlki_hash_count(&count, name, 1)), &k)) {
            rc = judge_tensors(audit, a, b, i, (uint32_t)k, &down);
            paired++;
        } else if (!missing) {
            missing = t;
        }
    }
    bool complete = audit->side[0].complete && audit->side[1].complete;
    if (rc == RLK_OK && complete && !rlki_stop(audit) && (paired < na || paired < nb)) {
        struct rlki_found *found = rlki_found_add(audit, a, b, missing, NULL, RLKI_ROOT_TRUE);
        if (found)
            found->extra = true;
    }
    if (down && audit->nfound == before)
        rlki_count_down(audit, a);
    if (where.failed || count.failed)
        rc = RLK_ENOMEM;
    rlki_hash_release(&where);
    rlki_hash_release(&count);
    return rc;
}

static int compare_seq(const void *x, const void *y)
{
    const struct rlki_ev *a = *(struct rlki_ev *const *)x, *b = *(struct rlki_ev *const *)y;
    int by_side = strcmp(a->e.u.weights.side, b->e.u.weights.side);
    if (by_side)
        return by_side;
    if (a->env != b->env)
        return a->env < b->env ? -1 : 1;
    return a->e.seq < b->e.seq ? -1 : a->e.seq > b->e.seq;
}

static struct rlki_ev **collect(struct rlki_unit *unit, int side, size_t *n)
{
    struct rlki_ev **list = malloc((unit->n[side] + 1) * sizeof *list);
    *n = 0;
    for (size_t i = 0; list && i < unit->n[side]; i++)
        if (unit->ev[side][i].e.kind == RLK_EV_WEIGHTS)
            list[(*n)++] = &unit->ev[side][i];
    if (list && *n)
        qsort(list, *n, sizeof *list, compare_seq);
    return list;
}

int rlki_weights(struct rlki_audit *audit, struct rlki_unit *unit)
{
    size_t na, nb, i = 0, j = 0;
    struct rlki_ev **a = collect(unit, 0, &na), **b = collect(unit, 1, &nb);
    int rc = a && b ? RLK_OK : RLK_ENOMEM;
    while (i < na && j < nb && rc == RLK_OK && !rlki_stop(audit)) {
        int order = strcmp(a[i]->e.u.weights.side, b[j]->e.u.weights.side);
        if (order == 0)
            rc = judge_event(audit, a[i], b[j]);
        i += order <= 0;
        j += order >= 0;
    }
    free(a);
    free(b);
    return rc;
}
