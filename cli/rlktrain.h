/* rlktrain.h - what rlktrain prints: one JSON object a line. */
#ifndef CLI_RLKTRAIN_H
#define CLI_RLKTRAIN_H

#include "replayer/rlk_train.h"

/* {"event":"weights","version":...,"sha256":...,"tensor_count":...}: the digest of docs/replay.md. 0 or a code. */
int rlki_print_weights(struct rlk_train *run, long long version, bool times, struct rlk_kdetail *detail);
/* {"event":"step","train/loss":...}: every metric, and the digest of the tokens. Times are left out if !times. */
int rlki_print_step(const struct rlk_train_facts *facts, bool times, struct rlk_kdetail *detail);

/* Writes config.json and model.safetensors (bf16, the trainer's weights) into `dir`, which is made if it is missing. */
int rlki_save(struct rlk_train *run, const struct rlk_model_shape *shape, const char *dir, struct rlk_kdetail *detail);

#endif
