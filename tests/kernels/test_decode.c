/* test_decode.c - a row's bits do not depend on how many rows are computed with it: prefill, chunked prefill, decode,
 * and decode beside strangers; and log-probabilities from logits of one row are the fused operator's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static enum rlk_device device;

enum { LEN = 300 };

static void *download(struct t_env *e, void *p, size_t bytes)
{
    void *host = malloc(bytes + 1);
    assert_int_equal(rlk_exec_download(&e->x, host, p, bytes), 0);
    return host;
}

static void workspace(struct t_env *e)
{
    e->x.workspace_bytes = 64u << 20;
    e->workspace = e->x.workspace = rlk_exec_alloc(&e->x, e->x.workspace_bytes);
    assert_non_null(e->workspace);
}

/* Rows [from, from+count) of the sequence, through the cache, against the whole prefill's. */
static void through_cache(int tp, int d, enum rlk_ktype type, int strangers)
{
    const int32_t length = LEN;
    struct t_case c = {.device = device,
                       .tp = tp,
                       .cp = 1,
                       .threads = 2,
                       .sequences = 1,
                       .length = &length,
                       .type = type,
                       .fill = FILL_RANDOM,
                       .seed = 21,
                       .head_dim = d};
    const struct rlk_attention a = {"attn", T_HEADS, T_KV, d, type};
    const struct t_spec sq = {type, ROWS_TOKENS, 0, COLS_SLABS, T_HEADS * d},
                        sk = {type, ROWS_TOKENS, 0, COLS_SLABS, T_KV * d},
                        sl = {RLK_K_FP32, ROWS_TOKENS, 0, COLS_SLABS, T_HEADS};
    struct t_env e;
    assert_int_equal(t_env_init(&e, &c), 0);
    workspace(&e);
    void *hq = t_fill(&e, &c, &sq, 1, 1), *hk = t_fill(&e, &c, &sk, 2, 1), *hv = t_fill(&e, &c, &sk, 3, 1);
    void **q = t_shard(&e, &sq, hq), **k = t_shard(&e, &sk, hk), **v = t_shard(&e, &sk, hv), **o = t_blank(&e, &sq),
         **lse = t_blank(&e, &sl);
    assert_int_equal(
        rlk_attention_fwd(&e.w, e.b, &a, (rlk_in)q, (rlk_in)k, (rlk_in)v, o, (float *const *)(void *const *)lse), 0);
    const size_t rq = (size_t)(T_HEADS / tp * d) * rlk_ktype_bytes(type),
                 rk = (size_t)(T_KV / tp * d) * rlk_ktype_bytes(type);
    const struct t_spec room = {type, ROWS_WHOLE, 2 * LEN + 77, COLS_SLABS, T_KV * d};
    void **kc = t_blank(&e, &room), **vc = t_blank(&e, &room);
    const int32_t mine = 41;
    /* prefill of 100, a chunk of 130, then one by one */
    for (int32_t from = 0; from < LEN;) {
        const int32_t count = from == 0 ? 100 : from == 100 ? 130 : 1, n = 1 + strangers;
        int32_t len[8], first[8], row[8];
        struct rlk_batch *b;
        for (int i = 0; i < n; i++) {
            len[i] = i == strangers / 2 ? count : 1 + i;
            first[i] = i == strangers / 2 ? from : 0;
            row[i] = i == strangers / 2 ? mine : LEN + 45 + 10 * i;
        }
        const int32_t before = strangers > 1 ? 1 : 0; /* rows of the batch before mine: stranger 0 has one */
        assert_int_equal(rlk_batch_new(&e.x, &e.w.lat, n, len, first, &b), 0);
        const int64_t rows = rlk_batch_tokens(b);
        void *bq[8], *bk[8], *bv[8], *bo[8];
        for (int i = 0; i < e.w.held; i++) {
            void **const b4[3] = {bq, bk, bv}, *const from4[3] = {q[i], k[i], v[i]};
            for (int m = 0; m < 3; m++) {
                const size_t bytes = m ? rk : rq;
                char *host = download(&e, from4[m], (size_t)LEN * bytes), *mix = malloc((size_t)rows * bytes);
                memset(mix, 0x3c, (size_t)rows * bytes);
                memcpy(mix + (size_t)before * bytes, host + (size_t)from * bytes, (size_t)count * bytes);
                b4[m][i] = rlk_exec_alloc(&e.x, (size_t)rows * bytes);
                rlk_exec_upload(&e.x, b4[m][i], mix, (size_t)rows * bytes);
                rlk_exec_sync(&e.x);
                free(host);
                free(mix);
            }
            bo[i] = rlk_exec_alloc(&e.x, (size_t)rows * rq);
        }
        assert_int_equal(rlk_attention_append(&e.w, b, &a, row, (rlk_in)bk, (rlk_in)bv, kc, vc), 0);
        assert_int_equal(rlk_attention_cached(&e.w, b, &a, row, (rlk_in)bq, (rlk_in)kc, (rlk_in)vc, bo, NULL), 0);
        for (int i = 0; i < e.w.held; i++) {
            char *want = download(&e, o[i], (size_t)LEN * rq), *got = download(&e, bo[i], (size_t)rows * rq);
            if (memcmp(want + (size_t)from * rq, got + (size_t)before * rq, (size_t)count * rq) != 0)
                fail_msg("rank %d: rows %d.. of %d differ between prefill and cache", i, from, count);
            free(want);
            free(got);
            rlk_exec_free(&e.x, bq[i]);
            rlk_exec_free(&e.x, bk[i]);
            rlk_exec_free(&e.x, bv[i]);
            rlk_exec_free(&e.x, bo[i]);
        }
        rlk_batch_free(&e.x, b);
        from += count;
    }
    free(hq);
    free(hk);
    free(hv);
    t_env_release(&e);
}

static void alone(void **state)
{
    (void)state;
    through_cache(1, 64, RLK_K_BF16, 0);
    through_cache(4, 128, RLK_K_BF16, 0);
}

static void among_strangers(void **state)
{
    (void)state;
    through_cache(2, 128, RLK_K_FP32, 2);
    through_cache(8, 64, RLK_K_BF16, 2);
}

/* The last token of each sequence, for sampling; and one that does not exist. */
static void select_rows(void **state)
{
    enum { W = 48 };
    static const int32_t L[] = {3, 1, 5}, ONE[] = {1, 1, 1}, ROW[] = {2, 3, 8}, BAD[] = {2, 3, 9};
    struct t_case c = {.device = device,
                       .tp = 2,
                       .cp = 1,
                       .threads = 1,
                       .sequences = 3,
                       .length = L,
                       .type = RLK_K_BF16,
                       .fill = FILL_RANDOM,
                       .seed = 2,
                       .head_dim = 64};
    const struct t_spec s = {RLK_K_BF16, ROWS_TOKENS, 0, COLS_WHOLE, W};
    struct t_env e;
    struct rlk_batch *few;
    (void)state;
    assert_int_equal(t_env_init(&e, &c), 0);
    workspace(&e);
    assert_int_equal(rlk_batch_new(&e.x, &e.w.lat, 3, ONE, NULL, &few), 0);
    uint16_t *host = t_fill(&e, &c, &s, 1, 1);
    void **x = t_shard(&e, &s, host), **y = t_blank(&e, &s);
    assert_int_equal(rlk_select(&e.w, e.b, few, "last", ROW, W, RLK_K_BF16, (rlk_in)x, y), 0);
    for (int i = 0; i < 2; i++) {
        uint16_t *got = download(&e, y[i], (size_t)3 * W * 2);
        for (int r = 0; r < 3; r++)
            assert_memory_equal(got + r * W, host + ROW[r] * W, W * 2);
        free(got);
    }
    assert_int_equal(rlk_select(&e.w, e.b, few, "last", BAD, W, RLK_K_BF16, (rlk_in)x, y), RLK_K_EINVAL);
    free(host);
    rlk_batch_free(&e.x, few);
    t_env_release(&e);
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone), cmocka_unit_test(among_strangers),
                                       cmocka_unit_test(select_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
