/* synth_spec.h - a spec as read: everything checked that can be checked without evaluating a tensor. Internal.
 *
 * Strings point into the JSON document, the rest into the arena of struct sy_spec; both outlive evaluation.
 * Names, allocs and occurrence classes are numbered densely when read, so that a rank's state is plain arrays.
 */
#ifndef RECORDER_SYNTH_SYNTH_SPEC_H
#define RECORDER_SYNTH_SYNTH_SPEC_H

#include "recorder/synth/synth_json.h"
#include "store/rlk_place.h"

#define SY_NONE UINT32_MAX

struct sy_number { /* integers stay exact */
    bool is_int;
    int64_t i;
    double d;
};

enum sy_fill_kind {
    SY_FILL_CONST,
    SY_FILL_BITS,
    SY_FILL_ARANGE,
    SY_FILL_UNIFORM,
    SY_FILL_NORMAL,
    SY_FILL_INT,
    SY_FILL_LIKE,
    SY_FILL_CAST_OF,
};

struct sy_fill {
    enum sy_fill_kind kind;
    uint32_t seed;
    struct sy_number value; /* const, arange */
    uint64_t bits;
    int64_t lo, hi; /* int */
    uint32_t name;  /* like, cast_of */
};

enum sy_mask_kind {
    SY_MASK_ALL,
    SY_MASK_UNIFORM,
    SY_MASK_ROWS,
    SY_MASK_SPARSE,
    SY_MASK_RANGE, /* tail too */
    SY_MASK_SHARD,
};

struct sy_mask {
    enum sy_mask_kind kind;
    double p;
    uint32_t seed, rank;
    uint64_t lo, hi; /* range; sparse: lo = n */
    uint64_t nrows;
    const uint64_t *rows;
};

enum sy_change_kind {
    SY_CHANGE_ULP,
    SY_CHANGE_REL,
    SY_CHANGE_ADD,
    SY_CHANGE_ADD_ROWS,
    SY_CHANGE_ZERO,
    SY_CHANGE_BYTE,
    SY_CHANGE_GARBAGE,
    SY_CHANGE_PERMUTE,
    SY_CHANGE_CAST,
    SY_CHANGE_FROM,
};

struct sy_change {
    enum sy_change_kind kind;
    int64_t ulp;
    double rel;
    struct sy_number add;
    uint32_t seed;
    uint8_t byte;
    uint64_t nrows;
    const struct sy_number *add_rows;
    const uint64_t *order;
    enum rlk_dtype dtype;
    uint32_t name; /* from */
};

struct sy_edit {
    struct sy_mask mask;
    struct sy_change change;
};

struct sy_tensor {
    const char *name;
    uint32_t name_id;
    enum rlk_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t numel, bytes;
    struct sy_fill fill;
    uint32_t nedits;
    const struct sy_edit *edits;
    const struct rlk_place *place; /* NULL = local */
    bool has_alloc;
    uint32_t alloc_id;
    uint64_t alloc; /* as stored; 0 = none */
    const char *version;
    uint32_t nsamples;
    const struct rlk_sample_part *samples; /* without sums */
    uint8_t state;                         /* DIGESTED, UNDEFINED, NOT_DIGESTED */
    const char *reason;
    bool payload;
    uint32_t memo; /* place in the cache of evaluated tensors */
};

struct sy_event {
    struct rlk_event base;  /* who (occurrence apart), attrs, launches, u; no tensors */
    uint32_t nranks;        /* 0 = every rank */
    const uint32_t *ranks;  /* ascending */
    uint32_t occurrence_id; /* class that is counted on each rank */
    uint32_t nin, nout;
    const struct sy_tensor *tensors; /* inputs, then outputs */
    bool producer;                   /* its outputs are producers */
    bool by_layout;                  /* a collective whose communicator follows from the layout */
    const char *list_out;            /* "out" or "tensors", for messages */
};

struct sy_spec {
    const json_t *root;
    uint32_t ranks;
    bool has_layout;
    const char *layout_text;
    struct rlk_layout layout;
    const char *capture;
    bool complete;
    uint64_t dropped;
    bool *missing; /* ranks entries */
    uint32_t nmissing;
    size_t nevents;
    struct sy_event *events;
    uint32_t ntensors; /* memo slots */
    uint32_t nnames, nallocs, noccurrences;
    bool any_tensor, any_launch;

    /* While reading. */
    struct rlk_arena arena;
    json_t *names, *allocs, *occurrences, *ids; /* text -> number */
    uint64_t max_bytes;
    uint32_t *seen, stamp; /* scratch: seen[r] == stamp = rank r is in the list at hand */
};

/* Reads the whole spec; on failure everything is released. sy_spec_release may be called on a zeroed one. */
int sy_spec_read(struct sy_spec *spec, const json_t *root, uint64_t max_bytes, struct rlk_detail *detail);
void sy_spec_release(struct sy_spec *spec);

/* The manifest that this spec gives (new reference; NULL = out of memory). */
json_t *sy_manifest(const struct sy_spec *spec, const char *tool);

/* Parts, each in its own file. `at` is the value to read. */
int sy_read_event(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event);
int sy_read_kind(struct sy_spec *spec, const struct sy_at *at, struct sy_event *event);
int sy_read_tensors(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *tensors, size_t n);
int sy_read_fill(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *tensor);
int sy_read_edits(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *tensor);
int sy_read_dtype(const struct sy_at *at, enum rlk_dtype *out);
int sy_read_attrs(struct sy_spec *spec, const struct sy_at *at, uint32_t *n, const struct rlk_attr **attrs);
int sy_read_launches(struct sy_spec *spec, const struct sy_at *at, struct rlk_event *event);
int sy_read_ranks(struct sy_spec *spec, const struct sy_at *at, bool ascending, uint32_t *n, const uint32_t **ranks);

/* n zeroed elements in the arena; NULL = out of memory (n = 0 gives a valid pointer). */
void *sy_new(struct sy_spec *spec, size_t n, size_t size);
/* The number of `text` in a table, a new one if it is not there; SY_NONE = out of memory. */
uint32_t sy_number_of(json_t *table, const char *text, uint32_t *count);

#define SY_NEW(spec, n, type) ((type *)sy_new((spec), (n), sizeof(type)))

#endif
