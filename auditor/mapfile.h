/* mapfile.h - --map and --dims files (docs/identity.md, "Map files", "Dims files"). */
#ifndef AUDITOR_MAPFILE_H
#define AUDITOR_MAPFILE_H

#include "auditor/audit.h"

struct rlki_mapping;

/* "*" stands for any text without a dot, "**" for any text; at most nine of them. */
bool rlki_pattern_fits(const char *pattern, const char *text);

/* Reads the files that are named. RLK_EPARSE with the line; RLK_EIO. *out NULL when neither is. */
int rlki_mapping_open(struct rlki_mapping **out, const char *map, const char *dims, struct rlk_detail *detail);
void rlki_mapping_free(struct rlki_mapping *mapping);

/* Canonical module of `module` (numbers of names). */
uint32_t rlki_map_module(struct rlki_audit *audit, int side, uint32_t module);
/* Canonical module, tensor name and, where the file gives them, runs of a tensor; *place (in `arena`) NULL if none. */
int rlki_map_tensor(struct rlki_audit *audit, int side, uint32_t module, uint32_t name, uint32_t *out_module,
                    uint32_t *out_name, const struct rlk_tensor *tensor, struct rlk_arena *arena,
                    struct rlk_place **place);
/* Placement of a local tensor by the dims file, for `rank` of that side. NULL: none fits. */
int rlki_dims_place(struct rlki_audit *audit, int side, uint32_t module, const struct rlk_tensor *tensor, uint32_t rank,
                    struct rlk_arena *arena, struct rlk_place **place);

#endif
