/* combine.c - an operator that reads what other ranks hold, recorded as an event of each rank: its attribute `combines`
 * names the ranks whose inputs are its own. docs/identity.md, "Root". */
#include "auditor/audit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *rlki_combines(const struct rlki_ev *ev)
{
    for (uint32_t i = 0; ev->e.kind == RLK_EV_OP && i < ev->e.nattrs; i++)
        if (ev->e.attrs[i].type == RLK_ATTR_STRING && strcmp(ev->e.attrs[i].key, "combines") == 0)
            return ev->e.attrs[i].s[0] ? ev->e.attrs[i].s : NULL;
    return NULL;
}

uint64_t rlki_combine_key(const struct rlki_audit *audit, const struct rlki_ev *ev)
{
    const char *text = rlki_combines(ev);
    return text ? rlki_mix(rlki_mix(89, rlki_ev_identity(audit, ev)), XXH3_64bits(text, strlen(text))) : 0;
}

uint32_t rlki_combine_ranks(const char *text, uint32_t *out, uint32_t room)
{
    uint32_t n = 0;
    for (const char *p = text;; p++) {
        char *end;
        const unsigned long long rank = strtoull(p, &end, 10);
        if (*p < '0' || *p > '9' || rank > UINT32_MAX || n == room || (n && out[n - 1] >= rank))
            return 0;
        out[n++] = (uint32_t)rank;
        if (!*end)
            return n;
        if (*end != ',')
            return 0;
        p = end;
    }
}
