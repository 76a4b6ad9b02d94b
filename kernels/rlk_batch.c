#include "kernels/rlki_batch.h"

#include <stdlib.h>
#include <string.h>

/* Sequence order, chunk p then chunk 15-p: appends to out what of leaf p there is, as global tokens. */
static int64_t leaf_tokens(const struct rlk_batch *b, int p, int32_t *out)
{
    int64_t n = 0, start = 0;
    for (int32_t s = 0; s < b->sequences; s++) {
        for (int half = 0; half < 2; half++) {
            const struct rlk_span c = rlk_chunk_span(b->length[s], half ? RLK_CHUNKS - 1 - p : p);
            for (uint64_t i = 0; i < c.extent; i++)
                out[n++] = (int32_t)(start + (int64_t)(c.start + i));
        }
        start += b->length[s];
    }
    return n;
}

static int to_device(struct rlk_exec *x, const void *src, size_t bytes, void *out)
{
    void *p = rlk_exec_alloc(x, bytes ? bytes : 1);
    if (!p)
        return rlk_kfail(&x->detail, RLK_K_ENOMEM, "batch: %zu bytes of device memory are missing", bytes);
    memcpy(out, &p, sizeof p);
    return bytes ? rlk_exec_upload(x, p, src, bytes) : 0;
}

static uint32_t join_spans(const struct rlk_batch *b, int cp, struct rlk_span *out)
{
    uint32_t n = 0;
    uint64_t start = 0;
    for (int32_t s = 0; s < b->sequences; s++) {
        struct rlk_span two[2];
        const int k = rlk_cp_spans(&b->lat, cp, b->length[s], two);
        for (int i = 0; i < k; i++) {
            const struct rlk_span g = {start + two[i].start, two[i].extent};
            if (n && out[n - 1].start + out[n - 1].extent == g.start)
                out[n - 1].extent += g.extent;
            else
                out[n++] = g;
        }
        start += (uint64_t)b->length[s];
    }
    return n;
}

struct scratch {
    int32_t *pos, *base, *leaf, *inverse;
    struct rlki_tile *tile;
    struct rlki_leaf_seq *seq;
};

static void scratch_free(struct scratch *s)
{
    free(s->pos);
    free(s->base);
    free(s->leaf);
    free(s->inverse);
    free(s->tile);
    free(s->seq);
}

static int32_t inverse_at(const struct rlk_batch *b, const struct scratch *t, int64_t global)
{
    return global < b->tokens ? t->inverse[global] : 0;
}

/* Local rows [lo0,lo1) of chunk p and [hi0,hi1) of chunk 15-p of each sequence. */
static void fill_leaf_seqs(const struct rlk_batch *b, int p, const struct scratch *t, struct rlki_leaf_seq *out)
{
    int64_t start = 0;
    for (int32_t s = 0; s < b->sequences; s++) {
        const struct rlk_span lo = rlk_chunk_span(b->length[s], p),
                              hi = rlk_chunk_span(b->length[s], RLK_CHUNKS - 1 - p);
        const int32_t l0 = lo.extent ? inverse_at(b, t, start + (int64_t)lo.start) : 0;
        const int32_t h0 = hi.extent ? inverse_at(b, t, start + (int64_t)hi.start) : 0;
        out[s] = (struct rlki_leaf_seq){(int32_t)start,          b->length[s], l0,
                                        l0 + (int32_t)lo.extent, h0,           h0 + (int32_t)hi.extent};
        start += b->length[s];
    }
}

static int64_t fill_rows(const struct rlk_batch *b, int cp, struct rlki_part *part, struct scratch *t)
{
    int64_t n = 0, tiles = 0, start = 0;
    for (int32_t s = 0; s < b->sequences; s++) {
        struct rlk_span two[2];
        const int k = rlk_cp_spans(&b->lat, cp, b->length[s], two);
        for (int i = 0; i < k; i++)
            for (uint64_t j = 0; j < two[i].extent; j++, n++) {
                part->map[n] = (int32_t)(start + (int64_t)(two[i].start + j));
                t->inverse[part->map[n]] = (int32_t)n;
                t->pos[n] = b->first[s] + (int32_t)(two[i].start + j);
                t->base[n] = (int32_t)start;
                struct rlki_tile *last = tiles ? &t->tile[tiles - 1] : NULL;
                if (last && last->base == (int32_t)start && last->rows < RLKI_QTILE) {
                    last->rows++;
                    last->last = t->pos[n];
                } else {
                    t->tile[tiles++] = (struct rlki_tile){(int32_t)n, 1, (int32_t)start, t->pos[n]};
                }
            }
        start += b->length[s];
    }
    part->tiles = tiles;
    return n;
}

static int make_part(struct rlk_exec *x, struct rlk_batch *b, int cp)
{
    struct rlki_part *part = &b->part[cp];
    const size_t most = (size_t)b->tokens + 1, seqs = (size_t)b->sequences + 1;
    const int pairs = RLK_SLABS / b->lat.cp;
    struct scratch t = {malloc(most * 4),
                        malloc(most * 4),
                        malloc(most * 4),
                        malloc(most * 4),
                        malloc(most * sizeof *t.tile),
                        malloc(seqs * (size_t)pairs * sizeof *t.seq)};
    int rc = RLK_K_ENOMEM;
    part->map = malloc(most * 4);
    part->spans = malloc(2 * seqs * sizeof *part->spans);
    if (!t.pos || !t.base || !t.leaf || !t.inverse || !t.tile || !t.seq || !part->map || !part->spans)
        goto out;
    part->n = fill_rows(b, cp, part, &t);
    part->nspans = join_spans(b, cp, part->spans);
    int64_t n = 0;
    for (int i = 0; i < pairs; i++) {
        part->leaf_start[i] = n;
        const int64_t k = leaf_tokens(b, cp * pairs + i, t.leaf + n);
        for (int64_t j = n; j < n + k; j++)
            t.leaf[j] = t.inverse[t.leaf[j]];
        n += k;
        fill_leaf_seqs(b, cp * pairs + i, &t, t.seq + (size_t)i * (size_t)b->sequences);
    }
    for (int i = pairs; i <= RLK_SLABS; i++)
        part->leaf_start[i] = n;
    const size_t rows = (size_t)part->n * 4;
    if ((rc = to_device(x, part->map, rows, &part->d_map)) || (rc = to_device(x, t.pos, rows, &part->d_pos)) ||
        (rc = to_device(x, t.base, rows, &part->d_base)) || (rc = to_device(x, t.leaf, rows, &part->d_leaf)) ||
        (rc = to_device(x, t.tile, (size_t)part->tiles * sizeof *t.tile, &part->d_tile)) ||
        (rc = to_device(x, t.seq, (size_t)b->sequences * (size_t)pairs * sizeof *t.seq, &part->d_seq)))
        goto out;
    rc = rlk_exec_sync(x);
out:
    scratch_free(&t);
    return rc;
}

static int make_global(struct rlk_exec *x, struct rlk_batch *b)
{
    int32_t *pos = malloc(((size_t)b->tokens + 1) * 4);
    int64_t n = 0;
    int rc = RLK_K_ENOMEM;
    b->leaf = malloc(((size_t)b->tokens + 1) * 4);
    if (!pos || !b->leaf)
        goto out;
    for (int p = 0; p < RLK_SLABS; p++) {
        b->leaf_start[p] = n;
        n += leaf_tokens(b, p, b->leaf + n);
    }
    b->leaf_start[RLK_SLABS] = n;
    n = 0;
    for (int32_t s = 0; s < b->sequences; s++)
        for (int32_t i = 0; i < b->length[s]; i++)
            pos[n++] = b->first[s] + i;
    if ((rc = to_device(x, b->leaf, (size_t)n * 4, &b->d_leaf)) || (rc = to_device(x, pos, (size_t)n * 4, &b->d_pos)))
        goto out;
    rc = rlk_exec_sync(x);
out:
    free(pos);
    return rc;
}

int rlk_batch_new(struct rlk_exec *x, const struct rlk_lattice *lat, int32_t sequences, const int32_t *length,
                  const int32_t *first, struct rlk_batch **out)
{
    struct rlk_batch *b = NULL;
    int64_t tokens = 0;
    int rc = RLK_K_ENOMEM;
    if (sequences < 0)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "batch: %d sequences, use 0 or more", sequences);
    for (int32_t s = 0; s < sequences; s++) {
        if (length[s] < 0 || (first && first[s] < 0))
            return rlk_kfail(&x->detail, RLK_K_EINVAL, "batch: sequence %d has a negative length or position", s);
        tokens += length[s];
    }
    if (tokens > INT32_MAX)
        return rlk_kfail(&x->detail, RLK_K_EINVAL, "batch: %lld tokens, use fewer than 2^31", (long long)tokens);
    b = calloc(1, sizeof *b);
    if (!b)
        goto out;
    b->lat = *lat;
    b->sequences = sequences;
    b->tokens = tokens;
    b->length = calloc((size_t)sequences + 1, 4);
    b->first = calloc((size_t)sequences + 1, 4);
    if (!b->length || !b->first)
        goto out;
    for (int32_t s = 0; s < sequences; s++) {
        b->length[s] = length[s];
        b->first[s] = first ? first[s] : 0;
        b->longest = length[s] > b->longest ? length[s] : b->longest;
    }
    rc = make_global(x, b);
    for (int c = 0; !rc && c < lat->cp; c++)
        rc = make_part(x, b, c);
    if (!rc) {
        *out = b;
        b = NULL;
    }
out:
    rlk_batch_free(x, b);
    if (rc == RLK_K_ENOMEM)
        rlk_kfail(&x->detail, rc, "batch: out of memory for the index of %lld tokens", (long long)tokens);
    return rc;
}

int rlk_batch_move(struct rlk_exec *x, struct rlk_batch *b, const int32_t *first)
{
    const size_t most = (size_t)b->tokens + 1;
    struct scratch t = {
        malloc(most * 4), malloc(most * 4), NULL, malloc(most * 4), malloc(most * sizeof *t.tile), NULL};
    int64_t n = 0;
    int rc = t.pos && t.base && t.inverse && t.tile ? 0 : RLK_K_ENOMEM;
    for (int32_t s = 0; !rc && s < b->sequences; s++) {
        if (first[s] < 0)
            rc = rlk_kfail(&x->detail, RLK_K_EINVAL, "batch: sequence %d has a negative position", s);
        b->first[s] = first[s];
        for (int32_t i = 0; !rc && i < b->length[s]; i++)
            t.pos[n++] = b->first[s] + i;
    }
    if (!rc && n)
        rc = rlk_exec_upload(x, b->d_pos, t.pos, (size_t)n * 4);
    for (int c = 0; !rc && c < b->lat.cp; c++) {
        struct rlki_part *p = &b->part[c];
        fill_rows(b, c, p, &t);
        rc = p->n ? rlk_exec_upload(x, p->d_pos, t.pos, (size_t)p->n * 4) : 0;
        if (!rc && p->tiles)
            rc = rlk_exec_upload(x, p->d_tile, t.tile, (size_t)p->tiles * sizeof *t.tile);
    }
    if (rc == RLK_K_ENOMEM)
        rlk_kfail(&x->detail, rc, "batch: out of memory for the positions of %lld tokens", (long long)b->tokens);
    scratch_free(&t);
    return rc;
}

void rlk_batch_free(struct rlk_exec *x, struct rlk_batch *b)
{
    if (!b)
        return;
    for (int c = 0; c < RLK_SLABS; c++) {
        struct rlki_part *p = &b->part[c];
        free(p->map);
        free(p->spans);
        rlk_exec_free(x, p->d_map);
        rlk_exec_free(x, p->d_pos);
        rlk_exec_free(x, p->d_base);
        rlk_exec_free(x, p->d_leaf);
        rlk_exec_free(x, p->d_tile);
        rlk_exec_free(x, p->d_seq);
    }
    rlk_exec_free(x, b->d_leaf);
    rlk_exec_free(x, b->d_pos);
    free(b->leaf);
    free(b->length);
    free(b->first);
    free(b);
}

int64_t rlk_batch_tokens(const struct rlk_batch *b)
{
    return b->tokens;
}

int64_t rlk_batch_local(const struct rlk_batch *b, int cp)
{
    return b->part[cp].n;
}

const int32_t *rlk_batch_map(const struct rlk_batch *b, int cp)
{
    return b->part[cp].map;
}

uint32_t rlk_batch_spans(const struct rlk_batch *b, int cp, const struct rlk_span **spans)
{
    *spans = b->part[cp].spans;
    return b->part[cp].nspans;
}
