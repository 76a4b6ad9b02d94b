/* compose.c - the whole is the sum over parts that cover each element exactly once (docs/digest.md). */
#include "auditor/parts.h"

#include <stdlib.h>
#include <string.h>

static bool has_text(const char *text)
{
    return text && *text;
}

static bool usable(const struct rlki_part *p)
{
    return !(p->place && (has_text(p->place->partial) || has_text(p->place->zero)));
}

bool rlki_part_same_shape(const struct rlki_part *a, const struct rlki_part *b)
{
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

static int dark(struct rlki_whole *out, const char *reason)
{
    out->state = RLKI_WHOLE_DARK;
    out->reason = reason;
    return RLK_OK;
}

/* Marks the first part of each set of equal runs; replicas whose bits differ are a finding, the lowest rank's is taken.
 */
static bool *distinct(struct rlki_whole *out, const struct rlki_part *part, size_t n, size_t *count)
{
    bool *keep = calloc(n + 1, sizeof *keep);
    struct rlki_hash seen = {0};
    *count = 0;
    for (size_t i = 0; keep && i < n; i++) {
        uint64_t key = rlki_mix(part[i].place_hash, part[i].slice), first;
        if (!usable(&part[i]))
            continue;
        if (rlki_hash_get(&seen, key, &first)) {
            out->replicas_differ |=
                !part[i].reason && !part[first].reason && !rlk_sums_same_bits(&part[i].sums, &part[first].sums);
            continue;
        }
        rlki_hash_put(&seen, key, i);
        keep[i] = true;
        ++*count;
    }
    if (seen.failed) {
        free(keep);
        keep = NULL;
    }
    rlki_hash_release(&seen);
    return keep;
}

static uint64_t numel(const struct rlki_part *p)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < p->ndim; d++) {
        if (p->shape[d] && n > UINT64_MAX / p->shape[d])
            return UINT64_MAX;
        n *= p->shape[d];
    }
    return n;
}

static int check_cover(struct rlki_whole *out, const struct rlki_part *part, size_t n, const bool *keep, size_t count)
{
    const struct rlk_place **places = malloc((count + 1) * sizeof *places);
    size_t k = 0;
    if (!places)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (keep[i])
            places[k++] = part[i].place;
    int rc = k == 1 && rlk_place_is_whole(places[0]) ? RLK_OK : rlk_place_cover(places, k, NULL);
    free(places);
    if (rc == RLK_ENOMEM)
        return rc;
    return rc ? dark(out, "cover") : RLK_OK;
}

int rlki_compose(struct rlki_whole *out, const struct rlki_part *part, size_t n, bool one_rank)
{
    size_t count, local = 0;
    bool whole_units = true;
    memset(out, 0, sizeof *out);
    if (!n)
        return RLK_OK;
    out->first = part;
    bool *keep = distinct(out, part, n, &count);
    int rc = RLK_OK;
    if (!keep)
        return RLK_ENOMEM;
    if (!count) {
        rc = dark(out, part[0].place && has_text(part[0].place->partial) ? "partial" : "zero");
        goto out;
    }
    const struct rlki_part *first = NULL;
    for (size_t i = 0; i < n && !out->state; i++) {
        if (!keep[i])
            continue;
        first = first ? first : &part[i];
        local += !part[i].place;
        whole_units &= part[i].composable;
        if (part[i].reason)
            dark(out, "not_digested");
        else if (part[i].dtype != first->dtype)
            dark(out, "parts-of-other-dtypes");
        else if (!rlki_part_same_shape(&part[i], first))
            dark(out, "parts-of-other-shapes");
        rlk_sums_add(&out->sums, &part[i].sums);
    }
    out->first = first;
    if (out->state)
        goto out;
    if (first->metric) {
        out->state = RLKI_WHOLE_KNOWN;
        out->sums = first->sums;
        goto out;
    }
    if (local && !first->sample && (count > 1 || !one_rank)) {
        rc = dark(out, "local");
        goto out;
    }
    out->state = whole_units ? RLKI_WHOLE_KNOWN : RLKI_WHOLE_PARTS;
    if (first->sample && out->sums.elements != numel(first))
        rc = dark(out, "cover");
    else if (!first->sample && !local)
        rc = check_cover(out, part, n, keep, count);
out:
    free(keep);
    return rc;
}

/* Parts with a border inside a unit: each compares with the equal part of the other side. */
static enum rlki_tri equal_parts(const struct rlki_part *pa, size_t na, const struct rlki_part *pb, size_t nb)
{
    enum rlki_tri out = RLKI_YES;
    for (size_t i = 0; i < na; i++) {
        bool met = !usable(&pa[i]);
        for (size_t k = 0; k < nb && !met; k++) {
            if (pa[i].place_hash != pb[k].place_hash || pa[i].slice != pb[k].slice)
                continue;
            met = true;
            if (!rlk_sums_same_bits(&pa[i].sums, &pb[k].sums))
                out = RLKI_NO;
        }
        if (!met)
            return RLKI_MAYBE;
    }
    return out;
}

int rlki_wholes_equal(const struct rlki_whole *a, const struct rlki_part *pa, size_t na, const struct rlki_whole *b,
                      const struct rlki_part *pb, size_t nb, enum rlki_tri *out, const char **reason)
{
    *out = RLKI_MAYBE;
    *reason = a->state == RLKI_WHOLE_DARK ? a->reason : b->state == RLKI_WHOLE_DARK ? b->reason : "unit-border";
    if (a->state == RLKI_WHOLE_DARK || b->state == RLKI_WHOLE_DARK)
        return RLK_OK;
    if (a->first->dtype != b->first->dtype || !rlki_part_same_shape(a->first, b->first))
        *out = RLKI_NO;
    else if (a->state == RLKI_WHOLE_PARTS || b->state == RLKI_WHOLE_PARTS)
        *out = equal_parts(pa, na, pb, nb);
    else
        *out = rlk_sums_same_bits(&a->sums, &b->sums) ? RLKI_YES : RLKI_NO;
    return RLK_OK;
}
