/* op_embed.c - embedding rows by owner, and their gradient over the gathered tokens. docs/contracts.md, section 6. */
#include <stdlib.h>

#include "kernels/rlki_op.h"

#define EMBEDDING "rlk.embedding/portable/1"
#define OP "rlk.embedding"
#define RANKS (RLK_SLABS * RLK_SLABS)

static int check(struct rlk_exec *x, const struct rlk_batch *b, int64_t vocab, int64_t hidden, enum rlk_ktype type,
                 const int32_t *ids)
{
    const struct rlk_dims d = {hidden, 8, vocab, 8, 8, 64};
    int rc = rlki_check_type(x, OP, type);
    if (!rc)
        rc = rlk_lattice_check(&d, &x->detail);
    for (int64_t i = 0; !rc && !x->measuring && i < b->tokens; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            rc = rlk_kfail(&x->detail, RLK_K_EINVAL, OP ": id %d of token %lld, use 0 to %lld", ids[i], (long long)i,
                           (long long)vocab - 1);
    return rc;
}

/* Rows of rank i: from its table, then from each peer's answer where that peer owns the word. Nothing is added. */
static int pick(struct rlki_call *c, int64_t vocab, int64_t hidden, enum rlk_ktype type, const int32_t *ids,
                rlk_in table, rlk_out y)
{
    struct rlk_exec *x = c->w->x;
    const size_t row = (size_t)hidden * rlk_ktype_bytes(type);
    int32_t *host = malloc(((size_t)c->batch->tokens + 1) * sizeof *host);
    void *mine[RANKS], *all[RANKS];
    size_t bytes[RANKS][RLK_SLABS];
    int rc = host ? 0 : rlk_kfail(&x->detail, RLK_K_ENOMEM, OP ": out of memory for ids");
    for (int i = 0; !rc && i < c->w->held; i++) {
        const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
        const struct rlk_span v = rlk_vocab_span(&c->w->lat, rlki_tp(c, i), vocab);
        int32_t *id = rlki_take(x, (size_t)p->n * sizeof *id);
        const size_t own = (size_t)p->n * row;
        for (int j = 0; j < RLK_SLABS; j++)
            bytes[i][j] = own;
        mine[i] = c->w->lat.tp == 1 ? y[i] : rlki_take(x, own);
        all[i] = c->w->lat.tp == 1 ? y[i] : rlki_take(x, own * (size_t)c->w->lat.tp);
        if (!id || (c->w->lat.tp > 1 && (!mine[i] || !all[i]))) {
            rc = RLK_K_ENOMEM;
            break;
        }
        for (int64_t r = 0; !x->measuring && r < p->n; r++)
            host[r] = ids[p->map[r]];
        const struct rlki_embed e = {p->n,     hidden, type, id, (int32_t)v.start, (int32_t)(v.start + v.extent),
                                     table[i], mine[i]};
        rc = c->prims->upload(x, id, host, (size_t)p->n * sizeof *id);
        if (!rc && p->n && c->w->lat.tp > 1)
            rc = c->prims->zero(x, mine[i], own);
        if (!rc && p->n)
            rc = c->prims->embed(x, &e);
    }
    if (!rc && c->w->lat.tp > 1)
        rc = rlki_all_gather(c, RLK_GROUP_TP, (const size_t(*)[RLK_SLABS])bytes, (rlk_in)mine, all);
    for (int i = 0; !rc && c->w->lat.tp > 1 && i < c->w->held; i++) {
        const struct rlki_part *p = &c->batch->part[rlki_cp(c, i)];
        for (int j = 0; !rc && p->n && j < c->w->lat.tp; j++) {
            const struct rlk_span v = rlk_vocab_span(&c->w->lat, j, vocab);
            int32_t *id = rlki_take(x, (size_t)p->n * sizeof *id);
            if (!id) {
                rc = RLK_K_ENOMEM;
                break;
            }
            for (int64_t r = 0; !x->measuring && r < p->n; r++) {
                const int64_t word = ids[p->map[r]];
                host[r] = word >= (int64_t)v.start && word < (int64_t)(v.start + v.extent) ? (int32_t)r : -1;
            }
            const struct rlki_embed e = {
                p->n, hidden, type, id, 0, (int32_t)p->n, (char *)all[i] + (size_t)j * bytes[i][j], y[i]};
            rc = c->prims->upload(x, id, host, (size_t)p->n * sizeof *id);
            if (!rc)
                rc = c->prims->embed(x, &e);
        }
    }
    free(host);
    return rc;
}

int rlk_embedding_fwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab, int64_t hidden,
                      enum rlk_ktype type, const int32_t *ids, rlk_in table, rlk_out y)
{
    const struct rlki_tensor t[] = {
        {"table", false, type, table, 2, {{RLKI_VOCAB, vocab}, {RLKI_WHOLE, hidden}}, NULL, "cp"},
        {"y", true, type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, hidden}}, NULL, "tp"}};
    struct rlki_call c;
    int rc = check(w->x, b, vocab, hidden, type, ids);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_EMBEDDING, OP, EMBEDDING, "fwd", module, t, 2)))
        return rc;
    rc = pick(&c, vocab, hidden, type, ids, table, y);
    return rlki_end(&c, rc, t, 2);
}

/* Words of the batch, each with its tokens by leaf. order = token indices in leaf order, leaf by leaf. */
struct words {
    int64_t n;
    int32_t *id, *start, *token;
};

struct entry {
    int32_t id, leaf, at; /* at = place in leaf order */
};

static int by_word(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    if (p->id != q->id)
        return p->id < q->id ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static void words_free(struct words *u)
{
    free(u->id);
    free(u->start);
    free(u->token);
}

static int words_make(const struct rlk_batch *b, const int32_t *ids, struct words *u)
{
    const size_t n = (size_t)b->tokens + 1;
    struct entry *e = malloc(n * sizeof *e);
    *u = (struct words){0, malloc(n * 4), malloc(n * 9 * 4), malloc(n * 4)};
    if (!e || !u->id || !u->start || !u->token) {
        free(e);
        return RLK_K_ENOMEM;
    }
    for (int leaf = 0; leaf < RLK_SLABS; leaf++)
        for (int64_t k = b->leaf_start[leaf]; k < b->leaf_start[leaf + 1]; k++)
            e[k] = (struct entry){ids[b->leaf[k]], leaf, (int32_t)k};
    qsort(e, (size_t)b->tokens, sizeof *e, by_word);
    for (int64_t k = 0; k < b->tokens;) {
        int32_t *start = u->start + 9 * u->n;
        const int32_t id = e[k].id;
        u->id[u->n++] = id;
        for (int leaf = 0; leaf < RLK_SLABS; leaf++) {
            start[leaf] = (int32_t)k;
            for (; k < b->tokens && e[k].id == id && e[k].leaf == leaf; k++)
                u->token[k] = b->leaf[e[k].at];
        }
        start[RLK_SLABS] = (int32_t)k;
    }
    free(e);
    return 0;
}

int rlk_embedding_bwd(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t vocab, int64_t hidden,
                      enum rlk_ktype type, const int32_t *ids, rlk_in dy, float *const *grad)
{
    const struct rlki_tensor t[] = {
        {"dy", false, type, dy, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, hidden}}, NULL, "tp"},
        {"dtable", true, RLK_K_FP32, (rlk_in)grad, 2, {{RLKI_VOCAB, vocab}, {RLKI_WHOLE, hidden}}, NULL, "cp"}};
    const size_t row = (size_t)hidden * rlk_ktype_bytes(type);
    struct rlki_call c;
    struct rlk_exec *x = w->x;
    struct words u = {0};
    void *all[RANKS];
    int rc = check(x, b, vocab, hidden, type, ids);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_EMBEDDING, OP, EMBEDDING, "bwd", module, t, 2)))
        return rc;
    const size_t n = (size_t)b->tokens;
    int32_t *id = rlki_take(x, n * 4), *start = rlki_take(x, n * 36), *token = rlki_take(x, n * 4);
    if (!id || !start || !token)
        rc = RLK_K_ENOMEM;
    else if (!x->measuring && (rc = words_make(b, ids, &u)))
        rlk_kfail(&x->detail, rc, OP ": out of memory for %zu ids", n);
    if (!rc && !x->measuring && (!(rc = c.prims->upload(x, id, u.id, (size_t)u.n * 4))) &&
        !(rc = c.prims->upload(x, start, u.start, (size_t)u.n * 36)))
        rc = c.prims->upload(x, token, u.token, n * 4);
    for (int i = 0; !rc && i < w->held; i++) {
        all[i] = w->lat.cp == 1 ? (void *)(uintptr_t)dy[i] : rlki_take(x, n * row);
        rc = all[i] || w->lat.cp == 1 ? 0 : RLK_K_ENOMEM;
    }
    if (!rc && w->lat.cp > 1)
        rc = rlki_gather_tokens(&c, row, dy, all);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlk_span v = rlk_vocab_span(&w->lat, rlki_tp(&c, i), vocab);
        const struct rlki_embed_bwd e = {
            u.n,     hidden, type, id, start, token, all[i], (int32_t)v.start, (int32_t)(v.start + v.extent),
            x->node, grad[i]};
        rc = u.n ? c.prims->embed_bwd(x, &e) : 0;
    }
    words_free(&u);
    return rlki_end(&c, rc, t, 2);
}
