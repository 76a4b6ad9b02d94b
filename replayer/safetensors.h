/* safetensors.h - one safetensors file: u64 LE length of the header, the header (JSON), then the bytes of the tensors.
 * Internal. */
#ifndef REPLAYER_SAFETENSORS_H
#define REPLAYER_SAFETENSORS_H

#include "kernels/rlk_kbase.h"

#include <jansson.h>

struct rlki_tensors {
    int fd;
    char path[512];
    json_t *header; /* {name: {"dtype", "shape", "data_offsets"}}, checked */
    uint64_t data;  /* where the bytes begin */
};

int rlki_tensors_open(struct rlki_tensors *file, const char *path, struct rlk_kdetail *detail);
void rlki_tensors_close(struct rlki_tensors *file);
/* The stored bytes of one tensor, malloc'ed; *dtype lives as long as the file. RLK_K_EINVAL: not there, or another
 * shape than [rows, cols] (ndim 2) or [cols] (ndim 1). ndim 0: any shape. */
int rlki_tensors_read(struct rlki_tensors *file, const char *name, int ndim, int64_t rows, int64_t cols, void **bytes,
                      size_t *size, const char **dtype, struct rlk_kdetail *detail);

/* The same as values (rlk_folder_read). folder.c */
int rlki_tensors_values(struct rlki_tensors *file, const char *name, int ndim, int64_t rows, int64_t cols,
                        uint16_t *bits, float *wide, struct rlk_kdetail *detail);

/* A whole small file as JSON (duplicate keys are refused). NULL: *rc and the detail say why. */
json_t *rlki_json_file(const char *path, int *rc, struct rlk_kdetail *detail);

#endif
