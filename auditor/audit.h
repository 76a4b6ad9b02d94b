/* audit.h - the state of one comparison, and what its parts offer each other. One struct rlki_audit, one thread.
 *
 *  walk.c        steps and ranks in order; descends where roll-ups differ
 *  unit.c        the differing nodes of one (step, rank), both sides, in memory
 *  align.c lcs.c pairs of events
 *  value.c       is it the same tensor? inputs by reference, marks, reaching back
 *  root.c        the root rule for an aligned pair
 *  collective.c combine.c  inputs of all ranks
 *  weights.c     the ledger of weight versions
 *  compare.c     comparability (section 5), extra or missing
 *  found.c       the differences found, one for each identity without rank
 *  order.c       which of them comes first
 *  cross.c compose.c  other layouts and phases
 *  elements.c pattern.c  what differs inside a tensor; joined.c cuts.c one that is spread over ranks
 *  mechanism/    why (docs/diagnosis.md)
 *  drawing.c     what differs inside a tensor, drawn; where.c where differences lie; around.c the first one's tensors
 *  result.c      JSON
 */
#ifndef AUDITOR_AUDIT_H
#define AUDITOR_AUDIT_H

#include "auditor/rlk_audit.h"
#include "auditor/side.h"

/* ---- units: events of one (step, rank) in memory ---- */

struct rlki_ev {
    struct rlk_event e; /* parts in the unit's arena */
    uint32_t env;
    uint32_t phase, pass, module, op, sample; /* numbers of names, mapped */
    uint64_t key;                             /* op, dtypes, logical shapes: what the alignment compares */
    struct rlki_ev *mate;
    bool moved;
    bool differs;   /* an output is unequal */
    bool elsewhere; /* alone, but the other side holds its gradient at another place */
    uint32_t nth;   /* collectives: n-th of its (group, communicator, function) in the node */
};

struct rlki_unit {
    int64_t step;
    uint32_t rank;
    struct rlk_arena arena;
    struct rlki_ev *ev[2];
    size_t n[2], cap[2];
};

/* ---- differences ---- */

struct rlki_at { /* where a difference stands: on one rank, in A, or in B (`in_b`) where A has nothing */
    uint32_t rank, env, thread;
    uint64_t seq;
    bool in_b;
    bool after; /* stands right after that event of A */
    uint32_t mate_env;
    uint64_t mate_seq;
    bool has_mate;
};

enum rlki_root {
    RLKI_ROOT_TRUE = 1,
    RLKI_ROOT_UNKNOWN = 2,
};

struct rlki_piece {             /* across layouts: one rank's part of a tensor */
    uint32_t env, tensor, part; /* place in e.tensors; of a sample's rows: in t->samples */
    uint64_t seq, place_hash, slice;
    bool taken; /* joined.c */
};

struct rlki_spread { /* a tensor that differs, and who holds it */
    struct rlki_piece *piece[2];
    size_t n[2];
    struct rlk_sums sums[2];
    bool by_sample, comparable; /* the rows of one sample; both sides have one dtype and logical shape */
    bool whole_units[2];        /* no part ends inside a unit: the sums are those of the whole */
};

struct rlki_found {
    uint64_t key, event_key; /* identity without rank: with role and input, and of the event alone */
    int64_t step, work, iteration;
    uint32_t phase, pass, module, op, sample, name, member;
    uint32_t call, occurrence, index;
    uint8_t role;
    enum rlki_root root;
    enum rlk_event_kind kind;
    bool extra;          /* only one side has it */
    bool source;         /* a source, allowed */
    bool rng;            /* the generator's state differs */
    bool metric;         /* a number without recorded inputs: only a difference where nothing else is */
    bool dropped;        /* explained by another after all */
    bool no_rank;        /* across layouts */
    bool self_a, self_b; /* a root of A against a repeat of A, of B */
    uint32_t reason;     /* why unknown: a name; 0 */
    struct rlki_at *at;  /* ascending by rank */
    size_t nat, cap_at;
    uint32_t tensor_a, tensor_b; /* place in e.tensors of the lowest rank's event; UINT32_MAX = none */
    bool stale;                  /* weights: those of an older step, or of another label */
    int64_t stale_step;
    uint32_t stale_label;
    uint32_t *holders[2]; /* across layouts: ranks that hold parts of the first tensor */
    size_t nholders[2];
    struct rlki_spread *spread; /* across layouts: the tensors that it stands for, the first one first */
    size_t nspread, cap_spread;
};

struct rlki_instance; /* collective.c */

struct rlki_event_ref { /* for the alignment lists */
    uint8_t side;
    uint32_t env;
    uint64_t seq;
};

#define RLKI_LISTED 200u
#define RLKI_DRAWN 24u /* differences that get a map and a histogram: they are some 15 KB each */

/* What the repeats of one side say of its events. */
struct rlki_repeats {
    size_t n;                 /* complete repeats that could be compared with it */
    struct rlki_hash root;    /* identity without rank -> in how many of them it is a root */
    struct rlki_hash down;    /* ... it is downstream of another: they say nothing of it */
    struct rlki_hash retuned; /* ... it is a root, and was launched in another way */
};

struct rlki_audit {
    struct rlk_audit_options opt;
    struct rlki_names names;
    struct rlki_side side[2]; /* A, B; across phases B is opened from the same directory */
    bool cross;               /* other layouts, phases or module trees: composed, not rank by rank */
    bool repacked;            /* the two pack samples differently: to be joined by sample (starts anew, crossing) */
    bool same_layout;         /* so local tensors compare rank by rank even then */
    struct rlki_mapping *mapping;
    struct rlk_detail *detail;

    int64_t first_step;
    bool has_first_step, in_first_step;
    uint64_t compared, skipped, downstream, masked;
    json_t *reasons;

    struct rlki_found *found;
    size_t nfound, cap_found;
    struct rlki_hash found_index;   /* key -> place + 1 */
    struct rlki_hash down;          /* event identities of this step already counted as downstream */
    struct rlki_hash in_pairs;      /* pairs of unequal values already reported as inputs */
    struct rlki_hash rng_differs;   /* (rank, generator) whose state differed at an earlier consumer */
    struct rlki_repeats repeats[2]; /* A against A2..., B against B2... */
    struct rlki_hash *cross_inputs; /* [2]: where marks of inputs across layouts are kept beyond their step; or NULL */
    struct rlki_hash *all_down;     /* where event identities that are downstream are kept, beyond the step; or NULL */

    struct rlki_event_ref *inserted, *deleted, *moved; /* moved: pairs A, B */
    size_t ninserted, ndeleted, nmoved, cap_inserted, cap_deleted, cap_moved;
    uint64_t total_inserted, total_deleted, total_moved;
    uint64_t recomputed[2]; /* of those only in A, in B: in pass recompute */

    struct rlki_instance *instances; /* of this step */
    size_t ninstances, cap_instances;
    struct rlki_hash instance_index;

    struct rlki_ledger *ledger; /* weights.c */
    struct rlki_sync *sync[2];  /* mechanism/ledger.c */
    bool tuned_told;            /* mechanism/autotune.c */
    uint64_t looked;            /* mechanism/facts.c: events looked at around differences */
    struct rlki_hash ops[2];    /* distinct (module, op) of the first compared step */
    uint64_t common_nodes;      /* nodes that agree there */

    uint32_t drawn;           /* differences with a drawing, so far */
    struct rlki_where *where; /* where.c */

    struct { /* elements.c: bytes of the last difference, for the mechanism */
        void *bytes[2];
        struct rlki_at at;
        uint32_t tensor[2];
        uint32_t ndim; /* of what the bytes are: one part's, or put together from all */
        uint64_t shape[RLK_MAX_DIMS];
    } kept;

    json_t *not_comparable; /* {"reason", ...} once found */
    json_t *notes;
    bool failed;
};

/* Adds `n` tensors that could not be compared for `reason`. */
void rlki_skip(struct rlki_audit *audit, const char *reason, uint64_t n);
void rlki_note(struct rlki_audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rlki_incomparable(struct rlki_audit *audit, const char *reason, const struct rlki_ev *a, const struct rlki_ev *b,
                       const char *name);
/* Were the two kept by different retention (--steps, --every, --keep-last)? Then a missing step means nothing. */
bool rlki_partial(const struct rlki_audit *audit);
bool rlki_failed(const struct rlki_audit *audit);
/* Does the walk end here? (not comparable and not allowed) */
bool rlki_stop(const struct rlki_audit *audit);

/* walk.c */
int rlki_walk(struct rlki_audit *audit);
/* Numbers (losses) found from place `first` on are explained by any other difference. */
void rlki_settle_metrics(struct rlki_audit *audit, size_t first);

/* unit.c */
void rlki_unit_reset(struct rlki_unit *unit);
void rlki_unit_release(struct rlki_unit *unit);
/* Reads the events of one node of one side into the unit. */
int rlki_unit_read(struct rlki_audit *audit, struct rlki_unit *unit, int side, const struct rlki_node *node);
/* Orders the events of both sides; counts collectives. */
void rlki_unit_finish(struct rlki_unit *unit);
/* One event with its names; parts in `arena`. */
int rlki_ev_load(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, struct rlk_arena *arena,
                 struct rlki_ev *out);
bool rlki_is_p2p(const struct rlki_ev *ev);
uint64_t rlki_communicator_key(const struct rlki_ev *ev);                            /* group, ranks, function */
uint64_t rlki_ev_identity(const struct rlki_audit *audit, const struct rlki_ev *ev); /* without rank */
bool rlki_is_rollout(const char *phase);

/* align.c: sets mates; lists the rest. */
int rlki_align(struct rlki_audit *audit, struct rlki_unit *unit);
/* lcs.c: longest common subsequence of keys; ties by the earliest pairing in a, then b. pair[i] = index in b or
 * UINT32_MAX. false: too large (the caller takes another way) or out of memory (*failed). */
bool rlki_lcs(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb, uint32_t *pair, bool *failed);

/* value.c */
enum rlki_tri {
    RLKI_NO = 0,
    RLKI_YES = 1,
    RLKI_MAYBE = 2,
};
struct rlki_value {
    bool known;
    const char *why; /* not known */
    uint8_t dtype;
    struct rlk_sums sums;
    uint32_t nsamples; /* per-sample sums that hold all of it: their number, and a sum that does not know their order */
    uint64_t samples;
    rlk_u128 view;
    bool has_producer;
    uint32_t env;
    uint64_t producer;
    uint32_t output;
};
int rlki_value_of(struct rlki_audit *audit, int side, const struct rlk_event *event, uint32_t env,
                  const struct rlk_tensor *tensor, struct rlki_value *out);
enum rlki_tri rlki_value_equal(const struct rlki_value *a, const struct rlki_value *b);
/* Finds the producer of an input that carries no reference. RLK_EAGAIN = effort spent (has_producer stays false). */
int rlki_value_producer(struct rlki_audit *audit, int side, const struct rlk_event *event, uint32_t env,
                        const struct rlk_tensor *tensor, struct rlki_value *value, bool *unsure);
/* YES: an aligned output reached back from (env, seq, output) through unaligned events differs; MAYBE: one could not be
 * compared; NO. */
int rlki_reach(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, uint32_t output, enum rlki_tri *out);

/* Per-sample sums of a tensor, batch order apart: how many, 0 if they do not hold all of it. *out: of ids and digests;
 * *ids: of the ids alone (may be NULL). */
uint32_t rlki_sample_sum(const struct rlk_tensor *tensor, uint64_t *out, uint64_t *ids);
/* Compares two outputs as recorded. RLKI_MAYBE: *reason says why not. */
enum rlki_tri rlki_output_equal(const struct rlk_tensor *a, const struct rlk_tensor *b, const char **reason);

/* root.c */
enum rlki_input {
    RLKI_INPUT_EQUAL,
    RLKI_INPUT_UNKNOWN,
    RLKI_INPUT_ROOT, /* unequal, and nothing recorded before explains it: reported */
    RLKI_INPUT_DOWN,
};
/* Marks what differs in all pairs of the unit, then applies the root rule to them. */
int rlki_judge_unit(struct rlki_audit *audit, struct rlki_unit *unit);
int rlki_judge_input(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                     const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_input *out, uint32_t *reason);
struct rlki_rng {
    bool has;
    uint64_t seed, offset, grid, generator;
};
/* The RNG event that holds for this event: the last one before it on its thread, nothing but syncs in between. */
int rlki_rng_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, struct rlki_rng *out);
const struct rlk_tensor *rlki_ev_tensor(const struct rlki_ev *ev, uint8_t role, uint32_t index);
uint32_t rlki_ev_count(const struct rlki_ev *ev, uint8_t role);

/* combine.c: the ranks that an operator combines, as recorded; NULL: it reads its own only. */
const char *rlki_combines(const struct rlki_ev *ev);
uint64_t rlki_combine_key(const struct rlki_audit *audit, const struct rlki_ev *ev); /* one on all of them; 0 = none */
uint32_t rlki_combine_ranks(const char *text, uint32_t *out, uint32_t room);         /* 0: not well-formed */

/* collective.c; rng: the generator's state differs at it */
int rlki_collective_add(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b, bool rng);
int rlki_collective_members(struct rlki_audit *audit, struct rlki_unit *unit);
int rlki_collectives_finish(struct rlki_audit *audit, int64_t step);
void rlki_collectives_drop(struct rlki_audit *audit);
bool rlki_has_members(const struct rlki_ev *ev); /* one input and one output each */

/* mechanism/labels.c: notes on version labels. */
int rlki_label_notes(struct rlki_audit *audit);

/* mechanism/ledger.c */
void rlki_sync_free(struct rlki_audit *audit);

/* weights.c */
void rlki_ledger_free(struct rlki_ledger *ledger);
int rlki_weights(struct rlki_audit *audit, struct rlki_unit *unit);

/* compare.c */
bool rlki_is_parameter_name(const char *name);
#define RLKI_LEVEL_OP 3
/* Rank of a capture level: what the coarser records, both do. */
int rlki_level_of(const struct rlki_side *side);
bool rlki_is_gradient_name(const char *name);
bool rlki_is_token_ids(const struct rlki_ev *ev, const struct rlk_tensor *tensor);
/* Checks the dtype and shape of parameters; notes a source that differs. true = the audit is over (not comparable). */
void rlki_check_parameter(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                          const struct rlk_tensor *ta, const struct rlk_tensor *tb);
/* Another shape keeps operators from being aligned: parameters of events left alone are compared by name. */
int rlki_check_lone_parameters(struct rlki_audit *audit, const struct rlki_unit *unit);
bool rlki_source_differs(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                         const struct rlk_tensor *ta, const struct rlk_tensor *tb);
void rlki_count_ops(struct rlki_audit *audit, const struct rlki_unit *unit);
/* Below the operators nothing links a tensor to what made it: does something that differs stand before this event in
 * its process, at such a level? Then what differs here may come of it. */
bool rlki_unlinked(const struct rlki_audit *audit, const struct rlki_ev *a);
bool rlki_below_operators(const struct rlki_audit *audit); /* is a side recorded at such a level? */
/* Does this event count there? An operator does not where the levels differ: each level has its own. */
bool rlki_counts_op(const struct rlki_audit *audit, const struct rlk_event *event);
int rlki_check_overlap(struct rlki_audit *audit);
/* An event without counterpart: listed, and a difference if it is a loss, gradient, parameter or weights event. */
int rlki_lone(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlki_at *anchor);

/* found.c */
struct rlki_found *rlki_found_add(struct rlki_audit *audit, const struct rlki_ev *a, const struct rlki_ev *b,
                                  const struct rlk_tensor *ta, const struct rlk_tensor *tb, enum rlki_root root);
void rlki_count_down(struct rlki_audit *audit, const struct rlki_ev *ev);
struct rlki_at rlki_at_of(const struct rlki_ev *a, const struct rlki_ev *b);
void rlki_found_release(struct rlki_audit *audit);
uint32_t rlki_found_rank(const struct rlki_found *found);
bool rlki_found_on(const struct rlki_found *found, uint32_t rank);

/* order.c: the first of all, and the first on one rank (rank < 0 = all). NULL if there is none. */
int rlki_first(struct rlki_audit *audit, int64_t rank, const struct rlki_found **out);

/* cross.c */
int rlki_cross_walk(struct rlki_audit *audit);
/* Across layouts and phases: is this tensor, put together from the parts of all ranks, equal on both sides? After the
 * walk, with cross_inputs kept. LONE: nothing on the other side is its counterpart. */
int rlki_cross_status(struct rlki_audit *audit, int side, const struct rlki_ev *ev, const struct rlk_tensor *t,
                      enum rlki_mark *out);

/* JSON under construction: a value that could not be made or stored is remembered for this thread, and the result is
 * RLK_ENOMEM in the end. All steal `value`. */
void rlki_set(json_t *object, const char *key, json_t *value);
void rlki_add(json_t *array, json_t *value);
void rlki_replace(json_t *array, size_t at, json_t *value);
void rlki_json_begin(void);
bool rlki_json_failed(void);

/* result.c */
json_t *rlki_json_text(const char *text);
int rlki_result(struct rlki_audit *audit, json_t **out);
json_t *rlki_json_event(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq);
json_t *rlki_json_side(struct rlki_audit *audit, int side, uint32_t env, uint64_t seq, uint32_t tensor);
int rlki_json_diff(struct rlki_audit *audit, const struct rlki_found *found, json_t **out);

/* elements.c: {"elements", "changed", ...}; RLK_ECORRUPT when bytes do not have the digest they stand for. */
int rlki_difference(struct rlki_audit *audit, const struct rlki_found *found, json_t **out);
/* Across layouts: the same of the n-th tensor that it stands for. */
int rlki_difference_of(struct rlki_audit *audit, const struct rlki_found *found, size_t n, json_t **out);

/* where.c: where the differences lie, steps x layers and ranks x collectives. Nothing fails: what does not fit is
 * counted. `down`: a downstream difference. `collective`: what one rank's part of a collective says. `verdict`: the
 * collective's output differs, as a root or not. */
enum rlki_part_of {
    RLKI_PART_HEARD = 1,
    RLKI_PART_IN = 2,
    RLKI_PART_OUT = 4,
};
void rlki_where_down(struct rlki_audit *audit, const struct rlki_ev *ev);
void rlki_where_collective(struct rlki_audit *audit, uint64_t key, const struct rlki_ev *ev, enum rlki_part_of part);
void rlki_where_verdict(struct rlki_audit *audit, uint64_t key, int64_t step, bool root);
void rlki_where_free(struct rlki_where *where);
int rlki_where_json(struct rlki_audit *audit, const struct rlki_found *first, json_t **out);

/* around.c: the tensors of the first difference's event on both sides; NULL across layouts. */
int rlki_around(struct rlki_audit *audit, const struct rlki_found *found, json_t **out);
/* What was recorded, of both sides. */
json_t *rlki_runs_json(struct rlki_audit *audit);

/* mechanism/launches.c: was a root launched in another way on the two sides? */
int rlki_launched_otherwise(struct rlki_audit *audit, const struct rlki_found *found, bool *out);

/* mechanism/table.c */
int rlki_mechanism(struct rlki_audit *audit, const struct rlki_found *found, const json_t *difference, json_t **out);

/* audit.c */
int rlki_audit_open(struct rlki_audit *audit, const struct rlk_audit_options *options, struct rlk_detail *detail);
/* Are both recordings still what was recorded? Notes it where that was not looked at. */
int rlki_audit_intact(struct rlki_audit *audit);
void rlki_audit_close(struct rlki_audit *audit);
/* Walks; where the two turn out to pack samples differently, once more by sample. */
int rlki_audit_compare(struct rlki_audit *audit);

#endif
