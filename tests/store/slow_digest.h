/* slow_digest.h - docs/digest.md once more, element by element and with nothing clever, to check store/rlk_digest.h. */
#ifndef TESTS_STORE_SLOW_DIGEST_H
#define TESTS_STORE_SLOW_DIGEST_H

#include "store/rlk_digest.h"

/* Same meaning as rlk_digest_view(); view and place must be valid. Aborts when memory runs out. */
void slow_digest(struct rlk_sums *out, bool *composable, const struct rlk_view *view, const struct rlk_place *place);

#endif
