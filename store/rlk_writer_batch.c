#include "store/rlk_writer_impl.h"

#include <stdio.h>
#include <xxhash.h>
#include <zstd.h>

#define SMALL_BLOB 256u /* not worth compressing */
#define LEVEL 1

int rlki_batch_open(struct rlki_batch *b, const struct rlk_writer_options *options, struct rlk_detail *detail)
{
    memset(b, 0, sizeof *b);
    b->newest = INT64_MIN;
    b->state.first_step = INT64_MIN;
    b->committed.first_step = INT64_MIN;
    b->keep_last_steps = options->keep_last_steps;
    int rc = rlki_db_open(&b->db, options->dir, detail);
    if (rc)
        return rc;
    b->zstd = ZSTD_createCCtx();
    if (!b->zstd)
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    char version[16];
    int n = snprintf(version, sizeof version, "%d.%d", RLKI_FORMAT_MAJOR, RLKI_FORMAT_MINOR);
    rc = rlki_batch_meta(b, RLKI_META_FORMAT, strlen(RLKI_META_FORMAT), version, (size_t)n);
    return rc ? rlk_fail(detail, rc, "out of memory") : rlki_batch_commit(b, false, detail);
}

void rlki_batch_close(struct rlki_batch *b)
{
    rlki_db_close(&b->db);
    rlki_batch_forget(b);
}

void rlki_batch_forget(struct rlki_batch *b)
{
    if (b->db.env) { /* a forked child: the parent's thread may have been in the middle of any of this: left alone */
        rlki_db_abandon(&b->db);
        return;
    }
    rlki_encoder_release(&b->enc);
    rlki_rollup_release(&b->rollup);
    rlki_buf_release(&b->records);
    rlki_buf_release(&b->body);
    rlki_buf_release(&b->packed);
    rlki_buf_release(&b->items);
    rlki_buf_release(&b->value);
    free(b->ranks);
    free(b->rank_list);
    free(b->named);
    free(b->kept);
    ZSTD_freeCCtx(b->zstd);
    b->zstd = NULL;
}

uint64_t rlki_batch_bytes(const struct rlki_batch *b)
{
    return b->items.n + b->records.n;
}

static int add_item(struct rlki_batch *b, enum rlki_database db, const void *key, size_t nkey, const void *body,
                    size_t n, bool append)
{
    struct rlki_item item = {n, (uint16_t)nkey, (uint8_t)db, append};
    if (!rlki_buf_room(&b->items, sizeof item + nkey + n)) {
        b->items.oom = false;
        return RLK_ENOMEM;
    }
    rlki_put_bytes(&b->items, &item, sizeof item);
    rlki_put_bytes(&b->items, key, nkey);
    rlki_put_bytes(&b->items, body, n);
    b->dirty = true;
    return RLK_OK;
}

int rlki_batch_meta(struct rlki_batch *b, const void *key, size_t nkey, const void *value, size_t n)
{
    return add_item(b, RLKI_DB_META, key, nkey, value, n, false);
}

/* Packs p into b->packed. Returns the codec; RLKI_CODEC_RAW = p is to be stored as it is. */
static uint8_t pack(struct rlki_batch *b, const uint8_t *p, size_t n)
{
    size_t bound = ZSTD_compressBound(n);
    b->packed.n = 0;
    if (n < SMALL_BLOB || ZSTD_isError(bound) || !rlki_buf_room(&b->packed, bound)) {
        b->packed.oom = false;
        return RLKI_CODEC_RAW;
    }
    size_t got = ZSTD_compressCCtx(b->zstd, b->packed.p, b->packed.cap, p, n, LEVEL);
    if (ZSTD_isError(got) || got >= n - n / 16)
        return RLKI_CODEC_RAW;
    b->packed.n = got;
    return RLKI_CODEC_ZSTD;
}

static bool put_packed(struct rlki_batch *b, const uint8_t *p, size_t n, bool bounded_ratio)
{
    uint8_t codec = pack(b, p, n);
    if (bounded_ratio && codec == RLKI_CODEC_ZSTD && n / RLKI_MAX_RATIO >= b->packed.n)
        codec = RLKI_CODEC_RAW;
    rlki_put_u8(&b->body, codec);
    return codec == RLKI_CODEC_ZSTD;
}

static int close_chunk(struct rlki_batch *b)
{
    if (b->chunk_events == 0)
        return RLK_OK;
    struct rlki_buf *body = &b->body;
    body->n = 0;
    rlki_put_u128(body, b->state.chain);
    rlki_put_u32(body, b->chunk_events);
    rlki_put_z(body, b->newest);
    bool packed = put_packed(b, b->records.p, b->records.n, true);
    rlki_put_v(body, b->records.n);
    if (packed)
        rlki_put_bytes(body, b->packed.p, b->packed.n);
    else
        rlki_put_bytes(body, b->records.p, b->records.n);
    if (body->oom) {
        body->oom = false;
        return RLK_ENOMEM;
    }
    if (b->keep_last_steps && b->nkept == b->cap_kept) {
        size_t cap = b->cap_kept ? b->cap_kept * 2 : 64;
        struct rlki_chunk_info *kept = realloc(b->kept, cap * sizeof *kept);
        if (!kept)
            return RLK_ENOMEM;
        b->kept = kept;
        b->cap_kept = cap;
    }
    int rc = add_item(b, RLKI_DB_EVENTS, &b->chunk_first, sizeof b->chunk_first, body->p, body->n, true);
    if (rc)
        return rc;
    if (b->keep_last_steps)
        b->kept[b->nkept++] = (struct rlki_chunk_info){b->chunk_first, b->newest};
    b->state.chain = rlki_chain(b->chunk_first, body->p, body->n);
    b->state.nchunks++;
    b->chunk_events = 0;
    b->records.n = 0;
    return RLK_OK;
}

/* The table's entries that are not in the database yet, in blocks. */
static int put_table(struct rlki_batch *b, enum rlki_database db, const struct rlki_table *table, uint64_t *put)
{
    while (*put < table->count) {
        uint64_t first = *put + 1, n = 0;
        size_t bytes = 0;
        while (*put + n < table->count && (n == 0 || bytes < RLKI_CHUNK_BYTES / 2)) {
            bytes += table->entries[*put + n].n + 5u;
            n++;
        }
        b->body.n = 0;
        rlki_put_v(&b->body, n);
        for (uint64_t i = 0; i < n; i++) {
            const struct rlki_entry *e = &table->entries[*put + i];
            rlki_put_v(&b->body, e->n);
            rlki_put_bytes(&b->body, e->p, e->n);
        }
        int rc = b->body.oom ? RLK_ENOMEM : add_item(b, db, &first, sizeof first, b->body.p, b->body.n, true);
        b->body.oom = false;
        if (rc)
            return rc;
        *put += n;
    }
    return RLK_OK;
}

int rlki_batch_rank(struct rlki_batch *b, uint32_t rank, int64_t step)
{
    if (b->recent_rank < b->nranks && b->ranks[b->recent_rank].rank == rank) {
        if (step > b->ranks[b->recent_rank].newest)
            b->ranks[b->recent_rank].newest = step;
        return RLK_OK;
    }
    size_t low = 0, high = b->nranks;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (b->ranks[mid].rank < rank)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == b->nranks || b->ranks[low].rank != rank) {
        if (b->nranks >= RLKI_MAX_RANKS)
            return RLK_ELIMIT;
        if (b->nranks == b->cap_ranks) {
            size_t cap = b->cap_ranks ? b->cap_ranks * 2 : 16;
            struct rlki_rank *ranks = realloc(b->ranks, cap * sizeof *ranks);
            if (!ranks)
                return RLK_ENOMEM;
            b->ranks = ranks;
            b->cap_ranks = cap;
        }
        memmove(b->ranks + low + 1, b->ranks + low, (b->nranks - low) * sizeof *b->ranks);
        b->ranks[low] = (struct rlki_rank){rank, INT64_MIN};
        b->nranks++;
        b->dirty = true;
    }
    b->recent_rank = low;
    if (step > b->ranks[low].newest)
        b->ranks[low].newest = step;
    return RLK_OK;
}

/* Ranks that a process group names: a recording is complete only when all of them have an END. */
static int name_ranks(struct rlki_batch *b, const uint32_t *ranks, uint32_t n)
{
    uint64_t hash = n ? XXH3_64bits(ranks, n * sizeof *ranks) : 0;
    if (n == 0 || hash == b->named_recent)
        return RLK_OK;
    for (uint32_t i = 0; i < n; i++) {
        size_t low = 0, high = b->nnamed;
        while (low < high) {
            size_t mid = (low + high) / 2;
            if (b->named[mid] < ranks[i])
                low = mid + 1;
            else
                high = mid;
        }
        if ((low < b->nnamed && b->named[low] == ranks[i]) || b->nnamed >= RLKI_MAX_RANKS)
            continue;
        if (b->nnamed == b->cap_named) {
            size_t cap = b->cap_named ? b->cap_named * 2 : 16;
            uint32_t *named = realloc(b->named, cap * sizeof *named);
            if (!named)
                return RLK_ENOMEM;
            b->named = named;
            b->cap_named = cap;
        }
        memmove(b->named + low + 1, b->named + low, (b->nnamed - low) * sizeof *b->named);
        b->named[low] = ranks[i];
        b->nnamed++;
    }
    b->named_recent = hash;
    return RLK_OK;
}

static void count(struct rlki_batch *b, const struct rlk_event *e)
{
    struct rlk_coverage *c = &b->state.cov;
    c->events++;
    c->launches_recorded += e->kind == RLK_EV_LAUNCH ? e->u.launch.count : e->nlaunches;
    c->tensors += e->ntensors;
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        c->by_reference += t->state == RLK_T_REFERENCE;
        c->local_placement += t->place == NULL;
        if (t->state == RLK_T_NOT_DIGESTED)
            rlki_coverage_reason(c, t->reason, 1);
    }
    if ((unsigned)e->kind < RLKI_KINDS)
        b->state.kinds[e->kind]++;
}

static void begin_record(struct rlki_batch *b, uint64_t seq)
{
    if (b->chunk_events == 0)
        b->chunk_first = seq;
    b->dirty = true;
}

static int end_record(struct rlki_batch *b, uint64_t seq)
{
    b->chunk_events++;
    b->state.next_seq = seq + 1;
    return b->records.n >= RLKI_CHUNK_BYTES ? close_chunk(b) : RLK_OK;
}

int rlki_batch_hole(struct rlki_batch *b, uint64_t seq)
{
    static const uint8_t hole[3] = {2, RLK_EV_NONE, 0};
    begin_record(b, seq);
    rlki_put_bytes(&b->records, hole, sizeof hole);
    if (b->records.oom) {
        b->records.oom = false;
        b->broken = true; /* not even three bytes: the chunk is one short, so there must be no END */
        return RLK_ENOMEM;
    }
    return end_record(b, seq);
}

int rlki_batch_event(struct rlki_batch *b, const struct rlk_event *e)
{
    uint32_t phase, module;
    if (b->keep_last_steps && e->who.step > b->newest) {
        int rc = close_chunk(b);
        if (rc) {
            b->broken = true;
            return rc;
        }
    }
    begin_record(b, e->seq);
    int rc = rlki_batch_rank(b, e->rank, e->who.step);
    if (rc == RLK_OK)
        rc = rlki_encode_event(&b->enc, &b->records, e, &phase, &module);
    if (rc) {
        rlki_batch_hole(b, e->seq);
        return rc;
    }
    if (e->who.step > b->newest)
        b->newest = e->who.step;
    if (e->kind == RLK_EV_COLLECTIVE && name_ranks(b, e->u.collective.ranks, e->u.collective.nranks))
        b->broken = true;
    if (e->who.step >= b->state.first_step && rlki_rollup_add(&b->rollup, e, phase, module))
        b->broken = true;
    count(b, e);
    return end_record(b, e->seq);
}

int rlki_batch_blob(struct rlki_batch *b, rlk_u128 id, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t part = 0;
    size_t at = 0;
    do {
        size_t take = n - at < RLKI_BLOB_PART ? n - at : RLKI_BLOB_PART;
        uint8_t key[RLKI_BLOB_KEY];
        rlki_blob_key(key, id, part++);
        b->body.n = 0;
        bool packed = put_packed(b, p + at, take, false);
        rlki_put_v(&b->body, n);
        rlki_put_v(&b->body, take);
        if (packed)
            rlki_put_bytes(&b->body, b->packed.p, b->packed.n);
        else
            rlki_put_bytes(&b->body, p + at, take);
        int rc = b->body.oom ? RLK_ENOMEM : add_item(b, RLKI_DB_BLOBS, key, sizeof key, b->body.p, b->body.n, false);
        b->body.oom = false;
        if (rc)
            return rc;
        at += take;
    } while (at < n);
    return RLK_OK;
}

static int put_items(struct rlki_batch *b, struct rlk_detail *detail)
{
    int rc = RLK_OK;
    for (size_t at = 0; at < b->items.n && rc == RLK_OK;) {
        struct rlki_item item;
        memcpy(&item, b->items.p + at, sizeof item);
        const uint8_t *key = b->items.p + at + sizeof item, *body = key + item.nkey;
        at += sizeof item + item.nkey + item.n;
        if (item.db == RLKI_DB_BLOBS) {
            const void *there;
            size_t n;
            rc = rlki_db_get(&b->db, RLKI_DB_BLOBS, key, item.nkey, &there, &n, detail);
            if (rc == RLK_OK)
                continue; /* never twice */
            if (rc != RLK_ENOENT)
                break;
            static const uint8_t part0[4] = {0};
            b->state.nblobs += memcmp(key + RLKI_BLOB_KEY - 4, part0, 4) == 0;
        }
        rc = rlki_db_put(&b->db, (enum rlki_database)item.db, key, item.nkey, body, item.n, item.append, detail);
    }
    return rc;
}

static bool group_is_past(const struct rlki_batch *b, const struct rlki_group *g, bool end)
{
    if (end)
        return true;
    size_t low = 0, high = b->nranks;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (b->ranks[mid].rank < g->rank)
            low = mid + 1;
        else
            high = mid;
    }
    return low < b->nranks && b->ranks[low].newest > INT64_MIN + 2 && g->step <= b->ranks[low].newest - 2;
}

static int put_group(struct rlki_batch *b, struct rlki_group *g, struct rlk_detail *detail)
{
    uint8_t key[RLKI_ROLL_KEY];
    const void *body;
    size_t n;
    rlki_roll_key(key, g->step, g->rank);
    int rc = rlki_db_get(&b->db, RLKI_DB_ROLLMOD, key, sizeof key, &body, &n, detail);
    if (rc == RLK_OK && !g->merged)
        rc = rlki_group_merge(g, body, n, b->enc.strings.count, true);
    else if (rc == RLK_ENOENT)
        b->state.nroll++;
    if (rc && rc != RLK_ENOENT)
        return rc;
    g->merged = true; /* a second attempt after the map grew must not add it again */
    rlki_group_sort(g);
    struct rlki_node total;
    rlki_group_total(g, &total);
    b->value.n = 0;
    rlki_total_put(&b->value, &total);
    if (b->value.oom)
        return rlk_fail(detail, RLK_ENOMEM, "roll-up: out of memory");
    rc = rlki_db_put(&b->db, RLKI_DB_ROLL, key, sizeof key, b->value.p, b->value.n, false, detail);
    b->value.n = 0;
    rlki_nodes_put(&b->value, g);
    if (b->value.oom)
        return rlk_fail(detail, RLK_ENOMEM, "roll-up: out of memory");
    if (rc == RLK_OK)
        rc = rlki_db_put(&b->db, RLKI_DB_ROLLMOD, key, sizeof key, b->value.p, b->value.n, false, detail);
    return rc;
}

/* Removes chunks and roll-ups of steps older than the last K. *from = first chunk still there, by index in `kept`. */
static int retain(struct rlki_batch *b, size_t *from, struct rlk_detail *detail)
{
    *from = b->kept_from;
    if (!b->keep_last_steps || b->newest == INT64_MIN || b->keep_last_steps > INT64_MAX)
        return RLK_OK;
    int64_t cutoff;
    if (__builtin_sub_overflow(b->newest, (int64_t)b->keep_last_steps - 1, &cutoff))
        return RLK_OK;
    int rc = RLK_OK;
    while (rc == RLK_OK && *from + 1 < b->nkept && b->kept[*from].newest < cutoff) {
        rc = rlki_db_delete(&b->db, RLKI_DB_EVENTS, &b->kept[*from].first, sizeof(uint64_t), detail);
        b->state.first_seq = b->kept[++*from].first;
        if (cutoff > b->state.first_step)
            b->state.first_step = cutoff;
    }
    while (rc == RLK_OK && b->state.first_step > INT64_MIN) {
        uint8_t key[64];
        size_t nkey;
        int64_t step;
        uint32_t rank;
        rc = rlki_db_first(&b->db, RLKI_DB_ROLL, key, &nkey, sizeof key, detail);
        if (rc == RLK_ENOENT)
            return RLK_OK;
        if (rc || !rlki_roll_key_read(key, nkey, &step, &rank) || step >= b->state.first_step)
            break;
        rc = rlki_db_delete(&b->db, RLKI_DB_ROLL, key, nkey, detail);
        if (rc == RLK_OK)
            rc = rlki_db_delete(&b->db, RLKI_DB_ROLLMOD, key, nkey, detail);
        b->state.nroll--;
    }
    return rc;
}

static int put_state(struct rlki_batch *b, struct rlki_state *state, uint64_t key, struct rlk_detail *detail)
{
    uint32_t *list = realloc(b->rank_list, (b->nranks + b->nnamed + 1) * sizeof *list);
    if (!list)
        return rlk_fail(detail, RLK_ENOMEM, "state: out of memory");
    b->rank_list = list;
    for (size_t i = 0; i < b->nranks; i++)
        list[i] = b->ranks[i].rank;
    state->nranks = (uint32_t)b->nranks;
    state->nnamed = 0;
    for (size_t i = 0, k = 0; i < b->nnamed; i++) {
        while (k < b->nranks && b->ranks[k].rank < b->named[i])
            k++;
        if (k == b->nranks || b->ranks[k].rank != b->named[i])
            list[b->nranks + state->nnamed++] = b->named[i];
    }
    state->ranks = list;
    state->nstrings = b->strings_put;
    state->ndescs = b->descs_put;
    b->value.n = 0;
    rlki_state_put(&b->value, state);
    if (b->value.oom)
        return rlk_fail(detail, RLK_ENOMEM, "state: out of memory");
    return rlki_db_put(&b->db, RLKI_DB_STATE, &key, sizeof key, b->value.p, b->value.n, false, detail);
}

struct past {
    const struct rlki_batch *b;
    bool end;
};

static bool group_was_put(void *context, const struct rlki_group *g)
{
    const struct past *past = context;
    return g->step < past->b->state.first_step || group_is_past(past->b, g, past->end);
}

/* One attempt. RLK_EFULL: the map is too small. */
static int attempt(struct rlki_batch *b, bool end, uint64_t bytes, size_t *kept_from, struct rlk_detail *detail)
{
    b->state.nblobs = b->committed.nblobs; /* what an attempt changes starts again with each */
    b->state.nroll = b->committed.nroll;
    b->state.first_seq = b->committed.first_seq;
    b->state.first_step = b->committed.first_step;
    int rc = rlki_db_begin(&b->db, bytes, detail);
    if (rc)
        return rc;
    rc = put_items(b, detail);
    for (size_t i = 0; i < b->rollup.count && rc == RLK_OK; i++)
        if (group_is_past(b, b->rollup.groups[i], end) && b->rollup.groups[i]->step >= b->state.first_step)
            rc = put_group(b, b->rollup.groups[i], detail);
    if (rc == RLK_OK)
        rc = retain(b, kept_from, detail);
    if (rc == RLK_OK)
        rc = put_state(b, &b->state, RLKI_STATE_CHECKPOINT, detail);
    if (rc == RLK_OK && end && !b->broken)
        rc = put_state(b, &b->state, RLKI_STATE_END, detail);
    if (rc == RLK_OK)
        return rlki_db_commit(&b->db, detail);
    rlki_db_abort(&b->db);
    return rc;
}

int rlki_batch_commit(struct rlki_batch *b, bool end, struct rlk_detail *detail)
{
    size_t kept_from = b->kept_from;
    int rc = close_chunk(b);
    if (rc == RLK_OK)
        rc = put_table(b, RLKI_DB_STRINGS, &b->enc.strings, &b->strings_put);
    if (rc == RLK_OK)
        rc = put_table(b, RLKI_DB_DESCS, &b->enc.descs, &b->descs_put);
    if (rc)
        rc = rlk_fail(detail, rc, "out of memory");
    if (!b->dirty && !end && rc == RLK_OK)
        return RLK_OK;
    for (int tries = 0; rc == RLK_OK; tries++) {
        rc = attempt(b, end, b->items.n, &kept_from, detail);
        if (rc != RLK_EFULL || tries == 40)
            break;
        rc = rlki_db_grow(&b->db, detail);
    }
    b->items.n = 0;
    if (rc)
        return rc == RLK_EFULL ? RLK_ENOSPC : rc;
    struct past past = {b, end};
    rlki_rollup_drop(&b->rollup, group_was_put, &past);
    b->kept_from = kept_from;
    if (kept_from > 1024) { /* the list does not grow with the run */
        memmove(b->kept, b->kept + kept_from, (b->nkept - kept_from) * sizeof *b->kept);
        b->nkept -= kept_from;
        b->kept_from = 0;
    }
    b->committed = b->state;
    b->dirty = false;
    return RLK_OK;
}

void rlki_batch_last_words(struct rlki_batch *b)
{
    struct rlk_detail detail;
    uint64_t strings = b->committed.nstrings, descs = b->committed.ndescs;
    b->strings_put = strings; /* put_state writes these */
    b->descs_put = descs;
    if (rlki_db_begin(&b->db, 0, &detail))
        return;
    if (put_state(b, &b->committed, RLKI_STATE_CHECKPOINT, &detail) == RLK_OK)
        rlki_db_commit(&b->db, &detail);
    else
        rlki_db_abort(&b->db);
}
