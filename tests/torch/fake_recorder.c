/* fake_recorder.c - a recorder that writes what the tap is told as text, one line an event: what the adapter's tests
 * read where they look at the calls themselves and not at a recording. RLKREC_RECORDING is the file. Not fast, not
 * complete.
 *
 * step|phase|work|pass|module|call|kind|op|attrs|in name:dtype:shape:hash:ref|new|STALE ...|out ...
 *
 * ref: the recorder would refer to the storage's last recorded write. STALE: and the bytes are other ones: a wrong
 * reference.
 */
#include "recorder/cupti/guest.h"
#include "recorder/rlk_tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rlk_tap_ctx {
    int64_t step, work;
    char phase[64], pass[16], module[256], sample[64];
    uint32_t call;
};

struct rlk_tap_op {
    struct rlk_tap_ctx at; /* as it was at the beginning */
    const char *kind;
    char op[128];
    char *attrs, *in, *out;
    size_t nattrs, nin, nout;
    FILE *fattrs, *fin, *fout;
    uint64_t number;
};

static FILE *file;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t generations, ops;

static void line(const char *format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static void line(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&lock);
    if (!file || owner != getpid()) {
        char name[4096];
        const char *base = getenv("RLKREC_RECORDING"), *rank = getenv("RANK");
        owner = getpid();
        snprintf(name, sizeof name, "%s.rank-%s.pid-%ld", base, rank ? rank : "0", (long)owner);
        file = fopen(name, "w");
    }
    if (file) {
        vfprintf(file, format, list);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
    va_end(list);
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static struct rlk_tap_ctx *ctx(uint32_t rank)
{
    (void)rank;
    static _Thread_local struct rlk_tap_ctx *mine;
    if (!mine)
        mine = calloc(1, sizeof *mine);
    return mine;
}

static uint64_t generation(void)
{
    return __atomic_add_fetch(&generations, 1, __ATOMIC_RELAXED);
}

static void storage_gone(uint64_t g);

static void step(struct rlk_tap_ctx *c, int64_t n)
{
    if (c)
        c->step = n;
}

static void phase(struct rlk_tap_ctx *c, const char *text)
{
    if (c)
        copy(c->phase, sizeof c->phase, text);
}

static void work(struct rlk_tap_ctx *c, int64_t n, int64_t iteration)
{
    (void)iteration;
    if (c)
        c->work = n;
}

static void pass(struct rlk_tap_ctx *c, const char *text)
{
    if (c)
        copy(c->pass, sizeof c->pass, text);
}

static void sample(struct rlk_tap_ctx *c, const char *text)
{
    if (c)
        copy(c->sample, sizeof c->sample, text);
}

static void module_begin(struct rlk_tap_ctx *c, const char *path)
{
    (void)c;
    (void)path;
}

static void module_end(struct rlk_tap_ctx *c)
{
    (void)c;
}

static void module_at(struct rlk_tap_ctx *c, const char *path, const char *text, uint32_t call)
{
    if (!c)
        return;
    copy(c->module, sizeof c->module, path);
    copy(c->pass, sizeof c->pass, text);
    c->call = call;
}

static void autotune(struct rlk_tap_ctx *c, bool inside)
{
    (void)c;
    (void)inside;
}

static struct rlk_tap_op *begin(struct rlk_tap_ctx *c, const char *kind, const char *op)
{
    if (!c)
        return NULL;
    struct rlk_tap_op *o = calloc(1, sizeof *o);
    o->at = *c;
    o->kind = kind;
    o->number = __atomic_add_fetch(&ops, 1, __ATOMIC_RELAXED);
    copy(o->op, sizeof o->op, op);
    o->fattrs = open_memstream(&o->attrs, &o->nattrs);
    o->fin = open_memstream(&o->in, &o->nin);
    o->fout = open_memstream(&o->out, &o->nout);
    return o;
}

static struct rlk_tap_op *op_begin(struct rlk_tap_ctx *c, const char *op, const char *contract)
{
    (void)contract;
    return begin(c, "op", op);
}

static struct rlk_tap_op *collective_begin(struct rlk_tap_ctx *c, const char *function, const char *group)
{
    (void)group;
    return begin(c, "collective", function);
}

static struct rlk_tap_op *copy_begin(struct rlk_tap_ctx *c, const char *direction)
{
    return begin(c, "copy", direction);
}

static struct rlk_tap_op *weights_begin(struct rlk_tap_ctx *c, const char *version, const char *side)
{
    (void)side;
    return begin(c, "weights", version);
}

static void op_detail(struct rlk_tap_op *o, const struct rlk_event *e)
{
    if (!o || e->kind != RLK_EV_COLLECTIVE)
        return;
    fprintf(o->fattrs, "group=%s;ranks=", e->u.collective.group);
    for (uint32_t i = 0; i < e->u.collective.nranks; i++)
        fprintf(o->fattrs, "%s%u", i ? "," : "", e->u.collective.ranks[i]);
    fputc(';', o->fattrs);
}

static void op_attr(struct rlk_tap_op *o, const struct rlk_attr *a)
{
    if (!o)
        return;
    if (a->type == RLK_ATTR_INT)
        fprintf(o->fattrs, "%s=%" PRId64 ";", a->key, a->i);
    else if (a->type == RLK_ATTR_DOUBLE)
        fprintf(o->fattrs, "%s=%.17g;", a->key, a->d);
    else
        fprintf(o->fattrs, "%s=%s;", a->key, a->s);
}

static void op_stream(struct rlk_tap_op *o, uint64_t stream)
{
    (void)o;
    (void)stream;
}

/* What each storage held when an operator that was recorded wrote it last: a reference to that is checked byte by byte.
 */
#define TABLE 65536u
static struct stored {
    uint64_t generation, version, op, bytes;
    uint8_t *copy, *known; /* the storage then; 1 for each byte that the operator's outputs cover */
} table[TABLE];
static struct stored *stored(uint64_t g)
{
    uint64_t i = g % TABLE;
    for (uint64_t n = 0; n < TABLE && table[i].generation && table[i].generation != g; n++)
        i = (i + 1) % TABLE;
    return &table[i];
}

static void forget(struct stored *s)
{
    free(s->copy);
    free(s->known);
    s->copy = s->known = NULL;
    s->bytes = s->version = 0;
}

static void storage_gone(uint64_t g)
{
    pthread_mutex_lock(&table_lock);
    struct stored *s = stored(g);
    if (s->generation == g)
        forget(s);
    pthread_mutex_unlock(&table_lock);
}

struct seen {
    uint64_t hash;
    bool inside, covered, same;
};

/* Walks the elements in logical order: FNV-1a, and against (or into) what is stored of the storage. */
static struct seen walk(const struct rlk_view *v, struct stored *s, bool store)
{
    static const size_t sizes[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1};
    struct seen r = {UINT64_C(0xcbf29ce484222325), true, s && s->copy, true};
    size_t size = sizes[v->dtype];
    uint64_t n = 1;
    int64_t strides[RLK_MAX_DIMS];
    for (uint32_t d = v->ndim; d-- > 0;) {
        strides[d] = v->strides ? v->strides[d] : (int64_t)n;
        n *= v->shape[d];
    }
    for (uint64_t k = 0; k < n && r.inside; k++) {
        uint64_t rest = k, at = v->offset;
        for (uint32_t d = v->ndim; d-- > 0;) {
            at += (uint64_t)((int64_t)(rest % v->shape[d]) * strides[d]);
            rest /= v->shape[d];
        }
        r.inside = (at + 1) * size <= v->storage_bytes;
        for (size_t b = at * size; r.inside && b < (at + 1) * size; b++) {
            uint8_t byte = ((const uint8_t *)v->storage)[b];
            r.hash = (r.hash ^ byte) * UINT64_C(0x100000001b3);
            if (store && s->copy && b < s->bytes)
                s->known[b] = 1;
            r.covered = r.covered && b < s->bytes && s->known[b];
            r.same = r.same && r.covered && s->copy[b] == byte;
        }
    }
    return r;
}

/* An output: what its storage holds now is known, as far as this operator's outputs cover it. */
static void remember(const struct rlk_tap_tensor *t, uint64_t op)
{
    struct stored *s = stored(t->generation);
    if (s->generation && s->version == t->version && s->op == op && s->bytes == t->view.storage_bytes) {
        walk(&t->view, s, true);
        return;
    }
    forget(s);
    s->generation = t->generation;
    s->version = t->version;
    s->op = op;
    s->bytes = t->view.storage_bytes;
    s->copy = malloc(s->bytes + 1);
    s->known = calloc(1, s->bytes + 1);
    if (s->bytes)
        memcpy(s->copy, t->view.storage, s->bytes);
    walk(&t->view, s, true);
}

static void tensor(struct rlk_tap_op *o, FILE *f, const struct rlk_tap_tensor *t, bool out)
{
    fprintf(f, " %s:%d:", t->name, (int)t->view.dtype);
    for (uint32_t d = 0; d < t->view.ndim; d++)
        fprintf(f, "%s%" PRIu64, d ? "x" : "", t->view.shape[d]);
    pthread_mutex_lock(&table_lock);
    struct stored *s = t->generation ? stored(t->generation) : NULL;
    bool known = s && s->generation && s->copy && s->version == t->version && !t->always_digest && !out;
    if (t->state != RLK_T_DIGESTED) {
        fprintf(f, ":!%s", t->reason);
        if (out && s && s->generation)
            forget(s);
    } else {
        struct seen r = walk(&t->view, known ? s : NULL, false);
        if (r.inside)
            fprintf(f, ":%016" PRIx64, r.hash);
        else
            fprintf(f, ":!outside");
        fputs(known && r.covered ? r.same ? ":ref" : ":STALE" : ":new", f);
        if (out && s)
            remember(t, o->number);
    }
    pthread_mutex_unlock(&table_lock);
}

static void op_in(struct rlk_tap_op *o, const struct rlk_tap_tensor *t)
{
    if (o)
        tensor(o, o->fin, t, false);
}

static void op_out(struct rlk_tap_op *o, const struct rlk_tap_tensor *t)
{
    if (o)
        tensor(o, o->fout, t, true);
}

static void op_close(struct rlk_tap_op *o, bool keep)
{
    if (!o)
        return;
    fclose(o->fattrs);
    fclose(o->fin);
    fclose(o->fout);
    if (keep)
        line("%" PRId64 "|%s|%" PRId64 "|%s|%s|%u|%s|%s|%s|%s|%s\n", o->at.step, o->at.phase, o->at.work, o->at.pass,
             o->at.module, o->at.call, o->kind, o->op, o->attrs, o->in, o->out);
    free(o->attrs);
    free(o->in);
    free(o->out);
    free(o);
}

static void op_end(struct rlk_tap_op *o)
{
    op_close(o, true);
}

static void op_run(struct rlk_tap_op *o)
{
    (void)o;
}

static void op_cancel(struct rlk_tap_op *o)
{
    op_close(o, false);
}

static void event(struct rlk_tap_ctx *c, const struct rlk_event *e)
{
    if (c && e->kind == RLK_EV_RNG)
        line("%" PRId64 "|%s|%" PRId64 "|%s|%s|%u|rng|%s|seed=%" PRIu64 ";offset=%016" PRIx64 ";||\n", c->step,
             c->phase, c->work, c->pass, c->module, c->call, e->u.rng.generator, e->u.rng.seed, e->u.rng.offset);
}

static void metric(struct rlk_tap_ctx *c, const char *name, double value)
{
    if (c)
        line("%" PRId64 "|%s|%" PRId64 "|%s|%s|%u|metric|%s|value=%.17g;||\n", c->step, c->phase, c->work, c->pass,
             c->module, c->call, name, value);
}

static void readback(struct rlk_tap_ctx *c, const char *module, const char *case_id, const char *implementation,
                     const char *contract, uint64_t calls)
{
    (void)c, (void)module, (void)case_id, (void)implementation, (void)contract, (void)calls;
}

static void leaf(struct rlk_tap_ctx *c, const struct rlk_tap_tensor *t, const char *reference, const char *sha256,
                 const char *generator, uint64_t seed)
{
    (void)c, (void)t, (void)reference, (void)sha256, (void)generator, (void)seed;
}

static void meta(const char *key, const char *value)
{
    line("#meta %s %s\n", key, value);
}

static void fault(const char *code, const char *text)
{
    line("#fault %s %s\n", code, text);
    fprintf(stderr, "rlkrec: %s: %s\n", code, text);
}

static void flush(void)
{
    line("#flush\n");
}

static void finish(void)
{
    line("#finish\n");
}

/* FAKE_LAUNCHES: how many were not recorded so far, as the program says; without it nobody counts. */
static uint64_t unseen_launches(void)
{
    const char *how = getenv("FAKE_LAUNCHES");
    return how ? strtoull(how, NULL, 10) : UINT64_MAX;
}

/* CUPTI's callbacks, asked for by somebody else in the process: as if the launch plane held the place. */
static bool guest_subscribe(void **handle, rlk_guest_callback callback, void *userdata, int *result)
{
    (void)userdata;
    *handle = &file;
    *result = callback ? 0 : 1;
    line("#guest subscribes\n");
    return true;
}

static bool guest_enable(uint32_t enable, void *handle, int domain, uint32_t cbid, int *result)
{
    *result = handle == &file ? 0 : 1;
    line("#guest enables %u: %d %u\n", enable, domain, cbid);
    return true;
}

__attribute__((visibility("default"))) const struct rlk_cupti_guest_api rlk_cupti_guest;
const struct rlk_cupti_guest_api rlk_cupti_guest = {.subscribe = guest_subscribe, .enable_callback = guest_enable};

__attribute__((visibility("default"))) const struct rlk_tap_api *rlk_tap_table(uint32_t abi);
const struct rlk_tap_api *rlk_tap_table(uint32_t abi)
{
    static struct rlk_tap_api api = {
        .abi = RLK_TAP_ABI,
        .level = RLK_TAP_OP,
        .ctx = ctx,
        .generation = generation,
        .storage_written = storage_gone,
        .storage_free = storage_gone,
        .step = step,
        .phase = phase,
        .work = work,
        .pass = pass,
        .sample = sample,
        .module_begin = module_begin,
        .module_end = module_end,
        .module_at = module_at,
        .autotune = autotune,
        .op_begin = op_begin,
        .collective_begin = collective_begin,
        .copy_begin = copy_begin,
        .weights_begin = weights_begin,
        .op_detail = op_detail,
        .op_attr = op_attr,
        .op_stream = op_stream,
        .op_in = op_in,
        .op_out = op_out,
        .op_end = op_end,
        .op_cancel = op_cancel,
        .event = event,
        .metric = metric,
        .readback = readback,
        .leaf = leaf,
        .meta = meta,
        .fault = fault,
        .flush = flush,
        .finish = finish,
        .op_run = op_run,
        .unseen_launches = unseen_launches,
    };
    static const char *const names[] = {"off", "launch", "step", "module", "op", "buffer"};
    const char *level = getenv("RLKREC_LEVEL");
    for (int i = 0; level && i < 6; i++)
        if (!strcmp(level, names[i]))
            api.level = (enum rlk_tap_level)i;
    return abi == RLK_TAP_ABI ? &api : NULL;
}
