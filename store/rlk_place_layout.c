#include "store/rlk_place.h"

#include <inttypes.h>
#include <string.h>

#define GROUPS 5u

/* The layout as sizes in rank order, tp fastest. */
static void sizes_of(const struct rlk_layout *layout, uint32_t size[GROUPS])
{
    size[0] = layout->tp;
    size[1] = layout->cp;
    size[2] = layout->ep;
    size[3] = layout->dp;
    size[4] = layout->pp;
}

static int group_index(const char *name, size_t n)
{
    static const char names[GROUPS][3] = {"tp", "cp", "ep", "dp", "pp"};
    for (int i = 0; i < (int)GROUPS && n == 2; i++)
        if (memcmp(name, names[i], 2) == 0)
            return i;
    return -1;
}

int rlk_layout_parse(struct rlk_layout *out, const char *text, struct rlk_detail *detail)
{
    uint32_t size[GROUPS] = {1, 1, 1, 0, 1};
    bool seen[GROUPS] = {false};
    const char *p = text;
    if (!*p)
        return rlk_fail(detail, RLK_EPARSE, "layout: empty; write for example tp2cp4");
    while (*p) {
        int group = p[1] ? group_index(p, 2) : -1;
        if (group < 0)
            return rlk_fail(detail, RLK_EPARSE, "layout \"%.64s\": tp, cp, ep, dp or pp expected at \"%.16s\"", text,
                            p);
        if (seen[group])
            return rlk_fail(detail, RLK_EPARSE, "layout \"%.64s\": %.2s is given twice", text, p);
        seen[group] = true;
        const char *digits = p + 2;
        uint64_t n = 0;
        for (p = digits; *p >= '0' && *p <= '9'; p++)
            n = n > UINT32_MAX ? n : n * 10 + (uint64_t)(*p - '0');
        if (p == digits || *digits == '0' || n > UINT32_MAX)
            return rlk_fail(detail, RLK_EPARSE, "layout \"%.64s\": a size from 1 to 4294967295 expected after %.2s",
                            text, digits - 2);
        size[group] = (uint32_t)n;
    }
    *out = (struct rlk_layout){.tp = size[0], .cp = size[1], .ep = size[2], .dp = size[3], .pp = size[4]};
    return RLK_OK;
}

int rlk_layout_fit(struct rlk_layout *layout, uint32_t ranks, struct rlk_detail *detail)
{
    uint32_t size[GROUPS];
    uint64_t product = 1;
    sizes_of(layout, size);
    for (unsigned i = 0; i < GROUPS; i++) {
        if (i == 3 && size[i] == 0)
            continue;
        if (size[i] == 0)
            return rlk_fail(detail, RLK_EINVAL, "layout: a size of 0");
        product *= size[i]; /* both below 2^32 */
        if (product > ranks)
            break;
    }
    if (ranks == 0 || product > ranks || ranks % product != 0 || (layout->dp != 0 && product != ranks))
        return rlk_fail(detail, RLK_EINVAL,
                        "layout tp%" PRIu32 "cp%" PRIu32 "ep%" PRIu32 "dp%" PRIu32 "pp%" PRIu32
                        " (dp0 = left out) does not fit %" PRIu32 " ranks",
                        layout->tp, layout->cp, layout->ep, layout->dp, layout->pp, ranks);
    if (layout->dp == 0)
        layout->dp = (uint32_t)(ranks / product);
    return RLK_OK;
}

int rlk_layout_group(const struct rlk_layout *layout, uint32_t ranks, const char *group, uint32_t rank, uint32_t *out,
                     uint32_t *n)
{
    struct rlk_layout fitted = *layout;
    uint32_t size[GROUPS];
    *n = 0;
    int index = group_index(group, strlen(group));
    if (index < 0)
        return RLK_ENOENT;
    if (rank >= ranks || rlk_layout_fit(&fitted, ranks, NULL) != RLK_OK)
        return RLK_EINVAL;
    sizes_of(&fitted, size);
    uint32_t stride = 1; /* between neighbours of the group; divides ranks */
    for (int i = 0; i < index; i++)
        stride *= size[i];
    uint32_t own = rank / stride % size[index];
    for (uint32_t i = 0; i < size[index]; i++)
        out[i] = rank - own * stride + i * stride;
    *n = size[index];
    return RLK_OK;
}
