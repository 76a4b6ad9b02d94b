/* Reads everything there is, in the order of the file format, and stops at the first damage. */
#include "store/rlk_reader_impl.h"

struct tally {
    uint64_t kinds[RLKI_KINDS];
    struct rlki_rollup roll;
};

static int each(struct rlk_env *env, enum rlki_database db,
                int (*check)(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                             struct rlk_detail *detail),
                void *context, struct rlk_detail *detail)
{
    struct rlki_mdb_cursor c;
    uint64_t n = 0;
    int rc = rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[db]);
    if (rc)
        return rlk_fail(detail, rc, "out of memory");
    for (rc = rlki_mdb_first(&c, detail); rc == RLK_OK; rc = rlki_mdb_next(&c, detail)) {
        struct rlki_cur body;
        n++;
        rc = rlki_env_cursor_value(env, db, &c, &body, detail);
        if (rc == RLK_OK)
            rc = check(env, &c, body, context, detail);
        if (rc == RLK_ENOENT)
            rc = rlk_fail(detail, RLK_ECORRUPT, "%s: an entry refers to nothing", rlki_db_name[db]);
        if (rc)
            break;
    }
    rlki_mdb_cursor_release(&c);
    if (rc == RLK_ENOENT)
        rc = n == env->trees[db].entries
                 ? RLK_OK
                 : rlk_fail(detail, RLK_ECORRUPT, "%s: %llu entries, %llu counted", rlki_db_name[db],
                            (unsigned long long)n, (unsigned long long)env->trees[db].entries);
    return rc;
}

static uint64_t key_of(const struct rlki_mdb_cursor *c)
{
    uint64_t key;
    memcpy(&key, c->key, sizeof key);
    return key;
}

struct table {
    enum rlki_database db;
    uint64_t next;
    struct rlki_table seen; /* each byte string once */
};

static int check_block(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                       struct rlk_detail *detail)
{
    (void)env;
    struct table *t = context;
    uint64_t n = rlki_get_v(&body);
    if (key_of(c) != t->next || n == 0)
        return rlk_fail(detail, RLK_ECORRUPT, "%s %llu: a hole before it", rlki_db_name[t->db],
                        (unsigned long long)key_of(c));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len = rlki_get_v(&body);
        const uint8_t *p = rlki_get_bytes(&body, len);
        if (!p)
            return rlk_fail(detail, RLK_ECORRUPT, "%s %llu: damaged", rlki_db_name[t->db],
                            (unsigned long long)key_of(c));
        uint32_t id = rlki_table_id(&t->seen, p, (size_t)len);
        if (id == 0)
            return rlk_fail(detail, RLK_ENOMEM, "out of memory");
        if (id != t->next + i)
            return rlk_fail(detail, RLK_ECORRUPT, "%s %llu: stored twice", rlki_db_name[t->db],
                            (unsigned long long)(t->next + i));
    }
    if (body.p != body.end)
        return rlk_fail(detail, RLK_ECORRUPT, "%s %llu: damaged", rlki_db_name[t->db], (unsigned long long)key_of(c));
    t->next += n;
    return RLK_OK;
}

static int check_table(struct rlk_env *env, enum rlki_database db, uint64_t count, struct rlk_detail *detail)
{
    struct table t = {db, 1, {0}};
    int rc = each(env, db, check_block, &t, detail);
    if (rc == RLK_OK && t.next != count + 1)
        rc = rlk_fail(detail, RLK_ECORRUPT, "%s: %llu there, %llu counted", rlki_db_name[db],
                      (unsigned long long)(t.next - 1), (unsigned long long)count);
    rlki_table_release(&t.seen);
    /* And each of them decodes: through the reader's own way, which loads a block at a time. */
    for (uint64_t id = 1; id <= count && rc == RLK_OK; id++) {
        const char *string;
        const struct rlki_desc *desc;
        rc = db == RLKI_DB_STRINGS ? rlki_env_string(env, id, &string, detail)
                                   : env->source.desc(env->source.context, id, &desc);
        if (rc && db == RLKI_DB_DESCS)
            rlk_fail(detail, rc, "descs %llu: damaged", (unsigned long long)id);
    }
    return rc;
}

struct chain {
    uint64_t next, chunks;
    rlk_u128 value;
    struct rlki_chunk chunk;
};

static int check_chunk(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                       struct rlk_detail *detail)
{
    struct chain *chain = context;
    uint64_t key = key_of(c);
    int rc = rlki_chunk_read(&chain->chunk, key, body, detail);
    if (rc)
        return rc;
    if (key != chain->next)
        return rlk_fail(detail, RLK_ECORRUPT, "chunk %llu: events %llu and on are missing before it",
                        (unsigned long long)key, (unsigned long long)chain->next);
    bool whole = env->state.first_seq == 0;
    if ((chain->chunks > 0 || whole) && !rlk_u128_equal(chain->chunk.previous, chain->value))
        return rlk_fail(detail, RLK_ECORRUPT, "chunk %llu: the chain is broken before it", (unsigned long long)key);
    chain->value = chain->chunk.chain;
    chain->next = key + chain->chunk.count;
    chain->chunks++;
    return RLK_OK;
}

static int check_chain(struct rlk_env *env, struct rlk_detail *detail)
{
    struct chain chain = {.next = env->state.first_seq};
    int rc = each(env, RLKI_DB_EVENTS, check_chunk, &chain, detail);
    rlki_chunk_release(&chain.chunk);
    if (rc)
        return rc;
    if (chain.next != env->state.next_seq || (chain.chunks && !rlk_u128_equal(chain.value, env->state.chain)) ||
        (env->state.first_seq == 0 && chain.chunks != env->state.nchunks))
        return rlk_fail(detail, RLK_ECORRUPT, "the chain of %llu chunks does not end as counted",
                        (unsigned long long)chain.chunks);
    return RLK_OK;
}

static int check_events(struct rlk_env *env, struct tally *tally, struct rlk_detail *detail)
{
    struct rlk_arena arena = {0};
    struct rlk_event event;
    int rc = RLK_OK;
    for (uint64_t seq = env->state.first_seq; seq < env->state.next_seq && rc == RLK_OK; seq++) {
        uint32_t phase, module;
        rlk_arena_reset(&arena);
        rc = rlki_env_event(env, seq, &arena, &event, &phase, &module, detail);
        if (rc == RLK_ENOENT) {
            rc = RLK_OK;
            continue;
        }
        if (rc)
            break;
        tally->kinds[event.kind]++;
        if (event.who.step >= env->state.first_step)
            rc = rlki_rollup_add(&tally->roll, &event, phase, module);
    }
    rlk_arena_release(&arena);
    return rc;
}

/* Kinds as counted: exact where nothing was removed. */
static int check_kinds(const struct rlk_env *env, const struct tally *tally, struct rlk_detail *detail)
{
    for (uint32_t i = 0; i < RLKI_KINDS; i++)
        if (tally->kinds[i] > env->state.kinds[i] ||
            (env->state.first_seq == 0 && i <= RLK_EV_NOTE && tally->kinds[i] != env->state.kinds[i]))
            return rlk_fail(detail, RLK_ECORRUPT, "%llu %s events, %llu counted", (unsigned long long)tally->kinds[i],
                            rlk_event_kind_name((enum rlk_event_kind)i), (unsigned long long)env->state.kinds[i]);
    return RLK_OK;
}

static bool same_node(const struct rlki_node *a, const struct rlki_node *b)
{
    return a->phase == b->phase && a->module == b->module && a->pass == b->pass &&
           rlk_u128_equal(a->out_sum, b->out_sum) && rlk_u128_equal(a->in_sum, b->in_sum) && a->events == b->events &&
           a->tensors == b->tensors && a->first_seq == b->first_seq;
}

struct stored {
    const struct rlki_rollup *made;
    size_t next;
};

static int check_roll(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                      struct rlk_detail *detail)
{
    struct stored *stored = context;
    struct rlki_node total, given = {0};
    int64_t step = 0;
    uint32_t rank = 0;
    bool ok = rlki_roll_key_read(c->key, c->nkey, &step, &rank) && stored->next < stored->made->count;
    const struct rlki_group *made = ok ? stored->made->groups[stored->next++] : NULL;
    if (!made || made->step != step || made->rank != rank)
        return rlk_fail(detail, RLK_ECORRUPT, "roll: step %lld rank %u is not in the events", (long long)step, rank);
    rlki_group_total(made, &total);
    rlki_total_get(&body, &given);
    if (body.bad || !same_node(&total, &given))
        return rlk_fail(detail, RLK_ECORRUPT, "roll: step %lld rank %u does not add up", (long long)step, rank);
    (void)env;
    return RLK_OK;
}

/* The ranges begin with the first event and have room for all. */
static bool ranges_fit(const struct rlki_node *node)
{
    uint64_t room = 0;
    for (uint32_t i = 0; i < node->nranges; i++)
        room += node->ranges[i].count;
    return node->nranges > 0 && node->ranges[0].first == node->first_seq && room >= node->events;
}

static int check_rollmod(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                         struct rlk_detail *detail)
{
    struct stored *stored = context;
    int64_t step = 0;
    uint32_t rank = 0;
    bool ok = rlki_roll_key_read(c->key, c->nkey, &step, &rank) && stored->next < stored->made->count;
    struct rlki_group *made = ok ? stored->made->groups[stored->next++] : NULL;
    if (!made || made->step != step || made->rank != rank)
        return rlk_fail(detail, RLK_ECORRUPT, "rollmod: step %lld rank %u is not in the events", (long long)step, rank);
    struct rlki_group *given = rlki_group_new(step, rank), *joined = rlki_group_new(step, rank);
    int rc =
        given && joined ? rlki_group_merge(given, body.p, rlki_left(&body), env->state.nstrings, true) : RLK_ENOMEM;
    bool by_pass = false; /* format 1.0 says nothing of passes */
    for (size_t i = 0; rc == RLK_OK && i < given->nnodes; i++)
        by_pass |= given->nodes[i].pass != RLKI_PASS_ANY;
    if (rc == RLK_OK && !by_pass)
        rc = rlki_group_join(joined, made);
    if (rc == RLK_OK) {
        made = by_pass ? made : joined;
        rlki_group_sort(given);
        rlki_group_sort(made);
        ok = given->nnodes == made->nnodes;
        for (size_t i = 0; ok && i < given->nnodes; i++)
            ok = same_node(&given->nodes[i], &made->nodes[i]) && ranges_fit(&given->nodes[i]);
    }
    rlki_group_free(joined);
    rlki_group_free(given);
    if (rc == RLK_ENOMEM)
        return rlk_fail(detail, rc, "out of memory");
    return ok && rc == RLK_OK
               ? RLK_OK
               : rlk_fail(detail, RLK_ECORRUPT, "rollmod: step %lld rank %u does not add up", (long long)step, rank);
}

struct blobs {
    uint64_t count;
};

static int check_blob(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                      struct rlk_detail *detail)
{
    struct blobs *blobs = context;
    uint8_t key[RLKI_BLOB_KEY];
    rlk_u128 id = {0, 0};
    (void)body;
    if (c->nkey != RLKI_BLOB_KEY)
        return rlk_fail(detail, RLK_ECORRUPT, "blobs: a key of %u bytes", c->nkey);
    for (unsigned i = 0; i < 8; i++) {
        id.hi = id.hi << 8 | c->key[i];
        id.lo = id.lo << 8 | c->key[8 + i];
    }
    rlki_blob_key(key, id, 0);
    if (memcmp(key, c->key, sizeof key) != 0)
        return RLK_OK; /* a later part: read with the first */
    void *bytes;
    size_t n;
    blobs->count++;
    int rc = rlk_env_payload(env, id, RLKI_MAX_BLOB, &bytes, &n, NULL);
    free(bytes);
    return rc ? rlk_fail(detail, rc == RLK_ENOMEM ? rc : RLK_ECORRUPT, "payload %016llx%016llx: %s",
                         (unsigned long long)id.hi, (unsigned long long)id.lo, rlk_error_sentence(rc))
              : RLK_OK;
}

static int check_end(struct rlk_env *env, struct rlk_detail *detail)
{
    if (!env->has_end || env->complete)
        return RLK_OK;
    return rlk_fail(detail, RLK_ECORRUPT, "END: it does not agree with what is there");
}

static int check_nothing(struct rlk_env *env, const struct rlki_mdb_cursor *c, struct rlki_cur body, void *context,
                         struct rlk_detail *detail)
{
    (void)env;
    (void)c;
    (void)body;
    (void)context;
    (void)detail;
    return RLK_OK;
}

int rlk_env_intact(struct rlk_env *env, struct rlk_detail *detail)
{
    int rc = check_end(env, detail);
    for (unsigned db = 0; db < RLKI_DBS && rc == RLK_OK; db++)
        rc = each(env, (enum rlki_database)db, check_nothing, NULL, detail);
    return rlki_env_place(env, rc, detail);
}

int rlk_env_verify(struct rlk_env *env, struct rlk_detail *detail)
{
    struct tally tally = {{0}, {0}};
    struct blobs blobs = {0};
    struct stored roll = {&tally.roll, 0}, rollmod = {&tally.roll, 0};
    int rc = check_end(env, detail);
    if (rc == RLK_OK)
        rc = check_chain(env, detail);
    if (rc == RLK_OK)
        rc = check_table(env, RLKI_DB_STRINGS, env->state.nstrings, detail);
    if (rc == RLK_OK)
        rc = check_table(env, RLKI_DB_DESCS, env->state.ndescs, detail);
    if (rc == RLK_OK)
        rc = check_events(env, &tally, detail);
    if (rc == RLK_OK)
        rc = check_kinds(env, &tally, detail);
    if (rc == RLK_OK && env->complete) {
        rlki_rollup_sort(&tally.roll);
        rc = each(env, RLKI_DB_ROLL, check_roll, &roll, detail);
        if (rc == RLK_OK)
            rc = each(env, RLKI_DB_ROLLMOD, check_rollmod, &rollmod, detail);
        if (rc == RLK_OK && (roll.next != tally.roll.count || rollmod.next != tally.roll.count))
            rc = rlk_fail(detail, RLK_ECORRUPT, "roll: steps of the events are missing");
    }
    if (rc == RLK_OK)
        rc = each(env, RLKI_DB_BLOBS, check_blob, &blobs, detail);
    if (rc == RLK_OK && blobs.count != env->state.nblobs)
        rc = rlk_fail(detail, RLK_ECORRUPT, "%llu payloads, %llu counted", (unsigned long long)blobs.count,
                      (unsigned long long)env->state.nblobs);
    rlki_rollup_release(&tally.roll);
    return rlki_env_place(env, rc, detail);
}
