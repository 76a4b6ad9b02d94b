/* Drives fuzz_reader.c without libFuzzer: seeds from a real recording, mutated deterministically.
 *
 *   fuzz_main [ROUNDS [SEED]]      bounded, for `make test`
 *   fuzz_main -w DIR               writes the seeds as a corpus for libFuzzer
 */
#include "store/rlk_encode.h"
#include "store/rlk_reader_impl.h"
#include "store/rlk_seal_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/store/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST 400u

struct seed {
    unsigned char *p; /* target, then its input */
    size_t n;
};
static struct seed seeds[MOST];
static size_t nseeds;

static void add(int target, const void *p, size_t n)
{
    if (nseeds == MOST)
        return;
    struct seed *s = &seeds[nseeds++];
    s->p = malloc(n + 1);
    if (!s->p)
        abort();
    s->p[0] = (unsigned char)target;
    if (n)
        memcpy(s->p + 1, p, n);
    s->n = n + 1;
}

static void add_values(struct rlk_env *env, enum rlki_database db, int target)
{
    struct rlki_mdb_cursor c;
    if (rlki_mdb_cursor_init(&c, &env->mdb, &env->trees[db]))
        abort();
    for (int rc = rlki_mdb_first(&c, NULL); rc == RLK_OK; rc = rlki_mdb_next(&c, NULL)) {
        struct rlki_cur body;
        if (rlki_env_cursor_value(env, db, &c, &body, NULL) == RLK_OK)
            add(target, body.p, rlki_left(&body));
    }
    rlki_mdb_cursor_release(&c);
}

static void add_records(void)
{
    struct rlki_encoder enc = {0};
    struct rlk_arena arena = {0};
    struct rng r = {1};
    for (int i = 0; i < 5 * RLK_EV_NOTE; i++) {
        struct rlki_buf out = {0};
        uint32_t phase, module;
        rlk_arena_reset(&arena);
        struct rlk_event e = random_event(&r, (enum rlk_event_kind)(1 + i % RLK_EV_NOTE), &arena);
        if (rlki_encode_event(&enc, &out, &e, &phase, &module) == RLK_OK) {
            struct rlki_cur c = {out.p, out.p + out.n, false};
            uint64_t n = rlki_get_v(&c);
            add(FUZZ_EVENT, c.p, (size_t)n);
        }
        rlki_buf_release(&out);
    }
    for (size_t i = 0; i < enc.descs.count && i < 60; i++)
        add(FUZZ_DESC, enc.descs.entries[i].p, enc.descs.entries[i].n);
    rlki_encoder_release(&enc);
    rlk_arena_release(&arena);
}

static void make_seeds(void)
{
    char base[256], dir[300], path[320];
    struct rlk_env *env;
    size_t n;
    fresh_dir(base, "seeds");
    snprintf(dir, sizeof dir, "%s/rank-00000.pid-1", base);
    snprintf(path, sizeof path, "%s/data.mdb", dir);
    if (!sample_write(dir, 2, 30, false) || rlk_env_open(&env, dir, NULL) || rlk_recording_seal(base, NULL))
        abort();
    add_records();
    add_values(env, RLKI_DB_STATE, FUZZ_STATE);
    add_values(env, RLKI_DB_ROLLMOD, FUZZ_ROLL);
    add_values(env, RLKI_DB_EVENTS, FUZZ_CHUNK);
    rlk_env_close(env);
    unsigned char *bytes = sample_slurp(path, &n);
    if (bytes)
        add(FUZZ_FILE, bytes, n);
    free(bytes);
    snprintf(path, sizeof path, "%s/SEAL", base);
    bytes = sample_slurp(path, &n);
    if (bytes)
        add(FUZZ_SEAL, bytes, n - 2 * RLKI_HASH);
    free(bytes);
    drop_dir(base);
}

static int write_corpus(const char *dir)
{
    mkdir(dir, 0777);
    for (size_t i = 0; i < nseeds; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%03zu", dir, i);
        if (!sample_spill(path, seeds[i].p, seeds[i].n))
            return 1;
    }
    return 0;
}

static size_t mutate(struct rng *r, unsigned char *to, const struct seed *from)
{
    size_t n = from->n;
    memcpy(to, from->p, n);
    for (uint64_t k = 0, times = 1 + rng_below(r, 6); k < times && n > 1; k++) {
        size_t at = 1 + (size_t)rng_below(r, n - 1);
        switch (rng_below(r, 6)) {
        case 0:
            to[at] = (unsigned char)rng_next(r);
            break;
        case 1:
            to[at] ^= (unsigned char)(1u << rng_below(r, 8));
            break;
        case 2:
            for (size_t i = at; i < n && i < at + 10; i++)
                to[i] = (unsigned char)(i + 1 == at + 10 ? 1 : 0xff);
            break;
        case 3:
            n = at;
            break;
        case 4: { /* a piece of another place */
            size_t other = 1 + (size_t)rng_below(r, n - 1), len = (size_t)rng_below(r, 32);
            for (size_t i = 0; i < len && at + i < n && other + i < n; i++)
                to[at + i] = from->p[other + i];
            break;
        }
        default:
            to[at] = 0;
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    make_seeds();
    int rc = 0;
    if (argc > 2 && strcmp(argv[1], "-w") == 0) {
        rc = write_corpus(argv[2]);
    } else {
        unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 20000, last[FUZZ_TARGETS] = {0};
        struct rng r = {argc > 2 ? strtoull(argv[2], NULL, 0) : 1};
        size_t most = 0;
        for (size_t i = 0; i < nseeds; i++) {
            most = seeds[i].n > most ? seeds[i].n : most;
            LLVMFuzzerTestOneInput(seeds[i].p, seeds[i].n);
            last[seeds[i].p[0]]++;
        }
        unsigned char *input = malloc(most + 1);
        for (unsigned long i = 0; input && i < rounds; i++) {
            const struct seed *s = &seeds[rng_below(&r, nseeds)];
            size_t n = mutate(&r, input, s);
            LLVMFuzzerTestOneInput(input, n);
        }
        free(input);
        for (int i = 0; i < FUZZ_TARGETS; i++)
            rc |= last[i] == 0; /* every target had a seed */
        printf("%lu mutations of %zu seeds\n", rounds, nseeds);
    }
    for (size_t i = 0; i < nseeds; i++)
        free(seeds[i].p);
    fuzz_cleanup();
    return rc;
}
