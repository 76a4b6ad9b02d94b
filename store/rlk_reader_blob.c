#include "store/rlk_reader_impl.h"

#include <xxhash.h>

/* Appends part `part` to *out; *total = what the whole blob has. */
static int read_part(struct rlk_env *env, rlk_u128 id, uint32_t part, struct rlki_buf *out, uint64_t *total,
                     struct rlk_detail *detail)
{
    uint8_t key[RLKI_BLOB_KEY];
    struct rlki_cur body;
    rlki_blob_key(key, id, part);
    int rc = rlki_env_value(env, RLKI_DB_BLOBS, key, sizeof key, false, NULL, &body, detail);
    if (rc)
        return rc;
    uint8_t codec = rlki_get_u8(&body);
    *total = rlki_get_v(&body);
    uint64_t size = rlki_get_v(&body), at = (uint64_t)part * RLKI_BLOB_PART;
    if (body.bad || *total > RLKI_MAX_BLOB || size > RLKI_BLOB_PART || at > *total ||
        size != (*total - at < RLKI_BLOB_PART ? *total - at : RLKI_BLOB_PART))
        return RLK_ECORRUPT;
    return rlki_unpack(out, codec, body.p, rlki_left(&body), size);
}

static int read_blob(struct rlk_env *env, rlk_u128 id, uint64_t max_bytes, struct rlki_buf *out,
                     struct rlk_detail *detail)
{
    uint64_t total = 0, again;
    int rc = read_part(env, id, 0, out, &total, detail);
    if (rc == RLK_OK && total > max_bytes)
        return rlk_fail(detail, RLK_ELIMIT, "a payload of %llu bytes", (unsigned long long)total);
    for (uint32_t part = 1; rc == RLK_OK && out->n < total; part++) {
        rc = read_part(env, id, part, out, &again, detail);
        if (rc == RLK_ENOENT || (rc == RLK_OK && again != total))
            rc = RLK_ECORRUPT;
    }
    if (rc == RLK_OK) {
        XXH128_hash_t h = XXH3_128bits(out->p, out->n);
        if (h.low64 != id.lo || h.high64 != id.hi)
            rc = RLK_ECORRUPT;
    }
    return rc;
}

int rlk_env_payload(struct rlk_env *env, rlk_u128 id, uint64_t max_bytes, void **bytes, size_t *n,
                    struct rlk_detail *detail)
{
    struct rlki_buf out = {0};
    *bytes = NULL;
    *n = 0;
    int rc = read_blob(env, id, max_bytes, &out, detail);
    if (rc == RLK_OK && !rlki_buf_room(&out, 1)) /* malloc'ed even when it is empty */
        rc = RLK_ENOMEM;
    if (rc) {
        rlki_buf_release(&out);
        if (rc != RLK_ELIMIT)
            rlk_fail(detail, rc, "payload %016llx%016llx: %s", (unsigned long long)id.hi, (unsigned long long)id.lo,
                     rc == RLK_ENOENT     ? "not stored"
                     : rc == RLK_ECORRUPT ? "damaged"
                                          : rlk_error_sentence(rc));
        return rlki_env_place(env, rc, detail);
    }
    *bytes = out.p;
    *n = out.n;
    return RLK_OK;
}
