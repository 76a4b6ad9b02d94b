/* side.h - one of the two recordings: its environments, step totals, what is known of each event, and lookups. */
#ifndef AUDITOR_SIDE_H
#define AUDITOR_SIDE_H

#include "auditor/base.h"
#include "store/rlk_place.h"
#include "store/rlk_recording.h"

/* What the comparison found of an output. */
enum rlki_mark {
    RLKI_MARK_EQUAL = 0, /* aligned and equal, or never compared because everything around it is equal */
    RLKI_MARK_LONE,      /* its event has no counterpart */
    RLKI_MARK_DARK,      /* could not be compared: not digested, local, not covered */
    RLKI_MARK_DIFF,      /* aligned and unequal */
};

struct rlki_env_state {
    struct rlk_env *env;
    struct rlki_bits lone, dark, diff;
    struct rlki_bits many;  /* several outputs: which of them differ stands in `which` */
    struct rlki_hash which; /* (seq, output, mark) */
    uint64_t first_diff;    /* 1 + the lowest seq with an output that differs; 0: none */
};

/* Totals of one (step, rank) in one environment. */
struct rlki_total {
    int64_t step;
    uint32_t rank, env;
    rlk_u128 out, in;
    uint64_t events, tensors, first_seq;
};

/* One (phase, module) of one (step, rank), environments joined. */
struct rlki_span {
    uint32_t env;
    uint64_t first, count;
};
struct rlki_node {
    uint32_t phase, module;
    rlk_u128 out, in;
    uint64_t events, tensors, first_seq;
    struct rlki_span *spans;
    size_t nspans, cap;
};
struct rlki_nodes {
    struct rlki_node *node;
    size_t n, cap;
};

#define RLKI_CACHE 64u
struct rlki_cached {
    bool used;
    uint32_t env;
    uint64_t seq;
    struct rlk_arena arena;
    struct rlk_event event;
};

struct rlki_side {
    char letter; /* 'a' or 'b' */
    struct rlk_recording *recording;
    const json_t *manifest;
    struct rlki_names *names;
    size_t nenv;
    struct rlki_env_state *env;
    uint32_t *ranks, nranks;   /* ascending */
    struct rlki_total *totals; /* by step, rank, environment */
    size_t ntotals;
    struct rlk_layout layout;
    bool has_layout, synthetic;
    uint32_t world;
    bool complete;
    char why[256]; /* what is missing */
    enum rlk_intact intact;
    struct rlk_coverage coverage;
    uint64_t events, tensors;
    struct rlki_cached *cache; /* RLKI_CACHE */
    struct rlki_hash writers;  /* memo of rlki_writer_of */
    uint64_t writer_budget;
};

int rlki_side_open(struct rlki_side *side, char letter, const char *dir, struct rlki_names *names,
                   struct rlk_detail *detail);
/* Is the recording still what was recorded? (store/rlk_recording.h) Before anything is concluded from it. */
int rlki_side_intact(struct rlki_side *side, struct rlk_detail *detail);
/* Why that was not looked at, for a note; NULL: it was. */
const char *rlki_side_unchecked(const struct rlki_side *side);
void rlki_side_close(struct rlki_side *side);
/* Were the two kept by different retention (--steps, --every, --keep-last)? Then a missing step means nothing. */
bool rlki_other_retention(const struct rlki_side *a, const struct rlki_side *b);
/* Other layouts: by the manifest, or where it says nothing by the number of ranks. */
bool rlki_layouts_differ(const struct rlki_side *a, const struct rlki_side *b);

/* First total of (step, rank); *n of them. NULL and 0 if none. */
const struct rlki_total *rlki_side_totals(const struct rlki_side *side, int64_t step, uint32_t rank, size_t *n);
bool rlki_side_has_rank(const struct rlki_side *side, uint32_t rank);
/* The last step in which `rank` has events. */
int64_t rlki_side_last_step(const struct rlki_side *side, uint32_t rank);
/* May events of this step and rank be missing, because the recording is incomplete? Then nothing may be concluded from
 * how many there are, nor from which is the last. Always true of an incomplete side's last step, and of every step
 * where events were dropped. `_anywhere`: on any rank. */
bool rlki_side_cut(const struct rlki_side *side, int64_t step, uint32_t rank);
bool rlki_side_cut_anywhere(const struct rlki_side *side, int64_t step);

/* Nodes of (step, rank) by (phase, module), in order of first appearance. */
int rlki_side_nodes(struct rlki_side *side, int64_t step, uint32_t rank, struct rlki_nodes *out,
                    struct rlk_detail *detail);
void rlki_nodes_release(struct rlki_nodes *nodes);

/* One event. *out is valid until the next call that fetches. RLK_ENOENT: no such event. */
int rlki_side_fetch(struct rlki_side *side, uint32_t env, uint64_t seq, const struct rlk_event **out,
                    struct rlk_detail *detail);

void rlki_side_mark(struct rlki_side *side, uint32_t env, uint64_t seq, uint32_t output, uint32_t noutputs,
                    enum rlki_mark mark);
enum rlki_mark rlki_side_marked(const struct rlki_side *side, uint32_t env, uint64_t seq, uint32_t output);

/* Last event of `rank` before `seq` that wrote buffer `alloc` (or, in a synthetic recording and without one, a tensor
 * called `name`). RLK_OK; RLK_ENOENT: none; RLK_EAGAIN: not found within the effort allowed. */
int rlki_side_writer(struct rlki_side *side, uint32_t env, uint32_t rank, uint64_t seq, uint64_t alloc,
                     const char *name, uint64_t *out_seq, uint32_t *out_output, struct rlk_detail *detail);

/* Global ranks of the communicator of a collective event, ascending; *n = 0: not known. Room for `world` entries. */
int rlki_side_communicator(const struct rlki_side *side, const struct rlk_event *event, uint32_t *out, uint32_t *n);

bool rlki_side_failed(const struct rlki_side *side); /* an allocation failed somewhere */

/* Tensors stand inputs first, then outputs, each role in index order (store/rlk_event.h): found without a search.
 * NULL if there is no such tensor. */
uint32_t rlki_event_ninputs(const struct rlk_event *event);
const struct rlk_tensor *rlki_event_tensor(const struct rlk_event *event, uint8_t role, uint32_t index);

#endif
