#include <stdlib.h>
#include <string.h>

#include "kernels/rlki_control.h"
#include "kernels/rlki_op.h"

int rlki_check_type(struct rlk_exec *x, const char *op, enum rlk_ktype type)
{
    if (type == RLK_K_BF16 || type == RLK_K_FP32)
        return 0;
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "%s: storage type %d, use bf16 or fp32", op, (int)type);
}

int rlki_check_slabs(struct rlk_exec *x, const char *op, const char *what, int64_t n)
{
    if (n > 0 && n % RLK_SLABS == 0 && n <= INT32_MAX)
        return 0;
    return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "%s: %s %lld, use a positive multiple of 8", op, what,
                     (long long)n);
}

static void announce_one(struct rlki_call *c, int i, const struct rlki_tensor *t, uint32_t index)
{
    uint64_t shape[4], elements = 1;
    uint32_t nspans[4];
    struct rlk_span one[4];
    const struct rlk_span *spans = one;
    uint32_t used = 0;
    for (int d = 0; d < t->ndim; d++) {
        struct rlk_span s = {0, (uint64_t)t->dim[d].n};
        shape[d] = (uint64_t)t->dim[d].n;
        nspans[d] = RLK_K_WHOLE;
        switch (t->dim[d].kind) {
        case RLKI_WHOLE:
            break;
        case RLKI_TOKENS: /* always the first dimension: the batch's own array serves, followed by at most one more */
            shape[d] = (uint64_t)c->batch->tokens;
            s.extent = (uint64_t)c->batch->part[rlki_cp(c, i)].n;
            nspans[d] = c->batch->part[rlki_cp(c, i)].nspans;
            break;
        case RLKI_SLABS:
            s = rlk_slab_span(&c->w->lat, rlki_tp(c, i), t->dim[d].n);
            break;
        case RLKI_VOCAB:
            s = rlk_vocab_span(&c->w->lat, rlki_tp(c, i), t->dim[d].n);
            break;
        }
        if (t->dim[d].kind == RLKI_SLABS || t->dim[d].kind == RLKI_VOCAB) {
            nspans[d] = s.extent ? 1 : 0;
            one[used] = s;
            used += s.extent ? 1u : 0u;
        }
        elements *= s.extent;
    }
    struct rlk_span few[64], *joined = few;
    if (t->ndim && t->dim[0].kind == RLKI_TOKENS) {
        const struct rlki_part *part = &c->batch->part[rlki_cp(c, i)];
        if (used == 0) {
            spans = part->spans;
        } else {
            if (part->nspans + used > 64)
                joined = malloc((part->nspans + used) * sizeof *joined);
            if (joined) {
                memcpy(joined, part->spans, part->nspans * sizeof *joined);
                memcpy(joined + part->nspans, one, used * sizeof *joined);
            }
            spans = joined;
        }
    }
    const struct rlk_observed o = {t->name,
                                   t->output,
                                   index,
                                   t->type,
                                   t->data ? t->data[i] : NULL,
                                   elements,
                                   {(uint32_t)t->ndim, shape, nspans, spans, t->partial, t->replica, NULL},
                                   c->w->x->device == RLK_DEVICE_CUDA && t->type != RLK_K_FP64,
                                   t->ndim && t->dim[0].kind == RLKI_TOKENS};
    if (spans)
        c->w->x->observe->tensor(c->w->x->observe->self, &c->event, &o);
    else
        c->unannounced++;
    if (joined != few)
        free(joined);
}

static void announce(struct rlki_call *c, const struct rlki_tensor *t, int n, bool output)
{
    const struct rlk_observe *o = c->w->x->observe;
    for (int i = 0; i < c->w->held; i++) {
        c->event.rank = c->w->rank[i];
        c->event.tp = rlki_tp(c, i);
        c->event.cp = rlki_cp(c, i);
        if (!output)
            o->begin(o->self, &c->event);
        uint32_t index = 0;
        for (int k = 0; k < n; k++)
            if (t[k].output == output && t[k].name)
                announce_one(c, i, &t[k], index++);
        if (output)
            o->end(o->self, &c->event);
    }
}

static int fits(struct rlki_call *c, struct rlk_world *w, const struct rlk_batch *b, const char *op)
{
    *c = (struct rlki_call){.w = w, .batch = b, .mark = w->x->used};
    if (!b || (b->lat.tp == w->lat.tp && b->lat.cp == w->lat.cp))
        return 0;
    return rlk_kfail(&w->x->detail, RLK_K_EINVAL, "%s: the batch was made for tp%dcp%d, the world is tp%dcp%d", op,
                     b->lat.tp, b->lat.cp, w->lat.tp, w->lat.cp);
}

static void start(struct rlki_call *c, enum rlk_impl impl, const char *op, const char *contract, const char *pass,
                  const char *path, const struct rlki_tensor *tensor, int tensors)
{
    struct rlk_exec *x = c->w->x;
    c->provider = impl == RLK_IMPL_PROVIDER;
    c->prims = x->measuring ? &rlki_prims_none : c->provider ? x->provider : x->prims;
    c->observed = x->observe && !x->measuring && !x->silent;
    if (!x->measuring && !x->silent)
        x->calls++;
    c->event = (struct rlk_op_event){
        op, pass, path ? path : "", c->provider ? "provider" : contract, impl, 0, 0, 0, x->calls, 0};
    if (c->observed)
        announce(c, tensor, tensors, false);
    c->control = rlki_control_enter();
}

int rlki_begin(struct rlki_call *c, struct rlk_world *w, const struct rlk_batch *b, enum rlk_module module,
               const char *op, const char *contract, const char *pass, const char *path,
               const struct rlki_tensor *tensor, int tensors)
{
    struct rlk_exec *x = w->x;
    enum rlk_impl impl = RLK_IMPL_CONTRACT;
    int rc = fits(c, w, b, op);
    if (rc)
        return rc;
    if (x->measuring || x->silent)
        impl = rlk_policy_peek(x->policy, module, path ? path : op);
    else if ((rc = rlk_policy_bind(x->policy, module, path ? path : op, contract, &impl, &x->detail)))
        return rc;
    start(c, impl, op, contract, pass, path, tensor, tensors);
    return 0;
}

int rlki_begin_copy(struct rlki_call *c, struct rlk_world *w, const struct rlk_batch *b, const char *op,
                    const char *contract, const char *path, const struct rlki_tensor *tensor, int tensors)
{
    const int rc = fits(c, w, b, op);
    if (!rc)
        start(c, RLK_IMPL_CONTRACT, op, contract, "fwd", path, tensor, tensors);
    return rc;
}

int rlki_end(struct rlki_call *c, int rc, const struct rlki_tensor *tensor, int tensors)
{
    c->w->x->used = c->mark;
    rlki_control_leave(c->control);
    if (c->observed && !rc)
        announce(c, tensor, tensors, true);
    if (c->unannounced && !rc)
        rc = rlk_kfail(&c->w->x->detail, RLK_K_ENOMEM, "%s: out of memory for the placement of a tensor", c->event.op);
    return rc;
}

static int members(const struct rlki_call *c, enum rlk_group g)
{
    return g == RLK_GROUP_TP ? c->w->lat.tp : c->w->lat.cp;
}

static int own(const struct rlki_call *c, enum rlk_group g, int i)
{
    return g == RLK_GROUP_TP ? rlki_tp(c, i) : rlki_cp(c, i);
}

int rlki_tree(struct rlki_call *c, int64_t n, int count, float *const *leaf, float scale, void *out,
              enum rlk_ktype type, bool accumulate)
{
    struct rlki_reduce r = {.n = n,
                            .count = count,
                            .node = c->w->x->node,
                            .scale = scale,
                            .out = out,
                            .out_type = type,
                            .accumulate = accumulate};
    for (int k = 0; k < count; k++)
        r.in[k] = leaf[k];
    return n ? c->prims->reduce(c->w->x, &r) : 0;
}

static int exchange(struct rlki_call *c, enum rlk_group g, const struct rlk_exchange *ex, bool gather)
{
    struct rlk_world *w = c->w;
    if (w->x->measuring)
        return 0;
    if (members(c, g) > 1)
        c->event.groups |= 1u << g;
    return (gather ? w->net->all_gather : w->net->all_to_all)(w->net->self, w->x, &w->lat, g, w->held, w->rank, ex);
}

int rlki_all_gather(struct rlki_call *c, enum rlk_group g, const size_t (*n)[RLK_SLABS], const void *const *in,
                    void *const *out)
{
    struct rlk_exchange ex[RLK_SLABS * RLK_SLABS];
    for (int i = 0; i < c->w->held; i++) {
        ex[i] = (struct rlk_exchange){.send = in[i], .recv = out[i]};
        ex[i].send_bytes[0] = n[i][own(c, g, i)];
        memcpy(ex[i].recv_bytes, n[i], sizeof n[i]);
    }
    return exchange(c, g, ex, true);
}

static int64_t piece(int64_t n, int parts, int j)
{
    const int64_t each = (n + parts - 1) / parts;
    const int64_t from = j * each < n ? j * each : n, to = (j + 1) * each < n ? (j + 1) * each : n;
    return to - from;
}

int rlki_all_reduce(struct rlki_call *c, enum rlk_group g, const int64_t *n, float *const *part, float scale,
                    void *const *out, enum rlk_ktype type, bool accumulate)
{
    struct rlk_exec *x = c->w->x;
    const int R = members(c, g);
    const size_t mark = x->used, esize = rlk_ktype_bytes(type);
    struct rlk_exchange ex[RLK_SLABS * RLK_SLABS];
    char *mine[RLK_SLABS * RLK_SLABS], *all[RLK_SLABS * RLK_SLABS];
    int rc = 0;
    if (R == 1) {
        for (int i = 0; !rc && i < c->w->held; i++)
            rc = rlki_tree(c, n[i], 1, &part[i], scale, out[i], type, accumulate);
        return rc;
    }
    for (int i = 0; i < c->w->held; i++) {
        const int64_t m = piece(n[i], R, own(c, g, i));
        float *recv = rlki_take(x, (size_t)R * (size_t)m * sizeof(float));
        mine[i] = rlki_take(x, (size_t)m * esize);
        all[i] = accumulate ? rlki_take(x, (size_t)n[i] * esize) : out[i];
        if (!recv || !mine[i] || (accumulate && !all[i]))
            return RLK_K_ENOMEM;
        ex[i] = (struct rlk_exchange){.send = part[i], .recv = recv};
        for (int j = 0; j < R; j++) {
            ex[i].send_bytes[j] = (size_t)piece(n[i], R, j) * sizeof(float);
            ex[i].recv_bytes[j] = (size_t)m * sizeof(float);
        }
    }
    rc = exchange(c, g, ex, false);
    for (int i = 0; !rc && i < c->w->held; i++) {
        const int64_t m = piece(n[i], R, own(c, g, i));
        float *leaf[RLK_SLABS];
        for (int j = 0; j < R; j++)
            leaf[j] = (float *)ex[i].recv + j * m;
        rc = rlki_tree(c, m, R, leaf, scale, mine[i], type, false);
    }
    for (int i = 0; i < c->w->held; i++) {
        ex[i].send = mine[i];
        ex[i].recv = all[i];
        for (int j = 0; j < R; j++)
            ex[i].recv_bytes[j] = (size_t)piece(n[i], R, j) * esize;
        ex[i].send_bytes[0] = ex[i].recv_bytes[own(c, g, i)];
    }
    if (!rc)
        rc = exchange(c, g, ex, true);
    for (int i = 0; accumulate && !rc && i < c->w->held; i++) {
        float *sum = (float *)(void *)all[i];
        rc = rlki_tree(c, n[i], 1, &sum, 1.0f, out[i], RLK_K_FP32, true);
    }
    x->used = mark;
    return rc;
}

int rlki_gather_tokens(struct rlki_call *c, size_t bytes, const void *const *in, void *const *out)
{
    struct rlk_exec *x = c->w->x;
    const size_t mark = x->used;
    size_t n[RLK_SLABS * RLK_SLABS][RLK_SLABS];
    void *recv[RLK_SLABS * RLK_SLABS];
    for (int i = 0; i < c->w->held; i++) {
        for (int j = 0; j < RLK_SLABS; j++)
            n[i][j] = (size_t)c->batch->part[j].n * bytes;
        recv[i] = rlki_take(x, (size_t)c->batch->tokens * bytes);
        if (!recv[i])
            return RLK_K_ENOMEM;
    }
    int rc = rlki_all_gather(c, RLK_GROUP_CP, (const size_t(*)[RLK_SLABS])n, in, recv);
    for (int i = 0; !rc && i < c->w->held; i++) {
        const char *from = recv[i];
        for (int cp = 0; !rc && cp < c->w->lat.cp; cp++) {
            const struct rlki_part *p = &c->batch->part[cp];
            const struct rlki_rows r = {p->n, bytes, p->d_map, from, out[i], bytes, bytes, true};
            rc = p->n ? c->prims->rows(x, &r) : 0;
            from += (size_t)p->n * bytes;
        }
    }
    x->used = mark;
    return rc;
}

int rlki_reduce_tokens(struct rlki_call *c, int64_t width, float *const *part, float scale, void *const *out,
                       enum rlk_ktype type)
{
    struct rlk_exec *x = c->w->x;
    const int C = c->w->lat.cp;
    const size_t mark = x->used, row = (size_t)width * sizeof(float);
    struct rlk_exchange ex[RLK_SLABS * RLK_SLABS];
    int rc = 0;
    for (int i = 0; !rc && i < c->w->held; i++) {
        char *send = rlki_take(x, (size_t)c->batch->tokens * row);
        void *recv = rlki_take(x, (size_t)C * (size_t)rlki_local(c, i) * row);
        if (!send || !recv)
            return RLK_K_ENOMEM;
        ex[i] = (struct rlk_exchange){.send = send, .recv = recv};
        for (int j = 0; !rc && j < C; j++) {
            const struct rlki_part *p = &c->batch->part[j];
            const struct rlki_rows r = {p->n, row, p->d_map, part[i], send, row, row, false};
            rc = p->n ? c->prims->rows(x, &r) : 0;
            ex[i].send_bytes[j] = (size_t)p->n * row;
            ex[i].recv_bytes[j] = (size_t)rlki_local(c, i) * row;
            send += ex[i].send_bytes[j];
        }
    }
    if (!rc)
        rc = exchange(c, RLK_GROUP_CP, ex, false);
    for (int i = 0; !rc && i < c->w->held; i++) {
        const int64_t m = rlki_local(c, i) * width;
        float *leaf[RLK_SLABS];
        for (int j = 0; j < C; j++)
            leaf[j] = (float *)ex[i].recv + j * m;
        rc = rlki_tree(c, m, C, leaf, scale, out[i], type, false);
    }
    x->used = mark;
    return rc;
}
