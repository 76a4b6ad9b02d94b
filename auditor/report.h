/* report.h - what was gathered from one recording for the report, and the parts that make rows of it.
 *
 *  report_read.c      one pass over every environment
 *  report_logp.c      log-probabilities: rollout against training, and the metrics that say the same
 *  report_launch.c    captured graphs of decode, readbacks
 *  report_weights.c   stated hashes of weights against the recorded weights
 *  report_run.c       one run
 *  report.c           the two runs
 */
#ifndef AUDITOR_REPORT_H
#define AUDITOR_REPORT_H

#include "auditor/base.h"
#include "auditor/rlk_report.h"
#include "store/rlk_recording.h"

struct rlki_tokens { /* one sample's */
    int64_t step;
    const char *id;
    uint32_t n;
    int64_t *token;
};

struct rlki_logps { /* one sample's drawn tokens, of one side */
    int64_t step;
    const char *sample;
    bool rollout;
    uint32_t rank;
    uint64_t n;
    const float *value; /* in the arena */
};

enum rlki_declared { /* modules whose operators we know; docs/report.md */
                     RLKI_DECLARED_UNKNOWN = -1,
                     RLKI_DECLARED_MODULES = 12,
};
struct rlki_bound { /* a readback: of one module, side and process; the last one counts */
    uint32_t env;
    const char *module; /* "training.attention" */
    const char *case_id, *implementation, *contract;
    uint64_t calls;
    bool counted;
    uint64_t observed, launches; /* operators recorded before it, and their launches */
};

struct rlki_decode { /* one decode iteration of one process */
    int64_t step, iteration;
    uint32_t env;
    uint64_t size; /* sequences; 0 = not known */
    uint64_t graphs, eager;
};

struct rlki_held {        /* a parameter of a weight version as the rollout's ranks hold it */
    struct rlk_sums sums; /* of its distinct parts */
    uint64_t elements;    /* of the whole */
    bool unsure;          /* a part without a digest, or replicas that differ */
};

struct rlki_run_facts {
    struct rlk_recording *recording;
    enum rlk_intact intact;
    struct rlk_arena arena;
    char name[256], program[64];
    const char *layout, *level;
    bool complete, whole; /* whole: every step of every process was kept */
    char why[256];
    bool launch_plane;
    json_t *steps, *perf; /* {"0": {"train/loss": x}} */
    json_t *hashes;       /* {version: {name: {"dtype", "sha256", "shape"}}} */
    json_t *faults;       /* texts: what no row takes in */
    json_t *contracts;    /* {"training.attention": [contracts of its operators]} */
    json_t *artifacts;    /* texts */
    json_t *logp_faults;  /* texts */
    uint64_t comparable;  /* of the artifacts: with their bytes */
    struct rlki_tokens *tokens;
    size_t ntokens, cap_tokens;
    struct rlki_logps *logps;
    size_t nlogps, cap_logps;
    struct rlki_hash logp_index; /* rlki_logps_key -> place */
    struct rlki_bound *bound;
    size_t nbound, cap_bound;
    struct rlki_decode *decode;
    size_t ndecode, cap_decode;
    struct rlki_hash defined; /* (env, graph) with a recorded definition */
    struct rlki_hash graphs;  /* (env, graph) launched */
    uint64_t graphs_outside;  /* graph launches outside decode */
    uint64_t graphs_undefined;
    struct rlki_held *held;
    size_t nheld, cap_held;
    struct rlki_hash held_index; /* (version, name) -> place */
    struct rlki_hash held_parts; /* (place, runs) -> a word of its digest */
    struct rlk_detail *detail;
};

int rlki_run_facts_read(struct rlki_run_facts *facts, const char *dir, struct rlk_detail *detail);
void rlki_run_facts_release(struct rlki_run_facts *facts);

/* The member called `key`, made by `make` (json_object, json_array, ...) if there is none. Keys from a recording may be
 * any bytes: what is no UTF-8 becomes U+FFFD. `make` NULL: looks only. */
json_t *rlki_member(json_t *object, const char *key, json_t *(*make)(void));
/* The same for storing; steals `value`. */
void rlki_set_any(json_t *object, const char *key, json_t *value);
/* Appends a text that is not there yet. */
void rlki_append_once(json_t *list, const char *text);
uint64_t rlki_logps_key(int64_t step, bool rollout, const char *sample);
/* Module of "SIDE.NAME" that an operator belongs to; RLKI_DECLARED_UNKNOWN. */
int rlki_declared_of_op(const char *op);
int rlki_declared_of_name(const char *name);

/* A number as JSON: null where it is none. */
json_t *rlki_number(double value);
double rlki_metric(const struct rlki_run_facts *facts, const char *step, const char *name); /* NaN if there is none */

json_t *rlki_row_logp(const struct rlki_run_facts *facts);
json_t *rlki_row_scalars(const struct rlki_run_facts *facts, const json_t *logp);
json_t *rlki_row_offline(const struct rlki_run_facts *facts);
json_t *rlki_row_graphs(const struct rlki_run_facts *facts, const struct rlk_report_options *options);
json_t *rlki_row_readbacks(const struct rlki_run_facts *facts);
json_t *rlki_run(struct rlki_run_facts *facts, const struct rlk_report_options *options);

int rlki_take_weights(struct rlki_run_facts *facts, const struct rlk_event *event);
/* Of one version that both state: is every pair of statements equal where the recorded tensors are, and only there? */
json_t *rlki_row_held(const struct rlki_run_facts *a, const struct rlki_run_facts *b, const char *version);
/* The same between one version and the next of a run, into its faults. */
void rlki_weights_faults(struct rlki_run_facts *facts);

/* SHA-256 of a weight version by the published recipe; NULL: out of memory. */
json_t *rlki_version_digest(const json_t *tensors);

/* {"passed": null, "status": "not_applicable", "reason": ...} over what is in `row`. */
json_t *rlki_not_applicable(json_t *row, const char *reason);

#endif
