# Cost of a tap: with no recorder it must stay within a few nanoseconds.
add_executable(bench.tap bench_tap.c)
target_link_libraries(bench.tap PRIVATE rlk_compile rlktap)
add_dependencies(bench.tap rlkrec_so)
add_test(NAME bench.tap COMMAND bench.tap $<TARGET_FILE:rlkrec_so> --check 10)
set_tests_properties(bench.tap PROPERTIES LABELS "long")
