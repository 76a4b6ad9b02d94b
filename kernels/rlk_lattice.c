#include "kernels/rlk_lattice.h"

static bool is_degree(int n)
{
    return n == 1 || n == 2 || n == 4 || n == 8;
}

int rlk_lattice_init(struct rlk_lattice *lat, int tp, int cp, struct rlk_kdetail *detail)
{
    if (!is_degree(tp))
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "layout tp%d is refused: tp is 1, 2, 4 or 8, for example tp4cp2",
                         tp);
    if (!is_degree(cp))
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "layout cp%d is refused: cp is 1, 2, 4 or 8, for example tp4cp2",
                         cp);
    *lat = (struct rlk_lattice){tp, cp};
    return 0;
}

int rlk_lattice_check(const struct rlk_dims *d, struct rlk_kdetail *detail)
{
    if (d->kv_heads <= 0 || d->kv_heads % RLK_SLABS)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED,
                         "kv_heads %d: a slab is a whole group of key/value heads, use a multiple of 8", d->kv_heads);
    if (d->heads <= 0 || d->heads % d->kv_heads)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "heads %d: use a multiple of kv_heads (%d)", d->heads,
                         d->kv_heads);
    if (d->head_dim != 64 && d->head_dim != 128)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "head_dim %d: use 64 or 128", d->head_dim);
    if (d->hidden <= 0 || d->hidden % RLK_SLABS)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "hidden %lld: use a multiple of 8", (long long)d->hidden);
    if (d->intermediate <= 0 || d->intermediate % RLK_SLABS)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "intermediate %lld: use a multiple of 8",
                         (long long)d->intermediate);
    if (d->vocab <= 0 || d->vocab > INT32_MAX - 1024)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "vocab %lld: use 1 to 2^31-1025", (long long)d->vocab);
    return 0;
}

struct rlk_span rlk_slab_span(const struct rlk_lattice *lat, int t, int64_t n)
{
    const uint64_t each = (uint64_t)n / (uint64_t)lat->tp;
    return (struct rlk_span){(uint64_t)t * each, each};
}

int64_t rlk_vocab_padded(int64_t vocab)
{
    const int64_t unit = RLK_SLABS * RLK_VOCAB_TILE;
    return (vocab + unit - 1) / unit * unit;
}

static struct rlk_span cut(int64_t from, int64_t to, int64_t end)
{
    from = from < end ? from : end;
    to = to < end ? to : end;
    return (struct rlk_span){(uint64_t)from, (uint64_t)(to - from)};
}

struct rlk_span rlk_vocab_slab(int64_t vocab, int slab)
{
    const int64_t width = rlk_vocab_padded(vocab) / RLK_SLABS;
    return cut(slab * width, (slab + 1) * width, vocab);
}

struct rlk_span rlk_vocab_span(const struct rlk_lattice *lat, int t, int64_t vocab)
{
    const int64_t width = rlk_vocab_padded(vocab) / lat->tp;
    return cut(t * width, (t + 1) * width, vocab);
}

int64_t rlk_chunk_width(int64_t len)
{
    return RLK_CHUNKS * ((len + 255) / 256);
}

struct rlk_span rlk_chunk_span(int64_t len, int k)
{
    const int64_t w = rlk_chunk_width(len);
    return cut(k * w, (k + 1) * w, len);
}

int rlk_cp_spans(const struct rlk_lattice *lat, int c, int64_t len, struct rlk_span out[2])
{
    const int64_t w = rlk_chunk_width(len);
    const int p0 = RLK_SLABS * c / lat->cp, p1 = RLK_SLABS * (c + 1) / lat->cp;
    const struct rlk_span low = cut(p0 * w, p1 * w, len);
    const struct rlk_span high = cut((RLK_CHUNKS - p1) * w, (RLK_CHUNKS - p0) * w, len);
    int n = 0;
    if (low.extent)
        out[n++] = low;
    if (high.extent && n && low.start + low.extent == high.start)
        out[0].extent += high.extent;
    else if (high.extent)
        out[n++] = high;
    return n;
}
