/* op_ffn.c - rlk.ffn.qwen3.deterministic. Order: docs/contracts.md, section 5. */
#include "kernels/rlki_linear.h"

#define FFN "rlk.ffn.qwen3.deterministic/portable/1"
#define OP "rlk.ffn.qwen3.deterministic"

static int check(struct rlk_exec *x, const struct rlk_ffn *f)
{
    int rc = rlki_check_type(x, OP, f->type);
    if (!rc)
        rc = rlki_check_slabs(x, OP, "hidden", f->hidden);
    if (!rc)
        rc = rlki_check_slabs(x, OP, "intermediate", f->intermediate);
    return rc;
}

int rlk_ffn_fwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_ffn *f, rlk_in x, rlk_out gate,
                rlk_out up, rlk_out act, rlk_out y)
{
    const int64_t H = f->hidden, I = f->intermediate;
    const struct rlki_tensor t[] = {
        {"x", false, f->type, x, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, H}}, NULL, "tp"},
        {"w_gate", false, f->type, f->w_gate, 2, {{RLKI_SLABS, I}, {RLKI_WHOLE, H}}, NULL, "cp"},
        {"w_up", false, f->type, f->w_up, 2, {{RLKI_SLABS, I}, {RLKI_WHOLE, H}}, NULL, "cp"},
        {"w_down", false, f->type, f->w_down, 2, {{RLKI_WHOLE, H}, {RLKI_SLABS, I}}, NULL, "cp"},
        {"gate", true, f->type, (rlk_in)gate, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"up", true, f->type, (rlk_in)up, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"act", true, f->type, (rlk_in)act, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"y", true, f->type, (rlk_in)y, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, H}}, NULL, "tp"}};
    const struct rlki_features down = {1, {I}, H, f->type, false, {(rlk_in)act}, {f->w_down}};
    const int64_t local = I / w->lat.tp;
    struct rlki_call c;
    int rc = check(w->x, f);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_FFN, OP, FFN, "fwd", f->module, t, 8)))
        return rc;
    for (int i = 0; !rc && i < w->held; i++) {
        const int64_t n = rlki_local(&c, i);
        const struct rlki_glu glu = {.n = n * local, .type = f->type, .gate = gate[i], .up = up[i], .y = act[i]};
        if (!(rc = rlki_plain_gemm(&c, n, local, H, f->type, x[i], f->w_gate[i], false, gate[i])) &&
            !(rc = rlki_plain_gemm(&c, n, local, H, f->type, x[i], f->w_up[i], false, up[i])) && n)
            rc = c.prims->glu_fwd(w->x, &glu);
    }
    if (!rc)
        rc = rlki_feature_reduce(&c, &down, y);
    return rlki_end(&c, rc, t, 8);
}

int rlk_ffn_bwd(struct rlk_world *w, const struct rlk_batch *b, const struct rlk_ffn *f, rlk_in dy, rlk_in x,
                rlk_out gate, rlk_out up, rlk_in act, rlk_out dx, float *const *g_gate, float *const *g_up,
                float *const *g_down)
{
    const int64_t H = f->hidden, I = f->intermediate;
    const struct rlki_tensor t[] = {
        {"dy", false, f->type, dy, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, H}}, NULL, "tp"},
        {"x", false, f->type, x, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, H}}, NULL, "tp"},
        {"gate", false, f->type, (rlk_in)gate, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"up", false, f->type, (rlk_in)up, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"act", false, f->type, act, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"dgate", true, f->type, (rlk_in)gate, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"dup", true, f->type, (rlk_in)up, 2, {{RLKI_TOKENS, 0}, {RLKI_SLABS, I}}, NULL, NULL},
        {"dx", true, f->type, (rlk_in)dx, 2, {{RLKI_TOKENS, 0}, {RLKI_WHOLE, H}}, NULL, "tp"},
        {"dw_gate", true, RLK_K_FP32, (rlk_in)g_gate, 2, {{RLKI_SLABS, I}, {RLKI_WHOLE, H}}, NULL, "cp"},
        {"dw_up", true, RLK_K_FP32, (rlk_in)g_up, 2, {{RLKI_SLABS, I}, {RLKI_WHOLE, H}}, NULL, "cp"},
        {"dw_down", true, RLK_K_FP32, (rlk_in)g_down, 2, {{RLKI_WHOLE, H}, {RLKI_SLABS, I}}, NULL, "cp"}};
    const struct rlki_features in = {2, {I, I}, H, f->type, true, {(rlk_in)gate, (rlk_in)up}, {f->w_gate, f->w_up}};
    const int64_t local = I / w->lat.tp;
    int64_t size[RLK_SLABS * RLK_SLABS];
    struct rlki_call c;
    int rc = check(w->x, f);
    if (rc || (rc = rlki_begin(&c, w, b, RLK_MODULE_FFN, OP, FFN, "bwd", f->module, t, 11)))
        return rc;
    rc = rlki_token_reduce(&c, rlki_same(&c, H, size), local, f->type, dy, act, g_down);
    for (int i = 0; !rc && i < w->held; i++) {
        const int64_t n = rlki_local(&c, i);
        const size_t mark = w->x->used;
        void *dact = rlki_take(w->x, (size_t)(n * local) * rlk_ktype_bytes(f->type));
        const struct rlki_glu glu = {
            .n = n * local, .type = f->type, .gate = gate[i], .up = up[i], .dy = dact, .dgate = gate[i], .dup = up[i]};
        rc = dact ? rlki_plain_gemm(&c, n, local, H, f->type, dy[i], f->w_down[i], true, dact) : RLK_K_ENOMEM;
        if (!rc && n)
            rc = c.prims->glu_bwd(w->x, &glu);
        w->x->used = mark;
    }
    if (!rc)
        rc = rlki_feature_reduce(&c, &in, dx);
    if (!rc)
        rc = rlki_token_reduce(&c, rlki_same(&c, local, size), H, f->type, (rlk_in)gate, x, g_gate);
    if (!rc)
        rc = rlki_token_reduce(&c, rlki_same(&c, local, size), H, f->type, (rlk_in)up, x, g_up);
    return rlki_end(&c, rc, t, 11);
}
