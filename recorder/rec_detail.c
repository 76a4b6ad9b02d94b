/* rec_detail.c - taking over the parts of an event that the caller filled in. */
#include "recorder/rec_op.h"

static const char *either(struct rlk_tap_op *op, const char *given, const char *had)
{
    return given && *given ? rlki_op_string(op, given) : had ? had : "";
}

static const struct rlk_attr *copy_attrs(struct rlk_tap_op *op, const struct rlk_attr *from, uint32_t n)
{
    struct rlk_attr *attrs = rlki_op_copy(op, from, n, sizeof *attrs);
    for (uint32_t i = 0; attrs && i < n; i++) {
        attrs[i].key = rlki_op_string(op, attrs[i].key);
        attrs[i].s = rlki_op_string(op, attrs[i].s);
    }
    return attrs;
}

static void take_launches(struct rlk_tap_op *op, const struct rlk_event *from)
{
    if (from->nlaunches) {
        struct rlk_launch *launches = rlki_op_copy(op, from->launches, from->nlaunches, sizeof *launches);
        for (uint32_t i = 0; launches && i < from->nlaunches; i++) {
            launches[i].kernel = rlki_op_string(op, launches[i].kernel);
            launches[i].image = rlki_op_string(op, launches[i].image);
            launches[i].config = rlki_op_string(op, launches[i].config);
            launches[i].attrs = copy_attrs(op, launches[i].attrs, launches[i].nattrs);
        }
        op->event.launches = launches;
        op->event.nlaunches = launches ? from->nlaunches : 0;
    }
    if (from->nlaunch_ranges) {
        op->event.launch_ranges =
            rlki_op_copy(op, from->launch_ranges, from->nlaunch_ranges, sizeof *from->launch_ranges);
        op->event.nlaunch_ranges = op->event.launch_ranges ? from->nlaunch_ranges : 0;
    }
}

static const char *const *copy_strings(struct rlk_tap_op *op, const char *const *from, uint32_t n)
{
    const char **to = rlki_op_copy(op, from, n, sizeof *to);
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = rlki_op_string(op, to[i]);
    return to;
}

static void take_collective(struct rlk_tap_op *op, const struct rlk_event *from)
{
    struct rlk_event *e = &op->event;
    e->u.collective.group = either(op, from->u.collective.group, e->u.collective.group);
    e->u.collective.algo = rlki_op_string(op, from->u.collective.algo);
    e->u.collective.proto = rlki_op_string(op, from->u.collective.proto);
    e->u.collective.channels = from->u.collective.channels;
    e->u.collective.order = rlki_op_copy(op, from->u.collective.order, from->u.collective.norder, sizeof(uint32_t));
    e->u.collective.norder = from->u.collective.norder;
    e->u.collective.members = copy_strings(op, from->u.collective.members, from->u.collective.nmembers);
    e->u.collective.nmembers = from->u.collective.nmembers;
    e->u.collective.ranks = rlki_op_copy(op, from->u.collective.ranks, from->u.collective.nranks, sizeof(uint32_t));
    e->u.collective.nranks = from->u.collective.nranks;
}

void rlki_op_take_detail(struct rlk_tap_op *op, const struct rlk_event *from)
{
    struct rlk_event *e = &op->event;
    e->id = either(op, from->id, e->id);
    take_launches(op, from);
    for (uint32_t i = 0; i < from->nattrs; i++)
        rlki_op_attr(op, &from->attrs[i]);
    if (from->kind != e->kind)
        return;
    switch (e->kind) {
    case RLK_EV_OP:
        e->u.op.contract = either(op, from->u.op.contract, e->u.op.contract);
        break;
    case RLK_EV_COLLECTIVE:
        take_collective(op, from);
        break;
    case RLK_EV_COPY:
        e->u.copy.direction = either(op, from->u.copy.direction, e->u.copy.direction);
        break;
    case RLK_EV_WEIGHTS:
        e->u.weights.version = either(op, from->u.weights.version, e->u.weights.version);
        e->u.weights.side = either(op, from->u.weights.side, e->u.weights.side);
        break;
    case RLK_EV_LEAF:
        e->u.leaf.name = either(op, from->u.leaf.name, e->u.leaf.name);
        e->u.leaf.reference = rlki_op_string(op, from->u.leaf.reference);
        e->u.leaf.sha256 = rlki_op_string(op, from->u.leaf.sha256);
        e->u.leaf.generator = rlki_op_string(op, from->u.leaf.generator);
        e->u.leaf.seed = from->u.leaf.seed;
        break;
    default: /* the other kinds are made by event(), in one piece */
        break;
    }
}
