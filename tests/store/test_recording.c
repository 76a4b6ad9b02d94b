/* A recording as a whole: names, manifest, completeness, the seal and every byte that it covers. */
#include "store/rlk_recording.h"
#include "store/rlk_writer.h"
#include "tests/store/events.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(x) assert_int_equal((x), RLK_OK)

static json_t *manifest_of(int ranks, const char *created)
{
    return json_pack("{s:i, s:{s:i, s:i}, s:s, s:i}", "rlk_recording", 1, "format", "major", 1, "minor", 0, "created",
                     created, "ranks", ranks);
}

static void write_env(const char *dir, uint32_t rank, const uint32_t *group, uint32_t ngroup, bool incomplete)
{
    char name[64], path[400];
    struct rlk_writer *w;
    struct rlk_producer *p;
    OK(rlk_recording_env_name(name, sizeof name, rank, 40 + rank));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(rlk_writer_open(&w, &(struct rlk_writer_options){.dir = path}, NULL));
    OK(rlk_writer_producer(w, &p));
    for (int64_t step = 0; step < 3; step++) {
        uint64_t shape[1] = {4};
        struct rlk_tensor t = {.name = "y",
                               .dtype = RLK_FP32,
                               .role = RLK_ROLE_OUT,
                               .ndim = 1,
                               .shape = shape,
                               .sums = {.positional = {(uint64_t)step, rank}, .elements = 4}};
        struct rlk_event e = {.kind = RLK_EV_OP, .rank = rank, .who = {.step = step, .module = "m", .op = "mm"}};
        e.ntensors = 1;
        e.tensors = &t;
        OK(rlk_producer_put(p, &e, NULL));
        e = (struct rlk_event){.kind = RLK_EV_COLLECTIVE, .rank = rank, .who = {.step = step, .op = "all_reduce"}};
        e.u.collective.ranks = group;
        e.u.collective.nranks = ngroup;
        OK(rlk_producer_put(p, &e, NULL));
    }
    rlk_u128 id;
    OK(rlk_producer_payload(p, "payload", 7, &id));
    OK(rlk_writer_close(w, incomplete, NULL));
}

static void make(char dir[300], const char *base, const char *name, int ranks, int written, bool incomplete)
{
    json_t *manifest = manifest_of(ranks, "2026-01-01T00:00:00Z");
    static const uint32_t group[] = {0, 1};
    struct rlk_detail detail = {""};
    snprintf(dir, 300, "%s/%s", base, name);
    if (rlk_recording_create(dir, manifest, &detail))
        fail_msg("%s", detail.text);
    json_decref(manifest);
    for (int i = 0; i < written; i++)
        write_env(dir, (uint32_t)i, group, ranks > 1 ? 2 : 0, incomplete);
}

static bool complete(const char *dir, char why[512])
{
    struct rlk_recording *r;
    struct rlk_detail detail = {""};
    if (rlk_recording_open(&r, dir, &detail))
        fail_msg("%s", detail.text);
    bool yes = rlk_recording_complete(r, &detail);
    snprintf(why, 512, "%s", detail.text);
    rlk_recording_close(r);
    return yes;
}

static void completeness(void **state)
{
    (void)state;
    char base[256], dir[300], why[512];
    fresh_dir(base, "complete");
    make(dir, base, "a.rlk", 2, 2, false);
    assert_true(complete(dir, why));
    make(dir, base, "b.rlk", 2, 1, false);
    assert_false(complete(dir, why));
    assert_non_null(strstr(why, "rank 1"));
    make(dir, base, "c.rlk", 1, 1, true);
    assert_false(complete(dir, why));
    assert_non_null(strstr(why, "no END"));
    make(dir, base, "d.rlk", 1, 0, false);
    assert_false(complete(dir, why));
    make(dir, base, "f.rlk", 0, 0, false); /* `ranks` says nothing; the process group names a rank that has no END */
    static const uint32_t group[] = {0, 3};
    write_env(dir, 0, group, 2, false);
    assert_false(complete(dir, why));
    assert_non_null(strstr(why, "rank 3"));
    json_t *manifest = manifest_of(1, "");
    assert_int_equal(rlk_recording_create(dir, manifest, NULL), RLK_EEXIST);
    json_decref(manifest);
    drop_dir(base);
}

static void open_and_coverage(void **state)
{
    (void)state;
    char base[256], dir[300];
    struct rlk_recording *r;
    struct rlk_coverage cov;
    fresh_dir(base, "open");
    make(dir, base, "a.rlk", 2, 2, false);
    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    OK(rlk_recording_open(&r, dir, NULL));
    assert_int_equal(rlk_recording_envs(r), 2);
    assert_non_null(strstr(rlk_recording_env_dir(r, 1), "rank-00001.pid-41"));
    assert_string_equal(rlk_recording_path(r), dir);
    assert_int_equal(json_integer_value(json_object_get(rlk_recording_manifest(r), "ranks")), 2);
    OK(rlk_recording_coverage(r, &cov, NULL));
    assert_int_equal(cov.events, 12);
    assert_int_equal(cov.tensors, 6);
    assert_int_equal(cov.local_placement, 6);
    rlk_recording_close(r);
    drop_dir(base);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void bad_manifests(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", RLK_ECORRUPT},
        {"[]", RLK_ECORRUPT},
        {"{\"rlk_recording\": 1", RLK_ECORRUPT},
        {"{\"rlk_recording\": 1}", RLK_ECORRUPT},
        {"{\"rlk_recording\": 1, \"rlk_recording\": 1, \"format\": {\"major\": 1}}", RLK_ECORRUPT},
        {"{\"rlk_recording\": 1, \"format\": {\"major\": 2, \"minor\": 0}}", RLK_EVERSION},
        {"{\"rlk_recording\": 2, \"format\": {\"major\": 1, \"minor\": 0}}", RLK_EVERSION},
        {"{\"rlk_recording\": 1, \"format\": {\"major\": 1, \"minor\": 9}}", RLK_OK},
    };
    char base[256], dir[300];
    fresh_dir(base, "manifest");
    make(dir, base, "a.rlk", 1, 0, false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rlk_recording *r;
        struct rlk_detail detail = {""};
        write_text(dir, "manifest.json", cases[i].text);
        int rc = rlk_recording_open(&r, dir, &detail);
        if (rc != cases[i].code)
            fail_msg("%s: %s, %s", cases[i].text, rlk_error_name(rc), detail.text);
        if (rc == RLK_OK)
            rlk_recording_close(r);
        else
            assert_non_null(strstr(detail.text, "manifest.json"));
    }
    drop_dir(base);
}

static void names(void **state)
{
    (void)state;
    char base[256], path[512], old[512];
    struct rlk_detail detail = {""};
    fresh_dir(base, "names");
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(base), 0);
    assert_int_equal(rlk_recording_resolve(path, sizeof path, "@1", &detail), RLK_ENOENT);
    static const char *const made[] = {"b", "c", "a"}; /* the order of creation is not that of the names */
    for (int i = 0; i < 3; i++) {
        char dir[64], created[32];
        snprintf(dir, sizeof dir, "rlk-recordings/%s.rlk", made[i]);
        snprintf(created, sizeof created, "2026-01-0%dT00:00:00Z", i + 1);
        json_t *manifest = manifest_of(1, created);
        OK(rlk_recording_create(dir, manifest, &detail));
        json_decref(manifest);
        OK(rlk_recording_set_latest(dir, &detail));
    }
    OK(rlk_recording_resolve(path, sizeof path, NULL, &detail));
    assert_string_equal(path, "rlk-recordings/a.rlk");
    OK(rlk_recording_resolve(path, sizeof path, "@2", &detail));
    assert_string_equal(path, "rlk-recordings/c.rlk");
    assert_int_equal(rlk_recording_resolve(path, sizeof path, "@4", &detail), RLK_ENOENT);
    assert_int_equal(rlk_recording_resolve(path, sizeof path, "@0", &detail), RLK_EINVAL);
    assert_int_equal(rlk_recording_resolve(path, sizeof path, "@x", &detail), RLK_EINVAL);
    OK(rlk_recording_resolve(path, sizeof path, "b", &detail));
    assert_string_equal(path, "rlk-recordings/b.rlk");
    OK(rlk_recording_resolve(path, sizeof path, "rlk-recordings/b", &detail));
    assert_string_equal(path, "rlk-recordings/b.rlk");
    OK(rlk_recording_resolve(path, sizeof path, "rlk-recordings/latest", &detail));
    ssize_t n = readlink("rlk-recordings/latest", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    assert_string_equal(path, "a.rlk");
    assert_int_equal(rlk_recording_resolve(path, sizeof path, "rlk-recordings", &detail), RLK_ENOENT);
    assert_non_null(strstr(detail.text, "manifest.json"));
    assert_int_equal(chdir(old), 0);
    drop_dir(base);
}

struct places {
    int n;
    char first[1024];
};

static int note_place(void *context, const char *place)
{
    struct places *p = context;
    if (p->n++ == 0)
        snprintf(p->first, sizeof p->first, "%s", place);
    return 0;
}

static enum rlk_seal_state verify(const char *dir, struct places *places)
{
    enum rlk_seal_state seal;
    struct rlk_detail detail = {""};
    *places = (struct places){0};
    if (rlk_recording_verify(dir, &seal, note_place, places, &detail))
        fail_msg("%s", detail.text);
    assert_true((seal == RLK_SEAL_TAMPERED) == (places->n > 0));
    return seal;
}

static void flip(const char *path, off_t at)
{
    unsigned char b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, at), 1);
    b ^= (unsigned char)(1u << (at % 8));
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    close(fd);
}

/* Every byte of every small file, and a byte of every 61 of the environment (all of them in test-long's environment).
 */
static void any_byte_is_found(void **state)
{
    (void)state;
    char base[256], dir[300], path[600];
    struct places places;
    fresh_dir(base, "seal");
    make(dir, base, "a.rlk", 1, 1, false);
    assert_int_equal(verify(dir, &places), RLK_SEAL_ABSENT);
    OK(rlk_recording_seal(dir, NULL));
    assert_int_equal(verify(dir, &places), RLK_SEAL_GOOD);
    static const char *const files[] = {"manifest.json", "SEAL", "rank-00000.pid-40/data.mdb"};
    for (int i = 0; i < 3; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        assert_int_equal(stat(path, &st), 0);
        off_t step = st.st_size < 8192 ? 1 : getenv("RLK_TEST_LONG") ? 1 : 61;
        for (off_t at = 0; at < st.st_size; at += step) {
            flip(path, at);
            if (verify(dir, &places) != RLK_SEAL_TAMPERED)
                fail_msg("%s: byte %lld is not covered", files[i], (long long)at);
            if (!strstr(places.first, i == 2 ? "rank-00000.pid-40" : files[i]))
                fail_msg("%s: byte %lld is told as %s", files[i], (long long)at, places.first);
            flip(path, at);
        }
    }
    assert_int_equal(verify(dir, &places), RLK_SEAL_GOOD);
    drop_dir(base);
}

static void added_removed_and_records(void **state)
{
    (void)state;
    char base[256], dir[300], path[700], to[700];
    struct places places;
    fresh_dir(base, "seal2");
    make(dir, base, "a.rlk", 2, 2, false);
    OK(rlk_recording_seal(dir, NULL));
    write_text(dir, "extra", "");
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    assert_non_null(strstr(places.first, "extra: added"));
    snprintf(path, sizeof path, "%s/extra", dir);
    unlink(path);
    assert_int_equal(symlink("manifest.json", path), 0);
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    assert_int_equal(rlk_recording_seal(dir, NULL), RLK_EUNSUPPORTED);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    rmdir(path);
    write_text(dir, "lock.mdb", "a lock is no part of a recording");
    assert_int_equal(verify(dir, &places), RLK_SEAL_GOOD);
    /* A byte of a chunk in use: the record is named before the page. */
    snprintf(path, sizeof path, "%s/rank-00001.pid-41/data.mdb", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f), at = 0;
    fclose(f);
    uint64_t chunk_first = 0;
    for (size_t i = 0; i + 44 < n && !at;
         i++) { /* previous = 0, six events: the head of the only chunk, twice at most */
        static const unsigned char head[20] = {[16] = 6};
        if (memcmp(bytes + i, head, sizeof head) == 0 && bytes[i + 20] == 4 /* newest step 2 */)
            at = i + 16;
    }
    (void)chunk_first;
    assert_true(at > 0);
    flip(path, (off_t)at + 7);
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    if (!strstr(places.first, "rank-00001.pid-41: events 0 to 5"))
        fail_msg("told as %s", places.first);
    flip(path, (off_t)at + 7);
    snprintf(to, sizeof to, "%s/moved", base);
    assert_int_equal(rename(path, to), 0);
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    assert_int_equal(rename(to, path), 0);
    assert_int_equal(truncate(path, (off_t)n - 1), 0);
    assert_int_equal(verify(dir, &places), RLK_SEAL_TAMPERED);
    drop_dir(base);
}

/* A recording on a file system that cannot be written opens and verifies; sealing says why it does not. */
static void read_only(void **state)
{
    (void)state;
    char base[256], dir[300], why[512], command[700];
    struct places places;
    fresh_dir(base, "ro");
    make(dir, base, "a.rlk", 1, 1, false);
    OK(rlk_recording_seal(dir, NULL));
    snprintf(command, sizeof command, "chmod -R a-w '%s'", dir);
    assert_int_equal(system(command), 0);
    assert_true(complete(dir, why));
    assert_int_equal(verify(dir, &places), RLK_SEAL_GOOD);
    snprintf(command, sizeof command, "chmod -R u+w '%s'", dir);
    assert_int_equal(system(command), 0);
    drop_dir(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completeness),      cmocka_unit_test(open_and_coverage),
        cmocka_unit_test(bad_manifests),     cmocka_unit_test(names),
        cmocka_unit_test(any_byte_is_found), cmocka_unit_test(added_removed_and_records),
        cmocka_unit_test(read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
