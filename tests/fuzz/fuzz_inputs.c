/* The files that people hand around, hostile: acceptances, baselines, map and dims files, plans, packs. As fuzz_main.c:
 * the first byte chooses a target, the rest is its input; seeds are well-formed files, mutated deterministically.
 * Judges are the sanitizers, a time limit, and, of a pack, what lies on the disk: nothing outside the folder it is
 * unpacked to, and after an error nothing in it.
 *
 *   fuzz.inputs [ROUNDS [SEED]]
 */
#include "auditor/accept.h"
#include "auditor/mapfile.h"
#include "auditor/rlk_audit.h"
#include "auditor/rlk_rolls.h"
#include "recorder/rlk_select.h"
#include "store/rlk_pack_impl.h"
#include "store/rlk_recording.h"
#include "tests/auditor/build_rec.h"
#include "tests/store/random.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { ACCEPT, BASELINE, MAP, DIMS, PLAN, TAR, PACK, TARGETS };
#define MOST 65536u

static struct rec rec_a, rec_b; /* what the files are applied to: another layout each */
static char base[200], file[260], out[260], outside[260];
static unsigned long taken[TARGETS], refused[TARGETS];

static void spill(const void *p, size_t n)
{
    unlink(file); /* a file that is cut to nothing and written again is flushed to the disk at once */
    FILE *f = fopen(file, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void count(int target, int rc)
{
    (rc == RLK_OK ? taken : refused)[target]++;
}

static void apply(const char *accept, const char *map, const char *dims)
{
    struct rlk_audit_options options = {.a = rec_a.dir, .b = rec_b.dir, .accept = accept, .map = map, .dims = dims};
    struct rlk_detail detail = {{0}};
    json_t *result = NULL;
    int rc = rlk_audit_first_diff(&result, &options, &detail);
    if ((rc == RLK_OK) != (result != NULL) || (rc && !detail.text[0]))
        abort(); /* an error says what it is */
    json_decref(result);
}

static void accepted(void)
{
    struct rlk_detail detail = {{0}};
    json_t *json = NULL;
    int rc = rlk_accept_read(&json, file, &detail);
    count(ACCEPT, rc);
    if ((rc == RLK_OK) != (json != NULL) || (rc && !detail.text[0]))
        abort();
    json_decref(json);
    if (rc == RLK_OK && taken[ACCEPT] % 16 == 0)
        apply(file, NULL, NULL);
}

static void baseline(void)
{
    struct rlk_detail detail = {{0}};
    json_t *json = NULL, *result = NULL;
    int rc = rlk_baseline_read(&json, file, &detail);
    count(BASELINE, rc);
    if ((rc == RLK_OK) != (json != NULL) || (rc && !detail.text[0]))
        abort();
    if (rc == RLK_OK && rlk_baseline_check(&result, rec_a.dir, json, &detail) != RLK_OK && !detail.text[0])
        abort();
    json_decref(result);
    json_decref(json);
}

static void mapping(bool dims)
{
    struct rlki_mapping *mapping = NULL;
    struct rlk_detail detail = {{0}};
    int rc = rlki_mapping_open(&mapping, dims ? NULL : file, dims ? file : NULL, &detail);
    count(dims ? DIMS : MAP, rc);
    rlki_mapping_free(mapping);
    if (rc == RLK_OK && taken[dims ? DIMS : MAP] % 8 == 0)
        apply(NULL, dims ? NULL : file, dims ? file : NULL);
}

static void plan(const uint8_t *p, size_t n)
{
    char *text = malloc(n + 1);
    struct rlk_select *select = NULL;
    struct rlk_detail detail = {{0}};
    if (!text)
        abort();
    memcpy(text, p, n);
    text[n] = '\0';
    int rc = rlk_select_parse(&select, text, &detail);
    count(PLAN, rc);
    if (rc == RLK_OK) {
        struct rlk_identity who = {.phase = "actor_train", .pass = "fwd", .module = "m", .op = "mm", .sample = ""};
        rlk_select_match(select, &who, 0, RLK_ROLE_OUT, 0, "y");
    }
    rlk_select_free(select);
    free(text);
}

/* Removes what is below `dir`; how many things there were. */
static int sweep(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[900];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        n++;
        snprintf(path, sizeof path, "%.600s/%.255s", dir, e->d_name);
        if (unlink(path) != 0) {
            sweep(path);
            rmdir(path);
        }
    }
    if (d)
        closedir(d);
    return n;
}

static void unpack(int target, const void *p, size_t n)
{
    struct rlk_detail detail = {{0}};
    spill(p, n);
    int rc = rlk_pack_read(file, out, 0, NULL, NULL, &detail);
    count(target, rc);
    if (rc && !detail.text[0])
        abort();
    int left = sweep(out);
    if ((rc && left) || (!rc && !left) || sweep(outside) || access(base, F_OK) != 0)
        abort(); /* an error leaves nothing; nothing is written elsewhere */
}

/* The tar archive inside: half of the time its headers' sums are made right again, so that more than they is tried. */
static void tar(const uint8_t *p, size_t n)
{
    static uint8_t copy[MOST + 8], packed[ZSTD_COMPRESSBOUND(MOST + 8)];
    memcpy(copy, p, n);
    for (size_t at = 0; n && p[0] % 2 == 0 && at + RLKI_TAR_BLOCK <= n; at += RLKI_TAR_BLOCK) {
        struct rlki_tar *h = (struct rlki_tar *)(void *)(copy + at);
        if (memcmp(h->magic, "ustar", 5) == 0)
            snprintf(h->check, sizeof h->check, "%06o", rlki_tar_check(h));
    }
    size_t size = ZSTD_compress(packed, sizeof packed, copy, n, 1);
    if (ZSTD_isError(size))
        abort();
    unpack(TAR, packed, size);
}

static void one_input(const uint8_t *p, size_t n)
{
    int target = p[0] % TARGETS;
    p++;
    n--;
    if (target < PLAN)
        spill(p, n);
    switch (target) {
    case ACCEPT:
        accepted();
        break;
    case BASELINE:
        baseline();
        break;
    case MAP:
    case DIMS:
        mapping(target == DIMS);
        break;
    case PLAN:
        plan(p, n);
        break;
    case TAR:
        tar(p, n);
        break;
    default:
        unpack(PACK, p, n);
    }
}

/* ---- seeds ---- */

static struct seed {
    uint8_t *p;
    size_t n;
} seeds[64];
static size_t nseeds;

static void add(int target, const void *p, size_t n)
{
    struct seed *s = &seeds[nseeds++];
    if (n > MOST || !(s->p = malloc(n + 1)))
        abort();
    s->p[0] = (uint8_t)target;
    memcpy(s->p + 1, p, n);
    s->n = n + 1;
}

static void add_text(int target, const char *text)
{
    add(target, text, strlen(text));
}

static void make_rec(struct rec *rec, const char *name, const char *layout, uint64_t fault)
{
    static const uint64_t logical[2] = {8, 8};
    rec_open(rec, name, 2, layout);
    for (uint32_t r = 0; r < 2; r++) {
        const struct rlk_run runs[2] = {{4 * (uint64_t)r, 4}};
        static const uint32_t nruns[2] = {1, RLK_WHOLE};
        const struct rlk_place place = {.ndim = 2, .shape = logical, .nruns = nruns, .runs = runs};
        rec_op(rec, "mm", "layers.0.mlp", "fwd", 0);
        rec->event.rank = r;
        rec_in(rec, "x", 1);
        rec_out(rec, "y", 2 + fault);
        rec_last(rec)->place = &place;
        rec_out(rec, "z", 3 + fault); /* local: the dims files say where it lies */
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void slurp(int target, const char *path, bool packed)
{
    static char bytes[4 * MOST], plain[MOST];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f)
        fclose(f);
    if (packed) {
        unsigned long long size = ZSTD_getFrameContentSize(bytes, n);
        ZSTD_DCtx *zstd = ZSTD_createDCtx();
        ZSTD_inBuffer from = {bytes, n, 0};
        ZSTD_outBuffer to = {plain, sizeof plain, 0};
        if (ZSTD_isError(ZSTD_decompressStream(zstd, &to, &from)) || size == 0)
            abort();
        ZSTD_freeDCtx(zstd);
        add(TAR, plain, to.pos);
    }
    add(target, bytes, n < MOST ? n : MOST);
}

static void make_seeds(void)
{
    struct rlk_detail detail = {{0}};
    struct rlk_pack_item items[2] = {{rec_a.dir, "a.rlk"}, {rec_b.dir, "b.rlk"}};
    json_t *json = NULL;
    add_text(ACCEPT,
             "{\"schema\": \"rlk.accept/1\", \"accepted\": [{\"scope\": {\"step\": 0, \"phase\": \"actor_*\", "
             "\"pass\": \"fwd\", \"module\": \"**\", \"op\": \"mm\", \"role\": \"out\"}, \"reason\": \"r\", \"owner\": "
             "\"o\", \"expires\": \"2199-12-31\", \"bound\": {\"max_ulp\": 4}}]}");
    add_text(
        ACCEPT,
        "{\"schema\": \"rlk.accept/1\", \"comment\": \"c\", \"accepted\": [{\"scope\": {\"op\": \"mm\"}, "
        "\"reason\": \"r\", \"owner\": \"o\", \"expires\": \"2026-02-28\", \"bound\": {\"any\": true}}, {\"scope\": "
        "{\"op\": \"*\", \"index\": 1, \"name\": \"z\"}, \"reason\": \"r\", \"owner\": \"o\", \"expires\": "
        "\"2199-01-01\", \"bound\": {\"any\": true}}]}");
    for (size_t most = 6144; most; most = most > 100 ? most / 64 : 0) {
        if (rlk_baseline_save(&json, rec_a.dir, most, &detail) != RLK_OK)
            abort();
        char *text = json_dumps(json, 0);
        add_text(BASELINE, text);
        free(text);
        json_decref(json);
    }
    add_text(
        MAP,
        "# names\na layers.*.mlp -> model.layers.{1}.mlp\nb **.mlp -> model.{1}.mlp\n* x.*.*.*#y* -> y.{3}.{1}#{4}\n"
        "* **#z -> m#z {\"shape\":[8,8],\"runs\":[[[0,4]],[[0,4],[4,4]]]}\n");
    add_text(DIMS, "layers.*.mlp#z t(cp:zigzag) h(tp)\na ** t(tp) d\nb ** t(tp:zigzag) h(dp)\n");
    add_text(
        PLAN,
        "# rlk.plan/1\nstep=0:1,rank=0,work=0,call=0,occurrence=0,phase=actor_train,pass=fwd,sample=,module=a\\,b\\*,"
        "op=mm,role=out,index=0\nname=*.weight\niteration=-3,role=in\n\nstep=:5,module=[a-z]?\n");
    if (rlk_pack_write(file, items, 1, &detail) != RLK_OK)
        abort();
    slurp(PACK, file, true);
    if (rlk_pack_write(file, items, 2, &detail) != RLK_OK)
        abort();
    slurp(PACK, file, true);
}

static size_t mutate(struct rng *r, uint8_t *to, const struct seed *from)
{
    static const char *const words[] = {"..",
                                        "/",
                                        "\0",
                                        "-1",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e400",
                                        "null",
                                        "{}",
                                        "[]",
                                        "[[[",
                                        "\\u0000",
                                        "\xff",
                                        "**",
                                        "{9}",
                                        "0..9",
                                        "77777777777",
                                        "rank-00000.pid-1/data.mdb",
                                        "2"};
    size_t n = from->n;
    memcpy(to, from->p, n);
    for (uint64_t k = 0, times = 1 + rng_below(r, 4); k < times && n > 1; k++) {
        size_t at = 1 + (size_t)rng_below(r, n - 1);
        if (from->p[0] == TAR && rng_below(r, 2)) /* in a header rather than in what follows */
            at = 1 + (at - 1) / RLKI_TAR_BLOCK % 8 * RLKI_TAR_BLOCK + (size_t)rng_below(r, 160);
        at = at < n ? at : n - 1;
        const char *word = words[rng_below(r, sizeof words / sizeof *words)];
        size_t len = strlen(word) + !*word;
        switch (rng_below(r, 7)) {
        case 0:
            to[at] = (uint8_t)rng_word(r);
            break;
        case 1:
            to[at] ^= (uint8_t)(1u << rng_below(r, 8));
            break;
        case 2:
            n = at;
            break;
        case 3: /* a word over what is there */
            memcpy(to + at, word, at + len <= n ? len : n - at);
            break;
        case 4: /* a word between */
            if (n + len <= MOST) {
                memmove(to + at + len, to + at, n - at);
                memcpy(to + at, word, len);
                n += len;
            }
            break;
        case 5: { /* a piece is left out */
            size_t cut = 1 + (size_t)rng_below(r, from->p[0] == TAR ? 2 * RLKI_TAR_BLOCK : 24);
            cut = cut < n - at ? cut : n - at;
            memmove(to + at, to + at + cut, n - at - cut);
            n -= cut;
            break;
        }
        default: { /* a piece twice */
            size_t len2 =
                from->p[0] == TAR ? RLKI_TAR_BLOCK * (1 + (size_t)rng_below(r, 3)) : 1 + (size_t)rng_below(r, 40);
            if (from->p[0] == TAR)
                at = 1 + (at - 1) / RLKI_TAR_BLOCK * RLKI_TAR_BLOCK;
            len2 = len2 < n - at ? len2 : n - at;
            if (n + len2 <= MOST) {
                memmove(to + at + len2, to + at, n - at);
                n += len2;
            }
        }
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 4000;
    struct rng r = rng_new(argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 1);
    uint8_t *input = malloc(2 * MOST + 8);
    int rc = 0;
    make_rec(&rec_a, "fuzz_a", "tp2", 0);
    make_rec(&rec_b, "fuzz_b", "cp2", 90);
    snprintf(base, sizeof base, "%.150s/fuzzXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!input || !mkdtemp(base))
        return 1;
    snprintf(file, sizeof file, "%s/input", base);
    snprintf(outside, sizeof outside, "%s/outside", base);
    snprintf(out, sizeof out, "%s/outside/out", base);
    mkdir(outside, 0700);
    snprintf(out, sizeof out, "%s/out", base); /* beside it: `..` leads to the folder of both */
    mkdir(out, 0700);
    make_seeds();
    for (size_t i = 0; i < nseeds; i++)
        one_input(seeds[i].p, seeds[i].n);
    for (int t = 0; t < TARGETS; t++)
        rc |= !taken[t]; /* each has a seed that is taken as it is */
    for (unsigned long i = 0; i < rounds; i++)
        one_input(input, mutate(&r, input, &seeds[rng_below(&r, nseeds)]));
    for (int t = 0; t < TARGETS; t++)
        rc |= !refused[t];
    static const char *const names[] = {"accept", "baseline", "map", "dims", "plan", "tar", "pack"};
    for (int t = 0; t < TARGETS; t++)
        printf("%s: %lu taken, %lu refused\n", names[t], taken[t], refused[t]);
    for (size_t i = 0; i < nseeds; i++)
        free(seeds[i].p);
    free(input);
    unlink(file);
    rc |= sweep(base) != 2; /* nothing but the two folders */
    rmdir(base);
    rec_remove(&rec_a);
    rec_remove(&rec_b);
    return rc;
}
