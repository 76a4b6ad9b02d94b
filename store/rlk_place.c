#include "store/rlk_place.h"

#include "store/rlk_digest.h"
#include "store/rlk_place_runs.h"

#include <inttypes.h>
#include <string.h>

void rlki_place_runs(const struct rlk_place *place, struct rlki_runs runs[])
{
    const struct rlk_run *next = place->runs;
    for (uint32_t i = 0; i < place->ndim; i++) {
        uint32_t n = place->nruns ? place->nruns[i] : RLK_WHOLE;
        runs[i] = (struct rlki_runs){NULL, 1, {0, place->shape[i]}};
        if (n != RLK_WHOLE) {
            static const struct rlk_run none;
            runs[i].run = n ? next : &none;
            runs[i].n = n;
            next += n;
        }
    }
}

/* Runs of dimension `dim`: in range, ascending, disjoint. Their total goes to *extent. */
static int check_runs(const struct rlk_run *run, uint32_t n, uint64_t size, uint32_t dim, uint64_t *extent,
                      struct rlk_detail *detail)
{
    uint64_t end = 0, total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (run[i].start > size || run[i].extent > size - run[i].start)
            return rlk_fail(detail, RLK_EINVAL,
                            "placement: dimension %" PRIu32 ": run %" PRIu32 " [%" PRIu64 ", %" PRIu64
                            "] leaves the logical size %" PRIu64,
                            dim, i, run[i].start, run[i].extent, size);
        if (run[i].extent == 0)
            continue;
        if (run[i].start < end)
            return rlk_fail(detail, RLK_EINVAL,
                            "placement: dimension %" PRIu32 ": run %" PRIu32 " [%" PRIu64 ", %" PRIu64
                            "] does not lie behind the run before it",
                            dim, i, run[i].start, run[i].extent);
        end = run[i].start + run[i].extent;
        total += run[i].extent;
    }
    *extent = total;
    return RLK_OK;
}

/* Elements of a shape: a product below 2^63, so that no row or unit number overflows. */
static int check_shape(uint32_t ndim, const uint64_t *shape, struct rlk_detail *detail)
{
    uint64_t product = 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return RLK_OK;
    for (uint32_t i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(product, shape[i], &product) || product > INT64_MAX)
            return rlk_fail(detail, RLK_EINVAL, "placement: the logical shape has 2^63 elements or more");
    return RLK_OK;
}

int rlk_place_check(const struct rlk_place *place, uint32_t local_ndim, const uint64_t *local_shape,
                    struct rlk_detail *detail)
{
    if (place->ndim > RLK_MAX_DIMS)
        return rlk_fail(detail, RLK_EINVAL, "placement: %" PRIu32 " dimensions, at most %u are possible", place->ndim,
                        RLK_MAX_DIMS);
    if (local_ndim != place->ndim)
        return rlk_fail(detail, RLK_EINVAL,
                        "placement: the local tensor has %" PRIu32 " dimensions, the logical one %" PRIu32, local_ndim,
                        place->ndim);
    int rc = check_shape(place->ndim, place->shape, detail);
    const struct rlk_run *next = place->runs;
    for (uint32_t i = 0; i < place->ndim && rc == RLK_OK; i++) {
        uint32_t n = place->nruns ? place->nruns[i] : RLK_WHOLE;
        uint64_t extent = place->shape[i];
        if (n != RLK_WHOLE) {
            rc = check_runs(next, n, place->shape[i], i, &extent, detail);
            next += n;
        }
        if (rc == RLK_OK && extent != local_shape[i])
            rc = rlk_fail(detail, RLK_EINVAL,
                          "placement: dimension %" PRIu32 ": the runs hold %" PRIu64 ", the local tensor %" PRIu64, i,
                          extent, local_shape[i]);
    }
    return rc;
}

bool rlk_place_equal(const struct rlk_place *a, const struct rlk_place *b)
{
    struct rlki_runs runs_a[RLK_MAX_DIMS], runs_b[RLK_MAX_DIMS];
    if (!a || !b)
        return a == b;
    if (a->ndim != b->ndim || a->ndim > RLK_MAX_DIMS)
        return false;
    rlki_place_runs(a, runs_a);
    rlki_place_runs(b, runs_b);
    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i])
            return false;
        struct rlki_runs_at at_a = {0}, at_b = {0};
        bool more;
        do {
            more = rlki_runs_step(&runs_a[i], &at_a);
            if (more != rlki_runs_step(&runs_b[i], &at_b))
                return false;
            if (more && (at_a.start != at_b.start || at_a.extent != at_b.extent))
                return false;
        } while (more);
    }
    return true;
}

bool rlk_place_is_whole(const struct rlk_place *place)
{
    if (!place)
        return false;
    struct rlk_place whole = {.ndim = place->ndim, .shape = place->shape};
    return rlk_place_equal(place, &whole);
}

static bool holds_nothing(const struct rlki_runs *runs, uint32_t ndim)
{
    for (uint32_t i = 0; i < ndim; i++) {
        struct rlki_runs_at at = {0};
        if (!rlki_runs_step(&runs[i], &at))
            return true;
    }
    return false;
}

bool rlk_place_composable(const struct rlk_place *place, enum rlk_dtype dtype)
{
    struct rlki_runs runs[RLK_MAX_DIMS];
    if (!place || place->ndim == 0)
        return true;
    if (place->ndim > RLK_MAX_DIMS)
        return false;
    uint64_t u = rlk_unit_length(dtype, place->ndim, place->shape);
    uint64_t size = place->shape[place->ndim - 1];
    if (u == 1)
        return true;
    rlki_place_runs(place, runs);
    if (holds_nothing(runs, place->ndim))
        return true;
    struct rlki_runs_at at = {0};
    while (rlki_runs_step(&runs[place->ndim - 1], &at)) {
        uint64_t end = at.start + at.extent;
        if (at.start % u != 0 || (end % u != 0 && end != size))
            return false;
    }
    return true;
}

static const char *copy_string(struct rlk_arena *arena, const char *s, bool *failed)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    char *p = rlk_arena_alloc(arena, n, 1);
    if (!p)
        *failed = true;
    return p ? memcpy(p, s, n) : NULL;
}

struct rlk_place *rlk_place_copy(struct rlk_arena *arena, const struct rlk_place *place)
{
    size_t total = 0;
    for (uint32_t i = 0; place->nruns && i < place->ndim; i++)
        if (place->nruns[i] != RLK_WHOLE && __builtin_add_overflow(total, (size_t)place->nruns[i], &total))
            return NULL;
    if (total > SIZE_MAX / sizeof(struct rlk_run))
        return NULL;
    struct rlk_place *copy = rlk_arena_alloc(arena, sizeof *copy, _Alignof(struct rlk_place));
    uint64_t *shape = rlk_arena_alloc(arena, place->ndim * sizeof *shape, _Alignof(uint64_t));
    uint32_t *nruns = rlk_arena_alloc(arena, place->ndim * sizeof *nruns, _Alignof(uint32_t));
    struct rlk_run *runs = rlk_arena_alloc(arena, total * sizeof *runs, _Alignof(struct rlk_run));
    if (!copy || !shape || !nruns || !runs)
        return NULL;
    for (uint32_t i = 0; i < place->ndim; i++) {
        shape[i] = place->shape[i];
        nruns[i] = place->nruns ? place->nruns[i] : RLK_WHOLE;
    }
    if (total)
        memcpy(runs, place->runs, total * sizeof *runs);
    bool failed = false;
    copy->ndim = place->ndim;
    copy->shape = shape;
    copy->nruns = nruns;
    copy->runs = runs;
    copy->partial = copy_string(arena, place->partial, &failed);
    copy->replica = copy_string(arena, place->replica, &failed);
    copy->zero = copy_string(arena, place->zero, &failed);
    return failed ? NULL : copy;
}
