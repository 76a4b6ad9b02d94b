/* op_elementwise.c - rotary embedding and the residual sum. Order: docs/contracts.md, section 6. */
#include <math.h>

#include "kernels/rlki_control.h"
#include "kernels/rlki_op.h"

#define ROPE "rlk.rope/portable/1"
#define ADD "rlk.add/portable/1"

/* sin and cos of r in [-pi/4, pi/4], Taylor in FP64, each operation rounded once. */
static double sin_near(double r)
{
    static const double C[] = {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                               -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    const double s = r * r;
    double p = C[0];
    for (int i = 1; i < 7; i++)
        p = p * s + C[i];
    return r + r * s * p;
}

static double cos_near(double r)
{
    static const double C[] = {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
                               1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0,        -0.5};
    const double s = r * r;
    double p = C[0];
    for (int i = 1; i < 8; i++)
        p = p * s + C[i];
    return 1.0 + s * p;
}

/* x >= 0, below 2^23: pi/2 in three parts of at most 33 bits, so that n times the first two is exact. */
static void sincos_of(double x, double *s, double *c)
{
    const double n = floor(x * 0x1.45f306dc9c883p-1 + 0.5);
    const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    const double a = sin_near(r), b = cos_near(r);
    switch ((int64_t)n & 3) {
    case 0:
        *s = a;
        *c = b;
        return;
    case 1:
        *s = b;
        *c = -a;
        return;
    case 2:
        *s = -a;
        *c = -b;
        return;
    default:
        *s = -b;
        *c = a;
    }
}

int rlk_rope_table(double theta, int head_dim, int64_t positions, float *table, struct rlk_kdetail *detail)
{
    const int half = head_dim / 2;
    float freq[64];
    if (head_dim != 64 && head_dim != 128)
        return rlk_kfail(detail, RLK_K_EUNSUPPORTED, "rlk.rope: head_dim %d, use 64 or 128", head_dim);
    if (!(theta >= 1.0 && theta <= 1e12) || positions < 0 || positions > 1 << 22)
        return rlk_kfail(detail, RLK_K_EINVAL, "rlk.rope: theta %g, %lld positions; use 1 to 1e12 and at most 2^22",
                         theta, (long long)positions);
    const uint64_t control = rlki_control_enter();
    double root = theta; /* theta^(1/half): half is a power of two */
    for (int k = half; k > 1; k /= 2)
        root = sqrt(root);
    double power = 1.0;
    for (int i = 0; i < half; i++, power *= root)
        freq[i] = (float)(1.0 / power);
    for (int64_t p = 0; p < positions; p++)
        for (int i = 0; i < half; i++) {
            double s, c;
            const float angle = (float)p * freq[i];
            sincos_of((double)angle, &s, &c);
            table[p * head_dim + i] = (float)c;
            table[p * head_dim + half + i] = (float)s;
        }
    rlki_control_leave(control);
    return 0;
}

int rlk_rope(struct rlk_world *w, const struct rlk_batch *b, const char *module, int heads, int head_dim,
             enum rlk_ktype type, const float *table, bool inverse, rlk_in x, rlk_out y)
{
    const struct rlki_tensor t[] = {
        {"x", false, type, x, 3, {{RLKI_TOKENS, 0}, {RLKI_SLABS, heads}, {RLKI_WHOLE, head_dim}}, NULL, NULL},
        {"y", true, type, (rlk_in)y, 3, {{RLKI_TOKENS, 0}, {RLKI_SLABS, heads}, {RLKI_WHOLE, head_dim}}, NULL, NULL}};
    struct rlki_call c;
    int rc = rlki_check_type(w->x, "rlk.rope", type);
    if (!rc)
        rc = rlki_check_slabs(w->x, "rlk.rope", "heads", heads);
    if (!rc && head_dim != 64 && head_dim != 128)
        rc = rlk_kfail(&w->x->detail, RLK_K_EUNSUPPORTED, "rlk.rope: head_dim %d, use 64 or 128", head_dim);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_ROPE, "rlk.rope", ROPE, inverse ? "bwd" : "fwd", module, t, 2)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_part *p = &b->part[rlki_cp(&c, i)];
        const struct rlki_rope a = {p->n, heads / w->lat.tp, head_dim, type, x[i], y[i], p->d_pos, table, inverse};
        rc = p->n ? c.prims->rope(w->x, &a) : 0;
    }
    return rlki_end(&c, rc, t, 2);
}

int rlk_add(struct rlk_world *w, const struct rlk_batch *b, const char *module, int64_t size, enum rlk_ktype type,
            rlk_in a, rlk_in d, rlk_out y)
{
    const struct rlki_tensor t[] = {
        {"a", false, type, a, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, size}}, NULL, "tp"},
        {"b", false, type, d, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, size}}, NULL, "tp"},
        {"y", true, type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, size}}, NULL, "tp"}};
    struct rlki_call c;
    int rc = rlki_check_type(w->x, "rlk.add", type);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_ELEMENTWISE, "rlk.add", ADD, "fwd", module, t, 3)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++) {
        const struct rlki_add e = {rlki_local(&c, i) * size, type, a[i], d[i], y[i]};
        rc = e.n ? c.prims->add(w->x, &e) : 0;
    }
    return rlki_end(&c, rc, t, 3);
}

int rlk_select(struct rlk_world *w, const struct rlk_batch *from, const struct rlk_batch *to, const char *module,
               const int32_t *row, int64_t size, enum rlk_ktype type, rlk_in x, rlk_out y)
{
    const struct rlki_tensor t[] = {
        {"y", true, type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, size}}, NULL, "tp"}};
    const size_t bytes = (size_t)size * rlk_ktype_bytes(type);
    struct rlki_call c;
    int rc = rlki_check_type(w->x, "rlk.select", type);
    if (!rc && w->lat.cp != 1)
        rc = rlk_kfail(&w->x->detail, RLK_K_EUNSUPPORTED, "rlk.select: cp%d, roll out with cp1 (tp%dcp1)", w->lat.cp,
                       w->lat.tp);
    for (int64_t k = 0; !rc && k < to->tokens; k++)
        if (row[k] < 0 || row[k] >= from->tokens)
            rc = rlk_kfail(&w->x->detail, RLK_K_EINVAL, "rlk.select: row %d of token %lld, use 0 to %lld", row[k],
                           (long long)k, (long long)from->tokens - 1);
    if (rc || (rc = rlki_begin(&c, w, to, RLK_MODULE_ELEMENTWISE, "rlk.select", "rlk.select/portable/1", "fwd", module,
                               t, 1)))
        return rc;
    int32_t *index = rlki_take(w->x, (size_t)to->tokens * sizeof *index);
    rc = index ? c.prims->upload(w->x, index, row, (size_t)to->tokens * sizeof *index) : RLK_K_ENOMEM;
    for (int i = 0; !rc && to->tokens && i < w->held; i++) {
        const struct rlki_rows r = {to->tokens, bytes, index, x[i], y[i], bytes, bytes, false};
        rc = c.prims->rows(w->x, &r);
    }
    return rlki_end(&c, rc, t, 1);
}
