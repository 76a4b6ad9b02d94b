/* Fuzz target of the recording's readers: the first byte chooses one, the rest is its input. No answer is checked but
 * that there is one: sanitizers and time limits are the judges. */
#include "store/rlk_reader_impl.h"
#include "store/rlk_seal_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/store/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int any_string(void *context, uint64_t id, const char **out)
{
    (void)context;
    *out = "string";
    return id > 1000 ? RLK_ECORRUPT : RLK_OK;
}

static int any_desc(void *context, uint64_t id, const struct rlki_desc **out)
{
    static const uint64_t shape[2] = {3, 5};
    static const struct rlki_desc descs[2] = {
        {.type = RLKI_DESC_TENSOR, .u.tensor = {.name = "t", .dtype = RLK_FP32, .ndim = 2, .shape = shape}},
        {.type = RLKI_DESC_LAUNCH, .u.launch = {.kernel = "k", .image = "", .config = ""}}};
    (void)context;
    *out = &descs[id & 1];
    return id > 1000 ? RLK_ECORRUPT : RLK_OK;
}

static const char *scratch(void)
{
    static char dir[300];
    if (!*dir) {
        char base[256];
        fresh_dir(base, "fuzz");
        snprintf(dir, sizeof dir, "%s/e", base);
        if (mkdir(dir, 0700))
            abort();
    }
    return dir;
}

void fuzz_cleanup(void)
{
    char base[300];
    snprintf(base, sizeof base, "%s", scratch());
    *strrchr(base, '/') = 0;
    drop_dir(base);
}

static void whole_file(const uint8_t *p, size_t n)
{
    char file[320];
    snprintf(file, sizeof file, "%s/data.mdb", scratch());
    if (!sample_spill(file, p, n))
        abort();
    sample_read(scratch(), true);
    unlink(file);
}

static void seal(const uint8_t *p, size_t n)
{
    char file[320];
    struct rlki_seal s;
    struct rlki_buf b = {0};
    uint8_t hash[RLKI_HASH] = {0};
    struct rlki_sha *sha = rlki_sha_new();
    if (!sha)
        return;
    snprintf(file, sizeof file, "%s/SEAL", scratch());
    rlki_put_bytes(&b, p, n);
    rlki_put_bytes(&b, hash, sizeof hash); /* the root: cannot fit; but its own hash does, so that the rest is parsed */
    rlki_sha_start(sha, 0x07);
    rlki_sha_add(sha, b.p, b.n);
    if (rlki_sha_end(sha, hash))
        rlki_put_bytes(&b, hash, sizeof hash);
    if (!b.oom && sample_spill(file, b.p, b.n) && rlki_seal_read(&s, scratch(), sha, NULL) == RLK_OK)
        rlki_seal_release(&s);
    unlink(file);
    rlki_buf_release(&b);
    rlki_sha_free(sha);
}

static void event(const uint8_t *p, size_t n)
{
    static const struct rlki_source source = {NULL, any_string, any_desc};
    struct rlk_arena arena = {0};
    struct rlk_event e;
    uint32_t phase, module;
    if (rlki_decode_event(&source, p, n, 77, &arena, &e, &phase, &module) == RLK_OK) {
        rlk_u128 out, in;
        rlki_event_sums(&e, &out, &in); /* reads all of it */
    }
    rlk_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct rlki_source source = {NULL, any_string, any_desc};
    if (n == 0)
        return 0;
    uint8_t which = *p++ % FUZZ_TARGETS;
    n--;
    if (which == FUZZ_FILE) {
        whole_file(p, n);
    } else if (which == FUZZ_EVENT) {
        event(p, n);
    } else if (which == FUZZ_DESC) {
        struct rlk_arena arena = {0};
        struct rlki_desc desc;
        rlki_decode_desc(&source, p, n, &arena, &desc);
        rlk_arena_release(&arena);
    } else if (which == FUZZ_STATE) {
        struct rlki_state state;
        uint32_t *ranks;
        if (rlki_state_get(&state, &ranks, p, n) == RLK_OK)
            free(ranks);
    } else if (which == FUZZ_ROLL) {
        struct rlki_group *group = rlki_group_new(0, 0);
        if (group)
            rlki_group_merge(group, p, n, 1000, n & 1);
        rlki_group_free(group);
    } else if (which == FUZZ_CHUNK) {
        struct rlki_chunk chunk = {0};
        rlki_chunk_read(&chunk, 5, (struct rlki_cur){p, p + n, false}, NULL);
        rlki_chunk_release(&chunk);
    } else {
        seal(p, n);
    }
    return 0;
}
