/* test_rows.c - the leaves of the memory-bound operators alone, at sizes that reach every variant of their kernels:
 * rows that stay in registers, that are read twice, that cannot be read in pieces; odd ends; addresses off by one
 * element.
 *
 * `test_rows [cuda] [tiny]`: the generic CPU code is the reference, the machine's instruction set or the GPU is tried.
 * Outputs are poisoned first. tiny: one case of each, for a race checker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "kernels/rlk_num.h"
#include "kernels/rlki_op.h"

static enum rlk_device device;
static bool tiny;
static struct rlk_exec ref, dev;
static uint64_t drawn;

/* The same bytes for both sides. */
struct twin {
    void *host, *on;        /* what the calls get */
    char *whole, *on_whole; /* what was allocated */
    size_t bytes;
};
static struct twin twins[16];
static int used;

static struct twin *twin(size_t bytes, size_t shift)
{
    struct twin *t = &twins[used++];
    assert_true(used <= 16);
    *t = (struct twin){.bytes = bytes};
    t->whole = rlk_exec_alloc(&ref, bytes + 64);
    t->on_whole = rlk_exec_alloc(&dev, bytes + 64);
    assert_non_null(t->whole);
    assert_non_null(t->on_whole);
    memset(t->whole, 0xa5, bytes + 64);
    t->host = t->whole + shift;
    t->on = t->on_whole + shift;
    return t;
}

static void ship(struct twin *t)
{
    assert_int_equal(rlk_exec_upload(&dev, t->on_whole, t->whole, t->bytes + 64), 0);
    assert_int_equal(rlk_exec_sync(&dev), 0);
}

/* Every kind of value, hard ones too; `wild` adds infinities and NaN. */
static float drawn_value(bool wild)
{
    const uint64_t h = t_hash(7, drawn++, 1, 2);
    const float u = (float)(int32_t)(h >> 32) * 0x1p-31f;
    switch (h % 16) {
    case 0:
        return u * 0x1p-130f;
    case 1:
        return u * 1e4f;
    case 2:
        return h & 64 ? 0.0f : -0.0f;
    case 3:
        if (wild && h / 16 % 512 == 0)
            return h & 0x100000 ? RLKN_NAN : h & 0x200000 ? RLKN_INF : -RLKN_INF;
        return u * 64.0f;
    default:
        return u;
    }
}

static struct twin *values(enum rlk_ktype type, int64_t n, size_t shift, bool wild)
{
    struct twin *t = twin((size_t)n * rlk_ktype_bytes(type), shift * rlk_ktype_bytes(type));
    for (int64_t i = 0; i < n; i++) {
        const float v = drawn_value(wild);
        if (type == RLK_K_BF16)
            ((uint16_t *)t->host)[i] = rlkn_to_bf16(v);
        else
            ((float *)t->host)[i] = rlkn_canon(v);
    }
    ship(t);
    return t;
}

static struct twin *blank(enum rlk_ktype type, int64_t n, size_t shift)
{
    struct twin *t = twin((size_t)n * rlk_ktype_bytes(type), shift * rlk_ktype_bytes(type));
    ship(t);
    return t;
}

static struct twin *integers(const int32_t *v, int64_t n)
{
    struct twin *t = twin((size_t)n * 4, 0);
    memcpy(t->host, v, (size_t)n * 4);
    ship(t);
    return t;
}

static void same(const struct twin *t, const char *what, long long a, long long b, int type)
{
    char *got = malloc(t->bytes + 64);
    assert_non_null(got);
    assert_int_equal(rlk_exec_download(&dev, got, t->on_whole, t->bytes + 64), 0);
    size_t at = 0;
    while (at < t->bytes + 64 && got[at] == t->whole[at])
        at++;
    if (at < t->bytes + 64)
        fail_msg("%s %lld %lld type %d: byte %zu of %zu differs on %s", what, a, b, type, at, t->bytes,
                 rlk_exec_isa(&dev));
    free(got);
}

static void clear(void)
{
    for (; used; used--) {
        rlk_exec_free(&ref, twins[used - 1].whole);
        rlk_exec_free(&dev, twins[used - 1].on_whole);
    }
}

/* Both sides of a leaf; S is the structure with fields of the reference, moved to the device by the statements D. */
#define BOTH(leaf, S, D)                                                                                               \
    do {                                                                                                               \
        assert_int_equal(ref.prims->leaf(&ref, &(S)), 0);                                                              \
        D;                                                                                                             \
        if (dev.prims->leaf(&dev, &(S)))                                                                               \
            fail_msg(#leaf ": %s", dev.detail.text);                                                                   \
    } while (0)

static const enum rlk_ktype TYPE[] = {RLK_K_BF16, RLK_K_FP32};

static void norm_case(enum rlk_ktype type, int64_t rows, int64_t n, size_t shift, bool in_place)
{
    struct twin *x = values(type, rows * n, shift, false), *g = values(type, n, 0, false);
    struct twin *y = blank(type, rows * n, 0), *s = blank(RLK_K_FP32, rows, 0);
    struct rlki_norm a = {.rows = rows,
                          .n = n,
                          .type = type,
                          .x = x->host,
                          .gamma = g->host,
                          .y = y->host,
                          .rstd = s->host,
                          .eps = 1e-6f};
    BOTH(norm_fwd, a, (a.x = x->on, a.gamma = g->on, a.y = y->on, a.rstd = s->on));
    same(y, "rmsnorm y", rows, n, (int)type);
    same(s, "rmsnorm rstd", rows, n, (int)type);
    struct twin *d = values(type, rows * n, shift, true), *dx = in_place ? d : blank(type, rows * n, shift);
    struct rlki_norm b = {.rows = rows,
                          .n = n,
                          .type = type,
                          .x = x->host,
                          .gamma = g->host,
                          .dy = d->host,
                          .y = dx->host,
                          .rstd = s->host};
    BOTH(norm_bwd, b, (b.x = x->on, b.gamma = g->on, b.dy = d->on, b.y = dx->on, b.rstd = s->on));
    same(dx, "rmsnorm dx", rows, n, (int)type);
    clear();
}

static void norms(void **state)
{
    static const int64_t N[] = {256,  1,    64,   100,  128,  136,  200,  1000, 1024,
                                1032, 2048, 2056, 2560, 4096, 4100, 5120, 8192};
    static const int64_t ROWS[] = {5, 1, 37};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : sizeof N / sizeof *N); i++)
            for (size_t r = 0; r < (tiny ? 1 : 3); r++)
                norm_case(TYPE[t], N[i], ROWS[r], r == 1 && i % 3 == 0 ? 1 : 0, i % 2 == 1);
    for (int t = 0; !tiny && t < 2; t++)
        for (size_t i = 0; i < sizeof N / sizeof *N && N[i] <= 1032; i++)
            for (size_t r = 0; r < 3; r++)
                norm_case(TYPE[t], ROWS[r], N[i], r == 1 && i % 3 == 0 ? 1 : 0, i % 2 == 1);
}

/* Few rows times a weight; `leaves` > 1: each consecutive part of k on its own, by the call that does all of them. */
static void thin_case(enum rlk_ktype type, enum rlk_ktype out, int64_t m, int64_t n, int64_t k, int leaves, bool resume)
{
    struct twin *a = values(type, m * k * leaves, 0, false), *b = values(type, n * k * leaves, 0, true);
    struct twin *c[RLK_SLABS];
    const int64_t ld = k * leaves;
    float *on[RLK_SLABS];
    for (int l = 0; l < leaves; l++) {
        c[l] = resume ? values(out, m * n, 0, false) : blank(out, m * n, 0);
        on[l] = c[l]->on;
        const struct rlki_gemm one = {.m = m,
                                      .n = n,
                                      .k = k,
                                      .a = {rlki_at(a->host, l * k, type), type, ld, 1, NULL},
                                      .b = {rlki_at(b->host, l * k, type), type, ld, 1, NULL},
                                      .c = c[l]->host,
                                      .c_type = out,
                                      .ldc = n,
                                      .resume = resume};
        assert_int_equal(ref.prims->gemm(&ref, &one), 0);
    }
    const struct rlki_gemm g = {.m = m,
                                .n = n,
                                .k = k,
                                .a = {a->on, type, ld, 1, NULL},
                                .b = {b->on, type, ld, 1, NULL},
                                .c = on[0],
                                .c_type = out,
                                .ldc = n,
                                .resume = resume};
    if (leaves == 1)
        assert_int_equal(dev.prims->gemm(&dev, &g), 0);
    else
        assert_int_equal(dev.prims->gemm_leaves(&dev, &g, leaves, on), 0);
    for (int l = 0; l < leaves; l++)
        same(c[l], "few rows: m, n", m, n, (int)type);
    clear();
}

static void few_rows(void **state)
{
    static const int64_t K[] = {64, 8, 24, 1024, 384, 392}, N[] = {33, 1, 32, 300};
    int i = 0;
    (void)state;
    for (int64_t m = 1; m <= (tiny ? 1 : 9); m++) /* 9: the general kernel */
        for (size_t k = 0; k < (tiny ? 1 : sizeof K / sizeof *K); k++, i++) {
            const enum rlk_ktype type = TYPE[i % 3 == 0];
            thin_case(type, TYPE[i % 2 || type == RLK_K_FP32], m, N[(m + (int64_t)k) % 4], K[k], 1,
                      i % 4 == 1 || i % 4 == 3);
            if (dev.prims->gemm_leaves && m <= 8)
                thin_case(type, RLK_K_FP32, m, N[k % 4], K[k], 1 << (1 + i % 3), false);
        }
}

static void gamma_case(enum rlk_ktype type, const int32_t *count, int heads, int slabs, int64_t n, size_t shift)
{
    int32_t token[1024];
    int64_t start[RLK_SLABS + 1] = {0};
    for (int l = 0; l < RLK_SLABS; l++)
        start[l + 1] = start[l] + count[l];
    const int64_t tokens = start[RLK_SLABS];
    assert_true(tokens <= 1024);
    for (int64_t k = 0; k < tokens; k++)
        token[k] = (int32_t)(tokens - 1 - k); /* some order */
    struct twin *x = values(type, tokens * heads * n, shift, false), *d = values(type, tokens * heads * n, 0, true);
    struct twin *s = values(RLK_K_FP32, tokens * heads, 0, false), *list = integers(token, tokens);
    struct twin *out = blank(RLK_K_FP32, RLK_SLABS * slabs * n, 0);
    struct rlki_gamma a = {.n = n,
                           .token = list->host,
                           .leaves = RLK_SLABS,
                           .heads = heads,
                           .slabs = slabs,
                           .type = type,
                           .x = x->host,
                           .dy = d->host,
                           .rstd = s->host,
                           .out = out->host};
    memcpy(a.start, start, sizeof start);
    BOTH(gamma, a, (a.token = list->on, a.x = x->on, a.dy = d->on, a.rstd = s->on, a.out = out->on));
    same(out, "dgamma", n, heads, (int)type);
    clear();
}

static void gammas(void **state)
{
    static const int32_t SOME[] = {17, 0, 1, 16, 40, 100, 5, 3}, MANY[] = {200, 0, 81, 15, 33, 80, 96, 112};
    static const int64_t N[] = {136, 1, 64, 100, 128, 300, 512, 1032};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : sizeof N / sizeof *N); i++) {
            gamma_case(TYPE[t], tiny ? SOME : MANY, 1, 1, N[i], 0);
            if (!tiny) {
                gamma_case(TYPE[t], SOME, 8, 8, N[i], 0);
                gamma_case(TYPE[t], SOME, 6, 2, N[i], i % 2);
            }
        }
}

/* dx and dgamma from one call, where the device has it; in place it must come to the same. */
static void norm_both_case(enum rlk_ktype type, const int32_t *count, int leaves, int heads, int slabs, int64_t n,
                           size_t shift, bool in_place)
{
    int32_t token[1024];
    int64_t start[RLK_SLABS + 1] = {0};
    for (int l = 0; l < leaves; l++)
        start[l + 1] = start[l] + count[l];
    const int64_t tokens = start[leaves], rows = tokens * heads;
    for (int64_t k = 0; k < tokens; k++)
        token[k] = (int32_t)(tokens - 1 - k);
    struct twin *x = values(type, rows * n, shift, false), *d = values(type, rows * n, 0, true);
    struct twin *g = values(type, n, 0, false), *s = values(RLK_K_FP32, rows, 0, false),
                *list = integers(token, tokens);
    struct twin *out = blank(RLK_K_FP32, leaves * slabs * n, 0), *dx = in_place ? d : blank(type, rows * n, 0);
    struct rlki_gamma a = {.n = n,
                           .token = list->host,
                           .leaves = leaves,
                           .heads = heads,
                           .slabs = slabs,
                           .type = type,
                           .x = x->host,
                           .dy = d->host,
                           .rstd = s->host,
                           .out = out->host};
    memcpy(a.start, start, sizeof start);
    struct rlki_norm b = {.rows = rows,
                          .n = n,
                          .type = type,
                          .x = x->host,
                          .gamma = g->host,
                          .dy = d->host,
                          .y = dx->host,
                          .rstd = s->host};
    assert_int_equal(ref.prims->gamma(&ref, &a), 0);
    assert_int_equal(ref.prims->norm_bwd(&ref, &b), 0);
    a.token = list->on, a.x = x->on, a.dy = d->on, a.rstd = s->on, a.out = out->on;
    b.x = x->on, b.gamma = g->on, b.dy = d->on, b.y = dx->on, b.rstd = s->on;
    if (dev.prims->norm_bwd_gamma(&dev, &b, &a))
        fail_msg("norm_bwd_gamma: %s", dev.detail.text);
    same(out, "dgamma, with dx", n, heads, (int)type);
    same(dx, "dx, with dgamma", n, heads, (int)type);
    clear();
}

static void norms_both(void **state)
{
    static const int32_t SOME[] = {17, 0, 1, 16, 40, 70, 5, 3}, FEW[] = {5, 3, 0, 4, 9, 1, 2, 2};
    static const int64_t N[] = {136, 64, 128, 100, 256, 300, 1032, 2048, 2056, 4096, 4104};
    (void)state;
    if (!dev.prims->norm_bwd_gamma)
        return;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : sizeof N / sizeof *N); i++) {
            const int32_t *count = N[i] <= 300 ? SOME : FEW;
            norm_both_case(TYPE[t], count, 8, 1, 1, N[i], 0, false);
            if (tiny || N[i] > 300)
                continue;
            norm_both_case(TYPE[t], FEW, 8, 8, 8, N[i], 0, i % 3 == 0);
            norm_both_case(TYPE[t], count, 4, 6, 2, N[i], i % 4 == 1, false);
            norm_both_case(TYPE[t], count, 1, 40, 8, N[i], 0, false);
            norm_both_case(TYPE[t], count, 2, 1, 1, N[i], 0, i % 2 == 0);
        }
}

static void rope_case(enum rlk_ktype type, int64_t tokens, int heads, int d, bool inverse, size_t shift, bool in_place)
{
    int32_t pos[64];
    for (int i = 0; i < 64; i++)
        pos[i] = i * 37 % 64;
    struct twin *table = twin((size_t)(64 * d) * 4, 0), *p = integers(pos, 64);
    struct twin *x = values(type, tokens * heads * d, shift, true),
                *y = in_place ? x : blank(type, tokens * heads * d, 0);
    assert_int_equal(rlk_rope_table(1e6, d, 64, table->host, NULL), 0);
    ship(table);
    struct rlki_rope a = {.tokens = tokens,
                          .heads = heads,
                          .d = d,
                          .type = type,
                          .x = x->host,
                          .y = y->host,
                          .pos = p->host,
                          .table = table->host,
                          .inverse = inverse};
    BOTH(rope, a, (a.x = x->on, a.y = y->on, a.pos = p->on, a.table = table->on));
    same(y, "rope", tokens, heads, (int)type);
    clear();
}

static void ropes(void **state)
{
    static const int HEADS[] = {5, 1, 3, 4, 8, 32};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : 6); i++)
            for (int d = 64; d <= 128; d += 64) {
                rope_case(TYPE[t], 3, HEADS[i], d, false, 0, false);
                rope_case(TYPE[t], 64, HEADS[i], d, true, i == 2, i % 2 == 0);
            }
}

/* The gates: all of bf16, or for fp32 the places where something turns. */
static struct twin *gates(enum rlk_ktype type, int64_t n, size_t shift)
{
    static const uint32_t HARD[] = {0x34000000u, 0xbff91395u, 0xc05bc672u, 0x42a00000u, 0x42a00001u, 0xc2a00000u,
                                    0xc2a00001u, 0x33800000u, 0x00000001u, 0x80000001u, 0x807fffffu, 0x7f800000u,
                                    0xff800000u, 0x7fc00000u, 0x00000000u, 0x80000000u, 0x42b17218u, 0xc2b17218u,
                                    0xc2d20000u, 0x7f7fffffu, 0xff7fffffu};
    struct twin *t = values(type, n, shift, true);
    for (int64_t i = 0; i < n; i++)
        if (type == RLK_K_BF16)
            ((uint16_t *)t->host)[i] =
                (uint16_t)(i * 8 + i / 8192 + 5); /* neighbours of every size: near and far mixed */
        else if (i % 5 == 0)
            ((uint32_t *)t->host)[i] = HARD[i / 5 % 21];
        else if (i % 1024 > 400)
            ((uint32_t *)t->host)[i] &= 0xc1ffffffu; /* stretches of small gates */
    ship(t);
    return t;
}

static void glu_case(enum rlk_ktype type, int64_t n, size_t shift)
{
    struct twin *g = gates(type, n, shift), *u = values(type, n, 0, true), *y = blank(type, n, 0);
    struct rlki_glu a = {.n = n, .type = type, .gate = g->host, .up = u->host, .y = y->host};
    BOTH(glu_fwd, a, (a.gate = g->on, a.up = u->on, a.y = y->on));
    same(y, "swiglu", n, (long long)shift, (int)type);
    struct twin *d = values(type, n, 0, true), *dg = blank(type, n, 0), *du = blank(type, n, 0);
    struct rlki_glu b = {
        .n = n, .type = type, .gate = g->host, .up = u->host, .dy = d->host, .dgate = dg->host, .dup = du->host};
    BOTH(glu_bwd, b, (b.gate = g->on, b.up = u->on, b.dy = d->on, b.dgate = dg->on, b.dup = du->on));
    same(dg, "swiglu dgate", n, (long long)shift, (int)type);
    same(du, "swiglu dup", n, (long long)shift, (int)type);
    struct rlki_glu c = {
        .n = n, .type = type, .gate = g->host, .up = u->host, .dy = d->host, .dgate = g->host, .dup = u->host};
    BOTH(glu_bwd, c, (c.gate = g->on, c.up = u->on, c.dy = d->on, c.dgate = g->on, c.dup = u->on));
    same(g, "swiglu dgate in place", n, (long long)shift, (int)type);
    same(u, "swiglu dup in place", n, (long long)shift, (int)type);
    clear();
}

/* Gates of one size, so that all of a thread's are near: each within +-80 of bf16 once. */
static void near_gates(void)
{
    const int64_t n = 2 * 0x42a1;
    struct twin *g = values(RLK_K_BF16, n, 0, false), *u = values(RLK_K_BF16, n, 0, true), *y = blank(RLK_K_BF16, n, 0);
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)g->host)[i] = (uint16_t)(i < n / 2 ? i : 0x8000 + (i - n / 2));
    ship(g);
    struct rlki_glu a = {.n = n, .type = RLK_K_BF16, .gate = g->host, .up = u->host, .y = y->host};
    BOTH(glu_fwd, a, (a.gate = g->on, a.up = u->on, a.y = y->on));
    same(y, "swiglu of near gates", n, 0, 0);
    struct twin *d = values(RLK_K_BF16, n, 0, true), *dg = blank(RLK_K_BF16, n, 0), *du = blank(RLK_K_BF16, n, 0);
    struct rlki_glu b = {
        .n = n, .type = RLK_K_BF16, .gate = g->host, .up = u->host, .dy = d->host, .dgate = dg->host, .dup = du->host};
    BOTH(glu_bwd, b, (b.gate = g->on, b.up = u->on, b.dy = d->on, b.dgate = dg->on, b.dup = du->on));
    same(dg, "swiglu dgate of near gates", n, 0, 0);
    same(du, "swiglu dup of near gates", n, 0, 0);
    clear();
}

static void elements(void **state)
{
    static const int64_t N[] = {2053, 1, 3, 7, 8, 2048, 4096, 65536};
    (void)state;
    if (!tiny)
        near_gates();
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : 8); i++) {
            const enum rlk_ktype type = TYPE[t];
            const int64_t n = N[i];
            for (size_t shift = 0; shift < (tiny ? 1 : 2); shift++) {
                glu_case(type, n, shift);
                struct twin *a = values(type, n, shift, true), *b = values(type, n, 0, true), *y = blank(type, n, 0);
                struct rlki_add e = {n, type, a->host, b->host, y->host};
                BOTH(add, e, (e.a = a->on, e.b = b->on, e.y = y->on));
                same(y, "add", n, (long long)shift, (int)type);
                clear();
                struct twin *p = values(RLK_K_FP32, n, shift, false), *m = values(RLK_K_FP32, n, 0, false);
                struct twin *v = values(RLK_K_FP32, n, 0, false), *g = values(RLK_K_FP32, n, 0, true),
                            *w = blank(type, n, 0);
                struct rlki_adamw o = {.n = n,
                                       .p = p->host,
                                       .m = m->host,
                                       .v = v->host,
                                       .g = g->host,
                                       .w = w->host,
                                       .w_type = type,
                                       .coef = 0.7f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .one_beta1 = 0.1f,
                                       .one_beta2 = 0.05f,
                                       .c1 = 1.7f,
                                       .c2 = 2.1f,
                                       .eps = 1e-8f,
                                       .lr = 1e-3f,
                                       .decay = 1e-4f};
                BOTH(adamw, o, (o.p = p->on, o.m = m->on, o.v = v->on, o.g = g->on, o.w = w->on));
                same(p, "adamw p", n, (long long)shift, (int)type);
                same(m, "adamw m", n, (long long)shift, (int)type);
                same(v, "adamw v", n, (long long)shift, (int)type);
                same(w, "adamw w", n, (long long)shift, (int)type);
                clear();
            }
        }
}

static void embeddings(void **state)
{
    static const int64_t H[] = {264, 1, 8, 100, 2048, 4096, 4104};
    int32_t id[50];
    (void)state;
    for (int i = 0; i < 50; i++)
        id[i] = i * 13 % 40;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < (tiny ? 1 : 7); i++) {
            struct twin *table = values(TYPE[t], 20 * H[i], i == 3, false), *list = integers(id, 50),
                        *y = blank(TYPE[t], 50 * H[i], 0);
            struct rlki_embed e = {50, H[i], TYPE[t], list->host, 10, 30, table->host, y->host};
            BOTH(embed, e, (e.id = list->on, e.table = table->on, e.y = y->on));
            same(y, "embedding", 50, H[i], t); /* words outside 10..29: still the poison */
            clear();
        }
}

static void squares(void **state)
{
    /* rows, cols, width, slab_rows */
    static const int64_t S[][4] = {{70, 512, 128, 70},    {50, 520, 65, 50}, {64, 1024, 128, 8}, {300, 256, 256, 300},
                                   {129, 132, 132, 129},  {8, 4096, 512, 1}, {200, 64, 8, 25},   {130, 1, 1, 130},
                                   {333, 1056, 132, 128}, {1, 8192, 1024, 1}};
    (void)state;
    for (size_t i = 0; i < (tiny ? 2 : sizeof S / sizeof *S); i++)
        for (size_t shift = 0; shift < (tiny ? 1 : 2); shift++) {
            const int64_t rows = S[i][0], cols = S[i][1], width = S[i][2], slab_rows = S[i][3];
            const int64_t blocks = (slab_rows + 63) / 64,
                          cells = (rows + slab_rows - 1) / slab_rows * blocks * (cols / width);
            struct twin *g = values(RLK_K_FP32, rows * cols, shift, false), *out = blank(RLK_K_FP32, 2 * cells, 0);
            struct rlki_sumsq s = {rows, cols, width, slab_rows, g->host, out->host};
            BOTH(sumsq, s, (s.g = g->on, s.out = out->on));
            same(out, "gradient norm's block", rows, cols, (int)shift);
            clear();
        }
}

static void cells(void **state)
{
    static const int64_t BLOCKS[] = {33, 1, 32, 100, 128};
    (void)state;
    for (size_t i = 0; i < (tiny ? 1 : 5); i++)
        for (int k = 0; k < 6; k++) {
            const int rs = k % 2 ? RLK_SLABS : 1, cs = k < 3 ? RLK_SLABS : 1, T = k == 1 || k == 2 ? 4 : 1;
            struct rlki_cells a = {.blocks = BLOCKS[i],
                                   .row_slabs = rs,
                                   .col_slabs = cs,
                                   .row_ranks = rs > 1 ? T : 1,
                                   .col_ranks = rs == 1 && cs > 1 ? T : 1};
            a.stride = BLOCKS[i] * rs * cs / T + 3;
            struct twin *all = twin((size_t)(a.stride * T) * 8, 0), *out = twin(8, 0);
            for (int64_t n = 0; n < a.stride * T; n++)
                ((double *)all->host)[n] = (double)t_hash(3, (uint64_t)n, i, (uint64_t)k) * 0x1p-40;
            ship(all);
            ship(out);
            a.all = all->host;
            a.out = out->host;
            BOTH(cells, a, (a.all = all->on, a.out = out->on));
            same(out, "gradient norm's sum", BLOCKS[i], k, 0);
            clear();
        }
}

static void sums(void **state)
{
    static const int64_t N[] = {33, 0, 1, 31, 32, 64, 1000};
    int32_t token[1000];
    (void)state;
    for (int i = 0; i < 1000; i++)
        token[i] = 999 - i;
    for (size_t i = 0; i < (tiny ? 1 : 7); i++)
        for (int k = 0; k < 4; k++) {
            struct twin *x = values(RLK_K_FP32, 1000, 0, false), *list = integers(token, 1000), *mask = twin(1000, 0),
                        *out = twin(16, 0);
            for (int n = 0; n < 1000; n++)
                ((uint8_t *)mask->host)[n] = (uint8_t)(t_hash(5, (uint64_t)n, 0, 0) % 3 != 0);
            ship(mask);
            ship(out);
            struct rlki_sum s = {N[i], k & 1 ? list->host : NULL, x->host, k & 2 ? mask->host : NULL, out->host};
            BOTH(sum, s,
                 (s.token = k & 1 ? list->on : NULL, s.x = x->on, s.mask = k & 2 ? mask->on : NULL, s.out = out->on));
            same(out, "loss sum", N[i], k, 0);
            clear();
        }
}

/* A byte that differs is found. */
static void can_fail(void **state)
{
    (void)state;
    struct twin *t = values(RLK_K_BF16, 100, 0, false);
    ((uint16_t *)t->host)[99] ^= 1u;
    char *got = malloc(t->bytes + 64);
    assert_int_equal(rlk_exec_download(&dev, got, t->on_whole, t->bytes + 64), 0);
    assert_int_not_equal(memcmp(got, t->whole, t->bytes + 64), 0);
    free(got);
    clear();
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    for (int i = 1; i < argc; i++)
        tiny |= strcmp(argv[i], "tiny") == 0;
    setenv("RLK_CPU_ISA", "generic", 1);
    if (rlk_exec_init(&ref, RLK_DEVICE_CPU, NULL, NULL))
        return 1;
    unsetenv("RLK_CPU_ISA");
    if (rlk_exec_init(&dev, device, NULL, NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),    cmocka_unit_test(gammas),     cmocka_unit_test(norms_both), cmocka_unit_test(ropes),
        cmocka_unit_test(elements), cmocka_unit_test(embeddings), cmocka_unit_test(squares),    cmocka_unit_test(cells),
        cmocka_unit_test(sums),     cmocka_unit_test(can_fail), cmocka_unit_test(few_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
