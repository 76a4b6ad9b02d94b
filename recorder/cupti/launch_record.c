#include "recorder/cupti/launch_plane.h"

#include "recorder/cupti/graphs.h"
#include "recorder/rec.h"

#include <stdlib.h>
#include <string.h>

/* ---- counts: a line a thread would be kinder to the caches, but a launch costs microseconds and this nanoseconds */
static uint64_t counts[RLKI_FATES];

void rlki_count_launches(enum rlki_launch_fate fate, uint64_t n)
{
    __atomic_fetch_add(&counts[fate], n, __ATOMIC_RELAXED);
}

void rlki_launch_counts(struct rlki_launch_counts *out)
{
    uint64_t c[RLKI_FATES];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < RLKI_FATES; i++) {
        c[i] = __atomic_load_n(&counts[i], __ATOMIC_RELAXED);
        out->seen += c[i];
    }
    out->recorded = c[RLKI_FATE_RECORDED];
    out->own = c[RLKI_FATE_OWN];
    out->failed = c[RLKI_FATE_FAILED];
    out->captured = c[RLKI_FATE_CAPTURED];
    out->skipped = c[RLKI_FATE_SKIPPED];
    out->dropped = c[RLKI_FATE_DROPPED];
}

/* ---- the calling thread's launches */
struct log {
    struct rlk_range *range;
    uint32_t n, room;
    uint32_t open; /* marks not ended */
};
static __thread struct log launches;
static uint64_t unseen; /* atomic */

void rlki_launch_made(void)
{
    if (!launches.open)
        __atomic_fetch_add(&unseen, 1, __ATOMIC_RELAXED);
}

uint64_t rlki_launches_unseen(void)
{
    return __atomic_load_n(&unseen, __ATOMIC_RELAXED);
}

static void log_launch(uint64_t seq)
{
    struct log *l = &launches;
    if (!l->open)
        return;
    if (l->n && l->range[l->n - 1].first + l->range[l->n - 1].count == seq) {
        l->range[l->n - 1].count++;
        return;
    }
    if (l->n == l->room) {
        const uint32_t more = l->room ? 2 * l->room : 64;
        struct rlk_range *r = more > l->room ? realloc(l->range, more * sizeof *r) : NULL;
        if (!r)
            return; /* the operator names fewer kernels; the launch itself is recorded */
        l->range = r;
        l->room = more;
    }
    l->range[l->n++] = (struct rlk_range){seq, 1};
}

uint64_t rlki_launches_begin(void)
{
    struct log *l = &launches;
    if (l->open++ == 0)
        l->n = 0;
    /* a mark in the middle of a range: close it, so that the next launch opens one */
    if (l->n && l->n < l->room)
        l->range[l->n++] = (struct rlk_range){UINT64_MAX, 0};
    return l->n;
}

const struct rlk_range *rlki_launches_end(uint64_t mark, uint32_t *n)
{
    struct log *l = &launches;
    if (l->open)
        l->open--;
    uint32_t kept = (uint32_t)mark;
    for (uint32_t i = (uint32_t)mark; i < l->n; i++)
        if (l->range[i].count)
            l->range[kept++] = l->range[i];
    if (mark <= l->n)
        l->n = kept;
    *n = kept - (uint32_t)mark;
    return l->range ? l->range + mark : NULL;
}

/* ---- streams */
#define MAX_STREAMS 4096
static const void *streams[MAX_STREAMS];
static uint64_t nstreams;

uint64_t rlki_stream_number(const void *stream)
{
    static __thread const void *last;
    static __thread uint64_t last_number;
    if (!stream || stream == (const void *)1)
        return 0;
    if (stream == (const void *)2)
        return 1;
    if (stream == last)
        return last_number;
    uint64_t i = 0;
    for (;; i++) {
        const uint64_t n = __atomic_load_n(&nstreams, __ATOMIC_ACQUIRE);
        while (i < n && i < MAX_STREAMS && __atomic_load_n(&streams[i], __ATOMIC_ACQUIRE) != stream)
            i++;
        if (i < n || i >= MAX_STREAMS)
            break;
        const void *none = NULL;
        if (__atomic_compare_exchange_n(&streams[i], &none, stream, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            uint64_t seen = i; /* only this thread can raise the count past i */
            __atomic_compare_exchange_n(&nstreams, &seen, i + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
            break;
        }
        if (none == stream)
            break;
    }
    last = stream;
    last_number = i + 2;
    return last_number;
}

/* ---- parameter blocks: known ones by the low word of their content id, a small table a thread */
#define KNOWN 16384 /* a training step has thousands of distinct blocks, and the next step has them again */
bool rlki_store_params(const unsigned char *block, size_t bytes, rlk_u128 *id)
{
    static __thread rlk_u128 *known;
    struct rlki_rec *state = rlki_rec_now();
    if (!bytes || !state)
        return false;
    *id = rlk_content_id(block, bytes);
    if (!known)
        known = calloc(KNOWN, sizeof *known);
    if (known && rlk_u128_equal(known[id->lo % KNOWN], *id))
        return true;
    rlk_u128 stored;
    if (rlki_rec_payload(state, block, bytes, &stored) != RLK_OK)
        return false;
    if (known)
        known[id->lo % KNOWN] = *id;
    return true;
}

/* ---- events */
static struct rlki_rank *own_rank(struct rlki_rec *state)
{
    static __thread const struct rlki_rec *of;
    static __thread struct rlki_rank *rank;
    if (of != state) {
        rank = rlki_rec_rank(state, rlki_options.own_rank);
        of = rank ? state : NULL;
    }
    return rank;
}

static int put(struct rlk_event *e, uint64_t *seq, bool lasting)
{
    struct rlki_rec *state = rlki_rec_now();
    if (!state)
        return RLK_ESTATE;
    e->rank = rlki_options.own_rank;
    const struct rlki_rank *rank = own_rank(state);
    if (rank)
        e->who.step = __atomic_load_n(&rank->step, __ATOMIC_RELAXED);
    if (!rlki_options_want_step(&rlki_options, e->who.step))
        return RLK_EUNSUPPORTED;
    return lasting ? rlki_rec_put_launch(state, e, seq) : rlki_rec_put(state, e, seq);
}

static enum rlki_launch_fate fate_of(int err)
{
    return err == RLK_OK ? RLKI_FATE_RECORDED : err == RLK_EUNSUPPORTED ? RLKI_FATE_SKIPPED : RLKI_FATE_DROPPED;
}

enum rlki_launch_fate rlki_record_launch(const char *entry, const struct rlk_launch *launch, uint32_t count)
{
    struct rlk_event e = {.kind = RLK_EV_LAUNCH, .stream = launch->stream, .nlaunches = 1, .launches = launch};
    uint64_t at = 0;
    e.u.launch.entry = entry;
    e.u.launch.count = count;
    const int err = put(&e, &at, true);
    if (err == RLK_OK)
        log_launch(at);
    return fate_of(err);
}

struct replay {
    const char *entry;
    uint64_t stream;
};

static void record_replay(void *context, struct rlki_exec *exec)
{
    const struct replay *r = context;
    if (exec->written != exec->version && exec->nnodes == 0) {
        exec->written = exec->version; /* no kernel in it: the replay alone says so */
        exec->definition = 0;
    } else if (exec->written != exec->version) {
        struct rlk_event d = {.kind = RLK_EV_LAUNCH, .nlaunches = exec->nnodes, .launches = exec->nodes};
        d.u.launch.entry = "graph.definition";
        if (put(&d, &exec->definition, false) == RLK_OK)
            exec->written = exec->version;
    }
    const struct rlk_attr attrs[] = {{.key = "nodes", .type = RLK_ATTR_INT, .i = exec->nnodes},
                                     {.key = "definition", .type = RLK_ATTR_INT, .i = (int64_t)exec->definition}};
    const struct rlk_launch l = {.kernel = "",
                                 .image = "",
                                 .config = "",
                                 .stream = r->stream,
                                 .graph = (int64_t)exec->ordinal,
                                 .node = RLK_NO_NODE};
    struct rlk_event e = {
        .kind = RLK_EV_LAUNCH, .stream = r->stream, .nlaunches = 1, .launches = &l, .nattrs = 2, .attrs = attrs};
    uint64_t seq = 0;
    e.u.launch.entry = r->entry;
    e.u.launch.count = exec->nnodes;
    int err = exec->written == exec->version ? put(&e, &seq, false) : RLK_EFULL;
    if (err == RLK_OK)
        log_launch(seq);
    rlki_count_launches(fate_of(err), exec->nnodes);
}

void rlki_record_replay(const void *exec, const char *entry, uint64_t stream)
{
    struct replay r = {entry, stream};
    if (!rlki_exec_with(exec, record_replay, &r)) {
        /* made before we watched, or by a way that CUPTI does not announce: seen, its kernels unknown */
        rlki_fault("graph-unknown", "a graph was launched whose making was not seen: its kernels are not recorded");
        rlki_count_launches(RLKI_FATE_DROPPED, 1);
    }
}
