/* test_sample.c - the same token for (seed, sample, step, position) in any batch; chi-square against an FP64 softmax.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static enum rlk_device device;

enum { V = 1000 };

static void logits_of(float *z)
{
    for (uint64_t v = 0; v < V; v++)
        z[v] = (float)(int32_t)(t_hash(1, 2, 3, v) >> 32) * 0x1p-31f * 4.0f;
}

/* Draws rows tokens, all of the same logits; samples and positions as given. */
static void draw(int64_t rows, const uint64_t *sample, const int32_t *first, const float *z, float temperature,
                 float top_p, uint64_t seed, uint32_t step, int32_t *out)
{
    struct rlk_exec x;
    struct rlk_world w;
    struct rlk_batch *b;
    struct rlk_pool *pool = rlk_pool_new(2);
    int32_t *length = malloc((size_t)rows * 4);
    float *host = malloc((size_t)rows * V * sizeof *host);
    for (int64_t r = 0; r < rows; r++) {
        length[r] = 1;
        memcpy(host + r * V, z, V * sizeof *z);
    }
    assert_int_equal(rlk_exec_init(&x, device, NULL, pool), 0);
    assert_int_equal(rlk_world_virtual(&w, &x, 1, 1), 0);
    assert_int_equal(rlk_batch_new(&x, &w.lat, (int32_t)rows, length, first, &b), 0);
    float *dz = rlk_exec_alloc(&x, (size_t)rows * V * sizeof *dz);
    int32_t *dt = rlk_exec_alloc(&x, (size_t)rows * 4);
    x.workspace_bytes = (size_t)rows * (V * 4 + 8) + 4096;
    x.workspace = rlk_exec_alloc(&x, x.workspace_bytes);
    rlk_exec_upload(&x, dz, host, (size_t)rows * V * sizeof *dz);
    const struct rlk_sampling s = {"sampler", V, temperature, top_p, seed, step, sample};
    const float *const zs[1] = {dz};
    int32_t *const ts[1] = {dt};
    if (rlk_sample(&w, b, &s, zs, ts))
        fail_msg("%s", x.detail.text);
    rlk_exec_download(&x, out, dt, (size_t)rows * 4);
    rlk_exec_free(&x, dz);
    rlk_exec_free(&x, dt);
    rlk_exec_free(&x, x.workspace);
    rlk_batch_free(&x, b);
    rlk_pool_free(pool);
    free(length);
    free(host);
}

/* Chi-square over bins of expected count >= 10; the limit is mean + 5 standard deviations. */
static void chi_square(const int32_t *token, int64_t n, const double *p, const char *what)
{
    double chi = 0.0, pe = 0.0, po = 0.0;
    int bins = 0;
    int64_t *seen = calloc(V, sizeof *seen);
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(token[i], 0, V - 1);
        seen[token[i]]++;
    }
    for (int v = 0; v < V; v++) {
        if (p[v] == 0.0)
            assert_int_equal(seen[v], 0);
        pe += p[v] * (double)n;
        po += (double)seen[v];
        if (pe >= 10.0) {
            chi += (po - pe) * (po - pe) / pe;
            bins++;
            pe = po = 0.0;
        }
    }
    const double dof = bins - 1, limit = dof + 5.0 * sqrt(2.0 * dof);
    printf("%s: chi-square %.1f, %d degrees of freedom, limit %.1f\n", what, chi, bins - 1, limit);
    assert_true(chi < limit);
    free(seen);
}

static void distribution(void **state)
{
    enum { N = 20000 };
    float z[V];
    double p[V], sum = 0.0, kept = 0.0;
    static uint64_t sample[N];
    static int32_t pos[N], token[N];
    (void)state;
    logits_of(z);
    for (int i = 0; i < N; i++) {
        sample[i] = (uint64_t)i / 10;
        pos[i] = i % 10;
    }
    for (int v = 0; v < V; v++)
        sum += p[v] = exp((double)z[v] / 0.8);
    for (int v = 0; v < V; v++)
        p[v] /= sum;
    draw(N, sample, pos, z, 0.8f, 1.0f, 7, 1, token);
    chi_square(token, N, p, "temperature 0.8");
    /* nucleus 0.6 */
    double q[V] = {0};
    for (double mass = 0.0; mass < 0.6;) {
        int best = -1;
        for (int v = 0; v < V; v++)
            if (q[v] == 0.0 && (best < 0 || p[v] > p[best]))
                best = v;
        q[best] = p[best];
        mass += p[best];
        kept = mass;
    }
    for (int v = 0; v < V; v++)
        q[v] /= kept;
    draw(N, sample, pos, z, 0.8f, 0.6f, 7, 1, token);
    chi_square(token, N, q, "temperature 0.8, top_p 0.6");
    draw(N, sample, pos, z, 0.0f, 1.0f, 7, 1, token);
    int best = 0;
    for (int v = 0; v < V; v++)
        best = z[v] > z[best] ? v : best;
    for (int i = 0; i < N; i++)
        assert_int_equal(token[i], best);
}

static void keys(void **state)
{
    float z[V];
    uint64_t sample[64];
    int32_t pos[64], a[64], b[64], one;
    int moved = 0;
    (void)state;
    logits_of(z);
    for (int i = 0; i < 64; i++) {
        sample[i] = 1000 + (uint64_t)i;
        pos[i] = 5;
    }
    draw(64, sample, pos, z, 1.0f, 0.95f, 7, 2, a);
    for (int i = 0; i < 64; i += 9) { /* alone */
        draw(1, &sample[i], &pos[i], z, 1.0f, 0.95f, 7, 2, &one);
        assert_int_equal(one, a[i]);
    }
    for (int i = 0; i < 64; i++)
        sample[i] = 1063 - (uint64_t)i; /* another order */
    draw(64, sample, pos, z, 1.0f, 0.95f, 7, 2, b);
    for (int i = 0; i < 64; i++)
        assert_int_equal(b[i], a[63 - i]);
    draw(64, sample, pos, z, 1.0f, 0.95f, 8, 2, a); /* another seed, step, position: other tokens */
    for (int i = 0; i < 64; i++)
        moved += a[i] != b[i];
    assert_true(moved > 40);
    draw(64, sample, pos, z, 1.0f, 0.95f, 7, 3, a);
    for (int i = moved = 0; i < 64; i++)
        moved += a[i] != b[i];
    assert_true(moved > 40);
}

static void hard_logits(void **state)
{
    float z[V];
    const uint64_t sample = 1;
    const int32_t pos = 0;
    int32_t t;
    (void)state;
    for (int v = 0; v < V; v++)
        z[v] = -INFINITY;
    z[17] = 3.0f;
    draw(1, &sample, &pos, z, 1.0f, 0.5f, 1, 1, &t);
    assert_int_equal(t, 17);
    z[400] = 3.0f; /* a tie: the nucleus of 0.4 holds the lower id only */
    draw(1, &sample, &pos, z, 1.0f, 0.4f, 1, 1, &t);
    assert_int_equal(t, 17);
    z[300] = INFINITY;
    draw(1, &sample, &pos, z, 1.0f, 1.0f, 1, 1, &t);
    assert_int_equal(t, 300);
    z[2] = NAN;
    draw(1, &sample, &pos, z, 1.0f, 1.0f, 1, 1, &t);
    assert_int_equal(t, -1);
}

int main(int argc, char **argv)
{
    device = t_device(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(distribution), cmocka_unit_test(keys),
                                       cmocka_unit_test(hard_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
