/* lcs.c - longest common subsequence inside one module call, in a band around the diagonal.
 *
 * An alignment of length L leaves na - L and nb - L events alone, so it stays between the diagonals -(na - L) and nb -
 * L. The band is doubled until the length found proves that no better path lies outside it. The table holds lengths of
 * suffixes, so the forward walk can take the earliest pairing at every place.
 */
#include "auditor/audit.h"

#include <stdlib.h>

#define MAX_CELLS (UINT64_C(1) << 24)

struct band {
    uint32_t na, nb;
    int64_t lo, hi; /* diagonals j - i */
    uint64_t width;
    uint32_t *cell;
};

static uint32_t at(const struct band *band, int64_t i, int64_t j)
{
    int64_t d = j - i;
    if (i >= band->na || j >= band->nb)
        return 0;
    if (d > band->hi) /* beyond the band: what the border knows is a lower bound */
        return 0;
    if (d < band->lo)
        return 0;
    return band->cell[(uint64_t)i * band->width + (uint64_t)(d - band->lo)];
}

static void fill(struct band *band, const uint64_t *a, const uint64_t *b)
{
    for (int64_t i = (int64_t)band->na - 1; i >= 0; i--) {
        for (int64_t d = band->hi; d >= band->lo; d--) {
            int64_t j = i + d;
            uint32_t best = 0;
            if (j >= 0 && j < band->nb) {
                uint32_t down = at(band, i + 1, j), right = at(band, i, j + 1);
                best = down > right ? down : right;
                if (a[i] == b[j]) {
                    uint32_t both = at(band, i + 1, j + 1) + 1;
                    best = both > best ? both : best;
                }
            }
            band->cell[(uint64_t)i * band->width + (uint64_t)(d - band->lo)] = best;
        }
    }
}

static void walk(const struct band *band, const uint64_t *a, const uint64_t *b, uint32_t *pair)
{
    int64_t i = 0, j = 0;
    while (i < band->na) {
        uint32_t want = at(band, i, j);
        pair[i] = UINT32_MAX;
        if (!want) {
            i++;
            continue;
        }
        int64_t k = j;
        while (k < band->nb && k - i <= band->hi && at(band, i, k) == want && a[i] != b[k])
            k++;
        if (k < band->nb && k - i <= band->hi && k - i >= band->lo && a[i] == b[k] &&
            at(band, i + 1, k + 1) + 1 == want) {
            pair[i] = (uint32_t)k;
            j = k + 1;
        }
        i++;
    }
}

bool rlki_lcs(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb, uint32_t *pair, bool *failed)
{
    uint32_t head = 0;
    while (head < na && head < nb && a[head] == b[head]) {
        pair[head] = head;
        head++;
    }
    a += head;
    b += head;
    na -= head;
    nb -= head;
    pair += head;
    for (uint32_t i = 0; i < na; i++)
        pair[i] = UINT32_MAX;
    if (!na || !nb)
        return true;
    for (uint64_t slack = 16;; slack *= 4) {
        struct band band = {.na = na, .nb = nb};
        band.lo = -(int64_t)(slack < na ? slack : na);
        band.hi = (int64_t)(slack < nb ? slack : nb);
        if (nb > na)
            band.hi = (int64_t)(slack + nb - na < nb ? slack + nb - na : nb);
        else
            band.lo = -(int64_t)(slack + na - nb < na ? slack + na - nb : na);
        band.width = (uint64_t)(band.hi - band.lo) + 1;
        if (band.width > MAX_CELLS / na)
            return false;
        band.cell = malloc((size_t)(na * band.width * sizeof *band.cell));
        if (!band.cell) {
            *failed = true;
            return false;
        }
        fill(&band, a, b);
        uint32_t length = band.cell[(uint64_t)(-band.lo)];
        bool exact = (int64_t)(na - length) <= -band.lo && (int64_t)(nb - length) <= band.hi;
        if (exact)
            walk(&band, a, b, pair);
        free(band.cell);
        if (!exact)
            continue;
        for (uint32_t i = 0; i < na; i++)
            if (pair[i] != UINT32_MAX)
                pair[i] += head;
        return true;
    }
}
