/* states.c - records two weight versions of one parameter on two rollout ranks, and states hashes of them.
 * usage: states VALUE1 HASH1 VALUE2 HASH2 [whole]      VALUE: what fills the parameter; HASH: 64 hex digits
 * whole: each rank holds all of it. */
#include "recorder/rlk_tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void version(const struct rlk_tap_api *tap, int n, const char *fill, const char *hash, bool whole)
{
    uint16_t data[64];
    uint64_t logical[2] = {8, 8}, shape[2] = {whole ? 8 : 4, 8};
    uint32_t nruns[2] = {whole ? RLK_WHOLE : 1, RLK_WHOLE};
    char label[32], stated[128];
    snprintf(label, sizeof label, "weight_v%06d", n);
    snprintf(stated, sizeof stated, "BF16 [8, 8] %s", hash);
    for (int i = 0; i < 64; i++)
        data[i] = (uint16_t)(strtoul(fill, NULL, 10) + (unsigned)i);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct rlk_tap_ctx *ctx = tap->ctx(rank);
        struct rlk_run run = {rank * 4, 4};
        const struct rlk_place place = {
            .ndim = 2, .shape = logical, .nruns = nruns, .runs = &run, .replica = whole ? "tp" : NULL};
        const struct rlk_tap_tensor t = {.name = "w",
                                         .view = {.dtype = RLK_BF16,
                                                  .ndim = 2,
                                                  .shape = shape,
                                                  .storage = whole ? data : data + rank * 32,
                                                  .storage_bytes = whole ? 128 : 64},
                                         .place = &place};
        tap->step(ctx, n - 1);
        struct rlk_tap_op *op = tap->weights_begin(ctx, label, "rollout");
        tap->op_out(op, &t);
        tap->op_end(op);
        if (rank == 0) {
            const struct rlk_attr a = {.key = "w", .type = RLK_ATTR_STRING, .s = stated};
            struct rlk_event e = {.kind = RLK_EV_NOTE, .nattrs = 1, .attrs = &a};
            e.u.note.code = "weights.sha256";
            e.u.note.text = label;
            tap->event(ctx, &e);
            tap->metric(ctx, "train/grad_norm", 1.0);
            tap->metric(ctx, "train/lr-pg_0", 1.0);
        }
    }
}

int main(int argc, char **argv)
{
    const struct rlk_tap_api *tap = rlk_tap();
    if (argc < 5 || !tap || strlen(argv[2]) != 64 || strlen(argv[4]) != 64)
        return 2;
    version(tap, 1, argv[1], argv[2], argc > 5);
    version(tap, 2, argv[3], argv[4], argc > 5);
    return 0;
}
