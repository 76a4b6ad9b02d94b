/* test_provider.c - the provider's rows: there is one for every leaf, mode off runs them and nothing else, strict never
 * runs one, and each moves the bits of its own module.
 *
 * `test_provider [cuda [emulated]]`. How far its values are from FP64: test_reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "kernels/rlki_prims.h"

static enum rlk_device device;
static bool emulated;

/* ---- a table whose leaves refuse ---- */

static const char *fell;
#define X(op, type)                                                                                                    \
    static int trap_##op(struct rlk_exec *x, const struct type *a)                                                     \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        fell = #op;                                                                                                    \
        return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "trap: %s", #op);                                                \
    }
RLKI_LEAVES(X)
#undef X

static int trap_both(struct rlk_exec *x, const struct rlki_norm *b, const struct rlki_gamma *a)
{
    (void)b, (void)a;
    fell = "norm_bwd_gamma";
    return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "trap: norm_bwd_gamma");
}

static int trap_leaves(struct rlk_exec *x, const struct rlki_gemm *g, int leaves, float *const *c)
{
    (void)leaves, (void)c;
    return trap_gemm(x, g);
}

static struct rlki_prims trapped(const struct rlki_prims *real)
{
    struct rlki_prims t = *real;
#define X(op, type) t.op = trap_##op;
    RLKI_LEAVES(X)
#undef X
    t.norm_bwd_gamma = trap_both;
    t.gemm_leaves = t.gemm_leaves ? trap_leaves : NULL;
    return t;
}

static struct rlk_exec plain(void)
{
    struct rlk_exec x;
    assert_int_equal(rlk_exec_init(&x, device, NULL, NULL), 0);
    return x;
}

static int run(const char *mode, const struct rlki_prims *prims, const struct rlki_prims *provider, struct t_result *r,
               char why[256])
{
    struct rlk_policy *p = rlk_policy_new();
    struct t_case c = t_small(device, p);
    assert_int_equal(rlk_policy_mode(p, mode, NULL), 0);
    c.prims = prims;
    c.provider = provider;
    c.loose = strcmp(mode, "strict") != 0 && strcmp(mode, "audit") != 0;
    fell = NULL;
    const int rc = t_run(&c, r, why);
    rlk_policy_free(p);
    return rc;
}

/* ---- */

static void every_leaf_has_a_row(void **state)
{
    const struct rlk_exec x = plain();
    (void)state;
#define X(op, type)                                                                                                    \
    assert_true(x.prims->op &&x.provider->op);                                                                         \
    if (x.prims->op == x.provider->op)                                                                                 \
        fail_msg("the provider's " #op " is the contract's");
    RLKI_LEAVES(X)
#undef X
    assert_true(!x.provider->norm_bwd_gamma && !x.provider->gemm_leaves);
}

static void strict_never_runs_one(void **state)
{
    static const char *const MODE[] = {"strict", "audit"};
    const struct rlk_exec x = plain();
    const struct rlki_prims trap = trapped(x.provider);
    struct t_result want, got;
    char why[256];
    size_t at;
    (void)state;
    assert_int_equal(run("strict", NULL, NULL, &want, why), 0);
    for (int m = 0; m < 2; m++) {
        if (run(MODE[m], NULL, &trap, &got, why))
            fail_msg("%s ran the provider's %s: %s", MODE[m], fell ? fell : "?", why);
        assert_true(t_compare(&want, &got, &at) < 0);
        t_result_free(&got);
    }
    t_result_free(&want);
    /* The trap works: a module that is given to the provider falls into it. */
    assert_true(run("embedding=off", NULL, &trap, &got, why) != 0);
    assert_string_equal(fell, "embed");
    t_result_free(&got);
}

static void off_runs_nothing_else(void **state)
{
    const struct rlk_exec x = plain();
    const struct rlki_prims trap = trapped(x.prims);
    struct t_result want, got;
    char why[256];
    (void)state;
    if (run("off", NULL, NULL, &want, why))
        fail_msg("off: %s", why);
    if (run("off", &trap, NULL, &got, why))
        fail_msg("off ran the contract's %s: %s", fell ? fell : "?", why);
    for (int i = 0; i < want.n; i++) /* what follows no atomics has the provider's bits */
        if (strcmp(want.out[i].name, "rope y") == 0 || strcmp(want.out[i].name, "rmsnorm y") == 0 ||
            strcmp(want.out[i].name, "attention o") == 0 || strcmp(want.out[i].name, "column y") == 0)
            assert_memory_equal(want.out[i].data, got.out[i].data, want.out[i].bytes);
    t_result_free(&want);
    t_result_free(&got);
    assert_true(run("strict", &trap, NULL, &got, why) != 0);
    assert_non_null(fell);
    t_result_free(&got);
}

static bool listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* Outputs whose bits the module's provider must move; of those not named a bit may be the same by chance (copies, a sum
 * of two, AdamW's v). Sums over others' results may move along. */
static void each_moves_its_own_bits(void **state)
{
    static const struct {
        const char *module, *moves[8];
    } M[] = {{"linear", {"column y", "column dx", "row y", "row dx", "column dw", "row dw"}},
             {"ffn", {"ffn act", "ffn y", "ffn dgate", "ffn dx", "ffn dw_gate", "ffn dw_up", "ffn dw_down"}},
             {"attention", {"attention o", "attention lse", "attention dq", "attention dk", "attention dv"}},
             {"norm", {"rmsnorm dx", "rmsnorm dgamma", "q_norm dx", "q_norm dgamma", "q_norm y", "rmsnorm y"}},
             {"rope", {"rope y", "rope dx"}},
             {"embedding", {"embedding dtable"}},
             {"logp", {"logp", "logp stats", "logp dh", "logp dw", "log_softmax"}},
             {"gradnorm", {"grad norm"}},
             {"optimizer", {"adamw master"}},
             {"loss", {"loss sum"}},
             {"sampling", {"sample"}}};
    static const char *const derived[] = {"gradnorm", "optimizer", "loss", "sampling", NULL};
    static const char *const copies[] = {"embedding y", "add y", NULL};
    struct t_result want, got;
    char why[256], mode[32];
    (void)state;
    assert_int_equal(run("strict", NULL, NULL, &want, why), 0);
    for (size_t m = 0; m < sizeof M / sizeof *M; m++) {
        snprintf(mode, sizeof mode, "%s=off", M[m].module);
        if (run(mode, NULL, NULL, &got, why))
            fail_msg("%s: %s", mode, why);
        for (int i = 0; i < want.n; i++) {
            const bool equal = memcmp(want.out[i].data, got.out[i].data, want.out[i].bytes) == 0;
            const bool own = strcmp(want.out[i].module, M[m].module) == 0;
            /* The emulation's rsqrt is the exact one. */
            const bool exempt =
                emulated && (strcmp(want.out[i].name, "rmsnorm y") == 0 || strcmp(want.out[i].name, "q_norm y") == 0);
            if (own && equal && !exempt && listed(M[m].moves, want.out[i].name))
                fail_msg("%s: no bit of \"%s\" moved", mode, want.out[i].name);
            if (!equal && ((!own && !listed(derived, want.out[i].module)) || listed(copies, want.out[i].name)))
                fail_msg("%s: \"%s\" of %s moved", mode, want.out[i].name, want.out[i].module);
        }
        t_result_free(&got);
    }
    t_result_free(&want);
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    emulated = argc > 2 && strcmp(argv[2], "emulated") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_leaf_has_a_row), cmocka_unit_test(strict_never_runs_one),
                                       cmocka_unit_test(off_runs_nothing_else),
                                       cmocka_unit_test(each_moves_its_own_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
