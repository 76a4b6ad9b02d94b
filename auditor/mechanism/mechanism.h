/* mechanism.h - why an event is a root: what a rule is given, what it may say, and the table of rules.
 *
 * One rule a file, one class a rule (docs/diagnosis.md). A rule reads the facts of one difference and says of classes
 * - its own and others - that the evidence shows them, points to them, leaves them open, or excludes them. No rule
 * decides: table.c does, from what all of them said (docs/diagnosis.md, "Confidence").
 */
#ifndef AUDITOR_MECHANISM_H
#define AUDITOR_MECHANISM_H

#include "auditor/audit.h"
#include "auditor/locate.h"

/* In the order in which equally good explanations are preferred: the more special one first. X(enumerator, name) */
#define RLKI_CLASSES_X(X)                                                                                              \
    X(RLKI_M_SIGN_OF_ZERO, "sign-of-zero")                                                                             \
    X(RLKI_M_UNINITIALIZED, "uninitialized")                                                                           \
    X(RLKI_M_VERSION_LABEL, "version-label")                                                                           \
    X(RLKI_M_STALE_WEIGHTS, "stale-weights")                                                                           \
    X(RLKI_M_STALE_CACHE, "stale-cache")                                                                               \
    X(RLKI_M_STATE_RESTORE, "state-restore")                                                                           \
    X(RLKI_M_SEMANTICS, "semantics")                                                                                   \
    X(RLKI_M_PERMUTATION, "permutation")                                                                               \
    X(RLKI_M_DTYPE, "dtype")                                                                                           \
    X(RLKI_M_RNG, "rng")                                                                                               \
    X(RLKI_M_BUCKET, "bucket")                                                                                         \
    X(RLKI_M_COLLECTIVE_ALGORITHM, "collective-algorithm")                                                             \
    X(RLKI_M_COLLECTIVE_TOPOLOGY, "collective-topology")                                                               \
    X(RLKI_M_LAYOUT_REDUCTION, "layout-reduction")                                                                     \
    X(RLKI_M_KERNEL_DIFFERS, "kernel-differs")                                                                         \
    X(RLKI_M_AUTOTUNE, "autotune")                                                                                     \
    X(RLKI_M_LAUNCH_CONFIG, "launch-config")                                                                           \
    X(RLKI_M_SHARD_BOUNDARY, "shard-boundary")                                                                         \
    X(RLKI_M_POSSIBLE_CORRUPTION, "possible-corruption")                                                               \
    X(RLKI_M_ATOMIC_ORDER, "atomic-order")                                                                             \
    X(RLKI_M_RACE, "race")                                                                                             \
    X(RLKI_M_EXTRA_OR_MISSING, "extra-or-missing")

enum rlki_class {
#define X(name, text) name,
    RLKI_CLASSES_X(X)
#undef X
        RLKI_CLASSES
};

/* How far the evidence goes for a class. */
enum rlki_hold {
    RLKI_SILENT = 0,
    RLKI_OPEN,   /* not excluded, and nothing speaks for it: never the answer, at most listed beside it */
    RLKI_POINTS, /* what it would leave is there, other causes would leave it too */
    RLKI_SHOWS,  /* what only it leaves is there */
};

struct rlki_opinion; /* table.c */
/* The strongest hold of a class counts; its evidence adds up. */
void rlki_holds(struct rlki_opinion *o, enum rlki_class class, enum rlki_hold hold, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* As rlki_holds(), OPEN and without a sentence. */
void rlki_open(struct rlki_opinion *o, enum rlki_class class);
/* The evidence speaks against a class, whatever another rule says for it. The first reason is kept. */
void rlki_excludes(struct rlki_opinion *o, enum rlki_class class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A fact worth telling under any class. */
void rlki_remark(struct rlki_opinion *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What to do next if `class` is the answer; else the rule's own. */
void rlki_advise(struct rlki_opinion *o, enum rlki_class class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- facts ---- */

#define RLKI_MAX_LAUNCHES 64u

struct rlki_launches { /* the launches of both events, paired by kernel */
    const struct rlk_launch *launch[2][RLKI_MAX_LAUNCHES];
    uint32_t n[2];
    uint32_t pair[RLKI_MAX_LAUNCHES]; /* of A's i-th in B; UINT32_MAX = only A has it */
    bool known;                       /* both sides have some */
    bool same;                        /* ... and nothing about them differs but streams and graphs */
    bool graph;                       /* one side launched them from a graph, the other one by one */
};

enum rlki_repeat {
    RLKI_REPEAT_UNKNOWN = 0, /* no repeat was given, or none reaches this event */
    RLKI_REPEAT_STEADY,      /* every repeat gives the same here */
    RLKI_REPEAT_RETUNED,     /* not repeatable, and the launches of the repeats differ too */
    RLKI_REPEAT_VARIES,      /* not repeatable with the same launches, or relaunches disagree */
};

enum rlki_size {
    RLKI_SIZE_UNKNOWN = 0, /* no bytes, or nothing finite */
    RLKI_SIZE_ROUNDING,    /* what another order of the same sums gives */
    RLKI_SIZE_BETWEEN,
    RLKI_SIZE_LARGE, /* more than rounding explains, or no number */
};

struct rlki_change { /* what the bytes say; without bytes only `grade` */
    bool bytes;
    const char *pattern, *grade; /* "" if unknown */
    uint64_t elements, changed, nan;
    uint64_t seen; /* changed elements gone through */
    enum rlki_size size;
    int fill[2];       /* byte that fills every changed element of that side, or -1 */
    bool constant[2];  /* every changed element of that side is the same number */
    uint64_t wild[2];  /* changed elements of that side that are no number, or far beyond every unchanged one */
    uint32_t distinct; /* different elements among the changed ones of A, counted up to 4 */
    bool all_zero[2];  /* every element of that side is 0 */
    const unsigned char *data[2];
    uint32_t ndim; /* of `data`: the tensor of the lowest rank, across layouts the logical one */
    const uint64_t *shape;
    uint64_t first_flat, last_flat; /* first and last changed element */
    uint64_t max_ulp;
    double max_abs;
};

struct rlki_producer { /* of an input */
    bool has;
    bool lone;          /* its event has no counterpart */
    bool by_name;       /* nothing but its name says so: a synthetic recording without buffers */
    enum rlki_tri kept; /* is what was read what it wrote? */
    uint32_t env, output;
    uint64_t seq, identity, stream;
    rlk_u128 view;
    enum rlk_event_kind kind;
    uint32_t nmembers;
    char text[160];
};

struct rlki_facts {
    struct rlki_audit *audit;
    const struct rlki_found *found;
    struct rlk_arena arena;
    bool has[2], both; /* that side has the event */
    struct rlki_ev ev[2];
    const struct rlk_tensor *t[2];
    struct rlki_launches launches;
    struct rlki_change change;
    enum rlki_repeat repeat[2];
    struct rlki_producer producer[2]; /* of a root that is an input */
    bool same_event;                  /* the two are the same operator: launches and attributes can be compared */
    bool output;                      /* the difference is an output */
    bool relaunched;                  /* relaunches of it agree with each other and with what was recorded */
    bool shapes_differ;
    void *owned[2]; /* bytes */
};

/* Visits events of one environment around a difference. All rules of one comparison together look at a bounded number:
 * past it nothing is visited, and what would have been found there is not known. */
int rlki_look_around(struct rlki_facts *f, int side, uint32_t env, uint64_t first, uint64_t last,
                     int (*visit)(void *context, const struct rlk_event *event), void *context);

/* Ranks that are looked at where a difference stands on many. */
#define RLKI_RANKS_MAX 64u

int rlki_facts_gather(struct rlki_facts *f, struct rlki_audit *audit, const struct rlki_found *found,
                      const json_t *difference);
void rlki_facts_release(struct rlki_facts *f);

/* launches.c */
int rlki_facts_launches(struct rlki_facts *f);
/* The i-th pair of launches; false: A's i-th has none. */
bool rlki_launch_pair(const struct rlki_facts *f, uint32_t i, const struct rlk_launch **x, const struct rlk_launch **y);
bool rlki_launch_same_shape(const struct rlk_launch *x, const struct rlk_launch *y); /* grid, block, cluster, smem */
/* producer.c: producers of an input root. */
int rlki_facts_producers(struct rlki_facts *f);
/* What the buffer held before its producer wrote it, if that is what side `side` read. *text in `room`: "" if not. */
int rlki_older_content(struct rlki_facts *f, int side, char *text, size_t room);
/* Does a recorded wait order the producer's stream before the reader's? MAYBE: they run on one stream, or it is too
 * far. */
int rlki_stream_order(struct rlki_facts *f, int side, enum rlki_tri *out);
/* repeat.c */
bool rlki_varies(const struct rlki_facts *f);            /* a side does not repeat itself, with the same launches */
bool rlki_steady(const struct rlki_facts *f);            /* each side was repeated, and repeats itself here */
const char *rlki_who_varies(const struct rlki_facts *f); /* "A", "B", "A and B" */
/* Relaunches of the operator that a side recorded. repeats 0 = none. */
struct rlki_relaunch {
    uint32_t repeats, agree;
    bool matches;
};
int rlki_relaunch_of(struct rlki_facts *f, int side, struct rlki_relaunch *out);
/* bytes.c: `f->change.bytes` only. The double of element i of a side. */
double rlki_element(const struct rlki_facts *f, int side, uint64_t i);
bool rlki_element_changed(const struct rlki_facts *f, uint64_t i);
/* A map[] with B's slice i along `dim` = A's slice map[i], malloc'ed; NULL: there is none. */
int rlki_slice_map(const struct rlki_facts *f, uint32_t dim, uint64_t **map);

/* attributes.c: attributes that differ, and what they speak about. */
void rlki_attributes(struct rlki_facts *f, struct rlki_opinion *o);
/* context.c: remarks that hold under any class. */
void rlki_context(struct rlki_facts *f, struct rlki_opinion *o);

/* In any case: is `word` part of `text`? */
bool rlki_has_word(const char *text, const char *word);
bool rlki_has_any(const char *text, const char *const *words, size_t n);

/* Weights, leaves and metrics are told, not computed. */
static inline bool rlki_computes(enum rlk_event_kind kind)
{
    return kind == RLK_EV_OP || kind == RLK_EV_COLLECTIVE || kind == RLK_EV_COPY;
}

static inline bool rlki_same_text(const char *a, const char *b)
{
    const char *x = a ? a : "", *y = b ? b : "";
    for (; *x && *x == *y; x++, y++)
        ;
    return *x == *y;
}

/* ---- the rules ---- */

struct rlki_mechanism {
    enum rlki_class class;
    const char *next; /* the knob, or the next command, of this class */
    int (*look)(struct rlki_facts *f, struct rlki_opinion *o);
};

#define RLKI_RULES_X(X)                                                                                                \
    X(sign_of_zero)                                                                                                    \
    X(uninitialized)                                                                                                   \
    X(version_label)                                                                                                   \
    X(stale_weights)                                                                                                   \
    X(stale_cache)                                                                                                     \
    X(state_restore)                                                                                                   \
    X(semantics)                                                                                                       \
    X(permutation)                                                                                                     \
    X(dtype) X(rng) X(bucket) X(collective_algorithm) X(collective_topology) X(layout_reduction) X(kernel_differs)     \
        X(autotune) X(launch_config) X(shard_boundary) X(possible_corruption) X(race) X(atomic_order)                  \
            X(extra_or_missing)
#define X(name) extern const struct rlki_mechanism rlki_rule_##name;
RLKI_RULES_X(X)
#undef X

#endif
