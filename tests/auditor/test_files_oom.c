/* What reads and writes the files that people hand around, and comparisons that use them, with every allocation refused
 * in turn: RLK_ENOMEM and nothing left behind, or the very same result. */
#include "auditor/rlk_accept.h"
#include "auditor/rlk_audit.h"
#include "auditor/rlk_rolls.h"
#include "recorder/rlk_select.h"
#include "store/rlk_pack.h"
#include "tests/auditor/build_rec.h"
#include "tests/auditor/refuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rec rec_a, rec_again, rec_b, rec_c; /* a, the same, another result, that under another layout */
static char dir[200], accept[260], baseline[260], map[260], dims[260], pack[260], out[260];

static void make_rec(struct rec *rec, const char *name, const char *layout, uint64_t fault)
{
    static const uint64_t logical[2] = {8, 8};
    static const uint32_t nruns[2] = {1, RLK_WHOLE};
    rec_open(rec, name, 2, layout);
    for (uint32_t r = 0; r < 2; r++)
        for (int step = 0; step < 2; step++) {
            const struct rlk_run runs[2] = {{4 * (uint64_t)r, 4}};
            const struct rlk_place place = {.ndim = 2, .shape = logical, .nruns = nruns, .runs = runs};
            rec_op(rec, "mm", "layers.0.mlp", "fwd", step);
            rec->event.rank = r;
            rec_in(rec, "x", 1);
            rec_out(rec, "y", 2 + fault);
            rec_last(rec)->place = &place;
            rec_put(rec);
            rec_op(rec, "norm", "norm", "fwd", step);
            rec->event.rank = r;
            rec_in(rec, "v", 4);
            rec_out(rec, "w", 5);
            rec_put(rec);
        }
    rec_close(rec, false);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* ---- the calls: each gives a result as JSON ---- */

static int call_first_diff(json_t **result, struct rlk_detail *detail)
{
    const char *self[] = {rec_again.dir};
    struct rlk_audit_options options = {
        .a = rec_a.dir, .b = rec_b.dir, .self_a = self, .nself_a = 1, .self_b = self, .nself_b = 1, .accept = accept};
    return rlk_audit_first_diff(result, &options, detail);
}

static int call_mapped(json_t **result, struct rlk_detail *detail)
{
    struct rlk_audit_options options = {.a = rec_a.dir, .b = rec_c.dir, .map = map, .dims = dims};
    return rlk_audit_first_diff(result, &options, detail);
}

static int call_bisect(json_t **result, struct rlk_detail *detail)
{
    return rlk_audit_bisect(result, rec_a.dir, rec_b.dir, NULL, detail);
}

static int call_accept_read(json_t **result, struct rlk_detail *detail)
{
    return rlk_accept_read(result, accept, detail);
}

static json_t *difference; /* what call_accept_make accepts */

static int call_accept_make(json_t **result, struct rlk_detail *detail)
{
    const struct rlk_accept_request request = {.reason = "r", .owner = "o", .expires = "2199-12-31", .any = true};
    size_t n;
    return rlk_accept_make(result, &n, NULL, difference, &request, detail);
}

static int call_baseline_save(json_t **result, struct rlk_detail *detail)
{
    return rlk_baseline_save(result, rec_a.dir, 6144, detail);
}

/* Read beforehand: without memory at a growing text, jansson (2.14) loses a character, and where that is the closing
 * quote it runs past its buffer. */
static json_t *saved;

static int call_baseline_check(json_t **result, struct rlk_detail *detail)
{
    return rlk_baseline_check(result, rec_b.dir, saved, detail);
}

static int call_select(json_t **result, struct rlk_detail *detail)
{
    struct rlk_select *select = NULL;
    int rc = rlk_select_parse(&select, "# rlk.plan/1\nstep=0:1,module=a\\,b,role=out\nname=*.w,rank=3\n\nop=x", detail);
    rlk_select_free(select);
    return rc ? rc : (*result = json_true()) ? RLK_OK : RLK_ENOMEM;
}

static int call_pack(json_t **result, struct rlk_detail *detail)
{
    const struct rlk_pack_item items[] = {{rec_a.dir, "a.rlk"}, {rec_b.dir, "b.rlk"}};
    char path[300];
    snprintf(path, sizeof path, "%s/new.rlkpack", dir);
    int rc = rlk_pack_write(path, items, 2, detail);
    bool there = access(path, F_OK) == 0;
    unlink(path);
    assert_int_equal(there, rc == RLK_OK); /* whole or not at all */
    return rc ? rc : (*result = json_true()) ? RLK_OK : RLK_ENOMEM;
}

static int call_unpack(json_t **result, struct rlk_detail *detail)
{
    static const char *const made[] = {"a.rlk/rank-00000.pid-1/data.mdb", "a.rlk/rank-00000.pid-1",
                                       "a.rlk/manifest.json", "a.rlk"};
    char path[400];
    int rc = rlk_pack_read(pack, out, 0, NULL, NULL, detail);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", out, made[i]);
        assert_int_equal(remove(path) == 0, rc == RLK_OK); /* nothing is left on an error */
    }
    return rc ? rc : (*result = json_true()) ? RLK_OK : RLK_ENOMEM;
}

static const struct {
    const char *name;
    int (*call)(json_t **result, struct rlk_detail *detail);
} calls[] = {{"first-diff --self --accept", call_first_diff},
             {"first-diff --map --dims", call_mapped},
             {"bisect", call_bisect},
             {"accept: reading", call_accept_read},
             {"accept: making", call_accept_make},
             {"baseline save", call_baseline_save},
             {"baseline check", call_baseline_check},
             {"plan", call_select},
             {"pack", call_pack},
             {"unpack", call_unpack}};

static void test_every_allocation(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct rlk_detail detail = {{0}};
        json_t *whole = NULL;
        int rc = calls[i].call(&whole, &detail);
        if (rc)
            fail_msg("%s: %s", calls[i].name, detail.text);
        long n = 0;
        for (bool all = false; !all; n++) {
            json_t *result = NULL;
            refuse_after(n);
            rc = calls[i].call(&result, &detail);
            all = !refuse_met();
            refuse_after(-1);
            if (rc == RLK_EPARSE || (rc == RLK_ECORRUPT && strstr(detail.text, "manifest.json")))
                rc = RLK_ENOMEM; /* the JSON reader takes a token without memory for a wrong one, or a shorter one */
            if (rc != RLK_ENOMEM && !(rc == RLK_OK && json_equal(result, whole)))
                fail_msg("%s, allocation %ld: %s %s", calls[i].name, n, rlk_error_name(rc), detail.text);
            assert_true(rc == RLK_OK || !result);
            json_decref(result);
        }
        assert_true(n > 3);
        print_message("%s: %ld allocations\n", calls[i].name, n);
        json_decref(whole);
    }
}

static void make_files(void)
{
    struct rlk_detail detail = {{0}};
    const struct rlk_pack_item item = {rec_a.dir, "a.rlk"};
    struct rlk_audit_options options = {.a = rec_a.dir, .b = rec_b.dir};
    json_t *json = NULL;
    write_text(accept, "{\"schema\": \"rlk.accept/1\", \"accepted\": [{\"scope\": {\"op\": \"mm\", \"module\": "
                       "\"**\"}, \"reason\": \"r\", "
                       "\"owner\": \"o\", \"expires\": \"2199-12-31\", \"bound\": {\"any\": true}}]}");
    write_text(map, "a layers.*.mlp -> model.{1}.mlp\nb layers.*.mlp -> model.{1}.mlp\n* **#w -> n#w\n");
    write_text(dims, "**#w t(tp) d\n");
    assert_int_equal(rlk_baseline_save(&json, rec_a.dir, 6144, &detail), RLK_OK);
    assert_int_equal(json_dump_file(json, baseline, 0), 0);
    json_decref(json);
    assert_int_equal(rlk_baseline_read(&saved, baseline, &detail), RLK_OK);
    assert_int_equal(rlk_pack_write(pack, &item, 1, &detail), RLK_OK);
    assert_int_equal(rlk_audit_first_diff(&difference, &options, &detail), RLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    const char *const files[] = {accept, baseline, map, dims, pack};
    json_object_seed(1);
    snprintf(dir, sizeof dir, "%.150s/rlkfilesXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    snprintf(accept, sizeof accept, "%s/accept", dir);
    snprintf(baseline, sizeof baseline, "%s/baseline", dir);
    snprintf(map, sizeof map, "%s/map", dir);
    snprintf(dims, sizeof dims, "%s/dims", dir);
    snprintf(pack, sizeof pack, "%s/pack", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    mkdir(out, 0700);
    make_rec(&rec_a, "files_a", "tp2", 0);
    make_rec(&rec_again, "files_again", "tp2", 0);
    make_rec(&rec_b, "files_b", "tp2", 90);
    make_rec(&rec_c, "files_c", "cp2", 90);
    make_files();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(difference);
    json_decref(saved);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir(out);
    rc |= rmdir(dir) != 0; /* nothing else is there */
    rec_remove(&rec_a);
    rec_remove(&rec_again);
    rec_remove(&rec_b);
    rec_remove(&rec_c);
    return rc;
}
