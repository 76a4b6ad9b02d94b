/* rlk_scrub_env.c - one environment again, event by event, under the same sequence numbers. Everything that is derived
 * (tables, chunks, chain, roll-ups, END) is made anew, so nothing of the old file is in the new one. */
#include "store/rlk_reader_impl.h"
#include "store/rlk_scrub_impl.h"
#include "store/rlk_writer_impl.h"

#include <stdio.h>
#include <sys/stat.h>

struct copy {
    struct rlk_scrub *scrub;
    struct rlk_env *env;
    struct rlki_batch batch;
    struct rlk_arena arena;
    struct rlk_detail *detail;
    bool oom;
};

static const char *text(struct copy *c, enum rlki_role_of_text role, const char *from)
{
    const char *out = rlki_scrub_text(c->scrub, &c->arena, role, from);
    c->oom |= !out;
    return out ? out : "";
}

static const char *name(struct copy *c, const char *from)
{
    return text(c, RLKI_TEXT_NAME, from);
}

static const char *op(struct copy *c, const char *from)
{
    return text(c, RLKI_TEXT_OP, from);
}

static const char *word(struct copy *c, const char *from)
{
    return text(c, RLKI_TEXT_WORD, from);
}

/* n items of `size` bytes in the arena, as they are. */
static void *again(struct copy *c, const void *from, size_t n, size_t size)
{
    void *to = rlk_arena_alloc(&c->arena, n * size + 1, 16);
    c->oom |= !to;
    if (to && n)
        memcpy(to, from, n * size);
    return to;
}

static void attributes(struct copy *c, uint32_t n, const struct rlk_attr **attrs, enum rlki_role_of_text keys)
{
    struct rlk_attr *to = again(c, *attrs, n, sizeof *to);
    for (uint32_t i = 0; to && i < n; i++) {
        to[i].key = text(c, keys, to[i].key);
        if (to[i].type == RLK_ATTR_STRING)
            to[i].s = text(c, RLKI_TEXT_FREE, to[i].s);
    }
    *attrs = to;
}

static void names(struct copy *c, uint32_t n, const char *const **list)
{
    const char **to = again(c, *list, n, sizeof *to);
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = name(c, to[i]);
    *list = to;
}

/* Bytes under a content id, unless they are to stay behind or are not there. */
static int blob(struct copy *c, bool *has, rlk_u128 id)
{
    void *bytes;
    size_t n;
    struct rlk_detail ignored;
    if (!*has)
        return RLK_OK;
    if (c->scrub->what & RLK_SCRUB_VALUES) {
        *has = false;
        return RLK_OK;
    }
    int rc = rlk_env_payload(c->env, id, SIZE_MAX / 4, &bytes, &n, &ignored);
    if (rc == RLK_ENOENT)
        return RLK_OK;
    if (rc) {
        if (c->detail)
            *c->detail = ignored;
        return rc;
    }
    rc = rlki_batch_blob(&c->batch, id, bytes, n);
    free(bytes);
    return rc;
}

static int tensors(struct copy *c, struct rlk_event *e)
{
    struct rlk_tensor *to = again(c, e->tensors, e->ntensors, sizeof *to);
    int rc = RLK_OK;
    for (uint32_t i = 0; to && i < e->ntensors && rc == RLK_OK; i++) {
        struct rlk_tensor *t = &to[i];
        struct rlk_sample_part *samples = again(c, t->samples, t->nsamples, sizeof *samples);
        t->name = name(c, t->name);
        t->reason = word(c, t->reason);
        t->version = name(c, t->version);
        for (uint32_t k = 0; samples && k < t->nsamples; k++)
            samples[k].id = name(c, samples[k].id);
        t->samples = samples;
        if (t->place) {
            struct rlk_place *place = again(c, t->place, 1, sizeof *place);
            if (place) {
                place->partial = place->partial ? name(c, place->partial) : NULL;
                place->replica = place->replica ? name(c, place->replica) : NULL;
                place->zero = place->zero ? name(c, place->zero) : NULL;
            }
            t->place = place;
        }
        rc = blob(c, &t->has_payload, t->payload);
    }
    e->tensors = to;
    return rc;
}

static int launches(struct copy *c, struct rlk_event *e)
{
    struct rlk_launch *to = again(c, e->launches, e->nlaunches, sizeof *to);
    int rc = RLK_OK;
    for (uint32_t i = 0; to && i < e->nlaunches && rc == RLK_OK; i++) {
        to[i].kernel = op(c, to[i].kernel);
        to[i].image = word(c, to[i].image);
        to[i].config = word(c, to[i].config);
        attributes(c, to[i].nattrs, &to[i].attrs, RLKI_TEXT_WORD);
        rc = blob(c, &to[i].has_params, to[i].params);
    }
    e->launches = to;
    return rc;
}

/* The same token has the same number under one key, and which token it is stays behind. */
static void tokens(struct copy *c, struct rlk_event *e)
{
    uint32_t n = e->u.request.ntokens;
    if (!(c->scrub->what & RLK_SCRUB_VALUES))
        return;
    int64_t *to = again(c, e->u.request.tokens, n, sizeof *to);
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = (int64_t)(rlki_scrub_hash(c->scrub, &to[i], sizeof *to) >> 33);
    e->u.request.tokens = to;
}

static void kind(struct copy *c, struct rlk_event *e)
{
    switch (e->kind) {
    case RLK_EV_OP:
        e->u.op.contract = op(c, e->u.op.contract);
        break;
    case RLK_EV_COLLECTIVE:
        e->u.collective.group = name(c, e->u.collective.group);
        e->u.collective.algo = word(c, e->u.collective.algo);
        e->u.collective.proto = word(c, e->u.collective.proto);
        names(c, e->u.collective.nmembers, &e->u.collective.members);
        break;
    case RLK_EV_COPY:
        e->u.copy.direction = word(c, e->u.copy.direction);
        break;
    case RLK_EV_SYNC:
        e->u.sync.what = word(c, e->u.sync.what);
        break;
    case RLK_EV_RNG:
        e->u.rng.generator = word(c, e->u.rng.generator);
        break;
    case RLK_EV_WEIGHTS:
        e->u.weights.version = name(c, e->u.weights.version);
        e->u.weights.side = word(c, e->u.weights.side);
        break;
    case RLK_EV_REQUEST:
        e->u.request.id = name(c, e->u.request.id);
        e->u.request.logprob_kind = word(c, e->u.request.logprob_kind);
        names(c, e->u.request.nversions, &e->u.request.versions);
        tokens(c, e);
        break;
    case RLK_EV_RELAUNCH:
        e->u.relaunch.event = name(c, e->u.relaunch.event);
        break;
    case RLK_EV_READBACK:
        e->u.readback.case_id = name(c, e->u.readback.case_id);
        e->u.readback.implementation = op(c, e->u.readback.implementation);
        e->u.readback.contract = op(c, e->u.readback.contract);
        break;
    case RLK_EV_LEAF:
        e->u.leaf.name = name(c, e->u.leaf.name);
        e->u.leaf.reference = name(c, e->u.leaf.reference);
        e->u.leaf.sha256 = name(c, e->u.leaf.sha256);
        e->u.leaf.generator = word(c, e->u.leaf.generator);
        break;
    case RLK_EV_LAUNCH:
        e->u.launch.entry = op(c, e->u.launch.entry);
        break;
    case RLK_EV_NOTE:
        e->u.note.code = word(c, e->u.note.code);
        e->u.note.text = text(c, RLKI_TEXT_FREE, e->u.note.text);
        break;
    default:
        break;
    }
}

static int event(struct copy *c, struct rlk_event *e)
{
    bool is_op = e->kind == RLK_EV_OP || e->kind == RLK_EV_LAUNCH || e->kind == RLK_EV_READBACK;
    e->id = name(c, e->id);
    e->who.phase = word(c, e->who.phase);
    e->who.pass = word(c, e->who.pass);
    e->who.module = name(c, e->who.module);
    e->who.sample = name(c, e->who.sample);
    e->who.op = is_op ? op(c, e->who.op) : e->kind == RLK_EV_METRIC ? name(c, e->who.op) : word(c, e->who.op);
    /* This note has an attribute for each parameter, under the parameter's name. */
    bool by_name = e->kind == RLK_EV_NOTE && strcmp(e->u.note.code, "weights.sha256") == 0;
    attributes(c, e->nattrs, &e->attrs, by_name ? RLKI_TEXT_NAME : RLKI_TEXT_WORD);
    int rc = tensors(c, e);
    if (rc == RLK_OK)
        rc = launches(c, e);
    kind(c, e);
    return rc == RLK_OK && c->oom ? RLK_ENOMEM : rc;
}

static int events(struct copy *c)
{
    struct rlk_event e;
    int rc = RLK_OK;
    for (uint64_t seq = c->env->state.first_seq; seq < c->env->state.next_seq && rc == RLK_OK; seq++) {
        rlk_arena_reset(&c->arena);
        rc = rlk_env_event(c->env, seq, &c->arena, &e, c->detail);
        if (rc == RLK_ENOENT) { /* of a kind that is not known: what it holds cannot be cleaned */
            rc = rlki_batch_hole(&c->batch, seq);
            continue;
        }
        if (rc == RLK_OK)
            rc = event(c, &e);
        if (rc == RLK_OK)
            rc = rlki_batch_event(&c->batch, &e);
        if (rc == RLK_OK && rlki_batch_bytes(&c->batch) >= RLKI_BATCH_BYTES)
            rc = rlki_batch_commit(&c->batch, false, c->detail);
    }
    return rc;
}

static int fact(void *context, const char *key, const char *value)
{
    struct copy *c = context;
    bool of_the_house = strncmp(key, "lib.", 4) == 0 || strncmp(key, "fault.", 6) == 0 || strcmp(key, "layout") == 0;
    if (strncmp(key, "rlk.", 4) == 0 || (c->scrub->what & RLK_SCRUB_ENVIRONMENT && !of_the_house))
        return 0; /* ours are written by themselves */
    if (strcmp(key, "layout") != 0 && strncmp(key, "lib.", 4) != 0)
        value = text(c, RLKI_TEXT_FREE, value);
    else
        value = text(c, RLKI_TEXT_WORD, value);
    if (c->scrub->what & RLK_SCRUB_PATHS && strpbrk(key, "/\\"))
        return 0;
    return c->oom ? RLK_ENOMEM : rlki_batch_meta(&c->batch, key, strlen(key), value, strlen(value));
}

/* What the new file cannot count from its events. */
static int state(struct copy *c)
{
    const struct rlki_state *from = &c->env->state;
    struct rlk_coverage *cov = &c->batch.state.cov;
    uint32_t nranks;
    const uint32_t *ranks = rlk_env_ranks(c->env, &nranks);
    const char *fault = text(c, RLKI_TEXT_FREE, from->fault ? from->fault_text : "");
    int rc = c->oom ? RLK_ENOMEM : RLK_OK;
    cov->launches_seen = from->cov.launches_seen;
    cov->dropped = from->cov.dropped;
    cov->stall_ns = from->cov.stall_ns;
    cov->planes = from->cov.planes;
    c->batch.state.fault = from->fault;
    snprintf(c->batch.state.fault_text, sizeof c->batch.state.fault_text, "%s", fault);
    for (uint32_t i = 0; i < nranks && rc == RLK_OK; i++)
        rc = rlki_batch_rank(&c->batch, ranks[i], INT64_MIN);
    return rc;
}

int rlki_scrub_env(struct rlk_scrub *scrub, const char *from, const char *to, struct rlk_detail *detail)
{
    struct copy c = {.scrub = scrub, .detail = detail};
    const struct rlk_writer_options options = {.dir = to};
    if (detail)
        detail->text[0] = 0;
    int rc = rlk_env_open(&c.env, from, detail);
    if (rc)
        return rc;
    if (mkdir(to, 0700))
        rc = rlk_fail(detail, RLK_EEXIST, "%.400s", to);
    else
        rc = rlki_batch_open(&c.batch, &options, detail);
    if (rc == RLK_OK) {
        struct rlki_state *states[2] = {&c.batch.state, &c.batch.committed};
        for (int i = 0; i < 2; i++) {
            states[i]->first_seq = states[i]->next_seq = c.env->state.first_seq;
            states[i]->first_step = c.env->state.first_step;
        }
        rc = events(&c);
        if (rc == RLK_OK)
            rc = rlk_env_meta_each(c.env, fact, &c);
        if (rc == RLK_OK)
            rc = state(&c);
        c.batch.dirty = true;
        if (rc == RLK_OK)
            rc = rlki_batch_commit(&c.batch, c.env->complete, detail);
        if (rc == RLK_OK)
            rc = rlki_db_sync(&c.batch.db, detail);
        rlki_batch_close(&c.batch);
    }
    rlk_arena_release(&c.arena);
    rlk_env_close(c.env);
    if (rc && detail && !detail->text[0])
        rlk_fail(detail, rc, "%.300s: %s", from, rlk_error_sentence(rc));
    return rc;
}
