/* collective_algorithm.c - the collective library reduced in another way.
 *
 * Rule      algorithm, protocol or number of channels differs - it shows. A reduction that does not repeat
 *           itself though all its ranks' inputs do: with NVLS it shows (its order is the switch's), else it
 *           points. An operator whose ranks read other inputs and hold one result, another one each run - it
 *           shows. An input that other collectives made - it points.
 * Evidence  the two ways; whether the ranks of each side agree with each other (then no rank's own kernel
 *           did it).
 * Excludes  atomic-order and race where the ranks agree; itself where both used one way and repeat
 *           themselves.
 * Next      pin the collective.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static size_t looked_at(const struct rlki_facts *f)
{
    return f->found->nat < RLKI_RANKS_MAX ? f->found->nat : RLKI_RANKS_MAX;
}

/* Do all ranks of one side have the same output? MAYBE: not known, or they need not (a scatter). */
static int ranks_agree(struct rlki_facts *f, int side, enum rlki_tri *out)
{
    const struct rlki_found *found = f->found;
    const char *op = f->ev[0].e.who.op;
    struct rlk_arena arena = {0};
    struct rlk_sums first = {0};
    int rc = RLK_OK;
    uint32_t place = side ? found->tensor_b : found->tensor_a, seen = 0;
    *out = RLKI_MAYBE;
    if (found->no_rank || found->nat < 2 || strstr(op, "scatter") || strstr(op, "all_to_all"))
        return RLK_OK;
    *out = RLKI_YES;
    for (size_t i = 0; i < found->nat && i < RLKI_RANKS_MAX && rc == RLK_OK; i++) {
        const struct rlki_at *at = &found->at[i];
        struct rlki_ev ev;
        if (at->in_b || !at->has_mate)
            continue;
        rlk_arena_reset(&arena);
        rc = rlki_ev_load(f->audit, side, side ? at->mate_env : at->env, side ? at->mate_seq : at->seq, &arena, &ev);
        if (rc || place >= ev.e.ntensors || ev.e.tensors[place].state != RLK_T_DIGESTED) {
            *out = RLKI_MAYBE;
            break;
        }
        if (seen++ && !rlk_sums_same_bits(&first, &ev.e.tensors[place].sums))
            *out = RLKI_NO;
        first = ev.e.tensors[place].sums;
    }
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

/* An input that is made by other collectives on the two sides: an all-reduce, and its parts. */
static void other_functions(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_producer *p = f->producer;
    if (!p[0].has || !p[1].has || !p[0].lone || !p[1].lone || p[0].kind != RLK_EV_COLLECTIVE ||
        p[1].kind != RLK_EV_COLLECTIVE || p[0].identity == p[1].identity)
        return;
    rlki_holds(o, RLKI_M_COLLECTIVE_ALGORITHM, RLKI_POINTS, "it is made by other collectives: %s, %s", p[0].text,
               p[1].text);
    rlki_open(o, RLKI_M_EXTRA_OR_MISSING);
}

/* Do the first two ranks on which it stands read the same? */
static int ranks_read_alike(struct rlki_facts *f, enum rlki_tri *out)
{
    const struct rlki_found *found = f->found;
    struct rlk_arena arena = {0};
    struct rlki_ev ev[2];
    int rc = RLK_OK;
    *out = RLKI_MAYBE;
    for (int i = 0; i < 2 && rc == RLK_OK; i++)
        rc = rlki_ev_load(f->audit, 0, found->at[i].env, found->at[i].seq, &arena, &ev[i]);
    for (uint32_t i = 0; rc == RLK_OK && i < ev[0].e.ntensors && i < ev[1].e.ntensors && *out != RLKI_NO; i++) {
        struct rlki_value v[2];
        for (int s = 0; s < 2 && rc == RLK_OK; s++)
            rc = rlki_value_of(f->audit, 0, &ev[s].e, ev[s].env, &ev[s].e.tensors[i], &v[s]);
        if (rc == RLK_OK && ev[0].e.tensors[i].role == RLK_ROLE_IN && v[0].known && v[1].known)
            *out = rlk_sums_same_bits(&v[0].sums, &v[1].sums) ? RLKI_YES : RLKI_NO;
    }
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

/* An operator whose ranks read other inputs and hold one result: a reduction across ranks inside a kernel. */
static int fused(struct rlki_facts *f, struct rlki_opinion *o)
{
    enum rlki_tri agree[2], alike;
    if (f->found->no_rank || f->found->nat < 2 || f->found->at[0].in_b || f->found->at[1].in_b || !rlki_varies(f))
        return RLK_OK;
    int rc = ranks_agree(f, 0, &agree[0]);
    if (rc == RLK_OK)
        rc = ranks_agree(f, 1, &agree[1]);
    if (rc == RLK_OK)
        rc = ranks_read_alike(f, &alike);
    if (rc || agree[0] != RLKI_YES || agree[1] != RLKI_YES || alike != RLKI_NO)
        return rc;
    rlki_holds(
        o, RLKI_M_COLLECTIVE_ALGORITHM, RLKI_SHOWS,
        "%zu ranks read other inputs and hold one result, another one in each run: a sum across ranks inside the "
        "operator",
        f->found->nat);
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    enum rlki_tri agree[2];
    if (f->both && !f->output)
        other_functions(f, o);
    if (f->both && f->output && f->same_event && f->ev[0].e.kind == RLK_EV_OP)
        return fused(f, o);
    if (!f->both || !f->output || f->ev[0].e.kind != RLK_EV_COLLECTIVE || f->ev[1].e.kind != RLK_EV_COLLECTIVE)
        return RLK_OK;
    const struct rlk_event *a = &f->ev[0].e, *b = &f->ev[1].e;
    bool other = !rlki_same_text(a->u.collective.algo, b->u.collective.algo) ||
                 !rlki_same_text(a->u.collective.proto, b->u.collective.proto) ||
                 a->u.collective.channels != b->u.collective.channels;
    bool nvls = rlki_has_word(a->u.collective.algo, "nvls") || rlki_has_word(b->u.collective.algo, "nvls");
    if (other)
        rlki_holds(o, RLKI_M_COLLECTIVE_ALGORITHM, RLKI_SHOWS,
                   "algorithm %.30s/%.30s with %u channels in A, %.30s/%.30s with %u in B", a->u.collective.algo,
                   a->u.collective.proto, a->u.collective.channels, b->u.collective.algo, b->u.collective.proto,
                   b->u.collective.channels);
    for (int s = 0; s < 2; s++) {
        int rc = ranks_agree(f, s, &agree[s]);
        if (rc)
            return rc;
    }
    bool together = agree[0] == RLKI_YES && agree[1] == RLKI_YES;
    if (!other && rlki_varies(f))
        rlki_holds(o, RLKI_M_COLLECTIVE_ALGORITHM, nvls && together ? RLKI_SHOWS : RLKI_POINTS,
                   "%.30s %.30s does not repeat itself in %s, though the inputs of all ranks do", a->u.collective.algo,
                   a->who.op, rlki_who_varies(f));
    if (together)
        rlki_holds(o, RLKI_M_COLLECTIVE_ALGORITHM, RLKI_SILENT,
                   "%zu of %zu ranks looked at agree with each other in A and in B: the sum itself differs, not one "
                   "rank's copy of it",
                   looked_at(f), f->found->nat);
    if (nvls)
        rlki_advise(o, RLKI_M_COLLECTIVE_ALGORITHM,
                    "NCCL_NVLS_ENABLE=0 (or NCCL_ALGO=Ring): NVLS sums in the switch, in an order that is not fixed");
    if (!other && rlki_steady(f))
        rlki_excludes(o, RLKI_M_COLLECTIVE_ALGORITHM, "the same algorithm on both sides, and each repeats itself");
    if (together || (other && !rlki_varies(f))) {
        const char *why = together ? "all ranks hold the same result" : "the two sides reduced in other ways";
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "%s", why);
        rlki_excludes(o, RLKI_M_RACE, "%s", why);
    }
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_collective_algorithm = {
    RLKI_M_COLLECTIVE_ALGORITHM,
    "pin the collective: NCCL_ALGO=Ring, NCCL_PROTO=Simple, and one value of NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS",
    look};
