/* rlk_policy.h - who computes an operator: its contract, or the library that users run today (docs/contracts.md, 9).
 *
 * mode    bind  case  missing row                      report only
 * strict  yes   R/R   error that names the boundary    no
 * audit   yes   R/R   recorded, the provider runs      yes
 * auto    no    P/P   provider, recorded               no
 * off     no    P/P   provider, untouched              no
 *
 * A case is training/rollout, R = by contract, P = provider; R/P and P/R bind one side. Strict and audit give the same
 * bits. A policy is used by one thread at a time; it holds no device memory.
 */
#ifndef KERNELS_RLK_POLICY_H
#define KERNELS_RLK_POLICY_H

#include "kernels/rlk_kbase.h"
#include "kernels/rlk_observe.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rlk_mode { RLK_MODE_STRICT = 0, RLK_MODE_AUDIT = 1, RLK_MODE_AUTO = 2, RLK_MODE_OFF = 3 };
enum rlk_side { RLK_SIDE_TRAINING = 0, RLK_SIDE_ROLLOUT = 1 };

/* Modules that a mode, a case or an ablation can name. X(enumerator, name) */
#define RLK_MODULES(X)                                                                                                 \
    X(RLK_MODULE_LINEAR, "linear")                                                                                     \
    X(RLK_MODULE_FFN, "ffn")                                                                                           \
    X(RLK_MODULE_ATTENTION, "attention")                                                                               \
    X(RLK_MODULE_LOGP, "logp")                                                                                         \
    X(RLK_MODULE_NORM, "norm")                                                                                         \
    X(RLK_MODULE_ROPE, "rope")                                                                                         \
    X(RLK_MODULE_EMBEDDING, "embedding")                                                                               \
    X(RLK_MODULE_ELEMENTWISE, "elementwise")                                                                           \
    X(RLK_MODULE_OPTIMIZER, "optimizer")                                                                               \
    X(RLK_MODULE_GRADNORM, "gradnorm")                                                                                 \
    X(RLK_MODULE_LOSS, "loss")                                                                                         \
    X(RLK_MODULE_SAMPLING, "sampling")
enum rlk_module {
#define X(name, text) name,
    RLK_MODULES(X)
#undef X
        RLK_MODULE_COUNT
};
const char *rlk_module_name(enum rlk_module module);

/* What was bound to one module of one side, and how often: the readback. */
struct rlk_readback {
    enum rlk_module module;
    enum rlk_side side;
    const char *case_id; /* "R/R", "P/P", "R/P", "P/R", or "ablation(native: node:X)" */
    enum rlk_impl requested, actual;
    char contract[64];                                  /* of the last call: contract id or "provider" */
    uint64_t contract_calls, provider_calls, fallbacks; /* operator calls */
    char missing[128];                                  /* first boundary without a contract row, "" if none */
};

struct rlk_policy;

struct rlk_policy *rlk_policy_new(void); /* strict, R/R; NULL when memory is short */
void rlk_policy_free(struct rlk_policy *p);

/* "strict", "audit", "auto", "off" for all modules, or "MODULE=MODE" for one; the last call wins. */
int rlk_policy_mode(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail);
/* "R/R", "R/P", "P/R", "P/P" for all modules, or "MODULE=CASE" for one. Needs no mode: it binds the named sides. */
int rlk_policy_case(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail);
/* "node:MODULE" or "boundary:PATH" (a module path as operators are given it, '*' matches any run of characters): what
 * is named goes back to the provider on both sides, everything else stays bound. Can be called up to 16 times. */
int rlk_policy_ablate(struct rlk_policy *p, const char *text, struct rlk_kdetail *detail);
/* RLK_MODE, RLK_CASE, and RLK_MODE_<MODULE>, RLK_CASE_<MODULE> in upper case (RLK_MODE_ATTENTION=off). */
int rlk_policy_from_env(struct rlk_policy *p, struct rlk_kdetail *detail);

void rlk_policy_side(struct rlk_policy *p, enum rlk_side side); /* of the calls that follow; training at first */
enum rlk_mode rlk_policy_mode_of(const struct rlk_policy *p, enum rlk_module module);

/* A row is the contract implementation of a module. Declaring one missing is for tests and for partial builds. */
void rlk_policy_drop_row(struct rlk_policy *p, enum rlk_module module);

/* Decides one call and counts it. boundary = the module path. 0 and *impl, or RLK_K_EUNSUPPORTED in strict when the row
 * is missing: the detail names the boundary. p NULL = strict. Called by the operators. */
int rlk_policy_bind(struct rlk_policy *p, enum rlk_module module, const char *boundary, const char *contract,
                    enum rlk_impl *impl, struct rlk_kdetail *detail);

/* Who would run such a call now: nothing is counted, and strict is not refused. For measuring a workspace. */
enum rlk_impl rlk_policy_peek(const struct rlk_policy *p, enum rlk_module module, const char *boundary);

/* Copies at most max readbacks of modules that were called, training first, in the order of RLK_MODULES. Returns how
 * many there are. The case_id strings live as long as p. */
size_t rlk_policy_readbacks(struct rlk_policy *p, struct rlk_readback *out, size_t max);
void rlk_policy_reset_counts(struct rlk_policy *p);

#ifdef __cplusplus
}
#endif
#endif
