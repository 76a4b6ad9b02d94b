/* harness.h - operators of a small model over any layout and device, and their results as logical tensors. */
#ifndef TESTS_KERNELS_HARNESS_H
#define TESTS_KERNELS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/rlk_ops.h"

/* The model of the matrix. */
enum { T_H = 64, T_I = 96, T_HEADS = 16, T_KV = 8, T_V = 300, T_RANKS = 64 };

enum t_rows { ROWS_TOKENS, ROWS_WHOLE, ROWS_SLABS, ROWS_VOCAB };
enum t_cols { COLS_WHOLE, COLS_SLABS };

/* A logical tensor [rows][cols]; rows is ignored for tokens. */
struct t_spec {
    enum rlk_ktype type;
    enum t_rows rows_kind;
    int64_t rows;
    enum t_cols cols_kind;
    int64_t cols;
};

enum t_fill { FILL_RANDOM, FILL_CANCELLING, FILL_DENORMAL, FILL_OUTLIER, FILL_NAN, FILL_COUNT };

struct t_env {
    struct rlk_exec x;
    struct rlk_world w;
    struct rlk_batch *b;
    struct rlk_pool *pool;
    void **blocks, **arrays; /* device memory; host arrays of pointers to it */
    size_t nblocks, narrays;
    char *bump;
    size_t left;
    void *workspace;
};

/* What to run. */
struct t_case {
    enum rlk_device device;
    int tp, cp;
    unsigned threads;
    int32_t sequences;
    const int32_t *length;
    enum rlk_ktype type;
    enum t_fill fill;
    uint64_t seed;
    int head_dim;
    struct rlk_policy *policy;
    const struct rlk_observe *observe;
    enum rlk_node node;
    const uint64_t *id; /* of each sequence: keys its contents, so that a row keeps its inputs in any batch */
    void *stream;
    bool flush; /* the caller has flush-to-zero set */
    bool loose; /* ranks may disagree about what they replicate: a provider's atomics do */
    const struct rlki_prims *prims, *provider; /* leaves in the place of the device's; NULL = its own */
};

/* Named results, in a fixed order. Values are logical tensors in host memory. */
struct t_output {
    const char *name;
    const char *module; /* rlk_module_name of who computes it */
    bool by_token;      /* rows are tokens: a row must not depend on its mates */
    size_t row_bytes;
    size_t bytes;
    void *data;
};
enum { T_MAX_OUTPUTS = 64 };
struct t_result {
    int n;
    struct t_output out[T_MAX_OUTPUTS];
    int64_t tokens;
};

int t_env_init(struct t_env *e, const struct t_case *c); /* 0, or a code: see e->x.detail; 77 = no device */
void t_env_release(struct t_env *e);

/* Local tensors of the held ranks. Freed with the environment. */
void **t_shard(struct t_env *e, const struct t_spec *s, const void *logical);
void **t_blank(struct t_env *e, const struct t_spec *s); /* grads: zeros for FP32, 0xa5 bytes otherwise */
/* Local tensors back into a logical one; false when two ranks that hold an element disagree about its bits. */
bool t_collect(struct t_env *e, const struct t_spec *s, void *const *local, void *logical);
int64_t t_rows(const struct t_env *e, const struct t_spec *s);

/* A logical tensor filled by (seed, what, sequence id, position, column): host memory, caller frees. */
void *t_fill(const struct t_env *e, const struct t_case *c, const struct t_spec *s, uint32_t what, float scale);

/* Called with true before a call into the library and with false after it; NULL = nobody. For what allocates. */
extern void (*t_bracket)(bool inside);

/* Runs every operator, forward and backward, twice a micro-batch's worth of gradients. 0 or a code (*why has words). */
/* Two short sequences at tp2cp2, fp32, random: where the mode matters and the shape does not. */
struct t_case t_small(enum rlk_device device, struct rlk_policy *policy);
int t_run(const struct t_case *c, struct t_result *out, char why[256]);
void t_result_free(struct t_result *r);
/* Index of the first output that differs, -1 if none; *at gets the first differing byte. */
int t_compare(const struct t_result *a, const struct t_result *b, size_t *at);

uint64_t t_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* Runs fn with 0 on the CPU, or on the GPU when the program's first argument is "cuda"; exit 77 without a device. */
enum rlk_device t_device(int argc, char **argv);

#endif
