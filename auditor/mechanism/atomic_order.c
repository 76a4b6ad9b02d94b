/* atomic_order.c - one kernel adds in an order that changes from run to run.
 *
 * Rule      the same launches on the same inputs, a side that does not repeat itself, and differences the size of
 *           rounding: it shows. Of unknown size, or launches unknown: it points. Without any repeat, the same launches
 *           and rounding: open.
 * Evidence  who varies, how far; that all changed rows are ones that an index names more than once.
 * Excludes  race, uninitialized, possible-corruption when the difference is the size of rounding.
 * Next      the operator's deterministic variant.
 */
#include "auditor/mechanism/mechanism.h"

#include "store/rlk_dtype_value.h"

#include <stdlib.h>

/* How often each row is named by an integer input whose bytes are there. RLK_ENOENT: no such input. */
static int multiplicity(struct rlki_facts *f, uint64_t rows, uint32_t **out, const char **name)
{
    const struct rlki_ev *ev = &f->ev[0];
    *out = NULL;
    for (uint32_t i = 0; i < ev->e.ntensors; i++) {
        const struct rlk_tensor *t = &ev->e.tensors[i];
        void *bytes;
        uint64_t n;
        bool fits = true;
        if (t->role != RLK_ROLE_IN || !rlk_dtype_is_integer(t->dtype) || t->dtype == RLK_BOOL || !t->has_payload)
            continue;
        int rc = rlki_bytes_of(f->audit, 0, ev, t, &bytes, &n);
        if (rc == RLK_ENOENT)
            continue;
        if (rc)
            return rc;
        uint32_t *count = calloc((size_t)rows + 1, sizeof *count);
        for (uint64_t k = 0; count && k < n && fits; k++) {
            double row = rlk_scalar_to_double(
                t->dtype, rlk_scalar_load(t->dtype, (unsigned char *)bytes + k * rlk_dtype_bytes(t->dtype)));
            fits = row >= 0 && row < (double)rows;
            if (fits)
                count[(uint64_t)row]++;
        }
        free(bytes);
        if (!count)
            return RLK_ENOMEM;
        if (fits && n) {
            *out = count;
            *name = t->name;
            return RLK_OK;
        }
        free(count);
    }
    return RLK_ENOENT;
}

/* Do the changed rows of the output lie where an index collides? */
static int collisions(struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_change *c = &f->change;
    uint32_t *count;
    const char *name = "";
    if (f->found->no_rank || !c->bytes || !c->ndim || c->shape[0] < 2 || c->shape[0] > (UINT64_C(1) << 24))
        return RLK_OK;
    uint64_t rows = c->shape[0], cols = f->change.elements / rows, hit = 0, alone = 0, twice = 0;
    int rc = multiplicity(f, rows, &count, &name);
    if (rc)
        return rc == RLK_ENOENT ? RLK_OK : rc;
    for (uint64_t r = 0; r < rows; r++) {
        bool changed = false;
        for (uint64_t i = r * cols; i < (r + 1) * cols && !changed; i++)
            changed = rlki_element_changed(f, i);
        twice += count[r] > 1;
        hit += changed;
        alone += changed && count[r] < 2;
    }
    free(count);
    if (hit && !alone && twice < rows)
        rlki_holds(o, RLKI_M_ATOMIC_ORDER, RLKI_POINTS,
                   "all %llu changed rows are duplicates in \"%.60s\": named more than once (%llu of %llu rows are)",
                   (unsigned long long)hit, name, (unsigned long long)twice, (unsigned long long)rows);
    return RLK_OK;
}

static int look(struct rlki_facts *f, struct rlki_opinion *o)
{
    const enum rlki_size size = f->change.size;
    if (!f->both || !f->output || !f->same_event || !rlki_computes(f->found->kind))
        return RLK_OK;
    if (f->shapes_differ) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "the shapes differ");
        rlki_excludes(o, RLKI_M_RACE, "the shapes differ");
        return RLK_OK;
    }
    if (!rlki_varies(f)) {
        if (rlki_steady(f))
            rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "%s",
                          f->relaunched ? "relaunched, it repeats itself" : "each side repeats itself here");
        else if (f->launches.same && size != RLKI_SIZE_LARGE && f->repeat[0] != RLKI_REPEAT_RETUNED &&
                 f->repeat[1] != RLKI_REPEAT_RETUNED)
            rlki_open(o, RLKI_M_ATOMIC_ORDER);
        return RLK_OK;
    }
    if (size == RLKI_SIZE_LARGE) {
        rlki_excludes(o, RLKI_M_ATOMIC_ORDER, "another order of the same sum does not differ by %llu ulp, %.3g",
                      (unsigned long long)f->change.max_ulp, f->change.max_abs);
        return RLK_OK;
    }
    bool shows = size == RLKI_SIZE_ROUNDING && f->launches.same;
    rlki_holds(o, RLKI_M_ATOMIC_ORDER, shows ? RLKI_SHOWS : RLKI_POINTS,
               "%s does not repeat itself here: the same event is a root against a repeat, or a relaunch gives another "
               "result",
               rlki_who_varies(f));
    if (f->launches.same)
        rlki_holds(o, RLKI_M_ATOMIC_ORDER, RLKI_POINTS, "the launches are the same on both sides: %.120s",
                   f->launches.launch[0][0]->kernel);
    if (size == RLKI_SIZE_ROUNDING) {
        rlki_holds(o, RLKI_M_ATOMIC_ORDER, RLKI_POINTS, "at most %llu ulp, %.3g: the size of rounding",
                   (unsigned long long)f->change.max_ulp, f->change.max_abs);
        rlki_excludes(o, RLKI_M_RACE, "the difference is the size of rounding");
        rlki_excludes(o, RLKI_M_UNINITIALIZED, "the difference is the size of rounding");
        rlki_excludes(o, RLKI_M_POSSIBLE_CORRUPTION, "it does not repeat itself");
    }
    return collisions(f, o);
}

const struct rlki_mechanism rlki_rule_atomic_order = {
    RLKI_M_ATOMIC_ORDER,
    "use the operator's deterministic variant (torch.use_deterministic_algorithms(True), "
    "FLASH_ATTENTION_DETERMINISTIC=1, deterministic=True, index_add for scatter_add)",
    look};
