/* producer.c - of a root that is an input: what each side read there, and who wrote it. */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_shape(const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* A reference is what its producer wrote. A digest shows it where the whole output was read; a buffer that was written
 * piece by piece is not the output of its last writer. */
static enum rlki_tri kept(const struct rlk_tensor *read, const struct rlk_tensor *written)
{
    if (read->state == RLK_T_REFERENCE)
        return RLKI_YES;
    if (!written || written->state != RLK_T_DIGESTED || read->state != RLK_T_DIGESTED ||
        read->dtype != written->dtype || !same_shape(read, written))
        return RLKI_MAYBE;
    return rlk_sums_same_bits(&read->sums, &written->sums) ? RLKI_YES : RLKI_NO;
}

static int producer_of(struct rlki_facts *f, int side)
{
    struct rlki_audit *audit = f->audit;
    const struct rlki_ev *ev = &f->ev[side];
    const struct rlk_tensor *t = f->t[side];
    struct rlki_producer *out = &f->producer[side];
    struct rlki_value value;
    struct rlki_ev producer;
    bool unsure = false;
    if (!t)
        return RLK_OK;
    int rc = rlki_value_of(audit, side, &ev->e, ev->env, t, &value);
    if (rc == RLK_OK)
        rc = rlki_value_producer(audit, side, &ev->e, ev->env, t, &value, &unsure);
    if (rc || !value.has_producer)
        return rc;
    rc = rlki_ev_load(audit, side, value.env, value.producer, &f->arena, &producer);
    if (rc)
        return rc == RLK_ENOENT ? RLK_OK : rc;
    *out = (struct rlki_producer){
        .has = true,
        .by_name = !t->alloc && t->state != RLK_T_REFERENCE,
        .kept = kept(t, rlki_ev_tensor(&producer, RLK_ROLE_OUT, value.output)),
        .env = value.env,
        .output = value.output,
        .seq = value.producer,
        .stream = producer.e.stream,
        .identity = rlki_ev_identity(audit, &producer),
        .view = value.view,
        .kind = producer.e.kind,
        .lone = rlki_side_marked(&audit->side[side], value.env, value.producer, value.output) == RLKI_MARK_LONE};
    if (producer.e.kind == RLK_EV_COLLECTIVE)
        out->nmembers = producer.e.u.collective.nmembers;
    snprintf(out->text, sizeof out->text, "%c #%llu %.80s output %u", side ? 'B' : 'A',
             (unsigned long long)value.producer, producer.e.who.op, value.output);
    return RLK_OK;
}

int rlki_facts_producers(struct rlki_facts *f)
{
    int rc = producer_of(f, 0);
    return rc == RLK_OK ? producer_of(f, 1) : rc;
}

/* ---- what the buffer held before ---- */

#define OLDER 8u                      /* tensors looked back at */
#define ORDER_MAX (UINT64_C(1) << 16) /* events looked back at */

static bool equal_where_changed(const struct rlki_facts *f, int side, const unsigned char *older)
{
    const struct rlki_change *c = &f->change;
    size_t size = rlk_dtype_bytes(f->t[0]->dtype);
    for (uint64_t i = 0; i < c->elements; i++)
        if (rlki_element_changed(f, i) && memcmp(c->data[side] + i * size, older + i * size, size) != 0)
            return false;
    return c->changed > 0;
}

/* Tensors of one buffer, written or read before: the last ones found. */
struct earlier {
    uint64_t alloc;
    const char *name; /* without alloc */
    uint32_t rank;
    uint64_t seq[OLDER];
    uint32_t place[OLDER], n;
};

static int earlier_event(void *context, const struct rlk_event *e)
{
    struct earlier *x = context;
    if (e->rank != x->rank)
        return 0;
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        if (x->alloc ? t->alloc != x->alloc : !rlki_same_text(t->name, x->name))
            continue;
        x->seq[x->n % OLDER] = e->seq;
        x->place[x->n++ % OLDER] = i;
    }
    return 0;
}

/* Is that tensor what was read here? Whole, by its digest; in the changed part, by its bytes. */
static int held(struct rlki_facts *f, int side, uint64_t seq, uint32_t place, char *text, size_t room)
{
    const struct rlk_tensor *t = f->t[side];
    const char letter = side ? 'B' : 'A';
    struct rlk_arena arena = {0};
    struct rlki_value value;
    struct rlki_ev ev;
    void *bytes = NULL;
    uint64_t n;
    int rc = rlki_ev_load(f->audit, side, f->ev[side].env, seq, &arena, &ev);
    const struct rlk_tensor *w = rc == RLK_OK && place < ev.e.ntensors ? &ev.e.tensors[place] : NULL;
    if (w && w->dtype == t->dtype && same_shape(w, t)) {
        rc = rlki_value_of(f->audit, side, &ev.e, ev.env, w, &value);
        if (rc == RLK_OK && value.known && t->state == RLK_T_DIGESTED && rlk_sums_same_bits(&value.sums, &t->sums))
            snprintf(text, room, "it is stale: what the buffer held before, %c #%llu %.60s of step %lld", letter,
                     (unsigned long long)seq, ev.e.who.op, (long long)ev.e.who.step);
        else if (rc == RLK_OK && f->change.bytes)
            rc = rlki_bytes_of(f->audit, side, &ev, w, &bytes, &n);
        if (rc == RLK_OK && bytes && n == f->change.elements && equal_where_changed(f, side, bytes))
            snprintf(text, room,
                     "elements %llu to %llu are stale: what the buffer held before, %c #%llu %.60s of step %lld",
                     (unsigned long long)f->change.first_flat, (unsigned long long)f->change.last_flat, letter,
                     (unsigned long long)seq, ev.e.who.op, (long long)ev.e.who.step);
        free(bytes);
    }
    rlk_arena_release(&arena);
    return rc == RLK_ENOENT ? RLK_OK : rc;
}

int rlki_older_content(struct rlki_facts *f, int side, char *text, size_t room)
{
    const struct rlki_producer *p = &f->producer[side];
    const struct rlk_tensor *t = f->t[side];
    struct earlier x = {.alloc = t->alloc, .name = t->name, .rank = f->ev[side].e.rank};
    *text = '\0';
    if (!p->has || (!t->alloc && !*t->name))
        return RLK_OK;
    int rc = rlki_look_around(f, side, p->env, p->seq > ORDER_MAX ? p->seq - ORDER_MAX : 0, p->seq, earlier_event, &x);
    for (uint32_t i = 0; i < OLDER && i < x.n && !*text && rc == RLK_OK; i++) {
        uint32_t at = (x.n - 1 - i) % OLDER; /* the newest first */
        rc = held(f, side, x.seq[at], x.place[at], text, room);
    }
    return rc;
}

/* ---- streams ---- */

struct order {
    uint32_t rank;
    uint64_t from, to;
    bool ordered, gone_through; /* ..._through: the last event between the two was seen */
    uint64_t last;
    uint64_t recorded[64]; /* events recorded on `from` since */
    uint32_t n;
};

static int sync_event(void *context, const struct rlk_event *e)
{
    struct order *order = context;
    order->gone_through |= e->seq >= order->last;
    if (e->kind != RLK_EV_SYNC || e->rank != order->rank)
        return 0;
    const char *what = e->u.sync.what;
    if (rlki_same_text(what, "device") || (rlki_same_text(what, "stream") && e->stream == order->from))
        order->ordered = true;
    if (rlki_same_text(what, "record") && e->stream == order->from && order->n < 64)
        order->recorded[order->n++] = e->u.sync.event;
    for (uint32_t i = 0; i < order->n && rlki_same_text(what, "wait") && e->stream == order->to; i++)
        order->ordered |= order->recorded[i] == e->u.sync.event;
    return 0;
}

int rlki_stream_order(struct rlki_facts *f, int side, enum rlki_tri *out)
{
    const struct rlki_producer *p = &f->producer[side];
    const struct rlki_ev *ev = &f->ev[side];
    struct order order = {.rank = ev->e.rank, .from = p->stream, .to = ev->e.stream, .last = ev->e.seq};
    *out = RLKI_MAYBE;
    if (!p->has || p->env != ev->env || p->stream == ev->e.stream || ev->e.seq - p->seq > ORDER_MAX)
        return RLK_OK;
    int rc = rlki_look_around(f, side, ev->env, p->seq + 1, ev->e.seq + 1, sync_event, &order);
    if (rc == RLK_OK)
        *out = order.ordered ? RLKI_YES : order.gone_through ? RLKI_NO : RLKI_MAYBE;
    return rc;
}
