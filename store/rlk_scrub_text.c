#include "store/rlk_scrub_impl.h"

#include <stdio.h>

#define DIGITS 12u

uint64_t rlki_scrub_hash(struct rlk_scrub *scrub, const void *bytes, size_t n)
{
    uint8_t hash[RLKI_HASH] = {0};
    uint64_t out;
    rlki_sha_start(scrub->sha, 0x09);
    rlki_sha_add(scrub->sha, scrub->key, sizeof scrub->key);
    rlki_sha_add(scrub->sha, bytes, n);
    if (!rlki_sha_end(scrub->sha, hash))
        memset(hash, 0, sizeof hash); /* says nothing, at least */
    memcpy(&out, hash, sizeof out);
    return out;
}

/* Parts that say what a tensor is, never whose it is; readers go by them (docs/identity.md). */
static bool is_kept(const char *part, size_t n)
{
    static const char *const kept[] = {"weight", "bias", "grad", "tp", "cp", "dp", "pp", "ep"};
    size_t digits = 0;
    while (digits < n && part[digits] >= '0' && part[digits] <= '9')
        digits++;
    if (digits == n)
        return true;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strlen(kept[i]) == n && memcmp(kept[i], part, n) == 0)
            return true;
    return false;
}

/* "layers.0.mlp" becomes "n5f0c... .0.n08ab...": the tree stays. */
static const char *hash_path(struct rlk_scrub *scrub, struct rlk_arena *arena, char letter, const char *text)
{
    size_t parts = 1, n = strlen(text);
    for (size_t i = 0; i < n; i++)
        parts += text[i] == '.';
    char *out = rlk_arena_alloc(arena, n + parts * (DIGITS + 2) + 1, 1), *q = out;
    if (!out)
        return NULL;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ".");
        if (is_kept(p, len)) {
            memcpy(q, p, len);
            q += len;
        } else {
            uint64_t h = rlki_scrub_hash(scrub, p, len) & ((UINT64_C(1) << (4 * DIGITS)) - 1);
            q += sprintf(q, "%c%0*llx", letter, (int)DIGITS, (unsigned long long)h);
        }
        p += len;
        if (!*p)
            break;
        *q++ = '.';
    }
    *q = 0;
    return out;
}

const char *rlki_scrub_text(struct rlk_scrub *scrub, struct rlk_arena *arena, enum rlki_role_of_text role,
                            const char *text)
{
    bool slash = scrub->what & RLK_SCRUB_PATHS && text && strpbrk(text, "/\\");
    if (!text || !*text)
        return "";
    if (role == RLKI_TEXT_NAME && (scrub->what & RLK_SCRUB_NAMES || slash))
        return hash_path(scrub, arena, 'n', text);
    if (role == RLKI_TEXT_OP && (scrub->what & RLK_SCRUB_OPS || slash))
        return hash_path(scrub, arena, 'o', text);
    if (role == RLKI_TEXT_WORD && slash)
        return hash_path(scrub, arena, 'w', text);
    if (role == RLKI_TEXT_FREE && (scrub->what & RLK_SCRUB_NAMES || slash))
        return RLKI_SCRUBBED;
    return text;
}
