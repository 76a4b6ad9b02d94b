#include "kernels/rlk_policy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ABLATIONS 16

struct binding {
    enum rlk_mode mode;
    enum rlk_impl impl[2]; /* by side */
    char case_id[160];
    bool ablated, missing_row;
    struct rlk_readback read[2];
};

struct rlk_policy {
    enum rlk_side side;
    struct binding module[RLK_MODULE_COUNT];
    char boundary[MAX_ABLATIONS][128];
    unsigned boundaries;
};

static const char *const MODULE[] = {
#define X(name, text) text,
    RLK_MODULES(X)
#undef X
};
static const char *const MODE[] = {"strict", "audit", "auto", "off"};
static const char *const CASE[] = {"R/R", "R/P", "P/R", "P/P"};

const char *rlk_module_name(enum rlk_module module)
{
    return (unsigned)module < RLK_MODULE_COUNT ? MODULE[module] : "?";
}

static void set_case(struct binding *b, unsigned c)
{
    b->impl[RLK_SIDE_TRAINING] = c & 2u ? RLK_IMPL_PROVIDER : RLK_IMPL_CONTRACT;
    b->impl[RLK_SIDE_ROLLOUT] = c & 1u ? RLK_IMPL_PROVIDER : RLK_IMPL_CONTRACT;
    memcpy(b->case_id, CASE[c], 4);
    b->ablated = false;
}

struct rlk_policy *rlk_policy_new(void)
{
    struct rlk_policy *p = calloc(1, sizeof *p);
    for (unsigned m = 0; p && m < RLK_MODULE_COUNT; m++)
        set_case(&p->module[m], 0);
    if (p)
        rlk_policy_reset_counts(p);
    return p;
}

void rlk_policy_free(struct rlk_policy *p)
{
    free(p);
}

static int find(const char *const *list, unsigned n, const char *text, size_t len)
{
    for (unsigned i = 0; i < n; i++)
        if (strlen(list[i]) == len && strncmp(list[i], text, len) == 0)
            return (int)i;
    return -1;
}

/* Splits "MODULE=VALUE"; *first..*last are the modules meant. */
static int parse(const char *text, const char *const *values, unsigned n, unsigned *first, unsigned *last,
                 unsigned *value, struct rlk_kdetail *detail)
{
    const char *eq = strchr(text, '=');
    *first = 0;
    *last = RLK_MODULE_COUNT;
    if (eq) {
        const int m = find(MODULE, RLK_MODULE_COUNT, text, (size_t)(eq - text));
        if (m < 0)
            return rlk_kfail(detail, RLK_K_EINVAL,
                             "\"%.64s\": no such module; use linear, ffn, attention, logp, norm, rope, "
                             "embedding, elementwise, optimizer, gradnorm, loss or sampling",
                             text);
        *first = (unsigned)m;
        *last = *first + 1;
        text = eq + 1;
    }
    const int v = find(values, n, text, strlen(text));
    if (v < 0)
        return rlk_kfail(detail, RLK_K_EINVAL, "\"%.64s\": use %s, %s, %s or %s", text, values[0], values[1], values[2],
                         values[3]);
    *value = (unsigned)v;
    return 0;
}

int rlk_policy_mode(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail)
{
    unsigned first, last, mode;
    const int rc = parse(text, MODE, 4, &first, &last, &mode, detail);
    if (rc)
        return rc;
    for (unsigned m = first; m < last; m++) {
        p->module[m].mode = (enum rlk_mode)mode;
        set_case(&p->module[m], mode <= RLK_MODE_AUDIT ? 0 : 3);
    }
    return 0;
}

int rlk_policy_case(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail)
{
    unsigned first, last, value;
    const int rc = parse(text, CASE, 4, &first, &last, &value, detail);
    if (rc)
        return rc;
    for (unsigned m = first; m < last; m++)
        set_case(&p->module[m], value);
    return 0;
}

int rlk_policy_ablate(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail)
{
    if (strncmp(text, "node:", 5) == 0) {
        const int m = find(MODULE, RLK_MODULE_COUNT, text + 5, strlen(text + 5));
        if (m < 0)
            return rlk_kfail(detail, RLK_K_EINVAL, "ablation \"%.64s\": no such module", text);
        struct binding *b = &p->module[m];
        b->impl[0] = b->impl[1] = RLK_IMPL_PROVIDER;
        b->ablated = true;
        snprintf(b->case_id, sizeof b->case_id, "ablation(native: node:%s)", MODULE[m]);
        return 0;
    }
    if (strncmp(text, "boundary:", 9) == 0 && text[9]) {
        if (p->boundaries == MAX_ABLATIONS || strlen(text + 9) >= sizeof p->boundary[0])
            return rlk_kfail(detail, RLK_K_EINVAL, "ablation \"%.64s\": at most %d of at most 127 bytes", text,
                             MAX_ABLATIONS);
        strcpy(p->boundary[p->boundaries++], text + 9);
        return 0;
    }
    return rlk_kfail(detail, RLK_K_EINVAL, "ablation \"%.64s\": use node:MODULE or boundary:PATH", text);
}

int rlk_policy_from_env(struct rlk_policy *p, struct rlk_kdetail *detail)
{
    int (*const set[2])(struct rlk_policy *, const char *, struct rlk_kdetail *) = {rlk_policy_mode, rlk_policy_case};
    static const char *const NAME[2] = {"RLK_MODE", "RLK_CASE"};
    for (int k = 0; k < 2; k++) {
        const char *all = getenv(NAME[k]);
        int rc = all && *all ? set[k](p, all, detail) : 0;
        if (rc)
            return rc;
        for (unsigned m = 0; m < RLK_MODULE_COUNT; m++) {
            char name[40], text[64];
            snprintf(name, sizeof name, "%s_%s", NAME[k], MODULE[m]);
            for (char *c = name; *c; c++)
                *c = (char)toupper((unsigned char)*c);
            const char *value = getenv(name);
            if (!value || !*value)
                continue;
            snprintf(text, sizeof text, "%s=%.40s", MODULE[m], value);
            rc = set[k](p, text, detail);
            if (rc)
                return rc;
        }
    }
    return 0;
}

void rlk_policy_side(struct rlk_policy *p, enum rlk_side side)
{
    p->side = side;
}

enum rlk_mode rlk_policy_mode_of(const struct rlk_policy *p, enum rlk_module module)
{
    return p ? p->module[module].mode : RLK_MODE_STRICT;
}

void rlk_policy_drop_row(struct rlk_policy *p, enum rlk_module module)
{
    p->module[module].missing_row = true;
}

/* '*' matches any run of characters. */
static bool glob(const char *g, const char *s)
{
    const char *star = NULL, *mark = NULL;
    while (*s) {
        if (*g == '*') {
            star = g++;
            mark = s;
        } else if (*g == *s) {
            g++;
            s++;
        } else if (star) {
            g = star + 1;
            s = ++mark;
        } else {
            return false;
        }
    }
    while (*g == '*')
        g++;
    return !*g;
}

/* What is asked for, before a missing row turns it round. */
static enum rlk_impl wanted(const struct rlk_policy *p, enum rlk_module module, const char *boundary)
{
    for (unsigned i = 0; i < p->boundaries; i++)
        if (glob(p->boundary[i], boundary ? boundary : ""))
            return RLK_IMPL_PROVIDER;
    return p->module[module].impl[p->side];
}

enum rlk_impl rlk_policy_peek(const struct rlk_policy *p, enum rlk_module module, const char *boundary)
{
    if (!p)
        return RLK_IMPL_CONTRACT;
    return p->module[module].missing_row ? RLK_IMPL_PROVIDER : wanted(p, module, boundary);
}

int rlk_policy_bind(struct rlk_policy *p, enum rlk_module module, const char *boundary, const char *contract,
                    enum rlk_impl *impl, struct rlk_kdetail *detail)
{
    *impl = RLK_IMPL_CONTRACT;
    if (!p)
        return 0;
    struct binding *b = &p->module[module];
    struct rlk_readback *r = &b->read[p->side];
    enum rlk_impl want = wanted(p, module, boundary);
    r->requested = want;
    if (want == RLK_IMPL_CONTRACT && b->missing_row) {
        if (b->mode == RLK_MODE_STRICT)
            return rlk_kfail(detail, RLK_K_EUNSUPPORTED,
                             "%.128s: no contract row for %s (%.48s); run it with %s=audit, or ablate node:%s",
                             boundary ? boundary : "?", MODULE[module], contract, MODULE[module], MODULE[module]);
        if (!r->missing[0])
            snprintf(r->missing, sizeof r->missing, "%.120s", boundary ? boundary : "?");
        r->fallbacks++;
        want = RLK_IMPL_PROVIDER;
    }
    r->actual = *impl = want;
    snprintf(r->contract, sizeof r->contract, "%.60s", want == RLK_IMPL_CONTRACT ? contract : "provider");
    if (want == RLK_IMPL_CONTRACT)
        r->contract_calls++;
    else
        r->provider_calls++;
    return 0;
}

size_t rlk_policy_readbacks(struct rlk_policy *p, struct rlk_readback *out, size_t max)
{
    size_t n = 0;
    for (unsigned side = 0; side < 2; side++)
        for (unsigned m = 0; m < RLK_MODULE_COUNT; m++) {
            struct rlk_readback *r = &p->module[m].read[side];
            if (r->contract_calls + r->provider_calls == 0)
                continue;
            r->case_id = p->module[m].case_id;
            if (n < max)
                out[n] = *r;
            n++;
        }
    return n;
}

void rlk_policy_reset_counts(struct rlk_policy *p)
{
    for (unsigned m = 0; m < RLK_MODULE_COUNT; m++)
        for (unsigned side = 0; side < 2; side++)
            p->module[m].read[side] = (struct rlk_readback){.module = (enum rlk_module)m, .side = (enum rlk_side)side};
}
