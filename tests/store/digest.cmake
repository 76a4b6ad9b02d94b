# The digest, placements, element values and the arena.
rlk_add_test(store.digest.vectors SOURCES test_digest_vectors.c LABELS unit LIBS rlk_store)
rlk_add_test(store.digest SOURCES test_digest.c slow_digest.c LABELS unit LIBS rlk_store)
rlk_add_test(store.dtype_value SOURCES test_dtype_value.c LABELS unit LIBS rlk_store)
rlk_add_test(store.arena SOURCES test_arena.c LABELS unit LIBS rlk_store)
target_link_options(store.arena PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
rlk_add_test(store.digest.layouts SOURCES test_digest_layouts.c LABELS unit LIBS rlk_store)
rlk_add_test(store.place SOURCES test_place.c LABELS unit LIBS rlk_store)
