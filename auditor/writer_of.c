/* writer_of.c - who wrote a buffer last: a backward search with memory, for inputs that carry no reference. */
#include "auditor/side.h"

#include <string.h>
#include <xxhash.h>

#define BLOCK UINT64_C(1024)

struct search {
    uint32_t rank;
    uint64_t alloc;
    const char *name;
    uint64_t before;
    bool found;
    uint64_t seq;
    uint32_t output;
};

static bool wrote(const struct search *search, const struct rlk_tensor *tensor)
{
    if (tensor->role != RLK_ROLE_OUT)
        return false;
    if (search->alloc)
        return tensor->alloc == search->alloc;
    return strcmp(tensor->name, search->name) == 0;
}

static int look(void *context, const struct rlk_event *event)
{
    struct search *search = context;
    /* A leaf says what was there: it is nobody's producer. */
    if (event->rank != search->rank || event->seq >= search->before || event->kind == RLK_EV_LEAF)
        return 0;
    for (uint32_t i = 0; i < event->ntensors; i++) {
        if (!wrote(search, &event->tensors[i]))
            continue;
        search->found = true;
        search->seq = event->seq;
        search->output = event->tensors[i].index;
    }
    return 0;
}

/* The memo keeps, for a buffer, up to where it was searched (from the start) and what was last found. */
static uint64_t memo_key(uint32_t env, uint32_t rank, uint64_t alloc, const char *name, uint64_t field)
{
    uint64_t who = alloc ? alloc : XXH3_64bits(name, strlen(name));
    return rlki_mix(rlki_mix(rlki_mix(rlki_mix(who, alloc != 0), env), rank), field);
}

int rlki_side_writer(struct rlki_side *side, uint32_t env, uint32_t rank, uint64_t seq, uint64_t alloc,
                     const char *name, uint64_t *out_seq, uint32_t *out_output, struct rlk_detail *detail)
{
    if (env >= side->nenv || (!alloc && (!side->synthetic || !name || !*name)))
        return RLK_ENOENT;
    uint64_t done = 0, last = 0, last_output = 0;
    bool known = rlki_hash_get(&side->writers, memo_key(env, rank, alloc, name, 0), &done);
    bool had = known && rlki_hash_get(&side->writers, memo_key(env, rank, alloc, name, 1), &last) && last != UINT64_MAX;
    if (had)
        rlki_hash_get(&side->writers, memo_key(env, rank, alloc, name, 2), &last_output);
    if (known && done > seq) { /* asked out of order: search anew */
        done = 0;
        had = false;
    }
    struct search search = {.rank = rank, .alloc = alloc, .name = name, .before = seq};
    for (uint64_t hi = seq; hi > done && !search.found;) {
        uint64_t lo = hi - done > BLOCK ? hi - BLOCK : done;
        if (side->writer_budget < hi - lo)
            return RLK_EAGAIN;
        side->writer_budget -= hi - lo;
        int rc = rlk_env_scan(side->env[env].env, lo, hi, look, &search, detail);
        if (rc)
            return rc;
        hi = lo;
    }
    if (!search.found && had) {
        search.found = true;
        search.seq = last;
        search.output = (uint32_t)last_output;
    }
    rlki_hash_put(&side->writers, memo_key(env, rank, alloc, name, 0), seq);
    rlki_hash_put(&side->writers, memo_key(env, rank, alloc, name, 1), search.found ? search.seq : UINT64_MAX);
    if (search.found) {
        rlki_hash_put(&side->writers, memo_key(env, rank, alloc, name, 2), search.output);
        *out_seq = search.seq;
        *out_output = search.output;
    }
    return search.found ? RLK_OK : RLK_ENOENT;
}
