# The digest, placements, element values and the arena.
rlk_add_test(store.digest.vectors SOURCES test_digest_vectors.c LABELS unit LIBS rlk_store)
