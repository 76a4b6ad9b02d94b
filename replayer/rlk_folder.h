/* rlk_folder.h - a Hugging Face folder of a Qwen3 model, as transformers saves it: config.json, and model.safetensors
 * or its shards by model.safetensors.index.json.
 *
 * The files are hostile until read: every length, offset and number is checked, a fault is a code and a sentence that
 * names the file. Opening reads config and headers; a tensor's bytes are read when asked for. One thread at a time.
 */
#ifndef REPLAYER_RLK_FOLDER_H
#define REPLAYER_RLK_FOLDER_H

#include "replayer/rlk_train.h"

struct rlk_folder;

/* RLK_K_EINVAL: missing or malformed; RLK_K_EUNSUPPORTED: well-formed and another model; RLK_K_ENOMEM. */
int rlk_folder_open(struct rlk_folder **out, const char *dir, struct rlk_kdetail *detail);
void rlk_folder_close(struct rlk_folder *folder);                                /* NULL is allowed */
const struct rlk_model_shape *rlk_folder_shape(const struct rlk_folder *folder); /* named "folder" */
const char *rlk_folder_path(const struct rlk_folder *folder);

/* A matrix [rows, cols], or a vector [cols] where ndim is 1, as stored: BF16, F16 or F32. bits: rounded to bf16
 * (nearest even); wide: exact. Either may be NULL. */
int rlk_folder_read(struct rlk_folder *folder, const char *name, int ndim, int64_t rows, int64_t cols, uint16_t *bits,
                    float *wide, struct rlk_kdetail *detail);
/* Where a parameter stands: "FILE#NAME" in `where` (room for 600), and the SHA-256 of its stored bytes. */
int rlk_folder_source(struct rlk_folder *folder, const char *name, char *where, char sha256[65],
                      struct rlk_kdetail *detail);

#endif
