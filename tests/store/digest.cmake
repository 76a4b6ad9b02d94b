# The digest, placements, element values and the arena.
rlk_add_test(store.digest.vectors SOURCES test_digest_vectors.c LABELS unit LIBS rlk_store)
rlk_add_test(store.digest SOURCES test_digest.c slow_digest.c LABELS unit LIBS rlk_store)
# The same without AVX2, whatever this machine has.
rlk_add_test(store.digest.baseline SOURCES test_digest.c slow_digest.c ${PROJECT_SOURCE_DIR}/store/rlk_digest_scan.c
  LABELS unit LIBS rlk_store)
target_compile_definitions(store.digest.baseline PRIVATE RLK_NO_AVX2)
rlk_add_test(store.dtype_value SOURCES test_dtype_value.c LABELS unit LIBS rlk_store)
rlk_add_test(store.value_diff SOURCES test_value_diff.c LABELS unit LIBS rlk_store)
rlk_add_test(store.arena SOURCES test_arena.c LABELS unit LIBS rlk_store)
target_link_options(store.arena PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
rlk_add_test(store.digest.layouts SOURCES test_digest_layouts.c LABELS unit LIBS rlk_store)
rlk_add_test(store.place SOURCES test_place.c LABELS unit LIBS rlk_store)

# The Python program of docs/digest.md against its vectors and against the C digest; needs numpy and xxhash (else 77).
add_executable(store.digest_tool digest_tool.c)
target_link_libraries(store.digest_tool PRIVATE rlk_compile rlk_store)
add_test(NAME store.digest.python
  COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/digest_doc.py ${PROJECT_SOURCE_DIR}/docs/digest.md
          $<TARGET_FILE:store.digest_tool> ${PROJECT_SOURCE_DIR}/build/digest-venv)
set_tests_properties(store.digest.python PROPERTIES SKIP_RETURN_CODE 77 LABELS "python" TIMEOUT 600)
