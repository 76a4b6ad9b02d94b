#include "store/rlk_format.h"
#include "store/rlk_error.h"

#include <stdio.h>
#include <xxhash.h>

const char *const rlki_db_name[RLKI_DBS] = {
#define X(name, text, integer) text,
    RLKI_DATABASES(X)
#undef X
};
const bool rlki_db_integer[RLKI_DBS] = {
#define X(name, text, integer) integer,
    RLKI_DATABASES(X)
#undef X
};

const char rlki_empty[1] = "";

uint64_t rlki_check(enum rlki_database db, const void *key, size_t nkey, const void *body, size_t n)
{
    uint8_t seed[16 + RLKI_MAX_META_KEY + 1];
    size_t at = strlen(rlki_db_name[db]) + 1;
    memcpy(seed, rlki_db_name[db], at);
    if (nkey > sizeof seed - at)
        nkey = sizeof seed - at;
    memcpy(seed + at, key, nkey);
    return XXH3_64bits_withSeed(body, n, XXH3_64bits(seed, at + nkey));
}

static void put_be(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint64_t get_be(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

void rlki_roll_key(uint8_t key[RLKI_ROLL_KEY], int64_t step, uint32_t rank)
{
    put_be(key, (uint64_t)step ^ (UINT64_C(1) << 63), 8);
    put_be(key + 8, rank, 4);
}

bool rlki_roll_key_read(const uint8_t *key, size_t n, int64_t *step, uint32_t *rank)
{
    if (n != RLKI_ROLL_KEY)
        return false;
    *step = (int64_t)(get_be(key, 8) ^ (UINT64_C(1) << 63));
    *rank = (uint32_t)get_be(key + 8, 4);
    return true;
}

void rlki_blob_key(uint8_t key[RLKI_BLOB_KEY], rlk_u128 id, uint32_t part)
{
    put_be(key, id.hi, 8);
    put_be(key + 8, id.lo, 8);
    put_be(key + 16, part, 4);
}

rlk_u128 rlki_chain(uint64_t key, const void *body, size_t n)
{
    XXH3_state_t state; /* large, but no allocation that could fail */
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &key, sizeof key);
    XXH3_128bits_update(&state, body, n);
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    return (rlk_u128){h.low64, h.high64};
}

static void put_text(struct rlki_buf *b, const char *text)
{
    size_t n = strlen(text);
    rlki_put_v(b, n);
    rlki_put_bytes(b, text, n);
}

static void put_ranks(struct rlki_buf *b, const uint32_t *ranks, uint32_t n)
{
    rlki_put_v(b, n);
    for (uint32_t i = 0; i < n; i++)
        rlki_put_v(b, i ? ranks[i] - (ranks[i - 1] + 1) : ranks[i]);
}

void rlki_state_put(struct rlki_buf *b, const struct rlki_state *s)
{
    const struct rlk_coverage *c = &s->cov;
    rlki_put_v(b, s->first_seq);
    rlki_put_v(b, s->next_seq);
    rlki_put_v(b, s->nchunks);
    rlki_put_u128(b, s->chain);
    rlki_put_v(b, s->nstrings);
    rlki_put_v(b, s->ndescs);
    rlki_put_v(b, s->nblobs);
    rlki_put_z(b, s->first_step);
    rlki_put_v(b, s->nroll);
    rlki_put_z(b, s->fault);
    put_text(b, s->fault_text);
    const uint64_t counts[] = {c->events,          c->launches_seen, c->launches_recorded, c->tensors, c->by_reference,
                               c->local_placement, c->dropped,       c->stall_ns,          c->planes};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        rlki_put_v(b, counts[i]);
    rlki_put_v(b, c->nreasons);
    for (uint32_t i = 0; i < c->nreasons; i++) {
        put_text(b, c->not_digested[i].reason);
        rlki_put_v(b, c->not_digested[i].count);
    }
    uint64_t nkinds = 0;
    for (uint32_t i = 0; i < RLKI_KINDS; i++)
        nkinds += s->kinds[i] != 0;
    rlki_put_v(b, nkinds);
    for (uint32_t i = 0; i < RLKI_KINDS; i++)
        if (s->kinds[i]) {
            rlki_put_v(b, i);
            rlki_put_v(b, s->kinds[i]);
        }
    put_ranks(b, s->ranks, s->nranks);
    put_ranks(b, s->ranks ? s->ranks + s->nranks : NULL, s->nnamed);
}

static void get_text(struct rlki_cur *c, char *text, size_t size)
{
    uint64_t n = rlki_get_v(c);
    if (n >= size)
        c->bad = true;
    const uint8_t *p = rlki_get_bytes(c, n);
    if (!p || !rlki_utf8(p, (size_t)n)) {
        c->bad = true;
        n = 0;
    }
    if (p)
        memcpy(text, p, (size_t)n);
    text[n] = 0;
}

static void get_coverage(struct rlki_cur *c, struct rlk_coverage *cov)
{
    cov->events = rlki_get_v(c);
    cov->launches_seen = rlki_get_v(c);
    cov->launches_recorded = rlki_get_v(c);
    cov->tensors = rlki_get_v(c);
    cov->by_reference = rlki_get_v(c);
    cov->local_placement = rlki_get_v(c);
    cov->dropped = rlki_get_v(c);
    cov->stall_ns = rlki_get_v(c);
    cov->planes = rlki_get_v32(c);
    cov->nreasons = rlki_get_n(c, RLK_MAX_REASONS, 2);
    for (uint32_t i = 0; i < cov->nreasons; i++) {
        get_text(c, cov->not_digested[i].reason, sizeof cov->not_digested[i].reason);
        cov->not_digested[i].count = rlki_get_v(c);
    }
}

/* Appends a list of ranks to *ranks, which has `before`. */
static int get_ranks(struct rlki_cur *c, uint32_t **ranks, uint32_t before, uint32_t *n)
{
    uint32_t count = rlki_get_n(c, RLKI_MAX_RANKS, 1);
    if (count) {
        uint32_t *list = realloc(*ranks, ((size_t)before + count) * sizeof *list);
        if (!list)
            return RLK_ENOMEM;
        *ranks = list;
    }
    uint64_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rank = next + rlki_get_v32(c);
        if (rank > UINT32_MAX)
            c->bad = true;
        (*ranks)[before + i] = (uint32_t)rank;
        next = rank + 1;
    }
    *n = c->bad ? 0 : count;
    return RLK_OK;
}

int rlki_state_get(struct rlki_state *s, uint32_t **ranks, const uint8_t *p, size_t n)
{
    struct rlki_cur c = {p, p + n, false};
    *s = (struct rlki_state){0};
    *ranks = NULL;
    s->first_seq = rlki_get_v(&c);
    s->next_seq = rlki_get_v(&c);
    s->nchunks = rlki_get_v(&c);
    s->chain = rlki_get_u128(&c);
    s->nstrings = rlki_get_v(&c);
    s->ndescs = rlki_get_v(&c);
    s->nblobs = rlki_get_v(&c);
    s->first_step = rlki_get_z(&c);
    s->nroll = rlki_get_v(&c);
    int64_t fault = rlki_get_z(&c);
    s->fault = fault < -1000 || fault > 0 ? RLK_EINTERNAL : (int)fault;
    get_text(&c, s->fault_text, sizeof s->fault_text);
    get_coverage(&c, &s->cov);
    uint32_t nkinds = rlki_get_n(&c, 256, 2);
    for (uint32_t i = 0; i < nkinds; i++) {
        uint64_t kind = rlki_get_v(&c), count = rlki_get_v(&c);
        if (kind < RLKI_KINDS)
            s->kinds[kind] = count;
    }
    if (c.bad || s->next_seq > RLK_MAX_EVENTS || s->first_seq > s->next_seq)
        return RLK_ECORRUPT;
    int rc = get_ranks(&c, ranks, 0, &s->nranks);
    if (rc == RLK_OK)
        rc = get_ranks(&c, ranks, s->nranks, &s->nnamed);
    s->ranks = *ranks;
    if (rc)
        c.bad = true;
    if (c.bad) {
        free(*ranks);
        *ranks = NULL;
        s->ranks = NULL;
        return rc ? rc : RLK_ECORRUPT;
    }
    return RLK_OK;
}

bool rlki_utf8(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t c = p[i];
        if (c == 0)
            return false;
        if (c < 0x80) {
            i++;
            continue;
        }
        size_t more = c >= 0xf0 && c <= 0xf4 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
        if (more == 0 || n - i <= more)
            return false;
        uint32_t code = c & (0x3fu >> more);
        for (size_t k = 1; k <= more; k++) {
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (p[i + k] & 0x3fu);
        }
        if ((more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
            (more == 3 && (code < 0x10000 || code > 0x10ffff)))
            return false;
        i += more + 1;
    }
    return true;
}

void rlki_coverage_reason(struct rlk_coverage *cov, const char *reason, uint64_t count)
{
    char text[sizeof cov->not_digested[0].reason];
    snprintf(text, sizeof text, "%s", reason && *reason ? reason : "unknown");
    for (size_t n = strlen(text); n && !rlki_utf8((const uint8_t *)text, n);)
        text[--n] = 0; /* a cut character, or bytes that are none */
    uint32_t i = 0;
    while (i < cov->nreasons && strcmp(cov->not_digested[i].reason, text) != 0)
        i++;
    if (i == RLK_MAX_REASONS)
        i = RLK_MAX_REASONS - 1; /* the last one collects the rest */
    if (i == cov->nreasons) {
        snprintf(cov->not_digested[i].reason, sizeof text, "%s", i == RLK_MAX_REASONS - 1 ? "other" : text);
        cov->not_digested[i].count = 0;
        cov->nreasons++;
    }
    cov->not_digested[i].count += count;
}
