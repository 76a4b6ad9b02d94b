/* drawing.h - what an element difference looks like, small enough for a page (docs/cli.md, "Drawing"). */
#ifndef AUDITOR_DRAWING_H
#define AUDITOR_DRAWING_H

#include "auditor/joined.h"

#include <jansson.h>

#define RLKI_MAP_ROWS 64u
#define RLKI_MAP_COLS 96u

/* Adds "histogram", "map" and "examples" to a difference: distances in powers of two, the tensor as rows x columns, the
 * first few changed elements and the farthest one. Row-major, the same shape and dtype, n elements each. `place` turns
 * local indices into logical ones, or NULL. `cuts`: where parts meet in A and in B, drawn into the map (either may be
 * NULL). RLK_ENOMEM; what could not be stored is remembered as rlki_set does. */
int rlki_draw(json_t *difference, enum rlk_dtype dtype, uint32_t ndim, const uint64_t *shape,
              const struct rlk_place *place, const struct rlki_cuts *const cuts[2], const void *a, const void *b,
              uint64_t n);

/* elements.c: the multi-index of a flat one, logical where there is a placement. */
json_t *rlki_index_json(uint64_t flat, uint32_t ndim, const uint64_t *shape, const struct rlk_place *place);

#endif
