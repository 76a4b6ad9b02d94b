/* digests.c - the sums of a tensor that is told, made of sums that are there already: those of a replica with the same
 * bytes, or those of what the buffer held before and of the rows that changed. Bytes are always compared, never
 * believed: the sums are those that a digest of the whole would give.
 */
#include "replayer/run.h"

#include "store/rlk_digest.h"
#include "store/rlk_place.h"

#include <stdlib.h>
#include <string.h>

enum {
    SETS = 128,
    WAYS = 4,
    RUNS = 64,    /* a placement with more is digested */
    BLOCK = 4096, /* bytes that are compared at once */
    SMALL = 1024, /* bytes below which a digest costs no more than the search */
};
#define SHADOWS ((size_t)256 << 20) /* bytes of copies at most */

struct rlki_twins {
    uint64_t age; /* entries of an older age are none */
    struct twin {
        uint64_t age;
        rlk_u128 key; /* type, shape, placement */
        const void *data;
        uint64_t generation, version;
        size_t bytes;
        struct rlk_sums sums;
    } twin[SETS][WAYS];
    unsigned next[SETS];
};

struct rlki_shadow { /* what a buffer held when it was told last, and its sums */
    rlk_u128 key;
    size_t bytes;
    struct rlk_sums sums;
    unsigned char copy[];
};

struct rlki_twins *rlki_twins_new(void)
{
    struct rlki_twins *t = calloc(1, sizeof *t);
    if (t)
        t->age = 1;
    return t;
}

void rlki_twins_forget(struct rlk_train *run)
{
    if (run->rec.twins)
        run->rec.twins->age++;
}

void rlki_shadow_free(struct rlk_train *run, struct rlki_known *k)
{
    if (k->shadow)
        run->rec.shadows -= k->shadow->bytes;
    free(k->shadow);
    k->shadow = NULL;
}

/* What the sums depend on beside the bytes. false: too many runs. */
static bool key_of(const struct rlk_tap_tensor *t, rlk_u128 *key)
{
    uint64_t word[3 + 3 * RLK_MAX_DIMS + 2 * RUNS];
    uint32_t n = 0, runs = 0;
    const struct rlk_place *p = t->place;
    word[n++] = t->view.dtype;
    word[n++] = p->ndim;
    word[n++] = p->partial && *p->partial;
    for (uint32_t d = 0; d < p->ndim; d++) {
        word[n++] = t->view.shape[d];
        word[n++] = p->shape[d];
        word[n++] = p->nruns[d];
        runs += p->nruns[d] == RLK_WHOLE ? 0 : p->nruns[d];
        if (runs > RUNS)
            return false;
    }
    memcpy(word + n, p->runs, runs * sizeof *p->runs);
    n += 2 * runs;
    *key = rlk_content_id(word, n * sizeof *word);
    return true;
}

/* ---- replicas ---- */

static bool twin_of(struct rlk_train *run, const struct rlk_tap_tensor *t, rlk_u128 key, struct rlk_sums *sums)
{
    struct rlki_twins *all = run->rec.twins;
    struct twin *set = all->twin[key.lo % SETS];
    for (unsigned i = 0; i < WAYS; i++) {
        const struct twin *w = &set[i];
        if (w->age != all->age || !rlk_u128_equal(w->key, key) || w->bytes != t->view.storage_bytes ||
            w->data == t->view.storage) /* itself says nothing */
            continue;
        const struct rlki_known *k = rlki_rec_known(run, w->data);
        if (k && k->generation == w->generation && k->version == w->version &&
            memcmp(w->data, t->view.storage, w->bytes) == 0) {
            *sums = w->sums;
            return true;
        }
    }
    return false;
}

static void remember(struct rlk_train *run, const struct rlk_tap_tensor *t, rlk_u128 key, const struct rlk_sums *sums)
{
    struct rlki_twins *all = run->rec.twins;
    const unsigned at = (unsigned)(key.lo % SETS);
    all->twin[at][all->next[at]++ % WAYS] =
        (struct twin){all->age, key, t->view.storage, t->generation, t->version, (size_t)t->view.storage_bytes, *sums};
}

/* ---- rows that changed ---- */

/* a -= b, where b is a part of a. */
static void without(struct rlk_sums *a, const struct rlk_sums *b)
{
    const rlk_u128 one = {1, 0};
    const rlk_u128 positional = {~b->positional.lo, ~b->positional.hi}, value = {~b->value.lo, ~b->value.hi};
    a->positional = rlk_u128_add(rlk_u128_add(a->positional, positional), one);
    a->value = rlk_u128_add(rlk_u128_add(a->value, value), one);
    a->multiset -= b->multiset;
    a->elements -= b->elements;
    a->nan -= b->nan;
    a->inf -= b->inf;
    a->negzero -= b->negzero;
}

/* Sums of rows [row, row + n) of a tensor like t whose bytes are at `base`. false: they are no whole units. */
static bool rows_of(const struct rlk_tap_tensor *t, const void *base, uint64_t row, uint64_t n, struct rlk_sums *sums)
{
    uint64_t shape[RLK_MAX_DIMS];
    uint32_t nruns[RLK_MAX_DIMS], total = 1;
    struct rlk_run runs[RUNS + 1] = {{row, n}};
    struct rlk_place place = *t->place;
    struct rlk_view view = t->view;
    uint64_t stride = 1;
    bool composable = false;
    memcpy(shape, view.shape, view.ndim * sizeof *shape);
    memcpy(nruns, place.nruns, view.ndim * sizeof *nruns);
    for (uint32_t d = 1; d < view.ndim; d++) {
        stride *= shape[d];
        total += nruns[d] == RLK_WHOLE ? 0 : nruns[d];
    }
    memcpy(runs + 1, place.runs, (total - 1) * sizeof *runs);
    shape[0] = n;
    nruns[0] = 1;
    view.shape = shape;
    view.storage = base;
    view.offset = row * stride;
    place.nruns = nruns;
    place.runs = runs;
    return rlk_digest_view(sums, &composable, &view, &place, NULL) == RLK_OK && composable;
}

/* Rows [row, row + n) have changed: the sums and the copy follow. */
static bool changed(const struct rlk_tap_tensor *t, struct rlki_shadow *s, uint64_t row, uint64_t n, size_t row_bytes)
{
    const unsigned char *now = t->view.storage;
    struct rlk_sums was, is;
    if (!rows_of(t, s->copy, row, n, &was) || !rows_of(t, now, row, n, &is))
        return false;
    without(&s->sums, &was);
    rlk_sums_add(&s->sums, &is);
    memcpy(s->copy + row * row_bytes, now + row * row_bytes, (size_t)n * row_bytes);
    return true;
}

/* The shadow becomes what the tensor holds. false: digest the whole. */
static bool by_rows(const struct rlk_tap_tensor *t, struct rlki_shadow *s)
{
    const uint64_t rows = t->view.shape[0];
    const size_t row = s->bytes / (size_t)rows;
    const uint64_t block = row < BLOCK ? BLOCK / row : 1;
    const unsigned char *now = t->view.storage;
    uint64_t total = 0;
    for (uint64_t i = 0; i < rows;) {
        uint64_t n = 0;
        if (i % block == 0 && i + block <= rows && memcmp(now + i * row, s->copy + i * row, (size_t)block * row) == 0) {
            i += block;
            continue;
        }
        while (i + n < rows && memcmp(now + (i + n) * row, s->copy + (i + n) * row, row) != 0)
            n++;
        total += n;
        if (n && (total > rows / 2 || !changed(t, s, i, n, row)))
            return false;
        i += n + 1;
    }
    return true;
}

static bool digest(const struct rlk_tap_tensor *t, struct rlk_sums *sums)
{
    bool composable = false;
    return rlk_digest_view(sums, &composable, &t->view, t->place, NULL) == RLK_OK && composable;
}

static bool shadowed(struct rlk_train *run, struct rlki_known *k, const struct rlk_tap_tensor *t, rlk_u128 key,
                     struct rlk_sums *sums)
{
    const size_t bytes = (size_t)t->view.storage_bytes;
    struct rlki_shadow *s = k->shadow;
    bool known = s && s->bytes == bytes && rlk_u128_equal(s->key, key) && by_rows(t, s);
    if (!known) {
        rlki_shadow_free(run, k);
        if (bytes > SHADOWS - run->rec.shadows || !(s = malloc(sizeof *s + bytes)))
            return false;
        s->key = key;
        s->bytes = bytes;
        k->shadow = s;
        run->rec.shadows += bytes;
        memcpy(s->copy, t->view.storage, bytes);
        known = digest(t, &s->sums);
    }
    if (known)
        *sums = s->sums;
    else
        rlki_shadow_free(run, k);
    return known;
}

bool rlki_sums(struct rlk_train *run, struct rlki_known *k, const struct rlk_tap_tensor *t, bool grows,
               struct rlk_sums *sums)
{
    const struct rlk_place *p = t->place;
    rlk_u128 key;
    if (!k || t->device || t->state != RLK_T_DIGESTED || t->view.storage != k->data || t->view.storage_bytes < SMALL ||
        !key_of(t, &key))
        return false;
    if (grows && p->ndim && p->nruns[0] == RLK_WHOLE)
        return shadowed(run, k, t, key, sums);
    if (!p->replica || !run->rec.twins)
        return false;
    if (twin_of(run, t, key, sums))
        return true;
    if (!digest(t, sums))
        return false;
    remember(run, t, key, sums);
    return true;
}
