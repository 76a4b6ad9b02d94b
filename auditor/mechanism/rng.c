/* rng.c - random numbers were drawn from another place of the generator, or dealt out over another grid.
 *
 * Rule      seed, offset or grid of the generator differs here and at no earlier consumer - it shows. Only
 *           one side notes a generator, or an operator that draws by its name is equal up to an element and
 *           differs from there on, on other GPUs (the number of multiprocessors sets the grid) - it points.
 * Evidence  the two states; that the first element that differs is where a grid ends.
 * Excludes  atomic-order, race, uninitialized: the numbers drawn differ before anything is added up.
 * Next      the state at the consumer.
 */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

static bool draws(const char *op)
{
    static const char *const words[] = {"dropout",     "rand",   "bernoulli", "normal_", "uniform_", "multinomial",
                                        "exponential", "sample", "gumbel",    "philox",  "poisson",  "sampling"};
    return rlki_has_any(op, words, sizeof words / sizeof *words);
}

static bool same_gpus(const struct rlki_facts *f)
{
    const json_t *a = json_object_get(f->audit->side[0].manifest, "gpus");
    const json_t *b = json_object_get(f->audit->side[1].manifest, "gpus");
    return a == b || (a && b && json_equal(a, b));
}

static bool to_the_end(const struct rlki_facts *f)
{
    const char *p = f->change.pattern;
    return f->change.bytes && f->change.first_flat > 0 &&
           (strcmp(p, "tail") == 0 ||
            (strcmp(p, "uniform") == 0 && f->change.last_flat * 16 > f->change.elements * 15));
}

/* Where a grid of threads has been once over the tensor, the next numbers begin. */
static void grid_border(struct rlki_facts *f, struct rlki_opinion *o, uint64_t grid_a, uint64_t grid_b)
{
    uint64_t first = f->change.first_flat, grid = grid_a < grid_b ? grid_a : grid_b;
    if (to_the_end(f) && grid && first % grid == 0)
        rlki_holds(o, RLKI_M_RNG, RLKI_SHOWS, "equal up to element %llu, which is %llu times the grid of %llu threads",
                   (unsigned long long)first, (unsigned long long)(first / grid), (unsigned long long)grid);
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    struct rlki_rng x, y;
    if (!f->both || !f->output || !f->same_event || f->ev[0].e.kind != RLK_EV_OP)
        return RLK_OK;
    int rc = rlki_rng_of(f->audit, 0, &f->ev[0], &x);
    if (rc == RLK_OK)
        rc = rlki_rng_of(f->audit, 1, &f->ev[1], &y);
    if (rc)
        return rc;
    bool any = f->found->rng && x.has == y.has;
    if (any)
        rlki_holds(o, RLKI_M_RNG, RLKI_SHOWS,
                   "the generator's seed, offset or grid differs here and at no earlier consumer");
    if (x.has && y.has && (x.seed != y.seed || x.offset != y.offset || x.grid != y.grid)) {
        rlki_holds(o, RLKI_M_RNG, RLKI_SHOWS,
                   "seed %llu offset %llu grid %llu in A, seed %llu offset %llu grid %llu in B",
                   (unsigned long long)x.seed, (unsigned long long)x.offset, (unsigned long long)x.grid,
                   (unsigned long long)y.seed, (unsigned long long)y.offset, (unsigned long long)y.grid);
        if (x.seed == y.seed && x.offset == y.offset)
            rlki_advise(
                o, RLKI_M_RNG,
                "the grid follows the number of multiprocessors: draw on the same GPU model, or from a generator whose "
                "numbers depend on the element alone");
        grid_border(f, o, x.grid, y.grid);
        any = true;
    } else if (!any && x.has != y.has) {
        rlki_holds(o, RLKI_M_RNG, RLKI_POINTS, "only %c notes a generator before it", x.has ? 'A' : 'B');
        any = true;
    } else if (!any && draws(f->ev[0].e.who.op) && to_the_end(f) && !same_gpus(f)) {
        rlki_holds(o, RLKI_M_RNG, RLKI_POINTS,
                   "it draws random numbers, equal up to element %llu, on other GPUs: another grid",
                   (unsigned long long)f->change.first_flat);
        any = true;
    }
    if (!any)
        return RLK_OK;
    static const enum rlki_class others[] = {RLKI_M_ATOMIC_ORDER, RLKI_M_RACE, RLKI_M_UNINITIALIZED};
    for (size_t i = 0; i < 3; i++)
        rlki_excludes(o, others[i], "the random numbers drawn differ");
    return RLK_OK;
}

const struct rlki_mechanism rlki_rule_rng = {RLKI_M_RNG,
                                             "make seed and offset the same right before this operator, and save and "
                                             "restore the generator's state over recompute "
                                             "(preserve_rng_state)",
                                             look};
