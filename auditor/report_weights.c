/* report_weights.c - what a program states of its weights, held against the weights that were recorded of it.
 *
 * A stated SHA-256 cannot be made from a digest. But what has one digest has one hash, and what has two has two: two
 * statements of a parameter, of two versions or of two runs, are equal if and only if the recorded tensors are.
 */
#include "auditor/audit.h"
#include "auditor/report.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static uint64_t key_of(const char *version, const char *name)
{
    return rlki_mix(rlki_mix(61, XXH3_64bits(version, strlen(version))), XXH3_64bits(name, strlen(name)));
}

static uint64_t place_key(uint64_t at, const struct rlk_place *p)
{
    uint64_t h = rlki_mix(67, at);
    for (uint32_t d = 0, used = 0; p && d < p->ndim; d++) {
        const uint32_t n = p->nruns ? p->nruns[d] : RLK_WHOLE;
        h = rlki_mix(h, n);
        for (uint32_t k = 0; n != RLK_WHOLE && k < n; k++, used++)
            h = rlki_mix(rlki_mix(h, p->runs[used].start), p->runs[used].extent);
    }
    return h;
}

/* Of a logical tensor; 0: too many. */
static uint64_t elements_of(uint32_t ndim, const uint64_t *shape)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(n, shape[d], &n))
            return 0;
    return n;
}

static int take_one(struct rlki_run_facts *f, const char *version, const struct rlk_tensor *t)
{
    const uint64_t key = key_of(version, t->name);
    uint64_t at, other;
    if (!rlki_hash_get(&f->held_index, key, &at)) {
        if (!rlki_grow(&f->held, &f->cap_held, f->nheld, sizeof *f->held))
            return RLK_ENOMEM;
        at = f->nheld++;
        rlki_hash_put(&f->held_index, key, at);
        f->held[at] = (struct rlki_held){.elements = t->place ? elements_of(t->place->ndim, t->place->shape)
                                                              : elements_of(t->ndim, t->shape)};
    }
    struct rlki_held *h = &f->held[at];
    const uint64_t place = place_key(at, t->place);
    h->unsure |= t->state != RLK_T_DIGESTED || !t->composable || (t->place && t->place->partial);
    if (rlki_hash_get(&f->held_parts, place, &other)) { /* a replica */
        h->unsure |= other != t->sums.positional.lo;
        return RLK_OK;
    }
    rlki_hash_put(&f->held_parts, place, t->sums.positional.lo);
    rlk_sums_add(&h->sums, &t->sums);
    return RLK_OK;
}

int rlki_take_weights(struct rlki_run_facts *f, const struct rlk_event *e)
{
    int rc = RLK_OK;
    for (uint32_t i = 0; i < e->ntensors && rc == RLK_OK && strcmp(e->u.weights.side, "rollout") == 0; i++)
        if (e->tensors[i].role == RLK_ROLE_OUT)
            rc = take_one(f, e->u.weights.version, &e->tensors[i]);
    return rc;
}

/* NULL: not all of it was recorded, or its replicas differ. */
static const struct rlki_held *held_of(const struct rlki_run_facts *f, const char *version, const char *name)
{
    uint64_t at;
    if (!rlki_hash_get(&f->held_index, key_of(version, name), &at))
        return NULL;
    const struct rlki_held *h = &f->held[at];
    return h->unsure || !h->elements || h->sums.elements != h->elements ? NULL : h;
}

static void compare(const struct rlki_run_facts *a, const char *va, const json_t *ta, const struct rlki_run_facts *b,
                    const char *vb, const json_t *tb, uint64_t *n, json_t *contradicted)
{
    const char *name;
    json_t *x;
    json_object_foreach((json_t *)(uintptr_t)ta, name, x)
    {
        const json_t *y = json_object_get(tb, name);
        const struct rlki_held *p = held_of(a, va, name), *q = held_of(b, vb, name);
        if (!y || !p || !q)
            continue;
        ++*n;
        if (json_equal(x, y) != rlk_sums_same_bits(&p->sums, &q->sums))
            rlki_add(contradicted, rlki_json_text(name));
    }
}

json_t *rlki_row_held(const struct rlki_run_facts *a, const struct rlki_run_facts *b, const char *version)
{
    json_t *row = json_object(), *contradicted = json_array();
    uint64_t n = 0;
    compare(a, version, json_object_get(a->hashes, version), b, version, json_object_get(b->hashes, version), &n,
            contradicted);
    const bool good = json_array_size(contradicted) == 0;
    rlki_set(row, "against", json_string("digests"));
    rlki_set(row, "tensor_count", json_integer((json_int_t)n));
    rlki_set(row, "contradicted", contradicted);
    rlki_set(row, "passed", json_boolean(good));
    return n ? row : rlki_not_applicable(row, "no whole weights of the rollout were recorded with digests");
}

void rlki_weights_faults(struct rlki_run_facts *f)
{
    const char *version, *before = NULL;
    json_t *tensors;
    char text[400];
    json_object_foreach(f->hashes, version, tensors)
    {
        json_t *contradicted = json_array(), *name;
        uint64_t n = 0;
        size_t i;
        if (before)
            compare(f, before, json_object_get(f->hashes, before), f, version, tensors, &n, contradicted);
        json_array_foreach(contradicted, i, name)
        {
            snprintf(text, sizeof text, "%.60s, %.60s: the stated hashes of %.160s and the recorded weights contradict",
                     before, version, json_string_value(name));
            if (i < 5)
                rlki_add(f->faults, rlki_json_text(text));
        }
        json_decref(contradicted);
        before = version;
    }
}
