# The CPU digest against a plain loop of xxHash calls; 1.3 times is the bound of the adapter, so the digest must stay below.
add_executable(bench.digest bench_digest.c)
target_link_libraries(bench.digest PRIVATE rlk_compile rlk_store)
add_test(NAME bench.digest COMMAND bench.digest 8 --check 1.3)
set_tests_properties(bench.digest PROPERTIES LABELS "long")
