#include "store/rlk_reader_impl.h"

#include <stdio.h>
#include <zstd.h>
#include <zstd_errors.h>

int rlki_unpack(struct rlki_buf *out, uint8_t codec, const uint8_t *p, size_t n, uint64_t size)
{
    if (codec == RLKI_CODEC_RAW) {
        if (n != size)
            return RLK_ECORRUPT;
        rlki_put_bytes(out, p, n);
        return out->oom ? RLK_ENOMEM : RLK_OK;
    }
    if (codec != RLKI_CODEC_ZSTD)
        return RLK_ECORRUPT;
    if (!rlki_buf_room(out, (size_t)size + 1))
        return RLK_ENOMEM;
    size_t got = ZSTD_decompress(out->p + out->n, (size_t)size, p, n);
    if (ZSTD_isError(got))
        return ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? RLK_ENOMEM : RLK_ECORRUPT;
    if (got != size)
        return RLK_ECORRUPT;
    out->n += got;
    return RLK_OK;
}

/* One block of a table: env->strings or env->descs for all ids in it. */
static int load_block_once(struct rlk_env *env, enum rlki_database db, uint64_t id, uint64_t most,
                           int (*keep)(struct rlk_env *env, uint64_t id, const uint8_t *p, size_t n),
                           struct rlk_detail *detail)
{
    uint64_t first;
    struct rlki_cur body;
    int rc = rlki_env_value(env, db, &id, sizeof id, true, &first, &body, detail);
    if (rc)
        return rc == RLK_ENOENT ? RLK_ECORRUPT : rc;
    /* Keeping a descriptor may read a string block into env->value: this block must stand on its own. */
    struct rlki_buf copy = env->value;
    env->value = (struct rlki_buf){0};
    uint64_t n = rlki_get_v(&body);
    if (n == 0 || n > rlki_left(&body) || first == 0 || first > most || n > most - first + 1 || id - first >= n)
        rc = RLK_ECORRUPT;
    for (uint64_t i = 0; i < n && rc == RLK_OK; i++) {
        uint64_t len = rlki_get_v(&body);
        const uint8_t *p = rlki_get_bytes(&body, len);
        rc = p ? keep(env, first + i, p, (size_t)len) : RLK_ECORRUPT;
    }
    rlki_buf_release(&copy);
    if (rc == RLK_ECORRUPT)
        return rlk_fail(detail, rc, "%s %llu: damaged", rlki_db_name[db], (unsigned long long)first);
    return rc;
}

static int load_block(struct rlk_env *env, enum rlki_database db, uint64_t id, uint64_t most,
                      int (*keep)(struct rlk_env *env, uint64_t id, const uint8_t *p, size_t n),
                      struct rlk_detail *detail)
{
    int rc = load_block_once(env, db, id, most, keep, detail);
    for (int tries = 1; rc == RLK_ECORRUPT && tries < RLKI_RETRIES && rlki_env_newer(env); tries++)
        rc = load_block_once(env, db, id, most, keep, detail);
    return rc;
}

static int keep_string(struct rlk_env *env, uint64_t id, const uint8_t *p, size_t n)
{
    if (n == 0 || n > RLK_MAX_STRING || !rlki_utf8(p, n))
        return RLK_ECORRUPT;
    if (env->strings[id])
        return RLK_OK;
    uint32_t text = rlki_table_id(&env->texts, p, n);
    if (text == 0)
        return RLK_ENOMEM;
    env->strings[id] = (const char *)rlki_table_entry(&env->texts, text)->p;
    return RLK_OK;
}

static int keep_desc(struct rlk_env *env, uint64_t id, const uint8_t *p, size_t n)
{
    if (env->descs[id])
        return RLK_OK;
    struct rlki_desc *desc = rlk_arena_alloc(&env->arena, sizeof *desc, _Alignof(struct rlki_desc));
    if (!desc)
        return RLK_ENOMEM;
    int rc = rlki_decode_desc(&env->source, p, n, &env->arena, desc);
    if (rc == RLK_OK)
        env->descs[id] = desc;
    return rc;
}

int rlki_env_string(struct rlk_env *env, uint64_t id, const char **out, struct rlk_detail *detail)
{
    *out = rlki_empty;
    if (id == 0)
        return RLK_OK;
    if (id > env->state.nstrings)
        return rlk_fail(detail, RLK_ECORRUPT, "string %llu does not exist", (unsigned long long)id);
    if (!env->strings[id]) {
        int rc = load_block(env, RLKI_DB_STRINGS, id, env->state.nstrings, keep_string, detail);
        if (rc)
            return rc;
    }
    *out = env->strings[id];
    return RLK_OK;
}

static int source_string(void *context, uint64_t id, const char **out)
{
    return rlki_env_string(context, id, out, NULL);
}

static int source_desc(void *context, uint64_t id, const struct rlki_desc **out)
{
    struct rlk_env *env = context;
    if (id == 0 || id > env->state.ndescs)
        return RLK_ECORRUPT;
    if (!env->descs[id]) {
        int rc = load_block(env, RLKI_DB_DESCS, id, env->state.ndescs, keep_desc, NULL);
        if (rc)
            return rc;
    }
    *out = env->descs[id];
    return RLK_OK;
}

int rlki_env_tables(struct rlk_env *env)
{
    env->source = (struct rlki_source){env, source_string, source_desc};
    env->strings = calloc((size_t)env->state.nstrings + 1, sizeof *env->strings);
    env->descs = calloc((size_t)env->state.ndescs + 1, sizeof *env->descs);
    return env->strings && env->descs ? RLK_OK : RLK_ENOMEM;
}

void rlki_chunk_release(struct rlki_chunk *chunk)
{
    rlki_buf_release(&chunk->records);
    free(chunk->offsets);
    *chunk = (struct rlki_chunk){0};
}

/* Where each record begins. */
static int index_records(struct rlki_chunk *chunk)
{
    struct rlki_cur c = {chunk->records.p, chunk->records.p + chunk->records.n, false};
    uint32_t *offsets = realloc(chunk->offsets, ((size_t)chunk->count + 1) * sizeof *offsets);
    if (!offsets)
        return RLK_ENOMEM;
    chunk->offsets = offsets;
    for (uint32_t i = 0; i < chunk->count; i++) {
        offsets[i] = (uint32_t)(c.p - chunk->records.p);
        if (!rlki_get_bytes(&c, rlki_get_v(&c)))
            return RLK_ECORRUPT;
    }
    offsets[chunk->count] = (uint32_t)(c.p - chunk->records.p);
    return c.p == c.end ? RLK_OK : RLK_ECORRUPT;
}

int rlki_chunk_read(struct rlki_chunk *chunk, uint64_t key, struct rlki_cur body, struct rlk_detail *detail)
{
    chunk->chain = rlki_chain(key, body.p, rlki_left(&body));
    chunk->previous = rlki_get_u128(&body);
    chunk->count = rlki_get_u32(&body);
    chunk->newest = rlki_get_z(&body);
    uint8_t codec = rlki_get_u8(&body);
    uint64_t size = rlki_get_v(&body);
    size_t n = rlki_left(&body);
    int rc = RLK_OK;
    if (body.bad || chunk->count == 0 || size > RLKI_MAX_CHUNK || size / RLKI_MAX_RATIO > n || chunk->count > size ||
        key > RLK_MAX_EVENTS - chunk->count)
        rc = RLK_ECORRUPT;
    chunk->first = key;
    chunk->records.n = 0;
    if (rc == RLK_OK)
        rc = rlki_unpack(&chunk->records, codec, body.p, n, size);
    if (rc == RLK_OK)
        rc = index_records(chunk);
    if (rc) {
        chunk->count = 0;
        return rlk_fail(detail, rc, "chunk %llu: %s", (unsigned long long)key,
                        rc == RLK_ENOMEM ? "out of memory" : "damaged");
    }
    return RLK_OK;
}

static int load_chunk(struct rlk_env *env, struct rlki_chunk *chunk, uint64_t seq, struct rlk_detail *detail)
{
    uint64_t key;
    struct rlki_cur body;
    int rc = rlki_env_value(env, RLKI_DB_EVENTS, &seq, sizeof seq, true, &key, &body, detail);
    if (rc == RLK_OK)
        rc = rlki_chunk_read(chunk, key, body, detail);
    if (rc == RLK_ENOENT || (rc == RLK_OK && seq - chunk->first >= chunk->count)) {
        chunk->count = 0;
        rc = rlk_fail(detail, RLK_ECORRUPT, "event %llu: its chunk is missing", (unsigned long long)seq);
    }
    return rc;
}

int rlki_env_chunk(struct rlk_env *env, uint64_t seq, const struct rlki_chunk **out, struct rlk_detail *detail)
{
    struct rlki_chunk *oldest = &env->chunks[0];
    for (size_t i = 0; i < RLKI_CACHED_CHUNKS; i++) {
        struct rlki_chunk *chunk = &env->chunks[i];
        if (chunk->count && seq >= chunk->first && seq - chunk->first < chunk->count) {
            chunk->used = ++env->clock;
            *out = chunk;
            return RLK_OK;
        }
        if (chunk->count == 0 || chunk->used < oldest->used)
            oldest = chunk;
    }
    if (seq < env->state.first_seq || seq >= env->state.next_seq)
        return rlk_fail(detail, RLK_ENOENT, "event %llu does not exist", (unsigned long long)seq);
    int rc = load_chunk(env, oldest, seq, detail);
    for (int tries = 1; rc == RLK_ECORRUPT && tries < RLKI_RETRIES && rlki_env_newer(env); tries++)
        rc = load_chunk(env, oldest, seq, detail);
    if (rc == RLK_OK) {
        oldest->used = ++env->clock;
        *out = oldest;
    }
    return rc;
}

int rlki_env_event(struct rlk_env *env, uint64_t seq, struct rlk_arena *arena, struct rlk_event *out, uint32_t *phase,
                   uint32_t *module, struct rlk_detail *detail)
{
    const struct rlki_chunk *chunk;
    int rc = rlki_env_chunk(env, seq, &chunk, detail);
    if (rc)
        return rc;
    size_t at = (size_t)(seq - chunk->first);
    struct rlki_cur c = {chunk->records.p + chunk->offsets[at], chunk->records.p + chunk->offsets[at + 1], false};
    uint64_t n = rlki_get_v(&c);
    rc = rlki_decode_event(&env->source, c.p, (size_t)n, seq, arena, out, phase, module);
    if (rc == RLK_ENOENT)
        return rlk_fail(detail, rc, "event %llu: of a kind that this program does not know", (unsigned long long)seq);
    if (rc)
        return rlk_fail(detail, rc, "event %llu: %s", (unsigned long long)seq,
                        rc == RLK_ECORRUPT ? "damaged" : rlk_error_sentence(rc));
    return RLK_OK;
}

int rlk_env_event(struct rlk_env *env, uint64_t seq, struct rlk_arena *arena, struct rlk_event *out,
                  struct rlk_detail *detail)
{
    uint32_t phase, module;
    return rlki_env_place(env, rlki_env_event(env, seq, arena, out, &phase, &module, detail), detail);
}

int rlk_env_scan(struct rlk_env *env, uint64_t first, uint64_t last,
                 int (*visit)(void *context, const struct rlk_event *event), void *context, struct rlk_detail *detail)
{
    struct rlk_arena arena = {0};
    struct rlk_event event;
    uint32_t phase, module;
    int rc = RLK_OK;
    if (first < env->state.first_seq)
        first = env->state.first_seq;
    if (last > env->state.next_seq)
        last = env->state.next_seq;
    for (uint64_t seq = first; seq < last; seq++) {
        rlk_arena_reset(&arena);
        rc = rlki_env_event(env, seq, &arena, &event, &phase, &module, detail);
        if (rc == RLK_ENOENT) {
            rc = RLK_OK;
            continue;
        }
        if (rc) {
            rlki_env_place(env, rc, detail);
            break;
        }
        rc = visit(context, &event);
        if (rc)
            break;
    }
    rlk_arena_release(&arena);
    return rc;
}
