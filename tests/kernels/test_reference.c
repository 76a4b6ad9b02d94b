/* test_reference.c - error of every operator against FP64, as the largest difference over the largest value of a
 * tensor. The limits are those of docs/kernels.md; fp32 storage shows the arithmetic, bf16 storage its one rounding on
 * top. The provider is held to ten times as much: it may be ordinary, not wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "kernels/rlk_num.h"

static const int32_t L[] = {17, 130};
enum { S = 2, N = 147, D = 64, G = T_HEADS / T_KV };

static enum rlk_device device;
static struct t_case c;
static struct t_env e; /* for t_fill only */
static struct t_result r;
static int failures;
static double slack;       /* 1, or 10 for the provider */
static double *owned[128]; /* every array of this file, freed after a case */
static int owners;

static double *array(size_t n)
{
    assert_true(owners < 128);
    return owned[owners++] = calloc(n + 1, sizeof(double));
}

/* Input number `what` of harness_run.c, in FP64. */
static double *input(uint32_t what, enum t_rows kind, int64_t rows, int64_t cols, float scale, enum rlk_ktype type)
{
    const struct t_spec s = {type, kind, rows, COLS_WHOLE, cols};
    void *p = t_fill(&e, &c, &s, what, scale);
    const int64_t n = (kind == ROWS_TOKENS ? N : rows) * cols;
    double *out = array((size_t)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = type == RLK_K_BF16 ? (double)rlkn_from_bf16(((uint16_t *)p)[i]) : (double)((float *)p)[i];
    free(p);
    return out;
}
static double *tok(uint32_t what, int64_t cols)
{
    return input(what, ROWS_TOKENS, 0, cols, 1, c.type);
}
static double *wt(uint32_t what, int64_t rows, int64_t cols, float scale)
{
    return input(what, ROWS_WHOLE, rows, cols, scale, c.type);
}
static double *zeros(int64_t n)
{
    return array((size_t)n);
}

/* c [m][n] += a b^T, a^T b, a b by strides. */
static void mm(int m, int n, int k, const double *a, int am, int ak, const double *b, int bn, int bk, double *out)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int q = 0; q < k; q++)
                out[i * n + j] += a[i * am + q * ak] * b[j * bn + q * bk];
}

static void expect(const char *name, const double *want, double limit32)
{
    const struct t_output *o = NULL;
    for (int i = 0; i < r.n; i++)
        if (strcmp(r.out[i].name, name) == 0)
            o = &r.out[i];
    assert_non_null(o);
    char key[48];
    snprintf(key, sizeof key, "|%s|", name);
    const bool stored16 =
        c.type == RLK_K_BF16 &&
        strstr("|column y|column dx|row y|row dx|ffn act|ffn y|ffn dx|attention o|attention dq|attention dk|"
               "attention dv|rmsnorm y|rmsnorm dx|q_norm y|q_norm dx|rope y|rope dx|logp dh|add y|embedding y|adamw "
               "weight|",
               key) != NULL;
    const size_t n = o->bytes / (stored16 ? 2 : 4);
    double worst = 0.0, top = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double got = stored16 ? (double)rlkn_from_bf16(((uint16_t *)o->data)[i]) : (double)((float *)o->data)[i];
        worst = fmax(worst, fabs(got - want[i]));
        top = fmax(top, fabs(want[i]));
    }
    /* bf16: half a unit of the output, and two of what the operator rounds inside (act, gate, dz, o). */
    const double limit = slack * limit32 + (c.type == RLK_K_BF16 ? 2.5 * 0x1p-8 : 0.0), error = worst / top;
    printf("%-18s %-4s%s error %.2e limit %.2e%s\n", name, c.type == RLK_K_BF16 ? "bf16" : "fp32",
           slack > 1.0 ? " provider" : "", error, limit, error <= limit ? "" : "  FAILS");
    failures += !(error <= limit);
}

static void linear_reference(void)
{
    double *x = tok(1, T_H), *w1 = wt(2, T_I, T_H, 0.2f), *w2 = wt(3, T_I, T_H, 0.2f), *wd = wt(4, T_H, T_I, 0.2f),
           *dy = tok(5, T_I), *dy2 = tok(6, T_I), *g = tok(7, T_H), *a = tok(8, T_I);
    double *y = zeros(N * T_I), *dx = zeros(N * T_H), *z = zeros(N * T_H), *da = zeros(N * T_I),
           *dw1 = zeros(T_I * T_H), *dw2 = zeros(T_I * T_H);
    mm(N, T_I, T_H, x, T_H, 1, w1, T_H, 1, y);
    mm(N, T_H, T_I, dy, T_I, 1, w1, 1, T_H, dx);
    mm(N, T_H, T_I, dy2, T_I, 1, w2, 1, T_H, dx);
    mm(N, T_H, T_I, a, T_I, 1, wd, T_I, 1, z);
    mm(N, T_I, T_H, g, T_H, 1, wd, 1, T_I, da);
    mm(T_I, T_H, N, dy, 1, T_I, x, 1, T_H, dw1);
    mm(T_I, T_H, N, dy2, 1, T_I, x, 1, T_H, dw1);
    mm(T_H, T_I, N, g, 1, T_H, a, 1, T_I, dw2);
    mm(T_H, T_I, N, g, 1, T_H, dy, 1, T_I, dw2);
    expect("column y", y, 2e-6);
    expect("column dx", dx, 2e-6);
    expect("row y", z, 2e-6);
    expect("row dx", da, 2e-6);
    expect("column dw", dw1, 2e-6);
    expect("row dw", dw2, 2e-6);
}

static void ffn_reference(void)
{
    double *wg = wt(9, T_I, T_H, 0.3f), *wu = wt(10, T_I, T_H, 0.3f), *wd = wt(11, T_H, T_I, 0.2f), *x = tok(12, T_H),
           *dy = tok(13, T_H);
    double *g = zeros(N * T_I), *u = zeros(N * T_I), *a = zeros(N * T_I), *y = zeros(N * T_H), *da = zeros(N * T_I),
           *dx = zeros(N * T_H), *dwg = zeros(T_I * T_H), *dwd = zeros(T_I * T_H);
    mm(N, T_I, T_H, x, T_H, 1, wg, T_H, 1, g);
    mm(N, T_I, T_H, x, T_H, 1, wu, T_H, 1, u);
    for (int i = 0; i < N * T_I; i++)
        a[i] = g[i] / (1 + exp(-g[i])) * u[i];
    mm(N, T_H, T_I, a, T_I, 1, wd, T_I, 1, y);
    mm(N, T_I, T_H, dy, T_H, 1, wd, 1, T_I, da);
    mm(T_H, T_I, N, dy, 1, T_H, a, 1, T_I, dwd);
    for (int i = 0; i < N * T_I; i++) {
        const double s = 1 / (1 + exp(-g[i])), dg = da[i] * u[i] * s * (1 + g[i] * (1 - s));
        u[i] = da[i] * g[i] * s;
        g[i] = dg;
    }
    mm(N, T_H, T_I, g, T_I, 1, wg, 1, T_H, dx);
    mm(N, T_H, T_I, u, T_I, 1, wu, 1, T_H, dx);
    mm(T_I, T_H, N, g, 1, T_I, x, 1, T_H, dwg);
    expect("ffn act", a, 3e-6);
    expect("ffn y", y, 3e-6);
    expect("ffn dx", dx, 4e-6);
    expect("ffn dw_gate", dwg, 4e-6);
    expect("ffn dw_down", dwd, 4e-6);
}

static void attention_reference(void)
{
    enum { Q = T_HEADS * D, K = T_KV * D };
    double *q = tok(14, Q), *k = tok(15, K), *v = tok(16, K), *g = tok(17, Q);
    double *o = zeros(N * Q), *dq = zeros(N * Q), *dk = zeros(N * K), *dv = zeros(N * K), *lse = zeros(N * T_HEADS);
    const double scale = 1 / sqrt(D);
    for (int s = 0, base = 0; s < S; base += L[s++])
        for (int i = 0; i < L[s]; i++)
            for (int h = 0; h < T_HEADS; h++) {
                const double *qi = q + (base + i) * Q + h * D, *gi = g + (base + i) * Q + h * D;
                double p[256], l = 0, delta = 0;
                for (int j = 0; j <= i; j++) {
                    double z = 0;
                    for (int d = 0; d < D; d++)
                        z += qi[d] * k[(base + j) * K + h / G * D + d];
                    l += p[j] = exp(z * scale);
                }
                for (int j = 0; j <= i; j++) {
                    p[j] /= l;
                    for (int d = 0; d < D; d++)
                        o[(base + i) * Q + h * D + d] += p[j] * v[(base + j) * K + h / G * D + d];
                }
                lse[(base + i) * T_HEADS + h] = log(l);
                for (int d = 0; d < D; d++)
                    delta += gi[d] * o[(base + i) * Q + h * D + d];
                for (int j = 0; j <= i; j++) {
                    double dp = 0;
                    for (int d = 0; d < D; d++)
                        dp += gi[d] * v[(base + j) * K + h / G * D + d];
                    const double ds = p[j] * (dp - delta) * scale;
                    for (int d = 0; d < D; d++) {
                        dq[(base + i) * Q + h * D + d] += ds * k[(base + j) * K + h / G * D + d];
                        dk[(base + j) * K + h / G * D + d] += ds * qi[d];
                        dv[(base + j) * K + h / G * D + d] += p[j] * gi[d];
                    }
                }
            }
    expect("attention o", o, 1e-6);
    expect("attention lse", lse, 1e-6);
    expect("attention dq", dq, 3e-6);
    expect("attention dk", dk, 3e-6);
    expect("attention dv", dv, 3e-6);
}

static void norm_reference(uint32_t x0, int rows, int n, const char *y_name, const char *dx_name, const char *dg_name,
                           double eps)
{
    double *x = tok(x0, rows / N * n), *dy = tok(x0 + 1, rows / N * n), *g = wt(x0 + 2, 1, n, 1);
    double *y = zeros(rows * n), *dx = zeros(rows * n), *dg = zeros(n);
    for (int i = 0; i < rows; i++) {
        double ss = 0, cc = 0;
        for (int j = 0; j < n; j++)
            ss += x[i * n + j] * x[i * n + j];
        const double s = 1 / sqrt(ss / n + eps);
        for (int j = 0; j < n; j++) {
            y[i * n + j] = x[i * n + j] * s * g[j];
            cc += g[j] * dy[i * n + j] * x[i * n + j] * s / n;
            dg[j] += dy[i * n + j] * x[i * n + j] * s;
        }
        for (int j = 0; j < n; j++)
            dx[i * n + j] = s * (g[j] * dy[i * n + j] - x[i * n + j] * s * cc);
    }
    expect(y_name, y, 1e-6);
    expect(dx_name, dx, 1e-6);
    expect(dg_name, dg, 2e-6);
}

static void rope_add_reference(void)
{
    enum { Q = T_HEADS * D };
    double *x = tok(24, Q), *y = zeros(N * Q), *back = zeros(N * Q), *a = tok(25, T_H), *b = tok(26, T_H);
    for (int s = 0, base = 0; s < S; base += L[s++])
        for (int i = 0; i < L[s]; i++)
            for (int h = 0; h < T_HEADS; h++)
                for (int d = 0; d < D / 2; d++) {
                    const double g = i * pow(1e6, -2.0 * d / D), *u = x + (base + i) * Q + h * D + d;
                    const int at = (base + i) * Q + h * D + d;
                    y[at] = u[0] * cos(g) - u[D / 2] * sin(g);
                    y[at + D / 2] = u[D / 2] * cos(g) + u[0] * sin(g);
                    back[at] = u[0] * cos(g) + u[D / 2] * sin(g);
                    back[at + D / 2] = u[D / 2] * cos(g) - u[0] * sin(g);
                }
    expect("rope y", y, 2e-5); /* the angle itself is fp32: half an ulp of 130 */
    expect("rope dx", back, 2e-5);
    for (int i = 0; i < N * T_H; i++)
        a[i] += b[i];
    expect("add y", a, 1e-7);
}

static void embedding_reference(void)
{
    double *table = wt(27, T_V, T_H, 1), *dy = tok(28, T_H), *y = zeros(N * T_H), *grad = zeros(T_V * T_H);
    for (int s = 0, i = 0; s < S; s++)
        for (int p = 0; p < L[s]; p++, i++) {
            const int word = (int)(t_hash(c.seed, 901, (uint64_t)s, (uint64_t)p) % 23);
            for (int k = 0; k < T_H; k++) {
                y[i * T_H + k] = table[word * T_H + k];
                grad[word * T_H + k] += dy[i * T_H + k];
            }
        }
    expect("embedding y", y, 0.0);
    expect("embedding dtable", grad, 1e-6);
}

static void logp_reference(void)
{
    double *w = wt(29, T_V, T_H, 0.5f), *h = tok(30, T_H), *gl = input(31, ROWS_TOKENS, 0, 1, 1, RLK_K_FP32);
    double *z = zeros(N * T_V), *lp = zeros(N), *dz = zeros(N * T_V), *dh = zeros(N * T_H), *dw = zeros(T_V * T_H),
           *ls = zeros(N * T_V);
    mm(N, T_V, T_H, h, T_H, 1, w, T_H, 1, z);
    expect("logits", z, 2e-6);
    for (int s = 0, i = 0; s < S; s++)
        for (int p = 0; p < L[s]; p++, i++) {
            const int y = (int)(t_hash(c.seed, 902, (uint64_t)s, (uint64_t)p) % T_V);
            double sum = 0, t = (double)0.7f;
            for (int v = 0; v < T_V; v++)
                sum += exp(z[i * T_V + v] / t);
            for (int v = 0; v < T_V; v++) {
                ls[i * T_V + v] = z[i * T_V + v] / t - log(sum);
                dz[i * T_V + v] = gl[i] * ((v == y) - exp(z[i * T_V + v] / t) / sum) / t;
            }
            lp[i] = ls[i * T_V + y];
        }
    mm(N, T_H, T_V, dz, T_V, 1, w, 1, T_H, dh);
    mm(T_V, T_H, N, dz, 1, T_V, h, 1, T_H, dw);
    expect("logp", lp, 2e-6);
    expect("log_softmax", ls, 2e-6);
    expect("logp dh", dh, 4e-6);
    expect("logp dw", dw, 4e-6);
}

/* The values of an fp32 output, as computed: what closes a step is judged by what it was given. */
static const float *computed(const char *name, size_t *n)
{
    for (int i = 0; i < r.n; i++)
        if (strcmp(r.out[i].name, name) == 0) {
            *n = r.out[i].bytes / 4;
            return r.out[i].data;
        }
    fail_msg("no output \"%s\"", name);
    return NULL;
}

static void expect_sum(const char *name, int index, double want, double limit)
{
    const double *got = NULL;
    for (int i = 0; i < r.n; i++)
        if (strcmp(r.out[i].name, name) == 0)
            got = r.out[i].data;
    assert_non_null(got);
    /* FP64 by contract; the provider adds in FP32. */
    const double bound = slack > 1.0 ? 1e-5 : limit, error = fabs(got[index] - want) / fabs(want);
    printf("%-18s fp64%s error %.2e limit %.2e%s\n", name, slack > 1.0 ? " provider" : "", error, bound,
           error <= bound ? "" : "  FAILS");
    failures += !(error <= bound);
}

static void step_reference(void)
{
    static const char *const grad[] = {"column dw", "row dw", "embedding dtable", "logp dw"};
    double sum = 0.0, loss = 0.0, *p = input(32, ROWS_WHOLE, T_I, T_H, 1, RLK_K_FP32);
    size_t n = 0, tokens = 0;
    for (int k = 0; k < 4; k++) {
        const float *g = computed(grad[k], &n);
        for (size_t i = 0; i < n; i++)
            sum += (double)g[i] * (double)g[i];
    }
    expect_sum("grad norm", 0, sqrt(sum), 1e-13);
    const float *logp = computed("logp", &tokens), *g = computed("column dw", &n);
    for (size_t i = 0; i < tokens; i++)
        loss += (double)logp[i];
    expect_sum("loss sum", 0, loss, 1e-13);
    expect_sum("loss sum", 1, (double)tokens, 0.0);
    const double coefficient = fmin(1.0, 1.0 / (sqrt(sum) + 1e-6)), b1 = (double)0.9f, b2 = (double)0.95f,
                 lr = (double)1e-2f, eps = (double)1e-8f, decay = (double)0.1f;
    for (size_t i = 0; i < n; i++) {
        double m = 0.0, v = 0.0;
        for (int step = 1; step <= 3; step++) {
            const double x = coefficient * (double)g[i];
            m = b1 * m + (1 - b1) * x;
            v = b2 * v + (1 - b2) * x * x;
            p[i] -= lr * decay * p[i] + lr * (m / (1 - pow(b1, step))) / (sqrt(v / (1 - pow(b2, step))) + eps);
        }
    }
    expect("adamw master", p, 1e-6);
    expect("adamw weight", p, 1e-6);
}

static void errors(enum rlk_ktype type, struct rlk_policy *provider)
{
    char why[256];
    c = (struct t_case){.device = device,
                        .tp = 2,
                        .cp = 2,
                        .threads = 2,
                        .sequences = S,
                        .length = L,
                        .type = type,
                        .fill = FILL_RANDOM,
                        .seed = 77,
                        .head_dim = D,
                        .policy = provider,
                        .loose = provider != NULL};
    slack = provider ? 10.0 : 1.0;
    struct t_case host = c;
    host.device = RLK_DEVICE_CPU;
    assert_int_equal(t_env_init(&e, &host), 0);
    if (t_run(&c, &r, why))
        fail_msg("%s", why);
    failures = 0;
    linear_reference();
    ffn_reference();
    attention_reference();
    norm_reference(18, N, T_H, "rmsnorm y", "rmsnorm dx", "rmsnorm dgamma", 1e-6);
    norm_reference(21, N * T_HEADS, D, "q_norm y", "q_norm dx", "q_norm dgamma", 1e-6);
    rope_add_reference();
    embedding_reference();
    logp_reference();
    step_reference();
    t_result_free(&r);
    t_env_release(&e);
    while (owners)
        free(owned[--owners]);
    assert_int_equal(failures, 0);
}

static void fp32(void **state)
{
    (void)state;
    errors(RLK_K_FP32, NULL);
}

static void bf16(void **state)
{
    (void)state;
    errors(RLK_K_BF16, NULL);
}

static void by_provider(void **state)
{
    struct rlk_policy *p = rlk_policy_new();
    (void)state;
    assert_int_equal(rlk_policy_mode(p, "off", NULL), 0);
    errors(RLK_K_FP32, p);
    errors(RLK_K_BF16, p);
    rlk_policy_free(p);
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32), cmocka_unit_test(bf16), cmocka_unit_test(by_provider)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
