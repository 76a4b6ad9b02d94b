/* Memory that runs out at the n-th allocation, for every n: a return code, nothing leaked (the leak checker of the asan
 * preset), nothing left on the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "recorder/synth/rlk_synth.h"
#include "tests/failing_alloc.h"

static const char text[] =
    "{\"rlk_synth\": 1, \"ranks\": 2, \"layout\": \"tp2\", \"env\": {\"A\": \"b\"}, \"events\": ["
    "{\"op\": \"a\", \"id\": \"e\", \"attrs\": {\"k\": 1}, \"launches\": [{\"kernel\": \"k\", \"attrs\": {\"n\": 2}}], "
    "\"in\": [{\"name\": \"x\", \"dtype\": \"bf16\", \"shape\": [4, 8], \"fill\": {\"normal\": 1}}], "
    "\"out\": [{\"name\": \"y\", \"dtype\": \"fp32\", \"shape\": [4, 8], \"fill\": {\"cast_of\": \"x\"}, \"alloc\": 3, "
    "\"payload\": true, \"samples\": [[\"s\", 0, 3], [\"t\", 3, 2]], "
    "\"logical\": {\"shape\": [8, 16], \"runs\": [[[0, 2], [4, 2]], [[8, 8]]]}, "
    "\"edit\": [{\"mask\": {\"rows\": [1]}, \"change\": {\"permute\": [1, 0, 2, 3]}}, "
    "{\"mask\": {\"shard\": 1}, \"change\": {\"ulp\": 1}}]}]}, "
    "{\"collective\": \"all_reduce\", \"group\": \"g\", \"order\": [1, 0], \"members\": [\"m\"], "
    "\"in\": [{\"name\": \"y\", \"dtype\": \"fp32\", \"shape\": [8, 4], \"fill\": {\"like\": \"y\"}, \"alloc\": 3}]}, "
    "{\"request\": \"r\", \"tokens\": [1, 2], \"policy_versions\": [1, \"b\"]}, {\"relaunch\": \"e\"}, "
    "{\"weights\": \"v\", \"side\": \"trainer\", \"tensors\": [{\"name\": \"w\", \"dtype\": \"int8\", \"shape\": "
    "[]}]}]}";

static json_t *spec_of(const char *json)
{
    json_error_t error;
    json_t *spec = json_loads(json, 0, &error);
    if (!spec)
        fprintf(stderr, "%d:%d %s\n", error.line, error.column, error.text);
    assert_non_null(spec);
    return spec;
}

static void test_check(void **state)
{
    json_t *spec = spec_of(text);
    struct rlk_detail detail;
    long n = 0;
    int rc;

    (void)state;
    do {
        assert_true(n < 10000);
        alloc_fail(++n, 1);
        rc = rlk_synth_check(spec, &detail);
        alloc_restore();
        if (rc)
            assert_int_equal(rc, RLK_ENOMEM);
    } while (rc);
    assert_true(n > 10); /* it did fail on the way */
    json_decref(spec);
}

static void test_run(void **state)
{
    json_t *spec = spec_of(text);
    struct rlk_detail detail;
    struct stat st;
    char dir[] = "/tmp/rlkoomXXXXXX", path[64], command[128];
    long n = 0, failures = 0;
    int rc;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.rlk", dir);
    do {
        assert_true(n < 100000);
        alloc_fail(n + 1, 1);
        rc = rlk_synth_run(spec, path, NULL, NULL, &detail);
        alloc_restore();
        if (rc) {
            failures++;
            if (stat(path, &st) == 0)
                fail_msg("allocation %ld: %s is left (%s: %s)", n, path, rlk_error_name(rc), detail.text);
        }
        n += 1 + n / 40; /* every one of the first 40, then ever fewer: the store has its own test */
    } while (rc);
    assert_true(failures > 40);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    json_decref(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
