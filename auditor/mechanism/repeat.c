/* repeat.c - does each side give the same again? From repeats (--self-a, --self-b) and from relaunches. */
#include "auditor/mechanism/mechanism.h"

#include <string.h>

#define LOOK_AHEAD (UINT64_C(1) << 16) /* events behind the operator in which its relaunches are looked for */

bool rlki_varies(const struct rlki_facts *f)
{
    return f->repeat[0] == RLKI_REPEAT_VARIES || f->repeat[1] == RLKI_REPEAT_VARIES;
}

/* Relaunches on the same inputs say it of the operator, whichever side ran them. */
bool rlki_steady(const struct rlki_facts *f)
{
    bool both = f->repeat[0] == RLKI_REPEAT_STEADY && f->repeat[1] == RLKI_REPEAT_STEADY;
    return !rlki_varies(f) && (both || f->relaunched);
}

const char *rlki_who_varies(const struct rlki_facts *f)
{
    bool a = f->repeat[0] == RLKI_REPEAT_VARIES, b = f->repeat[1] == RLKI_REPEAT_VARIES;
    return a && b ? "A and B" : a ? "A" : "B";
}

struct relaunch_search {
    const char *id;
    uint32_t rank;
    struct rlki_relaunch *out;
};

static int visit(void *context, const struct rlk_event *event)
{
    struct relaunch_search *search = context;
    if (event->kind != RLK_EV_RELAUNCH || event->rank != search->rank ||
        !rlki_same_text(event->u.relaunch.event, search->id))
        return 0;
    *search->out =
        (struct rlki_relaunch){event->u.relaunch.repeats, event->u.relaunch.agree, event->u.relaunch.matches_recorded};
    return 0;
}

int rlki_relaunch_of(struct rlki_facts *f, int side, struct rlki_relaunch *out)
{
    const struct rlki_ev *ev = &f->ev[side];
    struct relaunch_search search = {ev->e.id, ev->e.rank, out};
    memset(out, 0, sizeof *out);
    if (!f->has[side] || !ev->e.id || !*ev->e.id ||
        !rlk_env_kind(f->audit->side[side].env[ev->env].env, RLK_EV_RELAUNCH))
        return RLK_OK;
    return rlki_look_around(f, side, ev->env, ev->e.seq, ev->e.seq + LOOK_AHEAD, visit, &search);
}
