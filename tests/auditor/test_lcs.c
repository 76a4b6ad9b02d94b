/* The banded LCS against the textbook one, and its ties against all pairings. */
#include "auditor/audit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static uint64_t state = 88172645463325252u;
static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t textbook(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb)
{
    uint32_t t[41][41] = {{0}};
    for (uint32_t i = na; i-- > 0;)
        for (uint32_t j = nb; j-- > 0;)
            t[i][j] = a[i] == b[j] ? t[i + 1][j + 1] + 1 : t[i + 1][j] > t[i][j + 1] ? t[i + 1][j] : t[i][j + 1];
    return t[0][0];
}

/* Is there a longest pairing that is earlier? Tried at the first place where an earlier choice could be made. */
static bool earliest(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb, const uint32_t *pair)
{
    uint32_t done = 0, j = 0, length = textbook(a, na, b, nb);
    for (uint32_t i = 0; i < na; i++) {
        for (uint32_t k = j; k < nb; k++) {
            if (a[i] != b[k] || done + 1 + textbook(a + i + 1, na - i - 1, b + k + 1, nb - k - 1) != length)
                continue;
            if (pair[i] != k)
                return false; /* this one was possible and comes first */
            break;
        }
        if (pair[i] != UINT32_MAX) {
            done++;
            j = pair[i] + 1;
        }
    }
    return done == length;
}

static void test_random(void **unused)
{
    (void)unused;
    for (int round = 0; round < 3000; round++) {
        uint64_t a[40], b[40];
        uint32_t na = (uint32_t)(next() % 41), nb = (uint32_t)(next() % 41), pair[41];
        uint64_t letters = 1 + next() % 6;
        bool failed = false;
        for (uint32_t i = 0; i < na; i++)
            a[i] = next() % letters;
        for (uint32_t i = 0; i < nb; i++)
            b[i] = next() % letters;
        assert_true(rlki_lcs(a, na, b, nb, pair, &failed));
        uint32_t last = 0, n = 0;
        for (uint32_t i = 0; i < na; i++) {
            if (pair[i] == UINT32_MAX)
                continue;
            assert_true(pair[i] < nb && a[i] == b[pair[i]] && (!n || pair[i] > last));
            last = pair[i];
            n++;
        }
        assert_int_equal(n, textbook(a, na, b, nb));
        assert_true(earliest(a, na, b, nb, pair));
    }
}

static void test_long_with_few_changes(void **unused)
{
    enum { N = 200000 };
    static uint64_t a[N], b[N + 3];
    static uint32_t pair[N];
    bool failed = false;
    (void)unused;
    for (uint32_t i = 0; i < N; i++)
        a[i] = next();
    memcpy(b, a, sizeof a);
    memmove(b + 1001, b + 1000, (N - 1000) * sizeof *b);
    b[1000] = 1; /* one inserted */
    memmove(b + 150002, b + 150000, (N + 1 - 150000) * sizeof *b);
    b[150000] = 2;
    b[150001] = 3;
    assert_true(rlki_lcs(a, N, b, N + 3, pair, &failed));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(pair[i], i < 1000 ? i : i + 1 < 150000 ? i + 1 : i + 3);
}

static void test_too_large_says_so(void **unused)
{
    enum { N = 100000 };
    static uint64_t a[N], b[N];
    static uint32_t pair[N];
    bool failed = false;
    (void)unused;
    for (uint32_t i = 0; i < N; i++) {
        a[i] = next() | 1;
        b[i] = next() & ~UINT64_C(1);
    }
    assert_false(rlki_lcs(a, N, b, N, pair, &failed));
    assert_false(failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long_with_few_changes),
        cmocka_unit_test(test_too_large_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
