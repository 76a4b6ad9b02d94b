/* Memory that runs out at the n-th allocation, for every n: RLK_ENOMEM and nothing else, or the very same result.
 * Linked with --wrap for malloc, calloc and realloc. */
#include "auditor/rlk_audit.h"
#include "tests/auditor/build_rec.h"
#include "tests/auditor/refuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* A little of everything: a root, what follows from it, an event alone, a collective, weights, samples, launches. */
static void make(struct rec *rec, const char *name, uint32_t ranks, const char *layout, uint64_t fault)
{
    static const uint32_t all[] = {0, 1};
    static const struct rlk_attr combines = {"combines", RLK_ATTR_STRING, 0, 0.0, "0,1"};
    const struct rlk_launch launch = {
        .kernel = fault ? "k2" : "k1", .grid = {1, 1, 1}, .block = {1, 1, 1}, .graph = -1, .node = -1};
    struct rlk_sample_part samples[2] = {{.id = "s1", .extent = 2, .has_sums = true},
                                         {.id = "s2", .start = 2, .extent = 2, .has_sums = true}};
    rec_open(rec, name, ranks, layout);
    for (uint32_t r = 0; r < ranks; r++) {
        rec_op(rec, "mm", "m", "fwd", 0);
        rec->event.rank = r;
        rec->event.nlaunches = 1;
        rec->event.launches = &launch;
        rec_in(rec, "x", 1);
        rec_out(rec, "y", 2 + fault);
        samples[0].sums.elements = samples[1].sums.elements = 16;
        samples[1].sums.positional.lo = fault;
        rec_last(rec)->nsamples = 2;
        rec_last(rec)->samples = samples;
        uint64_t y = rec_put(rec);
        rec_op(rec, fault ? "extra_b" : "extra_a", "m", "fwd", 0);
        rec->event.rank = r;
        rec_ref(rec, "y", y, 0);
        rec_out(rec, "z", 3);
        rec_put(rec);
        rec_op(rec, "all_reduce", "m", "bwd", 0);
        rec->event.rank = r;
        rec->event.kind = RLK_EV_COLLECTIVE;
        rec->event.u.collective.group = "dp";
        rec->event.u.collective.nranks = ranks;
        rec->event.u.collective.ranks = all;
        rec_ref(rec, "y", y, 0);
        rec_out(rec, "s", 5 + fault);
        rec_put(rec);
        rec_op(rec, "gather", "m", "fwd", 0);
        rec->event.rank = r;
        rec->event.nattrs = 1;
        rec->event.attrs = &combines;
        rec_ref(rec, "y", y, 0);
        rec_out(rec, "g", 8 + fault);
        rec_put(rec);
        rec_op(rec, "weights", "", "opt", 0);
        rec->event.rank = r;
        rec->event.kind = RLK_EV_WEIGHTS;
        rec->event.u.weights.side = "rollout";
        rec->event.u.weights.version = "v1";
        rec_out(rec, "w.weight", 7 + fault);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static long every_allocation(const struct rlk_audit_options *options, bool explain)
{
    json_t *whole = NULL, *result;
    struct rlk_detail detail;
    long n = 0;
    int rc = explain ? rlk_audit_explain(&whole, options, -1, -1, true, &detail)
                     : rlk_audit_first_diff(&whole, options, &detail);
    assert_int_equal(rc, RLK_OK);
    for (;; n++) {
        result = NULL;
        refuse_after(n);
        rc = explain ? rlk_audit_explain(&result, options, -1, -1, true, &detail)
                     : rlk_audit_first_diff(&result, options, &detail);
        bool all = !refuse_met();
        refuse_after(-1);
        if (rc == RLK_OK && !json_equal(result, whole)) {
            print_message("allocation %ld\n", n);
            json_dumpf(result, stdout, JSON_INDENT(1));
        }
        if (rc == RLK_ECORRUPT && strstr(detail.text, "manifest.json"))
            rc = RLK_ENOMEM; /* the JSON reader's word for it, below us */
        if (rc != RLK_OK && rc != RLK_ENOMEM)
            print_message("allocation %ld: %s %s\n", n, rlk_error_name(rc), detail.text);
        assert_true(rc == RLK_ENOMEM || (rc == RLK_OK && json_equal(result, whole)));
        assert_true(rc == RLK_OK || !result);
        json_decref(result);
        if (all)
            break;
    }
    json_decref(whole);
    return n;
}

static void test_every_allocation(void **unused)
{
    struct rec a, b, c;
    (void)unused;
    json_object_seed(1);
    make(&a, "oom_a", 2, NULL, 0);
    make(&b, "oom_b", 2, NULL, 90);
    make(&c, "oom_c", 1, NULL, 90);
    struct rlk_audit_options same = {.a = a.dir, .b = b.dir}, cross = {.a = a.dir, .b = c.dir, .allow_source = true};
    assert_true(every_allocation(&same, false) > 100);
    assert_true(every_allocation(&same, true) > 100);
    assert_true(every_allocation(&cross, false) > 50);
    rec_remove(&a);
    rec_remove(&b);
    rec_remove(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
